//! Flow rules by cgroup, in a real tree: a rule holds for all cgroups below the one it names, at any depth, in the
//! operator's order; a cgroup that comes later, or again, is found.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use bestby_tests::agent::{self, Agent, wait_for};
use bestby_tests::frame::rtp;
use bestby_tests::load::{Counter, PEER};
use bestby_tests::netns::{Lab, Netns, cgroup_root, linked_lab, shell};
use bestby_tests::require;
use serde_json::json;

const PORT: u16 = 5004;

/// Cgroups below that of a lab, made in this order.
struct Tree {
    top: PathBuf,
    made: Vec<PathBuf>,
}

impl Tree {
    fn new(lab: &Lab, paths: &[&str]) -> Self {
        let mut tree = Self {
            top: lab.cgroup.clone(),
            made: Vec::new(),
        };
        for path in paths {
            tree.make(path);
        }
        tree
    }

    fn make(&mut self, path: &str) {
        let path = self.top.join(path);
        fs::create_dir(&path).unwrap();
        self.made.push(path);
    }

    fn remove(&mut self, path: &str) {
        let path = self.top.join(path);
        // A process that has ended leaves its cgroup a moment later.
        wait_for("the cgroup to be empty", || fs::remove_dir(&path).is_ok());
        self.made.retain(|made| *made != path);
    }

    /// As rules name it: from the root of the tree.
    fn name(&self, path: &str) -> String {
        self.top.join(path).to_str().unwrap().to_string()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for path in self.made.iter().rev() {
            let _ = fs::remove_dir(path);
        }
    }
}

/// Sends datagrams from a process in a cgroup: each has a socket of its own.
fn send_from(lab: &Lab, cgroup: &Path, packets: u64) {
    let script = r#"echo $$ >"$1/cgroup.procs"; for ((n = 0; n < $2; n++)); do echo x >"/dev/udp/$3/$4"; done"#;
    let mut bash = lab.netns.command("bash");
    let done = bash
        .args(["-euc", script, "bash"])
        .arg(cgroup)
        .args([packets.to_string(), PEER.to_string(), PORT.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", cgroup.display());
}

#[test]
fn rule_matches_at_any_depth_below_its_cgroup() {
    linked_lab(require::root(), |lab, peer| {
        let tree = Tree::new(lab, &["media", "media/audio", "media/audio/opus", "backup"]);
        let _listener = Counter::new(peer, PEER, PORT);
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        for (name, cgroup) in [
            ("audio", "media/audio"),
            ("media", "media"),
            ("backup", "backup"),
            ("all", ""),
        ] {
            agent.add(json!({"name": name, "cgroup": tree.name(cgroup), "lifetime": "100s"}));
        }
        let count = |name: &str| agent.flow(name, "packets_in");
        let counts = || ["audio", "media", "backup", "all"].map(count);
        let mut expected = counts();
        let mut check = |from: &str, rule: usize, packets: u64| {
            send_from(lab, &tree.top.join(from), packets);
            expected[rule] += packets;
            assert_eq!(counts(), expected, "from cgroup `{from}`");
        };
        check("media/audio", 0, 3);
        check("media/audio/opus", 0, 4);
        check("media", 1, 5);
        check("backup", 2, 6);
        check("", 3, 7);
        // What `explain` says of such a packet is what happens to it.
        for (from, rule) in [
            ("media/audio/opus", "audio"),
            ("media", "media"),
            ("", "all"),
        ] {
            let packet = format!("udp {PEER}:{PORT} cgroup {}", tree.name(from));
            let said = agent.ok(
                "POST",
                "/v1/explain",
                Some(json!({"dev": "v0", "packet": packet})),
            );
            assert_eq!(said["flow"], rule, "{said}");
        }
        // The operator's order decides, not the depth: behind the wide rule, the narrow one gets nothing.
        agent.ok("DELETE", "/v1/flows/audio", None);
        agent.add(json!({"name": "audio", "cgroup": tree.name("media/audio"), "lifetime": "100s"}));
        let before = agent.flow("media", "packets_in");
        send_from(lab, &tree.top.join("media/audio/opus"), 8);
        assert_eq!(agent.flow("media", "packets_in"), before + 8);
        assert_eq!(agent.flow("audio", "packets_in"), 0);
    });
}

#[test]
fn rule_for_a_missing_cgroup_waits_until_it_comes() {
    linked_lab(require::root(), |lab, peer| {
        let mut tree = Tree::new(lab, &["media"]);
        let _listener = Counter::new(peer, PEER, PORT);
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        let done = agent
            .add(json!({"name": "late", "cgroup": tree.name("media/late"), "lifetime": "100s"}));
        let warning = done["warnings"][0].as_str().unwrap();
        assert!(warning.contains("nothing"), "{done}");
        let waits = || !agent.complaints("flow rule").is_empty();
        send_from(lab, &tree.top.join("media"), 2);
        assert_eq!(agent.flow("late", "packets_in"), 0);
        for sent in [3, 6] {
            tree.make("media/late");
            wait_for("the rule to find its cgroup", || !waits());
            send_from(lab, &tree.top.join("media/late"), 3);
            assert_eq!(agent.flow("late", "packets_in"), sent);
            // Another cgroup of this name has another id.
            tree.remove("media/late");
            wait_for("the rule to miss its cgroup", waits);
        }
    });
}

#[test]
fn rule_matches_a_cgroup_made_again_at_once() {
    linked_lab(require::root(), |lab, peer| {
        let mut tree = Tree::new(lab, &["sfu"]);
        let _listener = Counter::new(peer, PEER, PORT);
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "sfu", "cgroup": tree.name("sfu"), "lifetime": "100s"}));
        send_from(lab, &tree.top.join("sfu"), 2);
        assert_eq!(agent.flow("sfu", "packets_in"), 2);
        // `systemctl restart`: gone and there again between two looks of the agent.
        tree.remove("sfu");
        tree.make("sfu");
        wait_for("the rule to apply again", || {
            send_from(lab, &tree.top.join("sfu"), 1);
            agent.flow("sfu", "packets_in") > 2
        });
    });
}

