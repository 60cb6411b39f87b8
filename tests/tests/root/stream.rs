//! Whose packet is this: streams of one 5-tuple, frames, retransmissions, and what only looks
//! like them (`BPF_PROG_TEST_RUN` on the loopback interface).

use std::{thread::sleep, time::Duration};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Outcome, PASS, Rule, SHOT, iface},
    classify::{PORT, assert_plain},
    clock::{MS, SECOND, now_ns},
    frame::{rtp_with, udp4},
};
use libbpf_rs::{MapCore as _, MapFlags};
use zerocopy::IntoBytes as _;

const VIDEO: u8 = 96;
const RTX: u8 = 97;
const AUDIO: u8 = 111;
/// Longer than any machine is away between two packets of a test.
const LONG: u64 = 100 * SECOND;

fn lab(lifetime: u64) -> Lab {
    let lab = Lab::new();
    lab.rules(&[Rule::new().dport(PORT).lifetime(lifetime).priority(2)]);
    lab
}

/// A sender on one SSRC, which counts its packets.
struct Sender {
    payload_type: u8,
    ssrc: u32,
    seq: u16,
}

impl Sender {
    fn new(payload_type: u8, ssrc: u32) -> Self {
        let seq = 65_530; // wraps soon
        Self {
            payload_type,
            ssrc,
            seq,
        }
    }

    fn packet(&self, back: u16, timestamp: u32) -> Vec<u8> {
        let seq = self.seq.wrapping_sub(back);
        rtp_with(self.payload_type, seq, self.ssrc, timestamp)
    }

    /// The next packet.
    fn send(&mut self, lab: &Lab, timestamp: u32) -> Outcome {
        self.seq = self.seq.wrapping_add(1);
        lab.run(&udp4(PORT, &self.packet(0, timestamp)))
    }

    /// A packet that was sent `back` packets ago.
    fn resend(&self, lab: &Lab, back: u16, timestamp: u32) -> Outcome {
        lab.run(&udp4(PORT, &self.packet(back, timestamp)))
    }

    /// A frame of two packets, and the second one.
    fn frame(&mut self, lab: &Lab, timestamp: u32) -> Outcome {
        let first = self.send(lab, timestamp);
        let second = self.send(lab, timestamp);
        assert_eq!(name(&first), name(&second));
        second
    }
}

fn name(out: &Outcome) -> (u32, u64) {
    (out.cb.adu, out.deadline())
}

#[track_caller]
fn assert_frame(out: &Outcome) {
    assert!(out.has(BB_CB_ADU | BB_CB_DEADLINE), "{out:?}");
    assert!(!out.has(BB_CB_REPAIR), "{out:?}");
    assert_eq!(out.priority(), 2);
}

/// It repeats a packet of `original`'s ADU.
#[track_caller]
fn assert_repair(out: &Outcome, original: &Outcome) {
    assert!(out.has(BB_CB_REPAIR | BB_CB_DEADLINE), "{out:?}");
    assert!(!out.has(BB_CB_ADU), "{out:?}");
    assert_eq!((out.priority(), out.cb.adu), (7, 0));
    assert_eq!(out.deadline(), original.deadline());
}

/// It has a lifetime of its own.
#[track_caller]
fn assert_alone(lab: &Lab, lifetime: u64, send: impl FnOnce(&Lab) -> Outcome) {
    let before = now_ns();
    let out = send(lab);
    let after = now_ns();
    assert!(!out.has(BB_CB_ADU) && !out.has(BB_CB_REPAIR), "{out:?}");
    assert_eq!((out.cb.adu, out.priority()), (0, 2));
    assert!((before + lifetime..=after + lifetime).contains(&out.deadline()));
}

fn pause() {
    sleep(Duration::from_millis(15));
}

