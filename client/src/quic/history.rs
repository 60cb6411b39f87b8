//! What became of ADUs that have ended: outcomes to be taken, and states for a while.

use std::collections::{HashMap, VecDeque};

use super::types::{Fate, Outcome, SenderStats, State, Ticket};
use crate::backlog::Reason;

/// States that are remembered beyond the limit of ADUs.
const MORE: usize = 1024;

#[derive(Debug)]
pub(super) struct History {
    states: HashMap<u64, Outcome>,
    /// In the order in which they ended.
    ended: VecDeque<u64>,
    outcomes: VecDeque<Outcome>,
    limit: usize,
    pub(super) stats: SenderStats,
}

impl History {
    /// `adus`: the sender's limit.
    pub(super) fn new(adus: usize) -> Self {
        Self {
            states: HashMap::new(),
            ended: VecDeque::new(),
            outcomes: VecDeque::new(),
            limit: adus.saturating_add(MORE),
            stats: SenderStats::default(),
        }
    }

    pub(super) fn state(&self, id: u64) -> State {
        match self.states.get(&id).map(|outcome| outcome.fate) {
            Some(Fate::Acknowledged) => State::Acknowledged,
            Some(Fate::GivenUp(reason)) => State::GivenUp(reason),
            None => State::Unknown,
        }
    }

    pub(super) fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        self.states.get(&ticket.0).copied()
    }

    pub(super) fn acknowledged(&mut self, outcome: Outcome) {
        self.stats.acknowledged += 1;
        self.end(outcome);
    }

    pub(super) fn given_up(&mut self, outcome: Outcome, reason: Reason) {
        self.stats.count(reason);
        self.end(Outcome {
            fate: Fate::GivenUp(reason),
            ..outcome
        });
    }

    fn end(&mut self, outcome: Outcome) {
        self.states.insert(outcome.ticket.0, outcome);
        self.ended.push_back(outcome.ticket.0);
        if self.ended.len() > self.limit
            && let Some(oldest) = self.ended.pop_front()
        {
            self.states.remove(&oldest);
        }
        self.outcomes.push_back(outcome);
        if self.outcomes.len() > self.limit.saturating_mul(4) {
            self.outcomes.pop_front();
            self.stats.outcomes_lost += 1;
        }
    }

    pub(super) fn take(&mut self) -> Vec<Outcome> {
        self.outcomes.drain(..).collect()
    }
}
