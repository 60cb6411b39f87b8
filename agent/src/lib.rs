//! `bestbyd`: loads the BPF programs, keeps them loaded, and serves the control API.
//!
//! The data path (programs, links, maps, qdiscs) is pinned and outlives the agent. One thread owns what is
//! loaded ([`datapath::Datapath`]) and runs the commands it is sent; the rest is asynchronous: the control
//! API, the RTT feed and the drop notices.

pub mod attach;
pub mod attached;
pub mod book;
pub mod btf;
pub mod clock;
pub mod config;
pub mod control;
pub mod datapath;
pub mod doctor;
pub mod error;
pub mod events;
pub mod explain;
pub mod flows;
pub mod hooks;
pub mod htb;
pub mod ifaces;
pub mod layouts;
pub mod maps;
pub mod metrics;
pub mod names;
pub mod netlink;
pub mod prober;
pub mod probes;
pub mod qdisc;
pub mod report;
pub mod rtt;
pub mod rules;
pub mod ruleset;
pub mod seed;
pub mod segment;
pub mod store;
pub mod takeover;
pub mod tc;
pub mod tcp_real;
pub mod trust;

/// Fingerprint (FNV-1a) of an object: tells an upgrade from a restart.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
