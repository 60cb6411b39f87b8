//! What is kept of a series on disk, and how an interrupted one goes on.
//!
//! ```text
//! DIR/SCENARIO/scenario.toml      the file as it was run
//! DIR/SCENARIO/series.json        who made the runs: only the same goes on with them
//! DIR/SCENARIO/absent.json        queues that this kernel lacks
//! DIR/SCENARIO/bounds.json        what no schedule can beat, made when they are summed up
//! DIR/SCENARIO/CELL/run-N.parquet records of each packet, written first
//! DIR/SCENARIO/CELL/run-N.json    the finished run, written last
//! ```
//!
//! Every file appears as a whole or not at all (written beside, then renamed), so a
//! run counts as finished exactly if its JSON is there.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::summary::{Absent, RunSummary};
use crate::{bestby, report::Provenance, scenario::Scenario};

const SCENARIO: &str = "scenario.toml";
const SERIES: &str = "series.json";
const ABSENT: &str = "absent.json";
const LOCK: &str = ".lock";

/// The right to write below a results' directory, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it, or says that another lab has it.
    pub(super) fn take(root: &Path) -> Result<Self> {
        let file = File::create(root.join(LOCK))
            .with_context(|| format!("writing into the results' directory {}", root.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => bail!(
                "another bestby-lab works in {}: wait for its end, or give another --out",
                root.display()
            ),
            // A file system without locks: then it is the user who must take care.
            Err(TryLockError::Error(_)) => Ok(Self { _file: file }),
        }
    }
}

/// Who made the runs of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Series {
    /// Kernel, commit, machine; the commands of all starts.
    pub(super) provenance: Provenance,
    /// Size and time of the programs that were measured: a commit does not name what
    /// was built from changed files. Empty where they were on another machine.
    programs: BTreeMap<String, String>,
    /// Runs of each cell as last asked for.
    pub(super) repetitions: u32,
}

impl Series {
    /// Of this process.
    pub(super) fn here(provenance: Provenance, repetitions: u32) -> Result<Self> {
        let stamps = bestby::programs()?
            .into_iter()
            .map(|(name, path)| Ok((name.to_owned(), stamp(&path)?)));
        let programs = stamps.collect::<Result<_>>()?;
        Ok(Self {
            provenance,
            programs,
            repetitions,
        })
    }

    /// Of runs whose programs are not here: kernel and commit stand for them.
    pub(super) fn elsewhere(provenance: Provenance, repetitions: u32) -> Self {
        Self {
            provenance,
            programs: BTreeMap::new(),
            repetitions,
        }
    }

    /// What differs from `other`, in words; `None` if runs of both may stand together.
    fn difference(&self, other: &Self) -> Option<String> {
        let (a, b) = (&self.provenance, &other.provenance);
        for (what, old, new) in [
            ("kernel", &a.kernel, &b.kernel),
            ("commit", &a.commit, &b.commit),
            ("machine", &a.machine, &b.machine),
        ] {
            if old != new {
                return Some(format!("the {what} was `{old}` and is `{new}`"));
            }
        }
        if self.programs.is_empty() {
            let named = !a.commit.is_empty() && !a.commit.ends_with('+');
            let unnamed = || {
                format!(
                    "its programs are not here, and commit `{}` does not say what they were",
                    a.commit
                )
            };
            return (!named).then(unnamed);
        }
        let changed = other
            .programs
            .iter()
            .find(|(name, stamp)| self.programs.get(*name) != Some(stamp));
        changed.map(|(name, _)| format!("`{name}` was built anew since"))
    }
}

fn stamp(program: &Path) -> Result<String> {
    let metadata =
        fs::metadata(program).with_context(|| format!("looking at {}", program.display()))?;
    let time = metadata.modified()?.duration_since(UNIX_EPOCH)?;
    Ok(format!(
        "{} bytes of {}.{:09}",
        metadata.len(),
        time.as_secs(),
        time.subsec_nanos()
    ))
}

/// What to do with runs that something else made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IfChanged {
    /// Say what changed and end.
    Refuse,
    /// Remove them and start anew.
    Anew,
}

/// The results of one scenario below the results' directory.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
    scenario: String,
}

impl Store {
    /// Opens `root/SCENARIO` for more runs.
    pub(super) fn open(
        root: &Path,
        scenario: &Scenario,
        series: &Series,
        if_changed: IfChanged,
    ) -> Result<Self> {
        let store = Self::at(root, &scenario.name);
        let directory = store.directory();
        if let Some(old) = store.series()? {
            let text = fs::read_to_string(directory.join(SCENARIO)).unwrap_or_default();
            let difference = if text == scenario.text {
                old.difference(series)
            } else {
                Some("the scenario's file has changed".to_owned())
            };
            match (difference, if_changed) {
                (None, _) => {
                    let now = Series {
                        provenance: old.provenance.clone().and(&series.provenance.command),
                        ..series.clone()
                    };
                    if now != old {
                        put(&directory.join(SERIES), &now)?;
                    }
                    return Ok(store);
                }
                (Some(what), IfChanged::Refuse) => bail!(
                    "{} holds runs of another series: {what}. They are not mixed: give another \
                     --out, or --if-changed anew to remove them",
                    directory.display()
                ),
                (Some(what), IfChanged::Anew) => {
                    note!("{}: {what}: its runs are removed", directory.display());
                    fs::remove_dir_all(&directory)
                        .with_context(|| format!("removing {}", directory.display()))?;
                }
            }
        } else if directory.exists() && fs::read_dir(&directory)?.next().is_some() {
            bail!(
                "{} is not empty and not a series of the lab: give another --out",
                directory.display()
            );
        }
        store.begin(&scenario.text, series, |_| Ok(()))?;
        Ok(store)
    }

