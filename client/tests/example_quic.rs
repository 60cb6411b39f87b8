//! The example `quic`: every frame over loopback, and wrong use.
#![cfg(feature = "quic")]
#![allow(clippy::unwrap_used)]

use std::{
    env,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
};

fn example() -> Command {
    let mut path = env::current_exe().unwrap();
    path.pop(); // target/debug/deps/example_quic-HASH
    path.set_file_name("examples");
    let mut command = Command::new(path.join("quic"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls"));
    command
}

#[test]
fn frames_arrive_once_and_whole() {
    let mut receiver = example()
        .args(["receive", "127.0.0.1:0", "cert.der", "key.der"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(receiver.stdout.take().unwrap());
    let mut address = String::new();
    says.read_line(&mut address).unwrap();
    let sent = example()
        .args(["send", address.trim(), "cert.der"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&sent.stderr);
    assert!(sent.status.success(), "{error}");
    let mut said = String::new();
    says.read_to_string(&mut said).unwrap();
    assert!(receiver.wait().unwrap().success());
    println!("{}{said}", String::from_utf8_lossy(&sent.stdout));
    // A busy machine may be late with some.
    let frames: u32 = said.split(' ').next().unwrap().parse().unwrap();
    assert!((1..=100).contains(&frames), "{said}");
}

#[test]
fn wrong_use_fails_with_a_message() {
    for args in [
        &[][..],
        &["send", "nowhere", "cert.der"],
        &["send", "127.0.0.1:1", "no file"],
        // A key is no certificate.
        &["receive", "127.0.0.1:0", "key.der", "key.der"],
    ] {
        let output = example().args(args).output().unwrap();
        assert!(
            !output.status.success() && !output.stderr.is_empty(),
            "{args:?}"
        );
    }
}
