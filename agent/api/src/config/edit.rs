//! Writing the file: changes made with `--save` keep the operator's comments and layout.

use std::collections::BTreeSet;

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value, value};

use super::{AgentConfig, Config, ConfigError, PeerConfig, PriorityTable, SoPriority};
use crate::{
    AttachRequest, Dscp, FlowName, FlowRule, MediaName, MediaTable, Priority, RealRequest,
    RtpProfile,
};

/// A configuration file that is being changed.
#[derive(Debug, Clone)]
pub struct Document {
    toml: DocumentMut,
    config: Config,
    file: String,
}

impl Document {
    /// Reads a file that is to be changed; an empty text is an empty file.
    ///
    /// # Errors
    /// Everything that is wrong in it: a bad file is not changed.
    pub fn parse(text: &str, file: &str) -> Result<Self, Vec<ConfigError>> {
        let config = Config::parse(text, file)?;
        let toml = text.parse::<DocumentMut>().map_err(|e| {
            vec![ConfigError {
                file: file.into(),
                line: 1,
                message: e.to_string(),
                hint: String::new(),
            }]
        })?;
        Ok(Self {
            toml,
            config,
            file: file.into(),
        })
    }

    /// What the file says now.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The file.
    pub fn text(&self) -> String {
        self.toml.to_string()
    }

    /// Adds a rule or brings the one of the same name to this content. A new rule goes in front of `before`, or
    /// to the end; an old one keeps its place.
    ///
    /// # Errors
    /// The file would not be valid.
    pub fn put_flow(
        &mut self,
        flow: &FlowRule,
        before: Option<&FlowName>,
    ) -> Result<(), Vec<ConfigError>> {
        let mut next = self.clone();
        let place = |name: &FlowName| self.config.flows.iter().position(|f| f.name == *name);
        let tables = next.tables("flow");
        if let Some(i) = place(&flow.name) {
            if let Some(table) = tables.get_mut(i) {
                update(table, &self.config.flows[i].given(), &flow.given());
            }
        } else {
            let mut table = Table::new();
            table.insert("name", value(flow.name.as_str()));
            update(&mut table, &[], &flow.given());
            insert(tables, before.and_then(place), table);
        }
        self.accept(next)
    }

    /// Removes a rule; false if the file does not have it.
    ///
    /// # Errors
    /// The file would not be valid.
    pub fn remove_flow(&mut self, name: &FlowName) -> Result<bool, Vec<ConfigError>> {
        let Some(i) = self.config.flows.iter().position(|f| f.name == *name) else {
            return Ok(false);
        };
        let mut next = self.clone();
        next.tables("flow").remove(i);
        self.accept(next)?;
        Ok(true)
    }

    /// Brings the interface of this name to what is said here, or adds it at the end.
    ///
    /// # Errors
    /// The file would not be valid.
    pub fn put_interface(&mut self, iface: &AttachRequest) -> Result<(), Vec<ConfigError>> {
        let mut next = self.clone();
        let at = self
            .config
            .interfaces
            .iter()
            .position(|i| i.dev == iface.dev);
        let tables = next.tables("interface");
        match at {
            Some(i) => {
                if let Some(table) = tables.get_mut(i) {
                    update(table, &given(&self.config.interfaces[i]), &given(iface));
                }
            }
            None => insert(tables, None, interface(iface)),
        }
        self.accept(next)
    }

    /// Brings the peer of this address to what is said here, adds it, or removes one of which nothing is said.
    ///
    /// # Errors
    /// The file would not be valid.
    pub fn put_peer(&mut self, peer: &PeerConfig) -> Result<(), Vec<ConfigError>> {
        let mut next = self.clone();
        let at = self.config.peers.iter().position(|p| p.addr == peer.addr);
        let says = |peer: &PeerConfig| -> Vec<(&'static str, String)> {
            let rate = peer.rate.map(|v| ("rate", v.to_string()));
            rate.into_iter()
                .chain(peer.owd.map(|v| ("owd", v.to_string())))
                .collect()
        };
        let new = says(peer);
        let tables = next.tables("peer");
        match at {
            Some(i) if new.is_empty() => drop(tables.remove(i)),
            Some(i) => {
                if let Some(table) = tables.get_mut(i) {
                    update(table, &says(&self.config.peers[i]), &new);
                }
            }
            None if new.is_empty() => return Ok(()),
            None => {
                let mut table = Table::new();
                table.insert("addr", value(peer.addr.to_string()));
                update(&mut table, &[], &new);
                insert(tables, None, table);
            }
        }
        self.accept(next)
    }

