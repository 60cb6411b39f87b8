//! Audio and video with key frames over a link too narrow for both, in virtual time. Which frames are whole in time, and
//! how long does audio wait? Needs CONFIG_NET_SCH_BPF.

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
use serde_json::{Value, json};

const SECONDS: u64 = 20;
const VIDEO: u16 = 5006;
const AUDIO: u16 = 5004;
/// Payload types: key frames, layers that others refer to, and what nothing refers to.
const KEY: u8 = 97;
const LAYER: u8 = 98;
const REST: u8 = 96;

/// Packets of 1,100 bytes of video in frame `n`: 30 frames/s, each 60th of them a key frame.
fn packets(n: u32) -> u32 {
    match n {
        n if n % 60 == 0 => 20,
        n => 3 + u32::from(n % 3 == 0),
    }
}

fn kind(n: u32) -> u8 {
    match n {
        n if n % 60 == 0 => KEY,
        n if n % 3 == 0 => LAYER,
        _ => REST,
    }
}

/// Whole frames in time, and what audio waited.
#[derive(Debug)]
struct Seen {
    keys: usize,
    layers: usize,
    rest: usize,
    /// Delays of audio, shortest first.
    audio: Vec<Duration>,
}

impl Seen {
    fn others(&self) -> usize {
        self.layers + self.rest
    }

    /// In so many of 1,000 cases at most.
    fn audio(&self, of_1000: usize) -> Duration {
        self.audio[self.audio.len() * of_1000 / 1000]
    }
}

fn rtp(pt: u8, seq: u16, time: u32, ssrc: u8, at: Duration, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x80, pt];
    packet.extend(seq.to_be_bytes());
    packet.extend(time.to_be_bytes());
    packet.extend([0, 0, 0, ssrc]);
    packet.extend(u64::try_from(at.as_nanos()).unwrap().to_be_bytes());
    packet.resize(bytes, b'v');
    packet
}

/// 20 s: a frame each 33 ms, with all its packets at once, or `paced` over so much time; audio of 152 bytes each 20 ms
/// if the video of a payload type of its own per kind is `typed`, else none where `audio` is not set.
fn show(lab: &Lab, peer: &Netns, typed: bool, audio: bool, paced: Duration) -> Seen {
    let receivers = [VIDEO, AUDIO].map(|port| {
        let socket = peer.enter(|| UdpSocket::bind(("10.9.0.2", port)).unwrap());
        socket::force_buffer(&socket, libc::SO_RCVBUFFORCE, 8 << 20);
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let senders = lab.netns.enter(|| {
        [VIDEO, AUDIO].map(|port| {
            let socket = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            socket::force_buffer(&socket, libc::SO_SNDBUFFORCE, 8 << 20);
            socket.connect(("10.9.0.2", port)).unwrap();
            socket
        })
    });
    let mut plan = Vec::new();
    for n in 0..u32::try_from(SECONDS * 30).unwrap() {
        let count = packets(n);
        for part in 0..count {
            let at = Duration::from_secs(1) * n / 30 + paced * part / count;
            plan.push((at, Some((n, part + 1 == count))));
        }
    }
    if audio {
        plan.extend((0..SECONDS * 50).map(|n| (Duration::from_millis(20 * n), None)));
    }
    plan.sort_by_key(|(at, _)| *at);
    let begin = Instant::now() + Duration::from_millis(10);
    let (mut whole, mut delays) = (vec![0; SECONDS as usize * 30], Vec::new());
    let mut collect = || {
        let mut buffer = [0; 2000];
        for (which, receiver) in receivers.iter().enumerate() {
            loop {
                let length = match receiver.recv(&mut buffer) {
                    Ok(length) => length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("{e}"),
                };
                assert!(length > 20);
                let word = |at: usize| u32::from_be_bytes(*buffer[at..].first_chunk().unwrap());
                let sent = u64::from_be_bytes(*buffer[12..].first_chunk().unwrap());
                match which {
                    0 => whole[word(4) as usize / 3000] += 1,
                    _ => delays.push(begin.elapsed().saturating_sub(Duration::from_nanos(sent))),
                }
            }
        }
    };
    let mut wait = |until: Duration| {
        while let Some(left) = until
            .checked_sub(begin.elapsed())
            .filter(|left| !left.is_zero())
        {
            thread::sleep(left.min(Duration::from_millis(1)));
            collect();
        }
    };
    let mut sequence = [0u16; 2];
    for (at, frame) in plan {
        wait(at);
        let now = begin.elapsed();
        match frame {
            Some((n, last)) => {
                let pt = if typed { kind(n) } else { REST };
                let pt = pt | u8::from(last) << 7;
                senders[0]
                    .send(&rtp(pt, sequence[0], n * 3000, 5, now, 1100))
                    .unwrap();
                sequence[0] = sequence[0].wrapping_add(1);
            }
            None => {
                let time = u32::from(sequence[1]) * 960;
                senders[1]
                    .send(&rtp(111, sequence[1], time, 9, now, 160))
                    .unwrap();
                sequence[1] = sequence[1].wrapping_add(1);
            }
        }
    }
    wait(Duration::from_secs(SECONDS + 2));
    delays.sort_unstable();
    let count = |pt: u8| {
        let frames = (0..).zip(&whole).filter(|(n, _)| kind(*n) == pt);
        frames.filter(|(n, came)| **came == packets(*n)).count()
    };
    Seen {
        keys: count(KEY),
        layers: count(LAYER),
        rest: count(REST),
        audio: delays,
    }
}

fn rule(name: &str, port: u16, lifetime: &str, priority: u8) -> Value {
    json!({"name": name, "proto": "udp", "dport": port.to_string(), "lifetime": lifetime, "priority": priority})
}

/// An agent, and what attaches it in this mode at so many kbit/s.
fn site(mode: &str, test: impl FnOnce(&Lab, &Netns, &Agent, &dyn Fn(u64)) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        let attach = |rate: u64| {
            agent.attach(json!({"dev": "v0", "mode": mode, "rate": format!("{rate}kbit")}));
        };
        test(lab, peer, &agent, &attach);
    });
}

