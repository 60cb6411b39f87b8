//! Tests of reading and writing the file.

use proptest::prelude::*;

use super::*;
use crate::{
    Bounds, Chain, Decrement, FlowLifetime, FlowName, Frames, Lifetime, LinkRate, Media, Method,
    Mode, PayloadTypes, PortRange, Prefix, Proto, RealLevel, RealMode, RtpKind, SendBuffers,
    SessionKey, Ssrc, Stamp, Treatment,
};

const GOOD: &str = r#"
[agent]
rtt_max_age = "10s"
mark_magic = "0xa0000000/0xf0000000"
events_per_s = 50
forwarded_marks = true
plain_share = 35
send_buffers = "warn"
ip_option = "0x88,0x10,0x30"

[agent.dscp]
ef = 1
cs1 = "none"

[[interface]]
dev = "eth0"
rate = "10mbit"     # the uplink
method = "triage"
session = "prefix/24"
limit = 500
observe = true
trust = ["10.1.0.0/16", "10.1.2.0/24", "2001:db8::/32"]
decrement = "clock"

[[flow]]
name = "audio"
proto = "udp"
dport = 5004
mark = 0x10
lifetime = "200ms"
priority = 0

# everything else
[[flow]]
name = "video"
proto = "udp"
dport = "5006-5010"
lifetime = "0.4s"
treatment = "forward"
stamp = "yes"
rtp_pt = [96, 98]
rtx = ["97:96", 99]
frames = "none"
media = "off"

[[flow]]
name = "film"
dport = 5012
roles = [2, 3, 4, 5, 7]
chain = "skip" # as repairs come too late

[rtp_profile]
audio = [111]
video = "96,98"

[[peer]]
addr = "192.0.2.7"
owd = "40ms"
"#;

pub(super) fn errors(text: &str) -> Vec<(usize, String)> {
    let errors = Config::parse(text, "bestby.toml").expect_err(text);
    errors
        .into_iter()
        .map(|e| (e.line, e.to_string()))
        .collect()
}

#[test]
fn tcp_real_is_on_where_its_table_is() {
    let real = |text: &str| Config::parse(text, "f").unwrap().tcp_real;
    assert_eq!(real(""), None);
    assert_eq!(real("[tcp_real]\n"), Some(RealRequest::default()));
    let all = real("[tcp_real]\ncgroup = \"/m\"\nmode = \"paper\"\nmax_level = 6\n").unwrap();
    assert_eq!(
        (all.mode, all.max_level.get(), all.cgroup.unwrap().as_str()),
        (RealMode::Paper, 6, "/m")
    );
    for (line, says) in [
        ("max_level = 128", "1 to 127"),
        ("mode = \"reno\"", "guarded or paper"),
        ("cgroup = \"m\"", "begin with /"),
        ("level = 3", "unknown key"),
    ] {
        let errors = errors(&format!("[tcp_real]\n{line}\n"));
        assert_eq!(errors[0].0, 2, "{errors:?}");
        assert!(errors[0].1.contains(says), "{errors:?}");
    }
}

#[test]
fn good_file_is_read_field_by_field() {
    let c = Config::parse(GOOD, "f").unwrap();
    assert_eq!(c.agent.rtt_max_age.to_string(), "10s");
    assert_eq!(c.agent.mark_magic.bits(), (0xa000_0000, 0xf000_0000));
    assert_eq!(c.agent.send_buffers, SendBuffers::Warn);
    assert!(c.agent.forwarded_marks && !AgentConfig::default().forwarded_marks);
    assert_eq!(c.agent.plain_share.get(), 35);
    assert_eq!(AgentConfig::default().plain_share.get(), 20);
    assert_eq!(c.agent.dscp.get(46).map(Priority::get), Some(1));
    assert_eq!(c.agent.dscp.get(8), None);
    assert_eq!(c.agent.dscp.get(34), DscpTable::default().get(34));
    assert_eq!(c.agent.dscp.to_bytes()[8], 255);
    assert_eq!(c.interfaces[0].session, Some(SessionKey::Prefix(24)));
    assert!(c.interfaces[0].observe == Some(true) && !c.interfaces[0].replace);
    assert_eq!(c.flows[0].mark, MarkMask::new(0x10, u32::MAX));
    assert_eq!(c.flows[1].treatment, Some(Treatment::Forward));
    let lifetime = c.flows[1].lifetime.and_then(FlowLifetime::time);
    assert_eq!(lifetime.map(Lifetime::as_ns), Some(400_000_000));
    assert_eq!(c.flows[1].stamp, Some(Stamp::Yes));
    let video = &c.flows[1];
    assert_eq!(
        video.rtp_pt.map(|t| t.to_string()).as_deref(),
        Some("96,98")
    );
    assert_eq!(
        video.rtx.as_ref().map(ToString::to_string).as_deref(),
        Some("97:96,99")
    );
    assert!(c.rtp_profile.of(RtpKind::Audio).contains(111));
    assert_eq!(c.peers[0].owd.map(Owd::as_ns), Some(40_000_000));
    assert_eq!(Config::parse("", "f").unwrap(), Config::default());
    assert!(c.warnings().is_empty());
}

