//! The HTB tree below mode tc.
//!
//! ```text
//! bb:  htb, default 18, everything unknown goes there
//!  └ bb:1   the interface's rate
//!     ├ bb:10            control
//!     ├ bb:11 .. bb:17   packets with metadata: strict order by HTB's own prio
//!     └ bb:18            traffic without metadata: a guaranteed share, and what the others leave
//! ```
//! The classifier picks the leaf through `skb->priority`.

use crate::error::Result;
use crate::netlink::encode;
use crate::tc::{Link, Tc, handle};

/// Minor number of the leaf of priority 0.
pub const LEAF: u16 = bestby_bpf::abi::BB_TC_LEAF_MINOR as u16;
/// Minor number of the leaf for traffic without metadata.
pub const PLAIN_LEAF: u16 = LEAF + bestby_bpf::abi::BB_TC_LEAF_PLAIN as u16;
/// Of the rate, guaranteed to traffic without metadata: media cannot starve the host.
const PLAIN_SHARE: u64 = bestby_bpf::abi::BB_TC_PLAIN_SHARE as u64;
/// Of the rate, guaranteed to each priority, so that no class waits for ever.
const LEAF_SHARE: u64 = 256;

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const LINKLAYER_ETHERNET: u8 = 1;
/// The kernel's tick of `struct tc_htb_opt`, ns.
const TICK_NS: u64 = 64;
/// Time a class may save up: makes up for timers that a busy host runs late (what is not made up for, the
/// classifier's model never learns: its packets then arrive late); too little to let a second packet out at
/// once at the rates where that matters (a full packet takes 12 ms at 1 Mbit/s).
const BURST_NS: u64 = 6_000_000;

/// One class: guaranteed rate, upper rate (bytes/s), order of borrowing.
struct Class {
    rate: u64,
    ceil: u64,
    prio: u32,
    overhead: u16,
    quantum: u32,
}

impl Class {
    /// `TCA_OPTIONS` of the class.
    fn options(&self) -> Vec<u8> {
        let mut parms = Vec::with_capacity(44);
        for rate in [self.rate, self.ceil] {
            // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate. Naming the link
            // layer spares the rate table that old kernels wanted.
            parms.extend([0, LINKLAYER_ETHERNET]);
            parms.extend(self.overhead.to_ne_bytes());
            parms.extend([0; 4]);
            parms.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
        }
        let ticks = u32::try_from(BURST_NS / TICK_NS).unwrap_or(u32::MAX);
        for word in [ticks, ticks, self.quantum, 0, self.prio] {
            parms.extend(word.to_ne_bytes());
        }
        encode(&[
            (TCA_HTB_PARMS, parms),
            (TCA_HTB_RATE64, self.rate.to_ne_bytes().to_vec()),
            (TCA_HTB_CEIL64, self.ceil.to_ne_bytes().to_vec()),
        ])
    }
}

/// Builds the tree, or changes the rates of one that is there, without losing what is queued.
///
/// `rate` in bytes/s, `overhead` in bytes per packet, `limit` in packets per leaf.
///
/// # Errors
/// The kernel's refusal.
pub fn build(
    tc: &mut Tc,
    link: &Link,
    rate: u64,
    overhead: u16,
    limit: u32,
    existing: bool,
) -> Result<()> {
    if !existing {
        // struct tc_htb_glob: version 3, rate2quantum, default class, debug, direct packets.
        let glob: Vec<u8> = [3, 10, u32::from(PLAIN_LEAF), 0, 0]
            .iter()
            .flat_map(|w: &u32| w.to_ne_bytes())
            .collect();
        tc.place(
            link,
            "htb",
            handle(0),
            0,
            Some(&encode(&[(TCA_HTB_INIT, glob)])),
        )?;
    }
    // One packet in turn among equals; HTB warns below 1000.
    let quantum = link.mtu.clamp(1500, 60_000) + 18;
    let class = |rate: u64, ceil: u64, prio: u32| {
        Class {
            rate: rate.max(1),
            ceil,
            prio,
            overhead,
            quantum,
        }
        .options()
    };
    tc.class(link, 1, handle(0), &class(rate, rate, 0))?;
    for prio in 0..8u16 {
        let options = class(rate / LEAF_SHARE, rate, u32::from(prio));
        tc.class(link, LEAF + prio, handle(1), &options)?;
    }
    tc.class(
        link,
        PLAIN_LEAF,
        handle(1),
        &class(rate / PLAIN_SHARE, rate, 7),
    )?;
    for minor in LEAF..=PLAIN_LEAF {
        // struct tc_fifo_qopt: the limit. The classifier's model refuses long before.
        tc.place(
            link,
            "pfifo",
            u32::from(0xb00 + minor) << 16,
            handle(minor),
            Some(&limit.to_ne_bytes()),
        )?;
    }
    Ok(())
}
