//! TCP-Friendly Rate Control (RFC 5348): the congestion control that SFDPS sat on
//! (DCCP CCID3), on UDP.
//!
//! - [`equation`], [`losses`], [`limits`], [`fifo`], [`sender`], [`receiver`]: the protocol,
//!   without clocks and sockets;
//! - [`control`]: both halves at the sending host, from what left and what arrived;
//! - [`reports`], [`session`]: the same on real sockets, with the queue in bestby or in
//!   user space.

pub mod control;
pub mod equation;
pub mod fifo;
pub mod limits;
pub mod losses;
pub mod receiver;
pub mod reports;
pub mod sender;
pub mod session;

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a sender comes back after an idle or data-limited time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restart {
    /// By doubling in a round trip, from the initial rate (RFC 5348 §4.3, §4.4).
    #[default]
    Rfc5348,
    /// By quadrupling up to the rate before, from twice the initial rate, see
    /// [`limits::Achieved`].
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

/// ns as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