#[test]
fn bad_line_is_reported_with_its_number() {
    let lines: Vec<&str> = GOOD.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        if !line.contains('=') {
            continue;
        }
        let key = line.split('=').next().unwrap().trim();
        let bad_value = format!("{key} = \"?/ \"");
        let bad_key = format!("{key}x = 1");
        for (bad, needs_name) in [(bad_value, false), (bad_key, true)] {
            let mut changed = lines.clone();
            changed[i] = &bad;
            let found = errors(&changed.join("\n"));
            // Without its name, a table is also reported at its header.
            let at: Vec<usize> = found.iter().map(|e| e.0).collect();
            assert!(at.contains(&(i + 1)), "{bad}: {found:?}");
            assert!(found.len() <= 2, "{bad}: {found:?}");
            assert!(needs_name || found[0].1.contains(key), "{bad}: {found:?}");
        }
    }
}

#[test]
fn each_kind_of_error_is_reported_at_its_line() {
    for (text, line, says) in [
        (
            "[[flow]]\nname = \"a\"\nlifetme = \"1s\"\npriority = 1",
            3,
            "lifetime?",
        ),
        ("[[flow]]\nname = \"a\"\nlifetime = \"-1s\"", 3, "negative"),
        ("[[flow]]\nname = \"a\"\nlifetime = 200", 3, "unit"),
        ("[[flow]]\nname = \"a\"\nlifetime = nan", 3, "decimal"),
        ("[[flow]]\nname = \"a\"\nlifetime = [1]", 3, "array"),
        ("[[flow]]\nname = \"a\"\ndport = 5004", 1, "neither"),
        ("[[flow]]\nlifetime = \"1s\"", 1, "name"),
        (
            "\n[[flow]]\nname = \"a\"\npriority = 1\n[[flow]]\nname = \"a\"\npriority = 2",
            6,
            "line 3",
        ),
        (
            "[[flow]]\nname = \"a\"\npriority = 1\npriority = 2",
            4,
            "duplicate",
        ),
        ("[[interface]]\ndev = \"a\"\nobserve = \"yes\"", 3, "true"),
        ("[[interface]]\ndev = \"a/b\"", 2, "interface"),
        ("[interface]\ndev = \"a\"", 1, "[[interface]]"),
        (
            "[[peer]]\naddr = \"::ffff:1.2.3.4\"\nowd = \"1ms\"\n[[peer]]\naddr = \"1.2.3.4\"\nowd = \"1ms\"",
            5,
            "already",
        ),
        ("[[peer]]\naddr = \"1.2.3.4\"", 1, "owd"),
        ("[agent]\nmark_magic = \"0x1/0xff\"", 2, "ADU"),
        ("[agent]\nsocket = \"run\"", 2, "absolute"),
        ("[agent]\nevents_per_s = 99999999999", 2, "1000000"),
        ("[agent]\nplain_share = 0", 2, "90"),
        ("[agent]\nplain_share = 91", 2, "90"),
        ("[agent]\nplain_share = \"20%\"", 2, "whole"),
        ("[agent]\nforwarded_marks = 1", 2, "true"),
        ("[agent]\nsend_buffers = \"on\"", 2, "auto, warn or off"),
        ("[agent.dscp]\nef = 1\n46 = 2", 3, "ef"),
        ("[agent.dscp]\nef = 9", 2, "7"),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nrtp_pt = 200",
            4,
            "0..127",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nrtp_pt = [[1]]",
            4,
            "list",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nrtp_kind = \"text\"",
            4,
            "audio",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nproto = \"tcp\"\nssrc = 1",
            1,
            "UDP",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nframes = \"sometimes\"",
            4,
            "auto",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nroles = [3, 4, 5]",
            4,
            "3 priorities, not 5",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nroles = \"3,4,5,6,7\"\npriority = 0",
            1,
            "priority 0 and roles",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nchain = \"demote\"",
            4,
            "auto, skip or off",
        ),
        (
            "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\nmedia = true",
            4,
            "boolean",
        ),
        ("[rtp_profile]\naudio = [111]\nvideo = [111]", 1, "111"),
        ("[rtp_profile]\naudio = []", 2, "payload"),
        ("[rtp_profile]\nvide = [96]", 2, "video?"),
        ("flow = 3", 1, "list"),
        ("[agnt]", 1, "agent?"),
        ("a = ", 1, "bestby.toml:1:"),
        ("\n\n[[flow\n", 3, "bestby.toml:3:"),
    ] {
        let found = errors(text);
        assert_eq!(found[0].0, line, "{text}: {found:?}");
        assert!(found[0].1.contains(says), "{text}: {found:?}");
    }
}

