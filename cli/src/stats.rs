//! `bestby stats`: counters.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bestby_api::{Counters, Delay, Drops, GlobalCounters, Leaf, Stats, path};
use clap::Args;
use serde::Serialize;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{bytes, count, time};
use crate::output::Output;
use crate::rank::{Sort, nearest};
use crate::table::Table;

#[derive(Debug, Args)]
pub(crate) struct What {
    /// Only this flow rule; `-`: what no rule matches
    #[arg(value_name = "FLOW", allow_hyphen_values = true)]
    flow: Option<String>,
    /// What comes first
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::Name)]
    sort: Sort,
    /// Rows of each table at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let mut stats: Stats = client.get(path::STATS).await?;
    if let Some(flow) = &what.flow {
        stats = only(stats, flow)?;
    }
    let shown = first(stats, what.sort, what.top);
    output.answer(&shown, |shown| render(shown, what.sort))?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed of the counters.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    stats: Stats,
    /// Rows that `--top` left out, by table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    left_out: BTreeMap<&'static str, usize>,
}

/// The first rows of each table; all of them without a limit.
pub(crate) fn first(mut stats: Stats, sort: Sort, top: Option<u32>) -> Shown {
    let most = top.map_or(usize::MAX, |n| n as usize);
    let left_out = BTreeMap::from([
        ("flows", keep(&mut stats.flows, sort, most)),
        ("sessions", keep(&mut stats.sessions, sort, most)),
        ("interfaces", keep(&mut stats.interfaces, sort, most)),
        ("payload_types", keep(&mut stats.payload_types, sort, most)),
    ]);
    let left_out = left_out.into_iter().filter(|(_, rows)| *rows > 0).collect();
    Shown { stats, left_out }
}

/// The counters of one flow rule.
pub(crate) fn only(stats: Stats, flow: &str) -> Result<Stats, Failure> {
    let Some(counters) = stats.flows.get(flow) else {
        let hint = match nearest(flow, stats.flows.keys()) {
            Some(name) => format!("did you mean {name}?"),
            None => "bestby flow ls shows them".into(),
        };
        return Err(Failure::new(format!("there is no flow rule {flow}"), hint));
    };
    Ok(Stats {
        flows: [(flow.to_string(), *counters)].into(),
        ..Stats::default()
    })
}

/// Keeps the first rows of a table; how many it leaves out.
fn keep<K: Ord + Clone>(all: &mut BTreeMap<K, Counters>, sort: Sort, most: usize) -> usize {
    let left_out = all.len().saturating_sub(most);
    if left_out > 0 {
        let first: BTreeMap<K, Counters> = sorted(all, sort)
            .into_iter()
            .take(most)
            .map(|(name, counters)| (name.clone(), *counters))
            .collect();
        *all = first;
    }
    left_out
}

fn sorted<K: Ord>(all: &BTreeMap<K, Counters>, sort: Sort) -> Vec<(&K, &Counters)> {
    let mut rows: Vec<_> = all.iter().collect();
    sort.sort(&mut rows, |(_, counters)| counters);
    rows
}

/// `12 (stale 10, adu 2)`.
pub(crate) fn drop_reasons(drops: &Drops) -> String {
    let reasons: Vec<String> = drops
        .by_name()
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
pub(crate) fn render(shown: &Shown, sort: Sort) -> String {
    let stats = &shown.stats;
    let rest = |table, row| {
        let rows = shown.left_out.get(table);
        rows.map_or_else(String::new, |rows| {
            format!("and {} that --top leaves out\n", count(*rows, row))
        })
    };
    let mut parts = Vec::new();
    for (heading, counters, name, row) in [
        ("FLOW", &stats.flows, "flows", "flow"),
        ("SESSION", &stats.sessions, "sessions", "session"),
        ("INTERFACE", &stats.interfaces, "interfaces", "interface"),
    ] {
        if !counters.is_empty() {
            parts.push(table(heading, counters, sort) + &rest(name, row));
        }
    }
    if parts.is_empty() {
        return "nothing is counted yet: no interface is under control\n".into();
    }
    let delays = delays(&stats.delays);
    if !delays.is_empty() {
        parts.push(delays.render());
    }
    let leaves = leaves(&stats.leaves);
    if !leaves.is_empty() {
        parts.push(leaves.render());
    }
    if !stats.payload_types.is_empty() {
        let rest = rest("payload_types", "payload type");
        parts.push(table("RTP PAYLOAD TYPE", &stats.payload_types, sort) + &rest);
    }
    let global = global(&stats.global);
    if !global.is_empty() {
        parts.push(global);
    }
    parts.join("\n")
}

fn table<K: ToString + Ord>(
    heading: &'static str,
    counters: &BTreeMap<K, Counters>,
    sort: Sort,
) -> String {
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
        ">CODEL",
        ">CHAIN",
        ">SENT STALE",
        ">TRUNCATED",
        ">WOULD DROP",
    ]);
    for (name, c) in sorted(counters, sort) {
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
            c.dropped.codel.into(),
            c.dropped.chain.into(),
            c.sent_stale.into(),
            c.truncated.into(),
            c.would_drop.total().into(),
        ]);
    }
    table
        .without_empty(&[
            "STALE",
            "ADU",
            "SENT STALE",
            "OVERFLOW",
            "EVICTED",
            "PREDICTED",
            "CODEL",
            "CHAIN",
            "TRUNCATED",
            "WOULD DROP",
        ])
        .render()
}

/// `8.38ms`; `over 8.58s` beyond the histogram's end.
pub(crate) fn waited(at_most_ns: Option<u64>) -> String {
    at_most_ns.map_or_else(|| format!("over {}", time(Delay::LONGEST_NS)), time)
}

/// Mode qdisc: how long those waited that left.
fn delays(delays: &BTreeMap<String, Delay>) -> Table {
    let mut table = Table::new(&["DELAY (AT MOST)", ">PACKETS", ">HALF", ">99 OF 100"]);
    for (dev, delay) in delays {
        table.row(vec![
            dev.into(),
            delay.packets.into(),
            waited(delay.p50_ns).into(),
            waited(delay.p99_ns).into(),
        ]);
    }
    table
}

/// Mode tc: `SENT` above ends where the classifier admits a packet to its leaf; this is what became of it there.
fn leaves(leaves: &BTreeMap<String, Vec<Leaf>>) -> Table {
    let mut table = Table::new(&[
        "LEAF (MODE TC)",
        ">LEFT",
        ">BYTES LEFT",
        ">QUEUED",
        ">QUEUED BYTES",
        ">DROPPED",
        ">DELAY NOW",
    ]);
    for (dev, leaves) in leaves {
        for leaf in leaves {
            if leaf.packets_sent + leaf.queued + leaf.dropped == 0 {
                continue;
            }
            table.row(vec![
                format!("{dev} {}", leaf.holds).into(),
                leaf.packets_sent.into(),
                bytes(leaf.bytes_sent).into(),
                leaf.queued.into(),
                bytes(leaf.queued_bytes).into(),
                leaf.dropped.into(),
                time(leaf.delay_ns).into(),
            ]);
        }
    }
    table
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
