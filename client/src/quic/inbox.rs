//! What of the complete ADUs is delivered, and when. No I/O.
//!
//! Each id is delivered once. An old version that completes when a newer one is known is dropped. By id, an ADU
//! waits for those before it until they come, or until a header says that they never will (`alive_from`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    frame::Header,
    types::{Adu, Order, ReceiverOptions, ReceiverStats},
};

/// What is known of an id.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The newest.
    version: u16,
    done: bool,
}

#[derive(Debug)]
pub(super) struct Inbox {
    options: ReceiverOptions,
    seen: BTreeMap<u64, Seen>,
    /// Ids below are too old.
    oldest: u64,
    /// By id: the next one to deliver.
    next: u64,
    alive_from: u64,
    held: BTreeMap<u64, Adu>,
    /// Not yet their turn, and given up, there or here.
    gone: BTreeSet<u64>,
    held_bytes: usize,
    ready: VecDeque<Adu>,
    pub(super) stats: ReceiverStats,
}

impl Inbox {
    pub(super) fn new(options: ReceiverOptions) -> Self {
        Self {
            options,
            seen: BTreeMap::new(),
            oldest: 0,
            next: 0,
            alive_from: 0,
            held: BTreeMap::new(),
            gone: BTreeSet::new(),
            held_bytes: 0,
            ready: VecDeque::new(),
            stats: ReceiverStats::default(),
        }
    }

    /// Of complete ADUs that wait for their turn.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A stream has begun. What it says of other ADUs holds from [`Inbox::settle`] on.
    pub(super) fn header(&mut self, header: &Header) {
        self.alive_from = self.alive_from.max(header.alive_from);
        if let Some((first, last)) = header.gone
            && self.options.order == Order::ById
        {
            self.gone.extend(first.max(self.next)..=last);
        }
        if header.notice {
            self.stats.notices += 1;
            return;
        }
        if header.id < self.oldest {
            return;
        }
        let seen = self.seen.entry(header.id).or_insert(Seen {
            version: header.version,
            done: false,
        });
        seen.version = seen.version.max(header.version);
        while self.seen.len() > self.options.remembered {
            if let Some((id, _)) = self.seen.pop_first() {
                self.oldest = id + 1;
            }
        }
    }

    /// All of a stream has come, after [`Inbox::header`].
    pub(super) fn complete(&mut self, adu: Adu) {
        let passed = self.options.order == Order::ById && adu.id < self.next;
        let Some(seen) = self.seen.get_mut(&adu.id).filter(|_| !passed) else {
            // Its id may be known as delivered: then it is an old version.
            let done = self.seen.get(&adu.id).is_some_and(|seen| seen.done);
            if done {
                self.stats.superseded += 1;
            } else {
                self.stats.late += 1;
            }
            return;
        };
        if seen.done || adu.version < seen.version {
            self.stats.superseded += 1;
            return;
        }
        seen.done = true;
        match self.options.order {
            Order::AsTheyCome => self.deliver(adu),
            Order::ById => {
                self.held_bytes += adu.payload.len();
                self.held.insert(adu.id, adu);
            }
        }
    }

    /// It is larger than the limit: nobody waits for it, and no version of it is delivered.
    pub(super) fn refuse(&mut self, id: u64) {
        self.stats.refused += 1;
        if let Some(seen) = self.seen.get_mut(&id)
            && !seen.done
        {
            seen.done = true;
            if self.options.order == Order::ById && id >= self.next {
                self.gone.insert(id);
            }
        }
    }

    fn deliver(&mut self, adu: Adu) {
        self.stats.delivered += 1;
        self.ready.push_back(adu);
    }

