//! From streams that no rule covers to the rules that would. Pure.
//!
//! 1. The lifetimes and priorities are those of docs/sfu.md and docs/operating.md.
//! 2. One rule is for all receivers, so it compares what they have in common: the server's port, else payload types.
//! 3. A rule for RTP always compares payload types. A port that has only audio now may have video later, and that must
//!    not have the priority of audio.

use std::collections::{BTreeMap, BTreeSet};

use bestby_api::{
    Carried, FlowLifetime, FlowName, FlowRule, MAX_RTX, PayloadTypes, PortRange, Proto,
    Retransmissions, SrtLatency, Suggestion,
};

use crate::discover::anchor::Anchor;
use crate::discover::report::Stream;

/// Rules that are suggested at once.
const RULES: usize = 32;
/// Ports of one kind are one range if no gap is wider: RTP takes each second one, RTCP those between.
const GAP: u16 = 4;

/// Kinds of rules, in the order in which they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Audio,
    Video,
    RtpTs,
    Ts,
    Srt,
    Rist,
}

impl Class {
    fn of(kind: Carried) -> Option<Self> {
        Some(match kind {
            Carried::Audio => Self::Audio,
            Carried::Video => Self::Video,
            Carried::RtpTs => Self::RtpTs,
            Carried::Ts => Self::Ts,
            Carried::Srt => Self::Srt,
            Carried::Rist => Self::Rist,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Video => "video",
            Self::RtpTs | Self::Ts => "ts",
            Self::Srt => "srt",
            Self::Rist => "rist",
        }
    }
}

/// Streams of one rule.
#[derive(Debug, Clone, Default)]
struct Group {
    types: Option<PayloadTypes>,
    rtx: BTreeSet<(u8, u8)>,
    receivers: BTreeSet<(std::net::IpAddr, u16)>,
    clocks: BTreeSet<u32>,
    latency: Option<SrtLatency>,
    /// A stream of SRT whose handshake was not seen.
    unknown_latency: bool,
    listener: Option<bool>,
    nulls: Option<u8>,
    webrtc: bool,
}

impl Group {
    fn take(&mut self, s: &Stream) {
        let f = &s.found;
        self.types = match (self.types, f.types) {
            (Some(a), Some(b)) => Some(a.with(b)),
            (a, b) => a.or(b),
        };
        self.receivers.insert((f.key.dst, f.key.dport));
        self.clocks.extend(f.clock_hz);
        self.latency = self.latency.max(f.latency);
        self.unknown_latency |= f.latency.is_none();
        self.listener = f.listener.or(self.listener);
        self.nulls = self.nulls.max(f.null_percent);
        self.webrtc |= f.webrtc;
    }

    fn join(&mut self, other: Self) {
        self.types = match (self.types, other.types) {
            (Some(a), Some(b)) => Some(a.with(b)),
            (a, b) => a.or(b),
        };
        self.rtx.extend(other.rtx);
        self.receivers.extend(other.receivers);
        self.clocks.extend(other.clocks);
        self.latency = self.latency.max(other.latency);
        self.unknown_latency |= other.unknown_latency;
        self.listener = self.listener.or(other.listener);
        self.nulls = self.nulls.max(other.nulls);
        self.webrtc |= other.webrtc;
    }
}

/// Ports of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ports {
    Sport(u16, u16),
    Dport(u16, u16),
    Any,
}

impl From<Anchor> for Ports {
    fn from(anchor: Anchor) -> Self {
        match anchor {
            Anchor::Sport(port) => Self::Sport(port, port),
            Anchor::Dport(port) => Self::Dport(port, port),
            Anchor::Any => Self::Any,
        }
    }
}

impl Ports {
    /// Both as one range, if no gap is between.
    fn joined(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Sport(a, b), Self::Sport(c, d)) if c - b <= GAP => Some(Self::Sport(a, d)),
            (Self::Dport(a, b), Self::Dport(c, d)) if c - b <= GAP => Some(Self::Dport(a, d)),
            _ => None,
        }
    }

    /// Whether a port of another class lies in this range, of which payload types do not tell the rules apart.
    fn holds(self, anchor: Anchor) -> bool {
        match (self, anchor) {
            (Self::Sport(a, b), Anchor::Sport(port)) | (Self::Dport(a, b), Anchor::Dport(port)) => {
                a <= port && port <= b
            }
            _ => false,
        }
    }
}

