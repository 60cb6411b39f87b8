//! Tests in a VM (`just test-vm`): of the queue, which needs CONFIG_NET_SCH_BPF, and of what kernels differ in.

#![allow(clippy::unwrap_used)] // helpers of tests

mod agent;
mod client;
#[path = "../client_lab/mod.rs"]
mod client_lab;
mod clock;
mod qdisc;
mod qdisc_host;
#[path = "../qdisc_lab/mod.rs"]
mod qdisc_lab;
mod qdisc_limit;
mod qdisc_packets;
mod qdisc_users;
mod queues;
mod ring;
#[allow(dead_code)] // it uses a part
#[path = "../ring_lab/mod.rs"]
mod ring_lab;
mod segment;
mod stamp;
#[allow(dead_code)] // it uses a part
#[path = "../root/stamp_lab/mod.rs"]
mod stamp_lab;
mod survive;
#[path = "../survive_lab/mod.rs"]
mod survive_lab;
mod tcp_real;
mod tcp_real_kernels;
#[path = "../tcp_real_lab/mod.rs"]
mod tcp_real_lab;
mod teardown_kernels;
#[allow(dead_code)] // it uses a part
#[path = "../teardown_lab/mod.rs"]
mod teardown_lab;
mod truncate;
mod tunnel;
mod tunnel_lab;
mod verifier;
mod vlan;
