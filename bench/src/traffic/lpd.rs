//! The flows of Lifetime Packet Discard (LPD), both unresponsive to congestion.
//!
//! - [`Cbr`]: packets of 500 bytes at a constant rate (§I: 30 kbit/s over a cellular
//!   link; §V.A, figure 9: 25 kbit/s).
//! - [`OnOff`]: §IV.A, figure 4: every five seconds the application generates a new
//!   data object, which is sent at a constant rate; the lifetime is those five seconds.
//!   A new object makes the old one worthless, so all packets of an object share the
//!   deadline of its first. The paper prints neither size nor rate of an object;
//!   the defaults (half of the time on, at the 30 kbit/s of §I) are ours.
//!
//! With several streams each has its own phase, drawn from the seed.

use anyhow::{Result, ensure};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use serde::{Deserialize, Serialize};

use super::{
    Class, Schedule,
    build::{Adu, Builder, check_lifetime, check_packet_bytes, check_rate, check_sum},
};
use crate::sys::{MILLI, SECOND};

/// A constant bit rate; each packet is worth something by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cbr {
    /// Rate of one stream on the wire, kbit/s.
    pub rate_kbit: f64,
    /// Bytes of each packet on the wire.
    pub packet_bytes: u32,
    /// Lifetime of a packet, ms (the paper has 3, 5, 8 and 10 s in §V.C).
    pub lifetime_ms: u64,
    /// Streams, 1..=1000; each to a destination of its own where the sender has several.
    pub streams: u16,
    /// What the packets count as.
    pub class: Class,
}

impl Default for Cbr {
    fn default() -> Self {
        Self {
            rate_kbit: 25.0,
            packet_bytes: 500,
            lifetime_ms: 5000,
            streams: 1,
            class: Class::Data,
        }
    }
}

/// Data objects at an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OnOff {
    /// Rate of one stream while it is on, on the wire, kbit/s.
    pub rate_kbit: f64,
    /// Bytes of each packet on the wire.
    pub packet_bytes: u32,
    /// From one object to the next, ms.
    pub every_ms: u64,
    /// How long an object's packets take to be sent, ms; not more than `every_ms`.
    pub on_ms: u64,
    /// Lifetime of an object from its first packet, ms.
    pub lifetime_ms: u64,
    /// Streams, 1..=1000; each to a destination of its own where the sender has several.
    pub streams: u16,
    /// What the packets count as.
    pub class: Class,
}

impl Default for OnOff {
    fn default() -> Self {
        Self {
            rate_kbit: 30.0,
            packet_bytes: 500,
            every_ms: 5000,
            on_ms: 2500,
            lifetime_ms: 5000,
            streams: 1,
            class: Class::Data,
        }
    }
}

fn check_streams(streams: u16) -> Result<()> {
    ensure!(
        (1..=1000).contains(&streams),
        "streams = {streams} is not within 1..=1000"
    );
    Ok(())
}

/// Time between packets in ns.
fn gap(bytes: u32, rate_kbit: f64) -> f64 {
    f64::from(bytes) * 8e6 / rate_kbit
}

impl Cbr {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate_kbit)?;
        check_packet_bytes(self.packet_bytes)?;
        check_lifetime("lifetime_ms", self.lifetime_ms)?;
        check_streams(self.streams)?;
        check_sum("streams", self.streams, self.rate_kbit)
    }

    /// `seconds` of it; the same for the same seed.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gap = gap(self.packet_bytes, self.rate_kbit);
        let mut builder = Builder::default();
        for stream in 0..self.streams {
            let phase = rng.next_u64() % (gap as u64).max(1);
            for index in 0.. {
                // From the start each time: rounding must not add up.
                let at = phase + (f64::from(index) * gap) as u64;
                if at >= seconds * SECOND {
                    break;
                }
                builder.add(Adu {
                    class: self.class,
                    stream,
                    deadline: at + self.lifetime_ms * MILLI,
                    parts: vec![(at, self.packet_bytes)],
                });
            }
        }
        Ok(builder.finish(seconds))
    }
}

