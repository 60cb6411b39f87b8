//! Packets of a routed container, as on Docker's default network: IP forwarding drops the socket and keeps the time
//! that the application gave by SO_TXTIME. In virtual time: a packet that waits for nothing arrives within a millisecond.

use std::{
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    time::Duration,
};

use bestby_tests::{
    agent::Agent,
    clock::{MS, clock_ns, now_ns},
    load::PEER,
    netns::{Lab, Netns, linked_lab, shell},
    require,
};
use nix::sys::socket::{
    ControlMessage, MsgFlags, SockaddrIn, sendmsg, setsockopt, sockopt::TxTime,
};
use serde_json::json;

const PORT: u16 = 5004;
/// `linux/net_tstamp.h`
const DEADLINE_MODE: u32 = 1;
/// How far ahead an application's times are.
const AHEAD: u64 = 200 * MS;

/// Who sends a packet, and from where.
struct Sender<'n> {
    netns: &'n Netns,
    clock: i32,
    flags: u32,
}

/// A container's namespace: a host of its own, whose packets `lab` routes.
fn container(lab: &Lab, peer: &Netns) -> Netns {
    let inside = Netns::new();
    inside.link("c0", "172.17.0.2/24", &lab.netns, "h0", "172.17.0.1/24");
    inside.run("ip route add default via 172.17.0.1");
    shell("echo 1 >/proc/sys/net/ipv4/conf/all/forwarding");
    peer.run("ip route add 172.17.0.0/24 via 10.9.0.1");
    inside
}

/// How long a packet with a time [`AHEAD`] is under way, ns.
fn under_way(receiver: &UdpSocket, from: &Sender<'_>) -> u64 {
    let sent = from.netns.enter(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let txtime = libc::sock_txtime {
            clockid: from.clock,
            flags: from.flags,
        };
        setsockopt(&socket, TxTime, &txtime).unwrap();
        let SocketAddr::V4(to) = SocketAddr::new(PEER, PORT) else {
            unreachable!()
        };
        let (sent, time) = (now_ns(), clock_ns(from.clock) + AHEAD);
        sendmsg(
            socket.as_raw_fd(),
            &[std::io::IoSlice::new(b"media")],
            &[ControlMessage::TxTime(&time)],
            MsgFlags::empty(),
            Some(&SockaddrIn::from(to)),
        )
        .unwrap();
        sent
    });
    receiver.recv(&mut [0; 64]).expect("it never arrives");
    now_ns() - sent
}

fn receiver(peer: &Netns) -> UdpSocket {
    let receiver = peer.enter(|| UdpSocket::bind((PEER, PORT)).unwrap());
    receiver
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    receiver
}

/// Mode tc over `fq`, which holds what has a time, or mode qdisc, which does, too.
fn install(lab: &Lab, mode: &str) -> Agent {
    let agent = Agent::start(lab, &[]);
    if mode == "tc" {
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        shell("tc qdisc replace dev v0 root fq");
    } else {
        agent.attach(json!({"dev": "v0", "mode": "qdisc", "rate": "100mbit"}));
    }
    agent
}

#[test]
fn txtime_of_a_routed_container_holds_no_packet() {
    for mode in ["qdisc", "tc"] {
        linked_lab(require::bpf_qdisc(), |lab, peer| {
            let (inside, receiver) = (container(lab, peer), receiver(peer));
            let agent = install(lab, mode);
            let routed = || agent.stats()["global"]["routed_time"].as_u64().unwrap();
            let mut expected = 0;
            // A rule covers it or does not; its sender calls the time a deadline or a departure.
            for rule in [false, true] {
                if rule {
                    agent
                        .add(json!({"name": "m", "proto": "udp", "dport": PORT, "lifetime": "1s"}));
                }
                for (clock, flags) in [
                    (libc::CLOCK_MONOTONIC, DEADLINE_MODE),
                    (libc::CLOCK_MONOTONIC, 0),
                    (libc::CLOCK_TAI, DEADLINE_MODE),
                ] {
                    let netns = &inside;
                    let took = under_way(
                        &receiver,
                        &Sender {
                            netns,
                            clock,
                            flags,
                        },
                    );
                    let what = format!("mode {mode}, rule {rule}, clock {clock}, flags {flags}");
                    assert!(took < 20 * MS, "{what}: held for {} ms", took / MS);
                    expected += 1;
                    assert_eq!(routed(), expected, "{what}");
                }
            }
            // What the sender says by other means than the time is lost with its socket; the rule counts.
            assert_eq!(agent.flow("m", "packets_in"), 3);
            // Of a socket of this host each kind is what it says.
            let netns = &lab.netns;
            let clock = libc::CLOCK_MONOTONIC;
            let flags = DEADLINE_MODE;
            let took = under_way(
                &receiver,
                &Sender {
                    netns,
                    clock,
                    flags,
                },
            );
            assert!(took < 20 * MS, "mode {mode}: {} ms", took / MS);
            let took = under_way(
                &receiver,
                &Sender {
                    netns,
                    clock,
                    flags: 0,
                },
            );
            assert!(took >= AHEAD - MS, "mode {mode}: {} ms", took / MS);
            assert_eq!(routed(), expected);
        });
    }
}

/// Deadlines and times of departure by CLOCK_TAI, as ETF and TSN talkers give them, are read on our clock.
#[test]
fn txtime_by_clock_tai_means_what_it_does_by_clock_monotonic() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let receiver = receiver(peer);
        let _agent = install(lab, "qdisc");
        let netns = &lab.netns;
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_TAI] {
            let took = |flags| {
                under_way(
                    &receiver,
                    &Sender {
                        netns,
                        clock,
                        flags,
                    },
                )
            };
            assert!(took(DEADLINE_MODE) < 20 * MS, "clock {clock}");
            let held = took(0);
            assert!(
                (AHEAD - MS..AHEAD + 20 * MS).contains(&held),
                "clock {clock}: {} ms",
                held / MS
            );
        }
    });
}
