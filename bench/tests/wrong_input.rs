//! What a user gets wrong is said in one line, with what to do, and makes nothing.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

const SCENARIO: &str = r#"
title = "x"
seconds = 2
queues = ["pfifo 5"]
[topology]
load = 2
owd = 5
[traffic]
model = "conference"
"#;

/// The words of a run of `scenario` that must fail.
fn words(directory: &Path, scenario: &str, arguments: &[&str]) -> String {
    let file = directory.join("x.toml");
    fs::write(&file, scenario).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bestby-lab"));
    command
        .arg("run")
        .arg(&file)
        .args(arguments)
        .current_dir(directory)
        // A developer's setting must not add a backtrace either.
        .env("RUST_BACKTRACE", "1");
    let output = command.output().expect("started");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    words
}

#[test]
fn a_wrong_scenario_is_named_with_file_line_and_what_would_be_right() {
    let directory = tempfile::tempdir().expect("a directory");
    for (right, wrong, line, word) in [
        ("seconds", "secnds", 3, "unknown field `secnds`"),
        ("owd = 5", "owd = \"far\"", 7, "a delay in ms"),
        ("\"pfifo 5\"", "", 4, "at least one"),
        ("load = 2", "load = []", 6, "empty list"),
        ("load = 2", "load = 0", 6, "must be 0.01 to 100, not 0"),
        ("pfifo 5", "pfifoo 5", 4, "no queue `pfifoo 5`: there are"),
        ("conference", "confrence", 9, "unknown variant `confrence`"),
    ] {
        let text = SCENARIO.replace(right, wrong);
        let words = words(directory.path(), &text, &["--list"]);
        assert!(words.contains(&format!("x.toml:{line}: ")), "{words}");
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn an_out_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = words(directory.path(), SCENARIO, &["--out", "x.toml/out"]);
    assert!(words.contains("x.toml/out"), "{words}");
}

#[test]
fn who_is_not_root_is_told_so_before_any_run() {
    let directory = tempfile::tempdir().expect("a directory");
    // Readable by whoever it is that the test becomes.
    let shared = tempfile::tempdir().expect("a directory");
    let program = shared.path().join("bestby-lab");
    // By a process of its own: a child that another test starts meanwhile would hold what this one writes, and Linux
    // runs no program that is open for writing.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_bestby-lab"))
        .arg(&program)
        .status();
    assert!(copied.expect("cp started").success());
    let scenario = shared.path().join("x.toml");
    fs::write(&scenario, SCENARIO).expect("written");
    let mut command = Command::new(&program);
    command.arg("run").arg(&scenario).arg("--out");
    // SAFETY: it only reads the process' credentials.
    if unsafe { libc::geteuid() } == 0 {
        let out = directory.path();
        for path in [shared.path(), out] {
            let all = fs::Permissions::from_mode(0o777);
            fs::set_permissions(path, all).expect("opened to all");
        }
        command.arg(out).uid(65_534).gid(65_534);
    } else {
        command.arg(directory.path());
    }
    let output = command.output().expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("those need root"), "{words}");
}
