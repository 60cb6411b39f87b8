//! Real media: what ffmpeg makes of moving test pictures and a chord, H.264 and Opus.
//!
//! The media are encoded once for each seed and packed into RTP by ffmpeg; the packets
//! are kept in a capture file (any tool that reads pcap shows them). Their times are
//! those of a live encoder: a frame's packets leave together, one frame after another in
//! decoding order at the frame rate, audio by its own clock. Every queue gets the same
//! packets at the same times. What arrives is judged by a decoder: [`judge`].
//!
//! Video: a key frame at an interval, then reference frames with disposable ones in
//! between, which no other frame refers to (in the place of the temporal layers of a
//! conference's encoder).

mod h264;
mod picture;
mod record;

use std::{collections::HashMap, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use h264::Layer;
pub use picture::{Picture, judge, stream};
pub use record::source;
use serde::{Deserialize, Serialize};

use super::{
    Class, MIN_WIRE, Packet, Schedule,
    build::{Traffic, check_lifetime, within},
    pcap::capture::{self, Rtp},
    wire::Recorded,
};
use crate::{
    bound::intact,
    sys::{MILLI, SECOND},
};

/// RTP payload types of the recording.
const VIDEO_TYPE: u8 = 96;
const AUDIO_TYPE: u8 = 111;
/// RTP clocks in Hz: RFC 6184 §5.1 and RFC 7587 §4.1.
const VIDEO_CLOCK: u64 = 90_000;
const AUDIO_CLOCK: u64 = 48_000;

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Pixels, 64..=1920, even.
    pub width: u32,
    /// Pixels, 64..=1080, even.
    pub height: u32,
    /// Frames per second, one of 10, 15, 24, 25, 30, 50, 60.
    pub fps: u32,
    /// Rate that the encoder aims at, kbit/s without any headers, 50..=20000.
    pub video_kbit: u32,
    /// Frames from one key frame to the next, 1..=600.
    pub key_frames_every: u32,
    /// Disposable frames between two that others refer to, 0..=4.
    pub disposable: u32,
    /// Whether the sender says how much other frames lose with one: key frames get priority
    /// 3, reference frames 4, 5 or 6 (in each third of the way to the next key frame, for
    /// those later than one that is lost are lost, too), disposable ones 7; otherwise all
    /// frames have that of video.
    pub by_layer: bool,
    /// Strength of the film grain, 0..=100: what makes sizes vary as a camera's do.
    pub grain: u32,
    /// Rate of the audio, kbit/s without any headers, 16..=256.
    pub audio_kbit: u32,
    /// Lifetime of a frame, ms.
    pub video_lifetime_ms: u64,
    /// Lifetime of an audio packet, ms.
    pub audio_lifetime_ms: u64,
    /// Where recordings are kept; relative to where the lab is started.
    pub directory: PathBuf,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            width: 640,
            height: 360,
            fps: 30,
            video_kbit: 1000,
            key_frames_every: 60,
            disposable: 1,
            by_layer: true,
            grain: 4,
            audio_kbit: 64,
            video_lifetime_ms: 200,
            audio_lifetime_ms: 200,
            directory: "target/media".into(),
        }
    }
}

impl Parameters {
    /// File of the recording: everything that the media depend on is in its name.
    fn file(&self, seconds: u64, seed: u64) -> PathBuf {
        self.directory.join(format!(
            "{}x{}-{}fps-{}k-pan-key{}-b{}-grain{}-audio{}k-{seconds}s-seed{seed}from{}.pcap",
            self.width,
            self.height,
            self.fps,
            self.video_kbit,
            self.key_frames_every,
            self.disposable,
            self.grain,
            self.audio_kbit,
            record::begin(self.fps, seed),
        ))
    }

    /// The priority of a frame that comes so many ns after its key frame.
    fn priority(&self, layer: Option<Layer>, after: u64) -> u8 {
        let way = u64::from(self.key_frames_every) * SECOND / u64::from(self.fps);
        match layer.filter(|_| self.by_layer) {
            Some(Layer::Key) => 3,
            Some(Layer::Reference) => 4 + (3 * after / way).min(2) as u8,
            Some(Layer::Disposable) => 7,
            None => Class::Video.priority(),
        }
    }
}

impl Parameters {
    /// To which frames each one refers, in decoding order, by their numbers in the schedule. x264 as it
    /// is set here (`record::encode`): a reference frame needs the one before it, a disposable one both that
    /// it stands between, and no frame needs one from before a key frame. Pictures shown in the first
    /// `discard_first` s do not count, nor any that are shown after the end.
    pub fn references(
        &self,
        seconds: u64,
        seed: u64,
        discard_first: f64,
    ) -> Result<Vec<intact::Frame>> {
        let schedule = self.schedule(seconds, seed)?;
        let recording = Recording::of(self, seconds, seed)?;
        let judged = recording.judged(discard_first);
        let packets: Vec<(&Rtp, &Packet)> = recording
            .packets
            .iter()
            .zip(&schedule.packets)
            .filter(|(_, packet)| packet.class == Class::Video)
            .collect();
        // The newest reference frame first.
        let mut anchors: Vec<u32> = Vec::new();
        let frames = packets.chunk_by(|(one, _), (other, _)| one.timestamp == other.timestamp);
        let frames = frames.map(|frame| {
            let adu = frame[0].1.adu;
            let layers = frame.iter().filter_map(|(rtp, _)| Layer::of(payload(rtp)));
            let needs = match layers.min() {
                Some(Layer::Key) => {
                    anchors = vec![adu];
                    Vec::new()
                }
                Some(Layer::Disposable) => anchors.clone(),
                Some(Layer::Reference) | None => {
                    let needs: Vec<u32> = anchors.iter().copied().take(1).collect();
                    anchors = [adu].into_iter().chain(needs.iter().copied()).collect();
                    needs
                }
            };
            intact::Frame {
                adu,
                needs,
                counts: judged.contains(&recording.shown(frame[0].0)),
            }
        });
        Ok(frames.collect())
    }
}

