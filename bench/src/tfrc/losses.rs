//! Which packets the network lost, which losses are one event (RFC 5348 §5.1-5.2), and the
//! history of these events (§5.3-5.5).
//!
//! Packets are numbered without gaps as they *leave* the host. A packet counts as lost
//! when three with higher numbers have arrived. Losses within one round trip of the
//! first are one loss event. A packet that arrives after it was counted as lost changes
//! nothing (the RFC permits a correction, it does not ask for one).

use std::collections::{BTreeMap, VecDeque};

/// Packets with higher numbers that prove a loss (NDUPACK).
pub const NDUPACK: u32 = 3;

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its number.
    pub number: u64,
    /// When it arrived, ns.
    pub at: u64,
}

/// A number that has not arrived, between two that have.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// The neighbours that arrived.
    before: Seen,
    after: Seen,
    /// Arrivals with higher numbers.
    later: u32,
}

/// The first packet of a loss event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The packet's number.
    pub number: u64,
    /// When it would have arrived, ns: interpolated between its neighbours.
    pub at: u64,
}

/// Finds losses in a sequence of arrivals.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    highest: Option<Seen>,
    holes: BTreeMap<u64, Hole>,
    /// When the newest loss event began, ns.
    event: Option<u64>,
    lost: u64,
}

impl Losses {
    /// A packet arrived; `rtt` in ns as its sender knew it. Returns the loss events that this
    /// proves, oldest first.
    pub fn on_arrival(&mut self, seen: Seen, rtt: u64) -> Vec<Event> {
        let Some(highest) = self.highest else {
            self.highest = Some(seen);
            return Vec::new();
        };
        if seen.number > highest.number {
            for missing in highest.number + 1..seen.number {
                let hole = Hole {
                    before: highest,
                    after: seen,
                    later: 0,
                };
                self.holes.insert(missing, hole);
            }
            self.highest = Some(seen);
        } else {
            self.holes.remove(&seen.number);
        }
        for (_, hole) in self.holes.range_mut(..seen.number) {
            hole.later += 1;
        }
        let mut events = Vec::new();
        while let Some((&number, &hole)) = self.holes.first_key_value()
            && hole.later >= NDUPACK
        {
            let at = between(number, hole.before, hole.after);
            self.holes.remove(&number);
            self.lost += 1;
            if self.event.is_none_or(|began| at > began + rtt) {
                self.event = Some(at);
                events.push(Event { number, at });
            }
        }
        events
    }

    /// The highest number that arrived, if any did.
    pub fn highest(&self) -> Option<u64> {
        self.highest.map(|seen| seen.number)
    }

    /// Packets counted as lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// T_loss = T_before + (T_after − T_before)·(S_loss − S_before)/(S_after − S_before).
fn between(number: u64, before: Seen, after: Seen) -> u64 {
    let (numbers, times) = (
        after.number - before.number,
        after.at.saturating_sub(before.at),
    );
    let share = u128::from(times) * u128::from(number - before.number) / u128::from(numbers);
    before.at + share as u64
}

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

    const MS: u64 = 1_000_000;

    fn seen(number: u64, at: u64) -> Seen {
        Seen { number, at }
    }

    #[test]
    fn three_later_packets_prove_a_loss() {
        let mut losses = Losses::default();
        for (number, at) in [(0, 0), (1, 10), (3, 30), (4, 40)] {
            assert_eq!(losses.on_arrival(seen(number, at * MS), 100 * MS), []);
        }
        let events = losses.on_arrival(seen(5, 50 * MS), 100 * MS);
        // Between 1 at 10 ms and 3 at 30 ms.
        assert_eq!(
            events,
            [Event {
                number: 2,
                at: 20 * MS
            }]
        );
        assert_eq!(losses.lost(), 1);
    }

    #[test]
    fn a_packet_overtaken_by_two_is_not_lost() {
        let mut losses = Losses::default();
        for number in [0, 2, 3, 1, 4, 5, 6] {
            assert_eq!(losses.on_arrival(seen(number, number * MS), MS), []);
        }
        assert_eq!(losses.lost(), 0);
    }

    #[test]
    fn losses_within_a_round_trip_are_one_event() {
        let mut losses = Losses::default();
        let mut events = Vec::new();
        for number in 0..100 {
            // 10 ms apart; 10, 15, 19 and 40 are lost, R = 100 ms.
            if ![10, 15, 19, 40].contains(&number) {
                events.extend(losses.on_arrival(seen(number, number * 10 * MS), 100 * MS));
            }
        }
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, [10, 40]);
        assert_eq!(losses.lost(), 4);
    }

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
        fn every_gap_is_counted_once(kept in prop::collection::vec(any::<bool>(), 10..300)) {
            let mut losses = Losses::default();
            let mut events = 0;
            let arrived: Vec<u64> = (0..).zip(&kept).filter(|(_, k)| **k).map(|(n, _)| n).collect();
            for &number in &arrived {
                events += losses.on_arrival(seen(number, number * MS), 0).len() as u64;
            }
            // What three later arrivals prove; with R = 0 each is an event of its own.
            let proven = match arrived.len().checked_sub(3).and_then(|i| arrived.get(i)) {
                Some(&last) => (arrived[0]..last).filter(|n| !arrived.contains(n)).count() as u64,
                None => 0,
            };
            prop_assert_eq!(losses.lost(), proven);
            prop_assert_eq!(events, proven);
        }

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
