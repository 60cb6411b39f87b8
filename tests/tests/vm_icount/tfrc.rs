//! The lab's congestion-controlled sender on bestby: what bestby drops on purpose must
//! not look like congestion, what the network drops must.

use std::fs;

use bestby_tests::program;
use serde_json::Value;

/// Nothing competes; the queue holds a single packet, so that bestby drops most of every
/// video frame.
const SCENARIO: &str = r#"
title = "TFRC above a queue that drops"
seconds = 8
discard_first = 3
control = "tfrc"
queues = ["bestby qdisc sfdps2 limit 1"]

[topology]
bottleneck = "router"
rate = "10mbit"
router_queue = 1000
owd = 40
loss = [0, 3]

[traffic]
model = "conference"
"#;

/// One run of each cell.
fn runs(scenario: &str) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (
        directory.path().join("tfrc.toml"),
        directory.path().join("out"),
    );
    fs::write(&file, scenario).unwrap();
    program::succeed(&mut program::lab(&file, &out));
    let summary: Value =
        serde_json::from_slice(&fs::read(out.join("summary.json")).unwrap()).unwrap();
    let cells = summary["scenarios"][0]["cells"].as_array().unwrap();
    cells.iter().map(|cell| cell["runs"][0].clone()).collect()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn a_drop_by_bestby_is_no_loss_event() {
    let runs = runs(SCENARIO);
    let [clean, lossy] = runs.as_slice() else {
        panic!("two runs were asked for: {runs:?}");
    };
    let video = &clean["delivery"]["video"];
    let dropped = 100.0 - number(&video[1]) * 100.0 / number(&video[0]);
    assert!(
        dropped > 20.0,
        "the queue dropped only {dropped} % of the video"
    );
    let tfrc = |run: &Value, name: &str| number(&run["measures"]["tfrc"][name]);
    assert!(tfrc(clean, "left") > 300.0);
    assert_eq!(tfrc(clean, "lost"), 0.0);
    assert_eq!(tfrc(clean, "counted"), 0.0);

    let lost = tfrc(lossy, "lost") * 100.0 / tfrc(lossy, "left");
    assert!(lost > 0.5, "{lossy}");
    assert!(tfrc(lossy, "counted") > 3.0, "{lossy}");
}
