//! What is important goes early where that costs nothing, and what never expires goes first.
//!
//! In virtual time, so that the schedules of milliseconds below are kept.

use crate::qdisc_lab::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// Frames of two packets that may begin to leave until so many ms after the link opens, 40 ms of the link each, and a
/// packet of 4 ms of this priority that is due behind them all. What leaves: frames' packets from 0, the packet last.
fn behind_frames(name: &str, dues: &[u64], priority: u8) -> Vec<u32> {
    let lab = free_link(name);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    for (adu, due) in (1..).zip(dues) {
        let packet = Packet {
            priority: 4,
            adu,
            deadline: opens + due * MS,
            len: 1_000,
            ..Packet::default()
        };
        lab.send(&packet);
        lab.send(&packet);
    }
    lab.send(&Packet {
        priority,
        deadline: opens + SECOND,
        ..Packet::default()
    });
    sleep_until(opens);
    let order = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    order
}

#[test]
fn important_packet_goes_first_if_the_others_can_wait() {
    // The second frame's last packet begins after 60 ms, or after 64.
    assert_eq!(behind_frames("eay", &[200, 66], 0), [4, 2, 3, 0, 1]);
    assert_eq!(behind_frames("ean", &[200, 22], 0), [2, 3, 0, 1, 4]);
    // So does what is a little more important; not an equal, nor what is less important.
    assert_eq!(behind_frames("eal", &[200, 300], 3), [4, 0, 1, 2, 3]);
    assert_eq!(behind_frames("eae", &[200, 300], 4), [0, 1, 2, 3, 4]);
    assert_eq!(behind_frames("eai", &[200, 300], 5), [0, 1, 2, 3, 4]);
}

#[test]
fn important_packet_goes_early_although_all_would_be_in_time() {
    // Everything leaves long before the first deadline: nothing need be planned for that.
    let dues = [2_000; 8];
    let mut want: Vec<u32> = (0..16).collect();
    want.insert(0, 16);
    assert_eq!(behind_frames("eat", &dues, 0), want);
}

#[test]
fn important_packet_goes_first_once_what_could_not_wait_has_left() {
    let lab = free_link("eas");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let packet = |priority, due: u64, len| Packet {
        priority,
        deadline: opens + due * MS,
        len,
        ..Packet::default()
    };
    let tight = lab.send(&packet(4, 1, 1_000));
    let others = [
        lab.send(&packet(4, 200, 1_000)),
        lab.send(&packet(4, 300, 1_000)),
    ];
    let audio = lab.send(&packet(0, 500, 200));
    // Something comes while the first is on its way.
    sleep_until(opens + 10 * MS);
    let last = lab.send(&packet(4, 600, 1_000));
    assert_eq!(lab.drain(), [tight, audio, others[0], others[1], last]);
    assert_conserved("rule", &lab.rule(1));
}

#[test]
fn rest_of_an_adu_that_went_first_waits_by_its_deadline() {
    let lab = free_link("ear");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let packet = |priority, adu, due: u64| Packet {
        priority,
        adu,
        deadline: opens + due * MS,
        len: 1_000,
        ..Packet::default()
    };
    // The frame can wait for two of these packets, and not for four.
    let frame = [lab.send(&packet(4, 1, 100)), lab.send(&packet(4, 1, 100))];
    let first = [lab.send(&packet(2, 2, 500)), lab.send(&packet(2, 2, 500))];
    sleep_until(opens + 5 * MS);
    let rest = [lab.send(&packet(2, 2, 500)), lab.send(&packet(2, 2, 500))];
    assert_eq!(lab.drain(), [first, frame, rest].concat());
    assert_conserved("rule", &lab.rule(1));
}

/// A packet without a deadline of this priority behind a frame that may begin to leave until `due` ms after the link
/// opens; whether it leaves first.
fn without_a_deadline(name: &str, priority: u8, due: u64) -> bool {
    let lab = free_link(name);
    // Else CoDel looks at it.
    lab.change_session(10, |s| s.key.media = 1);
    // Less than the second after which what is not important is taken to be due.
    let opens = now_ns() + 100 * MS;
    lab.set_iface(|iface| iface.link_next = opens);
    let frame = Packet {
        priority: 4,
        adu: 1,
        deadline: opens + due * MS,
        len: 1_000,
        ..Packet::default()
    };
    let mut want = vec![lab.send(&frame), lab.send(&frame)];
    let never = lab.send(&Packet {
        priority,
        ..Packet::default()
    });
    sleep_until(opens);
    let order = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    let first = order.first() == Some(&never);
    want.insert(if first { 0 } else { 2 }, never);
    assert_eq!(order, want);
    first
}

#[test]
fn packet_that_never_expires_goes_first_if_it_is_important() {
    // The frame can wait for what is a little more important; for the others it must.
    for (name, priority, first) in [
        ("en0", 0, true),
        ("en2", 2, true),
        ("en3", 3, true),
        ("en4", 4, false),
    ] {
        assert_eq!(
            without_a_deadline(name, priority, 30),
            first,
            "priority {priority}"
        );
    }
    assert!(!without_a_deadline("ent", 3, 22));
}

#[test]
fn important_packets_that_never_expire_go_in_order_of_priority_then_of_arrival() {
    let lab = free_link("eno");
    lab.change_session(10, |s| s.key.media = 1);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let packet = |priority, deadline| Packet {
        priority,
        deadline,
        ..Packet::default()
    };
    let due = opens + 300 * MS;
    let sent: Vec<u32> = [(4, due), (2, 0), (1, 0), (2, 0), (3, 0), (1, 0)]
        .map(|(priority, deadline)| lab.send(&packet(priority, deadline)))
        .into();
    sleep_until(opens);
    assert_eq!(lab.drain(), [2, 5, 1, 3, 4, 0].map(|n: usize| sent[n]));
    assert_eq!(dropped(&lab.rule(1)), 0);
}
