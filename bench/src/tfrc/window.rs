//! The window counter of CCID3 (RFC 4342 §8.1): quarters of a round trip, counted by the
//! sender and carried in its packets, so that a receiver knows round trips without a clock.

/// Two losses are two events if the counters of the packets before them differ by more
/// (RFC 4342 §10.2, as Linux has it).
pub const ROUND_TRIP: u64 = 4;
/// The counter moves by this at most (§8.1).
const MOST: u64 = 5;

/// Counts at the sender; never wraps here (in packets it has four bits).
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowCounter {
    value: u64,
    /// When it moved last, ns; None before the first packet.
    moved: Option<u64>,
}

impl WindowCounter {
    /// The counter in a packet that leaves at `now` ns; `rtt` in ns, 0 if unknown. Whenever it
    /// moves, what is left of a quarter is forgotten: packets that come at about the pace of
    /// quarters make it slow.
    pub fn on_sent(&mut self, now: u64, rtt: u64) -> u64 {
        let moved = *self.moved.get_or_insert(now);
        let quarters = now.saturating_sub(moved).checked_div(rtt / 4).unwrap_or(0);
        if quarters > 0 {
            self.value += quarters.min(MOST);
            self.moved = Some(now);
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::MILLI;
    use proptest::prelude::*;

    fn counts(every: u64, packets: u64) -> u64 {
        let mut counter = WindowCounter::default();
        let counts = (0..packets).map(|n| counter.on_sent(n * every * MILLI, 100 * MILLI));
        counts.last().expect("packets")
    }

    #[test]
    fn it_counts_quarters_and_forgets_what_is_left_of_them() {
        // Round trips of 100 ms, ten of them.
        assert_eq!(counts(1, 1001), 40);
        assert_eq!(counts(25, 41), 40);
        // 20 ms do not reach a quarter, 40 do, and 15 of them are forgotten.
        assert_eq!(counts(20, 51), 25);
        // No more than five at once: half of the ten round trips is not seen.
        assert_eq!(counts(250, 5), 20);
        // Without an RTT it stands.
        assert_eq!(WindowCounter::default().on_sent(7, 0), 0);
    }

    proptest! {
        #[test]
        fn it_is_never_fast_and_never_goes_back(
            gaps in prop::collection::vec(0u64..200 * MILLI, 1..300),
            rtt in 4u64..200 * MILLI,
        ) {
            let mut counter = WindowCounter::default();
            let (mut now, mut before) = (0, 0);
            for gap in gaps {
                now += gap;
                let value = counter.on_sent(now, rtt);
                prop_assert!(value >= before && value - before <= MOST);
                prop_assert!(value <= now / (rtt / 4));
                before = value;
            }
        }
    }
}
