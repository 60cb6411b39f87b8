//! The operator's command against the agent, end to end, in mode tc: every verb, every refusal.

use libbpf_rs::MapCore as _;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;

use crate::cli_lab::{lab, text};
use bestby_tests::netns::shell;
use bestby_tests::{agent::drops, program::binary};

fn send(port: u16, packets: usize) {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    for _ in 0..packets {
        socket.send_to(&[0; 500], ("10.9.0.2", port)).unwrap();
    }
}

#[track_caller]
fn conserved(counters: &Value) {
    let n = |key: &str| counters[key].as_u64().unwrap();
    assert_eq!(
        n("packets_in"),
        n("packets_sent") + drops(counters, "dropped") + n("queued"),
        "{counters}"
    );
}

#[test]
fn each_verb_of_the_command_takes_effect() {
    lab("", |lab| {
        let before = shell("tc qdisc show dev v0");
        for list in ["iface ls", "flow ls"] {
            assert_eq!(lab.json(list), serde_json::json!([]));
        }

        lab.ok("iface attach v0 --enforce --mode tc --rate 20mbit --method triage --session dst --limit 500");
        let list = lab.json("iface ls");
        assert_eq!(list[0]["dev"], "v0");
        assert_eq!(list[0]["mode"], "tc");
        assert_eq!(list[0]["predicts_delay"], true);
        assert_eq!(list[0]["rate"], "20mbit");
        let shown = lab.ok("iface ls");
        assert!(
            shown.contains("predicts") && shown.contains("limit"),
            "{shown}"
        );

        lab.ok("flow add audio --proto udp --dst 10.9.0.0/24 --dport 5004-5005 --lifetime 500ms --priority 0");
        lab.ok("flow add video --proto udp --dport 5006 --lifetime 1s --treatment forward --before audio");
        let flows = lab.json("flow ls");
        assert_eq!(flows[0]["flow"]["name"], "video");
        assert_eq!(flows[1]["flow"]["name"], "audio");
        assert_eq!(flows[1]["position"], 2);

        send(5004, 30);
        send(5005, 10);
        send(5006, 5);
        send(7, 3);
        let stats = lab.json("stats");
        for (flow, packets) in [("audio", 40), ("video", 5)] {
            assert_eq!(stats["flows"][flow]["packets_in"], packets, "{stats}");
            assert_eq!(
                stats["flows"][flow]["bytes_in"],
                packets * (500 + 8 + 20 + 14),
                "{stats}"
            );
            conserved(&stats["flows"][flow]);
        }
        assert_eq!(stats["flows"]["-"]["packets_in"], 3, "{stats}");
        conserved(&stats["flows"]["-"]);
        conserved(&stats["interfaces"]["v0"]);
        assert_eq!(
            stats["sessions"]["v0/10.9.0.2"]["packets_in"], 45,
            "{stats}"
        );
        assert!(lab.ok("stats").contains("audio"));
        assert!(lab.ok("flow show audio").contains("500ms"));
        assert!(lab.ok("session ls").contains("v0/10.9.0.2"));

        // A change keeps the counters and the place; `none` takes a field away.
        lab.ok("flow set audio --lifetime 300ms --dst none");
        let audio = lab.json("flow show audio");
        assert_eq!(audio["flow"]["lifetime"], "300ms");
        assert_eq!(audio["flow"].get("dst"), None);
        assert_eq!(audio["counters"]["packets_in"], 40);
        assert_eq!(audio["saved"], false);

        lab.ok("session set 10.9.0.2 --rate 2mbit --owd 40ms");
        // Else no packet would look for it.
        let known =
            libbpf_rs::MapHandle::from_pinned_path(lab.path("bpf").join("bb_known")).unwrap();
        let index = bestby_bpf::known_index(&bestby_bpf::abi::bb_addr {
            addr: bestby_tests::bpf::mapped([10, 9, 0, 2]),
        });
        let known = known.lookup(&index.to_ne_bytes(), libbpf_rs::MapFlags::ANY);
        assert_eq!(known.unwrap(), Some(1u32.to_ne_bytes().to_vec()));
        // Of other peers the RTT may be known: the hook sees the TCP of the whole host.
        let set = || {
            let peers = lab.json("session ls")["peers"].take();
            let set = peers.as_array().unwrap().iter();
            set.filter(|peer| peer["set_by"] == "operator")
                .cloned()
                .collect::<Vec<_>>()
        };
        let peers = set();
        assert_eq!(peers.len(), 1, "{peers:?}");
        assert_eq!(peers[0]["rate"], "2mbit");
        assert_eq!(peers[0]["owd"], "40ms");
        lab.ok("session set 2001:db8::7 --owd 20ms");
        assert_eq!(set().len(), 2);
        lab.ok("session set 2001:db8::7 --owd none");
        lab.ok("session set 10.9.0.2 --rate none --owd none");
        assert_eq!(set(), Vec::<serde_json::Value>::new());

        lab.ok("iface upgrade v0");
        send(5004, 2);
        assert_eq!(lab.json("flow show audio")["counters"]["packets_in"], 42);

        lab.ok("flow rm video");
        assert_eq!(lab.json("flow ls").as_array().unwrap().len(), 1);
        lab.ok("iface detach v0");
        assert_eq!(lab.json("iface ls"), serde_json::json!([]));
        assert_eq!(shell("tc qdisc show dev v0"), before);
    });
}

