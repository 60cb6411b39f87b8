//! What a queue costs per packet, in instructions.
//!
//! In virtual time one instruction takes 2 ns, so time counts instructions, of the
//! whole machine. Three ways:
//!
//! - *Passing*: pktgen sends as fast as it can through a dummy device, which takes
//!   every packet at once: classification, enqueue and dequeue of an empty queue.
//!   Cost = time per packet − time per packet without a qdisc.
//! - *Standing*: the queue is shaped to one packet per 200 µs, filled to N packets,
//!   then pktgen sends one packet per 200 µs: every packet is enqueued into, and
//!   dequeued from, N standing ones. Cost = time the CPU was not idle, per packet.
//! - *Overloaded*: the same with twice as many packets as can leave and the
//!   lifetimes of DESIGN's sweep, so half of all packets are given up.

use std::fs;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::{Options, Target};
use crate::{bestby::Agent, netns::Netns, pktgen::Pktgen, report::Table, run, sys};

const DEVICE: &str = "d0";
/// ns of virtual time per instruction (`-icount shift=1`).
const NS_PER_INSTRUCTION: f64 = 2.0;
/// Bytes of every packet, MAC header included: an audio packet of the conference.
const BYTES: u64 = 214;
const FLOWS: u64 = 10_000;
const RULES: usize = 100;
const MANY_RULES: usize = 10_000;
/// First UDP port named by the rules.
const PORT: usize = 20_000;
const PACKETS: u64 = 20_000;
/// More flows than the flow cache holds: with these in turn every packet misses it.
const MISSING_FLOWS: u64 = 60_000;

/// Cost of one queue with packets passing an empty queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Passing {
    /// The queue.
    pub queue: String,
    /// Destinations in turn (= sessions of bestby, = flows of fair queues).
    pub flows: u64,
    /// Instructions per packet in all, pktgen included.
    pub total: f64,
    /// Instructions per packet above no qdisc.
    pub added: f64,
    /// Largest difference between repetitions, instructions.
    pub spread: f64,
}

/// Cost with packets standing in the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The queue.
    pub queue: String,
    /// What stands there.
    pub lifetimes: String,
    /// Packets queued when the measurement began and when it ended.
    pub queued: [u64; 2],
    /// Instructions per packet sent in all: pktgen, timers, queue, device.
    pub total: f64,
    /// Parts of the packets that were dropped.
    pub dropped: f64,
}

/// All costs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Costs {
    /// Packets pass an empty queue.
    pub passing: Vec<Passing>,
    /// Packets stand in the queue.
    pub standing: Vec<Standing>,
}

/// A rule file: `count` rules of one shape, of which the packets match the middle
/// ones; `lifetimes` in turn.
fn rules(count: usize, lifetimes: &[&str]) -> String {
    let mut text = String::new();
    for i in 0..count {
        let (port, lifetime) = (PORT + i, lifetimes[i % lifetimes.len()]);
        text.push_str(&format!(
            "[[flow]]\nname = \"r{i}\"\nproto = \"udp\"\ndport = {port}\nlifetime = \"{lifetime}\"\npriority = 4\n\n"
        ));
    }
    text
}

struct Bench {
    ns: Netns,
    options: Options,
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let ns = Netns::new("c")?;
        ns.enter(|| {
            // Router solicitations and listener reports would be counted with the packets.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(())
        })?;
        ns.sh("ip", &format!("link add {DEVICE} type dummy"))?;
        ns.sh("ip", &format!("addr add 10.78.0.1/15 dev {DEVICE}"))?;
        ns.sh("ip", &format!("link set {DEVICE} up"))?;
        Ok(Self {
            ns,
            options: options.clone(),
        })
    }

    fn generator(&self, flows: u64, ports: u64) -> Result<Pktgen<'_>> {
        let generator = Pktgen::new(&self.ns, DEVICE)?;
        let last = std::net::Ipv4Addr::from(
            u32::from(std::net::Ipv4Addr::new(10, 78, 1, 0)) + flows as u32 - 1,
        );
        let middle = PORT + RULES / 2;
        for words in [
            format!("pkt_size {BYTES}"),
            "dst_min 10.78.1.0".into(),
            format!("dst_max {last}"),
            format!("udp_dst_min {middle}"),
            format!("udp_dst_max {}", middle + ports as usize - 1),
            "udp_src_min 9".into(),
            "udp_src_max 9".into(),
            "delay 0".into(),
        ] {
            generator.set(&words)?;
        }
        Ok(generator)
    }

    /// Instructions per packet of what is on the device now, and the spread.
    fn pass(&self, flows: u64) -> Result<(f64, f64)> {
        let generator = self.generator(flows, 1)?;
        generator.run(flows.max(PACKETS / 4))?;
        let count = PACKETS.max(flows);
        let mut each = Vec::new();
        for _ in 0..3 {
            each.push(generator.run(count)? as f64 / NS_PER_INSTRUCTION / count as f64);
        }
        each.sort_by(f64::total_cmp);
        Ok((each[1], each[2] - each[0]))
    }

    fn root(&self, qdisc: &str) -> Result<()> {
        self.ns
            .sh("tc", &format!("qdisc replace dev {DEVICE} root {qdisc}"))
            .map(drop)
    }

    fn agent(&self, rules: &str, attach: &str) -> Result<Agent> {
        let agent = Agent::start_with(&self.ns, "cost", rules)?;
        agent.bestby(&format!("iface attach {DEVICE} {attach}"))?;
        Ok(agent)
    }

    fn detach(&self, agent: &Agent) -> Result<()> {
        agent.bestby(&format!("iface detach {DEVICE}")).map(drop)
    }
}

