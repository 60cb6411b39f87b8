//! Schedulers against the bound, over loads, delays and lifetimes.

use std::collections::HashSet;

use anyhow::{Result, bail};
use clap::Args;

use super::{
    Bound, Fate, best_choice, false_drops,
    informed::{Told, choice},
    of,
    rules::{Guard, Size, Sure, Triage, Victim, When},
    simulate::{Errors, Outcome, Scheduler, simulate},
};
use crate::{
    report::Table,
    sys::MILLI,
    traffic::{Class, Schedule, conference, gop},
};

/// What the study covers.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Seeds of traffic for each cell, 1 to 1000.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Length of a schedule in s, 1 to 3600.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Offered rate over the link's rate; several with commas.
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 1.0, 1.5, 2.0, 4.0])]
    pub loads: Vec<f64>,
    /// One-way delays in ms.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 40, 75])]
    pub owds: Vec<u64>,
    /// Lifetimes in ms, audio/video.
    #[arg(long, value_delimiter = ',', default_values_t = LIFETIMES.map(str::to_owned))]
    pub lifetimes: Vec<String>,
    /// conference, gop.
    #[arg(long, value_delimiter = ',', default_values_t = ["conference".to_owned(), "gop".to_owned()])]
    pub traffic: Vec<String>,
    /// Schedulers, by name; `all` = every one there is.
    #[arg(long, value_delimiter = ',', default_values_t = ["fifo", "priority", "edf", "triage"].map(str::to_owned))]
    pub schedulers: Vec<String>,
    /// The rate that schedulers plan with is wrong by so much (0.2 = 20 % too high).
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    pub rate_error: f64,
    /// The one-way delay they believe is wrong by so much.
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true)]
    pub owd_error: f64,
    /// One line per scheduler over all cells instead of one per cell.
    #[arg(long)]
    pub brief: bool,
}

const LIFETIMES: [&str; 7] = [
    "50/50",
    "150/150",
    "200/200",
    "1000/1000",
    "50/200",
    "150/1000",
    "200/150",
];

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
        early,
        plan_early,
        from_begun: true,
        by_end: false,
        expects: false,
        ..kernel
    };
    let end = |early, plan_early| Triage {
        early,
        plan_early,
        expects: false,
        ..kernel
    };
    let triages = [
        ("triage", kernel),
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

/// What one scheduler made of all seeds of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// ADUs complete on time, and their bound.
    audio: [u64; 2],
    video: [u64; 2],
    offered: u64,
    false_drops: u64,
    stale: u64,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.audio, other.audio),
            (&mut self.video, other.video),
        ] {
            sum[0] += part[0];
            sum[1] += part[1];
        }
        self.offered += other.offered;
        self.false_drops += other.false_drops;
        self.stale += other.stale;
    }
}

fn percent([part, of]: [u64; 2]) -> f64 {
    match of {
        0 => 100.0,
        _ => part as f64 * 100.0 / of as f64,
    }
}