/// One rule for all video: at 1,000 kbit/s all of it fits, at 700 some two thirds. Cases: kbit/s, audio, ms that a frame
/// is paced over, least whole key frames of 10 and other frames of 590.
fn key_frames_are_whole(mode: &str, cases: &[(u64, bool, u64, usize, usize)]) {
    site(mode, |lab, peer, agent, attach| {
        agent.add(rule("audio", AUDIO, "200ms", 0));
        agent.add(rule("video", VIDEO, "400ms", 4));
        for &(rate, audio, paced, keys, others) in cases {
            attach(rate);
            let seen = show(lab, peer, false, audio, Duration::from_millis(paced));
            let case = format!(
                "{rate} kbit/s, frames over {paced} ms, audio {audio}: {} keys, {} others",
                seen.keys,
                seen.others()
            );
            println!("{case}");
            assert!(seen.keys >= keys && seen.others() >= others, "{case}");
            if audio {
                println!("audio waits {:?}, {:?}", seen.audio(500), seen.audio(990));
                assert_eq!(seen.audio.len(), 1000);
                assert!(
                    seen.audio(999) <= Duration::from_millis(200),
                    "{:?}",
                    seen.audio(999)
                );
            }
        }
    });
}

#[test]
fn qdisc_key_frames_among_equals_are_whole_at_the_cost_of_smaller_frames() {
    key_frames_are_whole(
        "qdisc",
        &[
            (1000, false, 0, 10, 589),
            (900, false, 0, 10, 500),
            (700, false, 0, 9, 350),
            (700, false, 30, 8, 350),
            (700, true, 0, 9, 300),
        ],
    );
}

#[test]
fn tc_key_frames_among_equals_are_whole_at_the_cost_of_smaller_frames() {
    key_frames_are_whole(
        "tc",
        &[
            (1000, false, 0, 10, 589),
            (900, false, 0, 10, 520),
            (700, false, 0, 9, 390),
            (700, false, 30, 7, 390),
            (700, true, 0, 9, 320),
        ],
    );
}

/// Beside it: no link time goes to key frames that take 213 ms of it and are of use for 200.
fn key_frames_too_long_are_refused(mode: &str) {
    site(mode, |lab, peer, agent, attach| {
        agent.add(rule("video", VIDEO, "200ms", 4));
        attach(850);
        let seen = show(lab, peer, false, false, Duration::ZERO);
        println!("{mode}: {} keys, {} others", seen.keys, seen.others());
        assert_eq!(seen.keys, 0);
        assert!(seen.others() >= 500, "{}", seen.others());
    });
}

#[test]
fn qdisc_key_frames_that_cannot_be_in_time_cost_the_others_nothing() {
    key_frames_too_long_are_refused("qdisc");
}

#[test]
fn tc_key_frames_that_cannot_be_in_time_cost_the_others_nothing() {
    key_frames_too_long_are_refused("tc");
}

fn typed(name: &str, pt: u8, lifetime: &str, priority: u8) -> Value {
    let mut rule = rule(name, VIDEO, lifetime, priority);
    rule["rtp_pt"] = pt.to_string().into();
    rule
}

