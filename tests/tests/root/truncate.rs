//! Treatment `truncate` in mode tc: what is left of a packet that is refused, which packets are dropped all the
//! same, and what is counted. In mode qdisc: tests/tests/vm/truncate.rs.

use std::{net::UdpSocket, time::Duration};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, PASS, Rule, SHOT, SkBuff, iface},
    clock::{MS, SECOND},
    frame::{DST4, ethernet, ip4, ip4_with, ip6, ports, rtp, tag, udp},
    netns::{Netns, linked_lab, shell},
    require,
    truncated::{self, Raw, checksummed, headers, mac},
};
use serde_json::json;

const PORT: u16 = 5004;

/// All that is sent to [`PORT`] is stale when it comes, on an interface without a rate.
fn lab_with(change: impl FnOnce(&mut bb_iface)) -> Lab {
    let lab = Lab::bare();
    let mut i = iface(LO, BB_MODE_TC);
    change(&mut i);
    lab.iface(0, &i);
    lab.rules(&[Rule::new()
        .lifetime(MS)
        .owd(SECOND)
        .treatment(BB_TREAT_TRUNCATE)]);
    lab
}

fn lab() -> Lab {
    lab_with(|_| {})
}

/// RTP with two CSRCs, an extension of three words, and padding.
fn rtp_with_everything() -> Vec<u8> {
    let mut packet = rtp(7, 9, true);
    packet[0] = 0x80 | 0x20 | 0x10 | 2;
    packet.splice(12..12, (0..8).chain([0xbe, 0xde, 0, 3]).chain(20..32));
    packet
}

/// A TCP segment of data; `flags` as in its header.
fn tcp(flags: u8) -> Vec<u8> {
    let mut segment = ports(PORT);
    segment[12] = 8 << 4;
    segment[13] = flags;
    segment.resize(600, 0x33);
    segment
}

/// A DCCP packet of this type, with a checksum of this coverage.
fn dccp(kind: u8, coverage: u8) -> Vec<u8> {
    let mut packet = ports(PORT);
    packet[4] = 4;
    packet[5] = coverage;
    packet[8] = kind << 1;
    packet.resize(300, 0x44);
    packet
}

/// UDP-Lite whose checksum covers so much.
fn udplite(coverage: u16) -> Vec<u8> {
    let mut datagram = udp(PORT, &[9; 333]);
    datagram[4..6].copy_from_slice(&coverage.to_be_bytes());
    datagram
}

/// An extension header of this length, with an unknown option in it that may be skipped.
fn extension(next: u8, length: u8) -> Vec<u8> {
    let mut out = vec![next, length / 8 - 1, 0x3e, length - 4];
    out.resize(length.into(), 0);
    out
}

fn v4(proto: u8, transport: &[u8]) -> Vec<u8> {
    checksummed(&ethernet(0x0800, &ip4(proto, transport)))
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    checksummed(&ethernet(0x86dd, &ip6(next, payload)))
}

#[test]
fn stale_packet_keeps_its_headers_with_right_lengths_and_checksums() {
    let lab = lab();
    let datagram = udp(PORT, &[5; 1001]);
    let media = udp(PORT, &rtp_with_everything());
    let options = [7, 7, 4, 0, 0, 0, 0, 0];
    let within = |header: Vec<u8>| [header, datagram.clone()].concat();
    let tagged = ethernet(0x88a8, &tag(7, 0x8100, &tag(8, 0x0800, &ip4(17, &media))));
    let cases: [(&str, Vec<u8>, usize); 13] = [
        ("udp4", v4(17, &datagram), 8),
        ("rtp4", v4(17, &media), 8 + 12 + 8 + 16),
        (
            "options",
            checksummed(&ethernet(
                0x0800,
                &ip4_with(17, &datagram, 0x4000, &options, DST4),
            )),
            8,
        ),
        ("tags", checksummed(&tagged), 8 + 12 + 8 + 16),
        ("dccp", v4(33, &dccp(2, 0)), 16),
        ("dccp header", v4(33, &dccp(4, 1)), 16),
        ("udplite", v4(136, &udplite(0)), 8),
        ("udplite part", v4(136, &udplite(100)), 8),
        ("udp6", v6(17, &datagram), 8),
        ("rtp6", v6(17, &media), 8 + 12 + 8 + 16),
        ("hop by hop", v6(0, &within(extension(17, 16))), 8),
        (
            "two extensions",
            v6(
                0,
                &[extension(60, 8), extension(17, 16), media.clone()].concat(),
            ),
            8 + 12 + 8 + 16,
        ),
        ("udplite6", v6(136, &udplite(8)), 8),
    ];
    for (n, (what, frame, kept)) in (1..).zip(cases) {
        let (outcome, got) = lab.classifier().change(&frame, SkBuff::default());
        assert_eq!(outcome.verdict, PASS, "{what}");
        assert_eq!(got, headers(&frame, kept), "{what}");
        let c = lab.rule_stats(1);
        assert_eq!((c.packets_sent, c.truncated), (n, n), "{what}");
        assert_eq!(c.dropped, [0; BB_REASONS as usize], "{what}");
    }
    let c = lab.rule_stats(1);
    assert_eq!((c.packets_in, c.sent_stale), (13, 0));
    assert!(c.bytes_sent < c.bytes_in / 5);
}

