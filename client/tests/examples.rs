//! The examples run, on any host. Cargo builds them with the tests of the package.

#![allow(clippy::unwrap_used)]

use std::{
    env,
    net::UdpSocket,
    process::{Command, Stdio},
};

fn example(name: &str) -> Command {
    let mut path = env::current_exe().unwrap();
    // target/debug/deps/examples-HASH
    path.pop();
    path.set_file_name("examples");
    path.push(name);
    assert!(
        path.exists(),
        "{}: cargo build -p bestby --examples",
        path.display()
    );
    Command::new(path)
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(output.stderr)
    );
    text(output.stdout)
}

/// The number before `word` in `text`.
fn number(text: &str, word: &str) -> u32 {
    let words: Vec<&str> = text.split([' ', '\n', ',']).collect();
    let at = words
        .iter()
        .position(|w| *w == word)
        .unwrap_or_else(|| panic!("{word} in {text}"));
    words[at - 1].parse().unwrap()
}

#[test]
fn camera_over_loopback_arrives_in_time() {
    let port = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let receiver = example("camera")
        .args(["receive", &port, "4"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever comes first: the sender goes on without a receiver.
    let sent = output(example("camera").args(["send", &port, "2"]));
    let received = receiver.wait_with_output().unwrap();
    assert!(received.status.success());
    let received = String::from_utf8(received.stdout).unwrap();

    let (audio, video) = (number(&sent, "audio"), number(&sent, "video"));
    // 2 s at 50 and 25 frames/s; fewer on a busy machine, never more.
    assert!(
        (1..=101).contains(&audio) && (1..=51).contains(&video),
        "{sent}"
    );
    let (audio_in_time, video_in_time) = (number(&received, "audio"), number(&received, "video"));
    assert!((1..=audio).contains(&audio_in_time), "{sent}{received}");
    // At most 9 packets per frame, and 50 for one of 25.
    assert!(
        (1..=9 * video + 50).contains(&video_in_time),
        "{sent}{received}"
    );
}

#[test]
fn sockopt_and_txtime_examples_run_without_bestby() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = sink.local_addr().unwrap().to_string();
    for name in ["sockopt", "txtime"] {
        let text = output(example(name).arg(&to));
        if bestby::is_active() {
            assert!(text.contains("SocketStats"), "{name}: {text}");
        } else {
            assert!(text.contains("active"), "{name}: {text}");
        }
    }
}

#[test]
fn example_with_wrong_arguments_fails_with_a_message() {
    let mut wrong = vec![
        ("camera", vec![]),
        ("camera", vec!["send", "nowhere", "1"]),
        ("txtime", vec![]),
        ("game", vec![]),
        ("game", vec!["nowhere"]),
        ("layers", vec!["send"]),
        ("layers", vec!["receive", "nowhere"]),
    ];
    if cfg!(feature = "tokio") {
        wrong.extend([("flv", vec![]), ("flv", vec!["nowhere"])]);
        wrong.extend([("rtsp", vec![]), ("rtsp", vec!["nowhere"])]);
    }
    for (name, args) in wrong {
        let output = example(name).args(args).output().unwrap();
        assert!(!output.status.success() && !output.stderr.is_empty());
    }
}
