//! Counters and drop notices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Delay;

words!(
    /// Why a packet was dropped; every drop has exactly one reason.
    Reason, "reason", "stale, adu, overflow, evicted, predicted, codel or chain", {
        /// It would have arrived after its deadline.
        Stale = "stale",
        /// Another packet of its application data unit was dropped, or the unit was given up.
        Adu = "adu",
        /// It arrived when a limit was reached.
        Overflow = "overflow",
        /// It was queued and gave way to a more important one.
        Evicted = "evicted",
        /// Mode tc: it would have become stale before it could leave.
        Predicted = "predicted",
        /// Mode qdisc: it has no deadline, is not media, and the packets of its session waited too long (`CoDel`,
        /// RFC 8289).
        Codel = "codel",
        /// Its frame needs another one that was given up.
        Chain = "chain",
    }
);

/// Packets dropped, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drops {
    /// Would have arrived after the deadline.
    pub stale: u64,
    /// Rest of an application data unit that lost a packet or was given up.
    pub adu: u64,
    /// Arrived when a limit was reached.
    pub overflow: u64,
    /// Gave way to a more important packet.
    pub evicted: u64,
    /// Mode tc: would have become stale before it could leave.
    pub predicted: u64,
    /// Mode qdisc: no deadline, not media, and its session's packets waited too long (`CoDel`).
    pub codel: u64,
    /// Of frames that need another one that was given up: nobody could decode them.
    pub chain: u64,
}

impl Drops {
    /// All reasons together.
    pub const fn total(&self) -> u64 {
        self.stale
            .saturating_add(self.adu)
            .saturating_add(self.overflow)
            .saturating_add(self.evicted)
            .saturating_add(self.predicted)
            .saturating_add(self.codel)
            .saturating_add(self.chain)
    }

