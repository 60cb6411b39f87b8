//! What the kernel makes of a DSCP.

unsafe extern "C" {
    safe fn bbn_dscp_so_priority(dscp: u8) -> u32;
}

/// The `SO_PRIORITY` that the kernel gives an IPv4 socket whose TOS is set, and an IPv4 packet that it forwards.
#[must_use]
pub fn dscp_so_priority(dscp: u8) -> u32 {
    bbn_dscp_so_priority(dscp)
}
