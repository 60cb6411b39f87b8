//! Properties of `include/bb_ts.h`: what the packets of MPEG-TS in a datagram say of a picture.

#![allow(clippy::unwrap_used)]

mod mpeg;

use mpeg::{Place::*, Role::*, *};
use proptest::prelude::*;

/// An access unit of H.264, behind a delimiter that tells nothing, as ffmpeg writes it.
fn h264(header: u8) -> Vec<u8> {
    [
        &[0, 0, 0, 1, 9, 0xF0, 0, 0, 0, 1, header][..],
        &[0x9a, 2, 3],
    ]
    .concat()
}

const IDR: u8 = 0x65;
const REFERENCE: u8 = 0x41;
const DISPOSABLE: u8 = 0x01;

/// A stream of pictures of three packets, each in a datagram of its own.
struct Sender {
    mux: Mux,
    stream: Stream,
    pts: u32,
}

impl Sender {
    /// A stream of this type whose pictures begin with these units.
    fn of(kind: u8, pictures: usize, unit: impl Fn(usize) -> (bool, Vec<u8>)) -> Self {
        let mut sender = Self {
            mux: Mux::default(),
            stream: Stream::default(),
            pts: 0,
        };
        for n in 0..pictures {
            if n % 3 == 0 {
                let map = sender.mux.map(&[(15, AUDIO), (kind, VIDEO)]);
                sender.stream.read(&map);
            }
            let (random, unit) = unit(n);
            sender.picture(random, &unit);
        }
        sender
    }

    fn ippp(pictures: usize) -> Self {
        Self::of(0x1B, pictures, |n| {
            let key = n % 30 == 0;
            (key, h264(if key { IDR } else { REFERENCE }))
        })
    }

    fn picture(&mut self, random: bool, unit: &[u8]) -> Place {
        self.picture_at(self.pts + 3600, random, unit)
    }

    fn picture_at(&mut self, pts: u32, random: bool, unit: &[u8]) -> Place {
        self.pts = pts;
        let packets = self.mux.picture(pts, random, unit, 3).concat();
        self.stream.read(&packets).unwrap()
    }

