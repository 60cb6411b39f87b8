//! A scenario's `[traffic]` table: which model, and its parameters.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Class, Packet, Schedule,
    build::{self, Traffic},
    conference, gop, layers, lpd, media, pcap, sfu, transfer,
};

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
    /// Layers of a video, or other streams of equal ADUs.
    Layers(layers::Parameters),
    /// LPD's constant bit rate.
    Cbr(lpd::Cbr),
    /// LPD's data objects.
    Onoff(lpd::OnOff),
    /// LPD's TCP.
    Download(lpd::Download),
    /// Bulk TCP.
    Transfer(transfer::Parameters),
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
    /// Its word in scenario files, and what it does.
    fn inner(&self) -> (&'static str, &dyn Traffic) {
        match self {
            Self::Conference(parameters) => ("conference", parameters),
            Self::Gop(parameters) => ("gop", parameters),
            Self::Sfu(parameters) => ("sfu", parameters),
            Self::Layers(parameters) => ("layers", parameters),
            Self::Cbr(cbr) => ("cbr", cbr),
            Self::Onoff(on_off) => ("onoff", on_off),
            Self::Download(download) => ("download", download),
            Self::Transfer(parameters) => ("transfer", parameters),
            Self::Pcap(parameters) => ("pcap", parameters),
            Self::Media(parameters) => ("media", parameters),
            Self::Mix(mix) => ("mix", mix),
        }
    }

    /// Parameters of the model of this name that are lists themselves: for those a flat list
    /// in a scenario is one value, and only a list of lists sweeps.
    pub fn lists(name: &str) -> &'static [&'static str] {
        match name {
            "pcap" => &["ports", "audio_types", "data_types"],
            "mix" => &["parts"],
            "transfer" => &["beside"],
            _ => &[],
        }
    }

    /// Whether the parameters are within their ranges, without encoding anything and without
    /// making any traffic; a capture must be there, as only its content tells.
    pub fn check(&self) -> Result<()> {
        let (name, traffic) = self.inner();
        traffic.check().with_context(|| in_model(name))
    }

    /// What its packets may be; `None` where only a capture's content tells.
    pub fn classes(&self) -> Option<BTreeSet<Class>> {
        self.inner().1.classes()
    }

    /// `seconds` of traffic; the same for the same seed. Parameters out of their range
    /// are an error that names the parameter and the range.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        let (name, traffic) = self.inner();
        let schedule = traffic.schedule(seconds, seed);
        schedule.with_context(|| in_model(name))
    }

    /// Does beforehand what a run should not: encodes media. Otherwise `schedule` does,
    /// which takes long in a VM that emulates its processor.
    pub fn prepare(&self, seconds: u64, seed: u64) -> Result<()> {
        self.inner().1.prepare(seconds, seed)
    }

    /// Whether its streams are clients with addresses of their own behind one socket
    /// (`Sender::relay`); otherwise one destination has them all.
    pub fn is_relay(&self) -> bool {
        self.inner().1.is_relay()
    }
}

fn in_model(name: &str) -> String {
    format!("traffic model `{name}`")
}

/// One address for each in the network of clients, a /16, and a number that fits into a packet's `stream`.
const MOST_STREAMS: usize = 65_534;

/// Seed of a part: far from the seeds of other repetitions, which count up from `seed`.
fn mix_seed(seed: u64, index: u64) -> u64 {
    seed.wrapping_add(index << 32)
}

