//! An agent under test, and the little HTTP that is needed to talk to it.
#![allow(clippy::unwrap_used)]

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bestby_netns::wait::Wait;
use serde_json::{Value, json};

use crate::netns::{Lab, Netns};
use crate::program::binary;

/// A running agent; killed at the end.
pub struct Agent {
    child: Child,
    /// Where it listens.
    pub socket: PathBuf,
    log: PathBuf,
}

/// The command line of an agent in this lab.
pub fn command(lab: &Lab, extra: &[&str]) -> Command {
    let mut command = lab.netns.command(binary("bestbyd"));
    command
        .arg("--socket")
        .arg(lab.dir.join("s"))
        .arg("--bpffs")
        .arg(&lab.bpffs)
        .arg("--cgroup")
        .arg(&lab.cgroup);
    command.args(extra);
    command
}

impl Agent {
    /// Starts [`command`] and waits until it answers.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn start(lab: &Lab, extra: &[&str]) -> Self {
        Self::spawn(command(lab, extra), lab.dir.join("s"), lab.dir.join("log"))
    }

    /// Starts a command line that listens on `socket` and waits until it answers.
    ///
    /// # Panics
    /// When it ends instead.
    pub fn spawn(mut command: Command, socket: PathBuf, log: PathBuf) -> Self {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut wait = Wait::new(Duration::from_secs(90));
        while UnixStream::connect(&socket).is_err() {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(
                child.try_wait().unwrap().is_none(),
                "bestbyd ended: {}",
                log()
            );
            assert!(wait.pause(), "bestbyd does not answer: {}", log());
        }
        Self { child, socket, log }
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// What it, and those before it in this lab, said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the agent must end well, and have waited for nobody in vain.
    pub fn terminate(mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.child.wait().unwrap().success());
        let log = self.log();
        assert!(!log.contains("not everybody was answered"), "{log}");
    }

    /// One request with further headers, each ended by `\r\n`: head and body of the answer as they came.
    ///
    /// # Errors
    /// The agent ends before it has answered.
    pub fn try_exchange(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<(String, String)> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        match stream.write_all(request.as_bytes()) {
            // The agent may answer, and close, before it has read what it refuses.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            done => done?,
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| io::Error::other(format!("{method} {path}: {answer}")))?;
        Ok((head.to_string(), body.to_string()))
    }

    /// [`Agent::try_exchange`] with an agent that lives.
    pub fn exchange(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (String, String) {
        self.try_exchange(method, path, headers, body).unwrap()
    }

    /// One request with any body: status and body of the answer as they came.
    ///
    /// # Errors
    /// The agent ends before it has answered.
    pub fn try_request(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let (head, body) = self.try_exchange(method, path, "", body)?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok((status, body))
    }

    /// [`Agent::try_request`] of an agent that lives.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_request(method, path, body).unwrap()
    }

    /// One request: status and body.
    pub fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map_or(String::new(), |b| b.to_string());
        let (status, answer) = self.request(method, path, &body);
        (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
    }

    /// A request that must work.
    #[track_caller]
    pub fn ok(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.call(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// A request that must be refused: its status, message and hint.
    #[track_caller]
    pub fn refused(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
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

    /// Attaches an interface, to enforce unless the request says otherwise.
    #[track_caller]
    pub fn attach(&self, mut request: Value) -> Value {
        if request.get("observe").is_none() {
            request["observe"] = json!(false);
        }
        self.ok("POST", "/v1/interfaces", Some(request))
    }

    /// Detaches an interface.
    #[track_caller]
    pub fn detach(&self, dev: &str) -> Value {
        self.ok("DELETE", &format!("/v1/interfaces/{dev}"), None)
    }

    /// Adds a flow rule.
    #[track_caller]
    pub fn add(&self, flow: Value) -> Value {
        self.ok("POST", "/v1/flows", Some(json!({ "flow": flow })))
    }

    /// What doctor's checks of this name complain of.
    pub fn complaints(&self, check: &str) -> Vec<String> {
        let doctor = self.ok("GET", "/v1/doctor", None);
        let checks = doctor["checks"].as_array().unwrap().iter();
        checks
            .filter(|c| c["name"] == check && c["status"] != "ok")
            .map(|c| c["detail"].to_string())
            .collect()
    }

    /// All counters.
    pub fn stats(&self) -> Value {
        self.ok("GET", "/v1/stats", None)
    }

    /// One flow's counter.
    pub fn flow(&self, name: &str, counter: &str) -> u64 {
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

/// Runs cases of one test one after the other, with one agent that each passes on. Each is named before it runs: the
/// last name is that of the case that failed.
#[macro_export]
macro_rules! in_turn {
    ($lab:expr, $peer:expr, $agent:expr; $($case:ident),+ $(,)?) => {{
        let mut agent = $agent;
        $(
            println!("case {}", stringify!($case));
            agent = $case($lab, $peer, agent);
        )+
        agent
    }};
}

/// Drops of a flow, session or interface; `which` is `dropped` or `would_drop`.
pub fn drops(counters: &Value, which: &str) -> u64 {
    let reasons = counters[which].as_object().unwrap();
    reasons.values().map(|v| v.as_u64().unwrap()).sum()
}

/// Runs an agent that must refuse to start; what it says.
pub fn start_refused(mut command: Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "it started and ended well");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until something holds.
#[track_caller]
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        // Before the look: a machine that stood still in between has looked once more since.
        let over = Instant::now() >= end;
        if holds() {
            return;
        }
        assert!(!over, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The root qdisc of a device as tc prints it, without its usage count.
pub fn root_qdisc(netns: &Netns, dev: &str) -> String {
    let all = netns.run(&format!("tc qdisc show dev {dev}"));
    let line = all
        .lines()
        .find(|l| l.contains(" root "))
        .unwrap_or_default();
    let mut words = line.split_whitespace();
    let mut out = Vec::new();
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
pub fn file(lab: &Lab, name: &str, text: &str) -> PathBuf {
    let path = lab.dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A path of the lab as an argument.
pub fn path_str(path: &Path) -> &str {
    path.to_str().unwrap()
}
