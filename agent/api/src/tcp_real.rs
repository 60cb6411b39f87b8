//! TCP-Real: how it is switched on (the same in the API and in the file), and what its connections do.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::CgroupPath;

words!(
    /// What a sender makes of what the receiver measured.
    RealMode, "mode", "guarded or paper", {
        /// Grows as Reno does; cancels a reduction where neither the RTT nor the rate shows congestion.
        Guarded = "guarded",
        /// The window is twice the receiver's level, as the paper has it.
        Paper = "paper",
    }
);

ranged_number!(
    /// Greatest wave level; level i stands for a window of 2 i segments.
    RealLevel(u8), "max level", 1, 127, "a whole number from 1 to 127"
);

impl Default for RealLevel {
    /// The paper's 24.
    fn default() -> Self {
        Self(24)
    }
}

const fn guarded() -> RealMode {
    RealMode::Guarded
}

/// How TCP-Real is switched on: body of PUT /v1/tcp-real, and `[tcp_real]` of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RealRequest {
    /// Sockets in it and below it offer and answer the option; absent: the agent's own cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<CgroupPath>,
    /// Default `guarded`.
    #[serde(default = "guarded")]
    pub mode: RealMode,
    /// Default 24.
    #[serde(default)]
    pub max_level: RealLevel,
}

impl Default for RealRequest {
    fn default() -> Self {
        Self {
            cgroup: None,
            mode: RealMode::Guarded,
            max_level: RealLevel::default(),
        }
    }
}

words!(
    /// What a connection is at the moment.
    RealState, "state", "real, waiting, receives or plain", {
        /// It sends by what the receiver tells.
        Real = "real",
        /// It would, but the receiver has not told a rate yet.
        Waiting = "waiting",
        /// It measures for the other end and sends by another congestion control.
        Receives = "receives",
        /// It sends as Reno.
        Plain = "plain",
    }
);

/// One connection of which TCP-Real knows something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealConnection {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// What it is.
    pub state: RealState,
    /// Why it is plain; empty if it is not.
    #[serde(default)]
    pub why: String,
    /// Next level that the other end told; null = none yet.
    #[serde(default)]
    pub level: Option<u8>,
    /// Rate at which the other end receives, bytes/s, rounded down by an eighth at most; null = not measured.
    #[serde(default)]
    pub rate_bytes_s: Option<u64>,
    /// Next level that this end tells.
    #[serde(default)]
    pub receiving_level: Option<u8>,
    /// Rate at which this end received the last wave, bytes/s.
    #[serde(default)]
    pub receiving_rate_bytes_s: Option<u64>,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Most data in a segment, bytes, with timestamps and without TCP-Real's option: a segment that has that, too,
    /// carries 8 bytes less.
    pub mss: u32,
    /// Smoothed round trip time, ns.
    pub srtt_ns: u64,
    /// The least one of five minutes, ns.
    pub min_rtt_ns: u64,
    /// Reductions of the window that were cancelled.
    pub cancelled: u32,
}

/// Counters of TCP-Real since it was switched on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RealCounters {
    /// Connections that speak it.
    pub negotiated: u64,
    /// Connections whose other end did not offer or answer it.
    pub no_answer: u64,
    /// Connections whose SYN was sent again, without the option.
    pub retried: u64,
    /// Connections whose other end stopped speaking it.
    pub silent: u64,
    /// Options of its kind that no sender of bestby makes: ignored.
    pub malformed: u64,
    /// Segments without room for the option.
    pub no_room: u64,
    /// Waves that gave a rate.
    pub measured: u64,
    /// Waves that gave none.
    pub unmeasured: u64,
    /// Waves that the decision timer ended.
    pub timers: u64,
    /// Reductions of a window that were cancelled.
    pub cancelled: u64,
    /// Reductions that the guards left to Reno.
    pub reduced: u64,
    /// Reductions of connections without a receiver's word: Reno's.
    pub plain: u64,
    /// Timeouts after which the window was kept.
    pub restored: u64,
    /// Timeouts after which it was not.
    pub collapsed: u64,
}

impl RealCounters {
    /// Counters in the order of the kernel side's `enum bb_real_count`.
    pub const fn from_array(c: [u64; 14]) -> Self {
        Self {
            negotiated: c[0],
            no_answer: c[1],
            retried: c[2],
            silent: c[3],
            malformed: c[4],
            no_room: c[5],
            measured: c[6],
            unmeasured: c[7],
            timers: c[8],
            cancelled: c[9],
            reduced: c[10],
            plain: c[11],
            restored: c[12],
            collapsed: c[13],
        }
    }

    /// Name, value and meaning of each counter.
    pub const fn named(&self) -> [(&'static str, u64, &'static str); 14] {
        [
            (
                "negotiated",
                self.negotiated,
                "connections that speak TCP-Real",
            ),
            (
                "no answer",
                self.no_answer,
                "connections whose other end did not offer or answer it",
            ),
            (
                "retried",
                self.retried,
                "connections whose SYN was sent again, without the option",
            ),
            (
                "silent",
                self.silent,
                "connections whose other end stopped speaking it",
            ),
            (
                "malformed",
                self.malformed,
                "options of its kind with a wrong length or content: ignored",
            ),
            (
                "no room",
                self.no_room,
                "segments without room for the option",
            ),
            ("measured", self.measured, "waves that gave a rate"),
            (
                "unmeasured",
                self.unmeasured,
                "waves that gave no rate: too short, or arrived at once",
            ),
            ("timers", self.timers, "waves that the decision timer ended"),
            (
                "cancelled",
                self.cancelled,
                "reductions of a window that were cancelled",
            ),
            (
                "reduced",
                self.reduced,
                "reductions that the guards left to Reno",
            ),
            (
                "plain",
                self.plain,
                "reductions of connections without a receiver's word",
            ),
            (
                "restored",
                self.restored,
                "timeouts after which the window was kept",
            ),
            (
                "collapsed",
                self.collapsed,
                "timeouts after which it was not",
            ),
        ]
    }
}

/// GET /v1/tcp-real.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TcpReal {
    /// How it was switched on; null: it is off.
    pub on: Option<RealRequest>,
    /// Directory of the cgroup whose sockets speak it; empty: it is off.
    pub cgroup: String,
    /// Interfaces where arriving packets are measured; 0: measured where TCP gets them.
    pub interfaces: u32,
    /// Since it was switched on.
    pub counters: RealCounters,
    /// Connections that speak it, or have it as their congestion control: 16384 at most.
    pub connections: Vec<RealConnection>,
    /// Connections beyond those.
    pub more: u64,
}
