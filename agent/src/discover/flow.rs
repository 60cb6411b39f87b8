//! One flow: it counts packets by kind, and says at the end which kinds it carries. Pure.

use bestby_api::{Carried, PayloadTypes, RtpProfile, SrtLatency};

use crate::discover::observe::{Rtp, Seen, TS_NULL, observe, words};
use crate::discover::packet::{Key, Packet};
use crate::discover::rtp::{Source, Tally};
use crate::discover::srt::Srt;

/// Sources of RTP that are told apart in one flow: a conference in one port.
const SOURCES: usize = 32;
/// So many packets of a kind that has no numbers of its own are no accident.
const SURE: u64 = 5;

/// A stream of one flow, or all of its packets of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub(crate) key: Key,
    pub(crate) dscp: u8,
    pub(crate) kind: Carried,
    pub(crate) all: Tally,
    /// How long the flow was watched.
    pub(crate) watched_ns: u64,
    /// The flow has STUN or DTLS, too: WebRTC, whose receivers' ports are anything.
    pub(crate) webrtc: bool,
    pub(crate) types: Option<PayloadTypes>,
    pub(crate) ssrc: Option<u32>,
    pub(crate) clock_hz: Option<u32>,
    /// Payload type of what it repeats.
    pub(crate) repeats: Option<u8>,
    pub(crate) latency: Option<SrtLatency>,
    /// SRT: this host is the listener.
    pub(crate) listener: Option<bool>,
    pub(crate) null_percent: Option<u8>,
    /// RTCP with RIST's message: the port before it has RIST.
    pub(crate) rist: bool,
}

/// One flow.
#[derive(Debug, Clone)]
pub(crate) struct Flow {
    key: Key,
    dscp: u8,
    all: Tally,
    /// By `Carried`, of what a packet alone shows.
    kinds: [Tally; Carried::ALL.len()],
    /// Something with a short header, if it is QUIC.
    short: Tally,
    sources: Vec<Source>,
    srt: Srt,
    /// PIDs that were seen, and those of padding.
    pids: u64,
    nulls: u64,
    rist: bool,
    /// It is not watched any more since then.
    pub(crate) until_ns: Option<u64>,
}

