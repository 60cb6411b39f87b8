//! Names, choices and small numbers of the operator's language.

use std::fmt;
use std::str::FromStr;

use crate::value::ValueError;

ranged_number!(
    /// 0..7; 0 is sent first, 3 is the default.
    Priority(u8), "priority", 0, 7, "a whole number from 0 (sent first) to 7"
);

impl Default for Priority {
    fn default() -> Self {
        Self(3)
    }
}

ranged_number!(
    /// Packets that may be queued on one interface (per transmit queue below mq).
    Limit(u32), "limit", 1, 65535, "a whole number of packets from 1 to 65535"
);

ranged_number!(
    /// Bytes added to each packet's length when time on the link is computed (link-layer framing).
    Overhead(u16), "overhead", 0, 256, "a whole number of bytes from 0 to 256"
);

ranged_number!(
    /// Per cent of the link that all traffic that is not media has at least.
    PlainShare(u8), "plain_share", 1, 90, "a whole number of per cent from 1 to 90"
);

impl Default for PlainShare {
    fn default() -> Self {
        Self(20)
    }
}

words!(
    /// What happens to a stale packet.
    Treatment, "treatment", "forward, discard or truncate", {
        /// It is sent all the same (and counted as `sent_stale`).
        Forward = "forward",
        /// It is dropped (reason `stale`).
        Discard = "discard",
        /// Only its headers are sent (and counted as `truncated`), where that is possible; else it is dropped.
        Truncate = "truncate",
    }
);

words!(
    /// Whether the deadline goes into the packets, for the last hop (LPD's option).
    Stamp, "stamp", "yes, probed or no", {
        /// It does, wherever a packet has room for it.
        Yes = "yes",
        /// It does, where a probe has shown that the path carries it.
        Probed = "probed",
        /// Packets leave as they came.
        No = "no",
    }
);

words!(
    /// Where a one-way delay comes from. In order of preference: the first that knows one counts.
    #[derive(Default)]
    OwdSource, "owd_source", "set, socket, tcp, stun, rtcp, rule or none", {
        /// The operator said it: `session set`, or the file.
        Set = "set",
        /// A socket of the packet's user said it (`BB_SO_PEER`).
        Socket = "socket",
        /// Half the round trip time of this host's TCP connections.
        Tcp = "tcp",
        /// Half the round trip time of STUN's Binding requests (RFC 8489).
        Stun = "stun",
        /// Half the round trip time in RTCP's reports (RFC 3550, 6.4.1).
        Rtcp = "rtcp",
        /// The flow rule says it.
        Rule = "rule",
        /// Nobody knows one: 0 is assumed.
        #[default]
        None = "none",
    }
);

words!(
    /// Queue discipline inside a session.
    Method, "method", "fifo, sfdps1, sfdps2, ring, ring-sfdps2, lazy or triage", {
        /// Arrival order, nothing is dropped for being stale.
        Fifo = "fifo",
        /// Priority, then deadline; stale packets are dropped.
        Sfdps1 = "sfdps1",
        /// As `sfdps1`, but a stale packet that is alone in its session is sent.
        Sfdps2 = "sfdps2",
        /// As `sfdps1`, and at overflow the oldest packet of the least important priority is evicted.
        Ring = "ring",
        /// `ring` and `sfdps2` together.
        RingSfdps2 = "ring-sfdps2",
        /// Stale packets go when no fresh one is queued; dropped only when the buffer is full.
        Lazy = "lazy",
        /// Priority decides what is given up, the deadline decides the order.
        Triage = "triage",
    }
);

words!(
    /// How an interface is controlled.
    Mode, "mode", "auto, qdisc or tc", {
        /// `qdisc` where the kernel has BPF qdiscs (6.16 and later), else `tc`.
        Auto = "auto",
        /// A BPF qdisc holds the packets and observes their delay.
        Qdisc = "qdisc",
        /// A model of the queue predicts the delay; HTB holds the packets.
        Tc = "tc",
    }
);

words!(
    /// What becomes of the lifetime in LPD's option of a forwarded packet.
    Decrement, "decrement", "off, clock or predict", {
        /// It is left as it came: right at the last hop.
        Off = "off",
        /// It becomes an absolute deadline, while this host's clock is synchronised.
        Clock = "clock",
        /// The wait that is expected here is taken off: a prediction.
        Predict = "predict",
    }
);

words!(
    /// What becomes of a send buffer (`SO_SNDBUF`) that holds less than rate times lifetime.
    SendBuffers, "send buffers", "auto, warn or off", {
        /// It is raised, and where that cannot be, said.
        Auto = "auto",
        /// It is counted and said.
        Warn = "warn",
        /// Nobody looks.
        Off = "off",
    }
);

const SESSION_ALLOWED: &str = "dst, flow, interface or prefix/N with N from 1 to 128 (of more than 32, IPv4 counts 32), for example prefix/24";

/// Which packets share one bottleneck, and so one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SessionKey {
    /// One session per destination address.
    #[default]
    Dst,
    /// One session per 5-tuple.
    Flow,
    /// One session for the whole interface.
    Interface,
    /// One session per destination network of so many bits (1..=128; an IPv4 network has at most 32).
    Prefix(u8),
}

impl SessionKey {
    /// Whether each session has one receiver, whose address is known.
    pub const fn names_receivers(self) -> bool {
        matches!(self, Self::Dst | Self::Flow)
    }
}

