//! What a flow rule compares: protocols, prefixes, ports, DSCP, marks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::value::ValueError;

words!(
    /// Transport protocol of a flow rule.
    Proto, "protocol", "udp or tcp", {
        /// UDP, number 17.
        Udp = "udp",
        /// TCP, number 6.
        Tcp = "tcp",
    }
);

impl Proto {
    /// Number in the IP header.
    pub const fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

const PREFIX_ALLOWED: &str = "an IPv4 or IPv6 address, with /BITS for a network, for example 10.1.0.0/16, \
     192.0.2.7 or 2001:db8::/32";

/// An IPv4 or IPv6 network; the bits behind the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Clears the bits of `addr` behind the first `len`.
fn masked(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            Ipv4Addr::from(u32::from(a) & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            Ipv6Addr::from(u128::from(a) & mask).into()
        }
    }
}

/// IPv4 in the form of IPv6 is IPv4.
fn canonical(addr: IpAddr, len: u8) -> (IpAddr, u8) {
    if addr.is_ipv6() && (96..=128).contains(&len) && addr.to_canonical().is_ipv4() {
        return (addr.to_canonical(), len - 96);
    }
    (addr, len)
}

impl Prefix {
    /// A network; `None` if `len` is longer than the address or bits behind it are set.
    /// `::ffff:a.b.c.d` becomes the IPv4 network that it is on the wire.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let (addr, len) = canonical(addr, len);
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        (len <= bits && masked(addr, len) == addr).then_some(Self { addr, len })
    }

    /// First address of the network.
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// Number of leading bits that are compared: 0..=32 (IPv4) or 0..=128 (IPv6).
    pub const fn bits(self) -> u8 {
        self.len
    }

    /// Whether `addr` lies in the network. IPv4 and IPv6 never match each other.
    pub fn contains(self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        addr.is_ipv4() == self.addr.is_ipv4() && masked(addr, self.len) == self.addr
    }
}

impl FromStr for Prefix {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("prefix", s, problem, PREFIX_ALLOWED);
        let (addr, len) = match s.split_once('/') {
            Some((addr, len)) => (addr, Some(len)),
            None => (s, None),
        };
        let addr: IpAddr = addr
            .parse()
            .map_err(|_| refuse("is not an address".into()))?;
        let bits: u8 = if addr.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => bits,
            Some(text) => {
                if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(refuse("the part behind / is not a number of bits".into()));
                }
                text.parse::<u8>()
                    .ok()
                    .filter(|len| *len <= bits)
                    .ok_or_else(|| refuse(format!("this address has only {bits} bits")))?
            }
        };
        let (addr, len) = canonical(addr, len);
        Self::new(addr, len).ok_or_else(|| {
            let (whole, bits) = (masked(addr, len), if addr.is_ipv4() { 32 } else { 128 });
            refuse(format!(
                "has bits set behind the prefix: say {whole}/{len} or {addr}/{bits}"
            ))
        })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let full = if self.addr.is_ipv4() { 32 } else { 128 };
        if self.len == full {
            f.pad(&self.addr.to_string())
        } else {
            f.pad(&format!("{}/{}", self.addr, self.len))
        }
    }
}

string_value!(Prefix, "a prefix such as \"10.1.0.0/16\"");

const PREFIXES_ALLOWED: &str =
    "at most 32 prefixes, separated by commas, for example 10.1.0.0/16,2001:db8::/32";

/// A set of networks, in order, none in another of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Prefixes(Vec<Prefix>);

impl Prefixes {
    /// No network.
    pub const NONE: Self = Self(Vec::new());
    /// Most networks of a set.
    pub const MOST: usize = 32;

    /// What these cover; `None` if that takes more than [`Self::MOST`] networks.
    pub fn new(of: impl IntoIterator<Item = Prefix>) -> Option<Self> {
        let mut all: Vec<Prefix> = of.into_iter().collect();
        // A network comes before those inside it.
        all.sort_unstable_by_key(|p| (p.addr, p.len));
        let mut kept: Vec<Prefix> = Vec::new();
        for prefix in all {
            if kept.last().is_none_or(|last| !last.contains(prefix.addr)) {
                kept.push(prefix);
            }
        }
        (kept.len() <= Self::MOST).then_some(Self(kept))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Prefix> + '_ {
        self.0.iter().copied()
    }

    /// The one that has this address.
    pub fn of(&self, addr: IpAddr) -> Option<Prefix> {
        self.iter().find(|p| p.contains(addr))
    }
}

impl FromStr for Prefixes {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let items = s.split(',').map(str::trim).filter(|item| !item.is_empty());
        let all: Vec<Prefix> = items.map(str::parse).collect::<Result<_, _>>()?;
        Self::new(all)
            .ok_or_else(|| ValueError::new("prefixes", s, "are too many", PREFIXES_ALLOWED))
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|p| p.to_string()).collect();
        f.pad(&all.join(","))
    }
}

