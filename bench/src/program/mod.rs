//! Programs that send ADUs over a connection of their own (`control = "program"`): late data choice and
//! selective retransmission, and what others do instead.
//!
//! A packet of the schedule is an ADU. What a TCP connection or a QUIC stream carries of several is framed:
//! position in the schedule and length (4 bytes each, network order), then the payload. The receiver is the
//! same for all programs of a transport, and takes frames apart; a frame that is not of the schedule ends
//! the run, so a program that tears its framing is found out.

mod quic;
mod tcp;

use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};
use bestby_api::RealMode;
use serde::{Deserialize, Serialize};

use crate::{
    measure::{Carried, Layer, Spread},
    sys::{self, MILLI},
    topology::Path,
    traffic::{HEADERS, Packet, Schedule, receiver::Arrival, sender::Sent, wire::Record},
};

/// What decides which bytes go when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// TCP; all that is made is written as soon as the socket takes it.
    Plain,
    /// TCP behind a queue that drops what is stale before it is begun, as media servers have it.
    Dropping,
    /// The same, the most important first, and `TCP_NOTSENT_LOWAT` of 16 KiB.
    Lowat,
    /// The same, but what is written is limited by the congestion window, as in h2o.
    H2o,
    /// `bestby::tcp::Ring`; with or without its cap on what is in flight.
    Ring {
        /// Whether it has it.
        capped: bool,
    },
    /// QUIC, one reliable stream for each stream of the schedule.
    Stream,
    /// QUIC, a reliable stream for each ADU.
    Streams,
    /// The same, reset at the deadline, as MoQT's delivery timeout has it.
    Reset,
    /// `bestby::quic::Sender`.
    Bestby,
    /// No ADUs, but bulk data over TCP, see [`transfer`](crate::transfer).
    Transfer,
}

/// The connection's congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// NewReno.
    Reno,
    /// The default of Linux and of quinn.
    #[default]
    Cubic,
    /// Version 1 of it, in both.
    Bbr,
    /// TCP-Real in mode guarded; of TCP only.
    Real,
    /// TCP-Real in mode paper; of TCP only.
    #[serde(rename = "real paper")]
    RealPaper,
}

impl Congestion {
    /// What the kernel calls it.
    pub fn kernel_name(self) -> String {
        match self.real_mode() {
            None => self.to_string(),
            Some(_) => "bestby_real".into(),
        }
    }

    /// The mode of TCP-Real that it needs, if it is TCP-Real.
    pub fn real_mode(self) -> Option<RealMode> {
        match self {
            Self::Real => Some(RealMode::Guarded),
            Self::RealPaper => Some(RealMode::Paper),
            _ => None,
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
            Self::Real => "real",
            Self::RealPaper => "real paper",
        })
    }
}

/// What a program is to do.
#[derive(Debug)]
pub struct Task<'a> {
    /// Its ADUs.
    pub schedule: &'a Schedule,
    /// Who sends them.
    pub program: Program,
    /// How fast.
    pub congestion: Congestion,
    /// A QUIC sender's deadline in smoothed round trips; 0: the lifetime.
    pub deadline_srtts: f64,
}

/// When a run begins, stops to make ADUs, and ends, ns.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: u64,
    made: u64,
    end: u64,
}

/// What one run saw.
#[derive(Debug, Default)]
struct Seen {
    arrivals: Vec<Arrival>,
    /// Payload that came while ADUs were made, bytes.
    received: u64,
    /// When each ADU was acknowledged as a whole, where the transport says so.
    acknowledged: Vec<(u32, u64)>,
    /// The smoothed round trip, each 10 ms, ns.
    rtts: Vec<u64>,
    /// Bytes that TCP held unsent, each 10 ms.
    unsent: Vec<u64>,
    given_up: u64,
    resets: u64,
    /// By which the sender was late, ns.
    late: u64,
}

