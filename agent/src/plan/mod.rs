//! From what is wanted to what the kernel must hold. Pure: no I/O, so every case has a test.

pub mod interfaces;
pub mod rules;
