//! Where bestby leads, where another queue is better, and where it falls short of what is
//! possible: one rule for the page and for the terminal.
//!
//! Audio is what a call is worth: more of it on time is better, whatever becomes of the
//! video. Only at equal audio do complete frames count (of traffic without video: complete
//! ADUs).

use super::metric::{self, Metric};
use crate::{
    measure::statistics::{Welch, mean},
    scenario::cell::Coordinate,
    series::summary::{CellSummary, RunSummary, ScenarioSummary},
};

/// The queue that speaks for bestby where it was run: the default method in the default mode.
pub const OURS: &str = "bestby qdisc triage";

/// Points of audio on time up to which two queues have equally much.
pub const EQUAL_AUDIO: f64 = 0.1;

/// Axes that change what bestby is told and nothing else: other queues are told nothing
/// and run once, with the value 0.
const TOLD: [&str; 2] = ["rtt_error", "rate_error"];

/// bestby's queue beside one other in one combination of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The combination of the swept axes.
    pub axes: &'a [Coordinate],
    /// The other queue.
    pub peer: &'a str,
    /// Mean of audio on time, %: bestby's, the other's; absent without audio.
    pub audio: Option<[f64; 2]>,
    /// The same of what decides at equal audio, see [`Comparison::video_label`].
    pub video: Option<[f64; 2]>,
    /// Name of the figure in `video`.
    pub video_label: &'static str,
    /// bestby − other in the figure that decides, points.
    pub difference: f64,
    /// Half the width of the 95 % confidence interval of the difference (Welch); absent
    /// where there are too few runs to say, or where nothing varies.
    pub half_width: Option<f64>,
    /// Whether 95 % confidence cannot tell the difference from chance.
    pub chance: bool,
    /// Whether both have runs enough, two, for that to be known.
    pub enough_runs: bool,
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

impl Comparison<'_> {
    /// What this comes to.
    pub fn verdict(&self) -> Verdict {
        if self.difference == 0.0 || self.chance {
            Verdict::Equal
        } else if self.difference > 0.0 {
            Verdict::Leads
        } else {
            Verdict::Behind
        }
    }

    /// What to say of the difference where it is not certain; else empty.
    pub fn doubt(&self) -> &'static str {
        match (self.enough_runs, self.chance) {
            (false, _) => "too few runs to tell from chance",
            (true, true) => "may be chance",
            (true, false) => "",
        }
    }

    /// Whether the other's mean is better, be it by chance.
    pub fn other_is_better(&self) -> bool {
        self.difference < 0.0
    }
}

/// bestby's queue of a scenario: [`OURS`], or the same with a limit, or the first that is
/// bestby's.
pub fn ours(scenario: &ScenarioSummary) -> Option<&str> {
    let run = |name: &str| scenario.cells.iter().any(|cell| cell.queue == name);
    let beginning = |words: &str| {
        let mut names = scenario.queues.iter().map(String::as_str);
        names.find(|name| name.starts_with(words) && run(name))
    };
    if run(OURS) {
        return Some(OURS);
    }
    beginning(OURS).or_else(|| beginning("bestby"))
}

/// bestby's queue beside every other queue, in each combination of the axes where both
/// were run and have a figure in common.
pub fn compare(scenario: &ScenarioSummary) -> Vec<Comparison<'_>> {
    let Some(ours) = ours(scenario) else {
        return Vec::new();
    };
    let peers = || scenario.queues.iter().filter(|name| *name != ours);
    scenario
        .cells
        .iter()
        .filter(|cell| cell.queue == ours)
        .flat_map(|cell| {
            peers().filter_map(|peer| beside(cell, peer, find(scenario, &cell.axes, peer)?))
        })
        .collect()
}

/// What all the comparisons of one combination come to: behind if any other queue is
/// better, leading if none is as good.
pub fn verdicts(found: &[Comparison<'_>]) -> Vec<Verdict> {
    found
        .chunk_by(|a, b| a.axes == b.axes)
        .map(|peers| {
            let any = |verdict| peers.iter().any(|peer| peer.verdict() == verdict);
            [Verdict::Behind, Verdict::Equal]
                .into_iter()
                .find(|&verdict| any(verdict))
                .unwrap_or(Verdict::Leads)
        })
        .collect()
}

fn beside<'a>(own: &'a CellSummary, peer: &'a str, other: &CellSummary) -> Option<Comparison<'a>> {
    let means = |metric: &Metric| Some([mean(&metric.values(own))?, mean(&metric.values(other))?]);
    let audio = means(&metric::AUDIO);
    let frames = means(&metric::FRAMES);
    let second = if frames.is_some() {
        &metric::FRAMES
    } else {
        &metric::ADUS
    };
    let video = frames.or_else(|| means(second));
    let unequal = audio.is_some_and(|[own, other]| (own - other).abs() > EQUAL_AUDIO);
    let (decides, [first, then]) = if unequal {
        (&metric::AUDIO, audio?)
    } else {
        (second, video?)
    };
    let runs = [decides.values(own), decides.values(other)];
    let welch = Welch::of(&runs[0], &runs[1]);
    Some(Comparison {
        axes: &own.axes,
        peer,
        audio,
        video,
        video_label: second.label,
        difference: first - then,
        half_width: welch.map(|welch| welch.half_width),
        chance: welch.is_some_and(|welch| !welch.differ()),
        enough_runs: runs.iter().all(|runs| runs.len() > 1),
    })
}

/// A cell in which bestby's queue falls short of what is possible.
#[derive(Clone, Debug, PartialEq)]
pub struct Short<'a> {
    /// The combination of the swept axes.
    pub axes: &'a [Coordinate],
    /// Audio on time, %, where all of it could be and less than [`AUDIO_WANTED`] is.
    pub audio: Option<f64>,
    /// Frames on time in % of the bound, where less than [`FRAMES_WANTED`].
    pub frames: Option<f64>,
    /// Whether the bound is the exact optimum; else it may be out of reach.
    pub exact: bool,
}

