//! A link that stands still for a while: its bound is that of a link without a stall, in a time
//! that does not count the stall.
//!
//! **The link.** The shaper and its clock go on while the device behind it takes no packet. Whatever
//! began before the stall is out (a shaper hands over whole packets); while the link stands the device
//! takes one packet more (see [`crate::slip`]), which is on its way when the link is back; all
//! others leave after that.
//!
//! **The mapping.** Time t becomes g(t): the same up to the stall, and behind it earlier by what is skipped
//! of it, which is all but a *rest*. A packet of the schedule is created at g(at) and due at
//! g(deadline − owd); how long it takes is unchanged. What is due in the stall is due when that begins, for
//! nothing leaves later and is in time. What is created in the stall exists as long before the link's
//! return as it really does, but not later than the time of one largest packet behind its begin where that is
//! skipped. An ADU of which a packet would have to be created *and* leave while the link stands is lost.
//!
//! **Why it is a bound.** Let a queue have some packets in time on the real link, w be the time that the
//! largest takes, and the rest be 2 w and the burst. (The stall's length if that is less. Then nothing is
//! skipped, and the queue's own times will do.) In mapped time the same packets fit in the same order:
//!
//! - Up to the stall nothing differs. The last packet began before it, so the link is free w into it.
//! - The one that the device took in the stall is in time only if it is due after that. It is
//!   sent next, as soon as it exists: either the link is free 2 w into the stall, or both
//!   clocks show what it left of the credit.
//! - The link is back a burst after that, by when the mapped shaper has all the credit that the real one
//!   can have. From there on both times run alike.
//!
//! So the rest is what makes this a bound and not an estimate: the shaper saves up a burst during the stall,
//! and does not make up afterwards for a packet that began just before it. Were all of the stall skipped, a
//! real queue could have more than the "bound". What the rest costs: the time of a packet and a burst, which
//! only a schedule has that leaves the device's place to a packet that is of use afterwards.
//!
//! The other way round, a schedule in mapped time is one on a link that never stood: the skipped time only
//! moves its end away from its beginning. So nothing is gained by a stall.

use std::collections::HashSet;

use super::{Bound, Link, on};
use crate::traffic::{Class, Packet, Schedule};

/// When a link stands still, ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// From here on ...
    pub at: u64,
    /// ... for so long.
    pub length: u64,
}

/// The time of a link that stands still. All times are ns.
struct Mapping {
    owd: i64,
    /// From when to when the link stands.
    stood: [i64; 2],
    /// Of the largest packet, rounded up.
    transmission: i64,
    /// How much earlier everything behind the stall is.
    skipped: i64,
}

impl Mapping {
    fn new(schedule: &Schedule, link: &Link, stall: Stall) -> Self {
        let transmission = link.transmission(schedule.largest().into()) as i64 + 1;
        let rest = 2 * transmission + link.burst as i64;
        let (at, length) = (stall.at as i64, stall.length as i64);
        Self {
            owd: link.owd as i64,
            stood: [at, at + length],
            transmission,
            skipped: (length - rest).max(0),
        }
    }

    /// `time` in mapped time, where it is `in_stall` if the link stands then.
    fn map(&self, time: i64, in_stall: i64) -> i64 {
        match time {
            _ if time < self.stood[0] => time,
            _ if time < self.stood[1] => in_stall,
            _ => time - self.skipped,
        }
    }

    /// The packet in mapped time. `None`: it cannot be in time, for it would have to leave while
    /// the link stands, or before that although it is created in or after the stall.
    fn packet(&self, packet: &Packet) -> Option<Packet> {
        let [from, until] = self.stood;
        let created = packet.at as i64;
        let due = created + packet.lifetime as i64 - self.owd;
        if (from..until).contains(&due) && created >= from {
            return None;
        }
        let taken = created.min(from + self.transmission);
        let at = self.map(created, taken.max(created - self.skipped));
        // Due before it is created: it is lost all the same, and no lifetime is less than 0.
        let lifetime = (self.map(due, from) + self.owd - at).max(0);
        Some(Packet {
            at: at as u64,
            lifetime: lifetime as u64,
            ..*packet
        })
    }
}

