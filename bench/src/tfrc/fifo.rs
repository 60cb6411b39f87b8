//! A FIFO in user space in front of the network, as DCCP's transmit queue is: what arrives at
//! a full one is refused, and what is due leaves *before the next packet is looked at*. An
//! application that hands over a burst has its first packet on the way by then.
//!
//! A packet of any size keeps the next one waiting for s/X (RFC 5348 §4.6), as in CCID3. Rate
//! that was not used is lost, as in bestby, but for a late wake-up.

use std::collections::VecDeque;

use crate::sys::MILLI;

/// How much of a late wake-up is made up for, ns: as far as bestby does.
const LATE: u64 = MILLI;

/// A packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its position in the schedule.
    pub sequence: u32,
    /// When it was created, ns.
    pub created: u64,
}

/// Packets in the order in which they came. Times are ns of one clock, passed in.
#[derive(Clone, Debug, Default)]
pub struct Fifo {
    waiting: VecDeque<Waiting>,
    /// In packets.
    limit: usize,
    refused: u64,
    /// From one packet to the next (s/X), ns.
    gap: u64,
    /// Nominal time of the next packet, ns; None before the first, which may go at once.
    due: Option<u64>,
}

impl Fifo {
    /// An empty one for `limit` packets, without a pace.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Packets leave at `rate` bytes/s (X) from the next one on; `segment` is the mean size of
    /// one (s), bytes.
    pub fn pace(&mut self, rate: f64, segment: f64) {
        self.gap = (segment / rate * 1e9) as u64;
    }

    /// When the next packet may leave, ns; it may lie in the past.
    pub fn due(&self) -> u64 {
        self.due.unwrap_or(0)
    }

    /// Packets that came when it was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A packet comes at `now`. Returns what leaves, itself perhaps.
    pub fn offer(&mut self, packet: Waiting, now: u64) -> Vec<Waiting> {
        let mut leaving = self.release(now);
        if self.waiting.len() < self.limit {
            self.waiting.push_back(packet);
        } else {
            self.refused += 1;
        }
        leaving.extend(self.release(now));
        leaving
    }

    /// Takes out what is due at `now`.
    pub fn release(&mut self, now: u64) -> Vec<Waiting> {
        let mut leaving = Vec::new();
        while self.due() <= now
            && let Some(first) = self.waiting.pop_front()
        {
            let due = self.due.unwrap_or(now).max(now.saturating_sub(LATE));
            self.due = Some(due.saturating_add(self.gap));
            leaving.push(first);
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GAP: u64 = 10_000_000;

    /// Offers `count` packets at once at `now`; those that left.
    fn burst(fifo: &mut Fifo, count: u32, now: u64) -> Vec<u32> {
        let packet = |sequence| Waiting {
            sequence,
            created: now,
        };
        (0..count)
            .flat_map(|sequence| fifo.offer(packet(sequence), now))
            .map(|packet| packet.sequence)
            .collect()
    }

    fn fifo(limit: usize) -> Fifo {
        let mut fifo = Fifo::new(limit);
        fifo.pace(400.0 * 1e9 / GAP as f64, 400.0);
        fifo
    }

    #[test]
    fn fifo_first_packet_of_a_burst_that_may_go_needs_no_place() {
        let mut idle = fifo(5);
        assert_eq!(burst(&mut idle, 7, GAP), [0]);
        assert_eq!(idle.refused(), 1);
        // What waits leaves in order when it is due, and no more.
        for turn in 1..7 {
            let due = (1 + turn) * GAP;
            assert_eq!(idle.due(), due);
            let left = idle.release(due).into_iter().map(|packet| packet.sequence);
            assert!(left.eq((turn < 6).then_some(turn as u32)), "{turn}");
        }
        // The next one finds them all waiting, and nothing due.
        let mut busy = fifo(5);
        assert_eq!(burst(&mut busy, 1, GAP), [0]);
        assert!(burst(&mut busy, 7, GAP + 1).is_empty());
        assert_eq!(busy.refused(), 2);
        // Rate that was not used is lost.
        assert_eq!(burst(&mut busy, 2, 100 * GAP), [0]);
    }

    proptest! {
        #[test]
        fn fifo_always_full_keeps_the_rate_however_late_it_wakes_up(
            late in prop::collection::vec(0..LATE, 1..200),
        ) {
            let mut fifo = fifo(1);
            for (packet, late) in (0u64..).zip(late) {
                let now = fifo.due().max(MILLI) + late;
                prop_assert_eq!(burst(&mut fifo, 1, now).len(), 1);
                prop_assert!(fifo.due() - (packet + 1) * GAP < MILLI + LATE);
            }
        }
    }
}
