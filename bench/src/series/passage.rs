//! What went over a path in one run, and what a queue is told of the path before.

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::{
    measure::{Carried, LastHop, QueueCounters, Tfrc, Transfer},
    queue::{Installed, Told},
    scenario::cell::{Bottleneck, Point},
    srt,
    traffic::{receiver::Arrival, sender::Sent},
};

/// What went over a path.
#[derive(Default)]
pub(super) struct Passage {
    pub(super) sent: Sent,
    pub(super) arrivals: Vec<Arrival>,
    /// Added to arrivals, ns.
    pub(super) extra_delay: u64,
    /// Of the idle path, ns.
    pub(super) owd: u64,
    pub(super) counters: Option<QueueCounters>,
    /// Of SRT, where it was the peer.
    pub(super) srt: Option<srt::Counters>,
    /// Of TFRC, where it set the rate.
    pub(super) tfrc: Option<Tfrc>,
    /// Of a line, where it was the last hop.
    pub(super) last_hop: Option<LastHop>,
    /// Of a program's own connection, where it had one.
    pub(super) carried: Option<Carried>,
    /// Of bulk TCP flows, where they were the traffic.
    pub(super) transfer: Option<Transfer>,
    /// How long a download took, ns.
    pub(super) download: Option<u64>,
    /// Packets that a queue in user space had no room for; absent of any other.
    pub(super) tail_drops: Option<u64>,
    /// Bytes on the wire of the competing TCP flows; absent without any.
    pub(super) tcp_bytes: Option<u64>,
}

impl<'a> Told<'a> {
    /// Of a link of `rate` bit/s that is `owd` ns long: both as wrong as the point says. At the
    /// sender the link pushes back at its true rate, and the sessions' rate is wrong.
    pub(super) fn of(point: &Point, rate: u64, owd: u64, receivers: &'a [Ipv4Addr]) -> Self {
        let (error, shapes) = (point.rate_error.0, point.bottleneck == Bottleneck::Sender);
        let wrong = |receivers| (rate as f64 * (1.0 + error) / receivers as f64).round() as u64;
        Self {
            rate: Some(if shapes { rate } else { wrong(1) }),
            session_rate: (shapes && error != 0.0).then(|| wrong(receivers.len())),
            owd: (owd as f64 * (1.0 + point.rtt_error.0)).round() as u64,
            receivers,
        }
    }
}

/// What bestby counted on `device`; `None` for a queue that is not bestby.
pub(super) fn counters(installed: &Installed<'_>, device: &str) -> Result<Option<QueueCounters>> {
    let agent = installed.agent();
    agent.map(|agent| agent.counters(device)).transpose()
}
