//! `bestby-lab core`: the figures that every change of the data path is held against.

mod cost;
mod memory;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use crate::{
    provenance::{Provenance, virtual_time},
    say,
    table::Table,
};

/// One part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Instructions per packet that passes an empty queue.
    Cost,
    /// Instructions per packet with others standing in the queue; their growth is in
    /// percent of what `cost` finds, so run both for that.
    Standing,
    /// Memory of an attached interface.
    Memory,
    /// A few of `cost`, in both modes, for the test that holds them against those of before;
    /// only by name.
    Few,
}

/// Options of `bestby-lab core`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Part>,
}

impl Options {
    fn part(&self, part: Part) -> bool {
        let unasked = self.only.is_empty() && part != Part::Few;
        unasked || self.only.contains(&part)
    }
}

/// A figure that must not be exceeded.
#[derive(Clone, Debug)]
struct Target {
    /// Of what, with its unit.
    what: String,
    value: f64,
    limit: f64,
}

impl Target {
    fn at_most(what: String, value: f64, limit: f64) -> Self {
        Self { what, value, limit }
    }

    fn met(&self) -> bool {
        self.value <= self.limit
    }
}

/// Runs the parts asked for and prints their tables. An unmet target is an error after
/// everything was printed.
pub fn run(options: &Options) -> Result<()> {
    say!("{}", Provenance::here());
    let mut targets = Vec::new();
    if options.part(Part::Memory) {
        targets.push(memory::run().context("memory")?);
    }
    if [Part::Cost, Part::Standing, Part::Few]
        .iter()
        .any(|part| options.part(*part))
    {
        ensure!(
            virtual_time(),
            "costs count instructions, which this machine's clock does not: run \
             `tests/vm/run --icount -- target/release/bestby-lab core --only cost`"
        );
        targets.extend(cost::run(options).context("cost")?);
    }
    if targets.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["figure to reach", "measured", "at most", ""]);
    for target in &targets {
        table.row(vec![
            target.what.clone(),
            format!("{:.2}", target.value),
            format!("{:.2}", target.limit),
            if target.met() { "ok" } else { "MISSED" }.into(),
        ]);
    }
    say::text(&format!("\n{}", table.render()));
    let missed = targets.iter().filter(|target| !target.met()).count();
    let all = targets.len();
    ensure!(missed == 0, "{missed} of {all} figures not reached");
    Ok(())
}
