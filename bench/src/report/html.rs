//! The page: everything of a results' directory in one file that needs nothing else, no
//! script, no font, no network.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    compare::{self, Ahead, Verdict},
    gain, metric, section, short, text,
};
use crate::series::{
    store,
    summary::{self, Summary},
};

/// Name of the page below the results' directory.
pub const FILE: &str = "report.html";

/// Name of a scenario's picture of its tightest point, below the scenario's directory.
pub const GAIN: &str = "gain.svg";

/// Reads `dir/summary.json`, adds to it what a decoder makes of real media, and writes
/// `dir/report.html`, whose path it returns, and `dir/SCENARIO/gain.svg`.
pub fn write(dir: &Path) -> Result<PathBuf> {
    let file = dir.join(summary::FILE);
    let text = fs::read_to_string(&file).with_context(|| {
        format!(
            "reading {}: `bestby-lab run` makes it when a series ends",
            file.display()
        )
    })?;
    let summary: Summary = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a summary of this lab", file.display()))?;
    ensure!(
        summary.format == summary::FORMAT,
        "{} has format {}, this lab reads {}: run the series again with this lab",
        file.display(),
        summary.format,
        summary::FORMAT
    );
    for scenario in &summary.scenarios {
        if let Some(picture) = gain::render(scenario)? {
            let file = dir.join(&scenario.name).join(GAIN);
            fs::create_dir_all(dir.join(&scenario.name))
                .with_context(|| format!("creating {}", dir.join(&scenario.name).display()))?;
            store::replace(&file, picture.as_bytes())?;
        }
    }
    let page = page(&summary, dir)?.into_string();
    let file = dir.join(FILE);
    store::replace(&file, page.as_bytes())?;
    Ok(file)
}

/// The page of `summary`; records are looked for below `dir`.
pub fn page(summary: &Summary, dir: &Path) -> Result<Markup> {
    let mut sections = Vec::new();
    for scenario in &summary.scenarios {
        let section = section::render(scenario, dir)
            .with_context(|| format!("rendering the scenario `{}`", scenario.name))?;
        sections.push(section);
    }
    Ok(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "bestby-lab" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                h1 { "bestby-lab: what arrived in time" }
                (overview(summary))
                (behind(summary))
                @for section in &sections { (section) }
                (notes())
            }
        }
    })
}

/// One row per scenario: how often bestby leads.
fn overview(summary: &Summary) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.text { "scenario" } th { "cells" } th { "runs" } th { "missing" }
                th { "bestby leads" } th { "equal" } th { "behind" }
            } }
            tbody { @for scenario in &summary.scenarios {
                @let found = compare::verdicts(&compare::compare(scenario));
                @let count = |verdict| found.iter().filter(|&&v| v == verdict).count();
                tr {
                    td.text { a href={ "#" (scenario.name) } { (scenario.title) } }
                    td { (scenario.cells.len()) }
                    td { (scenario.cells.iter().map(|cell| cell.runs.len()).sum::<usize>()) }
                    td { (scenario.missing_runs) }
                    td { (count(Verdict::Leads)) }
                    td { (count(Verdict::Equal)) }
                    td { (count(Verdict::Behind)) }
                }
            } }
        } }
        p.faint {
            "Leads, equal, behind: " (compare::OURS) " (where it was not run, the first of "
            "bestby's queues) beside all other queues in each combination of the axes, one count "
            "each. Audio on time decides where it differs by more than " (compare::EQUAL_AUDIO)
            " points and by more than chance, else complete frames, without video complete ADUs. "
            "Equal where chance can do it: p ≥ 5 % in a t-test of the repetitions that both queues "
            "have, in pairs."
        }
    }
}

