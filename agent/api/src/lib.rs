//! The vocabulary that `bestbyd`, `bestby` and the configuration file share.
//!
//! * values an operator types ([`Rate`], [`Lifetime`], [`Prefix`], ...): parsed by `FromStr`, printed by
//!   `Display`, and the printed form parses back to the same value;
//! * [`FlowRule`] and the requests and answers of the control API (HTTP/1.1 and JSON on a unix socket);
//! * [`Config`], the TOML file, refused with file and line, or accepted as a whole.
//!
//! Everything here is pure: no I/O, no kernel, so that `bestby config check` needs no agent.
//!
//! In JSON and TOML, *settings* have the form an operator types (`"10mbit"`, `"200ms"`), while *measured*
//! values are numbers with the unit in their name (`owd_ns`, `rate_bytes_s`).

#[macro_use]
mod value;
#[macro_use]
mod described;

mod config;
mod discover;
mod doctor;
mod explain;
mod extensions;
mod flow;
mod found;
mod http;
mod iface;
mod link_rate;
mod lpd;
mod media;
mod metric;
mod net;
mod number;
mod packet;
mod picture;
mod rate;
mod rtp;
mod sdp;
mod session;
mod stats;
mod tcp_real;
mod time;
mod times;
mod warning;
mod words;

pub use config::{
    AgentConfig, Config, ConfigError, Document, DscpTable, MAX_COMBINATIONS, MAX_KEYS, MarkMagic,
    PeerConfig, SoPriorityTable,
};
pub use described::Described;
pub use discover::{Carried, DiscoverRequest, Discovered, Discovery, SrtLatency, Suggestion};
pub use doctor::{
    Check, CheckStatus, Doctor, FEATURES, Feature, Status, kernel_version, lockdown_check,
    lockdown_mode, realtime, realtime_check,
};
pub use explain::{ExplainRequest, Explanation, RuleVerdict, Source, SourceAnswer};
pub use extensions::{
    ExtensionId, Media, MediaIds, MediaName, MediaProfile, MediaTable, MediaTables,
};
pub use flow::{FlowAdd, FlowAdds, FlowInfo, FlowPatch, FlowRule, FlowSet};
pub use found::{PathInfo, PathState, Probe};
pub use http::{ConfigDiff, Done, ErrorBody, ErrorDetail, path};
pub use iface::{AttachRequest, InterfaceInfo, InterfaceSettings, PushedBack};
pub use link_rate::{Bounds, LinkRate};
pub use lpd::{HOP_BY_HOP_BYTES, LpdExpiry, LpdOption, LpdTypes, StaleTreatment};
pub use media::{Learning, MediaList, MediaStream, Pictures, codec_words};
pub use metric::{Kind, Metric, metrics};
pub use net::{Dscp, MarkMask, PortRange, Prefix, Prefixes, Proto};
pub use packet::PacketDescription;
pub use picture::{Chain, Roles};
pub use rate::Rate;
pub use rtp::{Frames, MAX_RTX, PayloadTypes, Retransmissions, RtpKind, RtpProfile, Ssrc};
pub use sdp::{Learned, MAX_SDP};
pub use session::{PeerInfo, RttInfo, SessionInfo, SessionList, SessionSet};
pub use stats::{Counters, Drops, Event, GlobalCounters, Leaf, Reason, Stats};
pub use tcp_real::{
    RealConnection, RealCounters, RealLevel, RealMode, RealRequest, RealState, TcpReal,
};
pub use time::{FlowLifetime, Lifetime, Owd, Span};
pub use times::{Delay, Histogram, Times};
pub use value::ValueError;
pub use warning::{Controlled, Setup, Warning, shortened};
pub use words::{
    CgroupPath, Decrement, DevName, FlowName, Limit, Method, Mode, Overhead, OwdSource, PlainShare,
    Priority, SendBuffers, SessionKey, Stamp, Treatment,
};

/// Where `bestbyd` listens and `bestby` connects unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/bestby/bestbyd.sock";

/// The configuration file `bestbyd` reads unless told otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/bestby/bestby.toml";

/// Name under which traffic without a flow rule is counted.
pub const NO_RULE: &str = "-";

/// The guides' Rust examples compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/metadata.md")]
#[doc = include_str!("../../../docs/commands.md")]
pub struct Guides;
