//! What is there: the host's names and clock, what an interface got, what is known of paths.

pub(crate) mod asker;
pub mod attached;
pub(crate) mod buffers;
pub mod clock;
pub mod names;
pub mod probes;
pub(crate) mod speed;
