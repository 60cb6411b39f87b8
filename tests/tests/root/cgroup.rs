//! Flow rules by cgroup, in a real tree: a rule holds for all cgroups below the one it names, at any depth, in the
//! operator's order; a cgroup that comes later, or again, is found.

use std::fs;
use std::path::{Path, PathBuf};

use bestby_tests::agent::{Agent, wait_for};
use bestby_tests::load::{Counter, PEER};
use bestby_tests::netns::{Lab, linked_lab};
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
