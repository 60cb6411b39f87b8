//! Series: all runs of scenarios, one after the other, and what is kept of them.

pub mod summary;
