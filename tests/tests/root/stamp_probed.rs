//! `--stamp probed`: the option goes only where a probe has come through, and no longer than packets with it arrive.

use std::net::{SocketAddr, UdpSocket};

use aya::programs::TcAttachType;
use bestby_bpf::abi::*;
use bestby_tests::{
    agent::{Agent, wait_for},
    bpf::{Lab, Rule, mapped},
    clock::{SECOND, now_ns},
    netns::{linked_lab, shell},
    require,
};
use serde_json::json;

use crate::probe::{Hop, behave};
use crate::stamp_lab::*;

fn rule(rule: Rule) -> Rule {
    let mut rule = rule.dport(PORT).lifetime(10 * SECOND);
    rule.says.flags |= (BB_RULE_STAMP | BB_RULE_PROBED) as u8;
    rule
}

fn address(to: &str) -> bb_addr {
    let addr = match to.parse().unwrap() {
        std::net::IpAddr::V4(a) => mapped(a.octets()),
        std::net::IpAddr::V6(a) => a.octets(),
    };
    bb_addr { addr }
}

fn entry(lab: &Lab, to: &str) -> Option<bb_probed> {
    lab.get("bb_probed", &address(to))
}

fn carries_until(lab: &Lab, to: &str, until_ns: u64) {
    let value = bb_probed {
        until_ns,
        used_ns: now_ns(),
    };
    lab.put("bb_probed", &address(to), &value);
}

#[test]
fn stamp_waits_for_a_probe_and_ends_with_its_answer() {
    Bench::on(&[rule(Rule::new())], Offload::All, |bench| {
        for (to, _) in ADDRESSES {
            let receiver = bench.receiver(to);
            let stamped = || {
                let payload = bytes(100);
                sender(to).send(&payload).unwrap();
                bench.delivered(&receiver, &[&payload])[0]
                    .option()
                    .is_some()
            };
            assert!(entry(&bench.lab, to).is_none());
            let before = now_ns();
            assert!(!stamped());
            // The agent finds it there.
            let asked = entry(&bench.lab, to).expect("no entry");
            assert_eq!(asked.until_ns, 0);
            assert!((before..=now_ns()).contains(&asked.used_ns));
            assert!(!stamped());
            carries_until(&bench.lab, to, now_ns() + 60 * SECOND);
            assert!(stamped());
            carries_until(&bench.lab, to, now_ns() - 1);
            assert!(!stamped());
        }
        // Another destination's answer is no use, nor is one in the other family.
        carries_until(&bench.lab, "10.9.0.3", now_ns() + 60 * SECOND);
        let receiver = bench.receiver("10.9.0.2");
        sender("10.9.0.2").send(&[1]).unwrap();
        let seen = bench.delivered(&receiver, &[&[1]]);
        assert_eq!(seen[0].option(), None);
        assert_eq!(bench.lab.global(BB_G_STAMPED), 2);
        assert_eq!(bench.lab.global(BB_G_STAMP_PROBE), 7);
    });
}

/// The application asked for the option: without a deadline in it, it would be stale.
#[test]
fn place_that_a_packet_brings_is_filled_without_a_probe() {
    Bench::on(&[rule(Rule::new())], Offload::All, |bench| {
        let receiver = bench.receiver("10.9.0.2");
        let sender = sender("10.9.0.2");
        let place = [TYPE4, 8, 0, 0, 0, 0, 0, 0];
        bestby_tests::socket::set(&sender, libc::IPPROTO_IP, libc::IP_OPTIONS, &place[..]).unwrap();
        sender.send(&[1]).unwrap();
        let seen = bench.delivered(&receiver, &[&[1]]);
        assert!((9_000..=10_000).contains(&seen[0].lifetime_ms()));
        assert!(entry(&bench.lab, "10.9.0.2").is_none());
    });
}

/// A firewall that begins to drop packets with options costs TCP three timeouts, not the connection.
#[test]
fn stamp_ends_where_segments_with_it_vanish() {
    for (to, _) in ADDRESSES {
        Bench::on(&[rule(Rule::new().proto(6))], Offload::All, |bench| {
            carries_until(&bench.lab, to, now_ns() + 600 * SECOND);
            let seen = transfer(bench, to, 5_000, |_| {});
            assert!(seen.iter().any(|s| s.option().is_some()));
            // What arrives takes nothing back.
            assert!(entry(&bench.lab, to).unwrap().until_ns > now_ns());
            let firewall = Hop {
                drop_options: 1,
                ..Hop::default()
            };
            behave(bench.peer, "v1", TcAttachType::Ingress, firewall);
            let stamped = bench.lab.global(BB_G_STAMPED);
            transfer(bench, to, 5_000, |_| {});
            let until = entry(&bench.lab, to).unwrap().until_ns;
            assert_eq!(until, u64::from(BB_PROBED_VANISH));
            assert!(bench.lab.global(BB_G_STAMPED) > stamped);
            assert!(bench.lab.global(BB_G_STAMP_PROBE) > 0);
        });
    }
}

/// IPv6 with a receiver that takes no hop-by-hop options, beside IPv4.
#[test]
fn agent_has_stamped_only_what_comes_through() {
    linked_lab(require::root(), |lab, peer| {
        shell("ip addr add fd09::1/64 dev v0 nodad");
        peer.run("ip addr add fd09::2/64 dev v1 nodad");
        peer.enter(|| {
            std::fs::write("/proc/sys/net/ipv6/max_hbh_opts_number", "0").unwrap();
        });
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(
            json!({"name": "calls", "proto": "udp", "dport": PORT.to_string(),
                         "lifetime": "10s", "stamp": "probed"}),
        );
        let stamped = |agent: &Agent| agent.stats()["global"]["stamped"].as_u64().unwrap();
        let explained = |agent: &Agent, to: &str| {
            let request = json!({"dev": "v0", "packet": format!("udp {to}:{PORT}")});
            agent.ok("POST", "/v1/explain", Some(request))["notes"].to_string()
        };
        let send = |to: &str| {
            let to: SocketAddr = format!("{to}:{PORT}").parse().unwrap();
            let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = lab.netns.enter(|| UdpSocket::bind(any).unwrap());
            // That nobody listens is nothing here.
            let _ = socket.send_to(&[1; 100], to);
        };
        assert!(explained(&agent, "10.9.0.2").contains("not been probed yet"));
        send("10.9.0.2");
        send("[fd09::2]");
        assert_eq!(stamped(&agent), 0);
        wait_for("both verdicts", || {
            let (four, six) = (
                explained(&agent, "10.9.0.2"),
                explained(&agent, "[fd09::2]"),
            );
            four.contains("carries") && six.contains("drops packets")
        });
        assert_eq!(stamped(&agent), 0);
        send("10.9.0.2");
        assert_eq!(stamped(&agent), 1);
        send("[fd09::2]");
        assert_eq!(stamped(&agent), 1);
        // The answer outlives the agent for a while, and the next one takes it over.
        agent.kill();
        send("10.9.0.2");
        let agent = Agent::start(lab, &[]);
        assert_eq!(stamped(&agent), 2);
        send("10.9.0.2");
        assert_eq!(stamped(&agent), 3);
    });
}
