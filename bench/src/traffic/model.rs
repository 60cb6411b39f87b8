//! A scenario's `[traffic]` table: which model, and its parameters.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Class, Packet, Schedule, build, conference, gop, lpd, media, pcap, sfu};

/// One of the models; in TOML `model = "gop"` and its parameters beside it. Parameters
/// that are not given have the model's defaults, unknown ones are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum Model {
    /// The conference of SFDPS §4.1.
    Conference(conference::Parameters),
    /// Live video with key frames, and audio.
    Gop(gop::Parameters),
    /// One speaker's media to N clients.
    Sfu(sfu::Parameters),
    /// LPD's constant bit rate.
    Cbr(lpd::Cbr),
    /// LPD's data objects.
    Onoff(lpd::OnOff),
    /// Replay of a captured file.
    Pcap(pcap::Parameters),
    /// Real media of ffmpeg.
    Media(media::Parameters),
    /// Several models at once.
    Mix(Mix),
}

/// Several models at once, each from a seed of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// The models; at least one.
    pub parts: Vec<Model>,
    /// Streams of the second part are numbered behind those of the first, and so on, so
    /// that no two parts share a destination where the sender has one per stream.
    /// Otherwise stream n of all parts goes to destination n.
    #[serde(default)]
    pub separate: bool,
}

impl Default for Model {
    fn default() -> Self {
        Self::Conference(conference::Parameters::default())
    }
}

