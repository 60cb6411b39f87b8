//! The queue (mode qdisc) on a real kernel: packets in, packets out.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::time::Duration;

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

/// The order in which packets must leave, given what each one says.
fn expected(mut packets: Vec<(u32, Packet)>, by_priority: bool) -> Vec<u32> {
    packets.sort_by_key(|(sequence, p)| {
        (
            if by_priority { p.priority } else { 0 },
            p.deadline,
            p.priority, // of equal deadlines the more important goes first
            *sequence,
        )
    });
    packets.into_iter().map(|(sequence, _)| sequence).collect()
}

fn random_packets(lab: &Lab, count: u32, rng: &mut StdRng) -> Vec<(u32, Packet)> {
    let now = now_ns();
    (0..count)
        .map(|_| {
            let packet = Packet {
                priority: rng.random_range(0..8),
                // Few distinct values, so that ties happen.
                deadline: now + 30 * SECOND + rng.random_range(0..count as u64 / 2) * 10 * MS,
                len: rng.random_range(60..1500),
                ..Packet::default()
            };
            (lab.send(&packet), packet)
        })
        .collect()
}

#[test]
fn packets_leave_by_priority_then_deadline_then_arrival() {
    for (i, method) in [BB_SFDPS1, BB_SFDPS2, BB_RING, BB_RING_SFDPS2, BB_LAZY]
        .into_iter()
        .enumerate()
    {
        let mut lab = lab(&format!("ord{i}"), method);
        let mut rng = StdRng::seed_from_u64(u64::from(method));
        lab.shut_link();
        let mut packets = random_packets(&lab, 1_000, &mut rng);
        let kick = Packet {
            priority: 7,
            deadline: now_ns() + 50 * SECOND,
            ..Packet::default()
        };
        packets.push((lab.open_link(&kick), kick));
        assert_eq!(lab.drain(), expected(packets, true), "method {method}");
        assert_conserved("rule", &lab.rule(1));
        assert_eq!(lab.rule(1).packets_sent, 1_001);
    }
}

#[test]
fn triage_sends_by_deadline_with_a_rate_and_by_priority_without() {
    let mut lab = lab("tri", BB_TRIAGE);
    let mut rng = StdRng::seed_from_u64(7);
    // shut_link sets a rate, so these arrive while it is known.
    lab.shut_link();
    let now = now_ns();
    let link_opens = 60 * SECOND;
    let mut packets: Vec<_> = (0..500)
        .map(|_| {
            let packet = Packet {
                priority: rng.random_range(0..8),
                deadline: now + link_opens + 10 * SECOND + rng.random_range(0..250) * 10 * MS,
                ..Packet::default()
            };
            (lab.send(&packet), packet)
        })
        .collect();
    let kick = Packet {
        priority: 0,
        deadline: now + 100 * SECOND,
        ..Packet::default()
    };
    packets.push((lab.open_link(&kick), kick));
    let got = lab.drain();
    // The kick arrived without a known rate; it is of priority 0 and so in the same list.
    assert_eq!(got, expected(packets, false));

    let mut plain = Lab::new("trj", &Options::default());
    plain.shut_link();
    plain.set_session(10, Duration::ZERO, 0);
    plain.set_iface(|iface| iface.method = BB_RING_SFDPS2 as u8);
    let mut packets = random_packets(&plain, 200, &mut rng);
    plain.set_iface(|iface| iface.method = BB_TRIAGE as u8);
    let kick = Packet {
        priority: 7,
        deadline: now_ns() + 50 * SECOND,
        ..Packet::default()
    };
    packets.push((plain.open_link(&kick), kick));
    assert_eq!(plain.drain(), expected(packets, true));
}

#[test]
fn packets_of_an_adu_stay_together_and_keep_their_order() {
    let mut lab = lab("adu", BB_SFDPS1);
    lab.shut_link();
    let deadline = now_ns() + 40 * SECOND;
    let packet = |adu, deadline| Packet {
        adu,
        deadline,
        ..Packet::default()
    };
    // Two ADUs of one deadline arrive interleaved; a third, earlier one arrives last.
    let a1 = lab.send(&packet(1, deadline));
    let b1 = lab.send(&packet(2, deadline));
    let a2 = lab.send(&packet(1, deadline));
    let b2 = lab.send(&packet(2, deadline));
    let c1 = lab.send(&packet(3, deadline - SECOND));
    let a3 = lab.send(&packet(1, deadline));
    let c2 = lab.send(&packet(3, deadline - SECOND));
    let kick = lab.open_link(&packet(0, deadline + SECOND));
    assert_eq!(lab.drain(), [c1, c2, a1, a2, a3, b1, b2, kick]);
}

