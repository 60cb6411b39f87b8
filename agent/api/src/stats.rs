//! Counters and drop notices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

words!(
    /// Why a packet was dropped; every drop has exactly one reason.
    Reason, "reason", "stale, adu, overflow, evicted or predicted", {
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
}

impl Drops {
    /// All reasons together.
    pub const fn total(&self) -> u64 {
        self.stale
            .saturating_add(self.adu)
            .saturating_add(self.overflow)
            .saturating_add(self.evicted)
            .saturating_add(self.predicted)
    }

    /// From the kernel's array, in the order of `enum bb_reason`.
    pub const fn from_array(a: [u64; 5]) -> Self {
        Self {
            stale: a[0],
            adu: a[1],
            overflow: a[2],
            evicted: a[3],
            predicted: a[4],
        }
    }
}

/// packets_in = packets_sent + dropped + queued, always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Packets that arrived at the interface.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets handed to the device.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets queued now.
    pub queued: u64,
    /// Packets dropped.
    pub dropped: Drops,
    /// Packets sent although stale (treatment forward, method fifo, sfdps2 or lazy, or observe).
    pub sent_stale: u64,
    /// Packets of which only the headers were sent (treatment truncate); they count as sent, too.
    pub truncated: u64,
    /// Packets that would have been dropped, had the interface not been attached with `--observe`.
    pub would_drop: Drops,
}

/// Things counted once for the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlobalCounters {
    /// Packets for which no source gave a deadline or priority.
    pub no_metadata: u64,
    /// Packets whose headers end early or never.
    pub malformed: u64,
    /// Packets with a mark that is not bestby's.
    pub foreign_mark: u64,
    /// Times that the delay to a receiver was looked for (every 10 ms at most) and not known.
    pub no_rtt: u64,
    /// Packets that found the session table full and went best effort.
    pub sessions_full: u64,
    /// Drop notices left out because they came too fast.
    pub events_lost: u64,
    /// Packets already stale when they were first seen.
    pub past_deadline: u64,
    /// Packets whose control block another program wrote to: sent as plain traffic.
    pub bad_cb: u64,
    /// Packets that came to the queue unjudged: a tcx program before the classifier ended the chain.
    pub no_cb: u64,
    /// Packets of streams that found the stream table full: each had a lifetime of its own.
    pub streams_full: u64,
    /// Packets of users who found the user table full: they share with the others of that kind.
    pub users_full: u64,
    /// Forwarded packets with a mark that looks like bestby's: it was not believed.
    pub forwarded_mark: u64,
    /// Packets that the queue took not even to count them.
    pub refused: u64,
    /// GSO packets that did not come back from the segmenting device.
    pub segmenter_lost: u64,
    /// Packets with IP options that end where they cannot: ignored.
    pub option_malformed: u64,
    /// LPD's options with a stale-treatment that nothing defines: ignored.
    pub option_unknown: u64,
    /// LPD's options with a deadline more than 131 s away: ignored.
    pub option_far: u64,
    /// Packets with more IP options than are looked at.
    pub option_many: u64,
    /// LPD's options of forwarded packets whose source is not trusted: ignored.
    pub option_untrusted: u64,
    /// LPD's options with a deadline, while the clock was not synchronised: ignored.
    pub option_no_clock: u64,
    /// Packets forwarded with less lifetime in LPD's option, or with a deadline for it.
    pub decremented: u64,
    /// Packets that left with LPD's option.
    pub stamped: u64,
    /// Packets left without it: no room below the device's MTU.
    pub stamp_mtu: u64,
    /// ... below the path's MTU.
    pub stamp_path_mtu: u64,
    /// ... segments of a super-packet would not fit.
    pub stamp_gso: u64,
    /// ... a super-packet whose checksums the device does not make.
    pub stamp_checksum: u64,
    /// ... fragments.
    pub stamp_fragment: u64,
    /// ... somebody else holds the packet.
    pub stamp_shared: u64,
    /// ... IPsec protects the header.
    pub stamp_ah: u64,
    /// ... other options or extension headers.
    pub stamp_options: u64,
    /// ... longer than a lifetime can say, and no synchronised clock.
    pub stamp_clock: u64,
    /// ... no probe has shown that the path carries the option.
    pub stamp_probe: u64,
    /// ... no memory, or a frame that the kernel cannot open.
    pub stamp_failed: u64,
}

