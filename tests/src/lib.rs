//! Shared by the integration tests.

pub mod bpf;
pub mod frame;
pub mod netns;
pub mod require;