    /// Delivers what has its turn. All streams must have been read as far as they go: only then is what was
    /// acknowledged before a header also complete here before that header counts.
    pub(super) fn settle(&mut self) {
        if self.options.order == Order::AsTheyCome {
            return;
        }
        loop {
            let held = self.held.first_key_value().map(|(&id, _)| id);
            match held {
                Some(id) if id <= self.next => self.pop(id),
                _ if self.gone.contains(&self.next) => self.pass(self.next + 1),
                Some(id) if self.alive_from > self.next => self.pass(id.min(self.alive_from)),
                Some(id) if self.held_bytes > self.options.held => self.pop(id),
                None if self.alive_from > self.next => self.pass(self.alive_from),
                _ => return,
            }
        }
    }

    /// The ids from the next one to here will not come.
    fn pass(&mut self, to: u64) {
        self.stats.skipped += to.saturating_sub(self.next);
        self.next = self.next.max(to);
        while self.gone.first().is_some_and(|id| *id < self.next) {
            self.gone.pop_first();
        }
    }

    fn pop(&mut self, id: u64) {
        if let Some(adu) = self.held.remove(&id) {
            self.held_bytes -= adu.payload.len();
            self.pass(id);
            self.next = id + 1;
            self.deliver(adu);
        }
    }

    /// Nothing more will come: what is held goes, in order.
    pub(super) fn end(&mut self) {
        while let Some((&id, _)) = self.held.first_key_value() {
            self.pop(id);
        }
    }

    pub(super) fn take(&mut self) -> Option<Adu> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::metadata::Priority;

    fn header(id: u64, version: u16, alive_from: u64) -> Header {
        Header {
            id,
            version,
            alive_from,
            priority: Priority::default(),
            left: None,
            notice: false,
            gone: None,
        }
    }

    fn adu(id: u64, version: u16) -> Adu {
        Adu {
            id,
            version,
            priority: Priority::default(),
            left: None,
            payload: vec![0; 10].into(),
            at: Instant::now(),
        }
    }

    fn inbox(order: Order) -> Inbox {
        Inbox::new(ReceiverOptions::new().order(order))
    }

    fn come(inbox: &mut Inbox, id: u64, version: u16, alive_from: u64) {
        inbox.header(&header(id, version, alive_from));
        inbox.complete(adu(id, version));
    }

    fn taken(inbox: &mut Inbox) -> Vec<(u64, u16)> {
        inbox.settle();
        std::iter::from_fn(|| inbox.take().map(|adu| (adu.id, adu.version))).collect()
    }

    #[test]
    fn as_they_come_delivers_each_id_once_and_no_old_version() {
        let mut inbox = inbox(Order::AsTheyCome);
        come(&mut inbox, 5, 0, 0);
        come(&mut inbox, 5, 1, 0);
        inbox.header(&header(3, 0, 0));
        inbox.header(&header(3, 2, 0));
        inbox.complete(adu(3, 0));
        assert_eq!(taken(&mut inbox), [(5, 0)]);
        inbox.complete(adu(3, 2));
        assert_eq!(taken(&mut inbox), [(3, 2)]);
        assert_eq!(inbox.stats.superseded, 2);
    }

    #[test]
    fn by_id_waits_for_what_is_alive_and_not_for_what_is_given_up() {
        let mut inbox = inbox(Order::ById);
        come(&mut inbox, 1, 0, 0);
        come(&mut inbox, 3, 0, 0);
        assert_eq!(taken(&mut inbox), []);
        come(&mut inbox, 0, 0, 0);
        assert_eq!(taken(&mut inbox), [(0, 0), (1, 0)]);
        inbox.header(&header(4, 0, 3));
        assert_eq!(taken(&mut inbox), [(3, 0)]);
        come(&mut inbox, 2, 0, 2);
        assert_eq!(taken(&mut inbox), []);
        assert_eq!((inbox.stats.late, inbox.stats.skipped), (1, 1));
        inbox.header(&Header {
            notice: true,
            ..header(9, 0, 9)
        });
        come(&mut inbox, 9, 0, 9);
        assert_eq!(taken(&mut inbox), [(9, 0)]);
    }

