//! False drops: given up, yet there was room.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use super::{
    Link,
    jobs::{Job, Jobs},
    whole::{self, Piece},
};
use crate::traffic::{Class, Schedule};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Arrived by its deadline.
    OnTime,
    /// Arrived after it.
    Late,
    /// Never arrived: on a path that loses nothing, dropped by the queue.
    Dropped,
}

/// ADUs of which something was dropped although they could have been added to those
/// that arrived complete and on time, without displacing one of them.
///
/// Precisely: let D be the ADUs whose packets all arrived on time. Those with a packet
/// that was dropped are looked at in the order of class, priority and creation; one
/// that is feasible together with D (demand criterion, see the module; and, as far as that
/// can be known, with packets sent whole) is a false drop,
/// and joins D, so that two drops which only one gap could have held count once. What
/// the link spent on packets that are not of D counts as room: it could have been spent
/// better. An ADU that arrived late as a whole was not dropped: that is staleness.
pub type FalseDrops = BTreeMap<Class, u64>;

/// Counts the false drops of a run by class. `fates[i]` is that of packet `i` of the schedule.
pub fn false_drops(schedule: &Schedule, fates: &[Fate], link: &Link) -> FalseDrops {
    let mut found: FalseDrops = Class::ALL.map(|class| (class, 0)).into();
    for (class, _) in adus(schedule, fates, link) {
        *found.entry(class).or_default() += 1;
    }
    found
}

/// The ADUs that are false drops, in the order in which they were found.
pub(super) fn adus(schedule: &Schedule, fates: &[Fate], link: &Link) -> Vec<(Class, u32)> {
    let mut worst: BTreeMap<u32, Fate> = BTreeMap::new();
    for (packet, &fate) in schedule.packets.iter().zip(fates) {
        let adu = worst.entry(packet.adu).or_insert(Fate::OnTime);
        *adu = (*adu).max(fate);
    }
    let packets = Packets::new(schedule, link);
    let by_priority = |class| {
        let priorities = Jobs::by_priority(schedule, class, link).into_iter();
        priorities.map(move |adus| (class, adus.0))
    };
    let priorities: Vec<_> = Class::ALL.into_iter().flat_map(by_priority).collect();
    let is = |fate, job: &Job| worst.get(&job.adu) == Some(&fate);
    let all = priorities.iter().flat_map(|(_, adus)| adus);
    let mut delivered: Vec<Job> = all.filter(|job| is(Fate::OnTime, job)).copied().collect();
    delivered.sort_by_key(|j| (j.release, j.due));
    let mut found = Vec::new();
    for (class, adus) in priorities {
        // Once through time for each priority: what was released before a job has been served until then.
        let (mut line, mut released) = (Edf::default(), 0);
        let lost = |job: &Job| is(Fate::Dropped, job) && job.possible();
        for job in adus.into_iter().filter(lost) {
            while let Some(next) = delivered.get(released).filter(|j| j.release < job.release) {
                line.release(next);
                released += 1;
            }
            let fits = line.has_room(&job, &delivered[released..]);
            if fits && whole_fit(&delivered, &job, released, &packets) {
                let at =
                    delivered.partition_point(|j| (j.release, j.due) <= (job.release, job.due));
                delivered.insert(at, job);
                found.push((class, job.adu));
            }
        }
    }
    found
}

/// So many times the time that a job has are near it, before and after.
const NEAR: i64 = 4;

/// The packets of all ADUs.
pub(super) struct Packets<'a> {
    link: &'a Link,
    of: HashMap<u32, (Class, Vec<Piece>)>,
}

impl<'a> Packets<'a> {
    pub(super) fn new(schedule: &Schedule, link: &'a Link) -> Self {
        let of_class = |class| {
            let adus = whole::pieces(schedule, class, link).into_iter();
            adus.map(move |(adu, pieces)| (adu, (class, pieces)))
        };
        let of = Class::ALL.into_iter().flat_map(of_class).collect();
        Self { link, of }
    }

    /// Have these ADUs (in order of release) a place if packets are sent whole? What cannot be
    /// known counts as yes.
    pub(super) fn have_place<'b>(&self, jobs: impl Iterator<Item = &'b Job>) -> bool {
        let (mut audio, mut frames) = (Vec::new(), Vec::new());
        for job in jobs {
            match self.of.get(&job.adu) {
                Some((Class::Audio, pieces)) => audio.extend(pieces),
                Some((Class::Video, pieces)) => frames.push(pieces.clone()),
                _ => return true,
            }
        }
        whole::all_fit(audio, frames, self.link).unwrap_or(true)
    }
}

/// Is there room for `job` beside `delivered` with packets sent whole? (In order of release; `from`:
/// the first that is not released before it.) Looked at no farther than [`NEAR`]: that may find
/// a place where there is none, never the other way round.
fn whole_fit(delivered: &[Job], job: &Job, from: usize, packets: &Packets<'_>) -> bool {
    let reach = NEAR * (job.due - job.release);
    let near = |other: &&Job| (job.release - reach..=job.due + reach).contains(&other.release);
    let before = delivered[..from].iter().filter(near);
    let after = delivered[from..].iter().filter(near);
    packets.have_place(before.chain([job]).chain(after))
}

/// A link at one moment.
#[derive(Clone, Default)]
pub(super) struct Edf {
    /// Due time and rest of the work of what was released and is not done.
    ready: BinaryHeap<Reverse<(i64, i64)>>,
    now: i64,
    /// Whether something was not done by its due time since the link was idle last.
    late: bool,
}

impl Edf {
    /// Goes on to the release of `job`, which is not before that of any job so far.
    pub(super) fn release(&mut self, job: &Job) {
        self.serve_until(job.release);
        self.push(job);
    }

    /// Whether it can take in `job`, released now at the earliest, if `later` (in order of release)
    /// comes afterwards, and nothing is late until it is idle again.
    pub(super) fn has_room<'a>(&self, job: &Job, later: impl IntoIterator<Item = &'a Job>) -> bool {
        let mut link = self.clone();
        link.release(job);
        for job in later {
            link.serve_until(job.release);
            if link.late || link.ready.is_empty() {
                return !link.late;
            }
            link.push(job);
        }
        link.serve_until(i64::MAX);
        !link.late
    }

    fn push(&mut self, job: &Job) {
        if self.ready.is_empty() {
            (self.now, self.late) = (job.release, false);
        }
        self.ready.push(Reverse((job.due, job.work)));
    }

    fn serve_until(&mut self, until: i64) {
        while self.now < until
            && let Some(Reverse((due, work))) = self.ready.pop()
        {
            let room = until - self.now;
            if work > room {
                self.ready.push(Reverse((due, work - room)));
                self.now = until;
                self.late |= due < until;
            } else {
                self.now += work;
                self.late |= self.now > due;
            }
        }
    }
}