impl OnOff {
    pub(super) fn check(&self) -> Result<()> {
        check_rate(self.rate_kbit)?;
        check_packet_bytes(self.packet_bytes)?;
        check_lifetime("lifetime_ms", self.lifetime_ms)?;
        check_streams(self.streams)?;
        check_sum("streams", self.streams, self.rate_kbit)?;
        // The longest run: a greater interval has one object at most.
        ensure!(
            (1..=3_600_000).contains(&self.every_ms),
            "every_ms = {} is not within 1..=3600000 ms",
            self.every_ms
        );
        ensure!(
            (1..=self.every_ms).contains(&self.on_ms),
            "on_ms = {} is not within 1..=every_ms ({})",
            self.on_ms,
            self.every_ms
        );
        ensure!(
            self.on_ms <= self.lifetime_ms,
            "on_ms = {} exceeds lifetime_ms = {}: an object's last packets would be stale when created",
            self.on_ms,
            self.lifetime_ms
        );
        Ok(())
    }

    /// `seconds` of it; the same for the same seed.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let gap = gap(self.packet_bytes, self.rate_kbit);
        let packets = ((self.on_ms * MILLI) as f64 / gap).floor().max(1.0) as u64;
        let mut builder = Builder::default();
        for stream in 0..self.streams {
            let phase = rng.next_u64() % (self.every_ms * MILLI);
            // An object that began before the run is not part of it.
            for begin in (phase..seconds * SECOND).step_by((self.every_ms * MILLI) as usize) {
                builder.add(Adu {
                    class: self.class,
                    stream,
                    deadline: begin + self.lifetime_ms * MILLI,
                    parts: (0..packets)
                        .map(|i| (begin + (i as f64 * gap) as u64, self.packet_bytes))
                        .collect(),
                });
            }
        }
        Ok(builder.finish(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, rate_kbit};

    #[test]
    fn cbr_has_its_rate_and_no_jitter() {
        let schedule = Cbr::default().schedule(1000, 4).expect("a schedule");
        assert!((rate_kbit(&schedule, Class::Data) - 25.0).abs() < 0.01);
        // 500 bytes at 25 kbit/s: one each 160 ms, to the ns.
        for pair in schedule.packets.windows(2) {
            assert_eq!(pair[1].at - pair[0].at, 160 * MILLI);
        }
        assert!(
            schedule
                .packets
                .iter()
                .all(|p| p.last && p.lifetime == 5 * SECOND)
        );
    }

    #[test]
    fn streams_of_cbr_have_phases_of_their_own() {
        let cbr = Cbr {
            streams: 4,
            ..Cbr::default()
        };
        let schedule = cbr.schedule(100, 4).expect("a schedule");
        assert_eq!(schedule.streams(), 4);
        assert!((rate_kbit(&schedule, Class::Data) - 100.0).abs() < 0.2);
        let phases: std::collections::BTreeSet<u64> = schedule
            .packets
            .iter()
            .take(4)
            .map(|p| p.at % (160 * MILLI))
            .collect();
        assert_eq!(phases.len(), 4);
        assert_eq!(schedule, cbr.schedule(100, 4).expect("a schedule"));
        assert_ne!(schedule, cbr.schedule(100, 5).expect("a schedule"));
    }

    #[test]
    fn objects_come_every_five_seconds_and_share_a_deadline() {
        let schedule = OnOff::default().schedule(100, 6).expect("a schedule");
        let objects = adus(&schedule);
        assert!((19..=20).contains(&objects.len()), "{}", objects.len());
        for pair in objects.windows(2) {
            assert_eq!(pair[1].at - pair[0].at, 5 * SECOND);
        }
        for object in &objects {
            // 2.5 s at 30 kbit/s are 18.75 packets of 500 bytes.
            assert_eq!(object.packets, 18);
            assert_eq!(object.deadline - object.at, 5 * SECOND);
        }
    }

    #[test]
    fn edges() {
        let wrong = [
            Cbr {
                rate_kbit: 0.0,
                ..Cbr::default()
            },
            Cbr {
                streams: 0,
                ..Cbr::default()
            },
            Cbr {
                lifetime_ms: 0,
                ..Cbr::default()
            },
        ];
        for cbr in wrong {
            assert!(cbr.schedule(1, 1).is_err(), "{cbr:?}");
        }
        let wrong = [
            OnOff {
                on_ms: 0,
                ..OnOff::default()
            },
            OnOff {
                on_ms: 5001,
                ..OnOff::default()
            },
            OnOff {
                lifetime_ms: 2000,
                ..OnOff::default()
            },
        ];
        for on_off in wrong {
            assert!(on_off.schedule(1, 1).is_err(), "{on_off:?}");
        }
        let slow = Cbr {
            rate_kbit: 1.0,
            ..Cbr::default()
        };
        assert!(slow.schedule(1, 1).expect("a schedule").packets.len() <= 1);
    }
}
