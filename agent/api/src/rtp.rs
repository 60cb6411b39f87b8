//! What rules say of RTP: payload types, SSRCs, what retransmits what.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::net::parse_u32;
use crate::value::ValueError;

const PAYLOAD_TYPES_ALLOWED: &str =
    "payload types from 0 to 127, separated by commas, for example 111 or 96,98";
const SSRC_ALLOWED: &str = "a 32-bit number, for example 305419896 or 0x12345678";
const RTX_ALLOWED: &str = "RTX[:ORIGINAL], at most 8 separated by commas, each a payload type from 0 to 127, for example 97:96,99:98";
/// Most entries of [`Retransmissions`] (the kernel side's `BB_RULE_RTX`).
pub const MAX_RTX: usize = 8;

/// A payload type, or what is wrong with it.
pub(crate) fn parse_payload_type(s: &str) -> Result<u8, String> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("\"{}\" is not a payload type", s.escape_debug()));
    }
    s.parse()
        .ok()
        .filter(|pt| *pt < 128)
        .ok_or_else(|| format!("payload type {s} is not 0..127"))
}

/// A set of RTP payload types, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadTypes(u128);

impl PayloadTypes {
    /// RFC 3551's static audio types.
    const AUDIO: Self = Self::all(&[0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18]);
    /// RFC 3551's static video types; 33 is MPEG-2 transport, which holds both.
    const VIDEO: Self = Self::all(&[25, 26, 28, 31, 32, 33, 34]);

    const fn all(types: &[u8]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < types.len() {
            bits |= 1 << types[i];
            i += 1;
        }
        Self(bits)
    }

    /// Only this one; `None` above 127.
    pub const fn one(payload_type: u8) -> Option<Self> {
        if payload_type > 127 {
            return None;
        }
        Some(Self(1 << payload_type))
    }

    /// Whether this payload type is in the set.
    pub const fn contains(self, payload_type: u8) -> bool {
        payload_type < 128 && self.0 >> payload_type & 1 == 1
    }

    /// What is in this set, in `other`, or in both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether everything in this set is in `other`, too.
    pub const fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The payload types in rising order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..128).filter(move |pt| self.contains(*pt))
    }
}

impl FromStr for PayloadTypes {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse =
            |problem| ValueError::new("RTP payload types", s, problem, PAYLOAD_TYPES_ALLOWED);
        s.split(',').try_fold(Self(0), |all, part| {
            let pt = parse_payload_type(part.trim()).map_err(refuse)?;
            if all.contains(pt) {
                return Err(refuse(format!("names {pt} twice")));
            }
            Ok(Self(all.0 | 1 << pt))
        })
    }
}

impl fmt::Display for PayloadTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.iter().map(|pt| pt.to_string()).collect();
        f.pad(&list.join(","))
    }
}

string_value!(PayloadTypes, "RTP payload types such as \"96,98\"");

/// Synchronization source of an RTP stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ssrc(u32);

impl Ssrc {
    /// Any number can be one.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl FromStr for Ssrc {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        parse_u32(s)
            .map(Self)
            .ok_or_else(|| ValueError::new("SSRC", s, "is not a 32-bit number", SSRC_ALLOWED))
    }
}

impl fmt::Display for Ssrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:#010x}", self.0))
    }
}

string_value!(Ssrc, "an SSRC such as \"0x12345678\"");

words!(
    /// What an RTP stream carries, as its payload type says.
    RtpKind, "RTP kind", "audio or video", {
        /// Sound.
        Audio = "audio",
        /// Pictures.
        Video = "video",
    }
);

words!(
    /// Whether the packets of one RTP timestamp are one frame.
    Frames, "frames", "auto or none", {
        /// They are, as far as they follow each other.
        Auto = "auto",
        /// They are not: each packet has a lifetime of its own.
        None = "none",
    }
);

/// Which payload types carry retransmissions (RFC 4588), and of what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Retransmissions(Vec<(u8, Option<u8>)>);

impl Retransmissions {
    /// Payload type of the retransmissions, and of what they repeat (`None` = any).
    pub fn pairs(&self) -> &[(u8, Option<u8>)] {
        &self.0
    }

    /// The payload types of the retransmissions.
    pub fn payload_types(&self) -> PayloadTypes {
        PayloadTypes(self.0.iter().fold(0, |bits, (rtx, _)| bits | 1 << rtx))
    }

