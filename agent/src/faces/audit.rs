//! The journal's line for every change: what, from what to what, and who asked for it.
//!
//! What a command says that it did is not asked: all that commands and the file can set is looked at before and after,
//! and the lines say where it differs. So a reload has a line for each thing that it changed, and a command that changed
//! nothing has none.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::datapath::Datapath;
use crate::error::Result;

/// Who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A process that connected to the control socket.
    Peer {
        /// Its user when it connected.
        uid: u32,
        /// Its process; 0 where it is of another PID namespace.
        pid: i32,
    },
    /// SIGHUP.
    Signal,
}

/// Settings of one thing, by their names.
type Fields = BTreeMap<String, String>;

/// All that can be set: by "interface eth0", "flow rule \"audio\"", "session 192.0.2.1", "TCP-Real".
pub(crate) type Settings = BTreeMap<String, Fields>;

/// Fields of what is written as JSON.
fn fields(value: &impl Serialize) -> Fields {
    let Ok(serde_json::Value::Object(all)) = serde_json::to_value(value) else {
        return Fields::new();
    };
    all.into_iter()
        .map(|(field, value)| match value {
            serde_json::Value::String(text) => (field, text),
            other => (field, other.to_string()),
        })
        .collect()
}

impl Datapath {
    /// Everything that commands and the file can set.
    pub(crate) fn settings(&self) -> Settings {
        let mut all = Settings::new();
        for attached in self.attached.values() {
            let fields = attached.request.fields().into_iter();
            all.insert(
                format!("interface {}", attached.dev),
                fields.map(|(f, v)| (f.to_string(), v)).collect(),
            );
        }
        for entry in &self.book.entries {
            let mut fields = fields(&entry.rule);
            fields.remove("name");
            all.insert(format!("flow rule \"{}\"", entry.rule.name), fields);
        }
        for receiver in self.receivers() {
            let mut fields = fields(&receiver);
            fields.remove("addr");
            all.insert(format!("session {}", receiver.addr), fields);
        }
        if let Some(real) = &self.tcp_real.running {
            all.insert("TCP-Real".into(), fields(&real.kept.request));
        }
        all
    }
}

/// One line for each thing that differs.
fn differences(before: &Settings, after: &Settings) -> Vec<String> {
    let list = |fields: &Fields| {
        let all: Vec<String> = fields.iter().map(|(f, v)| format!("{f} {v}")).collect();
        all.join(", ")
    };
    let mut lines = Vec::new();
    for (thing, old) in before {
        match after.get(thing) {
            None => lines.push(format!("{thing}: removed; it had {}", list(old))),
            Some(new) if new != old => {
                let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
                names.sort();
                names.dedup();
                let none = "none".to_string();
                let all: Vec<String> = names
                    .into_iter()
                    .map(|f| (f, old.get(f).unwrap_or(&none), new.get(f).unwrap_or(&none)))
                    .filter(|(_, from, to)| from != to)
                    .map(|(f, from, to)| format!("{f} {from} -> {to}"))
                    .collect();
                lines.push(format!("{thing}: {}", all.join(", ")));
            }
            Some(_) => {}
        }
    }
    for (thing, new) in after
        .iter()
        .filter(|(thing, _)| !before.contains_key(*thing))
    {
        lines.push(format!("{thing}: new; it has {}", list(new)));
    }
    lines
}

/// Runs a command that may change something, and writes down what it changed.
///
/// # Errors
/// The command's. What a command that failed left changed is written down, too.
pub fn audited<T>(
    datapath: &mut Datapath,
    who: Who,
    command: impl FnOnce(&mut Datapath) -> Result<T>,
) -> Result<T> {
    let before = datapath.settings();
    let result = command(datapath);
    for line in differences(&before, &datapath.settings()) {
        match who {
            Who::Peer { uid, pid } => tracing::info!(audit = true, uid, pid, "{line}"),
            Who::Signal => tracing::info!(audit = true, signal = "SIGHUP", "{line}"),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(all: &[(&str, &[(&str, &str)])]) -> Settings {
        let fields = |f: &[(&str, &str)]| {
            let all = f.iter();
            all.map(|(f, v)| ((*f).to_string(), (*v).to_string()))
                .collect()
        };
        let all = all.iter();
        all.map(|(thing, f)| ((*thing).to_string(), fields(f)))
            .collect()
    }

    #[test]
    fn difference_of_settings_is_one_line_a_thing() {
        let before = settings(&[
            ("interface a", &[("rate", "1mbit"), ("observe", "true")]),
            ("flow rule \"x\"", &[("lifetime", "1s"), ("dport", "9")]),
            ("session 192.0.2.1", &[("owd", "1ms")]),
        ]);
        let after = settings(&[
            ("interface a", &[("rate", "2mbit"), ("observe", "false")]),
            ("flow rule \"x\"", &[("lifetime", "1s"), ("priority", "0")]),
            ("TCP-Real", &[("mode", "paper")]),
        ]);
        assert_eq!(
            differences(&before, &after),
            [
                "flow rule \"x\": dport 9 -> none, priority none -> 0",
                "interface a: observe true -> false, rate 1mbit -> 2mbit",
                "session 192.0.2.1: removed; it had owd 1ms",
                "TCP-Real: new; it has mode paper",
            ]
        );
        assert!(differences(&after, &after).is_empty());
    }
}
