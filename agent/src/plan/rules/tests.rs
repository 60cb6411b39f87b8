use std::collections::HashMap;

use bestby_api::{
    CgroupPath, DevName, Dscp, MarkMask, PacketDescription, PayloadTypes, Proto, RtpKind, Ssrc,
};
use proptest::prelude::*;

use super::*;
use crate::error::Kind;

struct Host;

fn profile() -> RtpProfile {
    RtpProfile {
        audio: "2,111".parse().ok(),
        video: "96,98".parse().ok(),
    }
}

impl Resolve for Host {
    fn ifindex(&self, dev: &DevName) -> Option<u32> {
        dev.as_str()
            .strip_prefix("eth")
            .and_then(|n| n.parse().ok())
    }
    fn cgroup(&self, path: &CgroupPath) -> Option<(u64, u32)> {
        // "/", "/1", "/1/2": the id is the path's digits.
        let parts: Vec<&str> = path.as_str().split('/').filter(|p| !p.is_empty()).collect();
        Some((
            1000 + parts.concat().parse().unwrap_or(0),
            u32::try_from(parts.len()).unwrap(),
        ))
    }
}

/// Fields of a packet that rules compare, in the form of the kernel's key (`set` and `shape` unused);
/// `cgroups[level]` is the id of the sender's ancestor at that level.
#[derive(Debug, Clone, Default)]
struct PacketFields {
    /// Addresses, ports (host order), mark, and the rest; `cgroup` unused.
    key: abi::bb_rule_key,
    /// Ancestors of the sending socket's cgroup.
    cgroups: Vec<u64>,
}

/// A packet's fields under a mask.
fn under(fields: &PacketFields, shape: &abi::bb_shape, index: u32, set: u8) -> abi::bb_rule_key {
    let (k, m) = (&fields.key, &shape.mask);
    let and =
        |a: [u8; 16], b: [u8; 16]| (u128::from_ne_bytes(a) & u128::from_ne_bytes(b)).to_ne_bytes();
    let cgroup = match shape.cgroup_level {
        0 => 0,
        level => fields.cgroups.get(level as usize).copied().unwrap_or(0),
    };
    abi::bb_rule_key {
        src: and(k.src, m.src),
        dst: and(k.dst, m.dst),
        cgroup: cgroup & m.cgroup,
        mark: k.mark & m.mark,
        ifindex: k.ifindex & m.ifindex,
        sport: k.sport & m.sport,
        dport: k.dport & m.dport,
        family: k.family & m.family,
        proto: k.proto & m.proto,
        dscp: k.dscp & m.dscp,
        set,
        shape: index,
        ssrc: k.ssrc & m.ssrc,
        rtp: k.rtp & m.rtp,
        pad: [0; 7],
    }
}

/// The search as the classifier does it: the id of the matching rule of the lowest order.
fn search(
    shapes: &[abi::bb_shape],
    set: u8,
    fields: &PacketFields,
    mut lookup: impl FnMut(&abi::bb_rule_key) -> Option<abi::bb_rule_ref>,
) -> Option<abi::bb_rule_ref> {
    let mut best: Option<abi::bb_rule_ref> = None;
    for (index, shape) in shapes.iter().enumerate() {
        // Shapes are sorted: no later one can beat what was found.
        if best.is_some_and(|b| b.order < shape.first_order) {
            break;
        }
        let key = under(fields, shape, u32::try_from(index).unwrap_or(u32::MAX), set);
        if let Some(found) = lookup(&key)
            && best.is_none_or(|b| found.order < b.order)
        {
            best = Some(found);
        }
    }
    best
}

fn fields(dev: &DevName, packet: &PacketDescription) -> PacketFields {
    let mut cgroups = Vec::new();
    if let Some(path) = &packet.cgroup {
        let mut at = String::new();
        cgroups.push(Host.cgroup(&"/".parse().unwrap()).unwrap().0);
        for part in path.as_str().split('/').filter(|p| !p.is_empty()) {
            at = format!("{at}/{part}");
            cgroups.push(Host.cgroup(&at.parse().unwrap()).unwrap().0);
        }
    }
    let key = abi::bb_rule_key {
        src: address_bytes(packet.src.unwrap()),
        dst: address_bytes(packet.dst),
        mark: packet.mark,
        ifindex: Host.ifindex(dev).unwrap(),
        sport: packet.sport.unwrap(),
        dport: packet.dport.unwrap(),
        family: if packet.dst.is_ipv4() { 4 } else { 6 },
        proto: packet.proto.number(),
        dscp: packet.dscp.get(),
        rtp: packet.rtp.map_or(0, rtp),
        ssrc: packet.ssrc.map_or(0, |s| s.get()),
        ..Default::default()
    };
    PacketFields { key, cgroups }
}

