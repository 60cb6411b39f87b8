//! Series: all runs of scenarios, one after the other, and what is kept of them.
//!
//! Each run that is finished is a file (see [`store`]), so a series that is
//! interrupted goes on where it stopped when it is started again.

mod account;
pub mod archive;
mod bench;
mod controlled;
mod crew;
mod event;
mod guest;
mod job;
mod limit;
mod pictures;
mod progress;
mod stalled;
pub(crate) mod store;
pub mod summary;
mod vm;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

pub use self::store::IfChanged;
use self::{
    account::Account,
    bench::{Bench, Outcome, Runner},
    event::{Event, Fate, Listener, Name, Outside},
    job::{Job, jobs},
    store::{Lock, Series, Store},
};
use crate::{
    cleanup, records,
    report::{self, Provenance},
    say::count,
    scenario::Scenario,
};

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
    /// Make the runs that FILE names, say in JSON what comes of them, and do nothing
    /// else: what --vm starts inside a VM.
    #[arg(long, hide = true, value_name = "FILE")]
    pub inner: Option<PathBuf>,
}

/// Runs the scenarios and writes the summary and the report. A run that failed is an
/// error after everything else was done.
pub fn run(options: &Options) -> Result<()> {
    let scenarios = load(options)?;
    if options.list {
        list(&scenarios, options);
        return Ok(());
    }
    if let Some(share) = &options.inner {
        return inside(options, &scenarios, share).or_else(|error| {
            Event::Broken {
                why: format!("{error:#}"),
            }
            .send()
        });
    }
    let jobs = all_jobs(&scenarios, options)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("creating the results' directory {}", options.out.display()))?;
    let _lock = Lock::take(&options.out)?;
    // Media are encoded here: a VM that emulates its processor would take long.
    for job in &jobs {
        let model = job.cell.point.model()?;
        model.prepare(job.scenario.seconds, job.seed())?;
    }
    let made = if options.vm {
        vm::run(options, &scenarios, &jobs)
    } else {
        make(options, &scenarios, &jobs)
    };
    // What is there is worth a report, whatever came of the rest.
    let written = summary::write(&options.out).and_then(|_| report::html::write(&options.out));
    made?;
    say!("{}", written?.display());
    Ok(())
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

/// Opens the results' directory for runs of this process: by scenario.
fn open(options: &Options, scenarios: &[Scenario], here: &Provenance) -> Result<Stores> {
    let mut stores = Stores::new();
    for scenario in scenarios {
        let series = Series::here(here.clone(), repetitions(scenario, options))?;
        let store = Store::open(&options.out, scenario, &series, options.if_changed)?;
        stores.insert(scenario.name.clone(), store);
    }
    Ok(stores)
}

type Stores = BTreeMap<String, Store>;

/// Those of `jobs` whose runs are not in `out`, as places in `jobs`.
fn left(out: &Path, jobs: &[Job<'_>]) -> Result<Vec<usize>> {
    let mut left = Vec::new();
    for (place, job) in jobs.iter().enumerate() {
        let store = Store::at(out, &job.scenario.name);
        if store.run(&job.cell.id, job.number)?.is_none() {
            left.push(place);
        }
    }
    Ok(left)
}

/// Makes all runs that are not there, on this kernel.
fn make(options: &Options, scenarios: &[Scenario], jobs: &[Job<'_>]) -> Result<()> {
    // SAFETY: it only reads the process' credentials.
    let root = unsafe { libc::geteuid() } == 0;
    ensure!(
        root,
        "the runs need network namespaces, and those need root: start it with sudo"
    );
    let here = Provenance::here(0);
    let stores = open(options, scenarios, &here)?;
    go_on(&mut Bench::default(), jobs, &stores, &here, &options.out)
}

/// Makes the runs that are not there, and says how it goes.
fn go_on(
    runner: &mut impl Runner,
    jobs: &[Job<'_>],
    stores: &Stores,
    here: &Provenance,
    out: &Path,
) -> Result<()> {
    let left = left(out, jobs)?;
    if left.is_empty() {
        say!("{} asked for, and there", count(jobs.len(), "run"));
        return Ok(());
    }
    let mut account = Account::new(out.to_owned(), jobs.len(), jobs.len() - left.len());
    let left: Vec<Job<'_>> = left.iter().map(|&place| jobs[place]).collect();
    make_with(runner, &left, stores, here, &mut account)?;
    account.close()
}

/// Makes the runs that the file `share` names, and tells the lab outside of this guest.
fn inside(options: &Options, scenarios: &[Scenario], share: &Path) -> Result<()> {
    let share: BTreeSet<Name> = store::get(share)?
        .with_context(|| format!("{} names the runs to make and is gone", share.display()))?;
    let here = Provenance::here(0);
    let stores = open(options, scenarios, &here)?;
    Event::Open.send()?;
    let jobs: Vec<Job<'_>> = all_jobs(scenarios, options)?
        .into_iter()
        .filter(|job| share.contains(&Name::of(job)))
        .collect();
    make_with(&mut Bench::default(), &jobs, &stores, &here, &mut Outside)
}

/// The loop over runs.
fn make_with(
    runner: &mut impl Runner,
    jobs: &[Job<'_>],
    stores: &Stores,
    provenance: &Provenance,
    listener: &mut impl Listener,
) -> Result<()> {
    let mut absent: BTreeMap<(&str, String), String> = BTreeMap::new();
    for job in jobs {
        let cell = &job.cell.id;
        let store = stores
            .get(&job.scenario.name)
            .context("a job of no scenario")?;
        let queue = (job.scenario.name.as_str(), job.cell.queue.name());
        if let Some(why) = absent.get(&queue) {
            listener.hear(job, Fate::Absent(why.clone()))?;
            continue;
        }
        // A guest may have ended after it kept the run and before it could say so.
        if let Some(run) = store.run(cell, job.number)? {
            listener.hear(job, Fate::Done(progress::describe(job, &run)))?;
            continue;
        }
        listener.hear(job, Fate::Begun)?;
        let outcome = runner.run(job);
        if cleanup::is_ending() {
            cleanup::wait_for_the_end();
        }
        let fate = match outcome {
            Ok(Outcome::Done(mut run, rows)) => {
                store.prepare(cell)?;
                run.records = store.records(cell, job.number);
                let labels = labels(job, &run, provenance);
                records::write(&store.path(&run.records), &rows, &labels)?;
                store.keep(cell, &run)?;
                Fate::Done(progress::describe(job, &run))
            }
            Ok(Outcome::Absent(why)) => {
                absent.insert(queue, why.clone());
                Fate::Absent(why)
            }
            Err(error) => Fate::Failed(format!("{error:#}")),
        };
        listener.hear(job, fate)?;
    }
    Ok(())
}

/// What a run's records say of it.
fn labels(job: &Job<'_>, run: &summary::RunSummary, provenance: &Provenance) -> records::Labels {
    let owd_ns = (run.owd_ms * 1e6).round();
    [
        ("scenario", job.scenario.name.clone()),
        ("cell", job.cell.id.clone()),
        ("queue", job.cell.queue.name()),
        ("run", run.number.to_string()),
        ("seed", run.seed.to_string()),
        ("rate", run.rate.to_string()),
        ("owd", owd_ns.to_string()),
        ("kernel", provenance.kernel.clone()),
        ("commit", provenance.commit.clone()),
        ("command", provenance.command.clone()),
        ("machine", provenance.machine.clone()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests;
