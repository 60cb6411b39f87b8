//! Flow rules: what matches, and what the packets are worth.

use serde::{Deserialize, Deserializer, Serialize};

use crate::packet::PacketDescription;
use crate::{
    CgroupPath, Counters, DevName, Dscp, FlowName, Lifetime, MarkMask, Owd, PortRange, Prefix,
    Priority, Proto, Treatment,
};

/// For patches: absent stays `None`, null becomes `Some(None)`.
pub(crate) fn some_option<'de, T, D>(d: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(d).map(Some)
}

/// Calls a macro with every optional field of a flow rule, in the order of the documentation.
macro_rules! with_flow_fields {
    ($callback:ident) => {
        $callback! {
            /// Transport protocol.
            proto: Proto,
            /// Source network.
            src: Prefix,
            /// Destination network.
            dst: Prefix,
            /// Source ports.
            sport: PortRange,
            /// Destination ports.
            dport: PortRange,
            /// Differentiated services code point.
            dscp: Dscp,
            /// Bits of the packet mark.
            mark: MarkMask,
            /// cgroup of the sending socket, or one above it.
            cgroup: CgroupPath,
            /// Interface the packet leaves by.
            dev: DevName,
            /// How long the data is of use, from when this host saw it first. Without it the rule gives no
            /// deadline, and only its priority and treatment count.
            lifetime: Lifetime,
            /// 0 is sent first; absent: 3, unless another source says something.
            priority: Priority,
            /// What happens to a stale packet; absent: discard, unless another source says something.
            treatment: Treatment,
            /// One-way delay to assume where none was measured or set.
            owd: Owd,
        }
    };
}

