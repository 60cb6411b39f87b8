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
//!   With lifetimes that are far away (*equal*, *mixed*) triage sees at a glance that
//!   all is in time. *Planned* are lifetimes of which each fits, but not at a glance,
//!   so triage walks the queue for every packet.
//! - *Overloaded*: the same with twice as many packets as can leave and the
//!   lifetimes of the sweep, so half of all packets are given up.
//!
//! The agent stands still (SIGSTOP) meanwhile: the data path does not need it, and
//! its housekeeping is not a cost of packets.

mod few;
mod floor;
mod pktgen;
mod standing;

use std::{fs, net::Ipv4Addr, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use self::{pktgen::Pktgen, standing::Standing};
use super::{Options, Part, Target};
use crate::{bestby::Agent, netns::Netns, run, say, sys, table::Table};

const DEVICE: &str = "d0";
/// ns of virtual time per instruction (`-icount shift=1`).
const NS_PER_INSTRUCTION: f64 = 2.0;
/// Bytes of every packet, MAC header included: an audio packet of the conference.
const BYTES: u64 = 214;
/// pktgen's payload begins like RTP with 14 contributing sources: in a packet of this
/// many bytes they do not fit, and it is plain UDP. In the larger ones every packet is
/// an ADU of its own, the most work a classifier can have with a packet.
const PLAIN_BYTES: u64 = 100;
/// pktgen's sequence number is the RTP timestamp, and every run begins it anew; the packets
/// of the run before would be the older ones of the same ADUs, and stale. The classifier
/// remembers ADUs for a second, or for two lifetimes.
const FORGOTTEN: Duration = Duration::from_millis(1500);
/// What any BPF qdisc with any classifier costs.
const FLOOR: &str = "floor (a BPF FIFO, a classifier that does nothing)";
const FLOWS: u64 = 10_000;
const RULES: usize = 100;
const MANY_RULES: usize = 10_000;
/// First UDP port named by the rules.
const PORT: usize = 20_000;
const PACKETS: u64 = 20_000;
/// More flows than the flow cache holds: with these in turn every packet misses it.
const MISSING_FLOWS: u64 = 60_000;

/// Cost of one queue with packets passing an empty queue.
struct Passing {
    queue: String,
    /// Destinations in turn (= sessions of bestby, = flows of fair queues).
    flows: u64,
    /// Bytes of every packet; see `PLAIN_BYTES`.
    bytes: u64,
    /// Instructions per packet in all, pktgen included.
    total: f64,
    /// Instructions per packet above no qdisc.
    added: f64,
    /// Largest difference between repetitions, instructions.
    spread: f64,
}

/// All costs.
#[derive(Default)]
struct Costs {
    passing: Vec<Passing>,
    standing: Vec<Standing>,
}

/// What a rule says of its packets.
#[derive(Clone, Copy, Debug)]
struct Says {
    /// ns.
    lifetime: u64,
    priority: u8,
}

impl Says {
    /// A lifetime in ms, and the priority of most rules here.
    const fn ms(lifetime: u64) -> Self {
        Self {
            lifetime: lifetime * sys::MILLI,
            priority: 4,
        }
    }
}

/// A rule file: `count` rules of one shape, of which the packets match the middle
/// ones; they say `says` in turn.
fn rules(count: usize, says: &[Says]) -> String {
    let mut text = String::new();
    for i in 0..count {
        let port = PORT + i;
        let Says { lifetime, priority } = says[i % says.len()];
        text.push_str(&format!(
            "[[flow]]\nname = \"r{i}\"\nproto = \"udp\"\ndport = {port}\nlifetime = \"{lifetime}ns\"\npriority = {priority}\n\n"
        ));
    }
    text
}

struct Bench {
    ns: Netns,
}

impl Bench {
    fn new() -> Result<Self> {
        let ns = Netns::new("c")?;
        ns.enter(|| {
            // Router solicitations and listener reports would be counted with the packets.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(())
        })?;
        ns.sh("ip", &format!("link add {DEVICE} type dummy"))?;
        ns.sh("ip", &format!("addr add 10.78.0.1/15 dev {DEVICE}"))?;
        ns.sh("ip", &format!("link set {DEVICE} up"))?;
        Ok(Self { ns })
    }

    /// Instructions per packet of what is on the device now, and the spread. `delay`: ns from one packet to the next.
    fn pass(&self, [flows, bytes, delay]: [u64; 3], count: u64) -> Result<(f64, f64)> {
        let generator = generator(flows, 1, bytes)?;
        generator.set(&format!("delay {delay}"))?;
        // The time would be the SSRC: every second each flow would begin a stream.
        generator.set("flag NO_TIMESTAMP")?;
        let run = |count| {
            thread::sleep(FORGOTTEN);
            generator.run(count)
        };
        run(flows.max(count / 4))?;
        let count = count.max(flows);
        let mut each = Vec::new();
        for _ in 0..5 {
            each.push(run(count)? as f64 / NS_PER_INSTRUCTION / count as f64);
        }
        each.sort_by(f64::total_cmp);
        Ok((each[2], each[4] - each[0]))
    }

    /// The kernel's default, which for a dummy device is none.
    fn bare(&self) {
        // Fails where nothing was installed, and that is what is wanted.
        let _ = self.ns.sh("tc", &format!("qdisc del dev {DEVICE} root"));
    }

    fn root(&self, qdisc: &str) -> Result<()> {
        self.ns
            .sh("tc", &format!("qdisc replace dev {DEVICE} root {qdisc}"))
            .map(drop)
    }

    fn agent(&self, rules: &str, attach: &str) -> Result<Agent> {
        let agent = Agent::start_with(&self.ns, "cost", rules)?;
        agent.bestby(&format!("iface attach {DEVICE} --enforce {attach}"))?;
        Ok(agent)
    }

    fn detach(&self, agent: &Agent) -> Result<()> {
        agent.bestby(&format!("iface detach {DEVICE}")).map(drop)
    }

    /// Packets counted, and dropped, by the rule that pktgen's packets match.
    fn rule(&self, agent: &Agent) -> Result<[u64; 2]> {
        counted(&agent.json("stats")?["flows"][format!("r{}", RULES / 2)])
    }

    /// The same on the interface.
    fn interface(&self, agent: &Agent) -> Result<[u64; 2]> {
        counted(&agent.json("stats")?["interfaces"][DEVICE])
    }
}

/// Of counters in `bestby --json stats`: packets that came in, and those dropped for any reason.
fn counted(counters: &Value) -> Result<[u64; 2]> {
    let dropped = || {
        let reasons = counters["dropped"].as_object()?.values();
        reasons.map(Value::as_u64).sum::<Option<u64>>()
    };
    let both = || Some([counters["packets_in"].as_u64()?, dropped()?]);
    both().with_context(|| format!("no counters in `bestby --json stats`, but {counters}"))
}

/// Sends to `flows` destinations and `ports` UDP ports in turn, packets of `bytes`.
fn generator(flows: u64, ports: u64, bytes: u64) -> Result<Pktgen> {
    let generator = Pktgen::new()?;
    let last = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 78, 1, 0)) + flows as u32 - 1);
    let middle = PORT + RULES / 2;
    for words in [
        format!("pkt_size {bytes}"),
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

/// Passing packets, all queues.
fn passing(bench: &Bench, costs: &mut Costs) -> Result<()> {
    // The first of each kind of traffic is the base.
    let mut pass = |queue: &str, &(flows, bytes): &(u64, u64)| -> Result<()> {
        let (total, spread) = bench.pass([flows, bytes, 0], PACKETS)?;
        let same = |p: &&Passing| (p.flows, p.bytes) == (flows, bytes);
        let base = costs.passing.iter().find(same);
        let added = total - base.map_or(total, |base| base.total);
        note!("  {queue}, {flows} flows, {bytes} bytes: {total:.0} instructions, {added:+.0}");
        costs.passing.push(Passing {
            queue: queue.into(),
            flows,
            bytes,
            total,
            added,
            spread,
        });
        Ok(())
    };
    // Those that miss the flow cache last.
    let all = [
        (1, BYTES),
        (1, PLAIN_BYTES),
        (FLOWS, BYTES),
        (MISSING_FLOWS, BYTES),
    ];
    for traffic in &all {
        bench.bare();
        pass("no qdisc", traffic)?;
        if traffic.0 == MISSING_FLOWS || traffic.1 == PLAIN_BYTES {
            continue;
        }
        for (name, qdisc) in [
            ("pfifo", "pfifo limit 1000"),
            ("fq_codel", "fq_codel"),
            ("prio", "prio"),
            ("fq", "fq"),
            ("cake", "cake unlimited besteffort"),
        ] {
            bench.root(qdisc)?;
            pass(name, traffic)?;
        }
    }
    bench.bare();
    floor::with(&bench.ns, DEVICE, || {
        bench.root("floor")?;
        all[..3]
            .iter()
            .try_for_each(|traffic| pass(FLOOR, traffic))?;
        bench.bare();
        Ok(())
    })?;
    let (qdisc, tc) = ("--mode qdisc --method triage", "--mode tc --rate 10gbit");
    let shaped: &str = &format!("{qdisc} --rate 10gbit");
    for (name, count, attach, traffic) in [
        ("bestby triage", RULES, shaped, &all[..]),
        ("bestby triage, no rate", RULES, qdisc, &all[..3]),
        ("bestby mode tc", RULES, tc, &all[..2]),
        ("bestby triage, 10,000 rules", MANY_RULES, shaped, &all[..]),
    ] {
        let agent = bench
            .agent(&rules(count, &[Says::ms(200)]), attach)
            .context(name)?;
        for traffic in traffic {
            let before = bench.rule(&agent)?;
            let paused = agent.pause()?;
            pass(name, traffic)?;
            drop(paused);
            let after = bench.rule(&agent)?;
            let [seen, dropped] = [0, 1].map(|n| after[n] - before[n]);
            ensure!(
                seen >= PACKETS && dropped == 0,
                "{name}: the rule counted {seen} packets and dropped {dropped}: this is not the \
                 path to measure"
            );
        }
        if name == "bestby triage" {
            // The classifier stays when the queue behind it is taken away.
            bench.bare();
            let _paused = agent.pause()?;
            let mut alone = all[..3].iter();
            alone.try_for_each(|traffic| pass("bestby's classifier alone", traffic))?;
        }
        bench.detach(&agent)?;
    }
    Ok(())
}

/// All costs; only sensible in virtual time. Prints them, and returns what must hold of them.
pub(super) fn run(options: &Options) -> Result<Vec<Target>> {
    run::sh("modprobe dummy").context("no dummy device in this kernel")?;
    let bench = Bench::new()?;
    let costs = bench.ns.enter(|| {
        let mut costs = Costs::default();
        if options.part(Part::Few) {
            few::run(&bench).context("a few costs")?;
        }
        if options.part(Part::Cost) {
            passing(&bench, &mut costs).context("passing packets")?;
        }
        if options.part(Part::Standing) {
            costs.standing = standing::run(&bench).context("standing packets")?;
        }
        Ok(costs)
    })?;
    if !costs.passing.is_empty() || !costs.standing.is_empty() {
        say::text(&render(&costs));
    }
    Ok(targets(&costs))
}

impl Costs {
    fn added(&self, queue: &str, flows: u64) -> Option<f64> {
        let wanted = |p: &&Passing| p.queue == queue && p.flows == flows && p.bytes == BYTES;
        self.passing.iter().find(wanted).map(|p| p.added)
    }

    /// Growth of the cost from 10 packets of equal lifetime standing, in percent of
    /// what bestby adds to a packet that passes an empty queue.
    fn growth(&self, standing: &Standing) -> Option<f64> {
        if !["equal", "mixed"].contains(&standing.lifetimes.as_str()) {
            return None;
        }
        let first = self.standing.iter().find(|s| s.lifetimes == "equal")?;
        let added = self.added("bestby triage", 1)?;
        Some((standing.total - first.total) / added * 100.0)
    }
}

/// The costs as tables.
fn render(costs: &Costs) -> String {
    let mut table = Table::new(&[
        "queue (passing packets)",
        "flows",
        "bytes",
        "total",
        "added",
        "spread",
    ]);
    for p in &costs.passing {
        table.row(vec![
            p.queue.clone(),
            p.flows.to_string(),
            p.bytes.to_string(),
            format!("{:.0}", p.total),
            format!("{:+.0}", p.added),
            format!("{:.1}", p.spread),
        ]);
    }
    let mut text = format!(
        "\nInstructions per packet, pktgen through a dummy device, {RULES} rules; {BYTES} bytes: every \
         packet an RTP ADU of its own, {PLAIN_BYTES} bytes: plain UDP\n{}",
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
        let growth = costs.growth(s);
        table.row(vec![
            s.queue.into(),
            s.lifetimes.clone(),
            match s.queued[1] {
                0 => "-".into(),
                queued => queued.to_string(),
            },
            format!("{:.0}", s.total),
            growth.map_or(String::new(), |g| format!("{g:+.1}")),
            format!("{:.0}", s.dropped * 100.0),
        ]);
    }
    text.push_str(&format!(
        "\nBusy instructions per packet offered, one packet may leave per {} µs; growth is from 10 equal \
         ones, in % of what bestby adds to a passing packet\n{}",
        standing::SPACING / 1000,
        table.render()
    ));
    text
}

/// What must hold of them.
fn targets(costs: &Costs) -> Vec<Target> {
    let mut list = Vec::new();
    for flows in [1, FLOWS, MISSING_FLOWS] {
        let Some(bestby) = costs.added("bestby triage", flows) else {
            continue;
        };
        if let Some(cake) = costs.added("cake", flows) {
            let what = format!("added instructions, {flows} sessions: below cake");
            list.push(Target::at_most(what, bestby, cake));
        }
        if let Some(many) = costs.added("bestby triage, 10,000 rules", flows) {
            // A second table walk would cost far more than the noise of a hash's layout.
            let what = format!("10,000 rules against 100, {flows} flows, ratio");
            list.push(Target::at_most(what, many / bestby, 1.05));
        }
    }
    let mut planned: Option<&Standing> = None;
    for s in &costs.standing {
        let (queued, lifetimes) = (s.queued[1], &s.lifetimes);
        if let Some(growth) = costs.growth(s) {
            let what = format!("growth with {queued} {lifetimes} standing, %");
            list.push(Target::at_most(what, growth, 15.0));
        }
        if lifetimes == "planned"
            && let Some(few) = planned.replace(s)
        {
            let what = format!("{queued} planned against {} standing, ratio", few.queued[1]);
            list.push(Target::at_most(what, s.total / few.total, 1.15));
        }
    }
    list
}
