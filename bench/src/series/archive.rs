//! One file per scenario that holds what is kept of its runs when the results' directory
//! goes: all but the per-packet records, and what was worked out of those.
//!
//! ```text
//! {"format":1,"name":...,"scenario":...,"provenance":...,"repetitions":30,"absent":[]}
//! {"cell":"owd=40_pfifo-5","run":{"number":0,...}}
//! ...
//! ```
//!
//! A restored directory is a series like any other: `report` reads it and `run` adds the
//! runs that are missing. So runs of several machines can stand together, if kernel and
//! commit are the same; their programs cannot be compared, the commit stands for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use super::{
    store::{self, Lock, Store},
    summary::{self, Absent, RunSummary},
};
use crate::{measure::more_than_the_whole, report::Provenance, say::count, scenario::Scenario};

/// Version of this form; a reader refuses another one.
const FORMAT: u32 = 1;

/// As `run --runs` and a scenario allow.
const MOST_REPETITIONS: u32 = 1000;

/// Options of `bestby-lab archive`.
#[derive(Clone, Debug, Args)]
pub struct ArchiveOptions {
    /// What `run` was given as --out.
    pub dir: PathBuf,
    /// Where the archives go: SCENARIO.jsonl, one for each scenario in DIR.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// Options of `bestby-lab restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreOptions {
    /// What `archive` wrote.
    #[arg(required = true, value_name = "SCENARIO.jsonl")]
    pub archives: Vec<PathBuf>,
    /// Results' directory for `report` and `run`; may hold other scenarios.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// First line of an archive.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    format: u32,
    /// The scenario's.
    name: String,
    /// Its file, as it was run.
    scenario: String,
    provenance: Provenance,
    /// Runs of each cell that were asked for.
    repetitions: u32,
    absent: Vec<Absent>,
}

/// Each other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    cell: String,
    run: RunSummary,
}

impl Line {
    fn place(&self) -> (&str, u32) {
        (&self.cell, self.run.number)
    }
}

/// Writes one archive for each scenario, and says how many runs it holds.
pub fn archive(options: &ArchiveOptions) -> Result<()> {
    let ArchiveOptions { dir, to } = options;
    let summary = summary::gather_some(dir)?;
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for scenario in summary.scenarios {
        let name = scenario.name;
        let text = Store::read(dir, &name)?
            .map(|(_, _, file)| fs::read_to_string(file))
            .with_context(|| format!("{name} is gone from {}", dir.display()))??;
        let mut lines = Vec::new();
        for cell in scenario.cells {
            for mut run in cell.runs {
                run.records.clear();
                let cell = cell.id.clone();
                lines.push(Line { cell, run });
            }
        }
        let head = Head {
            format: FORMAT,
            name: name.clone(),
            scenario: text,
            provenance: scenario.provenance,
            repetitions: scenario.repetitions,
            absent: scenario.absent,
        };
        let archive = Archive { head, lines };
        let file = to.join(format!("{name}.jsonl"));
        if file.exists() {
            let old =
                Archive::read(&file).with_context(|| format!("reading {}", file.display()))?;
            ensure!(
                archive.has_all_of(&old),
                "{} holds runs that are not in {}: remove it if they may go, or give another --to",
                file.display(),
                dir.display()
            );
        }
        store::replace(&file, archive.text()?.as_bytes())?;
        say!("{}: {}", file.display(), count(archive.lines.len(), "run"));
    }
    Ok(())
}

/// Makes a results' directory of archives: of all of them or, if one is wrong, of none.
pub fn restore(options: &RestoreOptions) -> Result<()> {
    let out = &options.out;
    let read = |file: &PathBuf| {
        Archive::read(file).with_context(|| format!("restoring {}", file.display()))
    };
    let archives: Vec<Archive> = options.archives.iter().map(read).collect::<Result<_>>()?;
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let _lock = Lock::take(out)?;
    let mut names = BTreeSet::new();
    for Archive { head, .. } in &archives {
        let name = &head.name;
        ensure!(
            names.insert(name),
            "two archives are of the scenario {name}"
        );
        let directory = out.join(name);
        ensure!(
            !directory.exists(),
            "{} is there: give another --out, or remove it",
            directory.display()
        );
    }
    for Archive { head, lines } in archives {
        let provenance = head.provenance;
        let series = store::Series::elsewhere(provenance, head.repetitions);
        let runs = count(lines.len(), "run");
        let directory = out.join(&head.name);
        Store::at(out, &head.name).begin(&head.scenario, &series, |store| {
            for absent in &head.absent {
                store.keep_absent(absent)?;
            }
            for Line { cell, run } in &lines {
                store.prepare(cell)?;
                store.keep(cell, run)?;
            }
            Ok(())
        })?;
        say!("{}: {runs}", directory.display());
    }
    Ok(())
}

