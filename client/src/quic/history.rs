//! What became of ADUs that have ended.

use super::types::{OnWire, Outcome, SenderStats};
use crate::adu::{Fate, Past, State};

#[derive(Debug)]
pub(super) struct History {
    pub(super) past: Past<OnWire>,
    pub(super) stats: SenderStats,
}

impl History {
    /// `adus`: the sender's limit.
    pub(super) fn new(adus: usize) -> Self {
        Self {
            past: Past::new(adus),
            stats: SenderStats::default(),
        }
    }

    pub(super) fn end(&mut self, outcome: Outcome) {
        match outcome.fate {
            Fate::Sent { late } => {
                self.stats.acknowledged += 1;
                self.stats.late += u64::from(late);
            }
            Fate::GivenUp(reason) => self.stats.given_up.count(reason),
        }
        self.past.end(State::Acknowledged, outcome);
        self.stats.outcomes_lost = self.past.lost;
    }
}
