//! What knowing the traffic would bring, without knowing the future.
//!
//! The clairvoyant bound knows which of the frames to come are small; a scheduler may know at most
//! how likely that is. [`choice`] decides on every frame of a conference when it comes, for good,
//! and so that the mean number of frames that are complete on time beside all audio is largest: the
//! optimal policy of a Markov decision process whose state is the clock of [`super::dp`]. Of
//! sizes it knows those that came, and of what is to come what it is told ([`Told`]). What arrives
//! if only these frames are offered needs no knowledge of the future, but more of the traffic
//! than a queue has. It is no bound: who decides later may do better, as triage at times does.

use std::collections::HashSet;

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
    /// How they are distributed at every time: when motion begins and ends.
    Phases,
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
    start: Vec<i64>,
    /// Mean number of frames on time from each one on, if the clock is so many grains behind
    /// its start; behind the last frame: none.
    values: Vec<Vec<f64>>,
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
        let mut policy = Self {
            values: vec![vec![0.0; (most / STEP) as usize + 2]; frames.len() + 1],
            start,
        };
        for (slot, frame) in frames.0.iter().enumerate().rev() {
            let at = (told == Told::Phases).then_some(frame.release as u64);
            let likely = |range| conference::likely(at, range);
            let likely: Vec<f64> = sizes.iter().map(|(range, ..)| likely(range)).collect();
            for grain in 0..policy.values[slot].len() {
                let at = policy.start[slot] + grain as i64 * STEP;
                let left = policy.value(slot + 1, at);
                let mean = sizes
                    .iter()
                    .zip(&likely)
                    .map(|((_, work, windows), likely)| {
                        let taken = at + work;
                        let fits = taken <= windows.end[slot];
                        let gain = if fits {
                            1.0 + policy.value(slot + 1, taken) - left
                        } else {
                            0.0
                        };
                        likely * gain.max(0.0)
                    });
                policy.values[slot][grain] = left + mean.sum::<f64>();
            }
        }
        Some(policy)
    }

    /// Of the frames from `slot` on, when the clock is at `clock`.
    fn value(&self, slot: usize, clock: i64) -> f64 {
        let Some(start) = self.start.get(slot) else {
            return 0.0;
        };
        let behind = (clock - start).max(0);
        let values = &self.values[slot];
        let grain = ((behind / STEP) as usize).min(values.len() - 2);
        let part = ((behind - grain as i64 * STEP) as f64 / STEP as f64).min(1.0);
        values[grain] + (values[grain + 1] - values[grain]) * part
    }

    /// The frames that it lets in.
    fn play(&self, audio: &Jobs, frames: &Jobs) -> Option<HashSet<u32>> {
        let windows = Windows::new(audio, frames)?;
        let mut clock = i64::MIN;
        let mut chosen = HashSet::new();
        for (slot, job) in frames.0.iter().enumerate() {
            let left = clock.max(windows.start[slot]);
            let taken = left + job.work;
            let gain = 1.0 + self.value(slot + 1, taken) - self.value(slot + 1, left);
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
    fn promised_and_played(kbit: u64, seeds: u64) -> (f64, Vec<f64>) {
        let link = Link::of_path(kbit * 1000, 40 * MILLI);
        let mut promised = None;
        let played = (1..=seeds).map(|seed| {
            let schedule = conference::schedule(20, seed);
            let audio = Jobs::adus(&schedule, Class::Audio, &link);
            let frames = Jobs::adus(&schedule, Class::Video, &link);
            let policy = promised.get_or_insert_with(|| {
                Policy::new(&schedule.packets[1], &frames, &audio, &link, Told::Phases)
                    .expect("a policy")
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
        (policy.value(0, i64::MIN / 4), played)
    }

    #[test]
    fn policy_gets_what_it_expects_and_breaks_no_deadline() {
        for kbit in [94, 187] {
            let (promised, played) = promised_and_played(kbit, 60);
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
    fn nothing_is_chosen_where_audio_does_not_fit() {
        let schedule = conference::schedule(20, 1);
        assert_eq!(
            choice(&schedule, &Link::of_path(60_000, 40 * MILLI), Told::Sizes),
            None
        );
    }
}
