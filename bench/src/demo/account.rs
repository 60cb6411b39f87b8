//! What arrived, and what arrived in time: from the log of the relay and the
//! log of the receiver to the demo's figures. Pure.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::rtp::PacketKey;

/// The two media of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Opus, one packet each 20 ms.
    Audio,
    /// H.264, several packets per frame.
    Video,
}

/// A packet the relay received, and so the moment its data came to exist here.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Which stream.
    pub stream: Stream,
    /// Which packet.
    pub key: PacketKey,
}

/// A packet the client received.
#[derive(Debug, Clone)]
pub struct Received {
    /// CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// Which packet.
    pub key: PacketKey,
    /// Its RTP payload; empty for audio.
    pub payload: Vec<u8>,
}

/// How long data is of use after the relay has it, ns.
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// Of an audio packet.
    pub audio_ns: u64,
    /// Of a video frame, from its first packet on.
    pub video_ns: u64,
}

impl Lifetimes {
    fn of(self, stream: Stream) -> u64 {
        match stream {
            Stream::Audio => self.audio_ns,
            Stream::Video => self.video_ns,
        }
    }
}

/// Half of the delays are below `p50`, 99 of 100 below `p99`; ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Delay {
    /// Nearest rank; `None` of nothing.
    pub fn of(mut delays_ms: Vec<f64>) -> Option<Self> {
        delays_ms.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = (share * delays_ms.len() as f64).ceil() as usize;
            delays_ms.get(rank.max(1) - 1).copied()
        };
        Some(Self {
            p50: rank(0.50)?,
            p99: rank(0.99)?,
        })
    }
}

/// Packets of one stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// Given to the relay.
    pub offered: u64,
    /// Arrived at the client before their deadline.
    pub on_time: u64,
    /// Arrived after it: stale packets that were sent, and took the place of others.
    pub stale: u64,
    /// Never arrived.
    pub dropped: u64,
    /// From the relay's input to the client, of those that arrived.
    pub delay_ms: Option<Delay>,
}

/// Video frames.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// Given to the relay.
    pub offered: u64,
    /// All packets arrived before the frame's deadline.
    pub on_time: u64,
}

/// Delay over time, to be drawn: seconds since the run began, ms.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// Each audio packet that arrived.
    pub audio: Vec<(f64, f64)>,
    /// Each video frame that arrived whole: delay of its last packet.
    pub frames: Vec<(f64, f64)>,
    /// When the audio packets came to be that never arrived.
    pub audio_lost: Vec<f64>,
    /// When the video frames came to be that did not arrive whole.
    pub frames_lost: Vec<f64>,
}

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Audio packets.
    pub audio: Packets,
    /// Video packets.
    pub video: Packets,
    /// Video frames.
    pub frames: Frames,
    /// For the plot.
    pub trace: Trace,
}

/// One ADU: an audio packet or a video frame, its packets in sending order.
struct Adu {
    stream: Stream,
    created_ns: u64,
    packets: Vec<PacketKey>,
}

/// Compares the two logs. Also returns, in decoding order, the payloads of the
/// video frames that a player could use: whole and before their deadline.
/// A packet that arrives twice counts when it came first.
pub fn judge<'a>(
    sent: &[Sent],
    received: &'a [Received],
    lifetimes: Lifetimes,
) -> (Figures, Vec<Vec<&'a [u8]>>) {
    let mut arrivals: HashMap<PacketKey, &Received> = HashMap::with_capacity(received.len());
    for packet in received {
        arrivals.entry(packet.key).or_insert(packet);
    }
    let begin_ns = sent.iter().map(|s| s.at_ns).min().unwrap_or(0);
    let seconds = |at_ns: u64| (at_ns - begin_ns) as f64 / 1e9;

    let mut figures = Figures::default();
    let mut usable = Vec::new();
    let (mut audio_delays, mut video_delays) = (Vec::new(), Vec::new());
    for adu in adus(sent) {
        let deadline_ns = adu.created_ns + lifetimes.of(adu.stream);
        let (packets, delays) = match adu.stream {
            Stream::Audio => (&mut figures.audio, &mut audio_delays),
            Stream::Video => (&mut figures.video, &mut video_delays),
        };
        let mut last_ns = Some(0);
        let mut payloads = Vec::with_capacity(adu.packets.len());
        for key in &adu.packets {
            packets.offered += 1;
            let Some(arrival) = arrivals.get(key) else {
                packets.dropped += 1;
                last_ns = None;
                continue;
            };
            delays.push(millis(arrival.at_ns.saturating_sub(adu.created_ns)));
            if arrival.at_ns <= deadline_ns {
                packets.on_time += 1;
            } else {
                packets.stale += 1;
            }
            last_ns = last_ns.map(|last: u64| last.max(arrival.at_ns));
            payloads.push(arrival.payload.as_slice());
        }

        let trace = &mut figures.trace;
        let (points, lost) = match adu.stream {
            Stream::Audio => (&mut trace.audio, &mut trace.audio_lost),
            Stream::Video => (&mut trace.frames, &mut trace.frames_lost),
        };
        let at = seconds(adu.created_ns);
        match last_ns {
            Some(last) => points.push((at, millis(last.saturating_sub(adu.created_ns)))),
            None => lost.push(at),
        }
        if adu.stream == Stream::Video {
            figures.frames.offered += 1;
            if last_ns.is_some_and(|last| last <= deadline_ns) {
                figures.frames.on_time += 1;
                usable.push(payloads);
            }
        }
    }
    figures.audio.delay_ms = Delay::of(audio_delays);
    figures.video.delay_ms = Delay::of(video_delays);
    (figures, usable)
}

