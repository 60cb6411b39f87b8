//! Costs with packets standing in the queue.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use super::{BYTES, Bench, DEVICE, NS_PER_INSTRUCTION, Pktgen, RULES, Says, generator, rules};
use crate::sys;

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
/// Packets that stand there where triage has to plan: ten would be a late timer away from losing
/// one.
const PLANNED: [u64; 3] = [100, 1_000, 10_000];
/// Length of a window, ns.
const WINDOW: u64 = 200 * sys::MILLI;
/// From the start of an overload until as many are given up as come: the longest
/// lifetime and some, ns.
const SETTLE: u64 = 1500 * sys::MILLI;

/// Cost with packets standing in the queue.
pub(super) struct Standing {
    pub(super) queue: &'static str,
    /// What stands there.
    pub(super) lifetimes: String,
    /// Packets queued when the measurement began and when it ended; 0 for an
    /// overload, where what is given up decides.
    pub(super) queued: [u64; 2],
    /// Instructions per packet sent in all: pktgen, timers, queue, device.
    pub(super) total: f64,
    /// Parts of the packets that were dropped.
    pub(super) dropped: f64,
}

/// Measures how busy the machine is by what it leaves over: a thread of the lowest
/// class counts rounds of a fixed loop, and in virtual time a round always takes the
/// same time. The periodic tick is part of a round's time, so it does not count as busy.
struct Idle<'a> {
    rounds: &'a AtomicU64,
    ns_per_round: f64,
}

/// How long the loop alone is watched for its time per round.
const CALIBRATION: u64 = 200 * sys::MILLI;