impl Traffic for Mix {
    fn check(&self) -> Result<()> {
        ensure!(
            !self.parts.is_empty(),
            "`parts` is empty: name at least one model"
        );
        self.parts.iter().try_for_each(Model::check)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let mut packets: Vec<Packet> = Vec::new();
        let (mut adus, mut streams, mut duration) = (0, 0, 0);
        for (part, index) in self.parts.iter().zip(0..) {
            let schedule = part.schedule(seconds, mix_seed(seed, index))?;
            let all = usize::from(streams) + schedule.streams();
            ensure!(
                all <= MOST_STREAMS,
                "with `separate` the parts have more than {MOST_STREAMS} streams, one for \
                 each address: give them fewer clients or streams, or leave `separate` out"
            );
            packets.extend(schedule.packets.iter().map(|p| Packet {
                adu: p.adu + adus,
                stream: p.stream + streams,
                ..*p
            }));
            adus = packets.iter().map(|p| p.adu + 1).max().unwrap_or(0);
            if self.separate {
                streams = all as u16;
            }
            duration = schedule.duration;
        }
        packets.sort_by_key(|p| p.at);
        build::number(&mut packets);
        Ok(Schedule { packets, duration })
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        let of_parts = self.parts.iter().map(Model::classes);
        let of_parts: Option<Vec<_>> = of_parts.collect();
        Some(of_parts?.into_iter().flatten().collect())
    }

    fn is_relay(&self) -> bool {
        self.separate || self.parts.iter().any(Model::is_relay)
    }

