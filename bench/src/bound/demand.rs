//! Is a set of jobs feasible? Earliest due time first, interrupting at will, decides it.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::jobs::Job;

/// Whether all `jobs` (in order of release) can be on time together on a free link.
#[cfg(test)]
pub(super) fn feasible<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> bool {
    let mut link = Edf::default();
    for job in jobs {
        link.serve_until(job.release);
        if link.late {
            return false;
        }
        link.push(job);
    }
    link.serve_until(i64::MAX);
    !link.late
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