#[test]
fn checksum_of_0_stays_0() {
    let frame = ethernet(0x0800, &ip4(17, &udp(PORT, &[5; 500])));
    let (_, got) = lab().classifier().change(&frame, SkBuff::default());
    assert_eq!((got.len(), &got[40..42]), (42, &[0, 0][..]));
}

#[test]
fn packet_that_cannot_be_truncated_is_discarded() {
    let lab = lab();
    let datagram = udp(PORT, &[5; 400]);
    let gso = SkBuff {
        gso_size: 400,
        gso_segs: 2,
        ..SkBuff::default()
    };
    let mut home = extension(17, 24);
    home.extend(&datagram);
    let mut large = rtp(7, 9, false);
    large[0] |= 0x10;
    large.splice(12..12, [0xbe, 0xde, 0, 70]);
    large.resize(600, 0);
    let fragment = |at| ethernet(0x0800, &ip4_with(17, &datagram, at, &[], DST4));
    let plain = SkBuff::default();
    let mut fragment6 = vec![17, 0, 0, 0, 0, 0, 0, 1];
    fragment6.extend(&datagram);
    let cases: [(&str, Vec<u8>, SkBuff); 13] = [
        ("gso", v4(17, &datagram), gso),
        ("first fragment", fragment(0x2000), plain),
        ("last fragment", fragment(0x0010), plain),
        ("atomic fragment", v6(44, &fragment6), plain),
        ("sctp", v4(132, &ports(PORT)), plain),
        ("esp", v4(50, &[1; 200]), plain),
        ("ah", v4(51, &[1; 200]), plain),
        (
            "routing",
            v6(43, &[extension(17, 24), datagram.clone()].concat()),
            plain,
        ),
        ("home address", v6(60, &home), plain),
        ("dccp reset", v4(33, &dccp(7, 0)), plain),
        ("dccp coverage", v4(33, &dccp(2, 3)), plain),
        ("empty", v4(17, &udp(PORT, &[])), plain),
        ("large rtp header", v4(17, &udp(PORT, &large)), plain),
    ];
    for (n, (what, frame, skb)) in (1..).zip(cases) {
        let (outcome, got) = lab.classifier().change(&frame, skb);
        assert_eq!(outcome.verdict, SHOT, "{what}");
        assert_eq!(outcome.treatment(), BB_TREAT_DISCARD, "{what}");
        assert_eq!(got, frame, "{what}");
        let c = lab.rule_stats(1);
        assert_eq!(
            (c.packets_in, c.packets_sent, c.truncated),
            (n, 0, 0),
            "{what}"
        );
    }
}

#[test]
fn observed_interface_truncates_no_packet() {
    let lab = lab_with(|i| i.flags = BB_IFACE_OBSERVE as u8);
    let frame = v4(17, &udp(PORT, &[5; 500]));
    let (outcome, got) = lab.classifier().change(&frame, SkBuff::default());
    assert_eq!((outcome.verdict, got), (PASS, frame));
    let c = lab.rule_stats(1);
    assert_eq!(
        (
            c.truncated,
            c.sent_stale,
            c.would_drop[BB_DROP_STALE as usize]
        ),
        (0, 1, 1)
    );
}

#[test]
fn rest_of_a_refused_frame_is_truncated_and_costs_its_headers() {
    // 158 ms of 31,625 bytes/s hold four packets of 1,000 bytes; the headers of the rest find room beside.
    let lab = lab_with(|i| {
        i.rate = 31_625;
        i.plain_share = 20;
    });
    lab.rules(&[Rule::new()
        .dport(PORT)
        .lifetime(200 * MS)
        .owd(40 * MS)
        .treatment(BB_TREAT_TRUNCATE)]);
    let mut payload = rtp(2, 1, false);
    payload.resize(1000 - 42, 0);
    let frame = v4(17, &udp(PORT, &payload));
    let lengths: Vec<usize> = (0..7)
        .map(|_| {
            let (outcome, got) = lab.classifier().change(&frame, SkBuff::default());
            assert_eq!(outcome.verdict, PASS);
            got.len()
        })
        .collect();
    assert_eq!(lengths, [1000, 1000, 1000, 1000, 54, 54, 54]);
    let c = lab.rule_stats(1);
    assert_eq!((c.packets_sent, c.truncated), (7, 3));
    assert_eq!((c.bytes_in, c.bytes_sent), (7000, 4162));
    // Another frame, as large as one header: what is left of 158 ms after 4,162 bytes holds some 800.
    let mut small = rtp(3, 1, false);
    small.resize(600 - 42, 0);
    let (_, got) = lab
        .classifier()
        .change(&v4(17, &udp(PORT, &small)), SkBuff::default());
    assert_eq!(got.len(), 600);
}

