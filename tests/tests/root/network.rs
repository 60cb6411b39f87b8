//! Control protocols of routers and hosts: which packets are one, which only look like it, and what of them goes first.

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Outcome, Rule, iface},
    classify::*,
    clock::MS,
    frame::*,
};

const BFD: u16 = 3784;
const CS6: u8 = 48 << 2;

/// With another byte in its IP header (behind Ethernet).
fn with(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[14 + at] = value;
    frame
}

fn hops4(frame: Vec<u8>, hops: u8) -> Vec<u8> {
    with(frame, 8, hops)
}

fn tos(frame: Vec<u8>, tos: u8) -> Vec<u8> {
    with(frame, 1, tos)
}

fn tcp(sport: u16, dport: u16) -> Vec<u8> {
    let mut out = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
    out.resize(20, 0);
    out[12] = 0x50;
    ethernet(0x0800, &ip4(6, &out))
}

fn llc(points: [u8; 2]) -> Vec<u8> {
    ethernet(38, &[&points[..], &[3; 36]].concat())
}

fn goes_first(lab: &Lab, out: &Outcome) -> bool {
    let key = lab.session(out.cb.session).key;
    let first = (u32::from(key.kind), u32::from(key.part)) == (BB_SESSION_CONTROL, BB_PART_NETWORK);
    assert!(!first || (key.media, out.priority(), out.deadline()) == (1, 0, 0));
    first
}

#[test]
fn control_protocols_of_routers_go_first() {
    let lab = lab();
    let bfd = udp4(BFD, &[0x20; 24]);
    let cases = [
        ("LACP", ethernet(0x8809, &[1; 110])),
        ("EAPOL", ethernet(0x888e, &[1; 40])),
        ("LLDP", ethernet(0x88cc, &[1; 40])),
        ("PTP", ethernet(0x88f7, &[1; 44])),
        ("CFM", ethernet(0x8902, &[1; 60])),
        ("STP", llc([0x42, 0x42])),
        ("IS-IS", llc([0xfe, 0xfe])),
        (
            "LLDP behind a tag",
            ethernet(0x8100, &tag(5, 0x88cc, &[1; 40])),
        ),
        ("VRRP", ethernet(0x0800, &ip4(112, &[0x31; 20]))),
        ("VRRP of IPv6", ethernet(0x86dd, &ip6(112, &[0x31; 20]))),
        ("OSPF", ethernet(0x0800, &ip4(89, &[2; 44]))),
        ("PIM", ethernet(0x0800, &ip4(103, &[0x20; 30]))),
        ("BFD", hops4(bfd.clone(), 255)),
        ("BFD of IPv6", with(udp6(BFD, &[0x20; 24]), 7, 255)),
        ("BFD over many hops", hops4(udp4(4784, &[0x20; 24]), 255)),
        ("BGP", tcp(40_000, 179)),
        ("BGP, the other end", tcp(179, 40_000)),
        ("CS6", tos(udp4(520, &[0; 24]), CS6)),
        ("CS7", tos(udp4(520, &[0; 24]), 56 << 2)),
    ];
    let count = cases.len() as u64;
    for (what, packet) in &cases {
        assert!(goes_first(&lab, &lab.run(packet)), "{what}");
    }
    assert_eq!(lab.global(BB_G_NETWORK), count);

    let cases = [
        ("BFD that was routed", hops4(bfd, 254)),
        ("another port", hops4(udp4(3786, &[0; 24]), 255)),
        ("CS5", tos(udp4(520, &[0; 24]), 40 << 2)),
        ("TCP to port 180", tcp(40_000, 180)),
        ("another protocol", ethernet(0x0800, &ip4(90, &[0; 24]))),
        ("another ethertype", ethernet(0x88cd, &[1; 40])),
        ("another access point", llc([0xaa, 0xaa])),
        ("a frame that ends there", ethernet(3, &[])),
    ];
    for (what, packet) in &cases {
        assert!(!goes_first(&lab, &lab.run(packet)), "{what}");
    }
    assert_eq!(lab.global(BB_G_NETWORK), count);
    assert_eq!(lab.global(BB_G_NETWORK_OVER), 0);
}

#[test]
fn rule_says_more_than_dscp_or_port() {
    let lab = lab();
    assert_matched("CS6", &lab.run(&tos(udp4(PORT, &[0; 24]), CS6)));
    lab.rules(&[Rule::new().dport(BFD).lifetime(200 * MS).priority(1)]);
    assert_matched("BFD", &lab.run(&hops4(udp4(BFD, &[0x20; 24]), 255)));
    assert_eq!(lab.global(BB_G_NETWORK), 0);
}

#[test]
fn what_is_beyond_its_share_is_plain_and_takes_no_other_share() {
    let lab = lab();
    // 2 Mbit/s: 4,096 bytes at once.
    let mut slow = iface(LO, BB_MODE_QDISC);
    slow.rate = 250_000;
    lab.iface(0, &slow);
    let flood = tos(udp4(520, &[0xff; 1200]), CS6);
    let first: Vec<_> = (0..200)
        .map(|_| goes_first(&lab, &lab.run(&flood)))
        .collect();
    assert_eq!(first.iter().filter(|&&first| first).count(), 3, "{first:?}");
    // It keeps its order: what goes first came first.
    assert!(first[..3].iter().all(|&first| first));
    assert_plain(&lab, "beyond its share", &lab.run(&flood));
    assert_eq!(lab.global(BB_G_NETWORK_OVER), 198);
    for (what, packet) in [
        ("BFD of the same user", hops4(udp4(BFD, &[0; 24]), 255)),
        ("LACP", ethernet(0x8809, &[1; 110])),
        ("VRRP", ethernet(0x0800, &ip4(112, &[0x31; 20]))),
    ] {
        assert!(goes_first(&lab, &lab.run(&packet)), "{what}");
    }
}
