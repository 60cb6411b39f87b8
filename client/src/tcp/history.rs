//! What became of ADUs that have left, and which of them are acknowledged.

use std::collections::VecDeque;

use super::types::RingStats;
use crate::{
    adu::{Fate, Outcome, Past, State, Ticket},
    backlog::Reason,
};

#[derive(Debug)]
pub(super) struct History {
    past: Past<()>,
    /// (position in the stream behind its last byte, id) of what is sent and not acknowledged.
    unacknowledged: VecDeque<(u64, u64)>,
    pub(super) stats: RingStats,
}

impl History {
    /// `adus`: the ring's limit.
    pub(super) fn new(adus: usize) -> Self {
        Self {
            past: Past::new(adus),
            unacknowledged: VecDeque::new(),
            stats: RingStats::default(),
        }
    }

    pub(super) fn state(&self, id: u64) -> State {
        self.past.state(id)
    }

    pub(super) fn sent(&mut self, id: u64, bytes: usize, late: bool) {
        self.stats.sent += 1;
        self.stats.late += u64::from(late);
        self.end(id, Fate::Sent { late }, bytes);
    }

    /// `id`, which is sent, ends at this position of the stream.
    pub(super) fn ends_at(&mut self, id: u64, position: u64) {
        self.unacknowledged.push_back((position, id));
        if self.unacknowledged.len() > self.past.limit() {
            self.unacknowledged.pop_front();
        }
    }

    pub(super) fn given_up(&mut self, id: u64, reason: Reason, sent: usize) {
        self.stats.given_up.count(reason);
        self.end(id, Fate::GivenUp(reason), sent);
    }

    fn end(&mut self, id: u64, fate: Fate, sent: usize) {
        let outcome = Outcome {
            ticket: Ticket(id),
            fate,
            sent,
            more: (),
        };
        self.past.end(State::Sent, outcome);
        self.stats.outcomes_lost = self.past.lost;
    }

    /// The peer's kernel has everything before this position.
    pub(super) fn acknowledged(&mut self, position: u64) {
        while let Some(&(end, id)) = self.unacknowledged.front() {
            if end > position {
                break;
            }
            self.unacknowledged.pop_front();
            self.past.acknowledged(id);
        }
    }

    pub(super) fn outcomes(&mut self) -> impl Iterator<Item = Outcome> + '_ {
        self.past.take()
    }
}
