//! Many videos in overload, all on one 5-tuple (BUNDLE) or with a port each: frames must be whole in both. In virtual
//! time, so that each packet comes when it should.

use std::{collections::HashMap, net::UdpSocket, thread, time::Duration};

use bestby_tests::{
    agent::Agent,
    clock::{MS, SECOND, now_ns},
    frame::rtp_with,
    netns::{Netns, linked_lab},
    require,
    socket::force_buffer,
};
use serde_json::json;

const TO: (&str, u16) = ("10.9.0.2", 5006);
/// Source ports are above.
const FROM: u16 = 20_000;
/// A frame each 200 ms: packets of so many bytes, 15 ms apart.
const FRAMES: u64 = 10;
const PERIOD: u64 = 200 * MS;
const PACKETS: u64 = 3;
const SPREAD: u64 = 15 * MS;
const BYTES: usize = 1000;
const LIFETIME: u64 = 200 * MS;
/// From the queue to the receiver's clock: a packet may leave at its last moment.
const TRANSIT: u64 = MS;
/// Part of the load that the link carries, per cent.
const CARRIED: u64 = 70;

/// Counts until nothing comes for a second: frames with all their packets in time.
fn receive(far: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    let mut packets: HashMap<(u32, u32), u64> = HashMap::new();
    while let Ok(length) = far.recv(&mut buffer) {
        assert_eq!(length, BYTES);
        let word = |at: usize| u32::from_be_bytes(buffer[at..at + 4].try_into().unwrap());
        let began = u64::from_ne_bytes(buffer[16..24].try_into().unwrap());
        if now_ns() <= began + LIFETIME + TRANSIT {
            *packets.entry((word(8), word(4))).or_default() += 1;
        }
    }
    packets.values().filter(|n| **n == PACKETS).count()
}

/// Sends each stream's packets when they are due, the streams between each other.
fn send(sockets: &[UdpSocket], streams: u64) {
    let start = now_ns() + 10 * MS;
    let mut due: Vec<(u64, u64, u64, u64)> = Vec::new();
    for stream in 0..streams {
        for frame in 0..FRAMES {
            let began = start + frame * PERIOD + stream * PERIOD / streams;
            due.extend((0..PACKETS).map(|n| (began + n * SPREAD, stream, frame, n)));
        }
    }
    due.sort_unstable();
    let mut first = HashMap::new();
    // Streams that the queue has not seen yet.
    let ssrc = (sockets.len() as u32) << 16;
    for (at, stream, frame, n) in due {
        thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
        // The lifetime counts from when this host sees the frame first.
        let began = *first.entry((stream, frame)).or_insert_with(now_ns);
        let seq = (frame * PACKETS + n) as u16;
        let mut packet = rtp_with(96, seq, ssrc + stream as u32, 90 * 200 * frame as u32);
        packet[1] |= u8::from(n + 1 == PACKETS) << 7;
        packet[16..24].copy_from_slice(&began.to_ne_bytes());
        packet.resize(BYTES, 0x55);
        let socket = &sockets[stream as usize % sockets.len()];
        // A full queue is no reason to stop.
        let _ = socket.send_to(&packet, TO);
    }
}

/// `streams` videos from so many ports: frames with all their packets in time, per cent.
fn videos(peer: &Netns, streams: u64, ports: u64) -> f64 {
    let far = peer.enter(|| UdpSocket::bind(TO).unwrap());
    force_buffer(&far, libc::SO_RCVBUFFORCE, 16 << 20);
    far.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let sockets: Vec<_> = (0..ports)
        .map(|n| UdpSocket::bind(("0.0.0.0", FROM + ports as u16 + n as u16)).unwrap())
        .inspect(|socket| force_buffer(socket, libc::SO_SNDBUFFORCE, 16 << 20))
        .collect();
    let whole = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&far));
        send(&sockets, streams);
        receiving.join().unwrap()
    });
    whole as f64 * 100.0 / (streams * FRAMES) as f64
}

/// In overload.
#[track_caller]
fn one_port_is_as_good_as_many(mode: &str, streams: u64) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        let wire = BYTES as u64 + 42;
        let rate = streams * PACKETS * wire * SECOND / PERIOD * CARRIED / 100;
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": format!("{rate}B/s")}));
        agent.add(json!({"name": "video", "proto": "udp", "dport": TO.1, "lifetime": "200ms", "priority": 4}));
        let [bundled, apart] = [1, streams].map(|ports| videos(peer, streams, ports));
        println!(
            "{mode}, {streams} streams: {bundled} % of frames on one 5-tuple, {apart} % apart"
        );
        assert!(apart > 0.0, "no frame arrived");
        assert!((bundled - apart).abs() <= 2.0);
        assert_eq!(agent.stats()["interfaces"]["v0"]["sent_stale"], 0);
    });
}

#[test]
fn qdisc_6_bundled_videos_have_the_frames_of_6_ports() {
    one_port_is_as_good_as_many("qdisc", 6);
}

#[test]
fn qdisc_149_bundled_videos_have_the_frames_of_149_ports() {
    one_port_is_as_good_as_many("qdisc", 149);
}

#[test]
fn tc_6_bundled_videos_have_the_frames_of_6_ports() {
    one_port_is_as_good_as_many("tc", 6);
}

#[test]
fn tc_149_bundled_videos_have_the_frames_of_149_ports() {
    one_port_is_as_good_as_many("tc", 149);
}
