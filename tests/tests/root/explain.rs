//! `explain` runs the classifier itself on the packet that is described: what it says is what happens to such a packet,
//! and nothing else notices.

use bestby_tests::agent::Agent;
use bestby_tests::netns::{linked_lab, shell};
use bestby_tests::require;
use serde_json::{Value, json};

fn explain(agent: &Agent, packet: &str) -> Value {
    let body = json!({"dev": "v0", "packet": packet});
    agent.ok("POST", "/v1/explain", Some(body))
}

fn notes(agent: &Agent, packet: &str) -> String {
    let said = explain(agent, packet);
    let notes = said["notes"].as_array().into_iter().flatten();
    notes
        .map(|n| n.as_str().unwrap().to_owned() + "\n")
        .collect()
}

#[test]
fn what_takes_longer_than_it_is_of_use_is_named() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "80kbit"}));
        agent.add(json!({"name": "screen", "dport": 5004, "lifetime": "200ms"}));
        // 10,000 bytes/s: 1,000 bytes take 100 ms, 3,000 take 300 ms.
        let small = notes(&agent, "udp 10.9.0.2:5004 len 1000");
        assert!(!small.contains("take"), "{small}");
        let large = notes(&agent, "udp 10.9.0.2:5004 len 3000");
        for word in ["3000 bytes", "300 ms", "375 ms"] {
            assert!(large.contains(word), "{word}: {large}");
        }
        // Without a rule nothing ends its use.
        let plain = notes(&agent, "udp 10.9.0.2:7 len 3000");
        assert!(!plain.contains("take"), "{plain}");
    });
}

#[test]
fn rtcp_one_port_behind_its_media_is_named_as_theirs() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "20mbit"}));
        agent.add(json!({"name": "audio", "proto": "udp", "dport": 5004, "lifetime": "200ms"}));
        for packet in ["", " payload 81c9000101020304"] {
            let said = notes(&agent, &format!("udp 10.9.0.2:5005{packet}"));
            assert!(said.contains("\"audio\""), "{packet}: {said}");
        }
        for other in [
            "udp 10.9.0.2:5005 payload 20c9000101020304",
            "udp 10.9.0.2:5006",
            "udp 10.9.0.2:5003",
            "tcp 10.9.0.2:5005",
        ] {
            let said = notes(&agent, other);
            assert!(!said.contains("\"audio\""), "{other}: {said}");
        }
    });
}

#[test]
fn question_leaves_no_trace() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "20mbit"}));
        agent.add(
            json!({"name": "a", "dport": 5004, "lifetime": "1ms", "owd": "5ms",
                         "treatment": "truncate"}),
        );
        agent.add(json!({"name": "b", "dport": 5005, "lifetime": "1s", "stamp": "probed"}));
        // The kernel may send what finds its neighbours meanwhile, with a mark of its own.
        let counted = || {
            let stats = agent.stats();
            let sessions = agent.ok("GET", "/v1/sessions", None)["sessions"].clone();
            let names = sessions
                .as_array()
                .unwrap()
                .iter()
                .map(|s| s["name"].clone());
            let sessions: Vec<Value> = names.filter(|n| n != "v0/control").collect();
            let flows = ["a", "b"].map(|name| stats["flows"][name].clone());
            let mut global = stats["global"].clone();
            global["foreign_mark"] = Value::Null;
            (flows, global, sessions)
        };
        let before = counted();
        let said = explain(&agent, "udp 10.9.0.1:7 to 10.9.0.2:5004 rtp 96");
        assert_eq!(
            (&said["flow"], &said["treatment"]),
            (&json!("a"), &json!("truncate")),
            "{said}"
        );
        assert!(
            said["verdict"].as_str().unwrap().contains("stale already"),
            "{said}"
        );
        for packet in ["udp 10.9.0.2:5005", "udp 10.9.0.2:1", "tcp [fd09::2]:443"] {
            explain(&agent, packet);
        }
        assert_eq!(counted(), before);
        assert!(!lab.bpffs.join("explain").exists());
        // An interface that is not bestby's, and one that is not there.
        let body = |dev: &str| Some(json!({"dev": dev, "packet": "udp 10.9.0.2:5004"}));
        let lo = agent.ok("POST", "/v1/explain", body("lo"));
        assert_eq!(
            (&lo["flow"], &lo["mode"]),
            (&json!("a"), &Value::Null),
            "{lo}"
        );
        assert_eq!(agent.refused("POST", "/v1/explain", body("w9")).0, 404);
    });
}

