//! Audio, key frames and layers, of twice the rate of a line of 1 Mbit/s, through a ring in its default method.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bestby::{
    Lifetime, Metadata, Priority,
    tcp::{Fate, Options, Reason, Ring, Ticket},
};

use super::{Line, Receiver, frame};

/// Slow start is over, and the rate is known. A group begins.
const SETTLED: u32 = 2_000;
/// Bytes of a part.
const PART: usize = 1_400;

/// Of the ADUs of one priority: pushed, in time, given up because they could not be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) pushed: usize,
    pub(crate) in_time: usize,
    pub(crate) predicted: usize,
}

/// What arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pictures {
    pub(crate) audio: Seen,
    pub(crate) keys: Seen,
    /// Layers 0, 1 and 2.
    pub(crate) layers: [Seen; 3],
    /// Frames of which all that they refer to is in time, too; and all frames.
    pub(crate) decodable: (usize, usize),
}

/// How the ADUs are pushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) seconds: u32,
    /// Bytes of a key frame.
    pub(crate) key: usize,
    /// Lifetime of audio, ms.
    pub(crate) audio: u64,
    /// In parts between which others may go.
    pub(crate) parts: bool,
}

impl Source {
    /// (ms, lifetime in ms, priority, bytes). A group is two seconds; every fourth frame is of layer 0, and every other
    /// one of layer 0 or 1.
    fn adus(self) -> Vec<(u32, u64, u8, usize)> {
        let sound = (0..50 * self.seconds).map(|n| (n * 20, self.audio, 0, 160));
        let video = (0..30 * self.seconds).map(|n| {
            // Between 75 and 125 % of the mean.
            let percent = 75 + 5 * (n * 7 % 11) as usize;
            let (lifetime, priority, bytes) = match n % 60 {
                0 => (1_000, 1, self.key),
                place if place % 4 == 0 => (1_000, 2, 91 * percent),
                place if place % 2 == 0 => (500, 4, 77 * percent),
                _ => (500, 6, 70 * percent),
            };
            (n * 1_000 / 30 + 3, lifetime, priority, bytes)
        });
        let mut adus: Vec<_> = sound.chain(video).collect();
        adus.sort_unstable();
        adus
    }

    /// Sends it over the line.
    pub(crate) fn stream(self, line: &Line, congestion_control: &str) -> Pictures {
        let (near, far) = line.connect(congestion_control);
        let receiver = Receiver::new(far);
        let options = Options::new().interleave(self.parts);
        let mut ring = Ring::with(near, options).unwrap();
        let adus = self.adus();
        let start = Instant::now();
        let mut tickets: BTreeMap<Ticket, usize> = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        let mut next = 0;
        for (at, &(ms, lifetime, priority, bytes)) in adus.iter().enumerate() {
            ring.run_until(start + Duration::from_millis(ms.into()))
                .unwrap();
            let said = Metadata::new()
                .lifetime(Lifetime::from_millis(lifetime).unwrap())
                .priority(Priority::new(priority).unwrap());
            // Each part is a frame of the receiver's protocol; the ADU is there with its last one.
            let part = if self.parts { PART } else { bytes };
            let parts: Vec<Vec<u8>> = (0..bytes.div_ceil(part))
                .map(|n| frame(next + n as u32, part.min(bytes - n * part).max(8)))
                .collect();
            next += parts.len() as u32;
            numbers.insert(at, next - 1);
            tickets.insert(ring.push_parts(parts, None, said), at);
        }
        assert!(ring.finish(start + Duration::from_secs(100)).unwrap());
        let outcomes = ring.outcomes();
        let fates: BTreeMap<usize, Fate> = outcomes.map(|o| (tickets[&o.ticket], o.fate)).collect();
        drop(ring.close());
        let arrived: BTreeMap<u32, Instant> = receiver.end().into_iter().collect();

        let mut seen = [Seen::default(); 8];
        let (mut base, mut middle, mut decodable, mut video) = (false, false, 0, 0);
        for (at, &(ms, lifetime, priority, _)) in adus.iter().enumerate() {
            if ms < SETTLED {
                continue;
            }
            let due = start + Duration::from_millis(u64::from(ms) + lifetime);
            let came = arrived.get(&numbers[&at]);
            let in_time = came.is_some_and(|came| *came <= due);
            let of = &mut seen[usize::from(priority)];
            of.pushed += 1;
            of.in_time += usize::from(in_time);
            of.predicted += usize::from(fates[&at] == Fate::GivenUp(Reason::Predicted));
            if priority == 0 {
                continue;
            }
            let decodes = match priority {
                1 => in_time,
                // The last of four refers to layer 1.
                6 if video % 4 == 3 => middle && in_time,
                _ => base && in_time,
            };
            if priority <= 2 {
                base = decodes;
            }
            if priority <= 4 {
                middle = decodes;
            }
            decodable += usize::from(decodes);
            video += 1;
        }
        let pictures = Pictures {
            audio: seen[0],
            keys: seen[1],
            layers: [seen[2], seen[4], seen[6]],
            decodable: (decodable, video),
        };
        println!("{congestion_control}, {self:?}: {pictures:?}");
        pictures
    }
}
