//! Results as Markdown, for a terminal and for `docs/`: tables of chosen columns, and where
//! bestby's queue does not lead or falls short.

use anyhow::{Result, bail};

use super::{
    Table,
    compare::{self, Ahead},
    metric::{self, Metric},
    reference::Reference,
    section::{self, place},
    short,
};
use crate::{
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary, Summary},
};

/// Shown where no column is named, those that any run has.
const USUAL: [&str; 13] = [
    "audio %",
    "frames %",
    "frames of bound %",
    "objects %",
    "false drops %",
    "stale",
    "audio received %",
    "video received %",
    "sent kbit/s",
    "received kbit/s",
    "TCP kbit/s",
    "lost %",
    "RTT ms",
];

/// Stands for a figure that a cell does not have.
pub(super) const NONE: &str = "–";

/// The columns of `names`, separated by commas; empty: the usual ones.
pub(super) fn columns(names: &str) -> Result<Vec<&'static Metric>> {
    let known = |name: &str| metric::COLUMNS.iter().find(|metric| metric.label == name);
    if names.trim().is_empty() {
        return Ok(USUAL.iter().copied().filter_map(known).collect());
    }
    names
        .split(',')
        .map(|name| {
            let name = name.trim();
            let Some(metric) = known(name) else {
                let all: Vec<&str> = metric::COLUMNS.iter().map(|metric| metric.label).collect();
                bail!(
                    "no column is named `{name}` (the directory goes before --table); the \
                     columns, to be separated by commas: {}",
                    all.join(", ")
                );
            };
            Ok(metric)
        })
        .collect()
}

/// For every scenario a table for each combination of the axes: what each queue has, or what
/// it has more than `reference`. A column that no run of a scenario has is left out.
pub(super) fn tables<'a>(
    summary: &'a Summary,
    columns: &[&Metric],
    reference: Option<&Reference<'a>>,
) -> String {
    let text = |scenario| head(scenario) + &tables_of(scenario, columns, reference);
    summary.scenarios.iter().map(text).collect()
}

/// The heading, what made the figures, and what is missing.
pub(super) fn head(scenario: &ScenarioSummary) -> String {
    let mut text = format!(
        "### {}: {}\n\n{}; mean ± half the 95 % interval (Student's t); {}\n",
        scenario.name,
        scenario.title,
        section::made_by(scenario),
        scenario.provenance.commands_text()
    );
    if let Some(beside) = &scenario.beside {
        text.push_str(&format!("\nBeside it {beside}\n"));
    }
    if scenario.missing_runs > 0 {
        text.push_str(&format!("\n{}\n", section::incomplete(scenario)));
    }
    if let Some(warning) = section::not_offered(scenario) {
        text.push_str(&format!("\n**{warning}**\n"));
    }
    for absent in &scenario.absent {
        text.push_str(&format!("\nNot run: {}: {}\n", absent.queue, absent.reason));
    }
    text + "\n"
}

fn tables_of<'a>(
    scenario: &'a ScenarioSummary,
    columns: &[&Metric],
    reference: Option<&Reference<'a>>,
) -> String {
    let columns: Vec<&Metric> = columns
        .iter()
        .copied()
        .filter(|metric| {
            let shown = |cell: &CellSummary| metric.estimate(cell).is_some();
            scenario.cells.iter().any(shown)
        })
        .collect();
    // Where all cells have all their runs, their number needs no column.
    let wanted = scenario.repetitions as usize;
    let uneven = scenario.cells.iter().any(|cell| cell.runs.len() != wanted);
    let mut labels = vec!["queue"];
    labels.extend(uneven.then_some("runs"));
    labels.extend(columns.iter().map(|metric| metric.label));
    let mut text = reference.map_or_else(String::new, |r| r.text(scenario));
    for axes in section::combinations(scenario) {
        let mut table = Table::new(&labels);
        let cells = || scenario.cells.iter().filter(|cell| cell.axes == axes);
        let shown = |cell: &&CellSummary| !reference.is_some_and(|r| r.is_itself(cell));
        if !cells().any(|cell| shown(&cell)) {
            continue;
        }
        for cell in cells().filter(shown) {
            let other = reference.map(|r| r.of(scenario, cell));
            let mut row = vec![cell.queue.clone()];
            row.extend(uneven.then(|| cell.runs.len().to_string()));
            row.extend(columns.iter().map(|metric| {
                let shown = match other {
                    Some(other) => other.and_then(|(_, other)| metric.more(cell, other)),
                    None => metric.estimate(cell).map(|estimate| metric.text(&estimate)),
                };
                shown.unwrap_or_else(|| NONE.into())
            }));
            table.row(row);
        }
        if !axes.is_empty() {
            text.push_str(&format!("{}:\n\n", place(scenario, axes)));
        }
        text.push_str(&table.markdown());
        text.push('\n');
    }
    text
}

