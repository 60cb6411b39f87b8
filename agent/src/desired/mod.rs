//! What is wanted: the file and what commands set.

pub mod book;
pub mod file;
pub mod interfaces;
pub mod taken;
