//! What stands at one place of a scenario file: a value with its unit and range,
//! or a list of them, which sweeps. Each type checks itself while it is read, so
//! that an error carries the file's line.

use std::{collections::HashSet, fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{
        self, IntoDeserializer as _,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use crate::{
    sys::MILLI,
    traffic::{Class, Schedule},
};

/// One value, or several: then the scenario runs with each of them in turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Axis<T>(pub Vec<T>);

impl<T> Axis<T> {
    /// An axis that stands still.
    pub fn one(value: T) -> Self {
        Self(vec![value])
    }

    /// Whether it sweeps.
    pub fn sweeps(&self) -> bool {
        self.0.len() > 1
    }
}

impl<'de, T: Deserialize<'de> + fmt::Display> Deserialize<'de> for Axis<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + fmt::Display> de::Visitor<'de> for Visit<T> {
            type Value = Axis<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of values")
            }
            fn visit_bool<E: de::Error>(self, v: bool) -> Result<Axis<T>, E> {
                T::deserialize(v.into_deserializer()).map(Axis::one)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Axis<T>, E> {
                T::deserialize(v.into_deserializer()).map(Axis::one)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Axis<T>, E> {
                T::deserialize(v.into_deserializer()).map(Axis::one)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Axis<T>, E> {
                T::deserialize(v.into_deserializer()).map(Axis::one)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Axis<T>, E> {
                T::deserialize(v.into_deserializer()).map(Axis::one)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Axis<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Axis::one)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Axis<T>, A::Error> {
                let values = Vec::<T>::deserialize(SeqAccessDeserializer::new(list))?;
                if values.is_empty() {
                    return Err(de::Error::custom(
                        "an empty list: give at least one value, or leave the line out",
                    ));
                }
                // By what cells are named after: two of a name would be one cell.
                let mut seen = HashSet::new();
                for value in &values {
                    if !seen.insert(value.to_string()) {
                        return Err(de::Error::custom(format!(
                            "`{value}` stands in the list twice: leave one of them out"
                        )));
                    }
                }
                Ok(Axis(values))
            }
        }
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

/// A number within a range; `RANGE` says so in errors.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $what:literal, $range:expr $(, $why:literal)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visit;
                impl de::Visitor<'_> for Visit {
                    type Value = $name;
                    // Said of what is no number at all.
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($what, ", a number"))
                    }
                    fn visit_i64<E: de::Error>(self, v: i64) -> Result<$name, E> {
                        self.visit_f64(v as f64)
                    }
                    fn visit_u64<E: de::Error>(self, v: u64) -> Result<$name, E> {
                        self.visit_f64(v as f64)
                    }
                    fn visit_f64<E: de::Error>(self, value: f64) -> Result<$name, E> {
                        let range = $range;
                        // A NaN is in no range.
                        if range.contains(&value) {
                            // -0 would be named otherwise than 0.
                            return Ok($name(value + 0.0));
                        }
                        Err(E::custom(format!(
                            concat!($what, " must be {} to {}, not {}" $(, ": ", $why)?),
                            range.start(), range.end(), value
                        )))
                    }
                }
                deserializer.deserialize_f64(Visit)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A delay in ms, 0 to 10,000.
    Millis, "a delay in ms", 0.0..=10_000.0
);
number!(
    /// The path's one-way delay in ms, 0 to 1000: behind that the receiver has given a run up.
    Owd, "owd (one way, a delay in ms)", 0.0..=1000.0,
    "a run ends when nothing has come for 1.5 s, and a queue's own delay must fit in, too"
);
number!(
    /// How long data is of use in ms, 1 to 10,000.
    LifetimeMillis, "a lifetime in ms", 1.0..=10_000.0,
    "what is of no use when it is created is not worth sending"
);
number!(
    /// A time at the start of a run in s, 0 to 3600.
    Discard, "discard_first (s)", 0.0..=3600.0
);
number!(
    /// A share in percent, 0 to 100.
    Percent, "a share in percent", 0.0..=100.0
);
number!(
    /// Offered rate / link rate, 0.01 to 100.
    Load, "a load (offered rate / link rate)", 0.01..=100.0
);
number!(
    /// Relative error of an estimate: -0.2 tells bestby 20 % too little; -0.95 to 10.
    Error, "a relative error", -0.95..=10.0
);

impl Millis {
    /// In ns.
    pub fn ns(self) -> u64 {
        (self.0 * MILLI as f64).round() as u64
    }

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.ns())
    }
}

