//! Every metric that `bestbyd` serves: name, kind, unit, labels and meaning, by Prometheus' rules of naming.
//!
//! The agent writes no metric that is not in [`metrics`], and `docs/metrics.md` lists them all (a test compares).

use crate::{Counters, Described, GlobalCounters, RealCounters};

/// What a metric is, in the words of OpenMetrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the host starts again; its samples end in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts what it measured, by size; its samples end in `_bucket`, `_sum` and `_count`.
    Histogram,
    /// Its labels are what it says; its sample ends in `_info` and is 1.
    Info,
}

impl Kind {
    /// The word of the formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// What the name of a sample ends in, behind the metric's.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// One metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Name, with the unit and without [`Kind::suffix`].
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The unit that the name ends in; may be empty.
    pub unit: &'static str,
    /// Names of the labels, in the order in which they are written.
    pub labels: Vec<&'static str>,
    /// What it means, in one line.
    pub help: String,
}

impl Metric {
    /// The name as a query has it.
    pub fn full_name(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

/// Kinds of objects that have [`Counters`]; also the label that names one.
const OBJECTS: [&str; 4] = ["flow", "session", "interface", "payload_type"];

/// A metric that is no [`Described`] counter: what its name has between `bestby_` and the unit, kind, unit, labels,
/// meaning.
type Other = (
    &'static str,
    Kind,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const OTHERS: &[Other] = &[
    (
        "build",
        Kind::Info,
        "",
        &["version", "abi"],
        "version of bestbyd, and of what agent and programs share",
    ),
    (
        "start_time",
        Kind::Gauge,
        "seconds",
        &[],
        "when bestbyd started, seconds since 1970",
    ),
    (
        "config_last_reload_successful",
        Kind::Gauge,
        "",
        &[],
        "1 if the configuration file was taken whole when it was read last, 0 if not",
    ),
    (
        "config_last_reload_success_timestamp",
        Kind::Gauge,
        "seconds",
        &[],
        "when the configuration file was taken whole last, seconds since 1970",
    ),
    (
        "map_memory",
        Kind::Gauge,
        "bytes",
        &[],
        "kernel memory of the maps that all interfaces share",
    ),
    (
        "interface",
        Kind::Info,
        "",
        &["interface", "mode", "method", "sessions_by"],
        "how an attached interface is controlled",
    ),
    (
        "interface_configured",
        Kind::Gauge,
        "",
        &["interface"],
        "1 if the configuration file names the interface, 0 if it is attached all the same",
    ),
    (
        "interface_attached",
        Kind::Gauge,
        "",
        &["interface"],
        "1 if the interface is attached, 0 if only the configuration file names it",
    ),
    (
        "interface_observe",
        Kind::Gauge,
        "",
        &["interface"],
        "1 if the interface drops nothing and counts what it would have dropped, 0 if it drops",
    ),
    (
        "interface_rate_bytes_per_second",
        Kind::Gauge,
        "",
        &["interface"],
        "what the interface may send; absent without a rate, and with rate auto while none is in force",
    ),
    (
        "interface_path_queue",
        Kind::Gauge,
        "seconds",
        &["interface"],
        "queue behind this host that the last answer met; only with rate auto, as the next four",
    ),
    (
        "interface_path_least_rtt",
        Kind::Gauge,
        "seconds",
        &["interface"],
        "least round trip to the host that is asked, of 17 to 34 s",
    ),
    (
        "interface_path_answers",
        Kind::Counter,
        "",
        &["interface"],
        "answers to echo requests that counted",
    ),
    (
        "interface_path_rebased",
        Kind::Counter,
        "",
        &["interface"],
        "how often the path turned out to be another one",
    ),
    (
        "interface_path_state",
        Kind::Gauge,
        "",
        &["interface", "state"],
        "1 for the state of the path, 0 for the others: unseen, follows, others, silent",
    ),
    (
        "interface_limit",
        Kind::Gauge,
        "packets",
        &["interface"],
        "packets that the interface queues at most, per transmit queue below mq",
    ),
    (
        "interface_memory",
        Kind::Gauge,
        "bytes",
        &["interface"],
        "kernel memory of the interface's own queue; absent in mode tc",
    ),
    (
        "interface_sojourn",
        Kind::Histogram,
        "seconds",
        &["interface"],
        "how long packets that left waited in the interface's own queue; absent in mode tc, as the next two",
    ),
    (
        "interface_slack",
        Kind::Histogram,
        "seconds",
        &["interface"],
        "how much earlier than at the latest (deadline - owd) packets with a deadline left",
    ),
    (
        "interface_lateness",
        Kind::Histogram,
        "seconds",
        &["interface"],
        "how much later than that packets left that were sent although stale",
    ),
    (
        "sessions",
        Kind::Gauge,
        "",
        &["interface", "kind"],
        "sessions in use; the shared one of all interfaces has no interface",
    ),
    (
        "media_streams",
        Kind::Gauge,
        "",
        &["codec"],
        "RTP streams of the last minute that a rule covers, by what their packets are; opaque: of no codec that is read, or encrypted; cryptex: header extensions are encrypted, too; unknown: not known yet",
    ),
    (
        "session_owd",
        Kind::Gauge,
        "seconds",
        &["session", "source"],
        "one-way delay that the session reckons with, and where it comes from: set, socket, tcp, stun or rtcp",
    ),
    (
        "session_owd_age",
        Kind::Gauge,
        "seconds",
        &["session"],
        "how long ago that delay was said, or the round trip measured that it is half of",
    ),
    (
        "path_queue",
        Kind::Gauge,
        "seconds",
        &["session"],
        "how long its packets wait in a queue behind this host: the last round trip, less the least of some minutes, less what waited here",
    ),
];

/// All metrics, in the order in which they are written.
pub fn metrics() -> Vec<Metric> {
    let mut all = Vec::new();
    for &(stem, kind, unit, labels, help) in OTHERS {
        let separator = if unit.is_empty() { "" } else { "_" };
        all.push(Metric {
            name: format!("bestby_{stem}{separator}{unit}"),
            kind,
            unit,
            labels: labels.to_vec(),
            help: help.into(),
        });
    }
    let counter = |prefix: &str, d: &Described, labels: &[&'static str]| Metric {
        name: format!("{prefix}_{}", d.stem()),
        kind: if d.key == "queued" {
            Kind::Gauge
        } else {
            Kind::Counter
        },
        unit: d.unit,
        labels: labels.to_vec(),
        help: d.help.into(),
    };
    for object in OBJECTS {
        let prefix = format!("bestby_{object}");
        for d in Counters::DESCRIBED {
            all.push(counter(&prefix, d, &[object]));
        }
        for d in Counters::BY_REASON {
            let mut metric = counter(&prefix, d, &[object, "reason"]);
            metric.help += ", by reason";
            all.push(metric);
        }
    }
    for d in GlobalCounters::DESCRIBED {
        all.push(counter("bestby", d, &[]));
    }
    for d in RealCounters::DESCRIBED {
        all.push(counter("bestby_tcp_real", d, &[]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_end_in_their_unit_once() {
        let mut names: Vec<String> = Vec::new();
        for m in metrics() {
            assert!(
                m.name
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                "{}",
                m.name
            );
            assert!(m.name.starts_with("bestby_"), "{}", m.name);
            if !m.unit.is_empty() {
                assert!(m.name.ends_with(&format!("_{}", m.unit)), "{}", m.name);
                assert_eq!(m.name.matches(m.unit).count(), 1, "{}", m.name);
            }
            // Prometheus' base units, and no suffix that the formats add.
            for part in m.name.split('_') {
                assert!(
                    ![
                        "ms", "ns", "bits", "kb", "total", "count", "sum", "bucket", "info"
                    ]
                    .contains(&part),
                    "{}",
                    m.name
                );
            }
            assert!(!m.help.is_empty() && !m.help.contains(['\n', '"', '\\', '|']));
            names.push(m.full_name());
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
