//! The runs of a scenario, in the order in which they are made.

use std::collections::HashMap;

use crate::{
    scenario::{
        Scenario,
        cell::{Bottleneck, Cell, Point},
    },
    topology::Shape,
};

/// One run that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    /// Of this scenario.
    pub(super) scenario: &'a Scenario,
    /// Of this cell.
    pub(super) cell: &'a Cell,
    /// Repetition, from 0.
    pub(super) number: u32,
}

impl Job<'_> {
    /// Seed of its traffic.
    pub(super) fn seed(&self) -> u64 {
        self.scenario.seed + u64::from(self.number)
    }
}

/// The runs that belong together: those of one point and repetition with all its queues, which are
/// compared and so made on one path, one after the other.
pub(super) fn groups<'a>(jobs: &[Job<'a>]) -> Vec<Vec<Job<'a>>> {
    let mut groups: Vec<Vec<Job<'a>>> = Vec::new();
    let mut known = HashMap::new();
    for &job in jobs {
        // A point has floating-point numbers, so its text stands for it.
        let point = format!("{:?}", job.cell.point);
        let key = (job.scenario.name.as_str(), job.number, point);
        let at = *known.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(job);
    }
    groups
}

/// The path that a point needs.
pub(super) fn shape(point: &Point) -> Shape {
    Shape {
        delay: point.owd_ms.ns(),
        loss: point.loss_percent.0,
        router: point.bottleneck == Bottleneck::Router,
    }
}

/// `repetitions` runs of every cell that contains one of the words `only` (all without
/// words). Every cell gets its first run before any gets its second, so that an
/// interrupted series compares all of them.
pub(super) fn jobs<'a>(scenario: &'a Scenario, repetitions: u32, only: &[String]) -> Vec<Job<'a>> {
    let wanted = |cell: &&Cell| is_wanted(only, &cell.id, &cell.queue.name());
    let cells: Vec<&Cell> = scenario.cells.iter().filter(wanted).collect();
    (0..repetitions)
        .flat_map(|number| {
            cells.iter().map(move |&cell| Job {
                scenario,
                cell,
                number,
            })
        })
        .collect()
}

/// Whether a cell's id or its queue's name contains one of the words `only`; without words
/// every cell is wanted.
fn is_wanted(only: &[String], id: &str, queue: &str) -> bool {
    only.is_empty() || {
        let mut words = only.iter().map(String::as_str);
        words.any(|word| id.contains(word) || queue.contains(word))
    }
}
