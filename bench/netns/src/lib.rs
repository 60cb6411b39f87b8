//! Network namespaces of the lab and of the tests, and programs in them.
//!
//! A crate of its own because the tests need namespaces but none of the lab:
//! they are built and run without its traffic, reports and solvers.

pub mod cleanup;
pub mod netns;
pub mod run;
pub mod tun;
pub mod wait;
