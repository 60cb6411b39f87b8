//! How a series goes: counts what happens to its runs, says it, and ends it when that
//! makes no more sense.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Result, bail, ensure};

use super::{
    event::{Fate, Listener},
    job::Job,
    progress::Progress,
    store::Store,
    summary::Absent,
};
use crate::say::count;

/// Runs in a row that may fail before the series ends: then it is not the cell's fault.
const FAILURES_IN_A_ROW: u32 = 5;

/// The count of a series.
#[derive(Debug)]
pub(super) struct Account {
    /// The results' directory.
    out: PathBuf,
    progress: Progress,
    /// Scenario and queue.
    absent: BTreeSet<(String, String)>,
    failed: u32,
    in_a_row: u32,
}

impl Account {
    /// Of a series of `total` runs into `out`, `before` of them finished already.
    pub(super) fn new(out: PathBuf, total: usize, before: usize) -> Self {
        Self {
            out,
            progress: Progress::new(total, before),
            absent: BTreeSet::new(),
            failed: 0,
            in_a_row: 0,
        }
    }

    /// The series is over: an error if runs failed.
    pub(super) fn close(self) -> Result<()> {
        match self.failed {
            0 => Ok(()),
            failed => {
                bail!(
                    "{} failed, see above; started again, the series makes them again",
                    count(failed, "run")
                )
            }
        }
    }
}

impl Listener for Account {
    fn hear(&mut self, job: &Job<'_>, fate: Fate) -> Result<()> {
        let (scenario, cell, queue) = (&job.scenario.name, &job.cell.id, job.cell.queue.name());
        match fate {
            Fate::Begun => {}
            Fate::Done(words) => {
                say!("{} {words}", self.progress.count());
                self.in_a_row = 0;
                Store::at(&self.out, scenario).keep_present(&queue)?;
            }
            Fate::Absent(reason) => {
                let position = self.progress.count();
                if self.absent.insert((scenario.clone(), queue.clone())) {
                    say!("{position} {queue}: {reason}");
                    Store::at(&self.out, scenario).keep_absent(&Absent { queue, reason })?;
                }
            }
            Fate::Failed(why) => {
                let position = self.progress.count();
                say!("{position} {scenario} {cell} run {} failed", job.number);
                note!("{scenario} {cell} run {}: {why}", job.number);
                self.failed += 1;
                self.in_a_row += 1;
                ensure!(
                    self.in_a_row < FAILURES_IN_A_ROW,
                    "{} runs in a row failed, the last with the words above: the series ends \
                     here, and goes on when it is started again",
                    self.in_a_row
                );
            }
        }
        Ok(())
    }
}
