//! What the tests of the operator's command share: namespaces, a link, an agent, and the command.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::Value;

/// Where `bestby` and `bestbyd` are: told by tests/vm/suite, else beside the test program.
pub(crate) fn binary(name: &str) -> PathBuf {
    let dir = std::env::var_os("BESTBY_BIN_DIR").map_or_else(
        || {
            std::env::current_exe()
                .unwrap()
                .parent()
                .unwrap()
                .parent()
                .unwrap()
                .to_path_buf()
        },
        PathBuf::from,
    );
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is not built: cargo build --workspace --bins",
        path.display()
    );
    path
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Namespaces for network and mounts, a link `v0` <-> `v1` of which `v1`'s end answers nothing, and an agent.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
    agent: Option<Child>,
}

/// Runs `test` in a thread with namespaces of its own: nothing of it is left afterwards.
pub(crate) fn lab(config: &str, test: impl FnOnce(&mut Lab) + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: affects the calling thread only, which ends with the test.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) };
            assert_eq!(
                result,
                0,
                "namespaces: {} (needs root)",
                std::io::Error::last_os_error()
            );
            run("mount --make-rprivate /");
            run("ip link set lo up");
            run("ip link add v0 type veth peer name v1");
            run("ip addr add 10.9.0.1/24 dev v0");
            // No neighbour discovery: only what a test sends is counted.
            run("ip link set v0 addrgenmode none");
            run("ip link set v1 addrgenmode none");
            run("ip link set v0 up");
            run("ip link set v1 up");
            // No answers are needed: nobody has to be at the other end.
            run("ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0");
            let dir = tempfile::tempdir().unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(dir.path().join("bestby.toml"), config).unwrap();
            let mut lab = Lab { dir, agent: None };
            lab.start();
            test(&mut lab);
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Lab {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn start(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let child = Command::new(binary("bestbyd"))
            .arg("--config")
            .arg(self.path("bestby.toml"))
            .arg("--socket")
            .arg(self.path("sock"))
            .arg("--bpffs")
            .arg(self.path("bpf"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(child);
        let start = Instant::now();
        while !self.bestby(&["status"]).status.success() {
            let ended = self.agent.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "bestbyd ended: {}", self.log());
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "bestbyd does not answer: {}",
                self.log()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.agent.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
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
    pub(crate) fn ok(&self, command: &str) -> String {
        let args: Vec<&str> = command.split_whitespace().collect();
        let output = self.bestby(&args);
        assert!(
            output.status.success(),
            "bestby {command}: {}\n{}",
            text(&output.stderr),
            self.log()
        );
        text(&output.stdout)
    }

    pub(crate) fn json(&self, command: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("--json {command}"))).unwrap()
    }

    /// A command that is refused with exit code 1 and this message.
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
