//! Programs of bestby, and programs that run to their end.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

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