#[test]
fn forwarded_tcp_keeps_its_header_unless_it_says_more_than_data() {
    linked_lab(require::root(), |lab, peer| {
        // The peer sends through this namespace to a third one.
        let third = Netns::new();
        lab.netns
            .link("w0", "198.51.100.1/24", &third, "w1", "198.51.100.7/24");
        shell(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.v0.rp_filter=0",
        );
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "late", "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        agent.attach(json!({"dev": "w0", "mode": "tc"}));
        let to = peer.enter(|| Raw::open("v1"));
        let from = third.enter(|| Raw::open("w1"));
        let router = mac(&lab.netns, "v0");
        for (flags, kept) in [
            (0x18, true),
            (0x11, false),
            (0x10, true),
            (0x12, false),
            (0x30, false),
        ] {
            let mut frame = v4(6, &tcp(flags));
            frame[..6].copy_from_slice(&router);
            to.send(&frame);
            let mut sent = frame[14..].to_vec();
            sent[8] -= 1; // its time to live
            if kept {
                let got = from.receive(6).unwrap();
                assert_eq!(
                    got[14..],
                    headers(&[&got[..14], &sent].concat(), 32)[14..],
                    "{flags:#x}"
                );
            }
        }
        assert_eq!(from.receive(6), None);
        assert_eq!(
            ["packets_in", "packets_sent", "truncated"].map(|c| agent.flow("late", c)),
            [5, 2, 2]
        );
    });
}

/// Sends stale datagrams and media through mode tc to sockets of the peer, with or without checksum offload.
fn application_gets_headers(offload: bool, rate: Option<&str>) {
    linked_lab(require::root(), |lab, peer| {
        truncated::checksum_offload("v0", offload);
        let agent = Agent::start(lab, &[]);
        agent.add(json!({"name": "late", "dport": "5004-5005", "lifetime": "1ms", "owd": "1s", "treatment": "truncate"}));
        let mut request = json!({"dev": "v0", "mode": "tc"});
        if let Some(rate) = rate {
            request["rate"] = json!(rate);
        }
        agent.attach(request);
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let receivers = [5004, 5005].map(|port| truncated::receiver(peer, "10.9.0.2", port));
        let media = rtp_with_everything();
        for _ in 0..20 {
            sender.send_to(&[1; 1200], ("10.9.0.2", 5004)).unwrap();
            sender.send_to(&media, ("10.9.0.2", 5005)).unwrap();
        }
        let mut buffer = [0; 2000];
        for _ in 0..20 {
            assert_eq!(receivers[0].recv(&mut buffer).unwrap(), 0);
            assert_eq!(receivers[1].recv(&mut buffer).unwrap(), 36);
            assert_eq!(
                (buffer[0], &buffer[1..36]),
                (media[0] & !0x20, &media[1..36])
            );
        }
        for receiver in &receivers {
            receiver
                .set_read_timeout(Some(Duration::from_millis(20)))
                .unwrap();
            assert!(receiver.recv(&mut buffer).is_err());
        }
        assert_eq!(
            ["packets_in", "packets_sent", "truncated"].map(|c| agent.flow("late", c)),
            [40; 3]
        );
        assert_eq!(agent.flow("late", "bytes_sent"), 20 * (42 + 42 + 36));
        if rate.is_some() {
            // HTB, too, was charged for the headers alone.
            let shown = lab.netns.run("tc -s class show dev v0 classid bb:1");
            let bytes: u64 = shown
                .split("Sent ")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            assert!((20 * 120..20 * 200).contains(&bytes), "{shown}");
        }
    });
}

#[test]
fn application_gets_headers_with_checksum_offload() {
    application_gets_headers(true, None);
}

#[test]
fn application_gets_headers_without_checksum_offload() {
    application_gets_headers(false, None);
}

#[test]
fn application_gets_headers_below_htb_which_is_charged_for_them() {
    application_gets_headers(true, Some("10mbit"));
}