#[test]
fn stale_packet_is_dropped_with_the_rest_of_its_adu() {
    let mut lab = lab("stl", BB_SFDPS1);
    lab.set_session(10, Duration::from_millis(500), 0);
    lab.shut_link();
    let now = now_ns();
    // owd 500 ms: this one is late as soon as 100 ms have passed.
    let late = Packet {
        adu: 5,
        deadline: now + 600 * MS,
        ..Packet::default()
    };
    let fresh = Packet {
        adu: 6,
        deadline: now + 20 * SECOND,
        ..Packet::default()
    };
    for _ in 0..3 {
        lab.send(&late);
    }
    let kept = lab.send(&fresh);
    std::thread::sleep(Duration::from_millis(150));
    let kick = lab.open_link(&Packet {
        deadline: now + 30 * SECOND,
        ..fresh
    });
    assert_eq!(lab.drain(), [kept, kick]);
    // What comes of that ADU afterwards is worth nothing either, fresh or not.
    lab.send(&Packet {
        deadline: now + 20 * SECOND,
        ..late
    });
    assert_eq!(lab.drain(), [0u32; 0]);
    let c = lab.rule(1);
    assert_eq!(c.dropped[BB_DROP_STALE as usize], 1);
    assert_eq!(c.dropped[BB_DROP_ADU as usize], 3);
    assert_eq!(c.sent_stale, 0);
    assert_conserved("rule", &c);
}

#[test]
fn forward_fifo_ring_and_lazy_send_and_count_stale_packets() {
    for (i, (method, treatment)) in [
        (BB_SFDPS1, BB_TREAT_FORWARD),
        (BB_TRIAGE, BB_TREAT_FORWARD),
        (BB_FIFO, BB_TREAT_DISCARD),
        (BB_RING, BB_TREAT_DISCARD),
        (BB_LAZY, BB_TREAT_DISCARD),
    ]
    .into_iter()
    .enumerate()
    {
        let mut lab = lab(&format!("fwd{i}"), method);
        lab.shut_link();
        let late = Packet {
            treatment,
            deadline: now_ns() + 20 * MS,
            ..Packet::default()
        };
        let first = lab.send(&late);
        let second = lab.send(&late);
        std::thread::sleep(Duration::from_millis(50));
        let kick = lab.open_link(&Packet {
            deadline: now_ns() + 20 * SECOND,
            ..Packet::default()
        });
        let mut got = lab.drain();
        if method == BB_LAZY {
            // Stale ones only after every fresh one.
            assert_eq!(got, [kick, first, second]);
        }
        got.sort_unstable();
        assert_eq!(got, [first, second, kick], "method {method}");
        let c = lab.rule(1);
        assert_eq!((c.sent_stale, dropped(&c)), (2, 0), "method {method}");
    }
}

