//! One scenario on the page: where it comes from, its plots, its table.

use std::path::Path;

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use super::{
    compare, delays,
    metric::{self, Metric},
    plot::{self, Line, Panel},
};
use crate::{
    say::count,
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary, Swept},
};

/// Axes that are drawn from left to right, the first that sweeps; others make panels.
const ACROSS: [&str; 5] = ["load", "rate", "rate_error", "rtt_error", "owd"];

/// Renders `scenario`; its records are looked for below `dir`.
pub(super) fn render(scenario: &ScenarioSummary, dir: &Path) -> Result<Markup> {
    let styles = styles(scenario);
    let mut plots = Vec::new();
    for metric in [
        metric::ADUS,
        metric::AUDIO,
        metric::FRAMES,
        metric::FRAMES_OF_BOUND,
    ] {
        let panels = panels(scenario, &metric, &styles)?;
        if !panels.is_empty() {
            plots.push((metric, panels));
        }
    }
    let legend = plot::legend(&styles)?;
    let delays = delays::render(scenario, dir, &styles)?;
    Ok(html! {
        h2 id=(scenario.name) { (scenario.title) }
        @if !scenario.description.is_empty() { p { (scenario.description) } }
        p.faint {
            (made_by(scenario)) ";"
            @for (index, command) in scenario.provenance.commands().enumerate() {
                @if index > 0 { ", then" }
                " " code { (command) }
            }
        }
        @if scenario.missing_runs > 0 {
            p.bad { (incomplete(scenario)) }
        }
        @if let Some(warning) = not_offered(scenario) {
            p.bad { (warning) }
        }
        @for absent in &scenario.absent {
            p.bad { "Not run: " (absent.queue) ": " (absent.reason) }
        }
        @if !plots.is_empty() { div { (PreEscaped(&legend)) } }
        @for (metric, panels) in &plots {
            h3 { (metric.label) ": " (metric.meaning) }
            div.panels { @for panel in panels { (PreEscaped(panel)) } }
        }
        (delays)
        (table(scenario))
    })
}

/// What to say of runs that are not there.
pub(super) fn incomplete(scenario: &ScenarioSummary) -> String {
    let missing = count(scenario.missing_runs, "run");
    format!("Missing: {missing}; this series is not complete.")
}

/// Runs that are named where the sender could not send; the rest are counted.
const NAMED: usize = 5;

/// What to say of runs that are not of the queue alone; `None` where there are none.
pub(super) fn not_offered(scenario: &ScenarioSummary) -> Option<String> {
    let mut packets = 0;
    let mut runs = Vec::new();
    for cell in &scenario.cells {
        for run in &cell.runs {
            let refused = run.measures.not_offered();
            packets += refused;
            if refused > 0 {
                runs.push(format!("{} run {}", cell.id, run.number));
            }
        }
    }
    let all = runs.len();
    (all > 0).then(|| {
        runs.truncate(NAMED);
        let more = all - runs.len();
        let rest = (more > 0).then(|| format!(" and {more} more"));
        format!(
            "{} not offered to the queue, in {}: each of them has measured the sender's socket \
             and not the queue ({}{})",
            count(packets, "packet"),
            count(all, "run"),
            runs.join(", "),
            rest.unwrap_or_default()
        )
    })
}

/// Where the figures come from, but for the command.
pub(super) fn made_by(scenario: &ScenarioSummary) -> String {
    let made = &scenario.provenance;
    format!(
        "Linux {}, {}, commit {}, seed {}, {} of {} s for each cell, the first {} s of each \
         not judged",
        made.kernel,
        made.machine,
        made.commit,
        made.seed,
        count(scenario.repetitions, "run"),
        scenario.seconds,
        scenario.discard_first
    )
}

/// The queues with the numbers of their styles: bestby's own is 0.
fn styles(scenario: &ScenarioSummary) -> Vec<(usize, &str)> {
    let ours = compare::ours(scenario);
    let run = |name: &&str| scenario.cells.iter().any(|cell| cell.queue == **name);
    let others = scenario
        .queues
        .iter()
        .map(String::as_str)
        .filter(|name| Some(*name) != ours)
        .filter(run);
    // Style 0 is bestby's even where it was not run.
    ours.into_iter()
        .zip(0..)
        .chain(others.zip(1..))
        .map(|(name, style)| (style, name))
        .collect()
}

/// A plot of `metric` for each combination of the axes that are not drawn across.
fn panels(
    scenario: &ScenarioSummary,
    metric: &Metric,
    styles: &[(usize, &str)],
) -> Result<Vec<String>> {
    let shown = |cell: &CellSummary| metric.estimate(cell).is_some();
    if !scenario.cells.iter().any(shown) {
        return Ok(Vec::new());
    }
    let across = ACROSS
        .iter()
        .find_map(|name| scenario.axes.iter().find(|axis| axis.axis == *name))
        .or_else(|| scenario.axes.iter().max_by_key(|axis| axis.values.len()));
    let mut titles: Vec<Vec<Coordinate>> = Vec::new();
    for cell in &scenario.cells {
        let rest = others(&cell.axes, across);
        if !titles.contains(&rest) {
            titles.push(rest);
        }
    }
    titles
        .iter()
        .map(|rest| {
            let (x, x_label) = match across {
                Some(axis) => (axis.values.clone(), named(&axis.axis, &axis.unit)),
                None => (vec![String::new()], String::new()),
            };
            let lines: Vec<Line> = styles
                .iter()
                .map(|&(style, queue)| Line {
                    style,
                    points: x
                        .iter()
                        .map(|value| {
                            let cell = scenario.cells.iter().find(|cell| {
                                cell.queue == queue
                                    && others(&cell.axes, across) == *rest
                                    && across.is_none_or(|axis| at(cell, &axis.axis) == Some(value))
                            })?;
                            metric.estimate(cell)
                        })
                        .collect(),
                })
                .collect();
            // A queue that pays with audio exceeds the bound; the scale has to hold it.
            let top = highest(&lines).max(100.0);
            plot::lines(&Panel {
                title: place(scenario, rest),
                x_label,
                x,
                y: 0.0..(top / 20.0).ceil() * 20.0,
                lines,
            })
        })
        .collect()
}

