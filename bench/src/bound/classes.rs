//! Class by class, and within a class priority by priority, the most important first: how many
//! ADUs can be on time beside as many as possible of those before.

use super::{ClassBound, Link, dp, jobs::Jobs, whole};
use crate::traffic::{Class, Schedule};

/// What is known of the more important ADUs.
#[derive(Default)]
pub(super) struct Before {
    /// By class: everything of these priorities that can be on time alone is on time together.
    forced: [Jobs; 3],
    /// Priorities of which it is known how many are lost, not which; and what follows the first of them.
    open: Vec<(Jobs, usize)>,
    /// Classes whose ADUs are single packets that are all on time, in order of release and due time.
    single: Vec<Jobs>,
    /// Of some it is not known how many are lost. They are left out, which loosens what follows.
    blurred: bool,
}

impl Before {
    /// All of them that are on time together.
    pub(super) fn forced(&self) -> &[Jobs] {
        &self.forced
    }

    /// Those of `adus` that can be on time alone, and have a place beside what is.
    pub(super) fn possible(
        &self,
        adus: Jobs,
        schedule: &Schedule,
        class: Class,
        link: &Link,
    ) -> Jobs {
        self.single.iter().fold(adus.possible(), |adus, packets| {
            adus.placeable(packets, schedule, class, link)
        })
    }

    /// The bound of the next class. `uninterrupted`: video's packets are sent whole, where it can
    /// be known what that costs.
    pub(super) fn class(
        &mut self,
        schedule: &Schedule,
        class: Class,
        link: &Link,
        uninterrupted: bool,
    ) -> ClassBound {
        let mut bound = ClassBound {
            exact: true,
            ..ClassBound::default()
        };
        let mut possible = Jobs::default();
        let priorities = Jobs::by_priority(schedule, class, link);
        let uninterrupted = uninterrupted && class == Class::Video && priorities.len() == 1;
        for adus in priorities {
            bound.adus_offered += adus.0.len() as u64;
            let adus = self.possible(adus, schedule, class, link);
            let (mut rejected, mut exact) = dp::rejected(&self.forced, &self.open, &adus);
            exact = exact && !self.blurred || adus.0.is_empty();
            if uninterrupted
                && rejected < adus.0.len()
                && let Some(most) = whole::most(schedule, link)
            {
                rejected = adus.0.len() - most.min(adus.0.len());
                bound.whole_packets = true;
                exact = true;
            }
            bound.adus += (adus.0.len() - rejected) as u64;
            bound.exact &= exact;
            possible.extend(adus.clone());
            if rejected == 0 && self.open.is_empty() {
                self.forced[class as usize].extend(adus);
            } else if exact {
                self.open.push((adus, rejected));
            } else {
                self.blurred = true;
            }
        }
        bound.adus_impossible = bound.adus_offered - possible.0.len() as u64;
        let packets = schedule.packets.iter().filter(|p| p.class == class).count();
        if packets as u64 == bound.adus_offered
            && bound.adus == possible.0.len() as u64
            && let (ordered, true) = possible.agreeable()
        {
            self.single.push(ordered);
        }
        bound
    }
}
