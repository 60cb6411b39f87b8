//! The classifier, packet by packet: frames in, control blocks out
//! (`BPF_PROG_TEST_RUN` on the loopback interface).

use std::collections::BTreeSet;

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, PASS, Rule, SkBuff, iface, mapped},
    classify::*,
    clock::MS,
    frame::*,
};

fn extension(next: u8, words: u8) -> Vec<u8> {
    let mut out = vec![next, words];
    out.resize(8 + usize::from(words) * 8, 0);
    out
}

/// `count` destination-options headers, then UDP.
fn chain(count: usize, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..count {
        out.extend(extension(if i + 1 == count { 17 } else { 60 }, 0));
    }
    out.extend(payload);
    ethernet(0x86dd, &ip6(if count == 0 { 17 } else { 60 }, &out))
}

#[test]
fn ports_are_found_behind_every_kind_of_header() {
    let lab = lab();
    let datagram = udp(PORT, b"some payload");
    let (v4, v6) = (ip4(17, &datagram), ip6(17, &datagram));
    let fragment6 = {
        let mut out = vec![17, 0, 0, 1, 0, 0, 0, 9]; // offset 0, more fragments
        out.extend(&datagram);
        ip6(44, &out)
    };
    let auth = {
        let mut out = vec![17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]; // (1 + 2) * 4 bytes
        out.extend(&datagram);
        ip6(51, &out)
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("IPv4", ethernet(0x0800, &v4)),
        ("IPv6", ethernet(0x86dd, &v6)),
        ("IPv4 with 4 bytes of options", {
            ethernet(0x0800, &ip4_with(17, &datagram, 0, &[1, 1, 1, 0], DST4))
        }),
        ("IPv4 with 40 bytes of options", {
            ethernet(0x0800, &ip4_with(17, &datagram, 0, &[1; 40], DST4))
        }),
        ("one VLAN tag, IPv4", ethernet(0x8100, &tag(5, 0x0800, &v4))),
        ("one VLAN tag, IPv6", ethernet(0x8100, &tag(5, 0x86dd, &v6))),
        (
            "two VLAN tags",
            ethernet(0x88a8, &tag(5, 0x8100, &tag(6, 0x0800, &v4))),
        ),
        (
            "first IPv4 fragment",
            ethernet(0x0800, &ip4_with(17, &datagram, 0x2000, &[], DST4)),
        ),
        ("first IPv6 fragment", ethernet(0x86dd, &fragment6)),
        ("authentication header", ethernet(0x86dd, &auth)),
        ("1 extension header", chain(1, &datagram)),
        ("8 extension headers", chain(8, &datagram)),
        ("TCP", ethernet(0x0800, &ip4(6, &ports(PORT)))),
        ("DCCP", ethernet(0x0800, &ip4(33, &ports(PORT)))),
        ("SCTP", ethernet(0x86dd, &ip6(132, &ports(PORT)))),
        ("UDP-Lite", ethernet(0x86dd, &ip6(136, &datagram))),
        (
            "Ethernet padding",
            [ethernet(0x0800, &v4), vec![0; 18]].concat(),
        ),
        ("UDP without payload", udp4(PORT, b"")),
    ];
    for (what, packet) in &cases {
        assert_matched(what, &lab.run(packet));
    }
    assert_eq!(lab.global(BB_G_MALFORMED), 0);
    // The same to another port: no rule, and not malformed.
    for packet in [udp4(PORT + 1, b"x"), udp6(PORT + 1, b"x")] {
        assert_plain(&lab, "another port", &lab.run(&packet));
    }
    assert_eq!(lab.global(BB_G_MALFORMED), 0);
}

