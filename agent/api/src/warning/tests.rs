use proptest::option::of;
use proptest::prelude::*;

use super::*;

fn rules(toml: &str) -> Config {
    Config::parse(toml, "f").unwrap()
}

/// Ids of all that is found in a file.
fn found(toml: &str) -> Vec<&'static str> {
    let config = rules(toml);
    let all = Setup::of_file(&config).all();
    all.iter().map(|w| w.id).collect()
}

fn flow(name: &str, rest: &str) -> String {
    format!("[[flow]]\nname = \"{name}\"\n{rest}\n")
}

fn interface(rate: &str, session: &str, speed_mbit_s: Option<u32>) -> Controlled {
    let mut settings = InterfaceSettings::new("eth0".parse().unwrap());
    settings.rate = rate.parse().ok();
    settings.session = session.parse().unwrap();
    Controlled {
        settings,
        speed_mbit_s,
        tags_priority: false,
        pushed_back: None,
    }
}

fn receiver(addr: &str, rate: &str, owd: &str) -> PeerConfig {
    PeerConfig {
        addr: addr.parse().unwrap(),
        rate: rate.parse().ok(),
        owd: owd.parse().ok(),
    }
}

#[test]
fn rule_without_a_match_is_warned_of_and_one_with_any_match_is_not() {
    assert_eq!(found(&flow("a", "lifetime = \"1s\"")), ["flow-matches-all"]);
    assert_eq!(
        found(&flow("a", "lifetime = \"1s\"\nrtx = \"97:96\"")),
        ["flow-matches-all"]
    );
    for one in [
        "proto = \"udp\"",
        "src = \"192.0.2.0/24\"",
        "dst = \"192.0.2.0/24\"",
        "sport = 1",
        "dport = 1",
        "dscp = \"ef\"",
        "mark = \"1/1\"",
        "rtp_pt = 111",
        "rtp_kind = \"audio\"",
        "ssrc = 7",
        "cgroup = \"/a\"",
        "dev = \"eth0\"",
    ] {
        let file = flow("a", &format!("lifetime = \"1s\"\n{one}"));
        assert!(found(&file).is_empty(), "{one}");
    }
}

#[test]
fn rule_behind_one_that_matches_all_that_it_does_is_warned_of_by_both_names() {
    let wide = flow("wide", "dport = \"5000-5010\"\nlifetime = \"1s\"");
    let narrow = flow("narrow", "dport = 5004\nlifetime = \"1s\"");
    let config = rules(&format!("{wide}{narrow}"));
    let setup = Setup::of_file(&config);
    let all = setup.all();
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].what.contains("\"narrow\"") && all[0].what.contains("\"wide\""));
    assert!(all[0].todo.contains("--before wide"), "{}", all[0]);
    // Told of the later rule, and of the earlier one that hides it.
    assert_eq!(setup.of_rule(1), setup.hidden_by(0));
    assert!(setup.of_rule(0).is_empty() && setup.hidden_by(1).is_empty());
    assert!(setup.of_rule(2).is_empty() && setup.hidden_by(2).is_empty());
    assert!(found(&format!("{narrow}{wide}")).is_empty());
}

#[test]
fn lifetime_below_the_delay_that_applies_is_warned_of() {
    let audio = |rest: &str| {
        flow(
            "audio",
            &format!("proto = \"udp\"\nlifetime = \"100ms\"\n{rest}"),
        )
    };
    let peer = |owd| format!("[[peer]]\naddr = \"192.0.2.7\"\nowd = \"{owd}\"\n");
    assert_eq!(found(&audio("owd = \"150ms\"")), ["flow-late"]);
    assert_eq!(found(&(audio("") + &peer("150ms"))), ["flow-late"]);
    // Both: to those without a delay, and to this one.
    let both = audio("owd = \"150ms\"") + &peer("150ms");
    assert_eq!(found(&both), ["flow-late", "flow-late"]);
    for well in [
        audio("owd = \"100ms\""),
        audio("") + &peer("100ms"),
        // Of other receivers.
        audio("dst = \"192.0.2.8\"") + &peer("150ms"),
        audio("src = \"2001:db8::1\"") + &peer("150ms"),
        // What goes there is an earlier rule's.
        flow("there", "dst = \"192.0.2.0/24\"\nlifetime = \"1s\"") + &audio("") + &peer("150ms"),
        // Without a lifetime nothing is late.
        flow("a", "dport = 1\npriority = 1\nowd = \"1s\"") + &peer("150ms"),
        flow("a", "proto = \"tcp\"\nstamp = \"yes\"\nlifetime = \"rto\"") + &peer("150ms"),
    ] {
        assert!(found(&well).is_empty(), "{well}");
    }
}

