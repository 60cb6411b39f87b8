//! Tables that lay a scenario out on one axis: a column for each of its values, a row for each
//! combination of all else, and in each cell several figures.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::{
    Table, compare,
    metric::{self, Metric},
    section,
    text::{self, NONE},
};
use crate::{
    measure::statistics::mean,
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary, Summary},
};

/// The dimension that is no axis.
const QUEUE: &str = "queue";

/// Behind a column's name: with half the 95 % interval.
const INTERVAL: char = '±';

/// A figure of each cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    metric: &'static Metric,
    interval: bool,
}

impl Figure {
    /// `89.2`, thousands without digits behind the point; or `89.20 ± 1.31`.
    fn text(self, cell: &CellSummary) -> Option<String> {
        let estimate = self.metric.estimate(cell)?;
        if self.interval {
            return Some(self.metric.text(&estimate));
        }
        let many = estimate.mean.abs() >= 1000.0;
        let digits = if many { 0 } else { self.metric.brief() };
        Some(format!("{:.digits$}", estimate.mean))
    }
}

/// The columns of `names` as [`text::columns`] reads them; `±` behind one asks for its interval.
///
/// # Errors
/// A name that no column has.
pub(super) fn figures(names: &str) -> Result<Vec<Figure>> {
    let plain = names.replace(INTERVAL, " ");
    let metrics = text::columns(&plain)?;
    let asked = names.split(',').map(|name| name.contains(INTERVAL));
    Ok(metrics
        .into_iter()
        .zip(asked.chain(std::iter::repeat(false)))
        .map(|(metric, interval)| Figure { metric, interval })
        .collect())
}

/// For every scenario one table of `figures`, with the values of `across` (an axis, or `queue`)
/// as its columns.
///
/// # Errors
/// A scenario has no such axis.
pub(super) fn tables(summary: &Summary, figures: &[Figure], across: &str) -> Result<String> {
    let text = |scenario: &ScenarioSummary| {
        let queues = queues(scenario);
        let shown: Vec<Figure> = figures
            .iter()
            .copied()
            .filter(|figure| {
                scenario
                    .cells
                    .iter()
                    .any(|cell| figure.text(cell).is_some())
            })
            .collect();
        let cell = |axes: &[Coordinate], queue: &str| {
            let cell = compare::find(scenario, axes, queue)?;
            let figure = |figure: &Figure| figure.text(cell).unwrap_or_else(|| NONE.into());
            Some(shown.iter().map(figure).collect::<Vec<_>>().join(", "))
        };
        let labels: Vec<&str> = shown.iter().map(|figure| figure.metric.label).collect();
        let table = lay_out(scenario, &queues, across, cell)?;
        Ok(text::head(scenario) + &format!("In each cell: {}.\n\n", labels.join(", ")) + &table)
    };
    summary.scenarios.iter().map(text).collect()
}

/// For every scenario one table of bestby's queue and, behind a semicolon, the best of those
/// that are not bestby's, with the values of the axis `across` as its columns.
///
/// # Errors
/// A scenario has no such axis.
pub(super) fn standing(summary: &Summary, across: &str) -> Result<String> {
    let text = |scenario: &ScenarioSummary| {
        let head = text::head(scenario);
        let Some(ours) = compare::ours(scenario) else {
            return Ok(head + "No queue of bestby was run.\n\n");
        };
        if across == QUEUE {
            bail!("--best shows two queues of each cell: --across needs an axis");
        }
        let cell = |axes: &[Coordinate], queue: &str| {
            let own = both(compare::find(scenario, axes, queue)?);
            let peer = best_peer(scenario, axes);
            let peer = peer.map(|peer| format!("; {} {}", both(peer), peer.queue));
            let of_bound = metric::FRAMES_OF_BOUND.estimate(compare::find(scenario, axes, queue)?);
            let of_bound = match of_bound.map(|found| (found.mean, found.half_width)) {
                Some((mean, Some(half))) => format!("{mean:.0} ± {half:.0}"),
                Some((mean, None)) => format!("{mean:.0}"),
                None => NONE.into(),
            };
            Some(format!("{own} ({of_bound}){}", peer.unwrap_or_default()))
        };
        let table = lay_out(scenario, &[ours], across, cell)?;
        let words = format!(
            "In each cell: {ours}'s audio %, frames % (frames in % of the bound); of the best \
             queue that is not bestby's audio %, frames %.\n\n"
        );
        Ok(head + &words + &table)
    };
    summary.scenarios.iter().map(text).collect()
}

/// Queues that have a cell, in the scenario's order.
fn queues(scenario: &ScenarioSummary) -> Vec<&str> {
    let run: BTreeSet<&str> = scenario.cells.iter().map(|c| c.queue.as_str()).collect();
    let names = scenario.queues.iter().map(String::as_str);
    names.filter(|name| run.contains(name)).collect()
}

/// Audio and frames on time.
fn both(cell: &CellSummary) -> String {
    let text = |metric: Metric| match metric.estimate(cell) {
        Some(found) => format!("{:.*}", metric.brief(), found.mean),
        None => NONE.into(),
    };
    format!("{}, {}", text(metric::AUDIO), text(metric::FRAMES))
}

