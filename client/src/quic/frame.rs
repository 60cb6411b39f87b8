//! What stands in front of an ADU on its stream.
//!
//! A stream is a header, the payload, and the end of the stream. All numbers are QUIC's variable-length
//! integers (RFC 9000, section 16):
//!
//! ```text
//! type      0x0b
//! length    bytes of the header that follow, at most 64
//! id        of the ADU; they grow
//! version   of its content, 0 to 65,535; grows when it is renewed
//! behind    id - alive_from: every id before alive_from is acknowledged or given up
//! flags     bits 0 to 2 priority; bit 3 `left` follows; bit 4 notice: no ADU; bit 5 `back` and `gone` follow
//! left      ms to the deadline when the header was made, rounded down
//! back,     the `gone` ids (1 to 4096) before id - back were given up; none of them
//! gone      will come
//! ...       what unknown flags bring
//! ```
//!
//! A usual header has 8 to 11 bytes. Everything but the payload is checked: what does not parse ends the
//! connection.

use bytes::{BufMut, BytesMut};

use crate::metadata::Priority;

/// First byte of each stream.
const TYPE: u64 = 0x0b;
/// Bytes behind `length`, at most.
const LENGTH_MOST: u64 = 64;
/// The largest variable-length integer.
pub(super) const VARINT_MAX: u64 = (1 << 62) - 1;

const PRIORITY: u64 = 0b111;
const HAS_LEFT: u64 = 1 << 3;
const NOTICE: u64 = 1 << 4;
const HAS_GONE: u64 = 1 << 5;
const KNOWN: u64 = PRIORITY | HAS_LEFT | NOTICE | HAS_GONE;
/// Bit of the first flag that is not known.
#[cfg(test)]
const UNKNOWN: u32 = 6;

/// Ids of one run of what was given up, at most.
pub(super) const GONE_MOST: u64 = 4096;

/// See the file's comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: u64,
    pub(super) version: u16,
    pub(super) alive_from: u64,
    pub(super) priority: Priority,
    /// ms.
    pub(super) left: Option<u64>,
    /// There is no such ADU, and no payload follows.
    pub(super) notice: bool,
    /// The first and the last of some ids that were given up, in a row.
    pub(super) gone: Option<(u64, u64)>,
}

/// Why a stream is not one of a [`crate::quic::Sender`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHeader {
    /// The first byte is not 0x0b.
    #[error("stream type {0:#x} instead of 0x0b")]
    Type(u64),
    /// The header says that it is longer than 64 bytes.
    #[error("header of {0} bytes; 64 are the most")]
    TooLong(u64),
    /// The fields do not fill the header, or do not fit.
    #[error("the header's fields do not fill its length")]
    Length,
    /// More than 65,535.
    #[error("version {0}; 65535 is the most")]
    Version(u64),
    /// It is said to be alive from before the first id.
    #[error("alive from {behind} before id {id}")]
    AliveFrom {
        /// Of the ADU.
        id: u64,
        /// So many ids before it.
        behind: u64,
    },
    /// Ids that were given up before the first id, none of them or too many at once.
    #[error("{gone} ids before {back} before id {id} are said to be given up")]
    Gone {
        /// Of the ADU.
        id: u64,
        /// So many ids before it they end.
        back: u64,
        /// So many they are.
        gone: u64,
    },
    /// Bytes follow a notice.
    #[error("a notice has no payload")]
    NoticeWithPayload,
    /// The stream ended in the middle of the header.
    #[error("the stream ended in its header")]
    Truncated,
}

pub(super) fn put(buffer: &mut impl BufMut, value: u64) {
    match value {
        0..0x40 => buffer.put_u8(value as u8),
        0x40..0x4000 => buffer.put_u16(0x4000 | value as u16),
        0x4000..0x4000_0000 => buffer.put_u32(0x8000_0000 | value as u32),
        _ => buffer.put_u64(0xc000_0000_0000_0000 | value.min(VARINT_MAX)),
    }
}

/// The integer at the start and what follows it; None if more bytes are needed.
fn take(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let first = *bytes.first()?;
    let len = 1_usize << (first >> 6);
    let (number, rest) = bytes.split_at_checked(len)?;
    let start = u64::from(first & 0x3f);
    let value = number[1..]
        .iter()
        .fold(start, |value, &byte| value << 8 | u64::from(byte));
    Some((value, rest))
}

