//! The `[traffic]` table: its axes, and what is wrong with it in words of the file.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

use serde::Deserialize as _;
use serde_json::Value;

use super::{Fault, File};
use crate::traffic::{Class, Model};

/// The model and its parameters of one combination.
pub(super) type Parameters = BTreeMap<String, Value>;

/// A model's parameter as one value of an axis.
#[derive(Clone)]
pub(super) struct Parameter(pub(super) Value);

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => text.fmt(f),
            other => other.fmt(f),
        }
    }
}

/// The table, and the text that it stands in for the lines of errors.
pub(super) struct Traffic<'a> {
    table: &'a toml::Table,
    text: &'a str,
    start: usize,
    /// Parameters that are lists themselves.
    lists: Vec<&'static str>,
}

impl<'a> Traffic<'a> {
    pub(super) fn new(file: &'a File, text: &'a str) -> Self {
        let table = file.traffic.get_ref();
        let models = match table.get("model") {
            Some(toml::Value::Array(models)) => models.as_slice(),
            Some(model) => std::slice::from_ref(model),
            None => &[],
        };
        let names = models.iter().filter_map(toml::Value::as_str);
        Self {
            table,
            text,
            start: file.traffic.span().start,
            lists: names.flat_map(Model::lists).copied().collect(),
        }
    }

    /// The values of every parameter; one alone does not sweep.
    pub(super) fn axes(&self) -> Result<Vec<(String, Vec<Parameter>)>, Fault> {
        self.table
            .iter()
            .map(|(key, value)| Ok((key.clone(), self.axis(key, value)?)))
            .collect()
    }

    fn axis(&self, key: &str, value: &toml::Value) -> Result<Vec<Parameter>, Fault> {
        if let Some(message) = no_json(key, value) {
            return Err(self.fault(key, &message));
        }
        let values = match value {
            toml::Value::Array(list) if self.lists.contains(&key) => {
                let nested = list.iter().filter(|value| value.is_array()).count();
                match nested {
                    0 => std::slice::from_ref(value),
                    _ if nested == list.len() => list.as_slice(),
                    _ => {
                        let message = format!(
                            "`{key}` is a list itself: give one list, or to sweep it lists only, \
                             `{key} = [[...], [...]]`"
                        );
                        return Err(self.fault(key, &message));
                    }
                }
            }
            toml::Value::Array(list) if !list.iter().any(toml::Value::is_table) => {
                if list.is_empty() {
                    let message = format!(
                        "`{key}` is an empty list: give at least one value, or leave the line out"
                    );
                    return Err(self.fault(key, &message));
                }
                list.as_slice()
            }
            toml::Value::Array(list) if !self.lists.contains(&key) => {
                let message = format!(
                    "`{key}`: a list of {} tables does not sweep: give one table, {{ name = value }}",
                    list.len()
                );
                return Err(self.fault(key, &message));
            }
            single => std::slice::from_ref(single),
        };
        let mut seen = HashSet::new();
        values
            .iter()
            .map(|value| {
                let value = serde_json::to_value(value)
                    .map_err(|error| self.fault(key, &format!("`{key}`: {error}")))?;
                if !seen.insert(alike(&value)) {
                    let message = format!(
                        "`{key}`: `{}` stands in the list twice: leave one of them out",
                        Parameter(value)
                    );
                    return Err(self.fault(key, &message));
                }
                Ok(Parameter(value))
            })
            .collect()
    }

    /// Checks every combination of `axes`; what their packets may be, `None` where only a
    /// capture's content tells.
    pub(super) fn classes(
        &self,
        axes: &[(String, Vec<Parameter>)],
    ) -> Result<Option<BTreeSet<Class>>, Fault> {
        let mut all = vec![Parameters::new()];
        for (key, values) in axes {
            all = all
                .iter()
                .flat_map(|point| {
                    values.iter().map(|value| {
                        let mut point = point.clone();
                        point.insert(key.clone(), value.0.clone());
                        point
                    })
                })
                .collect();
        }
        let mut classes = Some(BTreeSet::new());
        for parameters in &all {
            let own = self.check(parameters)?.classes();
            classes = classes.zip(own).map(|(mut all, mut own)| {
                all.append(&mut own);
                all
            });
        }
        Ok(classes)
    }

