//! What a queue of bestby says of itself.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Packets that a queue dropped, by bestby's reasons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Too late to be of use.
    pub stale: u64,
    /// Of an ADU that had lost a packet, or that was given up.
    pub adu: u64,
    /// The buffer was full.
    pub overflow: u64,
    /// Made room for a more important one.
    pub evicted: u64,
    /// Mode tc: would have become stale before it could leave.
    pub predicted: u64,
}

/// Counters of one interface over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueCounters {
    /// Packets that came in, those without a deadline included.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_sent: u64,
    /// Bytes that left.
    pub bytes_sent: u64,
    /// Packets that left although they were stale (bestby counts packets, not bytes;
    /// [`Measures::stale_bytes`](super::Measures::stale_bytes) has those that arrived).
    pub sent_stale: u64,
    /// Packets that did not leave.
    pub dropped: Dropped,
}

impl QueueCounters {
    /// Of `device` in what `bestby --json stats` prints; `None` if it is not there.
    pub fn from_stats(stats: &Value, device: &str) -> Option<Self> {
        let counters = stats.get("interfaces")?.get(device)?;
        serde_json::from_value(counters.clone()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_device() {
        let of_device = serde_json::json!({
            "packets_in": 10, "bytes_in": 1000, "packets_sent": 7, "sent_stale": 1,
            "dropped": {"stale": 2, "adu": 1},
        });
        let stats = serde_json::json!({"interfaces": {"s0": of_device}});
        let counters = QueueCounters::from_stats(&stats, "s0").expect("s0 is there");
        assert_eq!((counters.packets_sent, counters.dropped.stale), (7, 2));
        assert_eq!(QueueCounters::from_stats(&stats, "s1"), None);
    }
}