impl FromStr for SessionKey {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: &str| ValueError::new("session key", s, problem, SESSION_ALLOWED);
        match s {
            "dst" => Ok(Self::Dst),
            "flow" => Ok(Self::Flow),
            "interface" => Ok(Self::Interface),
            _ => {
                let bits = s.strip_prefix("prefix/").ok_or_else(|| refuse("unknown"))?;
                if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(refuse("the part behind / is not a number of bits"));
                }
                match bits.parse::<u8>() {
                    Ok(bits @ 1..=128) => Ok(Self::Prefix(bits)),
                    _ => Err(refuse("out of range: an IPv6 address has 128 bits")),
                }
            }
        }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dst => f.pad("dst"),
            Self::Flow => f.pad("flow"),
            Self::Interface => f.pad("interface"),
            Self::Prefix(bits) => f.pad(&format!("prefix/{bits}")),
        }
    }
}

string_value!(SessionKey, "dst, flow, interface or prefix/N");

macro_rules! name_value {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $allowed:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(s: &str) -> Result<Self, ValueError> {
                let check: fn(&str) -> Option<&'static str> = $check;
                match check(s) {
                    None => Ok(Self(s.to_string())),
                    Some(problem) => Err(ValueError::new($kind, s, problem, $allowed)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        string_value!($name, $allowed);
    };
}

name_value!(
    /// Name of a flow rule: a letter or digit, then letters, digits, `_`, `.`, `-`; at most 63 characters.
    FlowName, "flow name",
    "1 to 63 letters, digits, '_', '.' or '-', beginning with a letter or digit, for example audio-in",
    |s| {
        if s == crate::NO_RULE {
            return Some("is the name for traffic without a rule");
        }
        let mut bytes = s.bytes();
        match bytes.next() {
            None => return Some("is empty"),
            Some(b) if !b.is_ascii_alphanumeric() => {
                return Some("does not begin with a letter or digit");
            }
            Some(_) => {}
        }
        if s.len() > 63 {
            return Some("is too long");
        }
        if !bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')) {
            return Some("has a character that is not allowed");
        }
        None
    }
);

name_value!(
    /// Name of a network interface, as the kernel allows it (1 to 15 bytes).
    DevName, "interface", "a network interface name of 1 to 15 characters, for example eth0",
    |s| {
        if s.is_empty() {
            return Some("is empty");
        }
        if s.len() > 15 {
            return Some("is longer than 15 bytes");
        }
        // dev_valid_name() of the kernel, and no control characters in our messages.
        if s == "." || s == ".." || s.chars().any(|c| matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control()) {
            return Some("cannot be the name of an interface");
        }
        None
    }
);

name_value!(
    /// A cgroup v2 directory: absolute, either below the mount point or below the cgroup root.
    CgroupPath, "cgroup",
    "an absolute path without '..', for example /system.slice/sfu.service or /sys/fs/cgroup/system.slice/sfu.service",
    |s| {
        if !s.starts_with('/') {
            return Some("does not begin with /");
        }
        if s.len() > 4095 || s.chars().any(char::is_control) {
            return Some("cannot be a path");
        }
        if s.split('/').any(|part| part == "..") {
            return Some("contains '..'");
        }
        None
    }
);

impl CgroupPath {
    /// Whether this is `other` or a cgroup below it (as paths; both must be of the same form).
    pub fn is_below(&self, other: &Self) -> bool {
        std::path::Path::new(&self.0).starts_with(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn priority_outside_0_to_7_is_refused() {
        assert_eq!("0".parse::<Priority>().unwrap().get(), 0);
        for bad in ["8", "-1", "", "3.0", "NaN", "99999999999999999999999", "3 "] {
            assert!(bad.parse::<Priority>().is_err(), "{bad}");
        }
        let error = serde_json::from_str::<Priority>("8")
            .unwrap_err()
            .to_string();
        assert!(error.contains("to 7"), "{error}");
        assert!(serde_json::from_str::<Priority>("-1").is_err());
    }

    #[test]
    fn printed_word_parses_to_same_word() {
        for m in Method::ALL {
            assert_eq!(m.to_string().parse::<Method>().unwrap(), *m);
        }
        for m in Mode::ALL {
            assert_eq!(m.to_string().parse::<Mode>().unwrap(), *m);
        }
        for t in Treatment::ALL {
            assert_eq!(t.to_string().parse::<Treatment>().unwrap(), *t);
        }
        let error = "codel".parse::<Method>().unwrap_err();
        assert!(error.full().contains("triage"), "{error}");
        assert!("cut".parse::<Treatment>().is_err());
    }

    #[test]
    fn session_key_is_read_and_malformed_one_refused() {
        for text in [
            "dst",
            "flow",
            "interface",
            "prefix/24",
            "prefix/1",
            "prefix/128",
        ] {
            assert_eq!(text.parse::<SessionKey>().unwrap().to_string(), text);
        }
        for bad in [
            "prefix",
            "prefix/",
            "prefix/0",
            "prefix/129",
            "prefix/24x",
            "dest",
            "",
            "prefix/-1",
        ] {
            assert!(bad.parse::<SessionKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn malformed_flow_device_and_cgroup_names_are_refused() {
        for good in ["audio", "a", "0", "A.b_c-d", &"x".repeat(63)] {
            assert!(good.parse::<FlowName>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "-",
            "-a",
            ".a",
            "a b",
            "a/b",
            "ä",
            "a\n",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<FlowName>().is_err(), "{bad}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "sixteencharacter",
            "a b",
            "eth0:1",
            "a\0",
        ] {
            assert!(bad.parse::<DevName>().is_err(), "{bad}");
        }
        for bad in ["", "a/b", "/a/../b", "/a\n"] {
            assert!(bad.parse::<CgroupPath>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,80}") {
            let _ = text.parse::<FlowName>();
            let _ = text.parse::<DevName>();
            let _ = text.parse::<CgroupPath>();
            let _ = text.parse::<SessionKey>();
            let _ = text.parse::<Limit>();
        }
    }
}