    fn check(&self, parameters: &Parameters) -> Result<Model, Fault> {
        let whole: Value = parameters.clone().into_iter().collect();
        match parse(&whole) {
            Ok(model) => match model.check() {
                Ok(()) => Ok(model),
                Err(error) => {
                    let message = format!("{error:#}");
                    Err(self.fault(self.parameter_in(&message), &message))
                }
            },
            Err(message) => Err(match Culprit::find(&whole, &message) {
                Some(culprit) => self.fault(&culprit.key, &culprit.explain(&message)),
                None => self.fault(
                    self.parameter_in(&message),
                    &format!("{message}: docs/traffic.md has the models and their parameters"),
                ),
            }),
        }
    }

    /// The parameter that a message stumbles over: errors name it in backticks, or in front
    /// of its value. `model` where it is none of the file's.
    fn parameter_in(&self, message: &str) -> &str {
        let quoted = message.split('`').skip(1).step_by(2);
        let valued = message
            .match_indices(" = ")
            .filter_map(|(at, _)| message[..at].rsplit([' ', ':']).next());
        let words: Vec<&str> = valued.chain(quoted).collect();
        let own = words.iter().find_map(|word| {
            let (key, _) = self.table.get_key_value(*word)?;
            Some(key.as_str())
        });
        let below = || {
            let mut keys = self.table.iter();
            let (key, _) = keys.find(|(_, value)| words.iter().any(|word| holds(value, word)))?;
            Some(key.as_str())
        };
        own.or_else(below).unwrap_or("model")
    }

    /// With the line of this key below the table's head, else the head's.
    pub(super) fn fault(&self, key: &str, message: &str) -> Fault {
        let mut begin = self.start;
        let mut at = self.start;
        for line in self.text[self.start..].split_inclusive('\n') {
            let rest = line.trim_start().strip_prefix(key);
            let head = line.trim().strip_prefix('[').and_then(|head| {
                let name = head.trim_matches(['[', ']']);
                name.strip_prefix("traffic.")
            });
            if rest.is_some_and(|rest| rest.trim_start().starts_with('=')) || head == Some(key) {
                at = begin;
                break;
            }
            begin += line.len();
        }
        Fault {
            at: Some(at),
            message: format!("[traffic]: {message}"),
        }
    }
}

fn parse(whole: &Value) -> Result<Model, String> {
    Model::deserialize(whole).map_err(|error| error.to_string())
}

/// Whether there is a parameter of this name somewhere in `value`.
fn holds(value: &toml::Value, name: &str) -> bool {
    match value {
        toml::Value::Table(table) => {
            table.contains_key(name) || table.values().any(|value| holds(value, name))
        }
        toml::Value::Array(list) => list.iter().any(|value| holds(value, name)),
        _ => false,
    }
}

/// What is wrong with the first value that JSON has not, in which results keep parameters.
fn no_json(path: &str, value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Float(number) if !number.is_finite() => {
            Some(format!("`{path}` = {number}: it must be a finite number"))
        }
        toml::Value::Datetime(date) => Some(format!(
            "`{path}` = {date}: a date is the value of no parameter"
        )),
        toml::Value::Array(list) => list.iter().find_map(|value| no_json(path, value)),
        toml::Value::Table(table) => table
            .iter()
            .find_map(|(key, value)| no_json(&format!("{path}.{key}"), value)),
        _ => None,
    }
}

/// The same text for the same value: 30 and 30.0 are one.
fn alike(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(integer) => integer.to_string(),
            // -0 is 0.
            None => number
                .as_f64()
                .map_or_else(|| number.to_string(), |float| (float + 0.0).to_string()),
        },
        Value::Array(list) => {
            let list: Vec<String> = list.iter().map(alike).collect();
            format!("[{}]", list.join(","))
        }
        Value::Object(table) => {
            let table: Vec<String> = table
                .iter()
                .map(|(key, value)| format!("{key:?}:{}", alike(value)))
                .collect();
            format!("{{{}}}", table.join(","))
        }
        other => other.to_string(),
    }
}

