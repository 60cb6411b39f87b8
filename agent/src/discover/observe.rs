//! One UDP payload by its own bytes (RFC 7983 says which protocols share a port). Pure.
//!
//! One payload proves little: random bytes begin like RTP one time in four. So this names a candidate, and `flow.rs`
//! believes it when many payloads of a flow agree.

/// MPEG-TS: bytes of a packet, its first byte, and the PID of padding.
const TS_BYTES: u32 = 188;
const TS_SYNC: u8 = 0x47;
pub(crate) const TS_NULL: u16 = 0x1fff;
/// The header of a RIST main profile's packet (VSF TR-06-2), without its flags: ports follow, or nothing.
const GRE_REDUCED: u16 = 0x88b6;
const GRE_KEEPALIVE: u16 = 0x88b5;
const STUN_COOKIE: u32 = 0x2112_a442;
/// Of SRT (`bb_srt.h`).
const SRT_CONTROL: u32 = 1 << 31;

/// A header of RTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rtp {
    pub(crate) payload_type: u8,
    pub(crate) marker: bool,
    pub(crate) seq: u16,
    pub(crate) timestamp: u32,
    pub(crate) ssrc: u32,
    /// Bytes behind the header.
    pub(crate) bytes: u32,
    /// These are whole packets of MPEG-TS.
    pub(crate) ts: bool,
}

/// A handshake of SRT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SrtHandshake {
    /// Latency of what this side sends, ms, if the handshake has one.
    pub(crate) latency_ms: Option<u16>,
    /// The listener's answer; else the caller's request. `None`: the handshake has no extension that says.
    pub(crate) listener: Option<bool>,
}

/// What a payload can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    Rtp(Rtp),
    Rtcp {
        /// It has RIST's message.
        rist: bool,
    },
    Stun,
    Dtls,
    /// ChannelData of TURN.
    Turn,
    Ts {
        /// PIDs of its first packets, as far as they were captured.
        pids: [Option<u16>; 2],
    },
    SrtHandshake(SrtHandshake),
    /// RIST's main profile.
    Gre,
    /// A long header of QUIC, of a version that is known.
    QuicLong,
    /// A short header of QUIC, or anything else with these two bits.
    QuicShort,
    Other,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*two))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*four))
}

/// The first four words, of SRT's header.
pub(crate) fn words(payload: &[u8]) -> Option<[u32; 4]> {
    Some([
        be32(payload, 0)?,
        be32(payload, 4)?,
        be32(payload, 8)?,
        be32(payload, 12)?,
    ])
}

/// What a payload can be. `payload` is its beginning, of `bytes` bytes in all.
pub(crate) fn observe(payload: &[u8], bytes: u32) -> Seen {
    let Some(first) = payload.first() else {
        return Seen::Other;
    };
    if let Some(handshake) = srt_handshake(payload) {
        return Seen::SrtHandshake(handshake);
    }
    let low = *first < 4;
    match first >> 6 {
        2 => rtcp(payload, bytes).or_else(|| rtp(payload, bytes)),
        3 => quic_long(payload).then_some(Seen::QuicLong),
        1 => Some(sync_or_short(payload, bytes)),
        _ if low && bytes >= 20 && be32(payload, 4) == Some(STUN_COOKIE) => Some(Seen::Stun),
        _ if dtls(payload, bytes) => Some(Seen::Dtls),
        _ => gre(payload, bytes).then_some(Seen::Gre),
    }
    .unwrap_or(Seen::Other)
}

/// Payloads whose first bits are 01: MPEG-TS, TURN's channels, or a short header of QUIC.
fn sync_or_short(payload: &[u8], bytes: u32) -> Seen {
    if let Some(pids) = ts(payload, bytes) {
        return Seen::Ts { pids };
    }
    // RFC 8656: channels 0x4000 to 0x4fff, and a length that the datagram has but for three bytes of padding.
    let length = be16(payload, 2).map(|length| u32::from(length) + 4);
    let channel = payload.first().is_some_and(|first| *first < 0x50);
    if channel && length.is_some_and(|l| l <= bytes && bytes - l < 4) {
        return Seen::Turn;
    }
    Seen::QuicShort
}

fn rtcp(payload: &[u8], bytes: u32) -> Option<Seen> {
    let kind = *payload.get(1)?;
    // RFC 5761: no RTP beside RTCP has these.
    if !(192..=223).contains(&kind) || (u32::from(be16(payload, 2)?) + 1) * 4 > bytes {
        return None;
    }
    // A compound of several: RIST's is the last one.
    let (mut at, mut rist) = (0, false);
    while let (Some(kind), Some(words)) = (payload.get(at + 1), be16(payload, at + 2)) {
        rist |= *kind == 204 && payload.get(at + 8..at + 12) == Some(b"RIST");
        at += (usize::from(words) + 1) * 4;
    }
    Some(Seen::Rtcp { rist })
}

