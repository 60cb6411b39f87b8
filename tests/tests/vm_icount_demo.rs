//! The demo's gain, in virtual time and mode qdisc: what the README says of it does not depend on how busy the machine
//! is. A minute or two; needs CONFIG_NET_SCH_BPF, netem and ffmpeg.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

use bestby_tests::{
    program::{binary, succeed},
    require,
};
use serde_json::Value;

#[test]
fn demo_in_mode_qdisc_saves_audio_frames_and_with_marks_pictures() {
    if !require::can(require::bpf_qdisc()) {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut demo = Command::new(binary("bestby-demo"));
    succeed(demo.args(["--seconds", "4", "--out"]).arg(out.path()));

    let report: Value =
        serde_json::from_slice(&fs::read(out.path().join("demo.json")).unwrap()).unwrap();
    let [fifo, rules, marks] = report["runs"].as_array().unwrap().as_slice() else {
        panic!("not three runs: {report}")
    };
    let on_time = |run: &Value, of: &str| run["measures"][of][1].as_u64().unwrap();
    let offered = fifo["measures"]["audio"][0].as_u64().unwrap();
    // The link carries two thirds of what is offered: a long FIFO delivers nearly all of it late.
    assert!(on_time(fifo, "audio") * 8 < offered, "{fifo}");
    for run in [rules, marks] {
        assert_eq!(run["mode"], "qdisc");
        assert!(on_time(run, "audio") * 1000 >= offered * 998, "{run}");
        assert_eq!(run["measures"]["stale_arrivals"], 0, "{run}");
        assert!(
            on_time(run, "frames") > 2 * on_time(fifo, "frames"),
            "{run}"
        );
    }
    // Marking does not deliver more frames, but those that a decoder can use.
    let picture = |run: &Value, what: &str| run["measures"]["picture"][what].as_f64().unwrap();
    for other in [fifo, rules] {
        assert!(
            picture(marks, "intact") > 2.0 * picture(other, "intact"),
            "{other}"
        );
        assert!(
            picture(marks, "ssim") > picture(other, "ssim") + 0.1,
            "{other}"
        );
    }
}
