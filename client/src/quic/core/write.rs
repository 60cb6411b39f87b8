//! What leaves now: which ADU, and how much of it.

use std::task::Poll;

use bytes::{Buf as _, Bytes};

use super::{Core, Entry, MS, Stream, Transport, Wrote, rest};
use crate::{
    backlog::NEVER,
    metadata::Priority,
    path::View,
    quic::frame::{GONE_MOST, Header},
};

/// Between two notices, ns.
const NOTICES: u64 = 10 * MS;

impl<S: Stream> Core<S> {
    /// Hands over what may leave now, at most `room` bytes; no part of an ADU that is less than a `segment`, but for
    /// its end.
    pub(in crate::quic) fn write<T>(
        &mut self,
        now: u64,
        view: &View,
        room: u64,
        segment: u64,
        transport: &mut T,
    ) -> Wrote
    where
        T: Transport<Stream = S>,
    {
        let mut wrote = Wrote::default();
        // Tried in vain, because the peer's window is full.
        let mut stuck = Vec::new();
        let mut no_stream = false;
        loop {
            let left = room.saturating_sub(wrote.bytes);
            if left == 0 {
                wrote.no_room = self.backlog.len() > 0;
                break;
            }
            let chosen = self.choose(now, view, no_stream);
            let Some((id, mut adu)) = chosen.and_then(|id| Some((id, self.backlog.take(id)?)))
            else {
                break;
            };
            if left < segment && adu.bytes as u64 > left {
                self.backlog.put_back(id, adu);
                wrote.no_room = true;
                break;
            }
            if !self.begin(id, &mut adu, now, transport) {
                self.history.stats.stream_limit += 1;
                no_stream = true;
                self.backlog.put_back(id, adu);
                continue;
            }
            match self.hand_over(&mut adu, left, now, transport) {
                Poll::Ready(Some(bytes)) => wrote.bytes += bytes as u64,
                Poll::Ready(None) => {
                    // Refused or closed: the one who watches the stream says so.
                    let content = &mut adu.content;
                    content.rest = [Bytes::new(), Bytes::new()];
                }
                Poll::Pending => {
                    self.history.stats.flow_control += 1;
                    // A new stream has a window of its own, so this one's is not what is full.
                    let connection_is_full = adu.content.sent.bytes == 0;
                    stuck.push((id, adu));
                    if connection_is_full {
                        break;
                    }
                    continue;
                }
            }
            if rest(&adu) > 0 {
                self.put_back(id, adu);
            } else {
                adu.content.sent.late = adu.is_stale(now, view);
                if let Some(stream) = &mut adu.content.sent.stream {
                    transport.finish(stream);
                }
                self.insert_open(id, adu);
            }
        }
        wrote.no_leave = no_stream || !stuck.is_empty();
        for (id, adu) in stuck {
            self.put_back(id, adu);
        }
        self.tell(now, view, transport);
        wrote
    }

    /// Who goes on; without a new stream only what has begun, by priority and deadline.
    fn choose(&mut self, now: u64, view: &View, no_stream: bool) -> Option<u64> {
        if !no_stream {
            return self.backlog.choose(now, view);
        }
        let begun = self.backlog.iter().filter(|(_, adu)| adu.begun);
        let first = begun.min_by_key(|(id, adu)| (adu.priority, adu.deadline, *id));
        first.map(|(id, _)| id)
    }

    fn put_back(&mut self, id: u64, mut adu: Entry<S>) {
        adu.bytes = rest(&adu);
        adu.solid = adu.bytes.min(1200);
        self.backlog.put_back(id, adu);
    }

