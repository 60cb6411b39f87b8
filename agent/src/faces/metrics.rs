//! Metrics for Prometheus, made of the same counters as `bestby stats`; `bestby_api::metrics` describes each.
//!
//! 1. The data path's thread reads what is wanted ([`Datapath::measure`]). It looks at all sessions and keeps the few
//!    that had most trouble: a host has thousands, and each would be some twenty series.
//! 2. [`text`] writes that as OpenMetrics, by prometheus-client, on another thread.
//! 3. Who does not ask for OpenMetrics gets Prometheus' older text format ([`Format`]): the same lines, but for the
//!    names in the comments.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use bestby_api::{
    Counters, GlobalCounters, Histogram, InterfaceInfo, Kind, LinkRate, Metric, PathInfo,
    PathState, Rate, RealCounters,
};
use bestby_bpf::abi;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::datapath::Datapath;
use crate::desired::taken::FileTaken;
use crate::error::{Error, Result};
use crate::faces::report::{SessionCounts, TopSession};
use crate::faces::streams;

/// Sessions that are shown, unless another number is asked for.
const SESSIONS_SHOWN: usize = 20;

/// How many sessions a request wants: `sessions=N` or `sessions=all` in its query, [`SESSIONS_SHOWN`] without.
///
/// # Errors
/// Another value; another parameter.
pub fn sessions_wanted(query: Option<&str>) -> Result<usize> {
    let refuse = |what: &str| {
        Error::invalid(format!("metrics: \"{}\" in the query", what.escape_debug()))
            .hint("allowed: sessions=N and sessions=all")
    };
    match query.unwrap_or_default() {
        "" => Ok(SESSIONS_SHOWN),
        "sessions=all" => Ok(usize::MAX),
        other => other
            .strip_prefix("sessions=")
            .and_then(|n| n.parse().ok())
            .ok_or_else(|| refuse(other)),
    }
}

/// What a scraper gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Format {
    /// By a request's Accept (RFC 9110, 12.5.1); Prometheus' where both are as welcome, or neither is.
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f32, 0.0_f32);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let (mut quality, mut version) = (1.0_f32, None);
            for (name, value) in parts.filter_map(|p| p.split_once('=')) {
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match kind.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" if version.is_none_or(|v| v == "1.0.0") => {
                    open = open.max(quality)
                }
                "text/plain" | "text/*" | "*/*" => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > plain {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// What the answer's Content-Type says.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What the metrics are made of.
#[derive(Debug, Clone)]
pub struct Measured {
    /// By flow rule.
    pub flows: BTreeMap<String, Counters>,
    /// By RTP payload type.
    pub payload_types: BTreeMap<u8, Counters>,
    /// Of the host.
    pub global: GlobalCounters,
    /// The sessions that are shown, worst first.
    pub sessions: Vec<TopSession>,
    /// How many sessions are in use.
    pub session_counts: SessionCounts,
    /// RTP streams by codec.
    pub streams: BTreeMap<&'static str, u64>,
    /// What is attached.
    pub interfaces: Vec<InterfaceInfo>,
    /// Interfaces that the configuration file names.
    pub configured: Vec<String>,
    /// Only while TCP-Real is on.
    pub real: Option<RealCounters>,
    /// Of the shared maps, bytes.
    pub map_memory: u64,
    /// When the configuration was read.
    pub file: FileTaken,
}

impl Datapath {
    /// Reads what the metrics are made of, with at most `sessions` sessions.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn measure(&mut self, sessions: usize) -> Result<Measured> {
        let (sessions, session_counts) = self.top_sessions(sessions)?;
        Ok(Measured {
            flows: self.flow_counters()?,
            payload_types: self.payload_type_counters()?,
            global: crate::faces::report::global(&self.shared)?,
            sessions,
            session_counts,
            streams: streams::by_codec(&streams::heard(&self.shared)?),
            interfaces: self.interfaces()?,
            configured: self
                .config
                .interfaces
                .iter()
                .map(|i| i.dev.to_string())
                .collect(),
            real: self.tcp_real.counted()?,
            map_memory: self.shared.memory,
            file: self.file_taken.clone(),
        })
    }
}

#[derive(Debug, Clone)]
enum Value {
    Count(u64),
    Level(f64),
    Times(Histogram),
    Info,
}

/// One sample: values of the labels, and its own.
type Sample = (Vec<String>, Value);

/// Samples of each metric that is described; takes no other.
#[derive(Debug)]
struct Sheet {
    metrics: Vec<(Metric, Vec<Sample>)>,
    places: HashMap<String, usize>,
    /// The first sample that no description fits.
    misfit: Option<String>,
}

impl Sheet {
    fn new() -> Self {
        let metrics: Vec<_> = bestby_api::metrics()
            .into_iter()
            .map(|m| (m, Vec::new()))
            .collect();
        let places = metrics
            .iter()
            .enumerate()
            .map(|(i, (m, _))| (m.name.clone(), i))
            .collect();
        Self {
            metrics,
            places,
            misfit: None,
        }
    }

