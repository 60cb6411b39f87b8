//! Who changed what: lines of the agent's log, and their fields in the journal.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bestby_tests::agent::{Agent, command};
use bestby_tests::netns::{linked_lab, mount};
use bestby_tests::require;
use serde_json::json;

use crate::cli_lab::{Lab, lab};

const FILE: &str =
    "[[interface]]\ndev = \"v0\"\nmode = \"tc\"\nrate = \"20mbit\"\nobserve = false\n";

/// What the log says of changes.
fn changes(lab: &Lab) -> Vec<String> {
    let log = lab.agent().log();
    let lines = log.lines().filter(|l| l.contains("audit=true"));
    lines.map(String::from).collect()
}

#[test]
fn change_is_written_down_with_both_values_and_who_asked() {
    lab(FILE, |lab| {
        for (command, line) in [
            (
                "iface set v0 --rate 30mbit",
                "interface v0: rate 20mbit -> 30mbit",
            ),
            (
                "flow add a --dport 9 --lifetime 1s",
                "flow rule \"a\": new; it has",
            ),
            (
                "flow set a --lifetime 2s",
                "flow rule \"a\": lifetime 1s -> 2s",
            ),
            (
                "session set 10.9.0.2 --owd 4ms",
                "session 10.9.0.2: new; it has owd 4ms",
            ),
            (
                "session set 10.9.0.2 --owd none",
                "session 10.9.0.2: removed; it had owd 4ms",
            ),
            ("flow rm a", "flow rule \"a\": removed"),
            ("reload", "interface v0: rate 30mbit -> 20mbit"),
            ("iface detach v0", "interface v0: removed"),
        ] {
            let before = changes(lab).len();
            let args: Vec<&str> = command.split(' ').collect();
            let mut child = lab.command(&args).stdout(Stdio::null()).spawn().unwrap();
            let pid = child.id();
            assert!(child.wait().unwrap().success(), "{command}");
            let new = changes(lab).split_off(before);
            assert_eq!(new.len(), 1, "{command}: {new:?}");
            assert!(new[0].contains(line), "{command}: {}", new[0]);
            let who = format!("uid=0 pid={pid}");
            assert!(new[0].contains(&who), "{command}: {}", new[0]);
        }
        // Who asks, is refused or changes nothing has no line.
        let before = changes(lab).len();
        lab.ok("iface ls");
        lab.refused("flow set nonesuch --lifetime 1s", "nonesuch");
        lab.ok("reload");
        lab.ok("reload");
        assert_eq!(
            changes(lab).len(),
            before + 1,
            "the interface comes back once"
        );
    });
}

#[test]
fn level_of_the_log_is_chosen() {
    linked_lab(require::root(), |lab, _| {
        for (level, said) in [("error", false), ("info", true)] {
            let agent = Agent::start(lab, &["--log-level", level]);
            assert_eq!(agent.log().contains("ready on"), said, "{level}");
            agent.kill();
        }
        let said = command(lab, &["--log-level", "loud"]).output().unwrap();
        assert_eq!(said.status.code(), Some(2));
    });
}

#[test]
fn journal_gets_the_fields_of_a_change() {
    linked_lab(require::root(), |lab, _| {
        // In the lab's own mount namespace: the host's journal hears nothing of it.
        mount("tmpfs", Path::new("/run"), "size=1m");
        fs::create_dir_all("/run/systemd/journal").unwrap();
        let journal = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
        journal
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let log = lab.dir.join("log");
        let is = fs::File::create(&log).unwrap().metadata().unwrap();
        let mut command = command(lab, &[]);
        command.env("JOURNAL_STREAM", format!("{}:{}", is.dev(), is.ino()));
        let agent = Agent::spawn(command, lab.dir.join("s"), log);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "1mbit"}));
        let mut buffer = vec![0; 65536];
        let entry = loop {
            let length = journal.recv(&mut buffer).unwrap();
            let entry = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if entry.contains("BESTBY_AUDIT") {
                break entry;
            }
        };
        for part in [
            "interface v0: new",
            "BESTBY_UID",
            "BESTBY_PID",
            "PRIORITY",
            "SYSLOG_IDENTIFIER",
        ] {
            assert!(entry.contains(part), "{part}: {entry}");
        }
        assert_eq!(agent.log(), "", "nothing is said twice");
    });
}
