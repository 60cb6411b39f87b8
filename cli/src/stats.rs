//! `bestby stats`: counters.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bestby_api::{Counters, Drops, GlobalCounters, Stats, path};

use crate::client::Client;
use crate::failure::Failure;
use crate::format::bytes;
use crate::output::Output;
use crate::table::Table;

pub(crate) async fn run(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let stats: Stats = client.get(path::STATS).await?;
    output.answer(&stats, render)?;
    Ok(ExitCode::SUCCESS)
}

/// `12 (stale 10, adu 2)`.
pub(crate) fn drop_reasons(drops: &Drops) -> String {
    let reasons: Vec<String> = [
        ("stale", drops.stale),
        ("adu", drops.adu),
        ("overflow", drops.overflow),
        ("evicted", drops.evicted),
        ("predicted", drops.predicted),
    ]
    .iter()
    .filter(|(_, n)| *n > 0)
    .map(|(reason, n)| format!("{reason} {n}"))
    .collect();
    if reasons.is_empty() {
        "0".into()
    } else {
        format!("{} ({})", drops.total(), reasons.join(", "))
    }
}

/// A table for each kind of object and, if anything is unusual, one of the host.
pub(crate) fn render(stats: &Stats) -> String {
    let mut parts = Vec::new();
    for (heading, counters) in [
        ("FLOW", &stats.flows),
        ("SESSION", &stats.sessions),
        ("INTERFACE", &stats.interfaces),
    ] {
        if !counters.is_empty() {
            parts.push(table(heading, counters));
        }
    }
    if parts.is_empty() {
        return "nothing is counted yet: no interface is under control\n".into();
    }
    if !stats.payload_types.is_empty() {
        parts.push(table("RTP PAYLOAD TYPE", &stats.payload_types));
    }
    let global = global(&stats.global);
    if !global.is_empty() {
        parts.push(global);
    }
    parts.join("\n")
}

fn table<K: ToString>(heading: &'static str, counters: &BTreeMap<K, Counters>) -> String {
    let mut table = Table::new(&[
        heading,
        ">IN",
        ">BYTES IN",
        ">SENT",
        ">BYTES SENT",
        ">QUEUED",
        ">DROPPED",
        ">STALE",
        ">ADU",
        ">OVERFLOW",
        ">EVICTED",
        ">PREDICTED",
        ">SENT STALE",
        ">TRUNCATED",
        ">WOULD DROP",
    ]);
    for (name, c) in counters {
        table.row(vec![
            name.to_string().into(),
            c.packets_in.into(),
            bytes(c.bytes_in).into(),
            c.packets_sent.into(),
            bytes(c.bytes_sent).into(),
            c.queued.into(),
            c.dropped.total().into(),
            c.dropped.stale.into(),
            c.dropped.adu.into(),
            c.dropped.overflow.into(),
            c.dropped.evicted.into(),
            c.dropped.predicted.into(),
            c.sent_stale.into(),
            c.truncated.into(),
            c.would_drop.total().into(),
        ]);
    }
    table
        .without_empty(&[
            "OVERFLOW",
            "EVICTED",
            "PREDICTED",
            "TRUNCATED",
            "WOULD DROP",
        ])
        .render()
}

fn global(g: &GlobalCounters) -> String {
    let mut table = Table::new(&["HOST", ">COUNT", "MEANING"]);
    for (name, n, meaning) in g.named() {
        if n > 0 {
            table.row(vec![name.into(), n.into(), meaning.into()]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        table.render()
    }
}