    #[test]
    fn by_id_does_not_wait_for_ids_that_a_header_says_are_gone() {
        let mut inbox = inbox(Order::ById);
        for id in [1, 4, 6] {
            come(&mut inbox, id, 0, 0);
        }
        let gone = Some((2, 3));
        inbox.header(&Header {
            gone,
            ..header(7, 0, 0)
        });
        // It was given up, and yet came in time.
        inbox.header(&Header {
            gone: Some((6, 6)),
            ..header(8, 0, 0)
        });
        assert_eq!(taken(&mut inbox), []);
        come(&mut inbox, 0, 0, 0);
        assert_eq!(taken(&mut inbox), [(0, 0), (1, 0), (4, 0)]);
        come(&mut inbox, 5, 0, 0);
        come(&mut inbox, 7, 0, 0);
        assert_eq!(taken(&mut inbox), [(5, 0), (6, 0), (7, 0)]);
        assert_eq!(inbox.stats.skipped, 2);
    }

    #[test]
    fn by_id_does_not_wait_for_what_was_refused_here() {
        let mut inbox = inbox(Order::ById);
        come(&mut inbox, 2, 0, 0);
        inbox.header(&header(0, 0, 0));
        inbox.refuse(0);
        inbox.header(&header(1, 0, 0));
        inbox.refuse(1);
        assert_eq!(taken(&mut inbox), [(2, 0)]);
        assert_eq!((inbox.stats.refused, inbox.stats.skipped), (2, 2));
    }

    #[test]
    fn ids_that_are_too_old_to_be_remembered_are_dropped() {
        let options = ReceiverOptions::new().remembered(3);
        let mut inbox = Inbox::new(options);
        for id in 0..5 {
            come(&mut inbox, id, 0, 0);
        }
        come(&mut inbox, 1, 1, 0);
        come(&mut inbox, 4, 1, 0);
        assert_eq!(taken(&mut inbox).len(), 5);
        assert_eq!((inbox.stats.late, inbox.stats.superseded), (1, 1));
    }

    #[test]
    fn by_id_waits_no_longer_when_too_much_is_held() {
        let options = ReceiverOptions::new().order(Order::ById).held(25);
        let mut inbox = Inbox::new(options);
        come(&mut inbox, 2, 0, 0);
        come(&mut inbox, 1, 0, 0);
        assert_eq!(taken(&mut inbox), []);
        come(&mut inbox, 7, 0, 0);
        assert_eq!(taken(&mut inbox), [(1, 0), (2, 0)]);
        inbox.end();
        assert_eq!(taken(&mut inbox), [(7, 0)]);
    }

    proptest! {
        /// Whatever comes in whatever order: each id once, in order if asked for, and what was acknowledged
        /// before the headers that follow it is delivered.
        #[test]
        fn each_id_is_delivered_once_and_by_id_they_grow(
            by_id in any::<bool>(),
            events in proptest::collection::vec((0..40u64, 0..3u16, 0..40u64, any::<bool>()), 0..200),
        ) {
            let order = if by_id { Order::ById } else { Order::AsTheyCome };
            let mut inbox = inbox(order);
            let mut delivered = Vec::new();
            let mut complete = 0;
            for (id, version, alive, completes) in events {
                inbox.header(&header(id, version, alive.min(id)));
                if completes {
                    inbox.complete(adu(id, version));
                    complete += 1;
                }
                delivered.extend(taken(&mut inbox).into_iter().map(|(id, _)| id));
            }
            inbox.end();
            delivered.extend(taken(&mut inbox).into_iter().map(|(id, _)| id));
            let stats = inbox.stats;
            prop_assert_eq!(complete, stats.delivered + stats.superseded + stats.late);
            prop_assert_eq!(delivered.len() as u64, stats.delivered);
            let mut sorted = delivered.clone();
            sorted.sort_unstable();
            if by_id {
                prop_assert_eq!(&sorted, &delivered);
            }
            sorted.dedup();
            prop_assert_eq!(sorted.len(), delivered.len());
        }
    }
}