/// A file that was read and found right.
struct Archive {
    head: Head,
    lines: Vec<Line>,
}

impl Archive {
    fn text(&self) -> Result<String> {
        let mut text = serde_json::to_string(&self.head)? + "\n";
        for line in &self.lines {
            text += &(serde_json::to_string(line)? + "\n");
        }
        Ok(text)
    }

    fn has_all_of(&self, old: &Self) -> bool {
        let runs: BTreeSet<(&str, u32)> = self.lines.iter().map(Line::place).collect();
        let (a, b) = (&self.head, &old.head);
        let same_series =
            |what: fn(&Provenance) -> &str| what(&a.provenance) == what(&b.provenance);
        a.scenario == b.scenario
            && same_series(|provenance| &provenance.kernel)
            && same_series(|provenance| &provenance.commit)
            && old.lines.iter().all(|line| runs.contains(&line.place()))
    }

    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)?;
        let mut numbered = (1..).zip(text.lines());
        let (_, first) = numbered.next().context("the file is empty")?;
        let version: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(first).context("line 1 is not the head of an archive")?;
        let format = version.get("format").and_then(serde_json::Value::as_u64);
        ensure!(
            format == Some(FORMAT.into()),
            "its format is {}, this lab reads {FORMAT}",
            format.map_or("unknown".into(), |format| format.to_string())
        );
        let head: Head = serde_json::from_str(first).context("line 1")?;
        ensure!(
            (1..=MOST_REPETITIONS).contains(&head.repetitions),
            "line 1: {} runs of each cell, possible are 1 to {MOST_REPETITIONS}",
            head.repetitions
        );
        let scenario = Scenario::of_text(&head.name, &head.scenario)?;
        let cells: BTreeSet<&str> = scenario.cells.iter().map(|cell| cell.id.as_str()).collect();
        let mut known = BTreeSet::new();
        let mut lines = Vec::new();
        for (number, line) in numbered {
            let mut line: Line =
                serde_json::from_str(line).with_context(|| format!("line {number}"))?;
            if !cells.contains(line.cell.as_str()) {
                bail!("line {number}: its scenario has no cell {}", line.cell);
            }
            ensure!(
                line.run.number < head.repetitions,
                "line {number}: run {} of {} asked for, counted from 0",
                line.run.number,
                head.repetitions
            );
            ensure!(
                known.insert((line.cell.clone(), line.run.number)),
                "line {number}: {} run {} a second time",
                line.cell,
                line.run.number
            );
            check(&line.run, scenario.seed).with_context(|| {
                format!(
                    "line {number}: {} run {} is damaged or was changed: take the archive from \
                     where it was made",
                    line.cell, line.run.number
                )
            })?;
            line.run.records.clear();
            lines.push(line);
        }
        Ok(Self { head, lines })
    }
}