macro_rules! define_rule {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {
        /// An operator's rule. Absent fields match everything; the first matching rule of the list wins.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct FlowRule {
            /// Unique name.
            pub name: FlowName,
            $($(#[$doc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>,)+
        }

        /// A change of a rule: absent = as it was, null = no longer given, value = new value.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct FlowPatch {
            $($(#[$doc])* #[serde(default, deserialize_with = "some_option", skip_serializing_if = "Option::is_none")]
            pub $field: Option<Option<$type>>,)+
        }

        impl FlowRule {
            /// Names of the optional fields, as in the file.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),+];

            /// A rule that matches everything and says nothing.
            pub const fn new(name: FlowName) -> Self {
                Self { name, $($field: None),+ }
            }

            /// The fields that are given, as an operator types them, in the order of the documentation.
            pub fn given(&self) -> Vec<(&'static str, String)> {
                let mut fields = Vec::new();
                $(if let Some(value) = &self.$field {
                    fields.push((stringify!($field), value.to_string()));
                })+
                fields
            }
        }

        impl FlowPatch {
            /// Whether nothing would change.
            pub const fn is_empty(&self) -> bool {
                true $(&& self.$field.is_none())+
            }

            /// The rule after the change.
            ///
            /// # Errors
            /// The changed rule would say nothing, or never match.
            pub fn apply(&self, rule: &FlowRule) -> Result<FlowRule, String> {
                let mut changed = rule.clone();
                $(if let Some(value) = &self.$field {
                    changed.$field = value.clone();
                })+
                changed.check()?;
                Ok(changed)
            }
        }
    };
}

with_flow_fields!(define_rule);

impl FlowRule {
    /// Contradictions between fields that are each valid.
    ///
    /// # Errors
    /// Says which fields do not go together.
    pub fn check(&self) -> Result<(), String> {
        if self.lifetime.is_none() && self.priority.is_none() {
            return Err(format!(
                "flow rule \"{}\" gives neither a lifetime nor a priority, so it would change nothing",
                self.name
            ));
        }
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.addr().is_ipv4() != dst.addr().is_ipv4()
        {
            return Err(format!(
                "flow rule \"{}\" can never match: src {src} and dst {dst} are of different IP versions",
                self.name
            ));
        }
        Ok(())
    }

    /// Whether a packet leaving by `dev` matches.
    ///
    /// # Errors
    /// The first field that does not match, and why, for `bestby explain`.
    pub fn matches(&self, dev: &DevName, packet: &PacketDescription) -> Result<(), String> {
        fn need<T, U>(
            field: &str,
            wanted: Option<&T>,
            is: Option<U>,
            holds: impl Fn(&T, &U) -> bool,
        ) -> Result<(), String>
        where
            T: std::fmt::Display,
            U: std::fmt::Display,
        {
            match (wanted, is) {
                (None, _) => Ok(()),
                (Some(wanted), Some(is)) if holds(wanted, &is) => Ok(()),
                (Some(wanted), Some(is)) => Err(format!("{field} is {is}, not {wanted}")),
                (Some(wanted), None) => Err(format!(
                    "{field} of the packet was not given, the rule wants {wanted}"
                )),
            }
        }
        need("dev", self.dev.as_ref(), Some(dev), |a, b| a == *b)?;
        need("proto", self.proto.as_ref(), Some(packet.proto), |a, b| {
            a == b
        })?;
        need("src", self.src.as_ref(), packet.src, |a, b| a.contains(*b))?;
        need("dst", self.dst.as_ref(), Some(packet.dst), |a, b| {
            a.contains(*b)
        })?;
        need("sport", self.sport.as_ref(), packet.sport, |a, b| {
            a.contains(*b)
        })?;
        need("dport", self.dport.as_ref(), packet.dport, |a, b| {
            a.contains(*b)
        })?;
        need("dscp", self.dscp.as_ref(), Some(packet.dscp), |a, b| a == b)?;
        if let Some(mark) = &self.mark
            && !mark.matches(packet.mark)
        {
            return Err(format!("mark is {:#x}, not {mark}", packet.mark));
        }
        need(
            "cgroup",
            self.cgroup.as_ref(),
            packet.cgroup.as_ref(),
            |a, b| b.is_below(a),
        )
    }

    /// Whether every packet that `other` matches is matched by this rule, too; so that, if this one comes first
    /// in the list, `other` never gets a packet.
    pub fn covers(&self, other: &Self) -> bool {
        fn all<T>(a: Option<&T>, b: Option<&T>, within: impl Fn(&T, &T) -> bool) -> bool {
            match (a, b) {
                (None, _) => true,
                (Some(a), Some(b)) => within(a, b),
                (Some(_), None) => false,
            }
        }
        let prefix = |a: &Prefix, b: &Prefix| a.bits() <= b.bits() && a.contains(b.addr());
        let ports = |a: &PortRange, b: &PortRange| a.first() <= b.first() && b.last() <= a.last();
        all(self.proto.as_ref(), other.proto.as_ref(), |a, b| a == b)
            && all(self.src.as_ref(), other.src.as_ref(), prefix)
            && all(self.dst.as_ref(), other.dst.as_ref(), prefix)
            && all(self.sport.as_ref(), other.sport.as_ref(), ports)
            && all(self.dport.as_ref(), other.dport.as_ref(), ports)
            && all(self.dscp.as_ref(), other.dscp.as_ref(), |a, b| a == b)
            && all(self.mark.as_ref(), other.mark.as_ref(), |a, b| {
                a.mask() & !b.mask() == 0 && b.value() & a.mask() == a.value()
            })
            && all(self.cgroup.as_ref(), other.cgroup.as_ref(), |a, b| {
                b.is_below(a)
            })
            && all(self.dev.as_ref(), other.dev.as_ref(), |a, b| a == b)
    }
}

/// Body of POST /v1/flows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowAdd {
    /// The new rule.
    pub flow: FlowRule,
    /// Put it in front of this rule; absent: at the end of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<FlowName>,
    /// Write it to the configuration file, too.
    #[serde(default)]
    pub save: bool,
}

/// Body of PUT /v1/flows/{name}.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSet {
    /// What changes.
    #[serde(default)]
    pub change: FlowPatch,
    /// Write it to the configuration file, too.
    #[serde(default)]
    pub save: bool,
}

