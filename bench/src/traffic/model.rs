//! A scenario's `[traffic]` table: which model, and its parameters.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Packet, Schedule, build, conference, gop, lpd, media, pcap, sfu};

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
                build::check_lifetime("audio_lifetime_ms", parameters.audio_lifetime_ms)?;
                build::check_lifetime("video_lifetime_ms", parameters.video_lifetime_ms)?;
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

/// Seed of a part: far from the seeds of other repetitions, which count up from `seed`.
fn mix_seed(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index << 32)
}

impl Mix {
    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        ensure!(!self.parts.is_empty(), "`parts` is empty");
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
