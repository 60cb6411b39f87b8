//! What the cells of a table are compared with: another queue of the same series, or runs of
//! the same traffic in another one, of an earlier commit for instance.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Result, bail, ensure};

use super::compare;
use crate::series::summary::{CellSummary, ScenarioSummary, Summary};

/// Another results' directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before<'a> {
    pub(super) dir: &'a Path,
    pub(super) summary: &'a Summary,
}

impl<'a> Before<'a> {
    /// Series whose repetitions have the packets of `scenario`'s: one of the same name first.
    fn series(self, scenario: &ScenarioSummary) -> impl Iterator<Item = &'a ScenarioSummary> {
        let traffic = |s: &ScenarioSummary| (s.provenance.seed, s.seconds, s.discard_first);
        let (name, wanted) = (scenario.name.clone(), traffic(scenario));
        let named = move |is: bool| {
            let name = name.clone();
            let all = self.summary.scenarios.iter();
            all.filter(move |s| (s.name == name) == is && traffic(s) == wanted)
        };
        named(true).chain(named(false))
    }
}

/// What is compared with: at least one of both is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference<'a> {
    queue: Option<&'a str>,
    before: Option<Before<'a>>,
}

impl<'a> Reference<'a> {
    /// `None` where nothing is to be compared with.
    ///
    /// # Errors
    /// `queue` was not run, or `before` has no run of the same traffic at the same place.
    pub(super) fn new(
        shown: &'a Summary,
        queue: Option<&'a str>,
        before: Option<Before<'a>>,
    ) -> Result<Option<Self>> {
        if let Some(queue) = queue {
            let cells = before.map_or(shown, |b| b.summary).scenarios.iter();
            let there: BTreeSet<&str> = cells
                .flat_map(|s| &s.cells)
                .map(|cell| cell.queue.as_str())
                .collect();
            if !there.contains(queue) {
                let place = match before {
                    Some(before) => format!("of {}", before.dir.display()),
                    None => "to be shown".into(),
                };
                let there: Vec<&str> = there.into_iter().collect();
                bail!(
                    "no cell {place} is of the queue `{queue}`; there are: {}",
                    there.join(", ")
                );
            }
        }
        let reference = Self { queue, before };
        if let Some(before) = before {
            let any = |s: &'a ScenarioSummary| s.cells.iter().any(|c| reference.of(s, c).is_some());
            ensure!(
                shown.scenarios.iter().any(any),
                "no cell of {} has the path, traffic, seed and length of one to be shown",
                before.dir.display()
            );
        }
        Ok((queue.is_some() || before.is_some()).then_some(reference))
    }

    /// What `cell` is compared with, and the series that it is of.
    pub(super) fn of(
        &self,
        scenario: &'a ScenarioSummary,
        cell: &CellSummary,
    ) -> Option<(&'a ScenarioSummary, &'a CellSummary)> {
        let queue = self.queue.unwrap_or(&cell.queue);
        match self.before {
            None => Some((scenario, compare::find(scenario, &cell.axes, queue)?)),
            Some(before) => before.series(scenario).find_map(|other| {
                let same = |c: &&CellSummary| c.queue == queue && c.point == cell.point;
                Some((other, other.cells.iter().find(same)?))
            }),
        }
    }

    /// Whether a row of this queue would compare it with itself.
    pub(super) fn is_itself(&self, queue: &str) -> bool {
        self.before.is_none() && self.queue == Some(queue)
    }

