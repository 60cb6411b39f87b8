//! The backlog: ADUs that have not begun, or that wait between two of their parts. No I/O, no clock.
//!
//! The problem: a transport takes bytes in order, and what it has taken is sent, however late. So the
//! choice is made here, as late as possible, each time there is room for a few segments.
//!
//! 1. Every ADU is in three orders: by id (the order of arrival), by deadline, and by priority. The first
//!    two are the double list of DSR (`dsr.txt`, section 3), the third finds whom to evict.
//! 2. What is stale goes ([`Backlog::expire`]), and what cannot be finished in time even if it began now.
//! 3. [`Backlog::choose`] names the ADU that should begin; it stays here until [`Backlog::take`].
//! 4. Whom a plan leaves out is not given up. The plan may be wrong, and the next one is made with the
//!    next room; what is left out to the end goes by 2.
//!
//! Each ADU leaves exactly once: by `take` or with a [`Reason`]. `put_back` undoes a `take`.

mod expected;
#[cfg(test)]
pub(crate) mod law;
mod plan;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    expected::Expected,
    plan::{Plan, Whole},
};
use crate::{metadata::Priority, path::View};

/// Deadline of what has none.
pub(crate) const NEVER: u64 = u64::MAX;

/// In which order ADUs are sent, and which ones are given up where not all can be in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// By deadline, and important ADUs go early where that costs nothing. Where not all can be in time, the least
    /// important go without (`docs/triage.md`).
    ///
    /// An ADU is lost only if it could not have arrived with every less important one left out from its creation on.
    /// So no key frame is given up for frames that refer to it, if its priority is better than theirs. The plan keeps
    /// time free for ADUs that are still to come. That is a quarter of what each ADU could wait, and what more
    /// important ones took in the last two seconds. If more than that comes, a more important ADU may be lost.
    ///
    /// While more important ADUs are expected, no ADU begins that takes longer than they can wait. An ADU that has
    /// begun must end, and audio would be late behind it. Over 1 Mbit/s that concerns a key frame of more than 30 kB
    /// beside audio of 300 ms. Give the audio a longer lifetime, or push the key frame in parts between which others
    /// may go (`Options::interleave` of `tcp`). QUIC needs neither.
    #[default]
    Triage,
    /// By priority, and among equals by deadline. The sender of the LDC paper (section 6): base layer first.
    Priority,
    /// As they came. Stale ADUs are given up all the same.
    Fifo,
}

/// Why an ADU was given up; each has exactly one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// now + owd was later than its deadline.
    Stale,
    /// It could not have been finished in time at the rate of the path, even if it had begun at once.
    Predicted,
    /// The backlog was full, and nothing in it was less important. Or it alone is more than the limit.
    Evicted,
    /// The application took it back.
    Cancelled,
    /// The connection ended.
    Closed,
}

/// One ADU that waits.
#[derive(Clone, Debug)]
pub(crate) struct Adu<T> {
    /// ns of `CLOCK_MONOTONIC`; [`NEVER`] for none.
    pub(crate) deadline: u64,
    pub(crate) priority: Priority,
    /// When it was pushed, ns.
    pub(crate) arrived: u64,
    /// Bytes that are left to send.
    pub(crate) bytes: usize,
    /// Bytes that are sent without another ADU between them, at most.
    pub(crate) solid: usize,
    /// It is never given up because of the time: the application said so, or it has begun and must end.
    pub(crate) keep: bool,
    /// Some of its parts are sent: neither limits nor the application may take it back.
    pub(crate) begun: bool,
    pub(crate) content: T,
}

/// ADUs and bytes that may wait at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) adus: usize,
    pub(crate) bytes: usize,
}

/// An ADU that left without being sent.
pub(crate) type GivenUp<T> = (u64, Adu<T>, Reason);

/// See the file's comment.
#[derive(Debug)]
pub(crate) struct Backlog<T> {
    method: Method,
    limits: Limits,
    adus: BTreeMap<u64, Adu<T>>,
    by_deadline: BTreeSet<(u64, Priority, u64)>,
    by_priority: BTreeSet<(Priority, u64, u64)>,
    bytes: usize,
    /// The same by priority.
    bytes_of: [usize; 8],
    /// No ADU that waits has more bytes.
    largest: usize,
    expected: Expected,
    plan: Plan,
}

