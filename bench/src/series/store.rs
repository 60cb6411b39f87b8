//! What is kept of a scenario's runs on disk, and how an interrupted series goes on.
//!
//! docs/lab.md lists the files. Every one appears as a whole or not at all (written beside, then
//! renamed), and so does the directory of a scenario. So these files are also how a guest tells the
//! lab outside of it what became of a run: `run-N.parquet` is a run as it was made, with each packet
//! and, in the metadata, what was measured; `run-N.json` is the same, judged.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    options::IfChanged,
    run::{Job, Outcome, Run},
};
use crate::{bestby, columns::Columns, provenance::Provenance, scenario::Scenario};

/// The right to write below a results' directory, until it is dropped or the process ends.
pub(super) fn lock(root: &Path) -> Result<File> {
    let file = File::create(root.join(".lock"))
        .with_context(|| format!("writing into the results' directory {}", root.display()))?;
    match file.try_lock() {
        // A file system without locks: then it is the user who must take care.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another bestby-lab works in {}: wait for its end, or give another --out",
            root.display()
        ),
    }
}

/// Who made the runs of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Series {
    /// Kernel, commit, machine; the commands of all starts.
    pub(super) provenance: Provenance,
    /// Size and time of the programs that were measured: a commit does not name what
    /// was built from changed files.
    programs: BTreeMap<String, String>,
    /// Runs of each cell, the most that was asked for.
    pub(super) repetitions: u32,
}

impl Series {
    /// Of this process' programs.
    pub(super) fn new(provenance: Provenance, repetitions: u32) -> Result<Self> {
        let stamp = |(name, path): (&str, PathBuf)| {
            let metadata =
                fs::metadata(&path).with_context(|| format!("looking at {}", path.display()))?;
            let time = metadata.modified()?.duration_since(UNIX_EPOCH)?;
            let stamp = format!("{} bytes of {time:?}", metadata.len());
            Ok((name.to_owned(), stamp))
        };
        let programs = bestby::programs()?.into_iter().map(stamp);
        Ok(Self {
            provenance,
            programs: programs.collect::<Result<_>>()?,
            repetitions,
        })
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
        let mut programs = other.programs.iter();
        let changed = programs.find(|(name, stamp)| self.programs.get(*name) != Some(stamp));
        changed.map(|(name, _)| format!("`{name}` was built anew since"))
    }
}

/// The results below a directory.
#[derive(Debug, Default)]
pub(super) struct Store<'a> {
    pub(super) root: PathBuf,
    /// What is open for more runs.
    pub(super) open: Vec<(&'a Scenario, Series)>,
}

