use proptest::prelude::*;

use super::{
    columns::{Column, columns, outcome},
    demand::feasible,
    jobs::{Job, Jobs},
    rules::Triage,
    simulate::{Errors, Scheduler, simulate},
    study::complete,
    *,
};
use crate::{
    sys::{MILLI, SECOND},
    traffic::{Packet, conference},
};

/// 8 Mbit/s: a byte takes 1 µs.
pub(super) const LINK: Link = Link {
    rate: 8_000_000,
    owd: 10 * MILLI,
    departure: Departure::LastBit,
    burst: 0,
};

pub(super) fn packet(class: Class, adu: u32, at_ms: u64, lifetime_ms: u64, bytes: u32) -> Packet {
    Packet {
        at: at_ms * MILLI,
        lifetime: lifetime_ms * MILLI,
        class,
        priority: class.priority(),
        stream: 0,
        adu,
        last: true,
        wire_bytes: bytes,
    }
}

pub(super) fn schedule(mut packets: Vec<Packet>) -> Schedule {
    packets.sort_by_key(|p| p.at);
    Schedule {
        packets,
        duration: SECOND,
    }
}

/// The optimum by trying every choice: as many audio jobs, then video, then data.
fn brute(schedule: &Schedule, link: &Link) -> [u64; 3] {
    let mut jobs: Vec<(Class, Job)> = Vec::new();
    for class in Class::ALL {
        jobs.extend(
            Jobs::adus(schedule, class, link)
                .0
                .iter()
                .map(|&j| (class, j)),
        );
    }
    jobs.sort_by_key(|(_, j)| j.release);
    let mut best = [0; 3];
    for choice in 0u32..1 << jobs.len() {
        let chosen = || (0..jobs.len()).filter(|i| choice & (1 << i) != 0);
        let mut count = [0; 3];
        for i in chosen() {
            count[jobs[i].0 as usize] += 1;
        }
        if count > best && feasible(chosen().map(|i| &jobs[i].1)) {
            best = count;
        }
    }
    best
}

/// The demand criterion as it stands in textbooks, to check the EDF simulation.
fn demand(jobs: &[Job]) -> bool {
    jobs.iter().all(|a| {
        jobs.iter().filter(|b| b.due > a.release).all(|b| {
            let inside = jobs
                .iter()
                .filter(|j| j.release >= a.release && j.due <= b.due);
            inside.map(|j| j.work).sum::<i64>() <= b.due - a.release
        })
    }) && jobs.iter().all(Job::possible)
}

