//! What is wanted of an interface: who said it, and what a command, a reload and a restart make of it.

use std::fs;

use bestby_netns::wait::Wait;
use bestby_tests::netns::shell;
use serde_json::Value;

use crate::cli_lab::{Lab, lab};

const FILE: &str = "[[interface]]\ndev = \"v0\"\nmode = \"tc\"\nrate = \"20mbit\"\nsession = \"flow\"\noverhead = 4\n";

fn interface(lab: &Lab) -> Value {
    lab.json("iface ls")[0].clone()
}

fn doctor(lab: &Lab) -> Vec<Value> {
    let doctor = lab.agent().ok("GET", "/v1/doctor", None);
    doctor["checks"].as_array().unwrap().clone()
}

fn reload(lab: &Lab) {
    let count = || {
        lab.agent()
            .log()
            .matches("configuration read again")
            .count()
    };
    let before = count();
    lab.agent().signal(libc::SIGHUP);
    until(|| count() > before);
}

fn until(mut done: impl FnMut() -> bool) {
    let mut wait = Wait::new(std::time::Duration::from_secs(60));
    while !done() {
        assert!(wait.pause(), "it did not happen");
    }
}

#[test]
fn change_of_one_field_leaves_the_others() {
    lab(FILE, |lab| {
        lab.ok("iface set v0 --observe --trust 192.0.2.0/24 --decrement clock");
        for command in [
            "iface set v0 --rate 30mbit",
            "iface attach v0 --rate 30mbit",
        ] {
            lab.ok(command);
            let is = interface(lab);
            assert_eq!(is["rate"], "30mbit", "{command}");
            assert_eq!(is["session"], "flow", "{command}");
            assert_eq!(is["overhead"], 4, "{command}");
            assert_eq!(is["observe"], true, "{command}");
            assert_eq!(is["trust"], "192.0.2.0/24", "{command}");
            assert_eq!(is["decrement"], "clock", "{command}");
        }
        let is = interface(lab);
        assert_eq!(is["origin"]["rate"], "command");
        assert_eq!(is["origin"]["session"], "file");
        assert_eq!(is["origin"]["limit"], "default");
        assert_eq!(lab.bestby(&["iface", "set", "v0"]).status.code(), Some(2));
        lab.refused("iface set v1 --rate 1mbit", "not attached");
        let said = lab.ok("iface set v0 --rate none");
        assert!(said.contains("rate 30mbit -> none"), "{said}");
        assert_eq!(interface(lab)["rate"], Value::Null);
    });
}

#[test]
fn reload_and_restart_do_not_end_observe_and_a_word_does() {
    lab(FILE, |lab| {
        lab.ok("iface set v0 --observe");
        reload(lab);
        assert_eq!(interface(lab)["observe"], true, "after a reload");
        lab.stop();
        lab.start();
        assert_eq!(interface(lab)["observe"], true, "after a restart");
        let changed = FILE.replace("20mbit", "10mbit");
        fs::write(lab.path("bestby.toml"), &changed).unwrap();
        assert!(lab.ok("config diff").contains("rate 20mbit -> 10mbit"));
        reload(lab);
        assert_eq!(interface(lab)["rate"], "10mbit");
        assert_eq!(interface(lab)["observe"], true, "after another file");
        assert!(lab.ok("config diff").contains("changes nothing"));
        let said = lab.ok("iface set v0 --enforce");
        assert!(said.contains("observe true -> false"), "{said}");
        assert_eq!(interface(lab)["observe"], false);
    });
}

#[test]
fn saved_interface_and_session_are_there_with_an_empty_memory() {
    lab("# mine\n", |lab| {
        lab.ok("iface attach v0 --mode tc --rate 20mbit --observe --save");
        lab.ok("iface set v0 --overhead 24 --save");
        lab.ok("session set 192.0.2.9 --owd 40ms --save");
        lab.ok("session set 192.0.2.8 --rate 1mbit");
        let text = fs::read_to_string(lab.path("bestby.toml")).unwrap();
        assert!(text.contains("# mine"), "{text}");
        for line in [
            "rate = \"20mbit\"",
            "observe = true",
            "overhead = 24",
            "owd = \"40ms\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("192.0.2.8"), "{text}");
        assert_eq!(interface(lab)["origin"]["overhead"], "file");
        lab.ok("session set 192.0.2.9 --owd none --save");
        let text = fs::read_to_string(lab.path("bestby.toml")).unwrap();
        assert!(!text.contains("192.0.2.9"), "{text}");
    });
}

#[test]
fn interface_that_comes_late_or_again_is_attached() {
    let file = FILE.replace("v0", "w0");
    lab(&file, |lab| {
        assert_eq!(lab.json("iface ls"), serde_json::json!([]));
        let complains = |lab: &Lab| {
            doctor(lab).iter().any(|c| {
                c["status"] == "fail" && c["detail"].as_str().unwrap_or_default().contains("w0")
            })
        };
        until(|| complains(lab));
        for _ in 0..2 {
            shell("ip link add w0 type veth peer name w1; ip link set w0 up; ip link set w1 up");
            until(|| lab.json("iface ls")[0]["dev"] == "w0");
            assert!(!complains(lab));
            shell("ip link del w0");
            until(|| lab.json("iface ls") == serde_json::json!([]));
            assert!(complains(lab));
        }
        // Who was detached by a command stays detached, also when its device comes again.
        shell("ip link add w0 type veth peer name w1; ip link set w0 up; ip link set w1 up");
        until(|| lab.json("iface ls")[0]["dev"] == "w0");
        lab.ok("iface detach w0");
        lab.stop();
        lab.start();
        assert_eq!(lab.json("iface ls"), serde_json::json!([]));
        reload(lab);
        assert_eq!(interface(lab)["dev"], "w0");
    });
}

#[test]
fn diff_names_receivers_and_settings_of_the_agent() {
    const FILE: &str = "[[peer]]\naddr = \"10.9.0.2\"\nowd = \"20ms\"\n";
    lab(FILE, |lab| {
        let says = |file: &str| {
            std::fs::write(lab.path("bestby.toml"), file).unwrap();
            lab.ok("config diff")
        };
        assert!(says(FILE).contains("changes nothing"));
        let new = FILE.replace("20ms", "30ms");
        let said = says(&new);
        assert!(
            said.contains("change receiver 10.9.0.2: owd 20ms, rate none -> owd 30ms, rate none"),
            "{said}"
        );
        let said = says(
            "[agent]\nplain_share = 30\nmetrics = \"127.0.0.1:9\"\n[rtp_profile]\naudio = [111]\n",
        );
        for part in [
            "forget receiver 10.9.0.2",
            "change [agent] plain_share: default -> 30",
            "change [rtp_profile]",
            "metrics in [agent] changed: in force when bestbyd starts",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // What it said is what happens.
        says(&new);
        lab.ok("reload");
        assert!(lab.ok("config diff").contains("changes nothing"));
        lab.ok("session set 10.9.0.2 --owd 77ms");
        assert!(
            lab.ok("config diff")
                .contains("owd 77ms, rate none -> owd 30ms")
        );
    });
}
