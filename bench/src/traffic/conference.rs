//! The video conference of SFDPS §4.1: 10 s of talking and motion, 5 s of silence
//! and a still picture, 5 s of motion.
//!
//! - Audio: one packet of 214 bytes every 20 ms (no silence suppression).
//! - Video: 10 frames per second, normally distributed sizes (motion: mean 4450,
//!   standard deviation 1000 bytes; still: 1075 and 475), cut into packets of at
//!   most 1026 bytes that are sent as a bunch.
//! - Sizes are bytes on the wire including the MAC header: the paper states 86
//!   and 289 kbit/s "including all packet overheads, including the MAC headers",
//!   which is what 214 bytes × 50/s and 3606 bytes × 10/s give. (214 = 160 bytes
//!   of G.711 + RTP 12 + UDP 8 + IP 20 + MAC 14.)
//! - When a frame and an audio packet are due together, chance decides which goes
//!   first.
//! - Every packet lives 200 ms unless the parameters say otherwise.

use anyhow::Result;
use rand_distr::{Distribution as _, Normal};
use serde::{Deserialize, Serialize};

use super::{
    Class, MIN_WIRE, Schedule,
    build::{self, Adu, RngCore as _, Traffic, check_lifetime, cut, random},
};
use crate::sys::{MILLI, SECOND};

/// Bytes of every audio packet.
const AUDIO_BYTES: u32 = 214;
/// Largest video packet in bytes.
const VIDEO_MAX: u32 = 1026;
/// Lifetime of all packets in the paper, ms.
const LIFETIME_MS: u64 = 200;

const AUDIO_EVERY: u64 = 20 * MILLI;
const FRAME_EVERY: u64 = 100 * MILLI;
const CYCLE: u64 = 20 * SECOND;

/// Mean and standard deviation of a frame's bytes at `at` ns. Nothing moves from 10 to 15 s.
fn frame_size(at: u64) -> (f64, f64) {
    if (10 * SECOND..15 * SECOND).contains(&(at % CYCLE)) {
        (1075.0, 475.0)
    } else {
        (4450.0, 1000.0)
    }
}

/// What can be chosen; all else is the paper's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Lifetime of an audio packet, ms.
    pub audio_lifetime_ms: u64,
    /// Lifetime of a frame, ms.
    pub video_lifetime_ms: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            audio_lifetime_ms: LIFETIME_MS,
            video_lifetime_ms: LIFETIME_MS,
        }
    }
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        check_lifetime("audio_lifetime_ms", self.audio_lifetime_ms)?;
        check_lifetime("video_lifetime_ms", self.video_lifetime_ms)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        Ok(schedule_with(self, seconds, seed))
    }
}

/// `seconds` of the paper's conference (it repeats its 20 s); the same for the same seed.
pub fn schedule(seconds: u64, seed: u64) -> Schedule {
    schedule_with(&Parameters::default(), seconds, seed)
}

/// The same packets at the same times, with other lifetimes.
pub fn schedule_with(parameters: &Parameters, seconds: u64, seed: u64) -> Schedule {
    let mut rng = random(seed);
    let mut adus = Vec::new();
    for at in (0..seconds * SECOND).step_by(AUDIO_EVERY as usize) {
        let video_first = rng.next_u32() & 1 == 0;
        let lifetime_ms = parameters.audio_lifetime_ms;
        adus.push(Adu::bunch(Class::Audio, at, lifetime_ms, [AUDIO_BYTES]));
        if at % FRAME_EVERY == 0 {
            let (mean, deviation) = frame_size(at);
            // The distribution's tail below the smallest packet (1.8 % of still frames) is cut.
            let size = Normal::new(mean, deviation)
                .map_or(mean, |normal| normal.sample(&mut rng))
                .round()
                .max(f64::from(MIN_WIRE)) as u32;
            let parts = cut(size, VIDEO_MAX);
            let frame = Adu::bunch(Class::Video, at, parameters.video_lifetime_ms, parts);
            adus.insert(adus.len() - usize::from(video_first), frame);
        }
    }
    build::schedule(adus, seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, rate_kbit};

    #[test]
    fn conference_rates_are_those_of_the_paper() {
        let schedule = schedule(2000, 7);
        assert!((rate_kbit(&schedule, Class::Audio) - 85.6).abs() < 0.01);
        assert!((rate_kbit(&schedule, Class::Video) - 289.0).abs() < 1.5);
        assert!((schedule.load() / 1000.0 - 374.0).abs() < 2.0);
        let pairs = schedule.packets.windows(2);
        let audio_first = pairs
            .filter(|pair| pair[0].at == pair[1].at && pair[0].class == Class::Audio)
            .count();
        assert!((9500..10_500).contains(&audio_first), "{audio_first}");
    }

    #[test]
    fn conference_motion_and_still_have_their_means_and_deviations() {
        let frames = adus(&schedule(2000, 3));
        let frames = frames.iter().filter(|adu| adu.class == Class::Video);
        assert_eq!(frames.clone().count(), 20_000);
        for (is_still, mean, deviation) in [(false, 4450.0, 1000.0), (true, 1075.0, 475.0)] {
            let group = frames
                .clone()
                .filter(|frame| (frame_size(frame.at).0 < 2000.0) == is_still);
            let sizes: Vec<f64> = group.map(|frame| f64::from(frame.bytes)).collect();
            let count = sizes.len() as f64;
            let average = sizes.iter().sum::<f64>() / count;
            let variance = sizes.iter().map(|s| (s - average).powi(2)).sum::<f64>() / count;
            assert!((average - mean).abs() < 25.0, "{average}");
            assert!((variance.sqrt() - deviation).abs() < 25.0, "{variance}");
        }
    }
}