#[test]
fn forwarded_packet_is_judged_as_one() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "web", "proto": "tcp", "dport": 443, "lifetime": "1s"}));
        // A local TCP would take a drop for congestion; what is forwarded may be dropped.
        for (source, treatment) in [("10.9.0.1", "forward"), ("192.0.2.1", "discard")] {
            let said = explain(&agent, &format!("tcp {source}:9 to 10.9.0.2:443"));
            assert_eq!(
                (&said["flow"], &said["treatment"]),
                (&json!("web"), &json!(treatment))
            );
        }
        // 200 ms at priority 3.
        let mark = |source: &str| {
            let said = explain(
                &agent,
                &format!("udp {source}:9 to 10.9.0.2:9 mark 0xb0380320"),
            );
            (said["sources"][0].clone(), said["lifetime_ns"].clone())
        };
        let (own, lifetime) = mark("10.9.0.1");
        assert_eq!(
            (own["decides"].clone(), lifetime),
            (json!(["deadline", "priority"]), json!(200_000_000))
        );
        let (others, lifetime) = mark("192.0.2.1");
        assert_eq!(
            (others["decides"].clone(), lifetime),
            (json!([]), Value::Null),
            "{others}"
        );
        assert!(
            others["says"].as_str().unwrap().contains("forwarded_marks"),
            "{others}"
        );
    });
}

#[test]
fn model_of_mode_tc_is_asked_too() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100kbit"}));
        agent.add(json!({"name": "a", "dport": 5004, "lifetime": "50ms"}));
        let verdict = |packet: &str| {
            let said = explain(&agent, packet);
            assert_eq!(said["flow"], "a", "{said}");
            said["verdict"].as_str().unwrap().to_string()
        };
        // 1,000 bytes at 100 kbit/s take 81 ms, 100 take 9.
        let said = verdict("udp 10.9.0.2:5004");
        assert!(said.contains("its transmission takes longer"), "{said}");
        let said = verdict("udp 10.9.0.2:5004 len 100");
        assert!(
            !said.contains("longer") && said.contains("within 50.00 ms"),
            "{said}"
        );
    });
}

#[test]
fn question_is_asked_with_the_maps_in_force() {
    linked_lab(require::root(), |lab, _| {
        // What an agent leaves that is killed while it asks.
        let left = lab.bpffs.join("explain");
        Agent::start(lab, &[]).terminate();
        std::fs::create_dir(&left).unwrap();
        std::fs::rename(lab.bpffs.join("bb_frags"), left.join("bb_frags")).unwrap();
        let agent = Agent::start(lab, &[]);
        assert!(!left.exists());
        assert!(agent.log().contains("bb_frags"), "{}", agent.log());
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "a", "dport": 5004, "lifetime": "1ms", "owd": "5ms"}));
        let stale = |agent: &Agent| {
            let said = explain(agent, "udp 10.9.0.2:5004");
            said["verdict"].as_str().unwrap().contains("stale already")
        };
        assert!(stale(&agent));
        // Without their pins, too, which nobody makes anew, and of which doctor tells.
        for name in ["bb_rules", "bb_config"] {
            std::fs::remove_file(lab.bpffs.join(name)).unwrap();
        }
        assert!(stale(&agent));
        assert!(!lab.bpffs.join("bb_rules").exists());
        let doctor = agent.ok("GET", "/v1/doctor", None);
        let pins = doctor["checks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["id"] == "pins");
        let pins = pins.unwrap();
        assert_eq!(pins["status"], "fail", "{pins}");
        assert!(
            pins["detail"].to_string().contains("bb_config, bb_rules"),
            "{pins}"
        );
    });
}

