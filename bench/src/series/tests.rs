use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::anyhow;

use super::{
    options::IfChanged,
    run::{Outcome, Run},
    *,
};
use crate::{
    columns::{Column, Columns},
    measure::Measures,
};

pub(super) const TEXT: &str = r#"
title = "t"
seed = 7
repetitions = 2
queues = ["bestby tc", "pfifo 5"]
[topology]
rate = "253kbit"
owd = [5, 40]
loss = 1
[traffic]
model = "conference"
"#;

/// Makes runs up, and remembers which.
#[derive(Default)]
struct Fake {
    made: Vec<String>,
    /// Ends the series, as a kill would, when so many runs were made.
    dies_after: Option<usize>,
    absent: Option<&'static str>,
    fails: bool,
}

impl Fake {
    fn run(&mut self, job: &Job<'_>) -> Result<Outcome> {
        assert_ne!(Some(self.made.len()), self.dies_after, "killed");
        if self.absent == Some(job.cell.queue.name().as_str()) {
            return Ok(Outcome::Absent("not on this kernel: no such thing".into()));
        }
        self.made
            .push(format!("{} {} {}", job.cell.id, job.number, job.seed()));
        if self.fails {
            return Err(anyhow!("broken"));
        }
        let none = ["created", "wire_bytes", "deadline", "arrived"];
        let none = none.map(|name| (name.to_owned(), Column::Int(Vec::new())));
        let packets = Columns {
            columns: none.into(),
            said: Vec::new(),
        };
        let run = made_up(job.number, job.seed());
        Ok(Outcome::Made(Box::new(run), packets))
    }
}

/// A run that never was.
pub(super) fn made_up(number: u32, seed: u64) -> Run {
    Run {
        number,
        seed,
        rate: 253_000,
        load: 1.0,
        owd_ms: 5.0,
        delay_is_real: true,
        took_s: 1.0,
        measures: Measures::default(),
        bound: None,
        false_drops: None,
    }
}

pub(super) fn scenario(directory: &Path, text: &str) -> Scenario {
    let file = directory.join("t.toml");
    fs::write(&file, text).expect("written");
    Scenario::load(&file).expect("a scenario")
}

fn here() -> Provenance {
    Provenance {
        kernel: "6.18".into(),
        commit: "abc".into(),
        machine: "m".into(),
        commands: vec!["run".into()],
    }
}

/// A directory with a scenario and results.
struct Place {
    directory: tempfile::TempDir,
    scenario: Scenario,
    if_changed: IfChanged,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self {
            scenario: scenario(directory.path(), TEXT),
            directory,
            if_changed: IfChanged::Refuse,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("out/t").join(name)
    }

    /// Runs the series, and returns what is then in `runs.parquet`: rows, and the metadata.
    fn series(&self, by: &Provenance, fake: &mut Fake) -> Result<(usize, serde_json::Value)> {
        let out = self.directory.path().join("out");
        let made = Series::new(by.clone(), self.scenario.repetitions)?;
        let mut store = Store::at(&out);
        store.open(&self.scenario, made, self.if_changed)?;
        let jobs = jobs(&self.scenario, self.scenario.repetitions, &[]);
        let result = go_on(&store, &jobs, |left, progress| {
            make_with(
                left,
                |job| fake.run(job),
                |job, outcome| {
                    store.put_outcome(job, &outcome)?;
                    progress.hear(job)
                },
            )
        });
        let (scenario, series) = &store.open[0];
        let table = Columns::read(&result::write(&store, scenario, series)?)?;
        result?;
        let said = table.said("series").expect("said");
        let said = serde_json::from_str(said).expect("JSON");
        let rows = table.ints("run").map_or(0, <[_]>::len);
        Ok((rows, said))
    }
}

#[test]
fn series_interrupted_goes_on_and_repeats_nothing() {
    let place = Place::new();
    let mut first = Fake {
        dies_after: Some(3),
        ..Fake::default()
    };
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        place.series(&here(), &mut first)
    }));
    assert!(killed.is_err());
    // What was made and not judged is not made again; what was not finished is.
    fs::remove_file(place.file("owd=5_bestby-tc/run-0.json")).expect("removed");
    fs::write(place.file("owd=5_pfifo-5/run-1.parquet.unfinished"), "P").expect("written");

    let mut second = Fake::default();
    let (rows, said) = place.series(&here(), &mut second).expect("goes on");
    let all: BTreeSet<&String> = first.made.iter().chain(&second.made).collect();
    assert_eq!((first.made.len(), second.made.len(), all.len()), (3, 5, 8));
    // The same seed for every queue, one more for each repetition.
    let seeds = |run: &&String| run.ends_with(" 0 7") || run.ends_with(" 1 8");
    assert!(all.iter().all(seeds), "{all:?}");
    assert_eq!((rows, said["missing"].as_u64()), (8, Some(0)));

    let mut third = Fake::default();
    place.series(&here(), &mut third).expect("nothing to do");
    assert_eq!(third.made, Vec::<String>::new());
}