#[test]
fn receiver_with_the_longest_delay_is_named() {
    let config = rules(&flow("a", "dport = 1\nlifetime = \"10ms\""));
    let receivers = (1..200u64).map(|n| receiver(&format!("10.0.0.{n}"), "", &format!("{n}ms")));
    let setup = Setup::new(config.flows.iter().collect(), receivers.collect(), vec![]);
    let all = setup.all();
    assert_eq!(all.len(), 1);
    assert!(all[0].what.contains("10.0.0.199"), "{}", all[0]);
    // Of each receiver when it is asked for.
    let of = |n: u64| setup.of_receiver(&receiver(&format!("10.0.0.{n}"), "", &format!("{n}ms")));
    assert_eq!((of(9).len(), of(10).len(), of(11).len()), (0, 0, 1));
}

#[test]
fn rate_above_the_link_is_warned_of_if_the_speed_is_known() {
    let ids = |rate, speed| -> Vec<_> {
        let of = Setup::new(vec![], vec![], vec![]).of_interface(&interface(rate, "dst", speed));
        of.iter().map(|w| w.id).collect()
    };
    assert_eq!(ids("2gbit", Some(1000)), ["rate-above-link"]);
    for (rate, speed) in [
        ("1gbit", Some(1000)),
        ("2gbit", None),
        ("2gbit", Some(0)),
        ("none", Some(10)),
    ] {
        assert!(ids(rate, speed).is_empty(), "{rate} {speed:?}");
    }
}

#[test]
fn rate_of_a_receiver_above_that_of_all_interfaces_is_warned_of() {
    let fast = || receiver("192.0.2.7", "3mbit", "");
    let count = |rates: &[&str]| {
        let interfaces: Vec<_> = rates.iter().map(|r| interface(r, "dst", None)).collect();
        let setup = Setup::new(vec![], vec![fast()], interfaces.clone());
        let all = setup.all().len();
        assert_eq!(setup.of_receiver(&fast()).len(), all);
        for i in &interfaces {
            assert_eq!(setup.of_interface(i).len(), all);
        }
        all
    };
    assert_eq!(count(&["2mbit"]), 1);
    assert_eq!(count(&["2mbit", "1mbit"]), 1);
    for well in [&["3mbit"][..], &["2mbit", "4mbit"], &["2mbit", "none"], &[]] {
        assert_eq!(count(well), 0, "{well:?}");
    }
}

#[test]
fn rate_of_a_receiver_is_warned_of_where_only_mode_tc_is() {
    let ids = |interfaces: &[(Mode, bool)]| -> Vec<_> {
        let made = |(mode, observe): &(Mode, bool)| {
            let mut controlled = interface("20mbit", "dst", None);
            controlled.settings.mode = *mode;
            controlled.settings.observe = *observe;
            controlled
        };
        let receivers = vec![receiver("192.0.2.7", "2mbit", "")];
        let setup = Setup::new(vec![], receivers, interfaces.iter().map(made).collect());
        setup.all().iter().map(|w| w.id).collect()
    };
    assert_eq!(ids(&[(Mode::Tc, false)]), ["rate-in-mode-tc"]);
    // An interface that observes may become one of mode qdisc.
    for well in [(Mode::Qdisc, false), (Mode::Auto, false), (Mode::Tc, true)] {
        assert_eq!(ids(&[(Mode::Tc, false), well]), [""; 0]);
    }
}

