//! What each counter is, said once: the struct and its JSON keys, the text that `bestby stats` prints and the
//! metric that Prometheus scrapes are made of the same line.

use std::borrow::Cow;

/// One number that is counted or measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Its key in JSON.
    pub key: &'static str,
    /// What tables of text call it.
    pub name: &'static str,
    /// What is counted, or the base unit: `packets`, `bytes`, `seconds`; empty: a number without one.
    pub unit: &'static str,
    /// What it means, in one line.
    pub help: &'static str,
}

impl Described {
    /// The metric's name without what is in front and behind: words, then the unit (`bytes_in` is `in_bytes`).
    pub fn stem(&self) -> Cow<'static, str> {
        if self.unit.is_empty() {
            return self.key.into();
        }
        let rest = self
            .key
            .strip_prefix(self.unit)
            .and_then(|rest| rest.strip_prefix('_'));
        format!("{}_{}", rest.unwrap_or(self.key), self.unit).into()
    }
}

/// A struct of counters: one line each, with what text calls it, its unit and its meaning.
macro_rules! counted {
    (
        $(#[$doc:meta])* $struct:ident {
            $($field:ident: $name:literal, $unit:literal, $help:literal;)+
        }
        $(by reason { $($drops:ident: $drops_name:literal, $drops_help:literal;)+ })?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $struct {
            $(#[doc = $help] pub $field: u64,)+
            $($(#[doc = $drops_help] pub $drops: Drops,)+)?
        }

        impl $struct {
            /// What each of [`Self::values`] is.
            pub const DESCRIBED: &'static [$crate::Described] = &[
                $($crate::Described {
                    key: stringify!($field), name: $name, unit: $unit, help: $help
                }),+
            ];

            /// The counters, in the order of [`Self::DESCRIBED`].
            pub const fn values(&self) -> [u64; Self::DESCRIBED.len()] {
                [$(self.$field),+]
            }

            /// Name, value and meaning of each counter.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> + use<> {
                Self::DESCRIBED.iter().zip(self.values()).map(|(d, value)| (d.name, value, d.help))
            }

            $(
                /// What each of [`Self::by_reason`] is; packets.
                pub const BY_REASON: &'static [$crate::Described] = &[
                    $($crate::Described {
                        key: stringify!($drops), name: $drops_name, unit: "packets", help: $drops_help
                    }),+
                ];

                /// What is counted by reason, in the order of [`Self::BY_REASON`].
                pub const fn by_reason(&self) -> [Drops; Self::BY_REASON.len()] {
                    [$(self.$drops),+]
                }
            )?
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stem_ends_in_the_unit_once() {
        let stem = |key, unit| {
            let described = Described {
                key,
                name: "",
                unit,
                help: "",
            };
            described.stem().into_owned()
        };
        assert_eq!(stem("bytes_in", "bytes"), "in_bytes");
        assert_eq!(stem("queued", "packets"), "queued_packets");
        assert_eq!(stem("no_rtt", ""), "no_rtt");
        // A word that begins like the unit is not the unit.
        assert_eq!(stem("bytestream", "bytes"), "bytestream_bytes");
    }
}
