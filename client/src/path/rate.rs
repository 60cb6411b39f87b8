//! What the path carries, bytes/s.
//!
//! 1. A sample is the transport's delivery rate, but no more than was acknowledged in a time in which
//!    something was always in flight: a round trip, 20 ms, or the time of four segments. The kernel
//!    measures over the least RTT: one packet of a bucket that is full, acknowledged after 30 µs, is
//!    50 MB/s to it.
//! 2. A sample that counts in full takes part in a maximum over the last second or more. That window turns
//!    with such samples only.
//! 3. Any other sample says what the path carries at least. It never lowers the estimate: the cap would
//!    follow it, the next sample would be smaller, and so on (tried: 870 kbit/s became 575). While it is
//!    larger than the maximum it holds, until the next one that counts. Alone it is no estimate: what is
//!    given up because of it would never be sent to prove it wrong (tried: 105 kbit/s of 1000).
//! 4. For the same reason the estimate is doubled where ADUs are given up because of it on a path that has
//!    room ([`Rate::doubt`]).

use std::collections::VecDeque;

use super::Report;

/// Half of the window, at least and at most; five of the least RTT between.
const HALF_LEAST: u64 = 500_000_000;
const HALF_MOST: u64 = 5_000_000_000;
/// A half ends after so many samples at the earliest.
const SAMPLES: u32 = 8;
/// Acknowledged bytes are counted over so long at least, and in so many steps.
const SPAN_LEAST: u64 = 20_000_000;
const STEPS: u64 = 8;
/// For so many segments, because they are acknowledged as a whole; but no longer than this, ns.
const SEGMENTS: u64 = 4;
const SEGMENTS_MOST: u64 = 200_000_000;
/// For the first time, when no rate is known, ns.
const FIRST: u64 = 100_000_000;
/// See the file's comment.
#[derive(Clone, Debug, Default)]
pub(super) struct Rate {
    current: u64,
    before: u64,
    since: Option<u64>,
    samples: u32,
    /// The largest of the samples that do not count since the last one that does; or a doubled estimate.
    claim: u64,
    doubted_at: u64,
    /// (time, acknowledged bytes) since something is in flight; the first is at least one span old, if one is.
    acked: VecDeque<(u64, u64)>,
}

impl Rate {
    /// 0 until a sample has counted.
    pub(super) fn get(&self) -> u64 {
        match self.current.max(self.before) {
            0 => 0,
            rate => rate.max(self.claim),
        }
    }

    /// ADUs are given up because of the estimate, and nothing else is in their way. Believed once in `pause`.
    pub(super) fn doubt(&mut self, now: u64, pause: u64) {
        if now.saturating_sub(self.doubted_at) >= pause {
            self.doubted_at = now;
            self.claim = self.get().saturating_mul(2);
        }
    }

    pub(super) fn sample(&mut self, report: &Report, srtt: u64, min_rtt: u64, counts: bool) {
        let now = report.now;
        let mut rate = report.rate;
        if let Some(acked) = report.acked {
            let four = SEGMENTS.saturating_mul(report.mss);
            let four = four
                .saturating_mul(1_000_000_000)
                .checked_div(self.get())
                .map_or(FIRST, |ns| ns.min(SEGMENTS_MOST));
            let span = srtt.max(four).clamp(SPAN_LEAST, HALF_MOST);
            if report.in_flight == 0 {
                self.acked.clear();
            }
            rate = rate.min(self.acknowledged(now, acked, span).unwrap_or(0));
        }
        if rate == 0 {
            return;
        }
        if !counts {
            self.claim = self.claim.max(rate);
            return;
        }
        let half = (5 * min_rtt.min(HALF_MOST)).clamp(HALF_LEAST, HALF_MOST);
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) >= half && self.samples >= SAMPLES {
            self.before = self.current;
            self.current = 0;
            self.since = Some(now);
            self.samples = 0;
        }
        self.claim = 0;
        self.samples += 1;
        self.current = self.current.max(rate);
    }

    /// bytes/s over the last `span`, once it was busy for so long. From acknowledgement to acknowledgement:
    /// the first one comes a round trip after something is in flight.
    fn acknowledged(&mut self, now: u64, acked: u64, span: u64) -> Option<u64> {
        if self.acked.len() == 1 && self.acked[0].1 == acked {
            self.acked.clear();
        }
        let step =
            |last: &(u64, u64)| now.saturating_sub(last.0) >= span / STEPS && last.1 != acked;
        if self.acked.back().is_none_or(step) {
            self.acked.push_back((now, acked));
        }
        let old = |at: &(u64, u64)| now.saturating_sub(at.0) >= span;
        while self.acked.get(1).is_some_and(old) {
            self.acked.pop_front();
        }
        let &(first, before) = self.acked.front().filter(|first| old(first))?;
        let passed = now.saturating_sub(first).max(1);
        let rate = u128::from(acked.saturating_sub(before)) * 1_000_000_000 / u128::from(passed);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}
