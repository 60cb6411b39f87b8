//! The BPF programs of bestby, compiled, and the types that cross between them
//! and the agent.
//!
//! - [`abi`]: generated from `include/bb_abi.h` (`just gen`),
//! - [`maps`], [`qdisc`], [`real`]: libbpf skeletons,
//! - [`floor`]: the least a BPF qdisc can do, for the lab,
//! - [`CLASSIFY`], [`LEAF`], [`SEGMENT`], [`SOCKOPT`], [`BUFFER`], [`RTT`], [`ANSWER`], [`REAL_HOOKS`]: objects for
//!   Aya.

#[allow(clippy::undocumented_unsafe_blocks)]
pub mod abi;

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]
mod skeletons {
    pub mod maps {
        include!(concat!(env!("OUT_DIR"), "/maps.skel.rs"));
    }
    pub mod floor {
        include!(concat!(env!("OUT_DIR"), "/floor.skel.rs"));
    }
    pub mod qdisc {
        include!(concat!(env!("OUT_DIR"), "/qdisc.skel.rs"));
    }
    pub mod real {
        include!(concat!(env!("OUT_DIR"), "/real.skel.rs"));
    }
}
pub use skeletons::{floor, maps, qdisc, real};

mod control_block;
pub use control_block::{deadline, seal, sealed};

mod instance;
pub use instance::{Device, Instance, instance};

mod dscp;
pub use dscp::dscp_so_priority;

mod known;
pub use known::known_index;

mod netns;
pub use netns::netns_cookie;

mod sizes;
pub use sizes::{
    SPARE_PACKETS, packets_per_instance, qdisc_sizes, quantum, tc_leaf_bound, tc_leaf_bytes,
};

mod test_run;
pub use test_run::{SkBuff, TestRun, test_run};

/// An embedded ELF object; aligned so that a parser may read headers in place.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($name:literal) => {{
        static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(
            env!("OUT_DIR"),
            "/",
            $name,
            ".bpf.o"
        )));
        &OBJECT.0
    }};
}

/// `maps.bpf.c`, as bytes: the shared maps and their types.
pub static MAPS: &[u8] = object!("maps");
/// `qdisc.bpf.c`, as bytes: the agent tells by them whether an upgrade is due.
pub static QDISC: &[u8] = object!("qdisc");
/// `classify.bpf.c`: tcx/clsact egress.
pub static CLASSIFY: &[u8] = object!("classify");
/// `leaf.bpf.c`: the filter of mode tc's HTB tree.
pub static LEAF: &[u8] = object!("leaf");
/// `segment.bpf.c`: netkit, where super-packets are cut.
pub static SEGMENT: &[u8] = object!("segment");
/// `sockopt.bpf.c`: cgroup setsockopt and getsockopt.
pub static SOCKOPT: &[u8] = object!("sockopt");
/// What raises send buffers, for the cgroup.
pub static BUFFER: &[u8] = object!("buffer");
/// `rtt.bpf.c`: `sock_ops` RTT callback.
pub static RTT: &[u8] = object!("rtt");
/// `answer.bpf.c`: tcx/clsact ingress, answers of STUN and RTCP.
pub static ANSWER: &[u8] = object!("answer");
/// `real.bpf.c`, as bytes: the agent tells by them whether an upgrade is due.
pub static REAL: &[u8] = object!("real");
/// `real_hooks.bpf.c`: TCP-Real's `sock_ops` and tcx ingress.
pub static REAL_HOOKS: &[u8] = object!("real_hooks");

mod real_rate;
pub use real_rate::real_rate;