fn find(compiled: &Compiled, fields: &PacketFields) -> Option<u16> {
    let keys: HashMap<Vec<u8>, abi::bb_rule_ref> = compiled
        .keys
        .iter()
        .map(|(k, r)| (k.as_bytes().to_vec(), *r))
        .collect();
    search(&compiled.shapes, 0, fields, |k| {
        keys.get(k.as_bytes()).copied()
    })
    .map(|r| u16::try_from(r.rule).unwrap())
}

fn ip(v6: bool) -> BoxedStrategy<IpAddr> {
    // Few different addresses, so that prefixes hit.
    if v6 {
        (0u128..4, 0u32..3)
            .prop_map(|(low, high)| {
                IpAddr::V6((0x2001_0db8 << 96 | u128::from(high) << 64 | low).into())
            })
            .boxed()
    } else {
        (0u32..4, 0u32..3)
            .prop_map(|(low, high)| IpAddr::V4((0x0a00_0000 | high << 8 | low).into()))
            .boxed()
    }
}

fn prefix(v6: bool) -> BoxedStrategy<Prefix> {
    (ip(v6), 0u8..=128)
        .prop_map(move |(addr, bits)| {
            let full = if v6 { 128 } else { 32 };
            let bits = if bits > full { full } else { bits };
            let addr = match addr {
                IpAddr::V4(a) => IpAddr::V4(
                    (u32::from(a) & u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)).into(),
                ),
                IpAddr::V6(a) => IpAddr::V6(
                    (u128::from(a) & u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0))
                        .into(),
                ),
            };
            Prefix::new(addr, bits).unwrap()
        })
        .boxed()
}

fn ports() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        (1u16..20).prop_map(|p| PortRange::new(p, p).unwrap()),
        (1u16..20, 0u16..20).prop_map(|(a, n)| PortRange::new(a, a + n).unwrap()),
    ]
}

fn proto() -> impl Strategy<Value = Proto> {
    prop_oneof![Just(Proto::Udp), Just(Proto::Tcp)]
}

fn cgroup() -> impl Strategy<Value = CgroupPath> {
    prop_oneof![Just("/"), Just("/1"), Just("/1/2"), Just("/3")].prop_map(|p| p.parse().unwrap())
}

prop_compose! {
    fn rule()(v6 in any::<bool>())(
        proto in prop::option::of(proto()),
        src in prop::option::weighted(0.3, prefix(v6)),
        dst in prop::option::weighted(0.3, prefix(v6)),
        sport in prop::option::weighted(0.3, ports()),
        dport in prop::option::weighted(0.3, ports()),
        dscp in prop::option::weighted(0.3, 0u8..3),
        mark in prop::option::weighted(0.3, (0u32..8, 1u32..8)),
        cgroup in prop::option::weighted(0.2, cgroup()),
        dev in prop::option::weighted(0.2, 1u8..3),
        types in prop::option::weighted(0.3, prop::collection::vec(0u8..4, 1..3)),
        kind in prop::option::weighted(0.2, prop::sample::select(RtpKind::ALL)),
        ssrc in prop::option::weighted(0.2, 0u32..2),
        rtx in prop::option::weighted(0.2, 4u8..6),
    ) -> FlowRule {
        let mut rule = FlowRule::new("x".parse().unwrap());
        rule.proto = proto;
        rule.src = src;
        rule.dst = dst;
        rule.sport = sport;
        rule.dport = dport;
        rule.dscp = dscp.and_then(Dscp::new);
        rule.mark = mark.and_then(|(v, m)| MarkMask::new(v & m, m));
        rule.cgroup = cgroup;
        rule.dev = dev.map(|n| format!("eth{n}").parse().unwrap());
        rule.rtp_pt = types.and_then(|t| t.into_iter().filter_map(PayloadTypes::one).reduce(PayloadTypes::with));
        rule.rtp_kind = kind.filter(|_| rule.rtp_pt.is_none());
        rule.ssrc = ssrc.map(Ssrc::new);
        rule.rtx = rtx.map(|pt| pt.to_string().parse().unwrap());
        rule
    }
}

