//! Class by class, and within a class priority by priority, the most important first: how many
//! ADUs can be on time beside as many as possible of those before.

use super::{
    ClassBound, Link,
    dp::{self, Limit},
    jobs::Jobs,
    whole,
};
use crate::traffic::{Class, Schedule};

/// Packets beyond which their own bound (not that of ADUs) falls back to the number
/// of packets that fit alone: the program grows with the square.
const MANY_PACKETS: usize = 20_000;

/// The bound of every class. `uninterrupted`: video's packets are sent whole, where what that costs can be known.
pub(super) fn bounds(schedule: &Schedule, link: &Link, uninterrupted: bool) -> [ClassBound; 3] {
    let mut before = Before::default();
    Class::ALL.map(|class| before.class(schedule, class, link, uninterrupted))
}

/// What is known of the more important ADUs.
#[derive(Default)]
struct Before {
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
    /// The bound of the next class.
    fn class(
        &mut self,
        schedule: &Schedule,
        class: Class,
        link: &Link,
        uninterrupted: bool,
    ) -> ClassBound {
        let packets = Jobs::packets(schedule, class, link);
        let mut bound = ClassBound {
            packets_offered: packets.len() as u64,
            packets: self.packets(&packets.possible()),
            exact: true,
            ..ClassBound::default()
        };
        let mut possible = Jobs::default();
        let priorities = Jobs::by_priority(schedule, class, link);
        let uninterrupted = uninterrupted && class == Class::Video && priorities.len() == 1;
        for adus in priorities {
            bound.adus_offered += adus.len() as u64;
            let mut adus = adus.possible();
            for packets in &self.single {
                adus = adus.placeable(packets, schedule, class, link);
            }
            let (mut rejected, mut exact) = self.rejected(&adus);
            if uninterrupted
                && rejected < adus.len()
                && let Some(most) = whole::most(schedule, link)
            {
                rejected = adus.len() - most.min(adus.len());
                bound.whole_packets = true;
                exact = true;
            }
            bound.adus += (adus.len() - rejected) as u64;
            bound.exact &= exact;
            possible.extend(adus.clone());
            self.add(class, adus, rejected, exact);
        }
        bound.adus_impossible = bound.adus_offered - possible.len() as u64;
        if bound.packets_offered == bound.adus_offered
            && bound.adus == possible.len() as u64
            && let (ordered, true) = possible.agreeable()
        {
            self.single.push(ordered);
        }
        bound
    }

    /// How many of these packets can be on time.
    fn packets(&self, packets: &Jobs) -> u64 {
        let (ordered, _) = packets.agreeable();
        let rejected = if ordered.len() > MANY_PACKETS {
            0
        } else {
            Limit::new(&self.forced, &ordered).rejected(&ordered)
        };
        (ordered.len() - rejected) as u64
    }

    /// How many of these ADUs are lost at least; whether it is known that it need not be more.
    fn rejected(&self, adus: &Jobs) -> (usize, bool) {
        let (ordered, agreeable) = adus.agreeable();
        let (rejected, alone) = if self.open.is_empty() {
            let limit = Limit::new(&self.forced, &ordered);
            (limit.rejected(&ordered), limit.complete)
        } else {
            dp::rejected_beside(&self.forced, &self.open, &ordered)
        };
        let exact = agreeable && alone && !self.blurred;
        (rejected, exact || adus.is_empty())
    }

    fn add(&mut self, class: Class, adus: Jobs, rejected: usize, exact: bool) {
        if rejected == 0 && self.open.is_empty() {
            self.forced[class as usize].extend(adus);
        } else if exact {
            self.open.push((adus, rejected));
        } else {
            self.blurred = true;
        }
    }
}