/// The value of which a model's error is. Serde's messages do not say: it is the one that
/// alone has the same message.
#[derive(Clone)]
struct Culprit {
    /// The parameter whose line it is in.
    key: String,
    /// In words: `media.fps`, `parts[1].fps`.
    path: String,
    /// Its own name: `fps`.
    name: String,
    value: Value,
    /// A table with nothing else, and where in it the value is.
    alone: Value,
    pointer: String,
}

impl Culprit {
    fn find(whole: &Value, message: &str) -> Option<Self> {
        let stumbles = |alone: &Value| parse(alone).is_err_and(|error| error == message);
        let mut found = Self {
            key: String::new(),
            path: String::new(),
            name: String::new(),
            value: whole.clone(),
            alone: whole.clone(),
            pointer: String::new(),
        };
        // Some messages are of a table or a list as a whole, and not of what is in it.
        let is_its_kind = |value: &Value| match message {
            _ if message.starts_with("invalid type: map") => value.is_object(),
            _ if message.starts_with("missing field") => value.is_object(),
            _ if message.starts_with("invalid type: sequence") => value.is_array(),
            _ => true,
        };
        let mut best = None;
        while let Some(deeper) = found.deeper(&stumbles) {
            if is_its_kind(&deeper.value) {
                best = Some(deeper.clone());
            }
            found = deeper;
        }
        best
    }

    /// One level down, if one value there is to blame.
    fn deeper(&self, stumbles: &impl Fn(&Value) -> bool) -> Option<Self> {
        let with = |part: Value| {
            let mut alone = self.alone.clone();
            *alone.pointer_mut(&self.pointer)? = part;
            stumbles(&alone).then_some(alone)
        };
        match &self.value {
            Value::Object(table) => table.iter().find_map(|(key, value)| {
                let model = table.get_key_value("model");
                let only: Value = model
                    .into_iter()
                    .chain((key != "model").then_some((key, value)))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                let dot = if self.path.is_empty() { "" } else { "." };
                Some(Self {
                    key: match self.key.as_str() {
                        "" => key.clone(),
                        own => own.to_owned(),
                    },
                    path: format!("{}{dot}{key}", self.path),
                    name: key.clone(),
                    value: value.clone(),
                    alone: with(only)?,
                    pointer: format!("{}/{key}", self.pointer),
                })
            }),
            Value::Array(list) => (0..).zip(list).find_map(|(index, value): (usize, _)| {
                Some(Self {
                    key: self.key.clone(),
                    path: format!("{}[{index}]", self.path),
                    name: self.name.clone(),
                    value: value.clone(),
                    alone: with(Value::Array(vec![value.clone()]))?,
                    pointer: format!("{}/0", self.pointer),
                })
            }),
            _ => None,
        }
    }

    /// What the model says of 0, which every type of number has: its range.
    fn range(&self) -> Option<String> {
        let mut alone = self.alone.clone();
        *alone.pointer_mut(&self.pointer)? = 0.into();
        let error = parse(&alone).ok()?.check().err()?;
        let message = format!("{error:#}");
        let (_, range) = message.split_once(&format!("{} = 0 is not ", self.name))?;
        Some(range.to_owned())
    }

    fn explain(&self, message: &str) -> String {
        let expected = message.rsplit_once(", expected ").map(|(_, what)| what);
        let whole = |most: u64| format!("a whole number, 0 to {most}");
        let wanted = match expected {
            Some("u8") => whole(u8::MAX.into()),
            Some("u16") => whole(u16::MAX.into()),
            Some("u32") => whole(u32::MAX.into()),
            // TOML's integers end there.
            Some("u64") => whole(i64::MAX as u64),
            Some("f64") => "a number".into(),
            Some("a sequence") => format!("a list, e.g. [{}]", self.value),
            Some("a string" | "path string" | "string or map") => "text in quotes".into(),
            Some("a boolean") => "true or false".into(),
            Some("variant identifier") => "the name of a model in quotes".into(),
            Some("internally tagged enum Model") => "a table, { model = \"...\" }".into(),
            Some(what) if what.starts_with("struct ") => "one table, { name = value }".into(),
            _ => return format!("`{}` = {}: {message}", self.path, self.value),
        };
        let wanted = self.range().unwrap_or(wanted);
        format!("`{}` = {}: it must be {wanted}", self.path, self.value)
    }
}
