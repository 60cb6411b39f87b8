//! Scenarios: TOML files that say what is run, without touching Rust.

pub mod cell;
pub mod value;
