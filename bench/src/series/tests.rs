use std::{collections::BTreeSet, path::Path};

use anyhow::anyhow;

use super::{summary::RunSummary, *};
use crate::measure::Measures;

pub(super) const TEXT: &str = r#"
title = "t"
seed = 7
repetitions = 2
queues = ["bestby tc", "pfifo 5"]
[topology]
rate = "253kbit"
owd = [5, 40]
[traffic]
model = "conference"
"#;

/// Makes runs up, and remembers which.
#[derive(Default)]
pub(super) struct Fake {
    pub(super) made: Vec<String>,
    /// Ends the series, as a kill would, when so many runs were made.
    pub(super) dies_after: Option<usize>,
    pub(super) absent: Option<&'static str>,
    pub(super) fails: bool,
}

impl Runner for Fake {
    fn run(&mut self, job: &Job<'_>) -> Result<Outcome> {
        assert_ne!(Some(self.made.len()), self.dies_after, "killed");
        if self
            .absent
            .is_some_and(|name| name == job.cell.queue.name())
        {
            return Ok(Outcome::Absent("not on this kernel: no such thing".into()));
        }
        self.made
            .push(format!("{} {} {}", job.cell.id, job.number, job.seed()));
        if self.fails {
            return Err(anyhow!("broken"));
        }
        let run = made_up(job.number, job.seed());
        Ok(Outcome::Done(Box::new(run), Vec::new()))
    }
}

/// A run that never was.
pub(super) fn made_up(number: u32, seed: u64) -> RunSummary {
    RunSummary {
        number,
        seed,
        rate: 253_000,
        load: 1.0,
        owd_ms: 5.0,
        delay_is_real: true,
        measures: Measures::default(),
        bound: None,
        false_drops: None,
        delivery: None,
        records: String::new(),
        took_s: 1.0,
    }
}

pub(super) fn here() -> Provenance {
    Provenance {
        kernel: "6.18".into(),
        commit: "abc".into(),
        command: "run".into(),
        later: Vec::new(),
        seed: 0,
        machine: "m".into(),
    }
}

pub(super) fn scenario(directory: &Path, text: &str) -> Scenario {
    let file = directory.join("t.toml");
    fs::write(&file, text).expect("written");
    Scenario::load(&file).expect("a scenario")
}

pub(super) fn series(
    root: &Path,
    scenario: &Scenario,
    provenance: Provenance,
    runner: &mut Fake,
) -> Result<()> {
    let series = Series::here(provenance.clone(), scenario.repetitions)?;
    let store = Store::open(root, scenario, &series, IfChanged::Refuse)?;
    let stores = Stores::from([(scenario.name.clone(), store)]);
    let jobs = jobs(scenario, scenario.repetitions, &[]);
    go_on(runner, &jobs, &stores, &provenance, root)
}

#[test]
fn an_interrupted_series_goes_on_and_repeats_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    let mut first = Fake {
        dies_after: Some(3),
        ..Fake::default()
    };
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        series(&root, &scenario, here(), &mut first)
    }));
    assert!(killed.is_err());
    // A run under way leaves its records, or a part of them, but no run.
    fs::write(root.join("t/owd=40_bestby-tc.unfinished"), "{").expect("written");
    let gathered = summary::gather(&root).expect("a summary");
    assert_eq!(gathered.scenarios[0].missing_runs, 5);

    let mut second = Fake::default();
    series(&root, &scenario, here(), &mut second).expect("goes on");
    let all: BTreeSet<&String> = first.made.iter().chain(&second.made).collect();
    assert_eq!((first.made.len(), second.made.len(), all.len()), (3, 5, 8));
    // The same seed for every queue, one more for each repetition.
    assert!(
        all.iter()
            .all(|run| run.ends_with(" 0 7") || run.ends_with(" 1 8")),
        "{all:?}"
    );

    let mut third = Fake::default();
    series(&root, &scenario, here(), &mut third).expect("nothing to do");
    assert_eq!(third.made, Vec::<String>::new());
    let file = summary::write(&root).expect("a summary");
    let text = fs::read_to_string(file).expect("read");
    let summary: summary::Summary = serde_json::from_str(&text).expect("a summary");
    let [one] = &summary.scenarios[..] else {
        panic!("{summary:?}")
    };
    assert_eq!(
        (one.cells.len(), one.missing_runs, one.provenance.seed),
        (4, 0, 7)
    );
    let run = &one.cells[3].runs[1];
    assert!(root.join(&run.records).is_file(), "{}", run.records);
}

