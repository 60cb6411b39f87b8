//! Describing a packet in words, for `bestby explain`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::net::{parse_port, parse_u32};
use crate::rtp::{parse_hex, parse_payload_type, rtp_of};
use crate::time::parse_ns;
use crate::value::ValueError;
use crate::{
    CgroupPath, Dscp, LpdExpiry, LpdOption, LpdTypes, Priority, Proto, Ssrc, StaleTreatment,
};

const ALLOWED: &str = "udp|tcp [SRC[:PORT] to] DST[:PORT] [dscp D] [mark M] [priority P] [cgroup PATH] [len BYTES] \
     [rtp PAYLOAD-TYPE] [ssrc N] [payload HEX] [option TIME[/TREATMENT]], \
     for example: udp 10.0.0.1:5004 to 10.0.0.2:6000 dscp ef (a > must be quoted from the shell); IPv6 with a port in brackets: [2001:db8::1]:5004";

/// A packet as far as the classifier would look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketDescription {
    /// Transport protocol.
    pub proto: Proto,
    /// Source address, if said.
    pub src: Option<IpAddr>,
    /// Source port, if said.
    pub sport: Option<u16>,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port, if said.
    pub dport: Option<u16>,
    /// 0 unless said.
    pub dscp: Dscp,
    /// 0 unless said.
    pub mark: u32,
    /// What the socket gives with `BB_SO_PRIORITY`, if said.
    pub priority: Option<Priority>,
    /// cgroup of the sending socket, if said.
    pub cgroup: Option<CgroupPath>,
    /// Length of the IP packet, bytes; 1000 unless said.
    pub len: u32,
    /// RTP payload type, if said.
    pub rtp: Option<u8>,
    /// RTP's synchronization source, if said.
    pub ssrc: Option<Ssrc>,
    /// What the datagram begins with, if said: [`Self::PAYLOAD`] bytes at most.
    pub payload: Option<Vec<u8>>,
    /// LPD's option, if it has one.
    pub option: Option<LpdOption>,
}

impl PacketDescription {
    /// Bytes of a payload that are kept, seven packets of MPEG-TS in RTP: no more are looked at.
    pub const PAYLOAD: usize = 12 + 7 * 188;
}

/// LPD's option as a person says it, `300ms/truncate`, or as its eight bytes of IPv4 are printed, `9e08001000000012c`.
fn parse_option(s: &str) -> Result<LpdOption, String> {
    let bytes: Option<Vec<u8>> = (s.len() == 16 && s.is_ascii())
        .then(|| {
            (0..16)
                .step_by(2)
                .map(|i| u8::from_str_radix(&s[i..i + 2], 16).ok())
                .collect()
        })
        .flatten();
    if let Some(bytes) = bytes {
        return LpdOption::from_ipv4(&bytes, &LpdTypes::EXPERIMENTAL)
            .ok_or_else(|| format!("option {s} is not LPD's, or malformed"));
    }
    let (time, treatment) = s.split_once('/').unwrap_or((s, "discard"));
    let treatment = match treatment {
        "forward" => StaleTreatment::Forward,
        "discard" => StaleTreatment::Discard,
        "truncate" => StaleTreatment::Truncate,
        other => {
            let other = other.escape_debug();
            return Err(format!(
                "option treatment \"{other}\" is not forward, discard or truncate"
            ));
        }
    };
    let ns = parse_ns(time).map_err(|problem| format!("option lifetime \"{time}\" {problem}"))?;
    LpdExpiry::lifetime(Duration::from_nanos(ns))
        .map(|expiry| LpdOption::new(expiry, treatment))
        .ok_or_else(|| format!("option lifetime {time} is longer than 65535ms"))
}

