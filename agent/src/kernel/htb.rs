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
/// Time a class may save up. It makes up for timers that a busy host runs late: else packets arrive late, and the
/// classifier's model never learns why. It is too little to let a second packet out at once at the rates where that
/// matters (a full packet takes 12 ms at 1 Mbit/s).
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

/// What a tree is made of.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    /// Settings of the interface; its rate, bytes/s, is that of the tree.
    pub iface: bb_iface,
    /// The leaves hold what they may at this rate, bytes/s. It is above the tree's where that one follows a path: a
    /// leaf that gets smaller could drop what it holds.
    pub room_for: u64,
}

/// Rates closer than this are not worth a change, per cent.
const WORTH_PERCENT: u64 = 3;

/// Whether a tree's rate should become another one.
pub const fn is_worth(has: u64, wants: u64) -> bool {
    has.abs_diff(wants).saturating_mul(100) > has.saturating_mul(WORTH_PERCENT)
}

/// The part of the rate that what is not media has at least, bytes/s.
fn plain_rate(iface: &bb_iface) -> u64 {
    let (rate, share) = (iface.rate, u64::from(iface.plain_share));
    rate / 100 * share + rate % 100 * share / 100
}

/// Whether two settings of an interface want different trees.
pub fn differs(a: &Tree, b: &Tree) -> bool {
    let wanted = |t: &Tree| {
        let i = &t.iface;
        (t.room_for, i.rate, i.overhead, i.plain_share, i.limit_bytes)
    };
    wanted(a) != wanted(b)
}

/// Gives the classes of a tree their rates, and makes them where they are not. What is queued stays.
///
/// # Errors
/// The kernel's refusal.
fn classes(tc: &mut Tc, link: &Link, iface: &bb_iface) -> Result<()> {
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
    tc.class(
        link,
        PLAIN_LEAF,
        handle(1),
        &class(plain_rate(iface), rate, 7),
    )
}

/// Handle of the qdisc below a leaf.
fn below(minor: u16) -> u32 {
    u32::from(0xb00 + minor) << 16
}

/// Gives a tree that is there another rate. Leaves hold as much as before, so nothing that is queued is dropped.
///
/// # Errors
/// The kernel's refusal.
pub fn follow(tc: &mut Tc, link: &Link, iface: &bb_iface) -> Result<()> {
    classes(tc, link, iface)?;
    // A kernel without fq_codel has another qdisc there, and refuses.
    let times = encode(&patience(link, plain_rate(iface)));
    let (own, parent) = (below(PLAIN_LEAF), handle(PLAIN_LEAF));
    let _ = tc.place(link, "fq_codel", own, parent, Some(&times));
    Ok(())
}

/// Builds the tree, or changes the rates of one that is there, without losing what is queued.
///
/// # Errors
/// The kernel's refusal.
pub fn build(tc: &mut Tc, link: &Link, tree: &Tree, existing: bool) -> Result<()> {
    let iface = &tree.iface;
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
    classes(tc, link, iface)?;
    let plain = plain_rate(iface);
    for minor in LEAF..=PLAIN_LEAF {
        let leaf = u32::from(minor - LEAF);
        let bytes = bestby_bpf::tc_leaf_bytes(leaf, tree.room_for, iface.limit_bytes);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let own = below(minor);
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
    let mut all = patience(link, rate).to_vec();
    // It counts the memory of packets, about twice their bytes.
    for (kind, value) in [
        (TCA_FQ_CODEL_LIMIT, limit.max(100)),
        (TCA_FQ_CODEL_MEMORY_LIMIT, bytes.saturating_mul(2)),
    ] {
        all.push((kind, value.to_ne_bytes().to_vec()));
    }
    encode(&all)
}

/// How long packets may wait in fq_codel at a leaf of `rate` bytes/s.
fn patience(link: &Link, rate: u64) -> [(u16, Vec<u8>); 2] {
    // Below the time of two packets it would drop what waits for nothing but the link.
    let packet_us = u64::from(link.mtu.max(1500)) * 1_000_000 / rate.max(1);
    let target = u32::try_from((2 * packet_us).max(5_000)).unwrap_or(u32::MAX / 20);
    let interval = target.saturating_mul(4).max(100_000);
    [
        (TCA_FQ_CODEL_TARGET, target),
        (TCA_FQ_CODEL_INTERVAL, interval),
    ]
    .map(|(kind, value)| (kind, value.to_ne_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_follows_a_rate_that_differs_by_more_than_three_per_cent() {
        for (has, wants, worth) in [
            (1000, 1000, false),
            (1000, 1030, false),
            (1000, 1031, true),
            (1000, 970, false),
            (1000, 969, true),
            (0, 1, true),
            (125_000_000_000, 1, true),
        ] {
            assert_eq!(is_worth(has, wants), worth, "{has} {wants}");
        }
    }
}