/// A rule in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowInfo {
    /// Place in the list, from 1; the first matching rule wins.
    pub position: u32,
    /// The rule.
    pub flow: FlowRule,
    /// Whether the configuration file has it, just like this.
    pub saved: bool,
    /// What passed.
    pub counters: Counters,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FlowRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn json_is_what_an_operator_types() {
        let r = rule(
            r#"{"name":"audio","proto":"udp","dport":5004,"dscp":"ef","lifetime":"200ms","priority":0}"#,
        );
        assert_eq!(
            serde_json::to_string(&r).unwrap(),
            r#"{"name":"audio","proto":"udp","dport":"5004","dscp":"ef","lifetime":"200ms","priority":0}"#
        );
        let error = serde_json::from_str::<FlowRule>(r#"{"name":"a","lifetme":"1s"}"#).unwrap_err();
        assert!(error.to_string().contains("lifetme"), "{error}");
        let error =
            serde_json::from_str::<FlowRule>(r#"{"name":"a","lifetime":"-1s"}"#).unwrap_err();
        assert!(error.to_string().contains("is negative"), "{error}");
    }

    #[test]
    fn patches_set_clear_and_keep() {
        let r = rule(r#"{"name":"a","dport":1,"lifetime":"1s","priority":0}"#);
        let patch: FlowPatch = serde_json::from_str(r#"{"dport":null,"lifetime":"2s"}"#).unwrap();
        let changed = patch.apply(&r).unwrap();
        assert_eq!(
            changed,
            rule(r#"{"name":"a","lifetime":"2s","priority":0}"#)
        );
        assert_eq!(
            serde_json::to_string(&patch).unwrap(),
            r#"{"dport":null,"lifetime":"2s"}"#
        );
        assert!(FlowPatch::default().is_empty() && !patch.is_empty());
        let nothing: FlowPatch =
            serde_json::from_str(r#"{"lifetime":null,"priority":null}"#).unwrap();
        assert!(nothing.apply(&r).unwrap_err().contains("neither"));
    }

    #[test]
    fn contradictions_are_found() {
        let r = rule(r#"{"name":"a","src":"10.0.0.0/8","dst":"2001:db8::/32","lifetime":"1s"}"#);
        assert!(r.check().unwrap_err().contains("different IP versions"));
    }

    #[test]
    fn matching_names_the_first_difference() {
        let dev: DevName = "eth0".parse().unwrap();
        let packet: PacketDescription =
            "udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef".parse().unwrap();
        assert_eq!(
            rule(r#"{"name":"a","dst":"10.0.0.0/8","dport":"6000-6001","dscp":"ef"}"#)
                .matches(&dev, &packet),
            Ok(())
        );
        for (json, why) in [
            (
                r#"{"name":"a","dport":"7000-7001"}"#,
                "dport is 6000, not 7000-7001",
            ),
            (r#"{"name":"a","proto":"tcp"}"#, "proto is udp, not tcp"),
            (r#"{"name":"a","dev":"eth1"}"#, "dev is eth0, not eth1"),
            (
                r#"{"name":"a","mark":"0x1/0xf"}"#,
                "mark is 0x0, not 0x1/0xf",
            ),
            (
                r#"{"name":"a","cgroup":"/a"}"#,
                "cgroup of the packet was not given, the rule wants /a",
            ),
        ] {
            assert_eq!(rule(json).matches(&dev, &packet), Err(why.to_string()));
        }
    }

    #[test]
    fn covering_rules() {
        let wide = rule(r#"{"name":"a","dst":"10.0.0.0/8","dport":"5000-6000"}"#);
        let narrow = rule(r#"{"name":"b","proto":"udp","dst":"10.1.0.0/16","dport":5004}"#);
        assert!(wide.covers(&narrow) && !narrow.covers(&wide) && wide.covers(&wide));
        let other = rule(r#"{"name":"c","dst":"11.0.0.0/8","dport":5004}"#);
        assert!(!wide.covers(&other));
        assert!(
            rule(r#"{"name":"m","mark":"0x1/0x1"}"#)
                .covers(&rule(r#"{"name":"m","mark":"0x3/0xf"}"#))
        );
        assert!(
            !rule(r#"{"name":"m","mark":"0x1/0x1"}"#)
                .covers(&rule(r#"{"name":"m","mark":"0x2/0xf"}"#))
        );
    }
}
