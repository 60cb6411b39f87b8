//! Shared by the integration tests.

pub mod bpf;
pub mod frame;
