//! What measures beside the data path: RTTs of TCP, probes of paths.

pub mod prober;
pub mod rtt;
