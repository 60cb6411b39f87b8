//! ADUs or packets as jobs of a one-machine scheduling problem.

use std::collections::{BTreeMap, HashMap, HashSet};

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
    /// A packet by itself.
    fn of(packet: &Packet, link: &Link) -> Self {
        Self {
            release: packet.at as i64,
            due: due(packet, link),
            work: link.transmission(packet.wire_bytes.into()) as i64,
            adu: packet.adu,
        }
    }

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
fn due(last: &Packet, link: &Link) -> i64 {
    let departs = last.at as i64 + last.lifetime as i64 - link.owd as i64;
    let behind = match link.departure {
        Departure::FirstBit => link.transmission(u64::from(last.wire_bytes)),
        Departure::Bucket => 0,
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
    /// The ADUs of a class by priority, the most important first. All packets of an ADU have one
    /// priority, and leave in the order of the schedule.
    pub(super) fn by_priority(schedule: &Schedule, class: Class, link: &Link) -> Vec<Self> {
        let mut priorities: BTreeMap<u8, Self> = BTreeMap::new();
        // ADUs of several streams may interleave: of each its place among the jobs, and its bytes.
        let mut known = HashMap::new();
        for packet in schedule.packets.iter().filter(|p| p.class == class) {
            let jobs = &mut priorities.entry(packet.priority).or_default().0;
            let (at, bytes) = known
                .entry((packet.priority, packet.adu))
                .or_insert_with(|| {
                    jobs.push(Job::of(packet, link));
                    (jobs.len() - 1, 0)
                });
            *bytes += u64::from(packet.wire_bytes);
            jobs[*at].due = due(packet, link);
            jobs[*at].work = link.transmission(*bytes) as i64;
        }
        priorities.into_values().collect()
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
        let packets = schedule.packets.iter().filter(|p| p.class == class);
        let without_place: HashSet<u32> = packets
            .map(|packet| Job::of(packet, link))
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
