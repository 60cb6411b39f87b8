//! The demo is the first thing a new user runs: it must show the gain, say what
//! it says in every form, and leave nothing behind.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, process::Command};

use bestby_tests::agent::binary;
use serde_json::Value;

/// What a demo that ended badly could leave: namespaces, pins, programs.
fn traces() -> BTreeSet<String> {
    let names = |directory: &str| {
        fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().display().to_string())
            .filter(|path| path.contains("bbl-") || path.contains("bestby-lab-"))
            .collect::<Vec<_>>()
    };
    [names("/run/netns"), names("/sys/fs/bpf")]
        .concat()
        .into_iter()
        .collect()
}

fn share(packets: &Value) -> f64 {
    packets["on_time"].as_f64().unwrap() / packets["offered"].as_f64().unwrap()
}

#[test]
fn the_demo_shows_the_gain_and_leaves_nothing() {
    let before = traces();
    let directory = tempfile::tempdir().unwrap();
    let (json, plot) = (
        directory.path().join("demo.json"),
        directory.path().join("demo.svg"),
    );
    let output = Command::new(binary("bestby-demo"))
        .args(["--seconds", "6", "--json"])
        .arg(&json)
        .arg("--plot")
        .arg(&plot)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{stdout}\n{stderr}");
    assert!(output.status.success(), "{stderr}");
    for words in [
        "audio packets on time",
        "stale packets sent",
        "plain FIFO",
        "frames marked",
    ] {
        assert!(stdout.contains(words), "no `{words}` in the table");
    }
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));

    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [fifo, rules, marked] = report["runs"].as_array().unwrap().as_slice() else {
        panic!("not three runs: {report}")
    };
    for run in [fifo, rules, marked] {
        let figures = &run["figures"];
        assert!(
            figures["audio"]["offered"].as_u64().unwrap() > 280,
            "{figures}"
        );
        assert_eq!(figures["frames"]["offered"], 150);
    }
    // The link carries half of what is offered: a long FIFO delivers all of it late.
    assert!(share(&fifo["figures"]["audio"]) < 0.1);
    for run in [rules, marked] {
        let (audio, video) = (&run["figures"]["audio"], &run["figures"]["video"]);
        // Real time on a machine that may be busy: far from the FIFO's shares, not the figures.
        assert!(share(audio) > 0.5, "audio on time: {audio}");
        let stale = audio["stale"].as_u64().unwrap() + video["stale"].as_u64().unwrap();
        let offered = audio["offered"].as_u64().unwrap() + video["offered"].as_u64().unwrap();
        assert!(
            stale * 5 < offered,
            "{stale} of {offered} packets arrived too late"
        );
        assert!(
            share(&run["figures"]["frames"]) > 2.0 * share(&fifo["figures"]["frames"]),
            "{}",
            run["figures"]["frames"]
        );
        // Learnt from a TCP connection over 40 ms each way, not told.
        let owd = run["learnt_owd_ms"].as_f64().expect("no delay learnt");
        assert!((39.0..200.0).contains(&owd), "learnt {owd} ms");
    }
    assert!(marked["decoded"]["intact"].as_u64().unwrap() > 0);
    assert_eq!(before, traces(), "the demo left something behind");
}

#[test]
fn without_privilege_it_says_so() {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(binary("bestby-demo"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("run it as root"), "{stderr}");
}