impl Header {
    pub(super) fn encode(&self) -> BytesMut {
        let mut fields = BytesMut::with_capacity(48);
        put(&mut fields, self.id);
        put(&mut fields, self.version.into());
        put(&mut fields, self.id.saturating_sub(self.alive_from));
        let left = if self.left.is_some() { HAS_LEFT } else { 0 };
        let notice = if self.notice { NOTICE } else { 0 };
        let gone = if self.gone.is_some() { HAS_GONE } else { 0 };
        let priority = u64::from(self.priority.get());
        put(&mut fields, priority | left | notice | gone);
        if let Some(left) = self.left {
            put(&mut fields, left);
        }
        if let Some((first, last)) = self.gone {
            put(&mut fields, self.id.saturating_sub(last).saturating_sub(1));
            put(&mut fields, last.saturating_sub(first) + 1);
        }
        let mut header = BytesMut::with_capacity(fields.len() + 2);
        put(&mut header, TYPE);
        put(&mut header, fields.len() as u64);
        header.extend_from_slice(&fields);
        header
    }

    /// The header at the start of `bytes`, and how many bytes it has. None if more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`BadHeader`] as soon as it is certain, however few bytes there are.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, BadHeader> {
        let Some((kind, rest)) = take(bytes) else {
            return Ok(None);
        };
        if kind != TYPE {
            return Err(BadHeader::Type(kind));
        }
        let Some((length, rest)) = take(rest) else {
            return Ok(None);
        };
        if length > LENGTH_MOST {
            return Err(BadHeader::TooLong(length));
        }
        let before = bytes.len() - rest.len();
        let Some(fields) = rest.get(..length as usize) else {
            return Ok(None);
        };
        let header = Self::fields(fields)?;
        Ok(Some((header, before + fields.len())))
    }

    fn fields(fields: &[u8]) -> Result<Self, BadHeader> {
        let (id, rest) = take(fields).ok_or(BadHeader::Length)?;
        let (version, rest) = take(rest).ok_or(BadHeader::Length)?;
        let (behind, rest) = take(rest).ok_or(BadHeader::Length)?;
        let (flags, mut rest) = take(rest).ok_or(BadHeader::Length)?;
        let mut left = None;
        if flags & HAS_LEFT != 0 {
            let (ms, after) = take(rest).ok_or(BadHeader::Length)?;
            left = Some(ms);
            rest = after;
        }
        let mut gone = None;
        if flags & HAS_GONE != 0 {
            let (back, after) = take(rest).ok_or(BadHeader::Length)?;
            let (len, after) = take(after).ok_or(BadHeader::Length)?;
            let end = id.checked_sub(back);
            let first = end.and_then(|end| end.checked_sub(len));
            let (Some(end), Some(first), 1..=GONE_MOST) = (end, first, len) else {
                let gone = len;
                return Err(BadHeader::Gone { id, back, gone });
            };
            gone = Some((first, end - 1));
            rest = after;
        }
        if flags & !KNOWN == 0 && !rest.is_empty() {
            return Err(BadHeader::Length);
        }
        let version = u16::try_from(version).map_err(|_| BadHeader::Version(version))?;
        let alive_from = id
            .checked_sub(behind)
            .ok_or(BadHeader::AliveFrom { id, behind })?;
        Ok(Self {
            id,
            version,
            alive_from,
            priority: Priority::from_bits((flags & PRIORITY) as u32),
            left,
            notice: flags & NOTICE != 0,
            gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_header() -> impl Strategy<Value = Header> {
        let numbers = prop_oneof![0..100u64, 0..=VARINT_MAX];
        let parts = (
            numbers.clone(),
            any::<u16>(),
            any::<u64>(),
            0..8u32,
            proptest::option::of(numbers),
            any::<bool>(),
            proptest::option::of((any::<u64>(), 0..GONE_MOST)),
        );
        parts.prop_map(
            |(id, version, alive, priority, left, notice, gone)| Header {
                id,
                version,
                alive_from: alive % (id + 1),
                priority: Priority::from_bits(priority),
                left,
                notice,
                gone: gone.filter(|_| id > 0).map(|(last, more)| {
                    let last = last % id;
                    (last.saturating_sub(more), last)
                }),
            },
        )
    }

    proptest! {
        #[test]
        fn header_that_was_encoded_parses_to_itself_and_not_before_its_last_byte(header in any_header()) {
            let mut bytes = header.encode().to_vec();
            let len = bytes.len();
            prop_assert!(len <= 46, "{len}");
            for cut in 0..len {
                prop_assert_eq!(Header::parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend_from_slice(b"payload");
            prop_assert_eq!(Header::parse(&bytes), Ok(Some((header, len))));
        }

        #[test]
        fn unknown_flags_are_skipped_with_what_they_bring(
            header in any_header(),
            flags in 1..1u64 << 50,
            brings in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut fields = BytesMut::new();
            put(&mut fields, header.id);
            put(&mut fields, header.version.into());
            put(&mut fields, header.id - header.alive_from);
            let known = u64::from(header.priority.get())
                | if header.left.is_some() { HAS_LEFT } else { 0 }
                | if header.notice { NOTICE } else { 0 };
            let header = Header { gone: None, ..header };
            put(&mut fields, known | flags << UNKNOWN);
            if let Some(left) = header.left {
                put(&mut fields, left);
            }
            fields.extend_from_slice(&brings);
            let mut bytes = BytesMut::new();
            put(&mut bytes, TYPE);
            put(&mut bytes, fields.len() as u64);
            bytes.extend_from_slice(&fields);
            let len = bytes.len();
            bytes.extend_from_slice(b"payload");
            let expected = if fields.len() as u64 > LENGTH_MOST {
                Err(BadHeader::TooLong(fields.len() as u64))
            } else {
                Ok(Some((header, len)))
            };
            prop_assert_eq!(Header::parse(&bytes), expected);
        }

        /// Whatever comes, the parser neither panics nor reads beyond the header, and more bytes never turn
        /// an answer into another.
        #[test]
        fn any_bytes_parse_or_not_and_more_of_them_change_no_answer(
            start in prop_oneof![Just(vec![]), Just(vec![0x0b]), (0..70u8).prop_map(|len| vec![0x0b, len])],
            rest in proptest::collection::vec(any::<u8>(), 0..90),
        ) {
            let bytes = [start, rest].concat();
            let mut answer = Ok(None);
            for end in 0..=bytes.len() {
                let now = Header::parse(&bytes[..end]);
                if answer == Ok(None) {
                    if let Ok(Some((header, len))) = now {
                        prop_assert_eq!(len, end);
                        prop_assert!(header.alive_from <= header.id && len <= 80);
                    }
                } else {
                    prop_assert_eq!(now, answer);
                }
                answer = now;
            }
            prop_assert!(bytes.len() < 80 || answer != Ok(None));
        }
    }

    #[test]
    fn each_kind_of_bad_header_has_its_error() {
        let bad = |bytes: &[u8]| Header::parse(bytes).unwrap_err();
        assert_eq!(bad(&[0x0c]), BadHeader::Type(0x0c));
        assert_eq!(bad(&[0x0b, 0x40, 65]), BadHeader::TooLong(65));
        assert_eq!(bad(&[0x0b, 0]), BadHeader::Length);
        assert_eq!(bad(&[0x0b, 5, 1, 0, 0, 0, 0]), BadHeader::Length);
        assert_eq!(bad(&[0x0b, 4, 1, 0, 0, 0x08]), BadHeader::Length);
        let version = [0x0b, 7, 1, 0x80, 1, 0, 0, 0, 0];
        assert_eq!(bad(&version), BadHeader::Version(65_536));
        for (back, gone) in [(0, 0), (0, 4), (3, 1), (1, 3)] {
            let bytes = [0x0b, 6, 3, 0, 0, 0x20, back, gone];
            let (back, gone) = (back.into(), gone.into());
            assert_eq!(bad(&bytes), BadHeader::Gone { id: 3, back, gone });
        }
        let alive = BadHeader::AliveFrom { id: 1, behind: 2 };
        assert_eq!(bad(&[0x0b, 4, 1, 0, 2, 0]), alive);
    }
}
