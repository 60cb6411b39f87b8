//! Properties of `include/bb_role.h`, compiled natively (`src/role_native.c`): what the payload of video says of its
//! frames, and that nothing is said of what may be something else.

mod video;

use bestby_bpf::abi::BB_VIDEO_STEADY;
use proptest::prelude::*;
use video::{Role::*, *};

unsafe extern "C" {
    safe fn bbn_role_priority_told(roles: u32, role: u32) -> u32;
}

/// A unit of H.264 with this header byte in so many packets.
fn h264(header: u8, packets: usize) -> Vec<Vec<u8>> {
    if packets == 1 {
        return vec![vec![header, 0x9a, 0x12, 0x34]];
    }
    (0..packets)
        .map(|i| {
            let ends = u8::from(i == 0) << 7 | u8::from(i + 1 == packets) << 6;
            vec![header & 0xE0 | 28, ends | header & 31, 0x12, 0x34]
        })
        .collect()
}

/// The same of H.265: its type and temporal level.
fn h265(kind: u8, level: u8, packets: usize) -> Vec<Vec<u8>> {
    if packets == 1 {
        return vec![vec![kind << 1, level + 1, 0x12, 0x34]];
    }
    (0..packets)
        .map(|i| {
            let ends = u8::from(i == 0) << 7 | u8::from(i + 1 == packets) << 6;
            vec![49 << 1, level + 1, ends | kind, 0x34]
        })
        .collect()
}

/// A frame of VP8 with a picture id of 15 bits, TL0PICIDX and a temporal level.
fn vp8(key: bool, level: u8, leaf: bool, packets: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|i| {
            let begins = if i == 0 { 0x10 } else { 0 };
            let mut packet = vec![0x80 | u8::from(leaf) << 5 | begins, 0xE0, 0x92, 0x34, 7];
            packet.push(level << 6);
            packet.extend([u8::from(!key), 2, 3, 0x9D, 0x01, 0x2A]);
            packet
        })
        .collect()
}

/// A group of 30: an access unit of parameter sets and an IDR, then references.
fn ippp(n: usize) -> Vec<Vec<u8>> {
    match n % 30 {
        0 => [h264(0x67, 1), h264(0x68, 1), h264(0x65, 4)].concat(),
        n => h264(0x41, 1 + n % 3),
    }
}

#[test]
fn h264_says_key_link_and_leaf_once_it_is_known() {
    let mut stream = Stream::default();
    for n in 0..SURE {
        assert!(
            stream.frame(&ippp(n)).iter().all(|role| *role == None),
            "{n}"
        );
    }
    assert_eq!(stream.frame(&h264(0x41, 3)), [Link; 3]);
    assert_eq!(stream.video.codec, H264);
    assert_eq!(stream.frame(&h264(0x01, 2)), [Leaf; 2]);
    // A delimiter and SEI say nothing of the frame, and have NRI 0.
    let frame = [vec![vec![0x09, 0xF0], vec![0x06, 5, 4]], h264(0x41, 2)].concat();
    assert_eq!(stream.frame(&frame), [None, None, Link, Link]);
    // Behind the picture they are for what it is for.
    let frame = [h264(0x01, 2), vec![vec![0x06, 5, 4]]].concat();
    assert_eq!(stream.frame(&frame), [Leaf; 3]);
    assert_eq!(stream.frame(&ippp(0)), [Key; 6]);
    // In one packet: parameter sets, or what is behind a delimiter.
    let sets = vec![24, 0, 9, 0x67, 1, 2, 3];
    assert_eq!(stream.frame(&[sets])[0], Key);
    let delimited = vec![24, 0, 2, 0x09, 0xF0, 0, 9, 0x01];
    assert_eq!(stream.frame(&[delimited])[0], Leaf);
}

