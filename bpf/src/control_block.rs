//! The control block as the kernel side reads and checks it.

use crate::abi::bb_cb;
use zerocopy::{FromBytes as _, IntoBytes as _};

unsafe extern "C" {
    fn bbn_cb_check(words: *const u32) -> u16;
    safe fn bbn_cb_deadline(lo: u32, hi24: u32, now_ns: u64) -> u64;
}

fn check(cb: &bb_cb) -> u16 {
    let words = <[u32; 5]>::read_from_bytes(cb.as_bytes()).unwrap_or_default();
    // SAFETY: the function reads the five words it is given, and nothing else.
    unsafe { bbn_cb_check(words.as_ptr()) }
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
    let [e, f, g] = cb.deadline_hi;
    bbn_cb_deadline(cb.deadline_lo, u32::from_le_bytes([e, f, g, 0]), now_ns)
}
