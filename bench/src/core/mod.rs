//! `bestby-lab core`: the figures that every change of the data path is held against.

pub mod conference;
pub mod cost;
pub mod memory;
pub mod stall;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    queue::Queue,
    report::{Provenance, Table, virtual_time},
};

/// One part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Conference mix at 253 and 190 kbit/s.
    Conference,
    /// A link that stops for 5 s.
    Stall,
    /// Instructions per packet that passes an empty queue.
    Cost,
    /// Instructions per packet with others standing in the queue; their growth is in
    /// percent of what `cost` finds, so run both for that.
    Standing,
    /// Memory of an attached interface.
    Memory,
}

/// Options of `bestby-lab core`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Part>,
    /// Run only queues whose name contains one of these words, e.g. `triage,fq`.
    #[arg(long, value_delimiter = ',')]
    pub queue: Vec<String>,
    /// Seed of the traffic; run n uses seed + n.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Conference runs of 20 s for each queue and rate.
    #[arg(long, default_value_t = 3)]
    pub runs: u64,
    /// Write all results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Report a queue that cannot be measured and go on, instead of ending there.
    #[arg(long)]
    pub keep_going: bool,
    /// Print the kernel's and bestby's counters after each run.
    #[arg(long)]
    pub verbose: bool,
}

impl Options {
    /// The queues asked for: bestby's first.
    fn queues(&self) -> Vec<Queue> {
        let wanted = |queue: &Queue| {
            self.queue.is_empty() || self.queue.iter().any(|word| queue.name().contains(word))
        };
        Queue::bestby()
            .into_iter()
            .chain(Queue::peers())
            .filter(wanted)
            .collect()
    }

    fn part(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn progress(&self, line: &str) {
        note!("  {line}");
    }
}

/// A figure that must be reached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Of what, with its unit.
    pub what: String,
    /// The figure measured.
    pub value: f64,
    /// `>=` or `<=`.
    pub relation: String,
    /// The figure to reach.
    pub limit: f64,
    /// Whether it was.
    pub met: bool,
}

impl Target {
    /// `value` must not be below `limit`.
    pub fn at_least(what: &str, value: f64, limit: f64) -> Self {
        Self {
            what: what.into(),
            value,
            relation: ">=".into(),
            limit,
            met: value >= limit,
        }
    }

    /// `value` must not exceed `limit`.
    pub fn at_most(what: &str, value: f64, limit: f64) -> Self {
        Self {
            what: what.into(),
            value,
            relation: "<=".into(),
            limit,
            met: value <= limit,
        }
    }
}

/// Everything a run of `core` found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Where and how.
    pub provenance: Provenance,
    /// Conference mix.
    pub conference: Vec<conference::Cell>,
    /// Link stall.
    pub stalls: Vec<stall::Stall>,
    /// Instructions per packet; absent where time does not count instructions.
    pub costs: Option<cost::Costs>,
    /// Memory of an attached interface.
    pub memory: Option<memory::Memory>,
    /// Figures to reach.
    pub targets: Vec<Target>,
}

/// Runs the parts asked for, prints tables, writes JSON. An unmet target is an error
/// after everything was printed.
pub fn run(options: &Options) -> Result<()> {
    let mut results = Results {
        provenance: Provenance::here(options.seed),
        conference: Vec::new(),
        stalls: Vec::new(),
        costs: None,
        memory: None,
        targets: Vec::new(),
    };
    say!("{}", results.provenance);
    if options.part(Part::Conference) {
        results.conference = conference::run(options).context("conference")?;
        crate::say::text(&conference::render(&results.conference));
        results
            .targets
            .extend(conference::targets(&results.conference));
    }
    if options.part(Part::Stall) {
        results.stalls = stall::run(options).context("stall")?;
        crate::say::text(&stall::render(&results.stalls));
        results.targets.extend(stall::targets(&results.stalls));
    }
    if options.part(Part::Memory) {
        let memory = memory::run(options).context("memory")?;
        crate::say::text(&memory::render(&memory));
        results.targets.extend(memory::targets(&memory));
        results.memory = Some(memory);
    }
    if options.part(Part::Cost) || options.part(Part::Standing) {
        if !virtual_time() {
            bail!(
                "costs count instructions, which this machine's clock does not: run \
                 `tests/vm/run --icount -- target/release/bestby-lab core --only cost`"
            );
        }
        let costs = cost::run(options).context("cost")?;
        crate::say::text(&cost::render(&costs));
        results.targets.extend(cost::targets(&costs));
        results.costs = Some(costs);
    }
    crate::say::text(&render_targets(&results.targets));
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&results)?;
        fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    match results.targets.iter().filter(|t| !t.met).count() {
        0 => Ok(()),
        missed => bail!("{missed} of {} figures not reached", results.targets.len()),
    }
}

fn render_targets(targets: &[Target]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["figure to reach", "measured", "", "limit", ""]);
    for target in targets {
        table.row(vec![
            target.what.clone(),
            format!("{:.2}", target.value),
            target.relation.clone(),
            format!("{:.2}", target.limit),
            if target.met { "ok" } else { "MISSED" }.into(),
        ]);
    }
    format!("\n{}", table.render())
}
