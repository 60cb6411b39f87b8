//! `bestby-lab`: see `bestby-lab --help`.

use anyhow::Result;
use bestby_lab::{bound, cleanup, core, report, series};
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
    /// The figures that every change of the data path is held against: conference
    /// mix, stall, cost per packet, memory. Run it in virtual time:
    /// `tests/vm/run --icount -- target/release/bestby-lab core`.
    Core(core::Options),
    /// Runs scenario files (see bench/scenarios) and writes raw records, a summary and a
    /// report. Interrupted, it goes on where it stopped when it is started again.
    Run(series::Options),
    /// Makes summary and report anew from the runs in a results' directory, finished or not,
    /// or prints tables of them.
    Report(report::Options),
    /// Schedulers against the clairvoyant bound, without a kernel.
    Study(bound::study::Options),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    cleanup::on_signals()?;
    match arguments.command {
        Command::Core(options) => core::run(&options),
        Command::Run(options) => series::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Study(options) => bound::study::run(&options),
    }
}
