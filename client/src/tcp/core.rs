//! The ring without its socket: which bytes come next. No I/O, no clock.
//!
//! An ADU goes from the backlog to `active` when its first byte is about to be written, and back if
//! the socket then took none of it. At most the first of `active` is in the middle of a part.

use std::{collections::VecDeque, io::IoSlice};

use super::{
    history::History,
    types::{Content, Options, Rest, RingStats, Stop},
};
use crate::{
    adu::{State, Ticket, TooLate},
    backlog::{Adu, Backlog, GivenUp, NEVER, Reason},
    metadata::Metadata,
    path::View,
};

/// Pieces of one write.
pub(super) const PIECES: usize = 16;

/// What the backlog keeps of an ADU.
#[derive(Debug)]
pub(super) struct Item<B> {
    content: Content<B>,
    /// The part that goes on, which is not empty once the ADU is on its way, and how many bytes of the ADU are sent.
    part: usize,
    sent: usize,
}

/// An ADU on its way; without an id it is the `end` of one that was given up.
#[derive(Debug)]
struct Active<B> {
    id: Option<u64>,
    adu: Adu<Item<B>>,
    /// Bytes of the current part that are sent.
    offset: usize,
}

/// Bytes of the next write.
#[derive(Clone, Copy, Debug)]
struct Piece {
    active: usize,
    part: usize,
    from: usize,
    to: usize,
}

#[derive(Debug)]
pub(super) struct Core<B> {
    options: Options,
    backlog: Backlog<Item<B>>,
    active: VecDeque<Active<B>>,
    pieces: Vec<Piece>,
    next: u64,
    /// Nothing begins, and nothing is given up because of the time.
    pub(super) held: bool,
    pub(super) history: History,
    /// Of the last write.
    pub(super) finished: Vec<u64>,
    gone: Vec<GivenUp<Item<B>>>,
}

impl<B> Active<B> {
    fn is_fresh(&self) -> bool {
        self.id.is_some() && self.adu.content.sent == 0
    }
}

impl<B: AsRef<[u8]>> Active<B> {
    /// Bytes of a part.
    fn len(&self, part: usize) -> usize {
        let part = self.adu.content.content.parts.get(part);
        part.map_or(0, |part| part.as_ref().len())
    }

    fn parts(&self) -> usize {
        self.adu.content.content.parts.len()
    }

    /// `bytes` more are sent, at most those of the current part.
    fn advance(&mut self, bytes: usize) {
        self.offset += bytes;
        self.adu.bytes -= bytes;
        self.adu.content.sent += bytes;
        self.step();
    }

    /// Goes on to the next part that has bytes, if the current one has no more.
    fn step(&mut self) {
        let part = &mut self.adu.content.part;
        while let Some(current) = self.adu.content.content.parts.get(*part)
            && self.offset == current.as_ref().len()
        {
            *part += 1;
            self.offset = 0;
        }
    }

    fn is_done(&self) -> bool {
        self.adu.content.part >= self.parts()
    }

    /// Between two of its parts.
    fn is_between(&self) -> bool {
        self.id.is_some() && self.offset == 0 && self.adu.content.sent > 0 && !self.is_done()
    }
}

