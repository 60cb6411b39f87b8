//! Which rule matches and at what cost, which session a packet joins, and what is known
//! of its path (`BPF_PROG_TEST_RUN` on the loopback interface).

use std::collections::HashSet;

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, PASS, Rule, SHOT, SkBuff, iface, mapped},
    classify::*,
    clock::{MS, SECOND, now_ns},
    frame::*,
};

#[test]
fn first_matching_rule_in_the_operators_order_wins() {
    let lab = Lab::new();
    let mut dst = Rule::new().lifetime(SECOND);
    dst.mask.dst = {
        let mut mask = [0xff; 16];
        mask[15] = 0; // 198.51.100.0/24
        mask
    };
    dst.key.dst = mapped([198, 51, 100, 0]);
    let port = Rule::new().dport(PORT).lifetime(SECOND);
    let both = {
        let mut both = dst;
        both.mask.dport = u16::MAX;
        both.key.dport = PORT;
        both
    };
    let packet = udp4(PORT, b"x");
    for (rules, rule) in [
        (vec![dst, port, both], 1),
        (vec![port, both, dst], 1),
        (vec![both.proto(6), both.proto(17), dst], 2),
        (vec![both.proto(6), port.proto(6), dst], 3),
        (vec![both.proto(6), port.proto(6)], 0),
    ] {
        lab.rules(&rules);
        assert_eq!(lab.run(&packet).cb.rule, rule, "{rules:?}");
    }
}

#[test]
fn every_field_of_a_rule_is_compared() {
    let lab = Lab::new();
    lab.configure(|c| c.flow_mark_mask = 0xff);
    let mut packet = udp4(PORT, b"x");
    packet[15] = 10 << 2;
    let skb = SkBuff {
        mark: 0x42,
        ..Default::default()
    };
    let source4 = mapped(SRC4);
    type Edit = fn(&mut bb_rule_key, bool);
    let fields: [(&str, Edit); 8] = [
        ("src", |k, right| {
            k.src = if right { mapped(SRC4) } else { mapped(DST4) }
        }),
        ("dst", |k, right| {
            k.dst = if right { mapped(DST4) } else { mapped(SRC4) }
        }),
        ("mark", |k, right| k.mark = if right { 0x42 } else { 0x43 }),
        ("ifindex", |k, right| k.ifindex = if right { LO } else { 2 }),
        ("sport", |k, right| {
            k.sport = if right { 4000 } else { 4001 }
        }),
        ("family", |k, right| k.family = if right { 4 } else { 6 }),
        ("proto", |k, right| k.proto = if right { 17 } else { 6 }),
        ("dscp", |k, right| k.dscp = if right { 10 } else { 11 }),
    ];
    assert_eq!(source4[10..12], [0xff, 0xff]);
    for (what, edit) in fields {
        for right in [true, false] {
            let mut rule = Rule::new().lifetime(SECOND);
            edit(&mut rule.key, right);
            match what {
                "src" => rule.mask.src = [0xff; 16],
                "dst" => rule.mask.dst = [0xff; 16],
                "mark" => rule.mask.mark = 0xff,
                "ifindex" => rule.mask.ifindex = u32::MAX,
                "sport" => rule.mask.sport = u16::MAX,
                "family" => rule.mask.family = 0xff,
                "proto" => rule.mask.proto = 0xff,
                _ => rule.mask.dscp = 0xff,
            }
            lab.rules(&[rule]);
            assert_eq!(
                lab.run_with(&packet, skb).cb.rule,
                u16::from(right),
                "{what} {right}"
            );
        }
    }
    // A masked port: 5000..5007 is one key.
    let mut range = Rule::new().lifetime(SECOND);
    range.mask.dport = 0xfff8;
    range.key.dport = 5000;
    lab.rules(&[range]);
    for (port, rule) in [(4999, 0), (5000, 1), (5007, 1), (5008, 0)] {
        assert_eq!(lab.run(&udp4(port, b"x")).cb.rule, rule, "port {port}");
    }
}

