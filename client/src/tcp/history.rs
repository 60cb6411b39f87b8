//! What became of ADUs that have left: outcomes to be taken, and states for a while.

use std::collections::{HashMap, VecDeque};

use super::types::{Fate, Outcome, RingStats, State, Ticket};
use crate::backlog::Reason;

/// States that are remembered beyond the limit of ADUs.
const MORE: usize = 1024;

#[derive(Debug)]
pub(super) struct History {
    states: HashMap<u64, State>,
    /// In the order in which they ended.
    ended: VecDeque<u64>,
    /// (position in the stream behind its last byte, id) of what is sent and not acknowledged.
    unacknowledged: VecDeque<(u64, u64)>,
    outcomes: VecDeque<Outcome>,
    limit: usize,
    pub(super) stats: RingStats,
}

impl History {
    /// `adus`: the ring's limit.
    pub(super) fn new(adus: usize) -> Self {
        Self {
            states: HashMap::new(),
            ended: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            outcomes: VecDeque::new(),
            limit: adus.saturating_add(MORE),
            stats: RingStats::default(),
        }
    }

    pub(super) fn state(&self, id: u64) -> Option<State> {
        self.states.get(&id).copied()
    }

    pub(super) fn sent(&mut self, id: u64, bytes: usize, late: bool) {
        self.stats.sent += 1;
        self.stats.late += u64::from(late);
        self.end(id, State::Sent, Fate::Sent { late }, bytes);
    }

    /// `id`, which is sent, ends at this position of the stream.
    pub(super) fn ends_at(&mut self, id: u64, position: u64) {
        self.unacknowledged.push_back((position, id));
        if self.unacknowledged.len() > self.limit {
            self.unacknowledged.pop_front();
        }
    }

    pub(super) fn given_up(&mut self, id: u64, reason: Reason, sent: usize) {
        self.stats.count(reason);
        self.end(id, State::GivenUp(reason), Fate::GivenUp(reason), sent);
    }

    fn end(&mut self, id: u64, state: State, fate: Fate, sent: usize) {
        self.states.insert(id, state);
        self.ended.push_back(id);
        if self.ended.len() > self.limit
            && let Some(oldest) = self.ended.pop_front()
        {
            self.states.remove(&oldest);
        }
        self.outcomes.push_back(Outcome {
            ticket: Ticket(id),
            fate,
            sent,
        });
        if self.outcomes.len() > self.limit.saturating_mul(4) {
            self.outcomes.pop_front();
            self.stats.outcomes_lost += 1;
        }
    }

    /// The peer's kernel has everything before this position.
    pub(super) fn acknowledged(&mut self, position: u64) {
        while let Some(&(end, id)) = self.unacknowledged.front() {
            if end > position {
                break;
            }
            self.unacknowledged.pop_front();
            if let Some(state) = self.states.get_mut(&id) {
                *state = State::Acknowledged;
            }
        }
    }

    pub(super) fn outcomes(&mut self) -> impl Iterator<Item = Outcome> + '_ {
        self.outcomes.drain(..)
    }
}