/// The packets of all ADUs that are not lost for certain, in mapped time, and their places in
/// `schedule`.
pub fn mapped(schedule: &Schedule, link: &Link, stall: Stall) -> (Schedule, Vec<usize>) {
    let mapping = Mapping::new(schedule, link, stall);
    let packets = &schedule.packets;
    let lost = packets.iter().filter(|p| mapping.packet(p).is_none());
    let lost: HashSet<u32> = lost.map(|p| p.adu).collect();
    let left = (0..).zip(packets).filter(|(_, p)| !lost.contains(&p.adu));
    let (places, packets) = left
        .filter_map(|(place, p)| Some((place, mapping.packet(p)?)))
        .unzip();
    let duration = schedule.duration;
    (Schedule { packets, duration }, places)
}

/// The clairvoyant bound on a link that stands still for a while.
pub fn bound(schedule: &Schedule, link: Link, stall: Stall) -> Bound {
    let mut bound = on(&mapped(schedule, &link, stall).0, link);
    let of_class = [&mut bound.audio, &mut bound.video, &mut bound.data];
    for (class, bound) in Class::ALL.into_iter().zip(of_class) {
        let packets = schedule.packets.iter().filter(|p| p.class == class);
        let offered = packets.map(|p| p.adu).collect::<HashSet<_>>().len() as u64;
        bound.adus_impossible += offered - bound.adus_offered;
        bound.adus_offered = offered;
    }
    bound
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        bound::tests::{FIRST_BIT, packet, schedule, small},
        sys::MILLI,
    };

    fn stood(at_ms: u64, length_ms: u64) -> Stall {
        Stall {
            at: at_ms * MILLI,
            length: length_ms * MILLI,
        }
    }

    #[test]
    fn bound_counts_what_is_there_before_and_after_a_stall_only() {
        let audio = |adu, at| packet(Class::Audio, adu, at, 20, 1_000);
        let frame = |adu, at| [packet(Class::Video, adu, at, 110, 4_000); 2];
        // The link stands from 100 to 200 ms. Audio waits for 10 ms at most, a frame for 100.
        let packets = [
            // Gone before; and one that is made in time but is due in the stall.
            vec![audio(0, 80), audio(1, 99)],
            // Made in the stall, due in it (the last of them when the link is back).
            vec![audio(2, 100), audio(3, 150), audio(4, 189), audio(5, 190)],
            vec![audio(6, 200)],
            // 8 ms each. Between them and the stall the first has time, the second has not.
            frame(7, 90).to_vec(),
            frame(8, 98).to_vec(),
            frame(9, 150).to_vec(),
        ];
        let all = schedule(packets.concat());
        let without = on(&all, FIRST_BIT);
        assert_eq!((without.audio.adus, without.video.adus), (7, 3));
        let bound = bound(&all, FIRST_BIT, stood(100, 100));
        assert_eq!((bound.audio.adus, bound.audio.adus_impossible), (4, 3));
        assert_eq!(bound.audio.adus_offered, 7);
        assert!(bound.audio.exact && bound.video.whole_packets);
        assert_eq!((bound.video.adus, bound.video.adus_offered), (2, 3));
    }

    #[test]
    fn bound_of_frames_made_in_a_stall_is_what_their_rest_of_time_holds() {
        // Made in the stall, they may leave until 30 ms after it. The device takes one packet of
        // 10 ms, and 0, 10, 20 and 30 ms after the link's return others begin: five of six.
        let frame = |adu| [packet(Class::Video, adu, 150, 90, 10_000); 2];
        let all = schedule([frame(0), frame(1), frame(2)].concat());
        assert_eq!(on(&all, FIRST_BIT).video.adus, 3);
        let bound = bound(&all, FIRST_BIT, stood(100, 100));
        assert_eq!(bound.video.adus, 2);
    }

    #[test]
    fn mapped_places_are_those_of_the_packets_that_are_left() {
        let audio = |adu, at| packet(Class::Audio, adu, at, 20, 1_000);
        let all = schedule(vec![audio(0, 0), audio(1, 110), audio(2, 160)]);
        let (left, places) = mapped(&all, &FIRST_BIT, stood(100, 50));
        assert_eq!(places, [0, 2]);
        assert_eq!(left.packets[0], all.packets[0]);
        assert_eq!(left.packets[1].lifetime, 20 * MILLI);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn bound_of_a_stall_of_nothing_is_that_without(all in small(1), at in 0u64..120) {
            prop_assert_eq!(bound(&all, FIRST_BIT, stood(at, 0)), on(&all, FIRST_BIT));
            prop_assert_eq!(mapped(&all, &FIRST_BIT, stood(at, 0)).0, all);
        }
    }
}
