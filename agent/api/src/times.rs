//! How long packets waited, and what was left of their time.

use serde::{Deserialize, Serialize};

/// Times of packets, counted in buckets: the first has those up to [`Self::FIRST_NS`], each other one those up to
/// twice as much as the one before, the last all above.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Of all packets, ns; wraps.
    pub sum_ns: u64,
    /// Packets, by bucket.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// The upper end of the first bucket, ns.
    pub const FIRST_NS: u64 = 1 << 16;

    /// Upper end of each bucket, s, and the packets in it; infinity ends the last.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let last = self.counts.len().saturating_sub(1);
        let end = |i: usize| match i {
            i if i == last => f64::INFINITY,
            i => Self::FIRST_NS as f64 / 1e9 * 2_f64.powi(i as i32),
        };
        let counts = self.counts.iter().copied().enumerate();
        counts.map(|(i, n)| (end(i), n)).collect()
    }
}

/// What became of the time of packets that left a queue of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How long they waited: since they came, or might depart.
    pub sojourn: Histogram,
    /// Those with a deadline: how much earlier than at the latest they left (deadline - owd - now).
    pub slack: Histogram,
    /// Those that were sent although stale: how much later.
    pub lateness: Histogram,
}
