//! Rates: typed in bits per second, kept in bytes per second as the kernel side needs them.

use std::fmt;
use std::str::FromStr;

use crate::number::Quantity;
use crate::value::ValueError;

const ALLOWED: &str = "a number with bit, kbit, mbit, gbit (bits per second) or B/s, kB/s, MB/s, GB/s \
     (bytes per second), from 1kbit to 1000gbit, for example 10mbit";

/// A rate, 1 kbit/s to 1000 Gbit/s, in steps of 8 bit/s (smaller parts are cut off).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// 1 kbit/s.
    pub const MIN: Self = Self(125);
    /// 1000 Gbit/s.
    pub const MAX: Self = Self(125_000_000_000);

    /// A rate from bytes per second, `None` when out of range.
    pub const fn from_bytes_per_s(bytes: u64) -> Option<Self> {
        if bytes < Self::MIN.0 || bytes > Self::MAX.0 {
            return None;
        }
        Some(Self(bytes))
    }

    /// Bytes per second.
    pub const fn bytes_per_s(self) -> u64 {
        self.0
    }

    /// Bits per second.
    pub const fn bits_per_s(self) -> u64 {
        self.0 * 8
    }
}

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("rate", s, problem, ALLOWED);
        let quantity = Quantity::split(s).map_err(|p| refuse(p.text().into()))?;
        // "10mb" and "10mbps" mean bits to some and bytes to others: refused rather than guessed.
        let (numerator, denominator) = match quantity.unit {
            "B/s" => (1, 1),
            "kB/s" => (1_000, 1),
            "MB/s" => (1_000_000, 1),
            "GB/s" => (1_000_000_000, 1),
            unit => match unit.to_ascii_lowercase().as_str() {
                "bit" | "bit/s" => (1, 8),
                "kbit" | "kbit/s" => (1_000, 8),
                "mbit" | "mbit/s" => (1_000_000, 8),
                "gbit" | "gbit/s" => (1_000_000_000, 8),
                "" => return Err(refuse("has no unit".into())),
                _ => {
                    return Err(refuse(format!(
                        "\"{}\" is not a unit of rate",
                        unit.escape_debug()
                    )));
                }
            },
        };
        let bytes = quantity.times(numerator, denominator);
        let bytes = u64::try_from(bytes).map_err(|_| refuse("is too large".into()))?;
        Self::from_bytes_per_s(bytes).ok_or_else(|| {
            refuse(
                if bytes < Self::MIN.0 {
                    "is too small"
                } else {
                    "is too large"
                }
                .into(),
            )
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_s();
        let text = match bits {
            b if b % 1_000_000_000 == 0 => format!("{}gbit", b / 1_000_000_000),
            b if b % 1_000_000 == 0 => format!("{}mbit", b / 1_000_000),
            b if b % 1_000 == 0 => format!("{}kbit", b / 1_000),
            b => format!("{b}bit"),
        };
        f.pad(&text)
    }
}

string_value!(Rate, "a rate such as \"10mbit\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rate_is_read_in_every_unit() {
        for (text, bytes) in [
            ("10mbit", 1_250_000),
            ("253kbit", 31_625),
            ("1.5Mbit", 187_500),
            ("1gbit/s", 125_000_000),
            ("31625B/s", 31_625),
            ("2.5kB/s", 2_500),
            ("1000gbit", 125_000_000_000),
            ("1kbit", 125),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap().bytes_per_s(), bytes, "{text}");
        }
    }

    #[test]
    fn malformed_rate_is_refused() {
        for (text, reason) in [
            ("0mbit", "small"),
            ("-1mbit", "negative"),
            ("NaNmbit", "decimal"),
            ("1e9mbit", "e9mbit"),
            ("10", "unit"),
            ("10mbps", "mbps"),
            ("10mbit extra", "extra"),
            ("1001gbit", "large"),
            ("999999999999999gbit", "large"),
            ("99999999999999999999999gbit", "digits"),
            ("", "decimal"),
        ] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.problem.contains(reason), "{text}: {error}");
            assert!(error.full().contains("10mbit"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn printed_rate_parses_to_same_rate(bytes in 125u64..=125_000_000_000) {
            let rate = Rate::from_bytes_per_s(bytes).unwrap();
            prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Rate>();
        }
    }
}
