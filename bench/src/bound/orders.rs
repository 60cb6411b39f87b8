//! Orders of packets through what stands in front of the lab's links: none may beat the bound. The
//! shapers here keep account as the kernel's do, and share no code with the bound.

use proptest::prelude::*;

use super::{
    stall::{self, Stall},
    tests::{LINK, small},
    *,
};
use crate::{sys::MILLI, traffic::Packet};

/// What a packet has to pass. Times in ns.
trait Gate {
    /// When a packet leaves that is the next from `now` on, and when it is on its way.
    fn pass(&mut self, now: i64, work: i64) -> (i64, i64);
}

/// TBF, as in net/sched/sch_tbf.c.
struct Bucket {
    holds: i64,
    tokens: i64,
    counted: i64,
}

impl Gate for Bucket {
    fn pass(&mut self, now: i64, work: i64) -> (i64, i64) {
        let tokens = (self.tokens + now - self.counted).min(self.holds);
        let leaves = now + (work - tokens).max(0);
        self.tokens = (tokens + leaves - now) - work;
        self.counted = leaves;
        (leaves, leaves)
    }
}

/// A shaper with a credit in front of a device that takes one packet while its line stands.
struct Line {
    next: i64,
    burst: i64,
    stood: [i64; 2],
    taken: bool,
}

impl Gate for Line {
    fn pass(&mut self, now: i64, work: i64) -> (i64, i64) {
        let stands = |time| (self.stood[0]..self.stood[1]).contains(&time);
        let mut leaves = now.max(self.next);
        if stands(leaves) && self.taken {
            leaves = self.stood[1];
        }
        let arrives = if stands(leaves) {
            self.taken = true;
            self.stood[1]
        } else {
            leaves
        };
        self.next = self.next.max(leaves - self.burst) + work;
        (leaves, arrives)
    }
}

/// What a queue does, whatever its reasons.
#[derive(Clone, Debug)]
struct Whim {
    /// ADUs that it never sends.
    drops: u16,
    /// How long it holds each packet back, µs: those of one ADU and the next ones in turns.
    holds: Vec<i64>,
    /// Goes by deadline, by class first, or by chance.
    goes_by: u8,
    chances: Vec<i64>,
}

prop_compose! {
    fn whim()(
        drops in prop_oneof![Just(0u16), any::<u16>()],
        holds in prop_oneof![Just(vec![0]), prop::collection::vec(0i64..30_000, 1..12)],
        goes_by in 0u8..3,
        chances in prop::collection::vec(0i64..60_000_000, 12),
    ) -> Whim {
        Whim { drops, holds, goes_by, chances }
    }
}

impl Whim {
    fn key(&self, place: usize, packet: &Packet) -> (usize, i64) {
        let due = (packet.at + packet.lifetime) as i64;
        match self.goes_by {
            0 => (0, due),
            1 => (packet.class as usize, due),
            _ => (0, self.chances[place % self.chances.len()]),
        }
    }
}

/// ADUs that are complete on time, by class.
fn complete(schedule: &Schedule, link: &Link, whim: &Whim, gate: &mut impl Gate) -> [u64; 3] {
    let exists = |(place, packet): (usize, &Packet)| {
        packet.at as i64 + whim.holds[place % whim.holds.len()] * 1_000
    };
    let mut left: Vec<(usize, &Packet)> = schedule
        .packets
        .iter()
        .enumerate()
        .filter(|(_, packet)| whim.drops & (1 << (packet.adu % 16)) == 0)
        .collect();
    let mut on_time = std::collections::BTreeMap::new();
    for packet in &schedule.packets {
        *on_time
            .entry((packet.class as usize, packet.adu))
            .or_insert(0) += 1;
    }
    let mut now = 0;
    // The packets of an ADU in their order, as the bound has it of every queue.
    let firsts = |left: &[(usize, &Packet)]| -> Vec<usize> {
        let is_first = |&index: &usize| {
            let adu = left[index].1.adu;
            left[..index].iter().all(|(_, before)| before.adu != adu)
        };
        (0..left.len()).filter(is_first).collect()
    };
    loop {
        let firsts = firsts(&left);
        let Some(soonest) = firsts.iter().map(|&index| exists(left[index])).min() else {
            break;
        };
        now = now.max(soonest);
        let there = firsts
            .into_iter()
            .filter(|&index| exists(left[index]) <= now);
        let Some(next) = there.min_by_key(|&index| whim.key(left[index].0, left[index].1)) else {
            break;
        };
        let (_, packet) = left.remove(next);
        let work = link.transmission(packet.wire_bytes.into()) as i64;
        let (leaves, arrives) = gate.pass(now, work);
        now = leaves;
        if arrives + link.owd as i64 <= (packet.at + packet.lifetime) as i64
            && let Some(missing) = on_time.get_mut(&(packet.class as usize, packet.adu))
        {
            *missing -= 1;
        }
    }
    let mut counts = [0; 3];
    for ((class, _), missing) in on_time {
        counts[class] += u64::from(missing == 0);
    }
    counts
}

fn no_more(found: [u64; 3], bound: &Bound) -> Result<(), TestCaseError> {
    for class in Class::ALL {
        let (found, limit) = (found[class as usize], bound.class(class));
        prop_assert!(found <= limit.adus, "{class:?}: {found}, {limit:?}");
        // The bound of the next class holds for those that reach this one's.
        if found < limit.adus {
            break;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_order_through_a_bucket_beats_the_bound(
        schedule in small(),
        whim in whim(),
        bucket in 9_000u64..20_000,
    ) {
        let link = Link::of_bucket(LINK.rate, LINK.owd, bucket);
        let holds = link.burst as i64;
        let mut gate = Bucket { holds, tokens: holds, counted: 0 };
        no_more(complete(&schedule, &link, &whim, &mut gate), &on(&schedule, link))?;
    }

    #[test]
    fn no_order_over_a_line_that_stands_still_beats_the_bound(
        schedule in small(),
        whim in whim(),
        at in 0u64..80_000,
        length in 0u64..60_000,
        burst in 0u64..8,
    ) {
        let link = Link { departure: Departure::FirstBit, burst: burst * MILLI, ..LINK };
        let [at, length] = [at, length].map(|us| us * 1_000);
        let stood = [at, at + length].map(|ns| ns as i64);
        let burst = link.burst as i64;
        let mut gate = Line { next: -burst, burst, stood, taken: false };
        let bound = stall::bound(&schedule, link, Stall { at, length });
        no_more(complete(&schedule, &link, &whim, &mut gate), &bound)?;
    }
}

#[test]
fn a_full_bucket_lets_go_at_once_what_it_holds_and_no_more() {
    use super::tests::{packet, schedule};
    // A byte takes 1 µs; 2 ms are left to leave. The bucket holds one of the packets and a half.
    let of = |packets: u32| {
        let frame = (0..packets).map(|_| packet(Class::Video, 0, 0, 12, 4_000));
        on(
            &schedule(frame.collect()),
            Link::of_bucket(LINK.rate, LINK.owd, 6_000),
        )
        .video
    };
    assert_eq!(of(2).adus, 1);
    // Both bounds say so: in all 8,000 bytes leave until then.
    assert_eq!(of(3).adus, 0);
    assert!(of(2).whole_packets);
    // The last of them at its last moment, not a moment later.
    let one = |lifetime| {
        let packet = packet(Class::Video, 0, 5, lifetime, 4_000);
        on(
            &schedule(vec![packet]),
            Link::of_bucket(LINK.rate, LINK.owd, 4_000),
        )
        .video
        .adus
    };
    assert_eq!([one(10), one(9)], [1, 0]);
}
