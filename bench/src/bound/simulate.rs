//! Schedulers without a kernel: one session, one link of known rate, packets that are
//! never interrupted. What is tried here first and measured in the kernel afterwards.
//!
//! The link is bestby's shaper: a packet is handed over when its first bit leaves, the
//! next one when the link is free again, an idle link may catch up [`Link::burst`].
//! Packets created at one time reach the queue [`SPACING`] apart, so that a free link
//! takes the first of a burst before the queue knows the second.

use super::{
    Fate, Link,
    rules::{DOUBT, Guard, Size, Sure, Triage, Victim, When},
};
use crate::{sys::MILLI, traffic::Schedule};

/// ns between two packets that are created at the same time: a system call.
pub const SPACING: u64 = 20_000;

/// BB_PRIORITY_DEFAULT in bb_abi.h.
const DEFAULT_PRIORITY: u8 = 3;

/// See [`Triage::early`].
const SPARE: f64 = 0.125;
/// ADUs a session remembers as given up (BBQ_DEAD in bbq_state.bpf.h).
const DEAD: usize = 8;

/// A scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scheduler {
    /// In order of arrival, so many packets at most, nothing dropped for its age.
    Fifo(usize),
    /// SFDPS: most important first, then by deadline; stale ADUs are dropped.
    Priority,
    /// By deadline; stale ADUs are dropped.
    Edf,
    /// By deadline; what cannot be saved is given up.
    Triage(Triage),
}

/// What the scheduler believes of the path, relative to the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// −0.2: it plans with a rate 20 % too low. The link itself is not changed.
    pub rate: f64,
    /// −0.2: it believes an owd 20 % too short.
    pub owd: f64,
}

/// What became of a schedule.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of each packet of the schedule.
    pub fates: Vec<Fate>,
}

struct Adu {
    number: u32,
    priority: u8,
    /// Place in the order.
    key: (u64, u64, u64),
    deadline: u64,
    /// Time it should have to spare, ns: see [`Triage::early`].
    spare: f64,
    /// What it could wait when it came, ns.
    slack: u64,
    /// Queued packets (places in the schedule), first to go first.
    packets: std::collections::VecDeque<usize>,
    bytes: u64,
    sent: u64,
    /// Bytes of the whole ADU.
    whole: u64,
}

impl Adu {
    /// Bytes that are still to be sent, as far as `triage` knows.
    fn left(&self, triage: Triage) -> u64 {
        match triage.size {
            Size::Arrived => self.bytes,
            Size::Known => self.whole - self.sent,
        }
    }
}

/// The last packet of a priority.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// When it came; 0 = never.
    at: u64,
    /// Time since the one before it.
    gap: u64,
    /// How long it could wait.
    slack: u64,
    /// When the period began of which bytes are counted.
    from: u64,
    bytes: u64,
    /// Bytes per ns of the period before; 0 = there was none.
    load: f64,
}

impl Seen {
    fn saw(&mut self, now: u64, slack: u64, bytes: u32) {
        let gap = now - self.at;
        let period = now - self.from;
        if self.at == 0 || gap >= AHEAD || period >= AHEAD {
            self.load = match self.at == 0 || gap >= AHEAD {
                true => 0.0,
                false => self.bytes as f64 / period as f64,
            };
            self.from = now;
            self.bytes = 0;
        }
        self.at = now;
        self.gap = gap;
        self.slack = slack;
        self.bytes += u64::from(bytes);
    }
}

/// A priority is expected for this long after its last packet, ns (BBQ_AHEAD_NS in
/// bbq_triage.bpf.h). The kernel knows this of the most important priority only.
const AHEAD: u64 = 100 * MILLI;

/// How long the guard waits for a packet that does not come when it is expected, ns.
const OVERDUE: u64 = 500_000;

struct Queue<'a> {
    schedule: &'a Schedule,
    link: Link,
    scheduler: Scheduler,
    /// Believed.
    owd: u64,
    rate: f64,
    adus: Vec<Adu>,
    dead: std::collections::VecDeque<u32>,
    /// Bytes of ADUs under way that were sent already.
    begun: std::collections::HashMap<u32, u64>,
    /// Bytes of every ADU.
    sizes: std::collections::HashMap<u32, u64>,
    /// Something arrived since the last triage.
    dirty: bool,
    packets: usize,
    link_next: u64,
    /// The plan failed lately.
    doubt_until: u64,
    /// The guard waits until then, or for the next arrival; 0 = it does not.
    hold_until: u64,
    /// Of each priority.
    seen: [Seen; 8],
}

