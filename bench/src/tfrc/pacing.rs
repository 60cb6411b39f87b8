//! When the FIFO in user space may send its next packet (RFC 5348 §4.6).

use super::SendCredit;
use crate::sys::MILLI;

/// How much of a late wake-up is made up for without send credit, ns: as far as bestby does.
const LATE: u64 = MILLI;

/// The nominal time of the next packet. Times are ns of one clock, passed in.
#[derive(Clone, Copy, Debug)]
pub struct Pacing {
    credit: SendCredit,
    /// None before the first packet.
    next: Option<u64>,
}

impl Pacing {
    /// Before the first packet, which may go at once.
    pub fn new(credit: SendCredit) -> Self {
        Self { credit, next: None }
    }

    /// Nothing may be sent before, ns; it may lie in the past.
    pub fn due(&self) -> u64 {
        self.next.unwrap_or(0)
    }

    /// A packet is sent at `now`, not before it was [`due`](Self::due); the next one is due
    /// `gap` ns after this one was.
    pub fn on_sent(&mut self, now: u64, gap: u64) {
        let earliest = match self.credit {
            SendCredit::None => now.saturating_sub(LATE),
            SendCredit::All => 0,
        };
        self.next = Some(self.next.unwrap_or(now).max(earliest).saturating_add(gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many packets go at once at `now`, if there are enough.
    fn burst(pacing: &mut Pacing, now: u64, gap: u64) -> u64 {
        let mut sent = 0;
        while pacing.due() <= now {
            pacing.on_sent(now, gap);
            sent += 1;
        }
        sent
    }

    #[test]
    fn a_second_in_which_nothing_was_sent_is_credit_or_lost() {
        for (credit, packets) in [(SendCredit::None, 1), (SendCredit::All, 100)] {
            let mut pacing = Pacing::new(credit);
            assert_eq!(burst(&mut pacing, 5_000 * MILLI, 10 * MILLI), 1);
            assert_eq!(burst(&mut pacing, 6_000 * MILLI, 10 * MILLI), packets);
            // All of it was used.
            assert_eq!(burst(&mut pacing, 6_000 * MILLI, 10 * MILLI), 0);
        }
    }

    proptest! {
        /// A sender that always has something: both keep the rate, however late it wakes up by
        /// less than what is made up for.
        #[test]
        fn who_always_sends_has_no_credit(
            gap in 2 * LATE..100 * MILLI,
            late in prop::collection::vec(0..LATE, 1..200),
        ) {
            let mut both = [SendCredit::None, SendCredit::All].map(Pacing::new);
            let start = MILLI;
            for (packet, late) in (0u64..).zip(late) {
                for pacing in &mut both {
                    let now = pacing.due().max(start) + late;
                    prop_assert_eq!(burst(pacing, now, gap), 1);
                }
                prop_assert_eq!(both[0].due(), both[1].due());
                let nominal = start + (packet + 1) * gap;
                prop_assert!(both[0].due() - nominal < LATE);
            }
        }
    }
}
