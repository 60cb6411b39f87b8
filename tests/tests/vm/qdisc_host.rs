//! The queue (mode qdisc) as a part of a host: accounts, instances, sharing, detach, upgrade.
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    clock::{MS, SECOND, now_ns},
    cpu,
    netns::{Netns, ifindex, shell, try_shell},
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

#[test]
fn each_packet_of_random_traffic_is_counted_once() {
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
                    repair: rng.random_bool(0.1),
                    tcp: rng.random_bool(0.1),
                    rtp: 0,
                    large: rng.random_bool(0.2),
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
fn interface_that_waits_holds_up_no_other_interface() {
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

/// Below mq, with a transmit queue for either CPU.
fn two_transmit_queues(name: &str) -> Lab {
    let lab = Lab::below_mq(name);
    shell(&format!(
        "for n in 0 1; do echo $((1 << n)) > /sys/class/net/{}/queues/tx-$n/xps_cpus; done",
        lab.device
    ));
    lab
}

/// `count` packets from either CPU, and so through either transmit queue.
fn send_from_both(lab: &Lab, count: u32, packet: impl Fn(u32) -> Packet + Sync) {
    let out = &lab.out;
    cpu::on_both(|_, start| {
        start.together();
        for n in 0..count {
            out.send(&packet(n).frame(n)).unwrap();
        }
    });
}

#[test]
fn below_mq_every_transmit_queue_has_an_instance_of_its_own() {
    cpu::two().unwrap();
    let mut lab = two_transmit_queues("mq");
    lab.shut_link();
    let packet = |n: u32| Packet {
        session: 10 + (n % 50) as u16,
        deadline: now_ns() + (30 + u64::from(n) % 7) * SECOND,
        ..Packet::default()
    };
    send_from_both(&lab, 100, packet);
    assert_eq!([0, 1].map(|i| lab.instance(i).queued), [100, 100]);
    lab.open_link(&packet(0));
    // Each queue runs with a packet of its own.
    send_from_both(&lab, 1, packet);
    assert_eq!(lab.drain().len(), 203);
    for i in [0, 1] {
        let c = lab.instance(i);
        assert_conserved("instance", &c);
        assert_eq!(c.queued, 0);
    }
}

/// What a session of 200 packets of 200 bytes has sent after half a second and what its rate allows,
/// bytes; the packets that either transmit queue sent.
fn sent_from_both(lab: &Lab, rate: u64) -> (u64, u64, [u64; 2]) {
    lab.set_session(10, Duration::ZERO, rate);
    let from = now_ns();
    send_from_both(lab, 100, |_| Packet {
        deadline: now_ns() + 30 * SECOND,
        ..Packet::default()
    });
    std::thread::sleep(Duration::from_millis(500));
    let bytes = lab.session(10).bytes_sent;
    let allowed = rate * (now_ns() - from) / SECOND;
    (bytes, allowed, [0, 1].map(|i| lab.instance(i).packets_sent))
}

#[test]
fn session_on_two_transmit_queues_has_one_rate() {
    cpu::two().unwrap();
    // The credit of 1 ms, and a packet of either queue: both may start at one moment.
    let (bytes, allowed, queues) = sent_from_both(&two_transmit_queues("mqr"), 20_000);
    assert!(bytes <= allowed + 20 + 2 * 200, "{bytes} of {allowed}");
    // How they share it: vm_icount/turns.rs.
    assert!(queues.iter().all(|&sent| sent > 0), "{queues:?}");
    // Without one nothing waits.
    let (bytes, _, queues) = sent_from_both(&two_transmit_queues("mqn"), 0);
    assert_eq!((bytes, queues), (40_000, [100, 100]));
}

#[test]
fn detached_queue_frees_every_packet() {
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
    shell(&format!("tc qdisc del dev {} root", lab.device));
    // The kernel's own account of what this socket's packets still hold.
    assert_eq!(lab.out.held(), 0);
    let c = lab.instance(0);
    assert_eq!((c.queued, c.dropped[BB_DROP_EVICTED as usize]), (0, 2_000));
    assert_conserved("interface", &c);
    // And the interface goes on without us.
    let after = lab.send(&Packet::default());
    assert_eq!(lab.drain(), [after]);
}

/// Asks the kernel for a root qdisc with a rate estimator that it does not know. It says so when the qdisc is
/// initialised already; tc does not ask for such a one.
fn create_with_unknown_estimator(device: &str, kind: &str) -> io::Error {
    const TC_H_ROOT: u32 = u32::MAX;
    const TCA_KIND: u16 = 1;
    const TCA_RATE: u16 = 5;
    const NLM_F_REQUEST_ACK_CREATE_REPLACE: u16 = 0x1 | 0x4 | 0x400 | 0x100;
    let attribute = |kind: u16, value: &[u8]| {
        let length = 4 + value.len();
        let mut out = u16::try_from(length).unwrap().to_ne_bytes().to_vec();
        out.extend(kind.to_ne_bytes());
        out.extend(value);
        out.resize(length.next_multiple_of(4), 0);
        out
    };
    let mut body = vec![0; 4]; // family
    for word in [ifindex(device), 0x99 << 16, TC_H_ROOT, 0] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(attribute(TCA_KIND, format!("{kind}\0").as_bytes()));
    body.extend(attribute(TCA_RATE, &[127, 1])); // interval, log of the weight
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(libc::RTM_NEWQDISC.to_ne_bytes());
    message.extend(NLM_F_REQUEST_ACK_CREATE_REPLACE.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let mut answer = [0u8; 4096];
    // SAFETY: plain system calls; the buffers are valid for their lengths.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE);
        assert!(fd >= 0);
        let fd = OwnedFd::from_raw_fd(fd);
        let fd = fd.as_raw_fd();
        assert!(libc::send(fd, message.as_ptr().cast(), message.len(), 0) > 0);
        assert!(libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) >= 20);
    }
    // nlmsghdr, then nlmsgerr: a negative error, 0 for none.
    io::Error::from_raw_os_error(-i32::from_ne_bytes(answer[16..20].try_into().unwrap()))
}

#[test]
fn lone_packet_is_counted_freed_and_ordered_like_others() {
    // It is in no list. It is counted, kept, freed, and gets its place when another one comes. Its rule
    // counts it when it leaves.
    let mut lab = lab("one", BB_TRIAGE);
    lab.shut_link();
    let payload_type = BB_RTP as u8 | 96;
    let alone = Packet {
        deadline: now_ns() + 100 * SECOND,
        rtp: payload_type,
        ..Packet::default()
    };
    lab.send(&alone);
    assert_eq!(lab.instance(0).queued, 1);
    assert_eq!(lab.session(10).queued, 1);
    assert_eq!(lab.rule(1).packets_in, 0);
    assert_eq!(lab.payload_type(payload_type).packets_in, 0);
    assert!(lab.out.held() > 0);
    shell(&format!("tc qdisc del dev {} root", lab.device));
    assert_eq!(lab.out.held(), 0);
    let c = lab.instance(0);
    assert_eq!((c.queued, c.dropped[BB_DROP_EVICTED as usize]), (0, 1));
    assert_conserved("interface", &c);
    for (what, c) in [
        ("rule", lab.rule(1)),
        ("payload type", lab.payload_type(payload_type)),
    ] {
        assert_eq!((c.packets_in, c.dropped[BB_DROP_EVICTED as usize]), (1, 1));
        assert_conserved(what, &c);
    }

    shell(&format!(
        "tc qdisc replace dev {} root {}",
        lab.device, lab.kind
    ));
    let later = lab.send(&alone);
    let earlier = lab.send(&Packet {
        deadline: now_ns() + 50 * SECOND,
        ..Packet::default()
    });
    let last = lab.open_link(&Packet {
        priority: 7,
        ..Packet::default()
    });
    assert_eq!(lab.drain(), [earlier, later, last]);
    let c = lab.instance(0);
    assert_eq!((c.packets_sent, c.queued), (3, 0));
    assert_conserved("interface", &c);
    assert_conserved("rule", &lab.rule(1));
    // Nothing is in its way: it is alone until it leaves.
    let passed = lab.send(&alone);
    assert_eq!(lab.drain(), [passed]);
    let c = lab.payload_type(payload_type);
    assert_eq!((c.packets_in, c.packets_sent, c.queued), (3, 2, 0));
}

#[test]
fn failed_creation_of_a_qdisc_leaves_the_running_one_in_charge() {
    let mut lab = lab("fai", BB_TRIAGE);
    lab.shut_link();
    let sent: Vec<_> = (0..3).map(|_| lab.send(&Packet::default())).collect();
    let refused = create_with_unknown_estimator(&lab.device, &lab.kind);
    assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    assert_eq!(lab.instance(0).queued, 3);
    lab.set_iface(|iface| (iface.rate, iface.link_next) = (0, 0));
    lab.send(&Packet::default());
    assert_eq!(lab.drain()[..3], sent);
    // Only the one in charge frees what it holds.
    lab.shut_link();
    for _ in 0..3 {
        lab.send(&Packet::default());
    }
    shell(&format!("tc qdisc del dev {} root", lab.device));
    assert_eq!(lab.out.held(), 0);
    let c = lab.instance(0);
    assert_eq!((c.queued, c.dropped[BB_DROP_EVICTED as usize]), (0, 3));
}

#[test]
fn upgrade_keeps_500_queued_packets_and_the_counters() {
    upgrade("upg", 500);
}

#[test]
fn upgrade_keeps_a_lone_packet() {
    upgrade("upa", 1);
}

/// Queues so many packets, grafts the queue of newer programs over the older one's, and has all sent.
fn upgrade(name: &str, count: u32) {
    let [older, newer] = ["a", "b"].map(|letter| format!("bb{name}{letter}"));
    let options = Options {
        method: BB_RING_SFDPS2,
        ..Options::default()
    };
    let mut lab = Lab::bare(name, &options);
    let pins = lab.pins.join("iface");
    std::fs::create_dir_all(&pins).unwrap();
    let first = load(
        &lab.pins,
        &lab.device,
        lab.slot,
        &older,
        options.limit,
        1,
        Some(&pins),
    );
    shell(&format!("tc qdisc replace dev {name}0 root {older}"));
    lab.queue = Some(first);
    lab.shut_link();
    let deadline = now_ns() + 50 * SECOND;
    let mut want: Vec<_> = (0..count)
        .map(|_| {
            lab.send(&Packet {
                deadline,
                ..Packet::default()
            })
        })
        .collect();
    assert_eq!(lab.instance(0).queued, u64::from(count));

    let second = load(
        &lab.pins,
        &lab.device,
        lab.slot,
        &newer,
        options.limit,
        1,
        Some(&pins),
    );
    let old = lab.queue.replace(second);
    shell(&format!("tc qdisc replace dev {name}0 root {newer}"));
    drop(old);
    assert_eq!(lab.instance(0).queued, u64::from(count));
    // The link is as busy as it was: the newer queue runs, and sends nothing yet.
    let packet = Packet {
        deadline,
        ..Packet::default()
    };
    want.push(lab.send(&packet));
    assert_eq!(lab.instance(0).queued, u64::from(count) + 1);
    want.push(lab.open_link(&packet));
    assert_eq!(lab.drain(), want);
    let c = lab.instance(0);
    assert_eq!(
        (c.packets_in, c.packets_sent, dropped(&c), c.queued),
        (u64::from(count) + 2, u64::from(count) + 2, 0, 0)
    );
    assert_conserved("rule", &lab.rule(1));
    assert_eq!(lab.rule(1).packets_in, c.packets_in);
    let shown = shell(&format!("tc -s qdisc show dev {name}0"));
    assert!(
        shown.contains(&newer) && shown.contains("backlog 0b 0p"),
        "{shown}"
    );
}

#[test]
fn packet_without_metadata_is_sent_and_never_expires() {
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
fn sessions_share_the_link_by_bytes_not_by_priority() {
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
fn qdisc_below_htb_is_refused() {
    let lab = lab("ref", BB_TRIAGE);
    let (device, kind) = (&lab.device, &lab.kind);
    shell(&format!(
        "tc qdisc replace dev {device} root handle 1: htb && \
         tc class add dev {device} parent 1: classid 1:1 htb rate 1mbit"
    ));
    let error = try_shell(&format!("tc qdisc add dev {device} parent 1:1 {kind}")).unwrap_err();
    assert!(error.contains("mq"), "{error}");
    // What was there goes on.
    let sent = lab.send(&Packet::default());
    assert_eq!(lab.drain(), [sent]);
}

#[test]
fn queue_of_an_interface_is_refused_on_any_other() {
    let mut lab = lab("own", BB_TRIAGE);
    lab.shut_link();
    let mut sent: Vec<_> = (0..3).map(|_| lab.send(&Packet::default())).collect();
    // Another interface, and one of the same number in a network of its own, as any user may have it.
    shell("ip link add own2 type veth peer name own3");
    let error = try_shell(&format!("tc qdisc add dev own2 root {}", lab.kind)).unwrap_err();
    assert!(error.contains("Invalid argument"), "{error}");
    shell("ip link del own2");
    let foreign = Netns::new();
    let (index, kind) = (ifindex(&lab.device), lab.kind.clone());
    let error = foreign.enter(|| {
        try_shell(&format!(
            "ip link add own0 index {index} type veth peer name own1 && tc qdisc add dev own0 root {kind}"
        ))
        .unwrap_err()
    });
    assert!(error.contains("Invalid argument"), "{error}");
    assert_eq!(lab.instance(0).queued, 3);
    sent.push(lab.open_link(&Packet::default()));
    assert_eq!(lab.drain(), sent);
}
