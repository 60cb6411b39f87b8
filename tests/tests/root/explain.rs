//! `explain` runs the classifier itself on the packet that is described: what it says is what happens to such a packet,
//! and nothing else notices.

use bestby_tests::agent::Agent;
use bestby_tests::netns::linked_lab;
use bestby_tests::require;
use serde_json::{Value, json};

fn explain(agent: &Agent, packet: &str) -> Value {
    let body = json!({"dev": "v0", "packet": packet});
    agent.ok("POST", "/v1/explain", Some(body))
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
