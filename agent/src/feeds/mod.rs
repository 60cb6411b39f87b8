//! What works beside the data path: RTTs of TCP, probes of paths, send buffers, echo requests that
//! find a rate.

pub mod buffers;
pub mod echo;
pub mod prober;
pub mod rtt;