fn endpoint(s: &str) -> Result<(IpAddr, Option<u16>), String> {
    if let Ok(addr) = s.parse::<IpAddr>() {
        return Ok((addr.to_canonical(), None));
    }
    let not = || format!("\"{}\" is not an address or ADDRESS:PORT", s.escape_debug());
    if let Some(rest) = s.strip_prefix('[') {
        let (addr, port) = rest.split_once(']').ok_or_else(not)?;
        let addr: std::net::Ipv6Addr = addr.parse().map_err(|_| not())?;
        let port = match port.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if port.is_empty() => None,
            None => return Err(not()),
        };
        return Ok((IpAddr::V6(addr).to_canonical(), port));
    }
    let (addr, port) = s.split_once(':').ok_or_else(not)?;
    let addr: std::net::Ipv4Addr = addr.parse().map_err(|_| not())?;
    Ok((addr.into(), Some(parse_port(port)?)))
}

impl FromStr for PacketDescription {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        read(s).map_err(|problem| ValueError::new("packet", s, problem, ALLOWED))
    }
}

fn read(s: &str) -> Result<PacketDescription, String> {
    // "a>b", "a > b", "a -> b" and "a to b" are the same to a person.
    let spaced = s.replace("->", " > ").replace('>', " > ");
    let mut words = spaced.split_whitespace().peekable();
    let proto = words.next().ok_or("is empty")?;
    let proto: Proto = proto.to_ascii_lowercase().parse().map_err(|_| {
        format!(
            "begins with \"{}\", not with udp or tcp",
            proto.escape_debug()
        )
    })?;
    let mut ends = vec![endpoint(words.next().ok_or("has no addresses")?)?];
    if words.next_if(|w| matches!(*w, ">" | "to")).is_some() {
        ends.push(endpoint(
            words.next().ok_or("has no destination behind the source")?,
        )?);
    }
    let (dst, dport) = ends.pop().ok_or("has no destination")?;
    let (src, sport) = ends
        .pop()
        .map_or((None, None), |(src, sport)| (Some(src), sport));
    if src.is_some_and(|src| src.is_ipv4() != dst.is_ipv4()) {
        return Err("mixes IPv4 and IPv6".into());
    }
    let mut packet = PacketDescription {
        proto,
        src,
        sport,
        dst,
        dport,
        dscp: Dscp::new(0).ok_or("has no DSCP")?,
        mark: 0,
        priority: None,
        cgroup: None,
        len: 1000,
        rtp: None,
        ssrc: None,
        payload: None,
        option: None,
    };
    let mut said_len = None;
    let mut seen = Vec::new();
    while let Some(word) = words.next() {
        if seen.contains(&word) {
            return Err(format!("says {word} twice"));
        }
        seen.push(word);
        let mut value = || {
            words
                .next()
                .ok_or_else(|| format!("ends behind \"{word}\""))
        };
        match word {
            "dscp" => packet.dscp = value()?.parse().map_err(|e: ValueError| e.full())?,
            "mark" => {
                let text = value()?;
                packet.mark = parse_u32(text).ok_or_else(|| {
                    format!("mark \"{}\" is not a 32-bit number", text.escape_debug())
                })?;
            }
            "priority" => {
                packet.priority = Some(value()?.parse().map_err(|e: ValueError| e.full())?)
            }
            "cgroup" => packet.cgroup = Some(value()?.parse().map_err(|e: ValueError| e.full())?),
            "len" => {
                let text = value()?;
                said_len = parse_u32(text).filter(|len| (20..=65_575).contains(len));
                if said_len.is_none() {
                    return Err(format!(
                        "length \"{}\" is not 20 to 65575 bytes",
                        text.escape_debug()
                    ));
                }
            }
            "option" => packet.option = Some(parse_option(value()?)?),
            "rtp" if packet.payload.is_none() => packet.rtp = Some(parse_payload_type(value()?)?),
            "ssrc" if packet.payload.is_none() => {
                packet.ssrc = Some(value()?.parse().map_err(|e: ValueError| e.full())?);
            }
            "payload" if packet.rtp.is_none() && packet.ssrc.is_none() => {
                packet.payload = Some(parse_hex(value()?)?);
            }
            "rtp" | "ssrc" | "payload" => {
                return Err("gives rtp or ssrc and a payload, which says both".into());
            }
            _ => return Err(format!("has an unknown word \"{}\"", word.escape_debug())),
        }
    }
    if packet.rtp.is_none() && packet.ssrc.is_some() {
        return Err("gives an ssrc and no rtp: give both, or the payload".into());
    }
    if let Some(payload) = &mut packet.payload {
        (packet.rtp, packet.ssrc) = rtp_of(payload).unzip();
        // Of IP and UDP.
        let headers = if dst.is_ipv4() { 28 } else { 48 };
        packet.len = u32::try_from(headers + payload.len()).unwrap_or(u32::MAX);
        payload.truncate(PacketDescription::PAYLOAD);
    }
    packet.len = said_len.unwrap_or(packet.len);
    if packet.len > 65_575 {
        return Err("has a payload of more than 65,507 bytes".into());
    }
    if packet.proto == Proto::Tcp && (packet.rtp.is_some() || packet.payload.is_some()) {
        return Err(
            "gives RTP or a payload in tcp: the classifier looks into UDP packets only".into(),
        );
    }
    Ok(packet)
}

