//! Which ADU begins next, by the rules of `docs/triage.md`.
//!
//! 1. Walk the ADUs by deadline and add up when each would end.
//! 2. If one would end too late, the least important that is due no later is left out of the plan, the
//!    largest among equals (Moore and Hodgson). That may be the one that would end too late.
//! 3. Of the others the first may begin, or a more important one, if nobody in front of it becomes late by that.
//!    Who has no time left for a retransmission goes behind those of the same priority that have: a loss
//!    would make it late, and then it was sent for nothing.
//! 4. Nobody begins who would hold the path for too long. The plan has no place for it either: the path would
//!    stand still for it (tried: key frames that audio forbids, 82 instead of 94 % of the path used).
//! 5. The walk ends before the last ADU if that changes nothing: all that is left ends in time behind what was
//!    walked, and nobody is more important than who may begin. So a long backlog that is in time costs no more
//!    than a short one.

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
    left_out: bool,
}

/// Priority, whether at the edge, ns on the path, and place among the steps.
type Victim = (Priority, bool, u64, usize);

/// Of everything that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) bytes: usize,
    /// The most important priority of all.
    pub(super) best: Priority,
}

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
        whole: Whole,
        expected: &Expected,
    ) -> Option<u64> {
        self.steps.clear();
        self.victims.clear();
        let (mut end, mut left) = (now, whole.bytes);
        // Who would begin if nobody else came: nobody is more important.
        let (mut chosen, mut slack): (Option<usize>, u64) = (None, u64::MAX);
        for (id, adu) in ordered {
            let allowed = view.rate == 0 || expected.allows(adu, now, view);
            if !allowed {
                left = left.saturating_sub(adu.bytes);
                continue;
            }
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
                left_out: false,
            });
            end = end.saturating_add(work);
            if !adu.keep {
                self.victims.push((adu.priority, edge, work, at));
                if end > due {
                    end = self.leave_out(at, end, due);
                }
            }
            if adu.priority == whole.best && !edge && work <= slack {
                chosen.get_or_insert(at);
            }
            chosen = chosen.filter(|chosen| !self.steps[*chosen].left_out);
            if !self.steps[at].left_out {
                slack = slack.min(due.saturating_sub(end));
            }
            left = left.saturating_sub(adu.bytes);
            // Nobody behind is due before this one.
            let due = match adu.deadline {
                NEVER => NEVER,
                deadline => deadline
                    .saturating_sub(view.owd)
                    .saturating_sub(view.margin),
            };
            if chosen.is_some() && end.saturating_add(transmission(left, view.rate)) <= due {
                break;
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
            if step.work <= slack && best.is_none_or(|b| rank < (b.priority, b.edge)) {
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
