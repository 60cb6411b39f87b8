//! What a decoder makes of the frames that arrived in time, and how like the source it is.
//!
//! The frames go to ffmpeg in an IVF container, which gives each its place in time and
//! asks for nothing else (32 bytes of header, 12 before each frame). The decoded stream
//! is laid beside the source: a picture that is missing is the last one before it, as a
//! player shows it; before the first one there is nothing, and the likeness is 0.
//!
//! What nobody can decode is told from the same pictures: a frame is wasted unless its picture is
//! exactly what an undisturbed player shows, whatever was missing, itself or what it refers to.

use std::{collections::BTreeMap, fs, ops::Range};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Class, Parameters, Recording, class, h264, payload, record};
use crate::{decoder, records::Seen, traffic::pcap::capture::Rtp};

/// A run's pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// Pictures of the source that were judged.
    pub pictures: u64,
    /// Those for which the decoder returned one, concealed ones included.
    pub decoded: u64,
    /// Those that are, pixel for pixel, what an undisturbed player shows: no frame they
    /// refer to is missing.
    pub intact: u64,
    /// No queue could have had more of them intact on this link, even one that knows the future
    /// ([`bound::intact`](crate::bound::intact)); absent where nobody knows the link.
    pub intact_bound: Option<u64>,
    /// Longest time without a new intact picture, beyond one picture's own time, ms.
    pub longest_freeze_ms: f64,
    /// Bytes on the wire of the video that was sent, which is what arrived, late or not.
    pub sent_bytes: u64,
    /// Those of them that are of frames without an intact picture.
    pub wasted_bytes: u64,
    /// Mean structural similarity (SSIM, Wang et al. 2004) of the luma to the source,
    /// 0..=1; where a picture is missing, of the one that is shown instead.
    pub ssim: f64,
    /// The same of an undisturbed player: what coding alone costs.
    pub ssim_undisturbed: f64,
}

/// A decoded stream: MD5 and likeness to the source by the number of the picture shown.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Shown {
    md5: BTreeMap<u64, String>,
    ssim: BTreeMap<u64, f64>,
}

impl Shown {
    /// Mean likeness of the pictures from `first` on, of `count` in all.
    fn mean(&self, first: u64, count: u64) -> f64 {
        // From 0.0 on: the sum of nothing would be -0.0.
        let pictures = self.ssim.range(first..count);
        let sum = pictures.fold(0.0, |sum, (_, ssim)| sum + ssim);
        sum / count.saturating_sub(first).max(1) as f64
    }
}

/// Judges a run: `seen[n]` is what became of packet n of the schedule. Pictures shown in the
/// first `discard_first` s are not judged.
pub fn judge(
    parameters: &Parameters,
    seconds: u64,
    seed: u64,
    seen: &[Seen],
    discard_first: f64,
) -> Result<Picture> {
    let recording = Recording::of(parameters, seconds, seed)?;
    let recorded = recording.packets.len();
    ensure!(
        recorded == seen.len(),
        "the run had {} packets, the recording has {recorded}: another version of the lab made it",
        seen.len()
    );
    let reference = recording.reference()?;
    let got = recording.show(seen)?;
    let judged = recording.judged(discard_first);
    let (first, count) = (judged.start, judged.end);
    let intact = |number: &u64| {
        let md5 = reference.md5.get(number);
        md5.is_some() && md5 == got.md5.get(number)
    };
    let mut picture = Picture {
        pictures: judged.clone().count() as u64,
        decoded: got.md5.range(first..count.max(first)).count() as u64,
        intact: judged.clone().filter(intact).count() as u64,
        ssim: got.mean(first, count),
        ssim_undisturbed: reference.mean(first, count),
        ..Picture::default()
    };
    // Frames that are shown after the end are neither.
    let shown = |number: &u64| judged.contains(number) && reference.md5.contains_key(number);
    let pictures: Vec<u64> = judged.clone().filter(shown).collect();
    let frozen = pictures.split(intact).map(<[u64]>::len).max();
    picture.longest_freeze_ms = frozen.unwrap_or(0) as f64 * 1e3 / f64::from(parameters.fps);
    for (number, packets) in recording.video(seen) {
        let arrived = packets.iter().filter(|(_, seen)| seen.arrived);
        let bytes: u64 = arrived.map(|(_, seen)| u64::from(seen.wire_bytes)).sum();
        if shown(&number) {
            picture.sent_bytes += bytes;
            picture.wasted_bytes += if intact(&number) { 0 } else { bytes };
        }
    }
    Ok(picture)
}

