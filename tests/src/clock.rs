//! Clocks of the kernel, in the ABI's unit: nanoseconds.
#![allow(clippy::unwrap_used)]

use std::mem::MaybeUninit;

/// One millisecond, ns.
pub const MS: u64 = 1_000_000;
/// One second, ns.
pub const SECOND: u64 = 1_000 * MS;

/// `CLOCK_MONOTONIC`, ns: the data path's clock.
#[must_use]
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Any clock, ns.
///
/// # Panics
/// When the kernel has no such clock.
#[must_use]
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call fills the timespec that it points to.
    let t = unsafe {
        assert_eq!(libc::clock_gettime(clock, t.as_mut_ptr()), 0);
        t.assume_init()
    };
    u64::try_from(t.tv_sec).unwrap() * SECOND + u64::try_from(t.tv_nsec).unwrap()
}
