//! What knowing the traffic would bring, without knowing the future.
//!
//! The clairvoyant bound knows which of the frames to come are small; a scheduler may know at most
//! how likely that is. [`choice`] decides on every frame of a conference when it comes, for good,
//! and so that the mean number of frames that are complete on time beside all audio is largest: the
//! optimal policy of a Markov decision process whose state is the clock of [`super::dp`]. Of
//! sizes it knows those that came, and of what is to come what it is told ([`Told`]). What arrives
//! if only these frames are offered needs no knowledge of the future, but more of the traffic
//! than a queue has. It is no bound: who decides later may do better, as triage at times does.

use std::{collections::HashSet, ops::Range};

use super::{
    Link,
    dp::Limit,
    jobs::{Job, Jobs, due},
};
use crate::{
    sys::MILLI,
    traffic::{Class, MIN_WIRE, Packet, Schedule, conference},
};

/// Grain of the clock, ns. Between two grains values are interpolated.
const STEP: i64 = MILLI as i64 / 2;
/// Sizes are told apart by so many bytes.
const GRAIN: usize = 16;

/// What the policy is told of the frames to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// How sizes are distributed, over a whole cycle of the conference.
    Sizes,
    /// How they are distributed while something moves and while nothing does, which of the two
    /// it is now, and how often that changes; not when.
    Motion,
    /// How they are distributed at every time: when motion begins and ends.
    Phases,
}

/// How sizes are distributed now. With [`Told::Motion`] 0 is motion and 1 a still picture;
/// otherwise there is one of them, which may be another for every frame.
type Regime = usize;

impl Told {
    const fn regimes(self) -> Regime {
        match self {
            Self::Motion => 2,
            Self::Sizes | Self::Phases => 1,
        }
    }

    /// The regime of a frame that is created at `at` ns.
    fn regime(self, at: i64) -> Regime {
        match self {
            Self::Motion => Regime::from(conference::still(at as u64)),
            Self::Sizes | Self::Phases => 0,
        }
    }

    /// How likely a frame of a regime that is created at `at` ns has bytes within `range`.
    fn likely(self, regime: Regime, at: i64, range: &Range<u32>) -> f64 {
        let at = match self {
            Self::Sizes => None,
            Self::Motion if regime == 0 => Some(0),
            Self::Motion => Some(conference::STILL.start),
            Self::Phases => Some(at as u64),
        };
        conference::likely(at, range)
    }

    /// How likely the next frame is of regime `next` if this one is of `regime`: as often as it
    /// changes in the conference.
    fn turns(self, regime: Regime, next: Regime) -> f64 {
        if self.regimes() == 1 {
            return 1.0;
        }
        let change = 1.0 / conference::frames_in_a_row(regime == 1) as f64;
        if next == regime { 1.0 - change } else { change }
    }
}

/// The ADUs that the policy lets in, with all audio; `None` where not all audio can be on time or
/// one clock does not do. The schedule is a conference's.
pub(super) fn choice(schedule: &Schedule, link: &Link, told: Told) -> Option<HashSet<u32>> {
    let audio = Jobs::adus(schedule, Class::Audio, link);
    let (ordered, agreeable) = audio.agreeable();
    if !agreeable || Limit::new(&[], &ordered).rejected(&ordered) > 0 {
        return None;
    }
    let frames = Jobs::adus(schedule, Class::Video, link);
    let first = schedule.packets.iter().find(|p| p.class == Class::Video)?;
    let policy = Policy::new(first, &frames, &audio, link, told)?;
    let chosen = policy.play(&audio, &frames)?;
    let audio = audio.0.iter().map(|job| job.adu);
    Some(audio.chain(chosen).collect())
}

/// From where the clock begins for each frame, and where it may get to.
struct Windows {
    start: Vec<i64>,
    end: Vec<i64>,
}

impl Windows {
    fn new(audio: &Jobs, frames: &Jobs) -> Option<Self> {
        let (ordered, agreeable) = frames.agreeable();
        let limit = Limit::new(std::slice::from_ref(audio), &ordered);
        let windows = (0..frames.len()).map(|frame| limit.window(frame));
        let (start, end) = windows.collect::<Option<Vec<_>>>()?.into_iter().unzip();
        agreeable.then_some(Self { start, end })
    }
}

struct Policy {
    told: Told,
    start: Vec<i64>,
    /// Mean number of frames on time from each one on, by its regime, if the clock is so many
    /// grains behind its start; behind the last frame: none.
    values: Vec<Vec<Vec<f64>>>,
}

