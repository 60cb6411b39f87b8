//! Frames of paced senders through the model of mode tc, in virtual time: what it lets through should be whole
//! frames.

mod tc;

use tc::{
    link::{self, Class, Packet, frame},
    *,
};

/// Of a lifetime of 200 ms.
const OWD: u64 = 40 * MS;
const SECONDS: u64 = 60;

/// Numbers without a pattern, the same in every run (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Audio of 50 packets/s, and `streams` videos of 15 frames/s, whose packets are spread over `spread` ns.
fn conference(streams: usize, spread: u64) -> Vec<Packet> {
    let mut random = Random(32);
    let mut packets = Vec::new();
    let mut number = 0;
    for stream in 0..=streams {
        let (interval, phase) = if stream == 0 {
            (20 * MS, 0)
        } else {
            (66 * MS, random.below(66 * MS))
        };
        for n in 0..SECONDS * 1000 * MS / interval {
            let count = if stream == 0 { 1 } else { 2 + random.below(6) };
            let of = Packet {
                at: START + phase + n * interval,
                stream,
                frame: number,
                class: stream.min(1),
                priority: if stream == 0 { 0 } else { 3 },
                lifetime: 200 * MS,
                bytes: if stream == 0 { 214 } else { 1000 },
                last: false,
            };
            frame(&mut packets, of, count, spread);
            number += 1;
        }
    }
    packets.sort_by_key(|p| p.at);
    packets
}

#[derive(Debug, Default)]
struct Outcome {
    /// Per cent of the audio packets that left in time.
    audio: f64,
    /// Per cent of the video frames that left whole and in time.
    frames: f64,
    /// Per cent of the video packets let through that belong to frames which are not whole.
    wasted: f64,
}

/// `marked`: last packets of frames say so. `whole` as in `link::run`.
fn run(packets: &[Packet], rate: u64, marked: bool, whole: bool) -> Outcome {
    let mut asked = packets.to_vec();
    for p in &mut asked {
        p.last &= marked;
    }
    let left = link::run(&asked, rate, OWD, whole);
    let (classes, wasted) = link::judge(packets, &left, rate, OWD);
    let percent = |c: &Class| 100.0 * c.whole as f64 / c.frames as f64;
    Outcome {
        audio: percent(&classes[0]),
        frames: percent(&classes[1]),
        wasted,
    }
}

/// Rate, video streams; 1.3 to 2.4 times what the link carries.
const OVERLOADS: [(u64, usize); 5] = [
    (62_500, 1),
    (125_000, 2),
    (125_000, 4),
    (125_000, 8),
    (1_000_000, 40),
];

#[test]
fn paced_frame_goes_whole_or_not_at_all() {
    for (rate, streams) in OVERLOADS {
        for spread in [0, 20 * MS, 40 * MS, 60 * MS] {
            for marked in [true, false] {
                let packets = conference(streams, spread);
                let before = run(&packets, rate, marked, false);
                let now = run(&packets, rate, marked, true);
                let cell = format!(
                    "{rate} bytes/s, {streams} streams, frames over {} ms, ends marked {marked}: {now:.1?}, by packets {before:.1?}",
                    spread / MS
                );
                println!("{cell}");
                assert!(now.audio > 99.9, "{cell}");
                assert!(now.wasted < 12.0, "{cell}");
                assert!(now.frames > before.frames - 1.0, "{cell}");
                assert!(before.wasted > 12.0, "the control: {cell}");
            }
        }
    }
}

/// Frames of 143 ms in a time of 160: each must be tried, or none ever goes.
#[test]
fn frame_nearly_as_long_as_its_slack_is_tried() {
    let packets = conference(1, 40 * MS);
    let before = run(&packets, 31_625, true, false);
    let now = run(&packets, 31_625, true, true);
    assert!(
        now.audio > 99.9 && now.frames > before.frames - 0.5,
        "{now:.1?} {before:.1?}"
    );
}

/// Frames of 139 ms in a time of 160, and audio of a third of the link: what goes first would make each frame late,
/// so it has to wait for it.
#[test]
fn frame_of_most_of_its_time_is_not_made_late_by_audio() {
    let mut packets = Vec::new();
    for n in 0..60 {
        let of = Packet {
            at: START + n * 200 * MS,
            stream: 1,
            frame: n as usize,
            class: 1,
            priority: 3,
            lifetime: 200 * MS,
            bytes: 1100,
            last: false,
        };
        frame(&mut packets, of, 4, 0);
    }
    for n in 0..600 {
        let of = Packet {
            at: START + n * 20 * MS,
            stream: 0,
            frame: 60 + n as usize,
            class: 0,
            priority: 0,
            lifetime: 200 * MS,
            bytes: 214,
            last: false,
        };
        frame(&mut packets, of, 1, 0);
    }
    packets.sort_by_key(|p| p.at);
    let now = run(&packets, 31_625, true, true);
    assert!(now.audio > 99.9 && now.frames > 60.0, "{now:.1?}");
}
