//! How much of their time packets had when they were dropped.

use bestby_api::Event;

/// Upper ends of the histogram's buckets: slack, ns; negative: late. The last bucket has none.
const ENDS: [(i64, &str); 8] = [
    (-100_000_000, "over 100ms late"),
    (-10_000_000, "10 to 100ms late"),
    (-1_000_000, "1 to 10ms late"),
    (0, "up to 1ms late"),
    (1_000_000, "up to 1ms left"),
    (10_000_000, "1 to 10ms left"),
    (100_000_000, "10 to 100ms left"),
    (i64::MAX, "over 100ms left"),
];

/// Slack (deadline - now - owd) of packets when they were dropped, from drop notices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slack {
    buckets: [u64; ENDS.len()],
    /// Drops that no notice told of: notices are limited per second.
    pub(crate) left_out: u64,
}

impl Slack {
    pub(crate) fn add(&mut self, event: &Event) {
        let slack = event.late_ns.saturating_neg();
        let bucket = ENDS.iter().position(|(end, _)| slack < *end);
        self.buckets[bucket.unwrap_or(ENDS.len() - 1)] += 1;
        self.left_out += u64::from(event.suppressed);
    }

    /// A bar for each bucket, the largest of this length.
    pub(crate) fn lines(&self, longest: usize) -> Vec<String> {
        let most = self.buckets.iter().copied().max().unwrap_or(0).max(1);
        let bar = |n: u64| {
            let length = n.saturating_mul(longest as u64).div_ceil(most);
            "#".repeat(usize::try_from(length).unwrap_or(longest))
        };
        let rows = ENDS.iter().zip(self.buckets);
        rows.map(|((_, label), n)| format!("{label:>17} {n:>7} {}", bar(n)).trim_end().into())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_is_counted_in_the_bucket_of_its_slack() {
        let event = |late_ns: i64| -> Event {
            serde_json::from_value(serde_json::json!({
                "time_ns": 1, "unix_ns": 2, "dev": "v0", "flow": "a", "session": "v0/x", "reason": "stale",
                "priority": 3, "age_ns": 0, "late_ns": late_ns, "adu": 0, "len": 9, "observe": false, "suppressed": 2
            }))
            .unwrap()
        };
        let mut slack = Slack::default();
        for late in [i64::MIN, -5_000_000, 0, 1, 500_000, 50_000_000, i64::MAX] {
            slack.add(&event(late));
        }
        assert_eq!(slack.buckets, [1, 1, 0, 2, 1, 1, 0, 1]);
        assert_eq!(slack.left_out, 14);
        let lines = slack.lines(10);
        assert!(lines[3].ends_with(" 2 ##########"), "{lines:?}");
        assert!(lines[0].ends_with(" 1 #####"), "{lines:?}");
        assert!(lines[2].ends_with(" 0"), "{lines:?}");
    }
}
