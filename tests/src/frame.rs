//! Frames, from the inside out.
#![allow(clippy::unwrap_used)]

/// IPv4 addresses of the frames.
pub const SRC4: [u8; 4] = [192, 0, 2, 1];
/// IPv4 addresses of the frames.
pub const DST4: [u8; 4] = [198, 51, 100, 7];
/// IPv6 addresses of the frames.
pub const SRC6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// IPv6 addresses of the frames.
pub const DST6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap().to_be_bytes()
}

/// A UDP datagram from port 4000.
#[must_use]
pub fn udp(dport: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = 4000u16.to_be_bytes().to_vec();
    out.extend(dport.to_be_bytes());
    out.extend(length(8 + payload.len()));
    out.extend([0, 0]);
    out.extend(payload);
    out
}

/// 40 bytes that start with ports: a TCP, SCTP or DCCP header as far as it is read.
#[must_use]
pub fn ports(dport: u16) -> Vec<u8> {
    let mut out = 4000u16.to_be_bytes().to_vec();
    out.extend(dport.to_be_bytes());
    out.resize(40, 0);
    out
}

/// An RTP packet of 172 bytes, payload type 96.
#[must_use]
pub fn rtp(ssrc: u32, timestamp: u32, marker: bool) -> Vec<u8> {
    let mut out = vec![0x80, 96 | u8::from(marker) << 7, 0, 1];
    out.extend(timestamp.to_be_bytes());
    out.extend(ssrc.to_be_bytes());
    out.resize(172, 0x55);
    out
}

/// The same of another payload type and sequence number.
#[must_use]
pub fn rtp_with(payload_type: u8, seq: u16, ssrc: u32, timestamp: u32) -> Vec<u8> {
    let mut out = rtp(ssrc, timestamp, false);
    out[1] = payload_type;
    out[2..4].copy_from_slice(&seq.to_be_bytes());
    out
}

/// A STUN binding request, filled up to `size` bytes, at least 20 (RFC 8489 §5).
#[must_use]
pub fn stun(size: usize) -> Vec<u8> {
    let mut out = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    out[2..4].copy_from_slice(&length(size - 20));
    out.resize(size, 0x55);
    out
}

/// An IPv4 packet; `fragment` is the flags and offset word, `options` a multiple of 4 bytes.
#[must_use]
pub fn ip4_with(proto: u8, payload: &[u8], fragment: u16, options: &[u8], dst: [u8; 4]) -> Vec<u8> {
    let header = 20 + options.len();
    let mut out = vec![0x40 | u8::try_from(header / 4).unwrap(), 0];
    out.extend(length(header + payload.len()));
    out.extend([0x12, 0x34]);
    out.extend(fragment.to_be_bytes());
    out.extend([64, proto, 0, 0]);
    out.extend(SRC4);
    out.extend(dst);
    out.extend(options);
    out.extend(payload);
    out
}

/// An IPv4 packet without options.
#[must_use]
pub fn ip4(proto: u8, payload: &[u8]) -> Vec<u8> {
    ip4_with(proto, payload, 0, &[], DST4)
}

/// An IPv6 packet; `next` is the first next header of `payload`.
#[must_use]
pub fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0];
    out.extend(length(payload.len()));
    out.extend([next, 64]);
    out.extend(SRC6);
    out.extend(DST6);
    out.extend(payload);
    out
}

/// An Ethernet frame.
#[must_use]
pub fn ethernet(protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    out.extend(protocol.to_be_bytes());
    out.extend(payload);
    out
}

/// A VLAN tag (in band) before `payload` of the given protocol.
#[must_use]
pub fn tag(id: u16, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend(protocol.to_be_bytes());
    out.extend(payload);
    out
}

/// An Ethernet frame with IPv4 and UDP to this port.
#[must_use]
pub fn udp4(dport: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ip4(17, &udp(dport, payload)))
}

/// The same to another address.
#[must_use]
pub fn udp4_to(dst: [u8; 4], dport: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ip4_with(17, &udp(dport, payload), 0, &[], dst))
}

/// An Ethernet frame with IPv6 and UDP to this port.
#[must_use]
pub fn udp6(dport: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, &ip6(17, &udp(dport, payload)))
}

/// An IPv4 packet with the checksum of its header, which whoever forwards it looks at.
#[must_use]
pub fn with_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    let header = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum: u32 = packet[..header]
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from(u16::from_be_bytes(*word)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}
