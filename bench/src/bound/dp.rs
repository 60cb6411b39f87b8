//! How many jobs must be rejected, whatever the schedule.
//!
//! The jobs are in order of release and due time (*agreeable*) and may be chosen freely. Beside
//! them stand *forced* jobs, which are all on time. By the demand criterion a choice is feasible
//! exactly if for all windows [a, b]
//!
//! ```text
//! chosen work inside [a, b] ≤ b − a − forced work inside [a, b]
//! ```
//!
//! The chosen jobs inside a window are consecutive. The forced work inside, of a class that is
//! agreeable itself, is max(0, work due by b − work released before a). So the right side is the
//! least of sums `end(b) − start(a)`, one for each set of forced classes that counts. (A class that
//! lives no longer than the chosen jobs always counts.) Each sum is a clock that the chosen jobs
//! advance: `max(clock, start) + work ≤ end`. The least clock for every number of rejected jobs is
//! all there is to know. That is exact, and quadratic (Kise, Ibaraki and Mine 1978 showed the case
//! without forced jobs).

//!
//! [`most`] has one thing more in its state, for jobs that need others.

use super::jobs::{Job, Jobs};

/// Sums at most: two forced classes, each counted or not.
const CLOCKS: usize = 4;
type Clocks = [i64; CLOCKS];
const NEVER: i64 = i64::MAX;
const LONG_AGO: i64 = i64::MIN / 4;

/// Steps that a program with rivals may take before a looser bound has to do.
const STEPS: u64 = 20_000_000_000;

/// The least number of rejected `jobs`, and whether it is exact. The `forced` jobs are all on
/// time. Of each of the `rivals`, which are more important, no more than so many are rejected,
/// whichever those are.
pub(super) fn rejected(forced: &[Jobs], rivals: &[(Jobs, usize)], jobs: &Jobs) -> (usize, bool) {
    let (jobs, in_order) = jobs.agreeable();
    // A job's kind is its place among the rivals, or behind them.
    let mut kinds: Vec<(Job, usize)> = Vec::new();
    for (kind, of_kind) in rivals.iter().map(|r| &r.0).chain([&jobs]).enumerate() {
        kinds.extend(of_kind.0.iter().map(|&job| (job, kind)));
    }
    kinds.sort_by_key(|(job, _)| (job.release, job.due));
    let (joined, in_order_together) = Jobs(kinds.iter().map(|k| k.0).collect()).agreeable();
    let limit = Limit::new(forced, &joined);

    // How many of each kind are rejected is one number: kind 0 counts ones, the next one counts
    // what goes into all of kind 0, and so on.
    let mut strides = vec![1usize];
    for (_, lost) in rivals {
        let last = strides[strides.len() - 1];
        strides.push(last.saturating_mul(lost + 1));
    }
    let states = strides[rivals.len()];
    let steps = (states as u64)
        .saturating_mul(joined.0.len() as u64)
        .saturating_mul(jobs.0.len() as u64 + 1);
    let one_clock = |budget: usize| {
        let mut clock = vec![NEVER; states * (budget + 1)];
        clock[0] = LONG_AGO;
        for (index, (job, &(_, kind))) in joined.0.iter().zip(&kinds).enumerate() {
            let (start, end) = (limit.start[index][0], limit.end[index][0]);
            let stride = strides[kind];
            let most = rivals.get(kind).map_or(budget, |(_, lost)| *lost);
            for group in clock.chunks_mut(stride * (most + 1)) {
                for state in (0..group.len()).rev() {
                    let taken = take(group[state], start, job.work, end);
                    let left = state.checked_sub(stride).map_or(NEVER, |one| group[one]);
                    group[state] = taken.min(left);
                }
            }
        }
        clock
            .chunks(states)
            .position(|of| of.iter().any(|&c| c != NEVER))
    };
    let least = if limit.clocks == 1 && (rivals.is_empty() || steps <= STEPS) {
        search(jobs.0.len(), one_clock)
    } else if rivals.is_empty() {
        search(jobs.0.len(), |budget| limit.many_clocks(&joined, budget))
    } else {
        return (rejected(forced, &[], &jobs).0, false);
    };
    (least, limit.complete && in_order && in_order_together)
}

/// Jobs that are needed by later ones at one time: with more [`most`] does not begin.
pub(super) const OPEN: usize = 6;

