//! Settings that are probably a mistake: each is warned of by its command, at start, by a reload and by doctor, and none
//! is refused. Beside each stands the setting that is well, which nothing is said of.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use bestby_tests::agent::wait_for;
use bestby_tests::netns::shell;
use serde_json::Value;

use crate::cli_lab::{Lab, lab, text};

/// Checks of doctor that only mistakes have.
const IDS: [&str; 9] = [
    "flow-matches-all",
    "flow-hidden",
    "flow-late",
    "rate-above-link",
    "rate-above-interface",
    "rate-in-mode-tc",
    "roles-in-mode-tc",
    "session-prefix",
    "vlan-priority",
];

/// What doctor says of mistakes: their ids, with `ok` behind those that it does not complain of.
fn doctor(lab: &Lab) -> Vec<String> {
    let doctor = lab.agent().ok("GET", "/v1/doctor", None);
    let checks = doctor["checks"].as_array().unwrap().iter();
    let mistakes = checks.filter(|c| IDS.contains(&c["id"].as_str().unwrap()));
    mistakes
        .map(|c| {
            assert!(!c["hint"].as_str().unwrap().is_empty(), "{c}");
            let id = c["id"].as_str().unwrap();
            match c["status"].as_str().unwrap() {
                "warn" => id.into(),
                status => format!("{id} {status}"),
            }
        })
        .collect()
}

/// What a command that takes effect warns of: on standard error, and the same as JSON.
#[track_caller]
fn warned(lab: &Lab, command: &str) -> Vec<String> {
    let words: Vec<&str> = command.split(' ').collect();
    let output = lab.bestby(&[&["--json"], &words[..]].concat());
    assert!(
        output.status.success(),
        "{command}: {}",
        text(&output.stderr)
    );
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    let warnings = done["warnings"].as_array().cloned().unwrap_or_default();
    warnings
        .iter()
        .map(|w| w.as_str().unwrap().into())
        .collect()
}

/// A command that warns, among others by these words.
#[track_caller]
fn warns(lab: &Lab, command: &str, says: &[&str]) {
    let warnings = warned(lab, command);
    for word in says {
        assert!(
            warnings.iter().any(|w| w.contains(word)),
            "{command}: {word} in {warnings:?}"
        );
    }
}

/// A command after which nothing is likely wrong.
#[track_caller]
fn is_well(lab: &Lab, command: &str) {
    assert_eq!(warned(lab, command), Vec::<String>::new(), "{command}");
    assert_eq!(doctor(lab), Vec::<String>::new(), "{command}");
}

#[test]
fn rule_without_a_match_and_what_it_hides_are_warned_of() {
    lab("", |lab| {
        is_well(
            lab,
            "flow add audio --proto udp --dport 5004 --lifetime 200ms",
        );
        let all = [
            "flow",
            "add",
            "all",
            "--lifetime",
            "1s",
            "--before",
            "audio",
        ];
        let output = lab.bestby(&all);
        assert!(output.status.success());
        let said = text(&output.stderr);
        assert!(said.starts_with("warning: flow rule \"all\""), "{said}");
        assert!(
            said.contains("warning: flow rule \"audio\" never"),
            "{said}"
        );
        assert_eq!(doctor(lab), ["flow-matches-all", "flow-hidden"]);
        warns(lab, "flow set audio --lifetime 100ms", &["--before all"]);
        // It takes effect all the same.
        assert_eq!(lab.json("flow ls")[0]["flow"]["name"], "all");
        is_well(lab, "flow set all --dport 6000");
    });
}

#[test]
fn lifetime_below_the_delay_that_applies_is_warned_of() {
    lab("", |lab| {
        is_well(
            lab,
            "flow add audio --proto udp --lifetime 100ms --owd 100ms",
        );
        warns(
            lab,
            "flow set audio --owd 150ms",
            &["\"audio\": lifetime 100ms is below its one-way delay (owd) of 150ms"],
        );
        assert_eq!(doctor(lab), ["flow-late"]);
        is_well(lab, "flow set audio --owd none");
        // The receiver's, which comes before the rule's.
        is_well(lab, "session set 10.9.0.2 --owd 100ms");
        warns(
            lab,
            "session set 10.9.0.2 --owd 150ms",
            &["\"audio\": lifetime 100ms", "receiver 10.9.0.2"],
        );
        assert_eq!(doctor(lab), ["flow-late"]);
        warns(lab, "flow set audio --lifetime 149ms", &["10.9.0.2"]);
        is_well(lab, "flow set audio --lifetime 150ms");
        is_well(lab, "session set 10.9.0.2 --owd none");
    });
}

