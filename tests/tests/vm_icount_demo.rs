//! The demo's gain, in virtual time and mode qdisc: what the README says of it does not depend on how busy the machine
//! is. A minute or two; needs CONFIG_NET_SCH_BPF, netem and ffmpeg.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

use bestby_tests::{
    program::{binary, succeed},
    require,
};
use serde_json::Value;

fn count(of: &Value, what: &str) -> u64 {
    of[what].as_u64().unwrap_or_else(|| panic!("{what}: {of}"))
}

#[test]
fn the_demo_shows_the_gain() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [json, plot] = ["demo.json", "demo.svg"].map(|name| directory.path().join(name));
    let mut demo = Command::new(binary("bestby-demo"));
    demo.args(["--seconds", "6", "--json"]).arg(&json);
    succeed(demo.arg("--plot").arg(&plot));

    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [fifo, rules, marked] = report["runs"].as_array().unwrap().as_slice() else {
        panic!("not three runs: {report}")
    };
    let figures = |run: &Value, of: &str, what: &str| count(&run["figures"][of], what);
    // The link carries half of what is offered: a long FIFO delivers nearly all of it late.
    let offered = figures(fifo, "audio", "offered");
    assert!(figures(fifo, "audio", "on_time") * 20 < offered);
    for run in [rules, marked] {
        assert_eq!(run["mode"], "qdisc");
        let offered = figures(run, "audio", "offered");
        assert!(
            figures(run, "audio", "on_time") * 1000 >= offered * 998,
            "{run}"
        );
        assert_eq!(
            figures(run, "audio", "stale") + figures(run, "video", "stale"),
            0
        );
        assert!(figures(run, "frames", "on_time") > 2 * figures(fifo, "frames", "on_time"));
        // Learnt from a TCP connection over 40 ms each way, not told.
        let owd = run["learnt_owd_ms"].as_f64().unwrap();
        assert!((40.0..42.0).contains(&owd), "learnt {owd} ms");
    }
    // Marking does not deliver more frames, but those that a decoder can use.
    let intact = |run: &Value| count(&run["decoded"], "intact");
    assert!(
        intact(marked) > 2 * intact(rules),
        "{} and {}",
        intact(marked),
        intact(rules)
    );
    assert!(
        intact(marked) > 2 * intact(fifo),
        "{} and {}",
        intact(marked),
        intact(fifo)
    );
    assert!(count(&marked["decoded"], "frames") > count(&rules["decoded"], "frames"));
}
