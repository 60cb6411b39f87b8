//! The lab runs a scenario on this kernel, is interrupted, leaves nothing behind,
//! goes on where it stopped, and names what this kernel lacks.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::SystemTime,
};

use bestby_tests::{
    program::{self, said, succeed},
    require,
};
use serde_json::Value;

/// The last queue is not on every kernel.
const SCENARIO: &str = r#"
title = "Small"
seed = 5
repetitions = 2
seconds = 1
queues = ["bestby tc", "pfifo 5", "bestby qdisc triage"]
[topology]
load = 2
owd = 5
[traffic]
model = "conference"
"#;

fn lab(directory: &Path) -> Command {
    program::lab(&directory.join("small.toml"), &directory.join("out"))
}

/// The finished runs and when they were written.
fn runs(directory: &Path) -> BTreeMap<PathBuf, SystemTime> {
    let list = |path: &Path| {
        fs::read_dir(path)
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    list(&directory.join("out/small"))
        .iter()
        .flat_map(|cell| list(cell))
        .filter(|file| file.extension().is_some_and(|e| e == "json"))
        .map(|file| {
            let written = fs::metadata(&file).unwrap().modified().unwrap();
            (file, written)
        })
        .collect()
}

/// Namespaces and pins of the lab that was this process.
fn traces(pid: u32) -> Vec<PathBuf> {
    let (namespace, pins) = (format!("bbl-{pid}-"), format!("bestby-lab-{pid}-"));
    ["/run/netns", "/sys/fs/bpf", "/tmp"]
        .iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&namespace) || name.starts_with(&pins)
        })
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn interrupted_scenario_resumes_and_leaves_no_traces() {
    if !require::can(require::root()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("small.toml"), SCENARIO).unwrap();

    let mut first = lab(directory).stdout(Stdio::piped()).spawn().unwrap();
    let pid = first.id();
    let mut output = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    // One run is finished, and the next is under way with namespaces and an agent.
    assert!(line.starts_with("[1/6"), "{line}");
    // SAFETY: plain integers; the child has not been waited for.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert_eq!(traces(pid), Vec::<PathBuf>::new());
    let before = runs(directory);
    assert!((1..6).contains(&before.len()), "{before:?}");

    let second = lab(directory).output().unwrap();
    let text = said(&second);
    assert!(second.status.success(), "{text}");
    assert!(
        second
            .stdout
            .trim_ascii_end()
            .ends_with(b"out/small/runs.parquet"),
        "{text}"
    );
    let after = runs(directory);
    for (file, written) in &before {
        assert_eq!(
            after.get(file),
            Some(written),
            "made again: {}",
            file.display()
        );
    }

    let mut sent = Vec::new();
    for queue in ["bestby-tc", "pfifo-5", "bestby-qdisc-triage"] {
        let file = |name: &str| directory.join("out/small").join(queue).join(name);
        if let Ok(reason) = fs::read_to_string(file("run-0.absent")) {
            assert!(reason.contains("kernel"), "{reason}");
            assert!(text.contains(&reason), "it was skipped silently: {text}");
            continue;
        }
        sent.push([0, 1].map(|number| {
            let packets = fs::read(file(&format!("run-{number}.parquet"))).unwrap();
            assert!(packets.starts_with(b"PAR1") && packets.ends_with(b"PAR1"));
            let run = json(&file(&format!("run-{number}.json")));
            assert!((run["load"].as_f64().unwrap() - 2.0).abs() < 0.001);
            (run["seed"].clone(), run["rate"].clone())
        }));
    }
    assert!(sent.len() >= 2, "{text}");
    // The same traffic for every queue, other traffic in the second run.
    assert!(sent.iter().all(|runs| *runs == sent[0]), "{sent:?}");
    assert_ne!(sent[0][0], sent[0][1]);
    assert!(directory.join("out/small/runs.parquet").exists());

    // Nothing left to do, and nothing is done again.
    succeed(&mut lab(directory));
    assert_eq!(runs(directory), after);

    // Another scenario's runs do not join these.
    let text = SCENARIO.replace("load = 2", "load = 3");
    fs::write(directory.join("small.toml"), text).unwrap();
    let refused = lab(directory).output().unwrap();
    assert!(!refused.status.success());
    let text = said(&refused);
    assert!(text.contains("changed"), "{text}");
    assert_eq!(runs(directory), after);
}

