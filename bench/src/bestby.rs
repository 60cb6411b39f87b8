//! bestby itself in the lab: the agent as a program of its own, in the sender's
//! namespace, driven through the same command line that an operator uses.

use std::{
    env, fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bestby_api::{RealCounters, RealMode, TcpReal};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{cleanup, netns, netns::Netns, run, topology, wait::Wait};

/// A running `bestbyd` with its own directory, socket and bpffs directory; stopped
/// and removed with its pins when dropped.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    socket: PathBuf,
    directory: PathBuf,
    cli: PathBuf,
    _pins: cleanup::Guard,
}

/// A program of this workspace: beside the lab's own, as cargo puts them.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("where is this program?")?;
    // A test's program is in `deps`, one level further down.
    for directory in own.ancestors().skip(1).take(2) {
        let path = directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let own = own.display();
    bail!("no `{name}` beside {own}: build it with `cargo build --release --workspace`")
}

/// This program, as `bestby-lab`, and of bestby's what is there: a series of peers alone
/// needs none.
pub fn programs() -> Result<Vec<(&'static str, PathBuf)>> {
    let own = env::current_exe().context("where is this program?")?;
    let others = ["bestbyd", "bestby"].into_iter();
    let others = others.filter_map(|name| Some((name, program(name).ok()?)));
    Ok([("bestby-lab", own)].into_iter().chain(others).collect())
}

impl Agent {
    /// Starts the agent inside `ns` without rules. `label` distinguishes agents of one lab.
    pub fn start(ns: &Netns, label: &str) -> Result<Self> {
        Self::start_with(ns, label, "")
    }

    /// Starts the agent inside `ns` with this text as its configuration file.
    pub fn start_with(ns: &Netns, label: &str, config: &str) -> Result<Self> {
        netns::ensure_bpffs()?;
        let (daemon, cli) = (program("bestbyd")?, program("bestby")?);
        let name = format!("bestby-lab-{}-{label}", std::process::id());
        let directory = env::temp_dir().join(&name);
        let bpffs = Path::new("/sys/fs/bpf").join(&name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        let socket = directory.join("socket");
        ensure!(
            UnixStream::connect(&socket).is_err(),
            "another agent of this lab answers on {}",
            socket.display()
        );
        let file = directory.join("bestby.toml");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let pins = cleanup::on_exit({
            let (bpffs, directory) = (bpffs.clone(), directory.clone());
            move || {
                // Either may be gone already: the agent removes what it can.
                let _ = fs::remove_dir_all(&bpffs);
                let _ = fs::remove_dir_all(&directory);
            }
        });
        let output = fs::File::create(directory.join("log")).context("creating the agent's log")?;
        let mut command = ns.command(&daemon)?;
        command
            .arg("--config")
            .arg(&file)
            .arg("--socket")
            .arg(&socket)
            .arg("--bpffs")
            .arg(&bpffs)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("starting `{}` in {}", run::line(&command), ns.name()))?;
        let mut agent = Self {
            child,
            socket,
            directory,
            cli,
            _pins: pins,
        };
        agent.wait_ready()?;
        Ok(agent)
    }

    fn wait_ready(&mut self) -> Result<()> {
        // Loading and verifying all programs takes seconds under emulation.
        let mut wait = Wait::new(Duration::from_secs(120));
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "bestbyd ended ({status}) before it was ready:\n{}",
                    self.log()
                );
            }
            if self.socket.exists() && self.bestby("iface ls").is_ok() {
                return Ok(());
            }
            if !wait.pause() {
                let socket = self.socket.display();
                let (log, threads) = (self.log(), threads(self.child.id()));
                bail!("bestbyd does not answer on {socket}:\n{log}{threads}");
            }
        }
    }

    /// What the agent has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs `bestby --socket ... WORDS` and returns its output.
    pub fn bestby(&self, words: &str) -> Result<String> {
        let mut command = Command::new(&self.cli);
        command
            .arg("--socket")
            .arg(&self.socket)
            .args(words.split_whitespace());
        run::output(&mut command)
    }

    /// The same with `--json`, parsed.
    pub fn json(&self, words: &str) -> Result<serde_json::Value> {
        let text = self.bestby(&format!("--json {words}"))?;
        serde_json::from_str(&text).with_context(|| format!("`bestby --json {words}`: {text}"))
    }

    /// What bestby counted on `device`.
    pub fn counters(&self, device: &str) -> Result<bestby_api::Counters> {
        let stats: bestby_api::Stats = serde_json::from_value(self.json("stats")?)?;
        let counters = stats.interfaces.get(device).copied();
        counters.with_context(|| format!("`bestby --json stats` has no counters of {device}"))
    }

    /// Lets the agent stand still until the guard is dropped; packets do not need it.
    pub fn pause(&self) -> Result<Paused> {
        // A child that has not been waited for: its id is still its own.
        let pid = Pid::from_raw(self.child.id() as libc::pid_t);
        kill(pid, Signal::SIGSTOP).context("stopping the agent for a while")?;
        Ok(Paused(pid))
    }
}

