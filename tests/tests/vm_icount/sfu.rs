//! A real WebRTC stack as an SFU behind BUNDLE, over a link too narrow for it, in virtual time. Needs CONFIG_NET_SCH_BPF
//! and netem.

use std::time::Duration;

use crate::sfu_lab::{Figures, OPUS, PORT, RECEIVERS, VP8, VP8_RTX, conference, in_time};
use bestby_tests::agent::Agent;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::require;
use serde_json::{Value, json};

/// bytes/s: 60 % of what the SFU sends if it does not adapt.
const LINK: u64 = 250_000;
/// The same, as bestby is told.
const RATE: &str = "2mbit";
const LENGTH: Duration = Duration::from_secs(4);
/// Half of what netem makes of the path, ns.
const OWD: u64 = 20_000_000;

/// [`linked_lab`] with an address for each receiver, and 40 ms for what the receivers say to reach the SFU.
fn sfu_lab(test: impl FnOnce(&Lab, &Netns) + Send) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let link: Value = serde_json::from_str(&peer.run("ip -json link show v1")).unwrap();
        let mac = link[0]["address"].as_str().unwrap();
        for address in RECEIVERS {
            peer.run(&format!("ip addr replace {address}/24 dev v1"));
            lab.netns.run(&format!(
                "ip neigh replace {address} lladdr {mac} dev v0 nud permanent"
            ));
        }
        peer.run("tc qdisc replace dev v1 root netem delay 40ms limit 10000");
        test(lab, peer);
    });
}

/// Behind a long FIFO, what an operator has without bestby.
fn fifo(lab: &Lab, peer: &Netns) -> Figures {
    let tc = |words: &str| lab.netns.run(&format!("tc qdisc {words}"));
    tc(&format!(
        "replace dev v0 root handle 1: tbf rate {LINK}bps burst 4000 limit 10m"
    ));
    tc("replace dev v0 parent 1: pfifo limit 1000");
    let figures = conference(&lab.netns, peer, LENGTH, false);
    tc("del dev v0 root");
    figures
}

/// Behind bestby with these rules.
fn bestby(agent: &Agent, lab: &Lab, peer: &Netns, rules: &[Value], bwe: bool) -> Figures {
    for rule in rules {
        agent.add(rule.clone());
    }
    let figures = conference(&lab.netns, peer, LENGTH, bwe);
    println!("{}", agent.stats());
    for rule in rules {
        let name = rule["name"].as_str().unwrap();
        agent.ok("DELETE", &format!("/v1/flows/{name}"), None);
    }
    assert_eq!((figures.blocked, figures.disconnected), (0, 0));
    figures
}

/// By ICE's own checks the delay to each receiver is known, whatever waits at the link meanwhile.
fn delays_are_known(agent: &Agent) {
    let known = agent.ok("GET", "/v1/sessions", None);
    let sessions = known["sessions"].as_array().unwrap();
    for address in RECEIVERS {
        let media = |s: &&Value| s["kind"] == "dst" && s["addr"] == address;
        let media = sessions.iter().find(media).unwrap();
        assert_eq!(media["owd_source"], "stun", "{media}");
        let owd = media["owd_ns"].as_u64().unwrap();
        println!("owd of {address}: {owd} ns");
        assert!((OWD..OWD + OWD / 5).contains(&owd), "{media}");
    }
}

/// One rule for the SFU's port. 20 ms of what the receivers wait are left for the link.
fn one_rule() -> [Value; 1] {
    [json!({"name": "sfu", "proto": "udp", "sport": PORT, "lifetime": "380ms", "priority": 4})]
}

#[test]
fn sfu_on_a_wide_link_loses_nothing() {
    sfu_lab(|lab, peer| {
        let length = Duration::from_secs(2);
        let all = conference(&lab.netns, peer, length, false);
        assert_eq!([in_time(all.audio), in_time(all.frames)], [1000, 1000]);
        assert_eq!((all.rtx, all.nacks, all.blocked), ([0; 3], 0, 0));
        let share = LINK * length.as_secs() * 100 / all.bytes;
        assert!(
            (55..=65).contains(&share),
            "the link of the other tests carries {share} % of this"
        );
    });
}

/// A rule per kind of media, as docs/sfu.md has them; 20 ms of each lifetime are the path's.
fn rule_per_payload_type() -> [Value; 2] {
    let rule = |name: &str, pt: u8, lifetime: &str, priority: u8| {
        json!({
            "name": name, "proto": "udp", "sport": PORT, "rtp_pt": pt.to_string(),
            "lifetime": lifetime, "priority": priority,
        })
    };
    let audio = rule("audio", OPUS, "180ms", 0);
    let mut video = rule("video", VP8, "380ms", 4);
    video["rtx"] = json!(format!("{VP8_RTX}:{VP8}"));
    [audio, video]
}

/// One FIFO to compare with and one agent, which take long in a guest.
#[test]
fn sfu_on_a_narrow_link_delivers_more_by_bestby_than_by_a_fifo() {
    sfu_lab(|lab, peer| {
        let fifo = fifo(lab, peer);
        // The link is the bottleneck, not the socket, and signalling survives it.
        assert_eq!((fifo.blocked, fifo.disconnected), (0, 0));
        assert!(in_time(fifo.audio) < 200);
        let agent = Agent::start(lab, &[]);
        let attach = |mode: &str| {
            agent.attach(json!({"dev": "v0", "rate": RATE, "mode": mode}));
        };

        attach("qdisc");
        println!("case one rule, cannot adapt");
        let run = bestby(&agent, lab, peer, &one_rule(), false);
        assert!(run.nacks > 0 && run.rtx[0] > 0);
        assert!(in_time(run.frames) > 2 * in_time(fifo.frames));
        delays_are_known(&agent);

        println!("case one rule, follows GCC");
        let run = bestby(&agent, lab, peer, &one_rule(), true);
        assert!(in_time(run.audio) >= 995);
        assert!(in_time(run.frames) >= 950);
        // It adapted, and not to nothing.
        assert_eq!(run.estimates.len(), RECEIVERS.len());
        assert!(run.estimates.iter().all(|bps| *bps > 100_000));

        for mode in ["qdisc", "tc"] {
            attach(mode);
            println!("case a rule per payload type, mode {mode}");
            let run = bestby(&agent, lab, peer, &rule_per_payload_type(), false);
            assert!(in_time(run.audio) >= 995);
            assert!(in_time(run.frames) > in_time(fifo.frames));
            // Fresh media wait all the time, so no retransmission of an old frame is worth the link.
            assert!(run.rtx[0] > 0 && run.rtx[2] == 0);
        }
    });
}