impl Model {
    /// Parameters of the model of this name that are lists themselves: for those a flat list
    /// in a scenario is one value, and only a list of lists sweeps.
    pub fn lists(name: &str) -> &'static [&'static str] {
        match name {
            "pcap" => &["ports", "audio_types", "data_types"],
            "mix" => &["parts"],
            _ => &[],
        }
    }

    /// Whether the parameters are within their ranges, without encoding anything and without
    /// making any traffic; a capture must be there, as only its content tells.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Conference(parameters) => parameters.check(),
            Self::Gop(parameters) => parameters.check(),
            Self::Sfu(parameters) => parameters.check(),
            Self::Cbr(parameters) => parameters.check(),
            Self::Onoff(parameters) => parameters.check(),
            Self::Pcap(parameters) => pcap::schedule(parameters, 1, 0).map(|_| ()),
            Self::Media(parameters) => parameters.check(),
            Self::Mix(mix) => mix.check(),
        }
        .with_context(|| format!("traffic model `{}`", self.name()))
    }

    /// What its packets may be; `None` where only a capture's content tells.
    pub fn classes(&self) -> Option<BTreeSet<Class>> {
        let of_gop = |parameters: &gop::Parameters| match parameters.audio_bytes {
            0 => [Class::Video].into(),
            _ => [Class::Audio, Class::Video].into(),
        };
        match self {
            Self::Conference(_) | Self::Media(_) => Some([Class::Audio, Class::Video].into()),
            Self::Gop(parameters) => Some(of_gop(parameters)),
            Self::Sfu(parameters) => Some(of_gop(&parameters.media)),
            Self::Cbr(cbr) => Some([cbr.class].into()),
            Self::Onoff(on_off) => Some([on_off.class].into()),
            Self::Pcap(_) => None,
            Self::Mix(mix) => mix.parts.iter().try_fold(BTreeSet::new(), |mut all, part| {
                all.append(&mut part.classes()?);
                Some(all)
            }),
        }
    }

    /// Streams that it may have at most.
    fn most_streams(&self) -> usize {
        match self {
            Self::Conference(_) | Self::Gop(_) | Self::Media(_) => 1,
            Self::Sfu(parameters) => parameters.clients.into(),
            Self::Cbr(cbr) => cbr.streams.into(),
            Self::Onoff(on_off) => on_off.streams.into(),
            Self::Pcap(parameters) if parameters.by_destination => 1000,
            Self::Pcap(_) => 1,
            Self::Mix(mix) => {
                let own = mix.parts.iter().map(Self::most_streams);
                if mix.separate {
                    own.sum()
                } else {
                    own.max().unwrap_or(0)
                }
            }
        }
    }

    /// `seconds` of traffic; the same for the same seed. Parameters out of their range
    /// are an error that names the parameter and the range.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        ensure!(seconds > 0, "traffic of 0 s cannot be measured");
        self.make(seconds, seed)
            .with_context(|| format!("traffic model `{}`", self.name()))
    }

    fn make(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        match self {
            Self::Conference(parameters) => {
                parameters.check()?;
                Ok(conference::schedule_with(parameters, seconds, seed))
            }
            Self::Gop(parameters) => gop::schedule(parameters, seconds, seed),
            Self::Sfu(parameters) => sfu::schedule(parameters, seconds, seed),
            Self::Cbr(parameters) => parameters.schedule(seconds, seed),
            Self::Onoff(parameters) => parameters.schedule(seconds, seed),
            Self::Pcap(parameters) => pcap::schedule(parameters, seconds, seed),
            Self::Media(parameters) => media::schedule(parameters, seconds, seed),
            Self::Mix(mix) => mix.schedule(seconds, seed),
        }
    }

    /// Does beforehand what a run should not: encodes media. Otherwise `schedule` does,
    /// which takes long in a VM that emulates its processor.
    pub fn prepare(&self, seconds: u64, seed: u64) -> Result<()> {
        match self {
            Self::Media(parameters) => media::prepare(parameters, seconds, seed),
            Self::Mix(mix) => (0..)
                .zip(&mix.parts)
                .try_for_each(|(index, part)| part.prepare(seconds, mix_seed(seed, index))),
            _ => Ok(()),
        }
    }

    /// Its word in scenario files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Conference(_) => "conference",
            Self::Gop(_) => "gop",
            Self::Sfu(_) => "sfu",
            Self::Cbr(_) => "cbr",
            Self::Onoff(_) => "onoff",
            Self::Pcap(_) => "pcap",
            Self::Media(_) => "media",
            Self::Mix(_) => "mix",
        }
    }

    /// Whether its packets follow from the parameters and the seed, on every machine: not
    /// what is read from a file or encoded.
    pub fn is_of_seed(&self) -> bool {
        match self {
            Self::Pcap(_) | Self::Media(_) => false,
            Self::Mix(mix) => mix.parts.iter().all(Self::is_of_seed),
            _ => true,
        }
    }

    /// Whether its streams are clients with addresses of their own behind one socket
    /// (`Sender::relay`); otherwise one destination has them all.
    pub fn is_relay(&self) -> bool {
        match self {
            Self::Sfu(_) => true,
            Self::Cbr(cbr) => cbr.streams > 1,
            Self::Onoff(on_off) => on_off.streams > 1,
            Self::Pcap(parameters) => parameters.by_destination,
            Self::Mix(mix) => mix.separate || mix.parts.iter().any(Self::is_relay),
            Self::Conference(_) | Self::Gop(_) | Self::Media(_) => false,
        }
    }
}

/// One address for each in the network of clients, a /16, and a number that fits into a packet's `stream`.
const MOST_STREAMS: usize = 65_534;

/// Seed of a part: far from the seeds of other repetitions, which count up from `seed`.
fn mix_seed(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index << 32)
}

impl Mix {
    fn check(&self) -> Result<()> {
        self.check_parts()?;
        self.parts.iter().try_for_each(Model::check)
    }

