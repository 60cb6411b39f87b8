//! Flow rules: what matches, and what the packets are worth.

mod check;

use serde::{Deserialize, Deserializer, Serialize};

use crate::packet::PacketDescription;
use crate::{
    CgroupPath, Chain, Counters, DevName, Dscp, FlowLifetime, FlowName, Frames, MarkMask, Media,
    Owd, PayloadTypes, PortRange, Prefix, Priority, Proto, Retransmissions, Roles, RtpKind,
    RtpProfile, Ssrc, Stamp, Treatment,
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
            /// RTP payload types.
            rtp_pt: PayloadTypes,
            /// What RTP payload types carry, as RFC 3551 or the profile of the configuration says.
            rtp_kind: RtpKind,
            /// RTP's synchronization source.
            ssrc: Ssrc,
            /// cgroup of the sending socket, or one above it.
            cgroup: CgroupPath,
            /// Interface the packet leaves by.
            dev: DevName,
            /// How long the data is of use, from when this host saw it first. Without it the rule gives no
            /// deadline, and only its priority and treatment count. `rto`: until TCP sends it again.
            lifetime: FlowLifetime,
            /// 0 is sent first; absent: 3, unless another source says something.
            priority: Priority,
            /// What happens to a stale packet; absent: discard, unless another source says something.
            treatment: Treatment,
            /// One-way delay to assume where none was measured or set.
            owd: Owd,
            /// Whether the deadline goes into the packets, for the last hop; absent: no.
            stamp: Stamp,
            /// Whether packets of one RTP timestamp are one frame; absent: auto.
            frames: Frames,
            /// Payload types of retransmissions, which the rule matches, too.
            rtx: Retransmissions,
            /// Whether packets are looked into for what their frames are for; absent: auto.
            media: Media,
            /// What happens to frames that need one which was given up; absent: auto.
            chain: Chain,
            /// Priorities of frames by what they are for; absent: the built-in ones.
            roles: Roles,
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
    /// The payload types that the rule matches, retransmissions included; `None` = it does not compare them.
    pub fn payload_types(&self, profile: RtpProfile) -> Option<PayloadTypes> {
        let types = self
            .rtp_pt
            .or_else(|| self.rtp_kind.map(|kind| profile.of(kind)))?;
        Some(match &self.rtx {
            None => types,
            Some(rtx) => types.with(rtx.payload_types()),
        })
    }

    /// Whether the rule matches RTP packets only.
    pub const fn compares_rtp(&self) -> bool {
        self.rtp_pt.is_some() || self.rtp_kind.is_some() || self.ssrc.is_some()
    }

    /// Whether a packet leaving by `dev` matches.
    ///
    /// # Errors
    /// The first field that does not match, and why, for `bestby explain`.
    pub fn matches(
        &self,
        dev: &DevName,
        packet: &PacketDescription,
        profile: RtpProfile,
    ) -> Result<(), String> {
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
        let types = self.payload_types(profile);
        need("RTP payload type", types.as_ref(), packet.rtp, |a, b| {
            a.contains(*b)
        })?;
        need("ssrc", self.ssrc.as_ref(), packet.ssrc, |a, b| a == b)?;
        need(
            "cgroup",
            self.cgroup.as_ref(),
            packet.cgroup.as_ref(),
            |a, b| b.is_below(a),
        )
    }

    /// Whether the rule compares nothing, so that every packet matches it.
    pub const fn matches_all(&self) -> bool {
        self.proto.is_none()
            && self.src.is_none()
            && self.dst.is_none()
            && self.sport.is_none()
            && self.dport.is_none()
            && self.dscp.is_none()
            && self.mark.is_none()
            && self.cgroup.is_none()
            && self.dev.is_none()
            && !self.compares_rtp()
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
            && self.covers_rtp(other)
            && all(self.cgroup.as_ref(), other.cgroup.as_ref(), |a, b| {
                b.is_below(a)
            })
            && all(self.dev.as_ref(), other.dev.as_ref(), |a, b| a == b)
    }

    /// The part of [`Self::covers`] about RTP, whatever the profile says.
    fn covers_rtp(&self, other: &Self) -> bool {
        let fixed = RtpProfile::default();
        let types = match (self.payload_types(fixed), other.payload_types(fixed)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(a), Some(b)) => {
                // A kind may hold more than the static types.
                let open = other.rtp_kind.is_some() && self.rtp_kind != other.rtp_kind;
                !open && b.within(a)
            }
        };
        types && (self.ssrc.is_none() || self.ssrc == other.ssrc)
    }
}

/// A rule to add.
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

/// Body of POST /v1/flows: one [`FlowAdd`], or a list of them, which are added all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowAdds(pub Vec<FlowAdd>);

impl Serialize for FlowAdds {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(s)
    }
}

