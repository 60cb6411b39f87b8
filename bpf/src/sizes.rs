//! How large the maps of one interface's queue must be, and the queues below mode tc.

use crate::abi::{BB_MAX_PARKED, BB_MAX_SESSIONS, BB_MAX_USERS};

/// Entries beyond the packet limit: index 0 ("none"), and the arriving packet
/// that a full queue weighs against those it holds.
pub const SPARE_PACKETS: u32 = 2;

/// Entries per instance for a queue of `limit` packets (rodata `bbq_packets_n`).
#[must_use]
pub const fn packets_per_instance(limit: u32) -> u32 {
    limit.saturating_add(SPARE_PACKETS)
}

/// `max_entries` of each map of `qdisc.bpf.c` for a queue of `limit` packets on
/// each of `instances` transmit queues.
#[must_use]
pub fn qdisc_sizes(limit: u32, instances: u32) -> [(&'static str, u32); 6] {
    [
        (
            "bbq_packets",
            packets_per_instance(limit).saturating_mul(instances),
        ),
        ("bbq_queues", BB_MAX_SESSIONS.saturating_mul(instances)),
        // One is "none".
        ("bbq_users", (BB_MAX_USERS + 1).saturating_mul(instances)),
        ("bbq_instances", instances),
        ("bbq_wheels", instances),
        ("bbq_parked", BB_MAX_PARKED.saturating_mul(instances)),
    ]
}

/// Bytes that a session may send in its turn (rodata `bbq_quantum`), on a device with this MTU: two full frames, so
/// that no packet waits for a second turn. A smaller MTU changes nothing.
#[must_use]
pub fn quantum(mtu: u32) -> u32 {
    const ETHERNET: u32 = 14;
    2 * (mtu.clamp(1500, 65_536) + ETHERNET)
}

unsafe extern "C" {
    safe fn bbn_tc_leaf_bytes(leaf: u32, rate: u64, limit_bytes: u64) -> u64;
    safe fn bbn_tc_leaf_bound(leaf: u32) -> u64;
}

/// Bytes that the queue of one HTB leaf of mode tc holds at most, as the classifier's model has it: `rate`
/// in bytes/s, `limit_bytes` the interface's.
#[must_use]
pub fn tc_leaf_bytes(leaf: u32, rate: u64, limit_bytes: u64) -> u64 {
    bbn_tc_leaf_bytes(leaf, rate, limit_bytes)
}

/// Mode tc: the longest lifetime for which this leaf (1..=6) is meant, ns.
pub fn tc_leaf_bound(leaf: u32) -> u64 {
    bbn_tc_leaf_bound(leaf)
}

#[cfg(test)]
mod tests {
    use super::quantum;

    #[test]
    fn quantum_is_two_full_frames_and_that_of_1500_bytes_at_least() {
        assert_eq!([68, 1500, 9000].map(quantum), [3028, 3028, 18_028]);
        assert_eq!(quantum(u32::MAX), quantum(65_536));
    }
}
