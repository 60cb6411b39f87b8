//! Which packets the network lost, which losses are one event (RFC 5348 §5.1-5.2), and the
//! history of these events (§5.3-5.5).
//!
//! Packets are numbered without gaps as they *leave* the host. A packet counts as lost
//! when three with higher numbers have arrived. Losses within one round trip of the
//! first are one loss event. A packet that arrives after it was counted as lost changes
//! nothing (the RFC permits a correction, it does not ask for one).

use std::collections::{BTreeMap, VecDeque};

/// Packets with higher numbers that prove a loss (NDUPACK).
const NDUPACK: u32 = 3;

/// A number that has not arrived, between two that have.
#[derive(Clone, Copy, Debug)]
struct Hole {
    /// When it would have arrived, ns: interpolated between its neighbours (§5.2).
    at: u64,
    /// Arrivals with higher numbers.
    later: u32,
}

/// Finds losses in a sequence of arrivals.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// The highest number that arrived, and when, ns.
    highest: Option<(u64, u64)>,
    holes: BTreeMap<u64, Hole>,
    /// When the newest loss event began, ns.
    event: Option<u64>,
    lost: u64,
}

impl Losses {
    /// Packet `number` arrived at `at` ns; `rtt` in ns as its sender knew it. Returns the first
    /// numbers of the loss events that this proves, oldest first.
    pub fn on_arrival(&mut self, number: u64, at: u64, rtt: u64) -> Vec<u64> {
        let (highest, before) = *self.highest.get_or_insert((number, at));
        if number > highest {
            let time = u128::from(at.saturating_sub(before));
            for missing in highest + 1..number {
                let share = time * u128::from(missing - highest) / u128::from(number - highest);
                let at = before + share as u64;
                self.holes.insert(missing, Hole { at, later: 0 });
            }
            self.highest = Some((number, at));
        } else {
            self.holes.remove(&number);
        }
        for hole in self.holes.range_mut(..number) {
            hole.1.later += 1;
        }
        let mut events = Vec::new();
        while let Some(first) = self.holes.first_entry()
            && first.get().later >= NDUPACK
        {
            let (number, Hole { at, .. }) = first.remove_entry();
            self.lost += 1;
            if self.event.is_none_or(|began| at > began + rtt) {
                self.event = Some(at);
                events.push(number);
            }
        }
        events
    }

    /// The highest number that arrived, if any did.
    pub fn highest(&self) -> Option<u64> {
        self.highest.map(|(number, _)| number)
    }

    /// Packets counted as lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// Closed intervals that count (the RFC's n).
const INTERVALS: usize = 8;
/// The least weight that a long time without loss leaves to what was before (§5.5).
const THRESHOLD: f64 = 0.25;

/// Weight of the interval at `place`, 0 the newest (§5.4): 1 for the newer half, then
/// falling to 0.2.
fn weight(place: usize) -> f64 {
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
    /// A loss event ends an interval of `length` packets, which was the open one.
    pub fn close(&mut self, length: f64) {
        let discount = self.discount(length);
        for (_, df) in &mut self.closed {
            *df *= discount;
        }
        self.closed.push_front((length, 1.0));
        self.closed.truncate(INTERVALS);
    }

    /// Σ Iᵢ·w·DFᵢ and Σ w·DFᵢ of the closed intervals, each moved back by `shift` places and
    /// discounted once more.
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
        if weights > 0.0 && open > 2.0 * (total / weights) {
            (2.0 * (total / weights) / open).max(THRESHOLD)
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

    #[test]
    fn losses_are_what_three_later_packets_prove_in_events_of_a_round_trip() {
        let mut losses = Losses::default();
        let mut events = Vec::new();
        for number in 0..100 {
            // 10 ms apart; 10, 15, 19 and 40 are lost, R = 100 ms.
            if ![10, 15, 19, 40].contains(&number) {
                events.extend(losses.on_arrival(number, number * 10 * MS, 100 * MS));
            }
            let proven = [10, 15, 19, 40].iter().filter(|&&lost| lost + 3 <= number);
            assert_eq!(losses.lost(), proven.count() as u64, "{number}");
        }
        assert_eq!(events, [10, 40]);
        // Between 39 at 390 ms and 41 at 410 ms.
        assert_eq!(losses.event, Some(400 * MS));
    }

    #[test]
    fn losses_do_not_count_a_packet_overtaken_by_two() {
        let mut losses = Losses::default();
        for number in [0, 2, 3, 1, 4, 5, 6] {
            assert!(losses.on_arrival(number, number * MS, MS).is_empty());
        }
        assert_eq!(losses.lost(), 0);
    }

    fn history(lengths: impl IntoIterator<Item = f64>) -> Intervals {
        let mut history = Intervals::default();
        lengths.into_iter().for_each(|length| history.close(length));
        history
    }

    fn assert_mean(history: &Intervals, open: f64, expected: f64) {
        let mean = history.mean(open).expect("a mean");
        assert!((mean - expected).abs() < 1e-9, "{mean} not {expected}");
    }

    #[test]
    fn intervals_have_the_weighted_mean_of_the_newest_eight() {
        assert_eq!(Intervals::default().loss_event_rate(500.0), 0.0);
        // Each interval is shorter than twice the mean before it: nothing is discounted.
        let history = history([100.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]);
        // 80+70+60+50 + 0.8·40 + 0.6·30 + 0.4·20 + 0.2·10 = 320; weights 6.
        assert_mean(&history, 0.0, 320.0 / 6.0);
        // A short open interval cannot make things worse (§5.4: the larger total).
        assert_mean(&history, 5.0, 320.0 / 6.0);
        // 100+80+70+60 + 0.8·50 + 0.6·40 + 0.4·30 + 0.2·20 = 390.
        assert_mean(&history, 100.0, 390.0 / 6.0);
    }

    #[test]
    fn intervals_without_loss_discount_the_past_down_to_a_quarter() {
        let mut history = history([10.0; 8]);
        // DF = 2·10/40 = 0.5: (40 + 0.5·5·10) / (1 + 0.5·5).
        assert_mean(&history, 40.0, 65.0 / 3.5);
        // 1000 packets: DF would be 0.02, the threshold holds it at 0.25.
        let rest = 0.25 * 5.0;
        assert_mean(&history, 1000.0, (1000.0 + rest * 10.0) / (1.0 + rest));
        // Once closed, the older ones stay discounted: (1000 + 0.25·Σw·10) / (1 + 0.25·Σw).
        history.close(1000.0);
        assert_mean(&history, 0.0, (1000.0 + rest * 10.0) / (1.0 + rest));
    }

    proptest! {
        #[test]
        fn losses_count_every_gap_once(kept in prop::collection::vec(any::<bool>(), 10..300)) {
            let mut losses = Losses::default();
            let mut events = 0;
            let arrived: Vec<u64> = (0..).zip(&kept).filter(|(_, k)| **k).map(|(n, _)| n).collect();
            for &number in &arrived {
                events += losses.on_arrival(number, number * MS, 0).len() as u64;
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
        fn intervals_with_a_longer_open_one_never_raise_the_rate_of_loss(
            lengths in prop::collection::vec(1.0..1e3f64, 1..12), open in 0.0..1e4f64,
            more in 0.0..1e3f64,
        ) {
            let history = history(lengths);
            let (before, after) =
                (history.loss_event_rate(open), history.loss_event_rate(open + more));
            prop_assert!(after <= before + 1e-12, "{before} -> {after}");
        }
    }
}
