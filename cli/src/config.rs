//! `bestby config`: `check` reads a configuration file the way bestbyd does and needs no agent and no privilege;
//! `diff` asks bestbyd what a reload would change.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bestby_api::{Config, ConfigDiff, ConfigError, path};
use clap::Subcommand;
use serde::Serialize;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{BAD, GOOD, WARNING, count};
use crate::output::Output;

/// The largest configuration possible has about 10 MB.
const LARGEST: u64 = 64 << 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Report everything wrong in a file, with line and reason
    Check {
        /// The file, e.g. /etc/bestby/bestby.toml
        file: PathBuf,
    },
    /// Say what a reload of the file would change; changes nothing
    Diff,
}

/// What the check found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    file: String,
    ok: bool,
    interfaces: usize,
    flows: usize,
    peers: usize,
    errors: Vec<ConfigError>,
    warnings: Vec<String>,
}

pub(crate) async fn run(
    verb: &Verb,
    client: &Client,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let Verb::Check { file } = verb else {
        let diff: ConfigDiff = client.get(&format!("{}/diff", path::CONFIG)).await?;
        output.answer(&diff, differences)?;
        return Ok(ExitCode::SUCCESS);
    };
    let report = check(file)?;
    output.answer(&report, render)?;
    if report.ok {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::Reported)
    }
}

/// POST /v1/reload.
pub(crate) async fn reload(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    output.done(&client.send(hyper::Method::POST, path::RELOAD, &()).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// One line per change.
pub(crate) fn differences(diff: &ConfigDiff) -> String {
    if diff.changes.is_empty() {
        return format!("{}: a reload changes nothing\n", diff.file);
    }
    diff.changes
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}

fn check(file: &Path) -> Result<Report, Failure> {
    let shown = file.display().to_string();
    let mut text = String::new();
    File::open(file)
        .and_then(|f| f.take(LARGEST).read_to_string(&mut text))
        .map_err(|e| {
            Failure::new(
                format!("cannot read the configuration file {shown}: {e}"),
                "",
            )
        })?;
    if text.len() as u64 == LARGEST {
        let why = format!("{shown} is too large to be a configuration file (64 MiB)");
        return Err(Failure::new(why, ""));
    }
    Ok(examine(&text, shown))
}

/// Checks a text.
pub(crate) fn examine(text: &str, file: String) -> Report {
    let (config, errors) = match Config::parse(text, &file) {
        Ok(config) => (config, Vec::new()),
        Err(errors) => (Config::default(), errors),
    };
    Report {
        ok: errors.is_empty(),
        interfaces: config.interfaces.len(),
        flows: config.flows.len(),
        peers: config.peers.len(),
        warnings: config.warnings(),
        errors,
        file,
    }
}

/// One line per error, in the form editors understand.
pub(crate) fn render(r: &Report) -> String {
    let mut text = String::new();
    for error in &r.errors {
        text += &format!("{BAD}{error}{BAD:#}\n");
    }
    for warning in &r.warnings {
        text += &format!("{WARNING}{}: warning: {warning}{WARNING:#}\n", r.file);
    }
    if r.ok {
        text += &format!(
            "{}: {GOOD}ok{GOOD:#}, {}, {}, {}\n",
            r.file,
            count(r.interfaces, "interface"),
            count(r.flows, "flow"),
            count(r.peers, "peer")
        );
    } else {
        text += &format!(
            "{}: {BAD}refused{BAD:#}, {}\n",
            r.file,
            count(r.errors.len(), "error")
        );
    }
    text
}
