//! What hosts do to an agent behind its back: devices made again under the same name, classifiers and qdiscs of
//! others, connections that say nothing, another network namespace.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use bestby_tests::agent::*;
use bestby_tests::load::send_numbered;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::program::binary;
use bestby_tests::require;
use serde_json::json;

/// Longer than the agent's housekeeping takes to come round.
const A_ROUND: Duration = Duration::from_millis(2500);

/// Packets that `dev`'s classifier counted while some were sent through it.
fn counted(agent: &Agent, lab: &Lab, dev: &str, to: &str) -> u64 {
    let count = || {
        agent.stats()["interfaces"][dev]["packets_in"]
            .as_u64()
            .unwrap_or(0)
    };
    let before = count();
    let to = (to.parse().unwrap(), 9);
    send_numbered(&lab.netns, to, 100, Duration::from_micros(500), |n| n < 20);
    count() - before
}

fn link(lab: &Lab, peer: &Netns, dev: &str, subnet: u8) {
    let (ours, theirs) = (format!("10.8.{subnet}.1/24"), format!("10.8.{subnet}.2/24"));
    lab.netns
        .link(dev, &ours, peer, &format!("p{subnet}"), &theirs);
}

#[test]
fn device_made_again_and_attached_again_is_classified() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        let attach = json!({"dev": "w0", "mode": "tc", "rate": "10mbit"});
        link(lab, peer, "w0", 1);
        agent.attach(attach.clone());
        lab.netns.run("ip link del w0");
        link(lab, peer, "w0", 1);
        agent.attach(attach);
        std::thread::sleep(A_ROUND);
        assert!(counted(&agent, lab, "w0", "10.8.1.2") >= 20);
        let list = agent.ok("GET", "/v1/interfaces", None);
        assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
        agent.kill();
        let agent = Agent::start(lab, &[]);
        assert!(!agent.log().contains("No such file"), "{}", agent.log());
        assert!(counted(&agent, lab, "w0", "10.8.1.2") >= 20);
    });
}

#[test]
fn renamed_device_stays_attached_beside_its_successor() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        link(lab, peer, "c0", 1);
        agent.attach(json!({"dev": "c0", "mode": "tc", "rate": "10mbit"}));
        lab.netns.run("ip link set c0 down");
        lab.netns.run("ip link set c0 name k0");
        lab.netns.run("ip link set k0 up");
        link(lab, peer, "c0", 2);
        agent.attach(json!({"dev": "c0", "mode": "tc", "rate": "20mbit"}));
        std::thread::sleep(A_ROUND);
        assert!(counted(&agent, lab, "k0", "10.8.1.2") >= 20);
        assert!(counted(&agent, lab, "c0", "10.8.2.2") >= 20);
        agent.detach("k0");
        assert!(root_qdisc(&lab.netns, "k0").contains("noqueue"));
        assert!(counted(&agent, lab, "c0", "10.8.2.2") >= 20);
    });
}

#[test]
fn pins_by_device_name_are_adopted() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.terminate();
        let pins = lab.bpffs.join("iface");
        let ifindex = std::fs::read_dir(&pins).unwrap().next().unwrap().unwrap();
        std::fs::rename(ifindex.path(), pins.join("v0")).unwrap();
        let agent = Agent::start(lab, &[]);
        assert!(ifindex.path().join("classify").exists());
        assert!(counted(&agent, lab, "v0", "10.9.0.2") >= 20);
    });
}

#[test]
fn agent_in_another_network_namespace_is_refused() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        agent.terminate();
        let elsewhere = Netns::new();
        let mut command = elsewhere.command(binary("bestbyd"));
        command.arg("--socket").arg(lab.dir.join("s"));
        command.arg("--bpffs").arg(&lab.bpffs);
        command.arg("--cgroup").arg(&lab.cgroup);
        // One that starts is ended: it would run for ever.
        let mut child = Command::new("timeout");
        child.arg("20").arg(command.get_program());
        child.args(command.get_args());
        let said = elsewhere.enter(|| start_refused(child));
        assert!(said.contains("namespace") && said.contains("v0"), "{said}");
        let agent = Agent::start(lab, &[]);
        assert!(counted(&agent, lab, "v0", "10.9.0.2") >= 20);
    });
}