/// The cells that bestby does not lead, and those where more was possible, by name.
fn behind(summary: &Summary) -> Markup {
    let compared: Vec<_> = summary
        .scenarios
        .iter()
        .map(|scenario| (scenario, compare::compare(scenario)))
        .collect();
    let lost: Vec<_> = compared
        .iter()
        .flat_map(|(scenario, found)| found.iter().map(move |c| (*scenario, c)))
        .filter(|(_, c)| c.other_is_better())
        .collect();
    let short: Vec<_> = summary
        .scenarios
        .iter()
        .flat_map(|scenario| {
            let found = short::short(scenario);
            found.into_iter().map(move |short| (scenario, short))
        })
        .collect();
    let two = |figure: Option<f64>| figure.map_or_else(String::new, |f| format!("{f:.2}"));
    html! {
        h2 id="behind" { "Where bestby does not lead" }
        @for (scenario, found) in &compared {
            @if let Some(ours) = compare::ours(scenario) {
                p { a href={ "#" (scenario.name) } { (scenario.name) } ": "
                    (text::ahead(&Ahead::of(found), ours)) }
            }
        }
        @if !lost.is_empty() {
            div.scroll { table {
                thead { tr {
                    th.text { "scenario" } th.text { "cell" } th.text { "better queue" }
                    th { "its audio %" } th { "ours" } th { "its frames %" } th { "ours" }
                    th.text { "decides" } th { "difference" } th { "p" } th { "among all" }
                    th.text {}
                } }
                tbody { @for (scenario, c) in &lost { tr {
                    td.text { a href={ "#" (scenario.name) } { (scenario.name) } }
                    td.text { (section::place(scenario, c.axes)) }
                    td.text { (c.peer) }
                    @for i in [1, 0] { td { (two(c.audio.as_ref().map(|a| a.means[i]))) } }
                    @for i in [1, 0] { td { (two(Some(c.frames.means[i]))) } }
                    @let decisive = c.decisive();
                    td.text { (decisive.label) }
                    td.bad {
                        (format!("{:.2}", -decisive.difference()))
                        @if let Some(test) = decisive.test { (format!(" ± {:.2}", test.half_width)) }
                    }
                    td { (text::probability(decisive.test.map(|test| test.p))) }
                    td { (text::probability(decisive.holm)) }
                    td.text { (c.doubt()) }
                } } }
            } }
        }
        @if !short.is_empty() {
            p {
                "In these cells bestby has less than " (short::AUDIO_WANTED) " % of the audio "
                "although all of it was possible, or less than " (short::FRAMES_WANTED)
                " % of the frames of the bound:"
            }
            div.scroll { table {
                thead { tr {
                    th.text { "scenario" } th.text { "cell" } th { "audio %" }
                    th { "frames of bound %" } th.text { "bound" }
                } }
                tbody { @for (scenario, short) in &short { tr {
                    td.text { a href={ "#" (scenario.name) } { (scenario.name) } }
                    td.text { (section::place(scenario, short.axes)) }
                    td.bad { (two(short.audio)) }
                    td.bad { (two(short.frames)) }
                    td.text { (short.bound) }
                } } }
            } }
            p { (short::BOUNDS) }
        }
    }
}

