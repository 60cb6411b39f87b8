//! The sender without its connection: what is sent next, and what is given up. No I/O, no clock.
//!
//! An ADU is in one of two places. In the backlog it waits, from the start or, if less than all of it is sent,
//! for room for its rest; there the backlog chooses, and gives up. Once all of it is sent it is in `open`,
//! DSR's double list: by id for acknowledgements, by deadline for the controller (`dsr.txt`, figure 1).

#[cfg(test)]
mod tests;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    task::Poll,
};

use bytes::Bytes;

use super::{
    history::History,
    types::{OnWire, Options, Outcome, RenewError, Renewed, SenderStats},
};
use crate::{
    adu::{Fate, State, Ticket, TooLate},
    backlog::{Adu, Backlog, GivenUp, NEVER, Reason},
    error::ValueError,
    metadata::{Metadata, Priority},
    path::View,
};

/// Bytes of a usual header with the frame around it.
const HEADER: usize = 16;
/// What was given up is told of so many ids; `alive_from` tells of older ones.
const UNTOLD_MOST: usize = 1 << 16;
const MS: u64 = 1_000_000;

/// A stream that was opened. Dropped, it goes on with what it has.
pub(super) trait Stream {
    /// Nothing of it leaves from now on.
    fn reset(&mut self);
    /// The larger, the earlier it is retransmitted.
    fn set_priority(&mut self, priority: i32);
}

/// Where streams come from.
pub(super) trait Transport {
    type Stream: Stream;

    /// A stream, for this version of this ADU or for a notice. Pending = the peer allows no more.
    fn open(&mut self, of: Option<(u64, u16)>) -> Poll<Option<Self::Stream>>;
    /// Takes some of the bytes, at least one unless pending = the peer's window is full. None = it takes no more.
    fn write(&mut self, stream: &mut Self::Stream, bytes: &mut [Bytes; 2]) -> Poll<Option<usize>>;
    /// No more bytes follow.
    fn finish(&mut self, stream: &mut Self::Stream);
}

/// An ADU of this sender, and what is kept of it.
type Entry<S> = Adu<Item<S>>;

/// See [`Entry`].
#[derive(Debug)]
pub(super) struct Item<S> {
    /// Header and payload that are not handed over; the header is made with the stream.
    rest: [Bytes; 2],
    version: u16,
    /// When the application gave it, ns.
    arrived: u64,
    sent: Sent<S>,
}

/// What was handed over of one version.
#[derive(Debug)]
struct Sent<S> {
    stream: Option<S>,
    bytes: usize,
    begun: u64,
    last: u64,
    /// The last byte was stale.
    late: bool,
    /// What its header says: ids from here on are alive, and these are not.
    alive_from: u64,
    gone: Option<(u64, u64)>,
}

impl<S> Sent<S> {
    const NOTHING: Self = Self {
        stream: None,
        bytes: 0,
        begun: 0,
        last: 0,
        late: false,
        alive_from: 0,
        gone: None,
    };
}

/// Why the core stopped writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrote {
    /// Bytes handed over.
    pub(super) bytes: u64,
    /// Something waits for room.
    pub(super) no_room: bool,
    /// Something waits for the peer to allow a stream or bytes.
    pub(super) no_leave: bool,
}

#[derive(Debug)]
pub(super) struct Core<S> {
    options: Options,
    backlog: Backlog<Item<S>>,
    open: BTreeMap<u64, Entry<S>>,
    by_deadline: BTreeSet<(u64, u64)>,
    /// Ids that may still be sent or acknowledged.
    alive: BTreeSet<u64>,
    next: u64,
    /// ns when the sender began.
    start: u64,
    /// All ids of headers made are below it.
    written: u64,
    /// Ids that were given up, as far as the receiver is not told.
    untold: BTreeSet<u64>,
    notice_after: u64,
    closed: bool,
    pub(super) history: History,
    gone: Vec<GivenUp<Item<S>>>,
}

impl<S: Stream> Core<S> {
    pub(super) fn new(options: Options, start: u64) -> Self {
        Self {
            options,
            backlog: Backlog::new(options.method, options.limits),
            open: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            alive: BTreeSet::new(),
            next: 0,
            start,
            written: 0,
            untold: BTreeSet::new(),
            notice_after: 0,
            closed: false,
            history: History::new(options.limits.adus),
            gone: Vec::new(),
        }
    }

    fn check(&self, payload: &Bytes) -> Result<(), ValueError> {
        let (bytes, limit) = (payload.len(), self.options.own.adu_limit);
        if bytes > limit {
            return Err(ValueError::AduTooLarge { bytes, limit });
        }
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        payload: Bytes,
        metadata: &Metadata,
        now: u64,
    ) -> Result<Ticket, ValueError> {
        self.check(&payload)?;
        let id = self.next;
        self.next += 1;
        self.history.stats.taken += 1;
        self.alive.insert(id);
        let item = Item {
            rest: [Bytes::new(), payload],
            version: 0,
            arrived: now,
            sent: Sent::NOTHING,
        };
        let adu = Adu::new(item, metadata, now);
        self.push(id, adu, now);
        if self.closed {
            self.clear(now);
        }
        Ok(Ticket(id))
    }