/// Sends what `task` says over `path`, and on until what was made last is of no use any more.
pub fn run(path: &Path, task: &Task<'_>) -> Result<(Sent, Vec<Arrival>, Carried)> {
    let schedule = task.schedule;
    let lifetimes = schedule.packets.iter().map(|packet| packet.lifetime);
    let longest = lifetimes.max().context("no ADU to send")?;
    let times = || {
        let start = sys::now() + 50 * MILLI;
        let made = start + schedule.duration;
        let end = made + longest + 500 * MILLI;
        Times { start, made, end }
    };
    let (times, seen) = match task.program {
        Program::Plain
        | Program::Dropping
        | Program::Lowat
        | Program::H2o
        | Program::Ring { .. } => tcp::run(path, task, times)?,
        Program::Transfer => bail!("`tcp transfer` has no ADUs to send"),
        _ => quic::run(path, task, times)?,
    };
    let created = schedule
        .packets
        .iter()
        .map(|packet| times.start + packet.at);
    let sent = Sent {
        created: created.collect(),
        latest: seen.late,
        ..Sent::default()
    };
    let carried = carried(schedule, times, &seen);
    Ok((sent, seen.arrivals, carried))
}

/// The same of a program that is not of this module, from what arrived.
pub fn of_other(schedule: &Schedule, sent: &Sent, arrivals: &[Arrival]) -> Carried {
    let first = schedule.packets.first().zip(sent.created.first());
    let start = first.map_or(0, |(packet, created)| created - packet.at);
    let made = start + schedule.duration;
    let in_time = arrivals.iter().filter(|arrival| arrival.at <= made);
    let packets =
        in_time.filter_map(|arrival| schedule.packets.get(arrival.record.sequence as usize));
    let seen = Seen {
        arrivals: arrivals.to_vec(),
        received: packets.map(|packet| payload(packet) as u64).sum(),
        ..Seen::default()
    };
    let times = Times {
        start,
        made,
        end: made,
    };
    carried(schedule, times, &seen)
}

/// Payload of an ADU, framing included.
fn frame(sequence: u32, packet: &Packet) -> Vec<u8> {
    let bytes = payload(packet);
    let mut frame = vec![0; bytes];
    frame[..4].copy_from_slice(&sequence.to_be_bytes());
    frame[4..8].copy_from_slice(&(bytes as u32).to_be_bytes());
    frame
}

fn payload(packet: &Packet) -> usize {
    packet.wire_bytes.saturating_sub(HEADERS) as usize
}

/// Takes frames apart.
#[derive(Debug, Default)]
struct Frames {
    head: Vec<u8>,
    left: usize,
}

impl Frames {
    /// Takes bytes of a stream; returns the frames that end in it.
    fn take(&mut self, mut bytes: &[u8], schedule: &Schedule) -> Result<Vec<u32>> {
        let mut whole = Vec::new();
        while !bytes.is_empty() {
            if self.left == 0 {
                let (head, rest) = bytes.split_at(bytes.len().min(8 - self.head.len()));
                self.head.extend(head);
                bytes = rest;
                if self.head.len() < 8 {
                    break;
                }
                let length = self.head[4..]
                    .iter()
                    .fold(0, |n, &byte| n << 8 | usize::from(byte));
                let packet = schedule.packets.get(self.sequence() as usize);
                let known = packet.is_some_and(|packet| payload(packet) == length);
                ensure!(known, "a frame {:?} is none of the schedule's", self.head);
                self.left = length - 8;
            }
            let part = bytes.len().min(self.left);
            (self.left, bytes) = (self.left - part, &bytes[part..]);
            if self.left == 0 {
                whole.push(self.sequence());
                self.head.clear();
            }
        }
        Ok(whole)
    }

    fn sequence(&self) -> u32 {
        self.head
            .iter()
            .take(4)
            .fold(0, |n, &byte| n << 8 | u32::from(byte))
    }
}

/// ADU `sequence`, as it arrives now.
fn arrival(sequence: u32) -> Arrival {
    let record = Record {
        sequence,
        created: 0,
    };
    Arrival {
        record,
        whole: true,
        at: sys::now(),
    }
}