/// Rules, and what cannot be said as a new rule. `taken`: names of rules.
pub(crate) fn suggest(streams: &[Stream], taken: &[FlowName]) -> (Vec<Suggestion>, Vec<String>) {
    let mut groups: BTreeMap<(Class, Anchor), Group> = BTreeMap::new();
    for s in streams.iter().filter(|s| s.rule.is_none()) {
        if let Some(class) = Class::of(s.found.kind) {
            groups.entry((class, s.anchor)).or_default().take(s);
        }
    }
    let notes = repeats(streams, &mut groups);
    let mut merged: Vec<(Class, Ports, Group)> = Vec::new();
    let anchors: Vec<_> = groups
        .iter()
        .map(|((class, anchor), group)| (*class, *anchor, group.types))
        .collect();
    for ((class, anchor), group) in groups {
        if let Some((last, ports, into)) = merged.last_mut()
            && *last == class
            && let Some(joined) = ports.joined(anchor.into())
            && !anchors.iter().any(|(other, at, types)| {
                *other != class && joined.holds(*at) && !told_apart(class, into, &group, *types)
            })
            && (class != Class::Srt || into.latency == group.latency)
        {
            *ports = joined;
            into.join(group);
            continue;
        }
        merged.push((class, anchor.into(), group));
    }
    let mut names: BTreeSet<String> = taken.iter().map(ToString::to_string).collect();
    let mut rules = Vec::new();
    let mut notes = notes;
    let more = merged.len().saturating_sub(RULES);
    if more > 0 {
        notes.push(format!(
            "{more} more rules would be needed: set these, and run discover again"
        ));
    }
    for (class, ports, group) in merged.into_iter().take(RULES) {
        rules.extend(rule(class, ports, &group, &mut names));
    }
    (rules, notes)
}

/// Whether payload types tell a rule of both groups from streams with the types `other`.
fn told_apart(class: Class, a: &Group, b: &Group, other: Option<PayloadTypes>) -> bool {
    let has = |group: &Group, t| group.types.is_some_and(|types| types.contains(t));
    let rtp = matches!(class, Class::Audio | Class::Video | Class::RtpTs);
    rtp && other.is_none_or(|types| !types.iter().any(|t| has(a, t) || has(b, t)))
}

/// Gives each repeat to the group of what it repeats. If a rule covers that already, the rule lacks an option.
fn repeats(streams: &[Stream], groups: &mut BTreeMap<(Class, Anchor), Group>) -> Vec<String> {
    let mut lacks = BTreeSet::new();
    for s in streams.iter().filter(|s| s.rule.is_none()) {
        let (Carried::Rtx, Some(of)) = (s.found.kind, s.found.repeats) else {
            continue;
        };
        let original = streams.iter().find(|o| {
            let types = o.found.types;
            let same = o.found.key == s.found.key && o.found.kind != Carried::Rtx;
            same && types.is_some_and(|types| types.contains(of))
        });
        let Some((original, types)) = original.zip(s.found.types) else {
            continue;
        };
        let class = Class::of(original.found.kind);
        for payload_type in types.iter() {
            if let Some(rule) = &original.rule {
                lacks.insert(format!(
                    "flow rule \"{rule}\" does not cover repeats of {of}: bestby flow set {rule} --rtx \
                     {payload_type}:{of} (name those that it has already, too)"
                ));
            } else if let Some(group) = class.and_then(|c| groups.get_mut(&(c, original.anchor))) {
                group.rtx.insert((payload_type, of));
            }
        }
    }
    lacks.into_iter().collect()
}