#[test]
fn change_of_rules_reaches_known_flows_at_once() {
    let lab = lab();
    let packet = udp4(PORT, &rtp(1, 1, false));
    let first = lab.run(&packet);
    lab.rules(&[Rule::new().dport(PORT).lifetime(200 * MS).priority(7)]);
    let second = lab.run(&packet);
    assert_eq!((first.priority(), second.priority()), (1, 7));
    assert_eq!(
        first.deadline(),
        second.deadline(),
        "the ADU under way keeps its deadline"
    );
    lab.rules(&[]);
    assert_plain(&lab, "no rules", &lab.run(&packet));
}

#[test]
fn number_of_rules_of_one_shape_costs_no_lookup() {
    let lab = Lab::new();
    let mut probes = Vec::new();
    for count in [100u16, 10_000] {
        let rules: Vec<Rule> = (0..count)
            .map(|i| Rule::new().dport(10_000 + i).lifetime(SECOND))
            .collect();
        lab.rules(&rules);
        let before = lab.global(BB_G_RULE_PROBES);
        assert_eq!(lab.run(&udp4(10_099, b"x")).cb.rule, 100);
        let first = lab.global(BB_G_RULE_PROBES) - before;
        assert_eq!(lab.run(&udp4(9, b"x")).cb.rule, 0);
        // Known flows, matched or not, are not searched for again.
        let searched = lab.global(BB_G_RULE_PROBES);
        for _ in 0..10 {
            assert_eq!(lab.run(&udp4(10_099, b"x")).cb.rule, 100);
            assert_eq!(lab.run(&udp4(9, b"x")).cb.rule, 0);
        }
        assert_eq!(lab.global(BB_G_RULE_PROBES), searched);
        probes.push(first);
    }
    assert_eq!(probes, [1, 1], "one shape, one look-up");

    // 128 shapes are searched to the end; a 129th is not there.
    let rules: Vec<Rule> = (0..BB_MAX_SHAPES)
        .map(|i| {
            let mut rule = Rule::new().lifetime(SECOND);
            rule.mask.mark = i;
            rule.mask.proto = 0xff;
            rule.key.proto = if i + 1 == BB_MAX_SHAPES { 17 } else { 6 };
            rule
        })
        .collect();
    lab.rules(&rules);
    let before = lab.global(BB_G_RULE_PROBES);
    assert_eq!(u32::from(lab.run(&udp4(PORT, b"x")).cb.rule), BB_MAX_SHAPES);
    assert_eq!(
        lab.global(BB_G_RULE_PROBES) - before,
        u64::from(BB_MAX_SHAPES)
    );
    // Where the first shape matches, shapes of later rules are not probed.
    let mut first = rules;
    first[0].key.proto = 17;
    lab.rules(&first);
    let before = lab.global(BB_G_RULE_PROBES);
    assert_eq!(lab.run(&udp4(PORT, b"x")).cb.rule, 1);
    assert_eq!(lab.global(BB_G_RULE_PROBES) - before, 1);
}

#[test]
fn session_kind_decides_which_packets_share_a_session() {
    let lab = lab();
    let to = |dst: [u8; 4], sport: u8| {
        let mut frame = udp4_to(dst, PORT, b"x");
        frame[35] = sport;
        frame
    };
    let (a, b, far) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 1, 1]);
    let mut generation = 1;
    let mut distinct = |kind: u32, prefix4: u8, frames: &[Vec<u8>]| {
        let mut i = iface(LO, BB_MODE_QDISC);
        i.session_kind = u8::try_from(kind).unwrap();
        i.prefix4 = prefix4;
        lab.iface(0, &i);
        generation += 1;
        lab.configure(|c| c.rule_gen += generation); // as the agent does with every change
        let found: HashSet<u16> = frames.iter().map(|f| lab.run(f).cb.session).collect();
        for index in &found {
            assert_eq!(u32::from(lab.session(*index).key.kind), kind);
        }
        found.len()
    };
    let frames = [to(a, 1), to(a, 2), to(b, 1), to(far, 1)];
    assert_eq!(distinct(BB_SESSION_DST, 0, &frames), 3);
    assert_eq!(distinct(BB_SESSION_FLOW, 0, &frames), 4);
    assert_eq!(distinct(BB_SESSION_PREFIX, 24, &frames), 2);
    assert_eq!(distinct(BB_SESSION_PREFIX, 8, &frames), 1);
    assert_eq!(distinct(BB_SESSION_PREFIX, 32, &frames), 3);
    assert_eq!(distinct(BB_SESSION_PREFIX, 0, &frames), 1);
    assert_eq!(distinct(BB_SESSION_INTERFACE, 0, &frames), 1);
}

