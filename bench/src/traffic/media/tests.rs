//! With a real ffmpeg, small and short.

use super::*;
use crate::records::Seen;
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
fn media_frames_leave_at_their_times_with_the_priority_of_their_layer() {
    let (_directory, mut parameters) = small();
    let schedule = parameters.schedule(6, 3).expect("a recording");
    let all = adus(&schedule);
    let frames: Vec<_> = all.iter().filter(|a| a.class == Class::Video).collect();
    assert_eq!(frames.len(), 60);
    for (n, frame) in (0..).zip(&frames) {
        assert_eq!(frame.at, n * 100 * MILLI);
        assert_eq!(frame.deadline - frame.at, 200 * MILLI);
    }
    let audio = all.len() - frames.len();
    assert!((299..=301).contains(&audio), "{audio}");
    let rate = rate_kbit(&schedule, Class::Video);
    assert!((100.0..400.0).contains(&rate), "{rate}");

    let video = schedule.packets.iter().filter(|p| p.class == Class::Video);
    let mut priorities = std::collections::BTreeMap::new();
    for p in video.clone() {
        let frame = priorities.entry(p.adu).or_insert(p.priority);
        assert_eq!(
            *frame, p.priority,
            "every packet of a frame has its priority"
        );
    }
    let priorities: Vec<u8> = priorities.into_values().collect();
    let count = |of: &[u8], priority| of.iter().filter(|&&p| p == priority).count();
    // With one disposable frame between two others, half of the frames are disposable.
    assert_eq!(count(&priorities, 3), 3, "{priorities:?}");
    assert!((25..=30).contains(&count(&priorities, 7)), "{priorities:?}");
    // Of the others of a group of two seconds the later ones matter to fewer.
    let mut references = priorities[20..40].to_vec();
    references.retain(|&p| p < 7);
    assert!(references.is_sorted(), "{references:?}");
    for (priority, least) in [(3, 1), (4, 2), (5, 2), (6, 2)] {
        assert!(count(&references, priority) >= least, "{references:?}");
    }
    parameters.by_layer = false;
    let plain = parameters.schedule(6, 3).expect("the recording");
    let mut packets = plain.packets.iter();
    assert!(packets.all(|p| p.priority == p.class.priority()));
}

#[test]
fn media_seeds_that_follow_each_other_give_frames_of_other_sizes() {
    let (_directory, parameters) = small();
    let [one, other] = [1, 2].map(|seed| {
        let schedule = parameters.schedule(4, seed).expect("a recording");
        let mut frames = adus(&schedule);
        frames.retain(|adu| adu.class == Class::Video);
        frames
    });
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(&other);
    let apart = pairs.map(|(a, b)| (f64::from(a.bytes) / f64::from(b.bytes) - 1.0).abs());
    let mean = apart.sum::<f64>() / one.len() as f64;
    assert!(mean > 0.05, "frames differ by {:.1} % only", mean * 100.0);
}

