//! The HTB tree below mode tc.
//!
//! ```text
//! bb:  htb, default 18, everything unknown goes there
//!  └ bb:1   the interface's rate
//!     ├ bb:10            control
//!     ├ bb:11 .. bb:17   media: strict order by HTB's own prio
//!     └ bb:18            all other traffic: a guaranteed share, and what the others leave
//! ```
//! The classifier picks the leaf by lifetime and priority (`bb_tc_leaf.h`). It tells HTB through `skb->priority`, or,
//! where a device below reads that, through a filter at the root (`leaf.bpf.c`). Each leaf holds as many bytes as the
//! classifier's model says (`bestby_bpf::tc_leaf_bytes`): what does not fit is dropped there, and the model does not
//! count it.

use bestby_api::Leaf;
use bestby_bpf::abi::bb_iface;

use crate::error::Result;
use crate::kernel::netlink::encode;
use crate::kernel::tc::{Link, Tc, handle};

/// Minor number of the leaf of priority 0.
pub const LEAF: u16 = bestby_bpf::abi::BB_TC_LEAF_MINOR as u16;
/// Minor number of the leaf for all that is not media.
pub const PLAIN_LEAF: u16 = LEAF + bestby_bpf::abi::BB_TC_LEAF_PLAIN as u16;
/// Of the rate, guaranteed to each priority, so that no class waits for ever.
const LEAF_SHARE: u64 = 256;

const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const TCA_FQ_CODEL_TARGET: u16 = 1;
const TCA_FQ_CODEL_LIMIT: u16 = 2;
const TCA_FQ_CODEL_INTERVAL: u16 = 3;
const TCA_FQ_CODEL_MEMORY_LIMIT: u16 = 9;
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

/// The part of the rate that what is not media has at least, bytes/s.
fn plain_rate(iface: &bb_iface) -> u64 {
    let (rate, share) = (iface.rate, u64::from(iface.plain_share));
    rate / 100 * share + rate % 100 * share / 100
}

/// Whether two settings of an interface want different trees.
pub fn differs(a: &bb_iface, b: &bb_iface) -> bool {
    let wanted = |i: &bb_iface| (i.rate, i.overhead, i.plain_share, i.limit_bytes);
    wanted(a) != wanted(b)
}

/// Builds the tree, or changes the rates of one that is there, without losing what is queued.
///
/// # Errors
/// The kernel's refusal.
pub fn build(tc: &mut Tc, link: &Link, iface: &bb_iface, existing: bool) -> Result<()> {
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
    let rate = iface.rate;
    let class = |rate: u64, ceil: u64, prio: u32| {
        Class {
            rate: rate.max(1),
            ceil,
            prio,
            overhead: u16::try_from(iface.overhead).unwrap_or(u16::MAX),
            quantum,
        }
        .options()
    };
    tc.class(link, 1, handle(0), &class(rate, rate, 0))?;
    for prio in 0..8u16 {
        let options = class(rate / LEAF_SHARE, rate, u32::from(prio));
        tc.class(link, LEAF + prio, handle(1), &options)?;
    }
    let plain = plain_rate(iface);
    tc.class(link, PLAIN_LEAF, handle(1), &class(plain, rate, 7))?;
    for minor in LEAF..=PLAIN_LEAF {
        let bytes = bestby_bpf::tc_leaf_bytes(u32::from(minor - LEAF), rate, iface.limit_bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let own = u32::from(0xb00 + minor) << 16;
        // Users cannot be told apart by the tree: below the leaf they share, flows at least are.
        if minor == PLAIN_LEAF {
            let fair = fair(link, plain, iface.limit, bytes);
            if tc
                .place(link, "fq_codel", own, handle(minor), Some(&fair))
                .is_ok()
            {
                continue;
            }
        }
        // struct tc_fifo_qopt: the limit, in bytes.
        tc.place(
            link,
            "bfifo",
            own,
            handle(minor),
            Some(&bytes.to_ne_bytes()),
        )?;
    }
    Ok(())
}

/// What so many bytes take at so many bytes/s, ns.
fn time(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// What the leaves of an interface's tree hold and counted, most important first.
///
/// # Errors
/// The kernel's refusal.
pub fn leaves(tc: &mut Tc, ifindex: u32, iface: &bb_iface) -> Result<Vec<Leaf>> {
    let counted = tc.counted(ifindex)?;
    let rate = iface.rate;
    let plain = plain_rate(iface);
    let mut before = 0;
    let leaf = |minor: u16| {
        let (_, stats) = counted
            .iter()
            .find(|(parent, _)| *parent == handle(minor))?;
        let own = u64::from(stats.backlog) + u64::from(stats.queued) * u64::from(iface.overhead);
        before += own;
        let mut delay_ns = time(before, rate);
        // It has a part of its own, whatever is before it.
        if minor == PLAIN_LEAF {
            delay_ns = delay_ns.min(time(own, plain));
        }
        Some(Leaf {
            holds: holds(minor),
            queued: stats.queued.into(),
            queued_bytes: stats.backlog.into(),
            packets_sent: stats.packets.into(),
            bytes_sent: stats.bytes,
            dropped: stats.drops.into(),
            delay_ns,
        })
    };
    Ok((LEAF..=PLAIN_LEAF).filter_map(leaf).collect())
}

fn holds(minor: u16) -> String {
    match minor {
        LEAF => "control".into(),
        PLAIN_LEAF => "plain".into(),
        _ if minor + 1 == PLAIN_LEAF => "longer lifetimes".into(),
        _ => {
            let ns = bestby_bpf::tc_leaf_bound(u32::from(minor - LEAF));
            format!("lifetimes to {}ms", ns / 1_000_000)
        }
    }
}

/// Options of fq_codel for a leaf of `rate` bytes/s that holds so many packets and bytes.
fn fair(link: &Link, rate: u64, limit: u32, bytes: u32) -> Vec<u8> {
    // Below the time of two packets it would drop what waits for nothing but the link.
    let packet_us = u64::from(link.mtu.max(1500)) * 1_000_000 / rate.max(1);
    let target = u32::try_from((2 * packet_us).max(5_000)).unwrap_or(u32::MAX / 20);
    let interval = target.saturating_mul(4).max(100_000);
    // It counts the memory of packets, about twice their bytes.
    encode(
        &[
            (TCA_FQ_CODEL_TARGET, target),
            (TCA_FQ_CODEL_LIMIT, limit.max(100)),
            (TCA_FQ_CODEL_INTERVAL, interval),
            (TCA_FQ_CODEL_MEMORY_LIMIT, bytes.saturating_mul(2)),
        ]
        .map(|(kind, value)| (kind, value.to_ne_bytes().to_vec())),
    )
}