/// What is warned of is true: each of these packets is dropped, and none with the delay that is not warned of.
#[test]
fn rule_that_is_warned_of_for_its_delay_loses_each_packet() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc --rate 20mbit");
        let sent_by = |lab: &Lab| {
            let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
            for _ in 0..10 {
                socket.send_to(&[0; 100], "10.9.0.2:5004").unwrap();
            }
            let c = &lab.json("flow show audio")["counters"];
            (c["packets_in"].clone(), c["packets_sent"].clone())
        };
        // TCP of other tests cannot have measured this receiver: it answers nobody.
        warns(
            lab,
            "flow add audio --proto udp --lifetime 8s --owd 10s",
            &["is below its one-way delay"],
        );
        assert_eq!(sent_by(lab), (10.into(), 0.into()));
        is_well(lab, "flow set audio --owd 1s");
        assert_eq!(sent_by(lab), (20.into(), 10.into()));
    });
}

/// Makes /sys show the devices of this network namespace, as a container's does.
fn own_sys(lab: &Lab) {
    let sys = lab.path("sys");
    fs::create_dir(&sys).unwrap();
    let sys = sys.display();
    shell(&format!(
        "mount -t sysfs sysfs {sys}
         mount --bind {sys}/class/net /sys/class/net
         mount --bind {sys}/devices/virtual/net /sys/devices/virtual/net"
    ));
}

#[test]
fn rate_above_the_link_is_warned_of_where_its_speed_is_known() {
    lab("", |lab| {
        // Before the agent can see its devices, no speed is known.
        is_well(lab, "iface attach v0 --observe --mode tc --rate 20gbit");
        lab.stop();
        own_sys(lab);
        let speed = fs::read_to_string("/sys/class/net/v0/speed").unwrap();
        assert_eq!(speed.trim(), "10000", "of a veth");
        lab.start();
        assert!(
            lab.agent()
                .log()
                .contains("rate 20gbit is above the link's speed of 10gbit")
        );
        assert_eq!(doctor(lab), ["rate-above-link"]);
        warns(
            lab,
            "iface set v0 --rate 11gbit",
            &["interface v0: rate 11gbit is above the link's speed of 10gbit"],
        );
        assert_eq!(lab.json("iface ls")[0]["rate"], "11gbit");
        is_well(lab, "iface set v0 --rate 10gbit");
        lab.stop();
        shell("umount /sys/devices/virtual/net; umount /sys/class/net");
        shell(&format!("umount {}", lab.path("sys").display()));
    });
}

#[test]
fn rate_of_a_receiver_above_the_interface_s_is_warned_of() {
    lab("", |lab| {
        is_well(lab, "session set 10.9.0.2 --rate 30mbit");
        warns(
            lab,
            "iface attach v0 --observe --mode tc --rate 20mbit",
            &["receiver 10.9.0.2: rate 30mbit", "20mbit at most"],
        );
        assert_eq!(doctor(lab), ["rate-above-interface"]);
        warns(lab, "session set 10.9.0.2 --rate 21mbit", &["rate 21mbit"]);
        is_well(lab, "session set 10.9.0.2 --rate 20mbit");
        warns(lab, "iface set v0 --rate 19mbit", &["rate 20mbit"]);
        is_well(lab, "iface set v0 --rate 20mbit");
    });
}

#[test]
fn rate_of_a_receiver_that_mode_tc_does_not_keep_to_is_warned_of() {
    lab("", |lab| {
        is_well(lab, "iface attach v0 --enforce --mode tc --rate 20mbit");
        let says = "rate 2mbit has no effect, because every interface under control is in mode tc";
        warns(lab, "session set 10.9.0.2 --rate 2mbit", &[says]);
        assert_eq!(doctor(lab), ["rate-in-mode-tc"]);
        is_well(lab, "session set 10.9.0.2 --owd 2ms --rate none");
        assert_eq!(doctor(lab), [""; 0]);
    });
}

