//! Streams as real senders make them, from bytes to rules.

use bestby_api::{Carried, FlowName, RtpProfile, SrtLatency};
use proptest::prelude::*;

use super::anchor::anchors;
use super::flow::Found;
use super::packet::tests::udp4;
use super::report::{Stream, rows};
use super::suggest::suggest;
use super::watch::{FLOWS, Table};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Packets that leave.
#[derive(Default)]
struct Wire(Vec<(u64, Vec<u8>)>);

impl Wire {
    fn send(&mut self, ms: u64, sport: u16, dport: u16, payload: &[u8]) {
        self.0.push((ms * MS, udp4(sport, dport, payload)));
    }

    /// The findings after two seconds.
    fn found(mut self) -> Vec<Found> {
        self.0.sort_by_key(|(at, _)| *at);
        let mut table = Table::default();
        for (at, packet) in &self.0 {
            table.take(&packet[..packet.len().min(256)], false, *at);
        }
        table.found(2 * SECOND, RtpProfile::default())
    }

    /// 20 ms of Opus each.
    fn audio(&mut self, sport: u16, dport: u16, ssrc: u32) {
        for n in 0..100_u32 {
            let packet = rtp(111, n == 0, n as u16, n * 960, ssrc, 80);
            self.send(u64::from(n) * 20, sport, dport, &packet);
        }
    }

    /// 30 pictures a second, of four packets each.
    fn video(&mut self, sport: u16, dport: u16, ssrc: u32) {
        for n in 0..60_u32 {
            for part in 0..4 {
                let seq = (n * 4 + part + 65_500) as u16;
                let packet = rtp(96, part == 3, seq, n * 3000, ssrc, 1100);
                self.send(u64::from(n) * 33, sport, dport, &packet);
            }
        }
    }
}

fn rtp(pt: u8, marker: bool, seq: u16, timestamp: u32, ssrc: u32, bytes: usize) -> Vec<u8> {
    let mut out = vec![0x80, pt | u8::from(marker) << 7];
    out.extend(seq.to_be_bytes());
    out.extend(timestamp.to_be_bytes());
    out.extend(ssrc.to_be_bytes());
    out.resize(12 + bytes, 0xa5);
    out
}

fn stun() -> Vec<u8> {
    let mut out = vec![0, 1, 0, 8, 0x21, 0x12, 0xa4, 0x42];
    out.resize(28, 7);
    out
}

/// Kinds, payload types and packets.
fn kinds(found: &[Found]) -> Vec<(Carried, String, u64)> {
    let types = |f: &Found| f.types.map(|t| t.to_string()).unwrap_or_default();
    let all = found.iter();
    all.map(|f| (f.kind, types(f), f.all.packets)).collect()
}

/// Rules for all of it, as commands, and notes.
fn rules(found: Vec<Found>, taken: &[&str]) -> (Vec<String>, Vec<String>, Vec<String>) {
    let anchors = anchors(&found);
    let streams: Vec<Stream> = found
        .into_iter()
        .zip(anchors)
        .map(|(found, anchor)| Stream {
            found,
            anchor,
            rule: None,
        })
        .collect();
    let taken: Vec<FlowName> = taken.iter().map(|n| n.parse().unwrap()).collect();
    let (rules, notes) = suggest(&streams, &taken);
    let commands = rules
        .iter()
        .map(|r| r.flow.command().replace("bestby flow add ", ""));
    let reasons = rules.iter().map(|r| r.reason.clone());
    (commands.collect(), reasons.collect(), notes)
}

#[test]
fn audio_and_video_of_one_port_are_told_apart_by_shape() {
    let mut wire = Wire::default();
    for receiver in 0..3 {
        let port = 50_000 + receiver;
        wire.audio(7882, port, 0x1000 + u32::from(receiver));
        wire.video(7882, port, 0x2000 + u32::from(receiver));
        wire.send(5, 7882, port, &stun());
        wire.send(6, 7882, port, &[0x80, 200, 0, 1, 0, 0, 0, 0]);
    }
    let found = wire.found();
    assert_eq!(
        kinds(&found)[..4],
        [
            (Carried::Audio, "111".to_string(), 100),
            (Carried::Video, "96".to_string(), 240),
            (Carried::Rtcp, String::new(), 1),
            (Carried::Stun, String::new(), 1),
        ]
    );
    assert_eq!(
        (found[0].clock_hz, found[1].clock_hz),
        (Some(48_000), Some(90_000))
    );
    let (commands, reasons, notes) = rules(found, &[]);
    assert_eq!(
        commands,
        [
            "audio --proto udp --sport 7882 --rtp-pt 111 --lifetime 200ms --priority 0",
            "video --proto udp --sport 7882 --rtp-pt 96 --lifetime 400ms",
        ]
    );
    assert!(reasons[0].contains("48 kHz") && reasons[0].contains("3 receivers"));
    assert!(reasons[1].contains("--rtx"), "{reasons:?}");
    assert!(notes.is_empty(), "{notes:?}");
}

