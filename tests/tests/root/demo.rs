//! The demo is the first thing a new user runs: it must count every packet once, show what it
//! says, and leave nothing behind.

use std::{collections::BTreeSet, fs, process::Command};

use bestby_tests::program::{binary, said, succeed};
use serde_json::Value;

/// What a demo that ended badly could leave: namespaces, pins.
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
fn demo_counts_each_packet_once_and_leaves_only_its_files() {
    let before = traces();
    let out = tempfile::tempdir().unwrap();
    let mut demo = Command::new(binary("bestby-lab"));
    let text = succeed(
        demo.args(["demo", "--seconds", "6", "--out"])
            .arg(out.path()),
    );
    for word in ["audio", "FIFO", "marked"] {
        assert!(text.contains(word), "no `{word}` in the table");
    }
    let begins = |name: &str, with: &[u8]| {
        let file = fs::read(out.path().join(name)).unwrap();
        assert!(
            file.windows(with.len()).take(16).any(|part| part == with),
            "{name}"
        );
    };
    begins("demo.mp4", b"ftyp");
    begins("demo.png", b"PNG");
    for name in ["fifo", "tc-rules", "tc-marks"] {
        begins(&format!("{name}.parquet"), b"PAR1");
    }

    let report: Value =
        serde_json::from_slice(&fs::read(out.path().join("demo.json")).unwrap()).unwrap();
    // No virtual machine here: what this kernel can. Each mode is there whole or not at all.
    let runs = report["runs"].as_array().unwrap();
    let (fifo, runs_of_bestby) = runs.split_first().unwrap();
    assert!(matches!(runs_of_bestby.len(), 2 | 4), "{report}");
    // What holds however busy the machine is; demo_in_vm.rs has the rest.
    for run in runs {
        let measures = &run["measures"];
        let count = |what: &str| measures[what].as_u64().unwrap();
        let pair = |what: &str| [0, 1].map(|n| measures[what][n].as_u64().unwrap());
        let ([audio, heard], [video, seen]) = (pair("audio"), pair("video"));
        assert_eq!(count("sent"), audio + video, "{measures}");
        assert_eq!(
            count("sent"),
            heard + seen + count("stale_arrivals") + count("dropped"),
            "{measures}"
        );
        assert!(audio > 280 && heard > 0, "{measures}");
        let [frames, complete] = pair("frames");
        assert_eq!(frames, 180);
        // Only what came in time is decoded, and only what was decoded can be intact.
        let picture = |what: &str| measures["picture"][what].as_u64().unwrap();
        assert!(picture("decoded") <= complete, "{measures}");
        assert!(picture("intact") <= picture("decoded"), "{measures}");
    }
    assert!(fifo["mode"].is_null(), "{fifo}");
    for run in runs_of_bestby {
        assert!(run["mode"].is_string(), "{run}");
    }
    assert_eq!(before, traces(), "the demo left something behind");
}

#[test]
fn demo_without_privilege_asks_for_root() {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups"])
        .arg(binary("bestby-lab"))
        .arg("demo")
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("root"), "{text}");
}
