//! Costs with packets standing in the queue.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};

use super::{BYTES, Bench, DEVICE, NS_PER_INSTRUCTION, RULES, Says, interface, rules};
use crate::{pktgen::Pktgen, sys};

/// One packet per this many ns leaves the shaped queue.
pub(super) const SPACING: u64 = 200_000;
/// What pktgen takes longer than that, ns: in a window its timer passes that of the
/// queue once, so that no result depends on whether both happen to expire together.
/// The queue loses one packet meanwhile.
const DRIFT: u64 = SPACING * SPACING / WINDOW;
/// Until as many packets stand there as are to, one comes per this many ns: triage expects
/// as much to come as came of late, and must not give up anything for that.
const FILL: u64 = SPACING * 4 / 5;
/// UDP ports in turn, so as many rules and flows: as many as there are lifetimes in a
/// mix, and the same where all are equal, so that only the lifetimes differ.
const PORTS: u64 = 4;
/// The steady state is watched in this many windows, and the median counts: what the
/// kernel does beside (freeing the maps of the queue before) hits one of them.
const WINDOWS: u64 = 5;
/// Length of a window, ns.
const WINDOW: u64 = 200 * sys::MILLI;
/// From the start of an overload until as many are given up as come: the longest
/// lifetime and some, ns.
const SETTLE: u64 = 1500 * sys::MILLI;

/// Packets standing where triage plans.
const PLANNED: [u64; 3] = [100, 1_000, 10_000];

/// Cost with packets standing in the queue.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The queue.
    pub queue: String,
    /// What stands there.
    pub lifetimes: String,
    /// Packets queued when the measurement began and when it ended; 0 for an
    /// overload, where what is given up decides.
    pub queued: [u64; 2],
    /// Instructions per packet sent in all: pktgen, timers, queue, device.
    pub total: f64,
    /// Parts of the packets that were dropped.
    pub dropped: f64,
}

/// Measures how busy the machine is by what it leaves over: a thread of the lowest
/// class counts rounds of a fixed loop, and in virtual time a round always takes the
/// same time. The periodic tick is part of a round's time, so it does not count as busy.
struct Idle {
    rounds: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
    ns_per_round: f64,
}

/// How long the loop alone is watched for its time per round.
const CALIBRATION: u64 = 200 * sys::MILLI;

impl Idle {
    fn new() -> Result<Self> {
        let (rounds, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, end) = (Arc::clone(&rounds), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            // Without the lowest class the loop would take time from what is measured,
            // and calibration below would notice nothing: better to count nothing.
            if sys::idle_thread().is_err() {
                return;
            }
            while !end.load(Ordering::Relaxed) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut idle = Self {
            rounds,
            stop,
            thread: Some(thread),
            ns_per_round: 0.0,
        };
        sys::sleep_until(sys::now() + 20 * sys::MILLI);
        let (start, first) = (sys::now(), idle.rounds.load(Ordering::Relaxed));
        sys::sleep_until(start + CALIBRATION);
        let (elapsed, rounds) = (
            sys::now() - start,
            idle.rounds.load(Ordering::Relaxed) - first,
        );
        if rounds == 0 {
            bail!("the idle loop does not run (SCHED_IDLE refused?)");
        }
        idle.ns_per_round = elapsed as f64 / rounds as f64;
        Ok(idle)
    }

    /// Busy instructions of the machine while `work` runs.
    fn busy(&self, work: impl FnOnce()) -> f64 {
        let (start, first) = (sys::now(), self.rounds.load(Ordering::Relaxed));
        work();
        let rounds = self.rounds.load(Ordering::Relaxed) - first;
        let idle = rounds as f64 * self.ns_per_round;
        ((sys::now() - start) as f64 - idle) / NS_PER_INSTRUCTION
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has nothing to say here.
            let _ = thread.join();
        }
    }
}

/// Packets that left the device since boot.
fn left() -> Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").context("reading net/dev")?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'))
        .and_then(|counters| counters.split_whitespace().nth(9)?.parse().ok())
        .with_context(|| format!("no sent packets of {DEVICE} in net/dev"))
}

/// What one steady state showed.
struct Steady {
    /// Busy instructions per packet offered.
    total: f64,
    /// Packets queued at both ends of the window; only right if none was dropped.
    queued: [u64; 2],
}

