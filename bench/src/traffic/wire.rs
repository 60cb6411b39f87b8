//! The lab's record: which packet of the schedule a datagram is. It stands behind what a queue
//! may read, an RTP header and the first bytes of its payload, so that real media look like media.
//!
//! | bytes | content (network order) |
//! |---|---|
//! | 0..12 | RTP: version 2, marker on the last packet of an ADU, payload type 0 (audio), 96 (video) or 97 (data), position in the schedule, timestamp, SSRC = stream × 256 + class + 1 |
//! | 12..24 | first bytes of the payload: of real media those of the recording, else [`NOTHING`] |
//! | 24..28 | position in the schedule |
//! | 28..36 | time of creation, ns of CLOCK_MONOTONIC |
//! | 36..40 | magic |

use super::{Class, Packet};

/// Bytes of a record; the size of the smallest packet follows from it.
pub const RECORD: usize = 40;
const MAGIC: [u8; 4] = *b"bbl3";
/// Bytes that are left of a payload where a last hop forwards headers alone: RTP's.
pub const HEADER: usize = 12;
/// Bytes of RTP's payload that are those of a recording: as many as bestby reads (`BB_ROLE_BYTES`).
pub const HEAD: usize = 12;
/// Where a model knows sizes only. No codec begins like this: H.264 has no units of this type, H.265, VP8 and
/// AV1 have bits that are zero here, and VP9 without picture ids is not flexible. `bpf/tests/role.rs` holds it.
pub const NOTHING: [u8; HEAD] = [0x1f; HEAD];

/// What a recorded packet says of itself in RTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// RTP's, in units of the media's clock.
    pub timestamp: u32,
    /// First bytes of the payload; zeros behind a shorter one.
    pub head: [u8; HEAD],
}

impl Recorded {
    /// Of an RTP payload.
    pub fn of(timestamp: u32, payload: &[u8]) -> Self {
        let mut head = [0; HEAD];
        for (to, from) in head.iter_mut().zip(payload) {
            *to = *from;
        }
        Self { timestamp, head }
    }
}

/// What a packet says about itself; all else is in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position in the schedule.
    pub sequence: u32,
    /// ns of CLOCK_MONOTONIC.
    pub created: u64,
}

impl Record {
    /// Writes the record of `packet` into the first [`RECORD`] bytes of `payload`.
    pub fn write(&self, packet: &Packet, payload: &mut [u8]) {
        let payload_type = match packet.class {
            Class::Audio => 0,
            Class::Video => 96,
            Class::Data => 97,
        };
        let ssrc = u32::from(packet.stream) << 8 | (packet.class as u32 + 1);
        let Recorded { timestamp, head } = packet.recorded.unwrap_or(Recorded {
            // The deadline in ms: packets of one ADU share it, as RTP wants, even where
            // they are not created at one time.
            timestamp: ((self.created + packet.lifetime) / 1_000_000) as u32,
            head: NOTHING,
        });
        payload[0] = 0x80;
        payload[1] = payload_type | if packet.last { 0x80 } else { 0 };
        payload[2..4].copy_from_slice(&(self.sequence as u16).to_be_bytes());
        payload[4..8].copy_from_slice(&timestamp.to_be_bytes());
        payload[8..12].copy_from_slice(&ssrc.to_be_bytes());
        payload[12..24].copy_from_slice(&head);
        payload[24..28].copy_from_slice(&self.sequence.to_be_bytes());
        payload[28..36].copy_from_slice(&self.created.to_be_bytes());
        payload[36..40].copy_from_slice(&MAGIC);
    }

    /// Reads a record; `None` for a payload that is not the lab's.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD] = payload.first_chunk()?;
        (bytes[36..40] == MAGIC).then_some(Self {
            sequence: u32::from_be_bytes(*bytes[24..].first_chunk()?),
            created: u64::from_be_bytes(*bytes[28..].first_chunk()?),
        })
    }

    /// Reads a payload of which a last hop has left RTP's header alone. Its 16 bits say the position
    /// that is next to `near`; when it was created they do not say (0).
    pub fn of_header(payload: &[u8], near: u32) -> Option<Self> {
        let bytes: &[u8; HEADER] = payload.try_into().ok()?;
        let sequence = u16::from_be_bytes([bytes[2], bytes[3]]);
        let ahead = sequence.wrapping_sub(near as u16) as i16;
        (bytes[0] == 0x80).then_some(Self {
            sequence: near.checked_add_signed(ahead.into())?,
            created: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_the_wire_and_is_rtp() {
        let record = Record {
            sequence: 70_000,
            created: 5_000_000_001,
        };
        let mut payload = [0; 60];
        for (class, kind, number) in [
            (Class::Audio, 0x00, 1),
            (Class::Video, 0x60, 2),
            (Class::Data, 0x61, 3),
        ] {
            for (last, marker) in [(false, 0), (true, 0x80)] {
                let packet = Packet {
                    last,
                    stream: 0x1234,
                    ..Packet::of(class, 9)
                };
                record.write(&packet, &mut payload);
                assert_eq!(Record::read(&payload), Some(record));
                let ssrc = [0, 0x12, 0x34, number];
                assert_eq!(payload[..4], [0x80, marker | kind, 0x11, 0x70]);
                assert_eq!(
                    (&payload[4..8], &payload[8..12]),
                    (&[0, 0, 0x14, 0x50][..], &ssrc[..])
                );
            }
        }
        assert_eq!(Record::read(&payload[..39]), None);
        assert_eq!(Record::of_header(&payload[..13], 70_000), None);
        assert_eq!(Record::of_header(&[0; HEADER], 70_000), None);
        payload[36] = 0;
        assert_eq!(Record::read(&payload), None);
    }

    #[test]
    fn record_leaves_what_a_recorded_packet_says() {
        let record = Record {
            sequence: 7,
            created: 5_000_000_001,
        };
        let mut packet = Packet::of(Class::Video, 9);
        let mut payload = [0; 60];
        record.write(&packet, &mut payload);
        assert_eq!(payload[HEADER..HEADER + HEAD], NOTHING);
        // A fragment (FU-A) of an IDR picture; and a unit shorter than what is kept.
        for unit in [
            &b"\x7c\x85\x88\x84\x00\x33\xff\xfe\xf6\xf0\xfe\x05\x36"[..],
            b"\x01\x9e",
        ] {
            packet.recorded = Some(Recorded::of(0x0102_0304, unit));
            record.write(&packet, &mut payload);
            assert_eq!(payload[4..8], [1, 2, 3, 4]);
            let kept = unit.len().min(HEAD);
            assert_eq!(payload[HEADER..HEADER + kept], unit[..kept]);
            assert!(
                payload[HEADER + kept..HEADER + HEAD]
                    .iter()
                    .all(|&b| b == 0)
            );
            assert_eq!(Record::read(&payload), Some(record));
        }
    }

    #[test]
    fn record_of_a_lone_header_is_the_position_next_to_the_last() {
        let mut payload = [0; 60];
        for (sequence, near, read) in [
            (70_000, 69_990, Some(70_000)),
            (70_000, 70_010, Some(70_000)),
            (65_530, 65_540, Some(65_530)),
            (65_540, 65_530, Some(65_540)),
            // Before the first one: none of ours.
            (65_530, 4, None),
        ] {
            let record = Record {
                sequence,
                created: 5_000_000_001,
            };
            record.write(&Packet::of(Class::Data, 9), &mut payload);
            let header = Record::of_header(&payload[..HEADER], near);
            assert_eq!(header.map(|record| record.sequence), read, "{sequence}");
        }
    }
}
