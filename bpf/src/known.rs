//! What the classifier looks at before it looks for an address.

use crate::abi::bb_addr;

unsafe extern "C" {
    safe fn bbn_known_index(addr: &bb_addr) -> u32;
}

/// Index in the map `bb_known`.
#[must_use]
pub fn known_index(addr: &bb_addr) -> u32 {
    bbn_known_index(addr)
}
