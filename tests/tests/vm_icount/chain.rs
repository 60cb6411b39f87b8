//! H.264 over a link too narrow for it: frames that need one that was given up are not sent, and more of the others can
//! be decoded. In virtual time. Needs CONFIG_NET_SCH_BPF.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    thread,
    time::{Duration, Instant},
};

use bestby_tests::{
    agent::Agent,
    netns::{Lab, Netns, linked_lab},
    require, socket,
};
use serde_json::json;

const SECONDS: u32 = 20;
/// Frames of a group: one second.
const GROUP: u32 = 30;
/// Until the codec is known, and how long groups are.
const LEARNT: u32 = 4 * GROUP;

/// Packets of 1,100 bytes of frame `n`: 1.03 Mbit/s.
fn packets(n: u32) -> u32 {
    match n % GROUP {
        0 => 20,
        n => 3 + u32::from(n % 3 == 0),
    }
}

/// Of the frames that came after what was learnt.
#[derive(Debug)]
struct Seen {
    keys: usize,
    whole: usize,
    decodable: usize,
}

impl Seen {
    fn of(whole: &[bool]) -> Self {
        let (mut seen, mut intact) = (
            Self {
                keys: 0,
                whole: 0,
                decodable: 0,
            },
            false,
        );
        for (n, whole) in (0..).zip(whole) {
            let key = n % GROUP == 0;
            intact = *whole && (key || intact);
            if n < LEARNT {
                continue;
            }
            seen.keys += usize::from(*whole && key);
            seen.whole += usize::from(*whole);
            seen.decodable += usize::from(intact);
        }
        seen
    }

    /// Whole frames that nobody can decode, of 100.
    fn wasted(&self) -> usize {
        (self.whole - self.decodable) * 100 / self.whole
    }
}

/// How the video is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Payload {
    Clear,
    /// Each frame begins with a delimiter (AUD) in a packet of its own, as ffmpeg sends it, which tells nothing of it.
    Delimited,
    Encrypted,
}

/// Sends the video to this port; what is there whole in time.
fn show(lab: &Lab, peer: &Netns, port: u16, payload: Payload) -> Seen {
    let cipher = if payload == Payload::Encrypted {
        0x82
    } else {
        0
    };
    let delimiter = u32::from(payload == Payload::Delimited);
    let receiver = peer.enter(|| UdpSocket::bind(("10.9.0.2", port)).unwrap());
    socket::force_buffer(&receiver, libc::SO_RCVBUFFORCE, 8 << 20);
    receiver.set_nonblocking(true).unwrap();
    let sender = lab.netns.enter(|| {
        let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
        socket::force_buffer(&socket, libc::SO_SNDBUFFORCE, 8 << 20);
        socket.connect(("10.9.0.2", port)).unwrap();
        socket
    });
    let frames = SECONDS * 30;
    let mut came = vec![0; frames as usize];
    let mut collect = || {
        let mut buffer = [0; 2000];
        loop {
            match receiver.recv(&mut buffer) {
                // No decoder needs a delimiter.
                Ok(length) if length < 100 => continue,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => panic!("{e}"),
            }
            let time = u32::from_be_bytes(*buffer[4..].first_chunk().unwrap());
            came[time as usize / 3000] += 1;
        }
    };
    let begin = Instant::now() + Duration::from_millis(10);
    let mut seq = 0u16;
    for n in 0..frames {
        thread::sleep((begin + Duration::from_secs(1) * n / 30) - Instant::now());
        collect();
        let (nri, unit) = if n % GROUP == 0 { (0x60, 5) } else { (0x40, 1) };
        let count = packets(n) + delimiter;
        for part in 0..count {
            let (first, last) = (part == delimiter, part + 1 == count);
            let mut packet = vec![0x80, 96 | u8::from(last) << 7];
            packet.extend(seq.to_be_bytes());
            packet.extend((n * 3000).to_be_bytes());
            packet.extend([0, 0, 0, 9]);
            let ends = u8::from(first) << 7 | u8::from(last) << 6;
            if part < delimiter {
                packet.extend([0x09, 0xF0, 0, 0, 0, 0, 0, 0, 0]);
            } else {
                packet.extend([nri | 28, ends | unit].map(|byte| byte ^ cipher));
                packet.resize(1100, b'v' ^ cipher);
            }
            sender.send(&packet).unwrap();
            seq = seq.wrapping_add(1);
        }
    }
    thread::sleep(Duration::from_secs(1));
    collect();
    let whole: Vec<_> = (0..frames)
        .map(|n| came[n as usize] == packets(n))
        .collect();
    Seen::of(&whole)
}

/// At each rate so many frames can be decoded at least, and where so said twice as many as of what nobody can read.
/// Each video is a flow of its own: the agent is started once, for an emulated kernel verifies its programs for long.
fn chains(mode: &str, least: [(&str, usize, bool); 3]) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": least[0].0}));
        let mut port = 5006;
        for (rate, decodable, twice) in least {
            agent.ok(
                "PUT",
                "/v1/interfaces/v0",
                Some(json!({"dev": "v0", "mode": mode, "rate": rate})),
            );
            let mut seen = |payload| {
                port += 2;
                let name = format!("video{port}");
                agent
                    .add(json!({"name": name, "proto": "udp", "dport": port, "lifetime": "400ms"}));
                let seen = show(lab, peer, port, payload);
                let wasted = seen.wasted();
                println!("{mode}, {rate}, {payload:?}: {seen:?}, wasted {wasted} %");
                println!("{}", agent.stats()["flows"][&name]);
                agent.ok("DELETE", &format!("/v1/flows/{name}"), None);
                seen
            };
            let (clear, delimited) = (seen(Payload::Clear), seen(Payload::Delimited));
            let encrypted = seen(Payload::Encrypted);
            // Delimiters take their part of the link.
            for (seen, least) in [(&clear, decodable), (&delimited, decodable * 9 / 10)] {
                assert!(seen.wasted() <= 2, "{rate}: {seen:?}");
                assert_eq!(seen.keys, 16, "{rate}: {seen:?}");
                assert!(seen.decodable >= least, "{rate}: {seen:?}");
            }
            assert!(
                clear.decodable >= encrypted.decodable * if twice { 2 } else { 1 },
                "{rate}: {clear:?}, {encrypted:?}"
            );
        }
    });
}

/// Of 480: as many as the link has room for, by hand: a group's key frame and 23, 14 and 2 frames behind it.
#[test]
fn qdisc_sends_no_frame_that_needs_a_lost_one() {
    chains(
        "qdisc",
        [
            ("900kbit", 384, false),
            ("700kbit", 240, true),
            ("500kbit", 48, false),
        ],
    );
}

#[test]
fn tc_sends_no_frame_that_needs_a_lost_one() {
    chains(
        "tc",
        [
            ("900kbit", 384, false),
            ("700kbit", 192, false),
            ("500kbit", 16, false),
        ],
    );
}