/// The frames that were complete on time, as a file that ffmpeg reads.
pub fn stream(parameters: &Parameters, seconds: u64, seed: u64, seen: &[Seen]) -> Result<Vec<u8>> {
    let recording = Recording::of(parameters, seconds, seed)?;
    Ok(ivf(parameters, &recording.frames(seen)))
}

impl Recording<'_> {
    /// Pictures of the source.
    fn pictures(&self) -> u64 {
        self.seconds * u64::from(self.parameters.fps)
    }

    /// Numbers of the pictures that are judged.
    pub(super) fn judged(&self, discard_first: f64) -> Range<u64> {
        let first = (discard_first * f64::from(self.parameters.fps)).ceil() as u64;
        first..self.pictures()
    }

    /// Number of the picture that a packet of video is part of, in the order in which they are shown.
    pub(super) fn shown(&self, packet: &Rtp) -> u64 {
        let mut video = self.packets.iter().filter(|p| class(p) == Class::Video);
        let begin = video.next().map_or(0, |first| first.timestamp);
        record::shown(self.parameters, packet.timestamp, begin)
    }

    /// What an undisturbed player shows; kept beside the recording.
    fn reference(&self) -> Result<Shown> {
        let file = self.parameters.file(self.seconds, self.seed);
        let file = file.with_extension("shown.json");
        if let Ok(text) = fs::read_to_string(&file) {
            let damaged = || {
                let file = file.display();
                format!("{file} is damaged: remove it, and it is made anew")
            };
            return serde_json::from_str(&text).with_context(damaged);
        }
        let on_time = Seen {
            arrived: true,
            on_time: true,
            ..Seen::default()
        };
        let shown = self.show(&vec![on_time; self.packets.len()])?;
        let (decoded, frames) = (shown.md5.len() as u64, self.pictures());
        // The last frames in decoding order may be shown after the end.
        ensure!(
            (frames.saturating_sub(8)..=frames).contains(&decoded),
            "ffmpeg decodes {decoded} of the {frames} frames it encoded"
        );
        let unfinished = file.with_extension(format!("{}.unfinished", std::process::id()));
        fs::write(&unfinished, serde_json::to_string(&shown)?)?;
        fs::rename(&unfinished, &file)?;
        Ok(shown)
    }

    /// Decodes the frames of which every packet is on time.
    fn show(&self, seen: &[Seen]) -> Result<Shown> {
        let frames = self.frames(seen);
        if frames.is_empty() {
            return Ok(Shown::default());
        }
        let video = ivf(self.parameters, &frames);
        let md5 = decoder::pictures(&video)?;
        // Frames without any that they build on may give no picture at all.
        if md5.is_empty() {
            return Ok(Shown::default());
        }
        let source = record::source(self.parameters, self.seed);
        let ssim = decoder::likeness(&source, self.pictures(), &video)?;
        Ok(Shown { md5, ssim })
    }

    /// Number of the picture and H.264 byte stream of each whole frame, in decoding order.
    fn frames(&self, seen: &[Seen]) -> Vec<(u64, Vec<u8>)> {
        let frames = self.video(seen).into_iter();
        frames
            .filter(|(_, packets)| packets.iter().all(|(_, seen)| seen.on_time))
            .filter_map(|(number, packets)| {
                let bytes = h264::byte_stream(packets.iter().map(|(packet, _)| payload(packet)))?;
                Some((number, bytes))
            })
            .collect()
    }

    /// Number of the picture and packets of each frame, in decoding order.
    fn video<'s>(&'s self, seen: &'s [Seen]) -> Vec<(u64, Vec<(&'s Rtp, &'s Seen)>)> {
        let packets = self.packets.iter().zip(seen);
        let video: Vec<(&Rtp, &Seen)> = packets
            .filter(|(packet, _)| class(packet) == Class::Video)
            .collect();
        // A frame's packets follow each other.
        video
            .chunk_by(|(one, _), (other, _)| one.timestamp == other.timestamp)
            .map(|frame| (self.shown(frame[0].0), frame.to_vec()))
            .collect()
    }
}

fn ivf(parameters: &Parameters, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(b"DKIF\0\0\x20\0H264");
    file.extend((parameters.width as u16).to_le_bytes());
    file.extend((parameters.height as u16).to_le_bytes());
    file.extend(parameters.fps.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend((frames.len() as u32).to_le_bytes());
    file.extend([0; 4]);
    for (number, bytes) in frames {
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(number.to_le_bytes());
        file.extend(bytes);
    }
    file
}