#[test]
fn file_with_five_errors_reports_all_five() {
    let found = errors(
        "[agent]\nx = 1\n[[flow]]\nname = \"a\"\nlifetime = \"0s\"\ndport = 0\n[[peer]]\naddr = \"z\"\n",
    );
    let lines: Vec<usize> = found.iter().map(|e| e.0).collect();
    assert_eq!(lines, [2, 5, 6, 7, 8]);
}

#[test]
fn rule_hidden_by_an_earlier_one_is_warned_of() {
    let c = Config::parse(
        "[[flow]]\nname = \"all\"\nproto = \"udp\"\nlifetime = \"1s\"\n\
         [[flow]]\nname = \"b\"\nproto = \"udp\"\ndport = 1\nlifetime = \"1s\"",
        "f",
    )
    .unwrap();
    let warnings = c.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("\"b\"") && warnings[0].contains("\"all\""),
        "{warnings:?}"
    );
}

#[test]
fn file_with_one_flow_too_many_is_refused() {
    let mut text = String::new();
    for i in 0..MAX_FLOWS {
        text += &format!(
            "[[flow]]\nname = \"f{i}\"\ndport = {}\nlifetime = \"1s\"\n",
            i % 65535 + 1
        );
    }
    assert_eq!(Config::parse(&text, "f").unwrap().flows.len(), MAX_FLOWS);
    text += "[[flow]]\nname = \"one-more\"\nlifetime = \"1s\"\n";
    assert!(errors(&text)[0].1.contains("many"));
}

#[test]
fn deeply_nested_file_is_refused() {
    for deep in [
        "a = ".to_string() + &"[".repeat(100_000),
        "a.".repeat(100_000) + "b = 1",
    ] {
        assert!(!errors(&deep).is_empty());
    }
}

fn flow(json: &str) -> FlowRule {
    serde_json::from_str(json).unwrap()
}

