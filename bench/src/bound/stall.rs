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

use super::{Bound, ClassBound, Link, on};
use crate::traffic::{Class, Packet, Schedule};

/// When a link stands still, ns since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// From here on ...
    pub at: u64,
    /// ... for so long.
    pub length: u64,
}

/// A schedule in the time of a link that stands still.
struct Mapping<'a> {
    schedule: &'a Schedule,
    owd: i64,
    /// From when to when the link stands.
    stood: [i64; 2],
    /// Of the largest packet, rounded up.
    transmission: i64,
    /// How much earlier everything behind the stall is.
    skipped: i64,
}

impl<'a> Mapping<'a> {
    fn new(schedule: &'a Schedule, link: &Link, stall: Stall) -> Self {
        let transmission = link.transmission(schedule.largest().into()) as i64 + 1;
        let rest = 2 * transmission + link.burst as i64;
        let (at, length) = (stall.at as i64, stall.length as i64);
        Self {
            schedule,
            owd: link.owd as i64,
            stood: [at, at + length],
            transmission,
            skipped: (length - rest).max(0),
        }
    }

    fn in_stall(&self, time: i64) -> bool {
        (self.stood[0]..self.stood[1]).contains(&time)
    }

    fn due(&self, packet: &Packet) -> i64 {
        (packet.at + packet.lifetime) as i64 - self.owd
    }

    /// When something that is created at `time` exists.
    fn exists(&self, time: i64) -> i64 {
        if self.in_stall(time) {
            let taken = time.min(self.stood[0] + self.transmission);
            taken.max(time - self.skipped)
        } else {
            self.behind(time)
        }
    }

    /// By when something that is due at `time` must have left.
    fn must_leave(&self, time: i64) -> i64 {
        if self.in_stall(time) {
            self.stood[0]
        } else {
            self.behind(time)
        }
    }

    /// `time` is not in the stall.
    fn behind(&self, time: i64) -> i64 {
        if time >= self.stood[1] {
            time - self.skipped
        } else {
            time
        }
    }

    /// Whether it cannot be in time: it would have to leave while the link stands, or before that though
    /// it is created in or after the stall.
    fn is_lost(&self, packet: &Packet) -> bool {
        let due = self.due(packet);
        self.in_stall(due) && packet.at as i64 >= self.stood[0]
    }

    fn lost(&self) -> HashSet<u32> {
        let packets = self.schedule.packets.iter();
        packets.filter(|p| self.is_lost(p)).map(|p| p.adu).collect()
    }

    fn packet(&self, packet: &Packet) -> Packet {
        let at = self.exists(packet.at as i64);
        // Due before it is created: it is lost all the same, and no lifetime is less than 0.
        let lifetime = if self.is_lost(packet) {
            0
        } else {
            (self.must_leave(self.due(packet)) + self.owd - at).max(0)
        };
        Packet {
            at: at as u64,
            lifetime: lifetime as u64,
            ..*packet
        }
    }

    fn all(&self) -> Schedule {
        Schedule {
            packets: self
                .schedule
                .packets
                .iter()
                .map(|p| self.packet(p))
                .collect(),
            duration: self.schedule.duration,
        }
    }
}

/// The packets of all ADUs that are not lost for certain, in mapped time, and their places in
/// `schedule`.
pub fn mapped(schedule: &Schedule, link: &Link, stall: Stall) -> (Schedule, Vec<usize>) {
    let mapping = Mapping::new(schedule, link, stall);
    let lost = mapping.lost();
    let (places, packets) = schedule
        .packets
        .iter()
        .enumerate()
        .filter(|(_, packet)| !lost.contains(&packet.adu))
        .map(|(place, packet)| (place, mapping.packet(packet)))
        .unzip();
    let duration = schedule.duration;
    (Schedule { packets, duration }, places)
}