/// A socket that belongs to a cgroup for good: that of the process when it is made.
fn socket_in(cgroup: &Path, port: u16) -> UdpSocket {
    let of_process = fs::read_to_string("/proc/self/cgroup").unwrap();
    let home = of_process
        .lines()
        .find_map(|l| l.strip_prefix("0::/"))
        .unwrap();
    let enter = |at: &Path| fs::write(at.join("cgroup.procs"), std::process::id().to_string());
    enter(cgroup).unwrap();
    let socket = UdpSocket::bind(("10.9.0.1", port));
    enter(&cgroup_root().join(home)).unwrap();
    socket.unwrap()
}

/// A port is used by one service and then by another: each has its own rule, whoever came first.
#[test]
fn rule_belongs_to_the_sender_and_not_to_who_had_its_port_before() {
    linked_lab(require::root(), |lab, peer| {
        let tree = Tree::new(lab, &["media", "backup"]);
        let _listener = Counter::new(peer, PEER, PORT);
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        let [media, backup] = ["media", "backup"].map(|name| tree.top.join(name));
        let audio = rtp(1, 1, false);
        // With payload types each stream has its rule.
        for (round, (rule, payload)) in [
            (json!({"name": "m", "cgroup": tree.name("media"), "lifetime": "100s"}), &b"x"[..]),
            (json!({"name": "m", "cgroup": tree.name("media"), "lifetime": "100s", "rtp_pt": "96,111"}), &audio),
        ]
        .into_iter()
        .enumerate()
        {
            agent.add(rule);
            for (port, order) in [(40_000, [&media, &backup, &media]), (40_010, [&backup, &media, &backup])] {
                let mut expected = agent.flow("m", "packets_in");
                for (at, cgroup) in order.into_iter().enumerate() {
                    let socket = socket_in(cgroup, port + round as u16);
                    for _ in 0..3 {
                        socket.send_to(payload, (PEER, PORT)).unwrap();
                    }
                    expected += if *cgroup == media { 3 } else { 0 };
                    let what = format!("round {round}, port {port}, sender {at}");
                    assert_eq!(agent.flow("m", "packets_in"), expected, "{what}");
                }
            }
            agent.ok("DELETE", "/v1/flows/m", None);
        }
    });
}

