//! What every result must carry to be believed.

use std::{env, fs};

use serde::{Deserialize, Serialize};

use crate::run;

/// Where and how a result was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// `uname -r`.
    pub kernel: String,
    /// The source tree's, see [`commit`].
    pub commit: String,
    /// The command line; of a series that of its first start.
    pub command: String,
    /// The other command lines that a series was gone on with, in this order: what is shown
    /// is of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<String>,
    /// Seed of the traffic.
    pub seed: u64,
    /// Processor, and `virtual time` when one instruction is 2 ns (`tests/vm/run --icount`).
    pub machine: String,
}

/// What a program that starts itself in a VM was started with, for that VM's results.
pub const COMMAND: &str = "BESTBY_LAB_COMMAND";

/// The [`commit`] of the tree that such a program was started from: what changes there while
/// a series is under way is not in the programs that make it.
pub const COMMIT: &str = "BESTBY_LAB_COMMIT";

/// Commit of the source tree as it is now, `+` when files differ from it; empty outside one.
pub fn commit() -> String {
    let commit = run::sh("git -c safe.directory=* rev-parse --short=12 HEAD")
        .map(|c| c.trim().to_owned())
        .unwrap_or_default();
    let changed = run::sh("git -c safe.directory=* status --porcelain --untracked-files=no")
        .is_ok_and(|list| !list.trim().is_empty());
    commit + if changed { "+" } else { "" }
}

/// This process' command line, as a shell would take it.
pub fn command_line() -> String {
    env::args().map(quoted).collect::<Vec<_>>().join(" ")
}

/// A word of a command line: between quotes if a shell would make more of it.
fn quoted(word: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl Provenance {
    /// Of this process.
    pub fn here(seed: u64) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            kernel: kernel.trim().to_owned(),
            commit: env::var(COMMIT).unwrap_or_else(|_| commit()),
            command: env::var(COMMAND).unwrap_or_else(|_| command_line()),
            later: Vec::new(),
            seed,
            machine: machine(),
        }
    }

    /// The same, gone on with by `command`.
    pub(crate) fn and(mut self, command: &str) -> Self {
        if self.commands().all(|known| known != command) {
            self.later.push(command.to_owned());
        }
        self
    }

    /// All command lines, in the order of their first starts.
    pub fn commands(&self) -> impl Iterator<Item = &str> {
        let later = self.later.iter().map(String::as_str);
        std::iter::once(self.command.as_str()).chain(later)
    }

    /// All command lines as Markdown.
    pub(super) fn commands_text(&self) -> String {
        let quoted: Vec<String> = self.commands().map(|c| format!("`{c}`")).collect();
        quoted.join(", then ")
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Linux {}, {}, commit {}, seed {}, {}",
            self.kernel,
            self.machine,
            self.commit,
            self.seed,
            self.commands_text()
        )
    }
}

fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(':').nth(1))
        .unwrap_or(env::consts::ARCH)
        .trim()
        .to_owned();
    match (env::var("BESTBY_VM"), virtual_time()) {
        (Ok(_), true) => format!("{model}, VM in virtual time"),
        (Ok(_), false) => format!("{model}, VM"),
        _ => model,
    }
}

/// Whether guest time counts instructions, as `tests/vm/run --icount` says.
pub fn virtual_time() -> bool {
    env::var("BESTBY_ICOUNT").is_ok_and(|icount| icount == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let words = ["--only", "pfifo 5", "owd=40_load=1.5", "it's", ""];
        let line = words.map(|word| quoted(word.into())).join(" ");
        assert_eq!(line, r"--only 'pfifo 5' owd=40_load=1.5 'it'\''s' ''");
    }
}