impl<'a> Idle<'a> {
    /// Runs `work` beside such a thread, calibrated while the machine is at rest.
    fn with<T>(work: impl FnOnce(&Idle<'_>) -> Result<T>) -> Result<T> {
        let (rounds, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Without the lowest class the loop would take time from what is measured,
                // and the calibration would notice nothing: better to count nothing.
                if sys::idle_thread().is_ok() {
                    while !stop.load(Ordering::Relaxed) {
                        rounds.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
            let result = Idle::calibrated(&rounds).and_then(|idle| work(&idle));
            stop.store(true, Ordering::Relaxed);
            result
        })
    }

    fn calibrated(rounds: &'a AtomicU64) -> Result<Self> {
        sys::sleep_until(sys::now() + 20 * sys::MILLI);
        let (start, first) = (sys::now(), rounds.load(Ordering::Relaxed));
        sys::sleep_until(start + CALIBRATION);
        let (elapsed, counted) = (sys::now() - start, rounds.load(Ordering::Relaxed) - first);
        ensure!(
            counted > 0,
            "the idle loop does not run (SCHED_IDLE refused?)"
        );
        let ns_per_round = elapsed as f64 / counted as f64;
        Ok(Self {
            rounds,
            ns_per_round,
        })
    }

    /// Busy instructions of the machine until `end`, ns.
    fn busy_until(&self, end: u64) -> f64 {
        let (start, first) = (sys::now(), self.rounds.load(Ordering::Relaxed));
        sys::sleep_until(end);
        let rounds = self.rounds.load(Ordering::Relaxed) - first;
        let idle = rounds as f64 * self.ns_per_round;
        ((sys::now() - start) as f64 - idle) / NS_PER_INSTRUCTION
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

/// Lets pktgen send `most` packets or fewer, one per `fill` ns, until `ready(queued, ns since
/// the first)`, then one per `spacing`, and watches that.
fn steady(
    [fill, spacing, most]: [u64; 3],
    ready: impl Fn(u64, u64) -> bool + Send,
) -> Result<Steady> {
    let generator = &generator(1, PORTS, BYTES)?;
    Idle::with(|idle| {
        generator.set(&format!("delay {fill}"))?;
        // Ends by itself some time after the window.
        let count = most + (WINDOWS * WINDOW + 500 * sys::MILLI) / spacing;
        generator.set(&format!("count {count}"))?;
        let before = left()?;
        thread::scope(|scope| {
            let sending = scope.spawn(|| generator.start());
            // Threads that are started here are in the same namespace.
            let watching = scope.spawn(|| watch(idle, generator, before, spacing, ready));
            let steady = watching.join();
            let sent = sending.join();
            sent.map_err(|_| anyhow!("the thread that started pktgen panicked"))??;
            steady.map_err(|_| anyhow!("the thread that watched the queue panicked"))?
        })
    })
}

fn watch(
    idle: &Idle<'_>,
    generator: &Pktgen,
    before: u64,
    spacing: u64,
    ready: impl Fn(u64, u64) -> bool,
) -> Result<Steady> {
    sys::realtime_thread(60).context("real-time scheduling")?;
    let queued = || -> Result<u64> { Ok(generator.sofar()?.saturating_sub(left()? - before)) };
    let limit = sys::now() + 60 * sys::SECOND;
    let pause = || -> Result<()> {
        sys::sleep_until(sys::now() + SPACING);
        ensure!(
            sys::now() <= limit,
            "pktgen has sent {} packets, the queue holds {} and no more",
            generator.sofar()?,
            queued()?
        );
        Ok(())
    };
    while generator.sofar()? == 0 {
        pause()?;
    }
    let first = sys::now();
    while !ready(queued()?, sys::now() - first) {
        pause()?;
    }
    generator.set(&format!("delay {spacing}"))?;
    sys::sleep_until(sys::now() + 50 * sys::MILLI);
    let at_first = queued()?;
    let mut each = Vec::new();
    for _ in 0..WINDOWS {
        let (offered, end) = (generator.sofar()?, sys::now() + WINDOW);
        let instructions = idle.busy_until(end);
        each.push(instructions / (generator.sofar()? - offered) as f64);
    }
    let at_last = queued()?;
    each.sort_by(f64::total_cmp);
    Ok(Steady {
        total: each[each.len() / 2],
        queued: [at_first, at_last],
    })
}

/// All standing costs.
pub(super) fn run(bench: &Bench) -> Result<Vec<Standing>> {
    let mut list = Vec::new();
    let mut note = |standing: Standing| {
        let (name, total) = (&standing.lifetimes, standing.total);
        let queued = standing.queued[1];
        note!("  {name}, {queued} standing: {total:.0} instructions per packet");
        list.push(standing);
    };

    bench.bare();
    let bare = steady([SPACING, SPACING, 1000], |_, since| since > 10 * sys::MILLI)?;
    note(Standing {
        queue: "no qdisc",
        lifetimes: "-".into(),
        queued: bare.queued,
        total: bare.total,
        dropped: 0.0,
    });

    // 100 times the lifetimes of the sweep: in the same proportion, yet none expires.
    let equal = [20_000].map(Says::ms);
    let mixed = [5_000, 15_000, 20_000, 100_000].map(Says::ms);
    for queued in [10, 100, 1_000, 10_000] {
        note(depth(bench, "equal", &equal, queued)?);
    }
    for queued in [10, 100, 1_000, 10_000] {
        note(depth(bench, "mixed", &mixed, queued)?);
    }
    for queued in PLANNED {
        note(depth(bench, "planned", &planned(queued), queued)?);
    }
    note(overload(bench, "200 ms", &[Says::ms(200)])?);
    let mixed = [50, 150, 200, 1000].map(Says::ms);
    note(overload(bench, "50/150/200/1000 ms", &mixed)?);
    Ok(list)
}

/// Lifetimes and priorities with which triage has to plan while `queued` packets stand
/// there, and gives up none. Packets leave by deadline, so all kinds have the same time
/// left when they leave: the mean lifetime less the time that the queue needs. That is
/// less than the queue needs again (or the first deadline shows that all is in time), and
/// more than the quarter of its lifetime that triage keeps at the cost of others.
fn planned(queued: u64) -> [Says; 4] {
    let mean = (queued * 8 / 5 + WINDOWS) * SPACING;
    [(6, 0), (8, 4), (13, 6), (13, 6)].map(|(tenths, priority)| Says {
        lifetime: mean * tenths / 10,
        priority,
    })
}

/// What [`steady`] shows of triage with rules that say `says`.
fn triage(
    bench: &Bench,
    lifetimes: String,
    says: &[Says],
    pace: [u64; 3],
    ready: impl Fn(u64, u64) -> bool + Send,
) -> Result<Standing> {
    let rate = BYTES * sys::SECOND / SPACING;
    let attach = format!("--mode qdisc --method triage --rate {rate}B/s --limit 20000");
    let agent = bench.agent(&rules(RULES, says), &attach)?;
    let paused = agent.pause()?;
    let Steady { total, queued } = steady(pace, ready)?;
    drop(paused);
    let [offered, dropped] = bench.interface(&agent)?;
    bench.detach(&agent)?;
    Ok(Standing {
        queue: "bestby triage",
        lifetimes,
        queued,
        total,
        dropped: dropped as f64 / offered as f64,
    })
}

/// Instructions per packet with `target` packets standing all the time.
fn depth(bench: &Bench, name: &str, says: &[Says], target: u64) -> Result<Standing> {
    let pace = [FILL, SPACING + DRIFT, 6 * target + 100];
    let ready = |queued, _| queued >= target + WINDOWS;
    let standing = triage(bench, name.into(), says, pace, ready)?;
    let (queued, dropped) = (standing.queued, standing.dropped);
    let near = |queued: u64| queued.abs_diff(target) <= target / 5 + 8;
    if dropped > 0.0 || !queued.into_iter().all(near) {
        bail!(
            "{name}: {target} packets were to stand in the queue, but {} did at first and {} in \
             the end, and {:.3} % were dropped",
            queued[0],
            queued[1],
            dropped * 100.0
        );
    }
    Ok(standing)
}

/// Instructions per packet offered when only half of them can leave.
fn overload(bench: &Bench, name: &str, says: &[Says]) -> Result<Standing> {
    let pace = [SPACING / 2, SPACING / 2, SETTLE / (SPACING / 2) + 1000];
    let ready = |_, since| since >= SETTLE;
    let standing = triage(bench, format!("{name}, load 2"), says, pace, ready)?;
    Ok(Standing {
        queued: [0, 0],
        ..standing
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times in ns that `queued` packets need, and that each has left when it leaves.
    fn times(says: &[Says], queued: u64) -> [u64; 2] {
        let lifetimes: u64 = says.iter().map(|says| says.lifetime).sum();
        let needed = queued * SPACING;
        [needed, lifetimes / says.len() as u64 - needed]
    }

    #[test]
    fn standing_queue_planned_is_not_in_time_at_a_glance_and_loses_nothing() {
        for queued in PLANNED {
            let says = planned(queued);
            let [needed, left] = times(&says, queued);
            assert!(needed > left, "{queued}");
            assert!(says.iter().all(|says| left > says.lifetime / 4), "{queued}");
        }
    }

    #[test]
    fn standing_queue_of_long_lifetimes_is_in_time_at_a_glance() {
        let [needed, left] = times(&[Says::ms(20_000)], 10_000);
        assert!(needed < left);
    }
}