impl Policy {
    /// `first`: a packet of a frame, for what all frames have in common.
    fn new(first: &Packet, frames: &Jobs, audio: &Jobs, link: &Link, told: Told) -> Option<Self> {
        // A frame of a size, of which the clock knows no more than this.
        let of = |bytes: u32, release: i64| {
            let last = Packet {
                at: release as u64,
                wire_bytes: conference::last_packet(bytes),
                ..*first
            };
            Job {
                release,
                due: due(&last, link),
                work: link.transmission(u64::from(bytes)) as i64,
                adu: 0,
            }
        };
        let longest = link.rate * first.lifetime / 8_000_000_000 + u64::from(conference::VIDEO_MAX);
        let mut sizes = Vec::new();
        for bytes in (MIN_WIRE..longest as u32).step_by(GRAIN) {
            let middle = bytes + GRAIN as u32 / 2;
            let all = frames.0.iter().map(|frame| of(middle, frame.release));
            let windows = Windows::new(audio, &Jobs(all.collect()))?;
            sizes.push((bytes..bytes + GRAIN as u32, of(middle, 0).work, windows));
        }
        let start = sizes.first()?.2.start.clone();
        let rooms = sizes
            .iter()
            .flat_map(|(_, _, windows)| windows.end.iter().zip(&start));
        let most = rooms.map(|(end, start)| end - start).max()?.max(0);
        let nothing = vec![vec![0.0; (most / STEP) as usize + 2]; told.regimes()];
        let mut policy = Self {
            told,
            values: vec![nothing; frames.len() + 1],
            start,
        };
        for (slot, frame) in frames.0.iter().enumerate().rev() {
            for regime in 0..told.regimes() {
                // What cannot be seen in the mean is not computed: most sizes of a still picture.
                let likely = sizes.iter().filter_map(|(range, work, windows)| {
                    let likely = told.likely(regime, frame.release, range);
                    (likely > 1e-9).then_some((likely, *work, windows.end[slot]))
                });
                let likely: Vec<(f64, i64, i64)> = likely.collect();
                for grain in 0..policy.values[slot][regime].len() {
                    let at = policy.start[slot] + grain as i64 * STEP;
                    let left = policy.after(slot, regime, at);
                    let fitting = likely.iter().filter(|(_, work, end)| at + work <= *end);
                    let gains = fitting.map(|(likely, work, _)| {
                        let gain = 1.0 + policy.after(slot, regime, at + work) - left;
                        likely * gain.max(0.0)
                    });
                    policy.values[slot][regime][grain] = left + gains.sum::<f64>();
                }
            }
        }
        Some(policy)
    }

    /// Of the frames from `slot` on, which is of `regime`, when the clock is at `clock`.
    fn value(&self, slot: usize, regime: Regime, clock: i64) -> f64 {
        let Some(start) = self.start.get(slot) else {
            return 0.0;
        };
        let behind = (clock - start).max(0);
        let values = &self.values[slot][regime];
        let grain = ((behind / STEP) as usize).min(values.len() - 2);
        let part = ((behind - grain as i64 * STEP) as f64 / STEP as f64).min(1.0);
        values[grain] + (values[grain + 1] - values[grain]) * part
    }

    /// Of the frames behind `slot`, which is of `regime`, when the clock is at `clock`.
    fn after(&self, slot: usize, regime: Regime, clock: i64) -> f64 {
        let turns = |next| self.told.turns(regime, next) * self.value(slot + 1, next, clock);
        (0..self.told.regimes()).map(turns).sum()
    }

    /// The frames that it lets in.
    fn play(&self, audio: &Jobs, frames: &Jobs) -> Option<HashSet<u32>> {
        let windows = Windows::new(audio, frames)?;
        let mut clock = i64::MIN;
        let mut chosen = HashSet::new();
        for (slot, job) in frames.0.iter().enumerate() {
            let left = clock.max(windows.start[slot]);
            let taken = left + job.work;
            let regime = self.told.regime(job.release);
            let gain = 1.0 + self.after(slot, regime, taken) - self.after(slot, regime, left);
            if taken <= windows.end[slot] && gain >= 0.0 {
                chosen.insert(job.adu);
                clock = taken;
            }
        }
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::demand::feasible;

    /// The number of frames that the policy expects, and how many it gets of each seed.
    fn promised_and_played(kbit: u64, seeds: u64, told: Told) -> (f64, Vec<f64>) {
        let link = Link::of_path(kbit * 1000, 40 * MILLI);
        let mut promised = None;
        let played = (1..=seeds).map(|seed| {
            let schedule = conference::schedule(20, seed);
            let audio = Jobs::adus(&schedule, Class::Audio, &link);
            let frames = Jobs::adus(&schedule, Class::Video, &link);
            let policy = promised.get_or_insert_with(|| {
                Policy::new(&schedule.packets[1], &frames, &audio, &link, told).expect("a policy")
            });
            let chosen = policy.play(&audio, &frames).expect("played");
            let mut jobs = audio.0;
            jobs.extend(frames.0.iter().filter(|job| chosen.contains(&job.adu)));
            jobs.sort_by_key(|job| job.release);
            assert!(feasible(&jobs), "seed {seed}");
            chosen.len() as f64
        });
        let played: Vec<f64> = played.collect();
        let policy = promised.expect("a policy");
        (policy.value(0, 0, i64::MIN / 4), played)
    }

    #[test]
    fn policy_gets_what_it_expects_and_breaks_no_deadline() {
        for kbit in [94, 187] {
            let (promised, played) = promised_and_played(kbit, 60, Told::Phases);
            let mean = played.iter().sum::<f64>() / played.len() as f64;
            let variance = played.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 59.0;
            let error = (variance / 60.0).sqrt();
            assert!(
                (mean - promised).abs() < 4.0 * error + 0.02 * promised,
                "{kbit} kbit/s: {promised:.2} promised, {mean:.2} ± {error:.2} played"
            );
        }
    }

    #[test]
    fn who_is_told_more_gets_more() {
        let frames = |told| promised_and_played(94, 60, told).1.iter().sum::<f64>();
        let [sizes, motion, phases] = [Told::Sizes, Told::Motion, Told::Phases].map(frames);
        assert!(
            sizes < motion && motion < phases,
            "{sizes} {motion} {phases}"
        );
    }

    #[test]
    fn nothing_is_chosen_where_audio_does_not_fit() {
        let schedule = conference::schedule(20, 1);
        assert_eq!(
            choice(&schedule, &Link::of_path(60_000, 40 * MILLI), Told::Sizes),
            None
        );
    }
}
