//! Who pays when a limit of the queue is reached (`bpf/include/bbq_room.bpf.h`).
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::time::Duration;

use crate::qdisc_lab::*;
use bestby_bpf::{abi::*, packets_per_instance};
use bestby_tests::{
    clock::{SECOND, now_ns},
    netns::shell,
};

/// Bytes/s at which the first packet of a session leaves and the next waits for 20 s.
const CRAWL: u64 = 10;

fn full(name: &str, method: u32, limit: u32) -> Lab {
    Lab::new(
        name,
        &Options {
            method,
            limit,
            session_limit: limit,
            ..Options::default()
        },
    )
}

fn packet(session: u16) -> Packet {
    Packet {
        session,
        deadline: now_ns() + 40 * SECOND,
        ..Packet::default()
    }
}

fn evicted(lab: &Lab, session: u16) -> u64 {
    lab.session(session).dropped[BB_DROP_EVICTED as usize]
}

#[test]
fn full_queue_evicts_from_a_session_that_waits_for_its_rate() {
    for method in 0..BB_METHODS {
        let lab = full(&format!("pay{method}"), method, 20);
        lab.set_session(10, Duration::ZERO, CRAWL);
        for _ in 0..21 {
            lab.send(&packet(10));
        }
        assert_eq!(lab.session(10).queued, 20, "method {method}");
        for _ in 0..5 {
            lab.send(&packet(11));
        }
        let other = lab.session(11);
        assert_eq!(
            (other.packets_sent, dropped(&other)),
            (5, 0),
            "method {method}"
        );
        // What left at once needs its place no longer: one is enough.
        assert_eq!(evicted(&lab, 10), 1, "method {method}");
    }
}

#[test]
fn full_queue_evicts_from_the_session_with_most_packets() {
    for method in [BB_RING, BB_TRIAGE] {
        let mut lab = full(&format!("own{method}"), method, 20);
        lab.shut_link();
        for session in [10, 11].repeat(5) {
            lab.send(&packet(session));
        }
        for _ in 0..13 {
            lab.send(&packet(10));
        }
        assert_eq!(
            (evicted(&lab, 10), evicted(&lab, 11)),
            (3, 0),
            "method {method}"
        );
        assert_eq!(
            (lab.session(10).queued, lab.session(11).queued),
            (15, 5),
            "method {method}"
        );
    }
}

#[test]
fn full_queue_evicts_from_each_of_several_waiting_sessions() {
    let lab = full("sev", BB_TRIAGE, 20);
    for session in [10, 11, 12] {
        lab.set_session(session, Duration::ZERO, CRAWL);
    }
    // One packet of each leaves.
    for (session, packets) in [(10, 11), (11, 11), (12, 16)] {
        for _ in 0..packets {
            lab.send(&packet(session));
        }
    }
    let queued = [10, 11, 12].map(|session| lab.session(session).queued);
    assert_eq!(queued.iter().sum::<u64>(), 20, "{queued:?}");
    // Who still sends has a third at least, and nobody is left with much more than that.
    assert!(
        queued[2] >= 20 / 3 && queued.iter().all(|&n| n <= 8),
        "{queued:?}"
    );
}

#[test]
fn session_loses_its_least_important_packet_first() {
    for method in [BB_FIFO, BB_SFDPS1, BB_RING, BB_TRIAGE] {
        let mut lab = full(&format!("lst{method}"), method, 10);
        lab.shut_link();
        // Audio is due first, and came first.
        for (rule, priority, after) in [(1, 0, 0), (1, 0, 0), (2, 4, SECOND)]
            .into_iter()
            .chain([(2, 4, SECOND); 7])
        {
            lab.send(&Packet {
                rule,
                priority,
                deadline: now_ns() + 30 * SECOND + after,
                ..packet(10)
            });
        }
        for _ in 0..3 {
            lab.send(&packet(11));
        }
        // A FIFO knows no priorities: the oldest pays.
        let audio = if method == BB_FIFO { 2 } else { 0 };
        let lost = |rule| lab.rule(rule).dropped[BB_DROP_EVICTED as usize];
        assert_eq!((lost(1) + lost(2), lost(1)), (3, audio), "method {method}");
        assert_eq!(dropped(&lab.session(11)), 0, "method {method}");
    }
}

