//! `bestbyd teardown`: everything is given back without an agent, also when the pins are gone; nothing while one runs.

use std::fs;
use std::process::Command;

use bestby_tests::agent::*;
use bestby_tests::load::send_numbered;
use bestby_tests::netns::{Lab, Netns, linked_lab, shell};
use bestby_tests::program::{binary, said};
use bestby_tests::require;
use serde_json::{Value, json};

use crate::tcp_real_lab::{API, REAL, sender};

fn command(lab: &Lab) -> Command {
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("teardown").arg("--bpffs").arg(&lab.bpffs);
    command.arg("--socket").arg(lab.dir.join("s"));
    command
}

/// What it says when it works.
#[track_caller]
fn teardown(lab: &Lab) -> String {
    let output = command(lab).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// What it says when it refuses.
#[track_caller]
fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    said(&output)
}

/// What of bestby an interface, a cgroup and the kernel have, as the tools of others see it.
fn left(lab: &Lab, dev: &str) -> String {
    let net = lab.netns.enter(|| {
        shell(&format!(
            "tc qdisc show dev {dev}; tc filter show dev {dev} egress; ip -br link; bpftool net show"
        ))
    });
    let cgroup = shell(&format!("bpftool cgroup show {}", lab.cgroup.display()));
    let all = net + &cgroup;
    let ours = |line: &&str| {
        ["bb_", "bestby", "bbs", "htb", "clsact"]
            .iter()
            .any(|n| line.contains(n))
    };
    all.lines().filter(ours).collect::<Vec<_>>().join("\n")
}

/// An agent that holds as much as this kernel allows, ended: a shaped interface, slow, so that super-packets are cut;
/// socket programs; TCP-Real where there is one.
fn left_by_an_agent(lab: &Lab) {
    let agent = Agent::start(lab, &[]);
    agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "1mbit", "replace": true}));
    if agent.call("PUT", API, Some(json!({}))).0 == 200 {
        assert!(sender(nix::sys::socket::AddressFamily::Inet, REAL).is_ok());
    }
    agent.terminate();
    let left = left(lab, "v0");
    for part in ["htb bb:", "bb_sockops", "bb_setsockopt"] {
        assert!(left.contains(part), "{part}: {left}");
    }
}

fn segments(lab: &Lab) -> String {
    let all = lab.netns.run("ip -d link show v0");
    let mut words = all.split_whitespace().skip_while(|w| *w != "gso_max_segs");
    words.nth(1).unwrap().to_string()
}

/// Packets that leave, of 20.
fn leave(lab: &Lab, peer: &Netns) -> u64 {
    let count = || {
        let text = peer.run("ip -j -s link show v1");
        let link: Value = serde_json::from_str(&text).unwrap();
        link[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    };
    let before = count();
    let to = ("10.9.0.2".parse().unwrap(), 9);
    send_numbered(
        &lab.netns,
        to,
        100,
        std::time::Duration::from_micros(500),
        |n| n < 20,
    );
    count() - before
}

#[test]
fn everything_is_given_back_as_it_was() {
    linked_lab(require::root(), |lab, _| {
        lab.netns
            .run("tc qdisc add dev v0 root handle 5: tbf rate 5mbit burst 3000 latency 50ms");
        let before = (root_qdisc(&lab.netns, "v0"), segments(lab));
        left_by_an_agent(lab);
        let said = teardown(lab);
        assert!(
            said.contains("interface v0: its root qdisc is tbf now"),
            "{said}"
        );
        assert_eq!((root_qdisc(&lab.netns, "v0"), segments(lab)), before);
        assert_eq!(left(lab, "v0"), "");
        assert!(sender(nix::sys::socket::AddressFamily::Inet, REAL).is_err());
        let pins = fs::read_dir(&lab.bpffs).into_iter().flatten().count();
        assert_eq!(pins, 0);
        assert_eq!(
            teardown(lab).lines().next(),
            Some("nothing of bestby is here")
        );
        // And an agent starts anew.
        fs::create_dir_all(&lab.bpffs).unwrap();
        let agent = Agent::start(lab, &[]);
        assert_eq!(agent.ok("GET", "/v1/interfaces", None), json!([]));
    });
}

#[test]
fn everything_is_given_back_after_the_pins_vanished() {
    linked_lab(require::root(), |lab, peer| {
        let before = (root_qdisc(&lab.netns, "v0"), segments(lab));
        left_by_an_agent(lab);
        fs::remove_dir_all(&lab.bpffs).unwrap();
        assert!(left(lab, "v0").contains("htb bb:"));
        let said = teardown(lab);
        assert!(said.contains("interface v0: its root qdisc is"), "{said}");
        assert_eq!((root_qdisc(&lab.netns, "v0"), segments(lab)), before);
        assert_eq!(left(lab, "v0"), "");
        assert!(leave(lab, peer) >= 20);
    });
}

#[test]
fn classifier_pinned_where_nobody_finds_it_is_detached() {
    linked_lab(require::root(), |lab, _| {
        left_by_an_agent(lab);
        // As if another bpffs had been mounted over the first.
        let hidden = lab.bpffs.with_file_name("hidden");
        fs::rename(&lab.bpffs, &hidden).unwrap();
        teardown(lab);
        let left = left(lab, "v0");
        assert!(
            !left.contains("bb_classify") && !left.contains("bb_real_ingress"),
            "{left}"
        );
        assert!(!left.contains("htb") && !left.contains("bbs"), "{left}");
        fs::remove_dir_all(&hidden).unwrap();
    });
}

#[test]
fn running_agent_is_refused_and_loses_nothing() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        let before = (root_qdisc(&lab.netns, "v0"), left(lab, "v0"));
        // One that does not listen where it is looked for holds its directory.
        let mut elsewhere = lab.netns.command(binary("bestbyd"));
        elsewhere.arg("teardown").arg("--bpffs").arg(&lab.bpffs);
        elsewhere.arg("--socket").arg(lab.dir.join("nowhere"));
        // One that shares neither with it: what no record names is not taken from it.
        let mut apart = lab.netns.command(binary("bestbyd"));
        apart.arg("teardown").arg("--bpffs");
        apart.arg(lab.bpffs.with_file_name("apart"));
        apart.arg("--socket").arg(lab.dir.join("nowhere"));
        for command in [command(lab), elsewhere, apart] {
            let said = refused(command);
            assert!(
                said.contains("running") && said.contains("systemctl stop bestbyd"),
                "{said}"
            );
        }
        // Nor may it be one whose pins are gone.
        let hidden = lab.bpffs.with_file_name("hidden");
        fs::rename(&lab.bpffs, &hidden).unwrap();
        let said = refused(command(lab));
        assert!(said.contains("listens"), "{said}");
        fs::rename(&hidden, &lab.bpffs).unwrap();
        assert_eq!((root_qdisc(&lab.netns, "v0"), left(lab, "v0")), before);
        assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["dev"], "v0");
    });
}

#[test]
fn pins_of_another_namespace_are_refused() {
    linked_lab(require::root(), |lab, _| {
        left_by_an_agent(lab);
        let mut there = Netns::new().command(binary("bestbyd"));
        there.arg("teardown").arg("--bpffs").arg(&lab.bpffs);
        there.arg("--socket").arg(lab.dir.join("s"));
        let said = refused(there);
        assert!(said.contains("namespace") && said.contains("v0"), "{said}");
        assert!(left(lab, "v0").contains("htb bb:"));
        teardown(lab);
        assert_eq!(left(lab, "v0"), "");
    });
}
