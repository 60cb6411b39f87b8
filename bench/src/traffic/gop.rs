//! Live video as an encoder with groups of pictures makes it, and audio beside it.
//!
//! - Video: a key frame opens each group and is several times larger than the
//!   predicted frames behind it. Sizes are log-normal: never negative and skewed to the
//!   right, as those of one type of frame are. A frame's packets are sent as a bunch.
//! - The rate is the mean on the wire, all headers with the MAC header included, so it
//!   compares with a link's rate.
//! - Audio: one packet every 20 ms.
//! - The clocks of audio and video are not related: the first frame's time is drawn.

use std::collections::BTreeSet;

use anyhow::Result;
use rand_distr::{Distribution as _, LogNormal};
use serde::{Deserialize, Serialize};

use super::{
    Class, MAX_WIRE, MIN_WIRE, Schedule,
    build::{
        self, Adu, RngCore as _, Traffic, check_lifetime, check_packet_bytes, check_rate, cut,
        random, within,
    },
};
use crate::sys::{MILLI, SECOND};

/// Time between audio packets, ns.
const AUDIO_EVERY: u64 = 20 * MILLI;

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Frames per second, 1..=240.
    pub fps: u32,
    /// Frames from one key frame to the next, at least 1 (each a key frame).
    pub gop_frames: u32,
    /// Mean rate of the video on the wire, kbit/s.
    pub rate_kbit: f64,
    /// Mean size of a key frame over that of a predicted one, 1..=100.
    pub key_ratio: f64,
    /// Standard deviation of the logarithm of a predicted frame's size, 0..=2
    /// (0.35: two of three frames are within 0.7 to 1.4 times the median).
    pub sigma: f64,
    /// The same for key frames, which vary less.
    pub key_sigma: f64,
    /// Largest packet on the wire in bytes; 1242 is an RTP packet of 1200.
    pub packet_bytes: u32,
    /// An audio packet's bytes on the wire; 0: no audio. 214 is 160 bytes of payload
    /// (64 kbit/s) and 54 of headers.
    pub audio_bytes: u32,
    /// Lifetime of a frame, ms.
    pub video_lifetime_ms: u64,
    /// Lifetime of an audio packet, ms.
    pub audio_lifetime_ms: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            fps: 30,
            gop_frames: 60,
            rate_kbit: 1500.0,
            key_ratio: 8.0,
            sigma: 0.35,
            key_sigma: 0.15,
            packet_bytes: 1242,
            audio_bytes: 214,
            video_lifetime_ms: 200,
            audio_lifetime_ms: 200,
        }
    }
}

impl Parameters {
    /// Mean bytes of a key frame and of a predicted one.
    fn mean_bytes(&self) -> (f64, f64) {
        let group = f64::from(self.gop_frames);
        let bytes = self.rate_kbit * 125.0 * group / f64::from(self.fps);
        let predicted = bytes / (self.key_ratio + group - 1.0);
        (predicted * self.key_ratio, predicted)
    }

    /// All frames and audio packets of `seconds` in order of time, each with all its packets at
    /// once.
    pub(super) fn adus(&self, seconds: u64, seed: u64) -> Result<Vec<Adu>> {
        self.check()?;
        let mut rng = random(seed);
        let (key, predicted) = self.mean_bytes();
        let key = sizes(key, self.key_sigma)?;
        let predicted = sizes(predicted, self.sigma)?;
        let fps = u64::from(self.fps);
        let phase = rng.next_u64() % (SECOND / fps);

        let times = (0..).map(|frame| (frame, phase + frame * SECOND / fps));
        let frames = times.take_while(|&(_, at)| at < seconds * SECOND);
        let frames = frames.map(|(frame, at)| {
            let sizes = match frame % u64::from(self.gop_frames) {
                0 => key,
                _ => predicted,
            };
            let size = sizes.sample(&mut rng).round().max(f64::from(MIN_WIRE));
            let parts = cut(size as u32, self.packet_bytes);
            Adu::bunch(Class::Video, at, self.video_lifetime_ms, parts)
        });
        let mut adus: Vec<Adu> = frames.collect();
        if self.audio_bytes > 0 {
            let (bytes, lifetime_ms) = (self.audio_bytes, self.audio_lifetime_ms);
            let times = (0..seconds * SECOND).step_by(AUDIO_EVERY as usize);
            adus.extend(times.map(|at| Adu::bunch(Class::Audio, at, lifetime_ms, [bytes])));
        }
        adus.sort_by_key(|adu| adu.parts[0].0);
        Ok(adus)
    }
}

