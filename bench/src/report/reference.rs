//! What the cells of a table are compared with: another queue of the same series, another place
//! on one of its axes, or runs of the same traffic in another one, of an earlier commit for
//! instance.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Result, bail, ensure};

use super::compare;
use crate::{
    scenario::cell::{Coordinate, Point},
    series::summary::{CellSummary, RunSummary, ScenarioSummary, Summary},
};

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

/// What `--against` names.
#[derive(Clone, Debug, PartialEq)]
enum Against<'a> {
    /// Another queue at the same place.
    Queue(&'a str),
    /// The same queue at another place on this axis.
    Place(Coordinate),
}

impl<'a> Against<'a> {
    /// `AXIS=VALUE`, or a queue's name, which has no `=`.
    fn parse(text: &'a str) -> Self {
        match text.split_once('=') {
            Some((axis, value)) => Self::Place(Coordinate {
                axis: axis.trim().into(),
                value: value.trim().into(),
            }),
            None => Self::Queue(text),
        }
    }

    /// Refuses what no cell of `there` is of; `place` says where these cells are.
    ///
    /// # Errors
    /// With all that there is.
    fn check(&self, there: &Summary, place: &str) -> Result<()> {
        let cells = || there.scenarios.iter().flat_map(|s| &s.cells);
        let (wanted, all): (_, BTreeSet<String>) = match self {
            Self::Queue(queue) => {
                let queues = cells().map(|cell| cell.queue.clone()).collect();
                ((*queue).to_owned(), queues)
            }
            Self::Place(wanted) => {
                let places = cells().flat_map(|cell| &cell.axes).map(at);
                (at(wanted), places.collect())
            }
        };
        let what = match self {
            Self::Queue(_) => "of the queue",
            Self::Place(_) => "at",
        };
        ensure!(
            all.contains(&wanted),
            "no cell {place} is {what} `{wanted}`; there are: {}",
            all.into_iter().collect::<Vec<_>>().join(", ")
        );
        Ok(())
    }
}

/// As `--against` takes it.
fn at(place: &Coordinate) -> String {
    format!("{}={}", place.axis, place.value)
}

/// What is compared with: at least one of both is there.
#[derive(Clone, Debug)]
pub(super) struct Reference<'a> {
    against: Option<Against<'a>>,
    before: Option<Before<'a>>,
}

impl<'a> Reference<'a> {
    /// `None` where nothing is to be compared with.
    ///
    /// # Errors
    /// No cell is of what `against` names, or `before` has no run of the same traffic at the same
    /// place.
    pub(super) fn new(
        shown: &'a Summary,
        against: Option<&'a str>,
        before: Option<Before<'a>>,
    ) -> Result<Option<Self>> {
        let against = against.map(Against::parse);
        match (&against, before) {
            (Some(Against::Place(place)), Some(before)) => bail!(
                "--against {} compares within one series; with --before {} name a queue",
                at(place),
                before.dir.display()
            ),
            (Some(against), Some(before)) => {
                against.check(before.summary, &format!("of {}", before.dir.display()))?;
            }
            (Some(against), None) => against.check(shown, "to be shown")?,
            (None, None) => return Ok(None),
            (None, Some(_)) => {}
        }
        let reference = Self { against, before };
        if let Some(before) = before {
            let any = |s: &'a ScenarioSummary| s.cells.iter().any(|c| reference.of(s, c).is_some());
            ensure!(
                shown.scenarios.iter().any(any),
                "no cell of {} has the path, traffic, seed and length of one to be shown",
                before.dir.display()
            );
        }
        Ok(Some(reference))
    }

    /// What `cell` is compared with, and the series that it is of.
    pub(super) fn of(
        &self,
        scenario: &'a ScenarioSummary,
        cell: &CellSummary,
    ) -> Option<(&'a ScenarioSummary, &'a CellSummary)> {
        let queue = match self.against {
            Some(Against::Queue(queue)) => queue,
            _ => &cell.queue,
        };
        let mut axes = cell.axes.clone();
        if let Some(Against::Place(place)) = &self.against {
            let axis = axes.iter_mut().find(|c| c.axis == place.axis)?;
            axis.value.clone_from(&place.value);
        }
        match self.before {
            None => Some((scenario, compare::find(scenario, &axes, queue)?)),
            Some(before) => {
                let is = |c: &CellSummary| {
                    c.queue == queue && same_path(c, cell) && have_same_traffic(c, cell)
                };
                let there: Vec<_> = before
                    .series(scenario)
                    .flat_map(|other| other.cells.iter().map(move |c| (other, c)))
                    .filter(|(_, c)| is(c))
                    .collect();
                let same = there.iter().find(|(_, c)| c.point == cell.point);
                match (same, &*there) {
                    (Some(same), _) => Some(*same),
                    // The sender may be set otherwise, as long as there is no doubt which is meant.
                    (None, [only]) => Some(*only),
                    _ => None,
                }
            }
        }
    }

