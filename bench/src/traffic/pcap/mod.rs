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

use std::{collections::HashMap, net::IpAddr, path::PathBuf};

use anyhow::{Result, bail, ensure};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore as _, SeedableRng as _},
};
use serde::{Deserialize, Serialize};

use self::capture::{Found, Rtp};
use super::{
    Class, MAX_WIRE, MIN_WIRE, Schedule,
    build::{Adu, Builder, check_lifetime},
};
use crate::sys::{MILLI, SECOND};

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The capture, pcap or pcapng; relative to where the lab is started.
    pub file: PathBuf,
    /// Only packets from this address; absent: from any.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// Only packets to these UDP ports; empty: to any.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// RTP payload types that are audio: PCMU, PCMA, G722, G729 of RFC 3551 and the 111
    /// that browsers give Opus, unless told otherwise.
    #[serde(default = "audio_types")]
    pub audio_types: Vec<u8>,
    /// RTP payload types that are data. All others are video.
    #[serde(default)]
    pub data_types: Vec<u8>,
    /// Each destination address is a stream of its own; otherwise all are one.
    #[serde(default)]
    pub by_destination: bool,
    /// Every run begins where the capture does, so that all repetitions are the same.
    #[serde(default)]
    pub from_start: bool,
    /// Lifetime of an audio packet, ms.
    #[serde(default = "lifetime")]
    pub audio_lifetime_ms: u64,
    /// Lifetime of a video frame, ms.
    #[serde(default = "lifetime")]
    pub video_lifetime_ms: u64,
    /// Lifetime of a data object, ms.
    #[serde(default = "lifetime")]
    pub data_lifetime_ms: u64,
}

fn audio_types() -> Vec<u8> {
    vec![0, 8, 9, 18, 111]
}

fn lifetime() -> u64 {
    200
}

impl Parameters {
    /// Of this capture, all else by default.
    pub fn of(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            source: None,
            ports: Vec::new(),
            audio_types: audio_types(),
            data_types: Vec::new(),
            by_destination: false,
            from_start: false,
            audio_lifetime_ms: lifetime(),
            video_lifetime_ms: lifetime(),
            data_lifetime_ms: lifetime(),
        }
    }

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

    fn wanted(&self, packet: &Rtp) -> bool {
        self.source.is_none_or(|source| source == packet.source)
            && (self.ports.is_empty() || self.ports.contains(&packet.port))
    }
}

/// An ADU of the capture; times are ns since its first packet.
#[derive(Debug)]
struct Captured {
    at: u64,
    class: Class,
    stream: u16,
    /// Time and bytes on the wire.
    parts: Vec<(u64, u32)>,
}

/// `seconds` of the capture; the same for the same seed.
pub fn schedule(parameters: &Parameters, seconds: u64, seed: u64) -> Result<Schedule> {
    for (name, ms) in [
        ("audio_lifetime_ms", parameters.audio_lifetime_ms),
        ("video_lifetime_ms", parameters.video_lifetime_ms),
        ("data_lifetime_ms", parameters.data_lifetime_ms),
    ] {
        check_lifetime(name, ms)?;
    }
    let found = capture::read(&parameters.file, false)?;
    let packets = select(parameters, &found)?;
    let adus = group(parameters, &packets)?;
    Ok(replay(parameters, &packets, &adus, seconds, seed))
}

/// The packets that are wanted, in order of time.
fn select<'a>(parameters: &Parameters, found: &'a Found) -> Result<Vec<&'a Rtp>> {
    // Other UDP may look like RTP once; a media stream's SSRC comes again.
    let mut seen: HashMap<u32, u32> = HashMap::new();
    for packet in &found.rtp {
        *seen.entry(packet.ssrc).or_default() += 1;
    }
    let mut packets: Vec<&Rtp> = found
        .rtp
        .iter()
        .filter(|packet| seen.get(&packet.ssrc).is_some_and(|&count| count > 1))
        .filter(|packet| parameters.wanted(packet))
        .collect();
    if packets.is_empty() {
        bail!(
            "{} has {} packets, {} of UDP, {} of RTP, and none of RTP that `source` and `ports` select",
            parameters.file.display(),
            found.packets,
            found.udp,
            found.rtp.len()
        );
    }
    packets.sort_by_key(|packet| packet.at);
    if let Some(large) = packets.iter().find(|packet| packet.wire_bytes > MAX_WIRE) {
        bail!(
            "{} has a packet of {} bytes, more than fits on an Ethernet: it was captured before \
             segmentation; switch GSO and GRO off and capture again",
            parameters.file.display(),
            large.wire_bytes
        );
    }
    Ok(packets)
}

/// Packets of one SSRC, RTP timestamp and destination are an ADU, for as long as it lives.
fn group(parameters: &Parameters, packets: &[&Rtp]) -> Result<Vec<Captured>> {
    let begin = packets.first().map_or(0, |packet| packet.at);
    let mut streams: HashMap<IpAddr, u16> = HashMap::new();
    let mut open: HashMap<(IpAddr, u32, u32), usize> = HashMap::new();
    let mut adus: Vec<Captured> = Vec::new();
    for packet in packets {
        let stream = if parameters.by_destination {
            let next = streams.len();
            ensure!(
                next < 1000 || streams.contains_key(&packet.destination),
                "more than 1000 destinations; select some by `source` or `ports`"
            );
            *streams.entry(packet.destination).or_insert(next as u16)
        } else {
            0
        };
        let at = packet.at - begin;
        let class = parameters.class(packet.payload_type);
        // The smallest is what holds the lab's record; smaller ones grow by a few bytes.
        let part = (at, packet.wire_bytes.max(MIN_WIRE));
        let key = (packet.destination, packet.ssrc, packet.timestamp);
        match open.get(&key).and_then(|&index| adus.get_mut(index)) {
            Some(adu) if at < adu.at + parameters.lifetime(adu.class) => adu.parts.push(part),
            _ => {
                open.insert(key, adus.len());
                adus.push(Captured {
                    at,
                    class,
                    stream,
                    parts: vec![part],
                });
            }
        }
    }
    Ok(adus)
}

fn replay(
    parameters: &Parameters,
    packets: &[&Rtp],
    adus: &[Captured],
    seconds: u64,
    seed: u64,
) -> Schedule {
    let (first, last) = match packets {
        [first, .., last] => (first.at, last.at),
        _ => (0, 0),
    };
    // From the last packet to the first again: the mean gap.
    let gap = (last - first) / (packets.len() as u64 - 1).max(1);
    let round = (last - first + gap).max(MILLI);
    let begin = if parameters.from_start {
        0
    } else {
        (ChaCha8Rng::seed_from_u64(seed).next_u64() % adus.len() as u64) as usize
    };
    let offset = adus[begin].at;
    let duration = seconds * SECOND;
    let mut builder = Builder::default();
    'rounds: for number in 0.. {
        let skipped = if number == 0 { begin } else { 0 };
        for adu in &adus[skipped..] {
            let shift = number * round;
            let at = adu.at + shift - offset;
            if at >= duration {
                break 'rounds;
            }
            builder.add(Adu {
                class: adu.class,
                stream: adu.stream,
                deadline: at + parameters.lifetime(adu.class),
                parts: adu
                    .parts
                    .iter()
                    .map(|&(at, bytes)| (at + shift - offset, bytes))
                    .collect(),
            });
        }
    }
    builder.finish(seconds)
}

#[cfg(test)]
mod tests;