/// The largest value of a panel.
fn highest(lines: &[Line]) -> f64 {
    lines
        .iter()
        .flat_map(|line| line.points.iter().flatten())
        .map(|estimate| estimate.mean)
        .fold(0.0, f64::max)
}

fn at<'a>(cell: &'a CellSummary, axis: &str) -> Option<&'a String> {
    cell.axes
        .iter()
        .find(|coordinate| coordinate.axis == axis)
        .map(|coordinate| &coordinate.value)
}

fn others(axes: &[Coordinate], across: Option<&Swept>) -> Vec<Coordinate> {
    axes.iter()
        .filter(|coordinate| across.is_none_or(|axis| axis.axis != coordinate.axis))
        .cloned()
        .collect()
}

fn named(axis: &str, unit: &str) -> String {
    match unit {
        "" => axis.to_owned(),
        unit => format!("{axis}, {unit}"),
    }
}

/// A cell's place in words: `load 2, owd 75 ms`.
pub(super) fn place(scenario: &ScenarioSummary, axes: &[Coordinate]) -> String {
    let words: Vec<String> = axes
        .iter()
        .map(|Coordinate { axis, value }| at_value(scenario, axis, value))
        .collect();
    words.join(", ")
}

/// One value of an axis: `owd 75 ms`.
pub(super) fn at_value(scenario: &ScenarioSummary, axis: &str, value: &str) -> String {
    format!("{axis} {value} {}", unit(scenario, axis))
        .trim_end()
        .to_owned()
}

/// An axis with its unit: `owd, ms`.
pub(super) fn axis(scenario: &ScenarioSummary, axis: &str) -> String {
    named(axis, unit(scenario, axis))
}

fn unit<'a>(scenario: &'a ScenarioSummary, axis: &str) -> &'a str {
    let swept = scenario.axes.iter().find(|swept| swept.axis == axis);
    swept.map_or("", |swept| swept.unit.as_str())
}

/// All combinations of the axes that were run, in the order of the cells.
pub(super) fn combinations(scenario: &ScenarioSummary) -> Vec<&[Coordinate]> {
    let mut seen: Vec<&[Coordinate]> = Vec::new();
    for cell in &scenario.cells {
        if !seen.contains(&cell.axes.as_slice()) {
            seen.push(&cell.axes);
        }
    }
    seen
}

/// Where a combination stands in the order of the file: of each axis the number of its value.
pub(super) fn order(scenario: &ScenarioSummary, axes: &[Coordinate]) -> Vec<usize> {
    let number = |swept: &Swept| {
        let value = axes.iter().find(|c| c.axis == swept.axis)?;
        swept.values.iter().position(|known| *known == value.value)
    };
    let numbers = scenario.axes.iter().map(number);
    numbers.map(|found| found.unwrap_or(usize::MAX)).collect()
}

/// All cells, those of one combination of the axes together.
fn table(scenario: &ScenarioSummary) -> Markup {
    let columns: Vec<&Metric> = metric::COLUMNS
        .iter()
        .filter(|metric| {
            let shown = |cell: &CellSummary| metric.estimate(cell).is_some();
            scenario.cells.iter().any(shown)
        })
        .collect();
    let ours = compare::ours(scenario);
    let mut cells: Vec<&CellSummary> = scenario.cells.iter().collect();
    // Stable: queues stay in their order within a combination.
    let seen = combinations(scenario);
    cells.sort_by_key(|cell| seen.iter().position(|axes| *axes == cell.axes));
    let first = |index: usize| index == 0 || cells[index - 1].axes != cells[index].axes;
    html! {
        details open[cells.len() <= 60] {
            summary { "All cells: " (cells.len()) }
            div.scroll { table {
                thead { tr {
                    @for axis in &scenario.axes { th { (named(&axis.axis, &axis.unit)) } }
                    th.text { "queue" }
                    th { "runs" }
                    @for metric in &columns { th { (metric.label) } }
                } }
                tbody { @for (index, cell) in cells.iter().enumerate() {
                    tr.ours[ours == Some(cell.queue.as_str())].first[first(index)] {
                        @for axis in &scenario.axes {
                            td { @if let Some(value) = at(cell, &axis.axis) { (value) } }
                        }
                        td.text { (cell.queue) }
                        td { (cell.runs.len()) }
                        @for metric in &columns {
                            td { @if let Some(estimate) = metric.estimate(cell) {
                                (metric.text(&estimate))
                            } }
                        }
                    }
                } }
            } }
        }
    }
}