impl<'a> Store<'a> {
    /// What is below `root`, whatever that is.
    pub(super) fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            open: Vec::new(),
        }
    }

    /// Opens `root/SCENARIO` for more runs; with them go those of earlier starts. However this
    /// ends, the directory is a series as a whole, or not there.
    pub(super) fn open(
        &mut self,
        scenario: &'a Scenario,
        mut series: Series,
        if_changed: IfChanged,
    ) -> Result<()> {
        let directory = self.root.join(&scenario.name);
        // What is made or removed has this name, until it is whole or gone.
        let hidden = self.root.join(format!(".unfinished-{}", scenario.name));
        remove(&hidden)?;
        let file = directory.join("series.json");
        if let Some(old) = get::<Series>(&file)? {
            let text = fs::read_to_string(directory.join("scenario.toml")).unwrap_or_default();
            let difference = match text == scenario.text {
                true => old.difference(&series),
                false => Some("the scenario's file has changed".to_owned()),
            };
            let Some(what) = difference else {
                let new = std::mem::replace(&mut series.provenance, old.provenance);
                series.provenance.add(&new.commands);
                series.repetitions = series.repetitions.max(old.repetitions);
                put(&file, &series)?;
                self.open.push((scenario, series));
                return Ok(());
            };
            if if_changed == IfChanged::Refuse {
                bail!(
                    "{} holds runs of another series: {what}. They are not mixed: give another \
                     --out, or --if-changed anew to remove them",
                    directory.display()
                );
            }
            note!("{}: {what}: its runs are removed", directory.display());
            rename(&directory, &hidden)?;
            remove(&hidden)?;
        } else if fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!(
                "{} is not empty and not a series of the lab: give another --out",
                directory.display()
            );
        }
        fs::create_dir_all(&hidden).with_context(|| format!("creating {}", hidden.display()))?;
        replace(&hidden.join("scenario.toml"), scenario.text.as_bytes())?;
        put(&hidden.join("series.json"), &series)?;
        rename(&hidden, &directory)?;
        self.open.push((scenario, series));
        Ok(())
    }

    fn of(&self, job: &Job<'_>, ending: &str) -> PathBuf {
        let cell = self.root.join(&job.scenario.name).join(&job.cell.id);
        cell.join(format!("run-{}.{ending}", job.number))
    }

    /// The run, if it is made and judged.
    pub(super) fn run(&self, job: &Job<'_>) -> Result<Option<Run>> {
        get(&self.of(job, "json"))
    }

    /// Keeps a run that is judged.
    pub(super) fn keep(&self, job: &Job<'_>, run: &Run) -> Result<()> {
        put(&self.of(job, "json"), run)
    }

    /// Whether [`Store::outcome`] has something.
    pub(super) fn has_outcome(&self, job: &Job<'_>) -> bool {
        let mut endings = ["parquet", "absent", "failed"].iter();
        endings.any(|ending| self.of(job, ending).exists())
    }

    /// What became of a run, if it is known.
    pub(super) fn outcome(&self, job: &Job<'_>) -> Result<Option<Outcome>> {
        let packets = self.of(job, "parquet");
        if packets.exists() {
            let table = Columns::read(&packets)?;
            let run = table.said("run").context("it says nothing of its run");
            let run = run.and_then(|text| Ok(serde_json::from_str(text)?));
            let run = run.with_context(|| format!("reading {}", packets.display()))?;
            return Ok(Some(Outcome::Made(Box::new(run), table)));
        }
        for (ending, outcome) in [
            ("absent", Outcome::Absent as fn(_) -> _),
            ("failed", Outcome::Failed),
        ] {
            if let Some(why) = read(&self.of(job, ending))? {
                return Ok(Some(outcome(why)));
            }
        }
        Ok(None)
    }

    /// Keeps what became of a run.
    pub(super) fn put_outcome(&self, job: &Job<'_>, outcome: &Outcome) -> Result<()> {
        let file = self.of(job, "parquet");
        let cell = file.parent().context("a file without a directory")?;
        fs::create_dir_all(cell).with_context(|| format!("creating {}", cell.display()))?;
        match outcome {
            Outcome::Made(run, packets) => {
                let mut packets = packets.clone();
                packets.said = vec![("run".to_owned(), serde_json::to_string(run)?)];
                packets.write(&file)
            }
            Outcome::Absent(why) => replace(&self.of(job, "absent"), why.as_bytes()),
            Outcome::Failed(why) => replace(&self.of(job, "failed"), why.as_bytes()),
        }
    }

    /// Forgets why there was no such run, so that it is tried again.
    pub(super) fn forget(&self, job: &Job<'_>) {
        for ending in ["absent", "failed"] {
            // Not there, as a rule.
            let _ = fs::remove_file(self.of(job, ending));
        }
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("renaming {} to {}", from.display(), to.display()))
}

/// Removes a directory, if it is there.
pub(super) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

fn read(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", file.display())),
    }
}

/// Reads JSON; `None` if there is no such file.
pub(super) fn get<T: DeserializeOwned>(file: &Path) -> Result<Option<T>> {
    let Some(text) = read(file)? else {
        return Ok(None);
    };
    let value = serde_json::from_str(&text).with_context(|| {
        let file = file.display();
        format!("{file} is not what this version of the lab writes: give another --out")
    })?;
    Ok(Some(value))
}

/// Writes JSON; it is there as a whole or not at all.
pub(super) fn put<T: Serialize>(file: &Path, value: &T) -> Result<()> {
    replace(file, (serde_json::to_string(value)? + "\n").as_bytes())
}

/// Writes a file; it is there as a whole or not at all.
fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(".unfinished");
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, file))
        .with_context(|| format!("writing {}", file.display()))
}
