//! One running `srt-live-transmit`.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{PROGRAM, counters};
use crate::{cleanup, netns::Netns, run, wait::Wait};

/// Far longer than any handshake over a path of the lab takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Packets from one report to the next: a report costs as much as some packets do.
const REPORT_EVERY: u32 = 20;

/// The program, what it says and what it reports; killed when dropped.
#[derive(Debug)]
pub(super) struct Tool {
    child: Child,
    role: &'static str,
    directory: PathBuf,
    _files: cleanup::Guard,
}

impl Tool {
    /// Starts it inside `ns` from one URI to another.
    pub(super) fn start(ns: &Netns, role: &'static str, uris: [&String; 2]) -> Result<Self> {
        let name = format!("bestby-lab-{}-srt-{role}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        let files = cleanup::on_exit({
            let directory = directory.clone();
            move || drop(fs::remove_dir_all(&directory))
        });
        let log = fs::File::create(directory.join("log")).context("its log")?;
        let mut command = ns.command(PROGRAM)?;
        command
            .args(["-chunk:1456", "-autoreconnect:no"])
            .args(["-fullstats", "-statspf:json"])
            .arg(format!("-stats:{REPORT_EVERY}"))
            .arg(format!("-statsout:{}", directory.join("stats").display()))
            .args(uris)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command
            .spawn()
            .with_context(|| format!("starting `{}` in {}", run::line(&command), ns.name()))?;
        Ok(Self {
            child,
            role,
            directory,
            _files: files,
        })
    }

    /// What it has said so far.
    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Waits until `ready` holds, for as long as the program runs.
    fn wait(&mut self, what: &str, ready: impl Fn(&Self) -> Result<bool>) -> Result<()> {
        let mut wait = Wait::new(PATIENCE);
        while !ready(self)? {
            let state = match self.child.try_wait()? {
                Some(status) => format!("ended ({status}) before"),
                None if wait.pause() => continue,
                None => "does not come to".to_owned(),
            };
            bail!("SRT's {} {state} `{what}`:\n{}", self.role, self.log());
        }
        Ok(())
    }

    /// Waits until it has said `words`.
    pub(super) fn wait_for(&mut self, words: &str) -> Result<()> {
        self.wait(words, |tool| Ok(tool.log().contains(words)))
    }

    /// Waits until UDP `port` is taken inside `ns`: a listener says nothing when it is ready.
    pub(super) fn wait_bound(&mut self, ns: &Netns, port: u16) -> Result<()> {
        let suffix = format!(":{port:04X}");
        self.wait("listening", |_| {
            let file = "/proc/thread-self/net/udp";
            let text = ns.enter(|| fs::read_to_string(file).context(file))?;
            Ok(text.lines().any(|line| {
                let local = line.split_whitespace().nth(1);
                local.is_some_and(|address| address.ends_with(&suffix))
            }))
        })
    }

    /// Reads the files that the program has mapped, so that no page of them is waited for later:
    /// in virtual time the clock runs on while a disk is read, past SRT's timeouts.
    pub(super) fn bring_into_memory(&self) -> Result<()> {
        let maps = format!("/proc/{}/maps", self.child.id());
        let text = fs::read_to_string(&maps).with_context(|| format!("reading {maps}"))?;
        let files: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .collect();
        for file in files {
            fs::read(file).with_context(|| format!("reading {file}"))?;
        }
        Ok(())
    }

    /// That it still runs and has not said `end`.
    pub(super) fn check(&mut self, end: &str) -> Result<()> {
        let status = self.child.try_wait()?;
        let log = self.log();
        ensure!(
            status.is_none() && !log.contains(end),
            "SRT's {} lost its connection during the run:\n{log}",
            self.role
        );
        Ok(())
    }

    /// Its last report; `None` if fewer than [`REPORT_EVERY`] packets came to it.
    pub(super) fn last_report(&self) -> Result<Option<serde_json::Value>> {
        let file = self.directory.join("stats");
        let text = fs::read_to_string(&file)
            .with_context(|| format!("reading SRT's reports in {}", file.display()))?;
        counters::last(&text)
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
