//! A run beside what no queue can beat.

use serde::{Deserialize, Serialize};

use super::Measures;
use crate::{
    bound::{self, Link},
    traffic::Schedule,
};

/// The clairvoyant bound of a run's schedule on its link, and what the queue gave up
/// without need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Audio packets that some schedule could have on time, of those that were judged.
    pub audio: u64,
    /// Video frames that could be complete on time when as much audio as possible is.
    pub frames: u64,
    /// Data objects that could be when both are.
    pub objects: u64,
    /// Whether all three are exact optima of the model, and not looser bounds.
    pub exact: bool,
    /// ADUs that were given up although there was room, see [`bound::FalseDrops`];
    /// counted over the whole run, the discarded part included.
    pub false_drops: Option<u64>,
    /// ADUs offered in the whole run.
    pub offered: u64,
}

impl Limit {
    /// Of the ADUs that begin after the first `discard_first` ns. `false_drops` is left
    /// open.
    pub fn of(schedule: &Schedule, link: &Link, discard_first: u64) -> Self {
        let mut late = std::collections::HashSet::new();
        let mut seen = std::collections::HashSet::new();
        for packet in &schedule.packets {
            if seen.insert(packet.adu) && packet.at >= discard_first {
                late.insert(packet.adu);
            }
        }
        let judged = Schedule {
            packets: schedule
                .packets
                .iter()
                .filter(|packet| late.contains(&packet.adu))
                .copied()
                .collect(),
            duration: schedule.duration,
        };
        let bound = bound::on(&judged, *link);
        Self {
            audio: bound.audio.adus,
            frames: bound.video.adus,
            objects: bound.data.adus,
            exact: bound.audio.exact && bound.video.exact && bound.data.exact,
            false_drops: None,
            offered: seen.len() as u64,
        }
    }

    /// Counts the false drops: `on_time[i]` says whether packet `i` of the schedule
    /// arrived by its deadline.
    pub fn count_false_drops(&mut self, schedule: &Schedule, on_time: &[bool], link: &Link) {
        self.false_drops = Some(bound::false_drops(schedule, on_time, link).total());
    }
}

impl Measures {
    /// Audio on time in percent of the bound; absent without one, or where nothing could be.
    pub fn audio_of_limit(&self) -> Option<f64> {
        part(self.audio[1], self.limit?.audio)
    }

    /// Complete frames on time in percent of the bound. More than 100 is possible for a
    /// queue that pays for frames with audio, which the bound does not.
    pub fn frames_of_limit(&self) -> Option<f64> {
        part(self.frames[1], self.limit?.frames)
    }

    /// Complete objects on time in percent of the bound.
    pub fn objects_of_limit(&self) -> Option<f64> {
        part(self.objects[1], self.limit?.objects)
    }

    /// False drops in percent of the ADUs offered.
    pub fn false_drop_percent(&self) -> Option<f64> {
        let limit = self.limit?;
        part(limit.false_drops?, limit.offered)
    }
}

fn part(count: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| count as f64 * 100.0 / of as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sys::{MILLI, SECOND},
        traffic::{Class, Packet},
    };

    /// Frames of 1000 bytes at these times (ms), 100 ms of lifetime.
    fn frames(times: &[u64]) -> Schedule {
        Schedule {
            packets: (0..)
                .zip(times)
                .map(|(adu, at)| Packet {
                    at: at * MILLI,
                    lifetime: 100 * MILLI,
                    class: Class::Video,
                    stream: 0,
                    adu,
                    last: true,
                    wire_bytes: 1000,
                })
                .collect(),
            duration: SECOND,
        }
    }

    #[test]
    fn a_measured_run_is_a_part_of_what_was_possible() {
        // 1000 bytes take 80 ms: of three at once one ends in 100 ms, a second may begin.
        let link = Link::of_path(100_000, 0);
        let schedule = frames(&[0, 0, 0, 500]);
        let mut limit = Limit::of(&schedule, &link, 0);
        assert_eq!((limit.frames, limit.audio, limit.offered), (3, 0, 4));
        limit.count_false_drops(&schedule, &[true, false, false, true], &link);
        assert_eq!(limit.false_drops, Some(1));
        let measures = Measures {
            frames: [4, 2],
            limit: Some(limit),
            ..Measures::default()
        };
        let of_limit = measures.frames_of_limit().expect("a bound");
        assert!((of_limit - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(measures.false_drop_percent(), Some(25.0));
        assert_eq!(measures.audio_of_limit(), None, "there was no audio");
        assert_eq!(Measures::default().frames_of_limit(), None);
    }

    #[test]
    fn what_is_not_judged_is_not_in_the_bound() {
        let link = Link::of_path(100_000, 0);
        let limit = Limit::of(&frames(&[0, 300, 600]), &link, 300 * MILLI);
        assert_eq!((limit.frames, limit.offered), (2, 3));
    }
}
