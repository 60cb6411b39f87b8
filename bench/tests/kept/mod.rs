//! The lab as a program, on the runs that are kept in bench/runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where they are; those of triage alone in `triage` below.
pub(crate) fn runs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs")
}

/// What the lab says when it is started in `directory`: a scenario of real media encodes there.
pub(crate) fn lab(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bestby-lab"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Restores all archives of a directory to `out`; the names of their scenarios.
pub(crate) fn restore(kept: &Path, directory: &Path, out: &str) -> Vec<String> {
    let mut archives: Vec<String> = fs::read_dir(kept)
        .unwrap_or_else(|error| panic!("{}: {error}", kept.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    archives.sort_unstable();
    assert!(!archives.is_empty());
    let mut arguments = vec!["restore", "--out", out];
    arguments.extend(archives.iter().map(String::as_str));
    let restored = lab(directory, &arguments);
    assert_eq!(restored.lines().count(), archives.len(), "{restored}");
    let name = |line: &str| {
        let made = line.split(": ").next().expect("a path");
        made.rsplit('/').next().expect("a name").to_owned()
    };
    restored.lines().map(name).collect()
}
