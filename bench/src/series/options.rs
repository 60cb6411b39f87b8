//! What `bestby-lab run` is asked for.

use std::path::PathBuf;

use clap::Args;

use crate::scenario::Scenario;

/// What to do with runs that something else made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IfChanged {
    /// Say what changed and end.
    Refuse,
    /// Remove them and start anew.
    Anew,
}

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
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
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

impl Options {
    /// Runs of each cell of a scenario.
    pub(super) fn repetitions(&self, scenario: &Scenario) -> u32 {
        self.runs.unwrap_or(scenario.repetitions)
    }
}
