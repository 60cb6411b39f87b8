//! Whatever comes, leaves, is dropped, truncated, or handed to a newer object, each counter is what the queue holds, and
//! nothing is left when it is empty.

use std::ffi::CStr;

use bestby_bpf::abi::*;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Send(Sent),
    Take,
    Sleep,
    Wait(u64),
    Upgrade,
    Reset,
    /// The counters of this socket begin anew.
    Forget(u32),
}

/// Ethernet, IPv4 and UDP.
const HEADERS: u32 = 42;
const ANOTHER: Sent = Sent {
    session: 1,
    pkt_len: 200,
    grown: 0,
    headers: 0,
    lifetime: 0,
    departs: 0,
    adu: 0,
    priority: 3,
    treatment: BB_TREAT_FORWARD,
    socket: 0,
    tag: 0,
    pad: 0,
};

/// What is wrong; `told`: the Qdisc has been since it was made.
fn wrong(told: bool) -> Option<String> {
    // SAFETY: a string constant of the C file, or null.
    let wrong = unsafe { bbn_queue_wrong(told.into()) };
    // SAFETY: as above.
    (!wrong.is_null()).then(|| unsafe { CStr::from_ptr(wrong).to_string_lossy().into_owned() })
}

/// Packets queued of each socket, as its counters have it.
fn of_sockets() -> [u64; 3] {
    // SAFETY: only one thread is here at a time.
    [1, 2, 3].map(|socket| unsafe { bbn_queue_of_socket(socket) })
}

/// Sends until nothing is left: what was wrong, and what the queue and the Qdisc hold then.
fn drain() -> (Option<String>, (u32, u64, u32)) {
    // What an upgrade sends, to start the timer.
    send(&ANOTHER);
    // SAFETY: only one thread is here at a time.
    let held = || unsafe { (bbn_queue_qlen(), bbn_queue_bytes(), bbn_queue_told()) };
    for _ in 0..20_000 {
        if held() == (0, 0, 0) {
            break;
        }
        // SAFETY: as above.
        unsafe {
            if bbn_queue_take() == 0 {
                bbn_queue_sleep();
                bbn_queue_wait(MS);
            }
        }
        if let Some(wrong) = wrong(false) {
            return (Some(wrong), held());
        }
    }
    (wrong(true), held())
}

