//! Which packets the network lost, and which losses are one event (RFC 5348 §5.1-5.2).
//!
//! Packets are numbered without gaps as they *leave* the host. A packet counts as lost
//! when three with higher numbers have arrived. Losses within one round trip of the
//! first are one loss event; where packets carry a window counter, losses until it has
//! moved by more than four quarters of one (see [`window`]). A packet that arrives after
//! it was counted as lost changes nothing (the RFC permits a correction, it does not ask
//! for one).

use std::collections::BTreeMap;

use super::window;

/// Packets with higher numbers that prove a loss (NDUPACK).
pub const NDUPACK: u32 = 3;

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Its number.
    pub number: u64,
    /// When it arrived, ns.
    pub at: u64,
    /// The window counter in it, if that tells loss events apart.
    pub window: Option<u64>,
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

impl Hole {
    /// True if this loss, at `at` ns, is beyond the event that began with `old`.
    fn is_beyond(&self, at: u64, old: &Begun, rtt: u64) -> bool {
        match (self.before.window, old.window) {
            (Some(window), Some(began)) => window > began + window::ROUND_TRIP,
            _ => at > old.at + rtt,
        }
    }
}

/// When a loss event began: its first loss, ns, and the window counter before that.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: u64,
    window: Option<u64>,
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
    event: Option<Begun>,
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
            if self.event.is_none_or(|old| hole.is_beyond(at, &old, rtt)) {
                let window = hole.before.window;
                self.event = Some(Begun { at, window });
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn seen(number: u64, at: u64) -> Seen {
        Seen {
            number,
            at,
            window: None,
        }
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
    fn losses_until_the_window_counter_has_moved_on_are_one_event() {
        let mut losses = Losses::default();
        let mut events = Vec::new();
        for number in 0..60 {
            // 10 ms apart, R = 100 ms, and the counter moves with every second packet. Before
            // 10 and 19 it is 4 and 9, more than four apart; before 40 and 48 it is 19 and 23.
            if ![10, 19, 40, 48].contains(&number) {
                let window = Some(number / 2);
                let seen = Seen {
                    window,
                    ..seen(number, number * 10 * MS)
                };
                events.extend(losses.on_arrival(seen, 100 * MS));
            }
        }
        let numbers: Vec<u64> = events.iter().map(|event| event.number).collect();
        assert_eq!(numbers, [10, 19, 40]);
        assert_eq!(losses.lost(), 4);
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
    }
}
