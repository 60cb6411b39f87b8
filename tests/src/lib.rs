//! Shared by the integration tests.

pub mod agent;
pub mod bpf;
pub mod classify;
pub mod clock;
pub mod cpu;
pub mod ffmpeg;
pub mod frame;
pub mod load;
pub mod long;
pub mod netns;
pub mod program;
pub mod require;
pub mod socket;
pub mod stream;
pub mod truncated;
pub mod user;