#[test]
fn h265_says_its_levels() {
    let frame = |n: usize| match n % 8 {
        0 => [h265(32, 0, 1), h265(19, 0, 3)].concat(),
        n if n % 2 == 1 => h265(2, 1, 1),
        _ => h265(1, 0, 2),
    };
    let mut stream = Stream::of(SURE + 8, frame);
    assert_eq!(stream.video.codec, H265);
    assert_eq!(stream.frame(&h265(1, 0, 2)), [Link; 2]);
    assert_eq!(stream.frame(&h265(2, 1, 1)), [Leaf]);
    assert_eq!(stream.frame(&h265(3, 1, 1)), [Link1]);
    assert_eq!(stream.frame(&h265(19, 0, 2)), [Key; 2]);
}

#[test]
fn vp8_says_its_levels_and_that_nothing_needs_the_highest() {
    let levels = [0, 2, 1, 2];
    let frame = |n: usize| vp8(n.is_multiple_of(60), levels[n % 4], false, 1 + n % 2);
    let mut stream = Stream::of(SURE + 4, frame);
    assert_eq!(stream.video.codec, VP8);
    assert_eq!(stream.frame(&vp8(false, 0, false, 2)), [Link; 2]);
    assert_eq!(stream.frame(&vp8(false, 1, false, 1)), [Link1]);
    assert_eq!(stream.frame(&vp8(false, 2, false, 1)), [Leaf]);
    assert_eq!(stream.frame(&vp8(false, 0, true, 1)), [Leaf]);
    assert_eq!(stream.frame(&vp8(true, 0, false, 3)), [Key; 3]);
    // As ffmpeg writes it: a descriptor of one byte.
    let short = |key: bool| {
        vec![
            vec![0x10, u8::from(!key), 2, 3, 0x9D, 1, 0x2A],
            vec![0, 9, 9],
        ]
    };
    let mut stream = Stream::of(SURE + 1, |n| short(n == 0));
    assert_eq!(stream.frame(&short(false)), [Link; 2]);
    assert_eq!(stream.frame(&short(true)), [Key; 2]);
}

/// A frame of VP9 with a picture id of 15 bits and, if it has layers, its temporal and spatial ones.
fn vp9(key: bool, layer: Option<(u8, u8)>, packets: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|i| {
            let ends = u8::from(i == 0) << 3 | u8::from(i + 1 == packets) << 2;
            let first = 0x80 | u8::from(!key) << 6 | u8::from(layer.is_some()) << 5 | ends;
            let mut packet = vec![first, 0x92, 0x34];
            if let Some((temporal, spatial)) = layer {
                packet.extend([temporal << 5 | spatial << 1, 7]);
            }
            packet.extend([0x12; 8]);
            packet
        })
        .collect()
}

#[test]
fn vp9_says_its_levels_and_a_picture_may_have_several_frames() {
    let levels = [0, 2, 1, 2];
    let frame = |n: usize| vp9(n.is_multiple_of(60), Some((levels[n % 4], 0)), 1 + n % 2);
    let mut stream = Stream::of(SURE + 4, frame);
    assert_eq!(stream.video.codec, VP9);
    assert_eq!(stream.frame(&vp9(false, Some((0, 0)), 2)), [Link; 2]);
    assert_eq!(stream.frame(&vp9(false, Some((1, 0)), 1)), [Link1]);
    assert_eq!(stream.frame(&vp9(false, Some((2, 0)), 1)), [Leaf]);
    assert_eq!(stream.frame(&vp9(true, Some((0, 0)), 3)), [Key; 3]);
    // Two spatial layers under one timestamp: the upper one of a key frame refers to the lower.
    let picture = |n: usize, key: bool| {
        let upper = |packet: Vec<u8>| {
            [
                &[packet[0], packet[1], packet[2], packet[3] | 3][..],
                &packet[4..],
            ]
            .concat()
        };
        let above = vp9(key, Some((0, 0)), 2).into_iter().map(upper).collect();
        [vp9(key, Some((0, 0)), 1 + n % 2), above].concat()
    };
    let mut stream = Stream::of(SURE + 1, |n| picture(n, n == 0));
    assert_eq!(stream.video.codec, VP9);
    assert_eq!(stream.frame(&picture(0, true)), [Key; 3]);
    assert_eq!(stream.frame(&picture(1, false)), [Link; 4]);
}