    /// Both lists in one.
    ///
    /// # Errors
    /// Too many, or one payload type twice.
    pub fn join(mut self, other: &Self) -> Result<Self, String> {
        for (rtx, original) in &other.0 {
            if self.0.iter().any(|(known, _)| known == rtx) {
                return Err(format!(
                    "payload type {rtx} is there twice as a retransmission"
                ));
            }
            self.0.push((*rtx, *original));
        }
        if self.0.len() > MAX_RTX {
            return Err(format!("more than {MAX_RTX} entries"));
        }
        Ok(self)
    }
}

impl FromStr for Retransmissions {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem| ValueError::new("rtx", s, problem, RTX_ALLOWED);
        s.split(',').try_fold(Self(Vec::new()), |all, part| {
            let (rtx, original) = match part.trim().split_once(':') {
                Some((rtx, original)) => (rtx, Some(original)),
                None => (part.trim(), None),
            };
            let rtx = parse_payload_type(rtx).map_err(refuse)?;
            let original = original
                .map(parse_payload_type)
                .transpose()
                .map_err(refuse)?;
            if original == Some(rtx) {
                return Err(refuse(format!(
                    "payload type {rtx} cannot retransmit itself"
                )));
            }
            all.join(&Self(vec![(rtx, original)])).map_err(refuse)
        })
    }
}

impl fmt::Display for Retransmissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self
            .0
            .iter()
            .map(|(rtx, original)| match original {
                Some(original) => format!("{rtx}:{original}"),
                None => rtx.to_string(),
            })
            .collect();
        f.pad(&list.join(","))
    }
}

string_value!(Retransmissions, "retransmissions such as \"97:96\"");

/// `[rtp_profile]`: what dynamic payload types carry here, as the sessions' signalling agreed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RtpProfile {
    /// Payload types of audio beside RFC 3551's static ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio: Option<PayloadTypes>,
    /// Payload types of video beside RFC 3551's static ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<PayloadTypes>,
}

impl RtpProfile {
    /// Every payload type of this kind.
    pub fn of(self, kind: RtpKind) -> PayloadTypes {
        let (fixed, named) = match kind {
            RtpKind::Audio => (PayloadTypes::AUDIO, self.audio),
            RtpKind::Video => (PayloadTypes::VIDEO, self.video),
        };
        named.map_or(fixed, |named| fixed.with(named))
    }

    /// What an audio and a video type cannot both be.
    ///
    /// # Errors
    /// Names the payload type that is of both kinds.
    pub fn check(self) -> Result<(), String> {
        let video = self.of(RtpKind::Video);
        match self
            .of(RtpKind::Audio)
            .iter()
            .find(|pt| video.contains(*pt))
        {
            None => Ok(()),
            Some(pt) if PayloadTypes::AUDIO.contains(pt) => {
                Err(format!("payload type {pt} is audio (RFC 3551), not video"))
            }
            Some(pt) if PayloadTypes::VIDEO.contains(pt) => {
                Err(format!("payload type {pt} is video (RFC 3551), not audio"))
            }
            Some(pt) => Err(format!("payload type {pt} is named as audio and as video")),
        }
    }
}

/// Bytes from hexadecimal digits, which colons may part.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn parse_hex(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|b| *b != b':')
        .map(|b| {
            char::from(b)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        })
        .collect::<Option<_>>()
        .ok_or("payload is not hexadecimal")?;
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err("payload is not two hexadecimal digits for each byte".into());
    }
    Ok(digits
        .chunks(2)
        .map(|d| d.iter().fold(0, |n, d| n << 4 | d))
        .collect())
}

