//! SRT and RIST through the classifier (`BPF_PROG_TEST_RUN` on the loopback interface): what a repair is worth, and what is
//! neither of them.

use std::{
    cell::Cell,
    thread::sleep,
    time::{Duration, Instant},
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Outcome, Rule},
    classify::{PORT, assert_control, assert_plain},
    clock::{MS, SECOND, now_ns},
    frame::{rtp_with, udp4},
};

/// Longer than any machine is away between two packets of a test, and less than the times of SRT may be off.
const LONG: u64 = 15 * SECOND;
const ID: u32 = 0x1234_5678;
const PRIORITY: u8 = 2;

fn lab(lifetime: u64) -> Lab {
    let lab = Lab::new();
    lab.rules(&[Rule::new()
        .dport(PORT)
        .lifetime(lifetime)
        .priority(PRIORITY)]);
    lab
}

fn words(words: &[u32], bytes: usize) -> Vec<u8> {
    let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    out.resize(bytes, 0x47);
    out
}

fn data(seq: u32, time: u32, id: u32, again: bool) -> Vec<u8> {
    let message = 0xc000_0000 | u32::from(again) << 26 | (seq + 1) & 0x03ff_ffff;
    words(&[seq & 0x7fff_ffff, message, time, id], 1332)
}

/// A listener's last handshake (`extension` 2) or a caller's (1), with a latency that is granted, or proposed.
fn handshake(extension: u32, latency: u32) -> Vec<u8> {
    let mut header = [0; 20];
    (header[0], header[3], header[4]) = (0x8000_0000, ID, 5);
    (header[6], header[7], header[8], header[9]) = (77, 1500, 8192, 0xffff_ffff);
    (header[16], header[17], header[18]) = (extension << 16 | 3, 0x1_0501, 0xbf);
    header[19] = 30 << 16 | latency;
    words(&header, 80)
}

/// An acknowledgement of an acknowledgement.
fn ackack(number: u32, time: u32) -> Vec<u8> {
    words(&[0x8006_0000, number, time, ID, 0], 20)
}

fn run(lab: &Lab, payload: &[u8]) -> Outcome {
    lab.run(&udp4(PORT, payload))
}

#[track_caller]
fn assert_first(out: &Outcome) {
    assert!(out.has(BB_CB_DEADLINE) && !out.has(BB_CB_REPAIR), "{out:?}");
    assert_eq!((out.priority(), out.cb.rtp, out.cb.adu), (PRIORITY, 0, 0));
}

/// It has its original's deadline, to the microsecond in which SRT counts.
#[track_caller]
fn assert_repair(out: &Outcome, original: &Outcome) {
    assert!(out.has(BB_CB_REPAIR | BB_CB_DEADLINE), "{out:?}");
    assert_eq!((out.priority(), out.cb.adu), (7, 0));
    assert!(
        out.deadline().abs_diff(original.deadline()) <= 1000,
        "{out:?} {original:?}"
    );
}

/// Nobody took it for SRT.
#[track_caller]
fn assert_unread(lab: &Lab, lifetime: u64, payload: &[u8]) {
    let before = now_ns();
    let out = run(lab, payload);
    assert_first(&out);
    assert!((before + lifetime..=now_ns() + lifetime).contains(&out.deadline()));
}

/// A sender whose packets count up.
#[derive(Default)]
struct Sender {
    seq: Cell<u32>,
}

impl Sender {
    fn next(&self) -> u32 {
        self.seq.set(self.seq.get() + 1);
        self.seq.get()
    }

    /// Its packets of a second and a half, at once or nearly, from mid-stream; whether the last was read as SRT.
    fn plays(&self, lab: &Lab, id: impl Fn(u32) -> u32) -> bool {
        let began = Instant::now();
        for _ in 0..30 {
            let seq = self.next();
            let time = began.elapsed().as_micros() as u32;
            let _ = run(lab, &data(seq, time, id(seq), false));
            sleep(Duration::from_millis(10));
        }
        let seq = self.seq.get();
        run(lab, &data(seq, 0, id(seq), true)).has(BB_CB_REPAIR)
    }
}