#[test]
fn owd_and_rate_come_from_the_best_source() {
    let lab = Lab::new();
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND).owd(70 * MS)]);
    let addr = |last: u8| bb_addr {
        addr: mapped([10, 0, 0, last]),
    };
    let session = |last: u8| {
        let out = lab.run(&udp4_to([10, 0, 0, last], PORT, b"x"));
        lab.session(out.cb.session)
    };
    let rtt = |age: u64| bb_rtt {
        srtt_ns: 900 * MS, // waited in our own queue
        min_rtt_ns: 50 * MS,
        updated_ns: now_ns() - age,
        ..Default::default()
    };
    let peer = |flags: u32| bb_peer {
        said_ns: 0,
        owd_ns: 15 * MS,
        rate: 12_345,
        flags,
        pad: 0,
    };
    lab.tell("bb_rtts", &addr(2), &rtt(SECOND));
    lab.tell("bb_rtts", &addr(3), &rtt(11 * SECOND));
    lab.tell("bb_rtts", &addr(4), &rtt(SECOND));
    lab.tell("bb_peers", &addr(4), &peer(BB_PEER_OWD | BB_PEER_OPERATOR));
    lab.tell("bb_rtts", &addr(5), &rtt(SECOND));
    lab.tell("bb_peers", &addr(5), &peer(BB_PEER_RATE));
    for (what, last, owd, rate) in [
        ("the rule's default", 1, 70 * MS, 0),
        ("half of a fresh RTT", 2, 25 * MS, 0),
        ("an RTT too old", 3, 70 * MS, 0),
        ("the operator's owd", 4, 15 * MS, 0),
        ("the peer's rate, the measured RTT", 5, 25 * MS, 12_345),
    ] {
        let s = session(last);
        assert_eq!((s.owd_ns, s.rate), (owd, rate), "{what}");
    }
    assert_eq!(lab.global(BB_G_NO_RTT), 0);
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
    assert_eq!(session(6).owd_ns, 0);
    assert_eq!(lab.global(BB_G_NO_RTT), 1);
    // Where `bb_known` says that nothing is, nobody looks.
    lab.put("bb_peers", &addr(7), &peer(BB_PEER_OWD | BB_PEER_OPERATOR));
    assert_eq!(session(7).owd_ns, 0);
    // A change reaches the session within 10 ms.
    lab.tell("bb_peers", &addr(6), &peer(BB_PEER_OWD | BB_PEER_RATE));
    std::thread::sleep(std::time::Duration::from_millis(11));
    assert_eq!((session(6).owd_ns, session(6).rate), (15 * MS, 12_345));

    // Many destinations in one session: each deadline has its own owd taken off.
    let mut shared = iface(LO, BB_MODE_QDISC);
    shared.session_kind = u8::try_from(BB_SESSION_INTERFACE).unwrap();
    lab.iface(0, &shared);
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
    let before = now_ns();
    let near = lab.run(&udp4_to([10, 0, 0, 4], PORT, b"x"));
    let plain = lab.run(&udp4_to([10, 0, 0, 9], PORT, b"x"));
    let after = now_ns();
    let lifetime = SECOND - 15 * MS;
    assert!((before + lifetime..=after + lifetime).contains(&near.deadline()));
    assert!((before + SECOND..=after + SECOND).contains(&plain.deadline()));
    assert_eq!(near.cb.session, plain.cb.session);
    assert_eq!(lab.session(near.cb.session).owd_ns, 0);
}

