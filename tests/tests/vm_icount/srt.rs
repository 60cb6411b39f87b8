//! SRT as a peer in the lab: the traffic really passes libsrt's programs, SRT drops what is too late for it, and what is
//! missing or impossible is said. In virtual time; needs srt-live-transmit (Debian's srt-tools, `./dev` installs it).

use std::{fs, path::Path, process::Command};

use bestby_tests::{
    program::{self, said, succeed},
    require,
};
use serde_json::Value;

fn scenario(queues: &str, load: &str, lifetime: u32) -> String {
    format!(
        r#"title = "Short"
seed = 3
seconds = 4
lifetime = {lifetime}
queues = {queues}
[topology]
load = {load}
owd = 40
[traffic]
model = "gop"
rate_kbit = 500
"#
    )
}

fn lab(directory: &Path, text: &str) -> Command {
    let file = directory.join("short.toml");
    fs::write(&file, text).unwrap();
    program::lab(&file, &directory.join("out"))
}

/// The one run of a cell.
fn measures(directory: &Path, cell: &str) -> Value {
    program::run(&directory.join("out"), "short", cell)
}

fn count(of: &Value, what: &str) -> u64 {
    of[what].as_u64().unwrap_or_else(|| panic!("{what}: {of}"))
}

#[test]
fn srt_delivers_all_at_half_load_and_drops_at_double_load() {
    if !require::can(require::root()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    // More frames wait for so long than the search for the bound follows. For 300 ms it does, for minutes in a guest.
    let text = scenario(r#"["srt", "srt paced"]"#, "[0.5, 2]", 700);
    succeed(&mut lab(directory, &text));
    for queue in ["srt", "srt-paced"] {
        let light = &measures(directory, &format!("load=0.5_{queue}"));
        let srt = &light["srt"];
        println!("{queue} at load 0.5: {light}");
        // The last report, and so each count, may be 20 packets old.
        assert!(
            count(srt, "received") + 20 >= count(light, "sent"),
            "{light}"
        );
        assert_eq!(count(light, "dropped"), 0, "{light}");
        // Nothing else on this path holds packets back until their time has come.
        let delay = light["audio_delay"]["p50"].as_f64().unwrap();
        assert!(delay >= count(srt, "latency_ms") as f64, "{light}");
        assert_eq!(count(srt, "sender_dropped"), 0, "{light}");
        assert_eq!(light["frames"][0], light["frames"][1], "late: {light}");

        let heavy = &measures(directory, &format!("load=2_{queue}"));
        println!("{queue} at load 2: {heavy}");
        // Its sender drops what is older than 1020 ms, and sends what is not, of use or not.
        assert!(count(&heavy["srt"], "sender_dropped") > 0, "{heavy}");
        assert!(count(heavy, "stale_arrivals") > 0, "{heavy}");
        assert!(count(heavy, "dropped") > 0, "{heavy}");
    }
    // Only one of the two is told the link's rate.
    let limit = |queue: &str| {
        let measures = measures(directory, &format!("load=0.5_{queue}"));
        count(&measures["srt"], "max_bandwidth")
    };
    assert_eq!(limit("srt"), 125_000_000);
    assert!(limit("srt-paced") < 1_000_000);
}

#[test]
fn srt_queue_that_cannot_run_is_refused_or_absent() {
    if !require::can(require::root()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();

    let wrong = lab(directory, &scenario(r#"["srt fast"]"#, "1", 300)).output();
    let text = said(&wrong.unwrap());
    assert!(text.contains("short.toml:5:"), "{text}");
    assert!(text.contains("`srt paced`"), "{text}");

    // 40 ms of it are the way.
    let short = lab(directory, &scenario(r#"["srt"]"#, "1", 60)).output();
    let short = short.unwrap();
    let text = said(&short);
    assert!(!short.status.success(), "{text}");
    assert!(text.contains("60 ms"), "{text}");

    // Without the program the queue is absent by name, and nothing is made up.
    let other = directory.join("other");
    fs::create_dir(&other).unwrap();
    let mut without = lab(&other, &scenario(r#"["srt"]"#, "1", 300));
    let output = without.env("PATH", &other).output().unwrap();
    println!("{}", said(&output));
    let reason = fs::read_to_string(other.join("out/short/srt/run-0.absent")).unwrap();
    assert!(reason.contains("machine"), "{reason}");
    assert!(reason.contains("srt-tools"), "{reason}");
    assert!(!other.join("out/short/srt/run-0.json").exists());
}
