//! RTP (RFC 3550) as far as a relay and a receiver need it, and what the first
//! bytes of an H.264 payload (RFC 6184) say about the frame's worth.

use serde::{Deserialize, Serialize};

/// What identifies one RTP packet among all of a run. The timestamp is in the
/// key because sequence numbers wrap after 65,536 packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PacketKey {
    /// Synchronisation source: one per stream.
    pub ssrc: u32,
    /// Sequence number.
    pub seq: u16,
    /// Media clock; equal for all packets of one video frame.
    pub timestamp: u32,
}

/// Splits an RTP packet into its key and its payload without CSRC list, header
/// extension and padding. `None`: not RTP version 2, RTCP, or it ends early.
pub fn parse(packet: &[u8]) -> Option<(PacketKey, &[u8])> {
    let fixed = packet.get(..12)?;
    if fixed[0] >> 6 != 2 || (200..=204).contains(&fixed[1]) {
        return None;
    }
    let word =
        |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let key = PacketKey {
        ssrc: word(8),
        seq: u16::from_be_bytes([fixed[2], fixed[3]]),
        timestamp: word(4),
    };

    let mut start = 12 + 4 * usize::from(fixed[0] & 0x0f);
    if fixed[0] & 0x10 != 0 {
        let length = packet.get(start + 2..start + 4)?;
        start += 4 + 4 * usize::from(u16::from_be_bytes([length[0], length[1]]));
    }
    let mut end = packet.len();
    if fixed[0] & 0x20 != 0 {
        let padding = usize::from(*packet.last()?);
        if padding == 0 {
            return None;
        }
        end = end.checked_sub(padding)?;
    }
    Some((key, packet.get(start..end)?))
}

/// What other frames lose with this one; readable in the first payload byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// A picture that can be decoded alone, or parameter sets: all frames until
    /// the next one need it.
    Key,
    /// Other frames refer to it.
    Reference,
    /// No frame refers to it (`nal_ref_idc` 0).
    Disposable,
}

impl Layer {
    /// Reads it from an H.264 payload; of a fragmented picture every fragment
    /// says the same. `None`: not H.264 as RFC 6184 packs it.
    pub fn of_h264(payload: &[u8]) -> Option<Self> {
        let indicator = *payload.first()?;
        let unit = match indicator & 0x1f {
            // FU-A: the type of the fragmented unit is in the next byte.
            28 => *payload.get(1)? & 0x1f,
            // STAP-A: that of the first aggregated unit, behind its length.
            24 => *payload.get(3)? & 0x1f,
            unit @ 1..=23 => unit,
            _ => return None,
        };
        Some(match unit {
            // IDR picture; SEI, SPS, PPS and delimiters precede one here.
            5..=9 => Self::Key,
            _ if indicator & 0x60 != 0 => Self::Reference,
            _ => Self::Disposable,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![first, 96, 0x12, 0x34, 0, 0, 0, 9, 0xde, 0xad, 0xbe, 0xef];
        packet.extend_from_slice(rest);
        packet
    }

    #[test]
    fn plain_header() {
        let packet = packet(0x80, &[1, 2, 3]);
        let (key, payload) = parse(&packet).unwrap();
        assert_eq!(
            key,
            PacketKey {
                ssrc: 0xdead_beef,
                seq: 0x1234,
                timestamp: 9
            }
        );
        assert_eq!(payload, [1, 2, 3]);
    }

    #[test]
    fn csrc_extension_and_padding_are_no_payload() {
        // 1 CSRC, an extension of 1 word, 2 bytes of padding.
        let rest = [9, 9, 9, 9, 0xbe, 0xde, 0, 1, 8, 8, 8, 8, 42, 0, 2];
        let packet = packet(0x80 | 0x20 | 0x10 | 1, &rest);
        assert_eq!(parse(&packet).unwrap().1, [42]);
    }

    #[test]
    fn what_is_not_rtp_is_refused() {
        assert!(parse(&[]).is_none());
        assert!(parse(&packet(0x80, &[])[..11]).is_none(), "short header");
        assert!(parse(&packet(0x40, &[1])).is_none(), "version 1");
        assert!(
            parse(&packet(0x8f, &[1])).is_none(),
            "15 CSRCs that are not there"
        );
        assert!(
            parse(&packet(0x90, &[0, 0, 0xff, 0xff])).is_none(),
            "endless extension"
        );
        assert!(
            parse(&packet(0xa0, &[1, 200])).is_none(),
            "more padding than packet"
        );
        assert!(parse(&packet(0xa0, &[1, 0])).is_none(), "padding of 0");
        let mut rtcp = packet(0x80, &[0; 16]);
        rtcp[1] = 200;
        assert!(parse(&rtcp).is_none(), "sender report");
    }

    #[test]
    fn layers() {
        assert_eq!(Layer::of_h264(&[0x65, 0x88]), Some(Layer::Key));
        assert_eq!(Layer::of_h264(&[0x67]), Some(Layer::Key), "SPS");
        assert_eq!(Layer::of_h264(&[0x41, 0x9a]), Some(Layer::Reference));
        assert_eq!(Layer::of_h264(&[0x01, 0x9e]), Some(Layer::Disposable));
        assert_eq!(
            Layer::of_h264(&[0x7c, 0x85]),
            Some(Layer::Key),
            "FU-A of an IDR picture"
        );
        assert_eq!(
            Layer::of_h264(&[0x5c, 0x01]),
            Some(Layer::Reference),
            "FU-A"
        );
        assert_eq!(
            Layer::of_h264(&[0x1c, 0x41]),
            Some(Layer::Disposable),
            "FU-A, last"
        );
        assert_eq!(
            Layer::of_h264(&[0x78, 0, 4, 0x67]),
            Some(Layer::Key),
            "STAP-A"
        );
        assert_eq!(Layer::of_h264(&[0x5d, 0]), None, "FU-B");
        assert_eq!(Layer::of_h264(&[0x7c]), None, "FU-A without a header");
        assert_eq!(Layer::of_h264(&[]), None);
    }
}
