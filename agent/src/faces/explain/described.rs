//! The frame that a description of a packet stands for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bestby_api::{LpdTypes, PacketDescription, Proto};
use etherparse::{
    Ethernet2Header, IpDscp, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options,
    Ipv6Extensions, Ipv6Header, Ipv6RawExtHeader, PacketBuilder,
};

/// RTP's fixed header (RFC 3550, section 5.1).
const RTP_BYTES: usize = 12;
/// What neither STUN, DTLS, RTP nor RTCP begins with.
const NO_PROTOCOL: u8 = 0xff;
/// The longest frame that is made; a test run takes no more than a page holds.
const LONGEST: usize = 1514;
/// A test run refuses a packet that is longer on the wire (`GSO_LEGACY_MAX_SIZE`).
const LONGEST_WIRE: usize = 65_536;
/// Locally administered, of nobody.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOP_LIMIT: u8 = 64;

/// A frame, and the length of the one that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Ethernet's header (a test run takes no other), those behind it, and as much of the payload as a test run takes.
    pub bytes: Vec<u8>,
    /// Bytes of the whole frame.
    pub wire_len: u32,
}

/// Makes the frame.
///
/// # Errors
/// What of it cannot be made.
pub(super) fn frame(p: &PacketDescription, types: &LpdTypes) -> Result<Frame, String> {
    let step = PacketBuilder::ethernet2(MAC, MAC).ip(ip_headers(p, types)?);
    let whole = Ethernet2Header::LEN + p.len as usize;
    let (sport, dport) = (p.sport.unwrap_or(0), p.dport.unwrap_or(0));
    // A packet that is shorter than its headers is not: it has no payload.
    let payload = |headers: usize| {
        let mut payload = p.payload.clone().unwrap_or_else(|| rtp(p));
        let room = whole.min(LONGEST).saturating_sub(headers);
        payload.resize(payload.len().max(room), NO_PROTOCOL);
        payload
    };
    let mut bytes = Vec::new();
    match p.proto {
        Proto::Tcp => {
            let step = step.tcp(sport, dport, 1, u16::MAX).ack(1);
            let payload = payload(step.size(0));
            step.write(&mut bytes, &payload)
        }
        Proto::Udp => {
            let step = step.udp(sport, dport);
            let payload = payload(step.size(0));
            step.write(&mut bytes, &payload)
        }
    }
    .map_err(|e| e.to_string())?;
    let wire_len = u32::try_from(whole.clamp(bytes.len(), LONGEST_WIRE)).unwrap_or(u32::MAX);
    Ok(Frame { bytes, wire_len })
}

/// The header of RTP, if it was said to be RTP.
fn rtp(p: &PacketDescription) -> Vec<u8> {
    let Some(payload_type) = p.rtp else {
        return Vec::new();
    };
    let mut header = vec![0x80, payload_type, 0, 1, 0, 0, 0, 1];
    header.extend(p.ssrc.map_or(0, |ssrc| ssrc.get()).to_be_bytes());
    debug_assert_eq!(header.len(), RTP_BYTES);
    header
}

fn ip_headers(p: &PacketDescription, types: &LpdTypes) -> Result<IpHeaders, String> {
    let dscp = IpDscp::try_new(p.dscp.get()).map_err(|e| e.to_string())?;
    match p.dst {
        IpAddr::V4(dst) => {
            let src = match p.src {
                Some(IpAddr::V4(src)) => src,
                _ => Ipv4Addr::UNSPECIFIED,
            };
            let mut header = Ipv4Header {
                dscp,
                time_to_live: HOP_LIMIT,
                source: src.octets(),
                destination: dst.octets(),
                dont_fragment: true,
                ..Default::default()
            };
            if let Some(option) = &p.option {
                header.options =
                    Ipv4Options::try_from(&option.ipv4(types)[..]).map_err(|e| e.to_string())?;
            }
            Ok(IpHeaders::Ipv4(header, Ipv4Extensions::default()))
        }
        IpAddr::V6(dst) => {
            let src = match p.src {
                Some(IpAddr::V6(src)) => src,
                _ => Ipv6Addr::UNSPECIFIED,
            };
            let header = Ipv6Header {
                traffic_class: p.dscp.get() << 2,
                hop_limit: HOP_LIMIT,
                source: src.octets(),
                destination: dst.octets(),
                ..Default::default()
            };
            let mut extensions = Ipv6Extensions::default();
            if let Some(option) = &p.option {
                let next = match p.proto {
                    Proto::Tcp => IpNumber::TCP,
                    Proto::Udp => IpNumber::UDP,
                };
                let whole = option.hop_by_hop(types, next.0);
                extensions.hop_by_hop_options =
                    Some(Ipv6RawExtHeader::new_raw(next, &whole[2..]).map_err(|e| e.to_string())?);
            }
            Ok(IpHeaders::Ipv6(header, extensions))
        }
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    fn made(text: &str) -> Frame {
        frame(&text.parse().unwrap(), &LpdTypes::EXPERIMENTAL).unwrap()
    }

    #[test]
    fn frame_is_the_packet_that_was_described() {
        let frame = made("udp 10.0.0.1:5004 to 10.0.0.2:6000 dscp ef rtp 111 ssrc 7");
        assert_eq!((frame.bytes.len(), frame.wire_len), (1014, 1014));
        let read = SlicedPacket::from_ethernet(&frame.bytes).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &read.net else {
            panic!("{read:?}");
        };
        assert_eq!(ip.header().destination_addr(), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(
            (ip.header().dcp().value(), ip.header().total_len()),
            (46, 1000)
        );
        let Some(TransportSlice::Udp(udp)) = &read.transport else {
            panic!("{read:?}");
        };
        assert_eq!((udp.source_port(), udp.destination_port()), (5004, 6000));
        assert_eq!(udp.payload()[..2], [0x80, 111]);
        assert_eq!(udp.payload()[8..RTP_BYTES], [0, 0, 0, 7]);
    }

    #[test]
    fn option_is_in_the_header_of_either_family() {
        let four = made("udp 10.0.0.2:6 option 300ms");
        let read = SlicedPacket::from_ethernet(&four.bytes).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &read.net else {
            panic!("{read:?}");
        };
        assert_eq!(ip.header().options(), [0x9e, 8, 0, 0x10, 0, 0, 1, 44]);
        let six = made("tcp [2001:db8::2]:6 option 300ms");
        // Next header, then the hop-by-hop header, then TCP.
        assert_eq!(
            (six.bytes[20], six.bytes[54], six.bytes[70..74].to_vec()),
            (0, 6, vec![0, 0, 0, 6])
        );
        assert_eq!(six.bytes[58..66], [0x3e, 6, 0, 0x10, 0, 0, 1, 44]);
    }

    #[test]
    fn longer_and_shorter_packets_have_their_headers() {
        let long = made("tcp [2001:db8::1]:80 to [2001:db8::2]:9 len 60000");
        assert_eq!((long.bytes.len(), long.wire_len), (LONGEST, 60_014));
        let longest = made("udp 10.0.0.2:9 len 65575");
        assert_eq!(longest.wire_len, 65_536);
        let short = made("udp 10.0.0.2 rtp 111 len 20");
        assert_eq!((short.bytes.len(), short.wire_len), (54, 54));
    }
}
