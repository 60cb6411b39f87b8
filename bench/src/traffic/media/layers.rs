//! Frames by what other frames lose with them.

use std::{collections::HashSet, fmt};

use crate::traffic::{Class, Schedule};

/// Of a schedule of real media, what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Complete key frames, reference frames of each third of the way to the next key frame, and
    /// disposable ones: priorities 3 to 7, see [`by_layer`](super::Parameters::by_layer).
    pub frames: [u64; 5],
    /// Frames that are complete with every reference since their key frame.
    pub intact: u64,
}

impl Layers {
    /// Adds those of another schedule.
    pub fn add(&mut self, other: &Self) {
        for (sum, part) in self.frames.iter_mut().zip(other.frames) {
            *sum += part;
        }
        self.intact += other.intact;
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [key, first, second, third, disposable] = self.frames;
        let Self { intact, .. } = self;
        write!(f, "{key} {first} {second} {third} {disposable} i{intact}")
    }
}

/// What these `complete` frames of a schedule of [`schedule`](super::schedule) are.
pub fn layers(schedule: &Schedule, complete: &HashSet<u32>) -> Layers {
    let mut found = Layers::default();
    // Frames come in decoding order: whatever one refers to is before it.
    let mut referable = false;
    let frames = schedule.packets.iter();
    for frame in frames.filter(|packet| packet.class == Class::Video && packet.last) {
        let whole = complete.contains(&frame.adu);
        let intact = match frame.priority {
            3 => whole,
            _ => whole && referable,
        };
        if frame.priority < 7 {
            referable = intact;
        }
        found.intact += u64::from(intact);
        let place = usize::from(frame.priority).checked_sub(3);
        if let Some(frames) = place.and_then(|place| found.frames.get_mut(place)) {
            *frames += u64::from(whole);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Packet;

    #[test]
    fn a_lost_reference_takes_what_follows_it_until_the_next_key_frame() {
        let packet = |(adu, &priority): (usize, &u8)| Packet {
            adu: adu as u32,
            priority,
            class: Class::Video,
            last: true,
            at: 0,
            lifetime: 0,
            stream: 0,
            wire_bytes: 100,
        };
        let schedule = Schedule {
            packets: [3, 4, 7, 5, 7, 6, 3, 7]
                .iter()
                .enumerate()
                .map(packet)
                .collect(),
            duration: 0,
        };
        let all: HashSet<u32> = (0..8).collect();
        let with = |lost: &[u32]| {
            let lost = lost.iter().copied().collect();
            layers(&schedule, &(&all - &lost))
        };
        assert_eq!(with(&[]).to_string(), "2 1 1 1 3 i8");
        assert_eq!(with(&[3]).to_string(), "2 1 0 1 3 i5");
        assert_eq!(with(&[2]).to_string(), "2 1 1 1 2 i7");
        assert_eq!(with(&[0]).to_string(), "1 1 1 1 3 i2");
        assert_eq!(with(&[0, 6]).to_string(), "0 1 1 1 3 i0");
    }
}