impl Flow {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            dscp: 0,
            all: Tally::default(),
            kinds: Default::default(),
            short: Tally::default(),
            sources: Vec::new(),
            srt: Srt::default(),
            pids: 0,
            nulls: 0,
            rist: false,
            until_ns: None,
        }
    }

    /// Takes a packet; `room`: further sources for which there is memory.
    pub(crate) fn take(&mut self, packet: &Packet<'_>, now_ns: u64, room: &mut usize) {
        self.all.add(packet.bytes);
        self.dscp = packet.dscp;
        let kind = match self.key.proto {
            Key::UDP => self.datagram(packet, now_ns, room),
            Key::TCP => Carried::Tcp,
            _ => Carried::Other,
        };
        if let Some(tally) = self.kinds.get_mut(kind as usize) {
            tally.add(packet.bytes);
        }
    }

    fn datagram(&mut self, packet: &Packet<'_>, now_ns: u64, room: &mut usize) -> Carried {
        let seen = observe(packet.payload, packet.payload_bytes);
        if let Some(words) = words(packet.payload) {
            self.srt.take(words, now_ns);
        }
        match seen {
            Seen::Rtp(rtp) => {
                self.rtp(&rtp, packet.bytes, now_ns, room);
                Carried::Rtp
            }
            Seen::Rtcp { rist } => {
                self.rist |= rist;
                Carried::Rtcp
            }
            Seen::Stun => Carried::Stun,
            Seen::Dtls => Carried::Dtls,
            Seen::Turn => Carried::Turn,
            Seen::Ts { pids } => {
                for pid in pids.into_iter().flatten() {
                    self.pids += 1;
                    self.nulls += u64::from(pid == TS_NULL);
                }
                Carried::Ts
            }
            Seen::SrtHandshake(handshake) => {
                self.srt.handshake(handshake);
                Carried::Srt
            }
            Seen::Gre => Carried::Rist,
            Seen::QuicLong => Carried::Quic,
            Seen::QuicShort => {
                self.short.add(packet.bytes);
                Carried::Other
            }
            Seen::Other => Carried::Other,
        }
    }

    fn rtp(&mut self, rtp: &Rtp, bytes: u32, now_ns: u64, room: &mut usize) {
        let at = match self.sources.iter().position(|s| s.ssrc == rtp.ssrc) {
            Some(at) => at,
            None => {
                if self.sources.len() >= SOURCES || *room == 0 {
                    // A source of one packet gives its place away.
                    let Some(at) = self.sources.iter().position(|s| s.all.packets == 1) else {
                        return;
                    };
                    self.sources.remove(at);
                    *room += 1;
                }
                *room -= 1;
                self.sources.push(Source::new(rtp, now_ns));
                self.sources.len() - 1
            }
        };
        let others = self.sources.iter().enumerate().filter(|(i, _)| *i != at);
        let sent = others
            .filter(|(_, other)| other.sent(rtp.timestamp))
            .map(|(_, other)| other.ssrc)
            .next();
        if let Some(source) = self.sources.get_mut(at) {
            if let Some(of) = sent {
                source.note_repeat(of);
            }
            source.take(rtp, bytes, now_ns);
        }
    }

    fn kind(&self, kind: Carried) -> Tally {
        self.kinds.get(kind as usize).copied().unwrap_or_default()
    }

    /// Streams and kinds of this flow, watched from `from_ns` to `now_ns`.
    pub(crate) fn found(&self, from_ns: u64, now_ns: u64, profile: RtpProfile) -> Vec<Found> {
        let webrtc = self.kind(Carried::Stun).packets + self.kind(Carried::Dtls).packets > 0;
        let new = |kind, all| Found {
            key: self.key,
            dscp: self.dscp,
            kind,
            all,
            watched_ns: self
                .until_ns
                .unwrap_or(now_ns)
                .saturating_sub(from_ns)
                .max(1),
            webrtc,
            types: None,
            ssrc: None,
            clock_hz: None,
            repeats: None,
            latency: None,
            listener: None,
            null_percent: None,
            rist: false,
        };
        match self.key.proto {
            Key::UDP => {}
            Key::TCP => return vec![new(Carried::Tcp, self.all)],
            _ => return vec![new(Carried::Other, self.all)],
        }
        let sure: Vec<&Source> = self.sources.iter().filter(|s| s.is_sure()).collect();
        if self.srt.sure && sure.is_empty() {
            let latency = self.srt.latency_ms.map(|ms| SrtLatency {
                ms,
                granted: self.srt.listener == Some(true),
            });
            return vec![Found {
                latency,
                listener: self.srt.listener,
                ..new(Carried::Srt, self.all)
            }];
        }
        // Kinds that have a flow for themselves, but for some packets.
        for kind in [Carried::Ts, Carried::Rist] {
            let of = self.kind(kind).packets;
            if of >= SURE && of * 10 >= self.all.packets * 8 {
                let null = (self.pids > 0).then(|| self.nulls * 100 / self.pids);
                return vec![Found {
                    null_percent: null.and_then(|n| u8::try_from(n).ok()),
                    ..new(kind, self.all)
                }];
            }
        }
        let same_type = |a: &Source, b: &Source| a.payload_type() == b.payload_type();
        let mut found = Vec::new();
        for source in &self.sources {
            let original = source.repeated(&self.sources);
            if !source.is_sure() && original.is_none() {
                continue;
            }
            let kind = match original {
                // RIST's repairs have the type and the source of what they repeat, but for its last bit.
                Some(of) if of.ssrc ^ 1 == source.ssrc && same_type(of, source) => Carried::Rist,
                Some(_) => Carried::Rtx,
                None => source.carried(profile),
            };
            found.push(Found {
                types: source.payload_types(),
                ssrc: Some(source.ssrc),
                clock_hz: source.clock_hz(),
                repeats: original.map(Source::payload_type),
                ..new(kind, source.all)
            });
        }
        if found.iter().any(|f| f.kind == Carried::Rist) {
            found.iter_mut().for_each(|f| f.kind = Carried::Rist);
        }
        found.extend(self.rest(&found, new));
        found
    }

    /// What is not RTP. Among much that is nothing, single packets that look like something are an accident.
    fn rest(&self, rtp: &[Found], new: impl Fn(Carried, Tally) -> Found) -> Vec<Found> {
        let claimed = rtp.iter().fold(Tally::default(), |all, f| all.plus(f.all));
        let packets = self.all.packets.saturating_sub(claimed.packets);
        let mut other = Tally {
            packets,
            bytes: self.all.bytes.saturating_sub(claimed.bytes),
        };
        let mut found = Vec::new();
        let web = self.key.sport == 443 || self.key.dport == 443;
        let quic = match self.kind(Carried::Quic) {
            long if long.packets > 0 => long.plus(self.short),
            _ if web && self.short.packets >= SURE => self.short,
            _ => Tally::default(),
        };
        for (kind, tally) in [
            (Carried::Rtcp, self.kind(Carried::Rtcp)),
            (Carried::Stun, self.kind(Carried::Stun)),
            (Carried::Dtls, self.kind(Carried::Dtls)),
            (Carried::Turn, self.kind(Carried::Turn)),
            (Carried::Quic, quic),
        ] {
            if tally.packets > 0 && tally.packets * 20 >= packets {
                other.packets = other.packets.saturating_sub(tally.packets);
                other.bytes = other.bytes.saturating_sub(tally.bytes);
                found.push(Found {
                    rist: kind == Carried::Rtcp && self.rist,
                    ..new(kind, tally)
                });
            }
        }
        if other.packets > 0 {
            found.push(new(Carried::Other, other));
        }
        found
    }
}