/// Does what a step says.
fn take(step: Step) {
    // SAFETY: only one thread is here at a time.
    unsafe {
        match step {
            Step::Send(sent) => {
                send(&sent);
            }
            Step::Take => {
                bbn_queue_take();
            }
            Step::Sleep => bbn_queue_sleep(),
            Step::Wait(ns) => bbn_queue_wait(ns),
            Step::Upgrade => bbn_queue_upgrade(),
            Step::Reset => bbn_queue_reset(),
            Step::Forget(socket) => bbn_queue_forget(socket),
        }
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let payload = prop_oneof![0..24u32, 0..1459u32];
    let grown = prop_oneof![Just(0u32), Just(8), Just(16)];
    let lifetime = prop_oneof![1 => Just(0u64), 3 => MS..300 * MS];
    let departs = prop_oneof![7 => Just(0u64), 1 => 1..400 * MS];
    (
        (0..6u32, payload, grown, any::<bool>()),
        (lifetime, departs),
        (
            0..6u32,
            0..8u32,
            BB_TREAT_FORWARD..=BB_TREAT_TRUNCATE,
            0..4u32,
        ),
    )
        .prop_map(
            |(
                (session, payload, grown, paired),
                (lifetime, departs),
                (adu, priority, treatment, socket),
            )| {
                let paired = paired && payload > 0 && treatment == BB_TREAT_TRUNCATE;
                Sent {
                    session,
                    pkt_len: HEADERS + payload,
                    grown,
                    headers: if paired { HEADERS } else { 0 },
                    lifetime,
                    departs,
                    adu: if adu == 0 { 0 } else { session << 16 | adu },
                    priority,
                    treatment,
                    socket,
                    ..ANOTHER
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        27 => sent().prop_map(Step::Send),
        12 => Just(Step::Take),
        4 => Just(Step::Sleep),
        4 => (0..60 * MS).prop_map(Step::Wait),
        2 => Just(Step::Upgrade),
        1 => Just(Step::Reset),
        1 => (1..4u32).prop_map(Step::Forget),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    (
        prop_oneof![Just(0u64), Just(12_500), Just(125_000), Just(1_250_000)],
        prop_oneof![Just(0u32), Just(38)],
        BB_FIFO..BB_METHODS,
        4..64u32,
        prop_oneof![Just(3000u64), Just(1 << 20)],
    )
        .prop_map(|(rate, overhead, method, limit, limit_bytes)| Link {
            rate,
            overhead,
            method,
            limit,
            limit_bytes,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn counters_are_what_the_queue_holds_and_zero_when_it_is_empty(
        link in link(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let _one = ONE.lock();
        start(link);
        let mut told = false;
        for (n, step) in steps.iter().enumerate() {
            take(*step);
            told = match step {
                Step::Send(_) => true,
                Step::Upgrade | Step::Reset => false,
                _ => told,
            };
            prop_assert_eq!(wrong(told), None, "step {}", n);
            prop_assert!(of_sockets().iter().all(|queued| *queued <= 64), "step {}", n);
        }
        prop_assert_eq!(drain(), (None, (0, 0, 0)));
        prop_assert_eq!(of_sockets(), [0; 3]);
    }
}

const SLOW: Link = Link {
    rate: 12_500,
    overhead: 0,
    method: BB_TRIAGE,
    limit: 60,
    limit_bytes: 1 << 20,
};

#[test]
fn headers_longer_than_their_packet_was_when_it_was_reckoned_take_no_bytes_from_others() {
    let _one = ONE.lock();
    for (payload, grown) in (0..24).flat_map(|payload| [0, 8, 16].map(|grown| (payload, grown))) {
        start(SLOW);
        for _ in 0..40 {
            send(&Sent {
                pkt_len: HEADERS + payload,
                grown,
                headers: HEADERS,
                lifetime: 20 * MS,
                treatment: BB_TREAT_TRUNCATE,
                ..ANOTHER
            });
        }
        assert_eq!(drain(), (None, (0, 0, 0)), "{payload} {grown}");
        // SAFETY: only one thread is here at a time.
        assert!(unsafe { bbn_queue_truncated() } > 10, "{payload} {grown}");
    }
}

#[test]
fn bytes_that_an_earlier_object_lost_are_forgotten_when_the_queue_is_empty() {
    let _one = ONE.lock();
    for reset in [false, true] {
        start(SLOW);
        send(&ANOTHER);
        // SAFETY: as above.
        unsafe {
            // Above every limit: whatever comes would be refused.
            bbn_queue_break(u64::MAX - (1 << 32));
            if reset {
                bbn_queue_reset();
            } else {
                assert_eq!(bbn_queue_take(), 200);
            }
        }
        assert_eq!((send(&ANOTHER), send(&ANOTHER)), (0, 0), "{reset}");
        assert_eq!(drain(), (None, (0, 0, 0)), "{reset}");
    }
}

#[test]
fn a_packet_that_may_go_first_and_has_nothing_to_overtake_any_more_keeps_its_place() {
    let of = |session, priority| Sent {
        session,
        priority,
        pkt_len: HEADERS,
        ..ANOTHER
    };
    let first = of(0, 0);
    let _one = ONE.lock();
    start(SLOW);
    for sent in [
        first,
        Sent {
            adu: 1 << 16 | 3,
            ..of(1, 6)
        },
        first,
        of(2, 0),
        first,
        Sent {
            pkt_len: HEADERS + 1,
            headers: HEADERS,
            lifetime: MS,
            adu: 1 << 16 | 2,
            treatment: BB_TREAT_TRUNCATE,
            ..of(1, 1)
        },
        first,
        Sent {
            pkt_len: 667,
            grown: 8,
            lifetime: MS,
            ..of(1, 2)
        },
    ] {
        send(&sent);
    }
    send(&Sent {
        pkt_len: 900,
        grown: 16,
        ..first
    });
    send(&Sent {
        lifetime: MS,
        departs: 341_723_313,
        adu: 1 << 16 | 3,
        ..of(1, 6)
    });
    send(&first);
    take(Step::Wait(1_011_014));
    // It may go before all that is queued, and most of that leaves first.
    send(&Sent {
        lifetime: 50_628_986,
        ..of(1, 0)
    });
    send(&first);
    take(Step::Wait(23_168_335));
    take(Step::Wait(45_117_317));
    send(&Sent {
        pkt_len: 873,
        grown: 16,
        ..first
    });
    take(Step::Wait(47_146_647));
    assert_eq!(drain(), (None, (0, 0, 0)));
}

#[test]
fn packets_of_one_kind_leave_as_they_came_when_a_rate_becomes_known() {
    let _one = ONE.lock();
    start(Link { rate: 0, ..SLOW });
    let mut left = Vec::new();
    for tag in 0..10 {
        if tag == 5 {
            // SAFETY: only one thread is here at a time.
            unsafe { bbn_queue_rate(125_000) };
        }
        send(&Sent {
            lifetime: 3_000 * MS,
            adu: 1 << 16 | (tag + 1),
            tag,
            ..ANOTHER
        });
        take(Step::Wait(MS));
    }
    for _ in 0..100 {
        // SAFETY: as above.
        unsafe {
            if bbn_queue_take() > 0 {
                left.push(bbn_queue_taken());
            } else {
                bbn_queue_sleep();
            }
        }
    }
    assert_eq!(left, Vec::from_iter(0..10));
}

#[test]
fn line_of_urgent_sessions_is_empty_after_a_reset() {
    let _one = ONE.lock();
    start(Link {
        rate: 125_000,
        limit: 4,
        limit_bytes: 3_000,
        ..SLOW
    });
    let first = |session, pkt_len| Sent {
        session,
        pkt_len,
        priority: 0,
        ..ANOTHER
    };
    send(&Sent {
        departs: 1,
        ..first(2, 648)
    });
    take(Step::Take);
    send(&first(0, 45));
    send(&Sent {
        lifetime: MS,
        ..first(2, 1_422)
    });
    send(&first(3, 886));
    take(Step::Take);
    take(Step::Reset);
    assert_eq!(wrong(false), None);
}
