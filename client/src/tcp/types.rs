//! What goes into a ring and comes out of it, besides bytes.

use std::time::Instant;

use crate::adu::{self, GivenUp, Outcome, Ticket};

const MS: u64 = 1_000_000;

/// What happens to an ADU in parts that becomes stale when some of its parts are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stop {
    /// It is sent to its end.
    #[default]
    Finish,
    /// It ends after the part that is on its way, and then with its `end`, if it has one
    /// (RTMP's *Abort Message*, HTTP/2's `RST_STREAM`).
    AtPart,
}

/// How a ring works; all of it has defaults. In flight is a queue of 20 ms.
///
/// ```
/// use std::time::Duration;
/// use bestby::tcp::{Method, Options};
///
/// let options = Options::new()
///     .method(Method::Priority)
///     .queue(Some(Duration::from_millis(30)))
///     .limits(256, 1 << 20);
/// ```
pub type Options = adu::Options<ForRing>;

/// What [`Options`] have for a ring only.
#[derive(Clone, Copy, Debug)]
pub struct ForRing {
    pub(super) acknowledgements: bool,
    pub(super) stop: Stop,
    pub(super) interleave: bool,
    pub(super) info_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        let own = ForRing {
            acknowledgements: true,
            stop: Stop::default(),
            interleave: false,
            info_bytes: usize::MAX,
        };
        Self::with(20 * MS, own)
    }
}

impl Options {
    /// Whether the kernel reports acknowledgements on the socket's error queue
    /// (`SO_TIMESTAMPING`, `SOF_TIMESTAMPING_TX_ACK`; no privilege). On by default; turn it off
    /// where the application reads that queue itself. Without, a full window is looked at by a timer.
    #[must_use]
    pub fn acknowledgements(mut self, on: bool) -> Self {
        self.own.acknowledgements = on;
        self
    }

    /// What happens to an ADU in parts that becomes stale on its way; [`Stop::Finish`] by default.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.own.stop = stop;
        self
    }

    /// Whether another ADU may go between two parts of one; off by default. RTSP's interleaved
    /// packets and RTMP's chunks allow it, fragments of a WebSocket message do not. Each part then
    /// begins with a header of its own.
    #[must_use]
    pub fn interleave(mut self, on: bool) -> Self {
        self.own.interleave = on;
        self
    }

    /// As on a kernel whose `TCP_INFO` has only so many bytes; for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn info_bytes(mut self, bytes: usize) -> Self {
        self.own.info_bytes = bytes;
        self
    }
}

/// Bytes of one ADU: its parts in order, and what is sent in place of the rest if it ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content<B> {
    /// At least one.
    pub parts: Vec<B>,
    /// Sent if the ADU is given up between two parts ([`Stop::AtPart`]).
    pub end: Option<B>,
}

impl<B: AsRef<[u8]>> Content<B> {
    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.as_ref().len()).sum()
    }

    /// Bytes of the largest part.
    pub(super) fn largest(&self) -> usize {
        let sizes = self.parts.iter().map(|part| part.as_ref().len());
        sizes.max().unwrap_or(0)
    }
}

/// When to call [`crate::tcp::Ring::drive`] again: after a push, at one of the events, or at the time,
/// whichever is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Next {
    /// For `poll(2)` on the socket: 0 or `POLLOUT`. `POLLERR` comes unasked; it tells of acknowledgements.
    pub events: i16,
    /// At this time at the latest; `None` = nothing changes by time alone.
    pub at: Option<Instant>,
    /// Nothing waits and nothing has begun.
    pub idle: bool,
}

/// What this ring can know and do on this socket and kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Form {
    /// The congestion window is known: no more is handed over than leaves at once. Otherwise one
    /// segment is with the kernel while it can be known what is unsent, or as much as the socket takes.
    pub window: bool,
    /// Rate and RTT are known (Linux 4.9): the cap works, and what would be late is predicted. False until the first
    /// RTT: of a peer without TCP timestamps, the handshake measures none if a SYN was lost or answered by a cookie.
    pub rate: bool,
    /// The bytes that the kernel has not sent are known.
    pub unsent: bool,
    /// Acknowledged bytes are known (Linux 4.1): [`State::Acknowledged`](crate::adu::State::Acknowledged).
    pub acknowledged: bool,
    /// Acknowledgements wake (`POLLERR`); otherwise a timer does.
    pub events: bool,
}

/// Counters of a ring. `pushed` = `sent` + `given_up.total()` + `waiting` + `begun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingStats {
    /// ADUs pushed.
    pub pushed: u64,
    /// ADUs whose last byte is with the kernel.
    pub sent: u64,
    /// Of those, how many were stale when it was handed over.
    pub late: u64,
    /// Bytes handed to the kernel.
    pub bytes: u64,
    /// ADUs given up.
    pub given_up: GivenUp,
    /// ADUs that have begun, at most one without [`Options::interleave`].
    pub begun: u64,
    /// ADUs of which nothing is sent.
    pub waiting: u64,
    /// Bytes that wait, of ADUs that have begun, too.
    pub waiting_bytes: u64,
    /// Outcomes that the ring had to forget because nobody took them ([`crate::tcp::Ring::outcomes`]).
    pub outcomes_lost: u64,
    /// Calls of `drive`.
    pub drives: u64,
    /// Writes to the socket.
    pub writes: u64,
    /// Acknowledgements that the kernel told of.
    pub acknowledgements: u64,
    /// Bytes unsent in the kernel whenever the ring looked: median, rounded up to 512 bytes.
    pub unsent_p50: u64,
    /// The same: 99 of 100 looks had no more; 64 KiB stands for more.
    pub unsent_p99: u64,
}

/// An ADU that had begun when its ring was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest<B> {
    /// Which one.
    pub ticket: Ticket,
    /// All of it.
    pub content: Content<B>,
    /// So many of its bytes are with the kernel; the receiver's framing waits for the others.
    pub sent: usize,
}

/// What is left of a ring.
#[derive(Debug)]
#[non_exhaustive]
pub struct Closed<S, B> {
    /// The socket.
    pub wire: S,
    /// What has begun, in the order in which it would have gone on; the first may be in the middle of a part.
    pub rest: Vec<Rest<B>>,
    /// Outcomes that were not taken; everything that waited is given up as [`crate::tcp::Reason::Closed`].
    pub outcomes: Vec<Outcome>,
    /// The last counters.
    pub stats: RingStats,
}
