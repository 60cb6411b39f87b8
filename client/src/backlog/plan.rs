//! Which ADU begins next, by the rules of `docs/triage.md`.
//!
//! 1. Walk the ADUs by deadline and add up when each would end.
//! 2. If one would end too late, the least important that is due no later is left out of the plan, the
//!    largest among equals (Moore and Hodgson). That may be the one that would end too late.
//! 3. Of the others the first may begin, or a more important one, if nobody in front of it becomes late by that.
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
    /// Whether it may begin now.
    allowed: bool,
    left_out: bool,
}

/// The plan's memory, kept from one plan to the next.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// Who may be left out: the least important first, the largest among equals. With its place in `steps`.
    victims: BinaryHeap<(Priority, u64, usize)>,
    round: Vec<(Priority, u64, usize)>,
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
            let due = match adu.deadline {
                NEVER => NEVER,
                deadline => deadline
                    .saturating_sub(view.owd)
                    .saturating_sub(adu.margin(view)),
            };
            let at = self.steps.len();
            self.steps.push(Step {
                id,
                priority: adu.priority,
                work,
                due,
                allowed: view.rate == 0 || expected.allows(adu, now, view),
                left_out: false,
            });
            end = end.saturating_add(work);
            if adu.keep {
                continue;
            }
            self.victims.push((adu.priority, work, at));
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
            if victim.2 == at {
                // The others made room for nobody.
                self.victims.extend(self.round.drain(..));
                self.steps[at].left_out = true;
                return before.saturating_sub(victim.1);
            }
            end = end.saturating_sub(victim.1);
            self.round.push(victim);
        }
        for victim in self.round.drain(..) {
            self.steps[victim.2].left_out = true;
        }
        end
    }

    /// Who begins: the most important that delays nobody too much, and among equals who is due first.
    fn first(&self, now: u64) -> Option<u64> {
        let mut best: Option<&Step> = None;
        let mut end = now;
        let mut slack = u64::MAX;
        for step in self.steps.iter().filter(|step| !step.left_out) {
            if step.allowed && step.work <= slack && best.is_none_or(|b| step.priority < b.priority)
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
