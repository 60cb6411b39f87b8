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

/// Restores all archives of a directory to `out`; the names of their scenarios.
fn restore(kept: &Path, directory: &Path, out: &str) -> Vec<String> {
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

fn has_a_table_of_each(tables: &str, names: &[String]) {
    for name in names {
        assert!(
            tables.contains(&format!("### {name}: ")),
            "no table of {name}"
        );
    }
    // A cell without runs would have a dash.
    assert!(!tables.contains("| – |"), "{tables}");
}

#[test]
fn every_archive_is_restored_and_makes_its_table() {
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs");
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (all, triage) = (path("kept"), path("triage"));
    let names = restore(&kept, directory.path(), &all);
    let show = |arguments: &[&str]| lab(directory.path(), arguments);
    let columns = "audio %,frames %";
    has_a_table_of_each(&show(&["report", &all, "--table", columns]), &names);

    // The queue of today beside the peers of before.
    let names = restore(&kept.join("triage"), directory.path(), &triage);
    let tables = show(&["report", &triage, "--beside", &all, "--table", columns]);
    has_a_table_of_each(&tables, &names);
    let with_peers = tables.matches("\nBeside it ").count();
    assert_eq!(with_peers, names.len(), "{tables}");
}
