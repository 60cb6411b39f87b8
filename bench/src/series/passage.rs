//! What went over a path in one run.

use anyhow::{Context as _, Result};

use crate::{
    measure::{QueueCounters, Tfrc},
    queue::Installed,
    srt,
    traffic::{receiver::Arrival, sender::Sent},
};

/// What went over a path.
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
    /// Packets that a queue in user space had no room for; absent of any other.
    pub(super) tail_drops: Option<u64>,
    /// Bytes on the wire of the competing TCP flows; absent without any.
    pub(super) tcp_bytes: Option<u64>,
}

/// What bestby counted on `device`; `None` for a queue that is not bestby.
pub(super) fn counters(installed: &Installed<'_>, device: &str) -> Result<Option<QueueCounters>> {
    let Some(agent) = installed.agent() else {
        return Ok(None);
    };
    let stats = agent.json("stats")?;
    let counters = QueueCounters::from_stats(&stats, device)
        .with_context(|| format!("`bestby --json stats` has no counters of {device}: {stats}"))?;
    Ok(Some(counters))
}