/// What one job needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Need {
    /// Places of the jobs without which it is of no use, all of them before it.
    pub(super) of: Vec<usize>,
    /// Whether it counts.
    pub(super) counts: bool,
    /// Whether it may be chosen at all.
    pub(super) possible: bool,
}

/// The most of `jobs`, in their order, that count, if with each all are chosen that it needs, and whether
/// that is exact. The `forced` jobs are all on time. `None` if more than [`OPEN`] are needed at one time.
pub(super) fn most(forced: &[Jobs], jobs: &Jobs, needs: &[Need]) -> Option<(usize, bool)> {
    let (jobs, in_order) = jobs.agreeable();
    let limit = Limit::new(forced, &jobs);
    // Which job needs this one last.
    let mut until = vec![0; needs.len()];
    for (at, need) in needs.iter().enumerate() {
        for &of in &need.of {
            until[of] = at;
        }
    }
    // Jobs behind which one comes that needs them. By which of those are chosen (a bit each), and how
    // many are that count: the least clocks.
    let mut open: Vec<usize> = Vec::new();
    let mut states = vec![vec![vec![[LONG_AGO; CLOCKS]]]];
    for (at, need) in needs.iter().enumerate() {
        let before = std::mem::take(&mut open);
        let bit = |job: usize| before.iter().position(|&open| open == job);
        open.extend(before.iter().copied().filter(|&job| until[job] > at));
        if until[at] > at {
            open.push(at);
        }
        if open.len() > OPEN {
            return None;
        }
        let asked = need.of.iter().filter_map(|&of| bit(of));
        let asked = asked.fold(0, |mask, bit| mask | 1usize << bit);
        let after = |mask: usize, chosen: bool| {
            let bits = open.iter().map(|&job| match bit(job) {
                Some(bit) => mask >> bit & 1,
                None => usize::from(chosen),
            });
            bits.rev().fold(0, |mask, bit| mask << 1 | bit)
        };
        let mut next = vec![Vec::new(); 1 << open.len()];
        for (mask, counts) in states.into_iter().enumerate() {
            let may = need.possible && mask & asked == asked;
            for (count, labels) in counts.into_iter().enumerate() {
                for clocks in labels {
                    if may && let Some(taken) = limit.take(at, &clocks, jobs.0[at].work) {
                        let count = count + usize::from(need.counts);
                        put(&mut next[after(mask, true)], count, taken);
                    }
                    put(&mut next[after(mask, false)], count, clocks);
                }
            }
        }
        states = next;
    }
    let counts = states.iter().map(|counts| counts.len().saturating_sub(1));
    Some((counts.max()?, limit.complete && in_order))
}

/// Adds `clocks` to those with so many, unless others are as good.
fn put(counts: &mut Vec<Vec<Clocks>>, count: usize, clocks: Clocks) {
    if counts.len() <= count {
        counts.resize(count + 1, Vec::new());
    }
    keep(&mut counts[count], clocks, beats);
}

/// Tries small budgets of rejections first: the program grows with the budget.
fn search(jobs: usize, attempt: impl Fn(usize) -> Option<usize>) -> usize {
    let mut budget = 8;
    while budget < jobs {
        if let Some(rejected) = attempt(budget) {
            return rejected;
        }
        budget *= 4;
    }
    attempt(jobs).unwrap_or(jobs)
}

/// `start` and `end` of every job, for every clock.
struct Limit {
    start: Vec<Clocks>,
    end: Vec<Clocks>,
    clocks: usize,
    /// Whether all forced work is accounted for.
    complete: bool,
}

impl Limit {
    /// For `jobs`, which are agreeable.
    fn new(forced: &[Jobs], jobs: &Jobs) -> Self {
        let mut complete = true;
        let (mut always, mut maybe) = (Vec::new(), Vec::new());
        for class in forced {
            let (class, agreeable) = class.agreeable();
            complete &= agreeable;
            if never_longer(&class, jobs) {
                always.extend(class.0);
            } else if 2 << maybe.len() <= CLOCKS {
                maybe.push(class);
            } else {
                complete = false;
            }
        }
        let mut limit = Self {
            start: vec![[LONG_AGO; CLOCKS]; jobs.0.len()],
            end: vec![[NEVER; CLOCKS]; jobs.0.len()],
            clocks: 1 << maybe.len(),
            complete,
        };
        for clock in 0..limit.clocks {
            let mut inside = always.clone();
            for (index, class) in maybe.iter().enumerate() {
                if clock & (1 << index) != 0 {
                    inside.extend(&class.0);
                }
            }
            limit.fill(clock, &inside, jobs);
        }
        limit
    }