/// Passing packets, all queues.
fn passing(bench: &Bench) -> Result<Vec<Passing>> {
    let mut list: Vec<Passing> = Vec::new();
    let mut base = std::collections::BTreeMap::new();
    let mut note = |queue: &str, flows: u64, (total, spread): (f64, f64)| {
        let base = *base.entry(flows).or_insert(total);
        bench.options.progress(&format!(
            "{queue}, {flows} flows: {total:.0} instructions per packet, {:+.0}",
            total - base
        ));
        list.push(Passing {
            queue: queue.into(),
            flows,
            total,
            added: total - base,
            spread,
        });
    };
    for flows in [1, FLOWS, MISSING_FLOWS] {
        bench.root("noqueue")?;
        note("no qdisc", flows, bench.pass(flows)?);
        if flows == MISSING_FLOWS {
            continue;
        }
        for (name, qdisc) in [
            ("pfifo", "pfifo limit 1000"),
            ("fq_codel", "fq_codel"),
            ("prio", "prio"),
            ("fq", "fq"),
            ("cake", "cake unlimited besteffort"),
        ] {
            bench
                .root(qdisc)
                .with_context(|| format!("installing {name}"))?;
            note(name, flows, bench.pass(flows)?);
        }
    }
    bench.root("noqueue")?;
    let shaped = "--mode qdisc --method triage --rate 10gbit";
    for (name, count, attach, flows) in [
        (
            "bestby triage",
            RULES,
            shaped,
            &[1, FLOWS, MISSING_FLOWS][..],
        ),
        (
            "bestby triage, no rate",
            RULES,
            "--mode qdisc --method triage",
            &[1, FLOWS][..],
        ),
        ("bestby mode tc", RULES, "--mode tc --rate 10gbit", &[1][..]),
        (
            "bestby triage, 10,000 rules",
            MANY_RULES,
            shaped,
            &[1, FLOWS, MISSING_FLOWS][..],
        ),
    ] {
        let agent = match bench.agent(&rules(count, &["200ms"]), attach).context(name) {
            Ok(agent) => agent,
            Err(error) if bench.options.keep_going => {
                eprintln!("not measured: {error:#}");
                continue;
            }
            Err(error) => return Err(error),
        };
        for &flows in flows {
            let before = packets_in(&agent)?;
            note(name, flows, bench.pass(flows)?);
            let seen = packets_in(&agent)? - before;
            if seen < PACKETS {
                bail!("{name}: the rule counted {seen} packets: this is not the path to measure");
            }
        }
        bench.detach(&agent)?;
    }
    Ok(list)
}

/// Packets counted by the rule that pktgen's packets match.
fn packets_in(agent: &Agent) -> Result<u64> {
    let stats = agent.json("stats")?;
    let rule = format!("r{}", RULES / 2);
    stats["flows"][&rule]["packets_in"]
        .as_u64()
        .with_context(|| format!("no counters of rule {rule} in `bestby --json stats`"))
}

fn interface(agent: &Agent, counter: &str) -> Result<u64> {
    let stats = agent.json("stats")?;
    let value = &stats["interfaces"][DEVICE][counter];
    value
        .as_u64()
        .or_else(|| {
            Some(
                value
                    .as_object()?
                    .values()
                    .filter_map(serde_json::Value::as_u64)
                    .sum(),
            )
        })
        .with_context(|| format!("no `{counter}` of {DEVICE} in `bestby --json stats`"))
}