/// % of the audio that must be on time where the bound has all of it.
pub const AUDIO_WANTED: f64 = 99.9;
/// % of the bound's complete frames that must be on time.
pub const FRAMES_WANTED: f64 = 95.0;

/// Where bestby's queue has less than it should.
pub fn short(scenario: &ScenarioSummary) -> Vec<Short<'_>> {
    own_cells(scenario)
        .filter_map(|cell| {
            let figure = |metric: &Metric| mean(&metric.values(cell));
            let all_audio = cell.runs.iter().all(|run| {
                run.bound
                    .is_some_and(|bound| bound.audio.adus == bound.audio.adus_offered)
            });
            let below = |figure: Option<f64>, wanted| figure.filter(|&found| found < wanted);
            let audio = below(figure(&metric::AUDIO).filter(|_| all_audio), AUDIO_WANTED);
            let frames = below(figure(&metric::FRAMES_OF_BOUND), FRAMES_WANTED);
            let exact = |run: &RunSummary| {
                run.bound
                    .is_some_and(|bound| bound.audio.exact && bound.video.exact)
            };
            (audio.is_some() || frames.is_some()).then(|| Short {
                axes: &cell.axes,
                audio,
                frames,
                exact: cell.runs.iter().all(exact),
            })
        })
        .collect()
}

/// Cells of bestby's queue that have a bound.
pub fn bounded(scenario: &ScenarioSummary) -> usize {
    let has = |cell: &&CellSummary| cell.runs.iter().any(|run| run.bound.is_some());
    own_cells(scenario).filter(has).count()
}

/// The largest figures among the cells of bestby's queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Worst<'a> {
    /// The largest mean of a cell.
    pub(super) mean: f64,
    /// That cell.
    pub(super) axes: &'a [Coordinate],
    /// The largest figure of a single run of any cell.
    pub(super) run: f64,
}

/// The largest `metric`; `None` where no run has it.
pub(super) fn worst<'a>(scenario: &'a ScenarioSummary, metric: &Metric) -> Option<Worst<'a>> {
    own_cells(scenario)
        .filter_map(|cell| {
            let runs = metric.values(cell);
            Some(Worst {
                mean: mean(&runs)?,
                axes: &cell.axes,
                run: runs.iter().copied().fold(f64::MIN, f64::max),
            })
        })
        // The first of equals.
        .reduce(|a, b| Worst {
            run: a.run.max(b.run),
            ..if b.mean > a.mean { b } else { a }
        })
}