/// For every scenario the cells that another queue leads, those in which bestby's queue
/// falls short of what is possible, and its worst false drops and staleness.
pub(super) fn standing(summary: &Summary) -> String {
    summary
        .scenarios
        .iter()
        .map(|scenario| {
            let Some(ours) = compare::ours(scenario) else {
                return head(scenario) + "No queue of bestby was run.\n\n";
            };
            head(scenario) + &better(scenario, ours) + &short(scenario, ours) + &worst(scenario)
        })
        .collect()
}

fn better(scenario: &ScenarioSummary, ours: &str) -> String {
    let found = compare::compare(scenario);
    let better: Vec<_> = found.iter().filter(|c| c.other_is_better()).collect();
    let mut text = format!("{}\n\n", ahead(&Ahead::of(&found), ours));
    if better.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        "cell",
        "better queue",
        "its audio %",
        "ours",
        "its frames %",
        "ours",
        "decides",
        "difference",
        "p",
        "among all",
        "",
    ]);
    for c in better {
        let [own_audio, audio] = pair(c.audio.as_ref().map(|audio| audio.means));
        let [own_frames, frames] = pair(Some(c.frames.means));
        let decisive = c.decisive();
        let half = decisive
            .test
            .map(|test| format!(" ± {:.2}", test.half_width));
        table.row(vec![
            cell_name(scenario, c.axes),
            c.peer.to_owned(),
            audio,
            own_audio,
            frames,
            own_frames,
            decisive.label.into(),
            format!("{:.2}{}", -decisive.difference(), half.unwrap_or_default()),
            probability(decisive.test.map(|test| test.p)),
            probability(decisive.holm),
            c.doubt(),
        ]);
    }
    text.push_str(&table.markdown());
    text + "\n"
}

/// How many cells other queues lead, and how much of that chance can do.
pub(super) fn ahead(ahead: &Ahead, ours: &str) -> String {
    let mut text = format!(
        "In {} of {} cells another queue's mean is better than that of {ours}: in audio on time \
         where that differs by more than {} points and by more than chance, else in complete \
         frames.",
        ahead.better,
        ahead.cells,
        compare::EQUAL_AUDIO,
    );
    if ahead.tests == 0 {
        text.push_str(" With one run of each nothing can be told from chance.");
    } else {
        text.push_str(&format!(
            " In {} of them by more than chance in a test of its own (paired t-test, p < 5 %), in \
             {} also among all {} tests (Holm). If no two queues differed, up to {:.1} of so many \
             tests would still be against {ours}.",
            ahead.alone,
            ahead.among_all,
            ahead.tests,
            ahead.by_chance(),
        ));
    }
    text
}

/// A test's p for a table.
pub(super) fn probability(p: Option<f64>) -> String {
    match p {
        None => NONE.into(),
        Some(p) if p < 0.0001 => "< 0.0001".into(),
        Some(p) => format!("{p:.4}"),
    }
}

fn pair(means: Option<[f64; 2]>) -> [String; 2] {
    means.map_or_else(
        || [NONE, NONE].map(str::to_owned),
        |means| means.map(|mean| format!("{mean:.2}")),
    )
}

fn short(scenario: &ScenarioSummary, ours: &str) -> String {
    let found = short::short(scenario);
    let bounded = short::bounded(scenario);
    if bounded == 0 {
        return "No run has a clairvoyant bound (no known rate).\n\n".into();
    }
    let mut text = format!(
        "In {} of {bounded} cells {ours} has less than {} % of the audio although all of it was \
         possible, or less than {} % of the frames of the bound.\n\n",
        found.len(),
        short::AUDIO_WANTED,
        short::FRAMES_WANTED,
    );
    if found.is_empty() {
        return text;
    }
    let mut table = Table::new(&["cell", "audio %", "frames of bound %", "bound"]);
    for cell in found {
        table.row(vec![
            cell_name(scenario, cell.axes),
            cell.audio
                .map_or_else(String::new, |audio| format!("{audio:.2}")),
            cell.frames
                .map_or_else(String::new, |frames| format!("{frames:.1}")),
            cell.bound.to_string(),
        ]);
    }
    text.push_str(&table.markdown());
    text + "\n" + short::BOUNDS + "\n\n"
}

/// The largest means among the cells of bestby's queue.
fn worst(scenario: &ScenarioSummary) -> String {
    let mut text = String::new();
    for metric in [&metric::FALSE_DROPS, &metric::STALE] {
        if let Some(worst) = short::worst(scenario, metric) {
            let digits = metric.digits;
            text.push_str(&format!(
                "- most {}: {:.digits$} in the mean of a cell ({}), {:.digits$} in a run\n",
                metric.label,
                worst.mean,
                cell_name(scenario, worst.axes),
                worst.run,
            ));
        }
    }
    text + "\n"
}

