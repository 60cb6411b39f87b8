//! A run: what came of one queue, one place on the axes and one seed.

use serde::{Deserialize, Serialize};

use crate::{
    bound::{Bound, FalseDrops},
    columns::Columns,
    measure::Measures,
};

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
    /// What came of it.
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
