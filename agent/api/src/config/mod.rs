//! The configuration file: TOML, accepted as a whole or refused with file and line of everything wrong in it.
//!
//! ```toml
//! [agent]
//! rtt_max_age = "30s"
//!
//! [[interface]]
//! dev = "eth0"
//! rate = "100mbit"
//!
//! [[flow]]            # the first matching flow wins
//! name = "audio"
//! proto = "udp"
//! dport = "5004-5005"
//! lifetime = "200ms"
//! priority = 0
//!
//! [rtp_profile]      # dynamic payload types that rtp_kind = "audio" or "video" matches
//! audio = [111]
//! video = [96, 98]
//!
//! [media.conf]       # ids of RTP's header extensions, for rules with media = "conf"
//! dd = 12
//!
//! [[peer]]
//! addr = "192.0.2.7"
//! rate = "2mbit"
//! owd = "40ms"
//!
//! [tcp_real]         # switches TCP-Real on
//! mode = "guarded"
//! ```

#[cfg(test)]
mod auto;
mod budget;
mod edit;
mod nearest;
#[cfg(test)]
mod packaged;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use budget::{MAX_COMBINATIONS, MAX_KEYS};
pub use edit::Document;

use crate::value::ValueError;
use crate::{
    AttachRequest, Dscp, FlowRule, LpdTypes, MarkMask, MediaTables, Owd, PlainShare, Priority,
    Rate, RealRequest, RtpProfile, SendBuffers, Span,
};