/// Lets pktgen send one packet per `fill` ns until `ready(queued, ns since the first)`,
/// then one per `spacing`, and watches that.
fn steady(
    generator: &Pktgen<'_>,
    fill: u64,
    spacing: u64,
    most: u64,
    ready: impl Fn(u64, u64) -> bool + Sync,
) -> Result<Steady> {
    // Calibrated while the machine is at rest.
    let idle = Idle::new()?;
    generator.set(&format!("delay {fill}"))?;
    // Ends by itself some time after the window.
    generator.set(&format!(
        "count {}",
        most + (WINDOWS * WINDOW + 500 * sys::MILLI) / spacing
    ))?;
    generator.ns().enter(|| {
        let before = left()?;
        thread::scope(|scope| {
            // A thread started here is in the same namespace.
            let sending = scope.spawn(|| generator.start_here());
            let watch = || -> Result<Steady> {
                sys::realtime_thread(60).context("real-time scheduling")?;
                let queued =
                    || -> Result<u64> { Ok(generator.sofar()?.saturating_sub(left()? - before)) };
                let limit = sys::now() + 60 * sys::SECOND;
                while generator.sofar()? == 0 {
                    sys::sleep_until(sys::now() + SPACING);
                    if sys::now() > limit {
                        bail!("pktgen does not start");
                    }
                }
                let first = sys::now();
                while !ready(queued()?, sys::now() - first) {
                    sys::sleep_until(sys::now() + SPACING);
                    if sys::now() > limit {
                        bail!("the queue holds {} packets and no more", queued()?);
                    }
                }
                generator.set_here(&format!("delay {spacing}"))?;
                sys::sleep_until(sys::now() + 50 * sys::MILLI);
                let at_first = queued()?;
                let mut each = Vec::new();
                for _ in 0..WINDOWS {
                    let (offered, end) = (generator.sofar()?, sys::now() + WINDOW);
                    let instructions = idle.busy(|| sys::sleep_until(end));
                    each.push(instructions / (generator.sofar()? - offered) as f64);
                }
                let at_last = queued()?;
                each.sort_by(f64::total_cmp);
                Ok(Steady {
                    total: each[each.len() / 2],
                    queued: [at_first, at_last],
                })
            };
            let steady = watch();
            sending
                .join()
                .map_err(|_| anyhow!("the thread that started pktgen panicked"))??;
            steady
        })
    })
}

/// All standing costs.
pub(super) fn run(bench: &Bench) -> Result<Vec<Standing>> {
    let mut list = Vec::new();
    let mut note = |standing: Standing| {
        note!(
            "  {}, {}, {} standing: {:.0} instructions per packet, {:.0} % dropped",
            standing.queue,
            standing.lifetimes,
            standing.queued[1],
            standing.total,
            standing.dropped * 100.0
        );
        list.push(standing);
    };

    bench.bare();
    let generator = bench.generator(1, PORTS, BYTES)?;
    let bare = steady(&generator, SPACING, SPACING, 1000, |_, since| {
        since > 10 * sys::MILLI
    })?;
    drop(generator);
    note(Standing {
        queue: "no qdisc".into(),
        lifetimes: "-".into(),
        queued: bare.queued,
        total: bare.total,
        dropped: 0.0,
    });

    // 100 times the lifetimes of the sweep: in the same proportion, yet none expires.
    let equal = |_| vec![Says::ms(20_000)];
    let mixed = |_| [5_000, 15_000, 20_000, 100_000].map(Says::ms).to_vec();
    type Kind<'a> = (&'a str, &'a dyn Fn(u64) -> Vec<Says>, &'a [u64]);
    let kinds: [Kind<'_>; 3] = [
        ("equal", &equal, &[10, 100, 1_000, 10_000]),
        ("mixed", &mixed, &[10, 100, 1_000, 10_000]),
        // Ten packets that must be planned are a late timer away from losing one.
        ("planned", &planned, &PLANNED),
    ];
    for (name, says, depths) in kinds {
        for &queued in depths {
            note(depth(bench, name, &says(queued), queued)?);
        }
    }
    note(overload(bench, "200 ms", &[Says::ms(200)])?);
    note(overload(
        bench,
        "50/150/200/1000 ms",
        &[50, 150, 200, 1000].map(Says::ms),
    )?);
    Ok(list)
}

/// Lifetimes and priorities with which triage has to plan while `queued` packets stand
/// there, and gives up none. Packets leave by deadline, so all kinds have the same time
/// left when they leave: the mean lifetime less the time that the queue needs. That is
/// less than the queue needs again (or the first deadline shows that all is in time), and
/// more than the quarter of its lifetime that triage keeps at the cost of others.
fn planned(queued: u64) -> Vec<Says> {
    let mean = (queued * 8 / 5 + WINDOWS) * SPACING;
    [(6, 0), (8, 4), (13, 6), (13, 6)]
        .map(|(tenths, priority)| Says {
            lifetime: mean * tenths / 10,
            priority,
        })
        .to_vec()
}

