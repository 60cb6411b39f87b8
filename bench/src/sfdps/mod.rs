//! `bestby-lab sfdps`: the experiments of SFDPS §5 on TFRC.
//!
//! - §5.1, with loss: the network loses a fixed part of the packets, nothing competes
//!   (`--loss 1,2,5`).
//! - §5.2, with congestion: two TCP Reno flows with packets of the media's mean size
//!   share a router's FIFO (`--rate`, `--router`).
//!
//! 60 s of the conference of §4.1; the first 3 s are discarded; 95 % confidence intervals
//! by Student's t over the runs, all as in §4.2. The paper names neither the rate of
//! its bottleneck nor the length of its queue: both are parameters here.

pub mod cell;
pub mod table;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

pub use cell::{Cell, Condition, How, Run};

use crate::{
    competing::Competitor,
    dccp,
    report::{Provenance, virtual_time},
    sys::MILLI,
    topology::{Path, Shape},
    traffic::conference,
};

/// Options of `bestby-lab sfdps`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Round trips of the idle path in ms (§4.2).
    #[arg(long, value_delimiter = ',', default_values_t = [30, 80, 150])]
    pub rtt: Vec<u64>,
    /// Lengths of the sender's queue in packets (§5.2).
    #[arg(long, value_delimiter = ',', default_values_t = [5, 32])]
    pub queue: Vec<u32>,
    /// What holds the packets: `plain` (a FIFO in user space), `dccp` (the kernel's, up
    /// to 6.15), or a method of bestby.
    #[arg(long, value_delimiter = ',', default_values = cell::METHODS)]
    pub method: Vec<String>,
    /// Rates of the bottleneck in kbit/s.
    #[arg(long, value_delimiter = ',', default_values_t = [1000])]
    pub rate: Vec<u64>,
    /// Packets that the bottleneck's FIFO holds.
    #[arg(long, default_value_t = 20)]
    pub router: u32,
    /// Competing TCP flows.
    #[arg(long, default_value_t = 2)]
    pub tcp: usize,
    /// Instead of congestion: packets that the network loses, in percent (§5.1).
    #[arg(long, value_delimiter = ',')]
    pub loss: Vec<f64>,
    /// Runs of each cell (the paper: 30).
    #[arg(long, default_value_t = 3)]
    pub runs: u64,
    /// Length of a run in s (the paper: 60).
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Seed of the traffic; run n uses seed + n.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// TFRC with reduced oscillations (RFC 5348 §4.5; CCID3 has it not).
    #[arg(long)]
    pub damp: bool,
    /// TFRC's packet size s is the mean of the traffic offered, not of what left.
    #[arg(long)]
    pub nominal: bool,
    /// Write all results as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Print the course of the rate of each run, one line per 500 ms.
    #[arg(long)]
    pub trace: bool,
}

/// All results, and how they were made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Where and how.
    pub provenance: Provenance,
    /// Length of a run, s.
    pub seconds: u64,
    /// Every combination.
    pub cells: Vec<Cell>,
}

impl Options {
    fn conditions(&self) -> Vec<Condition> {
        let congestion = self.rate.iter().map(|&rate| Condition::Congestion {
            rate: rate * 1000,
            router: self.router,
            flows: self.tcp,
        });
        let loss = self.loss.iter().map(|&percent| Condition::Loss { percent });
        if self.loss.is_empty() {
            congestion.collect()
        } else {
            loss.collect()
        }
    }

    fn hows(&self) -> Result<Vec<How>> {
        let mut hows = Vec::new();
        for &queue in &self.queue {
            for method in &self.method {
                hows.push(How::parse(method, queue)?);
            }
        }
        Ok(hows)
    }
}

/// Runs all combinations and prints a table for each condition.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        options.seconds > cell::DISCARD_S,
        "the first {} s of a run are discarded: --seconds must be larger",
        cell::DISCARD_S
    );
    let hows = options.hows()?;
    ensure!(!hows.is_empty() && options.runs > 0, "nothing to run");
    if hows.iter().any(|how| matches!(how, How::Dccp { .. }))
        && let Some(why) = dccp::missing()
    {
        bail!(why);
    }
    if !virtual_time() {
        note!(
            "in real time: figures depend on how busy this machine is (use tests/vm/run --icount)"
        );
    }
    let mut results = Results {
        provenance: Provenance::here(options.seed),
        seconds: options.seconds,
        cells: Vec::new(),
    };
    for &rtt in &options.rtt {
        for condition in options.conditions() {
            let path = Path::build(Shape {
                delay: rtt * MILLI / 2,
                loss: condition.loss(),
                router: true,
            })?;
            let competitor = match condition {
                Condition::Congestion { flows, .. } if flows > 0 => Some(Competitor::new(&path)?),
                _ => None,
            };
            for how in &hows {
                let mut cell = Cell::new(rtt, condition, how.clone());
                for number in 0..options.runs {
                    let schedule = conference::schedule(options.seconds, options.seed + number);
                    let run = cell::run(
                        &path,
                        competitor.as_ref(),
                        condition,
                        how,
                        &schedule,
                        options,
                    )
                    .with_context(|| format!("{how}, RTT {rtt} ms, {condition}, run {number}"))?;
                    note!("  {rtt} ms, {condition}, {how}, run {}: {run}", number + 1);
                    cell.runs.push(run);
                }
                results.cells.push(cell);
            }
        }
    }
    crate::say::text(&table::render(&results));
    say!("\n{}", results.provenance);
    if let Some(file) = &options.json {
        fs::write(file, serde_json::to_vec_pretty(&results)?)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}