#[test]
fn frames_of_150_streams_of_one_5_tuple_stay_whole() {
    let lab = lab(LONG);
    let mut senders: Vec<Sender> = (0..150).map(|i| Sender::new(VIDEO, 1000 + i)).collect();
    let mut names = Vec::new();
    for frame in 0..4 {
        // The streams' packets come in turn, as from an SFU that forwards what it gets.
        let mut rounds = [(); 3].map(|()| Vec::new());
        for round in &mut rounds {
            // Timestamps of their own, or all the same.
            round.extend(senders.iter_mut().map(|s| {
                let timestamp = if s.ssrc % 2 == 0 { s.ssrc << 16 } else { 0 };
                s.send(&lab, timestamp + 3000 * frame)
            }));
        }
        for (index, first) in rounds[0].iter().enumerate() {
            assert_frame(first);
            assert_eq!(first.cb.rtp, 0x80 | VIDEO);
            for round in &rounds {
                assert_eq!(name(&round[index]), name(first), "stream {index}");
            }
            names.push(first.cb.adu);
        }
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "two frames share a name");
    assert_eq!(lab.global(BB_G_STREAMS_FULL), 0);
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
}

#[test]
fn payload_types_of_one_ssrc_are_streams_of_their_own() {
    let lab = lab(LONG);
    let (mut voice, mut tone) = (Sender::new(AUDIO, 1), Sender::new(101, 1));
    let first = tone.send(&lab, 8000);
    for packet in 0..5 {
        assert_frame(&voice.send(&lab, 8000 + 960 * packet));
    }
    // Not a retransmission of the voice, though the timestamp is the same.
    let second = tone.send(&lab, 8000);
    assert_eq!(name(&first), name(&second));
    for tone_at in [8960, 9920, 10_880, 11_840] {
        pause();
        assert_frame(&tone.send(&lab, tone_at));
    }
}

#[test]
fn b_frames_with_earlier_timestamps_are_new_frames() {
    let lab = lab(LONG);
    let mut video = Sender::new(VIDEO, 1);
    let frames = [0, 9000, 3000, 6000, 18_000, 12_000, 15_000].map(|t| video.frame(&lab, t));
    for (index, frame) in frames.iter().enumerate() {
        assert_frame(frame);
        for earlier in &frames[..index] {
            assert!(frame.deadline() > earlier.deadline() && frame.cb.adu != earlier.cb.adu);
        }
    }
}

#[test]
fn retransmission_of_a_declared_type_has_the_original_deadline() {
    let lab = lab(LONG);
    let rule = Rule::new().dport(PORT).lifetime(LONG).priority(2);
    lab.rules(&[rule.rtx(RTX, Some(VIDEO)).rtx(100, None)]);
    let (mut video, mut repairs) = (Sender::new(VIDEO, 1), Sender::new(RTX, 2));
    let mut of_any = Sender::new(100, 3);
    let mut screen = Sender::new(98, 4);
    let frames: Vec<Outcome> = (0..8).map(|i| video.frame(&lab, 3000 * i)).collect();
    let other = screen.frame(&lab, 777);
    for i in [2, 0, 7, 7, 5] {
        let out = repairs.send(&lab, 3000 * i);
        assert_repair(&out, &frames[i as usize]);
        assert_eq!(out.cb.rtp, 0x80 | RTX);
    }
    assert_repair(&of_any.send(&lab, 3000), &frames[1]);
    assert_repair(&of_any.send(&lab, 777), &other);
    // Of another type than the declared one, or never seen: stale, whatever it repeats.
    for unknown in [777, 424_242] {
        let count = lab.global(BB_G_PAST_DEADLINE);
        let out = repairs.send(&lab, unknown);
        assert!(out.has(BB_CB_REPAIR | BB_CB_DEADLINE) && !out.has(BB_CB_ADU));
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), count + 1);
    }
    // The media are no repairs.
    assert_frame(&video.frame(&lab, 24_000));
    assert_frame(&screen.frame(&lab, 3000));
}

#[test]
fn retransmission_stream_is_learnt_and_unlearnt() {
    let lab = lab(LONG);
    let (mut video, mut repairs) = (Sender::new(VIDEO, 1), Sender::new(RTX, 2));
    let frames: Vec<Outcome> = (0..9).map(|i| video.frame(&lab, 3000 * i)).collect();
    pause();
    for i in [0, 1] {
        assert_frame(&repairs.send(&lab, 3000 * i));
    }
    for i in 2..9 {
        assert_repair(&repairs.send(&lab, 3000 * i), &frames[i as usize]);
    }
    // Two packets of one frame, later.
    assert_repair(&repairs.send(&lab, 3000), &frames[1]);
    assert_repair(&repairs.send(&lab, 3000), &frames[1]);
    // An SFU probes with what is long forgotten: still a repair. One that goes on with
    // timestamps of its own is a stream like any other.
    let own: Vec<bool> = (0..12)
        .map(|i| repairs.send(&lab, 1_000_000 + 3000 * i).has(BB_CB_REPAIR))
        .collect();
    assert!(own[0] && !own[11], "{own:?}");
}

