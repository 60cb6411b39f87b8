//! ADUs of one size at one interval in several streams, as programs hand them to a connection of their own.
//!
//! - Late data choice (`tcp-ldc.txt` §6): eight layers of a video, each an ADU of 16 KiB a second, the base
//!   layer first and most important (`ranked`).
//! - Selective retransmission (`dsr.txt` §5): seven streams, each a packet every 10 ms.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Class, HEADERS, MIN_WIRE, Schedule,
    build::{self, Adu, RngCore as _, Traffic, check_lifetime, random, within},
};
use crate::sys::{MILLI, SECOND};

/// What each stream sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Streams, 1..=100.
    pub streams: u16,
    /// From one ADU of a stream to the next, ms.
    pub every_ms: u64,
    /// Payload of an ADU, bytes.
    pub bytes: u32,
    /// Lifetime of an ADU, ms.
    pub lifetime_ms: u64,
    /// Layers: all streams begin at once, and stream n has priority n (from 7 on 7). Otherwise each has a
    /// phase of its own, drawn from the seed, and all have the same priority.
    pub ranked: bool,
    /// A QUIC sender's deadline is so many smoothed round trips, instead of the lifetime; 0: it is not.
    pub deadline_srtts: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            streams: 8,
            every_ms: 1000,
            bytes: 16 << 10,
            lifetime_ms: 1050,
            ranked: true,
            deadline_srtts: 0.0,
        }
    }
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        within("streams", self.streams, 1..=100)?;
        within("every_ms", self.every_ms, 1..=60_000)?;
        within("bytes", self.bytes, MIN_WIRE - HEADERS..=1 << 20)?;
        within("deadline_srtts", self.deadline_srtts, 0.0..=100.0)?;
        check_lifetime("lifetime_ms", self.lifetime_ms)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let (mut rng, every) = (random(seed), self.every_ms * MILLI);
        let mut adus = Vec::new();
        for stream in 0..self.streams {
            let phase = if self.ranked {
                0
            } else {
                rng.next_u64() % every
            };
            let times = (0..).map(|n| phase + n * every);
            for at in times.take_while(|&at| at < seconds * SECOND) {
                let parts = [self.bytes + HEADERS];
                let adu = Adu::bunch(Class::Data, at, self.lifetime_ms, parts);
                adus.push(Adu { stream, ..adu });
            }
        }
        let mut schedule = build::schedule(adus, seconds);
        for packet in schedule.packets.iter_mut().filter(|_| self.ranked) {
            packet.priority = packet.stream.min(7) as u8;
        }
        Ok(schedule)
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        Some([Class::Data].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_a_second_come_at_once_and_the_base_is_first() {
        let schedule = Parameters::default().schedule(60, 1).expect("a schedule");
        assert_eq!(schedule.packets.len(), 8 * 60);
        for (n, packet) in (0..).zip(&schedule.packets) {
            assert_eq!(packet.at, n / 8 * SECOND);
            assert_eq!(u64::from(packet.stream), n % 8);
            assert_eq!(packet.priority, packet.stream as u8);
        }
        // tcp-ldc.txt §6: 983040 bytes of each layer.
        let of_base = schedule.packets.iter().filter(|p| p.stream == 0);
        assert_eq!(
            of_base.map(|p| p.wire_bytes - HEADERS).sum::<u32>(),
            983_040
        );
    }

    #[test]
    fn streams_without_a_rank_have_phases_and_one_priority() {
        let parameters = Parameters {
            streams: 7,
            every_ms: 10,
            bytes: 500,
            ranked: false,
            ..Parameters::default()
        };
        let packets = parameters.schedule(50, 1).expect("a schedule").packets;
        assert_eq!(packets.len(), 7 * 5000);
        let phases: BTreeSet<u64> = packets.iter().take(7).map(|p| p.at).collect();
        assert!(phases.len() == 7 && phases.last() < Some(&(10 * MILLI)));
        assert!(packets.iter().all(|p| p.priority == Class::Data.priority()));
    }
}
