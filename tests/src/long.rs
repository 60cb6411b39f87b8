//! Tests that also have a long run, by `tests/vm/suite survive`.

/// `long` in the long run, else `short`.
#[must_use]
pub fn run<T>(short: T, long: T) -> T {
    let asked = std::env::var_os("BESTBY_LONG").is_some_and(|v| v == "1");
    if asked { long } else { short }
}

/// What the random choices of a test begin with: `BESTBY_SEED`, or 1. Printed, so that a failure can be repeated.
///
/// # Panics
/// If it is no number.
#[must_use]
pub fn seed() -> u64 {
    let seed = std::env::var("BESTBY_SEED").map_or(1, |text| text.parse().expect("BESTBY_SEED"));
    println!("seed {seed}");
    seed
}
