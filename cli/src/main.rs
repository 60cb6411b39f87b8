//! `bestby`: the operator's command. It asks `bestbyd` over a unix socket and renders the answer; one file per
//! noun, the rendering apart from the asking.

mod args;
mod client;
mod config;
mod discover;
mod doctor;
mod events;
mod explain;
mod failure;
mod flow;
mod format;
mod help;
mod iface;
mod media;
mod output;
mod probe;
mod rank;
mod report;
mod session;
mod setting;
mod stats;
mod table;
mod tcp_real;
#[cfg(test)]
mod tests;
mod top;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Args, Command};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::Output;

/// Exit codes: 0 done, 1 refused or failed, 2 wrong usage (clap's own); a probe has more.
fn main() -> ExitCode {
    let matches = help::command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    let output = Output::new(args.json);
    if std::io::stdout().is_terminal()
        && let Ok((columns, _)) = ratatui::crossterm::terminal::size()
    {
        table::fit(columns);
    }
    match run(args, &output) {
        Ok(code) => code,
        Err(failure) => output.failure(failure),
    }
}

fn run(args: Args, output: &Output) -> Result<ExitCode, Failure> {
    // One request at a time: no threads needed.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("cannot start: {e}"), ""))?;
    let client = Client::new(args.socket);
    runtime.block_on(async {
        match args.command {
            Command::Iface(verb) => iface::run(verb, &client, output).await,
            Command::Flow(verb) => flow::run(*verb, &client, output).await,
            Command::Media(verb) => media::run(verb, &client, output).await,
            Command::Session(verb) => session::run(verb, &client, output).await,
            Command::TcpReal(verb) => tcp_real::run(verb, &client, output).await,
            Command::Stats(what) => stats::run(what, &client, output).await,
            Command::Top(what) => top::run(what, &client, output).await,
            Command::Reload => config::reload(&client, output).await,
            Command::Status => doctor::status(&client, output).await,
            Command::Events(what) => events::run(what, &client, output).await,
            Command::Discover(what) => discover::run(what, &client, output).await,
            Command::Doctor => doctor::run(&client, output).await,
            Command::Explain(what) => explain::run(what, &client, output).await,
            Command::Probe(what) => probe::run(what, output).await,
            Command::Report(what) => report::run(what, &client, output).await,
            Command::Completions { shell } => help::completions(shell),
            Command::ManPages { dir, completions } => help::man_pages(&dir, completions.as_deref()),
            Command::Config(verb) => config::run(&verb, &client, output).await,
        }
    })
}
