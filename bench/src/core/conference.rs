//! The conference of SFDPS §4.1 over a link that cannot carry it.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{Options, Target};
use crate::{
    measure::{self, Measures},
    queue::Queue,
    report::Table,
    sys::MILLI,
    topology::Path,
    traffic::conference,
};

/// Link rates in bit/s.
pub const RATES: [u64; 2] = [253_000, 190_000];
/// One-way delay of the path, ns.
const DELAY: u64 = 40 * MILLI;
/// Length of one run, s.
const SECONDS: u64 = 20;

/// One queue at one rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// The queue's name.
    pub queue: String,
    /// Link rate, bit/s.
    pub rate: u64,
    /// All runs together.
    pub measures: Measures,
    /// Complete frames on time of each run, percent.
    pub frames_per_run: Vec<f64>,
    /// Where the path's delay came from.
    pub delay: String,
}

/// All queues at all rates, the same runs for each.
pub fn run(options: &Options) -> Result<Vec<Cell>> {
    let path = Path::new(DELAY)?;
    let mut cells = Vec::new();
    for rate in RATES {
        for queue in options.queues() {
            match cell(&path, &queue, rate, options) {
                Ok(cell) => {
                    options.progress(&format!(
                        "{} kbit/s, {}: audio {:.1} %, frames {:.1} %, stale {}",
                        rate / 1000,
                        cell.queue,
                        cell.measures.audio_on_time(),
                        cell.measures.frames_on_time(),
                        cell.measures.stale_arrivals
                    ));
                    cells.push(cell);
                }
                Err(error) if options.keep_going => {
                    note!("{} at {rate} bit/s not measured: {error:#}", queue.name());
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(cells)
}

fn cell(path: &Path, queue: &Queue, rate: u64, options: &Options) -> Result<Cell> {
    let mut runs = Vec::new();
    for number in 0..options.runs {
        let schedule = conference::schedule(SECONDS, options.seed + number);
        let installed = queue
            .install(path, rate)
            .with_context(|| format!("installing {} at {rate} bit/s", queue.name()))?;
        let (sent, arrivals) = path.run(&schedule, queue.marking(path.owd))?;
        runs.push(measure::judge(
            &schedule,
            &sent,
            &arrivals,
            path.extra_delay,
        ));
        if options.verbose {
            note!("{}", installed.statistics()?.trim());
            if let Some(agent) = installed.agent() {
                note!("{}", agent.bestby("stats")?.trim());
            }
        }
    }
    let owd = path.owd as f64 / 1e6;
    Ok(Cell {
        queue: queue.name(),
        rate,
        frames_per_run: runs.iter().map(Measures::frames_on_time).collect(),
        measures: Measures::merge(&runs),
        delay: match path.extra_delay {
            0 => format!("netem; {owd:.3} ms measured on the idle path"),
            _ => format!("added to arrivals (no netem); {owd:.3} ms in all"),
        },
    })
}

/// The cells as tables, one per rate.
pub fn render(cells: &[Cell]) -> String {
    let mut text = String::new();
    for rate in RATES {
        let mut table = Table::new(&[
            "queue",
            "audio %",
            "video %",
            "frames %",
            "stale",
            "late ms",
            "dropped",
            "useful kb/s",
            "audio p50",
            "p99 ms",
            "video p50",
            "p99 ms",
        ]);
        for cell in cells.iter().filter(|c| c.rate == rate) {
            let m = &cell.measures;
            table.row(vec![
                cell.queue.clone(),
                format!("{:.2}", m.audio_on_time()),
                format!("{:.1}", m.video_on_time()),
                format!("{:.1}", m.frames_on_time()),
                m.stale_arrivals.to_string(),
                format!("{:.1}", m.latest_ms),
                m.dropped.to_string(),
                format!("{:.0}", m.goodput_kbit),
                format!("{:.1}", m.audio_delay.p50),
                format!("{:.1}", m.audio_delay.p99),
                format!("{:.1}", m.video_delay.p50),
                format!("{:.1}", m.video_delay.p99),
            ]);
        }
        text.push_str(&format!(
            "\nConference (SFDPS 4.1, 374 kbit/s) over {} kbit/s, one-way delay {} ms, lifetime 200 ms\n{}",
            rate / 1000,
            DELAY / MILLI,
            table.render()
        ));
        if let Some(cell) = cells.iter().find(|c| c.rate == rate) {
            let blocked: u64 = cells.iter().map(|c| c.measures.would_block).sum();
            let late = cells
                .iter()
                .map(|c| c.measures.sender_late_ms)
                .fold(0.0, f64::max);
            text.push_str(&format!(
                "delay: {}; sends refused by a full socket: {blocked}; sender at most {late:.3} ms late\n",
                cell.delay
            ));
        }
    }
    text
}

/// What must hold of them.
pub fn targets(cells: &[Cell]) -> Vec<Target> {
    let mut list = Vec::new();
    for cell in cells {
        let m = &cell.measures;
        let at = format!("{} at {} kbit/s", cell.queue, cell.rate / 1000);
        let frames = match (cell.queue.as_str(), cell.rate) {
            ("bestby qdisc triage", 253_000) => 50.0,
            ("bestby qdisc triage", 190_000) => 32.0,
            ("bestby tc", 253_000) => 40.0,
            _ => continue,
        };
        list.push(Target::at_least(
            &format!("{at}: audio on time, %"),
            m.audio_on_time(),
            99.9,
        ));
        list.push(Target::at_least(
            &format!("{at}: frames on time, %"),
            m.frames_on_time(),
            frames,
        ));
        if cell.queue == "bestby tc" {
            let stale = m.stale_percent();
            list.push(Target::at_most(
                &format!("{at}: stale arrivals, %"),
                stale,
                1.0,
            ));
        } else {
            let stale = m.stale_arrivals as f64;
            list.push(Target::at_most(
                &format!("{at}: stale arrivals"),
                stale,
                0.0,
            ));
        }
    }
    list
}