fn rule(
    class: Class,
    ports: Ports,
    group: &Group,
    names: &mut BTreeSet<String>,
) -> Option<Suggestion> {
    let base = class.name();
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    let name = std::iter::once(base.to_string())
        .chain(numbered)
        .find(|name| !names.contains(name))?;
    let mut flow = FlowRule::new(name.parse().ok()?);
    names.insert(name);
    flow.proto = Some(Proto::Udp);
    match ports {
        Ports::Sport(first, last) => flow.sport = PortRange::new(first, last),
        Ports::Dport(first, last) => flow.dport = PortRange::new(first, last),
        Ports::Any => {}
    }
    let rtp = matches!(class, Class::Audio | Class::Video | Class::RtpTs);
    flow.rtp_pt = group.types.filter(|_| rtp);
    if !group.rtx.is_empty() {
        let pairs = group.rtx.iter().take(MAX_RTX);
        let pairs: Vec<String> = pairs.map(|(rtx, of)| format!("{rtx}:{of}")).collect();
        flow.rtx = pairs.join(",").parse::<Retransmissions>().ok();
    }
    flow.lifetime = lifetime(class, group).and_then(|ms| format!("{ms}ms").parse().ok());
    match class {
        Class::Audio => flow.priority = "0".parse().ok(),
        // A rule has to say something; this is what it would be without it.
        _ if flow.lifetime.is_none() => flow.priority = "3".parse().ok(),
        _ => {}
    }
    flow.check().ok()?;
    let reason = reason(class, ports, group, flow.lifetime);
    Some(Suggestion { flow, reason })
}

/// Milliseconds. `None`: each connection has its own.
fn lifetime(class: Class, group: &Group) -> Option<u16> {
    match (class, group.latency) {
        (Class::Audio, _) => Some(200),
        (Class::Srt, Some(latency)) if latency.granted && !group.unknown_latency => None,
        (Class::Srt, Some(latency)) => Some(latency.ms),
        _ => Some(400),
    }
}

/// `8 kHz, 48 kHz`.
fn clocks(all: &BTreeSet<u32>) -> String {
    let all: Vec<String> = all
        .iter()
        .map(|hz| format!("{} kHz", f64::from(*hz) / 1000.0))
        .collect();
    all.join(", ")
}

fn reason(class: Class, ports: Ports, group: &Group, lifetime: Option<FlowLifetime>) -> String {
    let mut text = match class {
        Class::Audio if group.clocks.is_empty() => "audio: small packets".into(),
        Class::Audio => format!(
            "audio: a packet for each timestamp, clock {}",
            clocks(&group.clocks)
        ),
        Class::Video => "video: large packets, several for each timestamp".into(),
        Class::RtpTs => "MPEG-TS in RTP".into(),
        Class::Ts => match group.nulls {
            Some(nulls) if nulls > 0 => format!("MPEG-TS, {nulls} % of it is padding"),
            _ => "MPEG-TS".into(),
        },
        Class::Srt => "SRT".into(),
        Class::Rist => "RIST".to_string(),
    };
    text += &match group.receivers.len() {
        1 => ", 1 receiver".to_string(),
        n => format!(", {n} receivers"),
    };
    if ports == Ports::Any {
        text += "; no port stays, so the payload type chooses";
    }
    text += match class {
        Class::Audio => ". Priority 0: it is given up last",
        Class::Video => ". Without a priority each frame is worth what it is for",
        Class::RtpTs | Class::Ts => ". Set the lifetime to the receivers' buffer",
        Class::Rist => ". Set the lifetime to the receivers' buffer (-b of ristreceiver)",
        Class::Srt => "",
    };
    match class {
        Class::Video if group.rtx.is_empty() && group.webrtc => {
            text += ". No repeats were seen: the SDP names their type (--rtx)";
        }
        Class::Srt => text += &srt(group, lifetime),
        _ => {}
    }
    text
}

fn srt(group: &Group, lifetime: Option<FlowLifetime>) -> String {
    match group.latency {
        Some(latency) if lifetime.is_none() => format!(
            ". The latency that the listener grants is the lifetime ({} ms now). Connections from before the rule have \
             no deadline until they connect again",
            latency.ms
        ),
        Some(latency) if latency.granted => format!(
            ". The listener granted {} ms to one of them. Set the lifetime to the longest latency",
            latency.ms
        ),
        Some(latency) => format!(
            ". The caller asks for a latency of {} ms, and the listener may grant more",
            latency.ms
        ),
        None => {
            ". No handshake was seen: set the lifetime to the latency (latency= of its URL)".into()
        }
    }
}
