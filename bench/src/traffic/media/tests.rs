//! With a real ffmpeg, small and short.

use super::*;
use crate::traffic::tests::{adus, rate_kbit};

fn small() -> (tempfile::TempDir, Parameters) {
    let directory = tempfile::tempdir().expect("a directory");
    let parameters = Parameters {
        width: 160,
        height: 90,
        fps: 10,
        video_kbit: 200,
        key_frames_every: 20,
        directory: directory.path().to_owned(),
        ..Parameters::default()
    };
    (directory, parameters)
}

#[test]
fn media_are_recorded_once_and_judged_by_a_decoder() {
    let (_directory, parameters) = small();
    let schedule = parameters.schedule(6, 3).expect("a recording");
    let all = adus(&schedule);
    let frames: Vec<_> = all.iter().filter(|a| a.class == Class::Video).collect();
    assert_eq!(frames.len(), 60);
    for (n, frame) in (0..).zip(&frames) {
        assert_eq!(frame.at, n * 100 * MILLI);
        assert_eq!(frame.deadline - frame.at, 200 * MILLI);
        assert_eq!(frame.lasts, 1);
    }
    // With one disposable frame between two others, half of the frames are disposable,
    // three are key frames, and every packet of a frame has its priority.
    let mut priorities = std::collections::BTreeMap::new();
    for p in schedule.packets.iter().filter(|p| p.last) {
        *priorities.entry(p.priority).or_insert(0) += 1;
    }
    assert_eq!(priorities.get(&3), Some(&3), "{priorities:?}");
    let disposable = priorities.get(&7).copied().unwrap_or(0);
    assert!((25..=30).contains(&disposable), "{priorities:?}");
    // Of the others the later ones matter to fewer.
    let references: Vec<u8> = schedule
        .packets
        .iter()
        .filter(|p| p.last && (2 * SECOND..4 * SECOND).contains(&p.at) && p.priority < 7)
        .filter(|p| p.class == Class::Video)
        .map(|p| p.priority)
        .collect();
    assert!(references.is_sorted(), "{references:?}");
    for (priority, least) in [(3, 1), (4, 2), (5, 2), (6, 2)] {
        let found = references.iter().filter(|&&p| p == priority).count();
        assert!(found >= least, "{references:?}");
    }
    for p in &schedule.packets {
        let first = schedule.packets.iter().find(|other| other.adu == p.adu);
        assert_eq!(first.map(|first| first.priority), Some(p.priority));
    }
    let plain = Parameters {
        by_layer: false,
        ..parameters.clone()
    };
    let plain = plain.schedule(6, 3).expect("the recording");
    assert!(
        plain
            .packets
            .iter()
            .all(|p| p.priority == p.class.priority())
    );
    let audio = all.iter().filter(|a| a.class == Class::Audio).count();
    assert!((299..=301).contains(&audio), "{audio}");
    let rate = rate_kbit(&schedule, Class::Video);
    assert!((100.0..400.0).contains(&rate), "{rate}");
    let again = parameters.schedule(6, 3).expect("the recording");
    assert_eq!(schedule, again);

    let all_here = vec![true; schedule.packets.len()];
    let perfect = judge(&parameters, 6, 3, &all_here, 1.0).expect("a picture");
    assert_eq!((perfect.pictures, perfect.decoded), (50, 50));
    assert_eq!(perfect.intact, 50);
    assert_eq!(perfect.ssim, perfect.ssim_undisturbed);
    assert!(perfect.ssim > 0.8, "{perfect:?}");

    // The frame in the middle is late: until the next key frame nothing is intact that
    // refers to it, and the player shows what it has.
    let late = frames[30].at;
    let some: Vec<bool> = schedule
        .packets
        .iter()
        .map(|p| p.class == Class::Audio || p.at < late || p.at > late + 500 * MILLI)
        .collect();
    let hurt = judge(&parameters, 6, 3, &some, 1.0).expect("a picture");
    assert!(hurt.intact < 50 && hurt.intact >= 30, "{hurt:?}");
    assert!(hurt.decoded < 50, "{hurt:?}");
    assert!(hurt.ssim < perfect.ssim - 0.01, "{hurt:?}");

    let nothing = vec![false; schedule.packets.len()];
    let nothing = judge(&parameters, 6, 3, &nothing, 1.0).expect("a picture");
    assert_eq!((nothing.decoded, nothing.intact, nothing.ssim), (0, 0, 0.0));

    assert!(judge(&parameters, 6, 3, &[true], 0.0).is_err());
}

#[test]
fn seeds_that_follow_each_other_give_frames_of_other_sizes() {
    let (_directory, parameters) = small();
    let sizes = |seed| {
        let schedule = parameters.schedule(4, seed).expect("a recording");
        adus(&schedule)
            .into_iter()
            .filter(|adu| adu.class == Class::Video)
            .map(|adu| f64::from(adu.bytes))
            .collect::<Vec<_>>()
    };
    let (one, other) = (sizes(1), sizes(2));
    assert_eq!(one.len(), other.len());
    let by = |(a, b): (&f64, &f64)| (a / b - 1.0).abs();
    let mean = one.iter().zip(&other).map(by).sum::<f64>() / one.len() as f64;
    assert!(mean > 0.05, "frames differ by {:.1} % only", mean * 100.0);
}

#[test]
fn picture_is_judged_by_the_frames_that_are_left() {
    let (_directory, parameters) = small();
    let schedule = parameters.schedule(4, 3).expect("a recording");
    let of = |discard_first: f64, kept: fn(&Packet) -> bool| {
        let kept: Vec<bool> = schedule.packets.iter().map(kept).collect();
        judge(&parameters, 4, 3, &kept, discard_first).expect("a picture")
    };
    // Frames without any that they build on may give no picture, and that is no error.
    let picture = of(0.0, |p| p.priority == 7);
    assert_eq!(picture.intact, 0, "{picture:?}");
    assert!(picture.ssim < picture.ssim_undisturbed, "{picture:?}");

    // Without the last reference of each group, whose picture follows the one before it. What
    // is left shows whole, though frames that are all two apart look like half the rate.
    let picture = of(0.0, |p| p.priority < 6);
    let given = |p: &&Packet| p.class == Class::Video && p.last && p.priority < 6;
    let given = schedule.packets.iter().filter(given).count() as u64;
    assert_eq!((picture.decoded, picture.intact), (given, given));

    // A loss at the beginning moves no later picture: the second key frame makes good.
    let lost: fn(&Packet) -> bool = |p| p.class == Class::Audio || p.at > 500 * MILLI;
    let picture = of(2.0, lost);
    assert_eq!((picture.pictures, picture.intact), (20, 20), "{picture:?}");
    assert_eq!(picture.ssim, picture.ssim_undisturbed);
    let from_start = of(0.0, lost);
    assert!(from_start.ssim < picture.ssim / 1.2, "{from_start:?}");

    // A frozen picture is unlike what goes on.
    let picture = of(1.0, |p| p.at == 0);
    assert_eq!((picture.decoded, picture.intact), (0, 0), "{picture:?}");
    assert!(picture.ssim > 0.0 && picture.ssim < picture.ssim_undisturbed * 0.5);
}