/// bestby in mode qdisc in front of a router's link, with its defaults, until this is dropped.
#[derive(Debug)]
pub struct AtRouter<'a>(&'a Agent);

/// Attaches bestby in front of the link of `path`'s router, which carries `rate` bit/s. Starts the agent when it is
/// needed for the first time.
pub fn at_router<'a>(
    kept: &'a mut Option<Agent>,
    path: &topology::Path,
    rate: u64,
) -> Result<AtRouter<'a>> {
    let agent = match kept {
        Some(agent) => agent,
        None => kept.insert(Agent::start(path.router().context("no router")?, "router")?),
    };
    let device = topology::ROUTER_DEVICE;
    agent.bestby(&format!(
        "iface attach {device} --enforce --mode qdisc --rate {rate}bit"
    ))?;
    Ok(AtRouter(agent))
}

impl Drop for AtRouter<'_> {
    fn drop(&mut self) {
        let device = topology::ROUTER_DEVICE;
        if let Err(error) = self.0.bestby(&format!("iface detach {device}")) {
            note!("{error:#}");
        }
    }
}

/// TCP-Real on a path, switched on and off as an operator does.
///
/// The agent is the receiver's: it measures at the interfaces of its own namespace. The congestion control and
/// the option are of all namespaces.
#[derive(Debug)]
pub struct Switch {
    agent: Agent,
    mode: Option<RealMode>,
}

impl Switch {
    /// Switches TCP-Real on in `mode`, or off. Starts the agent when it is needed for the first time, and
    /// returns it where TCP-Real is on.
    pub fn set<'a>(
        kept: &'a mut Option<Self>,
        path: &topology::Path,
        mode: Option<RealMode>,
    ) -> Result<Option<&'a Self>> {
        if kept.is_none() && mode.is_none() {
            return Ok(None);
        }
        let switch = match kept {
            Some(switch) => switch,
            None => {
                let agent = Agent::start(path.receiver(), "tcp-real")?;
                kept.insert(Self { agent, mode: None })
            }
        };
        if switch.mode != mode {
            switch.agent.bestby("tcp-real off")?;
            if let Some(mode) = mode {
                switch.agent.bestby(&format!("tcp-real on --mode {mode}"))?;
            }
            switch.mode = mode;
        }
        Ok(mode.is_some().then_some(switch))
    }

    /// What it has counted since it was switched on.
    pub fn counters(&self) -> Result<RealCounters> {
        let all: TcpReal = serde_json::from_value(self.agent.json("tcp-real ls")?)?;
        Ok(all.counters)
    }
}

/// An agent that stands still; goes on when this is dropped.
#[derive(Debug)]
pub struct Paused(Pid);

impl Drop for Paused {
    fn drop(&mut self) {
        // Fails only for an agent that is gone, which the next command will say.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SIGKILL is what the data path must survive anyway; detach comes before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Name, state and kernel stack of each thread: what a process that does not answer waits for.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = tasks.into_iter().flatten().flatten().map(|task| {
        let file = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = file("status");
        let lines = status
            .lines()
            .filter(|l| l.starts_with("Name:") || l.starts_with("State:"));
        format!("{}\n{}", lines.collect::<Vec<_>>().join(" "), file("stack"))
    });
    threads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_their_states_and_of_no_process_there_are_none() {
        assert!(threads(std::process::id()).contains("State:"));
        assert_eq!(threads(u32::MAX), "");
    }
}
