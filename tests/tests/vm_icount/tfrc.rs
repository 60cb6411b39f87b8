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

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn drop_by_bestby_is_no_loss_event() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tfrc.toml");
    let out = directory.path().join("out");
    fs::write(&file, SCENARIO).unwrap();
    program::succeed(&mut program::lab(&file, &out));
    let [clean, lossy] = ["0", "3"].map(|loss| {
        program::run(
            &out,
            "tfrc",
            &format!("loss={loss}_bestby-qdisc-sfdps2-limit-1"),
        )
    });

    let video = &clean["video"];
    let dropped = 100.0 - number(&video[1]) * 100.0 / number(&video[0]);
    assert!(
        dropped > 20.0,
        "the queue dropped only {dropped} % of the video"
    );
    let tfrc = |run: &Value, name: &str| number(&run["tfrc"][name]);
    assert!(tfrc(&clean, "left") > 300.0);
    assert_eq!(tfrc(&clean, "lost"), 0.0);
    assert_eq!(tfrc(&clean, "counted"), 0.0);

    let lost = tfrc(&lossy, "lost") * 100.0 / tfrc(&lossy, "left");
    assert!(lost > 0.5, "{lossy}");
    assert!(tfrc(&lossy, "counted") > 3.0, "{lossy}");
}
