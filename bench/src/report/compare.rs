//! Where bestby leads and where another queue is better: one rule for the page and for the
//! terminal (`docs/lab.md` has it in words).
//!
//! Audio is what a call is worth: more of it on time is better, whatever becomes of the
//! video. So audio decides where it differs by more than chance (p < 5 %) and by more than
//! [`EQUAL_AUDIO`]; else complete frames do (of traffic without video complete ADUs), by a
//! test of their own. With one run nothing can be tested: means decide, and it is said.
//!
//! Repetitions have the same packets at the same times for every queue, so tests are of
//! pairs: of the repetitions that both have, where a series is not complete.
//!
//! Verdicts are of single tests, because correcting them would hide what is against bestby:
//! a lead must be one over every other queue, while one queue that is better is enough to be
//! behind. With how many tests there are, and which differences are certain among all of
//! them (Holm), every listing tells how much of it chance can do.

use super::metric::{self, Metric};
use crate::{
    measure::statistics::{self, Difference, mean},
    scenario::cell::Coordinate,
    series::summary::{CellSummary, ScenarioSummary},
};

/// The queue that speaks for bestby where it was run: the default method in the default mode.
pub const OURS: &str = "bestby qdisc triage";

/// Points of audio on time up to which two queues have equally much: what nobody hears.
pub const EQUAL_AUDIO: f64 = 0.1;

/// Axes that change what bestby is told and nothing else: other queues are told nothing
/// and run once, with the value 0.
const TOLD: [&str; 2] = ["rtt_error", "rate_error"];

/// bestby's queue and another in one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Head of the figure's column.
    pub label: &'static str,
    /// Means of the runs, %: bestby's, the other's.
    pub means: [f64; 2],
    /// Of bestby − other, points; absent where there are too few runs to say.
    pub test: Option<Difference>,
    /// The test's p among all tests of the scenario (Holm).
    pub holm: Option<f64>,
}

impl Compared {
    /// Of the runs that both queues have; `None` where no run of both has such a figure.
    fn of(metric: &Metric, own: &CellSummary, other: &CellSummary) -> Option<Self> {
        let pairs = metric.pairs(own, other);
        let mean = |which: usize| mean(&pairs.iter().map(|pair| pair[which]).collect::<Vec<_>>());
        Some(Self {
            label: metric.label,
            means: [mean(0)?, mean(1)?],
            test: metric.test(own, &pairs),
            holm: None,
        })
    }

    /// bestby − other, points.
    pub fn difference(&self) -> f64 {
        self.means[0] - self.means[1]
    }

    /// How sure the difference is.
    pub fn certainty(&self) -> Certainty {
        match (self.test, self.holm) {
            (None, _) => Certainty::Untested,
            (Some(test), _) if !test.differ() => Certainty::Chance,
            (_, Some(p)) if statistics::is_significant(p) => Certainty::AmongAll,
            _ => Certainty::Alone,
        }
    }
}

/// How sure a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// Its test gives p ≥ 5 %.
    Chance,
    /// Too few runs for a test.
    Untested,
    /// p < 5 %: one of many such tests may still be chance.
    Alone,
    /// p < 5 % among all tests of the scenario (Holm).
    AmongAll,
}

impl Certainty {
    /// What is to be said of it; nothing where it is certain.
    pub fn doubt(self) -> &'static str {
        match self {
            Self::Chance => "may be chance",
            Self::Untested => "too few runs to tell from chance",
            Self::Alone => "may be chance among so many tests",
            Self::AmongAll => "",
        }
    }
}