    /// Brings the `[media.NAME]` table of this name to what is said here, or adds it.
    ///
    /// # Errors
    /// The file would not be valid.
    pub fn put_media(
        &mut self,
        name: &MediaName,
        media: MediaTable,
    ) -> Result<(), Vec<ConfigError>> {
        let mut next = self.clone();
        let tables = next.toml.entry("media").or_insert_with(|| {
            let mut tables = Table::new();
            // Its own head says nothing.
            tables.set_implicit(true);
            Item::Table(tables)
        });
        let known = self.config.media.get(name).map(|old| old.given());
        let place = tables.as_table_like_mut().map(|tables| {
            tables
                .entry(name.as_str())
                .or_insert(Item::Table(Table::new()))
        });
        match place {
            Some(Item::Table(table)) => update(table, &known.unwrap_or_default(), &media.given()),
            // conf = { dd = 12 }
            Some(inline) => {
                let mut table = Table::new();
                update(&mut table, &[], &media.given());
                *inline = Item::Value(table.into_inline_table().into());
            }
            None => {}
        }
        self.accept(next)
    }

    /// Takes the changed text, if it still is a valid file.
    fn accept(&mut self, mut next: Self) -> Result<(), Vec<ConfigError>> {
        next.config = Config::parse(&next.text(), &self.file)?;
        *self = next;
        Ok(())
    }

    /// The `[[key]]` tables, also where the file has them as `key = [{...}]`.
    fn tables(&mut self, key: &str) -> &mut ArrayOfTables {
        let item = self
            .toml
            .entry(key)
            .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if !item.is_array_of_tables() {
            let inline = std::mem::take(item);
            *item = Item::ArrayOfTables(inline.into_array_of_tables().unwrap_or_default());
        }
        match item {
            Item::ArrayOfTables(tables) => tables,
            _ => unreachable!("it has just been made one"),
        }
    }
}

/// Puts a table in front of the one at `index`, or at the end.
fn insert(tables: &mut ArrayOfTables, index: Option<usize>, mut table: Table) {
    let mut all: Vec<Table> = std::mem::take(tables).into_iter().collect();
    let index = index.unwrap_or(all.len());
    // toml_edit writes tables in the order of their positions; of equal ones, the earlier of the list first.
    let position = all
        .get(index)
        .or_else(|| all.last())
        .and_then(Table::position);
    table.set_position(position);
    if !all.is_empty() || index > 0 {
        table.decor_mut().set_prefix("\n");
    }
    all.insert(index.min(all.len()), table);
    for table in all {
        tables.push(table);
    }
}

/// Brings the fields of a table from `old` to `new`; what is equal stays as it was written.
fn update(table: &mut Table, old: &[(&'static str, String)], new: &[(&'static str, String)]) {
    for (key, _) in old {
        if !new.iter().any(|(k, _)| k == key) {
            table.remove(key);
        }
    }
    for (key, text) in new {
        if old.contains(&(key, text.clone())) {
            continue;
        }
        let mut fresh = typed(key, text);
        match table.get_mut(key).and_then(Item::as_value_mut) {
            Some(place) => {
                // The comment behind the value belongs to the value's decor.
                *fresh.decor_mut() = place.decor().clone();
                *place = fresh;
            }
            None => {
                table.insert(key, Item::Value(fresh));
            }
        }
    }
}

/// Priorities and the like are numbers, switches are booleans, everything else is a string.
fn typed(key: &str, text: &str) -> Value {
    match (key, text.parse::<i64>()) {
        ("priority" | "limit" | "overhead" | "rtp_pt" | "rtx" | "dd" | "vfm", Ok(n)) => n.into(),
        ("observe" | "replace", _) => (text == "true").into(),
        _ => text.into(),
    }
}

/// The whole configuration as a new file.
pub(super) fn write(config: &Config) -> String {
    let mut toml = DocumentMut::new();
    let agent = agent(&config.agent);
    if !agent.is_empty() {
        toml.insert("agent", Item::Table(agent));
    }
    if config.rtp_profile != RtpProfile::default() {
        let mut table = Table::new();
        let RtpProfile { audio, video } = config.rtp_profile;
        for (key, types) in [("audio", audio), ("video", video)] {
            if let Some(types) = types {
                table.insert(key, value(types.to_string()));
            }
        }
        toml.insert("rtp_profile", Item::Table(table));
    }
    if !config.media.is_empty() {
        let mut tables = Table::new();
        tables.set_implicit(true);
        for (name, media) in &config.media {
            let mut table = Table::new();
            update(&mut table, &[], &media.given());
            tables.insert(name.as_str(), Item::Table(table));
        }
        toml.insert("media", Item::Table(tables));
    }
    if let Some(real) = &config.tcp_real {
        toml.insert("tcp_real", Item::Table(tcp_real(real)));
    }
    let mut put = |key: &str, tables: Vec<Table>| {
        if !tables.is_empty() {
            toml.insert(key, Item::ArrayOfTables(tables.into_iter().collect()));
        }
    };
    put(
        "interface",
        config.interfaces.iter().map(interface).collect(),
    );
    put(
        "flow",
        config
            .flows
            .iter()
            .map(|flow| {
                let mut table = Table::new();
                table.insert("name", value(flow.name.as_str()));
                update(&mut table, &[], &flow.given());
                table
            })
            .collect(),
    );
    put(
        "peer",
        config
            .peers
            .iter()
            .map(|peer| {
                let mut table = Table::new();
                table.insert("addr", value(peer.addr.to_string()));
                if let Some(rate) = peer.rate {
                    table.insert("rate", value(rate.to_string()));
                }
                if let Some(owd) = peer.owd {
                    table.insert("owd", value(owd.to_string()));
                }
                table
            })
            .collect(),
    );
    toml.to_string()
}

