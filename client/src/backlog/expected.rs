//! What more important ADUs are still to come: they were pushed in the last second or two.
//!
//! An ADU that has begun is sent to its end, because its framing does not allow less. So a large one
//! that begins now keeps the path from everything that is pushed meanwhile (`docs/triage.md`, rule 7).

use super::{Adu, NEVER, transmission};
use crate::path::View;

/// ns that one half of the memory covers.
const HALF: u64 = 1_000_000_000;

/// The most pressing ADU of one priority.
#[derive(Clone, Copy, Debug)]
struct Pressing {
    /// From push to deadline, ns; the least.
    lifetime: u64,
    /// The most.
    bytes: usize,
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
        let slot = &mut self.halves[0][usize::from(adu.priority.get())];
        *slot = Some(match *slot {
            None => Pressing {
                lifetime,
                bytes: adu.solid,
            },
            Some(old) => Pressing {
                lifetime: old.lifetime.min(lifetime),
                bytes: old.bytes.max(adu.solid),
            },
        });
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

    /// May `adu` hold the path until its end, or would something more important that is pushed right
    /// after it then be late? What would be late even on a free path does not count.
    pub(super) fn allows<T>(&self, adu: &Adu<T>, now: u64, view: &View) -> bool {
        let held = transmission(adu.solid, view.rate);
        let passed = now.saturating_sub(self.since);
        let recent = match passed / HALF {
            0 => &self.halves[..],
            1 => &self.halves[..1],
            _ => &[],
        };
        let more_important = recent
            .iter()
            .flat_map(|half| &half[..usize::from(adu.priority.get())])
            .flatten();
        more_important.into_iter().all(|pressing| {
            let spare = pressing
                .lifetime
                .saturating_sub(view.owd)
                .saturating_sub(transmission(pressing.bytes, view.rate));
            let spare = spare - view.margin.min(spare / 2);
            spare == 0 || held <= spare
        })
    }
}