    fn fill(&mut self, clock: usize, inside: &[Job], jobs: &Jobs) {
        let sorted = |time: fn(&Job) -> i64| {
            let mut works: Vec<(i64, i64)> = inside.iter().map(|j| (time(j), j.work)).collect();
            works.sort_unstable();
            works
        };
        // start = the greatest of a − work released before a, over all a ≤ release.
        let mut releases = sorted(|job| job.release).into_iter().peekable();
        let (mut before, mut best) = (0, LONG_AGO);
        for (job, start) in jobs.0.iter().zip(&mut self.start) {
            while let Some((at, work)) = releases.next_if(|r| r.0 < job.release) {
                best = best.max(at - before);
                before += work;
            }
            best = best.max(job.release - before);
            start[clock] = best;
        }
        // end = the least of b − work due by b, over all b ≥ due.
        let dues = sorted(|job| job.due);
        let mut after: i64 = dues.iter().map(|d| d.1).sum();
        let mut dues = dues.into_iter().rev().peekable();
        let mut best = NEVER;
        for (job, end) in jobs.0.iter().zip(&mut self.end).rev() {
            while let Some((at, work)) = dues.next_if(|d| d.0 > job.due) {
                best = best.min(at - after);
                after -= work;
            }
            best = best.min(job.due - after);
            end[clock] = best;
        }
    }

    /// The clocks behind job `at`, which takes so long; `None` where that is too late.
    fn take(&self, at: usize, clocks: &Clocks, work: i64) -> Option<Clocks> {
        let mut new = [LONG_AGO; CLOCKS];
        for clock in 0..self.clocks {
            let (start, end) = (self.start[at][clock], self.end[at][clock]);
            new[clock] = take(clocks[clock], start, work, end);
        }
        (!new.contains(&NEVER)).then_some(new)
    }

    /// The least number of rejected jobs if it is at most `budget`.
    fn many_clocks(&self, jobs: &Jobs, budget: usize) -> Option<usize> {
        let mut labels: Vec<Vec<Clocks>> = vec![Vec::new(); budget + 1];
        labels[0].push([LONG_AGO; CLOCKS]);
        for (at, job) in jobs.0.iter().enumerate() {
            for rejected in (0..=budget).rev() {
                let mut kept: Vec<Clocks> = Vec::new();
                for old in std::mem::take(&mut labels[rejected]) {
                    if let Some(new) = self.take(at, &old, job.work) {
                        keep(&mut kept, new, beats);
                    }
                }
                if rejected > 0 {
                    for &old in &labels[rejected - 1] {
                        keep(&mut kept, old, beats);
                    }
                }
                labels[rejected] = kept;
            }
        }
        labels.iter().position(|l| !l.is_empty())
    }
}

/// Is every forced job that was released before one of `jobs` due no later than it?
fn never_longer(forced: &Jobs, jobs: &Jobs) -> bool {
    let mut forced = forced.0.iter().peekable();
    let mut latest = i64::MIN;
    jobs.0.iter().all(|job| {
        while let Some(before) = forced.next_if(|f| f.release < job.release) {
            latest = latest.max(before.due);
        }
        latest <= job.due
    })
}

fn beats(a: &Clocks, b: &Clocks) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b)
}

fn take(clock: i64, start: i64, work: i64, end: i64) -> i64 {
    if clock == NEVER {
        return NEVER;
    }
    let done = clock.max(start) + work;
    if done <= end { done } else { NEVER }
}

/// Adds `new` unless another is as good; removes those it `beats`. Whether it was added.
pub(super) fn keep<T>(all: &mut Vec<T>, new: T, beats: impl Fn(&T, &T) -> bool) -> bool {
    let is_new = !all.iter().any(|old| beats(old, &new));
    if is_new {
        all.retain(|old| !beats(&new, old));
        all.push(new);
    }
    is_new
}