/// What the words mean.
fn notes() -> Markup {
    html! {
        h2 id="notes" { "What the figures mean" }
        p { "A figure is the mean of a cell's runs; ± is half the width of its 95 % confidence "
            "interval (Student's t), absent where there is one run. The same seed gives the same "
            "packets at the same times to every queue. A packet that the sender's own socket "
            "refuses counts as offered and never arrived." }
        ul { @for metric in metric::COLUMNS {
            li { b { (metric.label) } ": " (metric.meaning) "." }
        } }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        measure::Measures,
        report::Provenance,
        scenario::cell::{Bottleneck, Coordinate, LinkRate, Point},
        scenario::value::{Error, Load, Millis, Percent},
        series::summary::{Absent, CellSummary, RunSummary, ScenarioSummary, Swept},
    };

    /// A cell whose runs have so many of 100 ADUs on time.
    pub(crate) fn cell(axes: &[(&str, &str)], queue: &str, runs: &[u64]) -> CellSummary {
        CellSummary {
            id: format!("{axes:?} {queue}"),
            queue: queue.into(),
            point: Point {
                bottleneck: Bottleneck::Sender,
                link: LinkRate::Load(Load(1.0)),
                owd_ms: Millis(40.0),
                loss_percent: Percent(0.0),
                router_queue: None,
                control: Default::default(),
                tfrc: Default::default(),
                tcp: 0,
                lifetime: None,
                traffic: [("model".to_owned(), "conference".into())].into(),
                rtt_error: Error(0.0),
                rate_error: Error(0.0),
                stall: None,
            },
            axes: axes
                .iter()
                .map(|&(axis, value)| Coordinate {
                    axis: axis.into(),
                    value: value.into(),
                })
                .collect(),
            runs: (0..)
                .zip(runs)
                .map(|(number, &on_time)| RunSummary {
                    number,
                    seed: u64::from(number) + 1,
                    rate: 253_000,
                    load: 1.0,
                    owd_ms: 40.1,
                    delay_is_real: true,
                    measures: Measures {
                        adus: [100, on_time],
                        frames: [50, on_time / 2],
                        ..Measures::default()
                    },
                    bound: None,
                    false_drops: None,
                    delivery: None,
                    records: format!("none/{number}.parquet"),
                    took_s: 1.0,
                })
                .collect(),
        }
    }

    /// A scenario of these cells; an axis' values are those of the cells.
    pub(crate) fn scenario(axes: &[&str], cells: Vec<CellSummary>) -> ScenarioSummary {
        let mut queues: Vec<String> = Vec::new();
        for cell in &cells {
            if !queues.contains(&cell.queue) {
                queues.push(cell.queue.clone());
            }
        }
        let swept = |axis: &&str| {
            let mut values: Vec<String> = Vec::new();
            for coordinate in cells.iter().flat_map(|cell| &cell.axes) {
                if coordinate.axis == **axis && !values.contains(&coordinate.value) {
                    values.push(coordinate.value.clone());
                }
            }
            Swept {
                axis: (*axis).into(),
                unit: if *axis == "owd" { "ms" } else { "" }.into(),
                values,
            }
        };
        ScenarioSummary {
            name: "quick".into(),
            title: "A <quick> look".into(),
            description: "What & why".into(),
            provenance: Provenance {
                kernel: "7.2.0-test".into(),
                commit: "0123456789ab".into(),
                command: "bestby-lab run quick.toml".into(),
                later: Vec::new(),
                seed: 41,
                machine: "a machine".into(),
            },
            seconds: 20.0,
            discard_first: 3.0,
            repetitions: 3,
            axes: axes.iter().map(swept).collect(),
            queues,
            absent: vec![Absent {
                queue: "cake".into(),
                reason: "not on this kernel".into(),
            }],
            missing_runs: 2,
            cells,
            beside: None,
        }
    }

    fn summary() -> Summary {
        let mut cells = Vec::new();
        for owd in ["5", "75"] {
            for (load, factor) in [("1", 1), ("2", 2)] {
                let axes = [("load", load), ("owd", owd)];
                cells.push(cell(
                    &axes,
                    "bestby qdisc triage",
                    &[90 / factor, 92 / factor],
                ));
                cells.push(cell(&axes, "fq", &[30 * factor, 31 * factor]));
            }
        }
        Summary {
            format: summary::FORMAT,
            scenarios: vec![scenario(&["load", "owd"], cells)],
        }
    }

    #[test]
    fn the_page_says_what_the_summary_says() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(
            dir.path().join(summary::FILE),
            serde_json::to_string(&summary()).expect("JSON"),
        )
        .expect("writing");
        let file = write(dir.path()).expect("a page");
        let page = fs::read_to_string(file).expect("reading");
        for words in [
            "A &lt;quick&gt; look",
            "What &amp; why",
            "7.2.0-test",
            "0123456789ab",
            "bestby-lab run quick.toml",
            "seed 41",
            "not on this kernel",
            "Missing: 2 runs; this series",
            // 90 and 92: mean 91, t = 12.706, deviation √2.
            "91.00 ± 12.71",
            "load 2, owd 75 ms",
        ] {
            assert!(page.contains(words), "no `{words}` in {page}");
        }
        assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
        for outside in [
            "http:", "https:", "<script", "<link", "src=", "url(", "@import",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn cells_that_others_lead_are_named() {
        let page = |summary: &Summary| {
            page(summary, Path::new("/nowhere"))
                .expect("a page")
                .into_string()
        };
        // Of 50 frames, at load 2 fq has 30 and 31, bestby 22 and 23.
        let mut summary = summary();
        let text = page(&summary);
        assert!(
            text.contains("In 2 of 4 cells another queue&#39;s mean is better")
                || text.contains("In 2 of 4 cells another queue's mean is better"),
            "{text}"
        );
        assert!(text.contains("<td>61.00</td><td>45.00</td>"), "{text}");
        summary.scenarios[0]
            .cells
            .retain(|cell| cell.axes[0].value == "1");
        assert!(page(&summary).contains("In 0 of 2 cells another queue"));
        summary.scenarios.clear();
        assert!(page(&summary).contains("bestby-lab"));
    }

    #[test]
    fn another_format_and_a_missing_file_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = format!("{:#}", write(dir.path()).expect_err("no file"));
        assert!(
            error.contains("summary.json") && error.contains("bestby-lab run"),
            "{error}"
        );
        let mut summary = summary();
        summary.format += 1;
        let text = serde_json::to_string(&summary).expect("JSON");
        fs::write(dir.path().join(summary::FILE), text).expect("writing");
        let error = format!("{:#}", write(dir.path()).expect_err("another format"));
        assert!(error.contains("format 2"), "{error}");
    }
}
