//! The RTP packets of a capture file, pcap or pcapng.

use std::{fs::File, net::IpAddr, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::{
    Block, Linktype, PcapBlockOwned, PcapError, create_reader, traits::PcapNGPacketBlock as _,
};

use crate::{sys::SECOND, traffic::MAC};

/// Largest block that a reader must hold: a pcapng block of one jumbo or GSO packet.
const BUFFER: usize = 1 << 20;

/// One RTP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::traffic) struct Rtp {
    /// When it was captured, ns since 1970.
    pub(in crate::traffic) at: u64,
    pub(in crate::traffic) source: IpAddr,
    pub(in crate::traffic) destination: IpAddr,
    /// UDP destination port.
    pub(in crate::traffic) port: u16,
    pub(in crate::traffic) payload_type: u8,
    pub(in crate::traffic) timestamp: u32,
    pub(in crate::traffic) ssrc: u32,
    /// Bytes it had on an Ethernet, whatever part of it was captured.
    pub(in crate::traffic) wire_bytes: u32,
    /// The RTP packet as far as it was captured; empty unless asked for.
    pub(in crate::traffic) content: Vec<u8>,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(in crate::traffic) struct Found {
    pub(in crate::traffic) packets: u64,
    pub(in crate::traffic) udp: u64,
    pub(in crate::traffic) rtp: Vec<Rtp>,
    /// Whether to keep what packets contain.
    keep: bool,
}

impl Found {
    fn packet(&mut self, link: Linktype, at: u64, data: &[u8]) -> Result<()> {
        self.packets += 1;
        let Some(sliced) = slice(link, data)? else {
            return Ok(());
        };
        let Some(TransportSlice::Udp(udp)) = &sliced.transport else {
            return Ok(());
        };
        self.udp += 1;
        let (source, destination, ip_bytes) = match &sliced.net {
            Some(LaxNetSlice::Ipv4(ip)) => {
                let ip = ip.header();
                let [source, destination] = [ip.source_addr(), ip.destination_addr()];
                (source.into(), destination.into(), ip.total_len().into())
            }
            Some(LaxNetSlice::Ipv6(ip)) => {
                let ip = ip.header();
                let [source, destination] = [ip.source_addr(), ip.destination_addr()];
                let bytes = 40 + u32::from(ip.payload_length());
                (source.into(), destination.into(), bytes)
            }
            _ => return Ok(()),
        };
        if let Some((payload_type, timestamp, ssrc)) = rtp(udp.payload()) {
            let content = udp.payload().to_vec();
            self.rtp.push(Rtp {
                at,
                source,
                destination,
                port: udp.destination_port(),
                payload_type,
                timestamp,
                ssrc,
                wire_bytes: MAC + ip_bytes,
                content: if self.keep { content } else { Vec::new() },
            });
        }
        Ok(())
    }
}

/// Parses from the link's header on; a packet may be cut short. `None`: not IP.
fn slice(link: Linktype, data: &[u8]) -> Result<Option<LaxSlicedPacket<'_>>> {
    // Where the IP header begins: BSD loopback has 4 bytes in front of it, Linux "any"
    // devices 16, or 20 in the second form.
    let skip = match link {
        Linktype::ETHERNET => return Ok(LaxSlicedPacket::from_ethernet(data).ok()),
        // And BSD's and OpenBSD's numbers of raw IP.
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | Linktype(12 | 14) => 0,
        Linktype::NULL | Linktype::LOOP => 4,
        Linktype::LINUX_SLL => 16,
        Linktype(276) => 20,
        other => bail!(
            "link type {} is not one of Ethernet, raw IP, loopback, Linux cooked (1 and 2)",
            other.0
        ),
    };
    let ip = data.get(skip..);
    Ok(ip.and_then(|ip| LaxSlicedPacket::from_ip(ip).ok()))
}

/// Payload type, timestamp and SSRC of an RTP header (RFC 3550 §5.1). `None` for other
/// versions and for RTCP on the same port (RFC 5761 §4: its second byte is 192..=223).
fn rtp(payload: &[u8]) -> Option<(u8, u32, u32)> {
    let header: &[u8; 12] = payload.first_chunk()?;
    if header[0] >> 6 != 2 || (192..=223).contains(&header[1]) {
        return None;
    }
    let word = |at: usize| header[at..].first_chunk().copied().map(u32::from_be_bytes);
    Some((header[1] & 0x7f, word(4)?, word(8)?))
}

/// Reads all of `file`; what the packets contain only if `keep`.
pub(in crate::traffic) fn read(file: &Path, keep: bool) -> Result<Found> {
    parse(file, keep).with_context(|| format!("reading the capture {}", file.display()))
}

fn parse(file: &Path, keep: bool) -> Result<Found> {
    let reader = create_reader(BUFFER, File::open(file)?);
    let mut reader = reader.map_err(|_| anyhow!("it is neither pcap nor pcapng"))?;
    let mut found = Found {
        keep,
        ..Found::default()
    };
    // Of a pcap: its link, and the units of a fraction of a second, in ns.
    let (mut link, mut unit) = (Linktype::NULL, 1000);
    // Of a pcapng section's interfaces: link, units of a timestamp per second, s to be added.
    let mut interfaces: Vec<(Linktype, u64, i64)> = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        link = header.network;
                        unit = match header.is_nanosecond_precision() {
                            true => 1,
                            false => 1000,
                        };
                    }
                    PcapBlockOwned::Legacy(packet) => {
                        let [seconds, rest] = [packet.ts_sec, packet.ts_usec].map(u64::from);
                        found.packet(link, seconds * SECOND + rest * unit, packet.data)?;
                    }
                    PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
                    PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                        let resolution = interface.ts_resolution();
                        let resolution =
                            resolution.context("an interface's time resolution cannot be")?;
                        let offset = interface.ts_offset();
                        interfaces.push((interface.linktype, resolution.max(1), offset));
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                        let interface = interfaces.get(packet.if_id as usize);
                        let &(link, resolution, offset) = interface.with_context(|| {
                            format!("interface {} is not described", packet.if_id)
                        })?;
                        let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                        let at = u128::from(ticks) * u128::from(SECOND) / u128::from(resolution);
                        let offset = offset.saturating_mul(SECOND as i64);
                        let at = (at as u64).saturating_add_signed(offset);
                        found.packet(link, at, packet.packet_data())?;
                    }
                    PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                        bail!("its packets have no times (simple packet blocks)")
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return Ok(found),
            Err(PcapError::Incomplete(_)) => {
                if reader.refill().is_err() {
                    bail!("reading stopped after {} packets", found.packets);
                }
            }
            Err(PcapError::UnexpectedEof) => bail!(
                "it ends in the middle of a packet, after {} packets",
                found.packets
            ),
            Err(PcapError::BufferTooSmall) => {
                bail!("packet {} is longer than {BUFFER} bytes", found.packets + 1)
            }
            Err(error) => bail!("packet {}: {error}", found.packets + 1),
        }
    }
}
