//! Numbers and times as people read them.

use anstyle::{AnsiColor, Style};
use bestby_api::Rate;

/// What is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What deserves a look.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
/// What is wrong.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();

/// Three significant digits and the first unit of which there is one; `None`: it is less than each.
fn three_digits(n: u64, units: [(u64, &str); 3]) -> Option<String> {
    let (size, unit) = units.into_iter().find(|(size, _)| n >= *size)?;
    let hundredths = n / (size / 100);
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    Some(match (whole, rest) {
        (100.., _) | (_, 0) => format!("{whole}{unit}"),
        (10.., _) => format!("{whole}.{}{unit}", rest / 10),
        _ => format!("{whole}.{rest:02}{unit}"),
    })
}

/// `3.4ms`; three significant digits.
pub(crate) fn time(ns: u64) -> String {
    if ns == 0 {
        return "0s".into();
    }
    three_digits(ns, [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")])
        .unwrap_or_else(|| format!("{ns}ns"))
}

/// `2h 5min`, `3min 1s`, `12s`.
pub(crate) fn long_time(seconds: u64) -> String {
    match seconds {
        86_400.. => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3_600),
        3_600.. => format!("{}h {}min", seconds / 3_600, seconds % 3_600 / 60),
        60.. => format!("{}min {}s", seconds / 60, seconds % 60),
        _ => format!("{seconds}s"),
    }
}

/// `1.5 MB`; decimal units, as network people count.
pub(crate) fn bytes(n: u64) -> String {
    for (size, unit) in [
        (1_000_000_000_000u64, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1_000, "kB"),
    ] {
        if n >= size {
            let tenths = n / (size / 10);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{n} B")
}

/// Kernel memory, in binary units.
pub(crate) fn memory(n: u64) -> String {
    for (size, unit) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if n >= size {
            let tenths = n / (size / 10).max(1);
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{n} B")
}

/// A rate in the form in which it would be typed; rates that cannot be typed in bits per second.
pub(crate) fn rate(bytes_per_s: u64) -> String {
    Rate::from_bytes_per_s(bytes_per_s).map_or_else(
        || format!("{}bit", bytes_per_s.saturating_mul(8)),
        |r| r.to_string(),
    )
}

/// A rate that was measured: `18.8mbit`; three significant digits.
pub(crate) fn measured_rate(bytes_per_s: u64) -> String {
    let bits = bytes_per_s.saturating_mul(8);
    let units = [
        (1_000_000_000, "gbit"),
        (1_000_000, "mbit"),
        (1_000, "kbit"),
    ];
    three_digits(bits, units).unwrap_or_else(|| format!("{bits}bit"))
}

/// Something that may not be known.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_string(), |v| v.to_string())
}

/// Time of day in UTC, to the microsecond, of nanoseconds since 1970.
pub(crate) fn clock(unix_ns: u64) -> String {
    let (s, us) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000 / 1_000);
    format!(
        "{:02}:{:02}:{:02}.{us:06}Z",
        s / 3_600 % 24,
        s / 60 % 60,
        s % 60
    )
}

/// `1 flow`, `2 flows`.
pub(crate) fn count(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_printed_with_three_digits_and_its_unit() {
        for (ns, text) in [
            (0, "0s"),
            (999, "999ns"),
            (1_500, "1.50us"),
            (40_000_000, "40ms"),
            (12_345_678, "12.3ms"),
            (123_456_789, "123ms"),
            (1_234_000_000, "1.23s"),
            (u64::MAX, "18446744073s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(long_time(59), "59s");
        assert_eq!(long_time(7_500), "2h 5min");
        assert_eq!(clock(1_795_230_000_123_456_789), "03:00:00.123456Z");
    }

    #[test]
    fn size_and_rate_are_printed_with_their_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_540), "1.5 kB");
        assert_eq!(bytes(u64::MAX), "18446744.0 TB");
        assert_eq!(memory(3 << 20), "3.0 MiB");
        assert_eq!(rate(31_625), "253kbit");
        assert_eq!(rate(1), "8bit");
        for (bytes_per_s, text) in [
            (1, "8bit"),
            (31_625, "253kbit"),
            (2_359_296, "18.8mbit"),
            (1_000_000_000, "8gbit"),
        ] {
            assert_eq!(measured_rate(bytes_per_s), text);
        }
    }
}
