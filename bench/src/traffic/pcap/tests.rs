use std::fs;

use etherparse::PacketBuilder;

use super::*;
use crate::traffic::tests::{adus, fingerprint};

/// A UDP packet on an Ethernet from 10.0.0.1 to 10.0.0.`to`.
fn ethernet(to: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ethernet2([0; 6], [0; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, to], 64)
        .udp(5000, port)
        .write(&mut packet, payload)
        .expect("a packet");
    packet
}

fn rtp(payload_type: u8, timestamp: u32, ssrc: u32, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0x80, payload_type, 0, 1];
    packet.extend(timestamp.to_be_bytes());
    packet.extend(ssrc.to_be_bytes());
    packet.resize(12 + bytes, 7);
    packet
}

/// A pcap of µs, little-endian, of (µs, packet); `snap` bytes of each are kept.
fn pcap(packets: &[(u64, Vec<u8>)], snap: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (at, packet) in packets {
        let kept = packet.len().min(snap);
        let (seconds, rest) = (1_700_000_000 + at / 1_000_000, at % 1_000_000);
        for word in [seconds, rest, kept as u64, packet.len() as u64] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(&packet[..kept]);
    }
    file
}

/// The same as pcapng with ns.
fn pcapng(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = 12 + body.len().next_multiple_of(4);
        let size = (length as u32).to_le_bytes();
        let mut block = [&kind.to_le_bytes(), &size, body].concat();
        block.resize(length - 4, 0);
        [block, size.to_vec()].concat()
    };
    let mut section = vec![0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    section.extend([0xff; 8]);
    let mut file = block(0x0a0d_0d0a, &section);
    // Ethernet, no limit, if_tsresol 10^-9, end of options.
    let interface = [1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    file.extend(block(1, &interface));
    for (at, packet) in packets {
        let at = (1_700_000_000_000_000 + at) * 1000;
        let length = packet.len() as u32;
        let mut body: Vec<u8> = [0, (at >> 32) as u32, at as u32, length, length]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        body.extend(packet);
        file.extend(block(6, &body));
    }
    file
}

/// 100 ms of a call: audio each 20 ms, two frames of two packets, and what is no RTP.
fn call() -> Vec<(u64, Vec<u8>)> {
    let mut packets = vec![
        (5_000, ethernet(2, 53, b"not RTP at all, a question")),
        (6_000, ethernet(2, 5006, &rtp(72, 1, 2, 40))), // RTCP: 200
    ];
    packets[1].1[43] = 200;
    for i in 0..5u32 {
        let packet = ethernet(2, 5004, &rtp(111, 960 * i, 0xa, 100));
        packets.push((10_000 + 20_000 * u64::from(i), packet));
    }
    for i in 0..2u32 {
        for part in 0..2 {
            let packet = ethernet(2, 5006, &rtp(96, 3000 * i, 0xb, 1000 - 500 * part));
            packets.push((15_000 + 50_000 * u64::from(i) + 2_000 * part as u64, packet));
        }
    }
    packets
}

fn parameters(content: &[u8]) -> (tempfile::TempDir, Parameters) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("call.pcap");
    fs::write(&file, content).expect("writing");
    let parameters = Parameters {
        from_start: true,
        file,
        ..Parameters::default()
    };
    (directory, parameters)
}

#[test]
fn pcap_rtp_becomes_adus_at_the_times_of_the_capture() {
    let (_directory, parameters) = parameters(&pcap(&call(), 65_535));
    let schedule = parameters.schedule(1, 1).expect("a schedule");
    let packets = schedule.packets.iter();
    let first = packets.map(|p| (p.at / MILLI, p.class, p.adu, p.last, p.wire_bytes));
    let expected = [
        (0, Class::Audio, 0, true, 154),
        (5, Class::Video, 1, false, 1054),
        (7, Class::Video, 1, true, 554),
        (20, Class::Audio, 2, true, 154),
        (40, Class::Audio, 3, true, 154),
    ];
    assert!(first.take(5).eq(expected), "{schedule:?}");
    assert_eq!(schedule.packets[2].lifetime, 198 * MILLI);
    assert_eq!(fingerprint(&schedule), 0xe83191011536105c);
    // 80 ms and a mean gap of 10 ms, then again.
    assert_eq!(schedule.packets[9].at, 90 * MILLI);
    assert_eq!(adus(&schedule).len(), schedule.packets.len() * 7 / 9);
}

