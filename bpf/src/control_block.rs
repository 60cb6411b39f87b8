//! The control block as the kernel side reads and checks it.

use crate::abi::bb_cb;
use zerocopy::{FromBytes as _, IntoBytes as _};

unsafe extern "C" {
    safe fn bbn_cb_check(first: u64, second: u64, adu: u32) -> u16;
    safe fn bbn_cb_deadline(second: u64, now_ns: u64) -> u64;
}

/// The words as which the kernel side reads the block: two of 64 bits, then the ADU.
fn words(cb: &bb_cb) -> (u64, u64, u32) {
    let [a, b, c, d, adu] = <[u32; 5]>::read_from_bytes(cb.as_bytes()).unwrap_or_default();
    let word = |low, high| u64::from(low) | u64::from(high) << 32;
    (word(a, b), word(c, d), adu)
}

fn check(cb: &bb_cb) -> u16 {
    let (first, second, adu) = words(cb);
    bbn_cb_check(first, second, adu)
}

/// A control block with this deadline (0 = none) and the check that fits it.
#[must_use]
pub fn seal(mut cb: bb_cb, deadline: u64) -> bb_cb {
    let bytes = deadline.to_le_bytes();
    let [a, b, c, d, e, f, g, _] = bytes;
    cb.deadline_lo = u32::from_le_bytes([a, b, c, d]);
    cb.deadline_hi = [e, f, g];
    cb.check = check(&cb);
    cb
}

/// Whether the check fits: nobody wrote to the block since.
#[must_use]
pub fn sealed(cb: &bb_cb) -> bool {
    cb.check == check(cb)
}

/// The deadline as read at `now_ns`, whatever the flags say of it.
#[must_use]
pub fn deadline(cb: &bb_cb, now_ns: u64) -> u64 {
    bbn_cb_deadline(words(cb).1, now_ns)
}
