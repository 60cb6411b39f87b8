//! Which ADU begins next, by the rules of `docs/triage.md`.
//!
//! 1. Walk the ADUs by deadline and add up when each would end.
//! 2. If one would end too late, the least important that is due no later is left out of the plan, the
//!    largest among equals (Moore and Hodgson). That may be the one that would end too late.
//! 3. **The law of importance**: an ADU is lost only if it could not have arrived with every less important one left
//!    out from its creation on. A plan knows nothing of later ADUs. So a less important one goes before an ADU only
//!    if the ADU then still ends a quarter of its wait early. Time for more important ones that are still to come
//!    is kept free besides. (The kernel's queue has the same in `bbq_due`, `bbq_expected` and `bbq_reserve`.)
//!    `law.rs` tests it, and names the losses that remain possible. An ADU that has begun is in the way: one, or
//!    all that have begun where others may go between their parts. Later ADUs that matter as much or more take more
//!    than was kept free. An ADU takes longer than a more important one can wait for its end (6).
//! 4. Of the others the first may begin, or a more important one, if nobody in front of it becomes late by that.
//!    Who has no time left for a retransmission goes behind those of the same priority that have: a loss
//!    would make it late, and then it was sent for nothing.
//! 5. The walk ends before the last ADU if that changes nothing. Then all that is left ends in time behind what was
//!    walked, and nobody is more important than who may begin. The walk ends after [`FAR`] ADUs in any case. The
//!    rest of each priority then counts as due with its first one: at worst, less important ADUs make room in
//!    vain. So a long backlog costs no more than a short one.
//! 6. Nobody begins who would hold the path for too long. The plan has no place for it either: the path would
//!    stand still for it (tried: key frames that audio forbids, 82 instead of 94 % of the path used).

use std::collections::{BinaryHeap, binary_heap::PeekMut};

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

/// No walk looks at more ADUs.
const FAR: usize = 256;

/// Priority, whether at the edge, ns on the path, and place among the steps.
type Victim = (Priority, bool, u64, usize);

/// Of everything that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    /// By priority.
    pub(super) bytes: [usize; 8],
    /// The most important priority of all.
    pub(super) best: Priority,
    /// None of it was pushed before, ns.
    pub(super) oldest: u64,
}

/// The plan's memory, kept from one plan to the next.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// Who may be left out: the least important first; among equals those at the edge, and then the largest.
    victims: BinaryHeap<Victim>,
    round: Vec<Victim>,
    /// The walk ended before the last ADU, though that could change something.
    pub(super) cut: bool,
}

fn of(bytes: &mut [usize; 8], priority: Priority) -> &mut usize {
    &mut bytes[usize::from(priority.get())]
}

impl Plan {
    /// `ordered`: by deadline. `next_due`: the first deadline of a priority that is no earlier than another one.
    pub(super) fn choose<'a, T: 'a>(
        &mut self,
        now: u64,
        view: &View,
        ordered: impl Iterator<Item = (u64, &'a Adu<T>)>,
        whole: Whole,
        expected: &Expected,
        next_due: impl Fn(Priority, u64) -> Option<u64>,
    ) -> Option<u64> {
        self.steps.clear();
        self.victims.clear();
        let mut end = now;
        let mut left = whole.bytes;
        self.cut = false;
        let outlook = expected.outlook(now, view);
        // When one that is due then, or later, must end so that the time to keep free is left.
        let early_at_least = |deadline: u64| {
            if deadline == NEVER {
                return NEVER;
            }
            let latest = deadline.saturating_sub(view.owd);
            let to_come = outlook.before(Priority::LOWEST, latest.saturating_sub(now));
            latest
                .saturating_sub(view.margin)
                .saturating_sub(latest.saturating_sub(whole.oldest) / 4)
                .saturating_sub(to_come)
        };
        // Who would begin if nobody else came: nobody is more important.
        let (mut chosen, mut slack): (Option<usize>, u64) = (None, u64::MAX);
        for (id, adu) in ordered {
            let allowed = view.rate == 0 || outlook.allows(adu);
            if !allowed {
                *of(&mut left, adu.priority) -= adu.bytes;
                continue;
            }
            let work = transmission(adu.bytes, view.rate);
            let (mut due, mut early, mut edge) = (NEVER, NEVER, false);
            if adu.deadline != NEVER {
                let latest = adu.deadline.saturating_sub(view.owd);
                due = latest.saturating_sub(adu.margin(view));
                edge = now.saturating_add(work) > due;
                if edge {
                    due = latest;
                }
                if view.rate > 0 {
                    let wait = latest.saturating_sub(adu.arrived);
                    let to_come = outlook.before(adu.priority, latest.saturating_sub(now));
                    early = due.saturating_sub(wait / 4).saturating_sub(to_come);
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
            if end > early && !self.steps[at].left_out {
                end = self.make_room(adu.priority, end, early);
            }
            if adu.priority == whole.best && !edge && work <= slack {
                chosen.get_or_insert(at);
            }
            chosen = chosen.filter(|chosen| !self.steps[*chosen].left_out);
            if !self.steps[at].left_out {
                slack = slack.min(due.saturating_sub(end));
            }
            *of(&mut left, adu.priority) -= adu.bytes;
            let rest: usize = left.iter().sum();
            // Nobody behind is due before this one.
            let all = end.saturating_add(transmission(rest, view.rate));
            if chosen.is_some() && all <= early_at_least(adu.deadline) {
                break;
            }
            if self.steps.len() == FAR && rest > 0 && view.rate > 0 {
                self.cut = true;
                for priority in (0..8).map(Priority::from_bits) {
                    let Some(due) = next_due(priority, adu.deadline) else {
                        continue;
                    };
                    end = end.saturating_add(transmission(*of(&mut left, priority), view.rate));
                    end = self.make_room(priority, end, early_at_least(due));
                }
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

    /// Leaves out what is less important until the last of the others ends by `early`, as far as that is possible.
    fn make_room(&mut self, priority: Priority, mut end: u64, early: u64) -> u64 {
        while end > early
            && let Some(victim) = self.victims.peek_mut()
            && victim.0 > priority
        {
            let victim = PeekMut::pop(victim);
            self.steps[victim.3].left_out = true;
            end = end.saturating_sub(victim.2);
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
