//! RTP whose sender writes one timestamp for ever (IPTV, cameras): what bestby takes from it, beside the same with
//! timestamps that move.
//!
//! 250 packets/s of use for 200 ms, receivers so many ms away by rule, on 2 Mbit/s. In virtual time.

use std::{net::UdpSocket, thread, time::Duration};

use bestby_tests::{
    agent::Agent,
    clock::{MS, SECOND, now_ns},
    netns::{Netns, linked_lab},
    require,
    socket::force_buffer,
};
use serde_json::json;

const PACKETS: u16 = 750;
const GAP: u64 = 4 * MS;

/// A stream of packets of so many bytes to a port of its own.
struct Stream {
    port: u16,
    owd: &'static str,
    bytes: usize,
    moves: bool,
}

/// How many of its packets came, and the longest time without one; the first half a second does not count.
fn arrived(agent: &Agent, peer: &Netns, stream: &Stream) -> (u64, u64) {
    let &Stream {
        port,
        owd,
        bytes,
        moves,
    } = stream;
    agent
        .add(json!({"name": "tv", "proto": "udp", "dport": port, "lifetime": "200ms", "owd": owd}));
    let far = peer.enter(|| UdpSocket::bind(("10.9.0.2", port)).unwrap());
    force_buffer(&far, libc::SO_RCVBUFFORCE, 1 << 22);
    far.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    force_buffer(&socket, libc::SO_SNDBUFFORCE, 1 << 20);
    let start = now_ns();
    let end = start + u64::from(PACKETS) * GAP;
    let result = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let (mut buffer, mut count, mut longest) = ([0; 2048], 0, 0);
            let mut last = start + SECOND / 2;
            while now_ns() < end + SECOND / 2 {
                let Ok(_) = far.recv(&mut buffer) else {
                    continue;
                };
                count += 1;
                let now = now_ns();
                if now > last {
                    longest = longest.max(now - last);
                    last = now;
                }
            }
            (count, longest)
        });
        for n in 0..PACKETS {
            let due = start + u64::from(n) * GAP;
            thread::sleep(Duration::from_nanos(due.saturating_sub(now_ns())));
            let mut packet = vec![0x47; bytes];
            packet[..2].copy_from_slice(&[0x80, 33]);
            packet[2..4].copy_from_slice(&n.to_be_bytes());
            let time = if moves { 360 * u32::from(n) } else { 0 };
            packet[4..8].copy_from_slice(&time.to_be_bytes());
            packet[8..12].copy_from_slice(&7u32.to_be_bytes());
            let _ = socket.send_to(&packet, ("10.9.0.2", port));
        }
        receiving.join().unwrap()
    });
    agent.ok("DELETE", "/v1/flows/tv", None);
    result
}

fn one_timestamp(mode: &str) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": "2mbit"}));
        for (port, owd) in [(5004, "20ms"), (5006, "60ms")] {
            // 0.5 Mbit/s.
            let stream = Stream {
                port,
                owd,
                bytes: 200,
                moves: false,
            };
            let (count, gap) = arrived(&agent, peer, &stream);
            println!("{mode}, {owd}, idle: {count} of {PACKETS}, {} ms", gap / MS);
            // 6 % were missing where the stream was taken for frames.
            assert_eq!(count, u64::from(PACKETS), "{owd}");
        }
        // 2.6 Mbit/s.
        let [fixed, moving] = [(5008, false), (5010, true)].map(|(port, moves)| {
            arrived(
                &agent,
                peer,
                &Stream {
                    port,
                    owd: "60ms",
                    bytes: 1258,
                    moves,
                },
            )
        });
        println!("{mode}, load 1.3: {fixed:?}, {moving:?} with timestamps that move");
        assert!(fixed.1 <= moving.1 + 2 * GAP, "{fixed:?}, {moving:?}");
    });
}

#[test]
fn qdisc_one_timestamp_for_ever_costs_nothing() {
    one_timestamp("qdisc");
}

#[test]
fn tc_one_timestamp_for_ever_costs_nothing() {
    one_timestamp("tc");
}
