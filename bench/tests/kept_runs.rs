//! The runs behind docs/results.md, in bench/runs, can be shown by the lab as it is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the lab says when it is started in `directory`: a scenario of real media encodes there.
fn lab(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bestby-lab"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_archive_is_restored_and_makes_its_table() {
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs");
    let mut archives: Vec<String> = fs::read_dir(kept)
        .expect("bench/runs")
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .collect();
    archives.sort_unstable();
    assert!(!archives.is_empty());
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("kept").display().to_string();
    let mut arguments = vec!["restore", "--out", &out];
    arguments.extend(archives.iter().map(String::as_str));
    let restored = lab(directory.path(), &arguments);
    assert_eq!(restored.lines().count(), archives.len(), "{restored}");
    let tables = lab(
        directory.path(),
        &["report", &out, "--table", "audio %,frames %"],
    );
    for line in restored.lines() {
        let made = line.split(": ").next().expect("a path");
        let name = made.rsplit('/').next().expect("a name");
        assert!(
            tables.contains(&format!("### {name}: ")),
            "no table of {name}"
        );
    }
    // A cell without runs would have a dash.
    assert!(!tables.contains("| – |"), "{tables}");
}
