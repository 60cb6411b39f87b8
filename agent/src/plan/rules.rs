//! Flow rules → shapes and keys of the kernel's tuple space search. Pure.
//!
//! Every rule becomes one or more masked keys. Rules that compare the same bits share a *shape* (a mask);
//! the classifier masks a packet with every shape and looks the result up, so its cost depends on the
//! number of shapes, not of rules. A port range is split into prefixes, each a shape of its own; each payload
//! type is a key of its own.

use std::collections::HashMap;
use std::net::IpAddr;

use bestby_api::{
    Chain, ExtensionId, FlowLifetime, FlowName, FlowRule, Frames, Media, MediaTables, PortRange,
    Prefix, RtpProfile, Stamp, Treatment,
};
use bestby_bpf::abi;
use zerocopy::IntoBytes;

use crate::desired::book::Entry;
use crate::error::{Error, Result};
use crate::kernel::address::address_bytes;
use crate::observed::names::Resolve;

// What a file is checked against is what the kernel's maps hold.
const _: () = assert!(
    bestby_api::MAX_COMBINATIONS == abi::BB_MAX_SHAPES as usize
        && bestby_api::MAX_KEYS == abi::BB_MAX_RULE_KEYS as usize / 2
        && bestby_api::MAX_RTX == abi::BB_RULE_RTX as usize
);

/// What the kernel's maps of one set must hold.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// Shapes, by their first order.
    pub shapes: Vec<abi::bb_shape>,
    /// Keys; `set` is 0 and must be filled in.
    pub keys: Vec<(abi::bb_rule_key, abi::bb_rule_ref)>,
    /// Values of `bb_rules` by id.
    pub rules: Vec<(u16, abi::bb_rule)>,
    /// Union of the marks that rules compare.
    pub flow_mark_mask: u32,
    /// Whether a rule compares payload types or SSRCs.
    pub rtp: bool,
    /// Whether a rule compares cgroups.
    pub cgroups: bool,
    /// Rules that match nothing yet, and why.
    pub waiting: Vec<(FlowName, String)>,
}

/// Compared bits of an address and their value.
fn prefix_bytes(prefix: Prefix) -> ([u8; 16], [u8; 16]) {
    // A prefix of 0 bits compares nothing here: the family does.
    let bits = match (prefix.bits(), prefix.addr()) {
        (0, _) => 0,
        (bits, IpAddr::V4(_)) => 96 + u32::from(bits),
        (bits, IpAddr::V6(_)) => u32::from(bits),
    };
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    let value = u128::from_be_bytes(address_bytes(prefix.addr())) & mask;
    (value.to_be_bytes(), mask.to_be_bytes())
}

/// The kernel's form of a payload type.
const fn rtp(payload_type: u8) -> u8 {
    abi::BB_RTP as u8 | payload_type
}

/// Values and mask of `bb_rule_key.rtp` for one rule.
fn payload_types(rule: &FlowRule, profile: RtpProfile) -> (Vec<u8>, u8) {
    match rule.payload_types(profile) {
        Some(types) => (types.iter().map(rtp).collect(), 0xff),
        // What is not RTP has SSRC 0 in the kernel's key.
        None if rule.ssrc.is_some() => (vec![rtp(0)], rtp(0)),
        None => (vec![0], 0),
    }
}

