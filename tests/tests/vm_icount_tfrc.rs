//! The lab's congestion-controlled sender on bestby: what bestby drops on purpose must
//! not look like congestion, what the network drops must.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use bestby_tests::agent::binary;
use serde_json::Value;

/// One run of 8 s without competition; the queue holds a single packet, so that bestby
/// drops most of every video frame.
fn run(loss: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("sfdps.json");
    let output = Command::new(binary("bestby-lab"))
        .args(["sfdps", "--rtt", "80", "--queue", "1", "--method", "sfdps2"])
        .args(["--runs", "1", "--seconds", "8", "--loss", loss, "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{stdout}\n{stderr}");
    assert!(output.status.success(), "{stderr}");
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    results["cells"][0]["runs"][0].clone()
}

fn number(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap()
}

#[test]
fn a_drop_by_bestby_is_no_loss_event() {
    let clean = run("0");
    let dropped = 100.0 - number(&clean, "video_received");
    assert!(
        dropped > 20.0,
        "the queue dropped only {dropped} % of the video"
    );
    assert!(number(&clean, "left") > 300.0);
    assert_eq!(number(&clean, "lost"), 0.0);
    assert_eq!(number(&clean, "counted"), 0.0);

    let lossy = run("3");
    assert!(number(&lossy, "lost") > 0.5, "{lossy}");
    assert!(number(&lossy, "counted") > 3.0, "{lossy}");
}
