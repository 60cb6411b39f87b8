//! Replay of the RTP packets of a captured file.
//!
//! Times and sizes are those of the capture, the payload is the lab's. The packets of one
//! SSRC and RTP timestamp are an ADU (RFC 3550 §5.1: the sampling instant, the same for
//! all packets of a video frame), its lifetime runs from its first packet. The payload
//! type says the class, by parameter, because RTP itself does not (RFC 3551 §3).
//!
//! A run begins at an ADU that the seed draws and goes round where the capture ends, so
//! that repetitions differ. Sizes count an Ethernet header and no VLAN tag.

pub(super) mod capture;

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    path::PathBuf,
};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use self::capture::{Found, Rtp};
use super::{
    Class, MAX_WIRE, MIN_WIRE, Schedule,
    build::{self, Adu, RngCore as _, Traffic, check_lifetime, random},
};
use crate::sys::{MILLI, SECOND};

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// The capture, pcap or pcapng; relative to where the lab is started. There is no default.
    pub file: PathBuf,
    /// Only packets from this address; absent: from any.
    pub source: Option<IpAddr>,
    /// Only packets to these UDP ports; empty: to any.
    pub ports: Vec<u16>,
    /// RTP payload types that are audio: PCMU, PCMA, G722, G729 of RFC 3551 and the 111
    /// that browsers give Opus, unless told otherwise.
    pub audio_types: Vec<u8>,
    /// RTP payload types that are data. All others are video.
    pub data_types: Vec<u8>,
    /// Each destination address is a stream of its own; otherwise all are one.
    pub by_destination: bool,
    /// Every run begins where the capture does, so that all repetitions are the same.
    pub from_start: bool,
    /// Lifetime of an audio packet, ms.
    pub audio_lifetime_ms: u64,
    /// Lifetime of a video frame, ms.
    pub video_lifetime_ms: u64,
    /// Lifetime of a data object, ms.
    pub data_lifetime_ms: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            file: PathBuf::new(),
            source: None,
            ports: Vec::new(),
            audio_types: vec![0, 8, 9, 18, 111],
            data_types: Vec::new(),
            by_destination: false,
            from_start: false,
            audio_lifetime_ms: 200,
            video_lifetime_ms: 200,
            data_lifetime_ms: 200,
        }
    }
}

impl Parameters {
    fn class(&self, payload_type: u8) -> Class {
        if self.audio_types.contains(&payload_type) {
            Class::Audio
        } else if self.data_types.contains(&payload_type) {
            Class::Data
        } else {
            Class::Video
        }
    }

    fn lifetime(&self, class: Class) -> u64 {
        MILLI
            * match class {
                Class::Audio => self.audio_lifetime_ms,
                Class::Video => self.video_lifetime_ms,
                Class::Data => self.data_lifetime_ms,
            }
    }
}

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        self.schedule(1, 0).map(drop)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        ensure!(
            !self.file.as_os_str().is_empty(),
            "missing field `file`: name a capture"
        );
        check_lifetime("audio_lifetime_ms", self.audio_lifetime_ms)?;
        check_lifetime("video_lifetime_ms", self.video_lifetime_ms)?;
        check_lifetime("data_lifetime_ms", self.data_lifetime_ms)?;
        let found = capture::read(&self.file, false)?;
        let packets = self.select(&found)?;
        let adus = self.group(&packets)?;
        Ok(self.replay(&packets, adus, seconds, seed))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        None
    }

    fn is_relay(&self) -> bool {
        self.by_destination
    }
}

impl Parameters {
    /// The packets that are wanted, in order of time.
    fn select<'a>(&self, found: &'a Found) -> Result<Vec<&'a Rtp>> {
        // Other UDP may look like RTP once; a media stream's SSRC comes again.
        let mut seen: HashMap<u32, u32> = HashMap::new();
        for packet in &found.rtp {
            *seen.entry(packet.ssrc).or_default() += 1;
        }
        let wanted = |packet: &&Rtp| {
            seen[&packet.ssrc] > 1
                && self.source.is_none_or(|source| source == packet.source)
                && (self.ports.is_empty() || self.ports.contains(&packet.port))
        };
        let mut packets: Vec<&Rtp> = found.rtp.iter().filter(wanted).collect();
        let file = self.file.display();
        ensure!(
            !packets.is_empty(),
            "{file} has {} packets, {} of UDP, {} of RTP, and none of RTP that `source` and `ports` select",
            found.packets,
            found.udp,
            found.rtp.len()
        );
        packets.sort_by_key(|packet| packet.at);
        let largest = packets.iter().map(|packet| packet.wire_bytes).max();
        let largest = largest.unwrap_or(0);
        ensure!(
            largest <= MAX_WIRE,
            "{file} has a packet of {largest} bytes, more than fit on an Ethernet: it was captured \
             before segmentation; switch GSO and GRO off and capture again"
        );
        Ok(packets)
    }

    /// Packets of one SSRC, RTP timestamp and destination are an ADU, for as long as it lives.
    /// Times are ns since the first packet.
    fn group(&self, packets: &[&Rtp]) -> Result<Vec<Adu>> {
        let begin = packets.first().map_or(0, |packet| packet.at);
        let mut streams: HashMap<IpAddr, u16> = HashMap::new();
        let mut open: HashMap<(IpAddr, u32, u32), usize> = HashMap::new();
        let mut adus: Vec<Adu> = Vec::new();
        for packet in packets {
            let mut stream = 0;
            if self.by_destination {
                let next = streams.len() as u16;
                stream = *streams.entry(packet.destination).or_insert(next);
                ensure!(
                    stream < 1000,
                    "more than 1000 destinations; select some by `source` or `ports`"
                );
            }
            let at = packet.at - begin;
            // The smallest is what holds the lab's record; smaller ones grow by a few bytes.
            let part = (at, packet.wire_bytes.max(MIN_WIRE));
            let key = (packet.destination, packet.ssrc, packet.timestamp);
            match open.get(&key).map(|&index| &mut adus[index]) {
                Some(adu) if at < adu.deadline => adu.parts.push(part),
                _ => {
                    open.insert(key, adus.len());
                    let class = self.class(packet.payload_type);
                    adus.push(Adu {
                        class,
                        stream,
                        deadline: at + self.lifetime(class),
                        parts: vec![part],
                    });
                }
            }
        }
        Ok(adus)
    }

    fn replay(&self, packets: &[&Rtp], adus: Vec<Adu>, seconds: u64, seed: u64) -> Schedule {
        let (first, last) = match packets {
            [first, .., last] => (first.at, last.at),
            _ => (0, 0),
        };
        // From the last packet to the first again: the mean gap.
        let gap = (last - first) / (packets.len() as u64 - 1).max(1);
        let round = (last - first + gap).max(MILLI);
        let begin = match self.from_start {
            true => 0,
            false => (random(seed).next_u64() % adus.len() as u64) as usize,
        };
        let offset = adus[begin].parts[0].0;
        let rounds = (0..).flat_map(|number| adus.iter().map(move |adu| (number * round, adu)));
        let shifted = rounds.skip(begin).map(|(shift, adu)| {
            let parts = adu.parts.iter();
            Adu {
                class: adu.class,
                stream: adu.stream,
                deadline: adu.deadline + shift - offset,
                parts: parts
                    .map(|&(at, bytes)| (at + shift - offset, bytes))
                    .collect(),
            }
        });
        let within = |adu: &Adu| adu.parts[0].0 < seconds * SECOND;
        build::schedule(shifted.take_while(within).collect(), seconds)
    }
}

#[cfg(test)]
mod tests;
