//! Numbers shared with the kernel side, for programs with their own send path. They repeat `bpf/include/bb_abi.h`,
//! because an application must not need clang; a test of the workspace
//! (`tests/tests/client_encoding.rs`) compares them with the generated types.

/// Bits of the mark's time field.
pub const MARK_TIME_BITS: u32 = 19;
/// Nanoseconds per unit of the mark's time field.
pub const MARK_UNIT_NS: u64 = 250_000;
/// The mark's time field.
pub const MARK_TIME_MASK: u32 = (1 << MARK_TIME_BITS) - 1;
/// Set: the time is a lifetime. Clear: a deadline modulo 2^19 units.
pub const MARK_RELATIVE: u32 = 1 << 19;
/// Lowest bit of the 3-bit priority.
pub const MARK_PRIORITY_SHIFT: u32 = 20;
/// Lowest bit of the 2-bit treatment.
pub const MARK_TREATMENT_SHIFT: u32 = 23;
/// Lowest bit of the 3-bit rolling ADU id.
pub const MARK_ADU_SHIFT: u32 = 25;
/// Lowest bit of the 4-bit magic.
pub const MARK_MAGIC_SHIFT: u32 = 28;
/// The default magic.
pub const MARK_MAGIC: u32 = 0xB;

/// Treatment on the wire: send it although stale.
pub const TREAT_FORWARD: u32 = 1;
/// Treatment on the wire: drop it when stale.
pub const TREAT_DISCARD: u32 = 2;
/// Treatment on the wire: send only its headers when stale.
pub const TREAT_TRUNCATE: u32 = 3;

/// Socket option level (caught by bestby's cgroup program, unknown to the kernel).
pub const SOL_BESTBY: i32 = 0x4242;
/// `u64` ns; 0 clears.
pub const SO_LIFETIME: i32 = 1;
/// `u32` 0..=7.
pub const SO_PRIORITY: i32 = 2;
/// `u32`, [`TREAT_FORWARD`], [`TREAT_DISCARD`] or [`TREAT_TRUNCATE`].
pub const SO_TREATMENT: i32 = 3;
/// 16-byte address, `u64` owd in ns, `u64` rate in bytes/s.
pub const SO_PEER: i32 = 4;
/// `getsockopt` only: 17 × `u64` counters of this socket.
pub const SO_STATS: i32 = 5;

/// Longest lifetime that socket options and relative marks accept, in ns.
pub const LIFETIME_MAX_NS: u64 = 131_000_000_000;
/// Farthest deadline that a mark can carry, in ns from now: half of the
/// circle of 2^19 units, minus what a packet may wait between the encoding and
/// the classifier.
pub const MARK_AHEAD_MAX_NS: u64 = 65_000_000_000;
/// A deadline that has passed by more is encoded as passed by this much (in
/// ns): stale either way, and far from where the circle would turn it into the future.
pub const MARK_PAST_MAX_NS: u64 = 30_000_000_000;