/// Payload type and SSRC of a datagram that is RTP as far as its header tells, also behind the 8 bytes of RIST's main
/// profile.
pub(crate) fn rtp_of(payload: &[u8]) -> Option<(u8, Ssrc)> {
    let inner = match payload {
        [0, 0, 0x88, 0xb6, _, _, _, _, inner @ ..] => inner,
        whole => whole,
    };
    let header = inner.first_chunk::<12>()?;
    // RFC 5761: a second byte of these values is RTCP's packet type.
    if header[0] >> 6 != 2 || (192..=223).contains(&header[1]) {
        return None;
    }
    let [.., a, b, c, d] = *header;
    Some((header[1] & 0x7f, Ssrc(u32::from_be_bytes([a, b, c, d]))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn payload_types_outside_0_to_127_are_refused() {
        let types: PayloadTypes = "98, 96".parse().unwrap();
        assert_eq!(types.to_string(), "96,98");
        assert_eq!(
            serde_json::from_str::<PayloadTypes>("111")
                .unwrap()
                .to_string(),
            "111"
        );
        for (bad, why) in [
            ("200", "200"),
            ("128", "128"),
            ("111,200", "200"),
            ("99999999999999999999", "0..127"),
            ("", "\"\""),
            ("96,", "\"\""),
            ("-1", "\"-1\""),
            ("96-98", "\"96-98\""),
            ("opus", "\"opus\""),
            ("96,96", "twice"),
        ] {
            let error = bad.parse::<PayloadTypes>().unwrap_err();
            assert!(error.problem.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn ssrcs_are_decimal_or_hexadecimal() {
        let ssrc: Ssrc = "0xDEADBEEF".parse().unwrap();
        assert_eq!(
            (ssrc.get(), ssrc.to_string().as_str()),
            (0xdead_beef, "0xdeadbeef")
        );
        assert_eq!("7".parse::<Ssrc>().unwrap().to_string(), "0x00000007");
        for bad in ["", "-1", "4294967296", "0x1ffffffff", "deadbeef", "0x"] {
            assert!(bad.parse::<Ssrc>().is_err(), "{bad}");
        }
    }

    #[test]
    fn retransmissions_are_at_most_eight_and_no_payload_type_twice() {
        let rtx: Retransmissions = "97:96, 99".parse().unwrap();
        assert_eq!(rtx.pairs(), [(97, Some(96)), (99, None)]);
        assert_eq!(rtx.to_string(), "97:96,99");
        for (bad, why) in [
            ("97:97", "itself"),
            ("97:96,97:98", "twice"),
            ("97:200", "200"),
            ("97:", "payload"),
            (":96", "payload"),
            ("1:2:3", "payload"),
            ("1,2,3,4,5,6,7,8,9", "8"),
        ] {
            let error = bad.parse::<Retransmissions>().unwrap_err();
            assert!(error.problem.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn profile_adds_to_the_static_payload_types() {
        let profile = RtpProfile {
            audio: "111".parse().ok(),
            video: "96,98".parse().ok(),
        };
        assert_eq!(profile.check(), Ok(()));
        assert!(profile.of(RtpKind::Audio).contains(0) && profile.of(RtpKind::Audio).contains(111));
        assert!(
            profile.of(RtpKind::Video).contains(34) && !profile.of(RtpKind::Video).contains(111)
        );
        assert!(!RtpProfile::default().of(RtpKind::Audio).contains(111));
        let wrong = |audio: &str, video: &str| {
            let (audio, video) = (audio.parse().ok(), video.parse().ok());
            RtpProfile { audio, video }.check().unwrap_err()
        };
        assert!(wrong("96", "96").contains("96"));
        assert!(wrong("111", "0").contains("is audio"));
        assert!(wrong("34", "96").contains("is video"));
    }

    #[test]
    fn payload_is_rtp_or_something_else() {
        let of = |hex| rtp_of(&parse_hex(hex).unwrap());
        let rtp = Some((111, Ssrc(0x1234_5678)));
        assert_eq!(of("80ef0001000000a012345678ff"), rtp);
        assert_eq!(of("00:00:88:b6:07b307b080ef0001000000a012345678"), rtp);
        for other in [
            "80ef",
            "16ef0001000000a012345678",
            "80c80001000000a012345678",
            "000088b507b307b080ef0001000000a012345678",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        for bad in ["", "8", "80e", "zz"] {
            let error = parse_hex(bad).unwrap_err();
            assert!(error.contains("hexadecimal"), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_payload_types_and_ssrc_parse_to_same_values(bits in 1u128.., ssrc: u32) {
            let types = PayloadTypes(bits);
            prop_assert_eq!(types.to_string().parse::<PayloadTypes>().unwrap(), types);
            prop_assert_eq!(Ssrc(ssrc).to_string().parse::<Ssrc>().unwrap(), Ssrc(ssrc));
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<PayloadTypes>();
            let _ = text.parse::<Ssrc>();
            let _ = text.parse::<Retransmissions>();
            let _ = parse_hex(&text).map(|bytes| rtp_of(&bytes));
        }
    }
}
