//! A router behind us whose rate nobody tells: `--rate auto`, with real packets and the agent's own echo requests.
//!
//! In virtual time, so that the router keeps its rate.

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use bestby_tests::{
    agent::Agent,
    clock::{MS, now_ns},
    load::PEER,
    netns::{Lab, Netns, linked_lab},
    require, socket,
};
use serde_json::{Value, json};

use crate::qdisc_lab::sleep_until;

#[allow(dead_code)]
#[path = "../../../bpf/tests/queue/media.rs"]
mod media;

use media::{LARGE, LIFETIME, SECOND, conference};

const RECEIVER: &str = "10.8.0.2";
const AUDIO: u16 = 5004;
const VIDEO: u16 = 5006;
/// RTP's header, when the packet was made, its frame and how many packets that has.
const HEADER: usize = 12;
const SAID: usize = HEADER + 16;
/// Until then nothing may be known.
const SETTLED: u64 = 5 * SECOND;
const SECONDS: u64 = 20;

/// The receiver's namespace, behind a router of 2.3 Mbit/s with a FIFO of a second, 40 ms away from either end.
fn behind(lab: &Lab, peer: &Netns) -> Netns {
    let receiver = Netns::new();
    peer.link("w0", "10.8.0.1/24", &receiver, "w1", "10.8.0.2/24");
    receiver.run("ip route add 10.9.0.0/24 via 10.8.0.1");
    receiver.run("tc qdisc add dev w1 root netem delay 40ms limit 10000");
    peer.run("tc qdisc add dev w0 root netem delay 40ms rate 2300kbit limit 260");
    peer.run("sysctl -qw net.ipv4.ip_forward=1");
    lab.netns
        .run(&format!("ip route add 10.8.0.0/24 via {PEER}"));
    receiver
}

/// Per cent of the packets and frames that were made after `SETTLED`.
#[derive(Debug)]
struct InTime {
    audio: f64,
    frames: f64,
}

/// A conference of 3.3 Mbit/s.
fn call(lab: &Lab, receiver: &Netns) -> InTime {
    let packets = conference(LARGE, SECONDS, 11);
    let mut parts: BTreeMap<u32, u32> = BTreeMap::new();
    for frame in packets.iter().filter_map(|p| p.frame) {
        *parts.entry(frame).or_default() += 1;
    }
    let sockets: Vec<UdpSocket> = receiver.enter(|| {
        let bind = |port| UdpSocket::bind((RECEIVER, port)).unwrap();
        vec![bind(AUDIO), bind(VIDEO)]
    });
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let ended = &ended;
        let listening: Vec<_> = sockets
            .iter()
            .map(|end| {
                socket::force_buffer(end, libc::SO_RCVBUFFORCE, 8 << 20);
                end.set_read_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
                scope.spawn(move || arrived(end, ended))
            })
            .collect();
        let start = now_ns() + 10 * MS;
        lab.netns.enter(|| {
            let to = |port| {
                let end = UdpSocket::bind("0.0.0.0:0").unwrap();
                end.connect((RECEIVER, port)).unwrap();
                end
            };
            let (audio, video) = (to(AUDIO), to(VIDEO));
            let mut sent: BTreeMap<u32, u32> = BTreeMap::new();
            for (number, packet) in packets.iter().enumerate() {
                sleep_until(start + packet.at);
                let mut bytes = vec![0; packet.bytes as usize - 28];
                let frame = packet.frame.unwrap_or(number as u32);
                let all = packet.frame.map_or(1, |frame| parts[&frame]);
                let before = sent.entry(frame).or_default();
                *before += 1;
                let marker = packet.frame.is_some() && *before == all;
                bytes.resize(bytes.len().max(SAID), 0);
                bytes[0] = 0x80;
                bytes[1] = if packet.frame.is_some() { 96 } else { 111 } | u8::from(marker) << 7;
                bytes[2..4].copy_from_slice(&(number as u16).to_be_bytes());
                bytes[4..8].copy_from_slice(&(packet.at as u32 / 1_000_000 * 90).to_be_bytes());
                bytes[8..12].copy_from_slice(&[1, 2, 3, u8::from(packet.frame.is_some())]);
                bytes[12..20].copy_from_slice(&(start + packet.at).to_ne_bytes());
                bytes[20..24].copy_from_slice(&frame.to_ne_bytes());
                bytes[24..28].copy_from_slice(&all.to_ne_bytes());
                let end = if packet.frame.is_some() {
                    &video
                } else {
                    &audio
                };
                let _ = end.send(&bytes);
            }
        });
        thread::sleep(Duration::from_secs(2));
        ended.store(true, Ordering::Release);
        let mut of: Vec<BTreeMap<u32, u32>> = listening
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let (video, audio) = (of.pop().unwrap(), of.pop().unwrap());
        let settled = |p: &&media::Packet| p.at >= SETTLED;
        let made = packets
            .iter()
            .filter(settled)
            .filter(|p| p.frame.is_none())
            .count();
        let frames: BTreeMap<u32, u32> = packets
            .iter()
            .filter(settled)
            .filter_map(|p| p.frame)
            .map(|frame| (frame, parts[&frame]))
            .collect();
        let first = packets.iter().position(|p| p.at >= SETTLED).unwrap() as u32;
        let heard = audio.keys().filter(|number| **number >= first).count();
        let whole = frames
            .iter()
            .filter(|&(frame, all)| video.get(frame) == Some(all))
            .count();
        InTime {
            audio: heard as f64 * 100.0 / made as f64,
            frames: whole as f64 * 100.0 / frames.len() as f64,
        }
    })
}

