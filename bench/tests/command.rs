//! What a user gets wrong is said in one line, with what to do, and makes nothing; a closed
//! output (`bestby-lab ... | head -1`) ends the lab without a word.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bestby-lab");
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

/// A run of `scenario` by `program`, both in `directory`.
fn run(program: impl AsRef<OsStr>, directory: &Path, scenario: &str) -> Command {
    fs::write(directory.join("x.toml"), scenario).expect("written");
    let mut command = Command::new(program);
    // A developer's setting must not add a backtrace.
    command.current_dir(directory).env("RUST_BACKTRACE", "1");
    command.args(["run", "x.toml"]);
    command
}

/// The words of a command that must fail.
fn words(command: &mut Command) -> String {
    let output = command.output().expect("started");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert_eq!(words.lines().count(), 1, "{words}");
    words
}

#[test]
fn scenario_with_an_error_is_refused_with_its_line_and_what_would_be_right() {
    let directory = tempfile::tempdir().expect("a directory");
    for (right, wrong, line, word) in [
        ("seconds", "secnds", 3, "unknown field `secnds`"),
        ("owd = 5", "owd = \"far\"", 7, "owd (ms)"),
        ("\"pfifo 5\"", "", 4, "at least one"),
        ("load = 2", "load = []", 6, "empty list"),
        ("load = 2", "load = 0", 6, "must be 0.01 to 100, not 0"),
        ("pfifo 5", "pfifoo 5", 4, "no queue `pfifoo 5`"),
        ("conference", "confrence", 9, "unknown variant `confrence`"),
    ] {
        let text = SCENARIO.replace(right, wrong);
        let words = words(run(PROGRAM, directory.path(), &text).arg("--list"));
        assert!(words.contains(&format!("x.toml:{line}: ")), "{words}");
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn out_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = words(run(PROGRAM, directory.path(), SCENARIO).args(["--out", "x.toml/out"]));
    assert!(words.contains("x.toml/out"), "{words}");
}

#[test]
fn user_who_is_not_root_is_told_so_before_any_run() {
    // Readable by whoever it is that the test becomes.
    let shared = tempfile::tempdir().expect("a directory");
    // By a process of its own: a child that another test starts meanwhile would hold what this
    // one writes, and Linux runs no program that is open for writing.
    let copied = Command::new("cp").arg(PROGRAM).arg(shared.path()).status();
    assert!(copied.expect("cp started").success());
    let program = shared.path().join("bestby-lab");
    let mut command = run(program, shared.path(), SCENARIO);
    command.args(["--out", "out"]);
    // SAFETY: it only reads the process' credentials.
    if unsafe { libc::geteuid() } == 0 {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(shared.path(), all).expect("opened to all");
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("need root"), "{words}");
}

#[test]
fn output_that_is_closed_ends_the_lab_quietly() {
    let directory = tempfile::tempdir().expect("a directory");
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut command = run(PROGRAM, directory.path(), SCENARIO);
    let output = command.arg("--list").stdout(writer).output();
    let output = output.expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert_eq!(words, "");
}
