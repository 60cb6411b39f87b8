//! What goes into a sender and a receiver and comes out of them, besides payload.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::ConnectionError;

use super::frame::BadHeader;
use crate::{
    adu::{self, GivenUp, TooLate},
    error::ValueError,
    metadata::Priority,
};

const MS: u64 = 1_000_000;

/// Bytes of an ADU, at most, unless [`Options::adu_limit`] says otherwise.
pub(super) const ADU_LIMIT: usize = 1 << 20;

/// How a sender works; all of it has defaults. In flight is a queue of 30 ms.
///
/// ```
/// use std::time::Duration;
/// use bestby::quic::{Method, Options};
///
/// let options = Options::new()
///     .method(Method::Priority)
///     .queue(Some(Duration::from_millis(20)))
///     .limits(256, 1 << 20);
/// ```
pub type Options = adu::Options<ForSender>;

/// What [`Options`] have for a sender only.
#[derive(Clone, Copy, Debug)]
pub struct ForSender {
    pub(super) adu_limit: usize,
}

impl Default for Options {
    fn default() -> Self {
        let adu_limit = ADU_LIMIT;
        Self::with(30 * MS, ForSender { adu_limit })
    }
}

impl Options {
    /// Bytes of one ADU, at most; 1 MiB by default. The receiver has a limit of its own.
    #[must_use]
    pub fn adu_limit(mut self, bytes: usize) -> Self {
        self.own.adu_limit = bytes;
        self
    }
}

/// What became of an ADU.
pub type Outcome = adu::Outcome<OnWire>;

/// What an [`Outcome`] says of the newest version of an ADU. Times are ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnWire {
    /// Which version that is; 0 if the ADU was never renewed on its way.
    pub version: u16,
    /// When its first byte was handed to quinn; 0 if none was.
    pub begun: u64,
    /// When its last byte so far was handed over; 0 if none was. None was later than the deadline − owd, and
    /// if the ADU was given up, its stream was reset by then.
    pub last: u64,
    /// When the fate became known. Nothing of the ADU leaves after it.
    pub ended: u64,
    /// The receiver refused it (`STOP_SENDING`) with this code; the fate is then
    /// [`crate::quic::Reason::Cancelled`]. 0x0b2 is an ADU that is larger than the receiver's limit.
    pub refused: Option<u64>,
}

/// What a renewal did (`dsr.txt`, section 3.4.2, approach 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// Nothing of the old content was sent: the new one takes its place.
    Replaced,
    /// The old content is on its way and its stream was reset; the new one waits as this version. A receiver that
    /// already has the old one whole delivers that, and drops the new one.
    Again(u16),
}

/// Why content was not renewed; the ADU goes on as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// It is acknowledged, or given up.
    #[error(transparent)]
    TooLate(#[from] TooLate),
    /// The new content is too large.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// There are 65,536 versions.
    #[error("this ADU has had 65,536 versions; send another one")]
    Versions,
}

/// Counters of a sender. `taken` = `acknowledged` + `given_up.total()` + `unacknowledged` + `waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SenderStats {
    /// ADUs that [`crate::quic::Sender::send`] took.
    pub taken: u64,
    /// ADUs that the peer's QUIC has.
    pub acknowledged: u64,
    /// Of those, how many were stale when their last byte was handed over: they had to be kept.
    pub late: u64,
    /// ADUs given up.
    pub given_up: GivenUp,
    /// Of those cancelled, how many the receiver refused.
    pub refused: u64,
    /// ADUs of which nothing is sent.
    pub waiting: u64,
    /// ADUs of which something is sent.
    pub unacknowledged: u64,
    /// Bytes that wait: of ADUs of which a part is sent, too.
    pub waiting_bytes: u64,
    /// Bytes handed to quinn, headers included.
    pub bytes: u64,
    /// Streams opened.
    pub streams: u64,
    /// Streams reset: of ADUs given up, of old versions, and of notices for which the peer's window was full.
    pub resets: u64,
    /// Contents renewed, those replaced in place included.
    pub renewed: u64,
    /// Notices sent: streams that only tell what was given up.
    pub notices: u64,
    /// How often an ADU waited because the peer allows no more streams.
    pub stream_limit: u64,
    /// How often an ADU waited because the peer's window was full, its stream's or the connection's.
    pub flow_control: u64,
    /// Outcomes that the sender had to forget because nobody took them.
    pub outcomes_lost: u64,
    /// How often the driver looked.
    pub drives: u64,
}

/// In which order a receiver delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// As they become complete.
    #[default]
    AsTheyCome,
    /// By id. It waits for an ADU that is late, and never for one that was given up.
    ById,
}

/// How a receiver works; all of it has defaults.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReceiverOptions {
    pub(super) order: Order,
    pub(super) adu_limit: usize,
    pub(super) remembered: usize,
    pub(super) held: usize,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        Self {
            order: Order::default(),
            adu_limit: ADU_LIMIT,
            remembered: 4096,
            held: 16 << 20,
        }
    }
}

impl ReceiverOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// [`Order::AsTheyCome`] by default.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Bytes of one ADU, at most; 1 MiB by default. A larger one is refused (`STOP_SENDING` with 0x0b2).
    #[must_use]
    pub fn adu_limit(mut self, bytes: usize) -> Self {
        self.adu_limit = bytes;
        self
    }

    /// Ids that are remembered, so that each is delivered once; 4096 by default, at least 1. What is older is dropped.
    #[must_use]
    pub fn remembered(mut self, ids: usize) -> Self {
        self.remembered = ids.max(1);
        self
    }

    /// Bytes of ADUs that are not complete or not yet their turn; 16 MiB by default. Beyond that only the
    /// oldest stream is read, and [`Order::ById`] waits no longer.
    #[must_use]
    pub fn held(mut self, bytes: usize) -> Self {
        self.held = bytes;
        self
    }
}

/// What a receiver delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Adu {
    /// The sender's [`Ticket::number`](crate::quic::Ticket::number).
    pub id: u64,
    /// Of its content; 0 is the first.
    pub version: u16,
    /// As the sender said.
    pub priority: Priority,
    /// Time to the deadline when the sender handed its first byte to QUIC, rounded down to ms. None if it has no
    /// deadline, or less than 1 ms was left.
    pub left: Option<Duration>,
    /// The content.
    pub payload: Bytes,
    /// When its last byte was read.
    pub at: Instant,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverStats {
    /// ADUs delivered, or ready to be.
    pub delivered: u64,
    /// Complete ADUs that were dropped: a newer version is known, or the id was delivered.
    pub superseded: u64,
    /// Complete ADUs that were dropped because their turn was over ([`Order::ById`]) or their id was too old.
    pub late: u64,
    /// Streams that the sender reset.
    pub resets: u64,
    /// ADUs larger than the limit.
    pub refused: u64,
    /// Ids that were passed over ([`Order::ById`]).
    pub skipped: u64,
    /// Notices of what was given up.
    pub notices: u64,
}

/// Nothing more will be received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The connection ended.
    #[error(transparent)]
    Closed(#[from] ConnectionError),
    /// The peer is not a [`crate::quic::Sender`]; the connection was closed with 0x0b1.
    #[error("bad header: {0}")]
    Protocol(#[from] BadHeader),
}
