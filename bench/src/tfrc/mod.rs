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

/// ns as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