impl<B: AsRef<[u8]>> Core<B> {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            backlog: Backlog::new(options.method, options.limits),
            active: VecDeque::new(),
            pieces: Vec::with_capacity(PIECES),
            next: 0,
            held: false,
            history: History::new(options.limits.adus),
            finished: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, content: Content<B>, metadata: &Metadata, now: u64) -> Ticket {
        let id = self.next;
        self.next += 1;
        self.history.stats.pushed += 1;
        let item = Item {
            content,
            part: 0,
            sent: 0,
        };
        let mut adu = Adu::new(item, metadata, now);
        self.measure(&mut adu);
        self.backlog.push(id, adu, &mut self.gone);
        self.settle();
        Ticket(id)
    }

    /// Everything that is pushed from now on, and that waits, has no connection.
    pub(super) fn refuse(&mut self) {
        self.backlog.clear(Reason::Closed, &mut self.gone);
        self.settle();
    }

    fn measure(&self, adu: &mut Adu<Item<B>>) {
        adu.bytes = adu.content.content.bytes();
        adu.solid = if self.options.own.interleave {
            adu.content.content.largest()
        } else {
            adu.bytes
        };
    }

    /// Counts what the backlog gave up, and sends the `end` of what had begun.
    fn settle(&mut self) {
        for (id, adu, reason) in self.gone.drain(..) {
            let Item { content, sent, .. } = adu.content;
            self.history.given_up(id, reason, sent);
            if sent > 0
                && reason != Reason::Closed
                && let Some(end) = ending(content.end)
            {
                self.active.push_back(end);
            }
        }
    }

    /// Takes a waiting ADU out, or says where it is.
    fn take(&mut self, ticket: Ticket) -> Result<Adu<Item<B>>, TooLate> {
        if self.backlog.get(ticket.0).is_some_and(|adu| !adu.begun)
            && let Some(adu) = self.backlog.take(ticket.0)
        {
            return Ok(adu);
        }
        let state = self.state(ticket);
        Err(TooLate { state })
    }

    pub(super) fn replace(
        &mut self,
        ticket: Ticket,
        content: Content<B>,
    ) -> Result<Content<B>, TooLate> {
        let mut adu = self.take(ticket)?;
        let old = std::mem::replace(&mut adu.content.content, content);
        adu.content.part = 0;
        self.measure(&mut adu);
        self.backlog.push(ticket.0, adu, &mut self.gone);
        self.settle();
        Ok(old)
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) -> Result<Content<B>, TooLate> {
        let adu = self.take(ticket)?;
        self.history.given_up(ticket.0, Reason::Cancelled, 0);
        Ok(adu.content.content)
    }

    pub(super) fn amend(
        &mut self,
        ticket: Ticket,
        metadata: &Metadata,
        now: u64,
    ) -> Result<(), TooLate> {
        let mut adu = self.take(ticket)?;
        adu.amend(metadata, now);
        self.backlog.put_back(ticket.0, adu);
        Ok(())
    }

    pub(super) fn state(&self, ticket: Ticket) -> State {
        let begun = |item: &Item<B>| State::Begun {
            sent: item.sent,
            of: item.content.bytes(),
        };
        if let Some(adu) = self.backlog.get(ticket.0) {
            return match adu.begun {
                true => begun(&adu.content),
                false => State::Waiting,
            };
        }
        let active = self.active.iter().find(|a| a.id == Some(ticket.0));
        match active {
            Some(active) => begun(&active.adu.content),
            None => self.history.state(ticket.0),
        }
    }

    /// Nothing waits and nothing is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty() && self.backlog.len() == 0
    }

    /// When something becomes stale next, ns.
    pub(super) fn next_expiry(&self, view: &View) -> Option<u64> {
        if self.held {
            return None;
        }
        self.backlog.next_expiry(view)
    }

    /// Gives up what is stale or hopeless.
    pub(super) fn expire(&mut self, now: u64, view: &View) {
        if !self.held {
            self.backlog.expire(now, view, &mut self.gone);
            self.settle();
        }
    }

    /// Between two parts another ADU may go, or the rest may be given up.
    fn look_between_parts(&mut self, now: u64, view: &View) {
        let Some(active) = self.active.front() else {
            return;
        };
        if !active.is_between()
            || !self.options.own.interleave && self.options.own.stop == Stop::Finish
        {
            return;
        }
        let Some(Active {
            id: Some(id),
            mut adu,
            ..
        }) = self.active.pop_front()
        else {
            return;
        };
        adu.begun = true;
        let give_up = !self.held && self.options.own.stop == Stop::AtPart && !adu.keep;
        let reason = if adu.is_stale(now, view) {
            Some(Reason::Stale)
        } else if adu.is_hopeless(now, view) {
            Some(Reason::Predicted)
        } else {
            None
        };
        if let Some(reason) = reason.filter(|_| give_up) {
            let Item { content, sent, .. } = adu.content;
            self.history.given_up(id, reason, sent);
            if let Some(end) = ending(content.end) {
                self.active.push_front(end);
            }
        } else if self.options.own.interleave {
            adu.keep |= self.options.own.stop == Stop::Finish;
            self.backlog.put_back(id, adu);
        } else {
            let active = Active {
                id: Some(id),
                adu,
                offset: 0,
            };
            self.active.push_front(active);
        }
    }

    /// Chooses the bytes of the next write, at most `limit`; returns how many. None of them is stale. If `limit` is
    /// less than a `segment`, only what ends within it goes: a fragment of a segment would leave as one.
    pub(super) fn fill(&mut self, now: u64, view: &View, limit: usize, segment: usize) -> usize {
        self.pieces.clear();
        self.look_between_parts(now, view);
        let mut len = 0;
        let mut at = 0;
        while len < limit && self.pieces.len() < PIECES {
            if at == self.active.len() && !self.begin(now, view) {
                break;
            }
            let active = &self.active[at];
            let one_part = active.parts() > 1 && self.may_stop(&active.adu, now, view);
            let part = active.adu.content.part;
            let solid = match one_part {
                true => active.len(part) - active.offset,
                false => active.adu.bytes,
            };
            if limit < segment && solid > limit - len {
                break;
            }
            let (taken, complete) = self.pieces_of(at, limit - len, one_part);
            len += taken;
            if !complete {
                break;
            }
            at += 1;
        }
        len
    }

    /// Whether what follows the current part is to be chosen again.
    fn may_stop(&self, adu: &Adu<Item<B>>, now: u64, view: &View) -> bool {
        let doomed = || adu.is_stale(now, view) || adu.is_hopeless(now, view);
        self.options.own.interleave
            || self.options.own.stop == Stop::AtPart && !adu.keep && doomed()
    }

    /// Makes pieces of `active[at]`, at most `limit` bytes, or the current part alone. Returns how many bytes, and
    /// whether that is all of it.
    fn pieces_of(&mut self, at: usize, limit: usize, one_part: bool) -> (usize, bool) {
        let active = &self.active[at];
        let (mut part, mut from) = (active.adu.content.part, active.offset);
        let mut taken = 0;
        while part < active.parts() && self.pieces.len() < PIECES {
            let len = active.len(part);
            let to = len.min(from + limit - taken);
            if to > from {
                self.pieces.push(Piece {
                    active: at,
                    part,
                    from,
                    to,
                });
                taken += to - from;
            }
            if to < len {
                return (taken, false);
            }
            (part, from) = (part + 1, 0);
            if one_part && taken > 0 {
                break;
            }
        }
        (taken, part == active.parts())
    }

    /// Moves the next ADU to `active`.
    fn begin(&mut self, now: u64, view: &View) -> bool {
        while !self.held
            && let Some(id) = self.backlog.choose(now, view)
            && let Some(adu) = self.backlog.take(id)
        {
            if adu.bytes == 0 {
                self.history.sent(id, 0, false);
                continue;
            }
            let mut active = Active {
                id: Some(id),
                adu,
                offset: 0,
            };
            active.step();
            self.active.push_back(active);
            return true;
        }
        false
    }

    /// The bytes that [`Core::fill`] chose; how many slices they are.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; PIECES]) -> usize {
        for (piece, slice) in self.pieces.iter().zip(slices.iter_mut()) {
            let content = &self.active[piece.active].adu.content.content;
            *slice = IoSlice::new(&content.parts[piece.part].as_ref()[piece.from..piece.to]);
        }
        self.pieces.len()
    }

    /// The socket took `bytes` of what [`Core::fill`] chose. What it took nothing of waits again.
    pub(super) fn wrote(&mut self, bytes: usize, now: u64, view: &View) {
        self.finished.clear();
        self.history.stats.bytes += bytes as u64;
        let mut left = bytes;
        for piece in &self.pieces {
            let taken = left.min(piece.to - piece.from);
            if taken > 0 {
                self.active[piece.active].advance(taken);
            }
            left -= taken;
        }
        self.pieces.clear();
        while let Some(active) = self.active.pop_front_if(|active| active.is_done()) {
            if let Some(id) = active.id {
                let late = active.adu.is_stale(now, view);
                self.history.sent(id, active.adu.content.sent, late);
                self.finished.push(id);
            }
        }
        while let Some(active) = self.active.pop_back_if(|active| active.is_fresh()) {
            if let Some(id) = active.id {
                self.backlog.put_back(id, active.adu);
            }
        }
    }

    pub(super) fn stats(&self) -> RingStats {
        let on_the_way = self.active.iter().filter(|active| active.id.is_some());
        let (waiting, between) =
            self.backlog
                .iter()
                .fold((0, 0), |(waiting, between), (_, adu)| match adu.begun {
                    true => (waiting, between + 1),
                    false => (waiting + 1, between),
                });
        let active_bytes: usize = self.active.iter().map(|active| active.adu.bytes).sum();
        RingStats {
            waiting,
            begun: between + on_the_way.count() as u64,
            waiting_bytes: (self.backlog.bytes() + active_bytes) as u64,
            ..self.history.stats
        }
    }

    /// Ends everything: what has begun is handed back, and all of it is given up.
    pub(super) fn close(&mut self) -> Vec<Rest<B>> {
        let mut rest = Vec::new();
        let mut begun = Vec::new();
        for active in self.active.drain(..) {
            begun.extend(active.id.map(|id| (id, active.adu, Reason::Closed)));
        }
        self.backlog.clear(Reason::Closed, &mut begun);
        for (id, adu, reason) in begun {
            let Item { content, sent, .. } = adu.content;
            self.history.given_up(id, reason, sent);
            if sent > 0 {
                let ticket = Ticket(id);
                rest.push(Rest {
                    ticket,
                    content,
                    sent,
                });
            }
        }
        rest
    }
}

/// What goes in place of the rest; nothing, if it has no bytes.
fn ending<B: AsRef<[u8]>>(end: Option<B>) -> Option<Active<B>> {
    let end = end.filter(|end| !end.as_ref().is_empty())?;
    let bytes = end.as_ref().len();
    Some(Active {
        id: None,
        adu: Adu {
            deadline: NEVER,
            priority: crate::Priority::HIGHEST,
            arrived: 0,
            bytes,
            solid: bytes,
            keep: true,
            begun: true,
            content: Item {
                content: Content {
                    parts: vec![end],
                    end: None,
                },
                part: 0,
                sent: 0,
            },
        },
        offset: 0,
    })
}
