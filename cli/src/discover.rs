//! `bestby discover`: which media leave an interface, and the flow rules that would cover them.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use bestby_api::{
    Carried, DevName, DiscoverRequest, Discovered, Discovery, Done, FlowAdd, FlowAdds, PortRange,
    Suggestion, path,
};
use clap::Args;
use hyper::Method;
use serde::Serialize;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{count, measured_rate, or_dash, time};
use crate::output::Output;
use crate::setting::value;
use crate::table::Table;

#[derive(Debug, Args)]
pub(crate) struct What {
    /// Interface to watch [default: the one under control, else the one of the default route]
    #[arg(value_parser = value::<DevName>)]
    dev: Option<DevName>,
    /// How long to watch, 1 to 60
    #[arg(long, value_name = "N", default_value_t = DiscoverRequest::USUAL)]
    seconds: u32,
    /// Set the rules, and write them to the configuration file: all of them or none
    #[arg(long)]
    save: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    discovery: &'a Discovery,
    /// With `--save`: what was done; absent: there was nothing to set.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<&'a Done>,
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let request = DiscoverRequest {
        dev: what.dev,
        seconds: Some(what.seconds),
    };
    let takes = Duration::from_secs(what.seconds.into());
    let on = request
        .dev
        .as_ref()
        .map_or(String::new(), |dev| format!("{dev} "));
    // A person waits; in the log of a script it says nothing.
    if std::io::stderr().is_terminal() && DiscoverRequest::SECONDS.contains(&what.seconds) {
        output.note(&format!("watching {on}for {} s ...", what.seconds));
    }
    let discovery: Discovery = client
        .send_and_wait(Method::POST, path::DISCOVER, &request, takes)
        .await?;
    let saved = if what.save && !discovery.rules.is_empty() {
        let rules = discovery.rules.iter();
        let adds = rules.map(|s| FlowAdd {
            flow: s.flow.clone(),
            before: None,
            save: true,
        });
        let adds = FlowAdds(adds.collect());
        let done: Done = client.send(Method::POST, path::FLOWS, &adds).await?;
        for warning in &done.warnings {
            output.note(&format!("warning: {warning}"));
        }
        Some(done)
    } else {
        None
    };
    let answer = Answer {
        discovery: &discovery,
        saved: saved.as_ref(),
    };
    output.answer(&answer, |answer| {
        render(answer.discovery, answer.saved, what.save)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `10.0.0.1:5004`, `10.0.0.1:5004-5010`, `*:5004`, `*`.
fn place(addr: Option<std::net::IpAddr>, ports: Option<PortRange>) -> String {
    let addr = match addr {
        Some(addr) if addr.is_ipv6() && ports.is_some() => format!("[{addr}]"),
        Some(addr) => addr.to_string(),
        None => "*".into(),
    };
    ports.map_or_else(|| addr.clone(), |ports| format!("{addr}:{ports}"))
}

/// Name of a kind, with its clock, latency or padding.
fn carries(row: &Discovered) -> String {
    let name = match row.kind {
        Carried::RtpTs => "MPEG-TS in RTP".into(),
        Carried::Ts => "MPEG-TS".into(),
        Carried::Audio | Carried::Video | Carried::Other => row.kind.to_string(),
        Carried::Rtx => "repeats".into(),
        Carried::Turn => "TURN channels".into(),
        kind => kind.to_string().to_uppercase(),
    };
    let more = [
        row.clock_hz
            .filter(|_| row.kind != Carried::Rtx)
            .map(|hz| format!("{} kHz", f64::from(hz) / 1000.0)),
        row.repeats.map(|of| format!("of {of}")),
        row.latency.map(|latency| {
            let word = if latency.granted { "grants" } else { "asks" };
            format!("{word} {} ms", latency.ms)
        }),
        row.null_percent.map(|nulls| format!("{nulls} % padding")),
    ];
    let more: Vec<String> = more.into_iter().flatten().collect();
    if more.is_empty() {
        name
    } else {
        format!("{name}, {}", more.join(", "))
    }
}

/// The rule, or why there is none.
fn rule(row: &Discovered) -> String {
    match &row.flow {
        Some(flow) => flow.to_string(),
        None if row.kind.is_signalling() => "needs none".into(),
        None if row.kind.is_media() => "none".into(),
        None => "-".into(),
    }
}

fn streams(rows: &[Discovered]) -> String {
    let mut table = Table::new(&[
        "KIND",
        "PT",
        "FROM",
        "TO",
        ">RECEIVERS",
        ">RATE",
        ">PACKETS/S",
        ">OWD",
        "OWD FROM",
        "RULE",
    ]);
    for row in rows {
        let owd = row.owd_ns.map(|ns| match row.owd_known {
            0 | 1 => time(ns),
            _ => format!("<= {}", time(ns)),
        });
        table.row(vec![
            carries(row).into(),
            or_dash(row.rtp_pt).into(),
            place(row.src, row.sport).into(),
            place(row.dst, row.dport).into(),
            row.receivers.into(),
            measured_rate(row.rate_bytes_s).into(),
            format!("{:.1}", row.packets_s).into(),
            or_dash(owd).into(),
            or_dash(row.owd_ns.map(|_| row.owd_source)).into(),
            rule(row).into(),
        ]);
    }
    table.without_empty(&["PT", "OWD", "OWD FROM"]).render()
}

/// Lines of a comment, of a hundred characters at most.
fn comment(words: &str) -> String {
    let mut lines = vec!["#".to_string()];
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 100 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}

fn commands(rules: &[Suggestion]) -> String {
    let mut text = String::new();
    for s in rules {
        let _ = writeln!(text, "{}{} --save", comment(&s.reason), s.flow.command());
    }
    text
}

fn toml(rules: &[Suggestion]) -> String {
    let tables = rules.iter().map(|s| comment(&s.reason) + &s.flow.toml());
    tables.collect::<Vec<_>>().join("\n")
}

/// Streams, rules, and the rules that were set.
pub(crate) fn render(d: &Discovery, saved: Option<&Done>, save: bool) -> String {
    let mut text = format!(
        "{}: {} packets in {}\n",
        d.dev,
        d.packets,
        time(d.watched_ns / 100_000_000 * 100_000_000)
    );
    if d.one_of > 1 {
        let _ = writeln!(
            text,
            "too many packets: after a while only one of {} flows was looked at",
            d.one_of
        );
    }
    if d.missed > 0 {
        let _ = writeln!(
            text,
            "{} packets came too fast to be looked at; all of them left as usual",
            d.missed
        );
    }
    if d.beyond > 0 {
        let _ = writeln!(
            text,
            "{} packets were of flows beyond the 4096 that are told apart",
            d.beyond
        );
    }
    if d.streams.is_empty() {
        text += "nothing left the interface in this time\n";
    } else {
        text.push('\n');
        text += &streams(&d.streams);
    }
    if d.left_out > 0 {
        let _ = writeln!(text, "({} rows with lower rates left out)", d.left_out);
    }
    if !d.rules.is_empty() {
        let what = count(d.rules.len(), "rule");
        let _ = write!(
            text,
            "\n{what} for media that no rule covers, as commands:\n\n{}",
            commands(&d.rules)
        );
        let _ = write!(
            text,
            "\nThe same for the configuration file:\n\n{}",
            toml(&d.rules)
        );
    } else if d.streams.iter().any(|row| row.kind.is_media()) {
        text += "\nno rule to add: those in force cover what is known to be media\n";
    } else if !d.streams.is_empty() {
        text += "\nno media were seen: is this the interface, and was something played?\n";
    }
    if !d.notes.is_empty() {
        text.push('\n');
    }
    for note in &d.notes {
        let _ = writeln!(text, "{note}");
    }
    match saved {
        Some(done) => {
            let _ = writeln!(text, "\n{}, and written to the file", done.message);
        }
        None if save => text += "\nnothing was set\n",
        None if !d.rules.is_empty() => {
            let _ = writeln!(
                text,
                "\nNothing was changed. bestby discover {} --save watches again and sets such rules.",
                d.dev
            );
        }
        None => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discovery(streams: serde_json::Value, rules: serde_json::Value) -> Discovery {
        serde_json::from_value(serde_json::json!({
            "dev": "eth0", "watched_ns": 10_012_345_678_u64, "packets": 5000, "one_of": 1, "streams": streams,
            "rules": rules, "notes": ["eth0 is not under control"],
        }))
        .unwrap()
    }

    fn plain(d: &Discovery, saved: Option<&Done>, save: bool) -> String {
        anstream::adapter::strip_str(&render(d, saved, save)).to_string()
    }

    #[test]
    fn streams_and_rules_are_printed() {
        let d = discovery(
            serde_json::json!([
                {"kind": "audio", "proto": "udp", "src": "10.0.0.1", "sport": "7882", "dport": "50000-50099",
                 "rtp_pt": "111", "clock_hz": 48000, "flows": 100, "receivers": 100, "packets_s": 5000.0,
                 "rate_bytes_s": 600_000, "owd_ns": 40_000_000, "owd_source": "stun", "owd_known": 7},
                {"kind": "srt", "proto": "udp", "src": "10.0.0.1", "sport": "9000", "dst": "2001:db8::7",
                 "dport": "40000", "latency": {"ms": 400, "granted": true}, "flows": 1, "receivers": 1,
                 "packets_s": 100.0, "rate_bytes_s": 125_000, "flow": "srt"},
                {"kind": "stun", "proto": "udp", "flows": 1, "receivers": 1, "packets_s": 0.4, "rate_bytes_s": 40},
            ]),
            serde_json::json!([{"reason": "audio: small", "flow": {"name": "audio", "proto": "udp", "sport": 7882,
                "rtp_pt": "111", "lifetime": "200ms", "priority": 0}}]),
        );
        let text = plain(&d, None, false);
        for part in [
            "eth0: 5000 packets in 10s",
            "audio, 48 kHz",
            "10.0.0.1:7882",
            "*:50000-50099",
            "<= 40ms",
            "SRT, grants 400 ms",
            "[2001:db8::7]:40000",
            "needs none",
            "# audio: small\nbestby flow add audio --proto udp --sport 7882 --rtp-pt 111 --lifetime 200ms --priority 0 --save\n",
            "# audio: small\n[[flow]]\nname = \"audio\"\n",
            "eth0 is not under control\n",
            "Nothing was changed.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let done = Done {
            message: "flow rule \"audio\" added".into(),
            warnings: Vec::new(),
        };
        let text = plain(&d, Some(&done), true);
        assert!(text.contains("added, and written to the file"), "{text}");
        assert!(!text.contains("Nothing was changed"), "{text}");
    }

    #[test]
    fn long_reason_is_folded() {
        let long = ["word"; 50].join(" ");
        let text = comment(&long);
        assert!(
            text.lines()
                .all(|l| l.starts_with("# word") && l.len() <= 100)
        );
        assert_eq!(text.lines().count(), 3);
        assert_eq!(
            text.replace("\n#", "").trim_start_matches("# "),
            long + "\n"
        );
    }

    #[test]
    fn nothing_to_set_is_said() {
        let none = serde_json::json!([]);
        let text = plain(&discovery(none.clone(), none.clone()), None, true);
        assert!(
            text.contains("nothing left") && text.contains("nothing was set"),
            "{text}"
        );
        let tcp = serde_json::json!([{"kind": "tcp", "flows": 1, "receivers": 1, "packets_s": 1.0, "rate_bytes_s": 9}]);
        let text = plain(&discovery(tcp, none), None, false);
        assert!(text.contains("no media were seen"), "{text}");
    }
}