#[test]
fn parallel_streams_are_not_taken_for_retransmissions() {
    let lab = lab(LONG);
    // Simulcast: one type, the same timestamps, one after the other.
    let mut layers = [1, 2, 3].map(|ssrc| Sender::new(VIDEO, ssrc));
    for frame in 0..6 {
        for layer in &mut layers {
            pause();
            assert_frame(&layer.frame(&lab, 3000 * frame));
        }
    }
    // Types of their own, and clocks of their own that meet now and then.
    let (mut voice, mut video) = (Sender::new(AUDIO, 4), Sender::new(98, 5));
    for tick in 0..25 {
        assert_frame(&voice.send(&lab, 500_000 + 960 * tick));
    }
    pause();
    for frame in 0..8 {
        assert_frame(&video.frame(&lab, 500_000 + 3000 * frame));
    }
}

#[test]
fn resend_on_the_media_ssrc_has_the_original_deadline() {
    let lab = lab(LONG);
    let mut video = Sender::new(VIDEO, 1);
    let frames: Vec<Outcome> = (0..6).map(|i| video.frame(&lab, 3000 * i)).collect();
    pause();
    // The newest frame but two, but one, and the newest: two packets each.
    for (back, frame) in [(4, 3), (5, 3), (3, 4), (2, 4), (1, 5), (0, 5)] {
        let out = video.resend(&lab, back, 3000 * frame);
        assert_repair(&out, &frames[frame as usize]);
    }
    let next = video.frame(&lab, 18_000);
    assert_frame(&next);
    // Overtaken by the next frame at once: a packet of its own frame still.
    let late = video.resend(&lab, 2, 15_000);
    if late.has(BB_CB_ADU) {
        assert_eq!(name(&late), name(&frames[5]));
    } else {
        assert_repair(&late, &frames[5]); // this machine was away for 10 ms
    }
}

#[test]
fn refused_retransmission_does_not_refuse_another() {
    let lab = Lab::bare();
    let mut tc = iface(LO, BB_MODE_TC);
    // A packet takes 55 ms.
    tc.rate = 3_125;
    lab.iface(0, &tc);
    let lifetime = 400 * MS;
    let rule = Rule::new().dport(PORT).lifetime(lifetime).priority(2);
    lab.rules(&[rule.rtx(RTX, Some(VIDEO))]);
    let (mut video, mut repairs) = (Sender::new(VIDEO, 1), Sender::new(RTX, 2));
    assert_eq!(video.send(&lab, 0).verdict, PASS);
    assert_eq!(repairs.send(&lab, 0).verdict, PASS);
    sleep(Duration::from_millis(500));
    assert_eq!(repairs.send(&lab, 0).verdict, PASS, "nothing fresh waits");
    assert_eq!(video.send(&lab, 3000).verdict, PASS);
    assert_eq!(repairs.send(&lab, 0).verdict, SHOT, "it is stale");
    let alive = repairs.send(&lab, 3000);
    assert_eq!(alive.verdict, PASS, "refused because another was");
}

/// RFC 4733: one timestamp for the whole tone, and the end three times.
#[test]
fn tone_longer_than_its_lifetime_loses_no_end_packet() {
    let lifetime = 200 * MS;
    let lab = lab(lifetime);
    let mut tone = Sender::new(101, 1);
    for _ in 0..2 {
        let timestamp = u32::from(tone.seq) << 8;
        for _ in 0..5 {
            tone.send(&lab, timestamp);
            sleep(Duration::from_millis(50));
        }
        // After 250 ms.
        for _ in 0..3 {
            assert_alone(&lab, lifetime, |lab| tone.send(lab, timestamp));
        }
    }
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
}