/// Of the queues that are not bestby's, and of which none has more than [`compare::EQUAL_AUDIO`]
/// more audio, the one with most complete frames; of equals the first.
fn best_peer<'a>(scenario: &'a ScenarioSummary, axes: &[Coordinate]) -> Option<&'a CellSummary> {
    let peers: Vec<&CellSummary> = queues(scenario)
        .into_iter()
        .filter(|queue| !queue.starts_with("bestby"))
        .filter_map(|queue| compare::find(scenario, axes, queue))
        .collect();
    let of = |metric: Metric, cell: &CellSummary| mean(&metric.values(cell)).unwrap_or(0.0);
    let audio = |cell: &&CellSummary| of(metric::AUDIO, cell);
    let most = peers.iter().map(audio).fold(0.0, f64::max);
    let enough = |cell: &&CellSummary| audio(cell) >= most - compare::EQUAL_AUDIO;
    let frames = |cell| of(metric::FRAMES, cell);
    let more = |best, other| match frames(other) > frames(best) {
        true => other,
        false => best,
    };
    peers.into_iter().filter(enough).reduce(more)
}

/// The table: its columns are the values of `across`, its rows all other axes that have
/// several values, and the queue where that is not across and there are several.
fn lay_out(
    scenario: &ScenarioSummary,
    queues: &[&str],
    across: &str,
    cell: impl Fn(&[Coordinate], &str) -> Option<String>,
) -> Result<String> {
    let mut combinations = section::combinations(scenario);
    // Cells of a queue that is told nothing come before those of others.
    combinations.sort_by_key(|axes| section::order(scenario, axes));
    // The values of an axis that are shown, in their order.
    let values = |axis: &str| -> Vec<&str> {
        let all = scenario.axes.iter().filter(|swept| swept.axis == axis);
        let has = |value: &&str| {
            let mut all = combinations.iter().flat_map(|axes| axes.iter());
            all.any(|c| c.axis == axis && c.value == *value)
        };
        let all = all.flat_map(|swept| swept.values.iter().map(String::as_str));
        all.filter(has).collect()
    };
    let others: Vec<&str> = scenario
        .axes
        .iter()
        .map(|swept| swept.axis.as_str())
        .collect();
    if across != QUEUE && !others.contains(&across) {
        bail!(
            "{} has no axis `{across}` to lay out on: it has {QUEUE}{}",
            scenario.name,
            others
                .iter()
                .map(|axis| format!(", {axis}"))
                .collect::<String>()
        );
    }
    let columns = if across == QUEUE {
        queues.to_vec()
    } else {
        values(across)
    };
    let rows: Vec<&str> = others
        .into_iter()
        .filter(|axis| *axis != across && values(axis).len() > 1)
        .collect();
    // Without any other word a row would have no name.
    let named = across != QUEUE && (queues.len() > 1 || rows.is_empty());

    let mut head: Vec<String> = rows
        .iter()
        .map(|axis| section::axis(scenario, axis))
        .collect();
    head.extend(named.then(|| QUEUE.to_owned()));
    let place = |value: &&str| match across {
        QUEUE => (*value).to_owned(),
        axis => section::at_value(scenario, axis, value),
    };
    head.extend(columns.iter().map(place));
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());

    let mut seen: BTreeSet<Vec<String>> = BTreeSet::new();
    for axes in &combinations {
        let at = |axis: &str| {
            let found = axes.iter().find(|coordinate| coordinate.axis == axis);
            found.map_or_else(String::new, |coordinate| coordinate.value.clone())
        };
        let row: Vec<String> = rows.iter().map(|axis| at(axis)).collect();
        if !seen.insert(row.clone()) {
            continue;
        }
        let of = |queue: &str, value: Option<&str>| {
            let mut axes = axes.to_vec();
            let moved = axes.iter_mut().find(|c| c.axis == across);
            if let (Some(coordinate), Some(value)) = (moved, value) {
                coordinate.value = value.to_owned();
            }
            cell(&axes, queue).unwrap_or_else(|| NONE.into())
        };
        if across == QUEUE {
            let cells = columns.iter().map(|queue| of(queue, None));
            table.row(row.into_iter().chain(cells).collect());
            continue;
        }
        for queue in queues {
            let mut row = row.clone();
            row.extend(named.then(|| (*queue).to_owned()));
            row.extend(columns.iter().map(|value| of(queue, Some(value))));
            table.row(row);
        }
    }
    Ok(table.markdown() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        series::summary::FORMAT,
    };

    const OURS: &str = compare::OURS;

    fn summary() -> Summary {
        let at = |owd, load| [("owd", owd), ("load", load)];
        let mut cells = Vec::new();
        for (owd, load, ours, fq, pfifo) in [
            ("5", "1", 90, 30, 40),
            ("5", "2", 70, 20, 10),
            ("75", "1", 60, 16, 16),
            ("75", "2", 50, 14, 12),
        ] {
            let axes = at(owd, load);
            cells.push(cell(&axes, OURS, &[ours, ours + 4]));
            cells.push(cell(&axes, "fq", &[fq, fq]));
            cells.push(cell(&axes, "pfifo 32", &[pfifo, pfifo]));
        }
        let scenarios = vec![scenario(&["owd", "load"], cells)];
        Summary {
            format: FORMAT,
            scenarios,
        }
    }

    fn table(text: &str) -> String {
        text.lines()
            .filter(|line| line.starts_with('|'))
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn an_axis_makes_the_columns_and_all_else_the_rows() {
        let text = tables(&summary(), &figures("frames %,stale").unwrap(), "load").unwrap();
        assert!(text.contains("In each cell: frames %, stale.\n"), "{text}");
        let wanted = "\
| owd, ms | queue | load 1 | load 2 |
|---|---|---|---|
| 5 | bestby qdisc triage | 92.0, 0.0 | 72.0, 0.0 |
| 5 | fq | 30.0, 0.0 | 20.0, 0.0 |
| 5 | pfifo 32 | 40.0, 0.0 | 10.0, 0.0 |
| 75 | bestby qdisc triage | 62.0, 0.0 | 52.0, 0.0 |
| 75 | fq | 16.0, 0.0 | 14.0, 0.0 |
| 75 | pfifo 32 | 16.0, 0.0 | 12.0, 0.0 |";
        assert_eq!(table(&text), wanted);
    }

    #[test]
    fn queues_side_by_side_and_an_interval_where_it_is_asked_for() {
        let text = tables(&summary(), &figures("frames % ±,stale").unwrap(), "queue").unwrap();
        let wanted = "\
| owd, ms | load | bestby qdisc triage | fq | pfifo 32 |
|---|---|---|---|---|
| 5 | 1 | 92.00 ± 25.41, 0.0 | 30.00 ± 0.00, 0.0 | 40.00 ± 0.00, 0.0 |";
        assert!(table(&text).starts_with(wanted), "{text}");
    }

    #[test]
    fn what_is_not_shown_makes_neither_row_nor_column() {
        let mut summary = summary();
        let cells = &mut summary.scenarios[0].cells;
        cells.retain(|cell| cell.queue == OURS && cell.axes[0].value == "5");
        cells.pop();
        let text = tables(&summary, &figures("frames %").unwrap(), "load").unwrap();
        let wanted = "| queue | load 1 |\n|---|---|\n| bestby qdisc triage | 92.0 |";
        assert_eq!(table(&text), wanted);
    }

    #[test]
    fn a_queue_that_is_told_nothing_stands_beside_every_error() {
        let at = |error| [("rtt_error", error)];
        let cells = vec![
            cell(&at("-0.5"), OURS, &[70, 70]),
            cell(&at("0"), "fq", &[30, 30]),
            cell(&at("-0.2"), OURS, &[80, 80]),
            cell(&at("0"), OURS, &[90, 90]),
        ];
        let mut scenarios = vec![scenario(&["rtt_error"], cells)];
        scenarios[0].axes[0].values = ["-0.5", "-0.2", "0"].map(str::to_owned).into();
        let summary = Summary {
            format: FORMAT,
            scenarios,
        };
        let text = tables(&summary, &figures("frames %").unwrap(), "queue").unwrap();
        let rows = "| -0.5 | 70.0 | 30.0 |\n| -0.2 | 80.0 | 30.0 |\n| 0 | 90.0 | 30.0 |";
        assert!(text.contains(rows), "{text}");
    }

    #[test]
    fn the_best_peer_stands_beside_ours() {
        let text = standing(&summary(), "load").unwrap();
        let wanted = "\
| owd, ms | load 1 | load 2 |
|---|---|---|
| 5 | –, 92.0 (–); –, 40.0 pfifo 32 | –, 72.0 (–); –, 20.0 fq |
| 75 | –, 62.0 (–); –, 16.0 fq | –, 52.0 (–); –, 14.0 fq |";
        assert_eq!(table(&text), wanted);
    }

    #[test]
    fn more_audio_is_better_than_more_frames_but_not_what_nobody_hears() {
        let best = |audio: u64| {
            let mut summary = summary();
            let scenario = &mut summary.scenarios[0];
            for cell in &mut scenario.cells {
                // pfifo has more frames in the first cell.
                let audio = if cell.queue == "fq" { 1_000 } else { audio };
                let runs = cell.runs.iter_mut();
                runs.for_each(|run| run.measures.audio = [1_000, audio]);
            }
            best_peer(scenario, &scenario.cells[0].axes).map(|cell| cell.queue.clone())
        };
        assert_eq!(best(1_000).as_deref(), Some("pfifo 32"));
        assert_eq!(best(999).as_deref(), Some("pfifo 32"));
        assert_eq!(best(998).as_deref(), Some("fq"));
    }

    #[test]
    fn an_axis_that_is_not_there_is_refused_with_those_that_are() {
        let error = tables(&summary(), &figures("frames %").unwrap(), "loss").unwrap_err();
        let words = "quick has no axis `loss` to lay out on: it has queue, owd, load";
        assert_eq!(error.to_string(), words);
        assert!(standing(&summary(), "queue").is_err());
        assert!(figures("fps ±").unwrap_err().to_string().contains("`fps`"));
    }
}
