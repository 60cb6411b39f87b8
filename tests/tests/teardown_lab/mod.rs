//! What an agent leaves behind, and `bestbyd teardown`.

use std::process::Command;

use aya::programs::SchedClassifier;
use aya::programs::tc::TcAttachType;
use bestby_tests::agent::Agent;
use bestby_tests::load::send_numbered;
use bestby_tests::netns::{Lab, Netns, shell};
use bestby_tests::program::{binary, said};
use serde_json::{Value, json};

use crate::tcp_real_lab::{API, REAL, sender};

pub(crate) fn command(lab: &Lab) -> Command {
    let mut command = lab.netns.command(binary("bestbyd"));
    command.arg("teardown").arg("--bpffs").arg(&lab.bpffs);
    command.arg("--socket").arg(lab.dir.join("s"));
    command
}

/// What it says when it works.
#[track_caller]
pub(crate) fn teardown(lab: &Lab) -> String {
    let output = command(lab).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

/// What it says when it refuses.
#[track_caller]
pub(crate) fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    said(&output)
}

/// Names of the programs at an interface's tcx; nothing before 6.6. bpftool of Debian 12 does not show them.
fn at_tcx(dev: &str) -> Vec<String> {
    [TcAttachType::Ingress, TcAttachType::Egress]
        .into_iter()
        .filter_map(|side| SchedClassifier::query_tcx(dev, side).ok())
        .flat_map(|(_, programs)| programs)
        .map(|program| format!("tcx {}", program.name_as_str().unwrap()))
        .collect()
}

/// What of bestby an interface and a cgroup have, as the tools of others see it.
pub(crate) fn left(lab: &Lab, dev: &str) -> String {
    let mut all = lab.netns.enter(|| {
        let mut all = at_tcx(dev);
        all.push(shell(&format!(
            "tc qdisc show dev {dev}; tc filter show dev {dev} egress
             tc filter show dev {dev} ingress; ip -br link"
        )));
        all
    });
    let cgroup = lab.cgroup.display();
    all.push(shell(&format!("bpftool cgroup show {cgroup}")));
    let ours = |line: &&str| {
        ["bb_", "bestby", "bbs", "htb", "clsact"]
            .iter()
            .any(|n| line.contains(n))
    };
    let ours: Vec<&str> = all.iter().flat_map(|a| a.lines()).filter(ours).collect();
    ours.join("\n")
}

/// An agent that holds as much as this kernel allows, ended: a shaped interface, slow, so that super-packets are cut;
/// socket programs; TCP-Real where there is one.
pub(crate) fn left_by_an_agent(lab: &Lab) {
    let agent = Agent::start(lab, &[]);
    agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "1mbit", "replace": true}));
    if agent.call("PUT", API, Some(json!({}))).0 == 200 {
        assert!(sender(nix::sys::socket::AddressFamily::Inet, REAL).is_ok());
    }
    agent.terminate();
    let left = left(lab, "v0");
    // By tcx each program has its own name; by clsact, before 6.6, there are two filters of one name.
    let by_tcx = ["tcx bb_classify", "tcx bb_answers"]
        .iter()
        .all(|program| left.contains(program));
    let filter = |line: &&str| line.starts_with("filter ") && line.contains(" bestby ");
    let programs = by_tcx || left.lines().filter(filter).count() == 2;
    assert!(programs, "{left}");
    for part in ["htb bb:", "bb_sockops", "bb_setsockopt"] {
        assert!(left.contains(part), "{part}: {left}");
    }
}

pub(crate) fn segments(lab: &Lab) -> String {
    let all = lab.netns.run("ip -d link show v0");
    let mut words = all.split_whitespace().skip_while(|w| *w != "gso_max_segs");
    words.nth(1).unwrap().to_string()
}

/// Packets that leave, of 20.
pub(crate) fn leave(lab: &Lab, peer: &Netns) -> u64 {
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
