//! What the classifier read of a packet's frame, in words. It decides (`bb_role.h`); here its answer and the bytes that
//! it read get the names that their RFCs have for them.

use bestby_api::{FlowRule, Frames, Media, PacketDescription, Proto, codec_words};
use bestby_bpf::abi;

use crate::faces::streams::{CRYPTEX, Stream, codec_name, codec_of, learning};

/// What a role is, for a person.
fn role_words(role: u8) -> &'static str {
    match u32::from(role) {
        abi::BB_ROLE_KEY => "key frame",
        abi::BB_ROLE_LINK => "link of level 0: later frames need it",
        abi::BB_ROLE_LINK1 => "link of level 1: later frames of its level and above need it",
        abi::BB_ROLE_LINK2 => {
            "link of level 2 or above: later frames of its level and above need it"
        }
        abi::BB_ROLE_LEAF => "leaf: no frame needs it",
        _ => "nothing is said of its frame",
    }
}

/// A type of NAL unit of H.264 (RFC 6184, table 1); `header`: the byte with its NRI.
fn h264(header: u8, kind: u8) -> String {
    match kind {
        1..=4 => format!("slice with NRI {}", header >> 5 & 3),
        5 => "IDR".into(),
        6 => "SEI".into(),
        7 => "SPS".into(),
        8 => "PPS".into(),
        9 => "AUD".into(),
        other => format!("unit of type {other}"),
    }
}

/// A type of NAL unit of H.265 (H.265, table 7-1).
fn h265(kind: u8) -> String {
    match kind {
        16..=21 => "IRAP".into(),
        32 => "VPS".into(),
        33 => "SPS".into(),
        34 => "PPS".into(),
        35 => "AUD".into(),
        39 | 40 => "SEI".into(),
        other => format!("slice of type {other}"),
    }
}

/// The type of a picture of MPEG-2 (ISO/IEC 13818-2, 6.3.9); `b`: from its start code's value on.
fn mpeg2(b: &[u8]) -> Option<String> {
    Some(match b.get(2)? >> 3 & 7 {
        1 => "I picture".into(),
        2 => "P picture".into(),
        3 => "B picture".into(),
        other => format!("picture of type {other}"),
    })
}

/// Which unit of MPEG-TS says what.
fn ts_says(read: &abi::bb_read, name: &str, role: &str) -> String {
    let b = &read.bytes[..usize::from(read.n).min(read.bytes.len())];
    let Some(first) = b.first() else {
        return match u32::from(read.role) {
            abi::BB_ROLE_NONE => format!(
                "{name}, beside video or before its slice: it is of no picture, and goes for itself"
            ),
            _ => format!("{name}, of a picture that began before, or has no slice here -> {role}"),
        };
    };
    let unit = match u32::from(read.video.codec.wrapping_sub(1)) {
        abi::BB_CODEC_TS_H264 => Some(h264(*first, first & 31)),
        abi::BB_CODEC_TS_H265 => Some(h265(first >> 1 & 63)),
        _ => mpeg2(b),
    };
    let unit = unit.unwrap_or_else(|| "unit".into());
    format!("byte behind a start code = 0x{first:02x}: {name} {unit} -> {role}")
}

/// The byte that names the unit, and the unit; `None`: of this codec the bytes are shown as they are.
fn unit(codec: u32, b: &[u8]) -> Option<(usize, String)> {
    let at = |i: usize| b.get(i).copied();
    let first = at(0)?;
    if codec == abi::BB_CODEC_H264 {
        return match first & 31 {
            24 if at(3)? & 31 == 9 && at(1)? == 0 && at(2)? == 2 => {
                let header = at(7)?;
                let unit = h264(header, header & 31);
                Some((7, format!("{unit} in a STAP-A, behind an AUD")))
            }
            24 => Some((3, format!("{} in a STAP-A", h264(at(3)?, at(3)? & 31)))),
            28 => Some((1, format!("{} in an FU-A", h264(first, at(1)? & 31)))),
            kind => Some((0, h264(first, kind))),
        };
    }
    if codec == abi::BB_CODEC_H265 {
        return match first >> 1 & 63 {
            48 if at(4)? >> 1 & 63 == 35 && at(2)? == 0 && at(3)? == 3 => {
                let unit = h265(at(9)? >> 1 & 63);
                Some((9, format!("{unit} in an AP, behind an AUD")))
            }
            48 => Some((4, format!("{} in an AP", h265(at(4)? >> 1 & 63)))),
            49 => Some((2, format!("{} in an FU", h265(at(2)? & 63)))),
            kind => Some((0, h265(kind))),
        };
    }
    None
}

