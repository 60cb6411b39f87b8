//! TCP-Friendly Rate Control (RFC 5348): the congestion control that SFDPS sat on
//! (DCCP CCID3), on UDP.
//!
//! - [`equation`], [`intervals`], [`losses`], [`window`], [`receive_rates`], [`limited`],
//!   [`restart`], [`pacing`], [`fifo`], [`sender`], [`receiver`]: the protocol, without clocks and
//!   sockets;
//! - [`control`]: both halves at the sending host, from what left and what arrived;
//! - [`reports`], [`session`]: the same on real sockets, with the queue in bestby or in
//!   user space.

pub mod control;
pub mod equation;
pub mod fifo;
pub mod intervals;
pub mod limited;
pub mod losses;
pub mod pacing;
pub mod receive_rates;
pub mod receiver;
pub mod reports;
pub mod restart;
pub mod sender;
pub mod session;
pub mod window;

use std::fmt;

use serde::{Deserialize, Serialize};

/// What TFRC takes for s, the size of a segment, to which X is proportional (RFC 5348 §4.1:
/// where sizes vary, their mean).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentSize {
    /// The mean of what left lately, as CCID3 has it. A queue that gives up large packets
    /// first makes s smaller, X with it, and then the next large packet takes too long.
    #[default]
    Sent,
    /// The mean of what the application offers, whatever the queue makes of it.
    Offered,
}

impl fmt::Display for SegmentSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sent => "sent",
            Self::Offered => "offered",
        })
    }
}

/// The one-way delay that bestby is told of a session (`BB_SO_PEER`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwdTold {
    /// RTT/2, as SFDPS has it: right where both ways take equally long.
    #[default]
    Half,
    /// RTT − RTTmin/2: right where only the way there has a queue, for then RTTmin/2 is the
    /// way back. RTTmin is the least sample since the greeting: no window forgets it, as
    /// flows beside that never let the queue run empty would make it too long.
    QueueThere,
}

impl OwdTold {
    /// The delay to tell, ns, of a smoothed round trip `rtt` and the least sample of one,
    /// `least`, both in ns.
    pub fn of(self, rtt: u64, least: u64) -> u64 {
        match self {
            Self::Half => rtt / 2,
            Self::QueueThere => rtt - least.min(rtt) / 2,
        }
    }
}

impl fmt::Display for OwdTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Half => "half",
            Self::QueueThere => "queue-there",
        })
    }
}

/// How a sender comes back after an idle or data-limited time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// By doubling in a round trip, from the initial rate (RFC 5348 §4.3, §4.4).
    #[default]
    Rfc5348,
    /// By quadrupling up to the rate before, from twice the initial rate, see [`restart`].
    Faster,
}

impl fmt::Display for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rfc5348 => "rfc5348",
            Self::Faster => "faster",
        })
    }
}

/// Which losses are one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossEvents {
    /// Those within a round trip of the first (RFC 5348 §5.2).
    #[default]
    RoundTrip,
    /// Those until the sender's window counter has moved on, as Linux's CCID3 has it, see
    /// [`window`].
    WindowCounter,
}

impl fmt::Display for LossEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundTrip => "round-trip",
            Self::WindowCounter => "window-counter",
        })
    }
}

/// What becomes of the rate that a sender was allowed and did not use, having nothing to send.
/// Of the FIFO in user space only: bestby's sessions have their own pacing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SendCredit {
    /// It is lost, as in bestby.
    #[default]
    None,
    /// All of it may be used later, faster than the rate then, as in Linux's CCID3: each
    /// packet's nominal time is the last one's and s/X (`ccid3_hc_tx_send_packet`), however
    /// long ago that is.
    All,
}

impl fmt::Display for SendCredit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::All => "all",
        })
    }
}

/// How long a packet keeps the next one waiting. Of the FIFO in user space only, as [`SendCredit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PacedBy {
    /// s/X, whatever its size (RFC 5348 §4.6), as CCID3 has it.
    #[default]
    Packets,
    /// Its own size/X, as in bestby.
    Bytes,
}

impl fmt::Display for PacedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        })
    }
}

/// What a scenario may choose of TFRC; its keys, on one level with the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// What it takes for the size of a segment.
    pub segment_size: SegmentSize,
    /// What it tells bestby of the one-way delay.
    pub owd_told: OwdTold,
    /// How it comes back after an idle or data-limited time.
    pub restart: Restart,
    /// Which losses are one event.
    pub loss_events: LossEvents,
    /// What becomes of rate that was not used.
    pub send_credit: SendCredit,
    /// How long a packet keeps the next one waiting.
    pub paced_by: PacedBy,
}

/// ns as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_there_has_the_queue_or_half_of_it() {
        // 40 ms each way, and 50 ms of queue.
        assert_eq!(OwdTold::Half.of(130, 80), 65);
        assert_eq!(OwdTold::QueueThere.of(130, 80), 90);
        // Nothing queues: both are right.
        assert_eq!(OwdTold::QueueThere.of(80, 80), OwdTold::Half.of(80, 80));
        // Rounding may leave the mean below its least sample.
        assert_eq!(OwdTold::QueueThere.of(80, 82), 40);
    }
}
