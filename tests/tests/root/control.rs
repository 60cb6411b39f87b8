//! What the agent is told and what it answers: its file, the control API, what it refuses and what it notices.

use std::path::Path;
use std::time::Duration;

use bestby_bpf::abi::bb_config;
use bestby_tests::agent::*;
use bestby_tests::load::{Counter, PEER, send_numbered};
use bestby_tests::netns::{linked_lab, mount};
use bestby_tests::program::binary;
use bestby_tests::require;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::{Value, json};
use zerocopy::FromBytes as _;

fn audio() -> Value {
    json!({"name": "audio", "proto": "udp", "dport": "5004", "lifetime": "10s", "priority": 0})
}

/// Names of the flow rules, in order.
fn names(agent: &Agent) -> Vec<String> {
    let flows = agent.ok("GET", "/v1/flows", None);
    let flows = flows.as_array().unwrap().iter();
    flows
        .map(|f| f["flow"]["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn drops_are_counted_and_reported_as_events() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "200kbit"}));
        agent.add(json!({"name": "video", "proto": "udp", "dport": 5004, "lifetime": "50ms"}));
        let mut events = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
        std::io::Write::write_all(&mut events, b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        events
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let counter = Counter::new(peer, PEER, 5004);
        let sent = send_numbered(
            &lab.netns,
            (PEER, 5004),
            1000,
            Duration::from_millis(2),
            |n| n < 200,
        );
        std::thread::sleep(Duration::from_millis(500));
        let arrived = counter.finish().len() as u64;
        let video = agent.stats()["flows"]["video"].clone();
        let dropped = drops(&video, "dropped");
        assert_eq!(video["packets_in"], sent);
        assert_eq!(video["packets_sent"], arrived, "{video}");
        assert_eq!(dropped, sent - arrived, "{video}");
        assert!(dropped > 100, "{video}");
        let mut text = String::new();
        let mut buffer = [0; 4096];
        while !text.contains("\"reason\"") {
            let length = std::io::Read::read(&mut events, &mut buffer).unwrap();
            text += std::str::from_utf8(&buffer[..length]).unwrap();
        }
        let line = text.lines().find(|l| l.starts_with('{')).unwrap();
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&event["flow"], &event["dev"]),
            (&json!("video"), &json!("v0")),
            "{line}"
        );
    });
}

/// What nobody reads is not lost.
#[test]
fn drop_notices_are_lost_to_a_reader_only() {
    linked_lab(require::root(), |lab, _| {
        let config = file(lab, "few.toml", "[agent]\nevents_per_s = 1\n");
        let agent = Agent::start(lab, &["--config", path_str(&config)]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "late", "dport": 5004, "lifetime": "1ms", "owd": "1s"}));
        let lost = || agent.stats()["global"]["events_lost"].as_u64().unwrap();
        let config = MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
        let told = || {
            let value = config.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
            bb_config::read_from_prefix(&value).unwrap().0.events_per_s
        };
        let dropped = || drops(&agent.stats()["flows"]["late"], "dropped");
        let drop_some = || {
            lab.netns.enter(|| {
                let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
                for _ in 0..20 {
                    let _ = socket.send_to(b"late", (PEER, 5004));
                }
            });
        };
        drop_some();
        assert_eq!((dropped(), lost(), told()), (20, 0, 0));
        let mut events = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
        std::io::Write::write_all(&mut events, b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        wait_for("the reader", || told() == 1);
        drop_some();
        // One a second; nothing here takes that long but on a host that stands still.
        let with_reader = lost();
        assert!(with_reader > 0);
        drop(events);
        wait_for("that the reader has gone", || told() == 0);
        drop_some();
        assert_eq!((dropped(), lost()), (60, with_reader));
    });
}

#[test]
fn second_agent_on_same_pins_or_socket_is_refused() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let mut second = lab.netns.command(binary("bestbyd"));
        second
            .arg("--socket")
            .arg(lab.dir.join("s2"))
            .arg("--bpffs")
            .arg(&lab.bpffs);
        let said = start_refused(second);
        assert!(said.contains("running"), "{said}");
        let mut third = lab.netns.command(binary("bestbyd"));
        third
            .arg("--socket")
            .arg(lab.dir.join("s"))
            .arg("--bpffs")
            .arg(lab.bpffs.with_file_name("other"));
        let said = start_refused(third);
        assert!(said.contains("listening"), "{said}");
        agent.ok("GET", "/v1/status", None);
    });
}