fn tcp_real(real: &RealRequest) -> Table {
    let mut table = Table::new();
    if let Some(cgroup) = &real.cgroup {
        table.insert("cgroup", value(cgroup.as_str()));
    }
    table.insert("mode", value(real.mode.as_str()));
    table.insert("max_level", value(i64::from(real.max_level.get())));
    table
}

/// What differs from the defaults.
impl AgentConfig {
    /// What `new` says otherwise, a line for each key.
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let (old, new) = (agent(self), agent(new));
        let keys: BTreeSet<&str> = old.iter().chain(new.iter()).map(|(key, _)| key).collect();
        let says = |table: &Table, key: &str| match table.get(key) {
            None => "default".to_string(),
            Some(item) => item.to_string().trim().replace('\n', ", "),
        };
        keys.into_iter()
            .map(|key| (key, says(&old, key), says(&new, key)))
            .filter(|(_, old, new)| old != new)
            .map(|(key, old, new)| format!("change [agent] {key}: {old} -> {new}"))
            .collect()
    }
}

fn agent(agent: &AgentConfig) -> Table {
    let default = AgentConfig::default();
    let mut table = Table::new();
    let mut put = |key: &str, text: String, default: String| {
        if text != default {
            table.insert(key, value(text));
        }
    };
    put(
        "socket",
        agent.socket.display().to_string(),
        default.socket.display().to_string(),
    );
    put(
        "metrics",
        agent.metrics.map(|a| a.to_string()).unwrap_or_default(),
        String::new(),
    );
    put(
        "mark_magic",
        agent.mark_magic.to_string(),
        default.mark_magic.to_string(),
    );
    put(
        "ip_option",
        agent.ip_option.to_string(),
        default.ip_option.to_string(),
    );
    put(
        "send_buffers",
        agent.send_buffers.to_string(),
        default.send_buffers.to_string(),
    );
    put(
        "rtt_max_age",
        agent.rtt_max_age.to_string(),
        default.rtt_max_age.to_string(),
    );
    if agent.forwarded_marks {
        table.insert("forwarded_marks", value(true));
    }
    if agent.plain_share != default.plain_share {
        table.insert("plain_share", value(i64::from(agent.plain_share.get())));
    }
    if agent.events_per_s != default.events_per_s {
        table.insert("events_per_s", value(i64::from(agent.events_per_s)));
    }
    let so_priority = priorities(&agent.so_priority, &default.so_priority, |i| {
        SoPriority::new(i).map(|k| k.to_string())
    });
    let dscp = priorities(&agent.dscp, &default.dscp, |i| {
        Dscp::new(i).map(|k| k.to_string())
    });
    for (key, sub) in [("so_priority", so_priority), ("dscp", dscp)] {
        if !sub.is_empty() {
            table.insert(key, Item::Table(sub));
        }
    }
    table
}

fn priorities<const N: usize>(
    table: &PriorityTable<N>,
    default: &PriorityTable<N>,
    name: impl Fn(u8) -> Option<String>,
) -> Table {
    let mut entries = Table::new();
    for i in 0..N {
        let Some(name) = u8::try_from(i).ok().and_then(&name) else {
            continue;
        };
        if table.get(i) != default.get(i) {
            let entry = table.get(i).map(Priority::get);
            entries.insert(
                &name,
                entry.map_or_else(|| value("none"), |p| value(i64::from(p))),
            );
        }
    }
    entries
}

fn interface(iface: &AttachRequest) -> Table {
    let mut table = Table::new();
    table.insert("dev", value(iface.dev.as_str()));
    update(&mut table, &[], &given(iface));
    table
}

/// What an interface's table says beside its name.
fn given(iface: &AttachRequest) -> Vec<(&'static str, String)> {
    let settings = iface.settings();
    let fields = settings.fields().into_iter();
    let said = iface.said();
    fields
        // The file has no word for "no rate" and none for "nobody is trusted": there it is left out.
        .filter(|(name, text)| said.contains(name) && (text != "none" || *name == "probe"))
        .chain(iface.replace.then(|| ("replace", "true".into())))
        .collect()
}
