//! What libsrt counts: the JSON lines of `-statspf:json -fullstats`.

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Settings;

/// Packets of a connection from its beginning, as of the last of its reports, which each
/// program makes every 20 packets that it reads or writes: what the sender had in its
/// buffer when the traffic ended is not in it. The lab's own probes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// The last complete line of a file of reports; `None` for a file without any.
pub(super) fn last(text: &str) -> Result<Option<Value>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let Some(line) = complete.lines().rfind(|line| !line.trim().is_empty()) else {
        return Ok(None);
    };
    // Lines of one array, each but the first with a comma in front.
    let report = serde_json::from_str(line.trim().trim_matches(','));
    Ok(Some(report.with_context(|| unreadable(line))?))
}

fn unreadable(report: impl std::fmt::Display) -> String {
    format!("a report of srt-live-transmit: {report}")
}

impl Counters {
    /// Of both ends' last reports; a receiver that got next to nothing has made none.
    pub(super) fn new(sender: &Value, receiver: Option<&Value>) -> Result<Self> {
        let number = |report: &Value, place: &str| {
            let number = report.pointer(place).and_then(Value::as_f64);
            number.with_context(|| unreadable(report))
        };
        let sent = |place| Ok::<_, anyhow::Error>(number(sender, place)? as u64);
        let received = |place| receiver.map_or(Ok(0.0), |report| number(report, place));
        let counters = Self {
            sent: sent("/send/packets")?,
            retransmitted: sent("/send/packetsRetransmitted")?,
            sender_dropped: sent("/send/packetsDropped")?,
            received: received("/recv/packets")? as u64,
            receiver_dropped: received("/recv/packetsDropped")? as u64,
            belated: received("/recv/packetsBelated")? as u64,
            // Negotiated, and the same in both directions.
            latency_ms: sent("/recv/msTsbPdDelay")?,
            // Reported in Mbit/s.
            max_bandwidth: (number(sender, "/link/maxBandwidth")? * 1e6 / 8.0).round() as u64,
        };
        Ok(counters)
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

    /// As libsrt 1.5.1 prints it, without what is not read.
    const LINE: &str = r#"{"sid":1,"link":{"rtt":80.1,"maxBandwidth":0.8},"send":{"packets":72,"packetsDropped":5,"packetsRetransmitted":2},"recv":{"packets":0,"packetsDropped":0,"packetsBelated":0,"msTsbPdDelay":150}}"#;

    #[test]
    fn counters_are_those_of_the_last_complete_report_and_must_be_as_asked_for() {
        let next = LINE.replace(":72", ":92");
        let report = last(&format!("{LINE}\n,{next}\n{{\"sid\":1,\"li"));
        let report = report.expect("valid").expect("there");
        let counters = Counters::new(&report, Some(&report)).expect("all there");
        assert_eq!(Counters::new(&report, None).expect("all there"), counters);
        let Counters {
            sent,
            retransmitted,
            sender_dropped,
            ..
        } = counters;
        assert_eq!([sent, retransmitted, sender_dropped], [92, 2, 5]);
        for (latency_ms, max_bandwidth, is_right) in [
            (150, None, true),
            (150, Some(100_050), true),
            (120, None, false),
            (150, Some(50_000), false),
        ] {
            let asked = Settings {
                latency_ms,
                max_bandwidth,
            };
            assert_eq!(counters.check(&asked).is_ok(), is_right, "{asked:?}");
        }
        assert!(last("{\"sid\"").expect("no line").is_none());
        assert!(last("{\n").is_err());
        assert!(Counters::new(&Value::Null, None).is_err());
    }
}
