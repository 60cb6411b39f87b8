//! Frames of paced senders through the model of mode tc, in virtual time: what it lets through should be whole
//! frames.

mod tc;

use tc::{
    link::{self, Asks, Class, Packet, frame},
    *,
};

/// Of a lifetime of 200 ms.
const OWD: u64 = 40 * MS;
const SECONDS: u64 = 60;

/// Numbers without a pattern, the same in every run (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    /// Some 1,000 times a normal deviate.
    fn normal(&mut self) -> i64 {
        (0..12).map(|_| self.below(1000) as i64).sum::<i64>() - 6000
    }

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
                says: 0,
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

/// `marked`: last packets of frames say so.
fn run(packets: &[Packet], rate: u64, owd: u64, marked: bool, asks: Asks) -> Outcome {
    let mut asked = packets.to_vec();
    for p in &mut asked {
        p.last &= marked;
    }
    let left = link::run(&asked, rate, owd, asks);
    let (classes, wasted) = link::judge(packets, &left, rate, owd);
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
                let before = run(&packets, rate, OWD, marked, Asks::Packets);
                let now = run(&packets, rate, OWD, marked, Asks::Frames);
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
    let before = run(&packets, 31_625, OWD, true, Asks::Packets);
    let now = run(&packets, 31_625, OWD, true, Asks::Frames);
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
            says: 0,
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
            says: 0,
        };
        frame(&mut packets, of, 1, 0);
    }
    packets.sort_by_key(|p| p.at);
    let now = run(&packets, 31_625, OWD, true, Asks::Frames);
    assert!(now.audio > 99.9 && now.frames > 60.0, "{now:.1?}");
}

/// The conference of SFDPS 4.1 (`bench/src/traffic/conference.rs`), whose frames are spread over `spread` ns.
fn sfdps(seed: u64, lifetime: u64, spread: u64) -> Vec<Packet> {
    const PART: u64 = 1026;
    let mut random = Random(seed);
    let mut packets = Vec::new();
    for n in 0..SECONDS * 50 {
        let at = START + n * 20 * MS;
        let of = Packet {
            at,
            stream: 0,
            frame: packets.len(),
            class: 0,
            priority: 0,
            lifetime,
            bytes: 214,
            last: false,
            says: 0,
        };
        frame(&mut packets, of, 1, 0);
        if n % 5 > 0 {
            continue;
        }
        let (mean, deviation) = match n / 50 % 20 {
            10..15 => (1075, 475),
            _ => (4450, 1000),
        };
        let size = (mean + deviation * random.normal() / 1000).max(60) as u64;
        let count = size.div_ceil(PART);
        for part in 0..count {
            packets.push(Packet {
                at: at + part * spread / count,
                stream: 1,
                frame: of.frame + 1,
                class: 1,
                priority: 3,
                bytes: PART.min(size - part * PART).max(60),
                last: part + 1 == count,
                ..of
            });
        }
    }
    packets.sort_by_key(|p| p.at);
    packets
}

/// What goes first may not cost frames: 1 in 100 at most, at any load, delay and lifetime.
#[test]
fn order_by_importance_costs_no_frames_of_a_conference() {
    const RUNS: u64 = 5;
    for (lifetime, owd) in [(200, 5), (200, 40), (200, 75), (150, 40), (1000, 40)] {
        for spread in [0, 30 * MS] {
            let runs: Vec<_> = (0..RUNS)
                .map(|seed| sfdps(seed, lifetime * MS, spread))
                .collect();
            for tenths in [5, 10, 15, 20, 30, 40] {
                let rate = 374_000 / 8 * 10 / tenths;
                let mean = |asks| {
                    let mut sum = Outcome::default();
                    for packets in &runs {
                        let one = run(packets, rate, owd * MS, true, asks);
                        sum.audio += one.audio / RUNS as f64;
                        sum.frames += one.frames / RUNS as f64;
                    }
                    sum
                };
                let (before, now) = (mean(Asks::Lifetimes), mean(Asks::Frames));
                let cell = format!(
                    "load {}, owd {owd} ms, lifetime {lifetime} ms, frames over {} ms: audio {:.1}, frames {:.1}, by lifetimes {:.1}",
                    tenths as f64 / 10.0,
                    spread / MS,
                    now.audio,
                    now.frames,
                    before.frames
                );
                println!("{cell}");
                assert!(now.audio > 99.9, "{cell}");
                assert!(now.frames > before.frames - 1.0, "{cell}");
            }
        }
    }
}