#[test]
fn judge_of_media_shows_what_the_frames_that_are_left_make() {
    let (_directory, parameters) = small();
    let schedule = parameters.schedule(4, 3).expect("a recording");
    let came = |p: &Packet, arrived, on_time| Seen {
        created: p.at,
        wire_bytes: p.wire_bytes,
        arrived,
        on_time,
    };
    let of = |discard_first: f64, kept: fn(&Packet) -> bool| {
        let packets = schedule.packets.iter();
        let seen: Vec<Seen> = packets.map(|p| came(p, kept(p), kept(p))).collect();
        judge(&parameters, 4, 3, &seen, discard_first).expect("a picture")
    };
    let perfect = of(1.0, |_| true);
    assert_eq!((perfect.wasted_bytes, perfect.longest_freeze_ms), (0, 0.0));
    let all = (perfect.pictures, perfect.decoded, perfect.intact);
    assert_eq!(all, (30, 30, 30));
    assert_eq!(perfect.ssim, perfect.ssim_undisturbed);
    assert!(perfect.ssim > 0.8, "{perfect:?}");

    // Frames are late: until the next key frame nothing is intact that refers to them, and the
    // player shows what it has.
    let hurt = of(1.0, |p| {
        p.class == Class::Audio || !(1_200..=1_600).contains(&(p.at / MILLI))
    });
    assert!(hurt.intact < 30 && hurt.intact >= 20, "{hurt:?}");
    assert!(
        hurt.decoded < 30 && hurt.ssim < perfect.ssim - 0.01,
        "{hurt:?}"
    );

    let nothing = of(1.0, |_| false);
    assert_eq!((nothing.decoded, nothing.intact, nothing.ssim), (0, 0, 0.0));
    // What never left wastes nothing. What arrives late is wasted, all of it.
    let (wasted, frozen) = (nothing.wasted_bytes, nothing.longest_freeze_ms);
    assert_eq!((nothing.sent_bytes, wasted, frozen), (0, 0, 3_000.0));
    let seen: Vec<Seen> = schedule
        .packets
        .iter()
        .map(|p| came(p, true, false))
        .collect();
    let late = judge(&parameters, 4, 3, &seen, 1.0).expect("a picture");
    assert_eq!(late.sent_bytes, perfect.sent_bytes);
    assert_eq!(late.wasted_bytes, late.sent_bytes);
    assert!(judge(&parameters, 4, 3, &seen[1..], 0.0).is_err());

    // Without one packet of the second key frame its group is wasted, all that was sent of it. (And
    // ffmpeg may lose the last picture before it, where pictures begin to count anew.)
    let behind = |p: &&Packet| p.class == Class::Video && p.at >= 2 * SECOND;
    let second = schedule.packets.iter().position(|p| behind(&p));
    let seen = schedule.packets.iter().enumerate();
    let seen = seen.map(|(n, p)| came(p, Some(n) != second, Some(n) != second));
    let seen: Vec<Seen> = seen.collect();
    let picture = judge(&parameters, 4, 3, &seen, 0.0).expect("a picture");
    assert!((19..=20).contains(&picture.intact), "{picture:?}");
    assert_eq!(
        picture.longest_freeze_ms,
        (40 - picture.intact) as f64 * 100.0
    );
    let behind = schedule.packets.iter().filter(behind).skip(1);
    let least: u64 = behind.map(|p| u64::from(p.wire_bytes)).sum();
    assert!(picture.wasted_bytes >= least, "{picture:?}");
    assert!(
        picture.wasted_bytes < picture.sent_bytes * 2 / 3,
        "{picture:?}"
    );

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

#[test]
fn media_packets_begin_as_recorded_and_their_timestamps_go_back() {
    let (_directory, parameters) = small();
    let schedule = parameters.schedule(4, 3).expect("a recording");
    let recorded = |p: &Packet| p.recorded.expect("all of them are recorded");
    let video = schedule.packets.iter().filter(|p| p.class == Class::Video);
    let mut layers = std::collections::BTreeMap::new();
    let mut times = Vec::new();
    for p in video {
        let layer = Layer::of(&recorded(p).head).expect("H.264");
        assert_eq!(layer == Layer::Disposable, p.priority == 7);
        *layers.entry(p.priority).or_insert(0) += 1;
        if p.last {
            times.push(recorded(p).timestamp);
        }
    }
    assert!(
        layers.contains_key(&3) && layers.contains_key(&7),
        "{layers:?}"
    );
    // A disposable picture is shown before the one that was sent before it, 100 ms each.
    let steps = times.windows(2).map(|t| t[1].wrapping_sub(t[0]) as i32);
    let back = steps.clone().filter(|&step| step == -9_000).count();
    assert!((15..=20).contains(&back), "{times:?}");
    assert!(steps.clone().all(|step| step % 9_000 == 0), "{times:?}");
    let audio = schedule.packets.iter().filter(|p| p.class == Class::Audio);
    let times: Vec<u32> = audio.map(|p| recorded(p).timestamp).collect();
    assert!(times.windows(2).all(|t| t[1].wrapping_sub(t[0]) == 960));
}

/// What the structure says can be decoded is what a decoder makes of it.
#[test]
fn media_references_are_those_that_a_decoder_needs() {
    let (_directory, parameters) = small();
    let schedule = parameters.schedule(4, 3).expect("a recording");
    let frames = parameters.references(4, 3, 0.0).expect("references");
    assert_eq!(frames.len(), 40);
    assert!(frames.iter().all(|frame| frame.counts));
    assert_eq!(frames.iter().filter(|f| f.needs.is_empty()).count(), 2);
    assert!(frames.iter().any(|frame| frame.needs.len() == 2));
    let link = |rate| crate::bound::Link::of_path(rate, 40 * MILLI);
    let most = |rate| intact::on(&schedule, link(rate), &frames);
    assert_eq!(most(10_000_000), Some(40));
    assert!(most(180_000) < Some(40) && most(180_000) > Some(2));
    let late = parameters.references(4, 3, 2.5).expect("references");
    assert_eq!(late.iter().filter(|frame| frame.counts).count(), 15);

    // Without the frames at these places in decoding order.
    for lost in [
        &[][..],
        &[2],
        &[7],
        &[3, 5, 24],
        &[19],
        &[38],
        &[21, 30],
        &[25, 26, 27],
    ] {
        let is_lost = |adu: u32| lost.iter().any(|&at: &usize| frames[at].adu == adu);
        let seen = schedule.packets.iter().map(|p| Seen {
            created: p.at,
            wire_bytes: p.wire_bytes,
            arrived: !is_lost(p.adu),
            on_time: !is_lost(p.adu),
        });
        let seen: Vec<Seen> = seen.collect();
        let picture = judge(&parameters, 4, 3, &seen, 0.0).expect("a picture");
        let mut whole = std::collections::BTreeSet::new();
        for frame in &frames {
            if !is_lost(frame.adu) && frame.needs.iter().all(|of| whole.contains(of)) {
                whole.insert(frame.adu);
            }
        }
        assert_eq!(
            picture.intact,
            whole.len() as u64,
            "without {lost:?}: {picture:?}"
        );
    }
}