/// One packet per this many ns leaves the shaped queue.
const SPACING: u64 = 200_000;
const STEADY: u64 = 10_000;

/// ns for which CPU 0 has been idle since boot, from the tick's own account.
fn idle_ns() -> Result<u64> {
    let text = fs::read_to_string("/proc/timer_list").context("reading /proc/timer_list")?;
    let nsecs = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(".idle_sleeptime"))
        .and_then(|rest| {
            rest.split(':')
                .nth(1)?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
    nsecs.context("no idle_sleeptime in /proc/timer_list (needs CONFIG_NO_HZ_COMMON)")
}

/// Busy instructions of the machine while `work` runs, less what asking costs.
fn busy(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let measure = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let (idle, start) = (idle_ns()?, sys::now());
        work()?;
        let (elapsed, idle) = (sys::now() - start, idle_ns()? - idle);
        Ok((elapsed as f64 - idle as f64) / NS_PER_INSTRUCTION)
    };
    let asking = measure(&mut || Ok(()))?;
    let mut work = Some(work);
    Ok(measure(&mut || work.take().map_or(Ok(()), |work| work()))? - asking)
}

fn standing(bench: &Bench) -> Result<Vec<Standing>> {
    let mut list = Vec::new();
    let rate = format!("{}B/s", BYTES * 1_000_000_000 / SPACING);
    let mut note = |standing: Standing| {
        bench.options.progress(&format!(
            "{}, {}, {} standing: {:.0} instructions per packet",
            standing.queue, standing.lifetimes, standing.queued[0], standing.total
        ));
        list.push(standing);
    };

    bench.root("noqueue")?;
    let generator = bench.generator(1, 1)?;
    generator.set(&format!("delay {SPACING}"))?;
    let total = busy(|| generator.run(STEADY).map(drop))? / STEADY as f64;
    drop(generator);
    note(Standing {
        queue: "no qdisc".into(),
        lifetimes: "-".into(),
        queued: [0, 0],
        total,
        dropped: 0.0,
    });

    // 100 times the lifetimes of the sweep: in the same proportion, yet none expires.
    let equal: &[&str] = &["20s"];
    let mixed: &[&str] = &["5s", "15s", "20s", "100s"];
    for (name, lifetimes) in [("equal", equal), ("mixed", mixed)] {
        for queued in [10, 100, 1_000, 10_000] {
            note(depth(bench, &rate, name, lifetimes, queued)?);
        }
    }
    note(overload(
        bench,
        &rate,
        "50/150/200/1000 ms",
        &["50ms", "150ms", "200ms", "1000ms"],
    )?);
    note(overload(bench, &rate, "200 ms", &["200ms"])?);
    Ok(list)
}

/// Instructions per packet with `queued` packets standing all the time.
fn depth(
    bench: &Bench,
    rate: &str,
    name: &str,
    lifetimes: &[&str],
    queued: u64,
) -> Result<Standing> {
    let attach = format!("--mode qdisc --method triage --rate {rate} --limit 20000");
    let agent = bench.agent(&rules(RULES, lifetimes), &attach)?;
    let generator = bench.generator(1, lifetimes.len() as u64)?;
    generator.run(queued)?;
    generator.set(&format!("delay {SPACING}"))?;
    let before = interface(&agent, "queued")?;
    let total = busy(|| generator.run(STEADY).map(drop))? / STEADY as f64;
    let after = interface(&agent, "queued")?;
    drop(generator);
    let dropped = interface(&agent, "dropped")?;
    bench.detach(&agent)?;
    if dropped > 0 || after.abs_diff(before) > queued / 20 + 2 || before + queued / 20 + 2 < queued
    {
        bail!(
            "{name}: {queued} packets were to stand in the queue, but {before} did at first and {after} in the end, {dropped} were dropped"
        );
    }
    Ok(Standing {
        queue: "bestby triage".into(),
        lifetimes: name.into(),
        queued: [before, after],
        total,
        dropped: 0.0,
    })
}

