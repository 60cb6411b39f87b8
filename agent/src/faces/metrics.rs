//! Prometheus text (OpenMetrics), made from the same statistics as `bestby stats`.

use bestby_api::{Counters, InterfaceInfo, RealCounters, Stats};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::error::{Error, Result};

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;

/// The families of one kind of object: flow, session or interface.
struct Object {
    label: &'static str,
    packets_in: Counts,
    bytes_in: Counts,
    packets_sent: Counts,
    bytes_sent: Counts,
    dropped: Counts,
    would_drop: Counts,
    sent_stale: Counts,
    truncated: Counts,
    queued: Gauges,
}

impl Object {
    fn new(registry: &mut Registry, label: &'static str) -> Self {
        fn counts(registry: &mut Registry, name: String, help: &str) -> Counts {
            let family = Counts::default();
            registry.register(name, help, family.clone());
            family
        }
        let mut family =
            |name: &str, help: &str| counts(registry, format!("bestby_{label}_{name}"), help);
        let object = Self {
            label,
            packets_in: family("packets_in", "Packets that arrived at the interface"),
            bytes_in: family("bytes_in", "Bytes that arrived at the interface"),
            packets_sent: family("packets_sent", "Packets handed to the device"),
            bytes_sent: family("bytes_sent", "Bytes handed to the device"),
            dropped: family("dropped_packets", "Packets dropped, by reason"),
            would_drop: family(
                "would_drop_packets",
                "Packets that would have been dropped if the interface did not only observe",
            ),
            sent_stale: family("sent_stale_packets", "Packets sent although stale"),
            truncated: family(
                "truncated_packets",
                "Packets of which only the headers were sent",
            ),
            queued: Gauges::default(),
        };
        registry.register(
            format!("bestby_{label}_queued_packets"),
            "Packets queued now",
            object.queued.clone(),
        );
        object
    }

    fn add(&self, name: &str, c: &Counters) {
        let labels = vec![(self.label, name.to_string())];
        let set = |family: &Counts, value: u64| {
            family.get_or_create(&labels).inc_by(value);
        };
        set(&self.packets_in, c.packets_in);
        set(&self.bytes_in, c.bytes_in);
        set(&self.packets_sent, c.packets_sent);
        set(&self.bytes_sent, c.bytes_sent);
        set(&self.sent_stale, c.sent_stale);
        set(&self.truncated, c.truncated);
        self.queued
            .get_or_create(&labels)
            .set(i64::try_from(c.queued).unwrap_or(i64::MAX));
        for (family, drops) in [
            (&self.dropped, &c.dropped),
            (&self.would_drop, &c.would_drop),
        ] {
            for (reason, value) in [
                ("stale", drops.stale),
                ("adu", drops.adu),
                ("overflow", drops.overflow),
                ("evicted", drops.evicted),
                ("predicted", drops.predicted),
            ] {
                let mut labels = labels.clone();
                labels.push(("reason", reason.to_string()));
                family.get_or_create(&labels).inc_by(value);
            }
        }
    }
}

/// The text; `real` only while TCP-Real is on.
///
/// # Errors
/// Never for valid statistics.
pub fn text(
    stats: &Stats,
    interfaces: &[InterfaceInfo],
    real: Option<&RealCounters>,
) -> Result<String> {
    let mut registry = Registry::default();
    for (label, objects) in [
        ("flow", &stats.flows),
        ("session", &stats.sessions),
        ("interface", &stats.interfaces),
    ] {
        let object = Object::new(&mut registry, label);
        for (name, counters) in objects {
            object.add(name, counters);
        }
    }
    let object = Object::new(&mut registry, "payload_type");
    for (payload_type, counters) in &stats.payload_types {
        object.add(&payload_type.to_string(), counters);
    }
    let mut count = |prefix: &str, name: &str, value: u64, help: &str| {
        let name = name.to_ascii_lowercase().replace(' ', "_");
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(format!("{prefix}_{name}"), help, counter);
    };
    for (name, value, help) in stats.global.named() {
        count("bestby", name, value, help);
    }
    for (name, value, help) in real.map(RealCounters::named).into_iter().flatten() {
        count("bestby_tcp_real", name, value, help);
    }
    let attached = Gauges::default();
    registry.register(
        "bestby_interface_attached",
        "1 for every attached interface",
        attached.clone(),
    );
    for i in interfaces {
        attached
            .get_or_create(&vec![
                ("interface", i.dev.to_string()),
                ("mode", i.mode.to_string()),
            ])
            .set(1);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Error::failed(format!("writing metrics: {e}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_text_has_each_kind_of_counter() {
        let mut stats = Stats::default();
        let mut counters = Counters {
            packets_in: 5,
            queued: 2,
            truncated: 4,
            ..Default::default()
        };
        counters.dropped.adu = 3;
        stats.flows.insert("audio".into(), counters);
        stats.payload_types.insert(111, counters);
        stats.global.no_cb = 7;
        stats.global.no_rtt = 8;
        let real = RealCounters {
            no_answer: 9,
            ..Default::default()
        };
        assert!(!text(&stats, &[], None).unwrap().contains("tcp_real"));
        let text = text(&stats, &[], Some(&real)).unwrap();
        assert!(text.contains("bestby_tcp_real_no_answer_total 9"), "{text}");
        assert!(
            text.contains("bestby_flow_packets_in_total{flow=\"audio\"} 5"),
            "{text}"
        );
        assert!(
            text.contains("bestby_flow_dropped_packets_total{flow=\"audio\",reason=\"adu\"} 3"),
            "{text}"
        );
        assert!(
            text.contains("bestby_flow_truncated_packets_total{flow=\"audio\"} 4"),
            "{text}"
        );
        assert!(
            text.contains("bestby_flow_queued_packets{flow=\"audio\"} 2"),
            "{text}"
        );
        assert!(
            text.contains("bestby_payload_type_packets_in_total{payload_type=\"111\"} 5"),
            "{text}"
        );
        assert!(
            text.contains("bestby_no_cb_total 7") && text.contains("bestby_no_rtt_total 8"),
            "{text}"
        );
        assert!(text.ends_with("# EOF\n"));
    }
}
