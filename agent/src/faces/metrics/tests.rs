use bestby_api::{Drops, OwdSource};

use super::*;
use crate::error::Kind;
use crate::faces::delay::Delay;

fn counters(n: u64) -> Counters {
    Counters {
        packets_in: n,
        queued: 2,
        truncated: 4,
        dropped: Drops::from_array([0, 3, 0, 0, 0, 0], 0),
        ..Counters::default()
    }
}

fn measured() -> Measured {
    let session = TopSession {
        name: "eth0/10.0.0.2".into(),
        counters: counters(7),
        delay: Delay {
            owd_ns: Some(40_000_000),
            source: OwdSource::Tcp,
            age_ns: Some(1_500_000_000),
        },
        queue_behind_ns: Some(250_000_000),
    };
    Measured {
        flows: [("audio".to_string(), counters(5))].into(),
        payload_types: [(111, counters(6))].into(),
        global: GlobalCounters {
            no_cb: 7,
            ..GlobalCounters::default()
        },
        sessions: vec![session],
        session_counts: [(("eth0".to_string(), "dst"), 10_000)].into(),
        streams: [("h264", 3), ("unknown", 0)].into(),
        interfaces: Vec::new(),
        configured: vec!["eth0".into()],
        real: Some(RealCounters {
            no_answer: 9,
            ..RealCounters::default()
        }),
        map_memory: 4096,
        file: FileTaken::at_start(),
    }
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line}\n{text}");
}

#[test]
fn openmetrics_text_has_each_kind_of_metric() {
    let text = text(&measured(), Format::OpenMetrics).unwrap();
    for line in [
        "# TYPE bestby_flow_in_packets counter",
        "# UNIT bestby_flow_in_packets packets",
        "bestby_flow_in_packets_total{flow=\"audio\"} 5",
        "bestby_flow_dropped_packets_total{flow=\"audio\",reason=\"adu\"} 3",
        "bestby_flow_truncated_packets_total{flow=\"audio\"} 4",
        "bestby_flow_queued_packets{flow=\"audio\"} 2.0",
        "bestby_payload_type_in_packets_total{payload_type=\"111\"} 6",
        "bestby_session_owd_seconds{session=\"eth0/10.0.0.2\",source=\"tcp\"} 0.04",
        "bestby_session_owd_age_seconds{session=\"eth0/10.0.0.2\"} 1.5",
        "bestby_path_queue_seconds{session=\"eth0/10.0.0.2\"} 0.25",
        "bestby_sessions{interface=\"eth0\",kind=\"dst\"} 10000.0",
        "bestby_interface_configured{interface=\"eth0\"} 1.0",
        "bestby_interface_attached{interface=\"eth0\"} 0.0",
        "bestby_config_last_reload_successful 1.0",
        "bestby_map_memory_bytes 4096.0",
        "bestby_no_cb_packets_total 7",
        "bestby_tcp_real_no_answer_connections_total 9",
        "# TYPE bestby_build info",
    ] {
        has(&text, line);
    }
    assert!(text.contains("bestby_build_info{version=") && text.ends_with("# EOF\n"));
}

#[test]
fn times_are_buckets_of_powers_of_two() {
    let mut sheet = Sheet::new();
    let mut counts = vec![0; 19];
    (counts[0], counts[3], counts[18]) = (5, 2, 1);
    let times = Histogram {
        sum_ns: 12_500_000_000,
        counts,
    };
    sheet.put(
        "bestby_interface_slack_seconds",
        &["eth0"],
        Value::Times(times),
    );
    assert_eq!(sheet.misfit, None);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(sheet));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in [
        "# TYPE bestby_interface_slack_seconds histogram",
        "bestby_interface_slack_seconds_sum{interface=\"eth0\"} 12.5",
        "bestby_interface_slack_seconds_count{interface=\"eth0\"} 8",
        "bestby_interface_slack_seconds_bucket{le=\"0.000065536\",interface=\"eth0\"} 5",
        "bestby_interface_slack_seconds_bucket{le=\"0.000524288\",interface=\"eth0\"} 7",
        "bestby_interface_slack_seconds_bucket{le=\"8.589934592\",interface=\"eth0\"} 7",
        "bestby_interface_slack_seconds_bucket{le=\"+Inf\",interface=\"eth0\"} 8",
    ] {
        has(&text, line);
    }
}

#[test]
fn tcp_real_is_absent_while_it_is_off() {
    let mut off = measured();
    off.real = None;
    assert!(
        !text(&off, Format::OpenMetrics)
            .unwrap()
            .contains("tcp_real")
    );
}

#[test]
fn prometheus_text_has_the_same_samples_and_names_them_in_comments() {
    let measured = measured();
    let open = text(&measured, Format::OpenMetrics).unwrap();
    let plain = text(&measured, Format::Prometheus).unwrap();
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        lines.map(str::to_string).collect()
    };
    assert_eq!(samples(&open), samples(&plain));
    has(&plain, "# TYPE bestby_flow_in_packets_total counter");
    has(
        &plain,
        "# HELP bestby_flow_in_packets_total packets that arrived at the interface",
    );
    has(&plain, "# TYPE bestby_build_info gauge");
    has(&plain, "# TYPE bestby_flow_queued_packets gauge");
    assert!(!plain.contains("# UNIT") && !plain.contains("# EOF"));
}

#[test]
fn sample_without_description_is_refused() {
    let mut sheet = Sheet::new();
    sheet.level("bestby_map_memory_bytes", &[], 1.0);
    assert_eq!(sheet.misfit, None);
    for (name, labels, value) in [
        ("bestby_unheard_of", &[][..], Value::Level(1.0)),
        ("bestby_map_memory_bytes", &["x"], Value::Level(1.0)),
        ("bestby_map_memory_bytes", &[], Value::Count(1)),
    ] {
        let mut sheet = Sheet::new();
        sheet.put(name, labels, value);
        assert!(sheet.misfit.is_some(), "{name}");
    }
}

#[test]
fn format_follows_accept() {
    for (accept, format) in [
        ("", Format::Prometheus),
        ("*/*", Format::Prometheus),
        ("text/plain", Format::Prometheus),
        ("application/openmetrics-text", Format::OpenMetrics),
        (
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::OpenMetrics,
        ),
        // What Prometheus 2.42 and 3 send.
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            Format::OpenMetrics,
        ),
        (
            "application/openmetrics-text;version=0.0.1",
            Format::Prometheus,
        ),
        (
            "application/openmetrics-text;q=0.2,text/plain;q=0.5",
            Format::Prometheus,
        ),
        (
            "application/openmetrics-text;q=nonsense",
            Format::Prometheus,
        ),
    ] {
        assert_eq!(Format::accepted(accept), format, "{accept}");
    }
}

#[test]
fn query_names_how_many_sessions() {
    assert_eq!(sessions_wanted(None).unwrap(), SESSIONS_SHOWN);
    assert_eq!(sessions_wanted(Some("sessions=100")).unwrap(), 100);
    assert_eq!(sessions_wanted(Some("sessions=all")).unwrap(), usize::MAX);
    for bad in ["sessions=", "sessions=-1", "session=3", "sessions=3&x=1"] {
        let refused = sessions_wanted(Some(bad)).unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid);
        assert!(refused.message.contains(bad), "{refused}");
    }
}