    /// Makes the directory a series of the scenario that `text` says, with what `fill` adds.
    pub(super) fn begin(
        &self,
        text: &str,
        series: &Series,
        fill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let directory = self.directory();
        fs::create_dir_all(&directory)
            .with_context(|| format!("creating {}", directory.display()))?;
        replace(&directory.join(SCENARIO), text.as_bytes())?;
        fill(self)?;
        // Last: without it the directory is not a series yet.
        put(&directory.join(SERIES), series)
    }

    /// What is below `root` of `scenario`, whatever that is.
    pub(super) fn at(root: &Path, scenario: &str) -> Self {
        Self {
            root: root.to_owned(),
            scenario: scenario.to_owned(),
        }
    }

    /// Whether a directory is that of a scenario which was run.
    pub(super) fn is_series(directory: &Path) -> bool {
        directory.join(SERIES).is_file()
    }

    /// Opens what was run into `root` as `scenario`; `None` if that is no series.
    pub(super) fn read(root: &Path, scenario: &str) -> Result<Option<(Self, Series, PathBuf)>> {
        let store = Self::at(root, scenario);
        let file = store.directory().join(SCENARIO);
        Ok(store.series()?.map(|series| (store, series, file)))
    }

    fn directory(&self) -> PathBuf {
        self.root.join(&self.scenario)
    }

    fn series(&self) -> Result<Option<Series>> {
        get(&self.directory().join(SERIES))
    }

    /// Where a run's records are, relative to the results' directory.
    pub(super) fn records(&self, cell: &str, number: u32) -> String {
        format!("{}/{cell}/run-{number}.parquet", self.scenario)
    }

    /// Where the bounds of its schedules are kept.
    pub(super) fn bounds(&self) -> PathBuf {
        self.directory().join("bounds.json")
    }

    /// A path below the results' directory.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn run_file(&self, cell: &str, number: u32) -> PathBuf {
        self.directory()
            .join(cell)
            .join(format!("run-{number}.json"))
    }

    /// The run, if it is finished.
    pub(super) fn run(&self, cell: &str, number: u32) -> Result<Option<RunSummary>> {
        let file = self.run_file(cell, number);
        let run: Option<RunSummary> = get(&file)?;
        if let Some(run) = &run {
            ensure!(
                run.number == number,
                "{} holds run {}, and its name says {number}: it was copied or changed; remove \
                 it, and the series makes the run again",
                file.display(),
                run.number
            );
        }
        Ok(run)
    }

    /// Makes room for a cell's runs.
    pub(super) fn prepare(&self, cell: &str) -> Result<()> {
        let directory = self.directory().join(cell);
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))
    }

    /// Keeps a finished run.
    pub(super) fn keep(&self, cell: &str, run: &RunSummary) -> Result<()> {
        put(&self.run_file(cell, run.number), run)
    }

    /// Queues found absent.
    pub(super) fn absent(&self) -> Result<Vec<Absent>> {
        Ok(get(&self.directory().join(ABSENT))?.unwrap_or_default())
    }

    /// Keeps that a queue is there, though it may have been absent at an earlier start.
    pub(super) fn keep_present(&self, queue: &str) -> Result<()> {
        let mut all = self.absent()?;
        let before = all.len();
        all.retain(|absent| absent.queue != queue);
        if all.len() < before {
            put(&self.directory().join(ABSENT), &all)?;
        }
        Ok(())
    }

    /// Keeps that a queue is absent.
    pub(super) fn keep_absent(&self, absent: &Absent) -> Result<()> {
        let mut all = self.absent()?;
        all.retain(|other| other.queue != absent.queue);
        all.push(absent.clone());
        put(&self.directory().join(ABSENT), &all)
    }
}

/// Reads JSON; `None` if there is no such file.
pub(super) fn get<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let value = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not what this version of the lab writes: give another --out",
            file.display()
        )
    })?;
    Ok(Some(value))
}

/// Writes JSON; it is there as a whole or not at all.
pub(super) fn put<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    replace(file, text.as_bytes())
}

/// Writes a file; it is there as a whole or not at all.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = file.with_extension("unfinished");
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, file))
        .with_context(|| format!("writing {}", file.display()))
}
