//! `./dev demo --vm` as a user starts it: media made and judged here, measured in a guest in virtual time and both
//! modes. So what the README says of the gain does not depend on how busy the machine is. Needs QEMU and ffmpeg.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path, process::Command};

use bestby_tests::{
    program::{binary, succeed},
    require,
};
use serde_json::Value;

fn qemu() -> Result<(), String> {
    let version = Command::new("qemu-system-x86_64").arg("--version").output();
    version
        .map(drop)
        .map_err(|error| format!("no QEMU: {error}"))
}

/// Five key frames. Chains are known from the third on: the codec after 32 frames, the group after two key frames.
const SECONDS: &str = "10";

#[test]
fn demo_delivers_more_audio_frames_and_pictures_in_both_modes() {
    if !require::can(qemu()) {
        return;
    }
    // The guest writes into the source tree only.
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let target = tree.join("target");
    fs::create_dir_all(&target).unwrap();
    let out = tempfile::tempdir_in(target).unwrap();
    let mut demo = Command::new(binary("bestby-lab"));
    demo.current_dir(tree)
        .args(["demo", "--vm", "--seconds", SECONDS, "--out"]);
    succeed(demo.arg(out.path()));

    let report = fs::read(out.path().join("demo.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    let runs = report["runs"].as_array().unwrap();
    let [fifo, tc_rules, tc_marks, rules, marks] = runs.as_slice() else {
        panic!("not five runs: {report}")
    };
    let on_time = |run: &Value, of: &str| run["measures"][of][1].as_u64().unwrap();
    let offered = fifo["measures"]["audio"][0].as_u64().unwrap();
    // The link carries two thirds of what is offered: a long FIFO delivers nearly all of it late.
    assert!(on_time(fifo, "audio") * 8 < offered, "{fifo}");
    for (run, mode) in [
        (tc_rules, "tc"),
        (tc_marks, "tc"),
        (rules, "qdisc"),
        (marks, "qdisc"),
    ] {
        assert_eq!(run["mode"], mode);
        assert!(on_time(run, "audio") * 1000 >= offered * 998, "{run}");
        // Mode tc predicts: HTB below sends a key frame's last packets a little late.
        let stale = run["measures"]["stale_arrivals"].as_u64().unwrap();
        let most = if mode == "tc" { 10 } else { 0 };
        assert!(stale <= most, "{run}");
        assert!(
            on_time(run, "frames") > 2 * on_time(fifo, "frames"),
            "{run}"
        );
    }
    // What a decoder can use: bestby reads in H.264 which frames others need, and sends none that nobody can decode.
    let picture = |run: &Value, what: &str| run["measures"]["picture"][what].as_f64().unwrap();
    for run in [tc_rules, tc_marks, rules, marks] {
        assert!(
            picture(run, "intact") > 2.0 * picture(fifo, "intact"),
            "{run}"
        );
        assert!(picture(run, "ssim") > picture(fifo, "ssim") + 0.1, "{run}");
    }
}
