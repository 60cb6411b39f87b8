//! Where bestby's queue falls short of what is possible, and its worst figures.

use super::{
    compare::ours,
    metric::{self, Metric},
};
use crate::{
    bound::Tightness,
    measure::statistics::mean,
    scenario::cell::Coordinate,
    series::summary::{CellSummary, RunSummary, ScenarioSummary},
};

/// A cell in which bestby's queue falls short of what is possible.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Short<'a> {
    /// The combination of the swept axes.
    pub(super) axes: &'a [Coordinate],
    /// Audio on time, %, where all of it could be and less than [`AUDIO_WANTED`] is.
    pub(super) audio: Option<f64>,
    /// Frames on time in % of the bound, where less than [`FRAMES_WANTED`].
    pub(super) frames: Option<f64>,
    /// Of the frames' bound in its runs, the least.
    pub(super) bound: Tightness,
}

/// % of the audio that must be on time where the bound has all of it.
pub(super) const AUDIO_WANTED: f64 = 99.9;
/// % of the bound's complete frames that must be on time.
pub(super) const FRAMES_WANTED: f64 = 95.0;

/// What the words of [`Tightness`] mean.
pub(super) const BOUNDS: &str = "Bound: with \"whole packets\" a schedule that knows the future reaches \
    it, with \"interrupts packets\" one that may stop in the middle of a packet, \"loose\" perhaps none.";

/// Where bestby's queue has less than it should.
pub(super) fn short(scenario: &ScenarioSummary) -> Vec<Short<'_>> {
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
            let bound = |run: &RunSummary| match run.bound {
                Some(bound) if bound.audio.exact => bound.video.tightness(),
                _ => Tightness::Loose,
            };
            (audio.is_some() || frames.is_some()).then_some(())?;
            Some(Short {
                axes: &cell.axes,
                audio,
                frames,
                bound: cell.runs.iter().map(bound).min()?,
            })
        })
        .collect()
}

/// Cells of bestby's queue that have a bound.
pub(super) fn bounded(scenario: &ScenarioSummary) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bound::{Bound, ClassBound, Link},
        report::compare::tests::with_audio,
    };

    #[test]
    fn short_of_the_bound_is_only_what_was_possible() {
        let class = |adus_offered, adus| ClassBound {
            adus_offered,
            adus,
            exact: true,
            ..ClassBound::default()
        };
        let bounded = |audio_possible, audio, on_time| {
            let mut scenario = with_audio(&[[audio, on_time]], &[[0, 0]]);
            scenario.cells[0].runs[0].bound = Some(Bound {
                version: 0,
                link: Link::of_path(253_000, 40_000_000),
                audio: class(1000, audio_possible),
                video: class(50, 25),
                data: ClassBound::default(),
            });
            scenario
        };
        let found = |scenario: &ScenarioSummary| {
            let found = short(scenario);
            assert!(
                found
                    .iter()
                    .all(|short| short.bound == Tightness::Interrupted)
            );
            found.first().map(|short| (short.audio, short.frames))
        };
        // 24 of 25 frames are 96 %, 23 are 92 %; the other queue does not matter.
        assert_eq!(found(&bounded(1000, 999, 48)), None);
        assert_eq!(found(&bounded(1000, 998, 48)), Some((Some(99.8), None)));
        assert_eq!(found(&bounded(999, 998, 48)), None);
        assert_eq!(found(&bounded(999, 998, 46)), Some((None, Some(92.0))));
        // Without a bound nothing can be said.
        assert_eq!(found(&with_audio(&[[0, 0]], &[[0, 0]])), None);
    }
}