    /// Each reason's word and count.
    pub fn by_name(&self) -> [(&'static str, u64); 7] {
        [
            (Reason::Stale.as_str(), self.stale),
            (Reason::Adu.as_str(), self.adu),
            (Reason::Overflow.as_str(), self.overflow),
            (Reason::Evicted.as_str(), self.evicted),
            (Reason::Predicted.as_str(), self.predicted),
            (Reason::Codel.as_str(), self.codel),
            (Reason::Chain.as_str(), self.chain),
        ]
    }

    /// From the kernel's array, in the order of `enum bb_reason`, and what is counted beside it.
    pub const fn from_array(a: [u64; 6], chain: u64) -> Self {
        Self {
            stale: a[0],
            adu: a[1],
            overflow: a[2],
            evicted: a[3],
            predicted: a[4],
            codel: a[5],
            chain,
        }
    }
}

counted! {
    /// packets_in = packets_sent + dropped + queued, always.
    Counters {
        packets_in: "in", "packets", "packets that arrived at the interface";
        bytes_in: "bytes in", "bytes", "bytes that arrived at the interface";
        packets_sent: "sent", "packets", "packets handed to the device";
        bytes_sent: "bytes sent", "bytes", "bytes handed to the device";
        queued: "queued", "packets", "packets queued now";
        sent_stale: "sent stale", "packets",
            "packets sent although stale: treatment forward, method fifo, sfdps2 or lazy, or observe";
        truncated: "truncated", "packets", "packets of which only the headers were sent: they count as sent, too";
    }
    by reason {
        dropped: "dropped", "packets dropped";
        would_drop: "would drop", "packets that would have been dropped, had the interface not only observed";
    }
}

counted! {
    /// Things counted once for the host.
    GlobalCounters {
        no_metadata: "no metadata", "packets", "packets that nobody gave a deadline or priority";
        malformed: "malformed", "packets", "packets whose headers end early or never";
        foreign_mark: "foreign mark", "packets", "packets with a mark that is not bestby's";
        no_rtt: "no RTT", "lookups", "look-ups of a delay to a receiver that is not known: taken as 0";
        sessions_full: "sessions full", "packets", "packets that found no free session and went best effort";
        events_lost: "events lost", "events", "drop notices left out because they came too fast";
        past_deadline: "past deadline", "packets", "packets that were stale when first seen";
        bad_cb: "bad cb", "packets",
            "packets whose control block another tcx program overwrote: sent as plain traffic";
        no_cb: "no cb", "packets", "packets that no classifier saw: a tcx program before it ended the chain";
        streams_full: "streams full", "packets", "packets whose stream found no place: no frames, a lifetime each";
        users_full: "users full", "packets", "packets whose user found no place: shared with others";
        forwarded_mark: "forwarded mark", "packets", "forwarded packets with bestby's mark: not believed";
        refused: "refused", "packets", "packets that the queue dropped uncounted: no room, or no interface";
        segmenter_lost: "segmenter lost", "packets", "large packets lost in the segmenting device";
        option_malformed: "option malformed", "packets",
            "packets with IP options that end where they cannot: ignored";
        option_unknown: "option unknown", "packets",
            "IP options (LPD) with a treatment that nothing defines: ignored";
        option_far: "option far", "packets", "IP options (LPD) with a deadline more than 131 s away: ignored";
        option_many: "option many", "packets", "packets with more IP options than the eight that are looked at";
        option_untrusted: "option untrusted", "packets",
            "IP options (LPD) of forwarded packets whose source is not trusted: ignored";
        option_no_clock: "option no clock", "packets",
            "IP options (LPD) with a deadline while the clock was not synchronised: ignored";
        decremented: "decremented", "packets",
            "packets forwarded with less lifetime in their IP option (LPD), or with a deadline for it";
        stamped: "stamped", "packets", "packets that left with LPD's option";
        stamp_mtu: "stamp mtu", "packets", "packets left unstamped: no room below the device's MTU";
        stamp_path_mtu: "stamp path mtu", "packets", "packets left unstamped: no room below the path's MTU";
        stamp_gso: "stamp gso", "packets", "super-packets left unstamped: their segments would not fit";
        stamp_checksum: "stamp checksum", "packets", "super-packets left unstamped: the device makes no checksums";
        stamp_fragment: "stamp fragment", "packets", "fragments left unstamped";
        stamp_shared: "stamp shared", "packets", "packets left unstamped: somebody else holds them (pktgen)";
        stamp_ah: "stamp ah", "packets", "packets left unstamped: IPsec protects their header (AH)";
        stamp_options: "stamp options", "packets",
            "packets left unstamped: they have other options or extension headers";
        stamp_clock: "stamp clock", "packets",
            "packets left unstamped: longer than a lifetime can say, and no clock is synchronised";
        stamp_probe: "stamp probe", "packets",
            "packets left unstamped: no probe has shown that the path carries the option";
        stamp_failed: "stamp failed", "packets",
            "packets left unstamped: no memory, or a frame that the kernel cannot open";
        answers_unknown: "answer unknown", "answers",
            "answers of STUN and RTCP in clear to nothing that left here: strays, repetitions, forgeries";
        answers_refused: "answer refused", "answers",
            "answers of STUN and RTCP that measure nothing: to what was sent twice, or of a delay that cannot be";
        held_back: "held back", "lookups",
            "look-ups of a flow, one in 10 ms at most, whose application its own send buffer held back (doctor)";
        preempted: "preempted", "packets",
            "packets sent as plain traffic because they preempted another one of their CPU (PREEMPT_RT)";
        routed_time: "routed time", "packets",
            "routed packets with a time of SO_TXTIME: neither a deadline nor a departure, as their socket is not known";
        no_cgroup: "no cgroup", "flows",
            "routed flows, which have no socket: a rule with a cgroup does not match them";
        untimely: "untimely", "packets",
            "packets with deadlines of another clock (a time namespace): without effect";
        network: "network", "packets",
            "packets of control protocols (LACP, STP, BFD, VRRP, OSPF, BGP, CS6, CS7) that went first";
        network_over: "network over", "packets",
            "packets of control protocols beyond their share of the link: plain traffic";
    }
}

/// One leaf of the HTB tree below mode tc, as the kernel counts it. [`Counters`] cannot show it: in mode tc they end
/// where the classifier admits a packet to its leaf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leaf {
    /// What it holds: `control`, `lifetimes to 250ms`, ..., `longer lifetimes`, or `plain`. The lifetimes are those of
    /// priorities 4 to 6; what is more important goes to an earlier leaf (docs/design.md, "Mode tc").
    pub holds: String,
    /// Packets queued now.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets handed to the device since the tree was built.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets that found the leaf full; no reason of [`Drops`] counts them.
    pub dropped: u64,
    /// How long a packet that comes now would wait, ns: for what is queued here and in earlier leaves, at the
    /// interface's rate. Traffic that comes later to an earlier leaf is not in it.
    pub delay_ns: u64,
}