#[test]
fn malformed_packets_are_counted_and_sent() {
    let lab = lab();
    let datagram = udp(PORT, b"some payload");
    let good4 = ethernet(0x0800, &ip4(17, &datagram));
    let good6 = ethernet(0x86dd, &ip6(17, &datagram));
    let edit = |frame: &[u8], at: usize, value: u8| {
        let mut out = frame.to_vec();
        out[at] = value;
        out
    };
    let mut endless = Vec::new();
    for _ in 0..150 {
        endless.extend(extension(60, 0));
    }
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("IHL 4", edit(&good4, 14, 0x44)),
        ("IHL 15 in a shorter packet", edit(&good4[..44], 14, 0x4f)),
        ("version 5", edit(&good4, 14, 0x55)),
        ("total length beyond the packet", edit(&good4, 16, 0x70)),
        (
            "total length below the header",
            edit(&edit(&good4, 16, 0), 17, 10),
        ),
        ("UDP header cut", edit(&good4[..38], 17, 24)),
        ("UDP length 3", edit(&edit(&good4, 38, 0), 39, 3)),
        ("UDP length beyond the packet", edit(&good4, 38, 0x10)),
        (
            "TCP header cut",
            ethernet(0x0800, &ip4(6, &ports(PORT)[..16])),
        ),
        ("IPv6 with version 4", edit(&good6, 14, 0x40)),
        ("IPv6 payload beyond the packet", edit(&good6, 18, 0x70)),
        ("9 extension headers", chain(9, &datagram)),
        ("an endless chain", ethernet(0x86dd, &ip6(60, &endless))),
        ("an extension header beyond the packet", {
            ethernet(0x86dd, &ip6(60, &[17, 255, 0, 0, 0, 0, 0, 0]))
        }),
        (
            "an extension header cut",
            ethernet(0x86dd, &ip6(60, &[17, 0, 0])),
        ),
        ("a VLAN tag cut", ethernet(0x8100, &[0, 1])),
        (
            "a VLAN tag and no packet",
            ethernet(0x8100, &tag(1, 0x0800, b"")),
        ),
    ];
    for (i, (what, packet)) in cases.iter().enumerate() {
        let out = lab.run(packet);
        assert_plain(&lab, what, &out);
        assert_eq!(lab.global(BB_G_MALFORMED), i as u64 + 1, "{what}");
        // Not even a mark makes metadata of it.
        assert_plain(&lab, what, &lab.run_marked(packet, relative(100 * MS)));
        lab.put("bb_global", &BB_G_MALFORMED, &(i as u64 + 1));
    }
    // Well formed, but nothing we read: not counted as malformed.
    let count = lab.global(BB_G_MALFORMED);
    for (what, packet) in [
        ("three VLAN tags", {
            ethernet(
                0x88a8,
                &tag(
                    1,
                    0x8100,
                    &tag(2, 0x8100, &tag(3, 0x0800, &ip4(17, &datagram))),
                ),
            )
        }),
        ("MPLS", ethernet(0x8847, &[0; 40])),
        ("ESP", ethernet(0x86dd, &ip6(50, &[0; 40]))),
    ] {
        assert_plain(&lab, what, &lab.run(&packet));
    }
    assert_eq!(lab.global(BB_G_MALFORMED), count);
}