/// The media of a run, recorded now if they are not there.
struct Recording<'a> {
    parameters: &'a Parameters,
    seconds: u64,
    seed: u64,
    /// In sending order.
    packets: Vec<Rtp>,
}

impl<'a> Recording<'a> {
    fn of(parameters: &'a Parameters, seconds: u64, seed: u64) -> Result<Self> {
        parameters.prepare(seconds, seed)?;
        let file = parameters.file(seconds, seed);
        let mut packets = capture::read(&file, true)?.rtp;
        packets.sort_by_key(|packet| packet.at);
        ensure!(
            !packets.is_empty(),
            "{} has no media: remove it, and it is recorded anew",
            file.display()
        );
        Ok(Self {
            parameters,
            seconds,
            seed,
            packets,
        })
    }
}

fn class(packet: &Rtp) -> Class {
    if packet.payload_type == AUDIO_TYPE {
        Class::Audio
    } else {
        Class::Video
    }
}

/// The RTP payload. ffmpeg writes the fixed header alone: no CSRC, extension or padding.
fn payload(packet: &Rtp) -> &[u8] {
    packet.content.get(12..).unwrap_or_default()
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        within("width", self.width, 64..=1920)?;
        within("height", self.height, 64..=1080)?;
        within("video_kbit", self.video_kbit, 50..=20_000)?;
        within("key_frames_every", self.key_frames_every, 1..=600)?;
        within("disposable", self.disposable, 0..=4)?;
        within("grain", self.grain, 0..=100)?;
        within("audio_kbit", self.audio_kbit, 16..=256)?;
        ensure!(
            self.width.is_multiple_of(2) && self.height.is_multiple_of(2),
            "width and height must be even: H.264 halves them for colour"
        );
        ensure!(
            [10, 15, 24, 25, 30, 50, 60].contains(&self.fps),
            "fps = {} is not one of 10, 15, 24, 25, 30, 50, 60",
            self.fps
        );
        check_lifetime("video_lifetime_ms", self.video_lifetime_ms)?;
        check_lifetime("audio_lifetime_ms", self.audio_lifetime_ms)
    }

    /// `seconds` of media; packet n of the schedule is packet n of the recording.
    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        let recorded = Recording::of(self, seconds, seed)?.packets;
        let mut key_at = 0;
        // Of each frame: its number, its last packet, and the priority that the most important of
        // its packets says.
        let mut frames = HashMap::new();
        let mut packets: Vec<Packet> = Vec::with_capacity(recorded.len());
        for (index, packet) in recorded.iter().enumerate() {
            let class = class(packet);
            let (mut priority, mut lifetime_ms) = (class.priority(), self.audio_lifetime_ms);
            if class == Class::Video {
                lifetime_ms = self.video_lifetime_ms;
                let layer = Layer::of(payload(packet));
                if layer == Some(Layer::Key) {
                    key_at = packet.at;
                }
                priority = self.priority(layer, packet.at - key_at);
            }
            let next = frames.len() as u32;
            let frame = frames.entry((packet.ssrc, packet.timestamp));
            let (adu, last, least) = frame.or_insert((next, index, priority));
            (*last, *least) = (index, priority.min(*least));
            packets.push(Packet {
                at: packet.at,
                // All packets of a frame are recorded with one time.
                lifetime: lifetime_ms * MILLI,
                class,
                priority,
                stream: 0,
                adu: *adu,
                last: false,
                wire_bytes: packet.wire_bytes.max(MIN_WIRE),
                recorded: Some(Recorded::of(packet.timestamp, payload(packet))),
            });
        }
        for (packet, recorded) in packets.iter_mut().zip(&recorded) {
            packet.priority = frames[&(recorded.ssrc, recorded.timestamp)].2;
        }
        for (_, last, _) in frames.into_values() {
            packets[last].last = true;
        }
        Ok(Schedule {
            packets,
            duration: seconds * SECOND,
        })
    }

    /// Encodes and records the media of a run unless they are there.
    fn prepare(&self, seconds: u64, seed: u64) -> Result<()> {
        self.check()?;
        let file = self.file(seconds, seed);
        if file.is_file() {
            return Ok(());
        }
        record::record(self, seconds, seed, &file)
            .with_context(|| format!("recording real media as {}", file.display()))
    }
}

#[cfg(test)]
mod tests;