#[test]
fn every_cell_has_its_first_run_before_any_its_second() {
    let directory = tempfile::tempdir().expect("a directory");
    let scenario = scenario(directory.path(), TEXT);
    let order: Vec<String> = jobs(&scenario, 2, &[])
        .iter()
        .map(|job| format!("{} {}", job.cell.id, job.number))
        .collect();
    assert_eq!(
        order[..5],
        [
            "owd=5_bestby-tc 0",
            "owd=5_pfifo-5 0",
            "owd=40_bestby-tc 0",
            "owd=40_pfifo-5 0",
            "owd=5_bestby-tc 1",
        ]
    );
    let only = |word: &str| jobs(&scenario, 1, &[word.to_owned()]).len();
    assert_eq!(
        (only("owd=5_"), only("bestby tc"), only("nothing")),
        (2, 2, 0)
    );
}

#[test]
fn a_changed_series_is_refused_or_made_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let old = scenario(directory.path(), TEXT);
    series(&root, &old, here(), &mut Fake::default()).expect("made");

    let refused = |scenario: &Scenario, provenance| {
        let error = series(&root, scenario, provenance, &mut Fake::default());
        error.expect_err("must be refused").to_string()
    };
    let kernel = Provenance {
        kernel: "7.2".into(),
        ..here()
    };
    let commit = Provenance {
        commit: "abd".into(),
        ..here()
    };
    assert!(refused(&old, kernel).contains("the kernel was `6.18` and is `7.2`"));
    assert!(refused(&old, commit.clone()).contains("the commit was `abc`"));
    // Another command makes no difference to what is measured.
    let command = Provenance {
        command: "run --runs 9".into(),
        ..here()
    };
    let mut none = Fake::default();
    series(&root, &old, command.clone(), &mut none).expect("goes on");
    assert!(none.made.is_empty());
    // But the report needs all that was typed, each once and in this order.
    series(&root, &old, command, &mut none).expect("goes on");
    series(&root, &old, here(), &mut none).expect("goes on");
    let gathered = summary::gather(&root).expect("a summary");
    let commands: Vec<&str> = gathered.scenarios[0].provenance.commands().collect();
    assert_eq!(commands, ["run", "run --runs 9"]);

    let new = scenario(directory.path(), &TEXT.replace("owd = [5, 40]", "owd = 5"));
    assert!(refused(&new, here()).contains("the scenario's file has changed"));
    assert!(root.join("t/owd=40_pfifo-5/run-0.json").exists());
    let series = Series::here(commit, 2).expect("here");
    Store::open(&root, &new, &series, IfChanged::Anew).expect("anew");
    assert!(!root.join("t/owd=40_pfifo-5").exists());
}

#[test]
fn a_report_of_a_directory_without_series_is_refused_and_writes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    series(&root, &scenario, here(), &mut Fake::default()).expect("made");
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("made");
    let report = |dir: &Path, table: Option<&str>| {
        report::run(&report::Options {
            dir: dir.to_owned(),
            table: table.map(str::to_owned),
            against: None,
            across: None,
            before: None,
            beside: None,
            best: false,
            only: Vec::new(),
        })
    };
    let whole = root.canonicalize().expect("is there");
    let part = format!("it is a part of {}; give that", whole.display());
    let below = format!("in it that do: {}", root.display());
    // Tables are of one scenario, too; its page would stand among its cells.
    report(&root.join("t"), Some("")).expect("tables");
    let error = report(&root.join("t"), None)
        .expect_err("refused")
        .to_string();
    assert!(error.contains(&part), "{error}");
    for (dir, words) in [
        (empty.clone(), "what `run` or `restore` was given as --out"),
        (root.join("t/owd=5_pfifo-5"), &part),
        (directory.path().to_owned(), &below),
    ] {
        for table in [None, Some("")] {
            let error = report(&dir, table).expect_err("refused").to_string();
            assert!(error.contains("holds no runs of the lab"), "{error}");
            assert!(error.contains(words), "{error}");
        }
        assert!(!dir.join(summary::FILE).exists() && !dir.join(report::html::FILE).exists());
    }
    report(&root, None).expect("a report");
    assert!(root.join(report::html::FILE).is_file());
}