#[test]
fn put_and_remove_of_flows_keep_comments_and_order() {
    let mut doc = Document::parse(GOOD, "f").unwrap();
    let mut audio = doc.config().flows[0].clone();
    audio.lifetime = "150ms".parse().ok();
    doc.put_flow(&audio, None).unwrap();
    assert_eq!(doc.text(), GOOD.replace("\"200ms\"", "\"150ms\""));

    let new = flow(r#"{"name":"new","dst":"10.0.0.0/8","lifetime":"1s","priority":2}"#);
    doc.put_flow(&new, Some(&"video".parse().unwrap())).unwrap();
    let names: Vec<&str> = doc.config().flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["audio", "new", "video", "film"]);
    assert!(
        doc.text()
            .contains("# everything else\n[[flow]]\nname = \"video\""),
        "{}",
        doc.text()
    );
    assert!(doc.text().contains("# the uplink"));
    assert_eq!(doc.config().flows[1], new);

    doc.put_flow(
        &flow(r#"{"name":"first","priority":2}"#),
        Some(&"audio".parse().unwrap()),
    )
    .unwrap();
    doc.put_flow(&flow(r#"{"name":"last","priority":2}"#), None)
        .unwrap();
    let names: Vec<&str> = doc.config().flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["first", "audio", "new", "video", "film", "last"]);

    for name in ["new", "first", "last"] {
        assert!(doc.remove_flow(&name.parse().unwrap()).unwrap());
        assert!(!doc.remove_flow(&name.parse().unwrap()).unwrap());
    }
    assert_eq!(doc.text(), GOOD.replace("\"200ms\"", "\"150ms\""));
}

#[test]
fn put_flow_extends_an_empty_file_and_an_inline_list() {
    let new = flow(r#"{"name":"new","dport":"1-2","lifetime":"1s"}"#);
    let mut doc = Document::parse("", "f").unwrap();
    doc.put_flow(&new, None).unwrap();
    assert_eq!(
        doc.text(),
        "[[flow]]\nname = \"new\"\ndport = \"1-2\"\nlifetime = \"1s\"\n"
    );
    let mut doc = Document::parse("flow = [{ name = \"a\", priority = 1 }]\n", "f").unwrap();
    doc.put_flow(&new, None).unwrap();
    assert_eq!(doc.config().flows.len(), 2);
    assert!(Document::parse("[[flow]]\nx = 1", "f").is_err());
}

fn optional<T: std::fmt::Debug + Clone + 'static>(
    v: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(v)
}

prop_compose! {
    fn any_flow()(
        name in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}", proto in optional(prop::sample::select(Proto::ALL)),
        port in optional((1u16..1000, 1000u16..)), dst in optional(any::<u32>()), dscp in optional(0u8..64),
        mark in optional((any::<u32>(), 1u32..)), lifetime in 1_000u64..=131_000_000_000, priority in optional(0u64..8),
        treatment in optional(prop::sample::select(Treatment::ALL)), owd in optional(0u64..10_000_000_000),
        rtp in optional((0u8..127, 0u8..128, any::<u32>(), prop::sample::select(Frames::ALL))),
        roles in optional((any::<bool>(), 0u64..8, prop::sample::select(Chain::ALL))),
        cgroup in optional("/[a-zé \"\\\\]{1,8}"), dev in optional("[a-z]{1,8}"),
    ) -> FlowRule {
        FlowRule {
            // RTP over TCP is refused.
            proto: proto.filter(|_| rtp.is_none() && roles.is_none()),
            rtp_pt: rtp.and_then(|r| Some(PayloadTypes::one(r.0)?.with(PayloadTypes::one(r.1)?))),
            ssrc: rtp.filter(|r| r.0 % 2 == 0).map(|r| Ssrc::new(r.2)),
            rtx: rtp
                .filter(|r| r.0 % 2 == 1)
                .and_then(|r| format!("{}:{}", r.0 + 1, r.0).parse().ok()),
            frames: rtp.map(|r| r.3).filter(|_| roles.is_none()),
            media: (roles.is_none() && proto.is_none())
                .then(|| if lifetime % 2 == 0 { Media::Off } else { "chrome".parse().unwrap() }),
            chain: roles.map(|r| r.2).filter(|_| treatment.is_none()),
            roles: roles.filter(|r| r.0).and_then(|r| format!("{0},{0},{0},7,7", r.1).parse().ok()),
            dport: port.and_then(|(a, b)| PortRange::new(a, b)),
            sport: port.and_then(|(a, _)| PortRange::new(a, a)),
            dst: dst.and_then(|a| Prefix::new(std::net::Ipv4Addr::from(a).into(), 32)),
            dscp: dscp.and_then(Dscp::new),
            mark: mark.and_then(|(v, m)| MarkMask::new(v & m, m)),
            lifetime: Lifetime::from_ns(lifetime).map(Into::into),
            stamp: (lifetime % 2 == 0).then_some(Stamp::Yes),
            priority: priority
                .filter(|_| !roles.is_some_and(|r| r.0))
                .and_then(|p| Priority::try_from(p).ok()),
            treatment,
            owd: owd.and_then(Owd::from_ns),
            cgroup: cgroup.and_then(|c| c.parse().ok()),
            dev: dev.and_then(|d| d.parse().ok()),
            ..FlowRule::new(name.parse::<FlowName>().unwrap())
        }
    }
}

prop_compose! {
    fn any_interface()(
        dev in "[a-z0-9@é]{1,7}", mode in prop::sample::select(Mode::ALL), rate in optional(125u64..=125_000_000_000),
        method in optional(prop::sample::select(Method::ALL)), bits in optional(1u8..=128), limit in optional(1u64..65536),
        overhead in optional(0u64..=256), observe: Option<bool>, replace: bool, auto: bool,
        probe in optional(prop::sample::select(vec!["receivers", "gateway", "none", "2001:db8::1"])),
    ) -> AttachRequest {
        let rate = rate.and_then(Rate::from_bytes_per_s);
        AttachRequest {
            mode: Some(mode),
            rate: match auto {
                true => Bounds::new(None, rate).map(|b| Some(LinkRate::Auto(b))),
                false => rate.map(|r| Some(LinkRate::Fixed(r))),
            },
            probe: probe.and_then(|p| p.parse().ok()),
            method,
            session: bits.map(SessionKey::Prefix),
            limit: limit.and_then(|l| crate::Limit::try_from(l).ok()),
            overhead: overhead.and_then(|o| crate::Overhead::try_from(o).ok()),
            observe,
            replace,
            ..AttachRequest::new(dev.parse().unwrap())
        }
    }
}

prop_compose! {
    fn any_config()(
        flows in prop::collection::vec(any_flow(), 0..6), interfaces in prop::collection::vec(any_interface(), 0..3),
        peers in prop::collection::vec((any::<IpAddr>(), 125u64..100_000, optional(0u64..1_000_000)), 0..4),
        events in 0u32..=1_000_000, magic in 0u32..16, audio in optional(35u8..64), share in 1u64..=90,
        media in prop::collection::btree_map("[a-z]\\.[a-z0-9.-]{1,5}", (1u8..14, any::<bool>()), 0..3),
        forwarded: bool, dscp in prop::collection::vec((0usize..64, optional(0u64..8)), 0..5),
        real in optional((1u64..=127, any::<bool>(), any::<bool>())),
    ) -> Config {
        let mut config = Config { flows, interfaces, ..Config::default() };
        config.agent.events_per_s = events;
        config.agent.forwarded_marks = forwarded;
        config.agent.plain_share = crate::PlainShare::try_from(share).unwrap();
        config.rtp_profile.audio = audio.and_then(PayloadTypes::one);
        config.agent.mark_magic = MarkMask::new(magic << 28, 0xf000_0000).map_or(MarkMagic::Ignore, MarkMagic::Bits);
        config.media = media.into_iter().map(|(name, (id, profile))| (name.parse().unwrap(), crate::MediaTable {
            profile: profile.then_some(crate::MediaProfile::Janus),
            dd: crate::ExtensionId::new(id),
            vfm: None,
        })).collect();
        config.tcp_real = real.map(|(level, paper, below)| RealRequest {
            cgroup: below.then(|| "/media.slice".parse().unwrap()),
            mode: if paper { RealMode::Paper } else { RealMode::Guarded },
            max_level: RealLevel::try_from(level).unwrap(),
        });
        for (i, p) in dscp {
            config.agent.dscp.set(i, p.and_then(|p| Priority::try_from(p).ok()));
        }
        config.peers = peers.into_iter().map(|(addr, rate, owd)| PeerConfig {
            addr: addr.to_canonical(), rate: Rate::from_bytes_per_s(rate), owd: owd.and_then(Owd::from_ns),
        }).collect();
        // Names are unique in a valid file.
        let mut seen = std::collections::HashSet::new();
        config.flows.retain(|f| seen.insert(f.name.to_string()));
        seen.clear();
        config.interfaces.retain(|i| seen.insert(i.dev.to_string()));
        seen.clear();
        config.peers.retain(|p| seen.insert(p.addr.to_string()));
        config
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn config_as_toml_or_json_reads_back_equal(config in any_config()) {
        let text = config.to_toml();
        prop_assert_eq!(Config::parse(&text, "f").map_err(|e| format!("{e:?}\n{text}")), Ok(config.clone()));
        let json = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
    }

    #[test]
    fn put_and_remove_of_one_flow_leave_the_rest(config in any_config(), new in any_flow()) {
        let mut doc = Document::parse(&config.to_toml(), "f").unwrap();
        doc.put_flow(&new, None).unwrap();
        let mut wanted = config.flows.clone();
        match wanted.iter_mut().find(|f| f.name == new.name) {
            Some(old) => *old = new.clone(),
            None => wanted.push(new.clone()),
        }
        prop_assert_eq!(&doc.config().flows, &wanted);
        prop_assert_eq!(&doc.config().interfaces, &config.interfaces);
        doc.remove_flow(&new.name).unwrap();
        wanted.retain(|f| f.name != new.name);
        prop_assert_eq!(&doc.config().flows, &wanted);
    }

    #[test]
    fn parsing_any_text_never_panics(text in "(\\[\\[?(flow|agent|peer|interface)\\]\\]?\n)?(\\PC{0,20}\n|[a-z]{1,4} = \\PC{0,10}\n){0,5}") {
        let _ = Config::parse(&text, "f");
    }
}

#[test]
fn first_rule_beyond_the_combinations_is_refused() {
    let flows = |count: usize| -> String {
        (0..count)
            .map(|n| {
                let (src, dst) = (1 + n % 16, 1 + n / 16);
                format!("[[flow]]\nname = \"f{n}\"\nsrc = \"0.0.0.0/{src}\"\ndst = \"0.0.0.0/{dst}\"\nlifetime = \"1s\"\n")
            })
            .collect()
    };
    assert!(Config::parse(&flows(128), "f").is_ok());
    // Rules that compare what others compare take no more.
    let same = "[[flow]]\nname = \"same\"\nsrc = \"64.0.0.0/5\"\ndst = \"64.0.0.0/5\"\nlifetime = \"1s\"\n";
    assert!(Config::parse(&(flows(128) + same), "f").is_ok());
    let errors = Config::parse(&flows(130), "f").unwrap_err();
    assert_eq!((errors.len(), errors[0].line), (1, 128 * 5 + 1));
    assert!(errors[0].message.contains("f128"), "{}", errors[0]);
    // Each of these has 900 entries of 225 combinations.
    let wide =
        "[[flow]]\nname = \"w\"\nsport = \"1-65534\"\ndport = \"1-65534\"\nlifetime = \"1s\"\n";
    let errors = Config::parse(wide, "f").unwrap_err();
    assert!(errors[0].message.contains("combinations"), "{}", errors[0]);
}

#[test]
fn option_types_and_trusted_prefixes_are_read_and_wrong_ones_refused() {
    let config = Config::parse(GOOD, "bestby.toml").unwrap();
    assert_eq!(config.agent.ip_option.to_string(), "0x88,0x10,0x30");
    let iface = &config.interfaces[0];
    // One prefix lies in another.
    let trust = iface.trust.as_ref().unwrap();
    assert_eq!(trust.to_string(), "10.1.0.0/16,2001:db8::/32");
    assert_eq!(iface.decrement, Some(Decrement::Clock));
    assert!(trust.of("10.1.2.3".parse().unwrap()).is_some());
    assert!(trust.of("10.2.0.1".parse().unwrap()).is_none());
    assert_eq!(
        AgentConfig::default().ip_option.to_string(),
        "0x9e,0x1e,0x3e"
    );
    for (types, reason) in [
        ("0x9e,0x1e", "three"),
        ("0x9e,0x1e,0x3e,0", "three"),
        ("256,0x1e,0x3e", "three"),
        ("1,0x1e,0x3e", "padding"),
        ("0x81,0x1e,0x3e", "padding"),
        ("0x9e,1,0x3e", "padding"),
        ("0x9e,0x5e,0x3e", "skip"),
        ("0x9e,0x1e,0x1e", "change"),
    ] {
        let text = format!("[agent]\nip_option = \"{types}\"\n");
        let (line, message) = errors(&text).remove(0);
        assert!(line == 2 && message.contains(reason), "{types}: {message}");
    }
    let many: Vec<String> = (0..33).map(|n| format!("\"10.{n}.0.0/16\"")).collect();
    let text = format!("[[interface]]\ndev = \"x\"\ntrust = [{}]\n", many.join(","));
    assert!(errors(&text)[0].1.contains("many"));
}
