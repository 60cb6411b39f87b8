//! TCP-Friendly Rate Control (RFC 5348): the congestion control that SFDPS sat on
//! (DCCP CCID3), on UDP.
//!
//! - [`equation`], [`intervals`], [`losses`], [`receive_rates`], [`limited`],
//!   [`sender`], [`receiver`]: the protocol, without clocks and sockets;
//! - [`control`]: both halves at the sending host, from what left and what arrived;
//! - [`reports`], [`session`]: the same on real sockets, with the queue in bestby or in
//!   user space.

pub mod control;
pub mod equation;
pub mod intervals;
pub mod limited;
pub mod losses;
pub mod receive_rates;
pub mod receiver;
pub mod reports;
pub mod sender;
pub mod session;

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

/// ns as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
