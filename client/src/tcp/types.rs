//! What goes into a ring and comes out of it, besides bytes.

use std::time::{Duration, Instant};

use crate::{
    backlog::{Limits, Method, Reason},
    time::ns,
};

/// An ADU of one ring. Each push gives a new one; they grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// 0 for the first ADU of the ring, 1 for the second, and so on.
    pub const fn number(self) -> u64 {
        self.0
    }
}

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

/// How a ring works; all of it has defaults.
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
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    pub(super) method: Method,
    pub(super) queue: Option<u64>,
    pub(super) limits: Limits,
    pub(super) acknowledgements: bool,
    pub(super) stop: Stop,
    pub(super) interleave: bool,
    pub(super) info_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            method: Method::default(),
            queue: Some(20_000_000),
            limits: Limits {
                adus: 1024,
                bytes: 8 << 20,
            },
            acknowledgements: true,
            stop: Stop::default(),
            interleave: false,
            info_bytes: usize::MAX,
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Order and choice; [`Method::Triage`] by default.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// In flight ≤ rate × (least RTT + `queue`): a standing queue in the network that short.
    /// 20 ms by default, at most 10 s; `None` leaves it to the congestion window.
    ///
    /// Beside a competing Cubic flow, which fills the queue, the cap gives share away. On a host
    /// where bestby's queue is attached it needs no cap: that queue is short, and chooses itself.
    #[must_use]
    pub fn queue(mut self, queue: Option<Duration>) -> Self {
        self.queue = queue.map(ns);
        self
    }

    /// So many ADUs and bytes may wait; 1024 and 8 MiB by default. What is pushed beyond that evicts the
    /// least important, or is evicted itself.
    #[must_use]
    pub fn limits(mut self, adus: usize, bytes: usize) -> Self {
        self.limits = Limits { adus, bytes };
        self
    }

    /// Whether the kernel reports acknowledgements on the socket's error queue
    /// (`SO_TIMESTAMPING`, `SOF_TIMESTAMPING_TX_ACK`; no privilege). On by default; turn it off
    /// where the application reads that queue itself. Without, a full window is looked at by a timer.
    #[must_use]
    pub fn acknowledgements(mut self, on: bool) -> Self {
        self.acknowledgements = on;
        self
    }

    /// What happens to an ADU in parts that becomes stale on its way; [`Stop::Finish`] by default.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Whether another ADU may go between two parts of one; off by default. RTSP's interleaved
    /// packets and RTMP's chunks allow it, fragments of a WebSocket message do not. Each part then
    /// begins with a header of its own.
    #[must_use]
    pub fn interleave(mut self, on: bool) -> Self {
        self.interleave = on;
        self
    }

    /// As on a kernel whose `TCP_INFO` has only so many bytes; for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn info_bytes(mut self, bytes: usize) -> Self {
        self.info_bytes = bytes;
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

/// What became of an ADU, and of what was said about it when it was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Which one.
    pub ticket: Ticket,
    /// Sent or given up.
    pub fate: Fate,
    /// Bytes of it that were handed to the kernel: all of a sent one, and of one that was given up
    /// those of the parts before ([`Stop::AtPart`]) or before the connection ended.
    pub sent: usize,
}

/// Each ADU has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Its last byte is with the kernel.
    Sent {
        /// That was later than its deadline − owd: it began in time, but took longer than predicted.
        late: bool,
    },
    /// The rest of it never leaves, for this reason.
    GivenUp(Reason),
}

/// Where an ADU is. The ring remembers what is past for as many ADUs as may wait, and 1024 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing of it is sent: it can be replaced, cancelled and amended.
    Waiting,
    /// So many of its bytes are with the kernel.
    Begun {
        /// Bytes handed over.
        sent: usize,
        /// Bytes in all.
        of: usize,
    },
    /// All bytes are with the kernel.
    Sent,
    /// The peer's kernel has all of them (`tcpi_bytes_acked`; not known before Linux 4.1).
    Acknowledged,
    /// It was given up.
    GivenUp(Reason),
    /// It is not of this ring, or too long ago.
    Unknown,
}

/// The ADU can no longer be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late to change this ADU: {state:?}")]
pub struct TooLate {
    /// Where it is.
    pub state: State,
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
    /// Rate and RTT are known (Linux 4.9): the cap works, and what would be late is predicted.
    pub rate: bool,
    /// The bytes that the kernel has not sent are known.
    pub unsent: bool,
    /// Acknowledged bytes are known (Linux 4.1): [`State::Acknowledged`].
    pub acknowledged: bool,
    /// Acknowledgements wake (`POLLERR`); otherwise a timer does.
    pub events: bool,
}

/// The path as TCP and the ring see it, e.g. for an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathInfo {
    /// What the path carries, bytes/s; `None` until something was sent.
    pub rate: Option<u64>,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Least round-trip time.
    pub min_rtt: Duration,
    /// One-way delay to the receiver: rtt − min_rtt / 2.
    pub owd: Duration,
    /// Time kept free for one retransmission; 0 while nothing is lost.
    pub margin: Duration,
    /// Bytes that may be in flight for the queue allowed; `None` where the congestion window alone decides.
    pub cap: Option<u64>,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes with the kernel that are not on the wire.
    pub unsent: u64,
}

/// Counters of a ring. `pushed` = `sent` + `given_up()` + `waiting` + `begun`.
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
    /// ADUs given up, by reason.
    pub stale: u64,
    /// See [`Reason::Predicted`].
    pub predicted: u64,
    /// See [`Reason::Evicted`].
    pub evicted: u64,
    /// See [`Reason::Cancelled`].
    pub cancelled: u64,
    /// See [`Reason::Closed`].
    pub closed: u64,
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

impl RingStats {
    /// ADUs given up for any reason.
    pub const fn given_up(&self) -> u64 {
        self.stale + self.predicted + self.evicted + self.cancelled + self.closed
    }

    pub(super) fn count(&mut self, reason: Reason) {
        let counter = match reason {
            Reason::Stale => &mut self.stale,
            Reason::Predicted => &mut self.predicted,
            Reason::Evicted => &mut self.evicted,
            Reason::Cancelled => &mut self.cancelled,
            Reason::Closed => &mut self.closed,
        };
        *counter += 1;
    }
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
    /// Outcomes that were not taken; everything that waited is given up as [`Reason::Closed`].
    pub outcomes: Vec<Outcome>,
    /// The last counters.
    pub stats: RingStats,
}
