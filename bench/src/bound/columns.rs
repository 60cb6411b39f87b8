//! What the study compares: schedulers, and who is told what no scheduler knows.

use std::collections::HashSet;

use super::{
    Bound, Fate, best_choice,
    informed::{Told, choice},
    rules::{Guard, Size, Sure, Triage, Victim, When},
    simulate::{Errors, Outcome, Scheduler, simulate},
};
use crate::{sys::MILLI, traffic::Schedule};

/// What stands in a column of the study.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Column {
    /// A scheduler.
    Scheduler(Scheduler),
    /// Not a scheduler: only one best choice is [`offered`], so what arrives says how much of the
    /// bound can be had with packets that are not interrupted.
    Oracle,
    /// The same with what is chosen by who is told of the traffic: see [`super::informed`].
    Informed(Told),
}

/// All columns there are, by the names they have in tables.
pub(super) fn columns() -> Vec<(&'static str, Column)> {
    let kernel = Triage::KERNEL;
    let last_bit = Triage::LAST_BIT;
    let first_bit = Triage {
        first_bit: true,
        ..last_bit
    };
    let begun = Triage {
        keep_begun: true,
        ..first_bit
    };
    let dequeue = Triage {
        when: When::Dequeue,
        ..first_bit
    };
    let with = |early, plan_early| Triage {
        spare_owds: 1.0,
        early,
        plan_early,
        from_begun: true,
        by_end: false,
        expects: false,
        ..kernel
    };
    let end = |early, plan_early| Triage {
        spare_owds: 1.0,
        early,
        plan_early,
        expects: false,
        ..kernel
    };
    let spare = |early, plan_early| Triage {
        expects: true,
        ..end(early, plan_early)
    };
    let layers = |layers| Triage { layers, ..kernel };
    let triages = [
        ("triage", kernel),
        ("spare-most", spare(0.25, 0.75)),
        ("spare-half", spare(0.5, 1.0)),
        ("spare-all", spare(1.0, 1.0)),
        ("layers-0", layers(0.0)),
        ("layers-0.1", layers(0.1)),
        ("layers-0.125", layers(0.125)),
        ("layers-0.5", layers(0.5)),
        ("last-bit", last_bit),
        ("first-bit", first_bit),
        ("begun", begun),
        (
            "whole",
            Triage {
                victim: Victim::Largest,
                ..first_bit
            },
        ),
        (
            "latest",
            Triage {
                victim: Victim::Latest,
                ..first_bit
            },
        ),
        (
            "first",
            Triage {
                victim: Victim::First,
                ..first_bit
            },
        ),
        (
            "start",
            Triage {
                when: When::Start,
                ..first_bit
            },
        ),
        ("dequeue", dequeue),
        (
            "dequeue-begun",
            Triage {
                keep_begun: true,
                ..dequeue
            },
        ),
        (
            "dequeue-whole",
            Triage {
                victim: Victim::Largest,
                ..dequeue
            },
        ),
        (
            "known",
            Triage {
                size: Size::Known,
                ..dequeue
            },
        ),
        (
            "known-begun",
            Triage {
                size: Size::Known,
                keep_begun: true,
                ..dequeue
            },
        ),
        (
            "guard",
            Triage {
                guard: Guard::GiveUp,
                ..dequeue
            },
        ),
        (
            "wait",
            Triage {
                guard: Guard::Wait,
                ..dequeue
            },
        ),
        (
            "tie",
            Triage {
                guard: Guard::Wait,
                grain: 1,
                ..dequeue
            },
        ),
        (
            "grain-4",
            Triage {
                guard: Guard::Wait,
                grain: 4 * MILLI,
                ..dequeue
            },
        ),
        (
            "grain-16",
            Triage {
                guard: Guard::Wait,
                grain: 16 * MILLI,
                ..dequeue
            },
        ),
        (
            "first-bit-tie",
            Triage {
                grain: MILLI,
                ..first_bit
            },
        ),
        (
            "sure",
            Triage {
                sure: Sure::Always,
                ..dequeue
            },
        ),
        (
            "doubt",
            Triage {
                sure: Sure::Doubt,
                ..dequeue
            },
        ),
        (
            "sure-1.5",
            Triage {
                sure: Sure::Always,
                slower: 1.5,
                ..dequeue
            },
        ),
        (
            "doubt-1.5",
            Triage {
                sure: Sure::Doubt,
                slower: 1.5,
                ..dequeue
            },
        ),
        (
            "care",
            Triage {
                care: 0.25,
                ..with(0.0, 0.0)
            },
        ),
        ("early", with(1.0, 0.0)),
        ("planned", with(1.0, 0.5)),
        ("early-plan", with(1.0, 1.0)),
        (
            "unbegun",
            Triage {
                from_begun: false,
                ..with(1.0, 0.5)
            },
        ),
        ("end", end(0.0, 0.0)),
        ("end-early", end(0.25, 0.0)),
        ("end-half", end(0.25, 0.5)),
        ("end-most", end(0.25, 0.75)),
        ("end-all", end(0.25, 1.0)),
        (
            "end-begun",
            Triage {
                from_begun: true,
                ..end(0.25, 0.75)
            },
        ),
        (
            "wait-doubt",
            Triage {
                guard: Guard::Wait,
                sure: Sure::Doubt,
                ..dequeue
            },
        ),
    ];
    let plain = [
        ("oracle", Column::Oracle),
        ("informed", Column::Informed(Told::Phases)),
        ("sizes", Column::Informed(Told::Sizes)),
        ("motion", Column::Informed(Told::Motion)),
        ("fifo", Column::Scheduler(Scheduler::Fifo(1000))),
        ("priority", Column::Scheduler(Scheduler::Priority)),
        ("edf", Column::Scheduler(Scheduler::Edf)),
    ];
    let column = |triage| Column::Scheduler(Scheduler::Triage(triage));
    let triages = triages.map(|(name, triage)| (name, column(triage)));
    plain.into_iter().chain(triages).collect()
}

/// What arrives of a schedule.
pub(super) fn outcome(
    schedule: &Schedule,
    bound: &Bound,
    column: Column,
    errors: Errors,
) -> Outcome {
    match column {
        Column::Oracle => offered(schedule, bound, best_choice(schedule, &bound.link)),
        Column::Informed(told) => offered(schedule, bound, choice(schedule, &bound.link, told)),
        Column::Scheduler(scheduler) => simulate(schedule, &bound.link, scheduler, errors),
    }
}

/// What arrives if only these ADUs are offered, to the best scheduler; without a choice nothing.
fn offered(schedule: &Schedule, bound: &Bound, choice: Option<HashSet<u32>>) -> Outcome {
    let mut outcome = Outcome {
        fates: vec![Fate::Dropped; schedule.packets.len()],
    };
    let Some(choice) = choice else {
        return outcome;
    };
    let places: Vec<usize> = (0..schedule.packets.len())
        .filter(|&place| choice.contains(&schedule.packets[place].adu))
        .collect();
    let chosen = Schedule {
        packets: places.iter().map(|&p| schedule.packets[p]).collect(),
        duration: schedule.duration,
    };
    // What is offered fits: nothing need be kept free for what is to come.
    let best = Triage {
        size: Size::Known,
        expects: false,
        ..Triage::KERNEL
    };
    let errors = Errors::default();
    let sent = simulate(&chosen, &bound.link, Scheduler::Triage(best), errors);
    for (place, fate) in places.into_iter().zip(sent.fates) {
        outcome.fates[place] = fate;
    }
    outcome
}