/// Docker's default network: what IP forwards has no socket, so no cgroup. Somebody has to say so.
#[test]
fn routed_container_matches_no_cgroup_and_is_told_of() {
    linked_lab(require::root(), |lab, peer| {
        let tree = Tree::new(lab, &["box"]);
        let inside = Netns::new();
        inside.link("c0", "172.17.0.2/24", &lab.netns, "h0", "172.17.0.1/24");
        inside.run("ip route add default via 172.17.0.1");
        shell("echo 1 >/proc/sys/net/ipv4/conf/all/forwarding");
        let listener = Counter::new(peer, PEER, PORT);
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(json!({"name": "box", "cgroup": tree.name("box"), "lifetime": "100s"}));
        let told = || agent.complaints("flow rule");
        let shown = || agent.ok("GET", "/v1/flows/box", None)["matches_nothing"].clone();
        // Nothing came yet: nothing to complain of. Nor is what this host sends itself.
        send_from(lab, &tree.top, 2);
        assert_eq!((told().len(), shown()), (0, json!(null)));
        let send = |count: usize| {
            inside.enter(|| {
                let socket = UdpSocket::bind("172.17.0.2:0").unwrap();
                (0..count).for_each(|_| assert!(socket.send_to(b"x", (PEER, PORT)).is_ok()));
            });
        };
        send(3);
        wait_for("the routed flow", || {
            agent.stats()["global"]["no_cgroup"] == 1
        });
        assert_eq!(agent.flow("box", "packets_in"), 0);
        assert!(told()[0].contains("routed"), "{:?}", told());
        assert!(shown().as_str().unwrap().contains("--src"), "{}", shown());
        // By its address it is found, and a rule that matches is not complained of.
        agent.add(json!({"name": "src", "src": "172.17.0.0/24", "lifetime": "100s"}));
        send(3);
        wait_for("the rule", || agent.flow("src", "packets_in") == 3);
        send_from(lab, &tree.top.join("box"), 2);
        assert_eq!(agent.flow("box", "packets_in"), 2);
        assert_eq!((told().len(), shown()), (0, json!(null)));
        drop(listener);
    });
}

/// bestbyd in a container of its own: the tree's top that it sees is not the kernel's.
#[test]
fn cgroup_rule_in_a_cgroup_namespace_is_not_taken_for_one_that_works() {
    linked_lab(require::root(), |lab, _peer| {
        let tree = Tree::new(lab, &["agent", "agent/media"]);
        let mut command = lab.netns.command("bash");
        let script = r#"echo $$ >"$1/cgroup.procs"; shift
            exec unshare --cgroup --mount bash -euc 'umount --lazy /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$@"' bash "$@""#;
        command
            .args(["-euc", script, "bash"])
            .arg(tree.top.join("agent"));
        let agent = agent::command(lab, &[]);
        command.arg(agent.get_program());
        let args: Vec<_> = agent.get_args().collect();
        // The last two words name the lab's cgroup, which is not there.
        command.args(&args[..args.len() - 2]);
        let agent = Agent::spawn(command, lab.dir.join("s"), lab.dir.join("log"));
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        for cgroup in ["/media", "/"] {
            let done = agent.add(json!({"name": "m", "cgroup": cgroup, "lifetime": "100s"}));
            let warning = done["warnings"][0].as_str().unwrap();
            assert!(warning.contains("cgroup namespace"), "{done}");
            let told = agent.complaints("flow rule");
            assert!(told[0].contains("cgroup namespace"), "{told:?}");
            send_from(lab, &tree.top.join("agent/media"), 2);
            assert_eq!(agent.flow("m", "packets_in"), 0, "{cgroup}");
            agent.ok("DELETE", "/v1/flows/m", None);
        }
        let told = agent.complaints("cgroup");
        assert!(told[0].contains("cgroup namespace"), "{told:?}");
        drop(agent);
    });
}
