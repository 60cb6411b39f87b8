//! `rate auto`: what the agent does for it. It begins a path's state, sends echo requests with the nonces of those who
//! are asked, and lets mode tc's tree follow the rate. Finding the rate is the data path's.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use bestby_bpf::abi;
use bestby_tests::agent::{Agent, wait_for};
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::truncated::Raw;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::{Value, json};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The first interface's entry in a map of the data path.
fn entry<V: FromBytes + IntoBytes + Immutable>(lab: &Lab, map: &str) -> V {
    let map = MapHandle::from_pinned_path(lab.bpffs.join(map)).unwrap();
    let bytes = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    V::read_from_bytes(&bytes.unwrap()).unwrap()
}

/// Writes it, as the data path would.
fn write<V: IntoBytes + Immutable>(lab: &Lab, map: &str, value: &V) {
    let map = MapHandle::from_pinned_path(lab.bpffs.join(map)).unwrap();
    map.update(&0_u32.to_ne_bytes(), value.as_bytes(), MapFlags::ANY)
        .unwrap();
}

fn state(lab: &Lab) -> abi::bb_auto {
    entry(lab, "bb_autos")
}

fn kernel(lab: &Lab) -> abi::bb_iface {
    entry(lab, "bb_ifaces")
}

fn finds(lab: &Lab) -> bool {
    u32::from(kernel(lab).flags) & abi::BB_IFACE_AUTO != 0
}

/// An echo request as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Echo {
    to: Ipv4Addr,
    identifier: u16,
    sequence: u16,
    nonce: u64,
}

impl Echo {
    fn of(frame: &[u8]) -> Option<Self> {
        let be16 = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let request = be16(12) == 0x0800 && frame[14] == 0x45 && frame[23] == 1 && frame[34] == 8;
        request.then(|| Self {
            to: Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]),
            identifier: be16(38),
            sequence: be16(40),
            nonce: u64::from_ne_bytes(*frame[42..].first_chunk().unwrap()),
        })
    }
}

/// The next echo request at the other end, within some seconds.
fn next(peer: &Netns) -> Option<Echo> {
    within(peer, Duration::from_secs(4))
}

/// Whether nobody is asked for two intervals of the longest kind.
fn is_quiet(peer: &Netns) -> bool {
    within(peer, Duration::from_millis(2500)).is_none()
}

fn within(peer: &Netns, time: Duration) -> Option<Echo> {
    peer.enter(|| {
        let raw = Raw::open("v1");
        let end = Instant::now() + time;
        while Instant::now() < end {
            let found = raw.matching(|frame| frame.len() >= 50 && Echo::of(frame).is_some());
            if let Some(frame) = found {
                return Echo::of(&frame);
            }
        }
        None
    })
}

fn interface(agent: &Agent) -> Value {
    agent.ok("GET", "/v1/interfaces", None)[0].clone()
}

fn set(agent: &Agent, mut change: Value) -> Value {
    change["dev"] = "v0".into();
    agent.ok("PUT", "/v1/interfaces/v0", Some(change))
}

fn start(lab: &Lab) -> Agent {
    let agent = Agent::start(lab, &[]);
    agent.attach(json!({
        "dev": "v0", "mode": "tc", "rate": "auto:..10mbit", "probe": "10.9.0.2",
    }));
    agent
}

fn classes(lab: &Lab) -> String {
    lab.netns.run("tc class show dev v0")
}

#[test]
fn auto_asks_with_the_nonce_of_its_state_until_its_rate_is_set() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = start(lab);
        let begun = state(lab);
        assert_eq!((begun.least, begun.most), (8_000, 1_250_000));
        assert_eq!(begun.due_ns, u64::MAX);
        assert!(finds(lab) && kernel(lab).rate == 0);
        let echo = next(peer).unwrap();
        assert_eq!(echo.to, Ipv4Addr::new(10, 9, 0, 2));
        assert_eq!(echo.nonce, state(lab).end[0].nonce);
        assert_ne!(echo.nonce, 0);
        let later = next(peer).unwrap();
        assert_eq!(
            (later.identifier, later.nonce),
            (echo.identifier, echo.nonce)
        );
        assert!(later.sequence > echo.sequence);
        let path = interface(&agent)["path"].clone();
        assert_eq!(path["asked"], json!(["10.9.0.2"]));
        assert!(path["interval_ns"].as_u64() >= Some(50_000_000), "{path}");

        // Other bounds: what is known stays.
        set(&agent, json!({ "rate": "auto:128kbit..5mbit" }));
        let is = state(lab);
        assert_eq!((is.least, is.most), (16_000, 625_000));
        assert_eq!(is.end[0].nonce, echo.nonce);
        assert_eq!(interface(&agent)["rate"], "auto:128kbit..5mbit");
        // Another host: another nonce.
        set(&agent, json!({ "probe": "10.9.0.9" }));
        wait_for("another nonce", || state(lab).end[0].nonce != echo.nonce);

        let done = set(&agent, json!({ "rate": "10mbit" }));
        assert!(
            done["warnings"]
                .to_string()
                .contains("probe 10.9.0.9 has no effect"),
            "{done}"
        );
        assert!(!finds(lab));
        assert_eq!(kernel(lab).rate, 1_250_000);
        assert_eq!(state(lab), abi::bb_auto::default());
        assert_eq!(interface(&agent)["path"], Value::Null);
        assert!(is_quiet(peer));
        // And back.
        set(&agent, json!({ "rate": "auto", "probe": "10.9.0.2" }));
        assert_eq!(next(peer).unwrap().nonce, state(lab).end[0].nonce);
        agent.detach("v0");
        assert_eq!(state(lab), abi::bb_auto::default());
        assert!(is_quiet(peer));
    });
}

