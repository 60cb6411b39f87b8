//! Reading the file: every scalar goes through the same `FromStr` as on the command line, and every error is
//! reported with its line, not only the first.

mod media;

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use super::{
    AgentConfig, Config, ConfigError, MAX_FLOWS, MAX_INTERFACES, MAX_PEERS, MAX_SOCKET_PATH,
    PeerConfig, PriorityTable, SoPriority, budget,
};
use crate::value::ValueError;
use crate::{AttachRequest, Dscp, FlowName, FlowRule, Priority, RealRequest, RtpProfile};

/// Collects errors while the file is read.
struct Reader<'t> {
    file: &'t str,
    /// Offset of each line's end: a file may have tens of thousands of lines, each asked for.
    line_ends: Vec<usize>,
    errors: RefCell<Vec<ConfigError>>,
}

/// One table of the file and the keys asked of it.
struct Table<'t> {
    reader: &'t Reader<'t>,
    /// As messages call it, e.g. `[[flow]] "audio"`.
    name: String,
    span: Range<usize>,
    entries: &'t DeTable<'t>,
    known: RefCell<Vec<&'static str>>,
}

pub(super) fn read(text: &str, file: &str) -> Result<Config, Vec<ConfigError>> {
    let reader = Reader {
        file,
        line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        errors: RefCell::default(),
    };
    let (root, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let span = error.span().unwrap_or(0..0);
        reader.error(&span, error.message().to_string(), "");
    }
    // After a syntax error the rest would be guesswork, and so would its errors.
    let config = if syntax.is_empty() {
        reader.config(&root)
    } else {
        Config::default()
    };
    let mut errors = reader.errors.into_inner();
    if errors.is_empty() {
        return Ok(config);
    }
    errors.sort_by_key(|e| e.line);
    errors.dedup();
    Err(errors)
}

