//! `bestby explain`: which rule and which source decide for one packet.

use serde::{Deserialize, Serialize};

use crate::{DevName, OwdSource, PacketDescription};

/// Body of POST /v1/explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Interface the packet leaves by.
    pub dev: DevName,
    /// The packet, in words.
    pub packet: PacketDescription,
}

words!(
    /// Where a packet's deadline or priority comes from; highest first, the first that gives a field wins.
    Source, "source", "mark, txtime, sockopt, ip-option, rule, frame or none", {
        /// The packet mark (`SO_MARK`).
        Mark = "mark",
        /// A deadline-mode `SO_TXTIME` socket.
        Txtime = "txtime",
        /// bestby's socket options.
        Sockopt = "sockopt",
        /// IP option of a forwarded packet.
        IpOption = "ip-option",
        /// A flow rule.
        Rule = "rule",
        /// What the packet's frame is for, as its payload says.
        Frame = "frame",
        /// Nothing: best effort.
        None = "none",
    }
);

/// What one source says about the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceAnswer {
    /// Which source.
    pub source: Source,
    /// The fields it decides, e.g. `deadline`, `priority`; empty if it says nothing or a higher source did.
    pub decides: Vec<String>,
    /// What it says, or why it says nothing.
    pub says: String,
}

/// What became of one flow rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleVerdict {
    /// Its name.
    pub flow: String,
    /// Whether it is the first that matches.
    pub wins: bool,
    /// Why not, e.g. `dport is 6000, not 5004-5010`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

/// Answer of POST /v1/explain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The packet as it was understood.
    pub packet: PacketDescription,
    /// Interface.
    pub dev: DevName,
    /// Mode of the interface; null if it is not attached (then nothing of this happens).
    pub mode: Option<String>,
    /// Rules in list order, up to the winning one (the agent may leave out the middle of a long list).
    pub rules: Vec<RuleVerdict>,
    /// Rules left out of `rules`.
    #[serde(default)]
    pub rules_left_out: u32,
    /// Every source, highest first.
    pub sources: Vec<SourceAnswer>,
    /// Flow under which the packet is counted; `-` = no rule.
    pub flow: String,
    /// Session it would join, as `bestby session ls` names it.
    pub session: String,
    /// 0..7.
    pub priority: u8,
    /// `forward` or `discard`.
    pub treatment: String,
    /// Time left from now to the deadline, ns; null: no deadline, never stale.
    pub lifetime_ns: Option<i64>,
    /// One-way delay that is reckoned with, ns; null = not known (0 is assumed).
    pub owd_ns: Option<u64>,
    /// Where that delay comes from.
    #[serde(default)]
    pub owd_source: OwdSource,
    /// Since it was said or measured last, ns; null: nobody did.
    #[serde(default)]
    pub owd_age_ns: Option<u64>,
    /// What the classifier took the payload for; empty of a description that says none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub read_as: String,
    /// What happens to the packet, one sentence.
    pub verdict: String,
    /// What a description leaves open and would change the answer, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
