//! A stream of video, read packet by packet as the classifier does (`src/role_native.c`).

#![allow(dead_code)] // each test file uses a part of it

use bestby_bpf::abi::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_video_read(
        video: &mut bb_video,
        bytes: &[u8; 12],
        n: u32,
        ext: &[u8; 64],
        ext_n: u32,
        two_byte: i32,
        time: u32,
        first: i32,
        last: i32,
    ) -> u32;
    safe fn bbn_role_priority(video: &bb_video, role: u32, refuses: i32) -> u32;
}

/// `enum bb_role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Role {
    None,
    Key,
    Link,
    Link1,
    Link2,
    Leaf,
}

use Role::*;

/// 1 + `enum bb_codec`.
pub(crate) const H264: u8 = 1;
pub(crate) const H265: u8 = 2;
pub(crate) const VP8: u8 = 3;
pub(crate) const VP9: u8 = 4;
pub(crate) const AV1: u8 = 5;
pub(crate) const DD: u8 = 6;
pub(crate) const VFM: u8 = 7;
pub(crate) const OPAQUE: u8 = 255;
/// Frames until a codec is known.
pub(crate) const SURE: usize = 32;

/// RTP header extensions of a packet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extensions {
    /// Behind their length.
    pub(crate) bytes: Vec<u8>,
    pub(crate) two_byte: bool,
}

impl Extensions {
    /// Elements of these ids, in this order, in the form that their lengths ask for.
    pub(crate) fn of(elements: &[(u8, Vec<u8>)]) -> Self {
        let two_byte = elements.iter().any(|(_, data)| data.len() > 16);
        let mut bytes = Vec::new();
        for (id, data) in elements {
            if two_byte {
                bytes.extend([*id, data.len() as u8]);
            } else {
                bytes.push(id << 4 | (data.len() as u8 - 1));
            }
            bytes.extend(data);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self { bytes, two_byte }
    }
}

#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) video: bb_video,
    /// RTP's timestamp.
    pub(crate) time: u32,
}

impl Stream {
    pub(crate) fn packet(&mut self, payload: &[u8], first: bool, last: bool) -> Role {
        self.extended(payload, &Extensions::default(), first, last)
    }

    pub(crate) fn extended(
        &mut self,
        payload: &[u8],
        ext: &Extensions,
        first: bool,
        last: bool,
    ) -> Role {
        let mut bytes = [0; 12];
        let n = payload.len().min(12);
        bytes[..n].copy_from_slice(&payload[..n]);
        let mut looked = [0; 64];
        let ext_n = ext.bytes.len().min(64);
        looked[..ext_n].copy_from_slice(&ext.bytes[..ext_n]);
        match bbn_video_read(
            &mut self.video,
            &bytes,
            n as u32,
            &looked,
            ext_n as u32,
            i32::from(ext.two_byte),
            self.time,
            i32::from(first),
            i32::from(last),
        ) {
            0 => None,
            1 => Key,
            2 => Link,
            3 => Link1,
            4 => Link2,
            5 => Leaf,
            other => panic!("{other}"),
        }
    }

    /// All packets of the next frame in order: their roles.
    pub(crate) fn frame(&mut self, packets: &[Vec<u8>]) -> Vec<Role> {
        self.frame_at(self.time.wrapping_add(3000), packets)
    }

    /// All packets of a frame that is shown at this time.
    pub(crate) fn frame_at(&mut self, time: u32, packets: &[Vec<u8>]) -> Vec<Role> {
        self.time = time;
        let last = packets.len() - 1;
        packets
            .iter()
            .enumerate()
            .map(|(i, payload)| self.packet(payload, i == 0, i == last))
            .collect()
    }

    /// A stream of which so many of these frames were seen.
    pub(crate) fn of(count: usize, frame: impl Fn(usize) -> Vec<Vec<u8>>) -> Self {
        let mut stream = Self::default();
        for n in 0..count {
            stream.frame(&frame(n));
        }
        stream
    }

    /// Priority of the current frame, if it has this role and nobody says one.
    pub(crate) fn priority(&self, role: Role, refuses: bool) -> u32 {
        bbn_role_priority(&self.video, role as u32, i32::from(refuses))
    }
}

/// Random bytes, as encryption makes them.
pub(crate) fn noise<const N: usize>(seed: &mut u64) -> [u8; N] {
    let mut bytes = [0; N];
    for byte in &mut bytes {
        *seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        *byte = (*seed >> 56) as u8;
    }
    bytes
}
