//! The lab of bestby: network namespaces, seeded traffic, queues of bestby and
//! of its peers on the same path, and what arrived in time.
//!
//! - [`netns`], [`tun`], [`cleanup`], [`run`], [`wait`], [`sys`]: namespaces that vanish with their
//!   guard or on Ctrl-C, commands in them, waiting for them, exact clocks;
//! - [`traffic`]: schedules from a seed, the sender, the receiver;
//! - [`topology`], [`queue`], [`bestby`],
//!   [`slip`], [`line`], [`sniff`], [`srt`]: the path and what is tried on it;
//! - [`tfrc`], [`dccp`], [`competing`], [`download`]: the congestion control that SFDPS worked
//!   on, the kernel's own, the TCP flows beside it, and TCP by itself;
//! - [`fading`], [`transfer`]: losses that come and go, and bulk TCP over them;
//! - [`bound`], [`simulator`]: what no queue can beat, and queues without a kernel;
//! - [`measure`], [`records`], [`columns`]: what came of it;
//! - [`scenario`], [`series`]: files that say what is run, and all their runs, for `bench/report` to judge;
//! - [`demo`]: the same gain on real media;
//! - [`core`]: the figures that every change of the data path is held against.

#[macro_use]
pub mod say;

pub mod bestby;
pub mod bound;
pub mod columns;
pub mod competing;
pub mod core;
pub mod dccp;
mod decoder;
pub mod demo;
pub mod download;
pub mod fading;
pub mod line;
pub mod measure;
pub mod program;
mod provenance;
pub mod queue;
pub mod records;
pub mod scenario;
pub mod series;
pub mod simulator;
pub mod slip;
pub mod sniff;
pub mod srt;
pub mod sys;
mod table;
pub mod tfrc;
pub mod topology;
pub mod traffic;
pub mod transfer;

pub use bestby_netns::{cleanup, netns, run, tun, wait};