#[test]
fn source_that_sends_timestamps_of_another_again_repeats_it() {
    let mut wire = Wire::default();
    wire.video(7882, 50_000, 0x2000);
    for (n, picture) in [10_u32, 11, 12, 30, 31].into_iter().enumerate() {
        let packet = rtp(97, false, 900 + n as u16, picture * 3000, 0x2001, 1102);
        wire.send(
            u64::from(picture) * 33 + 40 + n as u64,
            7882,
            50_000,
            &packet,
        );
    }
    wire.send(5, 7882, 50_000, &stun());
    let found = wire.found();
    assert_eq!(kinds(&found)[1], (Carried::Rtx, "97".to_string(), 5));
    assert_eq!(found[1].repeats, Some(96));
    let (commands, ..) = rules(found, &["video"]);
    let video = "video-2 --proto udp --sport 7882 --rtp-pt 96 --lifetime 400ms --rtx 97:96";
    assert_eq!(commands, [video]);
}

#[test]
fn sender_of_ephemeral_ports_has_a_rule_for_where_it_sends_to() {
    let mut wire = Wire::default();
    wire.audio(40_001, 5004, 1);
    wire.video(40_003, 5006, 2);
    let (commands, ..) = rules(wire.found(), &[]);
    assert_eq!(
        commands,
        [
            "audio --proto udp --dport 5004 --rtp-pt 111 --lifetime 200ms --priority 0",
            "video --proto udp --dport 5006 --rtp-pt 96 --lifetime 400ms",
        ]
    );
}

#[test]
fn receivers_with_a_server_port_each_have_one_rule_by_payload_type() {
    let mut wire = Wire::default();
    for receiver in 0..6 {
        let (sport, dport) = (20_000 + receiver * 37, 51_000 + receiver);
        wire.audio(sport, dport, 0x1000 + u32::from(receiver));
        wire.send(5, sport, dport, &stun());
    }
    let (commands, reasons, _) = rules(wire.found(), &[]);
    let audio = "audio --proto udp --rtp-pt 111 --lifetime 200ms --priority 0";
    assert_eq!(commands, [audio]);
    assert!(reasons[0].contains("6 receivers"), "{reasons:?}");
    assert!(reasons[0].contains("payload type chooses"), "{reasons:?}");
}

#[test]
fn neighbouring_ports_are_one_range_unless_it_holds_what_is_different() {
    let mut wire = Wire::default();
    for call in 0..3 {
        wire.audio(20_000 + call * 2, 50_000 + call, 0x1000 + u32::from(call));
        wire.video(20_000 + call * 2, 51_000 + call, 0x2000 + u32::from(call));
    }
    let (commands, ..) = rules(wire.found(), &[]);
    assert_eq!(
        commands,
        [
            "audio --proto udp --sport 20000-20004 --rtp-pt 111 --lifetime 200ms --priority 0",
            "video --proto udp --sport 20000-20004 --rtp-pt 96 --lifetime 400ms",
        ]
    );
    let mut wire = Wire::default();
    for n in 0..200_u64 {
        wire.send(n * 10, 40_000, 1234, &ts(false));
        wire.send(n * 10, 40_001, 1236, &ts(false));
    }
    srt_data(&mut wire, 40_002, 1235, 7);
    let (commands, ..) = rules(wire.found(), &[]);
    assert_eq!(commands.len(), 3, "{commands:?}");
}

#[test]
fn flows_that_are_left_out_count_until_then_and_no_flow_is_beyond_the_table() {
    let mut table = Table::default();
    let send = |table: &mut Table, at| {
        for port in 1..=200 {
            table.take(&udp4(port, 9, &[0xf5; 100]), false, at);
        }
    };
    send(&mut table, 0);
    table.thin(1, SECOND);
    send(&mut table, SECOND);
    let found = table.found(2 * SECOND, RtpProfile::default());
    let out: Vec<_> = found.iter().filter(|f| f.all.packets == 1).collect();
    assert!(out.len() > 50 && out.len() < 150, "{}", out.len());
    assert!(out.iter().all(|f| f.watched_ns == SECOND));
    let mut table = Table::default();
    for port in 1..=FLOWS as u16 + 3 {
        table.take(&udp4(port, 9, &[1]), false, 0);
    }
    assert_eq!(table.beyond, 3);
}