/// Three rules for one receiver: of one the path takes longer than its lifetime, of one half of it, of one nothing is said.
/// Flows ask anew what is known of their path each 10 ms; between that each goes by its own, too.
#[test]
fn owd_of_one_rule_is_not_that_of_another_to_the_same_receiver() {
    let lab = Lab::bare();
    let owds = [2 * SECOND, SECOND / 2, 0];
    let rule = |(port, owd)| Rule::new().dport(port).lifetime(SECOND).owd(owd);
    lab.rules(&(PORT..).zip(owds).map(rule).collect::<Vec<_>>());
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        lab.iface(0, &iface(LO, mode));
        for round in 0..4 {
            for which in [2, 1, 0, 2, 0, 1] {
                let owd = owds[which];
                let before = now_ns();
                let out = lab.run(&udp4(PORT + which as u16, b"x"));
                let after = now_ns();
                let case = format!("mode {mode}, round {round}, rule {}", which + 1);
                assert_eq!(usize::from(out.cb.rule), which + 1, "{case}");
                if mode == BB_MODE_TC {
                    let refused = out.verdict == SHOT;
                    assert_eq!(refused, owd > SECOND, "{case}");
                    continue;
                }
                // The queue takes the session's off.
                let leaves = out.deadline() - lab.session(out.cb.session).owd_ns;
                if owd > SECOND {
                    assert!(leaves < before, "{case}: {leaves}");
                } else {
                    let lasts = SECOND - owd;
                    assert!((before + lasts..=after + lasts).contains(&leaves), "{case}");
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(11));
        }
    }
}

#[test]
fn flows_beyond_the_cache_match_and_a_busy_flow_stays_cached() {
    let lab = Lab::new();
    lab.rules(&[
        Rule::new().dport(PORT).lifetime(20 * SECOND).priority(1),
        Rule::new().dport(PORT + 1).lifetime(SECOND).priority(2),
    ]);
    let frame = |i: u32| {
        let ([_, b, c, d], other) = (i.to_be_bytes(), (i % 3) as u16);
        udp4_to([10, b, c, d], PORT + other, b"x")
    };
    // One frame of video, of which a packet is sent now and then, among ever new flows.
    let busy = udp4_to([203, 0, 113, 9], PORT, &rtp(7, 1234, false));
    let first = lab.run(&busy);
    for i in 0..2 * BB_FLOW_SETS * BB_FLOW_WAYS {
        let out = lab.run(&frame(i));
        assert_eq!(out.cb.rule, [1, 2, 0][i as usize % 3], "flow {i}");
        if i % 500 == 0 {
            let again = lab.run(&busy);
            assert_eq!(again.deadline(), first.deadline(), "after {i} new flows");
            assert_eq!(again.cb.adu, first.cb.adu, "after {i} new flows");
        }
    }
    // Others have its place now: the same flow once more is like a new one.
    let again = lab.run(&frame(0));
    assert_eq!(again.cb.rule, 1);
}