#[test]
fn constant_rtp_like_packets_are_never_stale() {
    let lifetime = 20 * MS;
    let lab = lab(lifetime);
    let constant = udp4(PORT, &rtp_with(0, 0, 7, 7));
    let first = lab.run(&constant);
    assert_frame(&first);
    sleep(Duration::from_millis(21));
    for _ in 0..50 {
        assert_alone(&lab, lifetime, |lab| lab.run(&constant));
        sleep(Duration::from_millis(2));
    }
    // Two kinds of message in turn.
    let other = udp4(PORT, &rtp_with(0, 0, 7, 8));
    assert_frame(&lab.run(&other));
    sleep(Duration::from_millis(21));
    for _ in 0..50 {
        assert_alone(&lab, lifetime, |lab| lab.run(&constant));
        assert_alone(&lab, lifetime, |lab| lab.run(&other));
    }
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
    // A frame again, as soon as the timestamp changes.
    let next = lab.run(&udp4(PORT, &rtp_with(0, 0, 7, 9)));
    assert_frame(&next);
    assert_ne!(next.cb.adu, first.cb.adu);
}

#[test]
fn packet_of_padding_only_is_no_adu() {
    let lab = lab(LONG);
    let mut video = Sender::new(VIDEO, 1);
    let frame = video.frame(&lab, 0);
    let header = video.packet(0, 0)[..12].to_vec();
    let padded = |header: &[u8], payload: usize, padding: u8| {
        let mut out = header.to_vec();
        out[0] |= 0x20;
        out.resize(header.len() + payload, 0);
        let last = out.len() - 1;
        out[last] = padding;
        udp4(PORT, &out)
    };
    // With a contributing source and an extension of two words, too.
    let mut long = header.clone();
    long[0] |= 0x11;
    long.extend([0; 4]);
    long.extend([0xbe, 0xde, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
    for start in [&header, &long] {
        for size in [1, 4, 255] {
            let probe = padded(start, usize::from(size), size);
            assert_alone(&lab, LONG, |lab| lab.run(&probe));
        }
        for (payload, padding) in [(255, 254), (256, 255), (8, 0), (8, 9)] {
            let out = lab.run(&padded(start, payload, padding));
            assert_eq!(name(&out), name(&frame), "{padding} of {payload} bytes");
        }
    }
    assert_eq!(name(&video.send(&lab, 0)), name(&frame));
}

#[test]
fn restarted_stream_does_not_join_its_old_frames() {
    let lab = lab(200 * MS);
    let mut names = Vec::new();
    for _ in 0..2 {
        let mut video = Sender::new(VIDEO, 1);
        for frame in 0..5 {
            let out = video.frame(&lab, 3000 * frame);
            assert_frame(&out);
            names.push(out.cb.adu);
        }
        // A file played in a loop, which goes on counting.
        for frame in 0..5 {
            let out = video.frame(&lab, 3000 * frame);
            assert_frame(&out);
            names.push(out.cb.adu);
        }
        sleep(Duration::from_millis(1010));
    }
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "an old name came again");
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
}

#[test]
fn rule_with_frames_none_gives_each_packet_a_lifetime() {
    let lab = lab(LONG);
    let rule = Rule::new().dport(PORT).lifetime(LONG).priority(2);
    lab.rules(&[rule.no_frames().rtx(RTX, None)]);
    let (mut video, mut repairs) = (Sender::new(VIDEO, 1), Sender::new(RTX, 2));
    assert_alone(&lab, LONG, |lab| video.send(lab, 0));
    let before = now_ns();
    assert_alone(&lab, LONG, |lab| video.send(lab, 0));
    let repair = repairs.send(&lab, 0);
    assert!(repair.has(BB_CB_REPAIR) && repair.deadline() < before + LONG);
}

#[test]
fn rules_by_type_and_ssrc_separate_streams_of_one_5_tuple() {
    let lab = Lab::new();
    let port = Rule::new().dport(PORT);
    let rules = [
        port.payload_type(AUDIO).lifetime(200 * MS).priority(0),
        port.ssrc(5).lifetime(300 * MS).priority(1),
        port.payload_type(VIDEO).lifetime(400 * MS).priority(4),
    ];
    lab.configure(|c| c.flags |= BB_CONFIG_RTP_RULES);
    lab.rules(&rules);
    let mut voice = Sender::new(AUDIO, 1);
    let mut video = [2, 5].map(|ssrc| Sender::new(VIDEO, ssrc));
    let mut other = Sender::new(98, 3);
    for round in 0..3 {
        let timestamp = 3000 * round;
        let before = now_ns();
        let outs = [
            voice.send(&lab, timestamp),
            video[0].send(&lab, timestamp),
            video[1].send(&lab, timestamp),
        ];
        let after = now_ns();
        for (out, (rule, lifetime)) in outs.iter().zip([(1, 200), (3, 400), (2, 300)]) {
            assert_eq!(out.cb.rule, rule);
            let deadline = out.deadline() - lifetime * MS;
            assert!((before..=after).contains(&deadline), "rule {rule}");
        }
        assert_eq!(outs.map(|out| out.priority()), [0, 4, 1]);
        let out = other.send(&lab, timestamp);
        assert_plain(&lab, "another type", &out);
        assert_eq!(out.cb.rtp, 0x80 | 98);
        let out = lab.run(&udp4(PORT, b"not RTP, but long"));
        assert_plain(&lab, "not RTP", &out);
        assert_eq!(out.cb.rtp, 0);
    }
    // New rules count for streams that are known already; the frames go on.
    let frame = voice.send(&lab, 9000);
    lab.rules(&[rules[2], port.lifetime(500 * MS).priority(5)]);
    let out = voice.send(&lab, 9000);
    assert_eq!((out.cb.rule, out.priority()), (2, 5));
    assert_eq!(out.cb.adu, frame.cb.adu);
    assert_eq!(out.deadline(), frame.deadline() + 300 * MS);
    assert_eq!(video[0].send(&lab, 9000).cb.rule, 1);
    lab.rules(&[]);
    assert_plain(&lab, "no rule", &voice.send(&lab, 9000));
}

#[test]
fn streams_beyond_the_table_have_no_frames_and_are_counted() {
    let lab = lab(LONG);
    let map = lab.map("bb_streams");
    let set_all = |tag: u32| {
        let way = bb_stream {
            way: bb_way {
                tag,
                ..Default::default()
            },
            ..Default::default()
        };
        for index in 0..BB_MAX_STREAMS {
            map.update(&index.to_ne_bytes(), way.as_bytes(), MapFlags::ANY)
                .unwrap();
        }
    };
    // BB_WAY_CLAIMED: other CPUs are about to give it to somebody.
    set_all(2);
    let mut video = Sender::new(VIDEO, 1);
    for packets in 1..4 {
        assert_alone(&lab, LONG, |lab| video.send(lab, 3000));
        assert_eq!(lab.global(BB_G_STREAMS_FULL), packets);
    }
    // A rule of streams looks for the stream, too: that is one packet more, not two.
    lab.configure(|c| c.flags |= BB_CONFIG_RTP_RULES);
    let rule = Rule::new().dport(PORT).lifetime(LONG).priority(2);
    lab.rules(&[rule.payload_type(AUDIO), rule]);
    assert_alone(&lab, LONG, |lab| video.send(lab, 3000));
    assert_eq!(lab.global(BB_G_STREAMS_FULL), 4);
    // BB_WAY_FREE: the same stream has frames.
    set_all(0);
    assert_frame(&video.frame(&lab, 6000));
    assert_eq!(lab.global(BB_G_STREAMS_FULL), 4);
}

#[test]
fn new_streams_take_the_entries_of_idle_ones() {
    let lab = lab(LONG);
    let mut busy = Sender::new(VIDEO, 1);
    let its = busy.frame(&lab, 0).cb.adu >> 16;
    for i in 0..2 * BB_MAX_STREAMS {
        assert_frame(&Sender::new(VIDEO, 1000 + i).send(&lab, 0));
        if i % 500 == 0 {
            let frame = busy.frame(&lab, 3000 * (1 + i));
            assert_frame(&frame);
            assert_eq!(frame.cb.adu >> 16, its, "after {i} new streams");
        }
    }
    assert_eq!(lab.global(BB_G_STREAMS_FULL), 0);
}