/// The clairvoyant bound on a link that stands still for a while.
pub fn bound(schedule: &Schedule, link: Link, stall: Stall) -> Bound {
    // Lost ADUs have no part in the choice. But of their packets some may be in time.
    let all = on(&Mapping::new(schedule, &link, stall).all(), link);
    let left = on(&mapped(schedule, &link, stall).0, link);
    let of = |class: Class| {
        let (all, left) = (all.class(class), left.class(class));
        let lost = all.adus_offered - left.adus_offered;
        ClassBound {
            adus_impossible: left.adus_impossible + lost,
            adus: left.adus,
            exact: left.exact,
            whole_packets: left.whole_packets,
            ..*all
        }
    };
    let [audio, video, data] = Class::ALL.map(of);
    Bound {
        audio,
        video,
        data,
        ..all
    }
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
    fn what_is_there_before_and_after_is_counted_and_nothing_between() {
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
    fn after_a_stall_frames_compete_for_what_is_left_of_their_time() {
        // Made in the stall, they may leave until 30 ms after it. The device takes one packet of
        // 10 ms, and 0, 10, 20 and 30 ms after the link's return others begin: five of six.
        let frame = |adu| [packet(Class::Video, adu, 150, 90, 10_000); 2];
        let all = schedule([frame(0), frame(1), frame(2)].concat());
        assert_eq!(on(&all, FIRST_BIT).video.adus, 3);
        let bound = bound(&all, FIRST_BIT, stood(100, 100));
        assert_eq!(bound.video.adus, 2);
    }

    #[test]
    fn time_goes_on_at_one_pace_but_for_what_is_skipped() {
        let all = schedule(vec![packet(Class::Video, 0, 0, 50, 2_000)]);
        let link = Link {
            burst: MILLI,
            ..FIRST_BIT
        };
        let mapping = Mapping::new(&all, &link, stood(100, 50));
        // 2 ms for each of two packets (and two ns, for rounding) and 1 ms of burst are left of 50 ms.
        let ms = |ms: i64| ms * MILLI as i64;
        assert_eq!(mapping.skipped, ms(45) - 2);
        assert_eq!(mapping.exists(ms(99)), ms(99));
        assert_eq!(mapping.exists(ms(101)), ms(101));
        assert_eq!(mapping.exists(ms(120)), ms(102) + 1);
        assert_eq!(mapping.exists(ms(149)), ms(104) + 2);
        assert_eq!(mapping.exists(ms(150)), ms(105) + 2);
        assert_eq!(mapping.must_leave(ms(120)), ms(100));
        assert_eq!(mapping.must_leave(ms(150)), ms(105) + 2);
        // A stall that is shorter than the rest is not skipped at all.
        let mapping = Mapping::new(&all, &link, stood(100, 5));
        assert_eq!(mapping.skipped, 0);
        assert_eq!(mapping.exists(ms(104)), ms(104));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn a_stall_of_nothing_changes_nothing(all in small(), at in 0u64..120) {
            prop_assert_eq!(bound(&all, FIRST_BIT, stood(at, 0)), on(&all, FIRST_BIT));
            prop_assert_eq!(mapped(&all, &FIRST_BIT, stood(at, 0)).0, all);
        }

        #[test]
        fn nothing_is_gained_by_a_stall(
            all in small(),
            at in 0u64..100,
            length in 0u64..80,
            burst in 0u64..3,
        ) {
            let link = Link { burst: burst * MILLI, ..FIRST_BIT };
            let (with, without) = (bound(&all, link, stood(at, length)), on(&all, link));
            for class in Class::ALL {
                let (with, without) = (with.class(class), without.class(class));
                prop_assert_eq!(with.adus_offered, without.adus_offered);
                // Beside each other they say something only where this one is as tight.
                if !with.exact || with.tightness() < without.tightness() {
                    break;
                }
                prop_assert!(with.adus <= without.adus, "{class:?} {with:?} {without:?}");
                if with.adus < without.adus {
                    break;
                }
            }
        }
    }
}
