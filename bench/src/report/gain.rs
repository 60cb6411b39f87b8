//! What each queue delivers at a scenario's tightest point, as one picture: the one for
//! people who look at only one.

use anyhow::{Result, anyhow};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, VPos},
};

use super::{
    compare,
    metric::{self, Metric},
    plot::{FAINT, GRID, INK, SERIES, text},
};
use crate::{
    measure::statistics::mean,
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary},
};

const WIDTH: i32 = 760;
/// px of a row, of what is above the rows and below them.
const ROW: i32 = 34;
const TOP: i32 = 64;
const BOTTOM: i32 = 42;
/// px from the left where bars begin, and where 100 % is.
const ZERO: i32 = 170;
const FULL: i32 = 640;

/// Axes that set the load.
const LOADS: [&str; 2] = ["load", "rate"];

/// One queue's bars.
struct Row<'a> {
    queue: &'a str,
    audio: f64,
    frames: f64,
    /// Packets that arrived after their deadline, all runs together.
    stale: u64,
}

/// What is drawn.
struct Picture<'a> {
    scenario: &'a ScenarioSummary,
    load: f64,
    /// Combinations of the other axes that the bars are means of.
    points: usize,
    rows: Vec<Row<'a>>,
}

/// The highest load (runs of one cell have it exactly) as a picture with a white ground;
/// `None` where no audio, no video, or one load only. Where several cells have that load,
/// at other delays or lifetimes, none is picked: bars are means of all in which any frame
/// could be on time, of the queues that were run in every one of them.
pub(super) fn render(scenario: &ScenarioSummary) -> Result<Option<String>> {
    let load = |cell: &CellSummary| cell.runs.iter().map(|run| run.load).fold(0.0, f64::max);
    let tightest = scenario.cells.iter().map(load).fold(0.0, f64::max);
    let mut points: Vec<&[Coordinate]> = Vec::new();
    for cell in &scenario.cells {
        let drawn = metric::FRAMES_OF_BOUND.estimate(cell).is_some();
        if load(cell) >= tightest * 0.999 && drawn && !points.contains(&cell.axes.as_slice()) {
            points.push(&cell.axes);
        }
    }
    // A queue that is told nothing has one cell for all errors of what bestby is told.
    if let Some(ours) = compare::ours(scenario) {
        points.retain(|axes| compare::find(scenario, axes, ours).is_some());
    }
    let queues = scenario.queues.iter().map(String::as_str);
    let mut rows: Vec<Row<'_>> = queues
        .filter_map(|queue| {
            let found = points
                .iter()
                .map(|axes| compare::find(scenario, axes, queue));
            row(queue, &found.collect::<Option<Vec<_>>>()?)
        })
        .collect();
    if rows.len() < 2 || tightest <= 1.0 {
        return Ok(None);
    }
    rows.sort_by(|a, b| b.frames.total_cmp(&a.frames));
    draw(&Picture {
        scenario,
        load: tightest,
        points: points.len(),
        rows,
    })
    .map(Some)
}

/// The means of a queue's cells; `None` where one of them has no such figure.
fn row<'a>(queue: &'a str, cells: &[&CellSummary]) -> Option<Row<'a>> {
    let of = |metric: &Metric| {
        let means = cells.iter().map(|cell| Some(metric.estimate(cell)?.mean));
        mean(&means.collect::<Option<Vec<f64>>>()?)
    };
    let runs = cells.iter().flat_map(|cell| &cell.runs);
    Some(Row {
        queue,
        audio: of(&metric::AUDIO)?,
        frames: of(&metric::FRAMES_OF_BOUND)?,
        stale: runs.map(|run| run.measures.stale_arrivals).sum(),
    })
}

fn draw(picture: &Picture<'_>) -> Result<String> {
    let mut svg = String::new();
    let bottom = TOP + ROW * picture.rows.len() as i32;
    let size = (WIDTH as u32, (bottom + BOTTOM) as u32);
    let wrong = |error| anyhow!("drawing `{}`: {error}", picture.scenario.name);
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        paint(&area, picture, bottom).map_err(wrong)?;
        area.present().map_err(|error| wrong(error.into()))?;
    }
    Ok(svg)
}

