//! One combination of path, condition and queue, and its runs.

use std::{fmt, thread};

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Options;
use crate::{
    competing::{self, Competitor, Flows},
    dccp,
    measure::{judge_after, percent},
    queue::{Installed, Queue, Told},
    sys::{MILLI, SECOND},
    tfrc::{
        control::Sample,
        session::{self, Choice, Queueing},
    },
    topology::{self, Path},
    traffic::{Class, MAX_WIRE, Schedule, receiver::Arrival, sender::Marking},
};

/// What is compared unless asked otherwise: the paper's, and ours.
pub const METHODS: [&str; 8] = [
    "plain",
    "fifo",
    "sfdps1",
    "sfdps2",
    "ring",
    "ring-sfdps2",
    "lazy",
    "triage",
];
/// The paper discards so many seconds at the start.
pub const DISCARD_S: u64 = 3;
/// The paper's competing packets: the media's mean size, bytes on the wire.
const TCP_BYTES: u32 = 519;
/// bit/s; the device with bestby is no bottleneck: the session's rate is.
const DEVICE_RATE: u64 = 1_000_000_000;

/// What stands in the way of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// A router's FIFO, shared with TCP.
    Congestion {
        /// bit/s.
        rate: u64,
        /// Packets the FIFO holds.
        router: u32,
        /// Competing TCP Reno flows.
        flows: usize,
    },
    /// Loss at random.
    Loss {
        /// Of all packets.
        percent: f64,
    },
}

impl Condition {
    /// Percent of packets lost at random.
    pub fn loss(&self) -> f64 {
        match self {
            Self::Congestion { .. } => 0.0,
            Self::Loss { percent } => *percent,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Congestion {
                rate,
                router,
                flows,
            } => write!(
                f,
                "{} kbit/s (FIFO of {router}), {flows} Reno flows",
                rate / 1000
            ),
            Self::Loss { percent } => write!(f, "{percent} % lost"),
        }
    }
}

/// What holds the sender's packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// TFRC on UDP, a FIFO of so many packets in user space.
    Plain {
        /// Packets.
        queue: u32,
    },
    /// The kernel's DCCP CCID3.
    Dccp {
        /// Its tx_qlen, packets.
        queue: u32,
    },
    /// TFRC on UDP, bestby below the socket.
    Bestby {
        /// bestby's method.
        method: String,
        /// Packets it may hold.
        queue: u32,
    },
}

impl How {
    /// From the command line's word and a length.
    pub fn parse(word: &str, queue: u32) -> Result<Self> {
        Ok(match word {
            "plain" => Self::Plain { queue },
            "dccp" => Self::Dccp { queue },
            method if METHODS.contains(&method) => Self::Bestby {
                method: method.into(),
                queue,
            },
            other => bail!("no method `{other}`: dccp or one of {}", METHODS.join(", ")),
        })
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { queue } => write!(f, "plain {queue}"),
            Self::Dccp { queue } => write!(f, "dccp {queue}"),
            Self::Bestby { method, queue } => write!(f, "{method} {queue}"),
        }
    }
}

/// What came of one run, after the discarded seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Audio packets on time, % of those offered.
    pub audio: f64,
    /// Video packets on time, %.
    pub video: f64,
    /// Complete video frames on time, %.
    pub frames: f64,
    /// Audio packets that arrived at all, %.
    pub audio_received: f64,
    /// Video packets that arrived at all, %.
    pub video_received: f64,
    /// Bytes that arrived, kbit/s on the wire.
    pub kbit: f64,
    /// The competing TCP flows together, kbit/s of payload.
    pub tcp_kbit: f64,
    /// Packets that left but never arrived, % of those that left (0 for DCCP: not seen).
    pub lost: f64,
    /// Packets of the whole run that left the host (0 for DCCP).
    pub left: u64,
    /// Packets of the whole run that TFRC counted as lost in the network (0 for DCCP).
    pub counted: u64,
    /// Mean of TFRC's RTT, ms (0 for DCCP).
    pub rtt_ms: f64,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "audio {:.1} %, video {:.1} %, frames {:.1} %, {:.0} kbit/s, TCP {:.0} kbit/s, lost {:.2} %, RTT {:.0} ms",
            self.audio, self.video, self.frames, self.kbit, self.tcp_kbit, self.lost, self.rtt_ms
        )
    }
}

/// One combination.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Round trip of the idle path, ms.
    pub rtt_ms: u64,
    /// What stood in the way.
    pub condition: Condition,
    /// What held the packets.
    pub how: How,
    /// Its runs.
    pub runs: Vec<Run>,
}

impl Cell {
    /// Without runs yet.
    pub fn new(rtt_ms: u64, condition: Condition, how: How) -> Self {
        Self {
            rtt_ms,
            condition,
            how,
            runs: Vec::new(),
        }
    }
}