impl GlobalCounters {
    /// Name, value and meaning of each counter.
    pub const fn named(&self) -> [(&'static str, u64, &'static str); 33] {
        [
            (
                "no metadata",
                self.no_metadata,
                "packets that nobody gave a deadline or priority",
            ),
            (
                "malformed",
                self.malformed,
                "packets whose headers end early or never",
            ),
            (
                "foreign mark",
                self.foreign_mark,
                "packets with a mark that is not bestby's",
            ),
            (
                "no RTT",
                self.no_rtt,
                "look-ups of a delay to a receiver that is not known: taken as 0",
            ),
            (
                "sessions full",
                self.sessions_full,
                "packets that found no free session and went best effort",
            ),
            (
                "events lost",
                self.events_lost,
                "drop notices left out because they came too fast",
            ),
            (
                "past deadline",
                self.past_deadline,
                "packets that were stale when first seen",
            ),
            (
                "bad cb",
                self.bad_cb,
                "packets whose control block another tcx program overwrote: sent as plain traffic",
            ),
            (
                "no cb",
                self.no_cb,
                "packets that no classifier saw: a tcx program before it ended the chain",
            ),
            (
                "streams full",
                self.streams_full,
                "packets whose stream found no place: no frames, a lifetime each",
            ),
            (
                "users full",
                self.users_full,
                "packets whose user found no place: shared with others",
            ),
            (
                "forwarded mark",
                self.forwarded_mark,
                "forwarded packets with bestby's mark: not believed",
            ),
            (
                "refused",
                self.refused,
                "packets that the queue dropped uncounted: no room, or no interface",
            ),
            (
                "segmenter lost",
                self.segmenter_lost,
                "large packets lost in the segmenting device",
            ),
            (
                "option malformed",
                self.option_malformed,
                "packets with IP options that end where they cannot: ignored",
            ),
            (
                "option unknown",
                self.option_unknown,
                "IP options (LPD) with a treatment that nothing defines: ignored",
            ),
            (
                "option far",
                self.option_far,
                "IP options (LPD) with a deadline more than 131 s away: ignored",
            ),
            (
                "option many",
                self.option_many,
                "packets with more IP options than the eight that are looked at",
            ),
            (
                "option untrusted",
                self.option_untrusted,
                "IP options (LPD) of forwarded packets whose source is not trusted: ignored",
            ),
            (
                "option no clock",
                self.option_no_clock,
                "IP options (LPD) with a deadline while the clock was not synchronised: ignored",
            ),
            (
                "decremented",
                self.decremented,
                "packets forwarded with less lifetime in their IP option (LPD), or with a deadline for it",
            ),
            (
                "stamped",
                self.stamped,
                "packets that left with LPD's option",
            ),
            (
                "stamp mtu",
                self.stamp_mtu,
                "packets left unstamped: no room below the device's MTU",
            ),
            (
                "stamp path mtu",
                self.stamp_path_mtu,
                "packets left unstamped: no room below the path's MTU",
            ),
            (
                "stamp gso",
                self.stamp_gso,
                "super-packets left unstamped: their segments would not fit",
            ),
            (
                "stamp checksum",
                self.stamp_checksum,
                "super-packets left unstamped: the device makes no checksums",
            ),
            (
                "stamp fragment",
                self.stamp_fragment,
                "fragments left unstamped",
            ),
            (
                "stamp shared",
                self.stamp_shared,
                "packets left unstamped: somebody else holds them (pktgen)",
            ),
            (
                "stamp ah",
                self.stamp_ah,
                "packets left unstamped: IPsec protects their header (AH)",
            ),
            (
                "stamp options",
                self.stamp_options,
                "packets left unstamped: they have other options or extension headers",
            ),
            (
                "stamp clock",
                self.stamp_clock,
                "packets left unstamped: longer than a lifetime can say, and no clock is synchronised",
            ),
            (
                "stamp probe",
                self.stamp_probe,
                "packets left unstamped: no probe has shown that the path carries the option",
            ),
            (
                "stamp failed",
                self.stamp_failed,
                "packets left unstamped: no memory, or a frame that the kernel cannot open",
            ),
        ]
    }
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
                dropped: Drops::from_array([1, 2, 3, 4, 5]),
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
        for (i, key) in ["stale", "adu", "overflow", "evicted", "predicted"]
            .iter()
            .enumerate()
        {
            assert_eq!(flow["dropped"][key], i as u64 + 1);
        }
        assert!(json["sessions"].is_object() && json["interfaces"].is_object());
        assert_eq!(stats.flows["-"].dropped.total(), 15);
        assert_eq!(serde_json::from_value::<Stats>(json).unwrap(), stats);
    }
}
