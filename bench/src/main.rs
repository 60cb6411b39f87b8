//! `bestby-lab`: see `bestby-lab --help`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bestby_lab::{cleanup, core, demo, note, series};
use clap::{Parser, Subcommand};

/// Measures bestby beside its peers, in network namespaces of its own.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The figures that every change of the data path is held against: cost per packet,
    /// memory. Run it in virtual time:
    /// `tests/vm/run --icount -- target/release/bestby-lab core`.
    Core(core::Options),
    /// The gain, on real media, on this machine: sends video and audio over a link that is too
    /// narrow for them, first through a plain FIFO, then through bestby, and shows what arrived in time.
    Demo(demo::Options),
    /// Runs scenario files (see bench/scenarios) and writes one `runs.parquet` for each.
    /// Interrupted, it goes on where it stopped when it is started again.
    Run(series::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note!("bestby-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    cleanup::on_signals().context("watching for signals")?;
    match command {
        Command::Core(options) => core::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Run(options) => series::run(&options),
    }
}
