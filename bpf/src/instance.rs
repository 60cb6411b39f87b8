//! What an instance of the queue (`struct bbq_instance`) says to the outside.

use crate::abi::{bb_counters, bb_times};
use zerocopy::FromBytes as _;

/// Counters and times of an instance from its value in `bbq_instances`; `None`: the value is too short.
///
/// A packet that is alone in the queue is counted when it leaves, or lines up with others. Here it counts
/// as queued already, but for its bytes. The value is read while packets move: for the moment in which
/// the packet leaves, it may be missing, or be there twice.
#[must_use]
pub fn instance(value: &[u8]) -> Option<(bb_counters, bb_times)> {
    let (mut counters, rest) = bb_counters::read_from_prefix(value).ok()?;
    let (times, rest) = bb_times::read_from_prefix(rest).ok()?;
    let (alone, _) = u32::read_from_prefix(rest).ok()?;
    if alone != 0 {
        counters.packets_in = counters.packets_in.wrapping_add(1);
        counters.queued = counters.queued.wrapping_add(1);
    }
    Some((counters, times))
}

/// Packets and bytes that an instance of the queue holds, from its value in `bbq_instances`; `None`: the value is too
/// short.
#[must_use]
pub fn held(value: &[u8]) -> Option<(u32, u64)> {
    let rest = value.get(size_of::<bb_counters>() + size_of::<bb_times>()..)?;
    let (_alone, rest) = u32::read_from_prefix(rest).ok()?;
    let (packets, rest) = u32::read_from_prefix(rest).ok()?;
    let (bytes, _) = u64::read_from_prefix(rest).ok()?;
    Some((packets, bytes))
}
