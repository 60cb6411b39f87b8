//! What libsrt counts: the JSON lines of `-statspf:json -fullstats`.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::Settings;

/// Packets of a connection from its beginning, as of the last of its reports, which each
/// program makes every 20 packets that it reads or writes: what the sender had in its
/// buffer when the traffic ended is not in it. The lab's own probes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Data packets that the sender sent, retransmissions included.
    pub sent: u64,
    /// Retransmissions.
    pub retransmitted: u64,
    /// Dropped by the sender because they were too late.
    pub sender_dropped: u64,
    /// Data packets that the receiver got, retransmissions included.
    pub received: u64,
    /// Given up by the receiver: the time of a later packet had come.
    pub receiver_dropped: u64,
    /// Came after they had been given up: stale bytes on the link that the receiver, and
    /// so the lab's [`stale_bytes`](crate::measure::Measures::stale_bytes), never sees.
    pub belated: u64,
    /// Latency in force, ms.
    pub latency_ms: u64,
    /// Limit of the sender's rate in force, bytes/s.
    pub max_bandwidth: u64,
}

/// One line of the file.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    link: Link,
    send: Sending,
    recv: Receiving,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    /// Mbit/s.
    max_bandwidth: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sending {
    packets: u64,
    packets_dropped: u64,
    packets_retransmitted: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Receiving {
    packets: u64,
    packets_dropped: u64,
    packets_belated: u64,
    ms_tsb_pd_delay: u64,
}

impl Report {
    /// The last complete line of a file of reports; `None` for a file without any.
    pub(super) fn last(text: &str) -> Result<Option<Self>> {
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let Some(line) = complete.lines().rfind(|line| !line.trim().is_empty()) else {
            return Ok(None);
        };
        // Lines of one array, each but the first with a comma in front.
        let line = line.trim().trim_matches(',');
        let report = serde_json::from_str(line)
            .with_context(|| format!("a report of srt-live-transmit: {line}"))?;
        Ok(Some(report))
    }
}

impl Counters {
    pub(super) fn new(sender: &Report, receiver: Option<&Report>) -> Self {
        let received = receiver.map_or(Receiving::default(), |report| report.recv);
        Self {
            sent: sender.send.packets,
            retransmitted: sender.send.packets_retransmitted,
            sender_dropped: sender.send.packets_dropped,
            received: received.packets,
            receiver_dropped: received.packets_dropped,
            belated: received.packets_belated,
            // Negotiated, and the same in both directions.
            latency_ms: sender.recv.ms_tsb_pd_delay,
            max_bandwidth: (sender.link.max_bandwidth * 1e6 / 8.0).round() as u64,
        }
    }

    /// The program takes an option that it does not know without a word: what is in force
    /// must be what was asked for.
    pub(super) fn check(&self, settings: &Settings) -> Result<()> {
        ensure!(
            self.latency_ms == settings.latency_ms,
            "SRT runs with a latency of {} ms instead of {} ms",
            self.latency_ms,
            settings.latency_ms
        );
        if let Some(asked) = settings.max_bandwidth {
            // Printed with six digits.
            ensure!(
                self.max_bandwidth.abs_diff(asked) <= asked / 1000 + 1,
                "SRT's sender is limited to {} bytes/s instead of {asked}",
                self.max_bandwidth
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libsrt 1.5.1 prints them, without what is not read.
    const SENDER: &str = r#"{"sid":1,"link":{"rtt":80.1,"maxBandwidth":0.8},
        "send":{"packets":72,"packetsDropped":5,"packetsRetransmitted":2},
        "recv":{"packets":0,"packetsDropped":0,"packetsBelated":0,"msTsbPdDelay":150}}"#;

    fn reports() -> String {
        let line = SENDER.replace('\n', " ");
        format!("{line}\n{}\n{{\"sid\":1,\"li", line.replace(":72", ":92"))
    }

    #[test]
    fn the_last_complete_report_counts() {
        let report = Report::last(&reports()).expect("valid").expect("there");
        let counters = Counters::new(&report, Some(&report));
        assert_eq!(
            (
                counters.sent,
                counters.sender_dropped,
                counters.retransmitted
            ),
            (92, 5, 2)
        );
        assert_eq!(
            (counters.latency_ms, counters.max_bandwidth),
            (150, 100_000)
        );
        assert!(Report::last("{\"sid\"").expect("no line").is_none());
        assert!(Report::last("{}\n").is_err());
    }

    #[test]
    fn another_setting_than_asked_for_is_an_error() {
        let report = Report::last(&reports()).expect("valid").expect("there");
        let counters = Counters::new(&report, Some(&report));
        let asked = |latency_ms, max_bandwidth| Settings {
            latency_ms,
            max_bandwidth,
        };
        assert!(counters.check(&asked(150, None)).is_ok());
        assert!(counters.check(&asked(150, Some(100_050))).is_ok());
        let late = counters.check(&asked(120, None)).expect_err("150");
        assert!(late.to_string().contains("150 ms instead of 120 ms"));
        assert!(counters.check(&asked(150, Some(50_000))).is_err());
    }
}
