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

use anyhow::{Context as _, Result, ensure};
use nix::{
    sched::{CpuSet, sched_getaffinity},
    unistd::Pid,
};

use super::{
    bench::{Bench, make_with},
    guests,
    options::Options,
    progress::Progress,
    run::{Job, groups},
    store::{self, Store},
};
use crate::{bestby, cleanup, run, scenario::Scenario};

/// Real seconds that one guest may take; the next one goes on.
const GUEST_SECONDS: u32 = 6 * 3600;

/// What one guest may take of this machine's memory, KiB: its own 2 GiB, and what QEMU
/// needs for the code it translates.
const GUEST_KIB: u64 = 2_560 * 1024;

/// How long a guest may finish no run before it is taken for hanging. A run of 20 s takes about as
/// long in real time, so these are far from any that works.
fn patience(job: Option<&Job<'_>>, slowest: Duration) -> Duration {
    let traffic = Duration::from_secs(job.map_or(0, |job| job.scenario.seconds));
    let least = Duration::from_secs(20 * 60);
    least.max(traffic * 60).max(slowest * 5)
}

/// `uname -r` of the kernel that `--kernel` names; fetches it, where it is not here.
pub(super) fn release(kernel: &str) -> Result<String> {
    let tree = tree()?;
    run::output(Command::new(tree.join("tests/vm/kernel")).arg(kernel))?;
    let file = tree.join("target/vm").join(kernel).join("release");
    let release = fs::read_to_string(&file);
    let release = release.with_context(|| format!("reading {}", file.display()))?;
    Ok(release.trim().to_owned())
}

/// Has runs made in guests.
pub(super) fn run<'a>(
    options: &Options,
    jobs: &[Job<'a>],
    progress: &mut Progress<'a>,
) -> Result<()> {
    let (tree, out) = (tree()?, fs::canonicalize(&options.out)?);
    ensure!(
        out.starts_with(&tree),
        "a guest can write below {} only, which {} is not: give another --out",
        tree.display(),
        out.display()
    );
    let papers = Papers::new(&out, progress.store.open.iter().map(|open| open.0))?;
    let processors = processors()?;
    let at_once = at_once(processors.len(), groups(jobs).len());
    let kernel = &options.kernel;
    note!("{at_once} at once in virtual time, Linux {kernel}");
    let launch = |share: &[Job<'a>], seat: usize, guest: usize| {
        // A name of its own: the guest before it on this seat may not be gone yet.
        let file = papers.directory.join(format!("share-{guest}.json"));
        store::put(&file, &share.iter().map(name).collect::<Vec<Name>>())?;
        let processor = processors.get(seat);
        let processor = processor.context("more guests than processors")?;
        // QEMU's threads take turns, at each of the guest's timers: on two processors that took
        // a third longer, for each had to be woken.
        let mut command = Command::new("taskset");
        command
            .args(["-c", &processor.to_string()])
            .arg(tree.join("tests/vm/run"))
            .args(["--icount", "--kernel", kernel])
            .args(["--timeout", &GUEST_SECONDS.to_string()])
            .args(["--", "sh", "-c", IN_MEMORY])
            .arg(&papers.directory)
            .args(["run", "--out"])
            .arg(&out)
            .arg("--inner")
            .arg(&file)
            .args(&papers.scenarios);
        if let Some(runs) = options.runs {
            command.args(["--runs", &runs.to_string()]);
        }
        Ok((command, file))
    };
    guests::work(jobs, at_once, patience, progress, launch)
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
    let (store, mut bench) = (Store::at(&options.out), Bench::default());
    make_with(
        &mine,
        |job| bench.run(job),
        |job, outcome| store.put_outcome(job, &outcome),
    )
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
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = available_kib(&meminfo).map_or(1, |kib| kib / GUEST_KIB);
    let memory = usize::try_from(memory).unwrap_or(usize::MAX);
    processors.min(memory).min(groups).max(1)
}

/// `MemAvailable` of /proc/meminfo.
fn available_kib(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
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
                store::remove(&entry.path())?;
            }
        }
        let directory = tempfile::Builder::new()
            .prefix(PAPERS)
            .tempdir_in(out)
            .with_context(|| format!("making a directory in {}", out.display()))?
            .keep();
        let removed = directory.clone();
        let guard = cleanup::on_exit(move || {
            if let Err(error) = fs::remove_dir_all(&removed) {
                note!("cannot remove {}: {error}", removed.display());
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

/// The source tree that this program, or the current directory, is in.
fn tree() -> Result<PathBuf> {
    let own = env::current_exe().context("where is this program?")?;
    let here = env::current_dir().context("the current directory")?;
    let mut all = own.ancestors().chain(here.ancestors());
    let tree = all.find(|directory| directory.join("tests/vm/run").is_file());
    Ok(fs::canonicalize(tree.context(
        "--vm needs tests/vm/run of bestby's source tree: neither this program nor the current \
         directory is in one",
    )?)?)
}

/// The lab in the guest, from the guest's own memory: a program on the share is read anew each
/// time that it is started, to other pages, and all of it is then translated anew.
const IN_MEMORY: &str =
    r#"mkdir /tmp/lab && cp "$0"/best* /tmp/lab/ && exec /tmp/lab/bestby-lab "$@""#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{run::jobs, tests};

    #[test]
    fn patience_follows_the_traffic_and_the_slowest_run() {
        let out = tempfile::tempdir().expect("a directory");
        let mut scenario = tests::scenario(out.path(), tests::TEXT);
        scenario.seconds = 50;
        let job = jobs(&scenario, 1, &[])[0];
        for (job, slowest, minutes) in [(None, 0, 20), (Some(&job), 0, 50), (None, 12, 60)] {
            let found = patience(job, Duration::from_secs(slowest * 60));
            assert_eq!(found, Duration::from_secs(minutes * 60));
        }
    }

    #[test]
    fn at_once_are_as_many_as_there_is_work_for() {
        for (processors, groups) in [(4, 0), (4, 1), (1, 1000)] {
            assert_eq!(at_once(processors, groups), 1);
        }
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