#[test]
fn session_prefix_longer_than_an_ipv4_address_says_what_it_does() {
    lab("", |lab| {
        is_well(
            lab,
            "iface attach v0 --observe --mode tc --session prefix/32 --rate 1mbit",
        );
        warns(
            lab,
            "iface set v0 --session prefix/99",
            &["each IPv4 receiver has a session of its own"],
        );
        assert_eq!(doctor(lab), ["session-prefix ok"]);
        let refused = lab.bestby(&["iface", "set", "v0", "--session", "prefix/129"]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("has 128 bits"));
        is_well(lab, "iface set v0 --session prefix/24");
    });
}

#[test]
fn mistakes_of_the_file_are_told_at_start_by_a_reload_and_by_config_check() {
    const FILE: &str = "[[flow]]\nname = \"a\"\nlifetime = \"100ms\"\nowd = \"150ms\"\n";
    const WELL: &str =
        "[[flow]]\nname = \"a\"\nproto = \"udp\"\nlifetime = \"100ms\"\nowd = \"50ms\"\n";
    lab(FILE, |lab| {
        let count = |lab: &Lab| {
            let log = lab.agent().log();
            (
                log.matches("matches every packet").count(),
                log.matches("below its one-way delay").count(),
            )
        };
        assert_eq!(count(lab), (1, 1));
        assert_eq!(warned(lab, "reload").len(), 2);
        assert_eq!(count(lab), (2, 2));
        let file = lab.path("bestby.toml");
        let check = |lab: &Lab| {
            text(
                &lab.bestby(&["config", "check", file.to_str().unwrap()])
                    .stdout,
            )
        };
        assert_eq!(check(lab).matches("warning").count(), 2);
        assert_eq!(doctor(lab), ["flow-matches-all", "flow-late"]);
        fs::write(&file, WELL).unwrap();
        assert_eq!(check(lab).matches("warning").count(), 0);
        is_well(lab, "reload");
        assert_eq!(count(lab), (2, 2));
    });
}

#[test]
fn events_of_a_rule_that_is_not_there_say_so() {
    lab("", |lab| {
        lab.ok("flow add audio --proto udp --dport 5004 --lifetime 200ms");
        // The first line on standard error of a command that follows.
        let first = |args: &[&str]| {
            let mut command = lab.command(args);
            let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = piped.spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
            let line = lines.next().expect("a line").unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            line
        };
        let said = first(&["events", "--flow", "audoi"]);
        assert!(
            said.starts_with("warning: there is no flow rule audoi now"),
            "{said}"
        );
        assert!(said.contains("did you mean audio?"), "{said}");
        let said = first(&["--json", "events", "--flow", "audoi"]);
        let json: Value = serde_json::from_str(&said).unwrap();
        assert!(
            json["warnings"][0].as_str().unwrap().contains("audoi"),
            "{said}"
        );
        for there in ["audio", "-"] {
            let said = first(&["events", "--flow", there]);
            assert!(said.starts_with("drop notices follow"), "{said}");
        }
    });
}

/// Nobody gives a command then: the journal is where it is told.
#[test]
fn mistake_of_an_interface_that_comes_late_is_in_the_journal() {
    const FILE: &str = "[[peer]]\naddr = \"192.0.2.1\"\nrate = \"2mbit\"\n\n\
        [[interface]]\ndev = \"w0\"\nmode = \"tc\"\nrate = \"1mbit\"\nobserve = true\n";
    lab(FILE, |lab| {
        let told = || lab.agent().log().contains("receiver 192.0.2.1: rate 2mbit");
        assert!(!told());
        shell("ip link add w0 type veth peer name w1");
        wait_for("a warning", told);
        assert_eq!(doctor(lab), ["rate-above-interface"]);
        is_well(lab, "iface set w0 --rate 2mbit");
    });
}

#[test]
fn roles_that_mode_tc_keeps_room_for_are_warned_of_while_they_hold() {
    lab("", |lab| {
        lab.ok("iface attach v0 --mode tc --rate 10mbit --enforce");
        lab.ok("flow add film --dport 6000 --lifetime 1s --roles 3,3,3,3,7");
        assert_eq!(doctor(lab), [""; 0]);
        let output = lab.bestby(&["flow", "set", "film", "--roles", "2,4,4,5,7"]);
        let warned = text(&output.stderr);
        assert!(
            output.status.success() && warned.contains("mode tc on v0"),
            "{warned}"
        );
        assert_eq!(doctor(lab), ["roles-in-mode-tc"]);
        lab.ok("flow set film --roles none");
        assert_eq!(doctor(lab), [""; 0]);
    });
}