/// A link's rate in bit/s, 8 kbit/s to 10 Gbit/s: a number, or text with a unit
/// (`"253kbit"`, `"1.5mbit"`, `"1gbit"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Rate(pub u64);

impl Rate {
    const ALLOWED: &str = "a rate is 8000 to 10000000000 in bit/s, or text such as \"253kbit\", \"1.5mbit\", \"1gbit\"";

    fn new(bits: f64) -> Option<Self> {
        (8e3..=1e10)
            .contains(&bits)
            .then(|| Self(bits.round() as u64))
    }

    fn parse(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let factor = match unit.trim() {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return None,
        };
        Self::new(number.parse::<f64>().ok()? * factor)
    }
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

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl de::Visitor<'_> for Visit {
            type Value = Rate;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Rate, E> {
                self.visit_f64(v as f64)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Rate, E> {
                self.visit_f64(v as f64)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Rate, E> {
                Rate::new(v).ok_or_else(|| E::custom(format!("{v} bit/s: {}", Rate::ALLOWED)))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Rate, E> {
                Rate::parse(v).ok_or_else(|| E::custom(format!("`{v}`: {}", Rate::ALLOWED)))
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

/// How long data is of use, ms: one number for all, or one for each class
/// (`{ audio = 150, video = 1000 }`; a class left out keeps what its model says).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lifetime {
    /// Of audio packets.
    pub audio: Option<Millis>,
    /// Of video frames.
    pub video: Option<Millis>,
    /// Of all other packets.
    pub data: Option<Millis>,
}

/// [`Lifetime`] as a table.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PerClass {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audio: Option<LifetimeMillis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    video: Option<LifetimeMillis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<LifetimeMillis>,
}

impl Lifetime {
    /// The same for every class.
    pub fn equal(millis: f64) -> Self {
        let all = Some(Millis(millis));
        Self {
            audio: all,
            video: all,
            data: all,
        }
    }

    /// Whether all classes live equally long.
    pub fn is_equal(&self) -> bool {
        self.audio.is_some() && self.audio == self.video && self.video == self.data
    }

    /// The classes it names, unless all live equally long: then it names none in particular.
    pub fn named(&self) -> Vec<Class> {
        if self.is_equal() {
            return Vec::new();
        }
        let own = [
            (Class::Audio, self.audio),
            (Class::Video, self.video),
            (Class::Data, self.data),
        ];
        let named = own.iter().filter(|(_, own)| own.is_some());
        named.map(|(class, _)| *class).collect()
    }

    /// Gives the packets of `schedule` these lifetimes.
    pub fn apply(&self, schedule: &mut Schedule) {
        schedule.set_lifetimes(|class| {
            let own = match class {
                Class::Audio => self.audio,
                Class::Video => self.video,
                Class::Data => self.data,
            };
            own.map(Millis::ns)
        });
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (true, Some(all)) = (self.is_equal(), self.audio) {
            return write!(f, "{all}");
        }
        let parts = [
            ("audio", self.audio),
            ("video", self.video),
            ("data", self.data),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter_map(|(class, own)| own.map(|ms| format!("{class} {ms}")))
            .collect();
        f.write_str(&parts.join(" "))
    }
}

impl Serialize for Lifetime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (true, Some(all)) = (self.is_equal(), self.audio) {
            return all.serialize(serializer);
        }
        let own = |millis: Option<Millis>| millis.map(|ms| LifetimeMillis(ms.0));
        PerClass {
            audio: own(self.audio),
            video: own(self.video),
            data: own(self.data),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Lifetime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl Visit {
            fn equal<E: de::Error>(value: f64) -> Result<Lifetime, E> {
                LifetimeMillis::deserialize(value.into_deserializer())
                    .map(|ms| Lifetime::equal(ms.0))
            }
        }
        impl<'de> de::Visitor<'de> for Visit {
            type Value = Lifetime;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a lifetime in ms, or a table { audio = ms, video = ms, data = ms }")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Lifetime, E> {
                Self::equal(v as f64)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Lifetime, E> {
                Self::equal(v as f64)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Lifetime, E> {
                Self::equal(v)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Lifetime, A::Error> {
                let own = PerClass::deserialize(MapAccessDeserializer::new(map))?;
                let millis = |own: Option<LifetimeMillis>| own.map(|ms| Millis(ms.0));
                let lifetime = Lifetime {
                    audio: millis(own.audio),
                    video: millis(own.video),
                    data: millis(own.data),
                };
                if lifetime == Lifetime::default() {
                    return Err(de::Error::custom(
                        "a lifetime of no class: name at least one of audio, video, data, or \
                         leave the line out",
                    ));
                }
                Ok(lifetime)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}
