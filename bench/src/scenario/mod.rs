//! Scenarios: TOML files that say what is run, without touching Rust.
//!
//! docs/lab.md has an example and all fields; `file` is what serde reads, `expand` makes its
//! cells.
//!
//! Every field that may be a list sweeps when it is one; results name them in the order of
//! `expand`. A list that is a parameter of the model itself (`ports` of `pcap`) is one value;
//! lists of it sweep. All combinations are run, each with every queue.

pub mod cell;
mod expand;
mod file;
pub mod value;

use std::{fs, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};

use self::{
    cell::{Cell, Swept},
    file::{Fault, File},
};
use crate::{queue::Queue, sys::SECOND};

/// A scenario, read, checked and expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file's name without `.toml`.
    pub name: String,
    /// The file's text, kept beside its results.
    pub text: String,
    /// One line for a heading.
    pub title: String,
    /// What it shows; may be empty.
    pub description: String,
    /// Of repetition 0.
    pub seed: u64,
    /// Runs of each cell.
    pub repetitions: u32,
    /// Length of a run's traffic, s.
    pub seconds: u64,
    /// s at the start of a run that are not judged.
    pub discard_first: f64,
    /// The axes that sweep.
    pub axes: Vec<Swept>,
    /// The queues in the file's order.
    pub queues: Vec<Queue>,
    /// All combinations of the axes, each with every queue.
    pub cells: Vec<Cell>,
}

impl Scenario {
    /// Reads, checks and expands the file at `path`. An error begins with `FILE:LINE:`
    /// where it concerns a line.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("reading the scenario {}", path.display()))?;
        Self::of_text(path, &text)
    }

    /// The same of the text of such a file.
    pub fn of_text(path: &Path, text: &str) -> Result<Self> {
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let name = name.context("a scenario's file needs a name")?;
        // `.` and `..` are directories that are there, and a hidden one is not found again.
        let slug = cell::slug(name);
        if name != slug || name.starts_with('.') || name.is_empty() {
            let good = match slug.trim_start_matches('.') {
                "" => "scenario",
                good => good,
            };
            bail!(
                "{}: the file's name becomes a directory's: use lower-case letters, digits, \
                 '.', '+' and '-' only, and no '.' in front, e.g. {good}.toml",
                path.display(),
            );
        }
        Self::parse(name, text)
            .map_err(|Fault { at, message }| match at {
                Some(at) => anyhow!("{}:{}: {message}", path.display(), line(text, at)),
                None => anyhow!("{}: {message}", path.display()),
            })
            .context("this scenario cannot be run")
    }

    /// The same of a text.
    fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        let file: File = toml::from_str(text).map_err(|error| Fault {
            at: error.span().map(|span| span.start),
            message: error.message().to_owned(),
        })?;
        file.check()?;
        let (axes, cells) = expand::expand(&file)?;
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            seed: file.seed.map_or(1, |seed| seed.0),
            repetitions: file.repetitions.map_or(1, |count| count.0 as u32),
            seconds: file.seconds(),
            discard_first: file.discard_first.as_ref().map_or(0.0, |s| s.get_ref().0),
            axes,
            cells,
            queues: file.queues.into_inner(),
            title: file.title.into_inner(),
            description: file.description,
        })
    }

    /// [`discard_first`](Self::discard_first) in ns.
    pub fn discard_ns(&self) -> u64 {
        (self.discard_first * SECOND as f64).round() as u64
    }
}

/// The line, from 1, of this byte.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests;