#[test]
fn priority_of_tags_is_warned_of_where_the_leaf_takes_its_place() {
    let ids = |mode, rate, tags_priority| -> Vec<_> {
        let mut controlled = interface(rate, "dst", None);
        controlled.settings.mode = mode;
        controlled.tags_priority = tags_priority;
        let setup = Setup::new(vec![], vec![], vec![controlled]);
        setup.all().iter().map(|w| w.id).collect()
    };
    assert_eq!(ids(Mode::Tc, "10mbit", true), ["vlan-priority"]);
    for (mode, rate, tags) in [
        (Mode::Tc, "10mbit", false),
        (Mode::Tc, "none", true),
        (Mode::Qdisc, "10mbit", true),
    ] {
        assert_eq!(ids(mode, rate, tags), [""; 0], "{mode:?} {rate} {tags}");
    }
}

#[test]
fn prefix_longer_than_an_ipv4_address_says_what_it_does() {
    let of =
        |session| Setup::new(vec![], vec![], vec![]).of_interface(&interface("", session, None));
    for session in ["prefix/33", "prefix/99", "prefix/128"] {
        let said = of(session);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].harmless && said[0].what.contains(session),
            "{said:?}"
        );
        assert!(said[0].what.contains("IPv4"), "{said:?}");
    }
    for session in ["prefix/32", "prefix/1", "dst", "flow", "interface"] {
        assert!(of(session).is_empty(), "{session}");
    }
}

#[test]
fn long_list_of_one_kind_is_cut_and_counted() {
    let mut all = flow("all", "priority = 1");
    for n in 0..TOLD + 3 {
        all += &flow(&format!("r{n}"), "dport = 1\npriority = 1");
    }
    let config = rules(&all);
    let told = Setup::of_file(&config).all();
    assert_eq!(told.len(), 1 + TOLD + 1);
    assert!(told[TOLD + 1].what.starts_with("3 more"), "{told:?}");
    assert_eq!(told[TOLD + 1].id, "flow-hidden");
}

proptest! {
    /// Rules of different ports, lifetimes of at least every delay, rates below what carries them.
    #[test]
    fn correct_setting_gives_no_warning(
        lifetimes in prop::collection::vec((200u64..1000, of(0u64..200)), 0..20),
        receivers in prop::collection::vec((of(1u64..1000), of(0u64..200)), 0..20),
        rates in prop::collection::vec((1000u64..10_000, of(10u32..1000)), 0..4),
        bits in 1u8..=32,
    ) {
        let rules: Vec<FlowRule> = (1u16..).zip(&lifetimes).map(|(n, (lifetime, owd))| {
            let mut rule = FlowRule::new(format!("r{n}").parse().unwrap());
            rule.dport = crate::PortRange::new(n, n);
            rule.lifetime = crate::Lifetime::from_ns(lifetime * 1_000_000).map(Into::into);
            rule.owd = owd.and_then(|ms| Owd::from_ns(ms * 1_000_000));
            rule
        }).collect();
        let receivers: Vec<PeerConfig> = (1u8..).zip(&receivers).map(|(n, (rate, owd))| PeerConfig {
            addr: IpAddr::from([10, 0, 0, n]),
            rate: rate.and_then(|kbit| Rate::from_bytes_per_s(kbit * 125)),
            owd: owd.and_then(|ms| Owd::from_ns(ms * 1_000_000)),
        }).collect();
        let interfaces: Vec<Controlled> = rates.iter().map(|(kbit, speed)| {
            let mut controlled = interface("", &format!("prefix/{bits}"), *speed);
            controlled.settings.rate = Rate::from_bytes_per_s(kbit * 125).map(LinkRate::Fixed);
            controlled
        }).collect();
        let setup = Setup::new(rules.iter().collect(), receivers.clone(), interfaces.clone());
        prop_assert_eq!(setup.all(), vec![]);
        for at in 0..rules.len() {
            prop_assert_eq!(setup.of_rule(at), vec![]);
            prop_assert_eq!(setup.hidden_by(at), vec![]);
        }
        for receiver in &receivers {
            prop_assert_eq!(setup.of_receiver(receiver), vec![]);
        }
        for controlled in &interfaces {
            prop_assert_eq!(setup.of_interface(controlled), vec![]);
        }
    }
}

