//! The port by which a rule finds a stream: the one that stays when receivers come and go. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bestby_api::{Carried, PayloadTypes};

use crate::discover::flow::Found;
use crate::discover::packet::Key;

/// Systems give ports from here on to sockets that ask for none.
const EPHEMERAL: u16 = 32_768;
/// Ports of one kind of stream that are told apart; more are one for each receiver.
const PORTS: usize = 4;

/// What a rule compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Anchor {
    /// The source port: a server that answers from it.
    Sport(u16),
    /// The destination port: a sender that was told where to.
    Dport(u16),
    /// Neither stays.
    Any,
}

fn stays(port: u16) -> bool {
    port != 0 && port < EPHEMERAL
}

/// The anchor of each.
pub(crate) fn anchors(found: &[Found]) -> Vec<Anchor> {
    let mut receivers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let mut dports: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for f in found {
        let socket = (f.key.proto, f.key.src, f.key.sport);
        receivers
            .entry(socket)
            .or_default()
            .insert((f.key.dst, f.key.dport));
        dports.entry(socket).or_default().insert(f.key.dport);
    }
    let one = |f: &Found| {
        let key = &f.key;
        if key.proto != Key::UDP && key.proto != Key::TCP {
            return Anchor::Any;
        }
        let socket = (key.proto, key.src, key.sport);
        let several = receivers.get(&socket).is_some_and(|r| r.len() > 1);
        let one_dport = dports.get(&socket).is_some_and(|d| d.len() == 1);
        match (stays(key.sport), stays(key.dport)) {
            _ if f.listener == Some(true) => Anchor::Sport(key.sport),
            _ if f.listener == Some(false) => Anchor::Dport(key.dport),
            (sport, _) if f.webrtc && (sport || several) => Anchor::Sport(key.sport),
            _ if f.webrtc => Anchor::Any,
            (true, true) if key.proto == Key::TCP => {
                // The lower one is the service's.
                if key.sport <= key.dport {
                    Anchor::Sport(key.sport)
                } else {
                    Anchor::Dport(key.dport)
                }
            }
            // One socket for many groups of one port.
            (_, true) if !several || one_dport => Anchor::Dport(key.dport),
            (sport, _) if sport || several => Anchor::Sport(key.sport),
            (_, true) => Anchor::Dport(key.dport),
            _ if f.types.is_none() && f.kind.is_media() => Anchor::Dport(key.dport),
            _ => Anchor::Any,
        }
    };
    let mut all: Vec<Anchor> = found.iter().map(one).collect();
    widen(found, &mut all);
    all
}

/// Where each receiver has a source port of its own, ports choose nothing: payload types do, if no type is of two
/// kinds.
fn widen(found: &[Found], anchors: &mut [Anchor]) {
    let mut kinds: BTreeMap<u8, BTreeSet<Carried>> = BTreeMap::new();
    let mut ports: BTreeMap<(Carried, Option<String>), BTreeSet<Anchor>> = BTreeMap::new();
    let name = |types: Option<PayloadTypes>| types.map(|t| t.to_string());
    for (f, anchor) in found.iter().zip(anchors.iter()) {
        for payload_type in f.types.iter().flat_map(|types| types.iter()) {
            kinds.entry(payload_type).or_default().insert(f.kind);
        }
        ports
            .entry((f.kind, name(f.types)))
            .or_default()
            .insert(*anchor);
    }
    for (f, anchor) in found.iter().zip(anchors) {
        let Some(types) = f.types.filter(|_| f.kind != Carried::Rist) else {
            continue;
        };
        let alone = |t| kinds.get(&t).is_some_and(|kinds| kinds.len() == 1);
        let of = ports.get(&(f.kind, name(f.types))).map_or(0, BTreeSet::len);
        if types.iter().all(alone) && (of > PORTS || of > 1 && f.webrtc) {
            *anchor = Anchor::Any;
        }
    }
}
