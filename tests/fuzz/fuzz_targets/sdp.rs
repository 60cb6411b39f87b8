//! `tests/vm/suite fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bestby_agent::fuzzed::sdp(bytes));
