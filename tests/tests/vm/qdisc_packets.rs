//! What single packets, and changes of a rate, do to the queue.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::{thread::sleep, time::Duration};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// Where the control block lies in a frame.
const BLOCK: usize = 14;

#[test]
fn overwritten_control_block_makes_plain_traffic() {
    let lab = lab("cbk", BB_SFDPS1);
    let stale = Packet {
        deadline: now_ns() - SECOND,
        adu: 0x5000_0001,
        rtp: BB_RTP as u8 | 96,
        ..Packet::default()
    };
    // cb[4] = 0, as other tcx programs do it; then half of the second word and of the first; then all.
    for (words, counter) in [
        (4..5, BB_G_BAD_CB),
        (3..4, BB_G_BAD_CB),
        (0..1, BB_G_BAD_CB),
        (0..5, BB_G_NO_CB),
    ] {
        let mut frame = stale.frame(7);
        frame[BLOCK + 4 * words.start..BLOCK + 4 * words.end].fill(0);
        let before = lab.global(counter);
        lab.out.send(&frame).unwrap();
        assert_eq!(lab.drain(), [7], "{words:?}");
        assert_eq!(lab.global(counter), before + 1, "{words:?}");
    }
    assert_eq!(lab.rule(0).packets_sent, 4);
    // One that checks out is believed.
    lab.send(&stale);
    assert_eq!(lab.drain(), [0u32; 0]);
    assert_eq!(lab.rule(1).dropped[BB_DROP_STALE as usize], 1);
}

#[test]
fn changed_rate_of_an_interface_takes_effect_at_once() {
    let lab = lab("crl", BB_TRIAGE);
    let packet = Packet::default();
    // 200 bytes take 20 s; at the corrected rate 0.2 ms.
    lab.set_iface(|iface| iface.rate = 10);
    let first = lab.send(&packet);
    let second = lab.send(&packet);
    assert_eq!(lab.drain(), [first]);
    lab.set_iface(|iface| iface.rate = 1_000_000);
    let third = lab.send(&packet);
    assert_eq!(lab.drain(), [second, third]);
}

#[test]
fn changed_rate_of_a_session_takes_effect_at_once() {
    let lab = lab("crs", BB_TRIAGE);
    let packet = Packet::default();
    lab.change_session(10, |s| s.rate = 10);
    let first = lab.send(&packet);
    let second = lab.send(&packet);
    assert_eq!(lab.drain(), [first]);
    lab.change_session(10, |s| s.rate = 1_000_000);
    assert_eq!(lab.drain(), [second]);
    // One that is corrected to next to nothing owes as many bytes, which take longer now.
    lab.change_session(10, |s| s.rate = 10);
    let third = lab.send(&packet);
    lab.send(&packet);
    assert_eq!(lab.drain(), [third]);
    lab.change_session(10, |s| s.rate = 9);
    assert_eq!(lab.drain(), [0u32; 0]);
}

#[test]
fn packet_leaves_no_earlier_than_its_departure_time() {
    for method in [BB_TRIAGE, BB_SFDPS1, BB_FIFO] {
        let lab = lab(&format!("edt{method}"), method);
        lab.out.say_departure();
        let at = now_ns() + 400 * MS;
        for sequence in [1, 2] {
            lab.out.send_at(&Packet::default().frame(sequence), at);
        }
        // What says a time that has passed, and other sessions, do not wait.
        let other = Packet {
            session: 11,
            ..Packet::default()
        };
        lab.out.send_at(&other.frame(3), now_ns() - SECOND);
        lab.out.send(&other.frame(4)).unwrap();
        let not_before = |sequence| if sequence > 2 { 0 } else { at };
        assert_eq!(
            receive(&lab, 4, not_before),
            [3, 4, 1, 2],
            "method {method}"
        );
    }
}

#[test]
fn packet_with_a_later_departure_holds_up_no_other() {
    for method in [BB_TRIAGE, BB_SFDPS1, BB_FIFO] {
        let lab = lab(&format!("edh{method}"), method);
        lab.out.say_departure();
        let start = now_ns();
        // More important, due first, and there first.
        let early = Packet {
            priority: 0,
            deadline: start + 40 * SECOND,
            ..Packet::default()
        };
        let late = Packet {
            deadline: start + 50 * SECOND,
            ..Packet::default()
        };
        lab.out.send_at(&early.frame(1), start + 400 * MS);
        lab.out.send(&late.frame(2)).unwrap();
        // One that may leave earlier, when the session waits for the first one already.
        lab.out.send_at(&early.frame(3), start + 200 * MS);
        lab.out.send(&late.frame(4)).unwrap();
        assert_eq!(
            receive(&lab, 4, |sequence| match sequence {
                1 => start + 400 * MS,
                3 => start + 200 * MS,
                _ => 0,
            }),
            [2, 4, 3, 1],
            "method {method}"
        );
        assert_conserved("rule", &lab.rule(1));
    }
}

#[test]
fn packets_of_an_adu_with_departure_times_are_dropped_together() {
    let mut lab = lab("eda", BB_TRIAGE);
    lab.out.say_departure();
    lab.shut_link();
    let start = now_ns();
    let frame = Packet {
        adu: 5,
        deadline: start + 300 * MS,
        ..Packet::default()
    };
    let other = Packet {
        adu: 6,
        deadline: start + 50 * SECOND,
        ..Packet::default()
    };
    lab.out.send_at(&frame.frame(1), start + 10 * MS);
    lab.out.send_at(&other.frame(2), start + 20 * MS);
    // Not before its ADU is given up.
    lab.out.send_at(&frame.frame(3), start + 800 * MS);
    lab.out.send_at(&other.frame(4), start + 30 * MS);
    sleep(Duration::from_millis(400));
    let kick = lab.open_link(&Packet {
        session: 11,
        ..other
    });
    let mut got = lab.drain();
    sleep(Duration::from_millis(500));
    got.extend(lab.drain());
    got.retain(|&sequence| sequence != kick);
    assert_eq!(got, [2, 4]);
    let c = lab.rule(1);
    assert_eq!(c.dropped[BB_DROP_STALE as usize], 1);
    assert_eq!((dropped(&c), c.queued), (2, 0));
    assert_conserved("rule", &c);
}

