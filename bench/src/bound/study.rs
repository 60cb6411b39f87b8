//! Schedulers against the bound, over loads, delays and lifetimes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    ops::RangeInclusive,
    str::FromStr,
};

use anyhow::{Result, bail};
use clap::Args;

use super::{
    Bound, Fate,
    columns::{Column, columns, outcome},
    false_drops, of,
    simulate::Errors,
};
use crate::{
    sys::MILLI,
    table::Table,
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
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 1.0, 1.5, 2.0, 4.0], value_parser = load)]
    pub loads: Vec<f64>,
    /// One-way delays in ms, 0 to 10000.
    #[arg(long, value_delimiter = ',', default_values_t = [5, 40, 75],
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub owds: Vec<u64>,
    /// Lifetimes in ms, audio/video, 1 to 10000.
    #[arg(long, value_delimiter = ',', default_values = LIFETIMES)]
    pub lifetimes: Vec<Lifetimes>,
    /// conference, gop, media (recorded by ffmpeg).
    #[arg(long, value_delimiter = ',', default_values_t = ["conference".to_owned(), "gop".to_owned()])]
    pub traffic: Vec<String>,
    /// Schedulers, by name; `all` = every one there is.
    #[arg(long, value_delimiter = ',', default_values_t = ["fifo", "priority", "edf", "triage"].map(str::to_owned))]
    pub schedulers: Vec<String>,
    /// The rate that schedulers plan with is wrong by so much (0.2 = 20 % too high).
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true, value_parser = error)]
    pub rate_error: f64,
    /// The one-way delay they believe is wrong by so much.
    #[arg(long, default_value_t = 0.0, allow_hyphen_values = true, value_parser = error)]
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

/// How long audio and video are of use, ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    audio: u64,
    video: u64,
}

impl fmt::Display for Lifetimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.audio, self.video)
    }
}

impl FromStr for Lifetimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ms = |part: &str| part.parse().ok().filter(|ms| (1..=10_000).contains(ms));
        text.split_once('/')
            .and_then(|(audio, video)| {
                Some(Self {
                    audio: ms(audio)?,
                    video: ms(video)?,
                })
            })
            .ok_or("lifetimes are two numbers of ms, 1 to 10000, audio/video, as 50/200".into())
    }
}

/// As a scenario allows it.
fn load(text: &str) -> Result<f64, String> {
    number(text, "a load (offered rate / link rate)", 0.01..=100.0)
}

/// As a scenario allows it: what is believed stays above nothing.
fn error(text: &str) -> Result<f64, String> {
    number(text, "an error", -0.95..=10.0)
}

fn number(text: &str, what: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| {
        format!(
            "{what} is a number from {} to {}",
            range.start(),
            range.end()
        )
    })
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

/// What one scheduler made of all cells.
#[derive(Clone, Debug, Default)]
struct Total {
    sum: Sum,
    /// Cells with less than 99.9 % of the bound's audio.
    short_of_audio: u32,
    /// Cells with less than 95 % of the bound's video.
    short_of_video: u32,
    /// The least video in % of the bound; `None` where no cell has a bound to speak of.
    worst: Option<f64>,
}

impl Total {
    fn add(&mut self, sum: &Sum, video_offered: u64) {
        self.sum.add(sum);
        self.short_of_audio += u32::from(percent(sum.audio) < 99.9);
        // A bound of a handful of frames is no basis for a percentage.
        if sum.video[1] * 50 >= video_offered {
            let video = percent(sum.video);
            self.short_of_video += u32::from(video < 95.0);
            self.worst = Some(self.worst.map_or(video, |worst| worst.min(video)));
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let sum = &self.sum;
        let with_a_bound = |text: String| match self.worst {
            Some(_) => text,
            None => "–".into(),
        };
        vec![
            name.to_owned(),
            format!("{:.2}", percent(sum.audio)),
            with_a_bound(format!("{:.2}", percent(sum.video))),
            format!("{:.2}", percent([sum.false_drops, sum.offered])),
            sum.stale.to_string(),
            self.short_of_audio.to_string(),
            with_a_bound(self.short_of_video.to_string()),
            self.worst.map_or("–".into(), |worst| format!("{worst:.1}")),
        ]
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

fn schedule(name: &str, lifetimes: Lifetimes, seconds: u64, seed: u64) -> Result<Schedule> {
    let Lifetimes {
        audio: audio_lifetime_ms,
        video: video_lifetime_ms,
    } = lifetimes;
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
    let mut totals = vec![Total::default(); chosen.len()];
    for traffic in &options.traffic {
        for &lives in &options.lifetimes {
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
                        lives.to_string(),
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
                        // Below that a frame more or less is a hundred per cent and more.
                        let video = match sum.video[1] * 100 >= offered[1] {
                            true => format!("{:.1}", percent(sum.video)),
                            false => "–".into(),
                        };
                        row.push(format!(
                            "{:.1} {video} f{:.1}{layers}",
                            percent(sum.audio),
                            percent([sum.false_drops, sum.offered])
                        ));
                        total.add(sum, offered[1]);
                    }
                    table.row(row);
                }
            }
        }
    }
    if !options.brief {
        say!("{}", table.render());
        say!(
            "each cell: audio, video in % of the bound (–: that has less than 1 % of the frames), \
             f: false drops in % of all ADUs"
        );
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
    for ((name, _), total) in chosen.iter().zip(&totals) {
        table.row(total.row(name));
    }
    say!("{}", table.render());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn without_a_bound_to_speak_of_no_percentage_is_shown() {
        let mut total = Total::default();
        let sum = |video| Sum {
            audio: [998, 1000],
            video,
            offered: 2000,
            ..Sum::default()
        };
        // 60 frames at the price of audio, where the bound has one of 1000.
        total.add(&sum([60, 1]), 1000);
        assert_eq!(
            total.row("fifo"),
            ["fifo", "99.80", "–", "0.00", "0", "1", "–", "–"]
        );
        total.add(&sum([90, 99]), 1000);
        assert_eq!(total.row("fifo")[6..], ["1", "90.9"]);
    }

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn what_is_no_path_and_no_error_is_refused() {
        for (option, wrong) in [
            ("--loads", "nan,inf,0,-1,101"),
            ("--owds", "-1,10001,18446744073709"),
            ("--lifetimes", "0/200,200/0,200,200/10001"),
            ("--rate-error", "nan,inf,-1,-2"),
            ("--owd-error", "nan,-inf,-1,11"),
        ] {
            for wrong in wrong.split(',') {
                let parsed = Arguments::try_parse_from(["study", &format!("{option}={wrong}")]);
                let error = parsed.expect_err(wrong).to_string();
                assert!(error.contains(option) && error.contains(wrong), "{error}");
            }
        }
        let usual = Arguments::try_parse_from(["study"]).expect("the defaults");
        assert_eq!(usual.options.lifetimes.len(), LIFETIMES.len());
        let wrong = ["study", "--owd-error", "-0.5", "--loads", "8,5"];
        let parsed = Arguments::try_parse_from(wrong).expect("in range").options;
        assert_eq!((parsed.owd_error, parsed.loads.len()), (-0.5, 2));
    }
}