    fn put(&mut self, name: &str, labels: &[&str], value: Value) {
        let place = self.places.get(name).map(|i| &mut self.metrics[*i]);
        match place.filter(|(m, _)| m.labels.len() == labels.len() && fits(m.kind, &value)) {
            Some((_, samples)) => {
                samples.push((labels.iter().map(|l| (*l).to_string()).collect(), value))
            }
            None => {
                self.misfit
                    .get_or_insert_with(|| format!("{name}{labels:?}"));
            }
        }
    }

    fn level(&mut self, name: &str, labels: &[&str], value: f64) {
        self.put(name, labels, Value::Level(value));
    }

    /// A counter by its description: what is described as a level becomes one.
    fn count(&mut self, prefix: &str, d: &bestby_api::Described, labels: &[&str], value: u64) {
        let value = match d.key {
            "queued" => Value::Level(value as f64),
            _ => Value::Count(value),
        };
        self.put(&format!("{prefix}_{}", d.stem()), labels, value);
    }

    fn object(&mut self, object: &str, name: &str, c: &Counters) {
        let prefix = format!("bestby_{object}");
        for (d, value) in Counters::DESCRIBED.iter().zip(c.values()) {
            self.count(&prefix, d, &[name], value);
        }
        for (d, drops) in Counters::BY_REASON.iter().zip(c.by_reason()) {
            for (reason, value) in drops.by_name() {
                self.count(&prefix, d, &[name, reason], value);
            }
        }
    }

    fn interface(&mut self, i: &InterfaceInfo) {
        let name = i.dev.as_str();
        let (mode, method, by) = (i.mode.as_str(), i.method.as_str(), i.session.to_string());
        self.put("bestby_interface", &[name, mode, method, &by], Value::Info);
        self.level(
            "bestby_interface_observe",
            &[name],
            f64::from(u8::from(i.observe)),
        );
        self.level(
            "bestby_interface_limit_packets",
            &[name],
            f64::from(i.limit),
        );
        let set = i.rate.and_then(LinkRate::fixed).map(Rate::bytes_per_s);
        let found = || i.path.as_ref()?.rate_bytes_s;
        if let Some(rate) = set.or_else(found) {
            let metric = "bestby_interface_rate_bytes_per_second";
            self.level(metric, &[name], rate as f64);
        }
        if let Some(path) = &i.path {
            self.path(name, path);
        }
        if let Some(bytes) = i.memory_bytes {
            self.level("bestby_interface_memory_bytes", &[name], bytes as f64);
        }
        self.object("interface", name, &i.counters);
        let Some(times) = &i.times else { return };
        for (what, of) in [
            ("sojourn", &times.sojourn),
            ("slack", &times.slack),
            ("lateness", &times.lateness),
        ] {
            let metric = format!("bestby_interface_{what}_seconds");
            self.put(&metric, &[name], Value::Times(of.clone()));
        }
    }

    /// Of an interface whose rate is found.
    fn path(&mut self, name: &str, path: &PathInfo) {
        if let Some(queue) = path.queue_ns {
            let metric = "bestby_interface_path_queue_seconds";
            self.level(metric, &[name], seconds(queue));
        }
        if let Some(least) = path.least_rtt_ns {
            let metric = "bestby_interface_path_least_rtt_seconds";
            self.level(metric, &[name], seconds(least));
        }
        for (metric, count) in [
            ("bestby_interface_path_answers", path.answers),
            ("bestby_interface_path_rebased", path.rebased.into()),
        ] {
            self.put(metric, &[name], Value::Count(count));
        }
        for state in PathState::ALL {
            let is = f64::from(u8::from(*state == path.state));
            self.level("bestby_interface_path_state", &[name, state.as_str()], is);
        }
    }

    /// Which interfaces are wanted, and which are there.
    fn presence(&mut self, configured: &[String], attached: &[InterfaceInfo]) {
        let mut all: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
        for dev in configured {
            all.entry(dev).or_default().0 = true;
        }
        for i in attached {
            all.entry(i.dev.as_str()).or_default().1 = true;
        }
        for (dev, (wanted, there)) in all {
            self.level(
                "bestby_interface_configured",
                &[dev],
                f64::from(u8::from(wanted)),
            );
            self.level(
                "bestby_interface_attached",
                &[dev],
                f64::from(u8::from(there)),
            );
        }
    }