#[test]
fn local_tcp_is_evicted_after_all_else() {
    for method in [BB_FIFO, BB_RING, BB_TRIAGE] {
        let mut lab = full(&format!("tcp{method}"), method, 20);
        lab.shut_link();
        // It came first, and matters least by its priority.
        for _ in 0..12 {
            lab.send(&Packet {
                rule: 2,
                priority: 7,
                tcp: true,
                ..Packet::default()
            });
        }
        for _ in 0..8 {
            lab.send(&Packet {
                priority: 0,
                ..packet(10)
            });
        }
        let lost = |rule| lab.rule(rule).dropped[BB_DROP_EVICTED as usize];
        let other = Packet {
            rule: 3,
            ..packet(11)
        };
        for n in 0..8 {
            assert_eq!((lost(1), lost(2)), (n, 0), "method {method}");
            lab.send(&other);
        }
        // Nothing else is left, and who holds most still pays.
        lab.send(&other);
        assert_eq!((lost(1), lost(2)), (8, 1), "method {method}");
        assert_eq!(dropped(&lab.session(11)), 0, "method {method}");
    }
}

#[test]
fn expired_packets_are_dropped_before_any_eviction() {
    let lab = full("exd", BB_TRIAGE, 20);
    for session in [10, 12] {
        lab.set_session(session, Duration::ZERO, CRAWL);
    }
    let deadline = now_ns() + SECOND;
    for _ in 0..15 {
        lab.send(&Packet {
            deadline,
            ..packet(10)
        });
    }
    assert_eq!(lab.session(10).queued, 14);
    while now_ns() <= deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // An operation frees a few of them, at least one for each that comes, and nobody else pays.
    for n in 0..21 {
        lab.send(&packet(if n < 11 { 12 } else { 10 }));
        assert_eq!((evicted(&lab, 10), dropped(&lab.session(12))), (0, 0));
    }
    let fresh = lab.session(10);
    assert_eq!(
        (fresh.dropped[BB_DROP_STALE as usize], fresh.queued),
        (14, 10)
    );
    assert_eq!((dropped(&fresh), fresh.packets_sent), (14, 1));
    assert_eq!(lab.session(12).queued, 10);
    // Once there is nothing stale, one of those who hold most pays.
    lab.send(&packet(12));
    assert_eq!(evicted(&lab, 10) + evicted(&lab, 12), 1);
}

#[test]
fn byte_limit_evicts_as_many_packets_as_it_takes() {
    let mut lab = full("byt", BB_TRIAGE, 100);
    lab.set_iface(|iface| iface.limit_bytes = 20_000);
    lab.shut_link();
    // Who holds most is asked in packets and bytes: here session 10 by either.
    for _ in 0..80 {
        lab.send(&packet(10));
    }
    let large = Packet {
        len: 1_500,
        ..packet(11)
    };
    lab.send(&large);
    lab.send(&large);
    assert_eq!((evicted(&lab, 10), lab.session(11).queued), (0, 2));
    // 500 bytes too many: three packets of 200. One operation frees less than that, so the next
    // one finds the rest.
    lab.send(&large);
    let first = evicted(&lab, 10);
    assert!((1..3).contains(&first), "{first}");
    assert_eq!(lab.session(11).queued, 2);
    for _ in 0..2 {
        if lab.session(11).queued < 3 {
            lab.send(&large);
        }
    }
    assert_eq!(lab.session(11).queued, 3);
    assert_eq!((evicted(&lab, 10), evicted(&lab, 11)), (3, 0));
    let refused = dropped(&lab.session(11));
    assert!(refused <= 2, "{refused}");
    // Few large packets are more than many small ones.
    for _ in 0..30 {
        lab.send(&Packet {
            len: 1_500,
            ..packet(12)
        });
    }
    let queued = [10, 11, 12].map(|session| lab.session(session).queued);
    let bytes = queued[0] * 200 + (queued[1] + queued[2]) * 1_500;
    assert!(bytes <= 20_000, "{queued:?}");
    assert!(bytes > 20_000 - 1_500, "{queued:?}");
    assert_eq!(dropped(&lab.session(11)), refused, "{queued:?}");
    for session in [10, 11, 12] {
        assert_conserved("session", &lab.session(session));
    }
}

