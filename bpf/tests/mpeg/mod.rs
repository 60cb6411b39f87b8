//! MPEG-TS, read datagram by datagram as the classifier does (`src/ts_native.c`).

#![allow(dead_code)] // each test file uses a part of it

use bestby_bpf::abi::*;

// Links the archive that holds the function below.
use bestby_bpf as _;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    place: u32,
    role: u32,
    source: u32,
    ends: u32,
    unit: u32,
}

unsafe extern "C" {
    fn bbn_ts_read(video: &mut bb_video, bytes: *const u8, n: u32, seen: &mut Read) -> i32;
}

/// `enum bb_role`, of what belongs to a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Role {
    Key,
    Link,
    Link1,
    Link2,
    Leaf,
}

/// Where a datagram belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of the picture with this number, which is for that.
    Picture(u32, Role),
    /// Of none.
    Alone,
    /// It carries nothing.
    Nothing,
}

/// `bb_video.codec` of MPEG-TS.
pub(crate) const H264: u8 = BB_CODEC_TS_H264 as u8 + 1;
pub(crate) const H265: u8 = BB_CODEC_TS_H265 as u8 + 1;
pub(crate) const MPEG2: u8 = BB_CODEC_TS_MPEG2 as u8 + 1;
pub(crate) const OPAQUE: u8 = BB_CODEC_OPAQUE as u8;
/// Pictures until a codec is known.
pub(crate) const SURE: usize = BB_CODEC_SURE as usize;

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) video: bb_video,
    /// In the last datagram its picture ended, and another one began.
    pub(crate) ends: bool,
}

impl Stream {
    /// `None`: it is no MPEG-TS.
    pub(crate) fn read(&mut self, datagram: &[u8]) -> Option<Place> {
        assert!(datagram.len().is_multiple_of(188) && datagram.len() <= 7 * 188);
        let mut seen = Read::default();
        // SAFETY: it reads so many bytes, which fit into what it has for them.
        let is = unsafe {
            let n = datagram.len() as u32;
            bbn_ts_read(&mut self.video, datagram.as_ptr(), n, &mut seen)
        };
        self.ends = seen.ends != 0;
        if is == 0 {
            return None;
        }
        if self.video.codec == OPAQUE {
            return Some(Place::Alone);
        }
        Some(match (seen.place, seen.role) {
            (0, 1) => Place::Picture(seen.source, Role::Key),
            (0, 2) => Place::Picture(seen.source, Role::Link),
            (0, 3) => Place::Picture(seen.source, Role::Link1),
            (0, 4) => Place::Picture(seen.source, Role::Link2),
            (0, 5) => Place::Picture(seen.source, Role::Leaf),
            (1, _) => Place::Alone,
            (2, _) => Place::Nothing,
            _ => panic!("{seen:?}"),
        })
    }

    /// Is its codec known?
    pub(crate) fn known(&self) -> bool {
        ![0, OPAQUE].contains(&self.video.codec)
    }
}

/// Writes packets of MPEG-TS, as a multiplexer does.
pub(crate) struct Mux {
    counts: [u8; 0x2000],
}

pub(crate) const VIDEO: u16 = 0x100;
pub(crate) const AUDIO: u16 = 0x101;
pub(crate) const MAP: u16 = 0x1000;

impl Default for Mux {
    fn default() -> Self {
        Self {
            counts: [0; 0x2000],
        }
    }
}

impl Mux {
    /// A packet of this PID; what does not fit is left out, what is missing is an adaptation field with these flags.
    pub(crate) fn packet(&mut self, pid: u16, begins: bool, flags: u8, payload: &[u8]) -> Vec<u8> {
        let count = &mut self.counts[usize::from(pid)];
        let payload = &payload[..payload.len().min(if flags == 0 { 184 } else { 182 })];
        let stuffing = 184 - payload.len();
        let mut packet = vec![0x47, u8::from(begins) << 6 | (pid >> 8) as u8, pid as u8];
        packet.push(u8::from(stuffing > 0) << 5 | u8::from(!payload.is_empty()) << 4 | *count);
        if stuffing > 0 {
            packet.push(stuffing as u8 - 1);
            if stuffing > 1 {
                packet.push(flags);
                packet.resize(4 + stuffing, 0xFF);
            }
        }
        packet.extend(payload);
        assert_eq!(packet.len(), 188);
        if !payload.is_empty() {
            *count = (*count + 1) & 15;
        }
        packet
    }

    /// A PES packet in so many packets; `random`: with the random access indicator.
    pub(crate) fn pes(
        &mut self,
        pid: u16,
        id: u8,
        pts: u32,
        random: bool,
        data: &[u8],
        packets: usize,
    ) -> Vec<Vec<u8>> {
        let mut bytes = vec![0, 0, 1, id, 0, 0, 0x80, 0x80, 5];
        bytes.extend([
            0x21 | (pts >> 29 & 6) as u8,
            (pts >> 22) as u8,
            (pts >> 14) as u8 | 1,
            (pts >> 7) as u8,
            (pts << 1) as u8 | 1,
        ]);
        bytes.extend(data);
        bytes.resize(170.max(bytes.len().min(180)), 0x5a);
        (0..packets)
            .map(|n| match n {
                0 => self.packet(pid, true, if random { 0x40 } else { 0x10 }, &bytes),
                _ => self.packet(pid, false, 0, &[0x5a; 184]),
            })
            .collect()
    }

    /// A picture that begins with these units.
    pub(crate) fn picture(
        &mut self,
        pts: u32,
        random: bool,
        data: &[u8],
        packets: usize,
    ) -> Vec<Vec<u8>> {
        self.pes(VIDEO, 0xE0, pts, random, data, packets)
    }

    pub(crate) fn audio(&mut self, packets: usize) -> Vec<Vec<u8>> {
        self.pes(AUDIO, 0xC0, 0, true, &[], packets)
    }

    pub(crate) fn null() -> Vec<u8> {
        Self::default().packet(0x1FFF, false, 0, &[0xFF; 184])
    }

    /// A program map with these entries: type of stream, PID.
    pub(crate) fn map(&mut self, entries: &[(u8, u16)]) -> Vec<u8> {
        let mut section = vec![0, 1, 0xC1, 0, 0, 0xE1, 0, 0xF0, 0];
        for (kind, pid) in entries {
            // With a descriptor of 6 bytes, as H.265 has.
            section.extend([*kind, 0xE0 | (pid >> 8) as u8, *pid as u8, 0xF0, 6]);
            section.extend([5, 4, 0x48, 0x45, 0x56, 0x43]);
        }
        section.extend([1, 2, 3, 4]);
        let mut bytes = vec![0, 2, 0xB0, section.len() as u8];
        bytes.extend(section);
        bytes.resize(184, 0xFF);
        self.packet(MAP, true, 0, &bytes)
    }
}
