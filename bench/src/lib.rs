//! The lab of bestby: network namespaces, seeded traffic, queues of bestby and
//! of its peers on the same path, and what arrived in time.
//!
//! - [`netns`], [`cleanup`], [`run`]: namespaces that vanish with their guard or on Ctrl-C.

pub mod cleanup;
pub mod netns;
pub mod run;
