//! `--vm`: the same runs inside guests, in virtual time.
//!
//! The lab starts itself in as many guests as this machine carries, and tells each which runs to
//! make; what becomes of them it finds in the results' directory (see [`guests`]).

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};

use super::{
    bench::{Bench, make_with},
    guests::{self, Patience, Work},
    job::{Job, groups},
    options::Options,
    progress::Progress,
    run::Outcome,
    store::{self, Open, Store},
};
use crate::{bestby, cleanup, run, scenario::Scenario};

/// Real seconds that one guest may take; the next one goes on.
const GUEST_SECONDS: u32 = 6 * 3600;

/// What one guest may take of this machine's memory, KiB: its own 2 GiB, and what QEMU
/// needs for the code it translates.
const GUEST_KIB: u64 = 2_560 * 1024;

/// A run of 20 s takes about as long in real time, so these are far from any that works.
const PATIENCE: Patience = Patience {
    least: Duration::from_secs(20 * 60),
    per_traffic: 60,
    per_slowest: 5,
};

/// `uname -r` of the kernel that `--kernel` names; fetches it, where it is not here.
pub(super) fn release(kernel: &str) -> Result<String> {
    let script = script()?.with_file_name("kernel");
    run::output(Command::new(&script).arg(kernel))?;
    let tree = script
        .ancestors()
        .nth(3)
        .context("tests/vm/kernel stands in no source tree")?;
    let file = tree.join("target/vm").join(kernel).join("release");
    let release =
        fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    Ok(release.trim().to_owned())
}

/// Has runs made in guests.
pub(super) fn run<'a>(
    options: &Options,
    open: &'a Open<'a>,
    jobs: &[Job<'a>],
    progress: &mut Progress<'a>,
) -> Result<()> {
    let script = script()?;
    let tree = script
        .ancestors()
        .nth(3)
        .context("tests/vm/run stands in no source tree")?;
    let out = fs::canonicalize(&options.out)?;
    ensure!(
        out.starts_with(tree),
        "a guest can write below {} only, which {} is not: give another --out",
        tree.display(),
        out.display()
    );
    let scenarios = open.0.values().map(|(_, scenario, _)| *scenario);
    let processors = processors()?;
    let at_once = at_once(processors.len(), groups(jobs).len());
    let mut work = Guests {
        options,
        open,
        progress,
        papers: Papers::new(&out, scenarios)?,
        script,
        out,
        processors,
    };
    note!(
        "{at_once} at once in virtual time, Linux {}",
        options.kernel
    );
    guests::work(jobs, at_once, PATIENCE, &mut work)
}

struct Guests<'a, 'b> {
    options: &'b Options,
    open: &'a Open<'a>,
    progress: &'b mut Progress<'a>,
    papers: Papers,
    script: PathBuf,
    out: PathBuf,
    processors: Vec<usize>,
}

impl Guests<'_, '_> {
    fn share(&self, seat: usize) -> PathBuf {
        self.papers.directory.join(format!("share-{seat}.json"))
    }
}

impl<'a> Work<'a> for Guests<'a, '_> {
    fn launch(&mut self, share: &[Job<'a>], seat: usize) -> Result<Command> {
        let file = self.share(seat);
        let names: Vec<Name> = share.iter().map(name).collect();
        store::put(&file, &names)?;
        let processor = self
            .processors
            .get(seat)
            .context("more guests than processors")?;
        // QEMU's threads take turns, at each of the guest's timers: on two processors that took
        // a third longer, for each had to be woken.
        let mut command = Command::new("taskset");
        command
            .args(["-c", &processor.to_string()])
            .arg(&self.script)
            .args(["--icount", "--kernel", &self.options.kernel])
            .args(["--timeout", &GUEST_SECONDS.to_string()])
            .arg("--")
            .args(["sh", "-c", IN_MEMORY])
            .arg(&self.papers.directory)
            .args(["run", "--out"])
            .arg(&self.out)
            .arg("--inner")
            .arg(&file)
            .args(&self.papers.scenarios);
        if let Some(runs) = self.options.runs {
            command.args(["--runs", &runs.to_string()]);
        }
        Ok(command)
    }

    fn has_begun(&self, seat: usize) -> bool {
        !self.share(seat).exists()
    }

    fn is_over(&self, job: &Job<'a>) -> Result<bool> {
        Ok(self.open.store(job)?.has_outcome(job))
    }

    fn hear(&mut self, job: &Job<'a>) -> Result<()> {
        self.progress.hear(job)
    }

    fn fail(&mut self, job: &Job<'a>, why: String) -> Result<()> {
        self.open
            .store(job)?
            .put_outcome(job, &Outcome::Failed(why))?;
        self.progress.hear(job)
    }
}

/// Scenario, cell and repetition: names a run to both sides, which read the same scenarios.
type Name = (String, String, u32);

fn name(job: &Job<'_>) -> Name {
    (job.scenario.name.clone(), job.cell.id.clone(), job.number)
}

/// In a guest: makes the runs that the file `share` names, in its order. The file goes first: then
/// the guest has begun.
pub(super) fn inside(options: &Options, jobs: &[Job<'_>], share: &Path) -> Result<()> {
    let names: Option<Vec<Name>> = store::get(share)?;
    let names = names.with_context(|| format!("{} is gone", share.display()))?;
    fs::remove_file(share).with_context(|| format!("removing {}", share.display()))?;
    let known: HashMap<Name, Job<'_>> = jobs.iter().map(|&job| (name(&job), job)).collect();
    let mine: Option<Vec<Job<'_>>> = names.iter().map(|name| known.get(name).copied()).collect();
    let mine = mine.context("a run was asked for that no scenario has")?;
    make_with(&mut Bench::default(), &mine, |job, outcome| {
        Store::at(&options.out, job.scenario).put_outcome(job, &outcome)
    })
}

/// Numbers of the processors that this process may use.
fn processors() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("asking for this process' processors")?;
    let mine = (0..CpuSet::count()).filter(|&number| set.is_set(number).unwrap_or(false));
    Ok(mine.collect())
}

/// How many guests work at once on `groups` of runs: as many as there are processors for
/// this process, and as the memory that is free now carries; at least one.
fn at_once(processors: usize, groups: usize) -> usize {
    let memory = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available_kib(&text))
        .map_or(1, |kib| {
            usize::try_from(kib / GUEST_KIB).unwrap_or(usize::MAX)
        });
    processors.min(memory).min(groups).max(1)
}

