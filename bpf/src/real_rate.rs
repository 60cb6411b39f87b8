//! What the option of TCP-Real says, in numbers.

unsafe extern "C" {
    safe fn bbn_real_rate(code: u8) -> u64;
}

/// A rate as the option codes it, in bytes/s; 0 is "not known".
#[must_use]
pub fn real_rate(code: u8) -> u64 {
    bbn_real_rate(code)
}
