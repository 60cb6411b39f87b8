//! `DIR/summary.json`: what all finished runs below `DIR` found, for the report and
//! for other programs. Made anew from the runs' own files whenever a series ends.
//!
//! ```text
//! Summary
//!   scenarios: one per scenario file that was run into DIR
//!     provenance, axes, queues, absent
//!     cells: one combination of the axes and one queue
//!       point (typed values), axes (the swept ones as text), queue
//!       runs: one per repetition: seed, rate, owd, measures, path of its records
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    controlled, job,
    limit::Limits,
    pictures,
    store::{self, Store},
};
use crate::{
    bound::{Bound, FalseDrops},
    measure::Measures,
    report::Provenance,
    scenario::{
        Scenario,
        cell::{Coordinate, Point},
    },
};

/// Version of this form; a reader refuses another one.
pub const FORMAT: u32 = 1;

/// Name of the file below the results' directory.
pub const FILE: &str = "summary.json";

/// Everything below one results' directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT`].
    pub format: u32,
    /// In order of their names.
    pub scenarios: Vec<ScenarioSummary>,
}

impl Summary {
    /// Leaves only cells whose id, or queue's name, contains one of these words, and
    /// scenarios that have any; without words all of them.
    pub fn keep_only(&mut self, words: &[String]) {
        if words.is_empty() {
            return;
        }
        for scenario in &mut self.scenarios {
            let cells = &mut scenario.cells;
            cells.retain(|cell| job::is_wanted(words, &cell.id, &cell.queue));
        }
        self.scenarios.retain(|scenario| !scenario.cells.is_empty());
    }
}

/// One scenario's results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioSummary {
    /// Its name, also the directory of its runs below `DIR`.
    pub name: String,
    /// One line for a heading.
    pub title: String,
    /// What it shows, and how to read it; may be empty.
    pub description: String,
    /// Where and how the runs were made; `seed` is that of repetition 0, repetition n
    /// uses seed + n for every queue.
    pub provenance: Provenance,
    /// Length of a run's traffic, s.
    pub seconds: f64,
    /// Packets created before this time of a run are not judged, s.
    pub discard_first: f64,
    /// Runs asked for in each cell.
    pub repetitions: u32,
    /// The swept axes and the values of each. Queues are not among them.
    pub axes: Vec<Swept>,
    /// Names of the queues that were run, in the file's order.
    pub queues: Vec<String>,
    /// Queues that could not be run, and why.
    pub absent: Vec<Absent>,
    /// Runs that are not there: interrupted, failed, or of an absent queue.
    pub missing_runs: u64,
    /// In the file's order of axes and queues. Cells without any run are left out.
    pub cells: Vec<CellSummary>,
    /// Queues whose runs are of another series, and who made those: `report --beside` only.
    #[serde(skip)]
    pub beside: Option<String>,
}

/// A swept axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// As in the scenario file: `rate`, `load`, `owd`, `loss`, `lifetime`, `rtt_error`,
    /// `rate_error`, `router_queue`, `stall`, or a parameter of the traffic model.
    pub axis: String,
    /// bit/s, ms, %; empty for a number without unit.
    pub unit: String,
    /// As text, in the order of the file.
    pub values: Vec<String>,
}

/// A queue that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub queue: String,
    /// E.g. `not on this kernel: ...`.
    pub reason: String,
}

/// One combination of the axes and one queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSummary {
    /// Stable and readable; the directory of its runs.
    pub id: String,
    /// The queue's name.
    pub queue: String,
    /// All values, swept or not.
    pub point: Point,
    /// The swept values as text, in the order of [`ScenarioSummary::axes`]. A queue that
    /// is told nothing runs once for all values of `rtt_error` and `rate_error`, with
    /// the value 0.
    pub axes: Vec<Coordinate>,
    /// Finished runs, in order of `number`.
    pub runs: Vec<RunSummary>,
}

/// One run. Also what its own JSON file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Repetition, from 0.
    pub number: u32,
    /// Seed of its traffic, the same for every queue.
    pub seed: u64,
    /// Rate of the link, bit/s.
    pub rate: u64,
    /// Offered rate / rate of the link.
    pub load: f64,
    /// One-way delay of the idle path, measured, ms.
    pub owd_ms: f64,
    /// Whether the delay is real (netem) or was added to arrivals by arithmetic.
    pub delay_is_real: bool,
    /// What came of it.
    pub measures: Measures,
    /// What no schedule could beat, of the ADUs that were judged; absent where the
    /// link's rate for the media is not known (beside TCP, or with a control), and in the own file of a run with records.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// ADUs of the whole run that were given up although there was room for them, by the queue or
    /// a router's FIFO; absent where the bound is, and where the network loses packets.
    #[serde(default)]
    pub false_drops: Option<FalseDrops>,
    /// What arrived at all, worked out of the records; with a congestion control only, and
    /// absent in the own file of a run with records.
    #[serde(default)]
    pub delivery: Option<Delivery>,
    /// Its per-packet records, relative to the results' directory; empty where it comes from
    /// an [`archive`](super::archive), and what they showed is in this.
    pub records: String,
    /// Time that the run took, s, by its own clock: with --vm in virtual time.
    pub took_s: f64,
}

