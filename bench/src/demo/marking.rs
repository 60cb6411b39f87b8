//! The claim of the demo's third column, without a clock: a frame that the relay
//! marks as needed by no other costs itself when it is given up, another one
//! costs more than itself. Needs ffmpeg.

#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, fs, path::Path};

use super::{
    media::{Decoded, Media, decode, encode, reference},
    relay::dscp,
    rtp::Layer,
};
use crate::run;

/// AF43: given up first.
const FIRST_TO_GO: u8 = 38;

/// A coded frame with what precedes it (parameter sets), and how the relay marks its picture.
struct Frame {
    bytes: Vec<u8>,
    layer: Layer,
    dscp: u8,
}

/// The frames of an H.264 byte stream with one slice each, in decoding order.
fn frames(stream: &[u8]) -> Vec<Frame> {
    let starts: Vec<usize> = (0..stream.len().saturating_sub(3))
        .filter(|at| stream[*at..].starts_with(&[0, 0, 1]))
        .collect();
    let mut frames = Vec::new();
    let mut bytes = Vec::new();
    for (n, start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(stream.len());
        let unit = &stream[start + 3..end];
        bytes.extend([0, 0, 0, 1]);
        bytes.extend(unit);
        // A picture, not what precedes it.
        if matches!(unit[0] & 0x1f, 1 | 5) {
            let layer = Layer::of_h264(unit).unwrap();
            frames.push(Frame {
                bytes: std::mem::take(&mut bytes),
                layer,
                dscp: dscp(layer),
            });
        }
    }
    frames
}

/// What a decoder makes of the frames that `keep` leaves.
fn decoded(
    directory: &Path,
    frames: &[Frame],
    reference: &HashSet<String>,
    keep: impl Fn(&Frame) -> bool,
) -> (u64, Decoded) {
    let kept: Vec<&Frame> = frames.iter().filter(|frame| keep(frame)).collect();
    let file = directory.join("kept.h264");
    let bytes: Vec<u8> = kept.iter().flat_map(|f| f.bytes.iter().copied()).collect();
    fs::write(&file, bytes).unwrap();
    (kept.len() as u64, decode(&file, reference).unwrap())
}

#[test]
fn frames_marked_to_go_first_are_needed_by_no_other() {
    let directory = std::env::temp_dir().join(format!("bbl-marking-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let media: Media = encode(&directory, 4).unwrap();
    let file = directory.join("all.h264");
    run::sh(&format!(
        "ffmpeg -v error -nostdin -y -i {} -map 0:v -c copy -f h264 {}",
        media.file.display(),
        file.display()
    ))
    .unwrap();
    let all = frames(&fs::read(&file).unwrap());
    assert_eq!(all.len() as u64, media.frames);
    let reference = reference(&media).unwrap();
    let decoded = |keep: &dyn Fn(&Frame) -> bool| decoded(&directory, &all, &reference, keep);
    let (kept, whole) = decoded(&|_| true);
    assert_eq!((whole.frames, whole.intact), (kept, kept), "nothing lost");

    // All of the marked ones: each of the others is still, pixel for pixel, what it was.
    let (kept, result) = decoded(&|frame| frame.dscp != FIRST_TO_GO);
    let marked = all.len() as u64 - kept;
    assert!(marked > kept, "{marked} of {} frames are marked", all.len());
    assert_eq!((result.frames, result.intact), (kept, kept));

    // Fewer frames, but such as others refer to: more is gone than was given up.
    let (kept, result) = decoded(&|frame| frame.layer != Layer::Reference);
    let given_up = all.len() as u64 - kept;
    assert!(given_up > 0 && given_up < marked, "{given_up} of {marked}");
    assert!(
        result.intact < kept / 2,
        "of {kept} frames {} are intact without the {given_up} they refer to",
        result.intact
    );
    fs::remove_dir_all(&directory).unwrap();
}