/// Runs `scheduler` on a schedule.
pub fn simulate(schedule: &Schedule, link: &Link, scheduler: Scheduler, errors: Errors) -> Outcome {
    let mut queue = Queue {
        schedule,
        link: *link,
        scheduler,
        owd: (link.owd as f64 * (1.0 + errors.owd)) as u64,
        rate: link.rate as f64 * (1.0 + errors.rate) / 8e9,
        adus: Vec::new(),
        dead: std::collections::VecDeque::new(),
        begun: std::collections::HashMap::new(),
        sizes: std::collections::HashMap::new(),
        dirty: false,
        packets: 0,
        link_next: 0,
        doubt_until: 0,
        hold_until: 0,
        seen: [Seen::default(); 8],
    };
    for packet in &schedule.packets {
        *queue.sizes.entry(packet.adu).or_insert(0) += u64::from(packet.wire_bytes);
    }
    let mut outcome = Outcome {
        fates: vec![Fate::Dropped; schedule.packets.len()],
    };
    let mut send = |queue: &mut Queue<'_>, now: u64| {
        let Some(index) = queue.dequeue(now) else {
            return;
        };
        let packet = &schedule.packets[index];
        let in_time = now + link.owd <= packet.at + packet.lifetime;
        outcome.fates[index] = if in_time { Fate::OnTime } else { Fate::Late };
    };
    let mut clock = 0;
    for (index, packet) in schedule.packets.iter().enumerate() {
        let at = packet.at.max(clock + SPACING);
        while queue.packets > 0 && queue.ready(clock) < at {
            let now = queue.ready(clock);
            clock = now;
            queue.hold_until = 0;
            send(&mut queue, now);
        }
        clock = at;
        queue.enqueue(index, at);
        if queue.link_next <= at {
            send(&mut queue, at);
        }
    }
    while queue.packets > 0 {
        clock = queue.ready(clock);
        queue.hold_until = 0;
        send(&mut queue, clock);
    }
    outcome
}

/// When a packet begins to leave that waits for others during `wait`, if the link is free from
/// `start` on. What waits for none needs no timer that could be late.
fn begins(triage: Triage, start: u64, wait: u64) -> u64 {
    match wait {
        0 => start,
        _ => start + wait + triage.margin,
    }
}

