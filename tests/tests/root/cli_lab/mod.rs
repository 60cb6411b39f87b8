//! What the tests of the operator's command share: namespaces, a link, an agent, and the command.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use bestby_tests::netns::{self, shell};
use bestby_tests::{agent::Agent, program::binary};
use serde_json::Value;

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Namespaces for network and mounts, a link `v0` <-> `v1` of which `v1`'s end answers nothing, and an agent with
/// nothing mounted for it and the cgroup that it chooses.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    agent: Option<Agent>,
}

/// Runs `test` in namespaces of its own: nothing of it is left afterwards.
pub(crate) fn lab(config: &str, test: impl FnOnce(&mut Lab) + Send) {
    netns::lab(|_| {
        shell(
            "ip link add v0 type veth peer name v1
             ip addr add 10.9.0.1/24 dev v0
             # No neighbour discovery: only what a test sends is counted.
             ip link set v0 addrgenmode none
             ip link set v1 addrgenmode none
             ip link set v0 up
             ip link set v1 up
             # No answers are needed: nobody has to be at the other end.
             ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0",
        );
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("bestby.toml"), config).unwrap();
        let mut lab = Lab { dir, agent: None };
        lab.start();
        test(&mut lab);
    });
}

impl Lab {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        let mut command = Command::new(binary("bestbyd"));
        command
            .arg("--config")
            .arg(self.path("bestby.toml"))
            .arg("--socket")
            .arg(self.path("sock"))
            .arg("--bpffs")
            .arg(self.path("bpf"));
        self.agent = Some(Agent::spawn(command, self.path("sock"), self.path("log")));
    }

    pub(crate) fn agent(&self) -> &Agent {
        self.agent.as_ref().expect("the agent runs")
    }

    pub(crate) fn stop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.kill();
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("bestby"));
        command.arg("--socket").arg(self.path("sock")).args(args);
        command
    }

    pub(crate) fn bestby(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Standard output of a command that works.
    #[track_caller]
    pub(crate) fn ok(&self, command: &str) -> String {
        let args: Vec<&str> = command.split_whitespace().collect();
        let output = self.bestby(&args);
        assert!(
            output.status.success(),
            "bestby {command}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    #[track_caller]
    pub(crate) fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("--json {command}"))).unwrap()
    }

    /// A command that is refused with exit code 1 and this message.
    #[track_caller]
    pub(crate) fn refused(&self, command: &str, says: &str) {
        let args: Vec<&str> = command.split_whitespace().collect();
        let output = self.bestby(&args);
        let error = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(1),
            "bestby {command}: {error}{}",
            text(&output.stdout)
        );
        assert!(error.contains(says), "bestby {command} says: {error}");
        assert!(error.starts_with("bestby: "), "{error}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
        // The pins keep the programs; the mount namespace, and with it the bpffs, ends with the thread.
        let _ = Command::new("umount").arg(self.path("bpf")).output();
    }
}