#[test]
fn auto_with_probe_none_or_observe_asks_nobody_and_says_so() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = start(lab);
        assert!(next(peer).is_some());
        let done = set(&agent, json!({ "probe": "none" }));
        assert!(
            done["warnings"].to_string().contains("nobody is asked"),
            "{done}"
        );
        assert!(is_quiet(peer));
        let done = set(&agent, json!({ "probe": "10.9.0.2", "observe": true }));
        assert!(
            done["warnings"].to_string().contains("only observes"),
            "{done}"
        );
        assert!(!finds(lab) && is_quiet(peer));
        assert_eq!(interface(&agent)["path"], Value::Null);
        assert!(!agent.complaints("auto observes").is_empty());
        set(&agent, json!({ "observe": false }));
        assert!(finds(lab) && next(peer).is_some());
    });
}

#[test]
fn rate_that_is_found_stays_through_other_changes_and_the_tree_follows_it() {
    linked_lab(Ok(()), |lab, _| {
        let agent = start(lab);
        // No answer comes in between.
        set(&agent, json!({ "probe": "none" }));
        let built = classes(lab);
        assert!(built.contains("ceil 10Mbit"), "{built}");
        let found = |rate| {
            write(lab, "bb_autos", &abi::bb_auto { rate, ..state(lab) });
            write(
                lab,
                "bb_ifaces",
                &abi::bb_iface {
                    rate,
                    ..kernel(lab)
                },
            );
        };
        found(31_000);
        wait_for("the tree's rate", || classes(lab).contains("ceil 248Kbit"));
        assert!(!classes(lab).contains("ceil 10Mbit"), "{}", classes(lab));
        let shown = interface(&agent);
        assert_eq!(shown["path"]["rate_bytes_s"], 31_000);
        let metrics = agent.request("GET", "/metrics", "").1;
        let line = "bestby_interface_rate_bytes_per_second{interface=\"v0\"} 31000";
        assert!(metrics.contains(line), "{metrics}");
        // Less than 3 % is not worth a change.
        found(31_500);
        thread::sleep(Duration::from_millis(400));
        assert!(classes(lab).contains("ceil 248Kbit"), "{}", classes(lab));
        set(&agent, json!({ "session": "flow" }));
        assert_eq!(kernel(lab).rate, 31_500);
        assert!(classes(lab).contains("ceil 248Kbit"), "{}", classes(lab));
        set(&agent, json!({ "rate": "auto:..5mbit" }));
        assert_eq!(kernel(lab).rate, 31_500);
        assert!(classes(lab).contains("ceil 252Kbit"), "{}", classes(lab));
        let nonce = state(lab).end[0].nonce;
        agent.kill();
        let agent = Agent::start(lab, &[]);
        let is = state(lab);
        assert_eq!(
            (is.end[0].nonce, is.least, is.most),
            (nonce, 8_000, 625_000)
        );
        assert_eq!((kernel(lab).rate, is.rate), (31_500, 31_500));
        assert!(classes(lab).contains("ceil 252Kbit"), "{}", classes(lab));
        found(0);
        wait_for("the first rate", || classes(lab).contains("ceil 5Mbit"));
        drop(agent);
    });
}

#[test]
fn agent_that_was_killed_goes_on_asking_with_the_same_nonce() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = start(lab);
        let before = next(peer).unwrap();
        agent.kill();
        assert!(is_quiet(peer));
        let _agent = Agent::start(lab, &[]);
        let after = next(peer).unwrap();
        assert_eq!((after.to, after.nonce), (before.to, before.nonce));
        assert_eq!(state(lab).end[0].nonce, before.nonce);
    });
}

