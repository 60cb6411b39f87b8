//! A FIFO in user space in front of the network, as DCCP's transmit queue is: what arrives at a full one is refused,
//! and what is due leaves *before the next packet is looked at*. An application that hands over a burst has its first
//! packet on the way by then, as with a socket.

use std::collections::VecDeque;

use anyhow::Result;

use super::{SendCredit, pacing::Pacing};

/// A packet that waits: its position in the schedule and its time of creation, ns.
pub type Waiting = (u32, u64);

/// Packets in the order in which they came. Times are ns of one clock, passed in.
#[derive(Clone, Debug)]
pub struct Fifo {
    waiting: VecDeque<Waiting>,
    /// In packets.
    limit: usize,
    refused: u64,
    pacing: Pacing,
    /// From one packet to the next, ns.
    gap: u64,
}

impl Fifo {
    /// An empty one for `limit` packets.
    pub fn new(limit: usize, credit: SendCredit) -> Self {
        Self {
            waiting: VecDeque::new(),
            limit,
            refused: 0,
            pacing: Pacing::new(credit),
            gap: 0,
        }
    }

    /// Packets leave `gap` ns after one another from the next one on (s/X).
    pub fn pace(&mut self, gap: u64) {
        self.gap = gap;
    }

    /// When the next packet may leave, ns; it may lie in the past.
    pub fn due(&self) -> u64 {
        self.pacing.due()
    }

    /// Packets that came when it was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A packet comes at `now`; `send` gets what is due, itself perhaps.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn offer(
        &mut self,
        packet: Waiting,
        now: u64,
        mut send: impl FnMut(Waiting) -> Result<()>,
    ) -> Result<()> {
        self.release(now, &mut send)?;
        if self.waiting.len() < self.limit {
            self.waiting.push_back(packet);
        } else {
            self.refused += 1;
        }
        self.release(now, send)
    }

    /// `send` gets what is due at `now`.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn release(&mut self, now: u64, mut send: impl FnMut(Waiting) -> Result<()>) -> Result<()> {
        while self.pacing.due() <= now {
            let Some(first) = self.waiting.pop_front() else {
                break;
            };
            self.pacing.on_sent(now, self.gap);
            send(first)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: u64 = 10_000_000;

    /// Offers `count` packets at once at `now`; those that left.
    fn burst(fifo: &mut Fifo, count: u32, now: u64) -> Vec<u32> {
        let mut left = Vec::new();
        for n in 0..count {
            fifo.offer((n, now), now, |(sequence, _)| {
                left.push(sequence);
                Ok(())
            })
            .unwrap();
        }
        left
    }

    fn fifo(limit: usize, credit: SendCredit) -> Fifo {
        let mut fifo = Fifo::new(limit, credit);
        fifo.pace(GAP);
        fifo
    }

    #[test]
    fn the_first_packet_of_a_burst_that_may_go_needs_no_place() {
        let mut idle = fifo(5, SendCredit::None);
        assert_eq!(burst(&mut idle, 7, GAP), [0]);
        assert_eq!(idle.refused(), 1);
        // The next one finds them all waiting, and nothing due.
        let mut busy = fifo(5, SendCredit::None);
        assert_eq!(burst(&mut busy, 1, GAP), [0]);
        assert!(burst(&mut busy, 7, GAP + 1).is_empty());
        assert_eq!(busy.refused(), 2);
    }

    #[test]
    fn with_credit_a_burst_needs_no_queue() {
        let mut saved = fifo(1, SendCredit::All);
        assert_eq!(burst(&mut saved, 1, 0), [0]);
        assert_eq!(burst(&mut saved, 8, 100 * GAP), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(saved.refused(), 0);
    }

    #[test]
    fn what_waits_leaves_in_order_when_it_is_due() {
        let mut fifo = fifo(5, SendCredit::None);
        burst(&mut fifo, 6, GAP);
        let mut left = Vec::new();
        for turn in 1..10 {
            assert_eq!(fifo.due(), GAP + u64::min(turn, 6) * GAP);
            fifo.release(GAP + turn * GAP, |(sequence, _)| {
                left.push(sequence);
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(left, [1, 2, 3, 4, 5]);
    }
}
