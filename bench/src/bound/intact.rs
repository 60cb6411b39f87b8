//! How many frames can be intact: on time, as are all the frames that they refer to.
//!
//! A decoder has no use for a frame that refers to one that is not there. So the largest number of
//! frames on time ([`super::on`]) is out of reach for pictures: it has many small frames, and leaves the
//! key frame that all of them need. Here a choice of frames has with each of them all that it refers to.
//! Audio goes first, as there; where not all of it can be on time it is left out, which loosens the bound.
//!
//! Jobs, windows and clocks are those of [`super::dp`]. Beside the number of frames one more thing has
//! to be known: which of the frames that later ones refer to are chosen. Those are one in a stream of P
//! frames, two with B frames between, and one for each temporal level below the highest.

use std::collections::{HashMap, HashSet};

use super::{
    Link,
    classes::Before,
    dp::{self, Need},
    jobs::Jobs,
};
use crate::traffic::{Class, Schedule};

/// One video frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its number in the schedule.
    pub adu: u32,
    /// Frames that it refers to; all of them are sent before it.
    pub needs: Vec<u32>,
    /// Whether its picture counts. One that does not may be what others need.
    pub counts: bool,
}

/// The most of `frames` that count and can be intact. `None` if they refer to more frames at one time
/// than [`dp::OPEN`].
pub fn on(schedule: &Schedule, link: Link, frames: &[Frame]) -> Option<u64> {
    most(schedule, &link, frames).map(|(most, _)| most as u64)
}

/// The same, and whether a choice of frames reaches it whose packets may be interrupted.
fn most(schedule: &Schedule, link: &Link, frames: &[Frame]) -> Option<(usize, bool)> {
    let mut before = Before::default();
    let audio = before.class(schedule, Class::Audio, link, false);
    let jobs = in_order(schedule, link);
    let possible = before.possible(jobs.clone(), schedule, Class::Video, link);
    let possible: HashSet<u32> = possible.0.iter().map(|job| job.adu).collect();
    let place = jobs.0.iter().zip(0..).map(|(job, place)| (job.adu, place));
    let place: HashMap<u32, usize> = place.collect();
    let mut needs = vec![Need::default(); jobs.0.len()];
    for frame in frames {
        let Some(&at) = place.get(&frame.adu) else {
            continue;
        };
        let of = frame.needs.iter().filter_map(|adu| place.get(adu).copied());
        needs[at] = Need {
            // What is not there, or not before it, is not asked for: a bound still.
            of: of.filter(|&of| of < at).collect(),
            counts: frame.counts,
            possible: possible.contains(&frame.adu),
        };
    }
    let (most, exact) = dp::most(before.forced(), &jobs, &needs)?;
    Some((most, exact && audio.adus == audio.adus_offered))
}

