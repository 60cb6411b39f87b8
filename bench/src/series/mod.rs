//! Series: all runs of scenarios, one after the other, and what is kept of them.
//!
//! Whoever makes a run (this process, or one in a guest) writes what became of it into the results'
//! directory ([`store`]); this process judges it from there ([`progress`]). So a series that is
//! interrupted goes on where it stopped when it is started again.

mod bench;
mod controlled;
mod guests;
mod job;
mod judge;
mod progress;
mod result;
mod run;
mod stalled;
mod store;
#[cfg(test)]
mod tests;
mod vm;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

pub use self::store::IfChanged;
use self::{
    bench::{Bench, Runner},
    job::{Job, jobs},
    progress::Progress,
    run::Outcome,
    store::{Lock, Series, Store},
};
use crate::{cleanup, provenance::Provenance, say::count, scenario::Scenario};

/// Options of `bestby-lab run`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Scenario files.
    #[arg(required = true, value_name = "SCENARIO.toml")]
    pub scenarios: Vec<PathBuf>,
    /// Run in a VM in virtual time: results do not depend on this machine. DIR must be
    /// in the source tree then.
    #[arg(long)]
    pub vm: bool,
    /// With --vm: the kernel.
    #[arg(long, default_value = "newest", requires = "vm",
          value_parser = ["newest", "6.12", "6.1"])]
    pub kernel: String,
    /// Results' directory; finished runs in it are not made again.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    pub out: PathBuf,
    /// Runs of each cell, instead of the scenarios' `repetitions`.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Only cells whose id, or queue's name, contains one of these words.
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub only: Vec<String>,
    /// What to do where DIR holds runs of a changed scenario, kernel, commit or program.
    #[arg(long, value_enum, default_value = "refuse")]
    pub if_changed: IfChanged,
    /// Say what would be run, and run nothing.
    #[arg(long)]
    pub list: bool,
    /// Make the runs that FILE names and do nothing else: what --vm starts inside a VM.
    #[arg(long, hide = true, value_name = "FILE")]
    pub inner: Option<PathBuf>,
}

/// Runs the scenarios and writes the results. A run that failed is an error after everything
/// else was done.
pub fn run(options: &Options) -> Result<()> {
    let scenarios = load(options)?;
    if options.list {
        list(&scenarios, options);
        return Ok(());
    }
    let jobs = all_jobs(&scenarios, options)?;
    if let Some(share) = &options.inner {
        return vm::inside(options, &jobs, share);
    }
    fs::create_dir_all(&options.out)
        .with_context(|| format!("creating the results' directory {}", options.out.display()))?;
    let _lock = Lock::take(&options.out)?;
    let provenance = if options.vm {
        Provenance::of_guests(vm::release(&options.kernel)?)
    } else {
        // SAFETY: it only reads the process' credentials.
        let root = unsafe { libc::geteuid() } == 0;
        ensure!(
            root,
            "the runs need network namespaces, and those need root: start it with sudo"
        );
        Provenance::here()
    };
    // Media are encoded here: a VM that emulates its processor would take long.
    for job in &jobs {
        let model = job.cell.point.model()?;
        model.prepare(job.scenario.seconds, job.seed())?;
    }
    let open = Open::new(options, &scenarios, &provenance)?;
    let made = make(options, &open, &jobs);
    // What is there is worth a result, whatever came of the rest.
    for (store, scenario, series) in open.0.values() {
        say!("{}", result::write(store, scenario, series)?.display());
    }
    made
}

fn load(options: &Options) -> Result<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for path in &options.scenarios {
        let scenario = Scenario::load(path)?;
        ensure!(
            scenarios.iter().all(|other| other.name != scenario.name),
            "two scenarios are named `{}`: their results would share a directory",
            scenario.name
        );
        scenarios.push(scenario);
    }
    Ok(scenarios)
}

fn repetitions(scenario: &Scenario, options: &Options) -> u32 {
    options.runs.unwrap_or(scenario.repetitions)
}

