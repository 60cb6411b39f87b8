//! Per-packet deadlines and priorities for UDP sockets.
//!
//! On a host that runs bestby, packets that would arrive after their deadline never
//! leave, and what matters most leaves first. This crate is how an application says what its
//! packets are worth. On every other host the same program runs unchanged, and sends as usual.
//!
//! ```
//! use std::{net::UdpSocket, time::Duration};
//! use bestby::{AduIds, Deadline, Metadata, Packet, Priority, Sender};
//!
//! let client = UdpSocket::bind("127.0.0.1:0")?;
//! let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0")?);
//! let mut frames = AduIds::default();
//!
//! // A video frame of three packets: same deadline, same ADU. If one is given up, so are the others.
//! let frame = Metadata::new()
//!     .deadline(Deadline::after(Duration::from_millis(200)))
//!     .priority(Priority::new(4)?)
//!     .adu(frames.take_id());
//! let packets: Vec<Packet> = [b"a", b"b", b"c"]
//!     .iter()
//!     .map(|payload| Packet::new(*payload).to(client.local_addr().unwrap()).metadata(frame))
//!     .collect();
//! assert_eq!(sender.send_batch(&packets)?, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Sender`] (and with the feature `tokio`, `bestby::tokio::Sender`) sends with [`Metadata`]: in the
//!   mark form, the `SO_TXTIME` form, or the best one that this process may use.
//! - [`SocketOptions`] sets defaults for a socket and reads its counters; no privilege, and
//!   for TCP sockets, too.
//! - [`Mark`] is the encoding alone, for programs with their own send path. `include/bestby.h` is the
//!   same for C and C++.
//!
//! - [`tcp::Ring`] is for TCP: what a socket could not send anyway stays in the program, where it can still
//!   be given up, replaced and overtaken. It needs no bestby on the host.
//! - `quic::Sender` and `quic::Receiver` (feature `quic`) are for QUIC: a stream per ADU, repeated as long as it
//!   can be in time.
//!
//! What both of these say of an ADU is in [`adu`]: its ticket, state and outcome.
//!
//! Linux only. Times are on `CLOCK_MONOTONIC`, the clock of [`std::time::Instant`].

pub mod abi;
pub mod adu;
mod backlog;
mod error;
#[cfg(any(feature = "quic", feature = "tokio"))]
mod handle;
mod mark;
mod metadata;
mod options;
mod packet;
mod path;
#[cfg(feature = "quic")]
pub mod quic;
mod send;
mod sys;
pub mod tcp;
mod time;
#[cfg(feature = "tokio")]
pub mod tokio;
mod txtime;

pub use crate::{
    error::{Error, Result, ValueError},
    mark::{Magic, Mark},
    metadata::{AduId, AduIds, Expiry, Metadata, Priority, Treatment},
    options::{Drops, Peer, SocketOptions, SocketStats, is_active},
    packet::Packet,
    send::{Form, Sender},
    time::{Deadline, Lifetime},
    txtime::{PriorityScope, TxTimeReason, TxTimeReport},
};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

/// So do those of the page for applications, and they run.
#[cfg(all(doctest, feature = "quic", feature = "tokio"))]
#[doc = include_str!("../../docs/applications.md")]
pub struct Applications;
