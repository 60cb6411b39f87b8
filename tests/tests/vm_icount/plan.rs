//! What triage's plan of one session reckons with of the others, on a link whose rate it knows.
//!
//! In virtual time, so that the schedules of milliseconds below are kept.

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{SECOND, now_ns};

/// Bytes of a packet; two of them are a session's turn.
const HALF_TURN: usize = 1_514;

/// When a packet begins to leave that comes after so many of [`HALF_TURN`].
fn after(start: u64, packets: f64) -> u64 {
    start + (packets * HALF_TURN as f64 * SECOND as f64 / RATE as f64) as u64
}

#[test]
fn plan_counts_the_turns_of_other_sessions_only() {
    let lab = free_link("trn");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    // The frame's last packet is the sixth to leave: before it the other session has one turn.
    let frame = |session, due| -> Vec<u32> {
        let packet = Packet {
            session,
            priority: 4,
            adu: 1,
            deadline: due,
            len: HALF_TURN,
            ..Packet::default()
        };
        (0..4).map(|_| lab.send(&packet)).collect()
    };
    let own = frame(10, after(opens, 5.5));
    let other = frame(11, opens + SECOND);
    sleep_until(opens);
    let turns = [&own[..2], &other[..2], &own[2..], &other[2..]];
    assert_eq!(lab.drain(), turns.concat());
    assert_conserved("rule", &lab.rule(1));
}

/// What leaves of a frame of two turns, whose last packet may begin after so many of
/// [`HALF_TURN`], beside a session that sends as much as it may and three that hold 100 bytes.
fn beside_signalling(name: &str, due: f64) -> usize {
    let lab = free_link(name);
    for session in 10..15 {
        lab.change_session(session, |s| s.key.media = 1);
    }
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let packet = |session, adu, len, deadline| Packet {
        session,
        priority: 4,
        adu,
        deadline,
        len,
        ..Packet::default()
    };
    let frame = packet(10, 1, HALF_TURN, after(opens, due));
    let own: Vec<_> = (0..4).map(|_| lab.send(&frame)).collect();
    for _ in 0..8 {
        lab.send(&packet(11, 0, HALF_TURN, opens + 2 * SECOND));
    }
    for session in 12..15 {
        lab.send(&packet(session, 0, 100, opens + 2 * SECOND));
    }
    sleep_until(opens);
    let left = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    own.iter().filter(|number| left.contains(number)).count()
}

#[test]
fn plan_counts_sessions_that_hold_less_than_a_turn() {
    // Before the last packet leave three of the frame, the two of a turn of the deep session, and
    // a fifth of one of the shallow sessions.
    assert_eq!(beside_signalling("shl", 5.5), 4);
    assert_eq!(beside_signalling("shn", 5.1), 0);
}

#[test]
fn plan_counts_the_turn_of_others_after_its_own() {
    let lab = free_link("trm");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let packet = Packet {
        session: 10,
        priority: 4,
        deadline: opens + SECOND,
        len: HALF_TURN,
        ..Packet::default()
    };
    let other = Packet {
        session: 11,
        ..packet
    };
    let mut want = vec![lab.send(&packet), lab.send(&packet)];
    want.extend((0..4).map(|_| lab.send(&other)));
    sleep_until(after(opens, 0.5));
    // Its first packet could end the turn, its last one only behind the other session's turn.
    let frame = Packet {
        adu: 1,
        deadline: after(opens, 3.5),
        ..packet
    };
    lab.send(&frame);
    lab.send(&frame);
    assert_eq!(lab.drain(), want);
    assert_eq!(lab.rule(1).dropped[BB_DROP_ADU as usize], 2);
    assert_conserved("rule", &lab.rule(1));
}