/// Value and mask of one rule without its ports and payload types, and the level of its cgroup; or why it waits.
fn masked(
    rule: &FlowRule,
    resolve: &dyn Resolve,
) -> Result<(abi::bb_rule_key, abi::bb_rule_key, u32), String> {
    let (mut key, mut mask) = (abi::bb_rule_key::default(), abi::bb_rule_key::default());
    let mut level = 0;
    for prefix in [rule.src, rule.dst].into_iter().flatten() {
        key.family = if prefix.addr().is_ipv4() { 4 } else { 6 };
        mask.family = 0xff;
    }
    if let Some(prefix) = rule.src {
        (key.src, mask.src) = prefix_bytes(prefix);
    }
    if let Some(prefix) = rule.dst {
        (key.dst, mask.dst) = prefix_bytes(prefix);
    }
    if let Some(proto) = rule.proto {
        (key.proto, mask.proto) = (proto.number(), 0xff);
    }
    if let Some(dscp) = rule.dscp {
        (key.dscp, mask.dscp) = (dscp.get(), 0xff);
    }
    if let Some(mark) = rule.mark {
        (key.mark, mask.mark) = (mark.value(), mark.mask());
    }
    if let Some(ssrc) = rule.ssrc {
        (key.ssrc, mask.ssrc) = (ssrc.get(), u32::MAX);
    }
    if let Some(dev) = &rule.dev {
        key.ifindex = resolve
            .ifindex(dev)
            .ok_or_else(|| format!("interface {dev} does not exist"))?;
        mask.ifindex = u32::MAX;
    }
    if let Some(path) = &rule.cgroup {
        (key.cgroup, level) = resolve
            .cgroup(path)
            .ok_or_else(|| resolve.no_cgroup(path))?;
        // Every socket is below the root: nothing to compare.
        if level == 0 {
            key.cgroup = 0;
        } else {
            mask.cgroup = u64::MAX;
        }
    }
    Ok((key, mask, level))
}

/// What a rule says, as the kernel reads it.
pub fn kernel_rule(rule: &FlowRule) -> abi::bb_rule {
    let mut flags = 0;
    if rule.frames == Some(Frames::None) {
        flags |= abi::BB_RULE_NO_FRAMES;
    }
    flags |= match rule.stamp {
        None | Some(Stamp::No) => 0,
        Some(Stamp::Yes) => abi::BB_RULE_STAMP,
        Some(Stamp::Probed) => abi::BB_RULE_STAMP | abi::BB_RULE_PROBED,
    };
    if rule.lifetime == Some(FlowLifetime::Rto) {
        flags |= abi::BB_RULE_RTO;
    }
    if rule.media == Some(Media::Off) {
        flags |= abi::BB_RULE_BLIND;
    }
    flags |= match rule.chain {
        None | Some(Chain::Auto) => 0,
        Some(Chain::Skip) => abi::BB_RULE_CHAIN_SKIP,
        Some(Chain::Off) => abi::BB_RULE_CHAIN_OFF,
    };
    let mut roles = 0;
    if let Some(given) = rule.roles {
        flags |= abi::BB_RULE_ROLES;
        for priority in given.priorities().iter().rev() {
            roles = roles << 3 | u16::from(priority.get());
        }
    }
    let mut rtx = [abi::bb_rtx::default(); abi::BB_RULE_RTX as usize];
    let pairs = rule.rtx.as_ref().map_or(&[][..], |r| r.pairs());
    for (entry, (repeats, original)) in rtx.iter_mut().zip(pairs) {
        entry.rtx = rtp(*repeats);
        entry.original = original.map_or(0, rtp);
    }
    let treatment = match rule.treatment {
        None => abi::BB_TREAT_DEFAULT,
        Some(Treatment::Forward) => abi::BB_TREAT_FORWARD,
        Some(Treatment::Discard) => abi::BB_TREAT_DISCARD,
        Some(Treatment::Truncate) => abi::BB_TREAT_TRUNCATE,
    };
    abi::bb_rule {
        lifetime_ns: rule
            .lifetime
            .and_then(FlowLifetime::time)
            .map_or(0, |l| l.as_ns()),
        owd_default_ns: rule.owd.map_or(0, |o| o.as_ns()),
        priority: rule
            .priority
            .map_or(abi::BB_PRIORITY_NONE as u8, |p| p.get()),
        treatment: treatment as u8,
        flags: flags as u8,
        rtx_n: pairs.len().min(rtx.len()) as u8,
        rtx,
        roles,
        ..Default::default()
    }
}

