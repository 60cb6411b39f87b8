//! How many jobs of a class must be rejected, whatever the schedule.
//!
//! Jobs in order of release and due time (*agreeable*) that may be chosen freely, and
//! beside them *forced* jobs that are all on time. By the demand criterion a choice is
//! feasible exactly if for all windows [a, b]
//!
//! ```text
//! chosen work inside [a, b] ≤ b − a − forced work inside [a, b]
//! ```
//!
//! The chosen jobs inside a window are consecutive. The forced work inside, of a class
//! that is agreeable itself, is max(0, work due by b − work released before a), so the
//! right side is the least of sums `end(b) − start(a)`, one for each set of forced
//! classes that counts (one class that lives no longer than the chosen: one sum). Each
//! sum is a clock that the chosen jobs advance: `max(clock, start) + work ≤ end`. The
//! least clock for every number of rejected jobs is all there is to know: exact, and
//! quadratic (Kise, Ibaraki and Mine 1978 showed the case without forced jobs).

use super::jobs::{Job, Jobs};

/// Sums at most: two forced classes, each counted or not.
const CLOCKS: usize = 4;
type Clocks = [i64; CLOCKS];
const NEVER: i64 = i64::MAX;
const LONG_AGO: i64 = i64::MIN / 4;

/// `start` and `end` of every job, for every clock.
#[derive(Debug)]
pub(super) struct Limit {
    start: Vec<Clocks>,
    end: Vec<Clocks>,
    clocks: usize,
    /// Whether all forced work is accounted for.
    pub(super) complete: bool,
}

impl Limit {
    /// For `jobs`, which are agreeable, beside classes that are all on time.
    pub(super) fn new(forced: &[Jobs], jobs: &Jobs) -> Self {
        let mut complete = true;
        let (mut always, mut maybe) = (Vec::new(), Vec::new());
        for class in forced {
            let (class, agreeable) = class.agreeable();
            complete &= agreeable;
            if never_longer(&class, jobs) {
                always.push(class);
            } else if 2 << maybe.len() <= CLOCKS {
                maybe.push(class);
            } else {
                complete = false;
            }
        }
        let subsets = 1 << maybe.len();
        let mut limit = Self {
            start: vec![[LONG_AGO; CLOCKS]; jobs.len()],
            end: vec![[NEVER; CLOCKS]; jobs.len()],
            clocks: subsets,
            complete,
        };
        for subset in 0..subsets {
            let mut inside: Vec<Job> = always.iter().flat_map(|c| &c.0).copied().collect();
            for (index, class) in maybe.iter().enumerate() {
                if subset & (1 << index) != 0 {
                    inside.extend(&class.0);
                }
            }
            limit.fill(subset, &inside, jobs);
        }
        limit
    }

    fn fill(&mut self, clock: usize, inside: &[Job], jobs: &Jobs) {
        let mut releases: Vec<(i64, i64)> = inside.iter().map(|j| (j.release, j.work)).collect();
        releases.sort_unstable();
        let mut dues: Vec<(i64, i64)> = inside.iter().map(|j| (j.due, j.work)).collect();
        dues.sort_unstable();

        // start = the greatest of a − work released before a, over all a ≤ release.
        let (mut next, mut before, mut best) = (0, 0, LONG_AGO);
        for (job, start) in jobs.0.iter().zip(&mut self.start) {
            while let Some(&(at, work)) = releases.get(next)
                && at < job.release
            {
                // Of several at one time only the first sees what was strictly before.
                best = best.max(at - before_time(&releases, next, before, at));
                before += work;
                next += 1;
            }
            best = best.max(job.release - before);
            start[clock] = best;
        }
        // end = the least of b − work due by b, over all b ≥ due.
        let mut after: i64 = dues.iter().map(|d| d.1).sum();
        let (mut next, mut best) = (dues.len(), NEVER);
        for (job, end) in jobs.0.iter().zip(&mut self.end).rev() {
            while next > 0 && dues[next - 1].0 > job.due {
                best = best.min(dues[next - 1].0 - after);
                after -= dues[next - 1].1;
                next -= 1;
            }
            best = best.min(job.due - after);
            end[clock] = best;
        }
    }

