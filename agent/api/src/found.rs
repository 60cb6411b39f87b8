//! A path whose rate is found (`rate = "auto"`): who is asked, and what is known of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::value::ValueError;

const ALLOWED: &str =
    "receivers, gateway, none, or the address of one host, for example 192.0.2.1 or 2001:db8::1";

/// Where the echo requests go that measure a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Probe {
    /// To a receiver of media, the busiest that answers.
    #[default]
    Receivers,
    /// To the gateway of the interface's default route.
    Gateway,
    /// Nowhere: no echo request is sent, and no rate is found.
    None,
    /// To this host.
    Addr(IpAddr),
}

impl FromStr for Probe {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: &str| ValueError::new("probe", s, problem, ALLOWED);
        let addr = match s {
            "receivers" => return Ok(Self::Receivers),
            "gateway" => return Ok(Self::Gateway),
            "none" => return Ok(Self::None),
            _ => s.parse::<IpAddr>(),
        };
        let addr = addr
            .map_err(|_| refuse("is neither a known word nor an address"))?
            .to_canonical();
        if addr.is_multicast() || addr.is_unspecified() || addr == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err(refuse("is no address of one host"));
        }
        Ok(Self::Addr(addr))
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receivers => f.pad("receivers"),
            Self::Gateway => f.pad("gateway"),
            Self::None => f.pad("none"),
            Self::Addr(addr) => addr.fmt(f),
        }
    }
}

string_value!(Probe, "receivers, gateway, none or an address");

words!(
    /// Why a path has the rate that it has.
    PathState, "state of a path", "unseen, follows, others or silent", {
        /// No queue was met yet: no rate is in force.
        Unseen = "unseen",
        /// A queue was met: the rate follows what the path carries.
        Follows = "follows",
        /// Others fill the path: no rate is in force for a while.
        Others = "others",
        /// No answer comes any more: no rate is in force.
        Silent = "silent",
    }
);

/// The path behind an interface whose rate is found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// Why it has this rate.
    pub state: PathState,
    /// The rate in force, bytes/s; null: none is.
    #[serde(default)]
    pub rate_bytes_s: Option<u64>,
    /// Rate that the path carries, as measured last, bytes/s; null: not known.
    #[serde(default)]
    pub carries_bytes_s: Option<u64>,
    /// The queue behind this host that the last answer met, ns; null: no answer came yet.
    #[serde(default)]
    pub queue_ns: Option<u64>,
    /// How long a packet that leaves now is expected to wait behind this host, ns. 0 without a rate in force.
    #[serde(default)]
    pub behind_ns: u64,
    /// The least round trip of 17 to 34 s, ns; null: none is known.
    #[serde(default)]
    pub least_rtt_ns: Option<u64>,
    /// Answers that counted since the interface has a rate that is found.
    #[serde(default)]
    pub answers: u64,
    /// How often the path turned out to be another one.
    #[serde(default)]
    pub rebased: u32,
    /// Since the last answer, ns; null: none came yet.
    #[serde(default)]
    pub age_ns: Option<u64>,
    /// Who is asked, in turns; empty: nobody.
    #[serde(default)]
    pub asked: Vec<IpAddr>,
    /// Between two echo requests, ns; null: none is sent.
    #[serde(default)]
    pub interval_ns: Option<u64>,
    /// For how long it is asked in vain, ns: since the last answer, or since it is asked at all.
    #[serde(default)]
    pub unanswered_ns: Option<u64>,
    /// Why no echo request is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl PathInfo {
    /// An answer is missing for so long that it is worth a word, ns.
    pub const SILENT_NS: u64 = 10_000_000_000;
    /// A queue that is shorter than this is none, ns.
    pub const NO_QUEUE_NS: u64 = 4_000_000;

    /// Who is asked, in words: `192.0.2.1`, or `192.0.2.1 and 192.0.2.2`; `None`: nobody.
    pub fn asked_by_name(&self) -> Option<String> {
        let names: Vec<String> = self.asked.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }

    /// For how long nobody has answered, if that is worth a word, ns.
    pub fn silent_ns(&self) -> Option<u64> {
        self.unanswered_ns.filter(|ns| *ns >= Self::SILENT_NS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn probe_is_read_and_wrong_one_refused_with_what_is_allowed() {
        for text in ["receivers", "gateway", "none", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(text.parse::<Probe>().unwrap().to_string(), text);
        }
        assert_eq!(
            "::ffff:192.0.2.1".parse::<Probe>().unwrap().to_string(),
            "192.0.2.1"
        );
        for (text, reason) in [
            ("", "neither"),
            ("gw", "neither"),
            ("192.0.2.0/24", "neither"),
            ("192.0.2.1:7", "neither"),
            ("example.org", "neither"),
            ("0.0.0.0", "one host"),
            ("::", "one host"),
            ("224.0.0.1", "one host"),
            ("ff02::1", "one host"),
            ("255.255.255.255", "one host"),
        ] {
            let error = text.parse::<Probe>().unwrap_err();
            assert!(error.problem.contains(reason), "{text}: {error}");
            assert!(error.full().contains("gateway"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_probe_parses_to_same_probe(addr: IpAddr) {
            if let Ok(probe) = addr.to_string().parse::<Probe>() {
                prop_assert_eq!(probe.to_string().parse::<Probe>().unwrap(), probe);
            }
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Probe>();
        }
    }
}