#[test]
fn rate_set_over_a_foreign_qdisc_is_refused() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        lab.netns
            .run("tc qdisc add dev v0 root handle 5: tbf rate 5mbit burst 3000 latency 50ms");
        let before = root_qdisc(&lab.netns, "v0");
        let shaped = json!({"dev": "v0", "mode": "tc", "rate": "1mbit"});
        let (status, message) = agent.refused("POST", "/v1/interfaces", Some(shaped));
        assert!(
            status == 409 && message.contains("tbf") && message.contains("--replace"),
            "{message}"
        );
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
        assert_eq!(
            agent.ok("GET", "/v1/interfaces", None)[0]["rate"],
            json!(null)
        );
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "1mbit", "replace": true}));
        assert_eq!(
            agent.ok("GET", "/v1/interfaces", None)[0]["restores"],
            "tbf"
        );
        agent.detach("v0");
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
    });
}

#[test]
fn file_in_place_of_the_socket_is_kept() {
    linked_lab(require::root(), |lab, _| {
        let precious = file(lab, "precious.toml", "mine");
        let mut command = Command::new("timeout");
        command.arg("20").arg(binary("bestbyd"));
        command.arg("--socket").arg(&precious);
        command.arg("--bpffs").arg(&lab.bpffs);
        command.arg("--cgroup").arg(&lab.cgroup);
        let said = lab.netns.enter(|| start_refused(command));
        assert!(said.contains("precious.toml"), "{said}");
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        // Nor is what lies where the new socket is made.
        let beside = file(lab, "s.new", "mine, too");
        Agent::start(lab, &[]).terminate();
        assert_eq!(std::fs::read_to_string(&beside).unwrap(), "mine, too");
    });
}

#[test]
fn file_of_too_many_combinations_is_refused_and_changes_nothing() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.terminate();
        let magic = || {
            use libbpf_rs::MapCore as _;
            let map = libbpf_rs::MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
            map.lookup(&[0; 4], libbpf_rs::MapFlags::ANY).unwrap()
        };
        let before = magic();
        let mut text = String::from("[agent]\nevents_per_s = 7\n");
        for n in 0..129 {
            let (src, dst) = (1 + n % 16, 1 + n / 16);
            text += &format!(
                "[[flow]]\nname = \"f{n}\"\nsrc = \"0.0.0.0/{src}\"\ndst = \"0.0.0.0/{dst}\"\nlifetime = \"1s\"\n"
            );
        }
        let path = file(lab, "bestby.toml", &text);
        let mut check = Command::new(binary("bestby"));
        let checked = check.args(["config", "check"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(!checked.status.success(), "{said}");
        // The last rule is the one too many: its table begins five lines before the end.
        let line = format!("bestby.toml:{}:", text.lines().count() - 4);
        assert!(said.contains(&line) && said.contains("f128"), "{said}");
        let said = start_refused(command(lab, &["--config", path_str(&path)]));
        assert!(said.contains(&line) && said.contains("f128"), "{said}");
        assert_eq!(magic(), before);
    });
}

#[test]
fn file_too_large_beside_kept_rules_changes_nothing() {
    linked_lab(require::root(), |lab, _| {
        let rule = |n: u32| {
            let (src, dst) = (1 + n % 16, 1 + n / 16);
            json!({"name": format!("f{n}"), "src": format!("0.0.0.0/{src}"), "dst": format!("0.0.0.0/{dst}"), "lifetime": "1s"})
        };
        let agent = Agent::start(lab, &[]);
        for n in 0..128 {
            agent.add(rule(n));
        }
        agent.terminate();
        let config = || {
            use libbpf_rs::MapCore as _;
            let map = libbpf_rs::MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
            map.lookup(&[0; 4], libbpf_rs::MapFlags::ANY).unwrap()
        };
        let before = config();
        let text = "[agent]\nevents_per_s = 7\n[[flow]]\nname = \"more\"\nsrc = \"0.0.0.0/30\"\nlifetime = \"1s\"\n";
        let path = file(lab, "bestby.toml", text);
        let said = start_refused(command(lab, &["--config", path_str(&path)]));
        assert!(said.contains("combinations"), "{said}");
        assert_eq!(config(), before);
    });
}

