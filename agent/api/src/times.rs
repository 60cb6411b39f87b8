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

    /// How long packets waited, if these are waits; `None` without packets.
    pub fn delay(&self) -> Option<Delay> {
        let packets = self
            .counts
            .iter()
            .fold(0u64, |sum, n| sum.saturating_add(*n));
        (packets > 0).then(|| Delay {
            packets,
            p50_ns: self.at_most(packets.div_ceil(2)),
            p99_ns: self.at_most(packets - packets / 100),
        })
    }

    /// Upper end of the bucket of the packet at this place, from 1; `None` if it is in the last one, which has none.
    fn at_most(&self, place: u64) -> Option<u64> {
        let mut passed = 0u64;
        let bucket = self.counts.iter().position(|n| {
            passed = passed.saturating_add(*n);
            passed >= place
        })?;
        let last = self.counts.len() - 1;
        (bucket < last).then_some(Self::FIRST_NS << bucket)
    }
}

impl Delay {
    /// The longest that the kernel side can tell from longer ones.
    pub const LONGEST_NS: u64 = Histogram::FIRST_NS << 17;
}

/// How long packets waited in a queue of ours. The kernel side counts in buckets, each twice as long as the one before:
/// these are their upper ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Packets that left since the interface was attached.
    pub packets: u64,
    /// Half of them waited no longer, ns; absent: longer than the histogram can tell (8.6 s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// Of 100 of them 99 waited no longer, ns; absent: as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets as the kernel side has them; so many packets in these.
    fn of(counts: &[(usize, u64)]) -> Option<Delay> {
        let mut histogram = Histogram {
            sum_ns: 0,
            counts: vec![0; 19],
        };
        for (bucket, n) in counts {
            histogram.counts[*bucket] = *n;
        }
        histogram.delay()
    }

    #[test]
    fn delay_is_the_upper_end_of_the_bucket() {
        let ends = |counts: &[_]| of(counts).map(|d| (d.p50_ns, d.p99_ns));
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[(0, 1)]), Some((Some(1 << 16), Some(1 << 16))));
        // The last one of a hundred does not count, the last two do.
        assert_eq!(
            ends(&[(3, 99), (9, 1)]),
            Some((Some(1 << 19), Some(1 << 19)))
        );
        assert_eq!(
            ends(&[(3, 98), (9, 2)]),
            Some((Some(1 << 19), Some(1 << 25)))
        );
        assert_eq!(ends(&[(3, 50), (4, 50)]).map(|d| d.0), Some(Some(1 << 19)));
        assert_eq!(ends(&[(3, 49), (4, 51)]).map(|d| d.0), Some(Some(1 << 20)));
        // Nobody knows how long those waited.
        assert_eq!(ends(&[(17, 50), (18, 50)]), Some((Some(1 << 33), None)));
        assert_eq!(
            of(&[(0, u64::MAX), (1, 9)]).map(|d| d.packets),
            Some(u64::MAX)
        );
        assert_eq!(Histogram::default().delay(), None);
    }
}
