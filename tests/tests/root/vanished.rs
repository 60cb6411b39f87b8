//! What vanishes under an agent: its bpffs, and its interface, which goes to another namespace, is renamed, or deleted
//! and made again. The delay that is told or measured at its ends.

use std::time::Duration;

use bestby_bpf::abi::*;
use bestby_tests::agent::*;
use bestby_tests::bpf::{LO, PASS, Rule, SkBuff, iface, mapped};
use bestby_tests::clock::{MS, SECOND, now_ns};
use bestby_tests::frame::{DST4, rtp, udp4};
use bestby_tests::load::{Counter, Load, PEER, send_numbered};
use bestby_tests::netns::{Lab, Netns, linked_lab, shell};
use bestby_tests::{bpf, require};
use serde_json::{Value, json};

const PORT: u16 = 5004;
/// Longer than the agent's housekeeping takes to come round.
const A_ROUND: Duration = Duration::from_millis(2500);

fn attach(dev: &str) -> Value {
    json!({"dev": dev, "mode": "tc", "rate": "50mbit"})
}

/// An agent with `v0` attached and a rule for [`PORT`].
fn start(lab: &Lab) -> Agent {
    let agent = Agent::start(lab, &[]);
    agent.attach(attach("v0"));
    agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "10s"}));
    agent
}

/// What is sent while `disturb` runs arrives whole and in order.
fn under_load(lab: &Lab, peer: &Netns, disturb: impl FnOnce()) -> u64 {
    let load = Load {
        port: PORT,
        size: 200,
        pace: Duration::from_millis(1),
        least: 100,
        around: Duration::from_millis(100),
    };
    let (sent, counter) = load.during(&lab.netns, peer, disturb);
    assert_eq!(counter.finish(), (0..sent).collect::<Vec<_>>());
    sent
}

/// Packets that the rule counts of 20 that are sent, all of which arrive.
fn judged(agent: &Agent, lab: &Lab, peer: &Netns) -> u64 {
    let before = agent.flow("audio", "packets_in");
    let counter = Counter::new(peer, PEER, PORT);
    let pace = Duration::from_millis(1);
    let sent = send_numbered(&lab.netns, (PEER, PORT), 100, pace, |n| n < 20);
    std::thread::sleep(Duration::from_millis(100));
    counter.expect_all(&(0..sent).collect::<Vec<_>>());
    agent.flow("audio", "packets_in") - before
}

fn interfaces(agent: &Agent) -> Vec<String> {
    let all = agent.ok("GET", "/v1/interfaces", None);
    let all = all.as_array().unwrap().iter();
    all.map(|i| i["dev"].as_str().unwrap().to_string())
        .collect()
}

/// Directories of pins.
fn pins(lab: &Lab) -> usize {
    std::fs::read_dir(lab.bpffs.join("iface")).unwrap().count()
}

#[test]
fn vanished_bpffs_loses_no_packet_and_the_next_agent_begins_anew() {
    linked_lab(require::root(), |lab, peer| {
        let agent = start(lab);
        let mounted = lab.bpffs.parent().unwrap();
        under_load(lab, peer, || {
            shell(&format!("umount --lazy {}", mounted.display()));
        });
        let complaint = agent.complaints("pins").join(" ");
        assert!(complaint.contains("no bpffs any more"), "{complaint}");
        // What has no pin any more is found to be gone, and nothing hangs.
        let complaint = agent.complaints("interface").join(" ");
        assert!(complaint.contains("v0"), "{complaint}");
        agent.terminate();
        // It mounts one itself. What the earlier one left on the interface is nobody's.
        let agent = Agent::start(lab, &[]);
        assert_eq!(agent.ok("GET", "/v1/status", None)["adopted"], false);
        let (status, said) = agent.refused("POST", "/v1/interfaces", Some(attach("v0")));
        assert!(status == 409 && said.contains("--replace"), "{said}");
        let mut again = attach("v0");
        again["replace"] = json!(true);
        agent.attach(again);
        agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "10s"}));
        assert_eq!(judged(&agent, lab, peer), 20);
        assert!(agent.complaints("interface").is_empty());
        agent.detach("v0");
        assert!(root_qdisc(&lab.netns, "v0").contains("noqueue"));
        agent.terminate();
        shell(&format!("umount {}", lab.bpffs.display()));
    });
}