/// Log-normal with this mean; its logarithm deviates by `sigma`.
fn sizes(mean: f64, sigma: f64) -> Result<LogNormal<f64>> {
    Ok(LogNormal::new(mean.ln() - sigma * sigma / 2.0, sigma)?)
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        within("fps", self.fps, 1..=240)?;
        within("gop_frames", self.gop_frames, 1..=u32::MAX)?;
        within("key_ratio", self.key_ratio, 1.0..=100.0)?;
        within("sigma", self.sigma, 0.0..=2.0)?;
        within("key_sigma", self.key_sigma, 0.0..=2.0)?;
        if self.audio_bytes > 0 {
            within("audio_bytes", self.audio_bytes, MIN_WIRE..=MAX_WIRE)?;
        }
        check_packet_bytes(self.packet_bytes)?;
        check_rate(self.rate_kbit, 1)?;
        check_lifetime("video_lifetime_ms", self.video_lifetime_ms)?;
        check_lifetime("audio_lifetime_ms", self.audio_lifetime_ms)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        Ok(build::schedule(self.adus(seconds, seed)?, seconds))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        let video = [Class::Video];
        let audio = (self.audio_bytes > 0).then_some(Class::Audio);
        Some(video.into_iter().chain(audio).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, rate_kbit};

    #[test]
    fn gop_rates_are_those_asked_for() {
        for rate_kbit_asked in [300.0, 1500.0, 6000.0] {
            let parameters = Parameters {
                rate_kbit: rate_kbit_asked,
                ..Parameters::default()
            };
            let schedule = parameters.schedule(600, 5).expect("a schedule");
            let video = rate_kbit(&schedule, Class::Video);
            assert!((video / rate_kbit_asked - 1.0).abs() < 0.01, "{video}");
            assert!((rate_kbit(&schedule, Class::Audio) - 85.6).abs() < 0.01);
        }
    }

    #[test]
    fn gop_key_frames_open_groups_and_are_larger() {
        let parameters = Parameters::default();
        let mut frames = adus(&parameters.schedule(400, 9).expect("a schedule"));
        frames.retain(|adu| adu.class == Class::Video);
        assert_eq!(frames.len(), 12_000);
        for frame in &frames {
            assert_eq!(frame.deadline - frame.at, 200 * MILLI);
            assert!(frame.bytes <= 1242 * frame.packets);
        }
        let (mut key, mut predicted) = (Vec::new(), Vec::new());
        for (place, frame) in frames.iter().enumerate() {
            let sizes = if place % 60 == 0 {
                &mut key
            } else {
                &mut predicted
            };
            sizes.push(f64::from(frame.bytes));
        }
        // The median of a log-normal is below its mean by exp(sigma²/2).
        predicted.sort_by(f64::total_cmp);
        let median = predicted[predicted.len() / 2];
        let mean = |sizes: &[f64]| sizes.iter().sum::<f64>() / sizes.len() as f64;
        let (of_key, of_predicted) = parameters.mean_bytes();
        let below = (-0.35f64 * 0.35 / 2.0).exp();
        for (found, expected, by) in [
            (mean(&key), of_key, 0.05),
            (mean(&predicted), of_predicted, 0.02),
            (median, of_predicted * below, 0.02),
        ] {
            assert!((found / expected - 1.0).abs() < by, "{found} {expected}");
        }
    }
}
