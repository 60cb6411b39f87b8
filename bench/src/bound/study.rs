//! Schedulers against the bound, over loads, delays and lifetimes.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};
use clap::Args;

use super::{
    Bound, Fate,
    columns::{Column, columns, outcome},
    false_drops, of,
    simulate::Errors,
};
use crate::{
    report::Table,
    sys::MILLI,
    traffic::{
        Class, Schedule, conference, gop,
        media::{self, Layers},
    },
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
    /// conference, gop, media (recorded by ffmpeg).
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

/// What one scheduler made of all seeds of a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// ADUs complete on time, and their bound.
    audio: [u64; 2],
    video: [u64; 2],
    offered: u64,
    false_drops: u64,
    stale: u64,
    /// Of real media.
    layers: Layers,
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
        self.layers.add(&other.layers);
    }
}

fn percent([part, of]: [u64; 2]) -> f64 {
    match of {
        0 => 100.0,
        _ => part as f64 * 100.0 / of as f64,
    }
}

/// ADUs of a class of which every packet was on time.
pub(super) fn complete(schedule: &Schedule, fates: &[Fate], class: Class) -> HashSet<u32> {
    let mut adus = HashMap::new();
    for (packet, &fate) in schedule.packets.iter().zip(fates) {
        if packet.class == class {
            *adus.entry(packet.adu).or_insert(true) &= fate == Fate::OnTime;
        }
    }
    adus.retain(|_, whole| *whole);
    adus.into_keys().collect()
}

fn judge(schedule: &Schedule, bound: &Bound, column: Column, errors: Errors) -> Sum {
    let outcome = outcome(schedule, bound, column, errors);
    let fates = &outcome.fates;
    let audio = complete(schedule, fates, Class::Audio);
    let frames = complete(schedule, fates, Class::Video);
    Sum {
        audio: [audio.len() as u64, bound.audio.adus],
        video: [frames.len() as u64, bound.video.adus],
        layers: media::layers(schedule, &frames),
        offered: bound.audio.adus_offered + bound.video.adus_offered,
        false_drops: false_drops(schedule, fates, &bound.link).total(),
        stale: fates.iter().filter(|&&fate| fate == Fate::Late).count() as u64,
    }
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
        "media" => media::schedule(
            &media::Parameters {
                audio_lifetime_ms,
                video_lifetime_ms,
                ..media::Parameters::default()
            },
            seconds,
            seed,
        ),
        _ => bail!("no traffic `{name}`: there are conference, gop and media"),
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
                        let layers = match traffic.as_str() {
                            "media" => format!(" {}", sum.layers),
                            _ => String::new(),
                        };
                        row.push(format!(
                            "{:.1} {:.1} f{:.1}{layers}",
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
        say!("each cell: audio, video in % of the bound, f: false drops in % of all ADUs");
        if options.traffic.iter().any(|name| name == "media") {
            say!("media: key, reference (by thirds of a group), disposable frames; i: intact ones");
        }
        say!("");
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
