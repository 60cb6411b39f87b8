//! The runs behind docs/results.md, in bench/runs, can be shown by the lab as it is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// What the lab says when it is started in `directory`: a scenario of real media encodes there.
fn lab(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bestby-lab"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("started");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {words}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Restores all archives of a directory to `out`; the names of their scenarios.
fn restore(kept: &Path, directory: &Path, out: &str) -> Vec<String> {
    let mut archives: Vec<String> = fs::read_dir(kept)
        .unwrap_or_else(|error| panic!("{}: {error}", kept.display()))
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    archives.sort_unstable();
    assert!(!archives.is_empty());
    let mut arguments = vec!["restore", "--out", out];
    arguments.extend(archives.iter().map(String::as_str));
    let restored = lab(directory, &arguments);
    assert_eq!(restored.lines().count(), archives.len(), "{restored}");
    let name = |line: &str| {
        let made = line.split(": ").next().expect("a path");
        made.rsplit('/').next().expect("a name").to_owned()
    };
    restored.lines().map(name).collect()
}

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
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs");
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (all, triage) = (path("kept"), path("triage"));
    let names = restore(&kept, directory.path(), &all);
    let show = |arguments: &[&str]| lab(directory.path(), arguments);
    let columns = "audio %,frames %";
    has_a_table_of_each(&show(&["report", &all, "--table", columns]), &names);

    // The queue of today beside the peers of before.
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
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("runs");
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