/// Compiles the operator's list; each rule comes with its id (1..16383).
///
/// # Errors
/// The list needs more shapes or keys than the kernel's maps hold; names the rule where that happens.
pub fn compile(
    list: &[(u16, &FlowRule)],
    profile: RtpProfile,
    resolve: &dyn Resolve,
) -> Result<Compiled> {
    let max_keys = abi::BB_MAX_RULE_KEYS as usize / 2;
    let mut out = Compiled::default();
    let mut shapes: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut taken: HashMap<Vec<u8>, ()> = HashMap::new();
    for (order, (id, rule)) in list.iter().enumerate() {
        let order = u32::try_from(order).unwrap_or(u32::MAX);
        out.rules.push((*id, kernel_rule(rule)));
        out.flow_mark_mask |= rule.mark.map_or(0, |m| m.mask());
        out.rtp |= rule.compares_rtp();
        let (key, mut mask, level) = match masked(rule, resolve) {
            Ok(parts) => parts,
            Err(why) => {
                out.waiting.push((rule.name.clone(), why));
                continue;
            }
        };
        out.cgroups |= level > 0;
        let types;
        (types, mask.rtp) = payload_types(rule, profile);
        let any = || vec![(0, 0)];
        let sports = rule.sport.map_or_else(any, PortRange::prefixes);
        let dports = rule.dport.map_or_else(any, PortRange::prefixes);
        for (sport, sport_mask) in &sports {
            for (dport, dport_mask) in &dports {
                let mask = abi::bb_rule_key {
                    sport: *sport_mask,
                    dport: *dport_mask,
                    ..mask
                };
                let mut name = mask.as_bytes().to_vec();
                name.extend(level.to_ne_bytes());
                let next = shapes.len();
                let shape = *shapes
                    .entry(name)
                    .or_insert(u32::try_from(next).unwrap_or(u32::MAX));
                if shape as usize == next {
                    if next == abi::BB_MAX_SHAPES as usize {
                        return Err(too_many_shapes(
                            rule,
                            sports.len() * dports.len() * types.len(),
                        ));
                    }
                    // Rules come in order, so shapes are born sorted by their first rule.
                    out.shapes.push(abi::bb_shape {
                        mask,
                        first_order: order,
                        cgroup_level: level,
                    });
                }
                for rtp in &types {
                    let key = abi::bb_rule_key {
                        sport: *sport,
                        dport: *dport,
                        rtp: *rtp,
                        shape,
                        ..key
                    };
                    // The same key again: the earlier rule wins, as everywhere.
                    if taken.insert(key.as_bytes().to_vec(), ()).is_none() {
                        out.keys.push((
                            key,
                            abi::bb_rule_ref {
                                order,
                                rule: u32::from(*id),
                            },
                        ));
                    }
                }
            }
        }
        if out.keys.len() > max_keys {
            return Err(Error::invalid(format!(
                "flow rule \"{}\": the rules need more than {max_keys} keys",
                rule.name
            ))
            .hint("a range such as 1-65534 takes up to 30 keys, and two ranges in one rule multiply: use ranges that begin and end at multiples of a power of two"));
        }
    }
    Ok(out)
}

fn too_many_shapes(rule: &FlowRule, keys: usize) -> Error {
    Error::invalid(format!(
        "flow rule \"{}\": the rules compare more than {} different combinations of fields, prefix lengths and port \
         blocks (this rule alone takes {keys} keys)",
        rule.name,
        abi::BB_MAX_SHAPES
    ))
    .hint(
        "rules that compare the same fields with the same prefix lengths share one combination: use fewer prefix \
         lengths, and port ranges that begin and end at multiples of a power of two",
    )
}

/// Compiles a list; entries without an id yet can be judged, too. A rule that names a `[media]` table that is not
/// there (any more) has no ids: extensions are found by their shape.
pub(crate) fn compile_list(
    list: &[Entry],
    profile: RtpProfile,
    media: &MediaTables,
    names: &impl Resolve,
) -> Result<Compiled> {
    let pairs: Vec<(u16, &FlowRule)> = list.iter().map(|e| (e.id, &e.rule)).collect();
    let mut compiled = compile(&pairs, profile, names)?;
    for ((_, kernel), entry) in compiled.rules.iter_mut().zip(list) {
        let ids = entry.rule.media.as_ref().and_then(|m| m.ids(media));
        let ids = ids.unwrap_or_default();
        kernel.dd = ids.dd.map_or(0, ExtensionId::get);
        kernel.vfm = ids.vfm.map_or(0, ExtensionId::get);
    }
    Ok(compiled)
}

#[cfg(test)]
mod tests;