#[test]
fn bad_file_is_refused_whole_at_start_and_reload() {
    linked_lab(require::root(), |lab, _| {
        let good = "[[flow]]\nname = \"a\"\nlifetime = \"100ms\"\n\n[[interface]]\ndev = \"v0\"\nmode = \"tc\"\nrate = \"10mbit\"\nobserve = false\n";
        let path = file(
            lab,
            "bestby.toml",
            "[[flow]]\nname = \"a\"\nlifetime = \"100 parsecs\"\n",
        );
        let said = start_refused(command(lab, &["--config", path_str(&path)]));
        assert!(
            said.contains("bestby.toml:3") && said.contains("parsecs"),
            "{said}"
        );

        std::fs::write(&path, good).unwrap();
        let agent = Agent::start(lab, &["--config", path_str(&path)]);
        assert_eq!(agent.ok("GET", "/v1/interfaces", None)[0]["dev"], "v0");
        std::fs::write(
            &path,
            format!(
                "{good}\n[[flow]]\nname = \"b\"\nlifetime = \"1ms\"\n\n[[flow]]\nname = \"b\"\n"
            ),
        )
        .unwrap();
        agent.signal(libc::SIGHUP);
        wait_for("a complaint", || agent.log().contains("bestby.toml:"));
        assert_eq!(names(&agent), ["a"], "nothing of a bad file is in force");

        agent.add(json!({"name": "mine", "lifetime": "7ms"}));
        std::fs::write(&path, "[[flow]]\nname = \"c\"\nlifetime = \"1ms\"\n").unwrap();
        agent.signal(libc::SIGHUP);
        wait_for("the new file", || names(&agent).contains(&"c".to_string()));
        assert_eq!(
            names(&agent),
            ["mine", "c"],
            "rules of the old file go, those of the operator stay"
        );
        assert_eq!(
            agent.ok("GET", "/v1/interfaces", None),
            json!([]),
            "and so do interfaces"
        );
    });
}

#[test]
fn missing_default_file_is_allowed_and_a_named_one_refused() {
    linked_lab(require::root(), |lab, _| {
        // In the lab's own mount namespace: the host's /etc stays as it is.
        mount("tmpfs", Path::new("/etc"), "size=1m");
        let standard = Path::new(bestby_api::DEFAULT_CONFIG);
        let agent = Agent::start(lab, &[]);
        assert!(!standard.exists(), "nothing was saved so far");
        agent.add(json!({"name": "passing", "lifetime": "7ms"}));
        agent.ok(
            "POST",
            "/v1/flows",
            Some(json!({"flow": {"name": "kept", "lifetime": "1ms"}, "save": true})),
        );
        let text = std::fs::read_to_string(standard).unwrap();
        assert!(text.contains("kept") && !text.contains("passing"), "{text}");
        agent.kill();
        let agent = Agent::start(lab, &[]);
        assert_eq!(agent.ok("GET", "/v1/flows/kept", None)["saved"], true);
        std::fs::write(standard, text.replace("kept", "other")).unwrap();
        agent.signal(libc::SIGHUP);
        wait_for("the rule of the changed file", || {
            names(&agent).contains(&"other".to_string())
        });

        // Gone again: nothing is in it, at the next start or now.
        std::fs::remove_file(standard).unwrap();
        agent.signal(libc::SIGHUP);
        wait_for("the end of the file's rule", || {
            names(&agent) == ["passing"]
        });
        agent.kill();
        assert_eq!(names(&Agent::start(lab, &[])), ["passing"]);

        // One that the operator named has to be there.
        let said = start_refused(command(lab, &["--config", bestby_api::DEFAULT_CONFIG]));
        assert!(said.contains(bestby_api::DEFAULT_CONFIG), "{said}");
    });
}

