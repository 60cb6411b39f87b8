//! The runs of a scenario, in the order in which they are made, and what becomes of one.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    bound::{Bound, FalseDrops},
    columns::Columns,
    measure::Measures,
    scenario::{Scenario, cell::Cell},
};

/// One run that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) cell: &'a Cell,
    /// Repetition, from 0.
    pub(super) number: u32,
}

impl Job<'_> {
    /// Seed of its traffic.
    pub(super) fn seed(&self) -> u64 {
        self.scenario.seed + u64::from(self.number)
    }
}

/// The runs that belong together: those of one point and repetition with all its queues, which are
/// compared and so made on one path, one after the other.
pub(super) fn groups<'a>(jobs: &[Job<'a>]) -> Vec<Vec<Job<'a>>> {
    let mut groups: Vec<Vec<Job<'a>>> = Vec::new();
    let mut known = HashMap::new();
    for &job in jobs {
        // A point has floating-point numbers, so its text stands for it.
        let point = format!("{:?}", job.cell.point);
        let key = (job.scenario.name.as_str(), job.number, point);
        let at = *known.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(job);
    }
    groups
}

/// `repetitions` runs of every cell whose id, or queue's name, contains one of the words `only`
/// (all without words). Every cell gets its first run before any gets its second, so that an
/// interrupted series compares all of them.
pub(super) fn jobs<'a>(scenario: &'a Scenario, repetitions: u32, only: &[String]) -> Vec<Job<'a>> {
    let wanted = |cell: &&Cell| {
        let queue = cell.queue.name();
        let mut words = only.iter().map(String::as_str);
        only.is_empty() || words.any(|word| cell.id.contains(word) || queue.contains(word))
    };
    let cells: Vec<&Cell> = scenario.cells.iter().filter(wanted).collect();
    let of_number = |number| {
        let job = move |&cell| Job {
            scenario,
            cell,
            number,
        };
        cells.iter().map(job)
    };
    (0..repetitions).flat_map(of_number).collect()
}

/// What a run found. A row of `runs.parquet`, and a file of its own until then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// Repetition, from 0.
    #[serde(rename = "run")]
    pub(super) number: u32,
    /// Seed of its traffic, the same for every queue.
    pub(super) seed: u64,
    /// Rate of the link, bit/s.
    pub(super) rate: u64,
    /// Offered rate / rate of the link.
    pub(super) load: f64,
    /// One-way delay of the idle path, measured, ms.
    pub(super) owd_ms: f64,
    /// Whether the delay is real (netem) or was added to arrivals by arithmetic.
    pub(super) delay_is_real: bool,
    /// Time that the run took, s, by its own clock: with --vm in virtual time.
    pub(super) took_s: f64,
    #[serde(flatten)]
    pub(super) measures: Measures,
    /// What no schedule could beat, of the ADUs that were judged; absent where the link's rate
    /// for the media is not known (beside TCP, or with a control).
    pub(super) bound: Option<Bound>,
    /// ADUs of the whole run that were given up although there was room for them, by the queue or
    /// a router's FIFO; absent where the bound is, and where the network loses packets.
    pub(super) false_drops: Option<FalseDrops>,
}

/// What became of a run that was asked for.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was made: what was measured at once, and each packet. Bound, false drops and pictures
    /// are worked out of them later: inside a guest that would take long.
    Made(Box<Run>, Columns),
    /// There is no such queue here: where not, and why.
    Absent(String),
    /// Why it failed.
    Failed(String),
}