#[test]
fn interface_moved_away_is_forgotten_and_can_come_back() {
    linked_lab(require::root(), |lab, peer| {
        let agent = start(lab);
        let elsewhere = Netns::new();
        let go = |from: &Netns, to: &Netns| {
            from.run(&format!("ip link set v0 netns {}", to.name()));
        };
        let come_back = || {
            go(&elsewhere, &lab.netns);
            lab.netns.run("ip addr add 10.9.0.1/24 dev v0");
            lab.netns.run("ip link set v0 up");
        };
        go(&lab.netns, &elsewhere);
        wait_for("the interface to be forgotten", || {
            interfaces(&agent).is_empty()
        });
        assert_eq!(pins(lab), 0);
        // Nothing of ours went along.
        elsewhere.run("ip link set v0 up");
        let root = root_qdisc(&elsewhere, "v0");
        assert!(root.contains("noqueue"), "{root}");
        come_back();
        agent.attach(attach("v0"));
        assert_eq!(judged(&agent, lab, peer), 20);

        // There and back while nobody looked: its queue is gone, and that is said until it is attached again.
        let before = interfaces(&agent);
        agent.signal(libc::SIGSTOP);
        go(&lab.netns, &elsewhere);
        come_back();
        agent.signal(libc::SIGCONT);
        std::thread::sleep(A_ROUND);
        assert_eq!(interfaces(&agent), before);
        let complaint = agent.complaints("interface").join(" ");
        assert!(complaint.contains("v0"), "{complaint}");
        agent.attach(attach("v0"));
        assert!(agent.complaints("interface").is_empty());
        assert_eq!(judged(&agent, lab, peer), 20);

        // So does the next agent find it.
        agent.kill();
        go(&lab.netns, &elsewhere);
        let agent = Agent::start(lab, &[]);
        assert!(interfaces(&agent).is_empty());
        assert_eq!(pins(lab), 0);
    });
}

#[test]
fn interface_made_again_under_its_index_is_not_taken_for_the_old_one() {
    linked_lab(require::root(), |lab, peer| {
        let agent = start(lab);
        let index = agent.ok("GET", "/v1/interfaces", None)[0]["ifindex"].clone();
        let make_again = || {
            lab.netns.run("ip link del v0");
            lab.netns.run(&format!(
                "ip link add v0 index {index} type veth peer name p0"
            ));
            lab.netns
                .run(&format!("ip link set p0 netns {}", peer.name()));
            peer.run("ip addr add 10.9.0.2/24 dev p0");
            peer.run("ip link set p0 up");
            lab.netns.run("ip addr add 10.9.0.1/24 dev v0");
            lab.netns.run("ip link set v0 up");
        };
        agent.signal(libc::SIGSTOP);
        make_again();
        agent.signal(libc::SIGCONT);
        std::thread::sleep(A_ROUND);
        let complaint = agent.complaints("interface").join(" ");
        assert!(complaint.contains("v0"), "{complaint}");
        agent.attach(attach("v0"));
        assert!(agent.complaints("interface").is_empty());
        assert_eq!(judged(&agent, lab, peer), 20);
        agent.kill();
        make_again();
        let agent = Agent::start(lab, &[]);
        let complaint = agent.complaints("interface").join(" ");
        assert!(complaint.contains("v0"), "{complaint}");
        agent.attach(attach("v0"));
        assert_eq!(judged(&agent, lab, peer), 20);
    });
}

#[test]
fn interface_renamed_without_an_agent_keeps_packets_and_counts() {
    linked_lab(require::root(), |lab, peer| {
        let agent = start(lab);
        let sent = under_load(lab, peer, || agent.kill());
        lab.netns.run("ip link set v0 down");
        lab.netns.run("ip link set v0 name k0");
        lab.netns.run("ip link set k0 up");
        let agent = Agent::start(lab, &[]);
        assert_eq!(interfaces(&agent), ["k0"]);
        assert_eq!(agent.flow("audio", "packets_in"), sent);
        assert_eq!(judged(&agent, lab, peer), 20);
        agent.detach("k0");
        assert!(root_qdisc(&lab.netns, "k0").contains("noqueue"));
    });
}