#[test]
fn refused_command_names_its_object_or_the_option_to_give() {
    lab("", |lab| {
        lab.refused("iface attach nonesuch --mode tc", "nonesuch");
        lab.refused("iface detach v0", "v0");
        lab.refused("iface upgrade v0", "v0");
        lab.refused("flow rm nonesuch", "nonesuch");
        lab.refused("flow show nonesuch", "nonesuch");
        lab.refused("flow set nonesuch --lifetime 1s", "nonesuch");
        lab.refused("flow add a --lifetime 1s --before nonesuch", "nonesuch");
        lab.ok("flow add a --lifetime 1s");
        lab.refused("flow add a --lifetime 2s", "flow set a");
        lab.refused("flow set a --lifetime none", "neither");
        assert_eq!(lab.json("flow show a")["flow"]["lifetime"], "1s");
        lab.ok("iface attach v0 --enforce --mode tc --rate 1mbit");
        // Once more is a change of what is attached.
        lab.ok("iface attach v0 --enforce --mode tc --rate 2mbit");
        assert_eq!(lab.json("iface ls")[0]["rate"], "2mbit");
        // A rule behind one that matches everything.
        let output = lab.bestby(&["flow", "add", "b", "--dport", "1", "--lifetime", "1s"]);
        assert!(output.status.success());
        assert!(
            text(&output.stderr).contains("never"),
            "{}",
            text(&output.stderr)
        );

        // A qdisc that somebody configured is left alone.
        shell("ip link add v2 type veth peer name v3");
        shell("tc qdisc add dev v2 root handle 5: tbf rate 1mbit burst 10k latency 1s");
        lab.refused(
            "iface attach v2 --enforce --mode tc --rate 1mbit",
            "--replace",
        );
        assert!(shell("tc qdisc show dev v2").contains("tbf 5:"));
        lab.ok("iface attach v2 --enforce --mode tc --rate 1mbit --replace");
        assert!(!shell("tc qdisc show dev v2").contains("tbf"));
        lab.ok("iface detach v2");
    });
}

