//! The bound once more, as an integer program for a solver that knows nothing of jobs.
//!
//! One binary variable per ADU, as many as possible of the most important priority, then of
//! the next with that number kept. By the demand criterion a choice is feasible exactly if
//! for all windows [a, b] its work inside is at most b − a. Rows for all pairs of release
//! and due time would be many; only those that an answer broke are added, until it breaks
//! none. Fewer rows never make an optimum smaller, and the last answer keeps them all: it
//! is the optimum, whatever rows were left out.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

use super::{
    demand::feasible,
    interrupted,
    jobs::{Job, Jobs},
    tests::{LINK, packet, schedule},
};
use crate::traffic::{Class, Schedule};

/// A window that must not hold more work than its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    from: i64,
    until: i64,
}

impl Window {
    fn holds(&self, job: &Job) -> bool {
        job.release >= self.from && job.due <= self.until
    }
}

/// The most jobs of each class, or priority, that can be on time, the most important first.
fn optimum(classes: &[Vec<Job>]) -> Vec<usize> {
    let mut windows = Vec::new();
    let mut counts = Vec::new();
    for class in 0..classes.len() {
        let count = loop {
            let chosen = solve(&classes[..=class], &counts, &windows);
            let mut jobs: Vec<Job> = chosen.concat();
            let broken = broken(&jobs);
            if broken.is_empty() {
                // The textbook's windows and the simulation of EDF must agree.
                jobs.sort_by_key(|job| (job.release, job.due));
                assert!(feasible(&jobs), "{jobs:?}");
                break chosen[class].len();
            }
            assert!(
                broken.iter().all(|window| !windows.contains(window)),
                "the solver broke a row it was given"
            );
            windows.extend(broken);
        };
        counts.push(count);
    }
    counts
}

/// A choice with at least `counts` of the first classes and most of the last one, that
/// keeps `windows`.
fn solve(classes: &[Vec<Job>], counts: &[usize], windows: &[Window]) -> Vec<Vec<Job>> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut vars: Vec<Vec<(Job, Variable)>> = Vec::new();
    for (class, jobs) in classes.iter().enumerate() {
        let worth = if class == counts.len() { 1.0 } else { 0.0 };
        let var = |&job: &Job| (job, problem.add_binary_var(worth));
        vars.push(jobs.iter().map(var).collect());
    }
    for (of_class, &count) in vars.iter().zip(counts) {
        let sum = of_class.iter().map(|&(_, var)| (var, 1.0));
        problem.add_constraint(sum, ComparisonOp::Ge, count as f64);
    }
    // In µs: the solver wants the coefficients of a row within six orders of magnitude.
    let micros = |ns: i64| ns as f64 / 1e3;
    for window in windows {
        let inside = vars.iter().flatten().filter(|(job, _)| window.holds(job));
        problem.add_constraint(
            inside.map(|&(job, var)| (var, micros(job.work))),
            ComparisonOp::Le,
            micros(window.until - window.from),
        );
    }
    let outcome = problem.solve().expect("nothing chosen is feasible");
    assert!(outcome.is_optimal(), "{:?}", outcome.termination_reason());
    let solution = outcome.into_solution().expect("it is optimal");
    let chosen = |of_class: &Vec<(Job, Variable)>| {
        let of_class = of_class.iter();
        let taken = of_class.filter(|&&(_, var)| solution.var_value(var) > 0.5);
        taken.map(|&(job, _)| job).collect()
    };
    vars.iter().map(chosen).collect()
}

/// For every due time the window up to it that holds most too much work.
fn broken(jobs: &[Job]) -> Vec<Window> {
    let mut dues: Vec<i64> = jobs.iter().map(|job| job.due).collect();
    dues.sort_unstable();
    dues.dedup();
    let too_much = |window: &Window| {
        let inside = jobs.iter().filter(|job| window.holds(job));
        inside.map(|job| job.work).sum::<i64>() - (window.until - window.from)
    };
    let worst = |until: i64| {
        let from = jobs.iter().map(|job| job.release).filter(|&a| a < until);
        from.map(|from| Window { from, until })
            .max_by_key(too_much)
            .filter(|window| too_much(window) > 0)
    };
    dues.into_iter().filter_map(worst).collect()
}

/// 20 to 40 ADUs in one, two or three classes, video of up to three priorities. Everything lives at least two of the
/// largest packets longer than its way, so every packet has a place (see `placeable`).
/// Work is in half ms and times in ms, so that many a window is filled to its end.
fn random(seed: u64) -> Schedule {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut pick = |low: u64, high: u64| low + u64::from(rng.next_u32()) % (high - low);
    let classes = pick(1, 4);
    let priorities = pick(1, 4);
    let same = pick(0, 2) == 0;
    let mut lifetimes = [pick(30, 60), pick(30, 80), pick(30, 120)];
    if same {
        lifetimes = [lifetimes[0]; 3];
    }
    let spread = pick(40, 120);
    let mut packets = Vec::new();
    for adu in 0..pick(20, 41) {
        let class = pick(0, classes) as usize;
        let at = pick(0, spread);
        let parts = if class == 0 { 1 } else { pick(1, 4) };
        let priority = pick(0, priorities) as u8;
        for _ in 0..parts {
            let bytes = 500 * pick(1, 18) as u32;
            let class = Class::ALL[class];
            let mut packet = packet(class, adu as u32, at, lifetimes[class as usize], bytes);
            packet.priority += if class == Class::Video { priority } else { 0 };
            packets.push(packet);
        }
    }
    schedule(packets)
}

#[test]
fn an_integer_program_finds_the_same_bound() {
    // So many comparisons with an exact bound that not all ADUs of the class reach; of video
    // with more than one priority.
    let mut telling = [0; 3];
    let mut apart = 0;
    for seed in 0..384 {
        let schedule = random(seed);
        let bound = interrupted(&schedule, LINK);
        let priorities = Class::ALL.map(|class| Jobs::by_priority(&schedule, class, &LINK));
        let possible = |jobs: &Jobs| jobs.clone().possible().0;
        let jobs: Vec<Vec<Job>> = priorities.iter().flatten().map(possible).collect();
        let mut best = optimum(&jobs).into_iter();
        let mut jobs = jobs.into_iter();
        for class in Class::ALL {
            let (of_class, of) = (bound.class(class), priorities[class as usize].len());
            let found: u64 = best.by_ref().take(of).map(|count| count as u64).sum();
            let possible: u64 = jobs.by_ref().take(of).map(|jobs| jobs.len() as u64).sum();
            let placed = of_class.adus_offered - of_class.adus_impossible;
            assert_eq!(placed, possible, "seed {seed}: a packet without a place");
            assert!(of_class.adus >= found, "seed {seed} {class:?} {of_class:?}");
            if of_class.exact {
                assert_eq!(of_class.adus, found, "seed {seed} {class:?}");
                telling[class as usize] += u32::from(found < possible);
                apart += u32::from(class == Class::Video && of > 1 && found < possible);
            }
            // Beside a class whose bound is out of reach the comparison says nothing.
            if of_class.adus > found {
                break;
            }
        }
    }
    assert!(
        telling
            .iter()
            .chain([&apart])
            .all(|&of_class| of_class >= 10),
        "{telling:?} {apart}"
    );
}
