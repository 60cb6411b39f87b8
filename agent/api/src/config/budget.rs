//! How much of the kernel side's room for rules a list takes, as far as a file alone can say it.
//!
//! The classifier looks a packet up once per *combination* of compared fields, prefix lengths and port blocks, so
//! there is a limit to their number; and each port range is several entries of its table. bestbyd compiles the
//! rules with the host's names, and its word is the last one: here, every device and cgroup counts as there.

use std::collections::HashSet;

use crate::{CgroupPath, FlowRule, PortRange, Prefix, RtpProfile};

/// Most different combinations (the kernel side's `BB_MAX_SHAPES`).
pub const MAX_COMBINATIONS: usize = 128;
/// Most entries of one set of rules (half of `BB_MAX_RULE_KEYS`).
pub const MAX_KEYS: usize = 131_072;

/// The list does not fit.
pub(super) struct TooMuch {
    /// Index of the rule that has no room.
    pub(super) rule: usize,
    pub(super) message: String,
    pub(super) hint: &'static str,
}

/// How many bits of an address are compared; IPv4's are the last of the kernel side's form.
fn bits(prefix: Option<Prefix>) -> u8 {
    match prefix {
        Some(p) if p.bits() > 0 && p.addr().is_ipv4() => 96 + p.bits(),
        Some(p) => p.bits(),
        None => 0,
    }
}

/// Depth of a cgroup below the tree's root; 0 (the root itself) compares nothing.
fn level(path: &CgroupPath) -> usize {
    let path = path.as_str();
    let below = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .find_map(|top| {
            path.strip_prefix(top)
                .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .unwrap_or(path);
    below.split('/').filter(|part| !part.is_empty()).count()
}

/// Finds the first rule that has no room.
pub(super) fn check<'r>(
    rules: impl Iterator<Item = &'r FlowRule>,
    profile: RtpProfile,
) -> Result<(), TooMuch> {
    let mut combinations = HashSet::new();
    let mut keys = HashSet::new();
    for (rule, r) in rules.enumerate() {
        let types = r.payload_types(profile);
        let compared = (
            (types.is_some(), r.ssrc.is_some()),
            (bits(r.src), bits(r.dst), r.src.is_some() || r.dst.is_some()),
            (r.proto.is_some(), r.dscp.is_some(), r.dev.is_some()),
            (
                r.mark.map_or(0, |m| m.mask()),
                r.cgroup.as_ref().map_or(0, level),
            ),
        );
        let values = format!(
            "{:?}",
            (
                (r.src, r.dst, r.proto, r.dscp),
                (r.mark, &r.dev, &r.cgroup, r.ssrc)
            )
        );
        // One number for each rule's values: with many ports they would be copied often.
        let mut hasher = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&values, &mut hasher);
        let values = std::hash::Hasher::finish(&hasher);
        let any = || vec![(0, 0)];
        let sports = r.sport.map_or_else(any, PortRange::prefixes);
        let dports = r.dport.map_or_else(any, PortRange::prefixes);
        let types: Vec<u8> = types.map_or_else(|| vec![0], |types| types.iter().collect());
        let blocks = sports.len() * dports.len() * types.len();
        for sport in &sports {
            for dport in &dports {
                combinations.insert((compared, sport.1, dport.1));
                if combinations.len() > MAX_COMBINATIONS {
                    return Err(TooMuch {
                        rule,
                        message: format!(
                            "the rules so far compare more than {MAX_COMBINATIONS} different combinations of fields, \
                             prefix lengths and port blocks (this rule alone takes {blocks} entries)"
                        ),
                        hint: "rules that compare the same fields with the same prefix lengths share one combination: \
                               use fewer prefix lengths, and port ranges that begin and end at multiples of a power of two",
                    });
                }
                keys.extend(types.iter().map(|pt| (values, *sport, *dport, *pt)));
            }
        }
        if keys.len() > MAX_KEYS {
            return Err(TooMuch {
                rule,
                message: format!("the rules so far need more than {MAX_KEYS} entries"),
                hint: "a range such as 1-65534 takes up to 30 entries, and two ranges in one rule multiply: use ranges \
                       that begin and end at multiples of a power of two",
            });
        }
    }
    Ok(())
}