/// bestby's queue beside one other in one combination of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The combination of the swept axes.
    pub axes: &'a [Coordinate],
    /// The other queue.
    pub peer: &'a str,
    /// Audio on time; absent without audio.
    pub audio: Option<Compared>,
    /// Complete frames on time; of traffic without video complete ADUs.
    pub frames: Compared,
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
    /// The figure that decides.
    pub fn decisive(&self) -> &Compared {
        let differs = |audio: &&Compared| {
            audio.difference().abs() > EQUAL_AUDIO && audio.certainty() != Certainty::Chance
        };
        self.audio.as_ref().filter(differs).unwrap_or(&self.frames)
    }

    /// What this comes to.
    pub fn verdict(&self) -> Verdict {
        let decisive = self.decisive();
        let difference = decisive.difference();
        if difference == 0.0 || decisive.certainty() == Certainty::Chance {
            Verdict::Equal
        } else if difference > 0.0 {
            Verdict::Leads
        } else {
            Verdict::Behind
        }
    }

    /// What to say of the difference where it is not certain; else empty.
    pub fn doubt(&self) -> String {
        let frames = self.decisive().certainty().doubt();
        match (self.has_less_audio_by_chance(), frames) {
            (true, "") => "its audio may be chance".into(),
            (true, doubt) => format!("its audio may be chance; frames: {doubt}"),
            (false, doubt) => doubt.into(),
        }
    }

    /// Whether the other's mean is better in what decides, or in audio, be it by chance.
    pub fn other_is_better(&self) -> bool {
        self.decisive().difference() < 0.0 || self.has_less_audio_by_chance()
    }

    fn has_less_audio_by_chance(&self) -> bool {
        self.audio.as_ref().is_some_and(|audio| {
            audio.difference() < -EQUAL_AUDIO && audio.certainty() == Certainty::Chance
        })
    }

    /// How sure it is that the other is better; `None` where it is not.
    pub fn behind(&self) -> Option<Certainty> {
        (self.verdict() == Verdict::Behind).then(|| self.decisive().certainty())
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
    let mut found: Vec<Comparison<'_>> = scenario
        .cells
        .iter()
        .filter(|cell| cell.queue == ours)
        .flat_map(|cell| {
            peers().filter_map(|peer| beside(cell, peer, find(scenario, &cell.axes, peer)?))
        })
        .collect();
    adjust(&mut found);
    found
}

