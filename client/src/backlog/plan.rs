//! Which ADU begins next, by the rules of `docs/triage.md`.
//!
//! 1. Walk the ADUs by deadline and add up when each would end.
//! 2. If one would end too late, the least important that is due no later is left out of the plan, the
//!    largest among equals (Moore and Hodgson). That may be the one that would end too late.
//! 3. Of the others the first may begin, or a more important one, if nobody in front of it becomes late by that.
//!    Who has no time left for a retransmission goes behind those of the same priority that have: a loss
//!    would make it late, and then it was sent for nothing.
//! 4. Nobody begins who would hold the path for too long.

use std::collections::BinaryHeap;

use super::{Adu, NEVER, expected::Expected, transmission};
use crate::{metadata::Priority, path::View};

/// An ADU of the plan.
#[derive(Clone, Copy, Debug)]
struct Step {
    id: u64,
    priority: Priority,
    /// ns on the path.
    work: u64,
    /// When it must have ended here, ns; [`NEVER`] for any time.
    due: u64,
    /// It would still be in time, but not after a loss.
    edge: bool,
    /// Whether it may begin now.
    allowed: bool,
    left_out: bool,
}

/// Priority, whether at the edge, ns on the path, and place among the steps.
type Victim = (Priority, bool, u64, usize);

/// The plan's memory, kept from one plan to the next.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// Who may be left out: the least important first; among equals those at the edge, and then the largest.
    victims: BinaryHeap<Victim>,
    round: Vec<Victim>,
}

impl Plan {
    /// `ordered`: by deadline.
    pub(super) fn choose<'a, T: 'a>(
        &mut self,
        now: u64,
        view: &View,
        ordered: impl Iterator<Item = (u64, &'a Adu<T>)>,
        expected: &Expected,
    ) -> Option<u64> {
        self.steps.clear();
        self.victims.clear();
        let mut end = now;
        for (id, adu) in ordered {
            let work = transmission(adu.bytes, view.rate);
            let (mut due, mut edge) = (NEVER, false);
            if adu.deadline != NEVER {
                let latest = adu.deadline.saturating_sub(view.owd);
                due = latest.saturating_sub(adu.margin(view));
                edge = now.saturating_add(work) > due;
                if edge {
                    due = latest;
                }
            }
            let at = self.steps.len();
            self.steps.push(Step {
                id,
                priority: adu.priority,
                work,
                due,
                edge,
                allowed: view.rate == 0 || expected.allows(adu, now, view),
                left_out: false,
            });
            end = end.saturating_add(work);
            if adu.keep {
                continue;
            }
            self.victims.push((adu.priority, edge, work, at));
            if end > due {
                end = self.leave_out(at, end, due);
            }
        }
        self.first(now)
    }

    /// Leaves out others until `at` ends by `due`, or `at` itself; returns the new end.
    fn leave_out(&mut self, at: usize, mut end: u64, due: u64) -> u64 {
        self.round.clear();
        let before = end;
        while end > due {
            let Some(victim) = self.victims.pop() else {
                break; // only such as must be sent are left
            };
            if victim.3 == at {
                // The others made room for nobody.
                self.victims.extend(self.round.drain(..));
                self.steps[at].left_out = true;
                return before.saturating_sub(victim.2);
            }
            end = end.saturating_sub(victim.2);
            self.round.push(victim);
        }
        for victim in self.round.drain(..) {
            self.steps[victim.3].left_out = true;
        }
        end
    }

    /// Who begins: the most important that delays nobody too much, and among equals who is due first.
    fn first(&self, now: u64) -> Option<u64> {
        let mut best: Option<&Step> = None;
        let mut end = now;
        let mut slack = u64::MAX;
        for step in self.steps.iter().filter(|step| !step.left_out) {
            let rank = (step.priority, step.edge);
            if step.allowed
                && step.work <= slack
                && best.is_none_or(|b| rank < (b.priority, b.edge))
            {
                best = Some(step);
            }
            end = end.saturating_add(step.work);
            slack = slack.min(step.due.saturating_sub(end));
            if slack == 0 && best.is_some() {
                break;
            }
        }
        best.map(|step| step.id)
    }
}
