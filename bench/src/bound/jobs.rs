//! ADUs or packets as jobs of a one-machine scheduling problem.

use std::collections::BTreeSet;

use super::{Departure, Link};
use crate::traffic::{Class, Packet, Schedule};

/// One job. Times in ns since the start of the run; dues may lie before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// When its first packet exists.
    pub(super) release: i64,
    /// When its last bit must have left the link.
    pub(super) due: i64,
    /// How long it occupies the link.
    pub(super) work: i64,
    /// Its ADU.
    pub(super) adu: u32,
}

impl Job {
    /// Can it be on time if it has the link to itself?
    pub(super) fn possible(&self) -> bool {
        self.work <= self.due - self.release
    }
}

/// Jobs of one class, in order of release.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs(pub(super) Vec<Job>);

/// Latest end of transmission of a job that ends with `last`. The burst is room for
/// everything that is due, so it moves the due times.
pub(super) fn due(last: &Packet, link: &Link) -> i64 {
    let departs = last.at as i64 + last.lifetime as i64 - link.owd as i64;
    let behind = match link.departure {
        Departure::FirstBit => link.transmission(u64::from(last.wire_bytes)),
        Departure::LastBit | Departure::Bucket => 0,
    };
    departs + (behind + link.burst) as i64
}

/// Is there a start for `packet` such that it is in time, and no forced packet that is
/// released while it holds the link must be on its way before it ends?
fn has_place(packet: &Job, forced: &[Job], link: &Link) -> bool {
    let mut start = packet.release;
    let from = forced.partition_point(|job| job.release <= start);
    for job in &forced[from..] {
        let end = start + packet.work;
        if end > packet.due || job.release >= end {
            break;
        }
        if start < job.release && end + job.work > job.due {
            // Not before it: so after it.
            start = job.release + (job.work - link.burst as i64).max(0);
        }
    }
    start + packet.work <= packet.due
}

impl Jobs {
    /// The ADUs of a class. Packets of an ADU leave in the order of the schedule.
    pub(super) fn adus(schedule: &Schedule, class: Class, link: &Link) -> Self {
        Self::adus_of(schedule, link, |p| p.class == class)
    }

    /// The same apart by priority, the most important first. All packets of an ADU have one.
    pub(super) fn by_priority(schedule: &Schedule, class: Class, link: &Link) -> Vec<Self> {
        let of_class = schedule.packets.iter().filter(|p| p.class == class);
        let priorities: BTreeSet<u8> = of_class.map(|p| p.priority).collect();
        let of = |priority| {
            Self::adus_of(schedule, link, |p| {
                (p.class, p.priority) == (class, priority)
            })
        };
        priorities.into_iter().map(of).collect()
    }

    fn adus_of(schedule: &Schedule, link: &Link, wanted: impl Fn(&Packet) -> bool) -> Self {
        let mut jobs: Vec<Job> = Vec::new();
        // ADUs of several streams may interleave: find the job of an ADU by its number.
        let mut place = std::collections::HashMap::new();
        let mut bytes: Vec<u64> = Vec::new();
        for packet in schedule.packets.iter().filter(|p| wanted(p)) {
            let at = *place.entry(packet.adu).or_insert_with(|| {
                jobs.push(Job {
                    release: packet.at as i64,
                    due: 0,
                    work: 0,
                    adu: packet.adu,
                });
                bytes.push(0);
                jobs.len() - 1
            });
            jobs[at].due = due(packet, link);
            bytes[at] += u64::from(packet.wire_bytes);
        }
        for (job, bytes) in jobs.iter_mut().zip(bytes) {
            job.work = link.transmission(bytes) as i64;
        }
        Self(jobs)
    }

    /// The packets of a class, each a job of its own.
    pub(super) fn packets(schedule: &Schedule, class: Class, link: &Link) -> Self {
        let one = |packet: &Packet| Job {
            release: packet.at as i64,
            due: due(packet, link),
            work: link.transmission(u64::from(packet.wire_bytes)) as i64,
            adu: packet.adu,
        };
        let of_class = schedule.packets.iter().filter(|p| p.class == class);
        Self(of_class.map(one).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Without those that cannot even be sent alone.
    pub(super) fn possible(mut self) -> Self {
        self.0.retain(Job::possible);
        self
    }

    /// Without those of which a packet has no place at all: wherever in its window it
    /// were sent, it would hold the link from before some `forced` packet's release
    /// until that one is too late. (Packets cannot be interrupted; this much of it is
    /// cheap to know.) `forced` are single packets in order of release and due time.
    pub(super) fn placeable(
        mut self,
        forced: &Self,
        schedule: &Schedule,
        class: Class,
        link: &Link,
    ) -> Self {
        let packets = Self::packets(schedule, class, link).0;
        let without_place: std::collections::HashSet<u32> = packets
            .iter()
            .filter(|packet| !has_place(packet, &forced.0, link))
            .map(|packet| packet.adu)
            .collect();
        self.0.retain(|job| !without_place.contains(&job.adu));
        self
    }

    /// Takes in others.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
        self.0.sort_by_key(|job| (job.release, job.due));
    }

    /// In order of release *and* due time: who is released later is not due earlier.
    /// Where that was not so, the later one's due time is moved back, which loosens the
    /// problem and never tightens it. Returns whether nothing had to be moved.
    pub(super) fn agreeable(&self) -> (Self, bool) {
        let mut jobs = self.0.clone();
        jobs.sort_by_key(|job| (job.release, job.due));
        let mut latest = i64::MIN;
        let mut moved = false;
        for job in &mut jobs {
            if job.due < latest {
                moved = true;
                job.due = latest;
            }
            latest = job.due;
        }
        (Self(jobs), !moved)
    }
}