/// What arrived in the time that was judged, late or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Audio packets offered / arrived.
    pub audio: [u64; 2],
    /// Video packets offered / arrived.
    pub video: [u64; 2],
    /// Bytes on the wire that arrived, kbit/s. What competing TCP flows had beside it follows
    /// from [`Measures::tcp_share`].
    pub kbit: f64,
}

/// Gathers everything below `root` into its summary; returns the summary's file.
pub fn write(root: &Path) -> Result<PathBuf> {
    keep(root, &gather(root)?)
}

/// Writes what was gathered below `root`; returns the file.
pub fn keep(root: &Path, summary: &Summary) -> Result<PathBuf> {
    let file = root.join(FILE);
    store::put(&file, summary)?;
    Ok(file)
}

/// Everything below `root`, where that is a results' directory.
///
/// # Errors
/// No scenario was run into it. Which directory was meant is said, if one is near.
pub fn gather_some(root: &Path) -> Result<Summary> {
    let summary = gather(root)?;
    ensure!(
        !summary.scenarios.is_empty(),
        "{} holds no runs of the lab: {}",
        root.display(),
        meant(root)
    );
    Ok(summary)
}

/// Everything below `dir`, a results' directory, or of one scenario's directory in one.
///
/// # Errors
/// It is neither.
pub fn gather_shown(dir: &Path) -> Result<Summary> {
    // Of `.` only the whole path has a parent.
    let whole = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    if Store::is_series(&whole)
        && let (Some(root), Some(name)) = (whole.parent(), whole.file_name())
    {
        let scenario = gather_one(root, &name.to_string_lossy())?;
        return Ok(Summary {
            format: FORMAT,
            scenarios: scenario.into_iter().collect(),
        });
    }
    gather_some(dir)
}

/// The results' directory that is near `wrong`, in words.
fn meant(wrong: &Path) -> String {
    // Of `.` and `..` only the whole path has the parents.
    let whole = wrong.canonicalize().unwrap_or_else(|_| wrong.to_owned());
    let above = whole.ancestors().find(|above| Store::is_series(above));
    if let Some(root) = above.and_then(Path::parent) {
        return format!("it is a part of {}; give that", root.display());
    }
    let directories = |of: &Path| {
        let entries = fs::read_dir(of).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort_unstable();
        found
    };
    let has_series = |root: &PathBuf| directories(root).iter().any(|d| Store::is_series(d));
    let below: Vec<String> = directories(wrong)
        .into_iter()
        .filter(has_series)
        .map(|root| root.display().to_string())
        .collect();
    if below.is_empty() {
        "give what `run` or `restore` was given as --out".into()
    } else {
        format!("give one of those in it that do: {}", below.join(", "))
    }
}

/// Everything below `root`.
pub fn gather(root: &Path) -> Result<Summary> {
    let entries = fs::read_dir(root)
        .with_context(|| format!("reading the results' directory {}", root.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let mut scenarios = Vec::new();
    for name in names {
        if let Some(scenario) = gather_one(root, &name)? {
            scenarios.push(scenario);
        }
    }
    Ok(Summary {
        format: FORMAT,
        scenarios,
    })
}

fn gather_one(root: &Path, name: &str) -> Result<Option<ScenarioSummary>> {
    let Some((store, series, file)) = Store::read(root, name)? else {
        return Ok(None);
    };
    let scenario = Scenario::load_as(&file, name)?;
    pictures::fill(&store, &scenario, series.repetitions)?;
    let mut cells = Vec::new();
    let mut missing_runs = 0;
    let mut limits = Limits::load(&store)?;
    for cell in &scenario.cells {
        let mut runs = Vec::new();
        for number in 0..series.repetitions {
            match store.run(&cell.id, number)? {
                Some(mut run) => {
                    limits
                        .judge(&store, &scenario, cell, &mut run)
                        .with_context(|| format!("{name} {} run {number}", cell.id))?;
                    // Of an archived run it was worked out before its records went.
                    if !run.records.is_empty() {
                        run.delivery = controlled::delivery(&store, &scenario, cell, &run)?;
                    }
                    runs.push(run);
                }
                None => missing_runs += 1,
            }
        }
        if !runs.is_empty() {
            cells.push(CellSummary {
                id: cell.id.clone(),
                queue: cell.queue.name(),
                point: cell.point.clone(),
                axes: cell.axes.clone(),
                runs,
            });
        }
    }
    limits.save()?;
    let queues = scenario.queues.iter().map(|queue| queue.name());
    Ok(Some(ScenarioSummary {
        name: name.to_owned(),
        queues: queues
            .filter(|queue| cells.iter().any(|cell| cell.queue == *queue))
            .collect(),
        absent: store.absent()?,
        provenance: Provenance {
            seed: scenario.seed,
            ..series.provenance
        },
        seconds: scenario.seconds as f64,
        discard_first: scenario.discard_first,
        repetitions: series.repetitions,
        axes: scenario.axes,
        title: scenario.title,
        description: scenario.description,
        missing_runs,
        cells,
        beside: None,
    }))
}