/// ns that `bytes` take at `rate` bytes/s; 0 where the rate is not known.
pub(crate) fn transmission(bytes: usize, rate: u64) -> u64 {
    if rate == 0 {
        return 0;
    }
    let ns = bytes as u128 * 1_000_000_000 / u128::from(rate);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

impl<T> Adu<T> {
    /// Would its last byte, sent now, be late? (`docs/design.md`, "stale".)
    pub(crate) fn is_stale(&self, now: u64, view: &View) -> bool {
        now.saturating_add(view.owd) > self.deadline
    }

    /// The time that is kept free for one retransmission, ns: the path's margin, but never more than
    /// half of what the ADU could wait when it came, and three quarters with its acknowledgement. A lifetime that
    /// is too short for a retransmission is no reason to send nothing. Over QUIC none is kept for an ADU of which a part
    /// is sent.
    pub(crate) fn margin(&self, view: &View) -> u64 {
        if self.begun && view.acknowledged {
            return 0;
        }
        let wait = self
            .deadline
            .saturating_sub(self.arrived)
            .saturating_sub(view.owd);
        let most = if view.acknowledged {
            wait - wait / 4
        } else {
            wait / 2
        };
        view.margin.min(most)
    }

    /// Would it be late even if it had the path to itself from now on?
    pub(crate) fn is_hopeless(&self, now: u64, view: &View) -> bool {
        now.saturating_add(view.owd)
            .saturating_add(transmission(self.bytes, view.rate))
            > self.deadline
    }
}

impl<T> Backlog<T> {
    pub(crate) fn new(method: Method, limits: Limits) -> Self {
        Self {
            method,
            limits,
            adus: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            by_priority: BTreeSet::new(),
            bytes: 0,
            bytes_of: [0; 8],
            largest: 0,
            expected: Expected::default(),
            plan: Plan::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.adus.len()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Adu<T>> {
        self.adus.get(&id)
    }

    /// Takes `adu` in; what makes room for it, perhaps itself, goes to `out`. `id` is larger than every id before.
    pub(crate) fn push(&mut self, id: u64, adu: Adu<T>, out: &mut Vec<GivenUp<T>>) {
        self.expected.note(&adu);
        let (mut adus, mut bytes) = (self.adus.len() + 1, self.bytes.saturating_add(adu.bytes));
        let mut victims = Vec::new();
        let mut candidates = Candidates::new(&self.by_priority);
        while adus > self.limits.adus || bytes > self.limits.bytes {
            let victim = candidates.next(|id| self.adus.get(&id).is_some_and(|adu| !adu.begun));
            // Less important, or as important and due before the new one.
            let victim = victim.filter(|&(priority, deadline, _)| {
                (priority, adu.deadline) > (adu.priority, deadline)
            });
            let Some((_, _, victim)) = victim else {
                out.push((id, adu, Reason::Evicted));
                return;
            };
            adus -= 1;
            bytes -= self.adus.get(&victim).map_or(0, |adu| adu.bytes);
            victims.push(victim);
        }
        for victim in victims {
            self.give_up(victim, Reason::Evicted, out);
        }
        self.put_back(id, adu);
    }

    /// Undoes a [`Backlog::take`], whatever the limits.
    pub(crate) fn put_back(&mut self, id: u64, adu: Adu<T>) {
        self.by_deadline.insert((adu.deadline, adu.priority, id));
        self.by_priority.insert((adu.priority, adu.deadline, id));
        self.bytes += adu.bytes;
        self.bytes_of[usize::from(adu.priority.get())] += adu.bytes;
        if self.adus.is_empty() {
            self.largest = 0;
        }
        self.largest = self.largest.max(adu.bytes);
        self.adus.insert(id, adu);
    }

    /// Takes an ADU out: to send it, or because the application wants it back.
    pub(crate) fn take(&mut self, id: u64) -> Option<Adu<T>> {
        let adu = self.adus.remove(&id)?;
        self.by_deadline.remove(&(adu.deadline, adu.priority, id));
        self.by_priority.remove(&(adu.priority, adu.deadline, id));
        self.bytes -= adu.bytes;
        self.bytes_of[usize::from(adu.priority.get())] -= adu.bytes;
        Some(adu)
    }

    fn give_up(&mut self, id: u64, reason: Reason, out: &mut Vec<GivenUp<T>>) {
        if let Some(adu) = self.take(id) {
            out.push((id, adu, reason));
        }
    }

    /// Everything goes, for `reason`, the oldest first.
    pub(crate) fn clear(&mut self, reason: Reason, out: &mut Vec<GivenUp<T>>) {
        while let Some((&id, _)) = self.adus.first_key_value() {
            self.give_up(id, reason, out);
        }
    }

    /// Gives up what is stale, and (but for [`Method::Fifo`]) what cannot be finished in time.
    pub(crate) fn expire(&mut self, now: u64, view: &View, out: &mut Vec<GivenUp<T>>) {
        let latest = match self.method {
            Method::Fifo => 0,
            _ => transmission(self.largest, view.rate),
        };
        let latest = now.saturating_add(view.owd).saturating_add(latest);
        let mut gone = Vec::new();
        // Whatever is due later is in time, even if it is the largest.
        for &(_, _, id) in self.by_deadline.iter().take_while(|d| d.0 < latest) {
            let Some(adu) = self.adus.get(&id).filter(|adu| !adu.keep) else {
                continue;
            };
            if adu.is_stale(now, view) {
                gone.push((id, Reason::Stale));
            } else if self.method != Method::Fifo && adu.is_hopeless(now, view) {
                gone.push((id, Reason::Predicted));
            }
        }
        for (id, reason) in gone {
            self.give_up(id, reason, out);
        }
    }

    /// The ADU that should begin now, after [`Backlog::expire`] at the same time. None where nothing
    /// waits, or where the path had better wait for something more important.
    pub(crate) fn choose(&mut self, now: u64, view: &View) -> Option<u64> {
        match self.method {
            Method::Fifo => self.adus.first_key_value().map(|(&id, _)| id),
            Method::Priority => self.by_priority.first().map(|&(_, _, id)| id),
            Method::Triage => {
                let whole = Whole {
                    bytes: self.bytes_of,
                    best: self.by_priority.first()?.0,
                    oldest: self.adus.first_key_value()?.1.arrived,
                };
                let ordered = self
                    .by_deadline
                    .iter()
                    .filter_map(|&(_, _, id)| Some((id, self.adus.get(&id)?)));
                let next_due = |priority, deadline| {
                    let next = self.by_priority.range((priority, deadline, 0)..).next();
                    next.filter(|next| next.0 == priority).map(|next| next.1)
                };
                let expected = &self.expected;
                let plan = &mut self.plan;
                let chosen = plan.choose(now, view, ordered, whole, expected, next_due);
                if chosen.is_some() || !self.plan.cut {
                    return chosen;
                }
                // All that was looked at makes room for what is far behind.
                let outlook = self.expected.outlook(now, view);
                let mut ids = self.by_priority.iter().map(|&(_, _, id)| id);
                ids.find(|id| self.adus.get(id).is_some_and(|adu| outlook.allows(adu)))
            }
        }
    }

    /// When the next ADU becomes stale, ns; None while nothing that waits has a deadline.
    pub(crate) fn next_expiry(&self, view: &View) -> Option<u64> {
        let mut due = self.by_deadline.iter().take_while(|d| d.0 != NEVER);
        let first = due.find(|&&(_, _, id)| self.adus.get(&id).is_some_and(|adu| !adu.keep));
        first.map(|&(deadline, _, _)| deadline.saturating_sub(view.owd).saturating_add(1))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Adu<T>)> {
        self.adus.iter().map(|(&id, adu)| (id, adu))
    }
}

/// Whom to evict, in order: the least important first, and among equals who is due first.
struct Candidates<'a> {
    all: &'a BTreeSet<(Priority, u64, u64)>,
    /// The next one of the same priority comes after it.
    after: Option<(Priority, u64, u64)>,
}

impl<'a> Candidates<'a> {
    fn new(all: &'a BTreeSet<(Priority, u64, u64)>) -> Self {
        Self { all, after: None }
    }

    fn next(&mut self, may: impl Fn(u64) -> bool) -> Option<(Priority, u64, u64)> {
        let first_of = |priority| self.all.range((priority, 0, 0)..).next().copied();
        loop {
            let candidate = match self.after {
                None => first_of(self.all.last()?.0)?,
                Some(last) => {
                    let rest = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
                    let same = self.all.range(rest).next();
                    match same.filter(|next| next.0 == last.0) {
                        Some(next) => *next,
                        None => first_of(self.all.range(..(last.0, 0, 0)).next_back()?.0)?,
                    }
                }
            };
            self.after = Some(candidate);
            if may(candidate.2) {
                return Some(candidate);
            }
        }
    }
}
