//! How large the maps of one interface's queue must be.

use crate::abi::{BB_MAX_SESSIONS, BB_MAX_USERS};

/// Slots beyond the packet limit: slot 0 ("none"), and the arriving packet
/// that a full queue weighs against those it holds.
pub const SPARE_SLOTS: u32 = 2;

/// Slots per instance for a queue of `limit` packets (rodata `bbq_slots_n`).
#[must_use]
pub const fn slots_per_instance(limit: u32) -> u32 {
    limit.saturating_add(SPARE_SLOTS)
}

/// `max_entries` of each map of `qdisc.bpf.c` for a queue of `limit` packets on
/// each of `instances` transmit queues.
#[must_use]
pub fn qdisc_sizes(limit: u32, instances: u32) -> [(&'static str, u32); 5] {
    [
        (
            "bbq_slots",
            slots_per_instance(limit).saturating_mul(instances),
        ),
        ("bbq_queues", BB_MAX_SESSIONS.saturating_mul(instances)),
        // One is "none", one is media.
        ("bbq_users", (BB_MAX_USERS + 2).saturating_mul(instances)),
        ("bbq_instances", instances),
        ("bbq_wheels", instances),
    ]
}
