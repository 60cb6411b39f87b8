//! Series: all runs of scenarios, one after the other, and what is kept of them.
//!
//! Each run that is finished is a file (see [`store`]), so a series that is
//! interrupted goes on where it stopped when it is started again.

mod bench;
mod controlled;
mod job;
mod limit;
mod progress;
mod stalled;
mod store;
pub mod summary;
mod vm;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

pub use self::store::IfChanged;
use self::{
    bench::{Bench, Outcome, Runner},
    job::{Job, jobs},
    progress::Progress,
    store::{Series, Store},
    summary::Absent,
};
use crate::{
    cleanup, records,
    report::{self, Provenance},
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
    /// With --vm: the kernel (`newest`, `6.12`, `6.1`).
    #[arg(long, value_name = "KERNEL", default_value = "newest", requires = "vm")]
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
    /// Make the runs and nothing else: what --vm starts inside the VM.
    #[arg(long, hide = true)]
    pub inner: bool,
}

/// Runs in a row that may fail before the series ends: then it is not the cell's fault.
const FAILURES_IN_A_ROW: u32 = 5;

/// Runs the scenarios and writes the summary and the report. A run that failed is an
/// error after everything else was done.
pub fn run(options: &Options) -> Result<()> {
    let scenarios = load(options)?;
    if options.list {
        list(&scenarios, options);
        return Ok(());
    }
    fs::create_dir_all(&options.out)
        .with_context(|| format!("creating the results' directory {}", options.out.display()))?;
    if !options.inner {
        // Media are encoded here: a VM that emulates its processor would take long.
        for job in all_jobs(&scenarios, options)? {
            let model = job.cell.point.model()?;
            model.prepare(job.scenario.seconds, job.seed())?;
        }
    }
    let made = if options.vm {
        vm::run(options, &scenarios)
    } else {
        make(options, &scenarios)
    };
    if options.inner {
        return made;
    }
    // What is there is worth a report, whatever came of the rest.
    let written = summary::write(&options.out).and_then(|_| report::html::write(&options.out));
    made?;
    println!("{}", written?.display());
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
        println!(
            "{}: {} cells x {repetitions} runs of {} s",
            scenario.name,
            first.len(),
            scenario.seconds
        );
        for job in first {
            println!("  {}", job.cell.id);
        }
    }
}

/// Makes all runs that are not there, on this kernel.
fn make(options: &Options, scenarios: &[Scenario]) -> Result<()> {
    let mut stores = Vec::new();
    let here = Provenance::here(0);
    for scenario in scenarios {
        let repetitions = repetitions(scenario, options);
        let series = Series::here(here.clone(), repetitions)?;
        stores.push(Store::open(
            &options.out,
            scenario,
            &series,
            options.if_changed,
        )?);
    }
    let jobs = all_jobs(scenarios, options)?;
    let store = |job: &Job<'_>| {
        let index = scenarios.iter().position(|s| s.name == job.scenario.name);
        index
            .and_then(|index| stores.get(index))
            .context("a job of no scenario")
    };
    make_with(&mut Bench::default(), &jobs, store, &here)
}

/// The loop over all runs.
fn make_with<'s>(
    runner: &mut impl Runner,
    jobs: &[Job<'_>],
    store: impl Fn(&Job<'_>) -> Result<&'s Store>,
    provenance: &Provenance,
) -> Result<()> {
    let mut left = Vec::new();
    for job in jobs {
        if store(job)?.run(&job.cell.id, job.number)?.is_none() {
            left.push(job);
        }
    }
    if left.is_empty() {
        println!("all {} runs are there", jobs.len());
        return Ok(());
    }
    let mut progress = Progress::new(jobs.len(), jobs.len() - left.len());
    let (mut failed, mut in_a_row) = (0u32, 0u32);
    let mut absent: Vec<String> = Vec::new();
    for job in left {
        let (cell, queue) = (&job.cell.id, job.cell.queue.name());
        if absent.contains(&queue) {
            progress.count();
            continue;
        }
        let store = store(job)?;
        let outcome = runner.run(job);
        if cleanup::is_ending() {
            cleanup::wait_for_the_end();
        }
        match outcome {
            Ok(Outcome::Done(mut run, rows)) => {
                store.prepare(cell)?;
                run.records = store.records(cell, job.number);
                let labels = labels(job, &run, provenance);
                records::write(&store.path(&run.records), &rows, &labels)?;
                store.keep(cell, &run)?;
                println!("{} {}", progress.count(), progress::describe(job, &run));
                in_a_row = 0;
            }
            Ok(Outcome::Absent(reason)) => {
                println!("{} {queue}: {reason}", progress.count());
                store.keep_absent(&Absent {
                    queue: queue.clone(),
                    reason,
                })?;
                absent.push(queue);
            }
            Err(error) => {
                println!("{} {cell} run {} failed", progress.count(), job.number);
                eprintln!("{} {cell} run {}: {error:#}", job.scenario.name, job.number);
                failed += 1;
                in_a_row += 1;
                ensure!(
                    in_a_row < FAILURES_IN_A_ROW,
                    "{in_a_row} runs in a row failed, the last with the words above: the series \
                     ends here, and goes on when it is started again"
                );
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} runs failed, see above; started again, the series makes them again"),
    }
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
