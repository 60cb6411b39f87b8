//! The hands in the kernel: system calls, netlink, maps, programs. They decide nothing.

pub mod address;
pub mod btf;
pub(crate) mod capture;
pub mod echo;
pub mod explain;
pub mod filter;
pub mod grace;
pub mod hooks;
pub mod htb;
pub mod layouts;
pub(crate) mod locked;
pub mod maps;
pub mod netlink;
pub mod qdisc;
pub mod route;
pub mod seed;
pub mod store;
pub mod sys;
pub mod tc;
pub mod tcp_real;
