//! Series: all runs of scenarios, one after the other, and what is kept of them.
//!
//! Whoever makes a run (this process, or one in a guest) writes what became of it into the results'
//! directory ([`store`]); this process judges it from there ([`progress`]). So a series that is
//! interrupted goes on where it stopped when it is started again.

mod bench;
mod controlled;
mod guests;
mod judge;
mod last_hop;
mod options;
mod passage;
mod progress;
mod result;
mod run;
mod stalled;
mod store;
#[cfg(test)]
mod tests;
mod vm;

use std::fs;

use anyhow::{Context as _, Result, ensure};

pub use self::options::Options;
use self::{
    bench::{Bench, make_with},
    progress::Progress,
    run::{Job, jobs},
    store::{Series, Store},
};
use crate::{provenance::Provenance, queue::Queue, say::count, scenario::Scenario};

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
    let _lock = store::lock(&options.out)?;
    let provenance = if options.vm {
        Provenance::of_guests(vm::release(&options.kernel)?)
    } else {
        // SAFETY: it only reads the process' credentials.
        let root = unsafe { libc::geteuid() } == 0;
        let simulated = |job: &Job<'_>| matches!(job.cell.queue, Queue::Simulated(_));
        ensure!(
            root || jobs.iter().all(simulated),
            "the runs need network namespaces, and those need root: start it with sudo"
        );
        Provenance::here()
    };
    // Media are encoded here: a VM that emulates its processor would take long.
    for job in &jobs {
        let model = job.cell.point.model()?;
        model.prepare(job.scenario.seconds, job.seed())?;
    }
    let mut store = Store::at(&options.out);
    for scenario in &scenarios {
        let series = Series::new(provenance.clone(), options.repetitions(scenario))?;
        store.open(scenario, series, options.if_changed)?;
    }
    let made = go_on(&store, &jobs, |left, progress| {
        if options.vm {
            return vm::run(options, left, progress);
        }
        let mut bench = Bench::default();
        make_with(
            left,
            |job| bench.run(job),
            |job, outcome| {
                store.put_outcome(job, &outcome)?;
                progress.hear(job)
            },
        )
    });
    // What is there is worth a result, whatever came of the rest.
    for (scenario, series) in &store.open {
        say!("{}", result::write(&store, scenario, series)?.display());
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

/// All runs asked for.
fn all_jobs<'a>(scenarios: &'a [Scenario], options: &Options) -> Result<Vec<Job<'a>>> {
    let jobs: Vec<Job<'_>> = scenarios
        .iter()
        .flat_map(|scenario| jobs(scenario, options.repetitions(scenario), &options.only))
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
        let repetitions = options.repetitions(scenario);
        let first = jobs(scenario, 1, &options.only);
        let (cells, runs) = (count(first.len(), "cell"), count(repetitions, "run"));
        say!(
            "{}: {cells} x {runs} of {} s",
            scenario.name,
            scenario.seconds
        );
        for job in first {
            say!("  {}", job.cell.id);
        }
    }
}

/// Hears what an earlier start made and did not judge, and has the rest made.
fn go_on<'a>(
    store: &'a Store<'a>,
    jobs: &[Job<'a>],
    make: impl FnOnce(&[Job<'a>], &mut Progress<'a>) -> Result<()>,
) -> Result<()> {
    let (mut made, mut left) = (Vec::new(), Vec::new());
    for &job in jobs {
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
    let mut progress = Progress::new(store, jobs.len(), before);
    for job in &made {
        progress.hear(job)?;
    }
    make(&left, &mut progress)?;
    progress.close()
}
