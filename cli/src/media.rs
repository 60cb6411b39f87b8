//! `bestby media`: streams of media, what was read of their frames, and what a session description says of them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bestby_api::{
    Learned, MAX_SDP, MediaList, MediaName, MediaStream, MediaTable, Pictures, codec_words, path,
};
use clap::Subcommand;
use hyper::Method;

use crate::client::{Client, part};
use crate::failure::Failure;
use crate::format::{or_dash, time};
use crate::output::Output;
use crate::setting::value;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List the RTP streams of the last minute that a rule covers, and what was read of their frames
    Ls,
    /// Learn ids of header extensions and payload types from a session description; prints what the configuration file
    /// needs
    Learn {
        /// Name of the [media] table, for `flow add --media NAME`
        #[arg(value_parser = value::<MediaName>)]
        name: MediaName,
        /// The session description (SDP), as the server sends it
        #[arg(long, value_name = "FILE")]
        sdp: PathBuf,
        /// Write the [media] table to the configuration file, and take it into use
        #[arg(long)]
        save: bool,
    },
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Ls => {
            let list: MediaList = client.get(path::MEDIA).await?;
            output.answer(&list, render)?;
        }
        Verb::Learn { name, sdp, save } => {
            let name = name.for_table().map_err(Failure::Usage)?;
            let learned = learn(&sdp)?;
            if !save {
                output.answer(&learned, |learned| learned.to_toml(name.as_str()))?;
                return Ok(ExitCode::SUCCESS);
            }
            if learned.media == MediaTable::default() {
                let why = format!(
                    "{} names no header extension that bestby reads",
                    sdp.display()
                );
                let hint = "Dependency Descriptor or frame marking; without --save payload types are printed";
                return Err(Failure::new(why, hint));
            }
            let path = format!("{}/{}", path::MEDIA, part(name.as_str()));
            output.done(&client.send(Method::PUT, &path, &learned.media).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a session description.
fn learn(file: &Path) -> Result<Learned, Failure> {
    let shown = file.display().to_string();
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|f| f.take(MAX_SDP as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| Failure::new(format!("cannot read {shown}: {e}"), ""))?;
    let text = String::from_utf8_lossy(&bytes);
    Learned::parse(&text, &shown).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::new(lines.join("\n"), "nothing of it was taken")
    })
}

/// The codec, or how far it is known.
fn codec(s: &MediaStream) -> String {
    match (&s.codec, &s.learning) {
        (Some(known), _) => codec_words(known),
        (None, Some(l)) => format!("{}? {} of {}", codec_words(&l.codec), l.frames, l.of),
        (None, None) => "?".into(),
    }
}

fn end(addr: Option<IpAddr>, port: Option<u16>) -> Option<SocketAddr> {
    Some(SocketAddr::new(addr?, port?))
}

/// Which frames are not sent, and for how many frames of the stream.
fn broken(p: &Pictures) -> Option<String> {
    let level = p.broken_level?;
    let frames = p.broken_frames.unwrap_or_default();
    Some(format!("level {level}, {frames} frames"))
}

/// The list of streams.
pub(crate) fn render(list: &MediaList) -> String {
    if list.streams.is_empty() {
        return "no stream of RTP or MPEG-TS that a flow rule covers was sent in the last minute\n"
            .into();
    }
    let mut table = Table::new(&[
        "RULE",
        "FROM",
        "TO",
        "SSRC",
        ">PT",
        "CODEC",
        ">LEVELS",
        ">GROUP",
        ">SINCE KEY",
        "BROKEN",
        ">SKIPPED",
        "REPAIRED",
        ">IDLE",
    ]);
    for s in &list.streams {
        let p = s.pictures.as_ref();
        let in_rtp = s.payload_type != 33 || s.ssrc.get() != 0;
        table.row(vec![
            (&s.flow).into(),
            or_dash(end(s.src, s.sport)).into(),
            or_dash(end(s.dst, s.dport)).into(),
            or_dash(in_rtp.then_some(s.ssrc)).into(),
            or_dash(in_rtp.then_some(s.payload_type)).into(),
            codec(s).into(),
            or_dash(p.map(|p| p.levels)).into(),
            or_dash(p.and_then(|p| p.group_frames)).into(),
            or_dash(p.and_then(|p| p.since_key_frames)).into(),
            or_dash(p.and_then(broken)).into(),
            or_dash(p.map(|p| p.skipped_frames).filter(|n| *n > 0)).into(),
            or_dash(p.filter(|p| p.repaired).map(|_| "yes")).into(),
            time(s.idle_ns).into(),
        ]);
    }
    let mut text = table
        .without_empty(&[
            "LEVELS",
            "GROUP",
            "SINCE KEY",
            "BROKEN",
            "SKIPPED",
            "REPAIRED",
        ])
        .render();
    if list.left_out > 0 {
        let _ = writeln!(
            text,
            "({} more, which were silent for longer)",
            list.left_out
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> MediaList {
        let of = |more: serde_json::Value| {
            let mut json = serde_json::json!({
                "flow": "video", "dev": "eth0", "src": "10.0.0.1", "sport": 5004, "dst": "2001:db8::7",
                "dport": 6000, "ssrc": 7, "payload_type": 96, "idle_ns": 20_000_000,
            });
            for (key, value) in more.as_object().unwrap() {
                json[key] = value.clone();
            }
            json
        };
        serde_json::from_value(serde_json::json!({"left_out": 3, "streams": [
            of(serde_json::json!({"codec": "h264", "pictures": {"levels": 1, "group_frames": 60,
                "since_key_frames": 12, "broken_level": 0, "broken_frames": 9, "skipped_frames": 21,
                "repaired": true}})),
            of(serde_json::json!({"learning": {"codec": "vp8", "frames": 12, "of": 32}})),
            of(serde_json::json!({"codec": "opaque", "src": null, "sport": null})),
            of(serde_json::json!({"codec": "off"})),
            of(serde_json::json!({})),
        ]}))
        .unwrap()
    }

    #[test]
    fn media_ls_prints_what_is_known_of_each_stream() {
        let text = anstream::adapter::strip_str(&render(&list())).to_string();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let first = "video 10.0.0.1:5004 [2001:db8::7]:6000 0x00000007 96 H.264 1 60 12 level 0, 9 frames 21 yes 20ms";
        assert_eq!(rows[1].join(" "), first);
        assert!(text.contains("VP8? 12 of 32"), "{text}");
        assert!(text.contains("opaque") && text.contains("off"), "{text}");
        assert!(
            text.ends_with("(3 more, which were silent for longer)\n"),
            "{text}"
        );
        assert!(render(&MediaList::default()).starts_with("no stream of RTP"));
    }

    #[test]
    fn list_without_pictures_has_no_columns_for_them() {
        let mut list = list();
        list.streams.remove(0);
        assert!(!render(&list).contains("GROUP"));
    }
}
