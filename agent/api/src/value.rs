//! What every typed value has in common: one error, one JSON form.

use thiserror::Error;

/// Longest part of a refused input that is repeated in the message.
const SHOWN: usize = 60;

/// An input that is not a value of the wanted kind; says what would be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{kind} \"{input}\": {problem}")]
pub struct ValueError {
    /// What was to be read, e.g. `rate`.
    pub kind: &'static str,
    /// What was given (shortened when long).
    pub input: String,
    /// What is wrong with it.
    pub problem: String,
    /// What is allowed, with an example.
    pub allowed: &'static str,
}

impl ValueError {
    pub(crate) fn new(
        kind: &'static str,
        input: &str,
        problem: impl Into<String>,
        allowed: &'static str,
    ) -> Self {
        let mut shown: String = input
            .chars()
            .take(SHOWN)
            .flat_map(char::escape_debug)
            .collect();
        if input.chars().count() > SHOWN {
            shown.push_str("...");
        }
        Self {
            kind,
            input: shown,
            problem: problem.into(),
            allowed,
        }
    }

    /// The message and what is allowed, on one line.
    pub fn full(&self) -> String {
        format!("{self}; allowed: {}", self.allowed)
    }
}

/// Gives a `FromStr + Display` type its JSON form: the string an operator types. A plain number is read as
/// if it had been typed.
macro_rules! string_value {
    ($type:ty, $what:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<$type, E> {
                        v.parse()
                            .map_err(|e: $crate::value::ValueError| E::custom(e.full()))
                    }
                    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<$type, E> {
                        self.visit_str(&v.to_string())
                    }
                    fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<$type, E> {
                        self.visit_str(&v.to_string())
                    }
                    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<$type, E> {
                        self.visit_str(&v.to_string())
                    }
                }
                d.deserialize_any(Visitor)
            }
        }
    };
}

/// An integer in a range, written as a number in JSON.
macro_rules! ranged_number {
    ($(#[$doc:meta])* $name:ident($repr:ty), $kind:literal, $min:expr, $max:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// Smallest value.
            pub const MIN: Self = Self($min);
            /// Largest value.
            pub const MAX: Self = Self($max);

            /// The value itself.
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl TryFrom<u64> for $name {
            type Error = $crate::value::ValueError;
            fn try_from(v: u64) -> Result<Self, Self::Error> {
                if (u64::from(Self::MIN.0)..=u64::from(Self::MAX.0)).contains(&v) {
                    #[allow(clippy::cast_possible_truncation)]
                    return Ok(Self(v as $repr));
                }
                Err($crate::value::ValueError::new($kind, &v.to_string(), "out of range", $allowed))
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::value::ValueError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                let refuse = |problem: &str| $crate::value::ValueError::new($kind, s, problem, $allowed);
                if s.is_empty() || !s.bytes().all(|b| b.is_ascii_digit()) {
                    return Err(refuse("not a whole number"));
                }
                let v: u64 = s.parse().map_err(|_| refuse("out of range"))?;
                Self::try_from(v).map_err(|_| refuse("out of range"))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_u64(u64::from(self.0))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($allowed)
                    }
                    fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<$name, E> {
                        $name::try_from(v).map_err(|e| E::custom(e.full()))
                    }
                    fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<$name, E> {
                        v.parse().map_err(|e: $crate::value::ValueError| E::custom(e.full()))
                    }
                }
                d.deserialize_any(Visitor)
            }
        }
    };
}

/// An enum whose variants are the words an operator types.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $allowed:literal, { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word an operator types.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::value::ValueError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::value::ValueError::new($kind, s, "unknown", $allowed)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        string_value!($name, $allowed);
    };
}