fn carried(schedule: &Schedule, times: Times, seen: &Seen) -> Carried {
    let packets = &schedule.packets;
    let mut layers = vec![Layer::default(); schedule.streams()];
    let mut last = vec![None; schedule.streams()];
    let mut dispersion = Vec::new();
    for arrival in &seen.arrivals {
        let Some(packet) = packets.get(arrival.record.sequence as usize) else {
            continue;
        };
        if let Some(before) = last[usize::from(packet.stream)].replace(arrival.at) {
            dispersion.push(arrival.at.saturating_sub(before));
        }
        let layer = &mut layers[usize::from(packet.stream)];
        layer.received_kb +=
            f64::from(u8::from(arrival.at <= times.made)) * payload(packet) as f64 / 1e3;
        layer.on_time += u64::from(arrival.at <= times.start + packet.at + packet.lifetime);
    }
    let latency = seen
        .acknowledged
        .iter()
        .map(|&(sequence, at)| at.saturating_sub(times.start + packets[sequence as usize].at));
    let ms = |ns: u64| ns as f64 / 1e6;
    Carried {
        received_kbit: seen.received as f64 * 8e6 / schedule.duration as f64,
        layers: (1..).map(|n: u32| n.to_string()).zip(layers).collect(),
        unsent_kb: Spread::of(seen.unsent.iter().map(|&bytes| bytes as f64 / 1e3)),
        latency_ms: Spread::of(latency.map(ms)),
        rtt_ms: Spread::of(seen.rtts.iter().copied().map(ms)),
        dispersion_ms: Spread::of(dispersion.into_iter().map(ms)),
        given_up: seen.given_up,
        resets: seen.resets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Class;

    fn schedule() -> Schedule {
        let packet = |n: u16| Packet {
            stream: n % 2,
            wire_bytes: HEADERS + 100 + u32::from(n),
            ..Packet::of(Class::Data, n.into())
        };
        Schedule {
            packets: (0..4).map(packet).collect(),
            duration: 1_000_000_000,
        }
    }

    #[test]
    fn frames_of_any_cut_come_whole_and_a_torn_one_is_refused() {
        let schedule = schedule();
        let frames = (0..)
            .zip(&schedule.packets)
            .map(|(n, packet)| frame(n, packet));
        let stream = frames.collect::<Vec<_>>().concat();
        for cut in 1..stream.len() {
            let mut frames = Frames::default();
            let parts = stream.chunks(cut).map(|part| frames.take(part, &schedule));
            let whole: Vec<u32> = parts.flat_map(|whole| whole.expect("frames")).collect();
            assert_eq!(whole, [0, 1, 2, 3], "{cut}");
        }
        let torn = [&stream[..50], &stream[60..]].concat();
        let error = Frames::default().take(&torn, &schedule).expect_err("torn");
        assert!(
            error.to_string().contains("none of the schedule's"),
            "{error}"
        );
    }

    #[test]
    fn carried_counts_by_layer_and_spreads() {
        let schedule = schedule();
        let times = Times {
            start: 0,
            made: 300_000_000,
            end: 0,
        };
        let arrivals = [(0, 100), (1, 150), (2, 250), (3, 310)];
        let arrivals = arrivals.map(|(sequence, ms)| Arrival {
            at: ms * MILLI,
            ..arrival(sequence)
        });
        let seen = Seen {
            arrivals: arrivals.into(),
            received: 1000,
            acknowledged: vec![(0, 120 * MILLI)],
            ..Seen::default()
        };
        let found = carried(&schedule, times, &seen);
        assert_eq!(found.received_kbit, 8.0);
        let [even, odd] = ["1", "2"].map(|name| found.layers[name]);
        // They live 200 ms; 0.1 kB each, and the last one came too late to count.
        assert_eq!((even.received_kb * 1000.0).round(), 202.0);
        assert_eq!(
            ((odd.received_kb * 1000.0).round(), odd.on_time),
            (101.0, 1)
        );
        assert_eq!(found.latency_ms.map(|spread| spread.mean), Some(120.0));
        assert_eq!(
            found.dispersion_ms.map(|spread| (spread.low, spread.high)),
            Some((150.0, 160.0))
        );
        assert_eq!(found.rtt_ms, None);
    }
}