#[test]
fn pcap_pcapng_and_short_captures_give_the_same_packets() {
    let captures = [
        pcap(&call(), 65_535),
        pcapng(&call()),
        // 60 bytes of each packet.
        pcap(&call(), 60),
    ];
    let [whole, ng, short] = captures.map(|content| {
        let (_directory, parameters) = parameters(&content);
        parameters.schedule(2, 1).expect("a schedule")
    });
    assert_eq!(ng, whole);
    assert_eq!(short, whole);
}

#[test]
fn pcap_seed_draws_where_a_run_begins() {
    let (_directory, mut parameters) = parameters(&pcap(&call(), 65_535));
    parameters.from_start = false;
    let of = |seed| parameters.schedule(1, seed).expect("a schedule");
    assert_eq!(of(1), of(1));
    let mut starts = BTreeSet::new();
    for schedule in (0..20).map(of) {
        let first = schedule.packets.iter().take(4).map(|p| p.at);
        starts.insert(first.collect::<Vec<_>>());
        assert_eq!(schedule.packets[0].at, 0);
        // As many packets as in any second of it.
        assert!((96..=104).contains(&schedule.packets.len()));
        adus(&schedule);
    }
    assert!(starts.len() > 3, "{starts:?}");
}

#[test]
fn pcap_destinations_ports_types_and_sources_select() {
    let mut packets = call();
    for (at, mut packet) in call() {
        packet[33] = 3;
        packets.push((at + 100, packet));
    }
    let (_directory, mut parameters) = parameters(&pcap(&packets, 65_535));
    let made = |parameters: &Parameters| parameters.schedule(1, 1).expect("a schedule");
    assert_eq!(made(&parameters).streams(), 1);
    parameters.by_destination = true;
    let schedule = made(&parameters);
    assert_eq!(schedule.streams(), 2);
    let adus = adus(&schedule);
    let of = |stream| adus.iter().filter(|a| a.stream == stream).count();
    assert_eq!(of(0), of(1));
    parameters.ports = vec![5004];
    for (types, class) in [(vec![], Class::Audio), (vec![111], Class::Data)] {
        parameters.audio_types.retain(|kind| !types.contains(kind));
        parameters.data_types = types;
        assert!(made(&parameters).packets.iter().all(|p| p.class == class));
    }
    parameters.source = Some([10, 0, 0, 9].into());
    let error = parameters.schedule(1, 1).expect_err("no such source");
    let error = error.to_string();
    assert!(error.contains("22 packets") && error.contains("18 of RTP"));
}

#[test]
fn pcap_adu_ends_with_its_life_even_if_its_timestamp_stays() {
    let packets = [0, 1, 2].map(|i| (i * 150_000, ethernet(2, 5006, &rtp(96, 7, 0xb, 100))));
    let (_directory, parameters) = parameters(&pcap(&packets, 65_535));
    let schedule = parameters.schedule(1, 1).expect("a schedule");
    let numbers = schedule.packets.iter().map(|p| p.adu);
    assert!(numbers.take(3).eq([0, 0, 1]));
}

#[test]
fn pcap_that_is_no_capture_is_refused_with_a_reason() {
    let mut cut = pcap(&call(), 65_535);
    cut.truncate(cut.len() - 3);
    let mut giant = call();
    giant.push((1, ethernet(2, 5006, &rtp(96, 1, 0xb, 1500))));
    let mut wifi = pcap(&call(), 65_535);
    wifi[20] = 105;
    let mut long = pcap(&call(), 65_535);
    long[32..36].copy_from_slice(&(2u32 << 20).to_le_bytes());
    long.resize(3 << 20, 0);
    for (content, word) in [
        (b"once upon a time, there was a file".to_vec(), "neither"),
        (pcap(&[], 9), "0 packets"),
        (cut, "in the middle of a packet"),
        (pcap(&giant, 65_535), "1554 bytes"),
        (wifi, "link type 105"),
        (long, "longer than 1048576 bytes"),
    ] {
        let (_directory, parameters) = parameters(&content);
        let error = parameters.schedule(1, 1).expect_err(word);
        assert!(format!("{error:#}").contains(word), "{error:#}");
    }
    for (file, word) in [("", "`file`"), ("/no/such/file.pcap", "/no/such/file.pcap")] {
        let missing = Parameters {
            file: file.into(),
            ..Parameters::default()
        };
        let error = missing.schedule(1, 1).expect_err(word);
        assert!(format!("{error:#}").contains(word), "{error:#}");
    }
}
