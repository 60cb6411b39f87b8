//! One datagram with its metadata.

use std::net::SocketAddr;

use crate::metadata::Metadata;

/// One datagram, or one GSO super-packet, to send.
///
/// ```
/// use std::time::Duration;
/// use bestby::{Deadline, Metadata, Packet};
///
/// let frame = vec![0; 5_000];
/// let metadata = Metadata::new().deadline(Deadline::after(Duration::from_millis(100)));
/// // One system call, one trip through the stack, one deadline: all five segments or none.
/// let packet = Packet::new(&frame)
///     .to(([127, 0, 0, 1], 5004).into())
///     .metadata(metadata)
///     .segment_size(1_200);
/// assert_eq!(packet.segments().count(), 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) to: Option<SocketAddr>,
    pub(crate) metadata: Metadata,
    pub(crate) segment_size: u16,
}

impl<'a> Packet<'a> {
    /// A datagram to the socket's connected peer, with nothing said about it.
    pub const fn new(payload: &'a [u8]) -> Self {
        Self {
            payload,
            to: None,
            metadata: Metadata::new(),
            segment_size: 0,
        }
    }

    /// Where to send it.
    #[must_use]
    pub const fn to(mut self, to: SocketAddr) -> Self {
        self.to = Some(to);
        self
    }

    /// What to say about it.
    #[must_use]
    pub const fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Makes it a super-packet: the kernel (4.18 and newer) or the device cuts the payload
    /// into datagrams of `bytes` (the last may be shorter). It is queued, judged and dropped as
    /// one packet. 0 (the default): not cut. Has no effect on a payload that fits.
    #[must_use]
    pub const fn segment_size(mut self, bytes: u16) -> Self {
        self.segment_size = bytes;
        self
    }

    /// Its payload.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The datagrams that the receiver gets, each as a packet with the same destination and
    /// metadata: to send them one by one where the kernel refuses to cut
    /// ([`crate::Error::Segmentation`]).
    pub fn segments(self) -> impl Iterator<Item = Self> {
        let size = if self.segment_size == 0 {
            usize::MAX
        } else {
            usize::from(self.segment_size)
        };
        let single = Self {
            segment_size: 0,
            ..self
        };
        // chunks() yields nothing for an empty payload, but an empty datagram is one.
        let empty = self.payload.is_empty().then_some(single);
        let chunks = self
            .payload
            .chunks(size)
            .map(move |payload| Self { payload, ..single });
        chunks.chain(empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_joined_are_the_payload() {
        let payload: Vec<u8> = (0..=255).collect();
        for size in [0, 1, 100, 255, 256, 257, u16::MAX] {
            let parts: Vec<_> = Packet::new(&payload)
                .segment_size(size)
                .segments()
                .collect();
            let joined: Vec<u8> = parts.iter().flat_map(|p| p.payload.to_vec()).collect();
            assert_eq!(joined, payload, "segment size {size}");
            assert!(parts.iter().all(|p| p.segment_size == 0));
        }
        assert_eq!(Packet::new(&[]).segment_size(10).segments().count(), 1);
    }
}
