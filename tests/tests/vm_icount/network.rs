//! How long do control protocols of routers and hosts wait beside a full link? And what can somebody do to audio who
//! looks like one?
//!
//! The link has 2 Mbit/s. A rule's video takes 91 % of it, 40 flows of bulk twice the rest. In virtual time.

use std::{
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bestby_tests::{
    agent::Agent,
    clock::{MS, SECOND, now_ns},
    frame::{ethernet, ip4_with},
    netns::{Lab, Netns, linked_lab, shell},
    require,
    socket::set,
    truncated::Raw,
};
use serde_json::json;

const VIDEO: u16 = 5004;
const BFD: u16 = 3784;
const GAP: u64 = 100 * MS;
const PACKETS: u64 = 60;
/// Marks a packet whose delay is measured; behind it which, and when it was sent.
const MAGIC: u64 = 0xbe57_b1c0_4e70_4b11;
/// What fq_codel takes for the longest (2 Mbit/s, the same traffic): 130 ms.
const LONGEST: u64 = 100 * MS;

/// What is measured.
const KINDS: [&str; 6] = ["BFD", "VRRP", "LACP", "STP", "CS6", "plain"];

fn udp() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn stamped(kind: usize) -> Vec<u8> {
    [MAGIC, kind as u64, now_ns()]
        .into_iter()
        .flat_map(u64::to_ne_bytes)
        .collect()
}

/// Calls it each so many ns until told to stop.
fn each(stop: &AtomicBool, gap: u64, mut one: impl FnMut(u64)) {
    let start = now_ns();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        one(n);
        let due = start + (n + 1) * gap;
        thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
    }
}

/// 1.83 Mbit/s under the rule, and 3.9 Mbit/s of others to 40 receivers.
fn fill(stop: &AtomicBool) {
    let (video, bulk) = (udp(), (0..40).map(|_| udp()).collect::<Vec<_>>());
    thread::scope(|scope| {
        scope.spawn(|| {
            each(stop, 1242 * 8 * SECOND / 1_830_000, |_| {
                let _ = video.send_to(&[0xff; 1200], ("10.9.0.2", VIDEO));
            });
        });
        each(stop, 100 * MS, |_| {
            for (n, socket) in bulk.iter().enumerate() {
                let _ = socket.send_to(&[0xff; 1200], format!("10.50.0.{}:9", n + 1));
            }
        });
    });
}

/// Sends one of each kind now and then; the rest of the header is none that matters here.
fn exchange(stop: &AtomicBool) {
    let raw = Raw::open("v0");
    let (bfd, cs6, plain) = (udp(), udp(), udp());
    set(&bfd, libc::IPPROTO_IP, libc::IP_TTL, &255i32).unwrap();
    set(&cs6, libc::IPPROTO_IP, libc::IP_TOS, &0xc0i32).unwrap();
    each(stop, GAP, |_| {
        let _ = bfd.send_to(&stamped(0), ("10.9.0.2", BFD));
        raw.send(&ethernet(
            0x0800,
            &ip4_with(112, &stamped(1), 0, &[], [224, 0, 0, 18]),
        ));
        raw.send(&ethernet(0x8809, &stamped(2)));
        let llc = [&[0x42, 0x42, 3][..], &stamped(3)].concat();
        raw.send(&ethernet(llc.len() as u16, &llc));
        let _ = cs6.send_to(&stamped(4), "10.9.0.2:520");
        let _ = plain.send_to(&stamped(5), "10.9.0.2:521");
    });
}

/// Longest delays, and how many came, by kind.
fn listen(peer: &Netns, until: u64) -> [(u64, u64); KINDS.len()] {
    let raw = peer.enter(|| Raw::open("v1"));
    let mut seen = [(0, 0); KINDS.len()];
    while now_ns() < until {
        let Some(frame) = raw.matching(|frame| find(frame).is_some()) else {
            continue;
        };
        let (kind, sent) = find(&frame).unwrap();
        let (longest, count) = &mut seen[kind];
        *longest = now_ns().saturating_sub(sent).max(*longest);
        *count += 1;
    }
    seen
}

/// Kind and time in a frame of ours.
fn find(frame: &[u8]) -> Option<(usize, u64)> {
    let word = |at: usize| Some(u64::from_ne_bytes(frame.get(at..at + 8)?.try_into().ok()?));
    let at = [14, 17, 34, 42]
        .into_iter()
        .find(|&at| word(at) == Some(MAGIC))?;
    Some((word(at + 8)? as usize, word(at + 16)?))
}

fn attached(mode: &str, test: impl FnOnce(&Lab, &Netns, &Agent) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": "2mbit"}));
        agent.add(
            json!({"name": "video", "proto": "udp", "dport": VIDEO, "lifetime": "200ms", "priority": 4}),
        );
        shell("ip route add 10.50.0.0/16 via 10.9.0.2 dev v0");
        peer.run("ip route add blackhole 10.50.0.0/16");
        test(lab, peer, &agent);
    });
}

fn beside_a_full_link(mode: &str) {
    attached(mode, |_, peer, agent| {
        let stop = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            scope.spawn(|| fill(&stop));
            thread::sleep(Duration::from_secs(2));
            scope.spawn(|| exchange(&stop));
            let seen = listen(peer, now_ns() + PACKETS * GAP);
            stop.store(true, Ordering::Relaxed);
            seen
        });
        for (kind, (longest, count)) in KINDS.iter().zip(seen) {
            println!("| {kind} | {mode} | {count} | {} ms |", longest / MS);
        }
        let stats = agent.stats();
        let counted = stats["global"]["network"].as_u64();
        let late: Vec<_> = KINDS
            .iter()
            .zip(seen)
            .take(KINDS.len() - 1)
            .filter(|(_, (longest, count))| *longest > LONGEST || *count < PACKETS - 5)
            .collect();
        assert!(late.is_empty(), "{late:?}");
        // The link is full: what is no such packet waits.
        assert!(seen[KINDS.len() - 1].0 > LONGEST, "{seen:?}");
        let sent: u64 = seen.iter().take(KINDS.len() - 1).map(|(_, n)| n).sum();
        assert!(counted >= Some(sent), "{counted:?} of {sent}: {stats}");
    });
}

#[test]
fn qdisc_control_protocols_do_not_wait_beside_a_full_link() {
    beside_a_full_link("qdisc");
}

#[test]
fn tc_control_protocols_do_not_wait_beside_a_full_link() {
    beside_a_full_link("tc");
}