#[test]
fn each_refusal_has_its_http_status() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let attach = |body: Value| agent.refused("POST", "/v1/interfaces", Some(body));
        let (status, message) = attach(json!({"dev": "nope0"}));
        assert!(
            status == 404 && message.contains("nope0") && message.contains("v0"),
            "{message}"
        );
        let (status, message) = attach(json!({"dev": "v0", "rate": "10 bananas"}));
        assert!(
            status == 400 && message.contains("bananas") && message.contains("mbit"),
            "{message}"
        );
        let (status, message) = attach(json!({"dev": "v0", "speed": 3}));
        assert!(status == 400 && message.contains("speed"), "{message}");
        if require::bpf_qdisc().is_err() {
            let (status, message) = attach(json!({"dev": "v0", "mode": "qdisc"}));
            assert!(
                status == 501 && message.contains("6.16") && message.contains("--mode tc"),
                "{message}"
            );
        }
        let (status, message) = agent.refused("DELETE", "/v1/interfaces/v0", None);
        assert!(status == 404 && message.contains("v0"), "{message}");
        let flow = |body: Value| agent.refused("POST", "/v1/flows", Some(json!({ "flow": body })));
        let (status, message) = flow(json!({"name": "x"}));
        assert!(status == 400 && message.contains("neither"), "{message}");
        let (status, message) =
            flow(json!({"name": "x", "lifetime": "1ms", "sport": "1-65534", "dport": "1-65534"}));
        assert!(status == 400 && message.contains("\"x\""), "{message}");
        let (status, message) = flow(json!({"name": "x", "lifetime": "-3ms"}));
        assert!(status == 400 && message.contains("negative"), "{message}");
        agent.add(audio());
        let (status, message) = flow(audio());
        assert!(
            status == 409 && message.contains("flow set audio"),
            "{message}"
        );
        assert_eq!(agent.refused("GET", "/v1/flows/%zz", None).0, 400);
        assert_eq!(
            agent
                .refused("PUT", "/v1/sessions/banana", Some(json!({})))
                .0,
            400
        );
        assert_eq!(agent.refused("GET", "/v2/flows", None).0, 404);
        assert_eq!(agent.refused("DELETE", "/v1/stats", None).0, 405);
        let half = "POST /v1/flows HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{";
        let mut stream = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
        std::io::Write::write_all(&mut stream, half.as_bytes()).unwrap();
        let late = std::io::read_to_string(stream).unwrap();
        assert!(
            late.starts_with("HTTP/1.1 408") && late.contains("within 4 s"),
            "{late}"
        );
        // Far too long: the agent stops reading, whoever sends may see the connection break.
        let mut stream = std::os::unix::net::UnixStream::connect(&agent.socket).unwrap();
        let length = 2 << 20;
        let head =
            format!("POST /v1/flows HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        let broken = std::io::Write::write_all(&mut stream, &vec![b'x'; length]).is_err();
        let mut answer = [0; 16];
        let read = std::io::Read::read(&mut stream, &mut answer).unwrap_or(0);
        assert!(broken || answer[..read].starts_with(b"HTTP/1.1 400"));
        assert_eq!(
            agent.flow("audio", "packets_in"),
            0,
            "the agent still answers"
        );
    });
}

#[test]
fn agent_without_capabilities_is_refused_and_names_them() {
    linked_lab(require::root(), |lab, _| {
        let mut bare = lab.netns.command("setpriv");
        bare.args([
            "--bounding-set",
            "-all",
            "--inh-caps",
            "-all",
            "--reuid",
            "65534",
            "--clear-groups",
        ]);
        bare.arg(binary("bestbyd"))
            .arg("--socket")
            .arg(lab.dir.join("s"))
            .arg("--bpffs")
            .arg(&lab.bpffs);
        let said = start_refused(bare);
        assert!(
            said.contains("CAP_NET_ADMIN") && said.contains("CAP_BPF"),
            "{said}"
        );
    });
}