    /// From where the clock of one job begins and which it may reach; `None` where one clock does not do.
    pub(super) fn window(&self, job: usize) -> Option<(i64, i64)> {
        (self.clocks == 1 && self.complete).then(|| (self.start[job][0], self.end[job][0]))
    }

    /// The least number of rejected jobs.
    pub(super) fn rejected(&self, jobs: &Jobs) -> usize {
        search(jobs.len(), |budget| match self.clocks {
            1 => self.one_clock(jobs, budget),
            _ => self.many_clocks(jobs, budget),
        })
    }

    /// A largest feasible choice, one bool per job; `None` where one clock does not do.
    pub(super) fn chosen(&self, jobs: &Jobs) -> Option<Vec<bool>> {
        if self.clocks != 1 {
            return None;
        }
        let budget = self.rejected(jobs);
        let mut clock = vec![NEVER; budget + 1];
        clock[0] = LONG_AGO;
        // taken[job][rejected]: whether the least clock has the job in it.
        let mut taken = vec![vec![false; budget + 1]; jobs.len()];
        for (index, job) in jobs.0.iter().enumerate() {
            for rejected in (0..=budget).rev() {
                let with = take(
                    clock[rejected],
                    self.start[index][0],
                    job.work,
                    self.end[index][0],
                );
                let without = match rejected {
                    0 => NEVER,
                    _ => clock[rejected - 1],
                };
                taken[index][rejected] = with <= without && with != NEVER;
                clock[rejected] = with.min(without);
            }
        }
        let mut rejected = budget;
        let mut chosen = vec![false; jobs.len()];
        for index in (0..jobs.len()).rev() {
            chosen[index] = taken[index][rejected];
            rejected -= usize::from(!chosen[index]);
        }
        Some(chosen)
    }

    fn one_clock(&self, jobs: &Jobs, budget: usize) -> Option<usize> {
        let mut clock = vec![NEVER; budget + 1];
        clock[0] = LONG_AGO;
        for ((job, start), end) in jobs.0.iter().zip(&self.start).zip(&self.end) {
            for rejected in (0..=budget).rev() {
                let taken = take(clock[rejected], start[0], job.work, end[0]);
                let left = match rejected {
                    0 => NEVER,
                    _ => clock[rejected - 1],
                };
                clock[rejected] = taken.min(left);
            }
        }
        clock.iter().position(|&c| c != NEVER)
    }

    fn many_clocks(&self, jobs: &Jobs, budget: usize) -> Option<usize> {
        let mut labels: Vec<Vec<Clocks>> = vec![Vec::new(); budget + 1];
        labels[0].push([LONG_AGO; CLOCKS]);
        for ((job, start), end) in jobs.0.iter().zip(&self.start).zip(&self.end) {
            for rejected in (0..=budget).rev() {
                let mut kept: Vec<Clocks> = Vec::new();
                for old in std::mem::take(&mut labels[rejected]) {
                    let mut new = [LONG_AGO; CLOCKS];
                    for clock in 0..self.clocks {
                        new[clock] = take(old[clock], start[clock], job.work, end[clock]);
                    }
                    if !new.contains(&NEVER) {
                        keep(&mut kept, new);
                    }
                }
                if rejected > 0 {
                    for &old in &labels[rejected - 1] {
                        keep(&mut kept, old);
                    }
                }
                labels[rejected] = kept;
            }
        }
        labels.iter().position(|l| !l.is_empty())
    }
}

/// Work released strictly before `at`, given what the entries before `next` add up to.
fn before_time(releases: &[(i64, i64)], next: usize, before: i64, at: i64) -> i64 {
    let same = releases[..next].iter().rev().take_while(|r| r.0 == at);
    before - same.map(|r| r.1).sum::<i64>()
}

