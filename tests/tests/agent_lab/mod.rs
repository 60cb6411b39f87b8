//! An agent under test, and the little HTTP that is needed to talk to it.

#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bestby_tests::netns::Lab;
use serde_json::{Value, json};

/// Where `bestbyd` is: told by tests/vm/suite, else beside the test program.
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

/// A running agent; killed at the end.
pub(crate) struct Agent {
    child: Child,
    pub(crate) socket: PathBuf,
    log: PathBuf,
}

/// The command line of an agent in this lab.
pub(crate) fn command(lab: &Lab, extra: &[&str]) -> Command {
    let mut command = lab.netns.command(binary("bestbyd"));
    command
        .arg("--socket")
        .arg(lab.dir.join("s"))
        .arg("--bpffs")
        .arg(&lab.bpffs)
        .arg("--cgroup")
        .arg(&lab.cgroup);
    command.args(extra).stdin(Stdio::null());
    command
}

impl Agent {
    /// Starts one and waits until it answers.
    pub(crate) fn start(lab: &Lab, extra: &[&str]) -> Self {
        let socket = lab.dir.join("s");
        let log = lab.dir.join("log");
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let mut child = command(lab, extra).stderr(file).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(90);
        while UnixStream::connect(&socket).is_err() {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(
                child.try_wait().unwrap().is_none(),
                "bestbyd ended: {}",
                log()
            );
            assert!(Instant::now() < end, "bestbyd does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, socket, log }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the agent must end well.
    pub(crate) fn terminate(mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.child.wait().unwrap().success());
    }

    /// One request: status and body.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let body = body.map_or(String::new(), |b| b.to_string());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        match stream.write_all(request.as_bytes()) {
            // The agent may answer, and close, before it has read what it refuses.
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
            done => done.unwrap(),
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{method} {path}: {answer}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// A request that must work.
    pub(crate) fn ok(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// A request that must be refused: its status, message and hint.
    pub(crate) fn refused(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        let (status, answer) = self.call(method, path, body);
        assert!(status >= 400, "{method} {path} was not refused: {answer}");
        let part = |name: &str| {
            answer["error"][name]
                .as_str()
                .unwrap_or_default()
                .to_string()
        };
        assert!(!part("message").is_empty(), "{method} {path}: {answer}");
        (status, format!("{} ({})", part("message"), part("hint")))
    }

    pub(crate) fn attach(&self, request: Value) -> Value {
        self.ok("POST", "/v1/interfaces", Some(request))
    }

    pub(crate) fn detach(&self, dev: &str) -> Value {
        self.ok("DELETE", &format!("/v1/interfaces/{dev}"), None)
    }

    pub(crate) fn add(&self, flow: Value) -> Value {
        self.ok("POST", "/v1/flows", Some(json!({ "flow": flow })))
    }

    pub(crate) fn stats(&self) -> Value {
        self.ok("GET", "/v1/stats", None)
    }

    /// One flow's counter.
    pub(crate) fn flow(&self, name: &str, counter: &str) -> u64 {
        self.stats()["flows"][name][counter]
            .as_u64()
            .unwrap_or_else(|| panic!("no {counter} of {name}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("bestbyd said: {}", self.log());
        }
    }
}

/// Runs an agent that must refuse to start; what it says.
pub(crate) fn start_refused(mut command: Command) -> String {
    let output = command.stdout(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "it started and ended well");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something holds.
pub(crate) fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The root qdisc as tc prints it, without its usage count.
pub(crate) fn root_qdisc(lab: &Lab, dev: &str) -> String {
    let all = lab.netns.run(&format!("tc qdisc show dev {dev}"));
    let line = all
        .lines()
        .find(|l| l.contains(" root "))
        .unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut out = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "refcnt" {
            words.next();
        } else {
            out.push(word);
        }
    }
    out.join(" ")
}

/// A file in the lab.
pub(crate) fn file(lab: &Lab, name: &str, text: &str) -> PathBuf {
    let path = lab.dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

pub(crate) fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}