pub(super) fn complete(schedule: &Schedule, fates: &[Fate], class: Class) -> u64 {
    let mut adus = std::collections::HashMap::new();
    for (packet, &fate) in schedule.packets.iter().zip(fates) {
        if packet.class == class {
            *adus.entry(packet.adu).or_insert(true) &= fate == Fate::OnTime;
        }
    }
    adus.values().filter(|&&whole| whole).count() as u64
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

fn judge(schedule: &Schedule, bound: &Bound, column: Column, errors: Errors) -> Sum {
    let outcome = outcome(schedule, bound, column, errors);
    let fates = &outcome.fates;
    Sum {
        audio: [complete(schedule, fates, Class::Audio), bound.audio.adus],
        video: [complete(schedule, fates, Class::Video), bound.video.adus],
        offered: bound.audio.adus_offered + bound.video.adus_offered,
        false_drops: false_drops(schedule, fates, &bound.link).total(),
        stale: fates.iter().filter(|&&fate| fate == Fate::Late).count() as u64,
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

fn schedule(name: &str, lifetimes: (u64, u64), seconds: u64, seed: u64) -> Result<Schedule> {
    let (audio_lifetime_ms, video_lifetime_ms) = lifetimes;
    match name {
        "conference" => Ok(conference::schedule_with(
            &conference::Parameters {
                audio_lifetime_ms,
                video_lifetime_ms,
            },
            seconds,
            seed,
        )),
        "gop" => gop::schedule(
            &gop::Parameters {
                audio_lifetime_ms,
                video_lifetime_ms,
                ..gop::Parameters::default()
            },
            seconds,
            seed,
        ),
        _ => bail!("no traffic `{name}`: there are conference and gop"),
    }
}

fn lifetimes(text: &str) -> Result<(u64, u64)> {
    let parts = text
        .split_once('/')
        .and_then(|(audio, video)| Some((audio.parse().ok()?, video.parse().ok()?)));
    match parts {
        Some(parts) => Ok(parts),
        None => bail!("lifetimes are two numbers of ms, audio/video, as 50/200, not `{text}`"),
    }
}

/// Runs the study and prints its table.
pub fn run(options: &Options) -> Result<()> {
    let all = columns();
    let every = options.schedulers.iter().any(|name| name == "all");
    let mut chosen = Vec::new();
    for name in &options.schedulers {
        match all.iter().find(|(known, _)| known == name) {
            Some(one) => chosen.push(*one),
            None if every => {}
            None => bail!(
                "no scheduler `{name}`: there are {}",
                all.iter().map(|s| s.0).collect::<Vec<_>>().join(", ")
            ),
        }
    }
    if every {
        chosen = all;
    }
    let told = |(_, column): &(&str, Column)| matches!(column, Column::Informed(_));
    if options.traffic.iter().any(|name| name != "conference") {
        if !every && chosen.iter().any(told) {
            bail!(
                "informed, motion and sizes are told of the conference only: add --traffic conference"
            );
        }
        chosen.retain(|one| !told(one));
    }
    let errors = Errors {
        rate: options.rate_error,
        owd: options.owd_error,
    };
    let mut head = vec!["traffic", "lifetimes", "owd", "load", "bound a%", "v%"];
    let names: Vec<String> = chosen.iter().map(|c| c.0.to_owned()).collect();
    head.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&head);
    let mut totals = vec![(Sum::default(), 0u32, 0u32, f64::MAX); chosen.len()];
    for traffic in &options.traffic {
        for text in &options.lifetimes {
            let lives = lifetimes(text)?;
            for &owd in &options.owds {
                for &load in &options.loads {
                    let mut sums = vec![Sum::default(); chosen.len()];
                    let mut offered = [0, 0];
                    for seed in 1..=options.seeds {
                        let schedule = schedule(traffic, lives, options.seconds, seed)?;
                        let rate = (schedule.load() / load) as u64;
                        let bound = of(&schedule, rate, owd * MILLI);
                        offered[0] += bound.audio.adus_offered;
                        offered[1] += bound.video.adus_offered;
                        for ((_, column), sum) in chosen.iter().zip(&mut sums) {
                            sum.add(&judge(&schedule, &bound, *column, errors));
                        }
                    }
                    let mut row = vec![
                        traffic.clone(),
                        text.clone(),
                        owd.to_string(),
                        load.to_string(),
                        format!("{:.1}", percent([sums[0].audio[1], offered[0]])),
                        format!("{:.1}", percent([sums[0].video[1], offered[1]])),
                    ];
                    for (sum, total) in sums.iter().zip(&mut totals) {
                        row.push(format!(
                            "{:.1} {:.1} f{:.1}",
                            percent(sum.audio),
                            percent(sum.video),
                            percent([sum.false_drops, sum.offered])
                        ));
                        total.0.add(sum);
                        total.1 += u32::from(percent(sum.audio) < 99.9);
                        // A bound of a handful of frames is no basis for a percentage.
                        if sum.video[1] * 50 >= offered[1] {
                            total.2 += u32::from(percent(sum.video) < 95.0);
                            total.3 = total.3.min(percent(sum.video));
                        }
                    }
                    table.row(row);
                }
            }
        }
    }
    if !options.brief {
        say!("{}", table.render());
        say!("each cell: audio, video in % of the bound, f: false drops in % of all ADUs\n");
    }
    let mut table = Table::new(&[
        "scheduler",
        "audio %",
        "video %",
        "false %",
        "stale",
        "cells a<99.9",
        "v<95",
        "worst v",
    ]);
    for ((name, _), (sum, audio, video, worst)) in chosen.iter().zip(&totals) {
        table.row(vec![
            (*name).to_owned(),
            format!("{:.2}", percent(sum.audio)),
            format!("{:.2}", percent(sum.video)),
            format!("{:.2}", percent([sum.false_drops, sum.offered])),
            sum.stale.to_string(),
            audio.to_string(),
            video.to_string(),
            format!("{worst:.1}"),
        ]);
    }
    say!("{}", table.render());
    Ok(())
}