impl fmt::Display for PacketDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn end(addr: IpAddr, port: Option<u16>) -> String {
            match (addr, port) {
                (IpAddr::V6(addr), Some(port)) => format!("[{addr}]:{port}"),
                (addr, Some(port)) => format!("{addr}:{port}"),
                (addr, None) => addr.to_string(),
            }
        }
        write!(f, "{} ", self.proto)?;
        if let Some(src) = self.src {
            write!(f, "{} > ", end(src, self.sport))?;
        }
        f.write_str(&end(self.dst, self.dport))?;
        if self.dscp.get() != 0 {
            write!(f, " dscp {}", self.dscp)?;
        }
        if self.mark != 0 {
            write!(f, " mark {:#x}", self.mark)?;
        }
        if let Some(priority) = self.priority {
            write!(f, " priority {priority}")?;
        }
        if let Some(cgroup) = &self.cgroup {
            write!(f, " cgroup {cgroup}")?;
        }
        if self.len != 1000 || self.payload.is_some() {
            write!(f, " len {}", self.len)?;
        }
        if let Some(payload) = &self.payload {
            f.write_str(" payload ")?;
            for byte in payload {
                write!(f, "{byte:02x}")?;
            }
        } else {
            if let Some(rtp) = self.rtp {
                write!(f, " rtp {rtp}")?;
            }
            if let Some(ssrc) = self.ssrc {
                write!(f, " ssrc {ssrc}")?;
            }
        }
        if let Some(option) = &self.option {
            f.write_str(" option ")?;
            for byte in option.ipv4(&LpdTypes::EXPERIMENTAL) {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

string_value!(
    PacketDescription,
    "a packet such as \"udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef\""
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn description_is_read_in_every_spelling() {
        let p: PacketDescription = "udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef mark 0xb0000001"
            .parse()
            .unwrap();
        assert_eq!(
            (p.sport, p.dport, p.dscp.get(), p.mark, p.len),
            (Some(5004), Some(6000), 46, 0xb000_0001, 1000)
        );
        for same in [
            "udp 10.0.0.1:5004 to 10.0.0.2:6000 dscp ef mark 0xb0000001",
            "UDP 10.0.0.1:5004>10.0.0.2:6000 mark 0xb0000001 dscp 46",
            " udp  10.0.0.1:5004 -> 10.0.0.2:6000 dscp ef mark 2952790017 len 1000",
        ] {
            assert_eq!(same.parse::<PacketDescription>().unwrap(), p, "{same}");
        }
        let p: PacketDescription =
            "tcp [2001:db8::1]:80 > 2001:db8::2 priority 0 len 60 cgroup /a/b"
                .parse()
                .unwrap();
        assert_eq!(
            (p.sport, p.dport, p.priority.map(Priority::get), p.len),
            (Some(80), None, Some(0), 60)
        );
        assert_eq!(
            "udp 10.0.0.2".parse::<PacketDescription>().unwrap().src,
            None
        );
        let read: PacketDescription = "udp 10.0.0.2 payload 80ef0001000000a012345678"
            .parse()
            .unwrap();
        assert_eq!(
            (read.rtp, read.len, read.to_string().as_str()),
            (
                Some(111),
                40,
                "udp 10.0.0.2 len 40 payload 80ef0001000000a012345678"
            )
        );
        assert_eq!(read.to_string().parse::<PacketDescription>().unwrap(), read);
        // More than is looked at.
        let long = format!("udp ::2 payload 47{}", "00".repeat(1399));
        let read: PacketDescription = long.parse().unwrap();
        assert_eq!((read.rtp, read.len), (None, 48 + 1400));
        assert_eq!(
            read.payload.as_ref().map(Vec::len),
            Some(PacketDescription::PAYLOAD)
        );
        assert_eq!(read.to_string().parse::<PacketDescription>().unwrap(), read);
        let said: PacketDescription = "udp 10.0.0.2 option 300ms/truncate".parse().unwrap();
        assert_eq!(said.to_string(), "udp 10.0.0.2 option 9e0800200000012c");
        assert_eq!(said.to_string().parse::<PacketDescription>().unwrap(), said);
    }

    #[test]
    fn malformed_description_is_refused() {
        for (text, reason) in [
            ("", "empty"),
            ("icmp 10.0.0.1", "icmp"),
            ("udp", "addresses"),
            ("udp 10.0.0.1 >", "destination"),
            ("udp 10.0.0.1:0", "port 0"),
            ("udp 10.0.0.1:70000", "65535"),
            ("udp 10.0.0.1 > 2001:db8::1", "mixes"),
            ("udp [::1:5", "address"),
            ("udp 10.0.0.1 dscp", "ends"),
            ("udp 10.0.0.1 dscp 64", "63"),
            ("udp 10.0.0.1 mark 0x1ffffffff", "32-bit"),
            ("udp 10.0.0.1 mark 1 mark 2", "twice"),
            ("udp 10.0.0.1 colour red", "colour"),
            ("udp 10.0.0.1 len 0", "65575"),
            ("udp 10.0.0.1 rtp 200", "0..127"),
            ("udp 10.0.0.1 ssrc x", "32-bit"),
            ("udp 10.0.0.1 payload 1", "two"),
            ("tcp 10.0.0.1 payload 16", "UDP"),
            ("udp 10.0.0.1 option 66s", "65535ms"),
            ("udp 10.0.0.1 option 1s/drop", "drop"),
            ("udp 10.0.0.1 option 4408001000000001", "LPD"),
            ("udp 10.0.0.1 option 9e080030ffffffff", "malformed"),
            (
                "udp 10.0.0.1 rtp 111 payload 80ef0001000000a012345678",
                "both",
            ),
            ("udp 10.0.0.1 ssrc 7", "rtp"),
            ("tcp 10.0.0.1 rtp 111", "UDP"),
        ] {
            let error = text.parse::<PacketDescription>().unwrap_err();
            assert!(error.problem.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_description_parses_to_same_packet(src: Option<std::net::Ipv6Addr>, dst: std::net::Ipv6Addr, sport in 1u16.., dport in proptest::option::of(1u16..),
                      dscp in 0u8..64, mark: u32, priority in proptest::option::of(0u64..8), len in 20u32..=65_575,
                      rtp in proptest::option::of((0u8..128, any::<u32>()))) {
            let canonical = |a: std::net::Ipv6Addr| IpAddr::V6(a).to_canonical();
            let dst = canonical(dst);
            let src = src.map(canonical).filter(|s| s.is_ipv4() == dst.is_ipv4());
            let p = PacketDescription {
                proto: Proto::Udp, src, sport: src.map(|_| sport), dst, dport, dscp: Dscp::new(dscp).unwrap(), mark,
                priority: priority.map(|p| Priority::try_from(p).unwrap()), cgroup: None, len, rtp: rtp.map(|r| r.0), ssrc: rtp.map(|r| Ssrc::new(r.1)), payload: None, option: None,
            };
            prop_assert_eq!(p.to_string().parse::<PacketDescription>().unwrap(), p);
        }

        #[test]
        fn parsing_any_text_never_panics(text in "(udp|tcp)? ?\\PC{0,60}") {
            let _ = text.parse::<PacketDescription>();
        }
    }
}
