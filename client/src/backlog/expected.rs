//! What more important ADUs are still to come: they were pushed in the last second or two.
//!
//! 1. They overtake the ADUs that wait. So a plan counts them at their rate ([`Outlook::before`]).
//! 2. An ADU that has begun is sent to its end, because its framing does not allow less. So a large one
//!    that begins now keeps the path from everything that is pushed meanwhile (`docs/triage.md`, rule 7).
//!
//! The path is not kept free for what is unlikely to come in that time, such as a key frame every other second;
//! nor for what may not begin itself. Otherwise the path would stand still (tried: key frames in front of which no
//! other frame fitted, and which audio forbade: 82 % of the path used, and then a burst).

use super::{Adu, NEVER, transmission};
use crate::{metadata::Priority, path::View};

/// ns that one half of the memory covers.
const HALF: u64 = 1_000_000_000;
/// Something is likely to come if one in so many is expected meanwhile.
const LIKELY: u64 = 4;
/// Shares of the path's time are fixed-point numbers. A plan counts half of it at most for ADUs that are to come.
const SHARE: u32 = 20;
const SHARE_MOST: u64 = 1 << (SHARE - 1);

/// The most pressing ADU of one priority.
#[derive(Clone, Copy, Debug)]
struct Pressing {
    /// From push to deadline, ns; the least.
    lifetime: u64,
    /// The most.
    bytes: usize,
    /// Of all of them.
    total: usize,
    count: u32,
}

impl Pressing {
    /// What presses most of both.
    fn and(self, other: Self) -> Self {
        Self {
            lifetime: self.lifetime.min(other.lifetime),
            bytes: self.bytes.max(other.bytes),
            total: self.total.saturating_add(other.total),
            count: self.count.saturating_add(other.count),
        }
    }
}

/// By priority, the current half of the memory and the one before.
#[derive(Debug, Default)]
pub(super) struct Expected {
    halves: [[Option<Pressing>; 8]; 2],
    since: u64,
}

impl Expected {
    pub(super) fn note<T>(&mut self, adu: &Adu<T>) {
        self.turn(adu.arrived);
        if adu.deadline == NEVER {
            return;
        }
        let lifetime = adu.deadline.saturating_sub(adu.arrived);
        let new = Pressing {
            lifetime,
            bytes: adu.solid,
            total: adu.bytes,
            count: 1,
        };
        let slot = &mut self.halves[0][usize::from(adu.priority.get())];
        *slot = Some(slot.map_or(new, |old| old.and(new)));
    }

    fn turn(&mut self, now: u64) {
        let passed = now.saturating_sub(self.since);
        if passed >= HALF {
            self.halves[1] = if passed < 2 * HALF {
                self.halves[0]
            } else {
                Default::default()
            };
            self.halves[0] = Default::default();
            self.since = now;
        }
    }

    /// The ADUs to expect from now on.
    pub(super) fn outlook(&self, now: u64, view: &View) -> Outlook {
        let passed = now.saturating_sub(self.since);
        let (recent, span) = match passed / HALF {
            0 if self.halves[1].iter().any(Option::is_some) => (&self.halves[..], passed + HALF),
            0 | 1 => (&self.halves[..1], passed),
            _ => (&self.halves[..0], passed),
        };
        let mut outlook = Outlook {
            span,
            rate: view.rate,
            margin: view.margin,
            ..Outlook::default()
        };
        let mut before = 0_u64;
        for priority in 0..8 {
            outlook.before[priority] = before.min(SHARE_MOST);
            let of_priority = recent.iter().filter_map(|half| half[priority]);
            let Some(pressing) = of_priority.reduce(Pressing::and) else {
                continue;
            };
            let time = u128::from(transmission(pressing.total, view.rate)) << SHARE;
            let share = time / u128::from(span.max(HALF));
            before = before.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
            let own = transmission(pressing.bytes, view.rate);
            let spare = pressing
                .lifetime
                .saturating_sub(view.owd)
                .saturating_sub(own);
            outlook.classes[priority] = Some(Class {
                own,
                spare,
                count: u64::from(pressing.count),
            });
        }
        outlook
    }
}

/// The ADUs of one priority that are to come, ns.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// The largest on the path.
    own: u64,
    /// For so long the most pressing may be held up.
    spare: u64,
    /// How many came in the time that is looked at.
    count: u64,
}

/// See [`Expected::outlook`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outlook {
    classes: [Option<Class>; 8],
    /// Share of the path's time that is more important, by priority.
    before: [u64; 8],
    span: u64,
    rate: u64,
    margin: u64,
}

impl Outlook {
    /// ns on the path that what is more important is expected to take in the next `time`, and no more than half of it.
    pub(super) fn before(&self, priority: Priority, time: u64) -> u64 {
        let share = u128::from(self.before[usize::from(priority.get())]);
        ((u128::from(time) * share) >> SHARE) as u64
    }

    /// May `adu` hold the path until its end, or would something more important that is likely to be pushed
    /// meanwhile then be late?
    pub(super) fn allows<T>(&self, adu: &Adu<T>) -> bool {
        let held = transmission(adu.solid, self.rate);
        // For so long everything looked at so far may be held up.
        let mut most = u64::MAX;
        for class in self.classes[..usize::from(adu.priority.get())]
            .iter()
            .flatten()
        {
            let mut spare = class.spare;
            // A retransmission that may never be forbids no ADU that is more important than usual.
            if adu.priority >= Priority::default() {
                spare -= self.margin.min(spare / 2);
            }
            // It would be late even on a free path, or may not begin itself.
            if spare == 0 || class.own > most {
                continue;
            }
            if class.count.saturating_mul(held).saturating_mul(LIKELY) >= self.span {
                most = most.min(spare);
            }
        }
        held <= most
    }
}