/// A handshake of the last phase: of a listener (extension 2) or a caller (1).
fn srt_handshake(extension: u32, latency: u32) -> Vec<u8> {
    let mut words = [0_u32; 20];
    words[0] = 0x8000_0000;
    words[3] = 0x1234;
    words[4] = 5;
    words[6] = 77;
    words[7] = 1500;
    words[9] = 0xffff_ffff;
    words[16] = extension << 16 | 3;
    words[19] = latency << 16 | latency;
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn srt_data(wire: &mut Wire, sport: u16, dport: u16, first: u32) {
    for n in 0..200_u32 {
        let mut packet = Vec::new();
        for word in [first + n, 0xe000_0000 & 0xe7ff_ffff, n * 10_000, 0x1234] {
            packet.extend(word.to_be_bytes());
        }
        packet.resize(16 + 1316, 0x33);
        wire.send(u64::from(n) * 10, sport, dport, &packet);
    }
}

#[test]
fn srt_is_known_by_its_handshake_and_by_its_data() {
    let mut wire = Wire::default();
    wire.send(0, 9000, 50_000, &srt_handshake(2, 400));
    srt_data(&mut wire, 9000, 50_000, 7);
    // Older than the watch, with numbers that begin like DTLS.
    srt_data(&mut wire, 41_000, 9100, 0x16fe_0000);
    wire.send(0, 41_002, 9200, &srt_handshake(1, 250));
    srt_data(&mut wire, 41_002, 9200, 7);
    let found = wire.found();
    let latency = |ms, granted| Some(SrtLatency { ms, granted });
    let of: Vec<_> = found.iter().map(|f| (f.kind, f.latency)).collect();
    assert_eq!(
        of,
        [
            (Carried::Srt, latency(400, true)),
            (Carried::Srt, None),
            (Carried::Srt, latency(250, false)),
        ]
    );
    let (commands, reasons, _) = rules(found, &[]);
    assert_eq!(
        commands,
        [
            "srt --proto udp --sport 9000 --priority 3 --lifetime none",
            "srt-2 --proto udp --dport 9100 --lifetime 400ms",
            "srt-3 --proto udp --dport 9200 --lifetime 250ms",
        ]
    );
    assert!(reasons[0].contains("400 ms now"), "{reasons:?}");
    assert!(reasons[1].contains("No handshake"), "{reasons:?}");
}

fn ts(null: bool) -> Vec<u8> {
    let pid = if null { [0x1f, 0xff] } else { [0x01, 0x00] };
    let packet: Vec<u8> = [&[0x47, pid[0], pid[1], 0x10][..], &[0xff; 184][..]].concat();
    packet.repeat(7)
}

#[test]
fn mpeg_ts_is_found_with_its_padding_and_in_rtp() {
    let mut wire = Wire::default();
    for n in 0..200_u16 {
        wire.send(u64::from(n) * 10, 40_000, 1234, &ts(n % 4 == 0));
        let header = rtp(33, false, n, u32::from(n) * 900, 5, 0);
        wire.send(
            u64::from(n) * 10,
            40_002,
            5010,
            &[header, ts(false)].concat(),
        );
    }
    let found = wire.found();
    assert_eq!(kinds(&found)[0].0, Carried::Ts);
    assert_eq!(found[0].null_percent, Some(25));
    assert_eq!(kinds(&found)[1].0, Carried::RtpTs);
    let (commands, reasons, _) = rules(found, &[]);
    assert_eq!(
        commands,
        [
            "ts --proto udp --dport 5010 --rtp-pt 33 --lifetime 400ms",
            "ts-2 --proto udp --dport 1234 --lifetime 400ms",
        ]
    );
    assert!(reasons[1].contains("25 % of it is padding"), "{reasons:?}");
}

#[test]
fn rist_is_known_in_both_profiles() {
    let mut wire = Wire::default();
    for n in 0..100_u16 {
        let at = u64::from(n) * 10;
        let header = rtp(33, false, n, u32::from(n) * 900, 6, 0);
        let inner = [header, ts(false)].concat();
        wire.send(at, 40_000, 8192, &inner);
        let outer = [&[0, 0, 0x88, 0xb6, 0x07, 0xb0, 0x07, 0xb0][..], &inner].concat();
        wire.send(at, 40_002, 8200, &outer);
    }
    let report = [0x81, 204, 0, 2, 0, 0, 0, 6, b'R', b'I', b'S', b'T'];
    wire.send(500, 40_001, 8193, &report);
    let found = wire.found();
    let of: Vec<_> = kinds(&found).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(of, [Carried::Rist, Carried::Rtcp, Carried::Rist]);
    let (commands, ..) = rules(found, &[]);
    assert_eq!(
        commands,
        [
            "rist --proto udp --dport 8192 --lifetime 400ms",
            "rist-2 --proto udp --dport 8200 --lifetime 400ms",
        ]
    );
}

#[test]
fn what_is_no_media_has_a_name_and_no_rule() {
    let mut wire = Wire::default();
    let initial = [
        &[0xc3, 0, 0, 0, 1, 8][..],
        &[9; 8],
        &[0, 0, 0x44],
        &[3; 1000],
    ]
    .concat();
    wire.send(0, 443, 50_000, &initial);
    for n in 0..50 {
        wire.send(n, 443, 50_000, &[&[0x41][..], &[n as u8; 900]].concat());
        let channel = [&[0x40, 1, 0, 96][..], &[9; 96]].concat();
        wire.send(n, 3478, 50_001, &channel);
    }
    let hello = [
        &[22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 20][..],
        &[1; 20],
    ]
    .concat();
    wire.send(0, 7000, 50_002, &hello);
    wire.send(0, 53, 50_003, b"\x12\x34\x81\x80\0\x01\0\x01");
    let found = wire.found();
    let of: Vec<_> = kinds(&found).into_iter().map(|(k, _, n)| (k, n)).collect();
    assert_eq!(
        of,
        [
            (Carried::Other, 1),
            (Carried::Quic, 51),
            (Carried::Turn, 50),
            (Carried::Dtls, 1),
        ]
    );
    assert!(rules(found, &[]).0.is_empty());
}

#[test]
fn a_few_packets_that_look_like_rtp_are_not_called_that() {
    let mut wire = Wire::default();
    for n in 0..3_u16 {
        wire.send(u64::from(n), 7, 8, &rtp(96, false, n, 5, 9, 500));
    }
    // Many, whose numbers jump.
    for n in 0..100_u16 {
        let packet = rtp(96, false, n.wrapping_mul(7919), 5, 9, 500);
        wire.send(u64::from(n), 7, 9, &packet);
    }
    let of: Vec<_> = kinds(&wire.found()).into_iter().map(|(k, ..)| k).collect();
    assert_eq!(of, [Carried::Other, Carried::Other]);
}

#[test]
fn rows_are_for_all_receivers_of_one_kind() {
    let mut wire = Wire::default();
    for receiver in 0..4 {
        wire.audio(7882, 50_000 + receiver, 0x1000 + u32::from(receiver));
        wire.send(5, 7882, 50_000 + receiver, &stun());
    }
    let found = wire.found();
    let anchors = anchors(&found);
    let streams = found.into_iter().zip(anchors);
    let streams: Vec<Stream> = streams
        .map(|(found, anchor)| Stream {
            found,
            anchor,
            rule: None,
        })
        .collect();
    let (rows, left_out) = rows(&streams, |_| Default::default());
    assert_eq!((rows.len(), left_out), (2, 0));
    let audio = &rows[0];
    assert_eq!(
        (audio.kind, audio.receivers, audio.flows),
        (Carried::Audio, 4, 4)
    );
    assert_eq!(audio.packets_s, 200.0);
    assert_eq!(audio.rate_bytes_s, 200 * (28 + 92));
    assert_eq!((audio.ssrc, audio.clock_hz), (None, Some(48_000)));
    assert_eq!(
        audio.dport.map(|p| (p.first(), p.last())),
        Some((50_000, 50_003))
    );
}

proptest! {
    /// Nothing that comes makes it panic, or a sure answer of noise.
    #[test]
    fn noise_is_no_media(
        packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1_u16..4), 1..200)
    ) {
        let mut wire = Wire::default();
        for (n, (payload, port)) in packets.iter().enumerate() {
            wire.send(n as u64, 40_000, *port, payload);
        }
        let found = wire.found();
        prop_assert!(found.iter().all(|f| !f.kind.is_media()), "{found:?}");
        prop_assert!(rules(found, &[]).0.is_empty());
    }

    /// Beginnings that are known, with anything behind them, cut off anywhere.
    #[test]
    fn beginnings_of_anything_are_taken_without_a_panic(
        start in prop::sample::select(vec![
            rtp(96, true, 1, 2, 3, 40), stun(), srt_handshake(2, 9), ts(true), vec![0, 0, 0x88, 0xb6, 1, 2, 3, 4],
            vec![0x9f, 0x60, 0, 1], vec![0x80, 200, 0xff, 0xff], vec![0xc0, 0, 0, 0, 1, 20], vec![22, 0xfe, 0xfd],
            vec![0x8f; 20],
        ]),
        keep in 0_usize..90, rest in prop::collection::vec(any::<u8>(), 0..100), times in 1_u64..9,
    ) {
        let payload: Vec<u8> = start.iter().take(keep).chain(&rest).copied().collect();
        let mut wire = Wire::default();
        for n in 0..times {
            wire.send(n, 7, 8, &payload);
        }
        rules(wire.found(), &[]);
    }
}
