//! Is a set of jobs feasible? Earliest due time first, interrupting at will, decides it.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::jobs::Job;

/// Whether all `jobs` (in order of release) can be on time together on a free link.
pub(super) fn feasible<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> bool {
    let mut ready: BinaryHeap<Reverse<(i64, i64)>> = BinaryHeap::new();
    let mut now = i64::MIN;
    for job in jobs {
        if !serve(&mut ready, now, job.release) {
            return false;
        }
        now = job.release;
        ready.push(Reverse((job.due, job.work)));
    }
    serve(&mut ready, now, i64::MAX)
}

/// Serves from `now` until `until`; false if something is late.
fn serve(ready: &mut BinaryHeap<Reverse<(i64, i64)>>, mut now: i64, until: i64) -> bool {
    while now < until
        && let Some(Reverse((due, work))) = ready.pop()
    {
        let room = until - now;
        if work > room {
            ready.push(Reverse((due, work - room)));
            return due >= until;
        }
        now += work;
        if now > due {
            return false;
        }
    }
    true
}