#[test]
fn pins_of_another_abi_version_or_size_are_refused() {
    linked_lab(require::root(), |lab, _| {
        Agent::start(lab, &[]).terminate();
        let pin = lab.bpffs.join("bb_config");
        let map = libbpf_rs::MapHandle::from_pinned_path(&pin).unwrap();
        use libbpf_rs::MapCore as _;
        let mut value = map
            .lookup(&[0; 4], libbpf_rs::MapFlags::ANY)
            .unwrap()
            .unwrap();
        value[0] = value[0].wrapping_add(1);
        map.update(&[0; 4], &value, libbpf_rs::MapFlags::ANY)
            .unwrap();
        let said = start_refused(command(lab, &[]));
        assert!(said.contains("ABI"), "{said}");
        // A map of another size under a name of ours.
        std::fs::remove_file(&pin).unwrap();
        let other = lab.bpffs.join("bb_rtts");
        std::fs::rename(&other, &pin).unwrap();
        let said = start_refused(command(lab, &[]));
        assert!(said.contains("bb_config"), "{said}");
    });
}

#[test]
fn rule_for_a_missing_device_waits_until_it_comes() {
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        let done = agent.add(json!({"name": "later", "dev": "w0", "lifetime": "10s"}));
        assert!(
            done["warnings"][0].as_str().unwrap().contains("w0"),
            "{done}"
        );
        lab.netns
            .link("w0", "10.8.0.1/24", peer, "w1", "10.8.0.2/24");
        wait_for("the rule for w0", || {
            agent.complaints("flow rule").is_empty()
        });
        agent.attach(json!({"dev": "w0", "mode": "tc", "rate": "10mbit"}));
        let sent = send_numbered(
            &lab.netns,
            ("10.8.0.2".parse().unwrap(), 9),
            100,
            Duration::from_micros(500),
            |n| n < 20,
        );
        assert_eq!(agent.flow("later", "packets_in"), sent);
        lab.netns.run("ip link del w0");
        wait_for("w0 to be forgotten", || {
            agent.ok("GET", "/v1/interfaces", None) == json!([])
        });
        let pins = std::fs::read_dir(lab.bpffs.join("iface")).unwrap();
        assert_eq!(pins.count(), 0);
    });
}

#[test]
fn rtt_of_a_connection_older_than_the_agent_is_known() {
    linked_lab(require::root(), |lab, peer| {
        let listener = peer.enter(|| std::net::TcpListener::bind((PEER, 8000)).unwrap());
        let mut client = lab
            .netns
            .enter(|| std::net::TcpStream::connect((PEER, 8000)).unwrap());
        let (mut server, _) = listener.accept().unwrap();
        for _ in 0..5 {
            std::io::Write::write_all(&mut client, b"ping").unwrap();
            std::io::Read::read_exact(&mut server, &mut [0; 4]).unwrap();
            std::io::Write::write_all(&mut server, b"pong").unwrap();
            std::io::Read::read_exact(&mut client, &mut [0; 4]).unwrap();
        }
        let agent = Agent::start(lab, &[]);
        wait_for("an RTT of 10.9.0.2", || {
            let peers = agent.ok("GET", "/v1/sessions", None)["peers"].clone();
            peers
                .as_array()
                .unwrap()
                .iter()
                .any(|p| p["addr"] == "10.9.0.2" && p["rtt"]["srtt_ns"].as_u64() > Some(0))
        });
    });
}

#[test]
fn trusted_prefixes_are_in_force_until_changed_or_detached() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let table = || {
            let map = libbpf_rs::MapHandle::from_pinned_path(lab.bpffs.join("bb_trust")).unwrap();
            let mut keys: Vec<(u32, Vec<u8>)> = libbpf_rs::MapCore::keys(&map)
                .map(|k| {
                    (
                        u32::from_ne_bytes(*k.first_chunk().unwrap()),
                        k[8..].to_vec(),
                    )
                })
                .collect();
            keys.sort();
            keys
        };
        let mapped = |a: [u8; 4]| bestby_tests::bpf::mapped(a).to_vec();
        agent.attach(
            json!({"dev": "v0", "mode": "tc", "trust": "10.1.0.0/16,10.1.2.0/24,192.0.2.7"}),
        );
        let both = [
            (32 + 96 + 16, mapped([10, 1, 0, 0])),
            (32 + 96 + 32, mapped([192, 0, 2, 7])),
        ];
        assert_eq!(table(), both);
        let iface = agent.ok("GET", "/v1/interfaces", None);
        assert_eq!(iface[0]["trust"], "10.1.0.0/16,192.0.2.7");
        // Refused whole: what was trusted still is.
        for bad in ["10.1.2.3/16", "example.org", "10.0.0.0/33"] {
            let request = json!({"dev": "v0", "mode": "tc", "trust": bad});
            assert_eq!(
                agent.refused("POST", "/v1/interfaces", Some(request)).0,
                400
            );
        }
        assert_eq!(table(), both);
        // Adopted by the next agent, changed, and gone with the interface.
        agent.kill();
        let agent = Agent::start(lab, &[]);
        assert_eq!(table(), both);
        agent.attach(json!({"dev": "v0", "mode": "tc", "trust": "192.0.2.7"}));
        assert_eq!(table(), both[1..]);
        agent.detach("v0");
        assert!(table().is_empty());
    });
}