/// Instructions per packet offered when only half of them can leave.
fn overload(bench: &Bench, rate: &str, name: &str, lifetimes: &[&str]) -> Result<Standing> {
    let attach = format!("--mode qdisc --method triage --rate {rate} --limit 20000");
    let agent = bench.agent(&rules(RULES, lifetimes), &attach)?;
    let generator = bench.generator(1, lifetimes.len() as u64)?;
    generator.set(&format!("delay {}", SPACING / 2))?;
    // Until as many are given up as come: the longest lifetime and some.
    generator.run(2 * STEADY)?;
    let before = (interface(&agent, "queued")?, interface(&agent, "dropped")?);
    let total = busy(|| generator.run(2 * STEADY).map(drop))? / (2 * STEADY) as f64;
    let after = (interface(&agent, "queued")?, interface(&agent, "dropped")?);
    drop(generator);
    bench.detach(&agent)?;
    Ok(Standing {
        queue: "bestby triage".into(),
        lifetimes: format!("{name}, load 2"),
        queued: [before.0, after.0],
        total,
        dropped: (after.1 - before.1) as f64 / (2 * STEADY) as f64,
    })
}

/// All costs; only sensible in virtual time.
pub fn run(options: &Options) -> Result<Costs> {
    run::sh("modprobe dummy").context("no dummy device in this kernel")?;
    let bench = Bench::new(options)?;
    let mut costs = Costs {
        passing: passing(&bench).context("passing packets")?,
        ..Costs::default()
    };
    costs.standing = standing(&bench).context("standing packets")?;
    Ok(costs)
}

impl Costs {
    fn passing(&self, queue: &str, flows: u64) -> Option<&Passing> {
        self.passing
            .iter()
            .find(|p| p.queue == queue && p.flows == flows)
    }

    fn added(&self, queue: &str, flows: u64) -> Option<f64> {
        self.passing(queue, flows).map(|p| p.added)
    }

    /// Growth of the cost from 10 packets of equal lifetime standing, in percent of
    /// what bestby adds to a packet that passes an empty queue.
    fn growth(&self, standing: &Standing) -> Option<f64> {
        let first = self.standing.iter().find(|s| s.lifetimes == "equal")?;
        let added = self.added("bestby triage", 1)?;
        Some((standing.total - first.total) / added * 100.0)
    }
}

/// The costs as tables.
pub fn render(costs: &Costs) -> String {
    let mut table = Table::new(&[
        "queue (passing packets)",
        "flows",
        "total",
        "added",
        "spread",
    ]);
    for p in &costs.passing {
        table.row(vec![
            p.queue.clone(),
            p.flows.to_string(),
            format!("{:.0}", p.total),
            format!("{:+.0}", p.added),
            format!("{:.1}", p.spread),
        ]);
    }
    let mut text = format!(
        "\nInstructions per packet of {BYTES} bytes, pktgen through a dummy device, {RULES} rules\n{}",
        table.render()
    );
    let mut table = Table::new(&[
        "queue (standing packets)",
        "lifetimes",
        "queued",
        "total",
        "growth %",
        "dropped %",
    ]);
    for s in &costs.standing {
        let growth = match s.lifetimes.as_str() {
            "equal" | "mixed" => costs.growth(s),
            _ => None,
        };
        table.row(vec![
            s.queue.clone(),
            s.lifetimes.clone(),
            s.queued[1].to_string(),
            format!("{:.0}", s.total),
            growth.map_or(String::new(), |g| format!("{g:+.1}")),
            format!("{:.0}", s.dropped * 100.0),
        ]);
    }
    text.push_str(&format!(
        "\nBusy instructions per packet offered, one packet may leave per {} µs; growth is from 10 equal \
         ones, in % of what bestby adds to a passing packet\n{}",
        SPACING / 1000,
        table.render()
    ));
    text
}

/// What must hold of them.
pub fn targets(costs: &Costs) -> Vec<Target> {
    let mut list = Vec::new();
    for flows in [1, FLOWS] {
        if let (Some(bestby), Some(cake)) = (
            costs.added("bestby triage", flows),
            costs.added("cake", flows),
        ) {
            let what = format!("added instructions, {flows} sessions: below cake");
            list.push(Target::at_most(&what, bestby, cake));
        }
    }
    for flows in [1, FLOWS, MISSING_FLOWS] {
        if let (Some(few), Some(many)) = (
            costs.added("bestby triage", flows),
            costs.added("bestby triage, 10,000 rules", flows),
        ) {
            // A second table walk would cost far more than the noise of a hash's layout.
            let what = format!("10,000 rules against 100, {flows} flows, ratio");
            list.push(Target::at_most(&what, many / few, 1.05));
        }
    }
    for s in costs
        .standing
        .iter()
        .filter(|s| s.lifetimes == "equal" || s.lifetimes == "mixed")
    {
        if let Some(growth) = costs.growth(s) {
            let what = format!("growth with {} {} standing, %", s.queued[1], s.lifetimes);
            list.push(Target::at_most(&what, growth, 15.0));
        }
    }
    list
}