#[test]
fn packet_that_evicts_its_own_adu_is_dropped_with_it() {
    let mut lab = full("adu", BB_TRIAGE, 4);
    lab.shut_link();
    let part = Packet {
        adu: 7,
        ..packet(10)
    };
    for _ in 0..6 {
        lab.send(&part);
    }
    let c = lab.session(10);
    assert_eq!((c.queued, c.packets_sent), (0, 0));
    assert_eq!(
        (
            c.dropped[BB_DROP_EVICTED as usize],
            c.dropped[BB_DROP_ADU as usize]
        ),
        (4, 2)
    );
}

#[test]
fn sessions_of_one_packet_each_leave_room_for_a_new_one() {
    for method in [BB_FIFO, BB_TRIAGE] {
        let lab = full(&format!("one{method}"), method, 20);
        for session in 20..40 {
            lab.set_session(session, Duration::ZERO, CRAWL);
            // The first leaves.
            lab.send(&packet(session));
            lab.send(&packet(session));
        }
        lab.send(&Packet {
            len: 1_200,
            ..packet(50)
        });
        let c = lab.session(50);
        assert_eq!((c.packets_sent, dropped(&c)), (1, 0), "method {method}");
        let paid: u64 = (20..40).map(|session| evicted(&lab, session)).sum();
        assert_eq!(paid, 1, "method {method}");
        // Who holds one already gets no more at the cost of others.
        let holds = (20..40)
            .find(|&session| lab.session(session).queued == 1)
            .unwrap();
        lab.send(&packet(holds));
        lab.send(&packet(holds));
        assert_eq!(lab.session(holds).queued, 2, "method {method}");
    }
}

#[test]
fn forward_packet_is_not_dropped_with_its_adu() {
    let mut lab = full("fwd", BB_TRIAGE, 4);
    lab.shut_link();
    let part = Packet {
        adu: 7,
        treatment: BB_TREAT_FORWARD,
        ..packet(10)
    };
    for _ in 0..6 {
        lab.send(&part);
    }
    let c = lab.session(10);
    assert_eq!(c.dropped[BB_DROP_ADU as usize], 0);
    assert_eq!((c.queued, c.dropped[BB_DROP_EVICTED as usize]), (2, 4));
}

#[test]
fn rate_set_by_a_socket_holds_a_packet_for_1_s_at_most() {
    let lab = full("sec", BB_TRIAGE, 20);
    for (session, user) in [(10, 1_001), (11, 0)] {
        lab.change_session(session, |s| {
            s.rate = CRAWL;
            s.key.user = user;
        });
        lab.send(&packet(session));
        lab.send(&packet(session));
    }
    std::thread::sleep(Duration::from_millis(1_200));
    // What an operator said is kept to: 20 s.
    assert_eq!(
        [10, 11].map(|session| lab.session(session).packets_sent),
        [2, 1]
    );
}

#[test]
fn packets_beyond_the_allocation_are_refused_and_counted() {
    const LIMIT: u32 = 20;
    let mut lab = full("slo", BB_TRIAGE, LIMIT);
    // More packets than the queue was made for.
    lab.set_iface(|iface| (iface.limit, iface.session_limit) = (1000, 1000));
    lab.shut_link();
    let most = packets_per_instance(LIMIT) - 1; // index 0 is none
    let mut sent: Vec<_> = (0..most).map(|_| lab.send(&packet(10))).collect();
    assert_eq!(lab.global(BB_G_REFUSED), 0);
    for refused in 1..6 {
        lab.send(&packet(11));
        assert_eq!(lab.global(BB_G_REFUSED), refused);
    }
    // Nowhere else: they never came in.
    assert_eq!(lab.session(11).packets_in, 0);
    let c = lab.instance(0);
    assert_eq!((c.packets_in, c.queued), (most.into(), most.into()));
    assert_eq!(dropped(&c), 0);
    let shown = shell(&format!("tc -s qdisc show dev {}", lab.device));
    assert!(shown.contains("dropped 5,"), "{shown}");
    // There is room again when those that wait have left.
    lab.set_iface(|iface| (iface.rate, iface.link_next) = (1 << 40, 0));
    lab.send(&packet(11));
    assert_eq!(lab.drain(), sent);
    sent = (0..3).map(|_| lab.send(&packet(11))).collect();
    assert_eq!(lab.drain(), sent);
    assert_eq!(lab.global(BB_G_REFUSED), 6);
}
