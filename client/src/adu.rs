//! An ADU as the application sees it, whatever carries it: ticket, options, state, outcome.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use crate::{
    backlog::{Adu, Limits, Method, NEVER, Reason},
    metadata::{Expiry, Metadata, Treatment},
    path::{Path, Report},
    time::ns,
};

/// An ADU of one ring or sender. Each ADU that is taken has a new one; they grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// 0 for the first ADU, 1 for the second, and so on. Over QUIC it is the id on the wire.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// How a ring or a sender works; all of it has defaults. `T` is what only one of them has.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options<T> {
    pub(crate) method: Method,
    pub(crate) queue: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) own: T,
}

impl<T> Options<T> {
    /// The defaults; `queue` in ns.
    pub(crate) fn with(queue: u64, own: T) -> Self {
        Self {
            method: Method::default(),
            queue: Some(queue),
            limits: Limits {
                adus: 1024,
                bytes: 8 << 20,
            },
            own,
        }
    }

    /// The defaults.
    #[must_use]
    pub fn new() -> Self
    where
        Self: Default,
    {
        Self::default()
    }

    /// Order and choice; [`Method::Triage`] by default.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// In flight ≤ rate × (least RTT + `queue`): a standing queue in the network that short.
    /// 20 ms by default for TCP and 30 ms for QUIC, at most 10 s; `None` leaves it to the congestion window.
    ///
    /// Beside a competing Cubic flow, which fills the queue, the cap gives share away. On a host
    /// where bestby's queue is attached it needs no cap: that queue is short, and chooses itself.
    #[must_use]
    pub fn queue(mut self, queue: Option<Duration>) -> Self {
        self.queue = queue.map(ns);
        self
    }

    /// So many ADUs and bytes may wait; 1024 and 8 MiB by default. What comes beyond that evicts the
    /// least important, or is evicted itself.
    #[must_use]
    pub fn limits(mut self, adus: usize, bytes: usize) -> Self {
        self.limits = Limits { adus, bytes };
        self
    }
}

/// What became of an ADU, and of what was said about it later. Each has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<D = ()> {
    /// Which one.
    pub ticket: Ticket,
    /// Sent or given up.
    pub fate: Fate,
    /// Bytes of it that were handed to the kernel or to quinn: all of a sent one, and of one that was given up
    /// those before. Over QUIC those of the newest version, with its header.
    pub sent: usize,
    /// What only one transport knows: `()` over TCP, `bestby::quic::OnWire` over QUIC.
    pub more: D,
}

/// How an ADU ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// All of it was sent. Over TCP its last byte is with the kernel, and cannot be taken back. Over QUIC it
    /// could be reset until the peer's QUIC had all of it, and that is so.
    Sent {
        /// Its last byte was handed over later than its deadline − owd: it began in time, but took longer than
        /// predicted, or had to be kept ([`Treatment::Forward`]).
        late: bool,
    },
    /// The rest of it never leaves, for this reason. What left before may have arrived, over QUIC even all of it.
    GivenUp(Reason),
}

/// ADUs given up, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// See [`Reason::Stale`].
    pub stale: u64,
    /// See [`Reason::Predicted`].
    pub predicted: u64,
    /// See [`Reason::Evicted`].
    pub evicted: u64,
    /// See [`Reason::Cancelled`].
    pub cancelled: u64,
    /// See [`Reason::Closed`].
    pub closed: u64,
}

impl GivenUp {
    /// For any reason.
    pub const fn total(&self) -> u64 {
        self.stale + self.predicted + self.evicted + self.cancelled + self.closed
    }

    pub(crate) fn count(&mut self, reason: Reason) {
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

/// Where an ADU is. What is past is remembered for as many ADUs as may wait, and 1024 more.
///
/// DSR's *unacknowledged* (`dsr.txt`, section 4.3) is `Begun` or `Sent`, its *cancelled* is `GivenUp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing of it is sent; over QUIC, nothing of its newest version.
    Waiting,
    /// So many of its bytes are with the kernel, or with quinn.
    Begun {
        /// Bytes handed over.
        sent: usize,
        /// Bytes in all.
        of: usize,
    },
    /// All bytes are handed over.
    Sent,
    /// The peer's kernel has all of them (`tcpi_bytes_acked`; not known before Linux 4.1), or the peer's QUIC.
    Acknowledged,
    /// It was given up.
    GivenUp(Reason),
    /// It is not of this ring or sender, or too long ago.
    Unknown,
}

/// The ADU can no longer be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too late to change this ADU: {state:?}")]
pub struct TooLate {
    /// Where it is.
    pub state: State,
}

/// The path as the transport and the ring or sender see it, e.g. for an encoder.
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
    /// Bytes with the transport that are not on the wire.
    pub unsent: u64,
}

