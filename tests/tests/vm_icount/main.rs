//! Tests in a VM in virtual time (`just test-vm`): what they measure does not depend on the host.

#![allow(clippy::unwrap_used)] // helpers of tests

mod auto;
mod bounds;
mod buffer;
mod bundle;
mod chain;
mod codel;
mod cost;
mod decoded;
mod device;
mod early;
mod etf;
mod hostile;
mod iptv;
mod lab;
mod network;
mod option;
mod owd;
mod pairs;
mod pictures;
mod plan;
#[path = "../qdisc_lab/mod.rs"]
mod qdisc_lab;
mod quic;
mod receivers;
mod repair;
mod ring;
#[allow(dead_code)] // it uses a part
#[path = "../ring_lab/mod.rs"]
mod ring_lab;
mod segment;
mod sfu;
mod sfu_lab;
mod slow;
mod srt;
mod survive;
mod tcp_real;
mod tcp_real_instructions;
#[path = "../tcp_real_lab/mod.rs"]
mod tcp_real_lab;
mod tcp_real_safety;
mod tfrc;
mod times;
mod triage;
mod ts;
mod turns;
mod txtime;
mod users;
