//! `bestby explain`: which rule and which source decide for a packet.

use std::fmt::Write as _;
use std::process::ExitCode;

use bestby_api::{
    DevName, ExplainRequest, Explanation, PacketDescription, Source, ValueError, path,
};
use clap::Args;
use hyper::Method;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{or_dash, time};
use crate::output::Output;
use crate::setting::value;
use crate::table::Table;

#[derive(Debug, Args)]
pub(crate) struct What {
    /// Interface the packet leaves by
    #[arg(value_parser = value::<DevName>)]
    dev: DevName,
    /// udp|tcp [SRC[:PORT] to] DST[:PORT] [dscp D] [mark M] [priority P] [cgroup PATH] [len BYTES] [rtp PT] [ssrc N] [payload HEX] [option TIME[/TREATMENT]]
    #[arg(required = true, num_args = 1.., value_name = "PACKET-DESCRIPTION", allow_hyphen_values = true)]
    packet: Vec<String>,
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let packet: PacketDescription = what
        .packet
        .join(" ")
        .parse()
        .map_err(|e: ValueError| Failure::Usage(format!("{e}\n  allowed: {}", e.allowed)))?;
    let request = ExplainRequest {
        dev: what.dev,
        packet,
    };
    let answer: Explanation = client.send(Method::POST, path::EXPLAIN, &request).await?;
    output.answer(&answer, render)?;
    Ok(ExitCode::SUCCESS)
}

/// The sources, the rules, and what follows from them.
pub(crate) fn render(e: &Explanation) -> String {
    let mode = e
        .mode
        .as_ref()
        .map_or_else(|| "not under control".into(), |m| format!("mode {m}"));
    let mut text = format!("{} leaving by {} ({mode})\n\n", e.packet, e.dev);
    let mut table = Table::new(&["SOURCE", "DECIDES", "SAYS"]);
    for s in &e.sources {
        if s.source == Source::None && s.decides.is_empty() && s.says.is_empty() {
            continue;
        }
        let decides = if s.decides.is_empty() {
            "-".to_string()
        } else {
            s.decides.join(", ")
        };
        table.row(vec![s.source.into(), decides.into(), (&s.says).into()]);
    }
    text += &table.render();
    if !e.rules.is_empty() {
        let mut table = Table::new(&["RULE", "", "WHY"]);
        for r in &e.rules {
            let found = if r.wins { "matches" } else { "no" };
            table.row(vec![(&r.flow).into(), found.into(), (&r.because).into()]);
        }
        let _ = write!(text, "\n{}", table.render());
        if e.rules_left_out > 0 {
            let _ = writeln!(text, "({} more rules that do not match)", e.rules_left_out);
        }
    }
    let lifetime = match e.lifetime_ns {
        None => "no deadline, never stale".to_string(),
        Some(ns @ 0..) => format!("deadline in {}", time(ns.unsigned_abs())),
        Some(ns) => format!("deadline {} ago", time(ns.unsigned_abs())),
    };
    let owd = match (e.owd_ns, e.owd_age_ns) {
        (None, _) => "not known, 0 is assumed".to_string(),
        (Some(ns), None) => format!("{} ({})", time(ns), e.owd_source),
        (Some(ns), Some(age)) => format!("{} ({}, {} ago)", time(ns), e.owd_source, time(age)),
    };
    let mut table = Table::new(&["RESULT", ""]);
    for (name, value) in [
        ("flow", e.flow.clone()),
        (
            "session",
            or_dash(Some(&e.session).filter(|s| !s.is_empty())),
        ),
        ("lifetime", lifetime),
        ("priority", e.priority.to_string()),
        ("treatment", e.treatment.clone()),
        ("one-way delay", owd),
        ("payload", e.read_as.clone()),
    ] {
        if value.is_empty() {
            continue;
        }
        table.row(vec![name.into(), value.into()]);
    }
    let _ = write!(text, "\n{}\n{}\n", table.render(), e.verdict);
    for note in &e.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}