impl PathInfo {
    /// As it was at the time of the report.
    pub(crate) fn new(path: &Path, report: &Report) -> Self {
        let view = path.view(report.now);
        let time = Duration::from_nanos;
        Self {
            rate: Some(view.rate).filter(|rate| *rate > 0),
            rtt: time(path.srtt()),
            min_rtt: time(path.min_rtt()),
            owd: time(view.owd),
            margin: time(view.margin),
            cap: path.cap(),
            in_flight: report.in_flight,
            unsent: report.unsent,
        }
    }
}

impl<T> Adu<T> {
    /// One that came now. Its bytes are to be measured yet.
    pub(crate) fn new(content: T, metadata: &Metadata, now: u64) -> Self {
        let mut adu = Self {
            deadline: NEVER,
            priority: metadata.get_priority().unwrap_or_default(),
            arrived: now,
            bytes: 0,
            solid: 0,
            keep: false,
            begun: false,
            content,
        };
        adu.amend(metadata, now);
        adu
    }

    /// What `metadata` says of it counts from now on.
    pub(crate) fn amend(&mut self, metadata: &Metadata, now: u64) {
        match metadata.get_expiry() {
            Expiry::Unset => {}
            Expiry::At(deadline) => self.deadline = deadline.as_monotonic_ns(),
            Expiry::After(lifetime) => self.deadline = lifetime.from(now).as_monotonic_ns(),
        }
        if let Some(priority) = metadata.get_priority() {
            self.priority = priority;
        }
        if let Some(treatment) = metadata.get_treatment() {
            self.keep = treatment == Treatment::Forward;
        }
    }
}

/// States that are remembered beyond the limit of ADUs.
const MORE: usize = 1024;

/// ADUs that have ended: outcomes to be taken, and states for a while.
#[derive(Debug)]
pub(crate) struct Past<D> {
    states: HashMap<u64, (State, Outcome<D>)>,
    /// In the order in which they ended.
    order: VecDeque<u64>,
    outcomes: VecDeque<Outcome<D>>,
    limit: usize,
    /// Outcomes that nobody took in time.
    pub(crate) lost: u64,
}

impl<D: Copy> Past<D> {
    /// `adus`: the limit of those that wait.
    pub(crate) fn new(adus: usize) -> Self {
        Self {
            states: HashMap::new(),
            order: VecDeque::new(),
            outcomes: VecDeque::new(),
            limit: adus.saturating_add(MORE),
            lost: 0,
        }
    }

    /// So many states are remembered.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn state(&self, id: u64) -> State {
        self.states.get(&id).map_or(State::Unknown, |past| past.0)
    }

    #[cfg(feature = "quic")]
    pub(crate) fn outcome(&self, id: u64) -> Option<Outcome<D>> {
        self.states.get(&id).map(|past| past.1)
    }

    /// An ADU has ended, in this state unless it was given up.
    pub(crate) fn end(&mut self, sent: State, outcome: Outcome<D>) {
        let id = outcome.ticket.0;
        let state = match outcome.fate {
            Fate::Sent { .. } => sent,
            Fate::GivenUp(reason) => State::GivenUp(reason),
        };
        self.states.insert(id, (state, outcome));
        self.order.push_back(id);
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.states.remove(&oldest);
        }
        self.outcomes.push_back(outcome);
        if self.outcomes.len() > self.limit.saturating_mul(4) {
            self.outcomes.pop_front();
            self.lost += 1;
        }
    }

    /// The peer has all of it, as was learned later.
    pub(crate) fn acknowledged(&mut self, id: u64) {
        if let Some((state, _)) = self.states.get_mut(&id) {
            *state = State::Acknowledged;
        }
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = Outcome<D>> + '_ {
        self.outcomes.drain(..)
    }
}