/// Most flow rules (the kernel side numbers them from 1 to 16383).
pub(crate) const MAX_FLOWS: usize = 16383;
/// Most interfaces attached at once.
pub(crate) const MAX_INTERFACES: usize = 64;
/// Most peers.
pub(crate) const MAX_PEERS: usize = 16384;
/// Longest path of a unix socket (`sun_path` with its final zero has 108 bytes).
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// Something wrong in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{file}:{line}: {message}{}", if hint.is_empty() { String::new() } else { format!(" ({hint})") })]
pub struct ConfigError {
    /// Name of the file as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong, and in which table.
    pub message: String,
    /// What would be right; may be empty.
    pub hint: String,
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[agent]`.
    pub agent: AgentConfig,
    /// `[[interface]]`, attached at start.
    #[serde(rename = "interface")]
    pub interfaces: Vec<AttachRequest>,
    /// `[[flow]]`, in the order in which they are tried.
    #[serde(rename = "flow")]
    pub flows: Vec<FlowRule>,
    /// `[rtp_profile]`.
    pub rtp_profile: RtpProfile,
    /// `[media.NAME]`, which rules name.
    #[serde(skip_serializing_if = "MediaTables::is_empty")]
    pub media: MediaTables,
    /// `[[peer]]`.
    #[serde(rename = "peer")]
    pub peers: Vec<PeerConfig>,
    /// `[tcp_real]`; absent: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_real: Option<RealRequest>,
}

/// `[agent]`: the daemon's own settings. Options on bestbyd's command line come first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// Where the control API listens.
    pub socket: PathBuf,
    /// Where Prometheus text is served (`127.0.0.1:9464`); absent: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// Which packet marks are bestby's.
    pub mark_magic: MarkMagic,
    /// Whether marks count on forwarded packets, too: whoever sends through this host can then set them.
    pub forwarded_marks: bool,
    /// Types of LPD's option.
    pub ip_option: LpdTypes,
    /// Per cent of each link that traffic that is not media has at least.
    pub plain_share: PlainShare,
    /// Send buffers that hold back applications whose packets a rule covers.
    pub send_buffers: SendBuffers,
    /// An RTT measured longer ago is not used.
    pub rtt_max_age: Span,
    /// Drop notices per second; more are counted, not sent. 0 to 1000000.
    pub events_per_s: u32,
    /// `[agent.so_priority]`: priority of deadline-mode `SO_TXTIME` packets by their `SO_PRIORITY`.
    pub so_priority: SoPriorityTable,
    /// `[agent.dscp]`: priority of deadline-mode `SO_TXTIME` packets by their DSCP, where `SO_PRIORITY` says
    /// nothing.
    pub dscp: DscpTable,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            socket: crate::DEFAULT_SOCKET.into(),
            metrics: None,
            mark_magic: MarkMagic::default(),
            forwarded_marks: false,
            ip_option: LpdTypes::EXPERIMENTAL,
            plain_share: PlainShare::default(),
            send_buffers: SendBuffers::Auto,
            rtt_max_age: Span::from_ns(30_000_000_000).unwrap_or(Span::MIN),
            events_per_s: 1000,
            so_priority: SoPriorityTable::default(),
            dscp: DscpTable::default(),
        }
    }
}

/// Which value of the mark's four highest bits says "this mark is bestby's".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkMagic {
    /// Marks are not read at all.
    Ignore,
    /// These bits must have this value; only bits 28 to 31 are free for it.
    Bits(MarkMask),
}

impl MarkMagic {
    const FREE: u32 = 0xf000_0000;

    /// Value and mask for the kernel side; mask 0: marks are not read.
    pub const fn bits(self) -> (u32, u32) {
        match self {
            Self::Ignore => (0, 0),
            Self::Bits(m) => (m.value(), m.mask()),
        }
    }
}

impl Default for MarkMagic {
    fn default() -> Self {
        MarkMask::new(0xb000_0000, Self::FREE).map_or(Self::Ignore, Self::Bits)
    }
}

impl FromStr for MarkMagic {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        const ALLOWED: &str =
            "none, or VALUE/MASK within 0xf0000000, for example 0xb0000000/0xf0000000";
        if s == "none" {
            return Ok(Self::Ignore);
        }
        let refuse = |problem: String| ValueError::new("mark magic", s, problem, ALLOWED);
        let mask: MarkMask = s.parse().map_err(|e: ValueError| refuse(e.problem))?;
        if mask.mask() & !Self::FREE != 0 {
            return Err(refuse(
                "uses bits that hold time, priority, treatment or ADU".into(),
            ));
        }
        Ok(Self::Bits(mask))
    }
}

impl fmt::Display for MarkMagic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignore => f.write_str("none"),
            Self::Bits(mask) => mask.fmt(f),
        }
    }
}

string_value!(MarkMagic, "none or VALUE/MASK");

/// Priorities by a small number; a number without an entry says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityTable<const N: usize>([Option<Priority>; N]);

impl<const N: usize> PriorityTable<N> {
    fn with(entries: &[(usize, u64)]) -> Self {
        let mut table = Self([None; N]);
        for (index, priority) in entries {
            table.set(*index, Priority::try_from(*priority).ok());
        }
        table
    }

    /// The priority that goes with `index`, if any.
    pub fn get(&self, index: usize) -> Option<Priority> {
        self.0.get(index).copied().flatten()
    }

    pub(crate) fn set(&mut self, index: usize, priority: Option<Priority>) {
        if let Some(entry) = self.0.get_mut(index) {
            *entry = priority;
        }
    }

    /// For the kernel side: 255 = says nothing.
    pub fn to_bytes(self) -> [u8; N] {
        self.0.map(|p| p.map_or(255, Priority::get))
    }
}

/// By `SO_PRIORITY` (0..=15). The default follows linux/pkt_sched.h: 6 (interactive) is sent early, 7 (control)
/// first, 2 (bulk) and 1 (filler) late. It leaves 3 and 5 free. These are for the crate `bestby`, whose packets
/// need a value for each priority. Every socket has 0, so 0 says nothing.
pub type SoPriorityTable = PriorityTable<16>;
/// By DSCP (0..=63). The default follows RFC 8325's order: network control and voice first, background last.
pub type DscpTable = PriorityTable<64>;

impl Default for SoPriorityTable {
    fn default() -> Self {
        Self::with(&[(1, 7), (2, 5), (3, 3), (4, 4), (5, 2), (6, 1), (7, 0)])
    }
}

impl Default for DscpTable {
    fn default() -> Self {
        Self::with(&[
            (1, 7),
            (8, 6),
            (10, 5),
            (12, 5),
            (14, 5),
            (32, 2),
            (34, 2),
            (36, 3),
            (38, 4),
            (40, 1),
            (44, 0),
            (46, 0),
            (48, 0),
            (56, 0),
        ])
    }
}

macro_rules! table_json {
    ($name:ident, $size:literal, $key:ident) => {
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                let entries =
                    (0..$size).filter_map(|i| Some(($key::new(i)?, self.get(usize::from(i))?)));
                s.collect_map(entries)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let entries = std::collections::BTreeMap::<$key, Priority>::deserialize(d)?;
                let mut table = Self([None; $size]);
                for (key, priority) in entries {
                    table.set(usize::from(key.get()), Some(priority));
                }
                Ok(table)
            }
        }
    };
}

/// A `SO_PRIORITY` that the table can name, 0..=15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SoPriority(u8);

impl SoPriority {
    pub(crate) const fn new(value: u8) -> Option<Self> {
        if value > 15 { None } else { Some(Self(value)) }
    }

    pub(crate) const fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for SoPriority {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        digits
            .then(|| s.parse().ok())
            .flatten()
            .and_then(Self::new)
            .ok_or_else(|| {
                ValueError::new("SO_PRIORITY", s, "unknown", "a whole number from 0 to 15")
            })
    }
}

impl fmt::Display for SoPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

string_value!(SoPriority, "a whole number from 0 to 15");
table_json!(SoPriorityTable, 16, SoPriority);
table_json!(DscpTable, 64, Dscp);

/// `[[peer]]`: what is known of a receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its address.
    pub addr: IpAddr,
    /// What its link carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// One-way delay to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owd: Option<Owd>,
}

impl Config {
    /// Reads a whole file; `file` is only its name for messages.
    ///
    /// # Errors
    /// Everything that is wrong in it, in the order of lines.
    pub fn parse(text: &str, file: &str) -> Result<Self, Vec<ConfigError>> {
        read::read(text, file)
    }

    /// The file that says the same.
    pub fn to_toml(&self) -> String {
        edit::write(self)
    }

    /// What is allowed but probably not meant, as far as the file alone tells: interfaces that only observe because
    /// nothing else is said, and what [`Setup`](crate::Setup) finds.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.unsaid();
        let all = crate::Setup::of_file(self).all();
        warnings.extend(all.iter().map(ToString::to_string));
        warnings
    }

    /// Interfaces that only observe because nothing else is said.
    pub fn unsaid(&self) -> Vec<String> {
        let silent = self.interfaces.iter().filter(|i| i.observe.is_none());
        silent
            .map(|i| {
                format!(
                    "interface {}: observe is not said, so it only observes when it is attached anew; \
                     observe = false makes it drop",
                    i.dev
                )
            })
            .collect()
    }
}