#[test]
fn srt_repair_has_the_deadline_of_its_original() {
    let lab = lab(LONG);
    assert_control(&lab, "handshake", &run(&lab, &handshake(1, 400)));
    // The timestamps wrap on the way; the first packet is the one that was least late.
    let times: Vec<u32> = (0..5).map(|n| 0xffff_fffd_u32.wrapping_add(n)).collect();
    let originals: Vec<Outcome> = (0..5)
        .map(|n| run(&lab, &data(n, times[n as usize], ID, false)))
        .collect();
    sleep(Duration::from_millis(20));
    for n in [3usize, 0, 4, 4, 1] {
        assert_first(&originals[n]);
        let again = run(&lab, &data(n as u32, times[n], ID, true));
        assert_repair(&again, &originals[n]);
    }
    // What follows is media, whatever came between.
    assert_first(&run(&lab, &data(5, 2, ID, false)));
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
}

#[test]
fn srt_repair_of_what_is_over_is_stale() {
    let lab = lab(5 * MS);
    run(&lab, &handshake(1, 400));
    assert_first(&run(&lab, &data(1, 1000, ID, false)));
    let stale = lab.global(BB_G_PAST_DEADLINE);
    sleep(Duration::from_millis(6));
    let late = run(&lab, &data(1, 1000, ID, true));
    assert!(late.has(BB_CB_REPAIR | BB_CB_DEADLINE) && late.priority() == 7);
    assert_eq!(lab.global(BB_G_PAST_DEADLINE), stale + 1);
}

#[test]
fn srt_is_read_in_mid_stream_and_only_if_it_is_srt() {
    for what in ["srt", "ids", "numbers"] {
        let lab = lab(LONG);
        let sender = Sender::default();
        let read = match what {
            "srt" => sender.plays(&lab, |_| ID),
            // A word in the place of the id that each packet has another of.
            "ids" => sender.plays(&lab, |seq| ID + seq),
            // Each number twice.
            _ => {
                let began = Instant::now();
                for n in 0..40 {
                    let time = began.elapsed().as_micros() as u32;
                    assert_unread(&lab, LONG, &data(n / 2, time, ID, false));
                    sleep(Duration::from_millis(5));
                }
                run(&lab, &data(1, 0, ID, true)).has(BB_CB_REPAIR)
            }
        };
        assert_eq!(read, what == "srt", "{what}");
        if what != "srt" {
            assert_unread(&lab, LONG, &data(1, 0, ID, true));
        }
    }
}

#[test]
fn srt_that_contradicts_itself_is_srt_no_more() {
    let lab = lab(LONG);
    run(&lab, &handshake(1, 400));
    for n in 0..20 {
        // A minute off, each one further: no clock goes like that.
        assert_unread(&lab, LONG, &data(n, n * 60_000_000, ID, false));
    }
    assert_unread(&lab, LONG, &data(1, 1, ID, true));
}

#[test]
fn control_of_srt_is_signalling_once_it_is_known() {
    let lab = lab(LONG);
    // Of a flow that is not known to be SRT's it is RTP of payload type 6, as ever.
    assert_eq!(run(&lab, &ackack(1, 1)).cb.rtp, 0x86);
    run(&lab, &handshake(1, 400));
    for (n, kind) in [
        0x8001_0000,
        0x8002_0000,
        0x8003_0000,
        0x8006_0000,
        0xffff_0003,
    ]
    .iter()
    .enumerate()
    {
        let out = run(&lab, &words(&[*kind, 1, n as u32, ID, 0], 20));
        assert_control(&lab, &format!("{kind:x}"), &out);
        assert_eq!(out.cb.rtp, 0, "{kind:x}");
        assert_eq!(lab.session(out.cb.session).key.media, 1);
    }
    // PCMU beside it on another port: RTP, though its number is 0.
    lab.rules(&[Rule::new().lifetime(LONG).priority(PRIORITY)]);
    for n in 0..3 {
        let out = lab.run(&udp4(PORT + 2, &rtp_with(0, n, 5, 160 * u32::from(n))));
        assert_eq!(out.cb.rtp, 0x80, "{n}");
        assert!(out.has(BB_CB_ADU));
    }
}

