//! `bestbyd`: loads the BPF programs, keeps them loaded, and serves the control API.
//!
//! The data path (programs, links, maps, qdiscs) is pinned and outlives the agent. One thread owns what is
//! loaded ([`datapath::Datapath`]) and runs the commands it is sent; the rest is asynchronous: the control
//! API, the RTT feed and the drop notices.

pub mod datapath;
pub mod desired;
pub mod discover;
pub mod error;
pub mod faces;
pub mod feeds;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzzed;
pub mod kernel;
pub mod observed;
pub mod parts;
pub mod plan;

/// Fingerprint (FNV-1a) of an object: tells an upgrade from a restart.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