/// GET /v1/stats, and what `bestby --json stats` prints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// By flow rule; traffic without a rule under `-`.
    pub flows: BTreeMap<String, Counters>,
    /// By session: `DEV/ADDRESS`, `DEV/control`, ...
    pub sessions: BTreeMap<String, Counters>,
    /// By interface.
    pub interfaces: BTreeMap<String, Counters>,
    /// By interface in mode qdisc, once packets left: how long they waited. Mode tc has [`Leaf::delay_ns`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delays: BTreeMap<String, Delay>,
    /// By interface in mode tc with a rate: the leaves of its tree, most important first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaves: BTreeMap<String, Vec<Leaf>>,
    /// By RTP payload type, those that were seen.
    #[serde(default)]
    pub payload_types: BTreeMap<u8, Counters>,
    /// Of the host.
    #[serde(default)]
    pub global: GlobalCounters,
}

/// One drop notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// When, CLOCK_REALTIME, ns since 1970.
    pub unix_ns: u64,
    /// Interface (its name, or `#INDEX` if it is gone).
    pub dev: String,
    /// Flow rule, `-` without one.
    pub flow: String,
    /// Session, as in [`Stats::sessions`].
    pub session: String,
    /// Why.
    pub reason: Reason,
    /// 0..7.
    pub priority: u8,
    /// Since the classifier saw it; 0 if unknown.
    pub age_ns: u64,
    /// now + owd - deadline; negative: it was not stale.
    pub late_ns: i64,
    /// Its application data unit; 0 = none.
    pub adu: u32,
    /// Its length, bytes.
    pub len: u32,
    /// True: it would have been dropped, but the interface only observes.
    pub observe: bool,
    /// True: its headers were sent all the same (treatment truncate), and it does not count as dropped.
    #[serde(default)]
    pub truncated: bool,
    /// Notices left out since the one before.
    pub suppressed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_json_has_the_documented_keys() {
        let mut stats = Stats::default();
        stats.flows.insert(
            "-".into(),
            Counters {
                dropped: Drops::from_array([1, 2, 3, 4, 5, 6], 7),
                ..Counters::default()
            },
        );
        let json = serde_json::to_value(&stats).unwrap();
        let flow = &json["flows"]["-"];
        for key in [
            "packets_in",
            "bytes_in",
            "packets_sent",
            "bytes_sent",
            "queued",
            "sent_stale",
            "truncated",
        ] {
            assert_eq!(flow[key], 0, "{key}");
        }
        for (i, (key, _)) in Drops::default().by_name().iter().enumerate() {
            assert_eq!(flow["dropped"][key], i as u64 + 1);
        }
        assert!(json["sessions"].is_object() && json["interfaces"].is_object());
        assert_eq!(stats.flows["-"].dropped.total(), 28);
        assert_eq!(serde_json::from_value::<Stats>(json).unwrap(), stats);
    }
}
