//! The demo is the first thing a new user runs: it must say what it says in every
//! form, count every packet once, and leave nothing behind.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, fs, process::Command};

use bestby_tests::program::{binary, said, succeed};
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

#[test]
fn the_demo_accounts_for_everything_and_leaves_nothing() {
    let before = traces();
    let directory = tempfile::tempdir().unwrap();
    let (json, plot) = (
        directory.path().join("demo.json"),
        directory.path().join("demo.svg"),
    );
    let mut demo = Command::new(binary("bestby-demo"));
    demo.args(["--seconds", "6", "--json"]).arg(&json);
    let text = succeed(demo.arg("--plot").arg(&plot));
    for words in [
        "audio packets on time",
        "stale packets sent",
        "plain FIFO",
        "frames marked",
    ] {
        assert!(text.contains(words), "no `{words}` in the table");
    }
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));

    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [fifo, rules, marked] = report["runs"].as_array().unwrap().as_slice() else {
        panic!("not three runs: {report}")
    };
    // What holds however busy the machine is. That bestby helps is shown in virtual time (vm_icount_demo), that
    // marking frames does, by what a decoder needs (bench/src/demo/marking.rs).
    for run in [fifo, rules, marked] {
        let figures = &run["figures"];
        let count = |of: &Value, what: &str| of[what].as_u64().unwrap();
        for stream in ["audio", "video"] {
            let packets = &figures[stream];
            let arrived = count(packets, "on_time") + count(packets, "stale");
            assert_eq!(
                count(packets, "offered"),
                arrived + count(packets, "dropped"),
                "{packets}"
            );
            assert!(arrived > 0, "{packets}");
        }
        assert!(count(&figures["audio"], "offered") > 280, "{figures}");
        assert_eq!(figures["frames"]["offered"], 150);
        // Only what came in time is decoded, and only what was decoded can be intact.
        let (frames, decoded) = (&figures["frames"], &run["decoded"]);
        assert!(
            count(decoded, "frames") <= count(frames, "on_time"),
            "{run}"
        );
        assert!(
            count(decoded, "intact") <= count(decoded, "frames"),
            "{run}"
        );
    }
    for run in [rules, marked] {
        // Learnt from a TCP connection over 40 ms each way, not told; a busy machine only adds to it.
        let owd = run["learnt_owd_ms"].as_f64().expect("no delay learnt");
        assert!(owd >= 39.0, "learnt {owd} ms");
        assert!(run["mode"].is_string(), "{run}");
    }
    assert!(
        fifo["mode"].is_null() && fifo["learnt_owd_ms"].is_null(),
        "{fifo}"
    );
    assert_eq!(before, traces(), "the demo left something behind");
}

#[test]
fn without_privilege_it_says_so() {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(binary("bestby-demo"))
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("run it as root"), "{text}");
}
