//! What every result must carry to be believed.

use std::{env, fmt, fs};

use serde::{Deserialize, Serialize};

use crate::run;

/// Where and how a result was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// `uname -r`.
    pub kernel: String,
    /// The source tree's: what changes there while a series is under way is not in the programs
    /// that make it. `+` behind it when files differed from it; empty outside of a tree.
    pub commit: String,
    /// Processor, and `virtual time` when one instruction is 2 ns (`tests/vm/run --icount`).
    pub machine: String,
    /// The command lines, that of the first start first.
    pub commands: Vec<String>,
}

impl Provenance {
    /// Of what this process measures.
    pub(crate) fn here() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self::on(kernel.trim().to_owned(), machine())
    }

    /// Of what guests in virtual time measure for this process.
    pub(crate) fn of_guests(kernel: String) -> Self {
        Self::on(kernel, "QEMU TCG, VM in virtual time".into())
    }

    fn on(kernel: String, machine: String) -> Self {
        Self {
            kernel,
            commit: commit(),
            machine,
            commands: vec![env::args().map(quoted).collect::<Vec<_>>().join(" ")],
        }
    }

    /// Adds the command lines of another start.
    pub(crate) fn add(&mut self, commands: &[String]) {
        for command in commands {
            if !self.commands.contains(command) {
                self.commands.push(command.clone());
            }
        }
    }
}

fn commit() -> String {
    let git = |words| run::sh(&format!("git -c safe.directory=* {words}")).unwrap_or_default();
    let commit = git("rev-parse --short=12 HEAD");
    let changed = !git("status --porcelain --untracked-files=no")
        .trim()
        .is_empty();
    commit.trim().to_owned() + if changed { "+" } else { "" }
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

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux {}, {}, commit {}, `{}`",
            self.kernel,
            self.machine,
            self.commit,
            self.commands.join("`, then `")
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
pub(crate) fn virtual_time() -> bool {
    env::var("BESTBY_ICOUNT").is_ok_and(|icount| icount == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_quoted_can_be_typed_again() {
        let words = ["--only", "pfifo 5", "owd=40_load=1.5", "it's", ""];
        let line = words.map(|word| quoted(word.into())).join(" ");
        assert_eq!(line, r"--only 'pfifo 5' owd=40_load=1.5 'it'\''s' ''");
    }
}