/// Which byte says what.
fn bytes_say(read: &abi::bb_read) -> String {
    let payload = &read.bytes[..usize::from(read.n).min(read.bytes.len())];
    let codec = u32::from(read.video.codec.wrapping_sub(1));
    let name = codec_words(codec_name(read.video.codec));
    let role = role_words(read.role);
    if codec >= abi::BB_CODEC_TS_H264 {
        return ts_says(read, &name, role);
    }
    let what = match read.extension {
        0 => "payload",
        _ => "header extension",
    };
    if payload.is_empty() {
        return match read.extension {
            0 => format!("no payload behind RTP's header: {role}"),
            _ => format!("no {name} among its header extensions: {role}"),
        };
    }
    match unit(codec, payload) {
        Some((at, unit)) => {
            let byte = payload.get(at).copied().unwrap_or_default();
            format!("payload byte {at} = 0x{byte:02x}: {name} {unit} -> {role}")
        }
        None => {
            let bytes: Vec<String> = payload.iter().take(7).map(|b| format!("{b:02x}")).collect();
            format!("{what} begins {}: {name} -> {role}", bytes.join(" "))
        }
    }
}

/// What is known of a stream, where its packet itself was not read.
fn stream_says(stream: Option<&Stream>) -> String {
    let Some(s) = stream else {
        return "no packet of its stream was seen in the last minute, so its codec is not known"
            .into();
    };
    let video = &s.video;
    if codec_of(video) == Some(CRYPTEX) {
        return "header extensions of the stream are encrypted (Cryptex), and so is its payload: only marks can say \
                what its frames are for"
            .into();
    }
    match (u32::from(video.codec), learning(s)) {
        (0, Some(l)) => format!(
            "the stream's codec is not known yet ({}: {} of {} frames)",
            codec_words(&l.codec),
            l.frames,
            l.of
        ),
        (0, None) => "the stream's codec is not known yet (no frame was read)".into(),
        (abi::BB_CODEC_OPAQUE, _) => {
            "the stream is opaque: of no codec that bestby reads, or encrypted".into()
        }
        _ => format!(
            "the stream is {}; `payload HEX` says what this packet is for",
            codec_words(codec_name(video.codec))
        ),
    }
}

