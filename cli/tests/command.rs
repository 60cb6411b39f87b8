//! The command as a process: exit codes, standard error, pipes. The other side of the socket is a few bytes
//! here; the real agent is asked in the workspace's tests/.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; clippy allows it in #[test] functions only"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

fn bestby(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bestby"))
        .args(args)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Answers one request with these bytes and gives back what was asked.
fn agent(socket: &Path, answer: &'static str) -> thread::JoinHandle<String> {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 65536];
        let n = stream.read(&mut request).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..n]).into_owned()
    })
}

fn http(status: &str, body: &str) -> &'static str {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    Box::leak(text.into_boxed_str())
}

#[test]
fn command_without_an_agent_fails_and_names_systemctl() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("no.sock");
    let output = bestby(&["--socket", socket.to_str().unwrap(), "stats"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(socket.to_str().unwrap()), "{text}");
    assert!(text.contains("systemctl start bestbyd"), "{text}");

    // A socket that nobody listens to any more.
    drop(UnixListener::bind(&socket).unwrap());
    let text = stderr(&bestby(&[
        "--socket",
        socket.to_str().unwrap(),
        "--json",
        "stats",
    ]));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(
        json["error"]["message"]
            .as_str()
            .unwrap()
            .contains("listens"),
        "{text}"
    );
}

#[test]
fn doctor_without_an_agent_prints_checks_and_fails() {
    let output = bestby(&["--socket", "/nonexistent/socket", "--json", "doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    assert_eq!(
        (&checks[0]["id"], &checks[0]["status"]),
        (&"agent".into(), &"fail".into())
    );
    let ids: Vec<&str> = checks.iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(
        ids,
        [
            "agent",
            "mode-tc",
            "tcp-real",
            "tcx-attach",
            "netkit",
            "so-priority-cmsg",
            "mode-qdisc",
            "btf",
            "mounts",
            "data-path"
        ]
    );
    // What the kernel was asked has one of the answers, and never none.
    for check in checks {
        let status = check["status"].as_str().unwrap();
        assert!(
            ["ok", "unknown", "warn", "fail"].contains(&status),
            "{check}"
        );
    }
}

#[test]
fn report_without_an_agent_says_what_failed_and_takes_no_files_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.txt");
    let config = dir.path().join("b.toml");
    std::fs::write(&config, "# 192.0.2.77 and 2001:db8::77\n").unwrap();
    let report = |more: &[&str]| {
        let mut args = vec!["--socket", "/nonexistent/socket", "report"];
        args.extend(["--config", config.to_str().unwrap()]);
        args.extend(more);
        bestby(&args)
    };
    let output = report(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = std::fs::read_to_string(&file).unwrap();
    let (_, status) = text.split_once("=== bestby --json status\n").unwrap();
    assert!(status.starts_with("FAILED: no agent answers"), "{status}");
    assert!(text.contains("# 192.0.2.77") && text.contains("NOT hidden"));
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // It is somebody's now.
    let output = report(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("exists"), "{}", stderr(&output));

    let output = report(&["-", "--hide-addresses"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("# ipv4-") && !text.contains("192.0.2.77"));
    assert!(!text.contains("2001:db8::77"), "{text}");
}

#[test]
fn report_of_an_agent_that_hangs_waits_once() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    // Connections are accepted by the kernel, and nobody reads.
    let _hangs = UnixListener::bind(&socket).unwrap();
    let output = bestby(&["--socket", socket.to_str().unwrap(), "report", "-"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.matches("FAILED: no answer within 5 s").count(),
        8,
        "{text}"
    );
}

#[test]
fn refusal_of_the_agent_is_printed_and_exits_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let body = r#"{"error":{"message":"cannot attach to eth9: no such interface","hint":"ip link shows them"}}"#;
    let agent = agent(&socket, http("404 Not Found", body));
    let output = bestby(&[
        "--socket",
        socket.to_str().unwrap(),
        "iface",
        "attach",
        "eth9",
        "--rate",
        "1mbit",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "bestby: cannot attach to eth9: no such interface\n  ip link shows them\n"
    );
    let request = agent.join().unwrap();
    assert!(
        request.starts_with("POST /v1/interfaces HTTP/1.1\r\n"),
        "{request}"
    );
    assert!(
        request.ends_with(r#"{"dev":"eth9","rate":"1mbit"}"#),
        "{request}"
    );
}

#[test]
fn malformed_answer_of_the_agent_exits_with_1() {
    for (answer, says) in [
        (http("200 OK", "{}"), "missing"),
        (http("200 OK", "not json"), "understands"),
        (http("500 Internal Server Error", "oops"), "500"),
        ("SSH-2.0-OpenSSH_9.9\r\n", "failed"),
        ("", "failed"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let agent = agent(&socket, answer);
        let output = bestby(&["--socket", socket.to_str().unwrap(), "stats"]);
        agent.join().unwrap();
        assert_eq!(output.status.code(), Some(1), "{answer}");
        assert!(
            stderr(&output).contains(says),
            "{answer}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn name_in_the_request_path_is_percent_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let agent = agent(
        &socket,
        http("200 OK", r#"{"message":"eth0?x is detached"}"#),
    );
    let output = bestby(&[
        "--socket",
        socket.to_str().unwrap(),
        "iface",
        "detach",
        "eth0?x",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "eth0?x is detached\n"
    );
    assert!(
        agent
            .join()
            .unwrap()
            .starts_with("DELETE /v1/interfaces/eth0%3Fx HTTP/1.1")
    );
}

#[test]
fn events_are_printed_until_the_agent_ends() {
    let event = r#"{"time_ns":1,"unix_ns":2,"dev":"eth0","flow":"a","session":"eth0/x","reason":"adu","priority":3,"age_ns":0,"late_ns":-5,"adu":0,"len":9,"observe":false,"truncated":false,"suppressed":0}"#;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let body = format!("\n{event}\n{event}\n");
    let agent = agent(&socket, http("200 OK", &body));
    let output = bestby(&["--socket", socket.to_str().unwrap(), "--json", "events"]);
    agent.join().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{event}\n{event}\n")
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("ended"));
}

#[test]
fn wrong_usage_exits_with_2() {
    for args in [
        &["flow", "add", "a"][..],
        &["flow", "add", "a", "--lifetime", "none"],
        &["flow", "set", "a"],
        &["session", "set", "10.0.0.1"],
        &["explain", "eth0", "nonsense"],
        &["nonsense"],
    ] {
        assert_eq!(bestby(args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(bestby(&["--version"]).status.code(), Some(0));
}

#[test]
fn config_check_without_an_agent_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b.toml");
    std::fs::write(&file, "[[flow]]\nname = \"a\"\nlifetime = \"-1s\"\n").unwrap();
    let name = file.to_str().unwrap();
    let output = bestby(&["config", "check", name]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with(&format!("{name}:3:")), "{text}");
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    std::fs::write(&file, "[[flow]]\nname = \"a\"\nlifetime = \"1s\"\n").unwrap();
    assert_eq!(bestby(&["config", "check", name]).status.code(), Some(0));
    for (strange, says) in [
        ("/nonexistent", "read"),
        ("/dev/zero", "large"),
        ("/", "read"),
        (env!("CARGO_BIN_EXE_bestby"), "UTF-8"),
    ] {
        let output = bestby(&["config", "check", strange]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn closed_pipe_ends_the_command_without_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("b.toml");
    // More than a pipe holds, so that the write fails for certain.
    std::fs::write(&file, "[[flow]]\nx = 1\n".repeat(3000)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_bestby"))
        .args(["config", "check", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stderr(&output), "");
}