    /// Whether a row of this cell would compare it with itself.
    pub(super) fn is_itself(&self, cell: &CellSummary) -> bool {
        self.before.is_none()
            && match &self.against {
                Some(Against::Queue(queue)) => cell.queue == *queue,
                Some(Against::Place(place)) => cell.axes.contains(place),
                None => false,
            }
    }

    /// The line above a scenario's tables.
    pub(super) fn text(&self, scenario: &'a ScenarioSummary) -> String {
        let queue = match &self.against {
            Some(Against::Queue(queue)) => (*queue).to_owned(),
            Some(Against::Place(place)) => format!("the same queue at {}", at(place)),
            None => "the same queue".into(),
        };
        let what = match self.before {
            None => queue,
            Some(before) => {
                let mut made: Vec<String> = Vec::new();
                let with = |c| Some((c, self.of(scenario, c)?));
                for (cell, (series, other)) in scenario.cells.iter().filter_map(with) {
                    let made_by = &series.provenance;
                    let set = if other.point == cell.point {
                        ""
                    } else {
                        ", its TFRC set otherwise"
                    };
                    let text = format!(
                        "{}: Linux {}, commit {}{set}",
                        series.name, made_by.kernel, made_by.commit
                    );
                    if !made.contains(&text) {
                        made.push(text);
                    }
                }
                if made.is_empty() {
                    made.push("which has none such".into());
                }
                format!("{queue} in {} ({})", before.dir.display(), made.join("; "))
            }
        };
        format!("More than {what} (paired t-test, over the runs that both have):\n\n")
    }
}

/// Whether nothing but what is chosen of TFRC differs between the places of both.
fn same_path(first: &CellSummary, second: &CellSummary) -> bool {
    let set_alike = Point {
        tfrc: second.point.tfrc,
        ..first.point.clone()
    };
    set_alike == second.point
}

