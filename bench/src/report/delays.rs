//! How the delay is distributed, from the raw records of one combination of the axes.

use std::path::Path;

use anyhow::Result;
use maud::{Markup, PreEscaped, html};

use super::{
    plot::{self, Curves},
    section,
};
use crate::{
    records::{self, Row},
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary},
    traffic::Class,
};

/// The combination that is drawn: the first that is overloaded, but not hopelessly.
fn place(scenario: &ScenarioSummary) -> Option<&[Coordinate]> {
    let load = |cell: &CellSummary| cell.runs.first().map_or(0.0, |run| run.load);
    let cells = &scenario.cells;
    cells
        .iter()
        .find(|cell| (1.2..=2.5).contains(&load(cell)))
        .or_else(|| cells.get(cells.len() / 2))
        .map(|cell| cell.axes.as_slice())
}

/// A plot per class of the share of all packets that arrived within a time.
pub(super) fn render(
    scenario: &ScenarioSummary,
    dir: &Path,
    styles: &[(usize, &str)],
) -> Result<Markup> {
    let Some(axes) = place(scenario) else {
        return Ok(html! {});
    };
    let mut queues: Vec<(usize, Vec<Row>)> = Vec::new();
    for &(style, name) in styles {
        let mut rows = Vec::new();
        let at = |cell: &&CellSummary| cell.queue == name && cell.axes == axes;
        for run in scenario.cells.iter().find(at).iter().flat_map(|c| &c.runs) {
            let file = dir.join(&run.records);
            if file.is_file() {
                rows.extend(records::read(&file)?.0);
            }
        }
        rows.retain(|row| row.created as f64 >= scenario.discard_first * 1e9);
        if !rows.is_empty() {
            queues.push((style, rows));
        }
    }
    let mut plots = Vec::new();
    for class in Class::ALL {
        if let Some(panel) = curves(class, &queues) {
            plots.push(plot::curves(&panel)?);
        }
    }
    Ok(html! {
        @if !plots.is_empty() {
            h3 {
                "Delay: packets that arrived within a time, % of all that were offered"
                @if !axes.is_empty() { ", " (section::place(scenario, axes)) }
            }
            div.panels { @for plot in &plots { (PreEscaped(plot)) } }
        }
    })
}

fn curves(class: Class, queues: &[(usize, Vec<Row>)]) -> Option<Curves> {
    let of_class = |rows: &[Row]| -> Vec<Row> {
        rows.iter()
            .filter(|row| row.class == class)
            .copied()
            .collect()
    };
    let lifetime_ms = queues
        .iter()
        .flat_map(|(_, rows)| rows)
        .filter(|row| row.class == class)
        .map(|row| row.deadline - row.created)
        .max()? as f64
        / 1e6;
    Some(Curves {
        title: class.name().to_owned(),
        x_label: "delay, ms".into(),
        x: 0.0..lifetime_ms * 2.0,
        limit: (lifetime_ms, "deadline".into()),
        curves: queues
            .iter()
            .map(|(style, rows)| (*style, shares(&of_class(rows))))
            .collect(),
    })
}

/// (delay in ms, percent of `rows` that arrived within it), at most 200 points.
fn shares(rows: &[Row]) -> Vec<(f64, f64)> {
    let mut delays: Vec<u64> = rows
        .iter()
        .filter_map(|row| Some(row.arrived?.saturating_sub(row.created)))
        .collect();
    delays.sort_unstable();
    let step = delays.len().div_ceil(200).max(1);
    let point = |index: usize| {
        let share = (index + 1) as f64 * 100.0 / rows.len() as f64;
        Some((*delays.get(index)? as f64 / 1e6, share))
    };
    let last = delays.len().checked_sub(1);
    (0..delays.len())
        .step_by(step)
        .chain(last.filter(|last| last % step != 0))
        .filter_map(point)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::tests::{cell, scenario};

    fn row(arrived_ms: Option<u64>) -> Row {
        Row {
            sequence: 0,
            class: Class::Audio,
            stream: 0,
            adu: 0,
            last: true,
            wire_bytes: 100,
            created: 5_000_000,
            deadline: 205_000_000,
            arrived: arrived_ms.map(|ms| 5_000_000 + ms * 1_000_000),
        }
    }

    #[test]
    fn what_never_arrived_keeps_the_curve_down() {
        let rows = [row(Some(30)), row(None), row(Some(10)), row(Some(20))];
        assert_eq!(shares(&rows), [(10.0, 25.0), (20.0, 50.0), (30.0, 75.0)]);
        assert_eq!(shares(&[row(None)]), []);
        let many: Vec<Row> = (0..1000).map(|ms| row(Some(ms))).collect();
        let points = shares(&many);
        assert!(points.len() <= 201);
        assert_eq!(points.last(), Some(&(999.0, 100.0)));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn a_plot_for_each_class_that_was_sent() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut overloaded = cell(&[("load", "2")], "fq", &[10]);
        overloaded.runs[0].load = 2.0;
        overloaded.runs[0].records = "fq.parquet".into();
        let file = dir.path().join("fq.parquet");
        let mut late = row(Some(30));
        late.created += 3_000_000_000;
        late.deadline += 3_000_000_000;
        records::write(&file, &[row(None), late], &Vec::new()).expect("writing");
        let scenario = scenario(
            &["load"],
            vec![cell(&[("load", "1")], "fq", &[90]), overloaded],
        );
        let text = render(&scenario, dir.path(), &[(1, "fq")])
            .expect("plots")
            .into_string();
        assert!(text.contains("load 2"), "{text}");
        assert_eq!(text.matches("<svg").count(), 1);
        assert!(text.contains("deadline"));
        let nothing = render(&scenario, Path::new("/nowhere"), &[(1, "fq")]).expect("none");
        assert_eq!(nothing.into_string(), "");
    }
}