    /// The line above a scenario's tables.
    pub(super) fn text(&self, scenario: &'a ScenarioSummary) -> String {
        let queue = self.queue.map(str::to_owned);
        let what = match self.before {
            None => queue.unwrap_or_default(),
            Some(before) => {
                let mut made: Vec<String> = Vec::new();
                for (series, _) in scenario.cells.iter().filter_map(|c| self.of(scenario, c)) {
                    let made_by = &series.provenance;
                    let text = format!(
                        "{}: Linux {}, commit {}",
                        series.name, made_by.kernel, made_by.commit
                    );
                    if !made.contains(&text) {
                        made.push(text);
                    }
                }
                let queue = queue.unwrap_or_else(|| "the same queue".into());
                if made.is_empty() {
                    made.push("which has none such".into());
                }
                format!("{queue} in {} ({})", before.dir.display(), made.join("; "))
            }
        };
        format!("More than {what} (paired t-test, over the runs that both have):\n\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        scenario::cell::Coordinate,
        series::summary::FORMAT,
    };

    fn summary(scenarios: Vec<ScenarioSummary>) -> Summary {
        Summary {
            format: FORMAT,
            scenarios,
        }
    }

    fn at(dir: &str, summary: &'static Summary) -> Before<'static> {
        Before {
            dir: Path::new(Box::leak(dir.to_owned().into_boxed_str())),
            summary,
        }
    }

    fn leak(summary: Summary) -> &'static Summary {
        Box::leak(Box::new(summary))
    }

    fn series(name: &str, queue: &str, runs: &[u64]) -> ScenarioSummary {
        ScenarioSummary {
            name: name.into(),
            ..scenario(&[], vec![cell(&[], queue, runs)])
        }
    }

    fn refused(
        shown: &'static Summary,
        queue: Option<&'static str>,
        before: Before<'static>,
    ) -> String {
        Reference::new(shown, queue, Some(before))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_cell_is_found_by_what_was_run_and_not_by_its_name() {
        let mut other = series("another", "fq", &[30, 32]);
        // Swept there, fixed here.
        other.cells[0].axes = vec![Coordinate {
            axis: "owd".into(),
            value: "40".into(),
        }];
        let shown = leak(summary(vec![series("quick", "fq", &[50, 54])]));
        let before = at("old", leak(summary(vec![other])));
        let reference = Reference::new(shown, None, Some(before)).unwrap().unwrap();
        let of = |r: &Reference<'static>| {
            let (series, found) = r.of(&shown.scenarios[0], &shown.scenarios[0].cells[0])?;
            Some((series.name.clone(), found.runs.len()))
        };
        assert_eq!(of(&reference), Some(("another".into(), 2)));
        assert!(!reference.is_itself("fq"));
        assert!(
            reference
                .text(&shown.scenarios[0])
                .starts_with("More than the same queue in old (another: Linux 7.2.0-test, commit ")
        );
        // Of two series that of the same name.
        let named = series("quick", "fq", &[10]);
        let both = leak(summary(vec![series("another", "fq", &[30, 32]), named]));
        let reference = Reference::new(shown, Some("fq"), Some(at("old", both)));
        let reference = reference.unwrap().unwrap();
        assert_eq!(of(&reference), Some(("quick".into(), 1)));
    }

    #[test]
    fn runs_of_other_traffic_are_no_pairs() {
        let shown = leak(summary(vec![series("quick", "fq", &[50, 54])]));
        let changed = |change: fn(&mut ScenarioSummary)| {
            let mut other = series("quick", "fq", &[30, 32]);
            change(&mut other);
            at("old", leak(summary(vec![other])))
        };
        assert!(Reference::new(shown, None, Some(changed(|_| ()))).is_ok());
        for change in [
            (|s| s.provenance.seed = 2) as fn(&mut ScenarioSummary),
            |s| s.seconds = 60.0,
            |s| s.discard_first = 0.0,
            |s| s.cells[0].point.tcp = 2,
        ] {
            assert_eq!(
                refused(shown, None, changed(change)),
                "no cell of old has the path, traffic, seed and length of one to be shown"
            );
        }
    }

    #[test]
    fn a_queue_that_was_not_run_there_is_refused_with_those_that_were() {
        let shown = leak(summary(vec![series("quick", "fq", &[50])]));
        let before = at("old", leak(summary(vec![series("quick", "cake", &[50])])));
        assert_eq!(
            refused(shown, Some("fq"), before),
            "no cell of old is of the queue `fq`; there are: cake"
        );
    }
}
