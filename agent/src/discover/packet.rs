//! From the bytes that the capture has of a packet to its flow and its payload. Pure.

use std::net::IpAddr;

use etherparse::{IpNumber, LaxNetSlice, LaxSlicedPacket, TransportSlice};

/// A flow: packets with the same addresses, ports and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Protocol number of IP.
    pub(crate) proto: u8,
    pub(crate) src: IpAddr,
    /// 0 for a protocol without ports, and for later fragments.
    pub(crate) sport: u16,
    pub(crate) dst: IpAddr,
    pub(crate) dport: u16,
}

impl Key {
    pub(crate) const UDP: u8 = IpNumber::UDP.0;
    pub(crate) const TCP: u8 = IpNumber::TCP.0;
}

/// A packet as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    pub(crate) key: Key,
    /// Differentiated services code point.
    pub(crate) dscp: u8,
    /// Bytes of the whole IP packet.
    pub(crate) bytes: u32,
    /// The captured part of a UDP datagram's payload; empty for others and for later fragments.
    pub(crate) payload: &'a [u8],
    /// Bytes that this payload really has.
    pub(crate) payload_bytes: u32,
}

/// A packet from its network header on; `tagged`: VLAN tags may come before that header (they do where the device does
/// not add them itself, or the sender wrote them). `None`: it is no IP, or ends within its headers.
pub(crate) fn read(bytes: &[u8], tagged: bool) -> Option<Packet<'_>> {
    let mut at = bytes;
    // Two tags at most. Priority 2 makes a tag look like IPv4, so tags come first: 0x0800 as a length is rare.
    for _ in 0..if tagged { 2 } else { 0 } {
        at = match at.get(2..4)? {
            [0x08, 0x00] if at.get(4)? >> 4 == 4 => &at[4..],
            [0x86, 0xdd] if at.get(4)? >> 4 == 6 => &at[4..],
            [0x81, 0x00] | [0x88, 0xa8] => &at[4..],
            _ => break,
        };
    }
    let packet = LaxSlicedPacket::from_ip(at).ok()?;
    let (src, dst, dscp, proto, bytes, fragmented) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (
                IpAddr::V4(header.source_addr()),
                IpAddr::V4(header.destination_addr()),
                header.dcp().value(),
                ip.payload().ip_number.0,
                u32::from(header.total_len()),
                ip.payload().fragmented,
            )
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (
                IpAddr::V6(header.source_addr()),
                IpAddr::V6(header.destination_addr()),
                header.traffic_class() >> 2,
                ip.payload().ip_number.0,
                40 + u32::from(header.payload_length()),
                ip.payload().fragmented,
            )
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let mut read = Packet {
        key: Key {
            proto,
            src,
            sport: 0,
            dst,
            dport: 0,
        },
        dscp,
        // The length of a super-packet beyond 64 kB is 0.
        bytes: bytes.max(u32::try_from(at.len()).unwrap_or(u32::MAX)),
        payload: &[],
        payload_bytes: 0,
    };
    match &packet.transport {
        Some(TransportSlice::Udp(udp)) => {
            read.key.sport = udp.source_port();
            read.key.dport = udp.destination_port();
            read.payload = udp.payload();
            let captured = u32::try_from(read.payload.len()).unwrap_or(u32::MAX);
            // 0 in a super-packet, whose length is IP's.
            let said = u32::from(udp.length()).saturating_sub(8);
            read.payload_bytes = said.max(captured);
        }
        Some(TransportSlice::Tcp(tcp)) => {
            read.key.sport = tcp.source_port();
            read.key.dport = tcp.destination_port();
        }
        // etherparse reads no ports of a fragment; the first one has them, and what its payload is.
        None if fragmented => {}
        _ => {}
    }
    Some(read)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An IPv4 packet with UDP; both lengths are the payload's.
    pub(crate) fn udp4(sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x45, 0xb8];
        out.extend(u16::try_from(28 + payload.len()).unwrap().to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        out.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        out.extend(sport.to_be_bytes());
        out.extend(dport.to_be_bytes());
        out.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
        out.extend([0, 0]);
        out.extend(payload);
        out
    }

    #[test]
    fn packet_cut_off_keeps_its_length_ports_and_code_point() {
        let whole = udp4(5004, 6000, &[7; 1000]);
        let packet = read(&whole[..200], false).unwrap();
        assert_eq!(
            (packet.key.sport, packet.key.dport, packet.key.proto),
            (5004, 6000, 17)
        );
        assert_eq!(packet.key.dst, "10.0.0.2".parse::<IpAddr>().unwrap());
        assert_eq!((packet.dscp, packet.bytes), (46, 1028));
        assert_eq!((packet.payload.len(), packet.payload_bytes), (172, 1000));
    }

    #[test]
    fn tags_in_front_of_the_packet_are_passed_over() {
        let plain = udp4(5004, 6000, &[7; 20]);
        for tci in [[0x00, 5], [0x40, 5]] {
            let mut tagged = tci.to_vec();
            tagged.extend([0x08, 0x00]);
            tagged.extend(&plain);
            assert_eq!(read(&tagged, true), read(&plain, false), "{tci:?}");
            let mut twice = vec![0, 9, 0x81, 0x00];
            twice.extend(&tagged);
            assert_eq!(read(&twice, true), read(&plain, false), "{tci:?}");
        }
        // The device adds the tag: only the protocol says that there is one.
        assert_eq!(read(&plain, true), read(&plain, false));
    }

    #[test]
    fn ipv6_behind_extension_headers_is_read() {
        let inner = &udp4(5004, 6000, &[7; 100])[20..];
        let mut out = vec![0x6b, 0x80, 0, 0];
        out.extend(u16::try_from(8 + inner.len()).unwrap().to_be_bytes());
        out.extend([0, 64]);
        out.extend([0xfd; 32]);
        out.extend([17, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop, padding
        out.extend(inner);
        let packet = read(&out, false).unwrap();
        assert_eq!((packet.key.sport, packet.key.dport), (5004, 6000));
        assert_eq!((packet.dscp, packet.bytes), (46, 156));
        assert_eq!(packet.payload_bytes, 100);
    }

    #[test]
    fn what_is_no_ip_or_ends_early_is_nothing() {
        let whole = udp4(1, 2, &[7; 40]);
        for length in 0..20 {
            assert_eq!(read(&whole[..length], false), None);
        }
        // Ports are not there: the packet counts without them.
        assert_eq!(read(&whole[..22], false).unwrap().key.sport, 0);
        assert_eq!(read(&[0; 60], false), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..220), tagged: bool) {
            let _ = read(&bytes, tagged);
        }

        #[test]
        fn any_bytes_behind_a_good_header_are_read_without_a_panic(
            first in prop::sample::select(vec![0x45_u8, 0x46, 0x4f, 0x60]),
            rest in prop::collection::vec(any::<u8>(), 0..220), tagged: bool,
        ) {
            let bytes: Vec<u8> = std::iter::once(first).chain(rest).collect();
            let _ = read(&bytes, tagged);
        }
    }
}