/// What the packet's frame is for, and which byte says so; `None`: nobody asks that of such a packet.
pub(super) fn says(
    p: &PacketDescription,
    rule: Option<&FlowRule>,
    stream: Option<&Stream>,
    read: &abi::bb_read,
) -> Option<String> {
    let rule = rule?;
    if p.proto != Proto::Udp || (p.rtp.is_none() && stream.is_none()) {
        return None;
    }
    if rule.media == Some(Media::Off) {
        return Some("not looked at: the rule has media off".into());
    }
    if rule.frames == Some(Frames::None) {
        return Some("not looked at: the rule has frames none".into());
    }
    let known = read.video.codec != 0 && u32::from(read.video.codec) != abi::BB_CODEC_OPAQUE;
    Some(if read.done != 0 && known && p.payload.is_some() {
        bytes_say(read)
    } else {
        stream_says(stream)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(codec: u32, role: u32, payload: &[u8]) -> abi::bb_read {
        let mut read = abi::bb_read {
            video: abi::bb_video {
                codec: codec as u8 + 1,
                ..Default::default()
            },
            n: payload.len() as u8,
            done: 1,
            role: role as u8,
            ..Default::default()
        };
        read.bytes[..payload.len()].copy_from_slice(payload);
        read
    }

    #[test]
    fn byte_that_names_the_unit_is_named() {
        let (h264, h265) = (abi::BB_CODEC_H264, abi::BB_CODEC_H265);
        for (codec, payload, begins) in [
            (
                h264,
                &[0x65, 1, 2][..],
                "payload byte 0 = 0x65: H.264 IDR -> key frame",
            ),
            (
                h264,
                &[0x7c, 0x85, 2],
                "payload byte 1 = 0x85: H.264 IDR in an FU-A -> key",
            ),
            (
                h264,
                &[24, 0, 9, 0x67, 1],
                "payload byte 3 = 0x67: H.264 SPS in a STAP-A -> key",
            ),
            (
                h264,
                &[24, 0, 2, 9, 0xf0, 0, 9, 0x41],
                "payload byte 7 = 0x41: H.264 slice with NRI 2 in a STAP-A, behind an AUD ->",
            ),
            (
                h265,
                &[40, 1, 2],
                "payload byte 0 = 0x28: H.265 IRAP -> key",
            ),
            (
                h265,
                &[98, 1, 0x93],
                "payload byte 2 = 0x93: H.265 IRAP in an FU -> key",
            ),
            (
                abi::BB_CODEC_VP8,
                &[0x10, 0x00],
                "payload begins 10 00: VP8 -> key",
            ),
            // What is too short for that is shown as it is.
            (h264, &[0x7c], "payload begins 7c: H.264 -> key"),
            (h265, &[], "no payload behind RTP's header"),
        ] {
            let said = bytes_say(&read(codec, abi::BB_ROLE_KEY, payload));
            assert!(said.starts_with(begins), "{said}");
        }
        let mut of = read(abi::BB_CODEC_DD, abi::BB_ROLE_LINK1, &[0x81, 0, 7]);
        of.extension = 1;
        let begins = "header extension begins 81 00 07: Dependency Descriptor -> link of level 1";
        assert!(bytes_say(&of).starts_with(begins), "{}", bytes_say(&of));
    }

    #[test]
    fn unit_of_mpeg_ts_that_told_is_named() {
        for (codec, payload, says) in [
            (
                abi::BB_CODEC_TS_H264,
                &[0x65, 1][..],
                "0x65: MPEG-TS with H.264 IDR -> key",
            ),
            (
                abi::BB_CODEC_TS_H265,
                &[0x28, 1],
                "0x28: MPEG-TS with H.265 IRAP -> key",
            ),
            (
                abi::BB_CODEC_TS_MPEG2,
                &[0, 1, 8],
                "0x00: MPEG-TS with MPEG-2 I picture -> key",
            ),
            (abi::BB_CODEC_TS_H264, &[], "of a picture that began before"),
        ] {
            let said = bytes_say(&read(codec, abi::BB_ROLE_KEY, payload));
            assert!(said.contains(says), "{said}");
        }
        let alone = bytes_say(&read(abi::BB_CODEC_TS_H264, abi::BB_ROLE_NONE, &[]));
        assert!(alone.contains("goes for itself"), "{alone}");
    }

    #[test]
    fn packet_that_is_not_read_says_why() {
        let rule = |more: &str| -> FlowRule {
            serde_json::from_str(&format!(r#"{{"name":"v","lifetime":"1s"{more}}}"#)).unwrap()
        };
        let nothing = abi::bb_read::default();
        let of = |text: &str, rule: &FlowRule, stream: Option<&Stream>| {
            says(&text.parse().unwrap(), Some(rule), stream, &nothing)
        };
        let rtp = "udp 10.0.0.2:5004 rtp 96 ssrc 7";
        assert_eq!(of("udp 10.0.0.2:5004", &rule(""), None), None);
        assert_eq!(says(&rtp.parse().unwrap(), None, None, &nothing), None);
        let said = |rule: &FlowRule, stream: Option<&Stream>| of(rtp, rule, stream).unwrap();
        assert!(said(&rule(r#","media":"off""#), None).contains("media off"));
        assert!(said(&rule(r#","frames":"none""#), None).contains("frames none"));
        assert!(said(&rule(""), None).contains("no packet of its stream"));
        let mut stream = Stream::default();
        assert!(said(&rule(""), Some(&stream)).contains("no frame was read"));
        stream.video.tried[0] = 12;
        let yet = "not known yet (H.264: 12 of 32 frames)";
        assert!(said(&rule(""), Some(&stream)).contains(yet));
        stream.video.codec = abi::BB_CODEC_OPAQUE as u8;
        assert!(said(&rule(""), Some(&stream)).contains("opaque"));
        stream.video.key = abi::BB_VIDEO_CRYPTEX as u8;
        assert!(said(&rule(""), Some(&stream)).contains("Cryptex"));
        stream.video.codec = abi::BB_CODEC_VP8 as u8 + 1;
        assert!(said(&rule(""), Some(&stream)).contains("the stream is VP8"));
    }
}