/// Groups packets by stream and RTP timestamp, in the order of first packets.
fn adus(sent: &[Sent]) -> Vec<Adu> {
    let mut index = HashMap::new();
    let mut adus: Vec<Adu> = Vec::new();
    for packet in sent {
        let id = (packet.stream, packet.key.ssrc, packet.key.timestamp);
        let at = *index.entry(id).or_insert_with(|| {
            adus.push(Adu {
                stream: packet.stream,
                created_ns: packet.at_ns,
                packets: Vec::new(),
            });
            adus.len() - 1
        });
        adus[at].packets.push(packet.key);
    }
    adus
}

fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const LIFETIMES: Lifetimes = Lifetimes {
        audio_ns: 200 * MS,
        video_ns: 300 * MS,
    };

    fn key(stream: Stream, seq: u16, timestamp: u32) -> PacketKey {
        PacketKey {
            ssrc: stream as u32,
            seq,
            timestamp,
        }
    }

    fn sent(stream: Stream, ms: u64, seq: u16, timestamp: u32) -> Sent {
        Sent {
            at_ns: ms * MS,
            stream,
            key: key(stream, seq, timestamp),
        }
    }

    fn received(stream: Stream, ms: u64, seq: u16, timestamp: u32) -> Received {
        Received {
            at_ns: ms * MS,
            key: key(stream, seq, timestamp),
            payload: vec![seq as u8],
        }
    }

    #[test]
    fn audio_counts_by_packet() {
        use Stream::Audio;
        let log: Vec<_> = (0..4)
            .map(|i| sent(Audio, 1000 + 20 * i, i as u16, 960 * i as u32))
            .collect();
        let arrived = [
            received(Audio, 1200, 0, 0),    // exactly at its deadline: of use
            received(Audio, 1221, 1, 960),  // 1 ms too late
            received(Audio, 1090, 2, 1920), // 50 ms after it was sent
            received(Audio, 1900, 2, 1920), // the same again
        ];
        let (figures, _) = judge(&log, &arrived, LIFETIMES);
        let Packets {
            offered,
            on_time,
            stale,
            dropped,
            delay_ms,
        } = figures.audio;
        assert_eq!((offered, on_time, stale, dropped), (4, 2, 1, 1));
        assert_eq!(
            delay_ms,
            Some(Delay {
                p50: 200.0,
                p99: 201.0
            })
        );
        assert_eq!(figures.trace.audio_lost, [0.06]);
        assert_eq!(figures.frames, Frames::default());
    }

    #[test]
    fn a_frame_needs_all_its_packets_and_its_first_one_sets_the_deadline() {
        use Stream::Video;
        let log = [
            sent(Video, 0, 1, 0),
            sent(Video, 0, 2, 0),
            sent(Video, 40, 3, 3600),
            sent(Video, 90, 4, 3600), // its frame began at 40: due at 340
            sent(Video, 80, 5, 7200),
            sent(Video, 80, 6, 7200),
            sent(Video, 120, 7, 10800),
        ];
        let arrived = [
            received(Video, 210, 2, 0),
            received(Video, 200, 1, 0),
            received(Video, 300, 3, 3600),
            received(Video, 341, 4, 3600),
            received(Video, 300, 5, 7200), // seq 6 never arrives
            received(Video, 420, 7, 10800),
        ];
        let (figures, usable) = judge(&log, &arrived, LIFETIMES);
        assert_eq!(
            figures.frames,
            Frames {
                offered: 4,
                on_time: 2
            }
        );
        assert_eq!(
            usable,
            [vec![&[1u8][..], &[2]], vec![&[7][..]]],
            "in sending order"
        );
        let Packets {
            offered,
            on_time,
            stale,
            dropped,
            ..
        } = figures.video;
        assert_eq!((offered, on_time, stale, dropped), (7, 5, 1, 1));
        assert_eq!(
            figures.trace.frames,
            [(0.0, 210.0), (0.04, 301.0), (0.12, 300.0)]
        );
        assert_eq!(figures.trace.frames_lost, [0.08]);
    }

    #[test]
    fn the_same_timestamp_of_two_streams_is_two_adus() {
        let log = [sent(Stream::Audio, 0, 1, 0), sent(Stream::Video, 0, 1, 0)];
        let (figures, _) = judge(&log, &[received(Stream::Video, 50, 1, 0)], LIFETIMES);
        assert_eq!((figures.audio.dropped, figures.video.on_time), (1, 1));
    }

    #[test]
    fn nothing_is_nothing() {
        let (figures, usable) = judge(&[], &[], LIFETIMES);
        assert_eq!(figures, Figures::default());
        assert!(usable.is_empty());
    }
}
