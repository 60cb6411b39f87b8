//! Which cells bestby leads, and by how much.

use crate::{
    measure::statistics::{Welch, mean},
    scenario::cell::Coordinate,
    series::summary::{CellSummary, RunSummary, ScenarioSummary},
};

/// The queue that speaks for bestby where it was run: the default method in the default mode.
pub const OURS: &str = "bestby qdisc triage";

/// Axes that change what bestby is told and nothing else: other queues are told nothing
/// and run once, with the value 0.
const TOLD: [&str; 2] = ["rtt_error", "rate_error"];

/// How bestby stands in one cell beside the best of the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The combination of the swept axes.
    pub axes: Vec<Coordinate>,
    /// bestby's mean.
    pub ours: f64,
    /// The best other queue and its mean.
    pub peer: String,
    /// Its mean.
    pub theirs: f64,
    /// Half the width of the 95 % confidence interval of the difference (Welch); absent
    /// where there are too few runs to say, or where nothing varies.
    pub half_width: Option<f64>,
    /// What this comes to.
    pub verdict: Verdict,
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// bestby is better.
    Leads,
    /// No difference, or none that 95 % confidence can tell from chance.
    Equal,
    /// The other is better.
    Behind,
}

impl Comparison {
    /// bestby − other.
    pub fn difference(&self) -> f64 {
        self.ours - self.theirs
    }
}

/// bestby's queue of a scenario: [`OURS`], or the first that is bestby's.
pub fn ours(scenario: &ScenarioSummary) -> Option<&str> {
    let run = |name: &str| scenario.cells.iter().any(|cell| cell.queue == name);
    if run(OURS) {
        return Some(OURS);
    }
    scenario
        .queues
        .iter()
        .map(String::as_str)
        .find(|name| name.starts_with("bestby") && run(name))
}

/// bestby's queue beside the best queue that is not bestby's, in each combination of the
/// axes where both have the figure `of`; larger is better.
pub fn compare(scenario: &ScenarioSummary, of: fn(&RunSummary) -> Option<f64>) -> Vec<Comparison> {
    let Some(ours) = ours(scenario) else {
        return Vec::new();
    };
    let peers: Vec<&str> = scenario
        .queues
        .iter()
        .map(String::as_str)
        .filter(|name| !name.starts_with("bestby"))
        .collect();
    let values = |cell: &CellSummary| -> Vec<f64> { cell.runs.iter().filter_map(of).collect() };
    scenario
        .cells
        .iter()
        .filter(|cell| cell.queue == ours)
        .filter_map(|cell| {
            let own = values(cell);
            let own_mean = mean(&own)?;
            let (peer, theirs, their_mean) = peers
                .iter()
                .filter_map(|peer| {
                    let runs = values(find(scenario, &cell.axes, peer)?);
                    let mean = mean(&runs)?;
                    Some((*peer, runs, mean))
                })
                // The first of equals, in the scenario's order.
                .reduce(|a, b| if b.2 > a.2 { b } else { a })?;
            let difference = own_mean - their_mean;
            let welch = Welch::of(&own, &theirs);
            let verdict = if difference == 0.0 || welch.is_some_and(|welch| !welch.differ()) {
                Verdict::Equal
            } else if difference > 0.0 {
                Verdict::Leads
            } else {
                Verdict::Behind
            };
            Some(Comparison {
                axes: cell.axes.clone(),
                ours: own_mean,
                peer: peer.to_owned(),
                theirs: their_mean,
                half_width: welch.map(|welch| welch.half_width),
                verdict,
            })
        })
        .collect()
}

/// The cell of `queue` at `axes`; of a queue that is told nothing, the one it has for all
/// errors of what bestby is told.
pub fn find<'a>(
    scenario: &'a ScenarioSummary,
    axes: &[Coordinate],
    queue: &str,
) -> Option<&'a CellSummary> {
    let at = |wanted: &[Coordinate]| {
        scenario
            .cells
            .iter()
            .find(|cell| cell.queue == queue && cell.axes == wanted)
    };
    at(axes).or_else(|| {
        let untold: Vec<Coordinate> = axes
            .iter()
            .map(|coordinate| {
                let mut coordinate = coordinate.clone();
                if TOLD.contains(&coordinate.axis.as_str()) {
                    coordinate.value = "0".into();
                }
                coordinate
            })
            .collect();
        at(&untold)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::tests::{cell, scenario};

    fn adus(run: &RunSummary) -> Option<f64> {
        Some(run.measures.adus_on_time())
    }

    #[test]
    fn the_best_peer_counts_and_chance_does_not() {
        let scenario = scenario(
            &["load"],
            vec![
                cell(&[("load", "1")], "bestby qdisc triage", &[90, 92, 94]),
                cell(&[("load", "1")], "pfifo 32", &[10, 12, 14]),
                cell(&[("load", "1")], "fq", &[60, 62, 64]),
                cell(&[("load", "2")], "bestby qdisc triage", &[50, 60, 70]),
                cell(&[("load", "2")], "pfifo 32", &[55, 62, 66]),
                cell(&[("load", "4")], "bestby qdisc triage", &[20, 21, 22]),
                cell(&[("load", "4")], "fq", &[40, 41, 42]),
            ],
        );
        let found: Vec<_> = compare(&scenario, adus)
            .into_iter()
            .map(|c| {
                (
                    c.axes[0].value.clone(),
                    c.peer.clone(),
                    c.verdict,
                    c.difference(),
                )
            })
            .collect();
        assert_eq!(found.len(), 3);
        assert_eq!((&*found[0].1, found[0].2), ("fq", Verdict::Leads));
        assert!((found[0].3 - 30.0).abs() < 1e-9);
        assert_eq!((&*found[1].1, found[1].2), ("pfifo 32", Verdict::Equal));
        assert_eq!((&*found[2].1, found[2].2), ("fq", Verdict::Behind));
    }

    #[test]
    fn without_variation_the_difference_is_exact() {
        let scenario = scenario(
            &[],
            vec![
                cell(&[], "bestby qdisc triage", &[90, 90]),
                cell(&[], "fq", &[91, 91]),
            ],
        );
        let found = compare(&scenario, adus);
        assert_eq!(
            (found[0].verdict, found[0].half_width),
            (Verdict::Behind, None)
        );
    }

    #[test]
    fn who_is_told_nothing_stands_for_all_errors() {
        let scenario = scenario(
            &["rtt_error"],
            vec![
                cell(&[("rtt_error", "0.5")], "bestby qdisc triage", &[50]),
                cell(&[("rtt_error", "0")], "fq", &[40]),
            ],
        );
        let found = compare(&scenario, adus);
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Leads));
    }

    #[test]
    fn without_bestby_or_peers_there_is_nothing_to_compare() {
        let alone = scenario(&[], vec![cell(&[], "bestby tc", &[50])]);
        assert_eq!(ours(&alone), Some("bestby tc"));
        assert!(compare(&alone, adus).is_empty());
        let peer = scenario(&[], vec![cell(&[], "fq", &[50])]);
        assert_eq!(ours(&peer), None);
        assert!(compare(&peer, adus).is_empty());
    }
}