/// The classifier in mode tc on the loopback interface, with a rule of 200 ms.
fn classifier() -> bpf::Lab {
    let lab = bpf::Lab::bare();
    lab.iface(0, &iface(LO, BB_MODE_TC));
    lab.rules(&[Rule::new().dport(PORT).lifetime(200 * MS)]);
    lab
}

/// Verdicts on the first packets of a frame that comes now, and on one of it after 150 ms. With new eyes each time:
/// what is known of a path is looked up every 10 ms.
fn verdicts(lab: &bpf::Lab, frame: u32) -> [i32; 3] {
    std::thread::sleep(Duration::from_millis(20));
    let packet = udp4(PORT, &rtp(7, 3000 * frame, false));
    let run = || lab.run_with(&packet, SkBuff::default()).verdict;
    [run(), run(), {
        std::thread::sleep(Duration::from_millis(150));
        run()
    }]
}

#[test]
fn measured_rtt_of_zero_or_an_hour_drops_nothing_that_comes_at_once() {
    if !require::can(require::root()) {
        return;
    }
    let lab = classifier();
    let to = bb_addr { addr: mapped(DST4) };
    let hour = 3600 * SECOND;
    // At most half of a lifetime is believed. What goes on for longer than the rest is no frame, and so each packet of
    // it has a lifetime of its own.
    for (n, rtt) in (1..).zip([0, 1, hour, u64::MAX]) {
        let measured = bb_rtt {
            min_rtt_ns: rtt,
            least_ns: [u64::MAX; 2],
            srtt_ns: rtt,
            rto_ns: rtt,
            updated_ns: now_ns(),
            ..Default::default()
        };
        lab.tell("bb_rtts", &to, &measured);
        assert_eq!(verdicts(&lab, n), [PASS; 3], "RTT of {rtt} ns");
    }
    // Of a time that has not come yet, as after a jump of the clock it was reckoned by.
    for updated_ns in [now_ns() + hour, u64::MAX, 0] {
        let measured = bb_rtt {
            min_rtt_ns: MS,
            updated_ns,
            ..Default::default()
        };
        lab.tell("bb_rtts", &to, &measured);
        let all = verdicts(&lab, 10 + (updated_ns % 7) as u32);
        assert_eq!(all, [PASS; 3], "measured at {updated_ns}");
    }
}

#[test]
fn owd_told_of_zero_or_beyond_the_lifetime_is_obeyed() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "500ms"}));
        let tell = |owd: &str| {
            agent.ok("PUT", "/v1/sessions/10.9.0.2", Some(json!({"owd": owd})));
            std::thread::sleep(Duration::from_millis(50));
        };
        tell("0s");
        assert_eq!(judged(&agent, lab, peer), 20);
        // An hour is longer than any path. Ten seconds are longer than the lifetime: the operator says that all is late.
        let (status, said) = agent.refused(
            "PUT",
            "/v1/sessions/10.9.0.2",
            Some(json!({"owd": "3600s"})),
        );
        assert!(status == 400 && said.contains("10s"), "{said}");
        tell("10s");
        let counter = Counter::new(peer, PEER, PORT);
        let pace = Duration::from_millis(1);
        send_numbered(&lab.netns, (PEER, PORT), 100, pace, |n| n < 20);
        std::thread::sleep(Duration::from_millis(100));
        assert!(counter.finish().is_empty());
        assert_eq!(agent.stats()["flows"]["audio"]["dropped"]["stale"], 20);
        // Who only observes drops nothing all the same.
        agent.attach(json!({"dev": "v0", "mode": "tc", "observe": true}));
        assert_eq!(judged(&agent, lab, peer), 20);
        assert_eq!(agent.stats()["flows"]["audio"]["would_drop"]["stale"], 20);
    });
}