string_value!(Prefixes, "prefixes such as \"10.1.0.0/16,2001:db8::/32\"");

const PORT_ALLOWED: &str =
    "a port from 1 to 65535 or a range of them, for example 5004 or 5004-5010";

/// One port, or all from a first to a last one, both included; never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// `None` if `first` is 0 or greater than `last`.
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last {
            return None;
        }
        Some(Self { first, last })
    }

    /// Lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// Highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Prefixes `(value, mask)` that together are exactly the range; at most 30.
    pub fn prefixes(self) -> Vec<(u16, u16)> {
        let (mut first, last) = (u32::from(self.first), u32::from(self.last));
        let mut prefixes = Vec::new();
        while first <= last {
            // The largest block that begins at `first` (alignment) and does not end behind `last`.
            let mut bits = first.trailing_zeros().min(16);
            while first + (1 << bits) - 1 > last {
                bits -= 1;
            }
            #[allow(clippy::cast_possible_truncation)]
            prefixes.push((first as u16, (0xffff_u32 << bits) as u16));
            first += 1 << bits;
        }
        prefixes
    }

    /// Whether the port lies in the range.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// A port number, or what is wrong with it.
pub(crate) fn parse_port(s: &str) -> Result<u16, String> {
    if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("\"{}\" is not a port number", s.escape_debug()));
    }
    match s.parse::<u16>() {
        Ok(0) => Err("port 0 cannot be used".into()),
        Ok(port) => Ok(port),
        Err(_) => Err(format!("{s} is larger than 65535")),
    }
}

impl FromStr for PortRange {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("port", s, problem, PORT_ALLOWED);
        let (first, last) = s.split_once('-').unwrap_or((s, s));
        let (first, last) = (
            parse_port(first).map_err(refuse)?,
            parse_port(last).map_err(refuse)?,
        );
        Self::new(first, last).ok_or_else(|| refuse(format!("{first} is behind {last}")))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            f.pad(&self.first.to_string())
        } else {
            f.pad(&format!("{}-{}", self.first, self.last))
        }
    }
}

string_value!(PortRange, "a port or range such as \"5004-5010\"");

const DSCP_ALLOWED: &str = "a number from 0 to 63 or a name: ef, va, le, cs0 to cs7, af11 to af43";

/// Names of RFC 2474, 2597, 3246, 5865 and 8622.
const DSCP_NAMES: &[(&str, u8)] = &[
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// Differentiated services code point, 0..=63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value > 63 { None } else { Some(Self(value)) }
    }

    /// The six bits, 0..=63.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for Dscp {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: &str| ValueError::new("DSCP", s, problem, DSCP_ALLOWED);
        let lower = s.to_ascii_lowercase();
        if lower == "default" || lower == "be" {
            return Ok(Self(0));
        }
        if let Some((_, value)) = DSCP_NAMES.iter().find(|(name, _)| *name == lower) {
            return Ok(Self(*value));
        }
        let value = match lower.strip_prefix("0x") {
            Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
                u8::from_str_radix(hex, 16).ok()
            }
            None if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) => s.parse().ok(),
            _ => return Err(refuse("is neither a number nor a known name")),
        };
        value
            .and_then(Self::new)
            .ok_or_else(|| refuse("is larger than 63"))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DSCP_NAMES.iter().find(|(_, value)| *value == self.0) {
            Some((name, _)) => f.pad(name),
            None => f.pad(&self.0.to_string()),
        }
    }
}

string_value!(Dscp, "a DSCP such as \"ef\" or 46");

const MARK_ALLOWED: &str = "VALUE or VALUE/MASK, 32 bits, decimal or 0x hexadecimal, VALUE within a MASK that is not 0, for example 0x10/0xff";

/// Some bits of the packet mark and the value they must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkMask {
    value: u32,
    mask: u32,
}

impl MarkMask {
    /// `None` if the mask is 0 or the value has bits outside it.
    pub const fn new(value: u32, mask: u32) -> Option<Self> {
        if mask == 0 || value & !mask != 0 {
            return None;
        }
        Some(Self { value, mask })
    }

    /// What the bits must be.
    pub const fn value(self) -> u32 {
        self.value
    }

    /// Which bits are compared.
    pub const fn mask(self) -> u32 {
        self.mask
    }

    /// Whether a packet with this mark matches.
    pub const fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.value
    }
}

/// A 32-bit number, decimal or hexadecimal.
pub(crate) fn parse_u32(s: &str) -> Option<u32> {
    match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) if !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        None if !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit()) => s.parse().ok(),
        _ => None,
    }
}

impl FromStr for MarkMask {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("mark", s, problem, MARK_ALLOWED);
        let (value, mask) = s.split_once('/').map_or((s, None), |(v, m)| (v, Some(m)));
        let number = |text: &str| {
            parse_u32(text).ok_or_else(|| {
                refuse(format!(
                    "\"{}\" is not a 32-bit number",
                    text.escape_debug()
                ))
            })
        };
        let value = number(value)?;
        let mask = mask.map_or(Ok(u32::MAX), number)?;
        if mask == 0 {
            return Err(refuse("the mask is 0 and would match every packet".into()));
        }
        Self::new(value, mask).ok_or_else(|| {
            refuse(format!(
                "{value:#x} has bits outside the mask and can never match"
            ))
        })
    }
}