/// One run.
pub fn run(
    path: &Path,
    competitor: Option<&Competitor>,
    condition: Condition,
    how: &How,
    schedule: &Schedule,
    options: &Options,
) -> Result<Run> {
    if let Condition::Congestion { rate, router, .. } = condition {
        path.set_router(rate, router)?;
    }
    let installed = match how {
        How::Bestby { method, queue } => {
            let queue = Queue::Bestby {
                method: method.clone(),
                limit: Some(*queue),
            };
            // No receivers: rate and owd come from the application alone.
            let told = Told {
                rate: DEVICE_RATE,
                session_rate: None,
                owd: 0,
                receivers: &[],
                largest: MAX_WIRE,
            };
            let ns = path.sender();
            Some(Installed::told(&queue, ns, topology::DEVICE, &told)?)
        }
        How::Plain { .. } | How::Dccp { .. } => None,
    };
    let tcp = match (competitor, condition) {
        (Some(competitor), Condition::Congestion { flows, .. }) => {
            let flows = Flows {
                count: flows,
                control: "reno".into(),
                wire_bytes: TCP_BYTES,
            };
            let running = competitor.start(path, &flows)?;
            thread::sleep(competing::WARM_UP);
            Some(running)
        }
        _ => None,
    };
    let discard = DISCARD_S * SECOND;
    let (sent, arrivals, result) = match how {
        How::Dccp { queue } => {
            let outcome = dccp::run(path, schedule, *queue as usize)?;
            (outcome.sent, outcome.arrivals, Run::default())
        }
        How::Plain { queue } => tfrc(path, schedule, Queueing::Fifo(*queue as usize), options)?,
        How::Bestby { method, .. } => {
            let marking = Marking {
                mark: true,
                // The paper knows packets only; triage gives up whole frames.
                alone: method != "triage",
                ..Marking::default()
            };
            tfrc(path, schedule, Queueing::Bestby(marking), options)?
        }
    };
    let tcp_kbit = match tcp {
        Some(running) => running
            .stop()?
            .iter()
            .map(|flow| flow.rate(competing::WARM_UP.as_nanos() as u64 + discard) / 1000.0)
            .sum(),
        None => 0.0,
    };
    drop(installed);
    let measures = judge_after(schedule, &sent, &arrivals, path.extra_delay, discard);
    Ok(Run {
        audio: measures.audio_on_time(),
        video: measures.video_on_time(),
        frames: measures.frames_on_time(),
        audio_received: received(schedule, &arrivals, Class::Audio, discard),
        video_received: received(schedule, &arrivals, Class::Video, discard),
        kbit: measures.received_bytes as f64 * 8e6 / (schedule.duration - discard) as f64,
        tcp_kbit,
        ..result
    })
}

type Raw = (crate::traffic::sender::Sent, Vec<Arrival>, Run);

fn tfrc(path: &Path, schedule: &Schedule, queueing: Queueing, options: &Options) -> Result<Raw> {
    let choice = Choice {
        damp: options.damp,
        nominal: options.nominal,
    };
    let outcome = session::run(path, schedule, queueing, choice)?;
    if options.trace {
        trace(&outcome.samples);
    }
    let left = outcome.departures.len() as u64;
    let lost = left.saturating_sub(outcome.arrivals.len() as u64);
    // Nothing here reorders, so every loss counted is one that the network made.
    ensure!(
        outcome.counted <= lost,
        "TFRC counted {} losses, but of {left} packets that left only {lost} did not arrive",
        outcome.counted
    );
    let rtts = outcome.samples.iter().map(|sample| sample.rtt as f64);
    let rtt_ms = rtts.sum::<f64>() / outcome.samples.len().max(1) as f64 / 1e6;
    let run = Run {
        lost: percent([left, lost]),
        left,
        counted: outcome.counted,
        rtt_ms,
        ..Run::default()
    };
    Ok((outcome.sent, outcome.arrivals, run))
}

/// Packets of `class` created after `discard` ns that arrived, in percent.
fn received(schedule: &Schedule, arrivals: &[Arrival], class: Class, discard: u64) -> f64 {
    let counts = |sequence: usize| {
        schedule
            .packets
            .get(sequence)
            .is_some_and(|p| p.class == class && p.at >= discard)
    };
    let of = (0..schedule.packets.len()).filter(|&n| counts(n)).count();
    let came = arrivals
        .iter()
        .filter(|arrival| counts(arrival.record.sequence as usize))
        .count();
    percent([of as u64, came as u64])
}

fn trace(samples: &[Sample]) {
    let mut next = 0;
    let Some(first) = samples.first() else { return };
    for sample in samples.iter().filter(|sample| {
        let due = sample.at >= next;
        if due {
            next = sample.at + 500 * MILLI;
        }
        due
    }) {
        note!(
            "    {:7.3} s: {:7.1} kbit/s, RTT {:6.1} ms, p {:.4}",
            (sample.at - first.at) as f64 / 1e9,
            sample.rate * 8.0 / 1000.0,
            sample.rtt as f64 / 1e6,
            sample.p
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_has_its_word() {
        for word in METHODS {
            let how = How::parse(word, 5).expect("a method");
            assert_eq!(how.to_string(), format!("{word} 5"));
        }
        assert_eq!(How::parse("dccp", 32).expect("dccp").to_string(), "dccp 32");
        let error = How::parse("ringo", 5).expect_err("no method").to_string();
        assert!(
            error.contains("ringo") && error.contains("ring-sfdps2"),
            "{error}"
        );
    }
}