#[test]
fn device_without_a_link_header_and_every_length_are_judged() {
    linked_lab(require::root(), |lab, _| {
        shell("ip tuntap add dev t0 mode tun; ip addr add 10.8.0.1/24 dev t0; ip link set t0 up");
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "t0", "mode": "tc", "rate": "20mbit"}));
        agent.add(json!({"name": "a", "dport": 5004, "lifetime": "50ms"}));
        for length in [20, 28, 1501, 65_575] {
            for (source, packet) in [("10.8.0.1:7 to ", "10.8.0.2:5004"), ("", "[fd08::2]:5004")] {
                let body =
                    json!({"dev": "t0", "packet": format!("udp {source}{packet} len {length}")});
                let said = agent.ok("POST", "/v1/explain", Some(body));
                assert_eq!(said["flow"], "a", "{said}");
                assert!(
                    said["session"].as_str().unwrap().starts_with("t0/"),
                    "{said}"
                );
            }
        }
    });
}

#[test]
fn priority_is_by_dscp_where_nothing_else_says_one() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "a", "dport": 5004, "lifetime": "1s"}));
        for (packet, priority, by) in [
            // The kernel makes an SO_PRIORITY of IPv4's TOS, and that says less.
            ("udp 10.9.0.2:5004 dscp ef", 0, "DSCP"),
            ("udp [fd09::2]:5004 dscp ef", 0, "DSCP"),
            ("udp 10.9.0.2:5004 dscp ef priority 6", 1, "SO_PRIORITY"),
            ("udp 10.9.0.2:5004", 3, "default"),
        ] {
            let said = explain(&agent, packet);
            assert_eq!(said["priority"], priority, "{packet}: {said}");
            assert!(
                said["sources"][5]["says"].as_str().unwrap().contains(by),
                "{packet}: {said}"
            );
        }
    });
}

/// They take turns, beside commands that change what is asked about.
#[test]
fn questions_at_once_are_answered_each_with_its_own() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        for port in 1..=6 {
            agent.add(json!({"name": format!("r{port}"), "dport": port, "lifetime": "1s"}));
        }
        std::thread::scope(|scope| {
            for port in 1..=6 {
                let agent = &agent;
                scope.spawn(move || {
                    let said = explain(agent, &format!("udp 10.9.0.2:{port}"));
                    assert_eq!(said["flow"], format!("r{port}"), "{said}");
                });
            }
            agent.add(json!({"name": "last", "dport": 7, "lifetime": "1s"}));
        });
        assert_eq!(explain(&agent, "udp 10.9.0.2:7")["flow"], "last");
        assert!(!lab.bpffs.join("explain").exists());
    });
}

#[test]
fn any_payload_is_taken_and_named() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "20mbit"}));
        agent.add(json!({"name": "media", "proto": "udp", "dport": 9000, "lifetime": "400ms"}));
        let rtp = "80a10001000000a000001234".to_owned() + &"47".repeat(188);
        let handshake = "800000000000000000000001123456780000000500000000000000070000\
                         05dc00002000ffffffff"
            .to_owned()
            + &"00".repeat(24);
        for (payload, read_as, signalling) in [
            (rtp.clone(), "RTP, payload type 33, ssrc 0x1234", false),
            (
                format!("000088b607b307b0{rtp}"),
                "ssrc 0x1234, 8 bytes further in",
                false,
            ),
            (format!("200088b607b307b0{rtp}"), "encrypted", false),
            (format!("80c80006{}", "00".repeat(24)), "RTCP", true),
            (
                format!("000088b607b307b080c80006{}", "00".repeat(24)),
                "RTCP, 8 bytes",
                true,
            ),
            (format!("000088b5{}", "00".repeat(16)), "keep-alive", true),
            (format!("000100002112a442{}", "00".repeat(12)), "STUN", true),
            (handshake, "handshake of SRT", true),
            (
                format!("12345678c0000001000003e800001234{}", "47".repeat(188)),
                "data of SRT, perhaps",
                false,
            ),
            ("47".repeat(188), "MPEG-TS, perhaps", false),
            ("ff".into(), "nothing is known", false),
        ] {
            let said = explain(&agent, &format!("udp 10.9.0.2:9000 payload {payload}"));
            let named = said["read_as"].as_str().unwrap();
            assert!(named.contains(read_as), "{payload}: {said}");
            assert_eq!(
                said["lifetime_ns"].is_null(),
                signalling,
                "{payload}: {said}"
            );
            assert_eq!(named.starts_with("signalling"), signalling, "{said}");
        }
        // Nothing is said of what was not described.
        let said = explain(&agent, "udp 10.9.0.2:9000 rtp 33");
        assert!(said["read_as"].is_null(), "{said}");
    });
}