#[test]
fn roles_that_mode_tc_keeps_room_for_are_warned_of() {
    let ids = |roles: &str, mode, rate, observe, dev: &str| -> Vec<_> {
        let mut controlled = interface(rate, "dst", None);
        controlled.settings.mode = mode;
        controlled.settings.observe = observe;
        let rule: FlowRule = serde_json::from_str(&format!(
            r#"{{"name":"v","dport":5,"roles":"{roles}"{dev}}}"#
        ))
        .unwrap();
        let setup = Setup::new(vec![&rule], vec![], vec![controlled]);
        setup.all().iter().map(|w| w.id).collect()
    };
    let warned = ids("2,4,4,5,7", Mode::Tc, "10mbit", false, "");
    assert_eq!(warned, ["roles-in-mode-tc"]);
    for (roles, mode, rate, observe, dev) in [
        ("3,3,3,3,7", Mode::Tc, "10mbit", false, ""),
        ("2,4,4,5,7", Mode::Qdisc, "10mbit", false, ""),
        ("2,4,4,5,7", Mode::Tc, "none", false, ""),
        ("2,4,4,5,7", Mode::Tc, "10mbit", true, ""),
        ("2,4,4,5,7", Mode::Tc, "10mbit", false, r#","dev":"other0""#),
    ] {
        let found = ids(roles, mode, rate, observe, dev);
        assert_eq!(found, [""; 0], "{roles} {mode:?} {rate} {observe} {dev}");
    }
}

#[test]
fn interface_that_holds_no_queue_is_warned_of_and_one_that_holds_any_is_not() {
    let with = |rate: &str, pushed_back, observe, receivers: Vec<PeerConfig>| {
        let mut controlled = interface(rate, "dst", None);
        controlled.settings.observe = observe;
        controlled.pushed_back = pushed_back;
        let setup = Setup::new(Vec::new(), receivers, vec![controlled]);
        let all = setup.all();
        all.into_iter().map(|w| w.id).collect::<Vec<_>>()
    };
    assert_eq!(with("", Some(false), false, vec![]), ["holds-no-queue"]);
    assert!(with("10mbit", Some(false), false, vec![]).is_empty());
    // The device says its rate, nobody looked, nothing is dropped at all, a receiver has a rate.
    assert!(with("", Some(true), false, vec![]).is_empty());
    assert!(with("", None, false, vec![]).is_empty());
    assert!(with("", Some(false), true, vec![]).is_empty());
    let slow = receiver("192.0.2.1", "253kbit", "");
    assert!(with("", Some(false), false, vec![slow]).is_empty());
}

#[test]
fn rate_auto_that_cannot_find_one_is_warned_of() {
    let ids = |rate: &str, probe: &str, observe| {
        let mut controlled = interface(rate, "dst", Some(100));
        controlled.settings.observe = observe;
        controlled.settings.probe = probe.parse().ok();
        controlled.pushed_back = Some(false);
        let all = Setup::new(Vec::new(), Vec::new(), vec![controlled]).all();
        all.into_iter().map(|w| w.id).collect::<Vec<_>>()
    };
    assert_eq!(ids("auto", "", true), ["auto-observes"]);
    assert_eq!(ids("auto", "none", false), ["auto-asks-nobody"]);
    assert_eq!(ids("10mbit", "gateway", false), ["probe-without-auto"]);
    let mut shared = interface("auto", "interface", None);
    shared.settings.observe = false;
    let all = Setup::new(Vec::new(), Vec::new(), vec![shared]).all();
    assert_eq!(all[0].id, "auto-asks-nobody");
    assert_eq!(ids("auto:..1gbit", "", false), ["rate-above-link"]);
    // A rate may be found: nobody is told that none is known.
    assert!(ids("auto", "", false).is_empty());
    assert!(ids("auto:..10mbit", "192.0.2.1", false).is_empty());
}

#[test]
fn receivers_rate_is_not_above_that_of_an_interface_whose_rate_is_found() {
    let above = |rate: &str| {
        let receivers = vec![receiver("192.0.2.1", "20mbit", "")];
        let all = Setup::new(Vec::new(), receivers, vec![interface(rate, "dst", None)]).all();
        all.iter().any(|w| w.id == "rate-above-interface")
    };
    assert!(above("10mbit") && above("auto:..10mbit"));
    assert!(!above("auto") && !above("auto:1mbit.."));
}
