//! What more important ADUs are still to come: they were pushed in the last second or two.
//!
//! An ADU that has begun is sent to its end, because its framing does not allow less. So a large one
//! that begins now keeps the path from everything that is pushed meanwhile (`docs/triage.md`, rule 7).
//!
//! The path is not kept free for what is unlikely to come in that time, such as a key frame every other second;
//! nor for what may not begin itself. Otherwise the path would stand still (tried: key frames in front of which no
//! other frame fitted, and which audio forbade: 82 % of the path used, and then a burst).

use super::{Adu, NEVER, transmission};
use crate::path::View;

/// ns that one half of the memory covers.
const HALF: u64 = 1_000_000_000;
/// Something is likely to come if one in so many is expected meanwhile.
const LIKELY: u64 = 4;

/// The most pressing ADU of one priority.
#[derive(Clone, Copy, Debug)]
struct Pressing {
    /// From push to deadline, ns; the least.
    lifetime: u64,
    /// The most.
    bytes: usize,
    count: u32,
}

impl Pressing {
    /// What presses most of both.
    fn and(self, other: Self) -> Self {
        Self {
            lifetime: self.lifetime.min(other.lifetime),
            bytes: self.bytes.max(other.bytes),
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

    /// May `adu` hold the path until its end, or would something more important that is likely to be pushed
    /// meanwhile then be late?
    pub(super) fn allows<T>(&self, adu: &Adu<T>, now: u64, view: &View) -> bool {
        let held = transmission(adu.solid, view.rate);
        let passed = now.saturating_sub(self.since);
        let (recent, span) = match passed / HALF {
            0 if self.halves[1].iter().any(Option::is_some) => (&self.halves[..], passed + HALF),
            0 => (&self.halves[..1], passed),
            1 => (&self.halves[..1], passed),
            _ => return true,
        };
        // For so long everything looked at so far may be held up.
        let mut most = u64::MAX;
        for priority in 0..usize::from(adu.priority.get()) {
            let of_priority = recent.iter().filter_map(|half| half[priority]);
            let Some(pressing) = of_priority.reduce(Pressing::and) else {
                continue;
            };
            let own = transmission(pressing.bytes, view.rate);
            let spare = pressing
                .lifetime
                .saturating_sub(view.owd)
                .saturating_sub(own);
            let spare = spare - view.margin.min(spare / 2);
            // It would be late even on a free path, or may not begin itself.
            if spare == 0 || own > most {
                continue;
            }
            let likely = u64::from(pressing.count)
                .saturating_mul(held)
                .saturating_mul(LIKELY)
                >= span;
            if likely {
                most = most.min(spare);
            }
        }
        held <= most
    }
}