/// Fills in what each test's p is among all of them.
fn adjust(found: &mut [Comparison<'_>]) {
    let p: Vec<f64> = tests(found).map(|test| test.p).collect();
    let mut adjusted = statistics::holm(&p).into_iter();
    let compared = found
        .iter_mut()
        .flat_map(|c| c.audio.iter_mut().chain([&mut c.frames]));
    for compared in compared.filter(|compared| compared.test.is_some()) {
        compared.holm = adjusted.next();
    }
}

/// All tests that were made.
fn tests(found: &[Comparison<'_>]) -> impl Iterator<Item = Difference> {
    found
        .iter()
        .flat_map(|c| c.audio.iter().chain([&c.frames]))
        .filter_map(|compared| compared.test)
}

/// In how many cells another queue is better, and how sure that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// Combinations of the axes in which there is another queue.
    pub cells: usize,
    /// Those in which another queue's mean is better.
    pub better: usize,
    /// Those of `better` in which it is by p < 5 %, in the test of that queue.
    pub alone: usize,
    /// Those in which it is also among all tests.
    pub among_all: usize,
    /// Tests that were made.
    pub tests: usize,
}

impl Ahead {
    /// Of one scenario's comparisons.
    pub fn of(found: &[Comparison<'_>]) -> Self {
        let cells = || found.chunk_by(|a, b| a.axes == b.axes);
        let where_any = |is: fn(&Comparison<'_>) -> bool| {
            let any = |peers: &&[Comparison<'_>]| peers.iter().any(is);
            cells().filter(any).count()
        };
        Self {
            cells: cells().count(),
            better: where_any(|c| c.other_is_better()),
            alone: where_any(|c| c.behind() >= Some(Certainty::Alone)),
            among_all: where_any(|c| c.behind() == Some(Certainty::AmongAll)),
            tests: tests(found).count(),
        }
    }

    /// How many of the tests at most would come out against bestby if no two queues
    /// differed.
    pub fn by_chance(&self) -> f64 {
        self.tests as f64 * statistics::SIGNIFICANCE / 2.0
    }
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
    Some(Comparison {
        axes: &own.axes,
        peer,
        audio: Compared::of(&metric::AUDIO, own, other),
        frames: Compared::of(&metric::FRAMES, own, other)
            .or_else(|| Compared::of(&metric::ADUS, own, other))?,
    })
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
pub(super) mod tests {
    use super::*;
    use crate::report::html::tests::{cell, scenario};

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
        assert_eq!(found[3].frames.means, [22.0, 42.0]);
        assert_eq!(found[3].frames.difference(), -20.0);
        // By chance, yet the other's mean is better.
        assert!(found[2].other_is_better() && found[2].doubt() == "may be chance");
        assert_eq!(found[3].doubt(), "");
        assert_eq!(
            verdicts(&found),
            [Verdict::Leads, Verdict::Equal, Verdict::Behind]
        );
    }

    /// Two cells with these runs: audio packets of 1000, ADUs of 100.
    pub(in crate::report) fn with_audio(ours: &[[u64; 2]], other: &[[u64; 2]]) -> ScenarioSummary {
        let cells = [(OURS, ours), ("fq", other)].map(|(queue, runs)| {
            let on_time: Vec<u64> = runs.iter().map(|run| run[1]).collect();
            let mut cell = cell(&[], queue, &on_time);
            for (summary, run) in cell.runs.iter_mut().zip(runs) {
                summary.measures.audio = [1000, run[0]];
            }
            cell
        });
        scenario(&[], cells.into())
    }

    #[test]
    fn with_one_run_the_means_decide() {
        for (audio, on_time, verdict) in [
            ([990, 988], [10, 90], Verdict::Leads),
            ([990, 989], [10, 90], Verdict::Behind),
            ([988, 990], [90, 10], Verdict::Behind),
            ([989, 990], [90, 10], Verdict::Leads),
            ([989, 990], [90, 90], Verdict::Equal),
        ] {
            let scenario = with_audio(&[[audio[0], on_time[0]]], &[[audio[1], on_time[1]]]);
            let found = compare(&scenario);
            assert_eq!(found[0].verdict(), verdict, "{audio:?} {on_time:?}");
            assert!(found[0].doubt().contains("too few runs"));
        }
    }

    #[test]
    fn audio_that_differs_by_chance_leaves_it_to_the_frames() {
        let of =
            |audio: [u64; 3], on_time: [u64; 3]| [0, 1, 2].map(|run| [audio[run], on_time[run]]);
        // Audio that differs by 2 points, now this way, now that; by 2 points every time.
        let (all, less) = ([1000, 1000, 1000], [980, 981, 979]);
        let (some, other) = ([960, 1000, 980], [1000, 980, 1000]);
        let (many, few) = ([90, 92, 91], [50, 52, 50]);
        for (ours, his, verdict, better) in [
            (of(some, few), of(other, many), Verdict::Behind, true),
            // Named all the same: its mean has more audio.
            (of(some, many), of(other, few), Verdict::Leads, true),
            (of(other, many), of(some, few), Verdict::Leads, false),
            (of(some, many), of(other, many), Verdict::Equal, true),
            (of(all, few), of(less, many), Verdict::Leads, false),
            (of(less, many), of(all, few), Verdict::Behind, true),
        ] {
            let scenario = with_audio(&ours, &his);
            let found = compare(&scenario);
            let told = (found[0].verdict(), found[0].other_is_better());
            assert_eq!(told, (verdict, better), "{ours:?} {his:?}: {found:?}");
        }
        let scenario = with_audio(&of(some, many), &of(other, few));
        assert_eq!(compare(&scenario)[0].doubt(), "its audio may be chance");
        // Nobody hears one packet of 1000.
        let scenario = with_audio(&of([999; 3], many), &of(all, few));
        assert_eq!(compare(&scenario)[0].verdict(), Verdict::Leads);
    }

    #[test]
    fn runs_of_the_same_traffic_are_pairs() {
        // Seeds differ by more than queues do.
        let scenario = |ours: &[u64], other: &[u64]| {
            scenario(&[], vec![cell(&[], OURS, ours), cell(&[], "fq", other)])
        };
        let (ours, other) = ([20, 50, 80], [26, 58, 86]);
        let pairs = scenario(&ours, &other);
        let found = compare(&pairs);
        assert_eq!(found[0].verdict(), Verdict::Behind);
        assert_eq!(found[0].frames.test.unwrap().degrees, 2.0);
        // A run that only one has counts for nothing.
        let uneven = scenario(&ours, &other[..2]);
        let found = compare(&uneven);
        assert_eq!(found[0].frames.means, [35.0, 42.0]);
        assert_eq!(found[0].frames.test.unwrap().degrees, 1.0);
        assert!(compare(&scenario(&ours, &[])).is_empty());
    }

    #[test]
    fn what_is_certain_alone_may_be_chance_among_many() {
        let cells = ["1", "2", "3", "4"].iter().flat_map(|load| {
            let axes = [("load", *load)];
            // p of 3 % in each cell but the last.
            let other: &[u64] = if *load == "4" {
                &[90, 92, 90]
            } else {
                &[46, 52, 46]
            };
            [cell(&axes, OURS, &[40, 42, 40]), cell(&axes, "fq", other)]
        });
        let scenario = scenario(&["load"], cells.collect());
        let found = compare(&scenario);
        assert_eq!(found[0].behind(), Some(Certainty::Alone));
        assert_eq!(found[3].behind(), Some(Certainty::AmongAll));
        let ahead = Ahead::of(&found);
        let wanted = Ahead {
            cells: 4,
            better: 4,
            alone: 4,
            among_all: 1,
            tests: 4,
        };
        assert_eq!(ahead, wanted);
        assert_eq!(ahead.by_chance(), 0.1);
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
}
