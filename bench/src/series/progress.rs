//! How a series goes: judges each run when it is made, says what came of it with an estimate of
//! the time that is left, and ends the series when going on makes no more sense.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    judge::Judge,
    result,
    run::{Job, Outcome, Run},
    store::Store,
};
use crate::{
    measure::{Flow, percent},
    say::count,
};

/// Runs in a row that may fail before the series ends: then it is not the cell's fault.
const FAILURES_IN_A_ROW: u32 = 5;

/// The result is written that often while the series goes on.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

/// A series under way.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    pub(super) store: &'a Store<'a>,
    judge: Judge,
    total: usize,
    /// Finished before this start.
    before: usize,
    pub(super) done: usize,
    started: Instant,
    written: Instant,
    /// Scenario and queue.
    absent: BTreeSet<(&'a str, String)>,
    failed: u32,
    in_a_row: u32,
}

impl<'a> Progress<'a> {
    /// Of a series of `total` runs, `before` of them finished already.
    pub(super) fn new(store: &'a Store<'a>, total: usize, before: usize) -> Self {
        Self {
            store,
            judge: Judge::default(),
            total,
            before,
            done: 0,
            started: Instant::now(),
            written: Instant::now(),
            absent: BTreeSet::new(),
            failed: 0,
            in_a_row: 0,
        }
    }

    /// Takes in what became of a run.
    ///
    /// # Errors
    /// The series ends.
    pub(super) fn hear(&mut self, job: &Job<'a>) -> Result<()> {
        let store = self.store;
        let outcome = store.outcome(job)?.context("nothing became of a run")?;
        self.done += 1;
        let position = self.position(self.started.elapsed());
        let (scenario, cell) = (&job.scenario.name, &job.cell.id);
        let name = format!("{scenario} {cell} run {}", job.number);
        match outcome {
            Outcome::Made(mut run, packets) => {
                // Its packets stay: the next start judges them again.
                if let Err(error) = self.judge.complete(job, &mut run, &packets) {
                    return self.failed(&position, &name, &format!("judging it: {error:#}"));
                }
                store.keep(job, &run)?;
                say!("{position} {name}: {}", describe(&run));
                self.in_a_row = 0;
            }
            Outcome::Absent(why) => {
                let queue = job.cell.queue.name();
                if self.absent.insert((scenario, queue.clone())) {
                    say!("{position} {queue}: {why}");
                }
            }
            Outcome::Failed(why) => self.failed(&position, &name, &why)?,
        }
        if self.written.elapsed() > WRITTEN_EVERY {
            let open = store.open.iter().find(|open| open.0.name == *scenario);
            let (scenario, series) = open.context("a run of no open scenario")?;
            result::write(store, scenario, series)?;
            self.written = Instant::now();
        }
        Ok(())
    }

    fn failed(&mut self, position: &str, name: &str, why: &str) -> Result<()> {
        say!("{position} {name} failed");
        note!("{name}: {why}");
        self.failed += 1;
        self.in_a_row += 1;
        ensure!(
            self.in_a_row < FAILURES_IN_A_ROW,
            "{} runs in a row failed, the last with the words above: the series ends here, and \
             goes on when it is started again",
            self.in_a_row
        );
        Ok(())
    }

    /// The series is over: an error if runs failed.
    pub(super) fn close(self) -> Result<()> {
        if self.failed > 0 {
            let failed = count(self.failed, "run");
            bail!("{failed} failed, see above; started again, the series makes them again")
        }
        Ok(())
    }

    fn position(&self, elapsed: Duration) -> String {
        let at = self.before + self.done;
        let left = self.total.saturating_sub(at) as u32;
        let mut text = format!("[{at}/{}", self.total);
        if left > 0 && self.done > 0 {
            let done = u32::try_from(self.done).unwrap_or(u32::MAX);
            text += &format!(", {} left", words(elapsed * left / done));
        }
        text + "]"
    }
}

/// A duration for people: `40 s`, `12 min`, `3 h 05 min`.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds.div_ceil(60)) {
        (0, _) if seconds < 100 => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, _) => format!("{hours} h {:02} min", seconds % 3600 / 60),
    }
}

/// A run in a few words.
fn describe(run: &Run) -> String {
    let m = &run.measures;
    let mut parts = Vec::new();
    for (what, counted) in [("audio", m.audio), ("frames", m.frames), ("data", m.data)] {
        if counted[0] > 0 {
            parts.push(format!("{what} {:.1} %", percent(counted)));
        }
    }
    match &m.transfer {
        None => parts.push(format!("stale {}", m.stale_arrivals)),
        Some(transfer) => parts.extend(transfer.flows.values().map(of_flow)),
    }
    let refused = m.would_block + m.refused;
    if refused > 0 {
        parts.push(format!(
            "{} not offered: it has measured the sender's socket and not the queue",
            count(refused, "packet")
        ));
    }
    parts.join(", ")
}

/// A bulk flow in a few words.
fn of_flow(flow: &Flow) -> String {
    let (kind, goodput, reads) = (&flow.kind, flow.goodput_kb, flow.reads);
    let success = match reads[0] {
        0 => String::new(),
        _ => format!(", {:.1} % of reads", percent(reads)),
    };
    format!("{kind} {goodput:.1} kB/s{success}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Transfer;
    use crate::series::tests::made_up;

    #[test]
    fn describe_says_that_the_socket_took_not_all() {
        let mut run = made_up(0, 7);
        assert_eq!(describe(&run), "stale 0");
        (run.measures.would_block, run.measures.refused) = (2, 1);
        assert!(describe(&run).contains("3 packets not offered"));
    }

    #[test]
    fn describe_of_bulk_flows_has_the_goodput_of_each() {
        let flow = |kind: &str, reads| Flow {
            kind: kind.into(),
            goodput_kb: 250.04,
            reads,
            ..Flow::default()
        };
        let flows = [flow("real", [0, 0]), flow("reno", [4, 3])];
        let mut run = made_up(0, 7);
        run.measures.transfer = Some(Transfer {
            flows: ["1", "2"]
                .map(str::to_owned)
                .into_iter()
                .zip(flows)
                .collect(),
            ..Transfer::default()
        });
        let words = "real 250.0 kB/s, reno 250.0 kB/s, 75.0 % of reads";
        assert_eq!(describe(&run), words);
    }

    #[test]
    fn position_estimates_from_this_start_only() {
        let store = Store::default();
        let mut progress = Progress::new(&store, 100, 60);
        // 40 runs to go.
        for (done, seconds, text) in [
            (0, 0, "[60/100]"),
            (10, 33, "[70/100, 99 s left]"),
            (10, 100, "[70/100, 5 min left]"),
            (10, 3700, "[70/100, 3 h 05 min left]"),
            (40, 400, "[100/100]"),
        ] {
            progress.done = done;
            assert_eq!(progress.position(Duration::from_secs(seconds)), text);
        }
    }
}