    fn fill(measured: &Measured) -> Self {
        let mut sheet = Self::new();
        let (version, abi) = (env!("CARGO_PKG_VERSION"), abi::BB_ABI_VERSION.to_string());
        sheet.put("bestby_build", &[version, &abi], Value::Info);
        let file = &measured.file;
        sheet.level("bestby_start_time_seconds", &[], unix_s(file.started));
        sheet.level(
            "bestby_config_last_reload_successful",
            &[],
            f64::from(u8::from(file.why_not.is_none())),
        );
        if let Some(taken) = file.taken {
            sheet.level(
                "bestby_config_last_reload_success_timestamp_seconds",
                &[],
                unix_s(taken),
            );
        }
        sheet.level("bestby_map_memory_bytes", &[], measured.map_memory as f64);
        for i in &measured.interfaces {
            sheet.interface(i);
        }
        sheet.presence(&measured.configured, &measured.interfaces);
        for (name, counters) in &measured.flows {
            sheet.object("flow", name, counters);
        }
        for (pt, counters) in &measured.payload_types {
            sheet.object("payload_type", &pt.to_string(), counters);
        }
        for ((dev, kind), count) in &measured.session_counts {
            sheet.level("bestby_sessions", &[dev, kind], *count as f64);
        }
        for (codec, count) in &measured.streams {
            sheet.level("bestby_media_streams", &[codec], *count as f64);
        }
        for s in &measured.sessions {
            sheet.object("session", &s.name, &s.counters);
            if let Some(owd) = s.delay.owd_ns {
                sheet.level(
                    "bestby_session_owd_seconds",
                    &[&s.name, s.delay.source.as_str()],
                    seconds(owd),
                );
            }
            if let Some(age) = s.delay.age_ns {
                sheet.level("bestby_session_owd_age_seconds", &[&s.name], seconds(age));
            }
            if let Some(queue) = s.queue_behind_ns {
                sheet.level("bestby_path_queue_seconds", &[&s.name], seconds(queue));
            }
        }
        for (d, value) in GlobalCounters::DESCRIBED
            .iter()
            .zip(measured.global.values())
        {
            sheet.count("bestby", d, &[], value);
        }
        if let Some(real) = &measured.real {
            for (d, value) in RealCounters::DESCRIBED.iter().zip(real.values()) {
                sheet.count("bestby_tcp_real", d, &[], value);
            }
        }
        sheet
    }
}

const fn fits(kind: Kind, value: &Value) -> bool {
    matches!(
        (kind, value),
        (Kind::Counter, Value::Count(_))
            | (Kind::Gauge, Value::Level(_))
            | (Kind::Histogram, Value::Times(_))
            | (Kind::Info, Value::Info)
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn unix_s(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}

fn write_sample(encoder: &mut MetricEncoder<'_>, value: &Value) -> std::fmt::Result {
    match value {
        Value::Count(n) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        Value::Level(x) => encoder.encode_gauge(x),
        Value::Times(t) => {
            let (sum, count) = (seconds(t.sum_ns), t.counts.iter().sum());
            encoder.encode_histogram::<NoLabelSet>(sum, count, &t.buckets(), None)
        }
        Value::Info => Ok(()), // has labels only: written where they are
    }
}

impl Collector for Sheet {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (metric, samples) in self.metrics.iter().filter(|(_, s)| !s.is_empty()) {
            let unit = Some(metric.unit).filter(|u| !u.is_empty());
            let stem = unit.and_then(|u| metric.name.strip_suffix(u)?.strip_suffix('_'));
            let unit = unit.map(|u| Unit::Other(u.into()));
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let mut family = encoder.encode_descriptor(
                stem.unwrap_or(&metric.name),
                &metric.help,
                unit.as_ref(),
                kind,
            )?;
            for (values, value) in samples {
                let labels: Vec<(&str, &str)> = metric
                    .labels
                    .iter()
                    .copied()
                    .zip(values.iter().map(String::as_str))
                    .collect();
                match value {
                    Value::Info => family.encode_info(&labels)?,
                    _ if labels.is_empty() => write_sample(&mut family, value)?, // no braces
                    _ => write_sample(&mut family.encode_family(&labels)?, value)?,
                }
            }
        }
        Ok(())
    }
}

/// The text in one of the formats.
///
/// # Errors
/// A sample that no description fits, which is a mistake in this file.
pub fn text(measured: &Measured, format: Format) -> Result<String> {
    let sheet = Sheet::fill(measured);
    if let Some(misfit) = &sheet.misfit {
        return Err(Error::failed(format!(
            "metrics: {misfit} is not as it is described"
        )));
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(sheet));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|e| Error::failed(format!("writing metrics: {e}")))?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Prometheus => as_prometheus(&text),
    })
}

/// OpenMetrics as Prometheus' text format: a comment names the samples, not the metric; there are no units, no infos
/// and no end.
fn as_prometheus(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => (Kind::Counter.suffix(), kind),
                "info" => (Kind::Info.suffix(), "gauge"),
                _ => ("", kind),
            };
            if let Some((_, text)) = help.take() {
                out += &format!("# HELP {name}{suffix} {text}\n");
            }
            out += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            out += line;
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests;