fn paint(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    picture: &Picture<'_>,
    bottom: i32,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let at = |percent: f64| ZERO + (percent / 100.0 * f64::from(FULL - ZERO)).round() as i32;
    let label = |words: String, place, size, colour, h| {
        area.draw(&Text::new(
            words,
            place,
            text(size, colour, h, VPos::Center),
        ))
    };
    let title = format!(
        "{}: {:.1} times what the link carries",
        picture.scenario.title, picture.load
    );
    label(title, (12, 16), 15, INK, HPos::Left)?;
    if picture.points > 1 {
        let axes = picture.scenario.axes.iter().map(|axis| axis.axis.as_str());
        let others: Vec<&str> = axes.filter(|axis| !LOADS.contains(axis)).collect();
        let words = format!("mean of {} cells: {}", picture.points, others.join(", "));
        label(words, (12, bottom + 30), 12, FAINT, HPos::Left)?;
    }
    for (x, colour, words) in [
        (ZERO, SERIES[0], "audio packets on time, %"),
        (
            ZERO + 190,
            SERIES[1],
            "complete frames on time, % of the best any schedule could do",
        ),
    ] {
        area.draw(&Rectangle::new([(x, 34), (x + 12, 46)], colour.filled()))?;
        label(words.into(), (x + 18, 40), 12, FAINT, HPos::Left)?;
    }
    label(
        "stale arrivals".into(),
        (WIDTH - 12, TOP - 8),
        12,
        FAINT,
        HPos::Right,
    )?;
    for percent in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        let x = at(percent);
        area.draw(&PathElement::new([(x, TOP), (x, bottom)], GRID))?;
        label(
            format!("{percent:.0}"),
            (x, bottom + 12),
            12,
            FAINT,
            HPos::Center,
        )?;
    }
    for (row, top) in picture.rows.iter().zip((TOP..).step_by(ROW as usize)) {
        label(
            row.queue.into(),
            (ZERO - 8, top + ROW / 2),
            13,
            INK,
            HPos::Right,
        )?;
        for (value, colour, y) in [
            (row.audio, SERIES[0], top + 5),
            (row.frames, SERIES[1], top + 18),
        ] {
            // A queue that pays for frames with audio may exceed the bound.
            let end = at(value.min(100.0));
            area.draw(&Rectangle::new([(ZERO, y), (end, y + 11)], colour.filled()))?;
            label(format!("{value:.0}"), (end + 4, y + 6), 11, INK, HPos::Left)?;
        }
        label(
            row.stale.to_string(),
            (WIDTH - 12, top + ROW / 2),
            13,
            INK,
            HPos::Right,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bound::{Bound, ClassBound, Link},
        report::html::tests::{cell, scenario},
    };

    /// Two queues at two loads; half of the frames could be on time at best.
    fn summary(loads: [f64; 2]) -> ScenarioSummary {
        let video = ClassBound {
            adus_offered: 50,
            adus: 25,
            ..ClassBound::default()
        };
        let mut cells = Vec::new();
        for load in loads {
            for (queue, on_time) in [("fq", [10, 12]), ("bestby qdisc triage", [48, 50])] {
                let value = load.to_string();
                let mut cell = cell(&[("load", &value)], queue, &on_time);
                for run in &mut cell.runs {
                    run.load = load;
                    run.measures.audio = [200, 150];
                    run.measures.stale_arrivals = if queue == "fq" { 321 } else { 0 };
                    run.bound = Some(Bound {
                        version: 0,
                        link: Link::of_path(253_000, 40_000_000),
                        audio: ClassBound::default(),
                        video,
                        data: ClassBound::default(),
                    });
                }
                cells.push(cell);
            }
        }
        scenario(&["load"], cells)
    }

    #[test]
    fn the_tightest_point_is_drawn_best_queue_first() {
        let svg = render(&summary([0.5, 1.5])).unwrap().unwrap();
        // Frames on time: 24 and 25 of 25, 5 and 6 of 25; audio 150 of 200; two runs' stale.
        for words in [
            "bestby qdisc triage",
            "fq",
            "98",
            "22",
            "75",
            "642",
            "1.5 times",
        ] {
            assert!(svg.contains(words), "no `{words}`");
        }
        assert!(
            svg.find("triage") < svg.find("\nfq\n"),
            "the best queue comes first"
        );
        assert!(svg.contains("A &lt;quick&gt; look"), "{svg}");
    }

    #[test]
    fn where_many_cells_have_the_highest_load_their_mean_is_drawn() {
        let near = summary([0.5, 1.5]);
        let mut all = near.clone();
        all.axes.extend(scenario(&["owd"], Vec::new()).axes);
        for (owd, less) in [("5", 0), ("75", 10)] {
            for cell in &near.cells {
                let mut cell = cell.clone();
                cell.axes.push(Coordinate {
                    axis: "owd".into(),
                    value: owd.into(),
                });
                for run in &mut cell.runs {
                    run.measures.frames[1] = run.measures.frames[1].saturating_sub(less);
                }
                all.cells.push(cell);
            }
        }
        all.cells.drain(..near.cells.len());
        // Of 25 frames triage has 24 and 25, and 14 and 15: 78 %.
        let svg = render(&all).unwrap().unwrap();
        for words in ["mean of 2 cells: owd", "\n78\n"] {
            assert!(svg.contains(words), "no `{words}` in {svg}");
        }
        assert!(!render(&near).unwrap().unwrap().contains("mean of"));
        // Nobody is shown by fewer cells than another: here that leaves one queue.
        all.cells.remove(6);
        assert_eq!(render(&all).unwrap(), None);
    }

    #[test]
    fn where_all_fits_there_is_nothing_to_show() {
        assert_eq!(render(&summary([0.5, 1.0])).unwrap(), None);
    }
}
