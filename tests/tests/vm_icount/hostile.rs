//! What can another user do to my media? An operator's audio beside each attack that an unprivileged user of the same
//! host can make, with nothing set but the rate and one rule. In virtual time, so that shares of packets in time do not
//! depend on the machine.
//!
//! `--show-output` prints the table of docs/operating.md.

use std::{
    io::{IoSlice, Read as _, Write as _},
    net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::mapped,
    clock::{MS, SECOND, now_ns},
    frame::stun,
    netns::{Lab, Netns, cgroup_root, linked_lab, shell},
    require,
    socket::{force_buffer, set},
    user::as_nobody,
};
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg, setsockopt, sockopt};
use serde_json::json;

const PORT: u16 = 5004;
const SINK: u16 = 9000;
const RATE: &str = "2mbit";
/// Audio: a packet of this many bytes each 20 ms, of use for 200 ms.
const AUDIO: usize = 160;
/// Of each attack: 8 s.
const PACKETS: u64 = 400;
const GAP: u64 = 20 * MS;
const LIFETIME: u64 = 200 * MS;
const LEVEL: i32 = SOL_BESTBY as i32;

/// What a user does meanwhile; returns when told to stop.
type Attack = fn(&AtomicBool);

fn running(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

fn at(address: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address.into(), port)
}

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// Sends at a pace; a full queue or buffer is no reason to stop.
fn pour(stop: &AtomicBool, per_second: u64, mut one: impl FnMut(u64)) {
    let start = Instant::now();
    let mut n = 0;
    while running(stop) {
        one(n);
        n += 1;
        let due = Duration::from_nanos(n * SECOND / per_second);
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// 3.4 Mbit/s to one port.
fn one_destination(stop: &AtomicBool) {
    let socket = udp();
    pour(stop, 350, |_| {
        let _ = socket.send_to(&[0xff; 1200], "10.9.0.2:9");
    });
}

fn each_packet_to_another_destination(stop: &AtomicBool) {
    let socket = udp();
    pour(stop, 350, |n| {
        let [.., a, b] = (n as u32).to_be_bytes();
        let _ = socket.send_to(&[0xff; 1200], at([10, 50, a, b], 9));
    });
}

fn many_sockets(stop: &AtomicBool) {
    let sockets: Vec<_> = (0..200).map(|_| udp()).collect();
    pour(stop, 350, |n| {
        let which = n as usize % sockets.len();
        let to = at([10, 9, 0, 2], 10_000 + which as u16);
        let _ = sockets[which].send_to(&[0xff; 1200], to);
    });
}

fn small_packets(stop: &AtomicBool) {
    let socket = udp();
    pour(stop, 4000, |n| {
        let [.., a, b] = (n as u32).to_be_bytes();
        let _ = socket.send_to(&[0xff; 40], at([10, 50, a, b], 9));
    });
}

/// More destinations in a second than the session table has places. Each socket has a buffer of its own.
fn scan(stop: &AtomicBool) {
    let sockets: Vec<_> = (0..64).map(|_| udp()).collect();
    pour(stop, 1000, |n| {
        for n in (20 * n)..(20 * n + 20) {
            let [.., a, b] = (n as u32).to_be_bytes();
            let _ = sockets[n as usize % 64].send_to(&[0xff; 18], at([10, 50, a, b], 9));
        }
    });
}

/// Looks like signalling, which never waits behind media.
fn stun_flood(stop: &AtomicBool) {
    let socket = udp();
    let packet = stun(1200);
    pour(stop, 350, |n| {
        let _ = socket.send_to(&packet, at([10, 50, 0, n as u8], 3478));
    });
}

/// Looks like a routing protocol's: BFD on one hop, and network control by DSCP.
fn network_flood(stop: &AtomicBool) {
    let sockets = [udp(), udp()];
    set(&sockets[0], libc::IPPROTO_IP, libc::IP_TTL, &255i32).unwrap();
    set(&sockets[1], libc::IPPROTO_IP, libc::IP_TOS, &0xe0i32).unwrap();
    pour(stop, 350, |n| {
        let [.., a] = n.to_be_bytes();
        let _ = sockets[n as usize % 2].send_to(&[0xff; 1200], at([10, 50, 0, a], 3784));
    });
}

/// The most important traffic there is, says its sender.
fn priority_0_by_socket_option(stop: &AtomicBool) {
    let sockets: Vec<_> = (0..8).map(|_| udp()).collect();
    for socket in &sockets {
        set(socket, LEVEL, BB_SO_PRIORITY, &0u32).unwrap();
        set(socket, LEVEL, BB_SO_LIFETIME, &(100 * MS)).unwrap();
    }
    pour(stop, 350, |n| {
        let socket = &sockets[n as usize % sockets.len()];
        let _ = socket.send_to(&[0xff; 1200], "10.9.0.2:9");
    });
}

/// A socket with SO_TXTIME, and what it sends: packets of so many bytes that carry a time so far ahead.
fn timed(stop: &AtomicBool, flags: u32, per_second: u64, to: u16, bytes: usize, ahead: u64) {
    let socket = udp();
    let txtime = libc::sock_txtime {
        clockid: libc::CLOCK_MONOTONIC,
        flags,
    };
    // Refused to who is not privileged by some kernels: then there is nothing to show.
    if setsockopt(&socket, sockopt::TxTime, &txtime).is_err() {
        println!("SO_TXTIME is refused to this user");
    }
    let to = SockaddrIn::from(at([10, 9, 0, 2], to));
    pour(stop, per_second, |_| {
        let _ = sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(&vec![0xff; bytes])],
            &[ControlMessage::TxTime(&(now_ns() + ahead))],
            MsgFlags::MSG_DONTWAIT,
            Some(&to),
        );
    });
}