#[test]
fn lost_classifier_is_reported_and_restored_by_attach() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let attach = json!({"dev": "v0", "mode": "tc", "rate": "10mbit"});
        agent.attach(attach.clone());
        let doctor = || agent.complaints("interface").join(" ");
        assert_eq!(doctor(), "");
        let dir = std::fs::read_dir(lab.bpffs.join("iface"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        std::fs::remove_file(dir.path().join("classify")).unwrap();
        wait_for("the end of the classifier", || {
            counted(&agent, lab, "v0", "10.9.0.2") == 0
        });
        assert!(doctor().contains("classifier"), "{}", doctor());
        let list = agent.ok("GET", "/v1/interfaces", None).to_string();
        assert!(list.contains("classifier"), "{list}");
        agent.attach(attach);
        assert!(counted(&agent, lab, "v0", "10.9.0.2") >= 20);
        assert_eq!(doctor(), "");
    });
}

#[test]
fn lost_program_that_reads_answers_is_reported_and_restored_by_attach() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let attach = json!({"dev": "v0", "mode": "tc", "rate": "10mbit"});
        agent.attach(attach.clone());
        let doctor = || agent.complaints("answers").join(" ");
        assert_eq!(doctor(), "");
        let mut pins = std::fs::read_dir(lab.bpffs.join("iface")).unwrap();
        let pin = pins.next().unwrap().unwrap().path().join("answers");
        std::fs::remove_file(&pin).unwrap();
        assert!(doctor().contains("v0: the program"), "{}", doctor());
        // The classifier is another program.
        assert_eq!(agent.complaints("interface"), Vec::<String>::new());
        agent.attach(attach);
        assert_eq!(doctor(), "");
        assert!(pin.exists());
    });
}

#[test]
fn idle_connections_do_not_block_other_clients() {
    linked_lab(require::root(), |lab, _| {
        let inner = command(lab, &[]);
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -n 256; exec \"$@\"", "sh"])
            .arg(inner.get_program())
            .args(inner.get_args());
        let agent = lab
            .netns
            .enter(|| Agent::spawn(limited, lab.dir.join("s"), lab.dir.join("log")));
        let half = "POST /v1/flows HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
        let mut open: Vec<UnixStream> = Vec::new();
        for _ in 0..400 {
            // No more than the listener's queue takes.
            let Ok(mut stream) = UnixStream::connect(&agent.socket) else {
                break;
            };
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write_all(half.as_bytes());
            open.push(stream);
            if open.len() == 240 {
                break;
            }
        }
        let mut status = Command::new("timeout");
        status.args(["60"]).arg(binary("bestby"));
        status.arg("--socket").arg(&agent.socket).arg("status");
        let done = status.output().unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
        assert!(!agent.log().contains("Too many open files"));
    });
}

#[test]
fn replace_works_on_a_root_left_by_a_killed_agent() {
    linked_lab(require::root(), |lab, _| {
        lab.netns
            .run("tc qdisc add dev v0 root handle bb: htb default 18");
        let agent = Agent::start(lab, &[]);
        let plain = json!({"dev": "v0", "mode": "tc", "rate": "10mbit"});
        let (_, message) = agent.refused("POST", "/v1/interfaces", Some(plain));
        assert!(message.contains("--replace"), "{message}");
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit", "replace": true}));
        assert!(counted(&agent, lab, "v0", "10.9.0.2") >= 20);
        agent.detach("v0");
        assert!(root_qdisc(&lab.netns, "v0").contains("noqueue"));
    });
}

