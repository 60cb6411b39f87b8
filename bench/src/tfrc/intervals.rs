//! The loss history: intervals between loss events and their mean (RFC 5348 §5.3-5.5).

use std::collections::VecDeque;

/// Closed intervals that count (the RFC's n).
pub const INTERVALS: usize = 8;
/// The least weight that a long time without loss leaves to what was before (§5.5).
const THRESHOLD: f64 = 0.25;

/// Weight of the interval at `place`, 0 the newest (§5.4): 1 for the newer half, then
/// falling to 0.2.
pub fn weight(place: usize) -> f64 {
    let n = INTERVALS as f64;
    if place < INTERVALS / 2 {
        1.0
    } else {
        2.0 * (n - place as f64) / (n + 2.0)
    }
}

/// The last loss intervals, in packets.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    /// Newest first: packets from one loss event to the next, and the discount of all
    /// quiet times since (DF_i).
    closed: VecDeque<(f64, f64)>,
}

impl Intervals {
    /// True before the first loss event.
    pub fn is_empty(&self) -> bool {
        self.closed.is_empty()
    }

    /// A loss event ends an interval of `length` packets, which was the open one.
    pub fn close(&mut self, length: f64) {
        let discount = self.discount(length);
        for (_, df) in &mut self.closed {
            *df *= discount;
        }
        self.closed.push_front((length, 1.0));
        self.closed.truncate(INTERVALS);
    }

    /// Weighted mean of the closed intervals: Σ Iᵢ·w·DFᵢ / Σ w·DFᵢ, each moved back by
    /// `shift` places and discounted once more.
    fn sums(&self, shift: usize, discount: f64) -> (f64, f64) {
        self.closed.iter().take(INTERVALS - shift).enumerate().fold(
            (0.0, 0.0),
            |(total, weights), (i, (length, df))| {
                let w = weight(i + shift) * df * discount;
                (total + length * w, weights + w)
            },
        )
    }

    /// How much an open interval of `open` packets discounts the past: 1 until it is
    /// twice the mean of the closed ones, never below a quarter.
    fn discount(&self, open: f64) -> f64 {
        let (total, weights) = self.sums(0, 1.0);
        if weights == 0.0 {
            return 1.0;
        }
        let mean = total / weights;
        if open > 2.0 * mean {
            (2.0 * mean / open).max(THRESHOLD)
        } else {
            1.0
        }
    }

    /// Mean length in packets, the open interval of `open` packets counted where that
    /// makes it longer; `None` before the first loss event.
    pub fn mean(&self, open: f64) -> Option<f64> {
        let (total, weights) = self.sums(0, 1.0);
        if weights == 0.0 {
            return None;
        }
        let (past, past_weights) = self.sums(1, self.discount(open));
        let with_open = (open * weight(0) + past) / (weight(0) + past_weights);
        Some((total / weights).max(with_open))
    }

    /// Loss events per packet, 0..=1: 0 before the first.
    pub fn loss_event_rate(&self, open: f64) -> f64 {
        self.mean(open).map_or(0.0, |mean| 1.0 / mean.max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn weights_are_those_of_the_rfc() {
        let weights: Vec<f64> = (0..8).map(weight).collect();
        let expected = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
        for (weight, expected) in weights.iter().zip(expected) {
            assert!((weight - expected).abs() < 1e-12);
        }
        assert!((weights.iter().sum::<f64>() - 6.0).abs() < 1e-12);
    }

    #[test]
    fn a_mean_by_hand() {
        let mut history = Intervals::default();
        assert_eq!(history.loss_event_rate(500.0), 0.0);
        for length in [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0] {
            history.close(length);
        }
        // Each interval was shorter than twice the mean before it: nothing is discounted.
        // 80+70+60+50 + 0.8·40 + 0.6·30 + 0.4·20 + 0.2·10 = 320; weights 6.
        let mean = history.mean(0.0).expect("a mean");
        assert!((mean - 320.0 / 6.0).abs() < 1e-9, "{mean}");
        // A short open interval cannot make things worse (§5.4: the larger total).
        assert_eq!(history.mean(5.0), history.mean(0.0));
        // 100+80+70+60 + 0.8·50 + 0.6·40 + 0.4·30 + 0.2·20 = 390.
        let mean = history.mean(100.0).expect("a mean");
        assert!((mean - 390.0 / 6.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn only_eight_count() {
        let mut history = Intervals::default();
        history.close(100.0);
        for _ in 0..8 {
            history.close(50.0);
        }
        assert_eq!(history.mean(0.0), Some(50.0));
    }

    #[test]
    fn quiet_times_discount_the_past_down_to_a_quarter() {
        let mut history = Intervals::default();
        for _ in 0..8 {
            history.close(10.0);
        }
        // DF = 2·10/40 = 0.5: (40 + 0.5·5·10) / (1 + 0.5·5).
        let mean = history.mean(40.0).expect("a mean");
        assert!((mean - 65.0 / 3.5).abs() < 1e-9, "{mean}");
        // 1000 packets: DF would be 0.02, the threshold holds it at 0.25.
        let mean = history.mean(1000.0).expect("a mean");
        assert!((mean - (1000.0 + 0.25 * 50.0) / (1.0 + 0.25 * 5.0)).abs() < 1e-9);
        // Once closed, the older ones stay discounted: (1000 + 0.25·Σw·10) / (1 + 0.25·Σw).
        history.close(1000.0);
        let rest = 0.25 * (3.0 + 0.8 + 0.6 + 0.4 + 0.2);
        let mean = history.mean(0.0).expect("a mean");
        assert!((mean - (1000.0 + rest * 10.0) / (1.0 + rest)).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_mean_lies_between_the_extremes(
            lengths in prop::collection::vec(1.0..1e4f64, 1..20), open in 0.0..1e4f64,
        ) {
            let mut history = Intervals::default();
            lengths.iter().for_each(|&length| history.close(length));
            let mean = history.mean(open).expect("a mean");
            let newest = lengths.iter().rev().take(INTERVALS);
            let low = newest.clone().fold(f64::INFINITY, |a, &b| a.min(b));
            let high = newest.fold(open, |a, &b| a.max(b));
            prop_assert!(mean >= low - 1e-6 && mean <= high + 1e-6, "{low} {mean} {high}");
        }

        #[test]
        fn time_without_loss_never_raises_the_rate_of_loss(
            lengths in prop::collection::vec(1.0..1e3f64, 1..12), open in 0.0..1e4f64,
            more in 0.0..1e3f64,
        ) {
            let mut history = Intervals::default();
            lengths.iter().for_each(|&length| history.close(length));
            let (before, after) =
                (history.loss_event_rate(open), history.loss_event_rate(open + more));
            prop_assert!(after <= before + 1e-12, "{before} -> {after}");
        }
    }
}
