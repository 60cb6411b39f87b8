//! What others see of the agent: API, metrics, drop notices, doctor, explain, statistics.

pub mod audit;
pub(crate) mod buffers;
pub mod control;
pub mod delay;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod interfaces;
pub mod journal;
mod media;
pub mod metrics;
mod path;
pub mod report;
pub mod session;
pub(crate) mod streams;