#[test]
fn control_traffic_is_recognised_before_rules() {
    let lab = Lab::new();
    // A rule that would match everything.
    lab.rules(&[Rule::new().lifetime(200 * MS).priority(5)]);
    let stun = stun(20);
    let rtcp = [0x81, 201, 0, 1, 1, 2, 3, 4];
    let dtls = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let mld = {
        let mut out = vec![58, 0, 5, 2, 0, 0, 1, 0]; // hop by hop, router alert
        out.extend([143, 0, 0, 0, 0, 0, 0, 0]);
        out
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("ARP", ethernet(0x0806, &[0; 28])),
        (
            "IGMP",
            ethernet(0x0800, &ip4(2, &[0x16, 0, 0, 0, 0, 0, 0, 0])),
        ),
        ("MLD", ethernet(0x86dd, &ip6(0, &mld))),
        (
            "neighbour solicitation",
            ethernet(0x86dd, &ip6(58, &[135, 0, 0, 0, 0, 0, 0, 0])),
        ),
        ("STUN", udp4(PORT, &stun)),
        ("RTCP receiver report", udp4(PORT, &rtcp)),
        (
            "RTCP, packet type 192",
            udp4(PORT, &[0x80, 192, 0, 1, 1, 2, 3, 4]),
        ),
        (
            "RTCP, packet type 223",
            udp6(PORT, &[0x80, 223, 0, 1, 1, 2, 3, 4]),
        ),
        ("DTLS handshake", udp6(PORT, &dtls)),
    ];
    for (what, packet) in &cases {
        assert_control(&lab, what, &lab.run(packet));
    }
    // What the packet says itself wins over what it looks like.
    let out = lab.run_marked(&udp4(PORT, &rtcp), relative(50 * MS) | prio(2));
    assert_eq!((out.priority(), out.has(BB_CB_DEADLINE)), (2, true));

    // Near misses stay what the rule says.
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("STUN with another cookie", udp4(PORT, &[0; 20])),
        ("STUN cut", udp4(PORT, &stun[..19])),
        (
            "payload type 191",
            udp4(PORT, &[0x80, 191, 0, 1, 1, 2, 3, 4, 0, 0, 0, 0]),
        ),
        (
            "payload type 224",
            udp4(PORT, &[0x80, 224, 0, 1, 1, 2, 3, 4, 0, 0, 0, 0]),
        ),
        (
            "RTCP longer than its datagram",
            udp4(PORT, &[0x80, 201, 0, 9, 1, 2, 3, 4]),
        ),
        // Another port: beside RTP this would be DTLS.
        (
            "first byte of DTLS, no version",
            udp4(PORT + 1, &[22, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ),
        (
            "echo request",
            ethernet(0x86dd, &ip6(58, &[128, 0, 0, 0, 0, 0, 0, 0])),
        ),
    ];
    for (what, packet) in &cases {
        assert_eq!(lab.run(packet).cb.rule, 1, "{what}");
    }
}

/// What most packets look like is read by a shorter way (`bb_parse_usual`), which an
/// option or a tag rules out: nothing else may depend on which way was taken.
#[test]
fn short_and_long_parser_give_the_same_result() {
    let lab = lab();
    let mut payloads: Vec<Vec<u8>> = Vec::new();
    for first in [
        0x80, 0x8f, 0x90, 0xbe, 0x00, 0x03, 20, 22, 40, 63, 64, 0x7f, 0xff,
    ] {
        for second in [0, 96, 0x80 | 96, 191, 192, 200, 223, 224, 0xfe] {
            for length in [
                0, 1, 7, 8, 11, 12, 13, 16, 19, 20, 21, 28, 29, 72, 76, 80, 172,
            ] {
                let mut payload = vec![first, second, 0, 4, 0x21, 0x12, 0xa4, 0x42, 1, 2, 3, 4];
                payload.resize(length, 9);
                payloads.push(payload);
            }
        }
    }
    for payload in payloads {
        let datagram = udp(PORT, &payload);
        let mut cut = datagram.clone();
        let inner = ip4(17, &datagram);
        let mut trailing = ethernet(0x0800, &inner);
        trailing.extend([0; 6]);
        // A length that leaves bytes over, and one that is too long: both ways must cope.
        let kinds: Vec<_> = [0i32, -3, 5]
            .into_iter()
            .filter_map(|by| {
                let length = u16::try_from(i32::try_from(datagram.len()).unwrap() + by).unwrap();
                cut[4..6].copy_from_slice(&length.to_be_bytes());
                let say = |options: &[u8], tagged: bool| {
                    let packet = ip4_with(17, &cut, 0, options, DST4);
                    let frame = if tagged {
                        ethernet(0x8100, &tag(5, 0x0800, &packet))
                    } else {
                        ethernet(0x0800, &packet)
                    };
                    let out = lab.run(&frame);
                    let cb = out.cb;
                    (
                        out.verdict,
                        cb.rule,
                        cb.class_,
                        cb.flags,
                        cb.session,
                        cb.adu,
                    )
                };
                let usual = say(&[], false);
                // NOP, NOP, NOP, end of options.
                assert_eq!(usual, say(&[1, 1, 1, 0], false), "{by}: {payload:x?}");
                assert_eq!(usual, say(&[], true), "tagged, {by}: {payload:x?}");
                (by == 0).then_some(usual)
            })
            .collect();
        let out = lab.run(&trailing).cb;
        assert_eq!(
            kinds,
            [(PASS, out.rule, out.class_, out.flags, out.session, out.adu)],
            "bytes behind the packet: {payload:x?}"
        );
    }
}

/// A DTLS record of this content type, in the first epoch, of `length` bytes.
fn dtls(content_type: u8, length: u16) -> Vec<u8> {
    let mut out = vec![content_type, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9];
    out.extend(length.to_be_bytes());
    out.resize(out.len() + usize::from(length), 0x55);
    out
}

#[test]
fn dtls_application_data_follows_the_rule() {
    let lab = lab();
    for (what, content_type) in [
        ("change cipher spec", 20),
        ("alert", 21),
        ("handshake", 22),
        ("heartbeat", 24),
        ("ack", 26),
    ] {
        let out = lab.run(&udp4(PORT, &dtls(content_type, 300)));
        assert_control(&lab, what, &out);
    }
    let record = [0x2f; 40]; // a DTLS 1.3 record has neither version nor visible type
    let beside = |when: &str| {
        for (what, payload) in [
            ("application data", dtls(23, 300)),
            ("a record with a connection id", dtls(25, 300)),
            (
                "a record longer than its datagram",
                dtls(22, 300)[..200].to_vec(),
            ),
            ("DTLS 1.3", record.to_vec()),
        ] {
            assert_matched(&format!("{what}, {when}"), &lab.run(&udp4(PORT, &payload)));
        }
    };
    beside("alone");
    for timestamp in 0..3 {
        assert_matched("RTP", &lab.run(&udp4(PORT, &rtp(1, timestamp, false))));
    }
    beside("beside RTP");
}

/// SRT data packets begin with a 31-bit sequence number, then flags and message number, the
/// time and the peer's socket.
#[test]
fn srt_of_any_sequence_number_is_not_taken_for_dtls() {
    let lab = lab();
    let srt = |sequence: u32| {
        let mut out = sequence.to_be_bytes().to_vec();
        out.extend([0xe0, 0, 0, 7, 0, 1, 2, 3, 1, 2, 3, 4]);
        out.resize(1332, 0x47);
        out
    };
    for first in [0x14u32, 0x15, 0x16, 0x18, 0x1a] {
        for low in (0..=0xffff).step_by(257) {
            let sequence = first << 24 | 0xfe << 16 | low;
            let out = lab.run(&udp4(PORT, &srt(sequence)));
            assert_matched(&format!("{sequence:#x}"), &out);
        }
    }
}

/// Ten frames of three packets, then one of twenty, three times, as (frame, whether a packet of it is
/// large).
#[test]
fn frame_is_large_beyond_twice_its_streams_mean() {
    let lab = lab();
    let frame = |n: u32, packets: u32| -> Vec<bool> {
        let part = |i| lab.run(&udp4(PORT, &rtp(7, 3000 * n, i + 1 == packets)));
        (0..packets).map(|i| part(i).has(BB_CB_LARGE)).collect()
    };
    for n in 1..=30 {
        if n % 10 > 0 {
            assert!(!frame(n, 3).contains(&true), "{n}");
        } else {
            let packets = frame(n, 20);
            let first = packets.iter().position(|large| *large);
            assert!(
                first.is_some_and(|first| (6..10).contains(&first)),
                "{n}: {packets:?}"
            );
            assert!(packets[first.unwrap()..].iter().all(|large| *large));
        }
    }
    // What is large always is the mean soon: each large frame counts as two. Another stream's size has no effect.
    for n in 31..80 {
        assert!(!frame(n, 20).contains(&true) || n < 41, "{n}");
    }
    assert!((1..20).all(|n| !lab.run(&udp4(PORT, &rtp(9, n, true))).has(BB_CB_LARGE)));
}

#[test]
fn rtp_packets_of_one_frame_share_adu_and_deadline() {
    let lab = lab();
    let first = lab.run(&udp4(PORT, &rtp(7, 90_000, false)));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let last = lab.run(&udp4(PORT, &rtp(7, 90_000, true)));
    let next = lab.run(&udp4(PORT, &rtp(7, 93_000, false)));
    assert!(first.has(BB_CB_ADU) && last.has(BB_CB_ADU));
    assert_eq!(last.cb.adu, first.cb.adu);
    assert_eq!(last.deadline(), first.deadline(), "one ADU, one deadline");
    assert_ne!(next.cb.adu, first.cb.adu);
    assert!(next.deadline() >= first.deadline() + 5 * MS);
    // A packet overtaken by the next frame keeps to its own ADU and does not disturb that one.
    let late = lab.run(&udp4(PORT, &rtp(7, 90_000, false)));
    assert_eq!(late.cb.adu, first.cb.adu);
    assert_eq!(
        lab.run(&udp4(PORT, &rtp(7, 93_000, true))).deadline(),
        next.deadline()
    );

    // Two streams of one 5-tuple (BUNDLE), packet by packet in turn.
    let (a, b) = (rtp(100, 5, false), rtp(200, 6, false));
    let (a1, b1) = (lab.run(&udp4(PORT, &a)), lab.run(&udp4(PORT, &b)));
    std::thread::sleep(std::time::Duration::from_millis(2));
    let (a2, b2) = (lab.run(&udp4(PORT, &a)), lab.run(&udp4(PORT, &b)));
    assert_eq!(
        (a1.deadline(), b1.deadline()),
        (a2.deadline(), b2.deadline())
    );
    assert_ne!(a1.cb.adu, b1.cb.adu);

    // Not RTP: version 1, cut within the header, cut within the CSRC list or the extension.
    let mut csrc = rtp(1, 1, false)[..20].to_vec();
    csrc[0] = 0x8f;
    let mut extension = rtp(1, 1, false)[..14].to_vec();
    extension[0] = 0x90;
    for payload in [&[0x40; 40][..], &rtp(1, 1, false)[..11], &csrc, &extension] {
        let out = lab.run(&udp4(PORT, payload));
        assert_matched("not RTP", &out);
        assert!(!out.has(BB_CB_ADU), "{payload:x?}");
    }
}

#[test]
fn fragments_share_rule_adu_and_deadline() {
    for v6 in [false, true] {
        let lab = lab();
        let datagram = udp(PORT, &[1; 400]);
        let fragment = |id: u8, offset: usize, more: bool| {
            let part = &datagram[offset..(offset + 200).min(datagram.len())];
            if v6 {
                let word = u16::try_from(offset).unwrap() | u16::from(more);
                let mut out = vec![17, 0];
                out.extend(word.to_be_bytes());
                out.extend([0, 0, 0, id]);
                out.extend(part);
                ethernet(0x86dd, &ip6(44, &out))
            } else {
                let word = u16::try_from(offset / 8).unwrap() | u16::from(more) << 13;
                let mut packet = ip4_with(17, part, word, &[], DST4);
                packet[5] = id;
                ethernet(0x0800, &packet)
            }
        };
        let first = lab.run(&fragment(1, 0, true));
        std::thread::sleep(std::time::Duration::from_millis(3));
        let second = lab.run(&fragment(1, 200, true));
        let third = lab.run(&fragment(1, 400, false));
        assert_matched("first fragment", &first);
        for later in [second, third] {
            assert_matched("later fragment", &later);
            assert!(later.has(BB_CB_ADU));
            assert_eq!(
                (later.cb.adu, later.deadline()),
                (first.cb.adu, first.deadline())
            );
            assert_eq!(later.cb.session, first.cb.session);
        }
        // Of a datagram whose first fragment nobody saw: no ports, hence no rule.
        assert_plain(&lab, "stray", &lab.run(&fragment(2, 200, false)));
        assert_ne!(lab.run(&fragment(3, 0, true)).cb.adu, first.cb.adu);
    }
}

#[test]
fn later_fragment_does_not_join_an_old_datagram() {
    let lab = lab();
    let fragment = |datagram: &[u8], offset: usize| {
        let part = &datagram[offset..(offset + 200).min(datagram.len())];
        let more = u16::from(offset + 200 < datagram.len()) << 13;
        let word = u16::try_from(offset / 8).unwrap() | more;
        ethernet(0x0800, &ip4_with(17, part, word, &[], DST4))
    };
    let media = udp(PORT, &[1; 300]);
    let first = lab.run(&fragment(&media, 0));
    assert!(first.has(BB_CB_ADU));
    // The same identification again, of a datagram that has no deadline.
    let control = udp(PORT, &stun(300));
    assert_eq!(lab.run(&fragment(&control, 0)).cb.adu, 0);
    let later = lab.run(&fragment(&control, 200));
    assert_eq!((later.cb.adu, later.has(BB_CB_DEADLINE)), (0, false));
    // Long after its first fragment, one is another datagram's.
    assert_matched("first", &lab.run(&fragment(&media, 0)));
    assert_matched("in time", &lab.run(&fragment(&media, 200)));
    std::thread::sleep(std::time::Duration::from_millis(1050));
    assert_plain(&lab, "late", &lab.run(&fragment(&media, 200)));
}

#[test]
fn gso_packet_is_classified_as_one_packet() {
    let lab = lab();
    let skb = SkBuff {
        gso_segs: 3,
        gso_size: 500,
        ..Default::default()
    };
    let out = lab.run_with(&udp4(PORT, &[0x80; 1500]), skb);
    assert_matched("GSO", &out);
}

#[test]
fn plain_flows_of_one_destination_take_turns_and_few_ways() {
    let lab = lab();
    let sessions = |lab: &Lab, flows: u16| -> BTreeSet<u16> {
        (1..=flows)
            .map(|n| {
                let out = lab.run(&udp4(PORT + n, b"x"));
                assert_plain(lab, "no rule", &out);
                // A flow keeps its own.
                let again = lab.run(&udp4(PORT + n, b"x"));
                assert_eq!(again.cb.session, out.cb.session);
                out.cb.session
            })
            .collect()
    };
    let parts = usize::try_from(BB_PLAIN_PARTS).unwrap();
    // That all of 12 flows share one has a chance of one in 16^11.
    assert!((2..=12).contains(&sessions(&lab, 12).len()));
    let many = sessions(&lab, 500);
    assert_eq!(many.len(), parts);
    let mut named: Vec<u8> = many.iter().map(|s| lab.session(*s).key.part).collect();
    named.sort_unstable();
    assert!(named.into_iter().map(usize::from).eq(1..=parts));
    // Mode tc has no use for more than one.
    lab.iface(0, &iface(LO, BB_MODE_TC));
    for n in 1..=12 {
        let out = lab.run(&udp4_to([10, 7, 7, 7], PORT + n, b"x"));
        assert_eq!(out.verdict, PASS);
    }
    let all = (0..=u16::MAX).take_while(|s| u32::from(*s) < BB_MAX_SESSIONS);
    let keys = all.map(|s| lab.session(s).key);
    let mut keys = keys.filter(|key| key.addr == mapped([10, 7, 7, 7]));
    assert_eq!(keys.next().unwrap().part, 0);
    assert_eq!(keys.next(), None);
}
