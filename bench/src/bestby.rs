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

use crate::{cleanup, netns, netns::Netns, run, wait::Wait};

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
    bail!(
        "no `{name}` beside {}: build it with `cargo build --release -p {}`",
        own.display(),
        if name == "bestbyd" {
            "bestby-agent"
        } else {
            "bestby-cli"
        }
    )
}

/// This program, as `bestby-lab`, and of bestby's what is there: a series of peers alone
/// needs none.
pub fn programs() -> Result<Vec<(&'static str, PathBuf)>> {
    let own = env::current_exe().context("where is this program?")?;
    let others = ["bestbyd", "bestby"].map(|name| program(name).ok().map(|path| (name, path)));
    Ok([("bestby-lab", own)]
        .into_iter()
        .chain(others.into_iter().flatten())
        .collect())
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
        let log = directory.join("log");
        let file = directory.join("bestby.toml");
        fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        let pins = cleanup::on_exit({
            let (bpffs, directory) = (bpffs.clone(), directory.clone());
            move || {
                // Either may be gone already: the agent removes what it can.
                let _ = remove_pins(&bpffs);
                let _ = fs::remove_dir_all(&directory);
            }
        });
        let output =
            fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
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
                bail!(
                    "bestbyd does not answer on {}:\n{}{}",
                    self.socket.display(),
                    self.log(),
                    threads(self.child.id())
                );
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

    /// Lets the agent stand still until the guard is dropped; packets do not need it.
    pub fn pause(&self) -> Result<Paused> {
        let pid = self.child.id() as libc::pid_t;
        signal(pid, libc::SIGSTOP).context("stopping the agent for a while")?;
        Ok(Paused(pid))
    }
}

/// An agent that stands still; goes on when this is dropped.
#[derive(Debug)]
pub struct Paused(libc::pid_t);

impl Drop for Paused {
    fn drop(&mut self) {
        // Fails only for an agent that is gone, which the next command will say.
        let _ = signal(self.0, libc::SIGCONT);
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) -> std::io::Result<()> {
    // SAFETY: plain integers; the agent is a child that has not been waited for, so
    // its id is still its own.
    if unsafe { libc::kill(pid, signal) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // SIGKILL is what the data path must survive anyway; detach comes before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of each thread of a process a line with its name and state, and where in the kernel it is, which only root is told.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let mut text = String::new();
    for task in tasks.flatten() {
        let file = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        // "PID (NAME) STATE ..."; a name may have spaces.
        let stat = file("stat");
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.get(..1));
        let name = file("comm");
        text += &format!(
            "thread {}: {}\n{}",
            name.trim_end(),
            state.unwrap_or("?"),
            file("stack")
        );
    }
    text
}

/// Removes a directory of pins: bpffs has no recursive removal of its own.
fn remove_pins(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_pins(&path)?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    fs::remove_dir(directory)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use super::*;

    #[test]
    fn a_thread_is_told_with_its_name_and_state() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let waiting = thread::Builder::new()
            .name("a waiting one".into())
            .spawn(move || ended.recv())
            .expect("a thread");
        // It sleeps as soon as it has come to wait.
        let limit = Instant::now() + Duration::from_secs(60);
        while !threads(std::process::id()).contains("thread a waiting one: S\n") {
            assert!(Instant::now() < limit, "{}", threads(std::process::id()));
            thread::sleep(Duration::from_millis(5));
        }
        drop(end);
        assert!(waiting.join().expect("joined").is_err());
        // A process that is gone.
        assert_eq!(threads(u32::MAX), "");
    }
}
