//! What works beside the data path: RTTs of TCP, probes of paths, send buffers.

pub mod buffers;
pub mod prober;
pub mod rtt;
