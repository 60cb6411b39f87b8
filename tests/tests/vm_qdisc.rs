//! The queue (mode qdisc) on a real kernel: packets in, packets out.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

#![allow(clippy::unwrap_used)] // helpers of tests

mod qdisc_lab;

use std::time::Duration;

use bestby_bpf::abi::*;
use qdisc_lab::*;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn lab(name: &str, method: u32) -> Lab {
    Lab::new(
        name,
        &Options {
            method,
            ..Options::default()
        },
    )
}

/// The order in which packets must leave, given what each one says.
fn expected(mut packets: Vec<(u32, Packet)>, by_priority: bool) -> Vec<u32> {
    packets.sort_by_key(|(sequence, p)| {
        (
            if by_priority { p.priority } else { 0 },
            p.deadline,
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
fn triage_sends_by_deadline_where_a_rate_is_known_and_by_priority_where_not() {
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
fn a_stale_packet_never_leaves_and_takes_the_rest_of_its_adu_along() {
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
fn forward_and_fifo_and_ring_send_stale_packets_and_say_so() {
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
fn sfdps2_sends_a_stale_packet_that_is_alone_and_sfdps1_does_not() {
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
fn a_full_buffer_costs_what_the_method_says() {
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
fn triage_gives_up_the_least_important_adu_that_stands_in_the_way() {
    let mut lab = lab("giv", BB_TRIAGE);
    // The link opens in one second; then 100 kB/s, 10 us per byte.
    lab.shut_link();
    let opens = now_ns() + SECOND;
    lab.queue
        .as_mut()
        .unwrap()
        .skel
        .maps
        .bss_data
        .as_deref_mut()
        .unwrap()
        .bbq_link_next = opens;
    lab.set_iface(|iface| iface.rate = 100_000);
    let due = |ms: u64| opens + ms * MS;
    let send = |priority, adu, due, len| {
        lab.send(&Packet {
            priority,
            adu,
            deadline: due,
            len,
            ..Packet::default()
        })
    };
    // 1,000 bytes take 10 ms. All of it is due 40 ms after the link opens, and fits.
    let frame: Vec<_> = (0..2).map(|_| send(4, 1, due(40), 1_000)).collect();
    let small = send(4, 2, due(40), 900);
    assert_eq!(dropped(&lab.rule(1)), 0);
    // Audio of 1,200 bytes does not fit with them: the larger video ADU is given up, whole.
    let audio = send(0, 3, due(40), 1_200);
    let c = lab.rule(1);
    assert_eq!((c.dropped[BB_DROP_ADU as usize], c.queued), (2, 2));
    // The rest of that frame is refused on arrival.
    send(4, 1, due(40), 1_000);
    assert_eq!(lab.rule(1).dropped[BB_DROP_ADU as usize], 3);
    // An ADU that could not arrive even alone is not started, and costs nobody anything.
    send(0, 4, due(5), 1_000);
    assert_eq!(lab.rule(1).dropped[BB_DROP_ADU as usize], 4);
    // Due later than what is in the way: nothing is given up.
    let later = send(7, 5, due(80), 1_000);
    let got = {
        lab.set_iface(|iface| iface.rate = 0);
        let k = lab.open_link(&Packet {
            deadline: due(10_000),
            ..Packet::default()
        });
        (lab.drain(), k)
    };
    assert_eq!(got.0, [small, audio, later, got.1], "given up: {frame:?}");
    assert_conserved("rule", &lab.rule(1));
}

#[test]
fn after_a_stall_the_first_packet_out_is_fresh_and_the_backlog_is_gone() {
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
            deadline: now_ns() + 30 * SECOND,
            ..Packet::default()
        });
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
fn nothing_is_lost_uncounted_over_random_traffic() {
    for method in 0..BB_METHODS {
        let mut lab = Lab::new(
            &format!("con{method}"),
            &Options {
                method,
                limit: 300,
                session_limit: 100,
                ..Options::default()
            },
        );
        let mut rng = StdRng::seed_from_u64(1_000 + u64::from(method));
        for session in [10u16, 11, 12, 13] {
            let rate = [0, 50_000, 1_000_000, 0][usize::from(session - 10)];
            lab.set_session(session, Duration::from_millis(5), rate);
        }
        let mut sent = 0u64;
        let mut got = 0u64;
        for round in 0..40 {
            match round % 4 {
                0 => lab.shut_link(),
                2 => {
                    lab.open_link(&Packet::default());
                    sent += 1;
                }
                _ => {}
            }
            for _ in 0..rng.random_range(1..200) {
                let deadline = match rng.random_range(0..4) {
                    0 => 0,
                    1 => now_ns() + rng.random_range(0..10) * MS,
                    _ => now_ns() + rng.random_range(0..400) * MS,
                };
                lab.send(&Packet {
                    rule: rng.random_range(0..4),
                    session: *[0u16, 10, 11, 12, 13].choose(&mut rng).unwrap(),
                    priority: rng.random_range(0..8),
                    treatment: rng.random_range(0..3),
                    adu: if rng.random_bool(0.5) {
                        rng.random_range(1..40)
                    } else {
                        0
                    },
                    deadline,
                    len: rng.random_range(60..1500),
                });
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(3));
            while lab.far.receive().is_some() {
                got += 1;
            }
        }
        // Paced sessions go on by themselves: hold everything while it is counted.
        lab.shut_link();
        std::thread::sleep(Duration::from_millis(20));
        let mut total = [0u64; 4];
        let mut add = |c: &bb_counters| {
            total[0] += c.packets_in;
            total[1] += c.packets_sent;
            total[2] += dropped(c);
            total[3] += c.queued;
        };
        for rule in 0..4 {
            let c = lab.rule(rule);
            assert_conserved("rule", &c);
            add(&c);
        }
        for session in [1u16, 10, 11, 12, 13] {
            assert_conserved("session", &lab.session(session));
        }
        let c = lab.instance(0);
        assert_conserved("interface", &c);
        assert_eq!(total, [c.packets_in, c.packets_sent, dropped(&c), c.queued]);
        assert_eq!(c.packets_in, sent, "method {method}");
        // Paced sessions still hold packets: wait for them, then nothing may be queued.
        lab.open_link(&Packet {
            session: 13,
            ..Packet::default()
        });
        for session in [11u16, 12] {
            lab.set_session(session, Duration::from_millis(5), 0);
        }
        let mut quiet = 0;
        while quiet < 100 && lab.instance(0).queued > 0 {
            std::thread::sleep(Duration::from_millis(20));
            quiet += 1;
        }
        got += lab.drain().len() as u64;
        let c = lab.instance(0);
        assert_eq!(
            (c.packets_sent, c.queued),
            (got, 0),
            "method {method}: {c:?}"
        );
        assert_conserved("interface at the end", &c);
    }
}

#[test]
fn two_interfaces_share_nothing() {
    let mut one = lab("two", BB_SFDPS1);
    let mut other = Lab::new(
        "twp",
        &Options {
            method: BB_SFDPS1,
            ..Options::default()
        },
    );
    other.slot = one.slot;
    one.shut_link();
    let held = one.send(&Packet {
        deadline: now_ns() + 30 * SECOND,
        ..Packet::default()
    });
    let free = other.send(&Packet {
        deadline: now_ns() + 30 * SECOND,
        ..Packet::default()
    });
    assert_eq!(other.drain(), [free]);
    assert_eq!(one.far.receive(), None);
    assert_eq!((one.instance(0).queued, other.instance(0).queued), (1, 0));
    let kick = one.open_link(&Packet {
        deadline: now_ns() + 40 * SECOND,
        ..Packet::default()
    });
    assert_eq!(one.drain(), [held, kick]);
}

#[test]
fn below_mq_every_transmit_queue_has_an_instance_of_its_own() {
    let mut lab = Lab::new(
        "mq",
        &Options {
            method: BB_SFDPS1,
            instances: 4,
            ..Options::default()
        },
    );
    run("tc qdisc replace dev mq0 root handle 77: mq").unwrap();
    for class in 1..=4 {
        run(&format!("tc qdisc replace dev mq0 parent 77:{class} bbmq")).unwrap();
    }
    lab.shut_link();
    let mut packets = Vec::new();
    for n in 0..200u64 {
        let packet = Packet {
            session: 10 + (n % 50) as u16,
            deadline: now_ns() + (30 + n % 7) * SECOND,
            ..Packet::default()
        };
        packets.push(lab.send(&packet));
    }
    let queued: Vec<u64> = (0..4).map(|i| lab.instance(i).queued).collect();
    assert_eq!(queued.iter().sum::<u64>(), 200, "{queued:?}");
    lab.open_link(&Packet {
        deadline: now_ns() + 60 * SECOND,
        ..Packet::default()
    });
    // Each queue runs with its own next packet.
    for _ in 0..64 {
        lab.send(&Packet {
            deadline: now_ns() + 60 * SECOND,
            ..Packet::default()
        });
    }
    let mut got = lab.drain();
    got.retain(|sequence| packets.contains(sequence));
    let sent: u64 = (0..4).map(|i| lab.instance(i).packets_sent).sum();
    assert_eq!(
        sent + (0..4).map(|i| lab.instance(i).queued).sum::<u64>(),
        265
    );
    for i in 0..4 {
        assert_conserved("instance", &lab.instance(i));
    }
    assert!(!got.is_empty());
}

#[test]
fn a_detached_queue_returns_the_memory_of_every_packet() {
    let mut lab = lab("det", BB_TRIAGE);
    lab.shut_link();
    for n in 0..2_000u64 {
        lab.send(&Packet {
            session: 10 + (n % 20) as u16,
            deadline: now_ns() + 100 * SECOND + n,
            ..Packet::default()
        });
    }
    assert_eq!(lab.instance(0).queued, 2_000);
    assert!(lab.out.held() > 2_000 * 200);
    run(&format!("tc qdisc del dev {} root", lab.device)).unwrap();
    // The kernel's own account of what this socket's packets still hold.
    assert_eq!(lab.out.held(), 0);
    let c = lab.instance(0);
    assert_eq!((c.queued, c.dropped[BB_DROP_EVICTED as usize]), (0, 2_000));
    assert_conserved("interface", &c);
    // And the interface goes on without us.
    let after = lab.send(&Packet::default());
    assert_eq!(lab.drain(), [after]);
}

#[test]
fn an_upgrade_keeps_every_queued_packet_and_the_counters() {
    let options = Options {
        method: BB_RING_SFDPS2,
        ..Options::default()
    };
    let mut lab = Lab::bare("upg", &options);
    let pins = lab.pins.join("iface");
    std::fs::create_dir_all(&pins).unwrap();
    let first = load(&lab.pins, lab.slot, "bbupga", options.limit, 1, Some(&pins));
    run("tc qdisc replace dev upg0 root bbupga").unwrap();
    lab.queue = Some(first);
    lab.shut_link();
    let deadline = now_ns() + 50 * SECOND;
    let mut want: Vec<_> = (0..500)
        .map(|_| {
            lab.send(&Packet {
                deadline,
                ..Packet::default()
            })
        })
        .collect();
    assert_eq!(lab.instance(0).queued, 500);

    let second = load(&lab.pins, lab.slot, "bbupgb", options.limit, 1, Some(&pins));
    let old = lab.queue.replace(second);
    run("tc qdisc replace dev upg0 root bbupgb").unwrap();
    drop(old);
    assert_eq!(lab.instance(0).queued, 500);
    want.push(lab.open_link(&Packet {
        deadline,
        ..Packet::default()
    }));
    assert_eq!(lab.drain(), want);
    let c = lab.instance(0);
    assert_eq!(
        (c.packets_in, c.packets_sent, dropped(&c), c.queued),
        (501, 501, 0, 0)
    );
    let shown = run("tc -s qdisc show dev upg0").unwrap();
    assert!(
        shown.contains("bbupgb") && shown.contains("backlog 0b 0p"),
        "{shown}"
    );
}

#[test]
fn observe_counts_and_drops_nothing() {
    let mut lab = Lab::new(
        "obs",
        &Options {
            method: BB_SFDPS1,
            flags: BB_IFACE_OBSERVE,
            ..Options::default()
        },
    );
    lab.shut_link();
    for _ in 0..5 {
        lab.send(&Packet {
            deadline: now_ns() + 10 * MS,
            ..Packet::default()
        });
    }
    std::thread::sleep(Duration::from_millis(40));
    lab.open_link(&Packet {
        deadline: now_ns() + 20 * SECOND,
        ..Packet::default()
    });
    assert_eq!(lab.drain().len(), 6);
    let c = lab.rule(1);
    assert_eq!(
        (
            dropped(&c),
            c.sent_stale,
            c.would_drop[BB_DROP_STALE as usize]
        ),
        (0, 5, 5)
    );
}

#[test]
fn a_packet_without_metadata_is_sent_untouched_and_never_expires() {
    for (i, method) in (0..BB_METHODS).enumerate() {
        let mut lab = lab(&format!("pla{i}"), method);
        lab.shut_link();
        let plain = Packet {
            rule: 0,
            session: 0,
            ..Packet::default()
        };
        let first = lab.send(&plain);
        std::thread::sleep(Duration::from_millis(20));
        let second = lab.open_link(&plain);
        assert_eq!(lab.drain(), [first, second], "method {method}");
        assert_eq!((lab.rule(0).packets_sent, dropped(&lab.rule(0))), (2, 0));
    }
}

#[test]
fn sessions_share_the_link_by_bytes_whatever_their_priorities() {
    let mut lab = lab("drr", BB_SFDPS1);
    lab.shut_link();
    let deadline = now_ns() + 50 * SECOND;
    // Session 10 floods with the highest priority and small packets, 11 has large ones of the lowest.
    for _ in 0..1_200 {
        lab.send(&Packet {
            session: 10,
            priority: 0,
            deadline,
            len: 250,
            ..Packet::default()
        });
    }
    let large: Vec<_> = (0..200)
        .map(|_| {
            lab.send(&Packet {
                session: 11,
                priority: 7,
                deadline,
                len: 1_500,
                ..Packet::default()
            })
        })
        .collect();
    lab.open_link(&Packet {
        session: 12,
        deadline,
        ..Packet::default()
    });
    let got = lab.drain();
    // After any prefix of the two, the bytes of both differ by no more than two quanta and a packet.
    let (mut a, mut b) = (0i64, 0i64);
    for sequence in got.iter().take(1_000) {
        if large.contains(sequence) {
            b += 1_500
        } else {
            a += 250
        }
        assert!((a - b).abs() <= 2 * 3_028 + 1_500, "{a} against {b}");
    }
}

#[test]
fn the_qdisc_is_refused_below_anything_but_mq() {
    let lab = lab("ref", BB_TRIAGE);
    run("tc qdisc replace dev ref0 root handle 1: htb && tc class add dev ref0 parent 1: classid 1:1 htb rate 1mbit").unwrap();
    let error = run("tc qdisc add dev ref0 parent 1:1 bbref").unwrap_err();
    assert!(error.contains("only supported on root or mq"), "{error}");
    // What was there goes on.
    let sent = lab.send(&Packet::default());
    assert_eq!(lab.drain(), [sent]);
}
