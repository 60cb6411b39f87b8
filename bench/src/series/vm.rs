//! `--vm`: the same runs inside guests, in virtual time.
//!
//! The lab starts itself in as many guests as this machine carries, tells each which runs
//! to make, and passes on what they say (see [`crew`](super::crew)).

use std::{
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
    IfChanged, Options,
    account::Account,
    crew::{Crew, Patience},
    event::Name,
    job::{Job, groups},
    left, store,
};
use crate::{bestby, cleanup, report, scenario::Scenario};

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
    // tests/vm/run kills QEMU after 5 s.
    grace: Duration::from_secs(15),
};

/// Makes all runs in guests.
pub(super) fn run(options: &Options, scenarios: &[Scenario], jobs: &[Job<'_>]) -> Result<()> {
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
    let papers = Papers::new(&out, scenarios)?;
    let work = to_make(options.if_changed, left(&out, jobs)?, jobs);
    let processors = processors()?;
    let guests = at_once(processors.len(), groups(jobs, work).len());
    note!(
        "{} in virtual time, Linux {}",
        match guests {
            1 => "one guest".to_owned(),
            n => format!("{n} guests at once"),
        },
        options.kernel
    );
    let mut started = 0u32;
    Crew {
        jobs,
        guests,
        patience: PATIENCE,
        launch: |runs: &[Name], first: bool, seat: usize| {
            started += 1;
            let share = papers.share(started, runs)?;
            // What is there after the first was made by this very series.
            let if_changed = if first {
                options.if_changed
            } else {
                IfChanged::Refuse
            };
            let processor = *processors
                .get(seat)
                .context("more guests than processors")?;
            Ok(command(
                options, &papers, &script, processor, &out, &share, if_changed,
            ))
        },
        left: || left(&out, jobs),
        account: |before| Account::new(out.clone(), jobs.len(), before),
    }
    .work()
}

/// Places of the runs that there may be to make, `missing` or not: with `Anew` the first
/// guest may remove all that is there.
fn to_make<T>(if_changed: IfChanged, missing: Vec<usize>, jobs: &[T]) -> Vec<usize> {
    match if_changed {
        IfChanged::Refuse => missing,
        IfChanged::Anew => (0..jobs.len()).collect(),
    }
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
    commit: String,
    _guard: cleanup::Guard,
}

impl Papers {
    fn new(out: &Path, scenarios: &[Scenario]) -> Result<Self> {
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
            commit: report::commit(),
            _guard: guard,
        };
        for scenario in scenarios {
            let file = papers.directory.join(format!("{}.toml", scenario.name));
            fs::write(&file, &scenario.text)
                .with_context(|| format!("writing {}", file.display()))?;
            papers.scenarios.push(file);
        }
        for (name, program) in bestby::programs()? {
            copy(&program, &papers.directory.join(name))?;
        }
        Ok(papers)
    }

    fn share(&self, number: u32, runs: &[Name]) -> Result<PathBuf> {
        let file = self.directory.join(format!("share-{number}.json"));
        store::put(&file, &runs)?;
        Ok(file)
    }
}

/// Copies a program. The time stays: a series is known by its programs' sizes and times.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = || -> std::io::Result<()> {
        fs::copy(from, to)?;
        let time = fs::metadata(from)?.modified()?;
        fs::File::options().write(true).open(to)?.set_modified(time)
    };
    copied().with_context(|| format!("copying {} to {}", from.display(), to.display()))
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
    r#"mkdir /tmp/lab && cp -p "$0"/best* /tmp/lab/ && exec /tmp/lab/bestby-lab "$@""#;

fn command(
    options: &Options,
    papers: &Papers,
    script: &Path,
    processor: usize,
    out: &Path,
    share: &Path,
    if_changed: IfChanged,
) -> Command {
    // QEMU's threads take turns, at each of the guest's timers: on two processors that took
    // a third longer, for each had to be woken.
    let mut command = Command::new("taskset");
    command
        .args(["-c", &processor.to_string()])
        .arg(script)
        .env(report::COMMAND, report::command_line())
        .env(report::COMMIT, &papers.commit)
        .args(["--icount", "--kernel", &options.kernel])
        .args(["--timeout", &GUEST_SECONDS.to_string()])
        .arg("--")
        .args(["sh", "-c", IN_MEMORY])
        .arg(&papers.directory)
        .args(["run", "--if-changed"])
        .arg(match if_changed {
            IfChanged::Refuse => "refuse",
            IfChanged::Anew => "anew",
        })
        .arg("--out")
        .arg(out)
        .arg("--inner")
        .arg(share);
    if let Some(runs) = options.runs {
        command.arg("--runs").arg(runs.to_string());
    }
    if !options.only.is_empty() {
        command.arg("--only").arg(options.only.join(","));
    }
    command.args(&papers.scenarios);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_as_many_as_there_is_work_for() {
        assert_eq!(at_once(4, 0), 1);
        assert_eq!(at_once(4, 1), 1);
        assert_eq!(at_once(1, 1000), 1);
        assert!(!processors().expect("processors").is_empty());
        let text = "MemTotal: 9 kB\nMemAvailable:   20971520 kB\nMemFree: 1 kB\n";
        assert_eq!(available_kib(text), Some(20 << 20));
        assert_eq!(available_kib("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn who_starts_anew_has_all_the_work_to_do() {
        let jobs = [3, 4];
        assert_eq!(to_make(IfChanged::Refuse, vec![1], &jobs), [1]);
        assert_eq!(to_make(IfChanged::Anew, Vec::new(), &jobs), [0, 1]);
    }

    #[test]
    fn papers_of_a_killed_lab_are_removed_and_the_own_ones_at_the_end() {
        let out = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(out.path().join(".guests-killed/x")).expect("made");
        let papers = Papers::new(out.path(), &[]).expect("papers");
        let share = papers.share(1, &[]).expect("a share");
        assert!(share.is_file());
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 1);
        let modified = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
        let own = env::current_exe().expect("a program");
        assert_eq!(
            modified(&papers.directory.join("bestby-lab")).expect("the lab's copy"),
            modified(&own).expect("the lab")
        );
        drop(papers);
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 0);
    }
}
