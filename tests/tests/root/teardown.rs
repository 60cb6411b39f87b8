//! `bestbyd teardown`: everything is given back without an agent, also when the pins are gone; nothing while one runs.

use std::fs;

use bestby_tests::agent::*;
use bestby_tests::netns::{Netns, linked_lab};
use bestby_tests::program::binary;
use bestby_tests::require;
use serde_json::json;

use crate::tcp_real_lab::{REAL, sender};
use crate::teardown_lab::{command, leave, left, left_by_an_agent, refused, segments, teardown};

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
fn programs_pinned_where_nobody_finds_them_are_detached() {
    linked_lab(require::root(), |lab, _| {
        left_by_an_agent(lab);
        // As if another bpffs had been mounted over the first.
        let hidden = lab.bpffs.with_file_name("hidden");
        fs::rename(&lab.bpffs, &hidden).unwrap();
        teardown(lab);
        let left = left(lab, "v0");
        assert!(
            ["bb_classify", "bb_answers", "bb_real_ingress"]
                .iter()
                .all(|program| !left.contains(program)),
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
