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
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use rand_distr::{Distribution as _, Normal};
use serde::{Deserialize, Serialize};

use super::{Class, MIN_WIRE, Packet, Schedule, build};
use crate::sys::{MILLI, SECOND};

/// Bytes of every audio packet.
pub const AUDIO_BYTES: u32 = 214;
/// Largest video packet in bytes.
const VIDEO_MAX: u32 = 1026;
/// Lifetime of all packets in the paper, ns.
pub const LIFETIME: u64 = 200 * MILLI;

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
            audio_lifetime_ms: LIFETIME / MILLI,
            video_lifetime_ms: LIFETIME / MILLI,
        }
    }
}

impl Parameters {
    pub(super) fn check(&self) -> Result<()> {
        build::check_lifetime("audio_lifetime_ms", self.audio_lifetime_ms)?;
        build::check_lifetime("video_lifetime_ms", self.video_lifetime_ms)
    }
}

/// `seconds` of the paper's conference (it repeats its 20 s); the same for the same seed.
pub fn schedule(seconds: u64, seed: u64) -> Schedule {
    schedule_with(&Parameters::default(), seconds, seed)
}

/// The same packets at the same times, with other lifetimes.
pub fn schedule_with(parameters: &Parameters, seconds: u64, seed: u64) -> Schedule {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut packets = Vec::new();
    let mut adu = 0;
    for at in (0..seconds * SECOND).step_by(AUDIO_EVERY as usize) {
        let video_first = rng.next_u32() & 1 == 0;
        let audio = |packets: &mut Vec<Packet>, adu: &mut u32| {
            packets.push(Packet {
                at,
                lifetime: parameters.audio_lifetime_ms * MILLI,
                class: Class::Audio,
                priority: Class::Audio.priority(),
                stream: 0,
                adu: *adu,
                last: true,
                wire_bytes: AUDIO_BYTES,
            });
            *adu += 1;
        };
        if at % FRAME_EVERY != 0 {
            audio(&mut packets, &mut adu);
            continue;
        }
        if !video_first {
            audio(&mut packets, &mut adu);
        }
        let (mean, deviation) = frame_size(at);
        // The distribution's tail below the smallest packet (1.8 % of still frames) is cut.
        let size = Normal::new(mean, deviation)
            .map_or(mean, |normal| normal.sample(&mut rng))
            .round()
            .max(f64::from(MIN_WIRE)) as u32;
        let parts = build::cut(size, VIDEO_MAX);
        for (index, &wire_bytes) in parts.iter().enumerate() {
            packets.push(Packet {
                at,
                lifetime: parameters.video_lifetime_ms * MILLI,
                class: Class::Video,
                priority: Class::Video.priority(),
                stream: 0,
                adu,
                last: index + 1 == parts.len(),
                wire_bytes,
            });
        }
        adu += 1;
        if video_first {
            audio(&mut packets, &mut adu);
        }
    }
    Schedule {
        packets,
        duration: seconds * SECOND,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(schedule: &Schedule, class: Class) -> f64 {
        let bytes: u32 = schedule
            .packets
            .iter()
            .filter(|p| p.class == class)
            .map(|p| p.wire_bytes)
            .sum();
        f64::from(bytes) * 8.0 / (schedule.duration as f64 / 1e9) / 1000.0
    }

    #[test]
    fn rates_are_those_of_the_paper() {
        let schedule = schedule(2000, 7);
        assert!((rate(&schedule, Class::Audio) - 85.6).abs() < 0.01);
        assert!((rate(&schedule, Class::Video) - 289.0).abs() < 1.5);
        assert!((schedule.load() / 1000.0 - 374.0).abs() < 2.0);
    }

    #[test]
    fn motion_and_still_have_their_means_and_deviations() {
        let schedule = schedule(2000, 3);
        let mut sizes = std::collections::BTreeMap::<u32, (u64, f64)>::new();
        for p in schedule.packets.iter().filter(|p| p.class == Class::Video) {
            let frame = sizes.entry(p.adu).or_insert((p.at, 0.0));
            frame.1 += f64::from(p.wire_bytes);
        }
        assert_eq!(sizes.len(), 20_000);
        for (still, mean, deviation) in [(false, 4450.0, 1000.0), (true, 1075.0, 475.0)] {
            let group: Vec<f64> = sizes
                .values()
                .filter(|(at, _)| (10..15).contains(&(at / SECOND % 20)) == still)
                .map(|(_, size)| *size)
                .collect();
            let average = group.iter().sum::<f64>() / group.len() as f64;
            let variance =
                group.iter().map(|s| (s - average).powi(2)).sum::<f64>() / group.len() as f64;
            assert!((average - mean).abs() < 25.0, "{average}");
            assert!(
                (variance.sqrt() - deviation).abs() < 25.0,
                "{}",
                variance.sqrt()
            );
        }
    }

    #[test]
    fn other_lifetimes_change_nothing_else() {
        let mixed = Parameters {
            audio_lifetime_ms: 50,
            video_lifetime_ms: 1000,
        };
        let (paper, mixed) = (schedule(20, 1), schedule_with(&mixed, 20, 1));
        for (a, b) in paper.packets.iter().zip(&mixed.packets) {
            assert_eq!(
                (a.at, a.class, a.adu, a.wire_bytes),
                (b.at, b.class, b.adu, b.wire_bytes)
            );
            let expected = if b.class == Class::Audio { 50 } else { 1000 };
            assert_eq!(b.lifetime, expected * MILLI);
        }
    }

    #[test]
    fn one_seed_gives_one_schedule() {
        assert_eq!(schedule(20, 1), schedule(20, 1));
        assert_ne!(schedule(20, 1), schedule(20, 2));
    }

    #[test]
    fn times_sizes_and_frames_are_well_formed() {
        let schedule = schedule(20, 1);
        assert!(schedule.packets.is_sorted_by_key(|p| p.at));
        let mut audio_first = 0;
        let mut previous_adu = None;
        for pair in schedule.packets.windows(2) {
            let both = pair[0].at == pair[1].at;
            if both && pair[0].class == Class::Audio && pair[1].class == Class::Video {
                audio_first += 1;
            }
        }
        for p in &schedule.packets {
            assert!(p.wire_bytes >= MIN_WIRE && p.wire_bytes <= VIDEO_MAX);
            if previous_adu != Some(p.adu) {
                assert_eq!(p.adu, previous_adu.map_or(0, |adu: u32| adu + 1));
                previous_adu = Some(p.adu);
            }
        }
        assert!((60..140).contains(&audio_first), "{audio_first} of 200");
        let audio = schedule
            .packets
            .iter()
            .filter(|p| p.class == Class::Audio)
            .count();
        let frames = schedule
            .packets
            .iter()
            .filter(|p| p.class == Class::Video && p.last)
            .count();
        assert_eq!((audio, frames), (1000, 200));
    }
}