#[test]
fn unfinished_attach_of_a_killed_agent_is_undone() {
    linked_lab(require::root(), |lab, _| {
        use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
        lab.netns
            .run("tc qdisc add dev v0 root handle 7: pfifo limit 77");
        let before = root_qdisc(&lab.netns, "v0");
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit", "replace": true}));
        agent.kill();
        // As if it had not come to the end.
        let kept = MapHandle::from_pinned_path(lab.bpffs.join("bba_ifaces")).unwrap();
        let value = kept.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        let length = value.len();
        let end = value.iter().position(|b| *b == 0).unwrap();
        let mut record: serde_json::Value = serde_json::from_slice(&value[..end]).unwrap();
        record["unfinished"] = json!(true);
        let mut value = serde_json::to_vec(&record).unwrap();
        value.resize(length, 0);
        kept.update(&[0; 4], &value, MapFlags::ANY).unwrap();
        let agent = Agent::start(lab, &[]);
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
        assert_eq!(agent.ok("GET", "/v1/interfaces", None), json!([]));
        let doctor = agent.complaints("start").join(" ");
        assert!(doctor.contains("undone"), "{doctor}");
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit", "replace": true}));
        agent.detach("v0");
        assert_eq!(root_qdisc(&lab.netns, "v0"), before);
    });
}

#[test]
fn peer_removed_from_the_file_is_forgotten_at_restart() {
    linked_lab(require::root(), |lab, _| {
        let text = "[[peer]]\naddr = \"10.9.0.2\"\nowd = \"40ms\"\n\n[[peer]]\naddr = \"10.9.0.3\"\nowd = \"40ms\"\n";
        let path = file(lab, "bestby.toml", text);
        let args = ["--config", path_str(&path)];
        let agent = Agent::start(lab, &args);
        agent.ok("PUT", "/v1/sessions/10.9.0.4", Some(json!({"owd": "20ms"})));
        agent.terminate();
        std::fs::write(&path, &text[..text.find("\n\n").unwrap() + 1]).unwrap();
        let agent = Agent::start(lab, &args);
        let peers = agent.ok("GET", "/v1/sessions", None)["peers"].to_string();
        assert!(peers.contains("10.9.0.2"), "{peers}");
        assert!(!peers.contains("10.9.0.3"), "{peers}");
        assert!(peers.contains("10.9.0.4"), "what the operator set: {peers}");
    });
}

#[test]
fn reload_of_a_setting_that_needs_a_restart_warns() {
    linked_lab(require::root(), |lab, _| {
        let path = file(lab, "bestby.toml", "");
        let agent = Agent::start(lab, &["--config", path_str(&path)]);
        std::fs::write(&path, "[agent]\nmetrics = \"127.0.0.1:9464\"\n").unwrap();
        agent.signal(libc::SIGHUP);
        wait_for("a warning", || {
            let log = agent.log();
            log.contains("metrics") && log.contains("restart")
        });
    });
}

/// A container that hides what BPF needs, and a kernel that keeps its memory to itself, by their names.
#[test]
fn masked_types_and_lockdown_are_named() {
    linked_lab(require::root(), |lab, _| {
        let hidden = lab.dir.join("empty");
        std::fs::create_dir(&hidden).unwrap();
        let bound = |at: &str| {
            let agent = command(lab, &[]);
            let script = format!("mount --bind {} {at}; exec \"$@\"", hidden.display());
            let mut unshare = lab.netns.command("unshare");
            unshare.args(["--mount", "sh", "-euc", &script, "sh"]);
            unshare.arg(agent.get_program()).args(agent.get_args());
            unshare
        };
        let said = start_refused(bound("/sys/kernel/btf"));
        assert!(said.contains("/sys/kernel/btf/vmlinux"), "{said}");
        assert!(said.contains("mask"), "{said}");

        let lockdown = |text: &str| {
            std::fs::write(hidden.join("lockdown"), text).unwrap();
            let (socket, log) = (lab.dir.join("s"), lab.dir.join("log"));
            let agent = Agent::spawn(bound("/sys/kernel/security"), socket, log);
            agent.complaints("lockdown").join(" ")
        };
        assert_eq!(lockdown("none [integrity] confidentiality\n"), "");
        let told = lockdown("none integrity [confidentiality]\n");
        assert!(told.contains("confidentiality"), "{told}");
    });
}
