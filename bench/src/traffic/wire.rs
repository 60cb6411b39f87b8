//! The lab's record: the first bytes of every payload. An RTP header, so that rules
//! for RTP see what they expect, then what the receiver needs to judge the packet.
//!
//! | bytes | content (network order) |
//! |---|---|
//! | 0..12 | RTP: version 2, marker on the last packet of an ADU, payload type 0 (audio), 96 (video) or 97 (data), sequence, timestamp in ms, SSRC = stream × 256 + class + 1 |
//! | 12..16 | position in the schedule |
//! | 16..20 | ADU |
//! | 20..28 | time of creation, ns of CLOCK_MONOTONIC |
//! | 28..36 | deadline, ns of CLOCK_MONOTONIC |
//! | 36..40 | magic |

use super::{Class, Packet};

/// Bytes of a record.
pub const RECORD: usize = 40;
const MAGIC: [u8; 4] = *b"bbl1";

/// What a packet says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its class.
    pub class: Class,
    /// Its stream.
    pub stream: u16,
    /// Last packet of its ADU (RTP marker).
    pub last: bool,
    /// Position in the schedule.
    pub sequence: u32,
    /// Its ADU.
    pub adu: u32,
    /// ns of CLOCK_MONOTONIC.
    pub created: u64,
    /// ns of CLOCK_MONOTONIC.
    pub deadline: u64,
}

impl Record {
    /// Of a packet that is created at `created`, ns of CLOCK_MONOTONIC.
    pub fn of(packet: &Packet, sequence: u32, created: u64) -> Self {
        Self {
            class: packet.class,
            stream: packet.stream,
            last: packet.last,
            sequence,
            adu: packet.adu,
            created,
            deadline: created + packet.lifetime,
        }
    }

    /// Writes the record into the first [`RECORD`] bytes of `payload`.
    pub fn write(&self, payload: &mut [u8]) {
        let payload_type = match self.class {
            Class::Audio => 0,
            Class::Video => 96,
            Class::Data => 97,
        };
        let ssrc = u32::from(self.stream) << 8 | (self.class as u32 + 1);
        payload[0] = 0x80;
        payload[1] = payload_type | if self.last { 0x80 } else { 0 };
        payload[2..4].copy_from_slice(&(self.sequence as u16).to_be_bytes());
        // The deadline in ms: packets of one ADU share it, as RTP wants, even where
        // they are not created at one time.
        payload[4..8].copy_from_slice(&((self.deadline / 1_000_000) as u32).to_be_bytes());
        payload[8..12].copy_from_slice(&ssrc.to_be_bytes());
        payload[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        payload[16..20].copy_from_slice(&self.adu.to_be_bytes());
        payload[20..28].copy_from_slice(&self.created.to_be_bytes());
        payload[28..36].copy_from_slice(&self.deadline.to_be_bytes());
        payload[36..40].copy_from_slice(&MAGIC);
    }

    /// Reads a record; `None` for a payload that is not the lab's.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD] = payload.first_chunk()?;
        if bytes[36..40] != MAGIC {
            return None;
        }
        Some(Self {
            class: match bytes[1] & 0x7f {
                0 => Class::Audio,
                97 => Class::Data,
                _ => Class::Video,
            },
            stream: u16::from_be_bytes(*bytes[9..].first_chunk()?),
            last: bytes[1] & 0x80 != 0,
            sequence: u32::from_be_bytes(*bytes[12..].first_chunk()?),
            adu: u32::from_be_bytes(*bytes[16..].first_chunk()?),
            created: u64::from_be_bytes(*bytes[20..].first_chunk()?),
            deadline: u64::from_be_bytes(*bytes[28..].first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_wire() {
        let record = Record {
            class: Class::Video,
            stream: 0x1234,
            last: true,
            sequence: 70_000,
            adu: 9,
            created: 5_000_000_001,
            deadline: 5_200_000_001,
        };
        let mut payload = [0; 60];
        for class in Class::ALL {
            let record = Record { class, ..record };
            record.write(&mut payload);
            assert_eq!(Record::read(&payload), Some(record));
        }
        assert_eq!(Record::read(&payload[..39]), None);
        payload[36] = 0;
        assert_eq!(Record::read(&payload), None);
    }
}