impl<'t> Reader<'t> {
    /// Line of a place in the text, from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.line_ends.partition_point(|end| *end < span.start)
    }

    fn error(&self, span: &Range<usize>, message: impl Into<String>, hint: impl Into<String>) {
        self.errors.borrow_mut().push(ConfigError {
            file: self.file.to_string(),
            line: self.line(span),
            message: message.into(),
            hint: hint.into(),
        });
    }

    fn table(&'t self, name: &str, span: Range<usize>, entries: &'t DeTable<'t>) -> Table<'t> {
        Table {
            reader: self,
            name: name.to_string(),
            span,
            entries,
            known: RefCell::default(),
        }
    }

    fn config(&'t self, root: &'t Spanned<DeTable<'t>>) -> Config {
        let root = self.table("the file", root.span(), root.get_ref());
        let mut config = Config::default();
        if let Some(agent) = root.subtable("agent", "[agent]") {
            config.agent = self.agent(&agent);
        }
        let interfaces = root.array("interface", MAX_INTERFACES);
        config.interfaces = interfaces.iter().filter_map(Self::interface).collect();
        self.unique("interface", &interfaces, "dev");
        if let Some(profile) = root.subtable("rtp_profile", "[rtp_profile]") {
            config.rtp_profile = Self::rtp_profile(&profile);
        }
        if let Some(media) = root.subtable("media", "[media.NAME]") {
            config.media = self.media(&media);
        }
        let flows = root.array("flow", MAX_FLOWS);
        config.flows = flows.iter().filter_map(Self::flow).collect();
        self.unique("flow", &flows, "name");
        self.known_media(&config, &flows);
        // With broken rules left out, the sum would be wrong.
        if self.errors.borrow().is_empty()
            && let Err(much) = budget::check(config.flows.iter(), config.rtp_profile)
            && let Some(table) = flows.get(much.rule)
        {
            let message = format!("{}: {}", table.name, much.message);
            self.error(&table.span, message, much.hint);
        }
        let peers = root.array("peer", MAX_PEERS);
        config.peers = peers.iter().filter_map(Self::peer).collect();
        self.unique("peer", &peers, "addr");
        if let Some(real) = root.subtable("tcp_real", "[tcp_real]") {
            config.tcp_real = Some(Self::tcp_real(&real));
        }
        root.finish();
        config
    }

    fn tcp_real(t: &Table<'t>) -> RealRequest {
        let default = RealRequest::default();
        let real = RealRequest {
            cgroup: t.value("cgroup"),
            mode: t.value("mode").unwrap_or(default.mode),
            max_level: t.value("max_level").unwrap_or(default.max_level),
        };
        t.finish();
        real
    }

    fn agent(&'t self, t: &Table<'t>) -> AgentConfig {
        let mut agent = AgentConfig::default();
        if let Some((socket, span)) = t.scalar("socket") {
            if !socket.starts_with('/') || socket.len() > MAX_SOCKET_PATH {
                t.error(
                    &span,
                    "socket",
                    "is not an absolute path of at most 107 bytes",
                    "for example /run/bestby/bestbyd.sock",
                );
            } else {
                agent.socket = PathBuf::from(socket);
            }
        }
        if let Some((metrics, span)) = t.scalar("metrics") {
            match metrics.parse() {
                Ok(addr) => agent.metrics = Some(addr),
                Err(_) => t.error(
                    &span,
                    "metrics",
                    &format!("\"{metrics}\" is not ADDRESS:PORT"),
                    "for example 127.0.0.1:9464",
                ),
            }
        }
        if let Some(magic) = t.value("mark_magic") {
            agent.mark_magic = magic;
        }
        agent.forwarded_marks = t.boolean("forwarded_marks");
        if let Some(share) = t.value("plain_share") {
            agent.plain_share = share;
        }
        if let Some(buffers) = t.value("send_buffers") {
            agent.send_buffers = buffers;
        }
        if let Some(types) = t.list("ip_option") {
            agent.ip_option = types;
        }
        if let Some(age) = t.value("rtt_max_age") {
            agent.rtt_max_age = age;
        }
        if let Some((events, span)) = t.scalar("events_per_s") {
            match events.parse::<u32>() {
                Ok(n) if n <= 1_000_000 => agent.events_per_s = n,
                _ => t.error(
                    &span,
                    "events_per_s",
                    &format!("\"{events}\" is out of range"),
                    "allowed: 0 to 1000000",
                ),
            }
        }
        if let Some(table) = t.subtable("so_priority", "[agent.so_priority]") {
            table.priorities(&mut agent.so_priority, |k: SoPriority| k.get().into());
        }
        if let Some(table) = t.subtable("dscp", "[agent.dscp]") {
            table.priorities(&mut agent.dscp, |k: Dscp| k.get().into());
        }
        t.finish();
        agent
    }

    fn interface(t: &Table<'t>) -> Option<AttachRequest> {
        let dev = t.required("dev", "for example dev = \"eth0\"");
        // The name is only needed to have a complete value: with an error in it, the file is refused anyway.
        let mut iface = AttachRequest::new(dev.clone().or_else(|| "x".parse().ok())?);
        iface.mode = t.value("mode");
        iface.rate = t.value("rate").map(Some);
        iface.probe = t.value("probe");
        iface.method = t.value("method");
        iface.session = t.value("session");
        iface.limit = t.value("limit");
        iface.overhead = t.value("overhead");
        iface.observe = t.said("observe");
        iface.trust = t.list("trust");
        iface.decrement = t.value("decrement");
        iface.replace = t.boolean("replace");
        t.finish();
        dev.map(|_| iface)
    }

    fn flow(t: &Table<'t>) -> Option<FlowRule> {
        let before = t.reader.errors.borrow().len();
        let name: Option<FlowName> = t.required("name", "for example name = \"audio\"");
        let rule = FlowRule {
            proto: t.value("proto"),
            src: t.value("src"),
            dst: t.value("dst"),
            sport: t.value("sport"),
            dport: t.value("dport"),
            dscp: t.value("dscp"),
            mark: t.value("mark"),
            rtp_pt: t.list("rtp_pt"),
            rtp_kind: t.value("rtp_kind"),
            ssrc: t.value("ssrc"),
            cgroup: t.value("cgroup"),
            dev: t.value("dev"),
            lifetime: t.value("lifetime"),
            priority: t.value("priority"),
            treatment: t.value("treatment"),
            owd: t.value("owd"),
            stamp: t.value("stamp"),
            frames: t.value("frames"),
            rtx: t.list("rtx"),
            media: t.value("media"),
            chain: t.value("chain"),
            roles: t.list("roles"),
            // The stand-in never leaves this function.
            ..FlowRule::new(name.clone().or_else(|| "x".parse().ok())?)
        };
        t.finish();
        name?;
        // What a broken field would have said is not known, so nothing can be said of their combination.
        if t.reader.errors.borrow().len() == before
            && let Err(message) = rule.check()
        {
            t.reader.error(&t.span, message, "");
        }
        Some(rule)
    }

    fn rtp_profile(t: &Table<'t>) -> RtpProfile {
        let profile = RtpProfile {
            audio: t.list("audio"),
            video: t.list("video"),
        };
        t.finish();
        if let Err(message) = profile.check() {
            t.reader
                .error(&t.span, format!("{}: {message}", t.name), "");
        }
        profile
    }

    fn peer(t: &Table<'t>) -> Option<PeerConfig> {
        let addr: Option<IpAddr> = match t.scalar("addr") {
            None => {
                t.missing("addr", "for example addr = \"192.0.2.7\"");
                None
            }
            Some((text, span)) => match text.parse::<IpAddr>() {
                Ok(addr) => Some(addr.to_canonical()),
                Err(_) => {
                    t.error(
                        &span,
                        "addr",
                        &format!("\"{}\" is not an address", text.escape_debug()),
                        "for example 192.0.2.7 or 2001:db8::7",
                    );
                    None
                }
            },
        };
        let (rate, owd) = (t.value("rate"), t.value("owd"));
        if !t.has("rate") && !t.has("owd") {
            t.reader.error(
                &t.span,
                format!("{} says nothing of it", t.name),
                "give rate, owd or both",
            );
        }
        t.finish();
        Some(PeerConfig {
            addr: addr?,
            rate,
            owd,
        })
    }

    /// No two tables of an array may have the same value under `key`.
    fn unique(&self, array: &str, tables: &[Table<'t>], key: &'static str) {
        let mut seen: HashMap<String, usize> = HashMap::new();
        for table in tables {
            let Some((value, span)) = table.raw(key) else {
                continue;
            };
            // Two spellings of one address are one address.
            let value = value
                .parse::<IpAddr>()
                .map_or(value, |a| a.to_canonical().to_string());
            let line = self.line(&span);
            if let Some(first) = seen.get(&value) {
                let message =
                    format!("[[{array}]] with {key} \"{value}\" is there already, on line {first}");
                self.error(&span, message, "remove one of them");
            } else {
                seen.insert(value, line);
            }
        }
    }
}

impl<'t> Table<'t> {
    fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    fn error(&self, span: &Range<usize>, key: &str, problem: &str, hint: &str) {
        self.reader
            .error(span, format!("{}: {key}: {problem}", self.name), hint);
    }

    fn missing(&self, key: &str, hint: &str) {
        self.reader
            .error(&self.span, format!("{} has no {key}", self.name), hint);
    }

    /// The text of a string or number, without complaints.
    fn raw(&self, key: &str) -> Option<(String, Range<usize>)> {
        let value = self.entries.get(key)?;
        Some((scalar_text(value.get_ref())?, value.span()))
    }

    /// The text of a string or number; anything else is an error.
    fn scalar(&self, key: &'static str) -> Option<(String, Range<usize>)> {
        self.known.borrow_mut().push(key);
        let value = self.entries.get(key)?;
        let text = scalar_text(value.get_ref());
        if text.is_none() {
            self.error(
                &value.span(),
                key,
                &format!(
                    "is {} {}",
                    article(value.get_ref()),
                    value.get_ref().type_str()
                ),
                "a string or a number is wanted",
            );
        }
        Some((text?, value.span()))
    }

    fn value<T: FromStr<Err = ValueError>>(&self, key: &'static str) -> Option<T> {
        let (text, span) = self.scalar(key)?;
        self.parsed(key, &text, span)
    }

    /// A list, written as TOML's or as on the command line, separated by commas.
    fn list<T: FromStr<Err = ValueError>>(&self, key: &'static str) -> Option<T> {
        let Some(DeValue::Array(items)) = self.entries.get(key).map(Spanned::get_ref) else {
            return self.value(key);
        };
        self.known.borrow_mut().push(key);
        let span = self.entries.get(key)?.span();
        let texts: Option<Vec<String>> = items.iter().map(|i| scalar_text(i.get_ref())).collect();
        let Some(texts) = texts else {
            self.error(
                &span,
                key,
                "is not a list of numbers or strings",
                "for example [96, 98]",
            );
            return None;
        };
        self.parsed(key, &texts.join(","), span)
    }

    fn parsed<T: FromStr<Err = ValueError>>(
        &self,
        key: &'static str,
        text: &str,
        span: Range<usize>,
    ) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(
                    &span,
                    key,
                    &error.to_string(),
                    &format!("allowed: {}", error.allowed),
                );
                None
            }
        }
    }

    fn required<T: FromStr<Err = ValueError>>(&self, key: &'static str, hint: &str) -> Option<T> {
        if !self.has(key) {
            self.known.borrow_mut().push(key);
            self.missing(key, hint);
            return None;
        }
        self.value(key)
    }

    fn boolean(&self, key: &'static str) -> bool {
        self.said(key).unwrap_or(false)
    }

    /// True or false; `None`: the file does not say.
    fn said(&self, key: &'static str) -> Option<bool> {
        self.known.borrow_mut().push(key);
        let value = self.entries.get(key)?;
        if let Some(said) = value.get_ref().as_bool() {
            return Some(said);
        }
        self.error(
            &value.span(),
            key,
            "is neither true nor false",
            "write true or false, without quotes",
        );
        None
    }

    fn subtable(&self, key: &'static str, name: &str) -> Option<Table<'t>> {
        self.known.borrow_mut().push(key);
        let value = self.entries.get(key)?;
        let DeValue::Table(entries) = value.get_ref() else {
            self.error(
                &value.span(),
                key,
                "is not a table",
                &format!("write {name} on a line of its own"),
            );
            return None;
        };
        Some(self.reader.table(name, value.span(), entries))
    }

    fn array(&self, key: &'static str, most: usize) -> Vec<Table<'t>> {
        self.known.borrow_mut().push(key);
        let Some(value) = self.entries.get(key) else {
            return Vec::new();
        };
        let hint = format!("begin each with a line [[{key}]]");
        let DeValue::Array(items) = value.get_ref() else {
            self.error(&value.span(), key, "is not a list of tables", &hint);
            return Vec::new();
        };
        if items.len() > most {
            self.error(
                &value.span(),
                key,
                &format!("{} entries are too many", items.len()),
                &format!("at most {most}"),
            );
            return Vec::new();
        }
        let mut tables = Vec::with_capacity(items.len());
        for item in items.iter() {
            if let DeValue::Table(entries) = item.get_ref() {
                let mut table = self
                    .reader
                    .table(&format!("[[{key}]]"), item.span(), entries);
                if let Some(name) = ["name", "dev", "addr"]
                    .into_iter()
                    .find_map(|k| table.raw(k).filter(|_| k != "dev" || key == "interface"))
                {
                    table.name = format!("[[{key}]] \"{}\"", name.0.escape_debug());
                }
                tables.push(table);
            } else {
                self.error(&item.span(), key, "is not a list of tables", &hint);
            }
        }
        tables
    }

    /// A table of priorities by number; `none` takes an entry of the default away.
    fn priorities<K: FromStr<Err = ValueError>, const N: usize>(
        &self,
        into: &mut PriorityTable<N>,
        index: impl Fn(K) -> usize,
    ) {
        let mut seen = HashMap::new();
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().to_string();
            let i = match name.parse::<K>() {
                Ok(k) => index(k),
                Err(e) => {
                    self.reader.error(
                        &key.span(),
                        format!("{}: {e}", self.name),
                        format!("allowed: {}", e.allowed),
                    );
                    continue;
                }
            };
            if let Some(first) = seen.insert(i, name.clone()) {
                self.error(
                    &key.span(),
                    &name,
                    &format!("means the same as {first}"),
                    "remove one of them",
                );
                continue;
            }
            let Some(text) = scalar_text(value.get_ref()) else {
                self.error(
                    &value.span(),
                    &name,
                    "is not a priority",
                    "write a number from 0 to 7, or \"none\"",
                );
                continue;
            };
            if text == "none" {
                into.set(i, None);
                continue;
            }
            match text.parse::<Priority>() {
                Ok(priority) => into.set(i, Some(priority)),
                Err(e) => self.error(
                    &value.span(),
                    &name,
                    &e.to_string(),
                    &format!("allowed: {}, or \"none\"", e.allowed),
                ),
            }
        }
    }

    /// Refuses the keys nobody asked for.
    fn finish(&self) {
        let known = self.known.borrow();
        for (key, _) in self.entries.iter() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let hint = match nearest(name, &known) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("known here: {}", known.join(", ")),
            };
            let message = format!("{}: unknown key \"{}\"", self.name, name.escape_debug());
            self.reader.error(&key.span(), message, hint);
        }
    }
}

const fn article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::Array(_) | DeValue::Integer(_) => "an",
        _ => "a",
    }
}

/// What the operator would have typed on the command line for this value.
fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(s) => Some(s.to_string()),
        DeValue::Integer(i) => Some(match i.radix() {
            16 => format!("0x{}", i.as_str()),
            10 => i.as_str().to_string(),
            radix => i64::from_str_radix(i.as_str(), radix).ok()?.to_string(),
        }),
        DeValue::Float(f) => Some(f.as_str().to_string()),
        _ => None,
    }
}