/// Whether the repetitions that both cells have were offered as much: a model of traffic that has
/// changed since makes other packets of the same seed.
pub(super) fn have_same_traffic(first: &CellSummary, second: &CellSummary) -> bool {
    first.runs.iter().all(|run| {
        let mut others = second
            .runs
            .iter()
            .filter(|other| other.number == run.number);
        let offered = |run: &RunSummary| (run.seed, run.measures.sent, run.measures.offered_bytes);
        others.all(|other| offered(other) == offered(run))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        series::summary::FORMAT,
        tfrc::{PacedBy, SendCredit},
    };

    fn summary(scenarios: Vec<ScenarioSummary>) -> Summary {
        Summary {
            format: FORMAT,
            scenarios,
        }
    }

    fn at<'a>(dir: &'a str, summary: &'a Summary) -> Before<'a> {
        Before {
            dir: Path::new(dir),
            summary,
        }
    }

    fn series(name: &str, queue: &str, runs: &[u64]) -> ScenarioSummary {
        ScenarioSummary {
            name: name.into(),
            ..scenario(&[], vec![cell(&[], queue, runs)])
        }
    }

    fn refused(shown: &Summary, queue: Option<&str>, other: &Summary) -> String {
        let refused = Reference::new(shown, queue, Some(at("old", other)));
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_cell_is_found_by_what_was_run_and_not_by_its_name() {
        let mut other = series("another", "fq", &[30, 32]);
        // Swept there, fixed here.
        other.cells[0].axes = vec![Coordinate {
            axis: "owd".into(),
            value: "40".into(),
        }];
        let shown = summary(vec![series("quick", "fq", &[50, 54])]);
        let quick = &shown.scenarios[0];
        let found = |other: &Summary, queue| {
            let reference = Reference::new(&shown, queue, Some(at("old", other)));
            let reference = reference.unwrap().unwrap();
            assert!(!reference.is_itself(&quick.cells[0]));
            let (series, found) = reference.of(quick, &quick.cells[0]).unwrap();
            (series.name.clone(), found.runs.len(), reference.text(quick))
        };
        let (name, runs, text) = found(&summary(vec![other]), None);
        assert_eq!((name.as_str(), runs), ("another", 2));
        let words = "More than the same queue in old (another: Linux 7.2.0-test, commit ";
        assert!(text.starts_with(words), "{text}");
        // Of two series that of the same name.
        let both = ["another", "quick"].map(|name| series(name, "fq", &[30]));
        let (name, ..) = found(&summary(both.into()), Some("fq"));
        assert_eq!(name, "quick");
    }

    #[test]
    fn a_sender_set_otherwise_is_a_pair_if_it_is_the_only_one() {
        let by = |paced_by| {
            let mut cell = cell(&[], "fq", &[30]);
            cell.point.tfrc.paced_by = paced_by;
            cell
        };
        let of = |cells| summary(vec![scenario(&[], cells)]);
        let (packets, bytes) = (by(PacedBy::Packets), by(PacedBy::Bytes));
        let shown = of(vec![bytes.clone()]);
        let scenario = &shown.scenarios[0];
        let found = |other: &Summary| {
            let reference = Reference::new(&shown, None, Some(at("old", other)));
            let reference = reference.unwrap().unwrap();
            let (_, found) = reference.of(scenario, &scenario.cells[0]).unwrap();
            let told = reference
                .text(scenario)
                .contains(", its TFRC set otherwise");
            (found.point.tfrc.paced_by, told)
        };
        let only = of(vec![packets.clone()]);
        assert_eq!(found(&only), (PacedBy::Packets, true));
        let both = of(vec![packets.clone(), bytes.clone()]);
        assert_eq!(found(&both), (PacedBy::Bytes, false));
        // Alike in a series of another name is nearer than otherwise in one of the same.
        let mut other = of(vec![bytes]).scenarios;
        other[0].name = "another".into();
        let apart = summary([of(vec![packets.clone()]).scenarios, other].concat());
        assert_eq!(found(&apart), (PacedBy::Bytes, false));
        // Which of the two?
        let mut credit = packets.clone();
        credit.point.tfrc.send_credit = SendCredit::All;
        let doubt = of(vec![packets, credit]);
        assert!(refused(&shown, None, &doubt).starts_with("no cell of old"));
    }

    #[test]
    fn runs_of_other_traffic_are_no_pairs() {
        let shown = summary(vec![series("quick", "fq", &[50, 54])]);
        let changed = |change: fn(&mut ScenarioSummary)| {
            let mut other = series("quick", "fq", &[30, 32]);
            change(&mut other);
            summary(vec![other])
        };
        let same = changed(|_| ());
        assert!(Reference::new(&shown, None, Some(at("old", &same))).is_ok());
        for change in [
            (|s| s.provenance.seed = 2) as fn(&mut ScenarioSummary),
            |s| s.seconds = 60.0,
            |s| s.discard_first = 0.0,
            |s| s.cells[0].point.tcp = 2,
            // The model makes other packets of the seed now.
            |s| s.cells[0].runs[1].measures.offered_bytes += 1,
        ] {
            assert_eq!(
                refused(&shown, None, &changed(change)),
                "no cell of old has the path, traffic, seed and length of one to be shown"
            );
        }
    }

    #[test]
    fn a_cell_is_compared_with_another_place_on_an_axis() {
        let restarts = |owd, runs: [&[u64]; 2]| {
            let [first, second] = runs;
            let axes = |restart| [("restart", restart), ("owd", owd)];
            [
                cell(&axes("rfc5348"), "fq", first),
                cell(&axes("faster"), "fq", second),
            ]
        };
        let cells = [
            restarts("5", [&[30, 32], &[34, 37]]),
            restarts("75", [&[10], &[90]]),
        ];
        let shown = summary(vec![scenario(&["restart", "owd"], cells.concat())]);
        let quick = &shown.scenarios[0];
        let reference = Reference::new(&shown, Some("restart=rfc5348"), None);
        let reference = reference.unwrap().unwrap();
        let words = "More than the same queue at restart=rfc5348 (paired";
        assert!(reference.text(quick).starts_with(words));
        let itself: Vec<bool> = quick.cells.iter().map(|c| reference.is_itself(c)).collect();
        assert_eq!(itself, [true, false, true, false]);
        for (faster, rfc5348) in [(1, 0), (3, 2)] {
            let (_, found) = reference.of(quick, &quick.cells[faster]).unwrap();
            assert_eq!(found.axes, quick.cells[rfc5348].axes);
        }
        let error = Reference::new(&shown, Some("restart=slow"), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no cell to be shown is at `restart=slow`; there are: owd=5, owd=75, restart=faster, \
             restart=rfc5348"
        );
        assert_eq!(
            refused(&shown, Some("owd=5"), &shown),
            "--against owd=5 compares within one series; with --before old name a queue"
        );
    }

    #[test]
    fn a_queue_that_was_not_run_there_is_refused_with_those_that_were() {
        let shown = summary(vec![series("quick", "fq", &[50])]);
        let other = summary(vec![series("quick", "cake", &[50])]);
        assert_eq!(
            refused(&shown, Some("fq"), &other),
            "no cell of old is of the queue `fq`; there are: cake"
        );
    }
}
