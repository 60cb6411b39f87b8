//! The flows of Lifetime Packet Discard (LPD). The first two are unresponsive to congestion.
//!
//! - [`Cbr`]: packets of 500 bytes at a constant rate (§I: 30 kbit/s over a cellular
//!   link; §V.A, figure 9: 25 kbit/s).
//! - [`OnOff`]: §IV.A, figure 4: every five seconds the application generates a new
//!   data object, which is sent at a constant rate; the lifetime is those five seconds.
//!   A new object makes the old one worthless, so all packets of an object share the
//!   deadline of its first. The paper prints neither size nor rate of an object;
//!   the defaults (half of the time on, at the 30 kbit/s of §I) are ours.
//! - [`Download`]: a file by TCP, in segments of 1000 bytes (§V).
//!
//! With several streams each has its own phase, drawn from the seed.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Class, MAC, Schedule,
    build::{
        self, Adu, RngCore as _, Traffic, check_lifetime, check_packet_bytes, check_rate, random,
        within,
    },
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

impl OnOff {
    /// Time between packets in ns.
    fn gap(&self) -> f64 {
        f64::from(self.packet_bytes) * 8e6 / self.rate_kbit
    }

    /// Streams of ADUs of so many `packets`, each stream with a phase of its own. Parts of `every`
    /// (ns) below 1 ns do not get lost from ADU to ADU.
    fn make(&self, every: f64, packets: u64, seconds: u64, seed: u64) -> Schedule {
        let mut rng = random(seed);
        let gap = self.gap();
        let mut adus = Vec::new();
        for stream in 0..self.streams {
            // An ADU that began before the run is not part of it.
            let phase = rng.next_u64() % (every as u64).max(1);
            let begins = (0u64..).map(|n| phase + (n as f64 * every) as u64);
            for begin in begins.take_while(|&begin| begin < seconds * SECOND) {
                let parts = (0..packets).map(|n| begin + (n as f64 * gap) as u64);
                adus.push(Adu {
                    class: self.class,
                    stream,
                    deadline: begin + self.lifetime_ms * MILLI,
                    parts: parts.map(|at| (at, self.packet_bytes)).collect(),
                });
            }
        }
        build::schedule(adus, seconds)
    }
}

impl Traffic for OnOff {
    fn check(&self) -> Result<()> {
        within("streams", self.streams, 1..=1000)?;
        check_rate(self.rate_kbit, self.streams)?;
        check_packet_bytes(self.packet_bytes)?;
        check_lifetime("lifetime_ms", self.lifetime_ms)?;
        // The longest run: a greater interval has one object at most.
        within("every_ms", self.every_ms, 1..=3_600_000)?;
        // Of a longer one the last packets would be stale when created.
        within("on_ms", self.on_ms, 1..=self.every_ms.min(self.lifetime_ms))
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let [every, on] = [self.every_ms, self.on_ms].map(|ms| (ms * MILLI) as f64);
        let packets = (on / self.gap()).floor().max(1.0) as u64;
        Ok(self.make(every, packets, seconds, seed))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        Some([self.class].into())
    }

    fn is_relay(&self) -> bool {
        self.streams > 1
    }
}

impl Cbr {
    /// Its streams as objects of one packet.
    fn objects(&self) -> OnOff {
        OnOff {
            rate_kbit: self.rate_kbit,
            packet_bytes: self.packet_bytes,
            every_ms: 1,
            on_ms: 1,
            lifetime_ms: self.lifetime_ms,
            streams: self.streams,
            class: self.class,
        }
    }
}

impl Traffic for Cbr {
    fn check(&self) -> Result<()> {
        self.objects().check()
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let objects = self.objects();
        Ok(objects.make(objects.gap(), 1, seconds, seed))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        self.objects().classes()
    }

    fn is_relay(&self) -> bool {
        self.objects().is_relay()
    }
}

/// A file that TCP carries. A packet of the schedule is a segment, and all are there at the start,
/// within 5 s of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Download {
    /// Segments of the file.
    pub segments: u32,
    /// How long the last hop may hold a segment, ms, if not for less.
    pub lifetime_ms: u64,
}

/// Payload of a segment, bytes.
pub const SEGMENT: u32 = 1000;

impl Default for Download {
    fn default() -> Self {
        Self {
            segments: 500,
            lifetime_ms: 60_000,
        }
    }
}

impl Traffic for Download {
    fn check(&self) -> Result<()> {
        within("segments", self.segments, 1..=100_000)?;
        check_lifetime("lifetime_ms", self.lifetime_ms)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let at = random(seed).next_u64() % (5 * SECOND).min(seconds * SECOND);
        // MAC, IPv4 and TCP headers, with timestamps.
        let bytes = [MAC + 20 + 32 + SEGMENT];
        let segment = |_| Adu::bunch(Class::Data, at, self.lifetime_ms, bytes);
        Ok(build::schedule(
            (0..self.segments).map(segment).collect(),
            seconds,
        ))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        Some([Class::Data].into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, rate_kbit};

    #[test]
    fn cbr_stream_has_its_rate_and_no_jitter_and_a_phase_of_its_own() {
        let mut cbr = Cbr::default();
        let schedule = cbr.schedule(1000, 4).expect("a schedule");
        assert!((rate_kbit(&schedule, Class::Data) - 25.0).abs() < 0.01);
        // 500 bytes at 25 kbit/s: one each 160 ms, to the ns.
        let mut pairs = schedule.packets.windows(2);
        assert!(pairs.all(|pair| pair[1].at - pair[0].at == 160 * MILLI));
        let mut packets = schedule.packets.iter();
        assert!(packets.all(|p| p.last && p.lifetime == 5 * SECOND));
        cbr.streams = 4;
        let schedule = cbr.schedule(100, 4).expect("a schedule");
        let first = schedule.packets.iter().take(4);
        let phases: BTreeSet<u64> = first.map(|p| p.at).collect();
        assert!(phases.len() == 4 && phases.last() < Some(&(160 * MILLI)));
    }

    #[test]
    fn onoff_objects_come_every_five_seconds_and_share_a_deadline() {
        let schedule = OnOff::default().schedule(100, 6).expect("a schedule");
        let objects = adus(&schedule);
        assert!((19..=20).contains(&objects.len()), "{}", objects.len());
        let mut pairs = objects.windows(2);
        assert!(pairs.all(|pair| pair[1].at - pair[0].at == 5 * SECOND));
        for object in &objects {
            // 2.5 s at 30 kbit/s are 18.75 packets of 500 bytes.
            assert_eq!(object.packets, 18);
            assert_eq!(object.deadline - object.at, 5 * SECOND);
        }
    }
}