/// As GStreamer's rtpvp9pay writes it by default: no picture id, and a description of the layers in front of
/// each key frame.
#[test]
fn vp9_key_frame_behind_a_description_of_its_layers_is_known() {
    let frame = |key: bool| {
        if key {
            let first = [0x0A, 0x18, 2, 0x80, 1, 0x68, 1, 4, 1, 0x82, 0x49, 0x83];
            vec![first.to_vec(), vec![0, 9, 9], vec![4, 9, 9]]
        } else {
            vec![vec![0x48, 0x86, 0, 0x40, 0x92], vec![0x44, 9, 9]]
        }
    };
    let mut stream = Stream::of(2 * 60 + 1, |n| frame(n.is_multiple_of(60)));
    assert_eq!(stream.video.codec, VP9);
    assert_eq!(stream.video.group, 60);
    assert_eq!(stream.frame(&frame(false)), [Link; 2]);
    assert_eq!(stream.frame(&frame(true)), [Key; 3]);
}

/// A frame of AV1: one OBU in so many packets, with or without its extension.
fn av1(key: bool, level: Option<u8>, packets: usize) -> Vec<Vec<u8>> {
    (0..packets)
        .map(|i| {
            let goes_on = u8::from(i > 0) << 7 | u8::from(i + 1 < packets) << 6;
            let begins = u8::from(key && i == 0) << 3;
            let mut packet = vec![goes_on | 0x10 | begins];
            if i == 0 {
                packet.push(6 << 3 | u8::from(level.is_some()) << 2);
                packet.extend(level.map(|level| level << 5));
            }
            packet.extend([0x99; 9]);
            packet
        })
        .collect()
}

#[test]
fn av1_says_key_frames_and_levels_if_it_has_them() {
    let levels = [0, 2, 1, 2];
    let frame = |n: usize| av1(n.is_multiple_of(60), Some(levels[n % 4]), 1 + n % 3);
    let mut stream = Stream::of(SURE + 4, frame);
    assert_eq!(stream.video.codec, AV1);
    assert_eq!(stream.frame(&av1(false, Some(0), 3)), [Link; 3]);
    assert_eq!(stream.frame(&av1(false, Some(1), 2)), [Link1; 2]);
    assert_eq!(stream.frame(&av1(false, Some(2), 2)), [Leaf; 2]);
    assert_eq!(stream.frame(&av1(true, Some(0), 3)), [Key; 3]);
    let mut stream = Stream::of(SURE + 1, |n| av1(n == 0, Option::None, 1 + n % 3));
    assert_eq!(stream.frame(&av1(false, Option::None, 2)), [Link; 2]);
    // Two OBUs with their lengths: a sequence header before the frame.
    let two = vec![0x28, 11, 1 << 3, 0, 0, 0];
    assert_eq!(stream.frame(&[two]), [Key]);
    // A type that no stream has, or the start of a sequence in the middle: not AV1.
    for wrong in [vec![0x10, 12 << 3, 0], vec![0x10, 0x81, 0]] {
        stream.frame(&[wrong]);
    }
    assert_eq!(stream.frame(&av1(false, Option::None, 2)), [None; 2]);
    assert_eq!(stream.video.codec, 0);
}

#[test]
fn picture_that_is_shown_before_one_sent_before_is_a_link_for_those_around_it() {
    let mut stream = Stream::of(SURE + 1, ippp);
    stream.time = 1_000_000;
    stream.frame(&h264(0x41, 2));
    let time = stream.time;
    // In the order of decoding: P, B that is referred to, B, P.
    assert_eq!(stream.frame_at(time + 9000, &h264(0x41, 2)), [Link; 2]);
    assert_eq!(stream.frame_at(time + 3000, &h264(0x41, 2)), [Link1; 2]);
    assert_eq!(stream.frame_at(time + 6000, &h264(0x01, 2)), [Leaf; 2]);
    assert_eq!(stream.frame_at(time + 12000, &h264(0x41, 1)), [Link]);
    // A sender that begins anew is no B picture, nor is one whose timestamps wrap.
    assert_eq!(stream.frame_at(time - 900_000, &h264(0x41, 1)), [Link]);
    stream.frame_at(u32::MAX - 1000, &h264(0x41, 1));
    assert_eq!(stream.frame_at(2000, &h264(0x41, 1)), [Link]);
}