#[test]
fn what_is_no_series_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    fs::create_dir_all(root.join("t")).expect("made");
    fs::write(root.join("t/thesis.tex"), "years of work").expect("written");
    let series = Series::here(here(), 1).expect("here");
    let error = Store::open(&root, &scenario, &series, IfChanged::Anew).expect_err("refused");
    assert!(error.to_string().contains("not a series"), "{error}");
    assert!(root.join("t/thesis.tex").exists());
}

#[test]
fn a_queue_that_the_kernel_lacks_is_named_and_the_rest_is_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    let mut runner = Fake {
        absent: Some("pfifo 5"),
        ..Fake::default()
    };
    series(&root, &scenario, here(), &mut runner).expect("the rest");
    assert_eq!(runner.made.len(), 4);
    let summary = summary::gather(&root).expect("a summary");
    let one = &summary.scenarios[0];
    assert_eq!(one.queues, ["bestby tc"]);
    assert_eq!(one.absent[0].queue, "pfifo 5");
    assert!(one.absent[0].reason.contains("not on this kernel"));
    assert_eq!(one.missing_runs, 4);
}

#[test]
fn a_queue_that_is_there_at_last_is_absent_no_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    let mut without = Fake {
        absent: Some("pfifo 5"),
        ..Fake::default()
    };
    series(&root, &scenario, here(), &mut without).expect("the rest");
    // What was missing is installed, and the series goes on.
    series(&root, &scenario, here(), &mut Fake::default()).expect("all");
    let one = &summary::gather(&root).expect("a summary").scenarios[0];
    assert_eq!((one.missing_runs, one.queues.len()), (0, 2));
    assert_eq!(one.absent, []);
}

#[test]
fn a_queue_that_two_scenarios_lack_is_absent_in_both() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let named = |name: &str| {
        let file = directory.path().join(format!("{name}.toml"));
        fs::write(&file, TEXT).expect("written");
        Scenario::load(&file).expect("a scenario")
    };
    let scenarios = [named("a"), named("b")];
    let mut stores = Stores::new();
    for scenario in &scenarios {
        let series = Series::here(here(), 1).expect("here");
        let store = Store::open(&root, scenario, &series, IfChanged::Refuse).expect("open");
        stores.insert(scenario.name.clone(), store);
    }
    let jobs: Vec<Job<'_>> = scenarios.iter().flat_map(|s| jobs(s, 1, &[])).collect();
    let mut runner = Fake {
        absent: Some("pfifo 5"),
        ..Fake::default()
    };
    go_on(&mut runner, &jobs, &stores, &here(), &root).expect("the rest");
    let summary = summary::gather(&root).expect("a summary");
    for one in &summary.scenarios {
        assert_eq!(one.absent.len(), 1, "{}", one.name);
    }
}

#[test]
fn one_results_directory_has_one_series_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = Lock::take(directory.path()).expect("free");
    let error = Lock::take(directory.path()).expect_err("taken");
    assert!(error.to_string().contains("another bestby-lab"), "{error}");
    drop(first);
    Lock::take(directory.path()).expect("free again");
}

#[test]
fn failed_runs_are_counted_and_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("out");
    let scenario = scenario(directory.path(), TEXT);
    let mut broken = Fake {
        fails: true,
        ..Fake::default()
    };
    let error = series(&root, &scenario, here(), &mut broken).expect_err("fails");
    assert!(error.to_string().contains("5 runs in a row"), "{error}");
    assert_eq!(broken.made.len(), 5);
    let mut sound = Fake::default();
    series(&root, &scenario, here(), &mut sound).expect("made again");
    assert_eq!(sound.made.len(), 8);
}