    fn role(&mut self, random: bool, unit: &[u8]) -> Role {
        match self.picture(random, unit) {
            Picture(_, role) => role,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ts_h264_pictures_say_what_they_are_for_once_it_is_known() {
    // The first map comes before the first picture, when no PID is known yet.
    let sender = Sender::ippp(SURE + 3);
    assert!(!sender.stream.known());
    let mut sender = Sender::ippp(SURE + 4);
    assert_eq!(sender.stream.video.codec, H264);
    assert_eq!(sender.role(true, &h264(IDR)), Key);
    assert_eq!(sender.role(false, &h264(IDR)), Key);
    assert_eq!(sender.role(false, &h264(REFERENCE)), Link);
    assert_eq!(sender.role(false, &h264(DISPOSABLE)), Leaf);
    // I slices with the indicator are where decoders begin; P slices with it (intra refresh) are not.
    for (slice, role) in [(0x88, Key), (0xB4, Key), (0x9a, Link)] {
        let unit = [0, 0, 1, 0x61, slice, 1, 2];
        assert_eq!(sender.role(true, &unit), role);
    }
    // SEI and parameter sets before it.
    let sets = [
        &[0, 0, 0, 1, 9, 0x10, 0, 0, 1, 0x67, 1, 0, 0, 3, 1][..],
        &[0, 0, 1, 0x68, 1, 0, 0, 1, 6, 5, 4, 0x80],
        &h264(IDR),
    ];
    assert_eq!(sender.role(true, &sets.concat()), Key);
    assert_eq!(
        sender.role(
            false,
            &[&[0, 0, 1, 6, 1, 2, 3], &h264(DISPOSABLE)[..]].concat()
        ),
        Leaf
    );
    let group = Sender::ippp(61).stream.video;
    assert_eq!((group.group, group.position), (30, 0));
}

#[test]
fn ts_h265_and_mpeg2_say_it_too() {
    let h265 = |kind: u8, level: u8| {
        [
            &[0, 0, 0, 1, 0x46, 1, 0x50, 0, 0, 1, kind << 1][..],
            &[level + 1, 0x80, 3],
        ]
        .concat()
    };
    let mut sender = Sender::of(0x24, SURE + 8, |n| match n % 8 {
        0 => (true, h265(19, 0)),
        n if n % 2 == 1 => (false, h265(2, 1)),
        _ => (false, h265(1, 0)),
    });
    assert_eq!(sender.stream.video.codec, H265);
    assert_eq!(sender.role(false, &h265(1, 0)), Link);
    assert_eq!(sender.role(false, &h265(2, 1)), Leaf);
    assert_eq!(sender.role(false, &h265(3, 1)), Link1);
    assert_eq!(sender.role(true, &h265(21, 0)), Key);

    let mpeg2 = |kind: u8| vec![0, 0, 1, 0, 0x12, 0x40 | kind << 3, 0xFF];
    let mut sender = Sender::of(2, SURE + 4, |n| {
        (false, mpeg2(if n % 12 == 0 { 1 } else { 2 }))
    });
    assert_eq!(sender.stream.video.codec, MPEG2);
    let sequence = [
        &[0, 0, 1, 0xB3, 0x14, 0, 0xF0, 0x23, 0, 0, 1, 0xB8, 0, 8, 0][..],
        &mpeg2(1),
    ];
    assert_eq!(sender.role(true, &sequence.concat()), Key);
    assert_eq!(sender.role(false, &mpeg2(2)), Link);
    assert_eq!(sender.role(false, &mpeg2(3)), Leaf);
}

#[test]
fn ts_picture_whose_slice_is_not_found_is_what_indicator_and_delimiter_say() {
    let mut sender = Sender::ippp(SURE + 4);
    for (random, delimiter, role) in [
        (true, 0x10, Key),
        (false, 0x30, Link),
        (false, 0x50, Link1),
        (false, 0xF0, Link),
    ] {
        // SEI without an end.
        let unit = [&[0, 0, 1, 9, delimiter, 0, 0, 1, 6][..], &[5; 200]].concat();
        let packets = sender.mux.picture(sender.pts, random, &unit, 10);
        sender.pts += 3600;
        assert_eq!(sender.stream.read(&packets[..7].concat()), Some(Alone));
        match sender.stream.read(&packets[7..].concat()) {
            Some(Picture(_, told)) => assert_eq!(told, role),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn ts_pts_that_goes_back_is_that_of_a_b_picture() {
    let mut sender = Sender::ippp(SURE + 4);
    let pts = sender.pts;
    for (after, header, want) in [
        (3, REFERENCE, Link),
        (1, REFERENCE, Link1),
        (2, DISPOSABLE, Leaf),
        (4, REFERENCE, Link),
        (3, IDR, Key),
    ] {
        let place = sender.picture_at(pts + after * 3600, false, &h264(header));
        assert!(
            matches!(place, Picture(_, role) if role == want),
            "{place:?}"
        );
    }
    // A file that begins again, and PTS that wrap.
    let place = sender.picture_at(pts - 90_000, false, &h264(REFERENCE));
    assert!(matches!(place, Picture(_, Link)));
    sender.picture_at(1 << 31, false, &h264(REFERENCE));
    sender.picture_at(u32::MAX - 1000, false, &h264(REFERENCE));
    let place = sender.picture_at(2600, false, &h264(REFERENCE));
    assert!(matches!(place, Picture(_, Link)));
}

#[test]
fn ts_datagram_belongs_to_the_more_important_of_its_pictures() {
    for (first, second, of) in [
        (REFERENCE, DISPOSABLE, 0),
        (DISPOSABLE, REFERENCE, 1),
        (IDR, REFERENCE, 0),
        (REFERENCE, IDR, 1),
        // Of equals the earlier one.
        (REFERENCE, REFERENCE, 0),
        (DISPOSABLE, DISPOSABLE, 0),
    ] {
        let mut sender = Sender::ippp(SURE + 4);
        let one = sender
            .mux
            .picture(sender.pts + 3600, false, &h264(first), 9);
        let two = sender
            .mux
            .picture(sender.pts + 7200, false, &h264(second), 9);
        let all = [one, two].concat();
        let places: Vec<_> = all
            .chunks(6)
            .map(|packets| {
                let place = sender.stream.read(&packets.concat()).unwrap();
                (place, sender.stream.ends)
            })
            .collect();
        let [
            (Picture(a, _), false),
            (Picture(middle, _), ends),
            (Picture(b, _), false),
        ] = places[..]
        else {
            panic!("{places:?}");
        };
        assert_eq!(
            (b, middle, ends),
            (a + 1, a + of, of == 0),
            "{first:x} {second:x}"
        );
    }
}

#[test]
fn ts_datagram_with_anything_beside_the_video_is_of_no_picture() {
    let mut sender = Sender::ippp(SURE + 4);
    let begin = sender
        .mux
        .picture(sender.pts + 3600, false, &h264(DISPOSABLE), 30);
    let audio = sender.mux.audio(1).remove(0);
    let map = sender.mux.map(&[(0x1B, VIDEO)]);
    let clock = sender.mux.packet(VIDEO, false, 0x10, &[]);
    let Some(Picture(number, Leaf)) = sender.stream.read(&begin[..3].concat()) else {
        panic!();
    };
    // Null packets are nothing.
    let with_null = [begin[3].clone(), Mux::null()].concat();
    assert_eq!(sender.stream.read(&with_null), Some(Picture(number, Leaf)));
    let mut at = 4;
    for beside in [audio.clone(), map.clone(), clock.clone()] {
        let before = sender.stream.read(&begin[at]).unwrap();
        let mixed = [begin[at + 1].clone(), beside].concat();
        assert_eq!(sender.stream.read(&mixed), Some(Alone));
        // What follows is an ADU of its own, so that it leaves behind it.
        let Some(Picture(after, Leaf)) = sender.stream.read(&begin[at + 2]) else {
            panic!();
        };
        assert!(matches!(before, Picture(before, Leaf) if before + 1 == after));
        at += 3;
    }
    // Without any of the video it interrupts nothing.
    let before = sender.stream.read(&begin[at]).unwrap();
    for beside in [audio, map, clock] {
        assert_eq!(sender.stream.read(&beside), Some(Alone));
    }
    assert_eq!(sender.stream.read(&Mux::null()), Some(Nothing));
    assert_eq!(sender.stream.read(&begin[at + 1]), Some(before));
}

#[test]
fn ts_second_video_ends_it_and_so_do_two_false_beginnings() {
    let mut sender = Sender::ippp(SURE + 4);
    let other = sender.mux.pes(0x200, 0xE0, 0, false, &h264(REFERENCE), 2);
    sender.stream.read(&other.concat());
    assert_eq!(sender.stream.video.codec, OPAQUE);

    let mut sender = Sender::ippp(SURE + 4);
    for known in [true, false] {
        let wrong = sender.mux.packet(VIDEO, true, 0, &[0x99; 184]);
        assert_eq!(sender.stream.read(&wrong), Some(Alone));
        assert_eq!(sender.stream.known(), known);
        sender.picture(false, &h264(REFERENCE));
    }
    // One in 64 pictures is forgotten.
    let mut sender = Sender::ippp(SURE + 4);
    for _ in 0..3 {
        let wrong = sender.mux.packet(VIDEO, true, 0, &[0x99; 184]);
        sender.stream.read(&wrong);
        for _ in 0..66 {
            sender.picture(false, &h264(REFERENCE));
        }
    }
    assert!(sender.stream.known());
}

#[test]
fn ts_whose_pictures_are_not_told_is_never_known() {
    // No map; a type that is not read (VC-1); scrambled; packets missing.
    let unit = |n: usize| {
        (
            n.is_multiple_of(20),
            h264(if n.is_multiple_of(20) { IDR } else { REFERENCE }),
        )
    };
    assert!(!Sender::of(0xEA, 200, unit).stream.known());
    let mut mux = Mux::default();
    let mut streams: [Stream; 3] = Default::default();
    for n in 0..400 {
        let (random, unit) = unit(n);
        let map = mux.map(&[(0x1B, VIDEO)]);
        let mut packets = mux.picture(n as u32 * 3600, random, &unit, 4);
        streams[0].read(&packets.concat());
        streams[1].read(&map);
        if n % 20 == 7 {
            streams[1].read(&packets[..3].concat());
        } else {
            streams[1].read(&packets.concat());
        }
        streams[2].read(&map);
        packets.iter_mut().for_each(|packet| packet[3] |= 0x80);
        streams[2].read(&packets.concat());
    }
    for stream in streams {
        assert_eq!(stream.video.codec, 0);
    }
}

#[test]
fn ts_other_programme_maps_and_types_that_change_are_no_harm() {
    let mut sender = Sender::ippp(SURE + 4);
    let map = sender.mux.map(&[(2, 0x500), (15, 0x501)]);
    assert_eq!(sender.stream.read(&map), Some(Alone));
    assert_eq!(sender.role(false, &h264(REFERENCE)), Link);
    let map = sender.mux.map(&[(2, VIDEO)]);
    sender.stream.read(&map);
    assert!(!sender.stream.known());
}

proptest! {
    /// Whatever comes, the functions stay within their bytes, and nothing is known of it.
    #[test]
    fn ts_of_any_bytes_is_read(datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 1316), 0..40), pid in 0u8..3) {
        let mut stream = Stream::default();
        for mut bytes in datagrams {
            for packet in bytes.chunks_mut(188) {
                packet[0] = 0x47;
                // Few PIDs, and much that begins.
                packet[1] &= 0x40;
                packet[2] = packet[2] % 2 + pid;
                if packet[4] & 3 == 0 {
                    packet[3] = packet[3] & 0x0F | 0x10;
                    packet[4..9].copy_from_slice(&[0, 0, 1, 0xE0, 0]);
                } else if packet[4] & 3 == 1 {
                    packet[4..7].copy_from_slice(&[0, 2, 0xB0]);
                }
            }
            stream.read(&bytes);
            prop_assert!(!stream.known() && stream.video.levels <= 6);
        }
    }

    /// However a stream is cut into datagrams, every datagram belongs to a picture in it, and numbers only grow.
    #[test]
    fn ts_in_any_datagrams_keeps_its_order(cuts in prop::collection::vec((1usize..8, 1usize..20, 0u8..12), 40..120)) {
        let mut sender = Sender::ippp(SURE + 4);
        let mut packets = Vec::new();
        for (n, (_, size, what)) in cuts.iter().enumerate() {
            let unit = h264([REFERENCE, DISPOSABLE][usize::from(*what) % 2]);
            packets.extend(sender.mux.picture(sender.pts + n as u32 * 3600, false, &unit, *size));
            match what {
                0 => packets.extend(sender.mux.audio(3)),
                1 => packets.push(sender.mux.map(&[(0x1B, VIDEO)])),
                2 => packets.push(Mux::null()),
                _ => {}
            }
        }
        let mut last = 0;
        let mut cut = cuts.iter().cycle();
        while !packets.is_empty() {
            let n = cut.next().unwrap().0.min(packets.len());
            let datagram: Vec<_> = packets.drain(..n).collect();
            let place = sender.stream.read(&datagram.concat()).unwrap();
            let all = |of: u16| datagram.iter().all(|p| u16::from(p[1] & 31) << 8 | u16::from(p[2]) == of);
            prop_assert_eq!(place == Nothing, all(0x1FFF));
            if let Picture(number, _) = place {
                prop_assert!(number >= last);
                last = number;
            } else {
                prop_assert!(!all(VIDEO));
            }
            prop_assert!(sender.stream.known());
        }
    }
}