/// `MemAvailable` of /proc/meminfo.
fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How the names of directories with [`Papers`] begin.
const PAPERS: &str = ".guests-";

/// What guests read: the scenarios and the programs, whatever becomes of the source tree
/// meanwhile, and each guest's share of the runs. Gone at the end.
struct Papers {
    directory: PathBuf,
    scenarios: Vec<PathBuf>,
    _guard: cleanup::Guard,
}

impl Papers {
    fn new<'a>(out: &Path, scenarios: impl IntoIterator<Item = &'a Scenario>) -> Result<Self> {
        // What a lab that was killed left; the lock says that no other one is at work.
        for entry in fs::read_dir(out)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(PAPERS) {
                fs::remove_dir_all(entry.path())
                    .with_context(|| format!("removing {}", entry.path().display()))?;
            }
        }
        let directory = tempfile::Builder::new()
            .prefix(PAPERS)
            .tempdir_in(out)
            .with_context(|| format!("making a directory in {}", out.display()))?
            .keep();
        let guard = cleanup::on_exit({
            let directory = directory.clone();
            move || {
                if let Err(error) = fs::remove_dir_all(&directory) {
                    note!("cannot remove {}: {error}", directory.display());
                }
            }
        });
        let mut papers = Self {
            directory,
            scenarios: Vec::new(),
            _guard: guard,
        };
        for scenario in scenarios {
            let file = papers.directory.join(format!("{}.toml", scenario.name));
            fs::write(&file, &scenario.text)
                .with_context(|| format!("writing {}", file.display()))?;
            papers.scenarios.push(file);
        }
        for (name, program) in bestby::programs()? {
            let copy = papers.directory.join(name);
            fs::copy(&program, &copy)
                .with_context(|| format!("copying {} to {}", program.display(), copy.display()))?;
        }
        Ok(papers)
    }
}

/// `tests/vm/run` of the tree that this program, or the current directory, is in.
fn script() -> Result<PathBuf> {
    let own = env::current_exe().context("where is this program?")?;
    let here = env::current_dir().context("the current directory")?;
    for start in [own, here] {
        for directory in start.ancestors() {
            let script = directory.join("tests/vm/run");
            if script.is_file() {
                return Ok(fs::canonicalize(script)?);
            }
        }
    }
    bail!(
        "--vm needs tests/vm/run of bestby's source tree: neither this program nor the current directory is in one"
    )
}

/// The lab in the guest, from the guest's own memory: a program on the share is read anew each
/// time that it is started, to other pages, and all of it is then translated anew.
const IN_MEMORY: &str =
    r#"mkdir /tmp/lab && cp "$0"/best* /tmp/lab/ && exec /tmp/lab/bestby-lab "$@""#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_once_are_as_many_as_there_is_work_for() {
        assert_eq!(at_once(4, 0), 1);
        assert_eq!(at_once(4, 1), 1);
        assert_eq!(at_once(1, 1000), 1);
        assert!(!processors().expect("processors").is_empty());
        let text = "MemTotal: 9 kB\nMemAvailable:   20971520 kB\nMemFree: 1 kB\n";
        assert_eq!(available_kib(text), Some(20 << 20));
        assert_eq!(available_kib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn papers_of_a_killed_lab_are_removed_and_the_own_ones_at_the_end() {
        let out = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(out.path().join(".guests-killed/x")).expect("made");
        let papers = Papers::new(out.path(), []).expect("papers");
        assert!(papers.directory.join("bestby-lab").is_file());
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 1);
        drop(papers);
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 0);
    }
}
