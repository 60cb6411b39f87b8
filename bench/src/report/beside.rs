//! Queues of another results' directory beside those of this one: what a change of bestby does
//! not touch need not be run again.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::reference::have_same_traffic;
use crate::{
    say::count,
    series::summary::{CellSummary, ScenarioSummary, Summary},
};

/// Adds to each scenario of `shown` the queues that it has no run of, with their runs in the
/// scenario of that name in `other`, which is of `dir`.
///
/// # Errors
/// A scenario is not in `other`, was run on another kernel, or had other packets there, or
/// another path.
pub(super) fn add(shown: &mut Summary, other: &Summary, dir: &Path) -> Result<()> {
    for scenario in &mut shown.scenarios {
        let mut named = other.scenarios.iter().filter(|s| s.name == scenario.name);
        let place = || format!("--beside {}: {}", dir.display(), scenario.name);
        let there = named
            .next()
            .with_context(|| format!("{} is not there", place()))?;
        check(scenario, there).with_context(place)?;
        add_queues(scenario, there);
    }
    Ok(())
}

/// Whether runs of both may stand in one table.
fn check(here: &ScenarioSummary, there: &ScenarioSummary) -> Result<()> {
    let kernels = [&here.provenance.kernel, &there.provenance.kernel];
    ensure!(
        kernels[0] == kernels[1],
        "its kernel was {} and here it was {}",
        kernels[1],
        kernels[0]
    );
    let length = |s: &ScenarioSummary| {
        let seed = s.provenance.seed;
        (seed, s.seconds, s.discard_first, s.axes.clone())
    };
    let alike = |cell: &CellSummary| {
        let mut at_this_place = there.cells.iter().filter(|c| c.axes == cell.axes);
        at_this_place.all(|c| c.point == cell.point && have_same_traffic(c, cell))
    };
    ensure!(
        length(here) == length(there) && here.cells.iter().all(alike),
        "its runs have not the path, packets, length and axes of those here"
    );
    Ok(())
}

fn add_queues(here: &mut ScenarioSummary, there: &ScenarioSummary) {
    let mine: BTreeSet<&String> = here.queues.iter().collect();
    let (has, wanted) = (runs(here), u64::from(here.repetitions));
    let cells = (here.missing_runs + has) / wanted.max(1);
    let others: Vec<String> = there
        .queues
        .iter()
        .filter(|queue| !mine.contains(queue))
        .cloned()
        .collect();
    let added = there.cells.iter().filter(|c| others.contains(&c.queue));
    here.cells.extend(added.cloned());
    here.absent.extend(
        there
            .absent
            .iter()
            .filter(|a| !here.queues.contains(&a.queue))
            .cloned(),
    );
    here.missing_runs = (cells * wanted).saturating_sub(runs(here));
    if !others.is_empty() {
        here.beside = Some(format!(
            "{}: {}, Linux {}, commit {}; {}",
            others.join(", "),
            count(there.repetitions, "run"),
            there.provenance.kernel,
            there.provenance.commit,
            there.provenance.commands_text()
        ));
        here.queues.extend(others);
    }
}

/// Of those that were asked for here.
fn runs(scenario: &ScenarioSummary) -> u64 {
    let of = |cell: &CellSummary| (cell.runs.len() as u64).min(scenario.repetitions.into());
    scenario.cells.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        series::summary::FORMAT,
        tfrc::PacedBy,
    };

    fn summary(cells: Vec<CellSummary>) -> Summary {
        Summary {
            format: FORMAT,
            scenarios: vec![scenario(&["load"], cells)],
        }
    }

    fn both(load: &str, triage: u64, fq: u64) -> [CellSummary; 2] {
        let axes = [("load", load)];
        [
            cell(&axes, "bestby qdisc triage", &[triage, triage]),
            cell(&axes, "fq", &[fq, fq]),
        ]
    }

    #[test]
    fn queues_that_were_not_run_stand_beside_with_their_own_origin() {
        let old = summary([both("1", 50, 30), both("2", 40, 20)].concat());
        let new = [both("1", 70, 0), both("2", 60, 0)].map(|[triage, _]| triage);
        let mut shown = summary(new.to_vec());
        shown.scenarios[0].repetitions = 1;
        shown.scenarios[0].missing_runs = 2;
        for cell in &mut shown.scenarios[0].cells {
            cell.runs.truncate(1);
        }
        add(&mut shown, &old, Path::new("old")).unwrap();
        let found = &shown.scenarios[0];
        let on_time = |cell: &CellSummary| (cell.queue.clone(), cell.runs[0].measures.adus[1]);
        let figures: Vec<_> = found.cells.iter().map(on_time).collect();
        let of = |queue: &str, adus| (queue.to_owned(), adus);
        assert_eq!(
            figures,
            [
                of("bestby qdisc triage", 70),
                of("bestby qdisc triage", 60),
                of("fq", 30),
                of("fq", 20)
            ]
        );
        assert_eq!(found.queues, ["bestby qdisc triage", "fq"]);
        // One run of each was asked for here, and three there.
        assert_eq!((found.repetitions, found.missing_runs), (1, 0));
        let origin =
            "fq: 3 runs, Linux 7.2.0-test, commit 0123456789ab; `bestby-lab run quick.toml`";
        assert_eq!(found.beside.as_deref(), Some(origin));
    }

    #[test]
    fn runs_of_another_kernel_path_or_traffic_do_not_stand_beside() {
        let new = summary(both("1", 70, 0)[..1].to_vec());
        let refused = |change: fn(&mut ScenarioSummary)| {
            let mut old = summary(both("1", 50, 30).to_vec());
            change(&mut old.scenarios[0]);
            let error = add(&mut new.clone(), &old, Path::new("old")).unwrap_err();
            format!("{error:#}")
        };
        assert_eq!(
            refused(|s| s.provenance.kernel = "7.1".into()),
            "--beside old: quick: its kernel was 7.1 and here it was 7.2.0-test"
        );
        assert_eq!(
            refused(|s| s.name = "another".into()),
            "--beside old: quick is not there"
        );
        for change in [
            (|s| s.seconds = 60.0) as fn(&mut ScenarioSummary),
            |s| s.provenance.seed = 2,
            |s| s.axes.clear(),
            |s| s.cells[1].point.tcp = 2,
            |s| s.cells[1].point.tfrc.paced_by = PacedBy::Bytes,
            |s| s.cells[1].runs[0].seed = 9,
        ] {
            assert_eq!(
                refused(change),
                "--beside old: quick: its runs have not the path, packets, length and axes of \
                 those here"
            );
        }
    }
}