/// What RTP's header says.
fn rtp(payload: &[u8], bytes: u32) -> Option<Seen> {
    let first = *payload.first()?;
    let mut header = 12 + 4 * usize::from(first & 15);
    if first & 0x10 != 0 {
        // Of a long list of sources and extensions the end was not captured: then it is no MPEG-TS, either.
        let words = be16(payload, header + 2).map_or(0, usize::from);
        header += 4 + 4 * words;
    }
    let rest = bytes.checked_sub(u32::try_from(header).ok()?)?;
    let second = *payload.get(1)?;
    if (192..=223).contains(&second) {
        return None;
    }
    Some(Seen::Rtp(Rtp {
        payload_type: second & 0x7f,
        marker: second & 0x80 != 0,
        seq: be16(payload, 2)?,
        timestamp: be32(payload, 4)?,
        ssrc: be32(payload, 8)?,
        bytes: rest,
        ts: rest > 0 && rest.is_multiple_of(TS_BYTES) && payload.get(header) == Some(&TS_SYNC),
    }))
}

fn dtls(payload: &[u8], bytes: u32) -> bool {
    let of = |at| payload.get(at).copied();
    // change_cipher_spec to ack, of DTLS 1.0 to 1.2, whose version 1.3 writes, too.
    let type_known = of(0).is_some_and(|t| (20..=26).contains(&t));
    let version = of(1) == Some(0xfe) && matches!(of(2), Some(0xff | 0xfd | 0xfc));
    let length = be16(payload, 11).map(u32::from);
    type_known && version && length.is_some_and(|l| 13 + l <= bytes)
}

fn gre(payload: &[u8], bytes: u32) -> bool {
    // Flags: a key and a sequence number at most, version 0 and RIST's own bits.
    let flags = be16(payload, 0).unwrap_or(u16::MAX);
    let kind = be16(payload, 2);
    flags & 0xcf00 == 0 && bytes >= 8 && (kind == Some(GRE_REDUCED) || kind == Some(GRE_KEEPALIVE))
}

fn ts(payload: &[u8], bytes: u32) -> Option<[Option<u16>; 2]> {
    if bytes == 0 || !bytes.is_multiple_of(TS_BYTES) || payload.first() != Some(&TS_SYNC) {
        return None;
    }
    let second = TS_BYTES as usize;
    match payload.get(second) {
        // More packets follow, and this one is none.
        Some(byte) if *byte != TS_SYNC => return None,
        _ => {}
    }
    let pid = |at: usize| be16(payload, at + 1).map(|word| word & 0x1fff);
    Some([pid(0), pid(second)])
}

fn quic_long(payload: &[u8]) -> bool {
    // The fixed bit is among the two that were looked at. Versions 1 and 2, drafts, and a negotiation (0).
    let known =
        |v| v == 1 || v == 0x6b33_43cf || (0xff00_0000..=0xff00_0022).contains(&v) || v == 0;
    let length = payload.get(5).copied();
    be32(payload, 1).is_some_and(known) && length.is_some_and(|l| l <= 20)
}

/// As `bb_srt_is_handshake` and `bb_srt_granted` say.
fn srt_handshake(payload: &[u8]) -> Option<SrtHandshake> {
    let word = |n: usize| be32(payload, 4 * n);
    let version = word(4)?;
    let (sequence, mtu, kind) = (word(6)?, word(7)?, word(9)?);
    let is_one = word(0)? == SRT_CONTROL
        && word(1)? == 0
        && (version == 4 || version == 5)
        && sequence & SRT_CONTROL == 0
        && (76..=65535).contains(&mtu)
        && (kind <= 1 || kind >= 0xffff_fffd)
        && payload.len() >= 64;
    if !is_one {
        return None;
    }
    let mut handshake = SrtHandshake {
        latency_ms: None,
        listener: None,
    };
    if let (5, Some(extension), Some(latency)) = (version, word(16), word(19))
        && matches!(extension >> 16, 1 | 2)
        && extension & 0xffff >= 3
    {
        handshake.listener = Some(extension >> 16 == 2);
        handshake.latency_ms = u16::try_from(latency & 0xffff).ok().filter(|ms| *ms > 0);
    }
    Some(handshake)
}
