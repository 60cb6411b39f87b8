//! From what was found to the rows that the operator reads. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bestby_api::{Carried, Discovered, FlowName, PortRange, Proto, Ssrc};

use crate::discover::anchor::Anchor;
use crate::discover::flow::Found;
use crate::discover::packet::Key;
use crate::faces::delay::Delay;

/// Rows that are told of: a person reads fewer.
const ROWS: usize = 100;

/// A finding, with all that a row needs.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) found: Found,
    pub(crate) anchor: Anchor,
    /// The rule that covers it.
    pub(crate) rule: Option<FlowName>,
}

/// The protocol that a rule may compare.
fn proto(of: u8) -> Option<Proto> {
    match of {
        Key::UDP => Some(Proto::Udp),
        Key::TCP => Some(Proto::Tcp),
        _ => None,
    }
}

/// From the first of some ports to the last; `None`: there are none.
pub(crate) fn range(ports: impl Iterator<Item = u16>) -> Option<PortRange> {
    let (first, last) = ports
        .filter(|port| *port > 0)
        .fold((u16::MAX, 0), |(a, b), port| (a.min(port), b.max(port)));
    PortRange::new(first, last)
}

/// The value that all have; `None`: they differ.
fn one<T: PartialEq>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.all(|next| next == first).then_some(first)
}

/// The rows, media first and then by rate; and how many were left out.
pub(crate) fn rows(streams: &[Stream], delay: impl Fn(IpAddr) -> Delay) -> (Vec<Discovered>, u64) {
    let mut groups: BTreeMap<_, Vec<&Stream>> = BTreeMap::new();
    for s in streams {
        let f = &s.found;
        let types = f.types.map(|types| types.to_string());
        let anchor = match f.kind {
            // Each receiver has its own: no port is worth a row.
            Carried::Stun | Carried::Dtls | Carried::Rtcp if f.webrtc => Anchor::Any,
            _ => s.anchor,
        };
        let key = (
            f.key.proto,
            f.kind,
            types,
            f.repeats,
            anchor,
            s.rule.clone(),
        );
        groups.entry(key).or_default().push(s);
    }
    let mut rows: Vec<Discovered> = groups.into_values().map(|all| row(&all, &delay)).collect();
    rows.sort_by_key(|row| {
        let signalling = row.kind.is_signalling() || row.kind == Carried::Dtls;
        let rank = match (row.kind.is_media(), signalling) {
            (true, _) => 0,
            (_, true) => 1,
            _ => 2,
        };
        (rank, std::cmp::Reverse(row.rate_bytes_s))
    });
    let left_out = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    (rows, left_out as u64)
}

fn row(all: &[&Stream], delay: impl Fn(IpAddr) -> Delay) -> Discovered {
    let found = || all.iter().map(|s| &s.found);
    let per_second = |of: fn(&Found) -> u64| {
        let rates = found().map(|f| of(f) as f64 * 1e9 / f.watched_ns as f64);
        rates.sum::<f64>()
    };
    let flows: BTreeSet<Key> = found().map(|f| f.key).collect();
    let receivers: BTreeSet<_> = flows.iter().map(|k| (k.dst, k.dport)).collect();
    let addresses: BTreeSet<IpAddr> = flows.iter().map(|k| k.dst).collect();
    let known: Vec<Delay> = addresses
        .into_iter()
        .map(delay)
        .filter(|delay| delay.owd_ns.is_some())
        .collect();
    let longest = known.iter().max_by_key(|delay| delay.owd_ns);
    let first = all.first().map(|s| &s.found);
    let nulls: Vec<u64> = found()
        .filter_map(|f| f.null_percent.map(u64::from))
        .collect();
    Discovered {
        kind: first.map_or(Carried::Other, |f| f.kind),
        proto: first.and_then(|f| proto(f.key.proto)),
        src: one(found().map(|f| f.key.src)),
        sport: range(found().map(|f| f.key.sport)),
        dst: one(found().map(|f| f.key.dst)),
        dport: range(found().map(|f| f.key.dport)),
        rtp_pt: first.and_then(|f| f.types),
        ssrc: one(found().map(|f| f.ssrc)).flatten().map(Ssrc::new),
        clock_hz: one(found().map(|f| f.clock_hz)).flatten(),
        repeats: first.and_then(|f| f.repeats),
        latency: found().filter_map(|f| f.latency).max(),
        null_percent: nulls
            .iter()
            .sum::<u64>()
            .checked_div(nulls.len() as u64)
            .and_then(|n| u8::try_from(n).ok()),
        flows: flows.len() as u64,
        receivers: receivers.len() as u64,
        packets_s: (per_second(|f| f.all.packets) * 10.0).round() / 10.0,
        rate_bytes_s: per_second(|f| f.all.bytes).round() as u64,
        flow: all.first().and_then(|s| s.rule.clone()),
        owd_ns: longest.and_then(|delay| delay.owd_ns),
        owd_source: longest.map(|delay| delay.source).unwrap_or_default(),
        owd_known: known.len() as u64,
    }
}