    fn check_parts(&self) -> Result<()> {
        ensure!(
            !self.parts.is_empty(),
            "`parts` is empty: name at least one model"
        );
        let streams: usize = self.parts.iter().map(Model::most_streams).sum();
        ensure!(
            !self.separate || streams <= MOST_STREAMS,
            "with `separate` the parts may have {streams} streams, but there are addresses for \
             {MOST_STREAMS}: give them fewer clients or streams, or leave `separate` out"
        );
        Ok(())
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check_parts()?;
        let mut packets: Vec<Packet> = Vec::new();
        let (mut adus, mut streams, mut duration) = (0, 0, 0);
        for (part, index) in self.parts.iter().zip(0..) {
            let schedule = part.schedule(seconds, mix_seed(seed, index))?;
            packets.extend(schedule.packets.iter().map(|p| Packet {
                adu: p.adu + adus,
                stream: p.stream + streams,
                ..*p
            }));
            adus = packets.iter().map(|p| p.adu + 1).max().unwrap_or(0);
            if self.separate {
                streams += schedule.streams() as u16;
            }
            duration = schedule.duration;
        }
        packets.sort_by_key(|p| p.at);
        build::number(&mut packets);
        Ok(Schedule { packets, duration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sys::SECOND,
        traffic::{
            Class,
            tests::{adus, rate_kbit},
        },
    };

    fn parse(text: &str) -> Result<Model, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn defaults_are_filled_in_and_unknown_words_refused() {
        let model = parse(r#"{"model": "gop", "fps": 25}"#).expect("a model");
        let expected = gop::Parameters {
            fps: 25,
            ..gop::Parameters::default()
        };
        assert_eq!(model, Model::Gop(expected));
        assert!(parse(r#"{"model": "gop", "fsp": 25}"#).is_err());
        assert!(parse(r#"{"model": "gob"}"#).is_err());
        assert!(parse(r#"{"model": "sfu", "media": {"fsp": 25}}"#).is_err());
        let cbr = parse(r#"{"model": "cbr", "class": "video"}"#).expect("a model");
        assert!(matches!(cbr, Model::Cbr(cbr) if cbr.class == Class::Video));
        assert!(parse(r#"{"model": "mix", "parts": [], "x": 1}"#).is_err());
    }

    #[test]
    fn a_bad_parameter_names_itself_and_its_model() {
        let model = parse(r#"{"model": "conference", "audio_lifetime_ms": 0}"#).expect("a model");
        let error = format!("{:#}", model.schedule(1, 1).expect_err("0 ms"));
        assert!(
            error.contains("conference") && error.contains("audio_lifetime_ms"),
            "{error}"
        );
        assert!(Model::default().schedule(0, 1).is_err());
    }

    #[test]
    fn a_mix_is_the_sum_of_its_parts() {
        let text = r#"{"model": "mix", "separate": true, "parts": [
            {"model": "conference"}, {"model": "onoff"}, {"model": "cbr", "streams": 2}]}"#;
        let model = parse(text).expect("a model");
        let schedule = model.schedule(20, 3).expect("a schedule");
        assert!(schedule.packets.is_sorted_by_key(|p| p.at));
        assert_eq!(schedule.streams(), 4);
        assert_eq!(schedule.duration, 20 * SECOND);
        assert_eq!(
            adus(&schedule).iter().filter(|a| a.stream == 0).count(),
            1200
        );
        let alone = conference::schedule(20, 3);
        for class in [Class::Audio, Class::Video] {
            assert_eq!(rate_kbit(&schedule, class), rate_kbit(&alone, class));
        }
        assert!(model.is_relay());
        let together = parse(&text.replace("true", "false")).expect("a model");
        assert_eq!(together.schedule(20, 3).expect("a schedule").streams(), 2);
        assert!(
            parse(r#"{"model": "mix", "parts": []}"#)
                .expect("a model")
                .schedule(1, 1)
                .is_err()
        );
    }

    #[test]
    fn streams_of_a_mix_have_numbers_and_addresses() {
        let parts = |count: usize| {
            let part = r#"{"model": "cbr", "streams": 1000}"#;
            let parts = vec![part; count].join(",");
            parse(&format!(
                r#"{{"model": "mix", "separate": true, "parts": [{parts}]}}"#
            ))
            .expect("a model")
        };
        assert!(parts(65).check().is_ok());
        for error in [parts(66).check(), parts(66).schedule(1, 1).map(|_| ())] {
            let error = format!("{:#}", error.expect_err("66000 streams"));
            assert!(
                error.contains("66000 streams") && error.contains("65534"),
                "{error}"
            );
        }
    }

    #[test]
    fn no_value_is_so_large_that_time_or_memory_end() {
        for (text, says) in [
            (
                r#"{"model": "sfu", "uplink_mbit": 1e-9}"#,
                "uplink_mbit = 0.000000001 is not within 0.1..=10000",
            ),
            (
                r#"{"model": "sfu", "send_us": 9000000000000000000}"#,
                "send_us = 9000000000000000000 is not within 0..=10000",
            ),
            (
                r#"{"model": "sfu", "clients": 1000, "media": {"rate_kbit": 1e6}}"#,
                "lower one of the two",
            ),
            (
                r#"{"model": "cbr", "streams": 1000, "rate_kbit": 1e7}"#,
                "lower one of the two",
            ),
            (
                r#"{"model": "onoff", "every_ms": 9000000000000000000}"#,
                "every_ms = 9000000000000000000 is not within 1..=3600000",
            ),
        ] {
            let model = parse(text).expect("a model");
            for result in [model.check(), model.schedule(1, 1).map(|_| ())] {
                let error = format!("{:#}", result.expect_err(text));
                assert!(error.contains(says), "{text}: {error}");
            }
        }
    }

    #[test]
    fn classes_are_those_that_are_sent() {
        for text in [
            r#"{"model": "conference"}"#,
            r#"{"model": "gop"}"#,
            r#"{"model": "gop", "audio_bytes": 0}"#,
            r#"{"model": "sfu"}"#,
            r#"{"model": "cbr", "class": "audio"}"#,
            r#"{"model": "onoff"}"#,
            r#"{"model": "mix", "parts": [{"model": "conference"}, {"model": "cbr"}]}"#,
        ] {
            let model = parse(text).expect("a model");
            let sent = model.schedule(10, 1).expect("a schedule");
            let sent: BTreeSet<Class> = sent.packets.iter().map(|p| p.class).collect();
            assert_eq!(model.classes(), Some(sent), "{text}");
        }
    }

    #[test]
    fn every_model_is_told_by_its_name() {
        for name in ["conference", "gop", "sfu", "cbr", "onoff"] {
            let model = parse(&format!(r#"{{"model": "{name}"}}"#)).expect("a model");
            assert_eq!(model.name(), name);
            let schedule = model.schedule(10, 1).expect("a schedule");
            assert_eq!(schedule, model.schedule(10, 1).expect("again"));
            assert!(!schedule.packets.is_empty());
            assert!(schedule.packets.iter().all(|p| p.at < schedule.duration));
            adus(&schedule);
        }
    }

    /// The page shows every parameter with its default: what it shows must be the model
    /// that the name alone gives.
    #[test]
    fn the_page_of_models_shows_the_defaults() {
        let page = include_str!("../../../docs/traffic.md");
        let blocks: Vec<Model> = page
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .map(|block| toml::from_str(block).expect(block))
            .collect();
        let names: Vec<&str> = blocks.iter().map(Model::name).collect();
        assert_eq!(
            names,
            [
                "conference",
                "gop",
                "sfu",
                "cbr",
                "onoff",
                "pcap",
                "media",
                "mix"
            ]
        );
        for model in blocks {
            let serde_json::Value::Object(all) = serde_json::to_value(&model).expect("JSON") else {
                panic!("a model is a table");
            };
            for (name, value) in all {
                let shown = page.contains(&format!("\n{name} = ")) || value.is_null();
                assert!(shown, "`{name}` of {} is not on the page", model.name());
            }
            let expected = match &model {
                Model::Pcap(_) => Model::Pcap(pcap::Parameters::of("call.pcapng")),
                Model::Mix(mix) => {
                    assert!(!mix.separate && mix.parts.len() == 2);
                    continue;
                }
                other => parse(&format!(r#"{{"model": "{}"}}"#, other.name())).expect("a name"),
            };
            assert_eq!(model, expected);
        }
    }
}
