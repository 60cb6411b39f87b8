//! A conference, and links whose rates change.

use std::collections::BTreeMap;

use super::MS;

pub(crate) const SECOND: u64 = 1_000 * MS;
/// IPv4 and UDP.
const HEADERS: u32 = 28;
/// All may take so long to its receiver. The way behind us takes this of it.
pub(crate) const LIFETIME: u64 = 200 * MS;
pub(crate) const OWD: u64 = 40 * MS;

/// Numbers that look drawn, the same ones each time.
pub(crate) struct Drawn(pub u64);

impl Drawn {
    /// From 0 to 1.
    pub(crate) fn part(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / (1u64 << 31) as f64
    }

    /// Of a normal distribution with a mean of 0 and a deviation of 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.part()).sum::<f64>() - 6.0
    }
}

/// A packet of the conference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) at: u64,
    pub(crate) frame: Option<u32>,
    pub(crate) bytes: u32,
}

/// Video beside audio each 20 ms: 10 s of large frames, 5 s of small ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Video {
    pub(crate) per_second: u64,
    /// Mean and deviation of a frame's bytes.
    pub(crate) large: (f64, f64),
    pub(crate) small: (f64, f64),
    /// Bytes of a packet's payload, at most.
    pub(crate) most: u32,
}

/// Of a mean of 300 kbit/s.
pub(crate) const SMALL: Video = Video {
    per_second: 10,
    large: (4450.0, 1000.0),
    small: (1075.0, 475.0),
    most: 980,
};

/// Of 3.3 Mbit/s while its frames are large.
pub(crate) const LARGE: Video = Video {
    per_second: 30,
    large: (14_800.0, 3300.0),
    small: (3600.0, 1500.0),
    most: 1200,
};

pub(crate) fn conference(video: Video, seconds: u64, seed: u64) -> Vec<Packet> {
    let mut drawn = Drawn(seed);
    let mut all: Vec<Packet> = (0..seconds * 50)
        .map(|n| Packet {
            at: n * 20 * MS,
            frame: None,
            bytes: 160 + HEADERS,
        })
        .collect();
    for n in 0..seconds * video.per_second {
        let (mean, deviation) = if n % (15 * video.per_second) < 10 * video.per_second {
            video.large
        } else {
            video.small
        };
        let mut left = (mean + deviation * drawn.normal()).max(100.0) as u32;
        while left > 0 {
            let bytes = left.min(video.most);
            left -= bytes;
            all.push(Packet {
                at: n * SECOND / video.per_second + 1,
                frame: Some(n as u32),
                bytes: bytes + HEADERS,
            });
        }
    }
    all.sort_by_key(|packet| packet.at);
    all
}

/// bytes/s, from so many ns on.
pub(crate) type Rates = Vec<(u64, f64)>;

/// A rate that wanders as that of a mobile network, and fades.
pub(crate) fn wandering(mean: f64, seconds: u64, seed: u64) -> Rates {
    let (mut drawn, mut x, mut fade) = (Drawn(1000 + seed), 0.0, 0);
    let mut all: Vec<f64> = (0..seconds * 10)
        .map(|_| {
            x = 0.9 * x + 0.218 * drawn.normal();
            if fade > 0 {
                fade -= 1;
            } else if drawn.part() < 0.01 {
                fade = 3 + (drawn.part() * 7.0) as u32;
            }
            f64::exp(x) * if fade > 0 { 0.2 } else { 1.0 }
        })
        .collect();
    let scale = mean / (all.iter().sum::<f64>() / all.len() as f64);
    for rate in &mut all {
        *rate *= scale;
    }
    (0..).map(|n| n * 100 * MS).zip(all).collect()
}

/// When so many bytes that begin at `at` are through.
pub(crate) fn through(rates: &Rates, mut at: u64, bytes: u32) -> u64 {
    let mut left = f64::from(bytes);
    let mut n = rates.partition_point(|(from, _)| *from <= at).max(1) - 1;
    loop {
        let end = rates.get(n + 1).map_or(u64::MAX, |(from, _)| *from);
        let can = rates[n].1 * (end - at) as f64 / SECOND as f64;
        if can >= left {
            return at + (left / rates[n].1 * SECOND as f64) as u64;
        }
        left -= can;
        at = end;
        n += 1;
    }
}

/// Which packets of audio, and which whole frames, were out in time; of packets from `from` on.
pub(crate) fn in_time(
    packets: &[Packet],
    out: &[Option<u64>],
    from: u64,
) -> (Vec<bool>, Vec<bool>) {
    let mut audio = Vec::new();
    let mut frames = BTreeMap::new();
    for (packet, out) in packets
        .iter()
        .zip(out)
        .filter(|(packet, _)| packet.at >= from)
    {
        let in_time = out.is_some_and(|at| at + OWD <= packet.at + LIFETIME);
        match packet.frame {
            None => audio.push(in_time),
            Some(frame) => *frames.entry(frame).or_insert(true) &= in_time,
        }
    }
    (audio, frames.into_values().collect())
}

/// How many of a hundred.
pub(crate) fn percent(all: &[bool]) -> f64 {
    100.0 * all.iter().filter(|in_time| **in_time).count() as f64 / all.len() as f64
}