/// All runs asked for.
fn all_jobs<'a>(scenarios: &'a [Scenario], options: &Options) -> Result<Vec<Job<'a>>> {
    let jobs: Vec<Job<'_>> = scenarios
        .iter()
        .flat_map(|scenario| jobs(scenario, repetitions(scenario, options), &options.only))
        .collect();
    ensure!(
        !jobs.is_empty(),
        "no cell's id and no queue's name contains {}: --list shows them",
        options.only.join(" or ")
    );
    Ok(jobs)
}

fn list(scenarios: &[Scenario], options: &Options) {
    for scenario in scenarios {
        let repetitions = repetitions(scenario, options);
        let first: Vec<Job<'_>> = jobs(scenario, 1, &options.only);
        say!(
            "{}: {} x {} of {} s",
            scenario.name,
            count(first.len(), "cell"),
            count(repetitions, "run"),
            scenario.seconds
        );
        for job in first {
            say!("  {}", job.cell.id);
        }
    }
}

/// The results that are open for this series, by scenario.
#[derive(Debug, Default)]
struct Open<'a>(BTreeMap<&'a str, (Store, &'a Scenario, Series)>);

impl<'a> Open<'a> {
    fn new(options: &Options, scenarios: &'a [Scenario], made: &Provenance) -> Result<Self> {
        let mut open = Self::default();
        for scenario in scenarios {
            let series = Series::new(made.clone(), repetitions(scenario, options))?;
            let (store, series) = Store::open(&options.out, scenario, series, options.if_changed)?;
            open.0.insert(&scenario.name, (store, scenario, series));
        }
        Ok(open)
    }

    fn of(&self, job: &Job<'_>) -> Result<&(Store, &'a Scenario, Series)> {
        let found = self.0.get(job.scenario.name.as_str());
        found.context("a job of no scenario")
    }

    fn store(&self, job: &Job<'_>) -> Result<&Store> {
        Ok(&self.of(job)?.0)
    }
}

/// Makes all runs that are not there, and says how it goes.
fn make(options: &Options, open: &Open<'_>, jobs: &[Job<'_>]) -> Result<()> {
    go_on(open, jobs, |left, progress| {
        if options.vm {
            return vm::run(options, open, left, progress);
        }
        let mut bench = Bench::default();
        make_with(&mut bench, left, |job, outcome| {
            open.store(job)?.put_outcome(job, &outcome)?;
            progress.hear(job)
        })
    })
}

/// Hears what an earlier start made and did not judge, and has the rest made.
fn go_on<'a>(
    open: &'a Open<'a>,
    jobs: &[Job<'a>],
    make: impl FnOnce(&[Job<'a>], &mut Progress<'a>) -> Result<()>,
) -> Result<()> {
    let (mut made, mut left) = (Vec::new(), Vec::new());
    for &job in jobs {
        let store = open.store(&job)?;
        store.forget(&job);
        match store.run(&job)? {
            Some(_) => {}
            None if store.has_outcome(&job) => made.push(job),
            None => left.push(job),
        }
    }
    if made.is_empty() && left.is_empty() {
        say!("{} asked for, and there", count(jobs.len(), "run"));
        return Ok(());
    }
    let before = jobs.len() - made.len() - left.len();
    let mut progress = Progress::new(open, jobs.len(), before);
    for job in &made {
        progress.hear(job)?;
    }
    make(&left, &mut progress)?;
    progress.close()
}

/// The loop over runs; `keep` gets what becomes of each.
fn make_with<'a>(
    runner: &mut impl Runner,
    jobs: &[Job<'a>],
    mut keep: impl FnMut(&Job<'a>, Outcome) -> Result<()>,
) -> Result<()> {
    let mut absent: BTreeMap<(&str, String), String> = BTreeMap::new();
    for job in jobs {
        let queue = (job.scenario.name.as_str(), job.cell.queue.name());
        let outcome = match absent.get(&queue) {
            Some(why) => Outcome::Absent(why.clone()),
            None => {
                let made = runner.run(job);
                if cleanup::is_ending() {
                    cleanup::wait_for_the_end();
                }
                made.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
            }
        };
        if let Outcome::Absent(why) = &outcome {
            absent.insert(queue, why.clone());
        }
        keep(job, outcome)?;
    }
    Ok(())
}
