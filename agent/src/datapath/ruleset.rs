//! Writes the compiled rules to the kernel: the idle set first, then one switch.

use std::collections::HashMap;

use bestby_bpf::abi;
use zerocopy::IntoBytes as _;

use crate::error::Result;
use crate::kernel::grace::Grace;
use crate::kernel::maps::Shared;
use crate::plan::rules::Compiled;

/// What the kernel holds.
pub(crate) struct RuleSet {
    keys: [Vec<abi::bb_rule_key>; 2],
    rules: HashMap<u16, abi::bb_rule>,
    grace: Grace,
}

impl RuleSet {
    /// Reads what an earlier agent left.
    ///
    /// # Errors
    /// The kernel makes no map.
    pub(crate) fn adopt(shared: &Shared) -> Result<Self> {
        let mut keys = [Vec::new(), Vec::new()];
        for key in shared.rule_keys.keys() {
            keys[usize::from(key.set & 1)].push(key);
        }
        Ok(Self {
            keys,
            rules: HashMap::new(),
            grace: Grace::new()?,
        })
    }

    /// Puts a new list in force. Packets see the old list or the new one, never a mixture.
    ///
    /// # Errors
    /// The kernel's refusal; the old list stays in force.
    pub(crate) fn apply(&mut self, shared: &Shared, compiled: &Compiled) -> Result<()> {
        let mut config = shared.config.get(&0)?.unwrap_or_default();
        let idle = (config.rule_set & 1) ^ 1;
        let set = u8::try_from(idle).unwrap_or(0);
        self.clear(shared, usize::from(set))?;
        for (key, rule) in &compiled.keys {
            let key = abi::bb_rule_key { set, ..*key };
            if let Err(e) = shared.rule_keys.set(&key, rule) {
                self.clear(shared, usize::from(set))?;
                return Err(e);
            }
            self.keys[usize::from(set)].push(key);
        }
        // Behind the last shape nothing can match, so a reader that has the other set's count does no harm.
        let nothing = abi::bb_shape {
            first_order: u32::MAX,
            ..Default::default()
        };
        for index in 0..abi::BB_MAX_SHAPES {
            let shape = compiled.shapes.get(index as usize).unwrap_or(&nothing);
            shared
                .shapes
                .set(&(idle * abi::BB_MAX_SHAPES + index), shape)?;
        }
        for (id, rule) in &compiled.rules {
            if self
                .rules
                .get(id)
                .is_none_or(|old| old.as_bytes() != rule.as_bytes())
            {
                shared.rules.set(&u32::from(*id), rule)?;
                self.rules.insert(*id, *rule);
            }
        }
        let shapes = u32::try_from(compiled.shapes.len()).unwrap_or(0);
        config.shapes = config.shapes.max(shapes);
        config.flow_mark_mask |= compiled.flow_mark_mask;
        // While either set may be read, both find the fields that they compare.
        if compiled.rtp {
            config.flags |= abi::BB_CONFIG_RTP_RULES;
        }
        if compiled.cgroups {
            config.flags |= abi::BB_CONFIG_CGROUP_RULES;
        }
        shared.config.set(&0, &config)?;
        self.grace.wait()?;
        config.rule_set = idle;
        shared.config.set(&0, &config)?;
        // Who read the old set's number is done with it.
        self.grace.wait()?;
        // Only now do cached answers expire: whoever looks again finds the new set.
        config.rule_gen = config.rule_gen.wrapping_add(1);
        config.shapes = shapes;
        config.flow_mark_mask = compiled.flow_mark_mask;
        if !compiled.rtp {
            config.flags &= !abi::BB_CONFIG_RTP_RULES;
        }
        if !compiled.cgroups {
            config.flags &= !abi::BB_CONFIG_CGROUP_RULES;
        }
        shared.config.set(&0, &config)
    }

    fn clear(&mut self, shared: &Shared, set: usize) -> Result<()> {
        while let Some(key) = self.keys[set].pop() {
            shared.rule_keys.remove(&key)?;
        }
        Ok(())
    }
}

/// Makes the classifier look everything up again (an interface came or went).
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn forget_flows(shared: &Shared) -> Result<()> {
    let mut config = shared.config.get(&0)?.unwrap_or_default();
    config.rule_gen = config.rule_gen.wrapping_add(1);
    shared.config.set(&0, &config)
}