/// All frames in the order in which they are sent.
fn in_order(schedule: &Schedule, link: &Link) -> Jobs {
    let mut all = Jobs::default();
    for jobs in Jobs::by_priority(schedule, Class::Video, link) {
        all.extend(jobs);
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        bound::{
            Departure,
            jobs::Job,
            tests::{LINK, has_room, packet, schedule, small},
        },
        sys::MILLI,
    };

    /// To which frames frame n of a stream of this shape refers, by their numbers.
    fn needs(shape: u8, group: usize, chances: &[u8], n: usize) -> Vec<usize> {
        let (begin, at) = (n - n % group, n % group);
        match shape {
            // I P P P
            0 if at > 0 => vec![n - 1],
            // I P B P B: the anchors are the key frame and what is at odd places.
            1 if at == 1 => vec![begin],
            1 if at == 2 => vec![begin, n - 1],
            1 if at % 2 == 1 => vec![n - 2],
            1 if at > 0 => vec![n - 3, n - 1],
            // Temporal layers 0 2 1 2.
            2 if n.is_multiple_of(4) => n.checked_sub(4).into_iter().collect(),
            2 if n % 4 == 2 => vec![n - 2],
            2 => vec![n - 1],
            // Any of the three before.
            3 => (1..=3)
                .filter(|back| chances[n % chances.len()] >> back & 1 == 1)
                .filter_map(|back| n.checked_sub(back))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// The optimum by trying every choice.
    fn brute(audio: &[Job], frames: &[(Job, &Frame)]) -> usize {
        let choices = 0u32..1 << frames.len();
        let counted = choices.filter_map(|choice| {
            let chosen = || {
                (0..)
                    .zip(frames)
                    .filter(|(n, _)| choice >> n & 1 == 1)
                    .map(|(_, frame)| frame)
            };
            let is_chosen = |adu: &u32| chosen().any(|(_, frame)| frame.adu == *adu);
            if !chosen().all(|(_, frame)| frame.needs.iter().all(is_chosen)) {
                return None;
            }
            let mut sent = audio.to_vec();
            for (job, _) in chosen() {
                if !has_room(&sent, job) {
                    return None;
                }
                sent.push(*job);
            }
            Some(chosen().filter(|(_, frame)| frame.counts).count())
        });
        counted.max().unwrap_or(0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn intact_frames_are_those_of_the_best_choice(
            schedule in small(2),
            shape in 0u8..4,
            group in 1usize..8,
            chances in prop::collection::vec(any::<u8>(), 12),
            uncounted in any::<u16>(),
            first_bit in any::<bool>(),
            burst in 0u64..3,
        ) {
            let departure = if first_bit { Departure::FirstBit } else { Departure::Bucket };
            let link = Link { departure, burst: burst * MILLI, ..LINK };
            let jobs = in_order(&schedule, &link).0;
            let frames: Vec<Frame> = (0..).zip(&jobs).map(|(n, job)| Frame {
                adu: job.adu,
                needs: needs(shape, group, &chances, n).into_iter().map(|of| jobs[of].adu).collect(),
                counts: uncounted >> n & 3 != 0,
            }).collect();
            let mut before = Before::default();
            before.class(&schedule, Class::Audio, &link, false);
            let audio = &before.forced()[Class::Audio as usize].0;
            let possible = before.possible(Jobs(jobs.clone()), &schedule, Class::Video, &link).0;
            let mut left: Vec<(Job, &Frame)> = jobs.iter().copied().zip(&frames).collect();
            left.retain(|(job, _)| possible.contains(job));
            let best = brute(audio, &left);
            let (found, exact) = most(&schedule, &link, &frames).expect("few references");
            prop_assert!(found >= best, "{found} {best} {frames:?}");
            if exact {
                prop_assert_eq!(found, best, "{:?}", frames);
            }
        }
    }

    /// Frames of 4,000 bytes, 4 ms of the link, every 5 ms; the first of a group has twice as many.
    fn stream(shape: u8, group: usize, count: usize, lifetime_ms: u64) -> (Schedule, Vec<Frame>) {
        let frame = |n: usize| {
            let bytes = if n.is_multiple_of(group) {
                8_000
            } else {
                4_000
            };
            packet(Class::Video, n as u32, 5 * n as u64, lifetime_ms, bytes)
        };
        let frames = (0..count).map(|n| Frame {
            adu: n as u32,
            needs: needs(shape, group, &[0], n)
                .into_iter()
                .map(|of| of as u32)
                .collect(),
            counts: true,
        });
        (schedule((0..count).map(frame).collect()), frames.collect())
    }

    #[test]
    fn intact_frames_of_a_chain_are_its_beginning() {
        // At half the rate a frame takes 8 ms, a key frame 16, and all may wait for 20 ms: behind the key
        // frame (16 ms) the next (24 of 25) and the one after (32 of 30: late). So 2 of each group of 8,
        // which begins 40 ms later.
        let link = Link {
            rate: LINK.rate / 2,
            ..LINK
        };
        let (schedule, frames) = stream(0, 8, 32, 30);
        assert_eq!(on(&schedule, link, &frames), Some(8));
        // Without references more than half of the frames are on time.
        let alone: Vec<Frame> = frames
            .iter()
            .map(|frame| Frame {
                needs: Vec::new(),
                ..frame.clone()
            })
            .collect();
        assert!(on(&schedule, link, &alone) >= Some(18));
        // What does not count may still be needed.
        let mut frames = frames;
        for frame in frames.iter_mut().filter(|frame| frame.adu % 8 != 1) {
            frame.counts = false;
        }
        assert_eq!(on(&schedule, link, &frames), Some(4));
    }

    #[test]
    fn intact_frames_beside_audio_are_fewer_and_too_many_references_are_refused() {
        let (mut traffic, frames) = stream(0, 8, 32, 30);
        let link = LINK;
        assert_eq!(on(&traffic, link, &frames), Some(32));
        traffic
            .packets
            .extend((0..32).map(|n| packet(Class::Audio, 100 + n, 5 * u64::from(n), 20, 1_500)));
        let both = schedule(traffic.packets);
        let beside = on(&both, link, &frames).expect("one reference at a time");
        assert!(beside > 0 && beside < 32, "{beside}");

        let all = |n: u32| (0..n).collect();
        let frames: Vec<Frame> = (0..9)
            .map(|n| Frame {
                adu: n,
                needs: if n == 8 { all(8) } else { Vec::new() },
                counts: true,
            })
            .collect();
        assert_eq!(on(&both, link, &frames), None);
    }
}