#[test]
fn wrong_rate_or_probe_is_refused_whole() {
    linked_lab(Ok(()), |lab, _| {
        let agent = start(lab);
        let before = interface(&agent);
        for (change, reason) in [
            (json!({ "rate": "auto:2mbit..1mbit" }), "above"),
            (json!({ "rate": "auto:.." }), "bound"),
            (json!({ "rate": "auto", "probe": "224.0.0.1" }), "one host"),
            (json!({ "overhead": 4, "probe": "somewhere" }), "neither"),
        ] {
            let mut body = change.clone();
            body["dev"] = "v0".into();
            let (status, said) = agent.refused("PUT", "/v1/interfaces/v0", Some(body));
            assert!(status == 400 || status == 422, "{status} {said}");
            assert!(said.contains(reason), "{change}: {said}");
        }
        let after = interface(&agent);
        for field in ["rate", "overhead", "origin"] {
            assert_eq!(after[field], before[field]);
        }
    });
}

#[test]
fn gateway_of_the_default_route_is_asked_and_its_lack_is_told() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = start(lab);
        set(&agent, json!({ "probe": "gateway" }));
        wait_for("a complaint", || {
            let said = agent.complaints("rate auto");
            said.iter().any(|s| s.contains("no default route"))
        });
        assert!(is_quiet(peer));
        lab.netns.run("ip route add default via 10.9.0.2 dev v0");
        wait_for("the gateway", || {
            interface(&agent)["path"]["asked"] == json!(["10.9.0.2"])
        });
        assert_eq!(next(peer).unwrap().to, Ipv4Addr::new(10, 9, 0, 2));
        assert!(
            agent
                .complaints("rate auto")
                .iter()
                .all(|s| !s.contains("route"))
        );
    });
}

#[test]
fn busiest_receivers_of_media_are_asked_in_turns_and_a_silent_one_makes_room() {
    linked_lab(Ok(()), |lab, peer| {
        // Packets to 10.9.0.3 and 10.9.0.4 arrive, and nobody answers.
        let shown = peer.run("ip -o link show v1");
        let mac = shown.split("link/ether ").nth(1).unwrap();
        let mac = mac.split(' ').next().unwrap();
        for silent in ["10.9.0.3", "10.9.0.4"] {
            lab.netns
                .run(&format!("ip neigh replace {silent} lladdr {mac} dev v0"));
        }
        let agent = start(lab);
        agent.add(json!({ "name": "audio", "proto": "udp", "dport": 5004, "lifetime": "1s" }));
        set(&agent, json!({ "probe": "receivers" }));
        let done = set(&agent, json!({ "session": "interface" }));
        assert!(
            done["warnings"].to_string().contains("names no receiver"),
            "{done}"
        );
        assert!(!agent.complaints("auto asks nobody").is_empty());
        set(&agent, json!({ "session": "dst" }));
        let socket = lab.netns.enter(|| UdpSocket::bind("10.9.0.1:0").unwrap());
        let media = || {
            for (to, count) in [("10.9.0.2", 1), ("10.9.0.3", 3), ("10.9.0.4", 2)] {
                for _ in 0..count {
                    let _ = socket.send_to(&[0; 160], (to, 5004));
                }
            }
        };
        let asked = || {
            media();
            interface(&agent)["path"]["asked"].clone()
        };
        wait_for("the busiest ones", || {
            asked() == json!(["10.9.0.3", "10.9.0.4"])
        });
        let (one, other) = (next(peer).unwrap(), next(peer).unwrap());
        assert_ne!((one.to, one.identifier), (other.to, other.identifier));
        assert_ne!(one.nonce, other.nonce);
        wait_for("the one that answers", || {
            asked().to_string().contains("10.9.0.2")
        });
        wait_for("an answer", || {
            asked();
            interface(&agent)["path"]["answers"].as_u64() > Some(0)
        });
    });
}

#[test]
fn host_is_asked_by_icmpv6_too_also_one_of_this_link_only() {
    linked_lab(Ok(()), |lab, peer| {
        lab.netns.run("ip addr add fd00:9::1/64 dev v0 nodad");
        lab.netns.run("ip addr add fe80::9:1/64 dev v0 nodad");
        peer.run("ip addr add fd00:9::2/64 dev v1 nodad");
        peer.run("ip addr add fe80::9:2/64 dev v1 nodad");
        let agent = start(lab);
        for to in ["fd00:9::2", "fe80::9:2"] {
            let before = state(lab).end[0].nonce;
            set(&agent, json!({ "probe": to }));
            wait_for("its nonce", || state(lab).end[0].nonce != before);
            let nonce = state(lab).end[0].nonce.to_ne_bytes();
            let addr = to.parse::<Ipv6Addr>().unwrap().octets();
            let arrived = |raw: &Raw, kind: u8, at: usize| {
                (0..4).any(|_| {
                    let found = raw.matching(|f| {
                        f.len() >= 70
                            && f[12..14] == [0x86, 0xdd]
                            && f[54] == kind
                            && f[at..at + 16] == addr
                            && f[62..70] == nonce
                    });
                    found.is_some()
                })
            };
            // The request and its reply, whose checksum must have been right.
            peer.enter(|| {
                let raw = Raw::open("v1");
                assert!(arrived(&raw, 128, 38), "{to}");
                assert!(arrived(&raw, 129, 22), "{to}");
            });
        }
    });
}