/// Each packet due at once, by SO_TXTIME in deadline mode.
fn deadlines_of_20_ms(stop: &AtomicBool) {
    timed(stop, 1, 350, 9, 1200, 20 * MS);
}

/// The operator's own rule covers them, and they may leave much later only.
fn departures_under_the_rule(stop: &AtomicBool) {
    timed(stop, 0, 20, PORT, 100, 150 * MS);
}

/// What is known of the receiver, says who knows nothing: far away, and slow.
fn lies_about_the_receiver(stop: &AtomicBool) {
    let socket = udp();
    let lie = bb_so_peer {
        addr: mapped([10, 9, 0, 2]),
        owd_ns: 10 * SECOND,
        rate: 1,
    };
    set(&socket, LEVEL, BB_SO_PEER, &lie).unwrap();
    pour(stop, 50, |_| {
        let _ = socket.send_to(&[0xff; 100], "10.9.0.2:9");
    });
}

/// 48 KiB at once, 1.4 Mbit/s: 40 datagrams that the stack hands down as one packet.
fn super_packets(stop: &AtomicBool) {
    let socket = udp();
    let to = SockaddrIn::from(at([10, 9, 0, 2], 9));
    let data = vec![0xff; 40 * 1200];
    pour(stop, 4, |_| {
        let _ = sendmsg(
            socket.as_raw_fd(),
            &[IoSlice::new(&data)],
            &[ControlMessage::UdpGsoSegments(&1200)],
            MsgFlags::MSG_DONTWAIT,
            Some(&to),
        );
    });
}

fn downloads(stop: &AtomicBool, connections: usize) {
    thread::scope(|scope| {
        for _ in 0..connections {
            scope.spawn(|| {
                let Ok(mut stream) = TcpStream::connect(("10.9.0.2", SINK)) else {
                    return;
                };
                let timeout = Some(Duration::from_millis(100));
                stream.set_write_timeout(timeout).unwrap();
                let data = vec![0x55; 1 << 16];
                while running(stop) {
                    let _ = stream.write(&data);
                }
            });
        }
    });
}

fn one_download(stop: &AtomicBool) {
    downloads(stop, 1);
}

fn downloads_24(stop: &AtomicBool) {
    downloads(stop, 24);
}

const ATTACKS: [(&str, Attack); 14] = [
    ("nothing", |_| {}),
    (
        "350 packets/s of 1,200 bytes to one destination",
        one_destination,
    ),
    (
        "the same, each to another destination",
        each_packet_to_another_destination,
    ),
    ("the same from 200 sockets to 200 ports", many_sockets),
    (
        "4,000 packets/s of 40 bytes, each to another destination",
        small_packets,
    ),
    ("350 packets/s that look like STUN", stun_flood),
    (
        "350 packets/s that look like BFD or network control",
        network_flood,
    ),
    (
        "350 packets/s at priority 0 by socket option",
        priority_0_by_socket_option,
    ),
    (
        "350 packets/s with deadlines of 20 ms (SO_TXTIME)",
        deadlines_of_20_ms,
    ),
    (
        "20 packets/s under the rule that may leave after 150 ms (SO_TXTIME)",
        departures_under_the_rule,
    ),
    (
        "a false one-way delay and rate of the receiver",
        lies_about_the_receiver,
    ),
    ("4 super-packets/s of 48 KiB (UDP GSO)", super_packets),
    ("1 TCP download to the same receiver", one_download),
    ("24 TCP downloads to the same receiver", downloads_24),
];

