//! Frames of paced senders through the model of mode tc, in virtual time: what it lets through should be whole
//! frames.

mod tc;

use tc::*;

/// Lifetime 200 ms, owd 40 ms.
const SLACK: u64 = 160 * MS;
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

#[derive(Clone, Copy)]
struct Packet {
    at: u64,
    /// 0 is audio.
    stream: usize,
    frame: usize,
    bytes: u64,
    /// The last packet of a frame, and says so.
    last: bool,
}

/// Audio of 50 packets/s, and `streams` videos of 15 frames/s, whose packets are spread over `spread` ns.
fn conference(streams: usize, spread: u64, marked: bool) -> Vec<Packet> {
    let mut random = Random(32);
    let mut packets = Vec::new();
    let mut frame = 0;
    for stream in 0..=streams {
        let (interval, phase) = if stream == 0 {
            (20 * MS, 0)
        } else {
            (66 * MS, random.below(66 * MS))
        };
        for n in 0..SECONDS * 1000 * MS / interval {
            let count = if stream == 0 { 1 } else { 2 + random.below(6) };
            for i in 0..count {
                packets.push(Packet {
                    at: START + phase + n * interval + i * spread / count,
                    stream,
                    frame,
                    bytes: if stream == 0 { 214 } else { 1000 },
                    last: marked && i + 1 == count,
                });
            }
            frame += 1;
        }
    }
    packets.sort_by_key(|p| p.at);
    packets
}

/// A stream's current frame, as the classifier knows it.
#[derive(Clone, Copy, Default)]
struct Stream {
    frame: Option<usize>,
    first: u64,
    bytes: u64,
    mean: u64,
    dead: bool,
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

/// `whole`: as bb_tc_frame() asks; else as if each packet came for itself, the first one for 13/16 of a frame.
fn run(packets: &[Packet], rate: u64, whole: bool) -> Outcome {
    let mut model = Model::new(rate);
    let frames = packets.iter().map(|p| p.frame).max().unwrap_or(0) + 1;
    let mut streams =
        vec![Stream::default(); 1 + packets.iter().map(|p| p.stream).max().unwrap_or(0)];
    let (mut come, mut gone) = (vec![0u64; frames], vec![0u64; frames]);
    let mut link_free = START;
    let (mut audio, mut audio_sent, mut through) = (0, 0, Vec::new());
    for p in packets {
        model.now = p.at;
        let s = &mut streams[p.stream];
        if s.frame != Some(p.frame) {
            if s.frame.is_some() {
                s.mean = if s.mean == 0 {
                    s.bytes
                } else {
                    (3 * s.mean + s.bytes) / 4
                };
            }
            (s.frame, s.first, s.bytes, s.dead) = (Some(p.frame), p.at, 0, false);
        }
        let before = s.bytes;
        s.bytes += p.bytes;
        come[p.frame] += 1;
        audio += u64::from(p.stream == 0);
        if s.dead {
            continue;
        }
        let latest = s.first + SLACK;
        let mut r = model.packet(3, if p.stream == 0 { 0 } else { 3 }, p.bytes, 1);
        r.latest = latest;
        if whole {
            r = Model::part(r, s.first, s.mean, before, p.last);
        } else if before == 0 {
            r.need_ns = r.need_ns.max(bbn_tx_time(s.mean * 13 / 16, rate));
        }
        if model.ask(r).0 != ADMIT {
            s.dead = true;
            continue;
        }
        // The tree below: one leaf, in order of arrival.
        let starts = link_free.max(p.at);
        link_free = starts + bbn_tx_time(p.bytes, rate);
        if starts <= latest {
            gone[p.frame] += 1;
            audio_sent += u64::from(p.stream == 0);
        }
        if p.stream != 0 {
            through.push(p.frame);
        }
    }
    let complete = |frame: usize| gone[frame] == come[frame];
    let mut videos: Vec<usize> = packets
        .iter()
        .filter(|p| p.stream != 0)
        .map(|p| p.frame)
        .collect();
    videos.dedup();
    videos.sort_unstable();
    videos.dedup();
    let percent = |part: usize, all: usize| 100.0 * part as f64 / all as f64;
    Outcome {
        audio: 100.0 * audio_sent as f64 / audio as f64,
        frames: percent(
            videos.iter().filter(|f| complete(**f)).count(),
            videos.len(),
        ),
        wasted: percent(
            through.iter().filter(|f| !complete(**f)).count(),
            through.len(),
        ),
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
                let packets = conference(streams, spread, marked);
                let (before, now) = (run(&packets, rate, false), run(&packets, rate, true));
                let cell = format!(
                    "{rate} bytes/s, {streams} streams, frames over {} ms, ends marked {marked}: {now:.1?}, by packets {before:.1?}",
                    spread / MS
                );
                println!("{cell}");
                assert!(now.audio > 99.9, "{cell}");
                assert!(now.wasted < 12.0, "{cell}");
                assert!(now.frames > before.frames, "{cell}");
                assert!(before.wasted > 15.0, "the control: {cell}");
            }
        }
    }
}

/// Frames of 143 ms in a time of 160: each must be tried, or none ever goes.
#[test]
fn frame_nearly_as_long_as_its_slack_is_tried() {
    let packets = conference(1, 40 * MS, true);
    let (before, now) = (run(&packets, 31_625, false), run(&packets, 31_625, true));
    assert!(
        now.audio > 99.9 && now.frames > before.frames - 0.5,
        "{now:.1?} {before:.1?}"
    );
}