#[test]
fn jobs_every_cell_has_its_first_run_before_any_its_second() {
    let place = Place::new();
    let all = jobs(&place.scenario, 2, &[]);
    assert_eq!(all.len(), 8);
    let id = |at: usize| (all[at].cell.id.as_str(), all[at].number);
    assert_eq!(
        [id(1), id(4)],
        [("owd=5_pfifo-5", 0), ("owd=5_bestby-tc", 1)]
    );
    let counts = ["owd=5_", "bestby tc", "nothing"]
        .map(|word| jobs(&place.scenario, 2, &[word.to_owned()]).len());
    assert_eq!(counts, [4, 4, 0]);
}

#[test]
fn series_of_something_else_is_refused_or_made_anew() {
    let mut place = Place::new();
    place.series(&here(), &mut Fake::default()).expect("made");
    let refused = |place: &Place, by: Provenance| {
        let error = place.series(&by, &mut Fake::default());
        error.expect_err("must be refused").to_string()
    };
    let (mut kernel, mut commit, mut command) = (here(), here(), here());
    kernel.kernel = "7.2".into();
    commit.commit = "abd".into();
    command.commands = vec!["run --runs 9".into()];
    assert!(refused(&place, kernel).contains("kernel"));
    assert!(refused(&place, commit.clone()).contains("commit"));
    // Another command makes no difference to what is measured, but is kept.
    let mut none = Fake::default();
    place.series(&command, &mut none).expect("goes on");
    let (_, said) = place.series(&here(), &mut none).expect("goes on");
    assert!(none.made.is_empty());
    assert_eq!(said["commands"], serde_json::json!(["run", "run --runs 9"]));

    let other = TEXT.replace("owd = [5, 40]", "owd = 5");
    place.scenario = scenario(place.directory.path(), &other);
    assert!(refused(&place, here()).contains("file has changed"));
    assert!(place.file("owd=40_pfifo-5/run-0.json").exists());
    place.if_changed = IfChanged::Anew;
    place.series(&commit, &mut Fake::default()).expect("anew");
    assert!(!place.file("owd=40_pfifo-5").exists());
}

#[test]
fn series_whose_beginning_or_removal_was_interrupted_begins() {
    let place = Place::new();
    let hidden = place.file("../.unfinished-t");
    fs::create_dir_all(hidden.join("owd=5_pfifo-5")).expect("made");
    fs::write(hidden.join("scenario.toml"), TEXT).expect("written");
    let (rows, _) = place.series(&here(), &mut Fake::default()).expect("made");
    assert_eq!(rows, 8);
    assert!(!hidden.exists() && !place.file("owd=5_pfifo-5/scenario.toml").exists());
}

#[test]
fn directory_that_is_no_series_is_left_alone() {
    let mut place = Place::new();
    place.if_changed = IfChanged::Anew;
    fs::create_dir_all(place.file("")).expect("made");
    fs::write(place.file("thesis.tex"), "years of work").expect("written");
    let error = place
        .series(&here(), &mut Fake::default())
        .expect_err("refused");
    assert!(error.to_string().contains("not a series"), "{error}");
    assert!(place.file("thesis.tex").exists());
}

#[test]
fn queue_that_is_absent_is_named_until_it_is_there() {
    let place = Place::new();
    let mut without = Fake {
        absent: Some("pfifo 5"),
        ..Fake::default()
    };
    let (rows, said) = place.series(&here(), &mut without).expect("the rest");
    assert_eq!((without.made.len(), rows), (4, 4));
    assert_eq!(said["missing"], 4);
    let absent = &said["absent"][0];
    assert_eq!(absent["queue"], "pfifo 5");
    assert!(absent["reason"].to_string().contains("not on this kernel"));
    // What was missing is installed, and the series goes on.
    let (rows, said) = place.series(&here(), &mut Fake::default()).expect("all");
    assert_eq!((rows, &said["absent"]), (8, &serde_json::json!([])));
}

#[test]
fn lock_of_a_results_directory_is_one_lab_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = store::lock(directory.path()).expect("free");
    let error = store::lock(directory.path()).expect_err("taken");
    assert!(error.to_string().contains("another bestby-lab"), "{error}");
    drop(first);
    store::lock(directory.path()).expect("free again");
}

#[test]
fn runs_that_failed_are_counted_and_made_again() {
    let place = Place::new();
    let mut broken = Fake {
        fails: true,
        ..Fake::default()
    };
    let error = place.series(&here(), &mut broken).expect_err("fails");
    assert!(error.to_string().contains("5 runs in a row"), "{error}");
    assert_eq!(broken.made.len(), 5);
    let mut sound = Fake::default();
    place.series(&here(), &mut sound).expect("made again");
    assert_eq!(sound.made.len(), 8);
}