/// Sends audio of so many flows as root, under the rule, each to a receiver of its own and one after the other begun;
/// how many of their packets arrived within their lifetime.
fn audio(peer: &Netns, flows: u64, packets: u64) -> u64 {
    let far = peer.enter(|| UdpSocket::bind(("0.0.0.0", PORT)).unwrap());
    force_buffer(&far, libc::SO_RCVBUFFORCE, 1 << 20);
    far.set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let socket = udp();
    force_buffer(&socket, libc::SO_SNDBUFFORCE, 1 << 20);
    let start = now_ns();
    let end = start + (packets + flows) * GAP;
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut buffer, mut in_time) = ([0; 2048], 0);
            while now_ns() < end + 2 * LIFETIME {
                let Ok(length) = far.recv(&mut buffer) else {
                    continue;
                };
                let sent = u64::from_ne_bytes(buffer[16..24].try_into().unwrap());
                in_time += u64::from(length == AUDIO && now_ns() <= sent + LIFETIME);
            }
            in_time
        });
        for n in 0..packets + flows {
            for flow in (0..flows).filter(|flow| (*flow..flow + packets).contains(&n)) {
                let due = start + n * GAP + flow * GAP / flows;
                thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
                let mut packet = [0xff; AUDIO];
                packet[16..24].copy_from_slice(&now_ns().to_ne_bytes());
                let _ = socket.send_to(&packet, at([10, 51, 0, 1 + flow as u8], PORT));
            }
        }
        receiving.join().unwrap()
    })
}

/// Reads whatever connections bring, until the namespace ends with the test.
fn sink(peer: &Netns) {
    let listener = peer.enter(|| TcpListener::bind(("10.9.0.2", SINK)).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
            });
        }
    });
}

/// The calling process sends from the cgroup whose socket options the agent knows.
fn join(lab: &Lab) {
    std::fs::write(
        lab.cgroup.join("cgroup.procs"),
        std::process::id().to_string(),
    )
    .unwrap();
}

/// An agent that controls the link, with the rate and one rule set and nothing else.
fn site(mode: &str, test: impl FnOnce(&Netns, &Agent) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        join(lab);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": RATE}));
        agent.add(json!({"name": "audio", "proto": "udp", "dport": PORT, "lifetime": "200ms", "priority": 0}));
        shell("for net in 50 51; do ip route add 10.$net.0.0/16 via 10.9.0.2 dev v0; done");
        peer.run("ip route add blackhole 10.50.0.0/16");
        peer.run("ip route add local 10.51.0.0/16 dev lo");
        sink(peer);
        test(peer, &agent);
        std::fs::write(
            cgroup_root().join("cgroup.procs"),
            std::process::id().to_string(),
        )
        .unwrap();
    });
}

/// Audio of so many flows beside an attack, which began a second before: packets in time.
fn beside(attack: Attack, peer: &Netns, flows: u64, packets: u64) -> u64 {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| as_nobody(|| attack(&stop)));
        thread::sleep(Duration::from_secs(1));
        let in_time = audio(peer, flows, packets);
        stop.store(true, Ordering::Relaxed);
        in_time
    })
}

/// Audio in time beside each attack, per cent. One follows the other at once: each meets what the one before left.
fn shares(mode: &str) -> Vec<(&'static str, f64)> {
    let mut shares = Vec::new();
    site(mode, |peer, _| {
        for (name, attack) in ATTACKS {
            let share = beside(attack, peer, 1, PACKETS) as f64 * 100.0 / PACKETS as f64;
            println!("| {name} | {mode} | {share:.1} % |");
            shares.push((name, share));
        }
    });
    shares
}

#[track_caller]
fn none_costs_the_media_anything(shares: &[(&str, f64)]) {
    let hurt: Vec<_> = shares.iter().filter(|(_, share)| *share < 99.0).collect();
    assert!(hurt.is_empty(), "audio in time, per cent: {hurt:?}");
}

#[test]
fn qdisc_audio_is_in_time_beside_each_attack_of_a_user() {
    none_costs_the_media_anything(&shares("qdisc"));
}

#[test]
fn tc_audio_is_in_time_beside_each_attack_of_a_user() {
    none_costs_the_media_anything(&shares("tc"));
}

/// Ten receivers that were sent nothing before, while a user fills the table with 20,000 destinations in a second.
fn new_audio_finds_its_places(mode: &str) {
    site(mode, |peer, agent| {
        let in_time = beside(scan, peer, 10, 100);
        println!("{mode}: {in_time} of 1000");
        let stats = agent.stats();
        let without = stats["global"]["sessions_full"].as_u64().unwrap();
        assert!(without > 1000, "{without} packets without a place");
        assert!(in_time >= 995, "{in_time} of 1000");
    });
}

#[test]
fn qdisc_new_audio_has_sessions_beside_20_000_destinations_per_second() {
    new_audio_finds_its_places("qdisc");
}

#[test]
fn tc_new_audio_has_sessions_beside_20_000_destinations_per_second() {
    new_audio_finds_its_places("tc");
}
