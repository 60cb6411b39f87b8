//! Sessions and what is known of their receivers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::flow::some_option;
use crate::{Counters, Owd, OwdSource, Rate};

/// Body of PUT /v1/sessions/{addr}: absent = as it was, null = forget what was set, value = set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSet {
    /// What the receiver's link carries.
    #[serde(
        default,
        deserialize_with = "some_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub rate: Option<Option<Rate>>,
    /// One-way delay to it.
    #[serde(
        default,
        deserialize_with = "some_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub owd: Option<Option<Owd>>,
    /// Write it to the file, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub save: bool,
}

/// What was measured towards one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RttInfo {
    /// Smoothed round trip time of TCP's last connection, else the last round trip, ns; contains what waited in our
    /// own queue.
    pub srtt_ns: u64,
    /// Of the path: the smallest lately, without our own queue, ns; 0 = not known. Half of it is the owd.
    pub min_rtt_ns: u64,
    /// Retransmission timeout, ns; 0 = not known.
    pub rto_ns: u64,
    /// Since it was measured, ns.
    pub age_ns: u64,
    /// Who did: `tcp`, `stun` or `rtcp`.
    pub source: OwdSource,
}

/// One session: packets that share a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Name, unique: `DEV/ADDRESS`, `DEV/ADDRESS/BITS`, `DEV/flow-HASH`, `DEV/interface`, `DEV/control`,
    /// `DEV/control-ADDRESS`, `DEV/network`, `DEV/plain-ADDRESS`; one user's alone ends in `/uid-N`.
    pub name: String,
    /// Interface.
    pub dev: String,
    /// `dst`, `flow`, `prefix`, `interface`, `control` or `plain` (no metadata).
    pub kind: String,
    /// Whether the operator vouches for it (a flow rule, a mark), so that it goes first.
    #[serde(default)]
    pub media: bool,
    /// Whose it is, `uid-N` of this host, or the source address of what it forwards; null: nobody's alone.
    #[serde(default)]
    pub user: Option<String>,
    /// Destination address or network, if the session has one.
    #[serde(default)]
    pub addr: Option<String>,
    /// Rate in use, bytes/s; null = not known.
    #[serde(default)]
    pub rate_bytes_s: Option<u64>,
    /// One-way delay in use, ns; null = not known.
    #[serde(default)]
    pub owd_ns: Option<u64>,
    /// Where that delay comes from.
    #[serde(default)]
    pub owd_source: OwdSource,
    /// Since it was said or measured last, ns; null: nobody did.
    #[serde(default)]
    pub owd_age_ns: Option<u64>,
    /// How long its packets wait in a queue behind this host, by the last round trip, ns; null: nobody measures that.
    #[serde(default)]
    pub queue_behind_ns: Option<u64>,
    /// Since its last packet, ns.
    pub idle_ns: u64,
    /// What passed.
    pub counters: Counters,
}

/// What is known of one address, set or measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerInfo {
    /// The receiver.
    pub addr: IpAddr,
    /// Rate set for it.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// One-way delay set for it.
    #[serde(default)]
    pub owd: Option<Owd>,
    /// `operator` or `socket`; empty if nothing was set.
    #[serde(default)]
    pub set_by: String,
    /// What was measured.
    #[serde(default)]
    pub rtt: Option<RttInfo>,
}

/// GET /v1/sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionList {
    /// Sessions that carried a packet.
    pub sessions: Vec<SessionInfo>,
    /// Receivers of which something is known.
    pub peers: Vec<PeerInfo>,
}
