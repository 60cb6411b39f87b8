//! Times: lifetimes, one-way delays, and other spans; nanoseconds inside, `200ms` outside.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::number::Quantity;
use crate::value::ValueError;

/// Reads a time in nanoseconds; `problem` on failure.
pub(crate) fn parse_ns(s: &str) -> Result<u64, String> {
    let quantity = Quantity::split(s).map_err(|p| p.text().to_string())?;
    let unit_ns: u128 = match quantity.unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "" => return Err("has no unit".into()),
        unit => return Err(format!("\"{}\" is not a unit of time", unit.escape_debug())),
    };
    u64::try_from(quantity.times(unit_ns, 1)).map_err(|_| "is too long".into())
}

/// The shortest form without loss.
fn format_ns(ns: u64) -> String {
    for (unit_ns, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        // One decimal place is still easy to read: 1.5s rather than 1500ms.
        if ns >= unit_ns && ns.is_multiple_of(unit_ns / 10) {
            let (whole, tenth) = (ns / unit_ns, ns % unit_ns / (unit_ns / 10));
            return if tenth == 0 {
                format!("{whole}{unit}")
            } else {
                format!("{whole}.{tenth}{unit}")
            };
        }
    }
    if ns == 0 {
        "0s".into()
    } else {
        format!("{ns}ns")
    }
}

macro_rules! time_value {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $min:expr, $max:expr, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Shortest allowed.
            pub const MIN: Self = Self($min);
            /// Longest allowed.
            pub const MAX: Self = Self($max);

            /// From nanoseconds, `None` when out of range.
            pub const fn from_ns(ns: u64) -> Option<Self> {
                #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)]
                if ns < Self::MIN.0 || ns > Self::MAX.0 {
                    return None;
                }
                Some(Self(ns))
            }

            /// Nanoseconds.
            pub const fn as_ns(self) -> u64 {
                self.0
            }

            /// As a standard duration.
            pub const fn as_duration(self) -> Duration {
                Duration::from_nanos(self.0)
            }
        }

        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(s: &str) -> Result<Self, ValueError> {
                let refuse = |problem: String| ValueError::new($kind, s, problem, $allowed);
                let ns = parse_ns(s).map_err(refuse)?;
                Self::from_ns(ns).ok_or_else(|| {
                    refuse(if ns < Self::MIN.0 { "is too short" } else { "is too long" }.into())
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format_ns(self.0))
            }
        }

        string_value!($name, $allowed);
    };
}

time_value!(
    /// How long data is of use, counted from when it was created or first seen: 1 us to 131 s.
    Lifetime, "lifetime", 1_000, 131_000_000_000,
    "a number with us, ms or s, from 1us to 131s, for example 200ms"
);

/// What a flow rule says of its packets' lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowLifetime {
    /// The data is of use for so long.
    Time(Lifetime),
    /// A TCP segment is of use until its sender sends it again: the retransmission timeout.
    Rto,
}

impl FlowLifetime {
    /// `None`: what the packet's socket says.
    pub const fn time(self) -> Option<Lifetime> {
        match self {
            Self::Time(time) => Some(time),
            Self::Rto => None,
        }
    }
}

impl From<Lifetime> for FlowLifetime {
    fn from(time: Lifetime) -> Self {
        Self::Time(time)
    }
}

impl FromStr for FlowLifetime {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        if s == "rto" {
            return Ok(Self::Rto);
        }
        s.parse().map(Self::Time)
    }
}

impl fmt::Display for FlowLifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => time.fmt(f),
            Self::Rto => f.pad("rto"),
        }
    }
}

string_value!(
    FlowLifetime,
    "a number with us, ms or s, from 1us to 131s, for example 200ms; or rto"
);

time_value!(
    /// One-way delay from this host to a receiver: 0 to 10 s.
    Owd, "one-way delay", 0, 10_000_000_000,
    "a number with us, ms or s, from 0s to 10s, for example 40ms"
);

time_value!(
    /// Age limit of a measurement: 100 ms to 1 hour.
    Span, "time", 100_000_000, 3_600_000_000_000,
    "a number with ms, s or min, from 100ms to 60min, for example 30s"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lifetime_is_read_and_printed_in_every_unit() {
        for (text, ns, printed) in [
            ("200ms", 200_000_000, "200ms"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("1500ms", 1_500_000_000, "1.5s"),
            ("250us", 250_000, "250us"),
            ("250µs", 250_000, "250us"),
            ("131s", 131_000_000_000, "131s"),
            ("1234567ns", 1_234_567, "1234567ns"),
            ("0.04s", 40_000_000, "40ms"),
        ] {
            let t: Lifetime = text.parse().unwrap();
            assert_eq!(t.as_ns(), ns, "{text}");
            assert_eq!(t.to_string(), printed);
        }
        assert_eq!("0s".parse::<Owd>().unwrap().to_string(), "0s");
    }

    #[test]
    fn malformed_lifetime_is_refused() {
        for (text, reason) in [
            ("0ms", "short"),
            ("-200ms", "negative"),
            ("132s", "long"),
            ("NaN", "decimal"),
            ("200", "unit"),
            ("200ms!", "ms!"),
            ("200 ms", "unit"),
            ("1e3ms", "e3ms"),
            ("999999999999999s", "long"),
        ] {
            let error = text.parse::<Lifetime>().unwrap_err();
            assert!(error.problem.contains(reason), "{text}: {error}");
        }
        assert!("11s".parse::<Owd>().is_err());
        assert!("99ms".parse::<Span>().is_err());
    }

    proptest! {
        #[test]
        fn printed_lifetime_parses_to_same_lifetime(ns in 1_000u64..=131_000_000_000) {
            let t = Lifetime::from_ns(ns).unwrap();
            prop_assert_eq!(t.to_string().parse::<Lifetime>().unwrap(), t);
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Lifetime>();
        }
    }
}