#[test]
fn lone_stale_packet_is_sent_by_sfdps2_and_not_by_sfdps1() {
    for (i, (method, sent)) in [
        (BB_SFDPS1, 0),
        (BB_SFDPS2, 1),
        (BB_RING_SFDPS2, 1),
        (BB_TRIAGE, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let lab = lab(&format!("alo{i}"), method);
        // Stale on arrival, and nothing else there. (Triage without a rate is ring-sfdps2.)
        lab.send(&Packet {
            deadline: now_ns() - SECOND,
            ..Packet::default()
        });
        assert_eq!(lab.drain().len(), sent, "method {method}");
        let c = lab.rule(1);
        assert_eq!(c.sent_stale, sent as u64);
        assert_eq!(c.dropped[BB_DROP_STALE as usize], 1 - sent as u64);
    }
}

#[test]
fn full_buffer_evicts_or_refuses_by_method() {
    // Four packets fit; the fifth decides. Sequence: audio, video 1, video 2, video 3.
    let options = |method| Options {
        method,
        session_limit: 4,
        ..Options::default()
    };
    let audio = |d| Packet {
        priority: 0,
        deadline: d,
        ..Packet::default()
    };
    let video = |d| Packet {
        priority: 4,
        deadline: d,
        ..Packet::default()
    };
    for (i, method) in [
        BB_FIFO,
        BB_SFDPS1,
        BB_SFDPS2,
        BB_RING,
        BB_RING_SFDPS2,
        BB_LAZY,
    ]
    .into_iter()
    .enumerate()
    {
        let mut lab = Lab::new(&format!("ful{i}"), &options(method));
        lab.shut_link();
        let t = now_ns() + 40 * SECOND;
        let a = lab.send(&audio(t));
        let v: Vec<_> = (1..4).map(|n| lab.send(&video(t + n * MS))).collect();
        let b = lab.send(&audio(t + 9 * MS));
        // A packet less important than all queued is the victim itself.
        lab.send(&Packet {
            priority: 7,
            deadline: t,
            ..Packet::default()
        });
        let c = lab.rule(1);
        let evicts = matches!(method, BB_RING | BB_RING_SFDPS2 | BB_LAZY);
        assert_eq!(
            c.dropped[BB_DROP_EVICTED as usize],
            u64::from(evicts),
            "method {method}"
        );
        assert_eq!(
            c.dropped[BB_DROP_OVERFLOW as usize],
            2 - u64::from(evicts),
            "method {method}"
        );
        lab.set_iface(|iface| iface.session_limit = 100);
        let kick = lab.open_link(&Packet {
            priority: 7,
            deadline: t + SECOND,
            ..Packet::default()
        });
        let want = if evicts {
            vec![a, b, v[1], v[2], kick]
        } else {
            vec![a, v[0], v[1], v[2], kick]
        };
        assert_eq!(lab.drain(), want, "method {method}");
    }
}

#[test]
fn first_packet_after_a_stall_is_fresh_and_the_backlog_dropped() {
    for (i, method) in [BB_TRIAGE, BB_RING_SFDPS2, BB_SFDPS1]
        .into_iter()
        .enumerate()
    {
        let mut lab = lab(&format!("sta{i}"), method);
        lab.shut_link();
        for n in 0..3_000u32 {
            lab.send(&Packet {
                priority: (n % 8) as u8,
                deadline: now_ns() + 200 * MS,
                ..Packet::default()
            });
        }
        std::thread::sleep(Duration::from_millis(400));
        let kick = lab.open_link(&Packet {
            priority: 7,
            deadline: now_ns() + 60 * SECOND,
            ..Packet::default()
        });
        lab.wait_until_empty();
        assert_eq!(lab.drain(), [kick], "method {method}");
        let c = lab.rule(1);
        assert_eq!((c.queued, c.sent_stale, dropped(&c)), (0, 0, 3_000));
    }
}

#[test]
fn expired_packets_do_not_count_against_the_limit() {
    let mut lab = Lab::new(
        "exp",
        &Options {
            method: BB_SFDPS1,
            session_limit: 10,
            ..Options::default()
        },
    );
    lab.shut_link();
    for _ in 0..10 {
        lab.send(&Packet {
            deadline: now_ns() + 30 * MS,
            ..Packet::default()
        });
    }
    std::thread::sleep(Duration::from_millis(60));
    let fresh: Vec<_> = (0..10)
        .map(|_| {
            lab.send(&Packet {
                deadline: now_ns() + 40 * SECOND,
                ..Packet::default()
            })
        })
        .collect();
    let c = lab.rule(1);
    assert_eq!(
        (
            c.dropped[BB_DROP_STALE as usize],
            c.dropped[BB_DROP_OVERFLOW as usize]
        ),
        (10, 0)
    );
    lab.set_iface(|iface| iface.session_limit = 100);
    let kick = lab.open_link(&Packet {
        deadline: now_ns() + 50 * SECOND,
        ..Packet::default()
    });
    let mut want = fresh;
    want.push(kick);
    assert_eq!(lab.drain(), want);
}

#[test]
fn without_a_reader_no_drop_notice_is_sent_or_lost() {
    let lab = lab("few", BB_SFDPS1);
    lab.set_events(0);
    for adu in 0..9 {
        lab.send(&Packet {
            adu: adu + 1,
            deadline: 1,
            ..Packet::default()
        });
    }
    assert_eq!(lab.events_lost(), 0);
    // The first one afterwards is due at once.
    lab.set_events(1);
    lab.send(&Packet {
        adu: 10,
        deadline: 1,
        ..Packet::default()
    });
    assert_eq!(lab.events_lost(), 0);
}

#[test]
fn limit_of_1_drop_notice_per_second_sends_one_each_second() {
    let lab = lab("few", BB_SFDPS1);
    lab.set_events(1);
    // Of two at once one is sent; the next is due a second later.
    for (notices, lost) in [(2, 1), (1, 1)] {
        for adu in 0..notices {
            lab.send(&Packet {
                adu: adu + 1,
                deadline: 1,
                ..Packet::default()
            });
        }
        assert_eq!(lab.events_lost(), lost);
        std::thread::sleep(Duration::from_millis(1_100));
    }
}