    fn prepare(&self, seconds: u64, seed: u64) -> Result<()> {
        let mut parts = (0..).zip(&self.parts);
        parts.try_for_each(|(index, part)| part.prepare(seconds, mix_seed(seed, index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, fingerprint, rate_kbit};

    fn parse(text: &str) -> Model {
        toml::from_str(text).expect(text)
    }

    /// Kept runs and published tables are of these packets.
    #[test]
    fn model_schedule_of_a_seed_stays_as_it_was() {
        for (text, expected) in [
            ("conference'", 0x4294059fd242c6c6),
            ("conference'\naudio_lifetime_ms = 50", 0x6b72da59c1ee9592),
            ("gop'", 0x6aa7a5fce96b1be1),
            (
                "gop'\nfps = 25\ngop_frames = 12\naudio_bytes = 0",
                0x7c043752a43f6981,
            ),
            ("sfu'\nclients = 3", 0x3311b2489c35fe60),
            ("cbr'\nstreams = 3", 0xdfb5069972d19f68),
            ("onoff'\nstreams = 2\nclass = 'video'", 0x4ef195c3a9e9a81),
            (
                "mix'\nseparate = true\nparts = [{ model = 'conference' }, { model = 'cbr' }, \
                 { model = 'onoff' }]",
                0x568ec5918380ff19,
            ),
        ] {
            let model = parse(&format!("model = '{text}"));
            let schedule = model.schedule(20, 7).expect(text);
            assert_eq!(fingerprint(&schedule), expected, "{text}");
            assert!(text.starts_with(model.inner().0), "{text}");
            assert!(schedule.packets.is_sorted_by_key(|p| p.at));
            assert!(schedule.packets.iter().all(|p| p.at < schedule.duration));
            let sent = adus(&schedule).iter().map(|adu| adu.class).collect();
            assert_eq!(model.classes(), Some(sent), "{text}");
        }
    }

    #[test]
    fn model_unknown_word_is_refused() {
        for text in [
            "model = 'gob'",
            "model = 'gop'\nfsp = 25",
            "model = 'sfu'\nmedia = { fsp = 25 }",
            "model = 'mix'\nparts = []\nx = 1",
        ] {
            assert!(toml::from_str::<Model>(text).is_err(), "{text}");
        }
    }

    /// Also what is so large that time or memory would end.
    #[test]
    fn model_parameter_out_of_its_range_is_refused_before_anything_is_made() {
        for line in "conference | audio_lifetime_ms = 0 | within 1..=60000
            gop | fps = 0 | within 1..=240
            gop | gop_frames = 0 | within 1..=
            gop | rate_kbit = nan | within 1..=10000000
            gop | packet_bytes = 1515 | within 164..=1514
            gop | packet_bytes = 163 | within 164..=1514
            gop | audio_bytes = 10 | within 82..=1514
            gop | video_lifetime_ms = 0 | within 1..=60000
            sfu | clients = 0 | within 1..=1000
            sfu | uplink_mbit = 1e-9 | within 0.1..=10000
            sfu | send_us = 9000000000000000000 | within 0..=10000
            sfu | clients = 1000;media = { rate_kbit = 1e6 } | lower one
            cbr | rate_kbit = 0 | within 1..=10000000
            cbr | streams = 0 | within 1..=1000
            cbr | lifetime_ms = 0 | within 1..=60000
            cbr | rate_kbit = 1e7;streams = 1000 | lower one
            onoff | on_ms = 0 | within 1..=5000
            onoff | on_ms = 5001 | within 1..=5000
            onoff | on_ms = 2500;lifetime_ms = 2000 | within 1..=2000
            onoff | every_ms = 9000000000000000000 | within 1..=3600000
            transfer | segment = 99 | within 100..=1448
            transfer | read_every_ms = 1001 | within 0..=1000
            transfer | read_every_ms = 400 | do not fit
            media | width = 30 | within 64..=1920
            media | height = 91 | even
            media | fps = 29 | one of 10
            media | disposable = 5 | within 0..=4
            media | audio_lifetime_ms = 0 | within 1..=60000
            mix | parts = [] | at least one"
            .lines()
        {
            let mut parts = line.split('|').map(str::trim);
            let [model, parameter, says] = [(); 3].map(|()| parts.next().expect(line));
            let text = format!("model = '{model}'\n{}", parameter.replace(';', "\n"));
            let of_model = parse(&text);
            for result in [of_model.check(), of_model.schedule(1, 1).map(drop)] {
                let error = format!("{:#}", result.expect_err(line));
                let (name, _) = parameter.split_once(' ').expect("a name");
                for word in [model, name, says] {
                    assert!(error.contains(word), "{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn mix_is_the_sum_of_its_parts() {
        let text = "model = 'mix'\nseparate = true\nparts = [{ model = 'conference' }, \
                    { model = 'onoff' }, { model = 'cbr', streams = 2 }]";
        let model = parse(text);
        let schedule = model.schedule(20, 3).expect("a schedule");
        assert!(model.is_relay());
        assert_eq!((schedule.streams(), schedule.duration), (4, 20_000_000_000));
        let alone = conference::schedule(20, 3);
        for class in [Class::Audio, Class::Video] {
            assert_eq!(rate_kbit(&schedule, class), rate_kbit(&alone, class));
        }
        let together = parse(&text.replace("true", "false"));
        assert_eq!(together.schedule(20, 3).expect("a schedule").streams(), 2);

        let parts = vec!["{ model = 'cbr', streams = 1000 }"; 66].join(",");
        let many = parse(&format!(
            "model = 'mix'\nseparate = true\nparts = [{parts}]"
        ));
        let error = format!("{:#}", many.schedule(1, 1).expect_err("66000 streams"));
        assert!(error.contains("65534"), "{error}");
    }

    /// The page shows every parameter with its default: what it shows must be the model
    /// that the name alone gives.
    #[test]
    fn model_page_shows_all_models_and_their_defaults() {
        let page = include_str!("../../../docs/traffic.md");
        let blocks = page.split("```toml\n").skip(1);
        let blocks: Vec<Model> = blocks
            .filter_map(|rest| rest.split("```").next())
            .map(parse)
            .collect();
        let names: Vec<&str> = blocks.iter().map(|model| model.inner().0).collect();
        let all = "conference gop sfu cbr onoff download layers transfer pcap media mix";
        assert_eq!(names.join(" "), all);
        for (model, name) in blocks.iter().zip(names) {
            let value = serde_json::to_value(model).expect("JSON");
            for (parameter, value) in value.as_object().expect("a table") {
                let shown = page.contains(&format!("\n{parameter} = ")) || value.is_null();
                assert!(shown, "`{parameter}` of {name} is not on the page");
            }
            match model {
                Model::Mix(mix) => assert!(!mix.separate && mix.parts.len() == 2),
                Model::Pcap(_) => {
                    assert_eq!(*model, parse("model = 'pcap'\nfile = 'call.pcapng'"));
                }
                other => assert_eq!(*other, parse(&format!("model = '{name}'"))),
            }
        }
    }
}