impl<'de> Deserialize<'de> for FlowAdds {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct OneOrMore;
        // By hand: an untagged enum would not say which field is wrong.
        impl<'de> serde::de::Visitor<'de> for OneOrMore {
            type Value = FlowAdds;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a rule to add, or a list of them")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<FlowAdds, A::Error> {
                let one = serde::de::value::MapAccessDeserializer::new(map);
                FlowAdd::deserialize(one).map(|one| FlowAdds(vec![one]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, seq: A) -> Result<FlowAdds, A::Error> {
                let all = serde::de::value::SeqAccessDeserializer::new(seq);
                Vec::deserialize(all).map(FlowAdds)
            }
        }
        d.deserialize_any(OneOrMore)
    }
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
    /// Why it matches nothing, if it cannot, or may not without the operator's noticing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matches_nothing: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FlowRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn rule_json_is_short_and_refuses_bad_fields() {
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
        assert!(error.to_string().contains("negative"), "{error}");
    }

    #[test]
    fn rules_to_add_are_one_or_a_list() {
        let one = r#"{"flow":{"name":"a","priority":1},"save":true}"#;
        let adds: FlowAdds = serde_json::from_str(one).unwrap();
        assert_eq!((adds.0.len(), adds.0[0].save), (1, true));
        let adds: FlowAdds = serde_json::from_str(&format!("[{one},{one}]")).unwrap();
        assert_eq!(adds.0.len(), 2);
        for bad in [
            r#"{"flow":{"name":"a","pritority":1}}"#,
            r#"[{"flow":{"name":"a","pritority":1}}]"#,
        ] {
            let error = serde_json::from_str::<FlowAdds>(bad).unwrap_err();
            assert!(error.to_string().contains("pritority"), "{error}");
        }
        assert!(serde_json::from_str::<FlowAdds>("7").is_err());
    }

    #[test]
    fn patch_sets_clears_and_keeps_fields() {
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
    fn mismatch_names_the_field_that_differs() {
        let dev: DevName = "eth0".parse().unwrap();
        let packet: PacketDescription =
            "udp 10.0.0.1:5004 > 10.0.0.2:6000 dscp ef".parse().unwrap();
        assert_eq!(
            rule(r#"{"name":"a","dst":"10.0.0.0/8","dport":"6000-6001","dscp":"ef"}"#).matches(
                &dev,
                &packet,
                RtpProfile::default()
            ),
            Ok(())
        );
        for (json, why) in [
            (r#"{"name":"a","dport":"7000-7001"}"#, "dport"),
            (r#"{"name":"a","proto":"tcp"}"#, "proto"),
            (r#"{"name":"a","dev":"eth1"}"#, "dev"),
            (r#"{"name":"a","mark":"0x1/0xf"}"#, "mark"),
            (r#"{"name":"a","cgroup":"/a"}"#, "cgroup"),
        ] {
            let error = rule(json)
                .matches(&dev, &packet, RtpProfile::default())
                .unwrap_err();
            assert!(error.starts_with(why), "{json}: {error}");
        }
    }

    #[test]
    fn wider_rule_covers_narrower_one_only() {
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

    #[test]
    fn rtp_kind_matches_payload_types_of_the_profile() {
        let dev: DevName = "eth0".parse().unwrap();
        let packet: PacketDescription = "udp 10.0.0.2:6000 rtp 111 ssrc 7".parse().unwrap();
        let profile = RtpProfile {
            audio: "111".parse().ok(),
            video: None,
        };
        let audio = rule(r#"{"name":"a","rtp_kind":"audio"}"#);
        assert_eq!(audio.matches(&dev, &packet, profile), Ok(()));
        let error = audio
            .matches(&dev, &packet, RtpProfile::default())
            .unwrap_err();
        assert!(error.contains("111"), "{error}");
        for (json, why) in [
            (r#"{"name":"a","rtp_pt":"96"}"#, "111"),
            (r#"{"name":"a","ssrc":8}"#, "0x00000007"),
        ] {
            let error = rule(json).matches(&dev, &packet, profile).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
        let repeats = rule(r#"{"name":"a","rtp_pt":96,"rtx":"111:96"}"#);
        assert_eq!(repeats.matches(&dev, &packet, profile), Ok(()));
        let plain: PacketDescription = "udp 10.0.0.2:6000".parse().unwrap();
        assert!(
            audio
                .matches(&dev, &plain, profile)
                .unwrap_err()
                .contains("given")
        );
    }

    #[test]
    fn a_rule_covers_another_of_fewer_payload_types() {
        let covers = |a: &str, b: &str| {
            rule(&format!(r#"{{"name":"a"{a}}}"#)).covers(&rule(&format!(r#"{{"name":"b"{b}}}"#)))
        };
        assert!(covers("", r#","rtp_pt":96"#));
        assert!(covers(r#","rtp_pt":"96,98""#, r#","rtp_pt":96"#));
        assert!(covers(
            r#","rtp_kind":"audio""#,
            r#","rtp_kind":"audio","ssrc":1"#
        ));
        assert!(covers(r#","rtp_kind":"audio""#, r#","rtp_pt":0"#));
        assert!(covers(r#","rtp_pt":96,"rtx":"97:96""#, r#","rtp_pt":97"#));
        assert!(!covers(r#","rtp_pt":96"#, ""));
        assert!(!covers(r#","rtp_pt":96"#, r#","rtp_pt":96,"rtx":"97:96""#));
        assert!(!covers(r#","rtp_kind":"audio""#, r#","rtp_kind":"video""#));
        assert!(!covers(r#","rtp_kind":"audio""#, r#","rtp_pt":111"#));
        let fixed = "0,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18";
        assert!(!covers(
            &format!(r#","rtp_pt":"{fixed}""#),
            r#","rtp_kind":"audio""#
        ));
        assert!(!covers(r#","ssrc":1"#, r#","ssrc":2"#));
        assert!(!covers(r#","ssrc":1"#, ""));
    }
}