    /// Opens its stream; false if there is none to be had now.
    fn begin<T>(&mut self, id: u64, adu: &mut Entry<S>, now: u64, transport: &mut T) -> bool
    where
        T: Transport<Stream = S>,
    {
        if adu.begun {
            return true;
        }
        let version = adu.content.version;
        let Poll::Ready(Some(mut stream)) = transport.open(Some((id, version))) else {
            return false;
        };
        stream.set_priority(self.stream_priority(adu.priority, adu.deadline));
        let header = Header {
            id,
            version,
            alive_from: self.alive_from().min(id),
            priority: adu.priority,
            left: (adu.deadline != NEVER).then(|| adu.deadline.saturating_sub(now) / MS),
            notice: false,
            gone: self.gone(id),
        };
        adu.content.sent.alive_from = header.alive_from;
        adu.content.sent.gone = header.gone;
        self.notice_after = now.saturating_add(NOTICES);
        self.written = self.written.max(id + 1);
        self.history.stats.streams += 1;
        adu.begun = true;
        adu.content.rest[0] = header.encode().freeze();
        adu.content.sent.begun = now;
        adu.content.sent.stream = Some(stream);
        true
    }

    fn hand_over<T>(
        &mut self,
        adu: &mut Entry<S>,
        room: u64,
        now: u64,
        transport: &mut T,
    ) -> Poll<Option<usize>>
    where
        T: Transport<Stream = S>,
    {
        let Some(stream) = &mut adu.content.sent.stream else {
            return Poll::Ready(None);
        };
        let [header, payload] = &mut adu.content.rest;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let most = room.saturating_sub(header.len()).min(payload.len());
        let mut pieces = [header.clone(), payload.slice(..most)];
        let result = transport.write(stream, &mut pieces);
        if let Poll::Ready(Some(taken)) = result {
            let of_header = taken.min(header.len());
            header.advance(of_header);
            payload.advance(taken - of_header);
            adu.content.sent.bytes += taken;
            adu.content.sent.last = now;
            self.history.stats.bytes += taken as u64;
        }
        result
    }

    fn alive_from(&self) -> u64 {
        self.alive.first().copied().unwrap_or(self.next)
    }

    /// The oldest ids below `id` that were given up, in a row; they count as told.
    fn gone(&mut self, id: u64) -> Option<(u64, u64)> {
        let first = *self.untold.first()?;
        if first >= id {
            return None;
        }
        let mut last = first;
        self.untold.remove(&first);
        while last + 1 < id && last + 1 - first < GONE_MOST && self.untold.remove(&(last + 1)) {
            last += 1;
        }
        Some((first, last))
    }

    /// Something was given up that the receiver may wait for.
    pub(super) fn is_untold(&self) -> bool {
        self.untold.first().is_some_and(|id| *id < self.written)
    }

    pub(super) fn notice_is_due(&self, now: u64) -> bool {
        let header_follows = self.backlog.iter().any(|(_, adu)| !adu.begun);
        self.is_untold() && !self.closed && !header_follows && now >= self.notice_after
    }

    /// No header will soon say that something was given up: a stream of its own does.
    fn tell<T>(&mut self, now: u64, view: &View, transport: &mut T)
    where
        T: Transport<Stream = S>,
    {
        if !self.notice_is_due(now) {
            return;
        }
        let id = self.written;
        let Poll::Ready(Some(mut stream)) = transport.open(None) else {
            self.notice_after = now.saturating_add(view.owd.max(NOTICES));
            return;
        };
        let header = Header {
            id,
            version: 0,
            alive_from: self.alive_from().min(id),
            priority: Priority::HIGHEST,
            left: None,
            notice: true,
            gone: self.gone(id),
        };
        stream.set_priority(i32::MAX);
        self.history.stats.streams += 1;
        let mut bytes = [header.encode().freeze(), Bytes::new()];
        let len = bytes[0].len();
        if transport.write(&mut stream, &mut bytes) == Poll::Ready(Some(len)) {
            transport.finish(&mut stream);
            self.history.stats.notices += 1;
            self.notice_after = now.saturating_add(NOTICES);
        } else {
            // The peer's window is full.
            stream.reset();
            self.history.stats.resets += 1;
            self.untold.extend(
                header
                    .gone
                    .into_iter()
                    .flat_map(|(first, last)| first..=last),
            );
            self.notice_after = now.saturating_add(250 * MS);
        }
    }
}