/// This host's clock is what it is: what the agent tells the kernel side must be the same.
#[test]
fn clock_of_the_host_is_told_to_the_data_path_and_the_operator() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        // SAFETY: plain numbers; with modes 0 nothing is changed.
        let (state, timex) = unsafe {
            let mut timex: libc::timex = std::mem::zeroed();
            (libc::adjtimex(&raw mut timex), timex)
        };
        let exact = state != libc::TIME_ERROR
            && timex.status & libc::STA_UNSYNC == 0
            && timex.maxerror < 100_000;
        let map = libbpf_rs::MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
        let until = || {
            let bytes = libbpf_rs::MapCore::lookup(&map, &[0; 4], libbpf_rs::MapFlags::ANY);
            let at = std::mem::offset_of!(bestby_bpf::abi::bb_config, clock_until_ns);
            u64::from_ne_bytes(*bytes.unwrap().unwrap()[at..].first_chunk().unwrap())
        };
        let now = bestby_tests::clock::now_ns();
        assert_eq!(until() > now, exact);
        assert_eq!(agent.complaints("clock").is_empty(), exact);
        agent.attach(json!({"dev": "v0", "mode": "tc", "trust": "10.0.0.0/8"}));
        let notes = agent.ok("GET", "/v1/interfaces", None)[0]["notes"].to_string();
        assert_eq!(notes.contains("clock"), !exact, "{notes}");
    });
}

#[test]
fn explain_says_whether_an_ip_option_counts_and_why_not() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "trust": "203.0.113.0/24"}));
        let explain = |packet: &str| {
            let body = json!({"dev": "v0", "packet": packet});
            let answer = agent.ok("POST", "/v1/explain", Some(body));
            let sources = answer["sources"].as_array().unwrap().clone();
            let option = sources.into_iter().find(|s| s["source"] == "ip-option");
            (answer, option.unwrap())
        };
        let (answer, option) = explain("udp 203.0.113.7:5 > 192.0.2.9:6 option 300ms/forward");
        assert_eq!(option["decides"], json!(["deadline", "treatment"]));
        assert_eq!(answer["lifetime_ns"], 300_000_000);
        assert_eq!(answer["treatment"], "forward");
        let (answer, option) = explain("udp 203.0.114.7:5 > 192.0.2.9:6 option 300ms");
        assert_eq!(option["decides"], json!([]));
        assert!(option["says"].as_str().unwrap().contains("--trust"));
        assert_eq!(answer["lifetime_ns"], Value::Null);
        // This host's own needs no trust; a rule comes behind it.
        agent
            .add(json!({"name": "a", "proto": "udp", "dport": 6, "lifetime": "2s", "priority": 1}));
        let (answer, option) = explain("udp 192.0.2.9:6 option 9e0800100000012c");
        assert_eq!(option["decides"], json!(["deadline", "treatment"]));
        assert_eq!(
            (&answer["priority"], &answer["lifetime_ns"]),
            (&json!(1), &json!(300_000_000))
        );
        let bad = json!({"dev": "v0", "packet": "udp 192.0.2.9:6 option 9e0800300000012c"});
        assert_eq!(agent.refused("POST", "/v1/explain", Some(bad)).0, 400);
    });
}