/// Whether a run can be one of a series that starts with `seed`.
fn check(run: &RunSummary, seed: u64) -> Result<()> {
    let right = seed.saturating_add(run.number.into());
    ensure!(
        run.seed == right,
        "its seed is {}, and that of this repetition is {right}",
        run.seed
    );
    let delivery = run.delivery.iter().flat_map(|delivery| {
        [
            ("delivery.audio", delivery.audio),
            ("delivery.video", delivery.video),
        ]
    });
    let bound = run.bound.iter().flat_map(|bound| {
        [
            ("bound.audio", &bound.audio),
            ("bound.video", &bound.video),
            ("bound.data", &bound.data),
        ]
        .map(|(name, class)| (name, [class.adus_offered, class.adus]))
    });
    let wrong = run.measures.contradiction();
    if let Some(wrong) = wrong.or_else(|| more_than_the_whole(delivery.chain(bound))) {
        bail!("a part is more than its whole, {wrong}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{Fake, TEXT, here, scenario, series},
        *,
    };

    /// A series of which two of eight runs are missing, and its archive.
    fn archived(directory: &Path) -> PathBuf {
        let (root, to) = (directory.join("out"), directory.join("kept"));
        let scenario = scenario(directory, TEXT);
        let mut runner = Fake {
            dies_after: Some(6),
            ..Fake::default()
        };
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            series(&root, &scenario, here(), &mut runner)
        }));
        assert!(killed.is_err());
        archive(&ArchiveOptions {
            dir: root,
            to: to.clone(),
        })
        .expect("archived");
        to.join("t.jsonl")
    }

    fn restored(archives: &[&Path], out: &Path) -> Result<()> {
        restore(&RestoreOptions {
            archives: archives.iter().map(|file| file.to_path_buf()).collect(),
            out: out.to_owned(),
        })
    }

    #[test]
    fn a_restored_series_shows_the_same_and_goes_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = archived(directory.path());
        let out = directory.path().join("again");
        restored(&[&file], &out).expect("restored");

        let mut before = summary::gather(&directory.path().join("out")).expect("a summary");
        for cell in &mut before.scenarios[0].cells {
            for run in &mut cell.runs {
                assert!(run.bound.is_some() && run.false_drops.is_some());
                run.records.clear();
            }
        }
        assert_eq!(summary::gather(&out).expect("a summary"), before);

        let scenario = scenario(directory.path(), TEXT);
        let mut runner = Fake::default();
        series(&out, &scenario, here(), &mut runner).expect("goes on");
        assert_eq!(runner.made.len(), 2);
        let all = &summary::gather(&out).expect("a summary").scenarios[0];
        assert_eq!(all.missing_runs, 0);
        // A second archive has them all, in the order of the file's cells.
        let to = directory.path().join("kept");
        archive(&ArchiveOptions { dir: out, to }).expect("archived");
        assert_eq!(fs::read_to_string(file).expect("read").lines().count(), 9);
    }

    #[test]
    fn a_bound_that_was_worked_out_otherwise_is_made_anew() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = archived(directory.path());
        let right = fs::read_to_string(&file).expect("read");
        let out = directory.path().join("again");
        restored(&[&file], &out).expect("restored");
        let before = summary::gather(&out).expect("a summary");

        let bound = before.scenarios[0].cells[0].runs[0].bound;
        let bound = bound.expect("a bound");
        let version = format!("\"version\":{},", bound.version);
        let frames = format!("\"adus\":{},", bound.video.adus);
        let wrong = right.replace(&frames, "\"adus\":199,");
        assert_ne!(wrong, right);
        for (name, text, kept) in [
            ("today", wrong.clone(), true),
            ("older", wrong.replace(&version, "\"version\":1,"), false),
            // As they were before they had a version.
            ("oldest", wrong.replace(&version, ""), false),
        ] {
            fs::write(&file, text).expect("written");
            let out = directory.path().join(name);
            restored(&[&file], &out).expect("restored");
            let after = summary::gather(&out).expect("a summary");
            assert_eq!(after != before, kept, "{name}");
        }
    }

    #[test]
    fn a_series_of_another_kernel_or_of_no_commit_does_not_go_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = archived(directory.path());
        let out = directory.path().join("again");
        restored(&[&file], &out).expect("restored");
        let scenario = scenario(directory.path(), TEXT);
        let newer = Provenance {
            kernel: "7.2".into(),
            ..here()
        };
        let error = series(&out, &scenario, newer, &mut Fake::default()).expect_err("refused");
        assert!(error.to_string().contains("the kernel was"), "{error}");

        let text = fs::read_to_string(&file).expect("read");
        fs::write(&file, text.replace("\"abc\"", "\"abc+\"")).expect("written");
        let out = directory.path().join("unnamed");
        restored(&[&file], &out).expect("restored, for a report");
        let changed = Provenance {
            commit: "abc+".into(),
            ..here()
        };
        let error = series(&out, &scenario, changed, &mut Fake::default()).expect_err("refused");
        assert!(
            error.to_string().contains("commit `abc+` does not say"),
            "{error}"
        );
    }

    #[test]
    fn what_is_wrong_is_refused_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = archived(directory.path());
        let right = fs::read_to_string(&file).expect("read");
        let second = right.lines().nth(1).expect("a run").to_owned() + "\n";
        let out = directory.path().join("again");
        for (wrong, words) in [
            (String::new(), "the file is empty"),
            (second.clone(), "its format is unknown"),
            (
                right.replacen("\"format\":1", "\"format\":2", 1),
                "its format is 2, this lab reads 1",
            ),
            (
                right.replacen("\"t\"", "\"../t\"", 1),
                "becomes a directory's",
            ),
            (right.replace("owd=40", "owd=41"), "has no cell owd=41"),
            (
                right.replace("owd = [5, 40]", "owd = 5"),
                "line 2: its scenario has no cell owd=5",
            ),
            (right.clone() + &second, "a second time"),
            (
                right.replacen("\"repetitions\":2", "\"repetitions\":1", 1),
                "run 1 of 1 asked for",
            ),
            (right.clone() + "{", "line 8"),
            (
                right.replacen("\"repetitions\":2", "\"repetitions\":1001", 1),
                "line 1: 1001 runs of each cell, possible are 1 to 1000",
            ),
            (
                right.replacen("\"audio\":[0,0]", "\"audio\":[10,20]", 1),
                "line 2: owd=5_bestby-tc run 0 is damaged or was changed",
            ),
            (
                right.replacen("\"audio\":[0,0]", "\"audio\":[10,20]", 1),
                "a part is more than its whole, audio: 20 of 10",
            ),
            (
                right.replacen("\"seed\":7,\"rate\"", "\"seed\":8,\"rate\"", 1),
                "its seed is 8, and that of this repetition is 7",
            ),
        ] {
            let bad = directory.path().join("bad.jsonl");
            fs::write(&bad, wrong).expect("written");
            let error = restored(&[&file, &bad], &out).expect_err("must be refused");
            let error = format!("{error:#}");
            assert!(error.contains(words), "{error}");
            assert!(error.contains("bad.jsonl"), "{error}");
            assert!(!out.exists());
        }
        let error = restored(&[&file, &file], &out).expect_err("twice");
        assert!(error.to_string().contains("two archives"), "{error}");
        restored(&[&file], &out).expect("restored");
        let error = restored(&[&file], &out).expect_err("is there");
        assert!(error.to_string().contains("give another --out"), "{error}");
    }

    #[test]
    fn an_archive_is_not_replaced_by_one_that_has_less() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = archived(directory.path());
        let before = fs::read_to_string(&file).expect("read");
        let again = || {
            archive(&ArchiveOptions {
                dir: directory.path().join("out"),
                to: directory.path().join("kept"),
            })
        };
        again().expect("the same");
        fs::remove_file(directory.path().join("out/t/owd=5_pfifo-5/run-0.json")).expect("removed");
        let error = again().expect_err("refused");
        assert!(
            error.to_string().contains("holds runs that are not in"),
            "{error}"
        );
        fs::write(&file, before.replace("\"6.18\"", "\"7.2\"")).expect("written");
        assert!(again().is_err());
        assert_eq!(
            fs::read_to_string(&file).expect("read"),
            before.replace("\"6.18\"", "\"7.2\"")
        );
    }

    #[test]
    fn a_run_under_another_runs_name_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        archived(directory.path());
        let cell = directory.path().join("out/t/owd=5_pfifo-5");
        fs::copy(cell.join("run-0.json"), cell.join("run-1.json")).expect("copied");
        let error = summary::gather(&directory.path().join("out")).expect_err("refused");
        let error = format!("{error:#}");
        assert!(
            error.contains("run-1.json holds run 0, and its name says 1"),
            "{error}"
        );
    }

    #[test]
    fn a_directory_without_runs_makes_no_archive() {
        let directory = tempfile::tempdir().expect("a directory");
        let to = directory.path().join("kept");
        let error = archive(&ArchiveOptions {
            dir: directory.path().to_owned(),
            to: to.clone(),
        })
        .expect_err("nothing there");
        assert!(error.to_string().contains("holds no runs"), "{error}");
        assert!(!to.exists());
    }
}
