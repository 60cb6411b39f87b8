//! Audio beside super-packets (UDP GSO) of another application on a slow link. In virtual time; needs netkit (6.7).

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bestby_tests::agent::*;
use bestby_tests::clock::{MS, SECOND, now_ns};
use bestby_tests::load::{Counter, PEER, SuperPackets, assert_nothing_else_lost, dropped_plain};
use bestby_tests::netns::{Lab, Netns, ifindex, linked_lab};
use bestby_tests::require;
use serde_json::json;

const AUDIO: u16 = 5004;
const BULK: u16 = 4433;
/// Bytes of a datagram, and how many are one super-packet: 48 KiB.
const SIZE: usize = 1200;
const DATAGRAMS: usize = 40;
/// Audio: a packet of 172 bytes each 20 ms, of use for 100 ms.
const PERIOD: u64 = 20 * MS;
const LIFETIME: u64 = 100 * MS;
/// Bulk at 1.4 Mbit/s.
const BULK_PERIOD: u64 = (SIZE * DATAGRAMS) as u64 * 8 * SECOND / 1_400_000;
const DURATION: u64 = 4 * SECOND;

fn sleep_until(at: u64) {
    std::thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
}

/// Sends both; audio packets sent and on time, bulk datagrams sent and received.
fn send(lab: &Lab, peer: &Netns) -> (usize, usize, u64, Vec<u64>) {
    let counter = Counter::new(peer, PEER, BULK);
    let mut bulk = SuperPackets::new(&lab.netns, BULK, SIZE);
    let receiver = peer.enter(|| UdpSocket::bind((PEER, AUDIO)).unwrap());
    receiver
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let sender = lab.netns.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let over = AtomicBool::new(false);
    let (sent, on_time) = std::thread::scope(|scope| {
        let on_time = scope.spawn(|| {
            let (mut packet, mut count) = ([0; 2048], 0);
            while !over.load(Ordering::Relaxed) {
                if receiver.recv(&mut packet).is_ok() {
                    let born = u64::from_ne_bytes(packet[8..16].try_into().unwrap());
                    // What is sent in time is under way for next to nothing.
                    count += usize::from(now_ns() - born <= LIFETIME + 3 * MS);
                }
            }
            count
        });
        let start = now_ns();
        let (mut audio, mut super_packets) = (0, 0);
        loop {
            let next = [audio * PERIOD, super_packets * BULK_PERIOD];
            if next[0] >= DURATION {
                break;
            }
            sleep_until(start + next[0].min(next[1]));
            if next[0] <= next[1] {
                let mut packet = [0xff; 172];
                packet[8..16].copy_from_slice(&now_ns().to_ne_bytes());
                sender.send_to(&packet, (PEER, AUDIO)).unwrap();
                audio += 1;
            } else {
                bulk.send(DATAGRAMS);
                super_packets += 1;
            }
        }
        sleep_until(now_ns() + 2 * SECOND);
        over.store(true, Ordering::Relaxed);
        (audio, on_time.join().unwrap())
    });
    let sent = usize::try_from(sent).unwrap();
    (sent, on_time, bulk.sent(), counter.finish())
}

fn audio_beside_super_packets(mode: &str) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": "2mbit"}));
        agent.add(json!({"name": "audio", "proto": "udp", "dport": AUDIO, "lifetime": "100ms", "priority": 0}));
        let (sent, on_time, bulk, seen) = send(lab, peer);
        println!(
            "mode {mode}, cut: {on_time} of {sent} on time, bulk {} of {bulk}",
            seen.len()
        );
        assert_eq!(on_time, sent);
        assert_nothing_else_lost(&seen, bulk, dropped_plain(&lab.netns, &agent, "v0"));

        // The same with a device that does not cut, as if there were none.
        agent.signal(libc::SIGSTOP);
        let device = format!("bbs{}", lab.netns.enter(|| ifindex("v0")));
        lab.netns
            .run(&format!("ip link set {device} gso_max_segs 65535"));
        let (sent, on_time, bulk, seen) = send(lab, peer);
        agent.signal(libc::SIGCONT);
        println!(
            "mode {mode}, whole: {on_time} of {sent} on time, bulk {} of {bulk}",
            seen.len()
        );
        assert!(on_time * 10 < sent * 8, "the test would prove nothing");
    });
}

#[test]
fn segment_qdisc_audio_is_on_time_beside_super_packets() {
    audio_beside_super_packets("qdisc");
}

#[test]
fn segment_tc_audio_is_on_time_beside_super_packets() {
    audio_beside_super_packets("tc");
}