/// A call's encoder makes a key frame when the receiver asks for one, which it does when it misses a packet.
#[test]
fn key_frames_on_demand_are_no_regular_ones() {
    let steady = |groups: &[usize]| {
        let mut stream = Stream::of(SURE + 1, |n| h264(if n == 0 { 0x65 } else { 0x41 }, 2));
        for length in groups {
            stream.frame(&h264(0x65, 2));
            for _ in 1..*length {
                stream.frame(&h264(0x41, 1));
            }
        }
        stream.frame(&h264(0x65, 2));
        u32::from(stream.video.key) & BB_VIDEO_STEADY != 0
    };
    assert!(steady(&[60, 60]));
    // Now and then a scene changes, and one is late.
    assert!(steady(&[60, 60, 25, 60, 60]));
    assert!(steady(&[60, 66]));
    assert!(!steady(&[60, 60, 25]));
    assert!(!steady(&[170, 12]));
    // As groups grow where a chain lasts until its end is overdue, and only then the receiver asks.
    assert!(!steady(&[12, 19]));
    assert!(!steady(&[12, 19, 29]));
}

#[test]
fn later_thirds_of_a_group_matter_less() {
    // The first key frame with which the codec is known tells it, by the one before.
    let mut stream = Stream::of(61, ippp);
    assert_eq!((stream.video.group, stream.video.position), (30, 0));
    for first in 0..SURE {
        let stream = Stream::of(SURE + 31, |n| match n {
            n if n % 30 == first % 30 => h264(0x65, 2),
            _ => h264(0x41, 1),
        });
        let since = (SURE + 30 - first) % 30;
        let want = (30, since as u16);
        assert_eq!((stream.video.group, stream.video.position), want, "{first}");
    }
    let mut seen = Vec::new();
    for n in 1..30 {
        stream.frame(&ippp(n));
        seen.push(stream.priority(Link, false));
    }
    assert_eq!(
        (seen[0], seen[8], seen[9], seen[19], seen[28]),
        (4, 4, 5, 6, 6)
    );
    assert_eq!(stream.priority(Key, false), 3);
    assert_eq!(stream.priority(Leaf, false), 7);
    // Mode tc: only what nothing needs.
    let refuses = [Key, Link, Link1, Link2, Leaf].map(|role| stream.priority(role, true));
    assert_eq!(refuses, [3, 3, 3, 3, 7]);
    // A group whose length is not known: none of it matters less.
    let mut stream = Stream::of(SURE + 60, |n| h264(if n == 0 { 0x65 } else { 0x41 }, 2));
    stream.frame(&h264(0x41, 2));
    assert_eq!(stream.priority(Link, false), 4);
}

#[test]
fn priorities_of_a_rule_are_by_role_alone() {
    let told = |given: [u32; 5], role| {
        let roles = given.iter().rev().fold(0, |all, one| all << 3 | one);
        bbn_role_priority_told(roles, role)
    };
    let of = |given| [1, 2, 3, 4, 5].map(|role| told(given, role));
    for given in [[3, 4, 5, 6, 7], [0, 0, 1, 6, 6], [7; 5]] {
        assert_eq!(of(given), given);
        // What says nothing, and what a later version may say, is a link.
        assert_eq!([0, 6, 7, 300].map(|role| told(given, role)), [given[1]; 4]);
    }
}

#[test]
fn two_wrong_frames_end_it_and_one_does_not() {
    let mut stream = Stream::of(60, ippp);
    // The first bit of a unit's header is 0.
    let wrong = vec![vec![0xC1, 0x9a, 0x12, 0x34]];
    stream.frame(&wrong);
    assert_eq!(stream.frame(&h264(0x41, 2)), [Link; 2]);
    for n in 1..65 {
        stream.frame(&h264(0x41, 1 + n % 3));
    }
    stream.frame(&wrong);
    stream.frame(&h264(0x41, 2));
    assert_eq!(stream.video.codec, H264);
    stream.frame(&wrong);
    assert_eq!(stream.frame(&h264(0x41, 2)), [None; 2]);
    assert_eq!(stream.video.codec, 0);
    for _ in 0..SURE {
        stream.frame(&h264(0x41, 2));
    }
    assert_eq!(stream.frame(&h264(0x41, 2)), [Link; 2]);
}