#[test]
fn full_session_table_shares_one_and_reuses_idle_entries() {
    let lab = lab();
    let frame = |i: u32| {
        let [_, b, c, d] = i.to_be_bytes();
        udp4_to([10, b, c, d], PORT, b"x")
    };
    // More destinations than ways, within the second in which no way may be recycled.
    let start = now_ns();
    let mut last = lab.run(&frame(0));
    let mut i = 0;
    while lab.global(BB_G_SESSIONS_FULL) == 0 {
        i += 1;
        last = lab.run(&frame(i));
        assert!(i < 2 * BB_MAX_SESSIONS, "the table never filled");
    }
    assert!(i > 10_000, "only {i} sessions found an entry");
    assert_eq!(last.verdict, PASS);
    let shared = u16::try_from(BB_SESSION_SHARED).unwrap();
    assert_eq!(last.cb.session, shared);
    assert_eq!(u32::from(lab.session(shared).key.kind), BB_SESSION_PLAIN);
    assert!(last.has(BB_CB_DEADLINE), "its own deadline stands");
    eprintln!(
        "{i} sessions before a set was full, {} ms",
        (now_ns() - start) / MS
    );

    // Find the full set again by trying; its ways are idle after a second.
    let full = frame(i);
    std::thread::sleep(std::time::Duration::from_millis(1050));
    // Queued packets keep every way of the table from being recycled ...
    let sessions = lab.map("bb_sessions");
    let mut held: Vec<(u32, bb_session)> = Vec::new();
    for index in 0..BB_MAX_SESSIONS {
        let mut s: bb_session = lab.get("bb_sessions", &index).unwrap();
        if s.way.tag != 0 {
            s.counters.queued = 1;
            lab.put("bb_sessions", &index, &s);
            held.push((index, s));
        }
    }
    lab.configure(|c| c.rule_gen += 1);
    assert_eq!(
        lab.run(&full).cb.session,
        shared,
        "a session with queued packets was replaced"
    );
    // ... and without them one is, with a new generation and fresh counters.
    for (index, mut s) in held.clone() {
        s.counters.queued = 0;
        s.counters.packets_in = 77;
        lab.put("bb_sessions", &index, &s);
    }
    // A flow that had to share looks again every 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(11));
    let out = lab.run(&full);
    assert_ne!(out.cb.session, shared);
    let now_its = lab.session(out.cb.session);
    let before = held
        .iter()
        .find(|(index, _)| *index == u32::from(out.cb.session))
        .unwrap()
        .1;
    assert_eq!(now_its.way.gen_, before.way.gen_ + 1);
    assert_eq!(now_its.counters.packets_in, 0);
    assert_ne!(now_its.key, before.key);
    drop(sessions);

    // The flow that had it before notices, and does not write into another's session.
    let [_, b, c, d]: [u8; 4] = before.key.addr[12..16].try_into().unwrap();
    let again = lab.run(&udp4_to([10, b, c, d], PORT, b"x"));
    assert_ne!(again.cb.session, out.cb.session);
}

#[test]
fn users_beyond_the_table_share_one_entry_and_are_counted() {
    let lab = lab();
    let plain = udp4(PORT + 1, b"x");
    let media = udp4(PORT, b"x");
    // Every way is that of a user who was seen a moment ago.
    let mut held = bb_user {
        way: bb_way {
            tag: 9,
            gen_: 1,
            used_ns: now_ns() + 100 * SECOND,
        },
        ..Default::default()
    };
    let fill = |user: &bb_user| {
        for index in BB_USER_NONE + 1..BB_MAX_USERS {
            lab.put("bb_users", &index, user);
        }
    };
    fill(&held);
    let out = lab.run(&plain);
    assert_plain(&lab, "no way", &out);
    assert_eq!(lab.session(out.cb.session).user, BB_USER_NONE as u16);
    assert_eq!(lab.global(BB_G_USERS_FULL), 1);
    // What a rule covers belongs to no user.
    assert_matched("media", &lab.run(&media));
    assert_eq!(lab.global(BB_G_USERS_FULL), 1);

    // One that was not seen for long makes room. A flow asks every 10 ms.
    held.way.used_ns = 0;
    fill(&held);
    std::thread::sleep(std::time::Duration::from_millis(11));
    let again = lab.run(&plain);
    assert_eq!(again.cb.session, out.cb.session);
    assert_ne!(lab.session(out.cb.session).user, BB_USER_NONE as u16);
    assert_eq!(lab.global(BB_G_USERS_FULL), 1);
}
