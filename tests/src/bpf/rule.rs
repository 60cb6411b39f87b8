//! Flow rules in terms of the ABI.
#![allow(clippy::unwrap_used)]

use bestby_bpf::abi::*;

/// One rule: what it matches, in terms of the ABI, and what it says.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Fields to compare (all ones where compared).
    pub mask: bb_rule_key,
    /// Their values.
    pub key: bb_rule_key,
    /// 0 = cgroup not compared.
    pub cgroup_level: u32,
    /// What it says.
    pub says: bb_rule,
}

impl Default for Rule {
    fn default() -> Self {
        Self::new()
    }
}

impl Rule {
    /// Matches everything, says nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            mask: bb_rule_key::default(),
            key: bb_rule_key::default(),
            cgroup_level: 0,
            says: bb_rule {
                priority: u8::try_from(BB_PRIORITY_NONE).unwrap(),
                ..Default::default()
            },
        }
    }

    /// Matches a destination port.
    #[must_use]
    pub fn dport(mut self, port: u16) -> Self {
        self.mask.dport = u16::MAX;
        self.key.dport = port;
        self
    }

    /// Matches an IP protocol.
    #[must_use]
    pub fn proto(mut self, proto: u8) -> Self {
        self.mask.proto = u8::MAX;
        self.key.proto = proto;
        self
    }

    /// Matches an RTP payload type. The configuration must say that such rules are in force.
    #[must_use]
    pub fn payload_type(mut self, payload_type: u8) -> Self {
        self.mask.rtp = u8::MAX;
        self.key.rtp = u8::try_from(BB_RTP).unwrap() | payload_type;
        self
    }

    /// Matches an SSRC; as above.
    #[must_use]
    pub fn ssrc(mut self, ssrc: u32) -> Self {
        self.mask.ssrc = u32::MAX;
        self.key.ssrc = ssrc;
        self
    }

    /// Packets of payload type `rtx` repeat those of `original`; `None`: of any.
    #[must_use]
    pub fn rtx(mut self, rtx: u8, original: Option<u8>) -> Self {
        let named = |payload_type| u8::try_from(BB_RTP).unwrap() | payload_type;
        self.says.rtx[usize::from(self.says.rtx_n)] = bb_rtx {
            rtx: named(rtx),
            original: original.map_or(0, named),
        };
        self.says.rtx_n += 1;
        self
    }

    /// No frames are found in RTP timestamps.
    #[must_use]
    pub fn no_frames(mut self) -> Self {
        self.says.flags |= u8::try_from(BB_RULE_NO_FRAMES).unwrap();
        self
    }

    /// What its packets carry is not looked at.
    #[must_use]
    pub fn blind(mut self) -> Self {
        self.says.flags |= u8::try_from(BB_RULE_BLIND).unwrap();
        self
    }

    /// One of `BB_RULE_CHAIN_*`.
    #[must_use]
    pub fn chain(mut self, flag: u32) -> Self {
        self.says.flags |= u8::try_from(flag).unwrap();
        self
    }

    /// Priorities of key frames, of links of level 0, 1 and 2, of what no frame needs.
    #[must_use]
    pub fn roles(mut self, priorities: [u16; 5]) -> Self {
        self.says.flags |= u8::try_from(BB_RULE_ROLES).unwrap();
        self.says.roles = priorities.iter().rev().fold(0, |all, one| all << 3 | one);
        self
    }

    /// Lifetime in ns.
    #[must_use]
    pub fn lifetime(mut self, ns: u64) -> Self {
        self.says.lifetime_ns = ns;
        self
    }

    /// Priority 0..=7.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.says.priority = priority;
        self
    }

    /// One of `BB_TREAT_*`.
    #[must_use]
    pub fn treatment(mut self, treatment: u32) -> Self {
        self.says.treatment = u8::try_from(treatment).unwrap();
        self
    }

    /// One-way delay where no RTT is known, ns.
    #[must_use]
    pub fn owd(mut self, ns: u64) -> Self {
        self.says.owd_default_ns = ns;
        self
    }
}