fn own_cells(scenario: &ScenarioSummary) -> impl Iterator<Item = &CellSummary> {
    let ours = ours(scenario);
    scenario
        .cells
        .iter()
        .filter(move |cell| Some(cell.queue.as_str()) == ours)
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
    use crate::{
        bound::{Bound, ClassBound, Link},
        report::html::tests::{cell, scenario},
    };

    const OURS_AND_FQ: [&str; 2] = [OURS, "fq"];

    #[test]
    fn every_peer_counts_and_chance_does_not() {
        let scenario = scenario(
            &["load"],
            vec![
                cell(&[("load", "1")], OURS, &[90, 92, 94]),
                cell(&[("load", "1")], "pfifo 32", &[10, 12, 14]),
                cell(&[("load", "1")], "fq", &[60, 62, 64]),
                cell(&[("load", "2")], OURS, &[50, 60, 70]),
                cell(&[("load", "2")], "pfifo 32", &[56, 62, 66]),
                cell(&[("load", "4")], OURS, &[20, 22, 24]),
                cell(&[("load", "4")], "fq", &[40, 42, 44]),
                cell(&[("load", "4")], "bestby tc", &[10, 10, 10]),
            ],
        );
        let found = compare(&scenario);
        let told: Vec<_> = found
            .iter()
            .map(|c| (c.axes[0].value.as_str(), c.peer, c.verdict()))
            .collect();
        assert_eq!(
            told,
            [
                ("1", "pfifo 32", Verdict::Leads),
                ("1", "fq", Verdict::Leads),
                ("2", "pfifo 32", Verdict::Equal),
                ("4", "fq", Verdict::Behind),
                ("4", "bestby tc", Verdict::Leads),
            ]
        );
        assert_eq!(found[3].video, Some([22.0, 42.0]));
        assert!((found[3].difference + 20.0).abs() < 1e-9);
        // By chance, yet the other's mean is better.
        assert!(found[2].other_is_better() && found[2].doubt() == "may be chance");
        assert_eq!(found[3].doubt(), "");
        assert_eq!(
            verdicts(&found),
            [Verdict::Leads, Verdict::Equal, Verdict::Behind]
        );
    }

    /// Two cells with audio: so many of 1000 packets.
    fn with_audio(audio: [u64; 2], on_time: [u64; 2]) -> ScenarioSummary {
        let mut cells: Vec<CellSummary> = OURS_AND_FQ
            .iter()
            .zip(on_time)
            .map(|(queue, on_time)| cell(&[], queue, &[on_time]))
            .collect();
        for (cell, audio) in cells.iter_mut().zip(audio) {
            cell.runs[0].measures.audio = [1000, audio];
        }
        scenario(&[], cells)
    }

    #[test]
    fn audio_decides_unless_it_is_equal() {
        for (audio, on_time, verdict) in [
            ([990, 988], [10, 90], Verdict::Leads),
            ([990, 989], [10, 90], Verdict::Behind),
            ([988, 990], [90, 10], Verdict::Behind),
            ([989, 990], [90, 10], Verdict::Leads),
            ([989, 990], [90, 90], Verdict::Equal),
        ] {
            let scenario = with_audio(audio, on_time);
            let found = compare(&scenario);
            assert_eq!(found[0].verdict(), verdict, "{audio:?} {on_time:?}");
            assert!(found[0].doubt().contains("too few runs"));
        }
    }

    #[test]
    fn without_variation_the_difference_is_exact() {
        let scenario = scenario(
            &[],
            vec![cell(&[], OURS, &[90, 90]), cell(&[], "fq", &[92, 92])],
        );
        let found = compare(&scenario);
        assert_eq!(
            (found[0].verdict(), found[0].half_width),
            (Verdict::Behind, None)
        );
    }

    #[test]
    fn who_is_told_nothing_stands_for_all_errors() {
        let scenario = scenario(
            &["rtt_error"],
            vec![
                cell(&[("rtt_error", "0.5")], OURS, &[50]),
                cell(&[("rtt_error", "0")], "fq", &[40]),
            ],
        );
        let found = compare(&scenario);
        assert_eq!((found.len(), found[0].verdict()), (1, Verdict::Leads));
    }

    #[test]
    fn without_bestby_or_peers_there_is_nothing_to_compare() {
        let alone = scenario(&[], vec![cell(&[], "bestby tc", &[50])]);
        assert_eq!(ours(&alone), Some("bestby tc"));
        assert!(compare(&alone).is_empty());
        let peer = scenario(&[], vec![cell(&[], "fq", &[50])]);
        assert_eq!(ours(&peer), None);
        assert!(compare(&peer).is_empty());
        let limited = ["bestby qdisc fifo limit 5", "bestby qdisc triage limit 5"];
        let limited = scenario(&[], limited.map(|queue| cell(&[], queue, &[50])).into());
        assert_eq!(ours(&limited), Some("bestby qdisc triage limit 5"));
    }

    #[test]
    fn short_of_the_bound_is_only_what_was_possible() {
        let class = |adus_offered, adus| ClassBound {
            adus_offered,
            adus,
            exact: true,
            ..ClassBound::default()
        };
        let bounded = |audio_possible, audio, on_time| {
            let mut scenario = with_audio([audio, 0], [on_time, 0]);
            scenario.cells[0].runs[0].bound = Some(Bound {
                link: Link::of_path(253_000, 40_000_000),
                audio: class(1000, audio_possible),
                video: class(50, 25),
                data: ClassBound::default(),
            });
            scenario
        };
        let found = |scenario: &ScenarioSummary| {
            let found = short(scenario);
            assert!(found.iter().all(|short| short.exact));
            found.first().map(|short| (short.audio, short.frames))
        };
        // 24 of 25 frames are 96 %, 23 are 92 %; the other queue does not matter.
        assert_eq!(found(&bounded(1000, 999, 48)), None);
        assert_eq!(found(&bounded(1000, 998, 48)), Some((Some(99.8), None)));
        assert_eq!(found(&bounded(999, 998, 48)), None);
        assert_eq!(found(&bounded(999, 998, 46)), Some((None, Some(92.0))));
        // Without a bound nothing can be said.
        assert_eq!(found(&with_audio([0, 0], [0, 0])), None);
    }
}