#[test]
fn control_alone_shows_srt_too() {
    let lab = lab(LONG);
    let began = Instant::now();
    for n in 0..40 {
        let _ = run(&lab, &ackack(n, began.elapsed().as_micros() as u32));
        sleep(Duration::from_millis(5));
    }
    assert_control(&lab, "ackack", &run(&lab, &ackack(40, 200_000)));
}

#[test]
fn srt_without_a_rule_is_plain() {
    let lab = Lab::new();
    run(&lab, &handshake(1, 400));
    for n in 0..3 {
        assert_plain(&lab, "data", &run(&lab, &data(n, n, ID, n == 2)));
    }
}

#[test]
fn latency_that_a_listener_granted_is_the_lifetime_if_it_is_shorter() {
    for (extension, granted, lifetime) in [
        (2, 400, 400 * MS),
        // It is only proposed; it is longer.
        (1, 400, LONG),
        (2, 20_000, LONG),
    ] {
        let lab = lab(LONG);
        run(&lab, &handshake(extension, granted));
        assert_unread(&lab, lifetime, &data(1, 1, ID, false));
    }
    // Of a rule that says none.
    let lab = Lab::new();
    lab.rules(&[Rule::new().dport(PORT).priority(PRIORITY)]);
    run(&lab, &handshake(2, 400));
    assert_unread(&lab, 400 * MS, &data(1, 1, ID, false));
}

#[test]
fn delay_of_the_path_takes_nothing_off_srts_lifetime() {
    const OWD: u64 = 70 * MS;
    let rule = Rule::new().dport(PORT).lifetime(LONG).priority(PRIORITY);
    let lab = Lab::new();
    lab.rules(&[rule.owd(OWD)]);
    // The queue takes it off the deadline: of SRT it is added before.
    assert_unread(&lab, LONG, &data(9, 1, ID, false));
    run(&lab, &handshake(1, 400));
    assert_unread(&lab, LONG + OWD, &data(1, 1, ID, false));
    let out = run(&lab, &data(2, 2, ID, false));
    assert_eq!(lab.session(out.cb.session).owd_ns, OWD);
}

/// RTP of MPEG-TS.
fn ts(ssrc: u32, seq: u16, time: u32) -> Vec<u8> {
    rtp_with(33, seq, ssrc, time)
}

#[test]
fn rist_resend_is_a_repair_of_the_ssrc_below() {
    let lab = lab(LONG);
    let originals: Vec<Outcome> = (0..40)
        .map(|n| run(&lab, &ts(0x1000, n, 900 * u32::from(n))))
        .collect();
    sleep(Duration::from_millis(15));
    // Three of them teach it.
    let again = |n: u16| run(&lab, &ts(0x1001, n, 900 * u32::from(n)));
    let first: Vec<bool> = [2, 5, 6].map(|n| again(n).has(BB_CB_REPAIR)).into();
    assert_eq!(first, [false, false, true]);
    for n in [9u16, 30, 11, 2, 2] {
        assert_repair(&again(n), &originals[usize::from(n)]);
    }
    // What is forgotten is stale, however often it comes.
    run(&lab, &ts(0x1000, 40, 90_000_000));
    for n in 0..20u32 {
        let stale = lab.global(BB_G_PAST_DEADLINE);
        let out = run(&lab, &ts(0x1001, 40, 90_000_000 - 90_000 - n));
        assert!(out.has(BB_CB_REPAIR) && out.priority() == 7, "{n}: {out:?}");
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), stale + 1);
    }
}

#[test]
fn neighbours_of_an_ssrc_are_no_repairs() {
    // Simulcast: the same timestamps, 15 ms later, with numbers of its own; another payload type's; an even SSRC.
    for (ssrc, from) in [(0x1001, 9000), (0x1001, 40), (0x1003, 0), (0x1002, 0)] {
        let lab = lab(LONG);
        for n in 0..6u16 {
            let time = 3000 * u32::from(n);
            for packet in 0..2 {
                run(&lab, &ts(0x1000, 2 * n + packet, time));
            }
            sleep(Duration::from_millis(15));
            let out = run(&lab, &ts(ssrc, from + n, time));
            assert!(
                out.has(BB_CB_ADU) && out.priority() == PRIORITY,
                "{ssrc:x}: {out:?}"
            );
        }
    }
}