impl fmt::Display for MarkMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mask == u32::MAX {
            f.pad(&format!("{:#x}", self.value))
        } else {
            f.pad(&format!("{:#x}/{:#x}", self.value, self.mask))
        }
    }
}

string_value!(MarkMask, "a mark such as \"0x10/0xff\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prefix_contains_its_addresses_only() {
        let p: Prefix = "10.1.0.0/16".parse().unwrap();
        assert!(p.contains("10.1.2.3".parse().unwrap()));
        assert!(p.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!p.contains("10.2.2.3".parse().unwrap()));
        assert!(!p.contains("2001:db8::1".parse().unwrap()));
        assert_eq!(
            "192.0.2.7/32".parse::<Prefix>().unwrap().to_string(),
            "192.0.2.7"
        );
        assert_eq!(
            "::ffff:192.0.2.0/120"
                .parse::<Prefix>()
                .unwrap()
                .to_string(),
            "192.0.2.0/24"
        );
        assert_eq!("::/0".parse::<Prefix>().unwrap().bits(), 0);
        assert!(
            "0.0.0.0/0"
                .parse::<Prefix>()
                .unwrap()
                .contains("1.2.3.4".parse().unwrap())
        );
    }

    #[test]
    fn malformed_prefix_is_refused() {
        let error = "10.0.0.1/24".parse::<Prefix>().unwrap_err();
        assert!(error.problem.contains("10.0.0.0/24"), "{error}");
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "10.0.0/8",
            "x/8",
            "::/129",
            "1.2.3.4/8/8",
            "1.2.3.4 ",
        ] {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn port_range_is_read_and_malformed_one_refused() {
        let r: PortRange = "5004-5010".parse().unwrap();
        assert_eq!((r.first(), r.last()), (5004, 5010));
        assert_eq!("7-7".parse::<PortRange>().unwrap().to_string(), "7");
        for bad in [
            "0", "", "-", "5-", "-5", "9-8", "65536", "1-2-3", "http", "+5", "1 - 2",
        ] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn dscp_name_or_number_is_read_and_others_refused() {
        for (text, value) in [
            ("EF", 46),
            ("af41", 34),
            ("0", 0),
            ("cs0", 0),
            ("63", 63),
            ("0x2e", 46),
            ("default", 0),
        ] {
            assert_eq!(text.parse::<Dscp>().unwrap().get(), value, "{text}");
        }
        for bad in ["64", "-1", "af14", "", "ef ", "0x", "0x40", "999"] {
            assert!(bad.parse::<Dscp>().is_err(), "{bad}");
        }
    }

    #[test]
    fn mark_matches_masked_bits_and_malformed_one_is_refused() {
        let m: MarkMask = "0x10/0xff".parse().unwrap();
        assert!(m.matches(0xab10) && !m.matches(0x11));
        assert_eq!("16".parse::<MarkMask>().unwrap().to_string(), "0x10");
        for bad in [
            "0x10/0",
            "0x10/0x0f",
            "0x1ffffffff",
            "-1",
            "",
            "0x",
            "1/2/3",
            "0x+1",
        ] {
            assert!(bad.parse::<MarkMask>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn printed_prefix_parses_to_same_prefix(addr: IpAddr, len in 0u8..=128) {
            let bits = if addr.is_ipv4() { 32 } else { 128 };
            let p = Prefix::new(masked(addr, len.min(bits)), len.min(bits)).unwrap();
            prop_assert_eq!(p.to_string().parse::<Prefix>().unwrap(), p);
            prop_assert!(p.contains(p.addr()) || p.addr().to_canonical().is_ipv4());
        }

        #[test]
        fn printed_port_range_parses_to_same_range(a in 1u16.., b in 1u16..) {
            let r = PortRange::new(a.min(b), a.max(b)).unwrap();
            prop_assert_eq!(r.to_string().parse::<PortRange>().unwrap(), r);
        }

        #[test]
        fn printed_dscp_parses_to_same_dscp(v in 0u8..64) {
            let d = Dscp::new(v).unwrap();
            prop_assert_eq!(d.to_string().parse::<Dscp>().unwrap(), d);
        }

        #[test]
        fn printed_mark_parses_to_same_mark(value: u32, mask in 1u32..) {
            let m = MarkMask::new(value & mask, mask).unwrap();
            prop_assert_eq!(m.to_string().parse::<MarkMask>().unwrap(), m);
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Prefix>();
            let _ = text.parse::<PortRange>();
            let _ = text.parse::<Dscp>();
            let _ = text.parse::<MarkMask>();
        }
    }
}