fn cell_name(scenario: &ScenarioSummary, axes: &[Coordinate]) -> String {
    if axes.is_empty() {
        scenario.name.clone()
    } else {
        place(scenario, axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        series::summary::FORMAT,
    };

    fn summary() -> Summary {
        let cells = vec![
            cell(&[("owd", "5")], "bestby qdisc triage", &[90, 92, 94]),
            cell(&[("owd", "5")], "fq", &[30, 30, 30]),
            cell(&[("owd", "75")], "bestby qdisc triage", &[20, 22, 24]),
            cell(&[("owd", "75")], "fq", &[40, 42]),
        ];
        Summary {
            format: FORMAT,
            scenarios: vec![scenario(&["owd"], cells)],
        }
    }

    #[test]
    fn a_table_for_each_combination_and_what_made_it() {
        let text = tables(
            &summary(),
            &columns("frames %, audio %,stale").unwrap(),
            None,
        );
        for words in [
            "### quick: A <quick> look",
            "Linux 7.2.0-test, a machine, commit 0123456789ab, seed 41, 3 runs of 20 s for each \
             cell, the first 3 s of each not judged; mean",
            "`bestby-lab run quick.toml`",
            "Missing: 2 runs; this series",
            "Not run: cake: not on this kernel",
            "owd 5 ms:\n\n| queue | runs | frames % | stale |\n|---|---|---|---|\n",
            "| bestby qdisc triage | 3 | 92.00 ± 4.97 | 0.0 ± 0.0 |\n",
            "| fq | 2 | 41.00 ± 12.71 |",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
    }

    #[test]
    fn runs_that_measured_the_senders_socket_are_named() {
        let mut summary = summary();
        let usual = columns("").unwrap();
        assert!(!tables(&summary, &usual, None).contains("not offered"));
        let cell = &mut summary.scenarios[0].cells[1];
        cell.id = "owd=5_fq".into();
        cell.runs[0].measures.would_block = 2;
        cell.runs[2].measures.refused = 5;
        let words = "**7 packets not offered to the queue, in 2 runs: each of them has measured the \
                     sender's socket and not the queue (owd=5_fq run 0, owd=5_fq run 2)**";
        for text in [tables(&summary, &usual, None), standing(&summary)] {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn all_commands_that_made_a_series_are_shown() {
        let mut summary = summary();
        let made = &mut summary.scenarios[0].provenance;
        *made = made.clone().and("bestby-lab run quick.toml --runs 5");
        let text = tables(&summary, &columns("").unwrap(), None);
        let words = "`bestby-lab run quick.toml`, then `bestby-lab run quick.toml --runs 5`";
        assert!(text.contains(words), "{text}");
    }

    fn beside(against: &str, named: &str) -> String {
        let summary = summary();
        let reference = Reference::new(&summary, Some(against), None).unwrap();
        tables(&summary, &columns(named).unwrap(), reference.as_ref())
    }

    #[test]
    fn a_queue_beside_another_is_told_with_the_interval_of_the_difference() {
        let text = beside("fq", "frames %,stale");
        // Pairs of runs: 60, 62, 64. Below it two of three: -20, -20.
        for words in [
            "More than fq (paired t-test",
            "| bestby qdisc triage | 3 | +62.00 ± 4.97 | +0.0 ± 0.1 |",
            // As `--best` has it: what is counted in frames is not known better than to one.
            "| bestby qdisc triage | 3 | -20.00 ± 7.34 |",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        assert!(!text.contains("| fq |"), "{text}");
    }

    #[test]
    fn a_place_that_all_others_are_compared_with_has_no_table() {
        let text = beside("owd=5", "frames %");
        for words in [
            "More than the same queue at owd=5 (paired t-test",
            "owd 75 ms:\n\n| queue | runs | frames % |\n",
            "| bestby qdisc triage | 3 | -70.00 ± ",
            "| fq | 2 | +11.00 ± ",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        assert!(!text.contains("owd 5 ms"), "{text}");
    }

    #[test]
    fn to_compare_with_a_queue_that_was_not_run_is_refused_with_those_that_were() {
        let error = Reference::new(&summary(), Some("cake"), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no cell to be shown is of the queue `cake`; there are: bestby qdisc triage, fq"
        );
    }

    #[test]
    fn a_wrong_column_is_refused_with_those_there_are() {
        let error = columns("audio %, fps").unwrap_err().to_string();
        assert!(
            error.contains("`fps`") && error.contains("frames of bound %, "),
            "{error}"
        );
        assert_eq!(columns(" ").unwrap().len(), USUAL.len());
    }

    #[test]
    fn cells_that_others_lead_are_named_with_both_figures() {
        let mut summary = summary();
        let own = &mut summary.scenarios[0].cells[2];
        own.runs.truncate(2);
        own.runs[1].measures.stale_arrivals = 1;
        let text = standing(&summary);
        for words in [
            "In 1 of 2 cells another queue's mean is better than that of bestby qdisc triage",
            "In 1 of them by more than chance",
            "in 1 also among all 2 tests (Holm). If no two queues differed, up to 0.1 of",
            "| owd 75 ms | fq | – | – | 41.00 | 21.00 | frames % | 20.00 ± 7.34 | 0.0184 | 0.0184 |",
            "No run has a clairvoyant bound",
            "- most stale: 0.5 in the mean of a cell (owd 75 ms), 1.0 in a run",
        ] {
            assert!(text.contains(words), "no `{words}` in\n{text}");
        }
        assert!(!text.contains("| owd 5 ms | fq"), "{text}");
    }
}