#[track_caller]
fn assert_early(seen: &Seen, case: &str) {
    println!(
        "{case}: {} keys, {} layers, {} others, audio waits {:?}, {:?}, at most {:?}",
        seen.keys,
        seen.layers,
        seen.rest,
        seen.audio(500),
        seen.audio(990),
        seen.audio(999)
    );
    assert_eq!(seen.audio.len(), 1000, "{case}");
    assert!(
        seen.audio(990) <= Duration::from_millis(40),
        "{case}: {:?}",
        seen.audio(990)
    );
}

/// Rules by payload type at 1.2 times the link's rate.
fn audio_is_early_beside_a_rule_per_kind(mode: &str, rest: usize) {
    site(mode, |lab, peer, agent, attach| {
        agent.add(rule("audio", AUDIO, "300ms", 0));
        agent.add(typed("key", KEY, "1s", 1));
        agent.add(typed("layer", LAYER, "500ms", 2));
        agent.add(typed("rest", REST, "500ms", 6));
        attach(900);
        let seen = show(lab, peer, true, true, Duration::ZERO);
        assert_early(&seen, mode);
        assert!(
            seen.keys == 10 && seen.layers >= 186 && seen.rest >= rest,
            "{} keys, {} layers, {} others",
            seen.keys,
            seen.layers,
            seen.rest
        );
    });
}

#[test]
fn qdisc_audio_goes_early_at_no_cost_to_what_is_important() {
    audio_is_early_beside_a_rule_per_kind("qdisc", 286);
}

#[test]
fn tc_audio_goes_early_at_no_cost_to_what_is_important() {
    audio_is_early_beside_a_rule_per_kind("tc", 266);
}

/// One rule for audio, one for video, at 1.1 to 1.5 times the link's rate.
fn audio_is_early_beside_one_rule_for_video(mode: &str) {
    site(mode, |lab, peer, agent, attach| {
        agent.add(rule("audio", AUDIO, "200ms", 0));
        agent.add(rule("video", VIDEO, "400ms", 4));
        for rate in [1000, 700] {
            attach(rate);
            let seen = show(lab, peer, false, true, Duration::ZERO);
            assert_early(&seen, &format!("{mode}, {rate} kbit/s"));
            assert!(seen.keys >= 9, "{}", seen.keys);
        }
    });
}

#[test]
fn qdisc_audio_goes_early_beside_one_rule_for_video() {
    audio_is_early_beside_one_rule_for_video("qdisc");
}

#[test]
fn tc_audio_goes_early_beside_one_rule_for_video() {
    audio_is_early_beside_one_rule_for_video("tc");
}

/// Important, and never too late: it goes first. Beside it: what is not important does not.
fn audio_that_never_expires_goes_by_its_priority(mode: &str) {
    site(mode, |lab, peer, agent, attach| {
        let mut audio = rule("audio", AUDIO, "200ms", 0);
        audio.as_object_mut().unwrap().remove("lifetime");
        agent.add(audio.clone());
        agent.add(rule("video", VIDEO, "400ms", 4));
        attach(700);
        let seen = show(lab, peer, false, true, Duration::ZERO);
        assert_early(&seen, &format!("{mode}, priority 0"));
        agent.ok("DELETE", "/v1/flows/audio", None);
        audio["priority"] = 7.into();
        agent.add(audio);
        let seen = show(lab, peer, false, true, Duration::ZERO);
        println!("{mode}, priority 7: audio waits {:?}", seen.audio(500));
        assert!(seen.audio(500) > Duration::from_millis(100));
    });
}

#[test]
fn qdisc_audio_that_never_expires_goes_by_its_priority() {
    audio_that_never_expires_goes_by_its_priority("qdisc");
}

#[test]
fn tc_audio_that_never_expires_goes_by_its_priority() {
    audio_that_never_expires_goes_by_its_priority("tc");
}

/// Beside it: audio that matters less than the video is what is given up.
fn audio_that_matters_less_is_given_up(mode: &str) {
    site(mode, |lab, peer, agent, attach| {
        agent.add(rule("audio", AUDIO, "200ms", 7));
        agent.add(rule("video", VIDEO, "400ms", 4));
        attach(700);
        let seen = show(lab, peer, false, true, Duration::ZERO);
        let case = format!(
            "{mode}: {} keys, {} others, {} of audio",
            seen.keys,
            seen.others(),
            seen.audio.len()
        );
        println!("{case}");
        assert!(seen.keys >= 8 && seen.others() >= 390, "{case}");
        assert!(seen.audio.len() < 300, "{case}");
    });
}

#[test]
fn qdisc_audio_that_matters_less_than_video_is_given_up() {
    audio_that_matters_less_is_given_up("qdisc");
}

#[test]
fn tc_audio_that_matters_less_than_video_is_given_up() {
    audio_that_matters_less_is_given_up("tc");
}
