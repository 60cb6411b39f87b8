//! Selective retransmission over QUIC: [`Sender`] and [`Receiver`].
//!
//! The problem: a reliable transport repeats what is lost until it arrives, however late, and datagrams repeat
//! nothing. DSR (`dsr.txt`) is between the two: an ADU is repeated as long as it can still be in time. Expiry
//! alone is not enough. A sender that gives up at the deadline sends everything just too late on a path
//! too narrow for it. So:
//!
//! 1. An ADU stays in the backlog until its bytes may go at once. It costs nothing to give up there.
//! 2. In flight is at most what the path holds with a short queue: rate × (least RTT + 30 ms).
//! 3. Each ADU is a unidirectional stream, so that no ADU waits for the retransmission of another one. Streams
//!    are sent and repeated by priority and then by deadline.
//! 4. Where losses are seen, an ADU begins early enough for one retransmission, and where ADUs wait, for its
//!    acknowledgement.
//! 5. The stream is reset at deadline − owd: nothing of it leaves later, because it would be late.
//!
//! | paper | here |
//! |---|---|
//! | submit with a deadline (4.1) | [`Sender::send`] with [`Metadata`](crate::Metadata) |
//! | double list: ACK list and REMDL list (4.2, figure 1) | states by id, streams by deadline |
//! | states unacknowledged, cancelled (4.3) | [`State`], [`Outcome`] |
//! | reorder, cancel, renew (3.4.2) | [`Sender::amend`], [`Sender::cancel`], [`Sender::renew`] |
//! | deadline 2 · SRTT (4.1) | [`Sender::path`] has the SRTT; but it grows with congestion, so prefer real deadlines |
//!
//! The connection is the application's: it chooses certificates and quinn's cryptography, calls
//! [`transport_config`] on both ends and offers [`ALPN`]. 0-RTT is not used, because it can be replayed.

mod core;
mod frame;
mod history;
mod inbox;
mod meter;
mod receiver;
mod sender;
mod types;

use std::{sync::Arc, time::Duration};

pub use self::{
    frame::BadHeader,
    meter::Metered,
    receiver::Receiver,
    sender::Sender,
    types::{
        Adu, Ended, ForSender, OnWire, Options, Order, Outcome, ReceiverOptions, ReceiverStats,
        RenewError, Renewed, SenderStats,
    },
};
pub use crate::{
    adu::{Fate, GivenUp, PathInfo, State, Ticket, TooLate},
    backlog::{Method, Reason},
};

/// The protocol's name in the TLS handshake.
pub const ALPN: &[u8] = b"bestby/1";

/// Code of the connection's end if a stream does not begin with a header.
const BAD_HEADER: u32 = 0x0b1;
/// Code of `STOP_SENDING` for an ADU that is too large.
const TOO_LARGE: u32 = 0x0b2;
/// Code of `RESET_STREAM` for an ADU or a version that was given up.
const GIVEN_UP: u32 = 0x0b;

/// Settings of quinn for both ends: 1024 streams at once, acknowledgements after 5 ms at most, no taking
/// turns between streams of one priority, Cubic with counters ([`Metered`]), 16 MiB of receive window. Change
/// them as you like; the sender needs none of them, but knows less without [`Metered`].
pub fn transport_config() -> quinn::TransportConfig {
    let mut acknowledgements = quinn::AckFrequencyConfig::default();
    acknowledgements.max_ack_delay(Some(Duration::from_millis(5)));
    let cubic = quinn::congestion::CubicConfig::default();
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_concurrent_uni_streams(1024_u32.into())
        .receive_window((16_u32 << 20).into())
        .send_fairness(false)
        .ack_frequency_config(Some(acknowledgements))
        .congestion_controller_factory(Arc::new(Metered::new(cubic)));
    transport
}
