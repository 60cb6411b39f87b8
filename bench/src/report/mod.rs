//! Results for people: tables for a terminal, a page for a browser, and what every
//! result must carry to be believed.

mod beside;
pub mod compare;
mod delays;
mod gain;
mod grid;
pub mod html;
mod metric;
mod plot;
mod provenance;
mod reference;
mod section;
mod short;
mod table;
mod text;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{ArgGroup, Args};

pub use provenance::{COMMAND, COMMIT, Provenance, command_line, commit, virtual_time};
pub use table::Table;

use crate::series::summary;
use reference::{Before, Reference};

/// Options of `bestby-lab report`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("tables").multiple(true))]
pub struct Options {
    /// What `run` was given as --out; for tables also one scenario's directory in it.
    #[arg(default_value = "target/bench")]
    pub dir: PathBuf,
    /// Instead of the page: Markdown tables of these columns, named as on the page and
    /// separated by commas, e.g. "audio %,frames %"; the usual ones where none is named.
    #[arg(long, value_name = "COLUMNS", num_args = 0..=1, default_missing_value = "",
          group = "tables")]
    pub table: Option<String>,
    /// With --table: what each queue has more than this one, with the 95 % interval of a t-test; of
    /// AXIS=VALUE, e.g. restart=rfc5348: more than the same queue there.
    #[arg(long, value_name = "QUEUE|AXIS=VALUE", requires = "table")]
    pub against: Option<String>,
    /// With --table: what each queue has more than itself in this other results' directory, of an
    /// earlier commit for instance, run by run; with --against QUEUE: more than that queue there. Where
    /// TFRC is set in one way only on a path there, it may be another one; the heading says so.
    #[arg(long, value_name = "DIR", requires = "table")]
    pub before: Option<PathBuf>,
    /// With --table or --best: queues that were not run here stand beside with their runs in this
    /// other results' directory, of the same path, packets and kernel, and of another commit for
    /// instance.
    #[arg(long, value_name = "DIR", requires = "tables")]
    pub beside: Option<PathBuf>,
    /// Instead of the page: the cells in which another queue is better than triage, those
    /// in which it has less than it could, its most false drops and stale packets.
    #[arg(long, group = "tables")]
    pub best: bool,
    /// One table for each scenario, with the values of this axis (or of `queue`) as its columns and all
    /// else as its rows: with --table the means of the columns named (`±` behind one: with its
    /// interval), with --best triage's and the best other queue's audio and frames.
    #[arg(long, value_name = "AXIS", requires = "tables", conflicts_with_all = ["against", "before"])]
    pub across: Option<String>,
    /// With --table or --best: only cells whose place on the axes or queue contains one of
    /// these words, e.g. load=2, "owd=40_load=1.5".
    #[arg(long, value_name = "WORD", value_delimiter = ',', requires = "tables")]
    pub only: Vec<String>,
}

/// Writes summary and page anew, or prints tables and writes neither. Works on what is
/// finished, also while a series is being made.
pub fn run(options: &Options) -> Result<()> {
    let Options {
        dir,
        table,
        against,
        before,
        beside,
        best,
        across,
        only,
    } = options;
    // Refused before what takes long.
    let figures = table.as_deref().map(grid::figures).transpose()?;
    let columns = table
        .as_deref()
        .filter(|_| across.is_none())
        .map(text::columns)
        .transpose()?;
    let tables = table.is_some() || *best;
    let mut gathered = if tables {
        summary::gather_shown(dir)?
    } else {
        summary::gather_some(dir)?
    };
    if !tables {
        summary::keep(dir, &gathered)?;
        say!("{}", html::write(dir)?.display());
        return Ok(());
    }
    if let Some(dir) = beside {
        beside::add(&mut gathered, &summary::gather_some(dir)?, dir)?;
    }
    gathered.keep_only(only);
    ensure!(
        only.is_empty() || !gathered.scenarios.is_empty(),
        "no cell's id and no queue's name in {} contains {}",
        dir.display(),
        only.join(" or ")
    );
    if let Some(columns) = columns {
        let other = before.as_deref().map(summary::gather_some).transpose()?;
        let before = before.as_deref().zip(other.as_ref());
        let before = before.map(|(dir, summary)| Before { dir, summary });
        let reference = Reference::new(&gathered, against.as_deref(), before)?;
        crate::say::text(&text::tables(&gathered, &columns, reference.as_ref()));
    }
    if let (Some(figures), Some(across)) = (figures, across) {
        crate::say::text(&grid::tables(&gathered, &figures, across)?);
    }
    if *best {
        crate::say::text(&match across {
            Some(across) => grid::standing(&gathered, across)?,
            None => text::standing(&gathered),
        });
    }
    Ok(())
}
