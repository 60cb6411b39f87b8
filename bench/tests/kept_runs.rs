//! The runs behind docs/results.md, in bench/runs, can be shown by the lab as it is.

mod kept;

use std::fs;

use serde_json::Value;

use kept::{lab, restore, runs};

fn has_a_table_of_each(tables: &str, names: &[String]) {
    for name in names {
        assert!(
            tables.contains(&format!("### {name}: ")),
            "no table of {name}"
        );
    }
    // A cell without runs would have a dash.
    assert!(!tables.contains("| – |"), "{tables}");
}

#[test]
fn every_archive_is_restored_and_makes_its_table() {
    let kept = runs();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (all, triage) = (path("kept"), path("triage"));
    let names = restore(&kept, directory.path(), &all);
    let show = |arguments: &[&str]| lab(directory.path(), arguments);
    let columns = "audio %,frames %";
    has_a_table_of_each(&show(&["report", &all, "--table", columns]), &names);

    // Triage on TFRC beside the queues of an earlier commit.
    let names = restore(&kept.join("triage"), directory.path(), &triage);
    let tables = show(&["report", &triage, "--beside", &all, "--table", columns]);
    has_a_table_of_each(&tables, &names);
    let with_peers = tables.matches("\nBeside it ").count();
    assert_eq!(with_peers, names.len(), "{tables}");
}

/// Whether nothing in a run is above its bound; `None` where it has none.
fn is_below(run: &Value) -> Option<bool> {
    let bound = &run["bound"];
    let most = |class: &str| bound[class]["adus"].as_u64();
    let [offered, audio] = ["/measures/audio/0", "/measures/audio/1"].map(|at| number(run, at));
    let frames = number(run, "/measures/frames/1");
    let (most_audio, most_frames) = (most("audio")?, most("video")?);
    // What a queue gives up of the audio it may have in frames.
    let all_of_it = audio == offered.min(most_audio);
    Some(audio <= most_audio && (!all_of_it || frames <= most_frames))
}

fn number(of: &Value, at: &str) -> u64 {
    let value = of.pointer(at).and_then(Value::as_u64);
    value.unwrap_or_else(|| panic!("no {at} in {of}"))
}

#[test]
fn no_run_with_all_of_the_audio_has_more_frames_than_its_bound() {
    let kept = runs();
    let directory = tempfile::tempdir().expect("a directory");
    let mut without: Vec<String> = Vec::new();
    let mut judged = 0;
    for (kept, out) in [(kept.clone(), "kept"), (kept.join("triage"), "triage")] {
        let out = directory.path().join(out);
        restore(&kept, directory.path(), &out.display().to_string());
        lab(directory.path(), &["report", &out.display().to_string()]);
        let summary = fs::read(out.join("summary.json")).expect("a summary");
        let summary: Value = serde_json::from_slice(&summary).expect("JSON");
        for scenario in summary["scenarios"].as_array().expect("scenarios") {
            let name = scenario["name"].as_str().expect("a name");
            let mut bounded = false;
            for cell in scenario["cells"].as_array().expect("cells") {
                // Of frames of several priorities the bound is not the sum.
                if cell["point"]["traffic"]["model"] == "media" {
                    continue;
                }
                for run in cell["runs"].as_array().expect("runs") {
                    let below = is_below(run);
                    assert_ne!(below, Some(false), "{name} {}: {run}", cell["id"]);
                    bounded |= below.is_some();
                    judged += u32::from(below.is_some());
                }
            }
            if !bounded {
                without.push(name.to_owned());
            }
        }
    }
    assert!(judged > 7_000, "{judged}");
    // Beside TCP, or with a congestion control; or not judged here.
    let known = |name: &String| name.starts_with("sfdps-") || name == "media";
    assert!(without.iter().all(known), "{without:?}");
}