fn attach() -> String {
    let rate = BYTES * sys::SECOND / SPACING;
    format!("--mode qdisc --method triage --rate {rate}B/s --limit 20000")
}

/// Instructions per packet with `target` packets standing all the time.
fn depth(bench: &Bench, name: &str, says: &[Says], target: u64) -> Result<Standing> {
    let agent = bench.agent(&rules(RULES, says), &attach())?;
    let generator = bench.generator(1, PORTS, BYTES)?;
    let paused = agent.pause()?;
    let state = steady(
        &generator,
        FILL,
        SPACING + DRIFT,
        6 * target + 100,
        |queued, _| queued >= target + WINDOWS,
    )?;
    drop(generator);
    drop(paused);
    let dropped = interface(&agent, "dropped")?;
    bench.detach(&agent)?;
    let near = |queued: u64| queued.abs_diff(target) <= target / 5 + 8;
    if dropped > 0 || !state.queued.into_iter().all(near) {
        bail!(
            "{name}: {target} packets were to stand in the queue, but {} did at first and {} in \
             the end, and {dropped} were dropped",
            state.queued[0],
            state.queued[1]
        );
    }
    Ok(Standing {
        queue: "bestby triage".into(),
        lifetimes: name.into(),
        queued: state.queued,
        total: state.total,
        dropped: 0.0,
    })
}

/// Instructions per packet offered when only half of them can leave.
fn overload(bench: &Bench, name: &str, says: &[Says]) -> Result<Standing> {
    let agent = bench.agent(&rules(RULES, says), &attach())?;
    let generator = bench.generator(1, PORTS, BYTES)?;
    let fast = SPACING / 2;
    let most = SETTLE / fast + 1000;
    let paused = agent.pause()?;
    let state = steady(&generator, fast, fast, most, |_, since| since >= SETTLE)?;
    drop(generator);
    drop(paused);
    let offered = interface(&agent, "packets_in")?;
    let dropped = interface(&agent, "dropped")?;
    bench.detach(&agent)?;
    Ok(Standing {
        queue: "bestby triage".into(),
        lifetimes: format!("{name}, load 2"),
        queued: [0, 0],
        total: state.total,
        dropped: dropped as f64 / offered as f64,
    })
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use super::*;

    /// Packets of the middle windows that find triage with something to decide, of all,
    /// and the least time that one had left when it was sent, ns.
    fn schedule(says: &[Says], target: u64) -> (f64, i64) {
        // Deadline, as triage orders: to one millisecond, then by priority.
        let mut queue: BinaryHeap<Reverse<(u64, u8, u64)>> = BinaryHeap::new();
        let (mut arrives, mut leaves, mut spacing, mut end) = (0, 0, FILL, u64::MAX);
        let (mut sent, mut planned, mut least) = (0_u32, 0_u32, i64::MAX);
        for says in says.iter().cycle() {
            while let Some(&Reverse((_, _, deadline))) = queue.peek()
                && leaves < arrives
            {
                if end < u64::MAX {
                    sent += 1;
                    let needed = leaves + queue.len() as u64 * SPACING;
                    planned += u32::from(needed > deadline);
                }
                queue.pop();
                least = least.min(deadline as i64 - leaves as i64);
                leaves += SPACING;
            }
            leaves = leaves.max(arrives);
            if arrives > end {
                break;
            }
            let deadline = arrives + says.lifetime;
            queue.push(Reverse((deadline >> 20, says.priority, deadline)));
            if spacing == FILL && queue.len() as u64 >= target + WINDOWS {
                spacing = SPACING + DRIFT;
                end = arrives + WINDOWS * WINDOW;
            }
            arrives += spacing;
        }
        (f64::from(planned) / f64::from(sent), least)
    }

    #[test]
    fn standing_queue_planned_by_triage_loses_nothing() {
        for target in PLANNED {
            let (planned, least) = schedule(&planned(target), target);
            assert_eq!(planned, 1.0, "{target}");
            // Timers are late, and plans allow for that.
            assert!(least > (20 * SPACING) as i64, "{target}: {least} ns left");
        }
    }

    #[test]
    fn standing_queue_of_long_lifetimes_is_not_planned() {
        assert_eq!(schedule(&[Says::ms(20_000)], 10_000).0, 0.0);
    }
}
