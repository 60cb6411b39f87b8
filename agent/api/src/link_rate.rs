//! The rate of an interface: set by the operator, or found by the data path within bounds.

use std::fmt;
use std::str::FromStr;

use crate::Rate;
use crate::value::ValueError;

const ALLOWED: &str = "a rate from 1kbit to 1000gbit, for example 10mbit; auto; or auto with bounds, \
     for example auto:64kbit..10mbit, auto:..10mbit or auto:1mbit..";

/// Between these the data path finds a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    least: Rate,
    most: Option<Rate>,
}

impl Bounds {
    /// The least rate unless the operator sets another: 64 kbit/s.
    pub const LEAST: Rate = match Rate::from_bytes_per_s(8_000) {
        Some(rate) => rate,
        None => Rate::MIN,
    };

    /// Bounds; `None` if the least rate is above the most. The default of `least` is [`Bounds::LEAST`], or `most` where
    /// that is lower.
    pub fn new(least: Option<Rate>, most: Option<Rate>) -> Option<Self> {
        let least = least.unwrap_or_else(|| most.map_or(Self::LEAST, |m| m.min(Self::LEAST)));
        most.is_none_or(|most| least <= most)
            .then_some(Self { least, most })
    }

    /// The rate in force is never below.
    pub const fn least(self) -> Rate {
        self.least
    }

    /// The rate in force is never above; `None`: nothing bounds it.
    pub const fn most(self) -> Option<Rate> {
        self.most
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            least: Self::LEAST,
            most: None,
        }
    }
}

/// The rate of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkRate {
    /// The operator set it.
    Fixed(Rate),
    /// The data path finds it.
    Auto(Bounds),
}

impl LinkRate {
    /// The rate that the operator set.
    pub const fn fixed(self) -> Option<Rate> {
        match self {
            Self::Fixed(rate) => Some(rate),
            Self::Auto(_) => None,
        }
    }

    /// The bounds of a rate that is found.
    pub const fn auto(self) -> Option<Bounds> {
        match self {
            Self::Fixed(_) => None,
            Self::Auto(bounds) => Some(bounds),
        }
    }

    /// The interface never sends more; `None`: nothing bounds it.
    pub const fn most(self) -> Option<Rate> {
        match self {
            Self::Fixed(rate) => Some(rate),
            Self::Auto(bounds) => bounds.most,
        }
    }

    /// The interface may always send as much.
    pub const fn least(self) -> Rate {
        match self {
            Self::Fixed(rate) => rate,
            Self::Auto(bounds) => bounds.least,
        }
    }
}

impl From<Rate> for LinkRate {
    fn from(rate: Rate) -> Self {
        Self::Fixed(rate)
    }
}

impl FromStr for LinkRate {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("rate", s, problem, ALLOWED);
        let rate = |text: &str| -> Result<Rate, ValueError> {
            text.parse().map_err(|e: ValueError| refuse(e.problem))
        };
        let Some(rest) = s.strip_prefix("auto") else {
            return rate(s).map(Self::Fixed);
        };
        if rest.is_empty() {
            return Ok(Self::Auto(Bounds::default()));
        }
        let Some(bounds) = rest.strip_prefix(':') else {
            return Err(refuse("bounds follow auto and a colon".into()));
        };
        let Some((least, most)) = bounds.split_once("..") else {
            return Err(refuse("bounds have two dots between them".into()));
        };
        if least.is_empty() && most.is_empty() {
            return Err(refuse("has no bound".into()));
        }
        let bound = |text: &str| match text {
            "" => Ok(None),
            text => rate(text).map(Some),
        };
        Bounds::new(bound(least)?, bound(most)?)
            .map(Self::Auto)
            .ok_or_else(|| refuse("the first bound is above the second".into()))
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(rate) => rate.fmt(f),
            Self::Auto(Bounds { least, most }) => f.pad(&match most {
                Some(most) => format!("auto:{least}..{most}"),
                None if *least == Bounds::LEAST => "auto".into(),
                None => format!("auto:{least}.."),
            }),
        }
    }
}

string_value!(LinkRate, "a rate such as \"10mbit\", or \"auto\"");

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    #[test]
    fn link_rate_is_read_set_and_found() {
        let bounds = |least: &str, most: Option<&str>| {
            LinkRate::Auto(Bounds::new(Some(rate(least)), most.map(rate)).unwrap())
        };
        for (text, is, printed) in [
            ("10mbit", LinkRate::Fixed(rate("10mbit")), "10mbit"),
            ("auto", bounds("64kbit", None), "auto"),
            ("auto:64kbit..", bounds("64kbit", None), "auto"),
            ("auto:1mbit..", bounds("1mbit", None), "auto:1mbit.."),
            (
                "auto:..10mbit",
                bounds("64kbit", Some("10mbit")),
                "auto:64kbit..10mbit",
            ),
            // The default gives way.
            (
                "auto:..32kbit",
                bounds("32kbit", Some("32kbit")),
                "auto:32kbit..32kbit",
            ),
        ] {
            let read: LinkRate = text.parse().unwrap();
            assert_eq!(read, is, "{text}");
            assert_eq!(read.to_string(), printed);
        }
    }

    #[test]
    fn malformed_link_rate_is_refused_with_what_is_allowed() {
        for (text, reason) in [
            ("auto:..", "no bound"),
            ("auto:", "two dots"),
            ("auto:1mbit", "two dots"),
            ("auto:2mbit..1mbit", "above"),
            ("auto:1..2mbit", "unit"),
            ("auto:1mbit..x", "decimal"),
            ("auto:1mbit..2mbit..3mbit", "unit of rate"),
            ("auto:0mbit..", "small"),
            ("automatic", "colon"),
            ("auto ", "colon"),
            ("AUTO", "decimal"),
            ("", "decimal"),
        ] {
            let error = text.parse::<LinkRate>().unwrap_err();
            assert!(error.problem.contains(reason), "{text}: {error}");
            assert!(error.full().contains("auto:64kbit..10mbit"), "{error}");
        }
        assert!(serde_json::from_str::<LinkRate>("\"auto\"").is_ok());
        assert!(serde_json::from_str::<LinkRate>("{}").is_err());
    }

    proptest! {
        #[test]
        fn printed_link_rate_parses_to_same_link_rate(
            fixed: bool, least in of(125u64..=125_000_000_000), most in of(125u64..=125_000_000_000),
        ) {
            let [least, most] = [least, most].map(|r| r.and_then(Rate::from_bytes_per_s));
            let rate = match (fixed, least) {
                (true, Some(rate)) => Some(LinkRate::Fixed(rate)),
                _ => Bounds::new(least, most).map(LinkRate::Auto),
            };
            if let Some(rate) = rate {
                prop_assert_eq!(rate.to_string().parse::<LinkRate>().unwrap(), rate);
                prop_assert!(rate.most().is_none_or(|most| rate.least() <= most));
            }
        }

        #[test]
        fn parsing_any_text_never_panics(text in "(auto)?:?\\PC{0,40}") {
            let _ = text.parse::<LinkRate>();
        }
    }
}
