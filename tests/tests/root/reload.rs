//! A reload takes the whole file or nothing of it, and says which.

use std::fs;

use bestby_tests::netns::shell;
use serde_json::Value;

use crate::cli_lab::{Lab, lab, text};

const GOOD: &str = "[[flow]]\nname = \"a\"\nlifetime = \"100ms\"\n\n[[peer]]\naddr = \"192.0.2.1\"\nowd = \"10ms\"\n\n\
    [[interface]]\ndev = \"v0\"\nmode = \"tc\"\nrate = \"10mbit\"\nobserve = false\n";

fn write(lab: &Lab, text: &str) {
    fs::write(lab.path("bestby.toml"), text).unwrap();
}

/// All that a file can change.
fn in_force(lab: &Lab) -> [Value; 3] {
    let mut sessions = lab.json("session ls");
    let mut interfaces = lab.json("iface ls");
    for i in interfaces.as_array_mut().unwrap() {
        i.as_object_mut().unwrap().remove("counters");
    }
    let flows = lab.json("flow ls");
    let flows = flows.as_array().unwrap();
    let flows = flows.iter().map(|f| f["flow"].clone()).collect();
    [flows, interfaces, sessions["peers"].take()]
}

fn metric(lab: &Lab, line: &str) -> bool {
    let (_, text) = lab.agent().request("GET", "/metrics", "");
    text.lines().any(|l| l == line)
}

#[test]
fn reload_tells_the_result_and_status_remembers_it() {
    lab(GOOD, |lab| {
        let before = in_force(lab);
        write(lab, &GOOD.replace("100ms", "100 parsecs"));
        lab.refused("reload", "bestby.toml:3");
        assert_eq!(in_force(lab), before);
        let status = lab.json("status");
        assert!(status["config_taken_s"].as_u64().is_some(), "{status}");
        let why = status["config_error"].as_str().unwrap();
        assert!(why.contains("parsecs"), "{why}");
        assert!(lab.ok("status").contains("parsecs"));
        assert!(metric(lab, "bestby_config_last_reload_successful 0.0"));
        let doctor = lab.bestby(&["doctor"]);
        assert_eq!(doctor.status.code(), Some(1));
        assert!(text(&doctor.stdout).contains("bestby reload"));

        write(lab, &GOOD.replace("100ms", "200ms"));
        assert!(lab.ok("reload").contains("is in force"));
        assert_eq!(lab.json("flow show a")["flow"]["lifetime"], "200ms");
        assert_eq!(lab.json("status")["config_error"], Value::Null);
        assert!(metric(lab, "bestby_config_last_reload_successful 1.0"));
    });
}

/// A root qdisc of somebody else is known before anything is changed.
#[test]
fn file_of_which_one_interface_cannot_be_attached_changes_nothing() {
    lab(GOOD, |lab| {
        shell(
            "ip link add w0 type veth peer name w1
             tc qdisc add dev w0 root handle 5: tbf rate 1mbit burst 10k latency 1s",
        );
        let before = in_force(lab);
        let qdisc = shell("tc qdisc show dev v0");
        let w0 =
            "\n[[interface]]\ndev = \"w0\"\nmode = \"tc\"\nrate = \"1mbit\"\nobserve = false\n";
        let other = GOOD
            .replace("10mbit", "20mbit")
            .replace("\"a\"", "\"b\"")
            .replace("10ms", "20ms");
        write(lab, &format!("{other}{w0}"));
        lab.refused("reload", "nothing of");
        assert_eq!(in_force(lab), before);
        assert_eq!(shell("tc qdisc show dev v0"), qdisc);
        // What it asks for is done where nothing stands against it.
        write(lab, &format!("{other}{w0}replace = true\n"));
        lab.ok("reload");
        assert_eq!(lab.json("iface ls")[1]["dev"], "w0");
        assert_eq!(lab.json("iface ls")[0]["rate"], "20mbit");
    });
}

/// What the kernel refuses, only the kernel knows: all that was done before is undone.
#[test]
fn file_that_the_kernel_refuses_half_way_is_undone() {
    lab(GOOD, |lab| {
        lab.ok("session set 192.0.2.9 --owd 30ms");
        shell("ip link add w0 type veth peer name w1");
        lab.ok("iface attach w0 --enforce --mode tc");
        // As many interfaces as a file may have, and one too many with that of the command.
        let room = bestby_bpf::abi::BB_MAX_IFACES - 1;
        let mut many = GOOD
            .replace("10mbit", "20mbit")
            .replace("\"a\"", "\"b\"")
            .replace("10ms", "20ms");
        for n in 0..room {
            if n % 2 == 0 {
                shell(&format!("ip link add d{n} type veth peer name d{}", n + 1));
            }
            many += &format!("\n[[interface]]\ndev = \"d{n}\"\nmode = \"tc\"\nobserve = false\n");
        }
        let before = in_force(lab);
        write(lab, &many);
        lab.refused("reload", "nothing of");
        let after = in_force(lab);
        assert_eq!(after[0], before[0], "rules");
        assert_eq!(after[2], before[2], "receivers");
        assert_eq!(after[1], before[1], "interfaces");
    });
}

#[test]
fn interface_whose_device_is_missing_is_no_failure() {
    lab(GOOD, |lab| {
        write(
            lab,
            &format!("{GOOD}\n[[interface]]\ndev = \"later0\"\nobserve = false\n"),
        );
        lab.ok("reload");
        assert_eq!(lab.json("status")["config_error"], Value::Null);
    });
}

/// The data path would wait for whoever writes to it.
#[test]
fn file_of_another_kind_is_refused_at_once() {
    lab(GOOD, |lab| {
        let before = in_force(lab);
        let path = lab.path("bestby.toml");
        fs::remove_file(&path).unwrap();
        shell(&format!("mkfifo {}", path.display()));
        lab.refused("reload", "no regular file");
        assert_eq!(in_force(lab), before);
    });
}