fn main_profile(first: u32, inner: &[u8]) -> Vec<u8> {
    let mut out = first.to_be_bytes().to_vec();
    out.extend([0x07, 0xb3, 0x07, 0xb0]);
    out.extend(inner);
    out
}

#[test]
fn rist_main_profile_is_rtp_8_bytes_further_in() {
    const REDUCED: u32 = 0x88b6;
    let lab = lab(LONG);
    let send = |ssrc, n: u16| {
        run(
            &lab,
            &main_profile(REDUCED, &ts(ssrc, n, 900 * u32::from(n))),
        )
    };
    let originals: Vec<Outcome> = (0..10).map(|n| send(0x1000, n)).collect();
    for out in &originals {
        assert!(out.has(BB_CB_ADU) && out.cb.rtp == 0x80 | 33, "{out:?}");
    }
    sleep(Duration::from_millis(15));
    for n in [0, 1] {
        let _ = send(0x1001, n);
    }
    for n in [2u16, 3, 7] {
        assert_repair(&send(0x1001, n), &originals[usize::from(n)]);
    }
    let report = [&[0x80, 200, 0, 6][..], &[0; 24]].concat();
    assert_control(&lab, "report", &run(&lab, &main_profile(REDUCED, &report)));
    assert_control(
        &lab,
        "keep-alive",
        &run(&lab, &main_profile(0x88b5, &[0; 12])),
    );
    // With a key, with other contents, with another protocol, or with nothing in it.
    let packet = ts(0x1000, 50, 1);
    for other in [
        main_profile(0x2000_88b6, &packet),
        main_profile(REDUCED, &[0x47; 188]),
        main_profile(0x0800, &packet),
        main_profile(REDUCED, &[0x80; 7]),
    ] {
        let out = run(&lab, &other);
        assert_first(&out);
    }
}

#[test]
fn rist_main_profile_matches_a_rule_by_payload_type() {
    let lab = Lab::new();
    let rule = Rule::new().dport(PORT).lifetime(LONG).priority(PRIORITY);
    lab.rules(&[rule.payload_type(33)]);
    lab.configure(|config| config.flags |= BB_CONFIG_RTP_RULES);
    let out = run(&lab, &main_profile(0x88b6, &ts(0x1000, 1, 1)));
    assert!(out.has(BB_CB_ADU) && out.cb.rule == 1, "{out:?}");
    let out = run(&lab, &main_profile(0x88b6, &rtp_with(96, 1, 0x1000, 1)));
    assert_eq!(out.cb.rule, 0);
}

#[test]
fn resend_whose_frame_is_forgotten_is_stale_and_a_stream_begins_again() {
    let lab = lab(600 * MS);
    let send = |seq: u16, time| run(&lab, &rtp_with(96, seq, 1, time));
    for n in 0..200u16 {
        let _ = send(n, 3000 * u32::from(n));
    }
    sleep(Duration::from_millis(1250));
    let _ = send(200, 600_000 + 90_000);
    for n in 0..30u16 {
        let out = send(100 + n, 3000 * (100 + u32::from(n)));
        assert!(out.has(BB_CB_REPAIR) && out.priority() == 7, "{n}: {out:?}");
    }
    let media = |out: Outcome| out.has(BB_CB_ADU) && out.priority() == PRIORITY;
    assert!(media(send(201, 693_000)));
    // It plays from the beginning again: with other times, or for longer than anybody resends.
    assert!(media(send(50, 4_000_000_000)));
    for n in 0..100 {
        let _ = send(51 + n, 4_000_000_000 + 3000 * u32::from(n + 1));
    }
    let replay: Vec<bool> = (0..80u16)
        .map(|n| media(send(20 + n, 3_999_990_000 + 3000 * u32::from(n) / 40)))
        .collect();
    assert!(replay[79], "{replay:?}");
}