    fn push(&mut self, id: u64, mut adu: Entry<S>, now: u64) {
        adu.bytes = adu.content.rest[1].len() + HEADER;
        // Another one may go on after each packet.
        adu.solid = adu.bytes.min(1200);
        self.backlog.push(id, adu, &mut self.gone);
        self.settle(now);
    }

    /// Ends what the backlog gave up.
    fn settle(&mut self, now: u64) {
        for (id, adu, reason) in std::mem::take(&mut self.gone) {
            self.give_up(id, adu, reason, now, None);
        }
    }

    fn give_up(
        &mut self,
        id: u64,
        mut adu: Entry<S>,
        reason: Reason,
        now: u64,
        refused: Option<u64>,
    ) {
        if reason != Reason::Closed {
            self.reset(&mut adu.content.sent);
            self.untold.insert(id);
            if self.untold.len() > UNTOLD_MOST {
                self.untold.pop_first();
            }
        }
        self.end(id, &adu, Fate::GivenUp(reason), now, refused);
    }

    fn end(&mut self, id: u64, adu: &Entry<S>, fate: Fate, now: u64, refused: Option<u64>) {
        self.alive.remove(&id);
        let Item { version, sent, .. } = &adu.content;
        let more = OnWire {
            version: *version,
            begun: sent.begun,
            last: sent.last,
            ended: now,
            refused,
        };
        self.history.end(Outcome {
            ticket: Ticket(id),
            fate,
            sent: sent.bytes,
            more,
        });
    }

    /// Nothing of it leaves any more. What its header was to tell is to be told again.
    fn reset(&mut self, sent: &mut Sent<S>) {
        if let Some(stream) = &mut sent.stream {
            stream.reset();
            self.history.stats.resets += 1;
            if let Some((first, last)) = sent.gone {
                self.untold.extend(first..=last);
            }
        }
    }

    fn take_open(&mut self, id: u64) -> Option<Entry<S>> {
        let adu = self.open.remove(&id)?;
        self.by_deadline.remove(&(due(&adu), id));
        Some(adu)
    }

    fn insert_open(&mut self, id: u64, adu: Entry<S>) {
        self.by_deadline.insert((due(&adu), id));
        self.open.insert(id, adu);
    }

    /// What is not acknowledged and not given up, wherever it is.
    fn get(&self, id: u64) -> Option<&Entry<S>> {
        self.backlog.get(id).or_else(|| self.open.get(&id))
    }

    /// The same, and takes it out.
    fn take(&mut self, ticket: Ticket) -> Result<Entry<S>, TooLate> {
        let waiting = self.backlog.take(ticket.0);
        let adu = waiting.or_else(|| self.take_open(ticket.0));
        adu.ok_or_else(|| self.too_late(ticket))
    }

    /// The peer has all of this version.
    pub(super) fn acknowledged(&mut self, id: u64, version: u16, now: u64) {
        let is_it = |adu: &Entry<S>| adu.content.version == version;
        if self.open.get(&id).is_some_and(is_it)
            && let Some(adu) = self.take_open(id)
        {
            self.untold = self.untold.split_off(&adu.content.sent.alive_from);
            let late = adu.content.sent.late;
            self.end(id, &adu, Fate::Sent { late }, now, None);
        }
    }

    /// The peer wants no more of this version.
    pub(super) fn refused(&mut self, id: u64, version: u16, code: u64, now: u64) {
        let is_it = |adu: &Entry<S>| adu.content.version == version;
        if self.get(id).is_some_and(is_it)
            && let Ok(adu) = self.take(Ticket(id))
        {
            self.history.stats.refused += 1;
            self.give_up(id, adu, Reason::Cancelled, now, Some(code));
        }
    }

    pub(super) fn renew(
        &mut self,
        ticket: Ticket,
        payload: Bytes,
        now: u64,
    ) -> Result<Renewed, RenewError> {
        self.check(&payload)?;
        let id = ticket.0;
        let adu = self.get(id).ok_or_else(|| self.too_late(ticket))?;
        let (version, begun) = (adu.content.version, adu.begun);
        if begun && version == u16::MAX {
            return Err(RenewError::Versions);
        }
        let mut adu = self.take(ticket)?;
        self.reset(&mut adu.content.sent);
        self.history.stats.renewed += 1;
        adu.begun = false;
        adu.arrived = adu.content.arrived;
        adu.content = Item {
            rest: [Bytes::new(), payload],
            version: version + u16::from(begun),
            arrived: adu.content.arrived,
            sent: Sent::NOTHING,
        };
        self.push(id, adu, now);
        Ok(match begun {
            true => Renewed::Again(version + 1),
            false => Renewed::Replaced,
        })
    }