impl Queue<'_> {
    /// When something may be sent, at `now` or later.
    fn ready(&self, now: u64) -> u64 {
        self.link_next.max(self.hold_until).max(now)
    }

    fn enqueue(&mut self, index: usize, now: u64) {
        self.hold_until = 0;
        let packet = &self.schedule.packets[index];
        let deadline = packet.at + packet.lifetime;
        let priority = packet.priority;
        // What is late already when it comes is nothing to wait for.
        if !self.stale(now, deadline) {
            let slack = deadline - now - self.owd;
            self.seen[usize::from(priority)].saw(now, slack, packet.wire_bytes);
        }
        if self.dead.contains(&packet.adu) {
            return;
        }
        if let Scheduler::Fifo(limit) = self.scheduler
            && self.packets >= limit
        {
            return;
        }
        let important = u64::from(priority);
        let spare = match self.scheduler {
            Scheduler::Triage(triage) => self.spare(triage, priority, deadline, now),
            _ => 0.0,
        };
        let key = match self.scheduler {
            Scheduler::Fifo(_) => (0, 0, index as u64),
            Scheduler::Priority => (0, important, deadline),
            Scheduler::Triage(triage) if triage.by_priority => (0, important, deadline),
            Scheduler::Triage(triage) => {
                let due = deadline - (spare * triage.early) as u64;
                match triage.grain {
                    0 => (0, 0, due),
                    grain => (due / grain, important, due),
                }
            }
            Scheduler::Edf => (0, 0, deadline),
        };
        self.packets += 1;
        let bytes = u64::from(packet.wire_bytes);
        let place = match self.adus.iter().position(|a| a.number == packet.adu) {
            Some(place) if !matches!(self.scheduler, Scheduler::Fifo(_)) => {
                let adu = &mut self.adus[place];
                adu.packets.push_back(index);
                adu.bytes += bytes;
                place
            }
            _ => {
                let place = self.adus.partition_point(|a| a.key <= key);
                let adu = Adu {
                    number: packet.adu,
                    priority,
                    key,
                    deadline,
                    spare,
                    slack: deadline.saturating_sub(now + self.owd),
                    packets: [index].into(),
                    bytes,
                    whole: self.sizes[&packet.adu],
                    sent: self.begun.get(&packet.adu).copied().unwrap_or(0),
                };
                self.adus.insert(place, adu);
                place
            }
        };
        self.dirty = true;
        if let Scheduler::Triage(triage) = self.scheduler {
            let start = now.max(self.link_next);
            let alone = self.needs(triage, self.adus[place].left(triage), place);
            if self.stale(begins(triage, start, alone), deadline) {
                self.give_up(place);
            } else if triage.when == When::Arrival {
                self.triage(triage, start);
            }
        }
    }

    /// Time that this packet should have to spare, ns: see [`Triage::early`].
    fn spare(&self, triage: Triage, priority: u8, deadline: u64, now: u64) -> f64 {
        if priority >= DEFAULT_PRIORITY {
            return 0.0;
        }
        let owd = self.owd as f64;
        let slack = deadline.saturating_sub(now) as f64 - owd * triage.spare_owds;
        owd.min(slack.max(0.0) * SPARE)
    }

    /// When the last byte of this ADU must leave, but for the owd.
    fn end(&self, triage: Triage, adu: &Adu) -> u64 {
        let size = |&place: &usize| self.schedule.packets[place].wire_bytes;
        let takes = f64::from(adu.packets.back().map_or(0, size)) / self.rate;
        adu.deadline - (adu.spare * triage.early) as u64 + takes as u64
    }

    /// Puts the ADU behind `place` before it if it must be gone first.
    fn order_by_end(&mut self, triage: Triage, place: usize) {
        if triage.by_end
            && let [adu, behind, ..] = &self.adus[place..]
            && behind.priority < adu.priority
            && self.end(triage, behind) < self.end(triage, adu)
        {
            self.adus.swap(place, place + 1);
        }
    }

    /// Would a packet that leaves at `at` be late, as far as it is known?
    fn stale(&self, at: u64, deadline: u64) -> bool {
        at + self.owd > deadline
    }

    /// ns until ADU `place` has left if the link sends `bytes` up to its end.
    fn needs(&self, triage: Triage, bytes: u64, place: usize) -> u64 {
        let last = match (triage.first_bit, self.adus[place].packets.back()) {
            (true, Some(&last)) => u64::from(self.schedule.packets[last].wire_bytes),
            _ => 0,
        };
        ((bytes - last) as f64 / self.rate) as u64
    }

    fn give_up(&mut self, place: usize) {
        let adu = self.adus.remove(place);
        self.packets -= adu.packets.len();
        self.dead.push_back(adu.number);
        if self.dead.len() > DEAD {
            self.dead.pop_front();
        }
    }

    /// Bytes that are still to come and have to go before this ADU: `bbq_expected`.
    fn expected(&self, triage: Triage, adu: &Adu, now: u64) -> u64 {
        let more_important = match triage.expects {
            true => &self.seen[..usize::from(adu.priority)],
            false => &[],
        };
        let bytes = |seen: &Seen| {
            let until = adu.deadline.saturating_sub(self.owd + seen.slack);
            until.saturating_sub(now) as f64 * seen.load
        };
        let lately = |seen: &&Seen| now < seen.at + AHEAD;
        more_important.iter().filter(lately).map(bytes).sum::<f64>() as u64
    }

    fn triage(&mut self, triage: Triage, start: u64) {
        for _ in 0..triage.rounds {
            let mut bytes = 0;
            let mut late = false;
            let mut worst: Option<((u8, u64), usize)> = None;
            for place in 0..self.adus.len().min(triage.walk) {
                self.order_by_end(triage, place);
                let adu = &self.adus[place];
                bytes += adu.left(triage);
                let weight = match triage.victim {
                    Victim::MostLeft => adu.left(triage),
                    Victim::Largest => adu.left(triage) + adu.sent,
                    Victim::Latest => 0,
                    Victim::First => (1 << 32) - place as u64,
                };
                let weight = match triage.keep_begun && adu.sent > 0 {
                    true => (adu.priority, 0),
                    false => (adu.priority, weight + 1),
                };
                if worst.is_none_or(|(least, _)| weight >= least) {
                    worst = Some((weight, place));
                }
                let care = (self.owd as f64 * triage.care) as u64;
                let bytes = bytes + self.expected(triage, adu, start);
                let ends = begins(triage, start, self.needs(triage, bytes, place)) + care;
                let pays = worst
                    .map(|(_, place)| &self.adus[place])
                    .is_some_and(|victim| {
                        victim.priority > adu.priority && (triage.from_begun || victim.sent == 0)
                    });
                let spare = match pays {
                    false => 0.0,
                    true if adu.priority < DEFAULT_PRIORITY => adu.spare * triage.plan_early,
                    true => adu.slack as f64 * triage.layers,
                };
                if self.stale(ends + spare as u64, adu.deadline) {
                    late = true;
                    break;
                }
            }
            match worst {
                Some((_, place)) if late => self.give_up(place),
                _ => break,
            }
        }
    }

    /// Until when sending this packet would block a more important one that is to be
    /// expected; 0 = it may go.
    fn blocked_until(&self, adu: &Adu, now: u64, triage: Triage) -> u64 {
        let bytes = u64::from(self.schedule.packets[adu.packets[0]].wire_bytes);
        let busy = (bytes as f64 / self.rate) as u64;
        let mut until = 0;
        for seen in &self.seen[..usize::from(adu.priority)] {
            if seen.at == 0 || seen.slack >= busy || now - seen.at > AHEAD {
                continue;
            }
            let next = seen.at + seen.gap;
            let blocks = match triage.guard {
                Guard::None => false,
                Guard::GiveUp => true,
                Guard::Wait => {
                    next + OVERDUE > now && next + seen.slack < now + busy + triage.margin
                }
            };
            if blocks {
                until = until.max(next + OVERDUE);
            }
        }
        until
    }

    /// Decides if it is time to, and frees what is stale at the head.
    fn settle(&mut self, now: u64) {
        while let Some(head) = self.adus.first() {
            if let Scheduler::Triage(triage) = self.scheduler {
                let due = match triage.when {
                    When::Arrival => false,
                    When::Start => head.sent == 0,
                    When::Dequeue => self.dirty,
                };
                if due {
                    self.dirty = false;
                    let before = self.adus.len();
                    self.triage(triage, now);
                    if self.adus.len() < before {
                        continue;
                    }
                }
            }
            match self.adus.first() {
                Some(head) if self.stale(now, head.deadline) => {
                    self.doubt_until = now + DOUBT;
                    self.give_up(0);
                }
                _ => break,
            }
        }
    }

    /// Place of the ADU whose packet goes next, if one may go now.
    fn next(&mut self, now: u64) -> Option<usize> {
        if matches!(self.scheduler, Scheduler::Fifo(_)) {
            return Some(0);
        }
        self.settle(now);
        let Scheduler::Triage(triage) = self.scheduler else {
            return Some(0);
        };
        if triage.sure == Sure::Always || triage.sure == Sure::Doubt && now < self.doubt_until {
            let mut bytes = 0;
            for (place, adu) in self.adus.iter().enumerate().take(triage.walk) {
                bytes += adu.bytes;
                let slow = (bytes as f64 * triage.slower / self.rate) as u64;
                if adu.priority == 0 && self.stale(now + slow, adu.deadline) {
                    let first = self.adus.iter().position(|a| a.priority == 0);
                    return Some(first.unwrap_or(place));
                }
            }
        }
        let mut hold = u64::MAX;
        let mut place = 0;
        while let Some(adu) = self.adus.get(place).filter(|_| place < triage.walk) {
            if place > 0 && self.stale(now, adu.deadline) {
                place += 1;
                continue;
            }
            match self.blocked_until(adu, now, triage) {
                0 => return Some(place),
                _ if triage.guard == Guard::GiveUp => self.give_up(place),
                until => {
                    hold = hold.min(until);
                    place += 1;
                }
            }
        }
        // What becomes stale meanwhile is freed by the next look at it.
        self.hold_until = hold.min(now + MILLI);
        None
    }

    fn dequeue(&mut self, now: u64) -> Option<usize> {
        let place = self.next(now)?;
        let adu = self.adus.get_mut(place)?;
        let index = adu.packets.pop_front()?;
        let bytes = u64::from(self.schedule.packets[index].wire_bytes);
        adu.bytes -= bytes;
        adu.sent += bytes;
        self.begun.insert(adu.number, adu.sent);
        if adu.packets.is_empty() {
            self.adus.remove(place);
        }
        self.packets -= 1;
        if self.link_next + self.link.burst < now {
            self.link_next = now - self.link.burst;
        }
        self.link_next += self.link.transmission(bytes) + 1;
        Some(index)
    }
}