/// A closed terminal ends the lab as Ctrl-C does; below nohup it goes on.
#[test]
fn hangup_ends_the_lab_without_traces_and_nohup_does_not() {
    if !require::can(require::root()) {
        return;
    }
    for (action, status, finished) in [(libc::SIG_DFL, 130, 1), (libc::SIG_IGN, 0, 2)] {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let text = SCENARIO.replace(
            r#""bestby tc", "pfifo 5", "bestby qdisc triage""#,
            "\"pfifo 5\"",
        );
        fs::write(directory.join("small.toml"), text).unwrap();
        let mut command = lab(directory);
        // SAFETY: signal is async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGHUP, action);
                Ok(())
            });
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with("[1/2"), "{line}");
        // SAFETY: plain integers; the child has not been waited for.
        unsafe { libc::kill(pid as i32, libc::SIGHUP) };
        // Until its end, that it can go on printing.
        std::io::copy(&mut output, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert_eq!(traces(pid), Vec::<PathBuf>::new());
        assert_eq!(runs(directory).len(), finished);
    }
}

/// The only run's file.
fn run_file(directory: &Path, load: &str) -> PathBuf {
    let cell = format!("out/media/load={load}_pfifo-1000/run-0.json");
    directory.join(cell)
}

fn json(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn lost_packets_of_real_media_lower_the_decoded_picture() {
    if !require::can(require::root()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let scenario = format!(
        r#"
title = "Media"
seconds = 4
discard_first = 1
queues = ["pfifo 1000"]
[topology]
load = [0.5, 3]
owd = 5
[traffic]
model = "media"
width = 160
height = 90
fps = 10
video_kbit = 200
directory = "{}"
"#,
        directory.join("recorded").display()
    );
    let file = directory.join("media.toml");
    fs::write(&file, scenario).unwrap();
    let lab = |arguments: &[&str]| {
        let mut command = Command::new(program::binary("bestby-lab"));
        command.args(arguments).current_dir(directory);
        command
    };
    let arguments = ["run", "media.toml", "--out", "out"];

    // Without ffmpeg there are no media, and the user is told what to do.
    let refused = lab(&arguments).env("PATH", directory).output().unwrap();
    let errors = said(&refused);
    assert!(!refused.status.success());
    assert!(errors.contains("apt install ffmpeg"), "{errors}");

    let made = lab(&arguments).output().unwrap();
    let errors = said(&made);
    assert!(made.status.success(), "{errors}");
    let picture = |load: &str| json(&run_file(directory, load))["picture"].clone();
    let whole = picture("0.5");
    assert_eq!(whole["pictures"], 30, "{whole}");
    assert_eq!(whole["decoded"], 30, "{whole}");
    assert_eq!(whole["intact"], 30, "{whole}");
    assert_eq!(whole["ssim"], whole["ssim_undisturbed"]);
    let hurt = picture("3");
    assert!(hurt["decoded"].as_u64() < Some(30), "{hurt}");
    assert!(hurt["ssim"].as_f64() < whole["ssim"].as_f64(), "{hurt}");
    assert_eq!(hurt["ssim_undisturbed"], whole["ssim_undisturbed"]);
}

#[test]
fn faulty_scenario_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let text = SCENARIO.replace("load = 2", "load = \"heavy\"");
    fs::write(directory.join("small.toml"), text).unwrap();
    let output = lab(directory).output().unwrap();
    assert!(!output.status.success());
    let text = said(&output);
    assert!(text.contains("small.toml:8: "), "{text}");
    assert!(!directory.join("out").exists());
}
