//! The agent's data path on this kernel, in mode tc: attach and detach, kill and adopt, rules changed under load.

use std::time::{Duration, Instant};

use bestby_tests::agent::*;
use bestby_tests::load::{Load, PEER};
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::require;
use serde_json::{Value, json};

fn audio() -> Value {
    json!({"name": "audio", "proto": "udp", "dport": "5004", "lifetime": "10s", "priority": 0})
}

fn all_of(count: u64) -> Vec<u64> {
    (0..count).collect()
}

/// Sends under load while `disturb` runs; nothing may be lost, and `flow` must have counted everything.
fn under_load(lab: &Lab, peer: &Netns, port: u16, disturb: impl FnOnce()) -> u64 {
    let load = Load {
        port,
        size: 200,
        pace: Duration::from_micros(500),
        least: 200,
        around: Duration::from_millis(100),
    };
    let (sent, counter) = load.during(&lab.netns, peer, disturb);
    let seen = counter.finish();
    assert_eq!(
        seen,
        all_of(sent),
        "of {sent} packets {} arrived",
        seen.len()
    );
    sent
}

#[test]
fn detach_restores_the_former_root_qdisc() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let before = root_qdisc(&lab.netns, "v0");
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        assert!(
            root_qdisc(&lab.netns, "v0").starts_with("qdisc htb bb:"),
            "{}",
            root_qdisc(&lab.netns, "v0")
        );
        agent.detach("v0");
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);

        lab.netns
            .run("tc qdisc add dev v0 root handle 5: tbf rate 5mbit burst 3000 latency 50ms");
        let before = root_qdisc(&lab.netns, "v0");
        let attach = json!({"dev": "v0", "mode": "tc", "rate": "10mbit", "observe": false});
        let (status, message) = agent.refused("POST", "/v1/interfaces", Some(attach));
        assert_eq!(status, 409);
        assert!(
            message.contains("v0") && message.contains("tbf") && message.contains("--replace"),
            "{message}"
        );
        assert_eq!(
            root_qdisc(&lab.netns, "v0"),
            before,
            "a refused attach changes nothing"
        );
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit", "replace": true}));
        let list = agent.ok("GET", "/v1/interfaces", None);
        assert_eq!(list[0]["restores"], "tbf");
        agent.detach("v0");
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
    });
}

#[test]
fn killed_agent_loses_no_packet_and_no_count() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let mut next = None;
        let sent = under_load(lab, peer, 5004, || {
            agent.kill();
            std::thread::sleep(Duration::from_millis(200));
            next = Some(Agent::start(lab, &[]));
        });
        let agent = next.unwrap();
        assert_eq!(agent.ok("GET", "/v1/status", None)["adopted"], true);
        assert_eq!(agent.flow("audio", "packets_in"), sent);
        assert_eq!(agent.flow("audio", "packets_sent"), sent);
        assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["dev"], "v0");
        agent.detach("v0");
        assert!(
            root_qdisc(&lab.netns, "v0").contains("noqueue"),
            "the former qdisc is known after the kill"
        );
    });
}

#[test]
fn terminated_agent_leaves_the_data_path_running() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let sent = under_load(lab, peer, 5004, || agent.terminate());
        assert!(!lab.dir.join("s").exists(), "the socket is gone");
        assert_eq!(Agent::start(lab, &[]).flow("audio", "packets_sent"), sent);
    });
}

#[test]
fn upgrade_under_load_loses_no_packet() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let sent = under_load(lab, peer, 5004, || {
            for _ in 0..5 {
                agent.ok("POST", "/v1/interfaces/v0/upgrade", None);
            }
        });
        assert_eq!(agent.flow("audio", "packets_sent"), sent);
    });
}

#[test]
fn changes_of_rules_under_load_lose_no_packet() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let mut changes = 0;
        let sent = under_load(lab, peer, 5004, || {
            let end = Instant::now() + Duration::from_secs(1);
            while Instant::now() < end || changes < 12 {
                agent.ok(
                    "PUT",
                    "/v1/flows/audio",
                    Some(json!({"change": {"priority": changes % 8}})),
                );
                agent.add(json!({"name": "other", "dport": "1-60000", "lifetime": "9s"}));
                agent.ok("DELETE", "/v1/flows/other", None);
                changes += 1;
            }
        });
        // Each packet met either list: the rule was in both.
        assert_eq!(agent.flow("audio", "packets_in"), sent);
        assert_eq!(agent.flow("audio", "packets_sent"), sent);
    });
}

#[test]
fn changes_of_an_interface_under_load_lose_no_packet() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let sent = under_load(lab, peer, 5004, || {
            for rate in ["90mbit", "80mbit", "70mbit"] {
                agent.attach(json!({"dev": "v0", "mode": "tc", "rate": rate}));
                assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["rate"], rate);
            }
        });
        let interface = &agent.stats()["interfaces"]["v0"];
        assert!(
            interface["packets_in"].as_u64().unwrap() >= sent,
            "the interface's counters continue: {interface}"
        );
        assert_eq!(interface["packets_in"], interface["packets_sent"]);
    });
}

#[test]
fn traffic_without_rules_passes_untouched() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(audio());
        let sent = under_load(lab, peer, 7000, || {});
        assert_eq!(agent.flow("audio", "packets_in"), 0);
        assert!(agent.flow("-", "packets_sent") >= sent);
        let receiver = peer.enter(|| std::net::UdpSocket::bind((PEER, 7001)).unwrap());
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let payload: Vec<u8> = (0..1400).map(|n| (n * 7) as u8).collect();
        lab.netns.enter(|| {
            std::net::UdpSocket::bind("10.9.0.1:0")
                .unwrap()
                .send_to(&payload, (PEER, 7001))
                .unwrap()
        });
        let mut buffer = vec![0; 2000];
        let length = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], &payload[..]);
    });
}