/// As behind a relay with several threads (rtpengine has one for each CPU), or a path that loses packets.
#[test]
fn packets_missing_or_out_of_order_do_not_end_it() {
    let mut stream = Stream::of(60, ippp);
    for n in 0..20 {
        let whole = h264(if n % 5 == 0 { 0x65 } else { 0x41 }, 4);
        let want = if n % 5 == 0 { Key } else { Link };
        let [first, second, third, last] = [0, 1, 2, 3].map(|i: usize| whole[i].clone());
        stream.frame(&[first.clone(), third.clone(), second.clone(), last.clone()]);
        // Without an end, without a marker.
        stream.time += 3000;
        assert_eq!(stream.packet(&first, true, false), want);
        assert_eq!(stream.packet(&third, false, false), want);
        // Without a beginning.
        assert_eq!(stream.frame(&[second, third, last]), [want; 3]);
    }
    assert_eq!(stream.video.codec, H264);
}

/// Opus in stereo begins with 0xfc, as VP9 with layers may; G.711 of silence with 0x7f or 0xd5, and so on.
#[test]
fn nothing_is_said_of_audio() {
    let mut seed = 11;
    for first in 0..=255u8 {
        let mut audio = Stream::default();
        for n in 0..200u32 {
            audio.time += 960;
            let mut packet = noise::<12>(&mut seed);
            packet[0] = first;
            // The marker begins a talkspurt.
            assert_eq!(audio.packet(&packet, true, n % 50 == 0), None);
        }
        assert_eq!(audio.video.codec, OPAQUE, "{first:#x}");
    }
}

#[test]
fn nothing_is_said_of_encrypted_payload() {
    let mut seed = 7;
    for stream in 0..20_000u32 {
        let mut video = Stream::default();
        for n in 0..200u32 {
            let packets = 1 + (n * 7 + stream) % 3;
            for i in 0..packets {
                let role = video.packet(&noise::<12>(&mut seed), i == 0, i + 1 == packets);
                assert_eq!(role, None);
            }
        }
        assert_eq!(video.video.codec, OPAQUE);
    }
}

/// The lab's models that know sizes only begin their payloads like this (`NOTHING` in `bench/src/traffic/wire.rs`).
#[test]
fn nothing_is_said_of_what_no_codec_begins_with() {
    let stream = Stream::of(200, |n| vec![vec![0x1f; 12]; 1 + n % 3]);
    assert_eq!(stream.video.codec, OPAQUE);
}

proptest! {
    /// Whatever comes, the functions stay within their bytes, and a stream is of a codec only if frames said so.
    #[test]
    fn any_packets_are_read(packets in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..14), any::<bool>(), any::<bool>()), 0..300)) {
        let mut stream = Stream::default();
        for (payload, first, last) in packets {
            stream.packet(&payload, first, last);
            prop_assert!(stream.video.levels <= 6 && stream.video.tried.iter().all(|n| *n <= 32));
        }
    }

    /// However a stream of H.264 is cut into packets, it is known after 32 frames.
    #[test]
    fn h264_in_any_packets_is_known(cuts in prop::collection::vec(1usize..6, 33..80)) {
        let mut stream = Stream::default();
        for (n, cut) in cuts.iter().enumerate() {
            let header = if n % 20 == 0 { 0x65 } else if n % 3 == 0 { 0x01 } else { 0x61 };
            let want = match header { 0x65 => Key, 0x01 => Leaf, _ => Link };
            for role in stream.frame(&h264(header, *cut)) {
                prop_assert_eq!(role, if n < SURE { None } else { want });
            }
        }
        prop_assert_eq!(stream.video.codec, H264);
    }
}
