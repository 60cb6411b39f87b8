//! What stands at one place of a scenario file: a value with its unit and range, or a list
//! of them, which sweeps. Each type checks itself while it is read, so that an error
//! carries the file's line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeInclusive,
};

use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use toml::{Spanned, Value};

use crate::{
    sys::MILLI,
    traffic::{Class, Schedule},
};

/// One value, or several: then the scenario runs with each of them in turn.
#[derive(Clone, Debug)]
pub(super) struct Sweep<T> {
    pub(super) values: Vec<T>,
    /// Where it stands in the file, byte.
    pub(super) at: usize,
}

impl<'de, T: DeserializeOwned + fmt::Display> Deserialize<'de> for Sweep<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = Spanned::<Value>::deserialize(deserializer)?;
        let at = found.span().start;
        let list = match found.into_inner() {
            Value::Array(list) => list,
            value => vec![value],
        };
        let values: Vec<T> = list
            .into_iter()
            .map(|value| T::deserialize(value).map_err(|error| D::Error::custom(error.message())))
            .collect::<Result<_, _>>()?;
        distinct(&values).map_err(D::Error::custom)?;
        Ok(Self { values, at })
    }
}

/// Refuses a list that is empty or has a value twice, by what cells are named after.
pub(super) fn distinct<T: fmt::Display>(values: &[T]) -> Result<(), String> {
    if values.is_empty() {
        return Err("an empty list: give at least one value, or leave the line out".into());
    }
    let mut seen = BTreeSet::new();
    match values.iter().find(|value| !seen.insert(value.to_string())) {
        None => Ok(()),
        Some(value) => Err(format!(
            "`{value}` stands in the list twice: leave one of them out"
        )),
    }
}

fn number(value: &Value, what: &str, allowed: RangeInclusive<f64>) -> Result<f64, String> {
    let number = match *value {
        Value::Integer(number) => number as f64,
        Value::Float(number) => number,
        _ => f64::NAN,
    };
    if allowed.contains(&number) {
        // -0 would be named otherwise than 0.
        return Ok(number + 0.0);
    }
    let (least, most) = (allowed.start(), allowed.end());
    Err(format!("{what} must be {least} to {most}, not {value}"))
}

fn whole(value: &Value, what: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
    let (least, most) = (allowed.start(), allowed.end());
    number
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| format!("{what} must be a whole number, {least} to {most}, not {value}"))
}

/// Numbers within a range; errors say what they are and the range.
macro_rules! ranged {
    ($($(#[$doc:meta])* $name:ident($kind:ty): $read:ident, $what:literal, $allowed:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize)]
        #[serde(try_from = "Value")]
        pub struct $name(pub $kind);

        impl TryFrom<Value> for $name {
            type Error = String;

            fn try_from(value: Value) -> Result<Self, String> {
                $read(&value, $what, $allowed).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ranged! {
    /// A delay in ms.
    Millis(f64): number, "a delay in ms", 0.0..=10_000.0;
    /// A one-way delay in ms: with a longer one the receiver has given a run up, since nothing came for 1.5 s and a
    /// queue's own delay must fit in, too.
    OwdMillis(f64): number, "owd (ms)", 0.0..=1000.0;
    /// How long data is of use in ms; what is of no use when it is created is not worth sending.
    LifetimeMillis(f64): number, "a lifetime in ms", 1.0..=60_000.0;
    /// A time at the start of a run in s.
    Discard(f64): number, "discard_first (s)", 0.0..=3600.0;
    /// A share in percent.
    Percent(f64): number, "a share in percent", 0.0..=100.0;
    /// Offered rate / link rate.
    Load(f64): number, "a load (offered rate / link rate)", 0.01..=100.0;
    /// Relative error of an estimate: -0.2 tells bestby 20 % too little.
    Error(f64): number, "a relative error", -0.95..=10.0;
    /// Runs of each cell.
    Repetitions(u64): whole, "repetitions", 1..=1000;
    /// Length of a run.
    Seconds(u64): whole, "seconds", 1..=3600;
    /// Of the first repetition; JSON has no larger numbers.
    Seed(u64): whole, "seed", 0..=(1 << 53) - 1;
    /// What the router's bucket holds.
    BucketBytes(u64): whole, "burst (bytes)", 1600..=10_000_000;
    /// Competing TCP flows.
    TcpFlows(u64): whole, "tcp (flows)", 0..=64;
}

impl Millis {
    /// In ns.
    pub fn ns(self) -> u64 {
        (self.0 * MILLI as f64).round() as u64
    }
}

/// A link's rate in bit/s, 8 kbit/s to 10 Gbit/s: a number, or text with a unit
/// (`"253kbit"`, `"1.5mbit"`, `"1gbit"`).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Rate(pub u64);

impl TryFrom<Value> for Rate {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let bits = match &value {
            Value::Integer(bits) => Some(*bits as f64),
            Value::Float(bits) => Some(*bits),
            Value::String(text) => with_unit(text),
            _ => None,
        };
        let allowed = bits.filter(|bits| (8e3..=1e10).contains(bits));
        let rate = allowed.map(|bits| Self(bits.round() as u64));
        rate.ok_or_else(|| {
            format!(
                "a rate is 8000 to 10000000000 in bit/s, or text such as \"253kbit\", \
                 \"1.5mbit\", \"1gbit\", not {value}"
            )
        })
    }
}

fn with_unit(text: &str) -> Option<f64> {
    let unit = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit.trim() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits if bits % 1_000 == 0 => write!(f, "{}kbit", bits / 1_000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

/// How long data is of use: one number of ms for all, or one for each class
/// (`{ audio = 150, video = 1000 }`; a class left out keeps what its model says).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct Lifetime(BTreeMap<Class, LifetimeMillis>);

impl TryFrom<Value> for Lifetime {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        if !value.is_table() {
            let all = LifetimeMillis::try_from(value).map_err(|error| {
                format!("{error}, nor a table {{ audio = ms, video = ms, data = ms }}")
            })?;
            return Ok(Self(Class::ALL.map(|class| (class, all)).into()));
        }
        let own = BTreeMap::deserialize(value).map_err(|error| error.message().to_owned())?;
        match own.is_empty() {
            true => Err("a lifetime names at least one of audio, video, data".into()),
            false => Ok(Self(own)),
        }
    }
}

impl Lifetime {
    /// Of all classes, if they live equally long.
    fn equal(&self) -> Option<LifetimeMillis> {
        let all = *self.0.get(&Class::Audio)?;
        (self.0.len() == 3 && self.0.values().all(|own| *own == all)).then_some(all)
    }

    /// The classes it names, unless all live equally long: then it names none in particular.
    pub(super) fn named(&self) -> impl Iterator<Item = Class> {
        let all = self.equal().is_some();
        self.0.keys().copied().filter(move |_| !all)
    }

    /// Gives the packets of `schedule` these lifetimes.
    pub fn apply(&self, schedule: &mut Schedule) {
        schedule.set_lifetimes(|class| self.0.get(&class).map(|own| Millis(own.0).ns()));
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(all) = self.equal() {
            return all.fmt(f);
        }
        let each = self.0.iter();
        let parts: Vec<String> = each
            .map(|(class, own)| format!("{} {own}", class.name()))
            .collect();
        f.write_str(&parts.join(" "))
    }
}
