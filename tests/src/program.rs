//! Programs of bestby, and programs that run to their end.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::netns::Netns;

/// Where a program of bestby is: told by tests/vm/suite, else beside the test program.
///
/// # Panics
/// When it is not built.
pub fn binary(name: &str) -> PathBuf {
    let beside = || {
        let program = std::env::current_exe().unwrap();
        program.ancestors().nth(2).unwrap().to_path_buf()
    };
    let dir = std::env::var_os("BESTBY_BIN_DIR").map_or_else(beside, PathBuf::from);
    let path = dir.join(name);
    assert!(
        path.exists(),
        "{} is not built: cargo build --workspace --bins",
        path.display()
    );
    path
}

/// `bestby-lab run` of this scenario, results in `out`.
pub fn lab(scenario: &Path, out: &Path) -> Command {
    let mut command = Command::new(binary("bestby-lab"));
    command.arg("run").arg(scenario).arg("--out").arg(out);
    command
}

/// The first run of a cell of a scenario, judged.
///
/// # Panics
/// Without it.
pub fn run(out: &Path, scenario: &str, cell: &str) -> Value {
    let file = out.join(scenario).join(cell).join("run-0.json");
    let text = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_slice(&text).unwrap()
}

/// What a program wrote, standard output first.
pub fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text))
        .join("\n")
}

/// Runs it, prints what it says, and returns that.
///
/// # Panics
/// When it cannot be started or fails.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = said(&output);
    println!("{text}");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    text
}

/// A program of the system for tests in virtual time, with all its libraries in the guest's memory.
///
/// While a program waits for a page that is on the host's disk, the guest is idle, and virtual time goes on to the next
/// timer: of a sender and a receiver, the receiver's patience ends before the sender's first packet.
#[derive(Debug, Clone)]
pub struct InMemory {
    program: PathBuf,
    libraries: PathBuf,
}

impl InMemory {
    /// Copies it into a directory; outside of a guest it stays where it is.
    ///
    /// # Panics
    /// There is no such program.
    pub fn new(name: &str, directory: &Path) -> Self {
        let libraries = directory.to_path_buf();
        if std::env::var_os("BESTBY_VM").is_none() {
            let program = name.into();
            return Self { program, libraries };
        }
        let mut find = Command::new("sh");
        find.args(["-c", "command -v \"$0\" && ldd \"$(command -v \"$0\")\""]);
        let found = find.arg(name).output().unwrap();
        assert!(found.status.success(), "{name}: {}", said(&found));
        let listed = String::from_utf8(found.stdout).unwrap();
        // `/usr/bin/ffmpeg`, then lines like `libm.so.6 => /lib/libm.so.6 (0x7f)`.
        let mut lines = listed.lines();
        let program = libraries.join(name);
        std::fs::copy(lines.next().unwrap(), &program).unwrap();
        for line in lines {
            if let Some((library, path)) = line.trim().split_once(" => ") {
                let path = path.split(" (").next().unwrap();
                std::fs::copy(path, libraries.join(library)).unwrap();
            }
        }
        Self { program, libraries }
    }

    /// To be started in this namespace.
    pub fn command(&self, netns: &Netns) -> Command {
        let mut command = netns.command(&self.program);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command
    }
}
