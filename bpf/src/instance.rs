//! What an instance of the queue (`struct bbq_instance`) says to the outside.

use crate::abi::{bb_counters, bb_times};
use zerocopy::FromBytes as _;

/// What an instance of the queue counted and saw.
#[derive(Debug, Clone, Copy, Default)]
pub struct Instance {
    /// What passed.
    pub counters: bb_counters,
    /// How long it waited.
    pub times: bb_times,
    /// Packets that it holds.
    pub packets: u32,
    /// Their bytes, without overhead.
    pub bytes: u64,
    /// What its device takes.
    pub device: Device,
}

/// What a device took while it pushed back (`struct bbq_device`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Device {
    /// Bytes/s that left it when it was in the way last; 0: it never was.
    pub rate: u64,
    /// When that was, ns of `CLOCK_MONOTONIC`.
    pub seen_ns: u64,
}

/// Reads an instance from its value in `bbq_instances`; `None`: the value is too short.
///
/// A packet that is alone in the queue is counted when it leaves, or lines up with others. Here it counts
/// as queued already, but for its bytes. The value is read while packets move: for the moment in which
/// the packet leaves, it may be missing, or be there twice.
#[must_use]
pub fn instance(value: &[u8]) -> Option<Instance> {
    let (mut counters, rest) = bb_counters::read_from_prefix(value).ok()?;
    let (times, rest) = bb_times::read_from_prefix(rest).ok()?;
    let ([alone, packets], rest) = <[u32; 2]>::read_from_prefix(rest).ok()?;
    let ([bytes, _rate, rate, seen_ns], _) = <[u64; 4]>::read_from_prefix(rest).ok()?;
    if alone != 0 {
        counters.packets_in = counters.packets_in.wrapping_add(1);
        counters.queued = counters.queued.wrapping_add(1);
    }
    Some(Instance {
        counters,
        times,
        packets,
        bytes,
        device: Device { rate, seen_ns },
    })
}
