//! `bestby-lab ... | head -1`: nobody reads what the lab prints, and it ends without a word.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

fn ends_quietly(arguments: &[&str]) {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_bestby-lab"))
        .args(arguments)
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
    assert_eq!(words, "", "{arguments:?}");
}

#[test]
fn a_closed_output_ends_the_lab_quietly() {
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/sweep.toml");
    let scenario = scenario.to_string_lossy();
    ends_quietly(&["run", &scenario, "--list"]);
}