prop_compose! {
    fn packet()(v6 in any::<bool>())(
        proto in proto(), src in ip(v6), dst in ip(v6), sport in 1u16..25, dport in 1u16..25,
        dscp in 0u8..3, mark in 0u32..8, cgroup in prop::option::of(cgroup()),
        rtp in prop::option::of((prop_oneof![0u8..6, 25u8..27], 0u32..2)),
    ) -> PacketDescription {
        PacketDescription {
            proto, src: Some(src), sport: Some(sport), dst, dport: Some(dport), dscp: Dscp::new(dscp).unwrap(),
            mark, priority: None, cgroup, len: 1000, rtp: rtp.map(|r| r.0), ssrc: rtp.map(|r| Ssrc::new(r.1)),
            payload: None, option: None,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The compiled search finds the rule that going through the list would find.
    #[test]
    fn search_finds_the_rule_that_a_linear_scan_finds(
        rules in prop::collection::vec(rule(), 0..12),
        packets in prop::collection::vec(packet(), 1..20),
        dev in 1u8..3,
    ) {
        let dev: DevName = format!("eth{dev}").parse().unwrap();
        let list: Vec<(u16, &FlowRule)> = rules.iter().enumerate().map(|(i, r)| (u16::try_from(i + 1).unwrap(), r)).collect();
        let Ok(compiled) = compile(&list, profile(), &Host) else {
            return Err(TestCaseError::reject("too many shapes"));
        };
        prop_assert!(compiled.shapes.is_sorted_by_key(|s| s.first_order));
        for packet in &packets {
            let naive = list.iter().find(|(_, r)| {
                // A packet without a socket is below no cgroup, save in a rule that names the root.
                let mut r = (*r).clone();
                if r.cgroup.as_ref().is_some_and(|c| c.as_str() == "/") {
                    r.cgroup = None;
                }
                r.matches(&dev, packet, profile()).is_ok()
            }).map(|(id, _)| *id);
            prop_assert_eq!(find(&compiled, &fields(&dev, packet)), naive, "{}", packet);
        }
    }

    #[test]
    fn prefixes_of_a_port_range_match_its_ports_only(a in 1u16.., b in 1u16.., p in any::<u16>()) {
        let range = PortRange::new(a.min(b), a.max(b)).unwrap();
        let prefixes = range.prefixes();
        prop_assert!(prefixes.len() <= 30);
        let hits = prefixes.iter().filter(|(v, m)| p & m == *v).count();
        prop_assert_eq!(hits, usize::from(range.contains(p)));
    }
}

#[test]
fn port_range_has_the_fewest_prefixes() {
    assert_eq!(PortRange::new(1, 65535).unwrap().prefixes().len(), 16);
    assert_eq!(
        PortRange::new(5004, 5004).unwrap().prefixes(),
        [(5004, 0xffff)]
    );
    assert_eq!(PortRange::new(1, 65534).unwrap().prefixes().len(), 30);
}

#[test]
fn rule_of_too_many_shapes_is_refused() {
    let mut rule = FlowRule::new("wide".parse().unwrap());
    rule.sport = PortRange::new(1, 65534);
    rule.dport = PortRange::new(1, 65534);
    let error = compile(&[(1, &rule)], profile(), &Host).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("\"wide\""), "{error}");
}

#[test]
fn rule_for_a_missing_interface_waits() {
    let mut rule = FlowRule::new("later".parse().unwrap());
    rule.dev = Some("wlan0".parse().unwrap());
    let compiled = compile(&[(7, &rule)], profile(), &Host).unwrap();
    assert!(compiled.keys.is_empty());
    assert_eq!(
        compiled.waiting,
        [(rule.name, "interface wlan0 does not exist".to_string())]
    );
}

#[test]
fn ten_thousand_rules_of_one_shape_have_one_shape() {
    let rules: Vec<FlowRule> = (0..10_000u32)
        .map(|n| {
            let mut rule = FlowRule::new(format!("r{n}").parse().unwrap());
            rule.dst = Prefix::new(IpAddr::V4((0x0a00_0000 + n).into()), 32);
            rule
        })
        .collect();
    let list: Vec<(u16, &FlowRule)> = rules
        .iter()
        .enumerate()
        .map(|(i, r)| (u16::try_from(i + 1).unwrap(), r))
        .collect();
    let compiled = compile(&list, profile(), &Host).unwrap();
    assert_eq!((compiled.shapes.len(), compiled.keys.len()), (1, 10_000));
}

#[test]
fn payload_types_are_keys_of_one_shape() {
    let rule: FlowRule = serde_json::from_str(
        r#"{"name":"v","rtp_kind":"video","rtx":"97:96,99","frames":"none","lifetime":"1s"}"#,
    )
    .unwrap();
    let compiled = compile(&[(1, &rule)], profile(), &Host).unwrap();
    assert_eq!(compiled.shapes.len(), 1);
    assert_eq!(compiled.shapes[0].mask.rtp, 0xff);
    let types: Vec<u8> = compiled.keys.iter().map(|(k, _)| k.rtp & 0x7f).collect();
    assert_eq!(types, [25, 26, 28, 31, 32, 33, 34, 96, 97, 98, 99]);
    assert!(compiled.keys.iter().all(|(k, _)| k.rtp & 0x80 != 0));
    assert!(compiled.rtp);
    let kernel = compiled.rules[0].1;
    assert_eq!(kernel.rtx_n, 2);
    assert_eq!(
        (kernel.rtx[0].rtx, kernel.rtx[0].original),
        (0x80 | 97, 0x80 | 96)
    );
    assert_eq!((kernel.rtx[1].rtx, kernel.rtx[1].original), (0x80 | 99, 0));
    assert_ne!(u32::from(kernel.flags) & abi::BB_RULE_NO_FRAMES, 0);
}

#[test]
fn an_ssrc_of_zero_matches_rtp_packets_only() {
    let rule: FlowRule = serde_json::from_str(r#"{"name":"s","ssrc":0,"lifetime":"1s"}"#).unwrap();
    let compiled = compile(&[(1, &rule)], profile(), &Host).unwrap();
    let dev = "eth0".parse().unwrap();
    let found = |text: &str| find(&compiled, &fields(&dev, &text.parse().unwrap()));
    assert_eq!(found("udp 10.0.0.1:1 > 10.0.0.2:2 rtp 5 ssrc 0"), Some(1));
    assert_eq!(found("udp 10.0.0.1:1 > 10.0.0.2:2 rtp 5 ssrc 1"), None);
    assert_eq!(found("udp 10.0.0.1:1 > 10.0.0.2:2"), None);
}

#[test]
fn rules_without_rtp_fields_compile_without_rtp() {
    let rule: FlowRule =
        serde_json::from_str(r#"{"name":"s","dport":5,"rtx":"97:96","lifetime":"1s"}"#).unwrap();
    let compiled = compile(&[(1, &rule)], profile(), &Host).unwrap();
    assert!(!compiled.rtp && compiled.shapes[0].mask.rtp == 0);
}

#[test]
fn rule_flags_say_stamp_and_retransmission_timeout() {
    let flags = |json: &str| u32::from(kernel_rule(&serde_json::from_str(json).unwrap()).flags);
    let rto = r#"{"name":"t","proto":"tcp","lifetime":"rto","stamp":"yes"}"#;
    assert_eq!(flags(rto), abi::BB_RULE_STAMP | abi::BB_RULE_RTO);
    let stamp = r#"{"name":"t","lifetime":"1s","stamp":"yes"}"#;
    assert_eq!(flags(stamp), abi::BB_RULE_STAMP);
    let probed = r#"{"name":"t","lifetime":"1s","stamp":"probed"}"#;
    assert_eq!(flags(probed), abi::BB_RULE_STAMP | abi::BB_RULE_PROBED);
    assert_eq!(flags(r#"{"name":"t","lifetime":"1s","stamp":"no"}"#), 0);
}

#[test]
fn rule_says_how_pictures_are_read() {
    let rule = |json: &str| kernel_rule(&serde_json::from_str(json).unwrap());
    let flags = |json: &str| u32::from(rule(json).flags);
    let off = r#"{"name":"v","lifetime":"1s","media":"off"}"#;
    assert_eq!(flags(off), abi::BB_RULE_BLIND);
    let skip = r#"{"name":"v","lifetime":"1s","chain":"skip"}"#;
    assert_eq!(flags(skip), abi::BB_RULE_CHAIN_SKIP);
    let never = r#"{"name":"v","lifetime":"1s","chain":"off"}"#;
    assert_eq!(flags(never), abi::BB_RULE_CHAIN_OFF);
    let auto = r#"{"name":"v","lifetime":"1s","media":"auto","chain":"auto"}"#;
    assert_eq!((flags(auto), rule(auto).roles), (0, 0));
    let roles = rule(r#"{"name":"v","roles":"1,2,3,4,7"}"#);
    assert_eq!(u32::from(roles.flags), abi::BB_RULE_ROLES);
    let of = [0, 1, 2, 3, 4].map(|role| roles.roles >> (3 * role) & 7);
    assert_eq!(of, [1, 2, 3, 4, 7]);
}
