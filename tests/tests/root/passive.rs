//! An interface that only observes: it judges by a model of the rate, and the traffic is as it was without bestby.

use std::net::UdpSocket;

use bestby_tests::netns::shell;
use serde_json::Value;

use crate::cli_lab::{Lab, lab, text};

/// Packets of a burst: far more than 1 Mbit/s carries meanwhile, and fewer than fill a socket's buffer.
const BURST: u64 = 60;

/// Packets that the other end of the link has had.
fn arrived() -> u64 {
    let text = shell("ip -json -stats link show dev v1");
    let all: Value = serde_json::from_str(&text).expect("JSON of ip");
    all[0]["stats64"]["rx"]["packets"]
        .as_u64()
        .expect("a count")
}

/// Sends a burst of full-sized packets; returns how many the other end has when the last one was sent. A veth hands
/// packets over at once, so what is missing waits in a queue, or was dropped.
fn burst(port: u16) -> u64 {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    let before = arrived();
    for _ in 0..BURST {
        socket.send_to(&[0; 1200], ("10.9.0.2", port)).unwrap();
    }
    arrived() - before
}

/// What anybody could see of bestby on the link.
fn traces() -> [String; 3] {
    [
        shell("tc qdisc show dev v0"),
        shell("ip -details -oneline link show dev v0 | grep -o 'gso_max_segs [0-9]*'"),
        shell("ip -oneline link show | grep -c bbs || :"),
    ]
}

fn would_drop(lab: &Lab) -> u64 {
    let drops = &lab.json("stats")["interfaces"]["v0"]["would_drop"];
    let all = drops.as_object().unwrap().values();
    all.map(|n| n.as_u64().unwrap()).sum()
}

/// In turn: nothing is shaped, cut or left on the link; enforced, the same traffic is; and observed again, it is not.
fn passes_everything_until_enforced(mode: &str) {
    lab("", |lab| {
        let before = traces();
        lab.ok(&format!(
            "iface attach v0 --mode {mode} --rate 1mbit --observe"
        ));
        lab.ok("flow add media --dport 5004 --lifetime 50ms");
        assert_eq!(traces(), before);
        assert_eq!(burst(9), BURST, "plain traffic");
        assert_eq!(would_drop(lab), 0);
        assert_eq!(burst(5004), BURST, "media");
        assert!(would_drop(lab) > 0, "the model has no room for all of it");

        lab.ok("iface set v0 --enforce");
        assert_ne!(traces(), before);
        assert!(burst(9) < BURST);
        assert!(burst(5004) < BURST);

        lab.ok("iface set v0 --observe");
        assert_eq!(traces(), before);
        assert_eq!(burst(9), BURST);
        lab.ok("iface detach v0");
        assert_eq!(traces(), before);
    });
}

#[test]
fn observed_interface_of_mode_tc_passes_everything_until_enforced() {
    passes_everything_until_enforced("tc");
}

#[test]
fn observed_interface_of_any_mode_passes_everything_until_enforced() {
    passes_everything_until_enforced("auto");
}

#[test]
fn interface_of_a_new_installation_observes_and_says_how_to_go_on() {
    lab("", |lab| {
        let before = traces();
        let said = lab.ok("iface attach v0 --rate 1mbit --save");
        assert!(said.contains("only observes"), "{said}");
        let next = "bestby iface set v0 --enforce --save";
        assert!(said.contains(next), "{said}");
        assert!(lab.ok("iface ls").contains("--observe"));
        assert_eq!(traces(), before);
        let doctor = lab.bestby(&["doctor"]);
        assert!(
            text(&doctor.stdout).contains(next),
            "{}",
            text(&doctor.stdout)
        );

        // As it is printed; a later start without memory of it enforces, too.
        let said = lab.ok(next.strip_prefix("bestby ").unwrap());
        assert!(said.contains("observe true -> false"), "{said}");
        assert_ne!(traces(), before);
        let file = std::fs::read_to_string(lab.path("bestby.toml")).unwrap();
        assert!(file.contains("observe = false"), "{file}");
        lab.ok("iface set v0 --rate 2mbit");
        assert_eq!(lab.json("iface ls")[0]["observe"], false);
        lab.ok("iface detach v0");
        // What a command said is gone with it; the file's word is not.
        lab.ok("iface attach v0");
        assert_eq!(lab.json("iface ls")[0]["observe"], false);
    });
}

#[test]
fn interface_of_a_file_that_does_not_say_so_observes() {
    lab("[[interface]]\ndev = \"v0\"\nrate = \"1mbit\"\n", |lab| {
        assert_eq!(lab.json("iface ls")[0]["observe"], true);
        assert_eq!(burst(9), BURST);
        assert!(lab.agent().log().contains("observe is not said"));
    });
}