/// Is every forced job that was released before one of `jobs` due no later than it?
fn never_longer(forced: &Jobs, jobs: &Jobs) -> bool {
    let (mut next, mut latest) = (0, i64::MIN);
    jobs.0.iter().all(|job| {
        while let Some(f) = forced.0.get(next)
            && f.release < job.release
        {
            latest = latest.max(f.due);
            next += 1;
        }
        latest <= job.due
    })
}

fn take(clock: i64, start: i64, work: i64, end: i64) -> i64 {
    if clock == NEVER {
        return NEVER;
    }
    let done = clock.max(start) + work;
    if done <= end { done } else { NEVER }
}

/// Adds a label unless another is as good in every clock; removes those it beats.
fn keep(labels: &mut Vec<Clocks>, new: Clocks) {
    let beats = |a: &Clocks, b: &Clocks| a.iter().zip(b).all(|(a, b)| a <= b);
    if labels.iter().any(|old| beats(old, &new)) {
        return;
    }
    labels.retain(|old| !beats(&new, old));
    labels.push(new);
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

/// Steps that the joint program may take before a looser bound has to do.
const JOINT_STEPS: u64 = 20_000_000_000;

/// The least number of rejected `jobs` if of each of the `rivals`, which are more important, no more than
/// so many are rejected, whichever those are, and the `forced` ones are all on time. Returns
/// also whether the joint problem was solved as it is.
pub(super) fn rejected_beside(
    forced: &[Jobs],
    rivals: &[(Jobs, usize)],
    jobs: &Jobs,
) -> (usize, bool) {
    // One job's kind: its place among the rivals, or behind them.
    let mut tagged: Vec<(Job, usize)> = Vec::new();
    for (kind, (rival, _)) in rivals.iter().enumerate() {
        tagged.extend(rival.0.iter().map(|&job| (job, kind)));
    }
    tagged.extend(jobs.0.iter().map(|&job| (job, rivals.len())));
    tagged.sort_by_key(|(job, _)| (job.release, job.due));
    let (joined, agreeable) = Jobs(tagged.iter().map(|t| t.0).collect()).agreeable();
    let limit = Limit::new(forced, &joined);

    // How many of each kind are gone is one number: kind 0 counts ones, the next counts what
    // goes into all of kind 0, and so on.
    let mut strides = Vec::new();
    let mut states = 1usize;
    for (_, lost) in rivals {
        strides.push(states);
        states = states.saturating_mul(lost + 1);
    }
    strides.push(states);
    let steps = [joined.len(), jobs.len() + 1];
    let steps = steps.iter().fold(states as u64, |product, &by| {
        product.saturating_mul(by as u64)
    });
    if limit.clocks != 1 || steps > JOINT_STEPS {
        return (Limit::new(forced, jobs).rejected(jobs), false);
    }
    let attempt = |budget: usize| {
        let mut clock = vec![NEVER; states * (budget + 1)];
        clock[0] = LONG_AGO;
        for (index, (job, &(_, kind))) in joined.0.iter().zip(&tagged).enumerate() {
            let (start, end) = (limit.start[index][0], limit.end[index][0]);
            let stride = strides[kind];
            let most = rivals.get(kind).map_or(budget, |(_, lost)| *lost);
            for state in (0..clock.len()).rev() {
                let taken = take(clock[state], start, job.work, end);
                let gone = state / stride % (most + 1);
                let left = if gone == 0 {
                    NEVER
                } else {
                    clock[state - stride]
                };
                clock[state] = taken.min(left);
            }
        }
        let possible = |rejected: &usize| {
            let of = &clock[rejected * states..][..states];
            of.iter().any(|&c| c != NEVER)
        };
        (0..=budget).find(possible)
    };
    let complete = limit.complete && agreeable;
    (search(jobs.len(), attempt), complete)
}