/// By frame, the packets that came in time.
fn arrived(end: &UdpSocket, ended: &AtomicBool) -> BTreeMap<u32, u32> {
    let (mut bytes, mut in_time) = ([0; 2_048], BTreeMap::new());
    loop {
        match end.recv(&mut bytes) {
            Ok(length) if length >= SAID => {
                let made = u64::from_ne_bytes(bytes[12..20].try_into().unwrap());
                let frame = u32::from_ne_bytes(bytes[20..24].try_into().unwrap());
                if now_ns() <= made + LIFETIME {
                    *in_time.entry(frame).or_default() += 1;
                }
            }
            Ok(_) => {}
            Err(_) if ended.load(Ordering::Acquire) => return in_time,
            Err(_) => {}
        }
    }
}

/// An agent that is told nothing, the rate, or that it is to be found.
fn attached(lab: &Lab, mode: &str, rate: Value) -> Agent {
    let agent = Agent::start(lab, &[]);
    let mut request = json!({ "dev": "v0", "mode": mode });
    if !rate.is_null() {
        request["rate"] = rate;
    }
    agent.attach(request);
    for (name, port, priority) in [("audio", AUDIO, 0), ("video", VIDEO, 3)] {
        agent.add(json!({"name": name, "proto": "udp", "dport": port, "lifetime": "200ms", "priority": priority}));
    }
    agent
}

/// A conference behind a router of 2.3 Mbit/s, whose rate is found.
fn found(mode: &str) -> InTime {
    let mut got = None;
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let receiver = behind(lab, peer);
        let agent = attached(lab, mode, json!("auto"));
        let seen = call(lab, &receiver);
        let path = agent.ok("GET", "/v1/interfaces", None)[0]["path"].clone();
        println!("mode {mode}: {seen:?} % in time; {path}");
        assert_eq!(path["state"], "follows", "{path}");
        assert_eq!(path["asked"], json!([RECEIVER]), "{path}");
        got = Some(seen);
        // Nobody asks any more. The rate is forgotten: the next agent finds none in force.
        agent.kill();
        let socket = lab.netns.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        for _ in 0..24 {
            thread::sleep(Duration::from_millis(500));
            let _ = socket.send_to(&[0; 160], (RECEIVER, AUDIO));
        }
        let agent = Agent::start(lab, &[]);
        let path = agent.ok("GET", "/v1/interfaces", None)[0]["path"].clone();
        assert_eq!(path["rate_bytes_s"], Value::Null, "{path}");
    });
    got.unwrap()
}

/// Without a rate a third of each is in time (`nothing_told_is_late_behind_a_router`).
#[test]
fn rate_of_a_router_is_found_in_mode_qdisc() {
    let got = found("qdisc");
    assert!(got.audio >= 99.0 && got.frames >= 65.0, "{got:?}");
}

/// Admitted packets count as sent, though they may wait in the tree. The tree follows the rate each 100 ms.
#[test]
fn rate_of_a_router_is_found_in_mode_tc() {
    let got = found("tc");
    assert!(got.audio >= 60.0 && got.frames >= 25.0, "{got:?}");
}

#[test]
fn nothing_told_is_late_behind_a_router() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let receiver = behind(lab, peer);
        let _agent = attached(lab, "qdisc", Value::Null);
        let got = call(lab, &receiver);
        println!("nothing told: {got:?} % in time");
        assert!(got.audio <= 50.0 && got.frames <= 50.0, "{got:?}");
    });
}
