//! Traffic: what is sent when, known before a run starts, so that two runs with
//! one seed send the same bytes at the same times.

mod build;
pub mod conference;
pub mod gop;
pub mod layers;
pub mod lpd;
pub mod media;
mod model;
pub mod pcap;
pub mod receiver;
pub mod sender;
pub mod sfu;
pub mod transfer;
pub mod wire;

pub use model::Model;
use serde::{Deserialize, Serialize};

/// What a packet carries; also the flow it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Given up last.
    Audio,
    /// Worth something as a complete frame only.
    Video,
    /// Neither heard nor seen, but of use for a lifetime only: game state, telemetry,
    /// LPD's constant-rate and ON/OFF flows. An object is worth something as a whole.
    Data,
}

impl Class {
    /// All of them; `class as usize` is the place in it.
    pub const ALL: [Self; 3] = [Self::Audio, Self::Video, Self::Data];

    /// Its word in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Data => "data",
        }
    }

    /// bestby's priority: 0 is sent first.
    pub fn priority(self) -> u8 {
        match self {
            Self::Audio => 0,
            Self::Video => 4,
            Self::Data => 6,
        }
    }
}

/// One packet of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it is created and sent, ns since the start of the run.
    pub at: u64,
    /// Deadline = creation + lifetime, ns.
    pub lifetime: u64,
    /// Its class.
    pub class: Class,
    /// bestby's priority, 0 is given up last: [`Class::priority`], unless the application
    /// knows more, as real media do of frames that others refer to.
    pub priority: u8,
    /// Which media stream, or client of a relay; streams go to destinations of their
    /// own where the sender has several.
    pub stream: u16,
    /// Its ADU (audio packet, video frame or data object), counted through all classes from 0.
    pub adu: u32,
    /// Last packet of its ADU.
    pub last: bool,
    /// Bytes on an Ethernet, MAC header included, frame check sequence not.
    pub wire_bytes: u32,
    /// What it says in RTP; `None` where the model knows sizes only.
    pub recorded: Option<wire::Recorded>,
}

#[cfg(test)]
impl Packet {
    /// A whole ADU of 1000 bit at the start of a run that lives 200 ms.
    pub(crate) fn of(class: Class, adu: u32) -> Self {
        Self {
            at: 0,
            lifetime: 200_000_000,
            class,
            priority: class.priority(),
            stream: 0,
            adu,
            last: true,
            wire_bytes: 125,
            recorded: None,
        }
    }
}

/// The MAC header of an Ethernet, bytes.
pub const MAC: u32 = 14;

/// Ethernet, IPv4 (20) and UDP (8) headers in front of the payload.
pub const HEADERS: u32 = MAC + 20 + 8;

/// Smallest packet that holds the lab's own record.
pub const MIN_WIRE: u32 = HEADERS + wire::RECORD as u32;

/// Largest packet: a payload of 1500 bytes in an Ethernet frame.
pub const MAX_WIRE: u32 = 1514;

/// A run's packets in sending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// In order of `at`.
    pub packets: Vec<Packet>,
    /// Length of the run in ns; all packets are sent within it.
    pub duration: u64,
}

impl Schedule {
    /// Bytes of the largest packet on the wire; 0 of nothing.
    pub fn largest(&self) -> u32 {
        self.packets.iter().map(|p| p.wire_bytes).max().unwrap_or(0)
    }

    /// Gives ADUs another lifetime (ns) by class, `None` leaves a class as it is. It runs
    /// from an ADU's first packet on: all packets of an ADU keep sharing one deadline.
    pub fn set_lifetimes(&mut self, of: impl Fn(Class) -> Option<u64>) {
        let mut begun = std::collections::HashMap::new();
        for packet in &mut self.packets {
            let began = *begun.entry(packet.adu).or_insert(packet.at);
            if let Some(lifetime) = of(packet.class) {
                packet.lifetime = (began + lifetime).saturating_sub(packet.at);
            }
        }
    }

    /// How many streams there are: the highest number and one.
    pub fn streams(&self) -> usize {
        let streams = self.packets.iter().map(|p| usize::from(p.stream) + 1);
        streams.max().unwrap_or(0)
    }

    /// Offered load in bit/s, on the wire.
    pub fn load(&self) -> f64 {
        let bytes: u64 = self.packets.iter().map(|p| u64::from(p.wire_bytes)).sum();
        bytes as f64 * 8.0 / (self.duration as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{build::Traffic as _, *};

    #[test]
    fn schedule_set_lifetimes_keeps_one_deadline_per_adu() {
        let mut schedule = sfu::Parameters::default()
            .schedule(1, 1)
            .expect("a schedule");
        let before = schedule.clone();
        schedule.set_lifetimes(|class| (class == Class::Video).then_some(77_000_000));
        // `adus` asserts one deadline per ADU.
        for (old, new) in adus(&before).iter().zip(adus(&schedule)) {
            let lifetime = if new.class == Class::Video { 77 } else { 200 };
            assert_eq!(new.deadline - new.at, lifetime * 1_000_000);
            assert_eq!((old.at, old.bytes), (new.at, new.bytes));
        }
    }

    /// A number of all that is in a schedule (FNV-1a).
    pub(super) fn fingerprint(schedule: &Schedule) -> u64 {
        let fields = schedule.packets.iter().flat_map(|p| {
            let of_packet = [p.at, p.lifetime, p.wire_bytes.into()];
            let (class, last) = (p.class as u64, p.last.into());
            let small = [
                class,
                p.priority.into(),
                p.stream.into(),
                p.adu.into(),
                last,
            ];
            of_packet.into_iter().chain(small)
        });
        let bytes = fields.chain([schedule.duration]).flat_map(u64::to_le_bytes);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }

    /// What a test wants to know of an ADU.
    #[derive(Debug)]
    pub(super) struct Adu {
        pub(super) at: u64,
        pub(super) class: Class,
        pub(super) stream: u16,
        pub(super) deadline: u64,
        pub(super) packets: u32,
        pub(super) bytes: u32,
    }

    /// All ADUs in the order of their numbers. All packets of one must agree on its class, its
    /// stream and its deadline, and the last alone say that it is.
    pub(super) fn adus(schedule: &Schedule) -> Vec<Adu> {
        let mut adus = BTreeMap::<u32, Vec<&Packet>>::new();
        for p in &schedule.packets {
            adus.entry(p.adu).or_default().push(p);
        }
        assert!(adus.keys().copied().eq(0..adus.len() as u32));
        let adu = |all: Vec<&Packet>| {
            let of = |p: &Packet| (p.class, p.stream, p.at + p.lifetime);
            let (class, stream, deadline) = of(all[0]);
            for (place, p) in (1..).zip(&all) {
                assert_eq!(of(p), (class, stream, deadline), "ADU {}", p.adu);
                assert_eq!(p.last, place == all.len(), "ADU {}", p.adu);
            }
            Adu {
                at: all[0].at,
                class,
                stream,
                deadline,
                packets: all.len() as u32,
                bytes: all.iter().map(|p| p.wire_bytes).sum(),
            }
        };
        adus.into_values().map(adu).collect()
    }

    /// Rate of a class on the wire.
    pub(super) fn rate_kbit(schedule: &Schedule, class: Class) -> f64 {
        let packets = schedule.packets.iter().filter(|p| p.class == class);
        let bytes: u64 = packets.map(|p| u64::from(p.wire_bytes)).sum();
        bytes as f64 * 8e6 / schedule.duration as f64
    }
}