    fn too_late(&self, ticket: Ticket) -> TooLate {
        let state = self.state(ticket);
        TooLate { state }
    }

    pub(super) fn cancel(&mut self, ticket: Ticket, now: u64) -> Result<(), TooLate> {
        let adu = self.take(ticket)?;
        self.give_up(ticket.0, adu, Reason::Cancelled, now, None);
        Ok(())
    }

    pub(super) fn amend(
        &mut self,
        ticket: Ticket,
        metadata: &Metadata,
        now: u64,
    ) -> Result<(), TooLate> {
        let is_open = self.open.contains_key(&ticket.0);
        let mut adu = self.take(ticket)?;
        adu.amend(metadata, now);
        let priority = self.stream_priority(adu.priority, adu.deadline);
        if let Some(stream) = &mut adu.content.sent.stream {
            stream.set_priority(priority);
        }
        match is_open {
            true => self.insert_open(ticket.0, adu),
            false => self.backlog.put_back(ticket.0, adu),
        }
        Ok(())
    }

    pub(super) fn state(&self, ticket: Ticket) -> State {
        if self.open.contains_key(&ticket.0) {
            return State::Sent;
        }
        match self.backlog.get(ticket.0) {
            Some(adu) if adu.begun => State::Begun {
                sent: adu.content.sent.bytes,
                of: adu.content.sent.bytes + rest(adu),
            },
            Some(_) => State::Waiting,
            None => self.history.past.state(ticket.0),
        }
    }

    /// Nothing waits, nothing is unacknowledged, and nothing is to be told.
    pub(super) fn is_idle(&self) -> bool {
        let told = self.closed || !self.is_untold();
        self.open.is_empty() && self.backlog.len() == 0 && told
    }

    /// Something waits for room, a stream or a window.
    pub(super) fn is_waiting(&self) -> bool {
        self.backlog.len() > 0
    }

    /// Bytes handed over that may not have arrived.
    pub(super) fn outstanding(&self) -> u64 {
        let waiting = self.backlog.iter().map(|(_, adu)| adu);
        let sent = waiting.chain(self.open.values());
        sent.map(|adu| adu.content.sent.bytes).sum::<usize>() as u64
    }

    /// Gives up what cannot be in time any more.
    pub(super) fn expire(&mut self, now: u64, view: &View) {
        self.backlog.expire(now, view, &mut self.gone);
        self.settle(now);
        while let Some(&(due, id)) = self.by_deadline.first()
            && due != NEVER
            && now.saturating_add(view.owd) > due
            && let Some(adu) = self.take_open(id)
        {
            self.give_up(id, adu, Reason::Stale, now, None);
        }
    }

    /// When something becomes stale or a notice is due next, ns.
    pub(super) fn next_event(&self, view: &View) -> Option<u64> {
        let open = self.by_deadline.first().map(|&(due, _)| due);
        let open = open.filter(|due| *due != NEVER);
        let open = open.map(|due| due.saturating_sub(view.owd).saturating_add(1));
        let notice = self.notice_is_due(u64::MAX).then_some(self.notice_after);
        let times = [self.backlog.next_expiry(view), open, notice];
        times.into_iter().flatten().min()
    }

    /// Class in the high bits, deadline in the low ones. ms since the start: they wrap after 37 hours.
    fn stream_priority(&self, priority: Priority, deadline: u64) -> i32 {
        const LOW: u64 = (1 << 27) - 1;
        let class = i32::from(7 - priority.get()) << 27;
        let rank = match deadline {
            NEVER => 0,
            deadline => LOW - ((deadline.saturating_sub(self.start) / MS) & LOW),
        };
        class | rank as i32
    }

    pub(super) fn stats(&self) -> SenderStats {
        let begun = self.backlog.iter().filter(|(_, adu)| adu.begun).count();
        SenderStats {
            waiting: (self.backlog.len() - begun) as u64,
            unacknowledged: (self.open.len() + begun) as u64,
            waiting_bytes: self.backlog.bytes() as u64,
            ..self.history.stats
        }
    }

    fn clear(&mut self, now: u64) {
        self.backlog.clear(Reason::Closed, &mut self.gone);
        self.settle(now);
        while let Some((id, adu)) = self.open.pop_first() {
            self.give_up(id, adu, Reason::Closed, now, None);
        }
        self.by_deadline.clear();
    }

    /// The connection ended.
    pub(super) fn close(&mut self, now: u64) {
        self.closed = true;
        self.clear(now);
    }
}

/// When an ADU on its way is given up; [`NEVER`] if it is sent whenever.
fn due<S>(adu: &Entry<S>) -> u64 {
    if adu.keep { NEVER } else { adu.deadline }
}

/// Bytes that are not handed over.
fn rest<S>(adu: &Entry<S>) -> usize {
    adu.content.rest.iter().map(Bytes::len).sum()
}
