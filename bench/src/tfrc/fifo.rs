//! A FIFO in user space in front of the network, as DCCP's transmit queue is: what arrives at a full one is refused,
//! and what is due leaves *before the next packet is looked at*. An application that hands over a burst has its first
//! packet on the way by then, as with a socket.

use std::collections::VecDeque;

use anyhow::Result;

use super::{PacedBy, Settings, pacing::Pacing};

/// A packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its position in the schedule.
    pub sequence: u32,
    /// When it was created, ns.
    pub created: u64,
    /// Its size on the wire.
    pub bytes: u32,
}

/// Packets in the order in which they came. Times are ns of one clock, passed in.
#[derive(Clone, Debug)]
pub struct Fifo {
    waiting: VecDeque<Waiting>,
    /// In packets.
    limit: usize,
    refused: u64,
    pacing: Pacing,
    paced_by: PacedBy,
    /// TFRC's X, bytes/s, and s, bytes.
    rate: f64,
    segment: f64,
}

impl Fifo {
    /// An empty one for `limit` packets, without a pace.
    pub fn new(limit: usize, settings: Settings) -> Self {
        Self {
            waiting: VecDeque::new(),
            limit,
            refused: 0,
            pacing: Pacing::new(settings.send_credit),
            paced_by: settings.paced_by,
            rate: f64::INFINITY,
            segment: 0.0,
        }
    }

    /// Packets leave at `rate` bytes/s (X) from the next one on; `segment` is the size of one in the mean (s), bytes.
    pub fn pace(&mut self, rate: f64, segment: f64) {
        (self.rate, self.segment) = (rate, segment);
    }

    /// For how long a packet of so many bytes keeps the next one waiting, ns.
    fn gap(&self, bytes: u32) -> u64 {
        let counted = match self.paced_by {
            PacedBy::Packets => self.segment,
            PacedBy::Bytes => f64::from(bytes),
        };
        (counted / self.rate * 1e9) as u64
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
            self.pacing.on_sent(now, self.gap(first.bytes));
            send(first)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::SendCredit, *};

    const GAP: u64 = 10_000_000;
    /// A mean packet takes [`GAP`].
    const SEGMENT: u32 = 400;

    /// Offers `count` packets of so many bytes at once at `now`; those that left.
    fn burst(fifo: &mut Fifo, count: u32, bytes: u32, now: u64) -> Vec<u32> {
        let mut left = Vec::new();
        for sequence in 0..count {
            let packet = Waiting {
                sequence,
                created: now,
                bytes,
            };
            fifo.offer(packet, now, |packet| {
                left.push(packet.sequence);
                Ok(())
            })
            .unwrap();
        }
        left
    }

    fn fifo(limit: usize, settings: Settings) -> Fifo {
        let mut fifo = Fifo::new(limit, settings);
        fifo.pace(f64::from(SEGMENT) * 1e9 / GAP as f64, SEGMENT.into());
        fifo
    }

    #[test]
    fn the_first_packet_of_a_burst_that_may_go_needs_no_place() {
        let mut idle = fifo(5, Settings::default());
        assert_eq!(burst(&mut idle, 7, SEGMENT, GAP), [0]);
        assert_eq!(idle.refused(), 1);
        // The next one finds them all waiting, and nothing due.
        let mut busy = fifo(5, Settings::default());
        assert_eq!(burst(&mut busy, 1, SEGMENT, GAP), [0]);
        assert!(burst(&mut busy, 7, SEGMENT, GAP + 1).is_empty());
        assert_eq!(busy.refused(), 2);
    }

    #[test]
    fn with_credit_a_burst_needs_no_queue() {
        let settings = Settings {
            send_credit: SendCredit::All,
            ..Settings::default()
        };
        let mut saved = fifo(1, settings);
        assert_eq!(burst(&mut saved, 1, SEGMENT, 0), [0]);
        assert_eq!(
            burst(&mut saved, 8, SEGMENT, 100 * GAP),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!(saved.refused(), 0);
    }

    #[test]
    fn what_waits_leaves_in_order_when_it_is_due() {
        let mut fifo = fifo(5, Settings::default());
        burst(&mut fifo, 6, SEGMENT, GAP);
        let mut left = Vec::new();
        for turn in 1..10 {
            assert_eq!(fifo.due(), GAP + u64::min(turn, 6) * GAP);
            fifo.release(GAP + turn * GAP, |packet| {
                left.push(packet.sequence);
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(left, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_large_packet_keeps_its_place_for_longer_where_bytes_are_paced() {
        for (paced_by, large, small) in [
            (PacedBy::Packets, GAP, GAP),
            (PacedBy::Bytes, 2 * GAP, GAP / 4),
        ] {
            let settings = Settings {
                paced_by,
                ..Settings::default()
            };
            for (bytes, gap) in [(2 * SEGMENT, large), (SEGMENT / 4, small)] {
                let mut fifo = fifo(5, settings);
                assert_eq!(burst(&mut fifo, 1, bytes, GAP), [0]);
                assert_eq!(fifo.due(), GAP + gap, "{paced_by}, {bytes} bytes");
            }
        }
    }
}