prop_compose! {
    /// Up to 12 ADUs of one to three packets; lifetimes are equal within a class.
    pub(super) fn small()(
        lifetimes in prop::array::uniform3(12u64..60),
        adus in prop::collection::vec((0usize..3, 0u64..60, prop::collection::vec(500u32..9_000, 1..4)), 1..12),
        classes in 1usize..4,
    ) -> Schedule {
        let mut packets = Vec::new();
        for (number, (class, at, sizes)) in adus.into_iter().enumerate() {
            let class = class % classes;
            let of_adu = if class == 0 { &sizes[..1] } else { &sizes[..] };
            for &bytes in of_adu {
                packets.push(packet(Class::ALL[class], number as u32, at, lifetimes[class], bytes));
            }
        }
        schedule(packets)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_choice_beats_the_bound_and_an_exact_one_is_reached(
        schedule in small(),
        first_bit in any::<bool>(),
        burst in 0u64..3,
    ) {
        let departure = if first_bit { Departure::FirstBit } else { Departure::LastBit };
        let link = Link { departure, burst: burst * MILLI, ..LINK };
        let best = brute(&schedule, &link);
        let bound = interrupted(&schedule, link);
        let mut certain = true;
        for class in Class::ALL {
            let (found, of_class) = (best[class as usize], bound.class(class));
            // After a class whose bound is not reached the comparison says nothing.
            if !certain {
                break;
            }
            // ADUs with a packet that has no place beside the audio: the search, which may
            // interrupt packets, finds one.
            let alone = Jobs::adus(&schedule, class, &link).possible().len() as u64;
            let placeable = of_class.adus_offered - of_class.adus_impossible;
            let no_place = alone - placeable;
            prop_assert!(of_class.adus + no_place >= found, "{class:?} {of_class:?} {best:?}");
            if of_class.exact && no_place == 0 {
                prop_assert_eq!(of_class.adus, found, "{:?} {:?}", class, best);
            }
            certain = of_class.adus == found;
        }
    }

    #[test]
    fn edf_decides_as_the_demand_criterion_does(schedule in small()) {
        let mut jobs = Vec::new();
        for class in Class::ALL {
            jobs.extend(Jobs::adus(&schedule, class, &LINK).0);
        }
        jobs.sort_by_key(|j| j.release);
        prop_assert_eq!(feasible(&jobs), demand(&jobs));
    }

    #[test]
    fn a_false_drop_is_one_that_fits_and_none_is_left_after_it(
        schedule in small(),
        keep in any::<u32>(),
    ) {
        // Deliver a feasible set: the ADUs of the mask, one after the other as they fit.
        let mut jobs: Vec<Job> = Vec::new();
        for class in Class::ALL {
            jobs.extend(Jobs::adus(&schedule, class, &LINK).0);
        }
        jobs.sort_by_key(|j| j.release);
        let mut delivered: Vec<Job> = Vec::new();
        for (index, &job) in jobs.iter().enumerate() {
            let mut with = delivered.clone();
            with.push(job);
            with.sort_by_key(|j| j.release);
            if keep & (1 << index) != 0 && demand(&with) {
                delivered = with;
            }
        }
        let fates: Vec<Fate> = schedule
            .packets
            .iter()
            .map(|p| match delivered.iter().any(|j| j.adu == p.adu) {
                true => Fate::OnTime,
                false => Fate::Dropped,
            })
            .collect();
        // The definition, without any short cut. Of what has no place as whole packets only
        // that round it is looked at, so more may be found than have one.
        let found = drops::adus(&schedule, &fates, &LINK);
        let packets = drops::Packets::new(&schedule, &LINK);
        let mut left = found.iter().copied().peekable();
        for class in Class::ALL {
            for job in Jobs::adus(&schedule, class, &LINK).0 {
                if delivered.iter().any(|j| j.adu == job.adu) {
                    continue;
                }
                let mut with = delivered.clone();
                with.push(job);
                with.sort_by_key(|j| j.release);
                if left.next_if_eq(&(class, job.adu)).is_some() {
                    prop_assert!(demand(&with), "{job:?} has no place");
                    delivered = with;
                } else {
                    prop_assert!(!demand(&with) || !packets.have_place(with.iter()), "{job:?} has one");
                }
            }
        }
        prop_assert_eq!(left.next(), None);
    }
}

#[test]
fn a_link_with_room_delivers_all() {
    let traffic = conference::schedule(20, 1);
    let bound = of(&traffic, 1_000_000, 40 * MILLI);
    assert_eq!((bound.audio.adus, bound.video.adus), (1000, 200));
    assert_eq!(bound.video.packets, bound.video.packets_offered);
    assert!(bound.audio.exact && bound.video.exact && bound.data.exact);
}

#[test]
fn what_cannot_arrive_alone_is_impossible_not_a_fraction() {
    // 9000 bytes take 9 ms; alive 18 ms, 10 of them on the way: 8 ms to send.
    let traffic = schedule(vec![
        packet(Class::Video, 0, 0, 18, 9000),
        packet(Class::Video, 1, 100, 30, 9000),
        packet(Class::Audio, 2, 0, 9, 500),
    ]);
    let bound = on(&traffic, LINK);
    assert_eq!(bound.video.adus_impossible, 1);
    assert_eq!((bound.video.adus, bound.audio.adus), (1, 0));
    assert_eq!(bound.audio.adus_impossible, 1);
}

#[test]
fn the_first_bit_rule_lets_the_last_packet_start_at_the_last_moment() {
    let late = schedule(vec![packet(Class::Video, 0, 0, 11, 5000)]);
    assert_eq!(on(&late, LINK).video.adus, 0);
    let first_bit = Link {
        departure: Departure::FirstBit,
        ..LINK
    };
    assert_eq!(on(&late, first_bit).video.adus, 1);
    // A whole frame may not: all but its last packet must be gone by then.
    let frame = schedule(vec![
        Packet {
            last: false,
            ..packet(Class::Video, 0, 0, 11, 5000)
        },
        packet(Class::Video, 0, 0, 11, 5000),
    ]);
    assert_eq!(on(&frame, first_bit).video.adus, 0);
}

#[test]
fn two_frames_for_one_gap_are_one_false_drop() {
    // Each takes 9 of the 10 ms that both have.
    let traffic = schedule(vec![
        packet(Class::Video, 0, 0, 20, 9000),
        packet(Class::Video, 1, 0, 20, 9000),
    ]);
    let none = false_drops(&traffic, &[Fate::Dropped, Fate::Dropped], &LINK);
    assert_eq!((none.video, none.total()), (1, 1));
    let one = false_drops(&traffic, &[Fate::OnTime, Fate::Dropped], &LINK);
    assert_eq!(one.total(), 0);
}

#[test]
fn an_adu_that_came_late_was_not_dropped_and_one_that_came_in_part_was() {
    let traffic = schedule(vec![
        packet(Class::Video, 0, 0, 20, 900),
        packet(Class::Video, 0, 0, 20, 900),
    ]);
    let late = false_drops(&traffic, &[Fate::OnTime, Fate::Late], &LINK);
    assert_eq!(late.total(), 0);
    let part = false_drops(&traffic, &[Fate::Late, Fate::Dropped], &LINK);
    assert_eq!(part.total(), 1);
}

#[test]
fn the_conference_has_the_bound_that_was_known_for_it() {
    // 56 and 35.5 % were computed before, by an integer program, for other seeds and
    // the last-bit rule; the figures of one seed lie near them.
    let link = |rate| Link {
        departure: Departure::LastBit,
        burst: 0,
        ..Link::of_path(rate, 40 * MILLI)
    };
    for (rate, low, high) in [(253_000, 104, 122), (190_000, 66, 76)] {
        let bound = on(&conference::schedule(20, 1), link(rate));
        assert_eq!(bound.audio.adus, 1000);
        assert!((low..=high).contains(&bound.video.adus), "{bound:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_scheduler_beats_the_bound(schedule in small(), rate in 2_000_000u64..10_000_000) {
        let bound = of(&schedule, rate, LINK.owd);
        for (name, column) in columns() {
            // They know the conference only.
            if matches!(column, Column::Informed(_)) {
                continue;
            }
            let outcome = outcome(&schedule, &bound, column, Errors::default());
            for class in Class::ALL {
                let found = complete(&schedule, &outcome.fates, class).len() as u64;
                let limit = bound.class(class);
                prop_assert!(found <= limit.adus, "{name} {class:?} {found} {limit:?}");
                // The bound of the next class holds for those that reach this one's.
                if found < limit.adus {
                    break;
                }
            }
        }
    }
}

#[test]
fn triage_in_the_simulator_is_triage_in_the_kernel() {
    // Measured in the VM, 20 s of seed 1, lifetimes 200 ms: so many of 200 frames by triage
    // and in priority order (ring-sfdps2), all audio.
    let traffic = conference::schedule(20, 1);
    for (rate, triage, priority) in [(253_000, 119, 51), (190_000, 86, 47)] {
        let link = Link::of_path(rate, 40 * MILLI);
        for (scheduler, measured) in [
            (Scheduler::Triage(Triage::KERNEL), triage),
            (Scheduler::Priority, priority),
        ] {
            let outcome = simulate(&traffic, &link, scheduler, Errors::default());
            let frames = complete(&traffic, &outcome.fates, Class::Video).len();
            assert_eq!(complete(&traffic, &outcome.fates, Class::Audio).len(), 1000);
            assert!(!outcome.fates.contains(&Fate::Late));
            assert!(frames.abs_diff(measured) <= 3, "{scheduler:?}: {frames}");
        }
    }
}