#[test]
fn bad_request_is_refused_with_4xx_and_changes_nothing() {
    lab("", |lab| {
        for (method, path, body, says) in [
            ("POST", "/v1/flows", "{", "EOF"),
            (
                "POST",
                "/v1/flows",
                r#"{"flow":{"name":"a","lifetime":"1s"},"sve":true}"#,
                "sve",
            ),
            (
                "POST",
                "/v1/flows",
                r#"{"flow":{"name":"a","lifetime":"-1s"}}"#,
                "negative",
            ),
            (
                "POST",
                "/v1/flows",
                r#"{"flow":{"name":"a","lifetime":1e400}}"#,
                "",
            ),
            (
                "POST",
                "/v1/flows",
                r#"{"flow":{"name":"a/b","lifetime":"1s"}}"#,
                "allowed",
            ),
            ("POST", "/v1/flows", r#"{"flow":{"name":"a"}}"#, "neither"),
            (
                "PUT",
                "/v1/sessions/nonsense",
                r#"{"rate":"1mbit"}"#,
                "nonsense",
            ),
            (
                "POST",
                "/v1/interfaces",
                r#"{"dev":"v0","rate":"99999gbit"}"#,
                "large",
            ),
            (
                "POST",
                "/v1/explain",
                r#"{"dev":"v0","packet":"icmp"}"#,
                "udp",
            ),
            ("GET", "/v1/nonsense", "", ""),
            ("PATCH", "/v1/flows", "", ""),
        ] {
            let (status, answer) = lab.agent().request(method, path, body);
            let answer: Value =
                serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
            assert!(
                (400..500).contains(&status),
                "{method} {path} {body}: {status} {answer}"
            );
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(
                !message.is_empty() && message.contains(says),
                "{method} {path} {body}: {message}"
            );
        }
        assert_eq!(lab.json("flow ls"), serde_json::json!([]));
        assert_eq!(lab.json("iface ls"), serde_json::json!([]));
    });
}

#[test]
fn saved_rule_keeps_comments_and_survives_a_restart() {
    const CONFIG: &str =
        "# ours\n[[flow]]\nname = \"audio\"  # the voices\ndport = 5004\nlifetime = \"200ms\"\n";
    lab(CONFIG, |lab| {
        let file = lab.path("bestby.toml");
        assert_eq!(lab.json("flow show audio")["saved"], true);
        lab.ok("flow set audio --lifetime 150ms --save");
        lab.ok("flow add first --dscp ef --lifetime 50ms --before audio --save");
        lab.ok("flow add passing --dport 9 --lifetime 50ms");
        let saved = fs::read_to_string(&file).unwrap();
        assert!(
            saved.contains("# ours") && saved.contains("# the voices"),
            "{saved}"
        );
        assert!(
            saved.contains("150ms") && saved.find("first") < saved.find("audio"),
            "{saved}"
        );
        assert!(!saved.contains("passing"), "{saved}");
        assert!(
            lab.bestby(&["config", "check", file.to_str().unwrap()])
                .status
                .success()
        );

        lab.stop();
        lab.start();
        let flows = lab.json("flow ls");
        assert_eq!(flows[0]["flow"]["name"], "first", "{flows}");
        assert_eq!(flows[1]["flow"]["lifetime"], "150ms", "{flows}");
        assert_eq!(flows[1]["saved"], true, "{flows}");

        // Somebody broke the file meanwhile: it is not overwritten, and nothing changes.
        fs::write(&file, format!("{saved}nonsense = 1\n")).unwrap();
        lab.refused("flow add new --dport 3 --lifetime 1s --save", "nonsense");
        lab.refused("flow show new", "new");
        assert!(
            fs::read_to_string(&file)
                .unwrap()
                .ends_with("nonsense = 1\n")
        );
        fs::write(&file, &saved).unwrap();
        lab.ok("flow rm first --save");
        assert!(!fs::read_to_string(&file).unwrap().contains("first"));
    });
}

#[test]
fn save_to_a_full_disk_is_refused_and_changes_nothing() {
    lab("", |lab| {
        lab.stop();
        let small = lab.path("small");
        fs::create_dir(&small).unwrap();
        shell(&format!(
            "mount -t tmpfs -o size=8k tmpfs {}",
            small.display()
        ));
        let file = small.join("bestby.toml");
        let old = "[[flow]]\nname = \"old\"\nlifetime = \"1s\"\n";
        fs::write(&file, old).unwrap();
        // The file has one page of two; this is the other.
        fs::write(small.join("filler"), [0; 4096]).unwrap();
        fs::remove_file(lab.path("bestby.toml")).unwrap();
        std::os::unix::fs::symlink(&file, lab.path("bestby.toml")).unwrap();
        lab.start();
        for command in [
            "flow add new --dport 3 --lifetime 1s --before old --save",
            "flow set old --lifetime 2s --save",
        ] {
            lab.refused(command, "space");
        }
        let body = r#"{"flow":{"name":"new","lifetime":"1s"},"save":true}"#;
        assert_eq!(lab.agent().request("POST", "/v1/flows", body).0, 500);
        let flows = lab.json("flow ls");
        assert_eq!(flows.as_array().unwrap().len(), 1, "{flows}");
        assert_eq!(flows[0]["flow"]["lifetime"], "1s", "{flows}");
        assert_eq!(fs::read_to_string(&file).unwrap(), old);
        assert_eq!(
            fs::read_dir(&small).unwrap().count(),
            2,
            "something half-written is left"
        );

        fs::remove_file(small.join("filler")).unwrap();
        lab.ok("flow set old --lifetime 2s --save");
        assert!(fs::read_to_string(&file).unwrap().contains("\"2s\""));
        // Saved through the link, which still is one.
        assert!(
            fs::symlink_metadata(lab.path("bestby.toml"))
                .unwrap()
                .is_symlink()
        );
        lab.stop();
        shell(&format!("umount {}", small.display()));
    });
}

#[test]
fn drop_is_counted_reported_and_explained() {
    lab("", |lab| {
        lab.ok("iface attach v0 --enforce --mode tc --rate 20mbit");
        lab.ok("session set 10.9.0.2 --owd 40ms");
        // 40 ms away, of use for 10 ms: never in time.
        lab.ok("flow add late --dport 5004 --lifetime 10ms --priority 5");
        let mut events = lab
            .command(&["--json", "events"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(events.stdout.take().unwrap()).lines();
        // When the stream is open cannot be seen: packets go until the first drop is told.
        let (told, sent) = (AtomicBool::new(false), AtomicU64::new(0));
        let event = thread::scope(|scope| {
            scope.spawn(|| {
                while !told.load(Ordering::Relaxed) {
                    // In the lab's namespace: threads inherit it.
                    send(5004, 1);
                    sent.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(50));
                }
            });
            let line = lines.next();
            told.store(true, Ordering::Relaxed);
            line.expect("an event").unwrap()
        });
        let sent = sent.into_inner();
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!(event["flow"], "late", "{event}");
        assert_eq!(event["session"], "v0/10.9.0.2", "{event}");
        assert_eq!(event["priority"], 5, "{event}");
        assert!(event["late_ns"].as_i64().unwrap() > 25_000_000, "{event}");
        assert!(event["len"].as_u64().unwrap() > 500, "{event}");
        // SAFETY: the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(events.id() as i32, libc::SIGTERM) }, 0);
        events.wait().unwrap();

        let late = &lab.json("stats")["flows"]["late"];
        assert_eq!(late["packets_in"], sent, "{late}");
        assert_eq!(drops(late, "dropped"), sent, "{late}");
        assert_eq!(late["packets_sent"], 0, "{late}");
        conserved(late);

        let e = lab.json("explain v0 udp 10.9.0.1:1 to 10.9.0.2:5004");
        assert_eq!(e["flow"], "late", "{e}");
        assert_eq!(e["owd_ns"], 40_000_000, "{e}");
        assert_eq!(e["priority"], 5, "{e}");
        assert_eq!(e["session"], "v0/10.9.0.2", "{e}");
        let e = lab.json("explain v0 udp 10.9.0.2:5005");
        assert_eq!(e["flow"], "-", "{e}");
        assert!(lab.ok("explain v0 udp 10.9.0.2:5005").contains("5004"));
        // Not the sentences of packets that this one is not.
        let said = lab.ok("explain v0 udp 10.9.0.2:5004 rtp 111 ssrc 1");
        assert!(
            !said.contains("signalling") && !said.contains("forwarded"),
            "{said}"
        );
        let said = lab.ok("explain v0 udp 10.9.0.2:5004");
        assert!(
            said.contains("signalling") && said.contains("\"late\""),
            "{said}"
        );
        // A mark of 200 ms at priority 3 comes before the rule.
        let said = lab.ok("explain v0 udp 10.9.0.2:5004 mark 0xb0380320");
        assert!(said.contains("forwarded"), "{said}");
        let e = lab.json("explain v0 udp 10.9.0.2:5004 mark 0xb0380320");
        assert_eq!(
            (e["priority"].as_u64(), e["lifetime_ns"].as_u64()),
            (Some(3), Some(200_000_000)),
            "{e}"
        );

        lab.ok("flow set late --treatment forward");
        send(5004, 4);
        let late = &lab.json("stats")["flows"]["late"];
        assert_eq!(
            (&late["packets_sent"], &late["sent_stale"]),
            (&4.into(), &4.into()),
            "{late}"
        );
    });
}

#[test]
fn observed_interface_counts_drops_and_sends_all() {
    lab(
        "[[interface]]\ndev = \"v0\"\nmode = \"tc\"\nrate = \"20mbit\"\nobserve = true\n",
        |lab| {
            assert!(lab.ok("iface ls").contains("--observe"));
            lab.ok("session set 10.9.0.2 --owd 40ms");
            lab.ok("flow add late --dport 5004 --lifetime 10ms");
            send(5004, 7);
            let late = &lab.json("stats")["flows"]["late"];
            assert_eq!(late["packets_sent"], 7, "{late}");
            assert_eq!(drops(late, "dropped"), 0, "{late}");
            assert_eq!(drops(late, "would_drop"), 7, "{late}");
        },
    );
}

#[test]
fn doctor_and_status_follow_the_agent_and_refuse_strangers() {
    lab("", |lab| {
        let status = lab.json("status");
        assert_eq!(status["abi_version"], bestby_bpf::abi::BB_ABI_VERSION);
        assert_eq!(status["adopted"], false);
        let doctor = lab.bestby(&["--json", "doctor"]);
        let checks: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let failed = checks["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c["status"] == "fail");
        assert_eq!(doctor.status.code(), Some(i32::from(failed)), "{checks}");

        // Strangers may not; the message says who may.
        let copy = lab.path("bestby");
        // By a process of its own: a child of another test would hold what this one writes, and such a file does not run.
        let copied = Command::new("cp").arg(binary("bestby")).arg(&copy).status();
        assert!(copied.unwrap().success());
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .arg("--socket")
            .arg(lab.path("sock"))
            .arg("stats")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains("group"),
            "{}",
            text(&output.stderr)
        );

        lab.stop();
        lab.refused("stats", "systemctl start bestbyd");
        lab.start();
        assert_eq!(lab.json("status")["adopted"], true);
    });
}