#[test]
fn full_queue_evicts_the_packet_with_the_latest_departure() {
    let lab = Lab::new(
        "edr",
        &Options {
            limit: 4,
            session_limit: 4,
            ..Options::default()
        },
    );
    lab.out.say_departure();
    let start = now_ns();
    let packet = Packet {
        deadline: start + 50 * SECOND,
        ..Packet::default()
    };
    let unimportant = Packet {
        priority: 7,
        ..packet
    };
    for (sequence, ms) in [(1, 300), (2, 500), (3, 400), (4, 200)] {
        lab.out.send_at(&packet.frame(sequence), start + ms * MS);
    }
    // Less important than any: it is refused.
    assert!(lab.out.send(&unimportant.frame(5)).is_err());
    assert_eq!(lab.rule(1).dropped[BB_DROP_OVERFLOW as usize], 1);
    lab.out.send(&packet.frame(6)).unwrap();
    assert_eq!(lab.rule(1).dropped[BB_DROP_EVICTED as usize], 1);
    assert_eq!(receive(&lab, 4, |_| 0), [6, 4, 1, 3]);
    assert_conserved("rule", &lab.rule(1));
}

/// So many sequence numbers as they arrive, none before its time.
fn receive(lab: &Lab, count: usize, not_before: impl Fn(u32) -> u64) -> Vec<u32> {
    let mut got = Vec::new();
    // Looks are counted, not time: a machine that stood still meanwhile has not looked.
    let mut looks = 0;
    while got.len() < count {
        match lab.far.receive() {
            Some(sequence) => {
                assert!(now_ns() >= not_before(sequence), "{sequence}");
                got.push(sequence);
            }
            None => {
                looks += 1;
                assert!(looks < 20_000, "{} of {count} came: {got:?}", got.len());
                sleep(Duration::from_millis(1));
            }
        }
    }
    got
}

#[test]
fn stale_retransmission_waits_for_every_fresh_packet() {
    for method in [BB_TRIAGE, BB_SFDPS1] {
        let mut lab = lab(&format!("rep{method}"), method);
        lab.shut_link();
        let late = Packet {
            repair: true,
            adu: 5,
            rtp: BB_RTP as u8 | 97,
            deadline: now_ns() + 20 * MS,
            ..Packet::default()
        };
        let stale = lab.send(&late);
        let fresh = Packet {
            adu: 5,
            repair: false,
            priority: 4,
            rtp: BB_RTP as u8 | 96,
            deadline: now_ns() + 50 * SECOND,
            ..late
        };
        let mut want = vec![lab.send(&fresh)];
        sleep(Duration::from_millis(50));
        want.push(lab.open_link(&fresh));
        want.push(stale);
        assert_eq!(lab.drain(), want, "method {method}");
        // Its ADU did not die of it, and it is counted by payload type.
        let c = lab.payload_type(BB_RTP as u8 | 97);
        assert_eq!((c.packets_in, c.packets_sent, c.sent_stale), (1, 1, 1));
        assert_eq!(lab.payload_type(BB_RTP as u8 | 96).packets_sent, 2);
        assert_eq!(lab.payload_type(0).packets_in, 0);
    }
}

#[test]
fn stale_retransmission_is_evicted_first_and_kept_for_1_s() {
    let mut lab = Lab::new(
        "rpo",
        &Options {
            limit: 4,
            session_limit: 4,
            ..Options::default()
        },
    );
    lab.shut_link();
    let fresh = Packet {
        priority: 7,
        deadline: now_ns() + 50 * SECOND,
        ..Packet::default()
    };
    let repair = Packet {
        repair: true,
        priority: 0,
        deadline: now_ns() + 100 * MS,
        rtp: BB_RTP as u8 | 97,
        ..Packet::default()
    };
    for packet in [fresh, fresh, repair, repair, fresh] {
        lab.send(&packet);
    }
    let lost = || lab.payload_type(BB_RTP as u8 | 97).dropped;
    assert_eq!(lost()[BB_DROP_EVICTED as usize], 1);
    sleep(Duration::from_millis(1_200));
    lab.set_iface(|iface| (iface.rate, iface.link_next) = (0, 0));
    lab.send(&fresh);
    assert_eq!(lab.drain().len(), 4);
    assert_eq!(lost()[BB_DROP_STALE as usize], 1);
    assert_conserved("rule", &lab.rule(1));
}

#[test]
fn adu_id_is_usable_again_5_s_after_its_adu_was_dropped() {
    let lab = lab("old", BB_SFDPS1);
    let late = Packet {
        adu: 5,
        deadline: now_ns() - SECOND,
        ..Packet::default()
    };
    let fresh = || Packet {
        deadline: now_ns() + 50 * SECOND,
        ..late
    };
    lab.send(&late);
    lab.send(&fresh());
    assert_eq!(lab.drain(), [0u32; 0]);
    sleep(Duration::from_millis(5_100));
    let again = lab.send(&fresh());
    assert_eq!(lab.drain(), [again]);
}
