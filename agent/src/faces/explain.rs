//! `bestby explain`: for one packet, the same decisions as the classifier's, from the maps that are in force.

use std::net::IpAddr;

use bestby_api::{
    ExplainRequest, Explanation, FlowLifetime, Mode, NO_RULE, PacketDescription, RuleVerdict,
    SessionKey, Source, SourceAnswer,
};
use bestby_bpf::abi;
use zerocopy::IntoBytes as _;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::address::address_bytes;
use crate::kernel::sys::monotonic_ns;
use crate::observed::names::Resolve as _;
use crate::plan::rules::{PacketFields, search};

/// Rules listed before and at the winning one; the middle of a longer list is left out.
const SHOWN: usize = 50;

/// What one source gives; `None` = says nothing.
#[derive(Debug, Default, Clone)]
struct Given {
    /// ns from now; `Some(None)`: says that there is no deadline.
    lifetime: Option<Option<i64>>,
    priority: Option<u8>,
    treatment: Option<&'static str>,
}

/// The fields of bestby's own mark.
fn from_mark(mark: u32, magic_mask: u32, now: u64) -> Given {
    let mark = mark & !magic_mask;
    let time = u64::from(mark & abi::BB_MARK_TIME_MASK);
    let unit = u64::from(abi::BB_MARK_UNIT_NS);
    let lifetime = if time == 0 {
        None
    } else if mark & abi::BB_MARK_RELATIVE != 0 {
        i64::try_from(time * unit).ok()
    } else {
        // The nearest time congruent to the field modulo 2^19 units.
        let (bits, now_units) = (abi::BB_MARK_TIME_BITS, now / unit);
        let ahead = (time.wrapping_sub(now_units) << (64 - bits)).cast_signed() >> (64 - bits);
        let deadline = (now_units.cast_signed() + ahead) * unit.cast_signed();
        Some(deadline - now.cast_signed())
    };
    Given {
        lifetime: Some(lifetime),
        priority: Some((mark >> abi::BB_MARK_PRIORITY_SHIFT & 7) as u8),
        treatment: match mark >> abi::BB_MARK_TREATMENT_SHIFT & 3 {
            abi::BB_TREAT_FORWARD => Some("forward"),
            abi::BB_TREAT_DISCARD => Some("discard"),
            abi::BB_TREAT_TRUNCATE => Some("truncate"),
            _ => None,
        },
    }
}

/// The classifier's hash of a flow (`bb_hash_key` in `bb_core.h`), which names its session.
fn flow_hash(key: &abi::bb_flow_key, seed: u64) -> u32 {
    let a = (seed ^ 0x9E37_79B9_7F4A_7C15) | 1;
    let b = (seed.rotate_right(29) ^ 0xC2B2_AE3D_27D4_EB4F) | 1;
    let mix = |hash: u64, word: u64| {
        let hash = hash ^ word;
        hash.wrapping_mul(a) ^ hash.swap_bytes().wrapping_mul(b)
    };
    let words = key
        .as_bytes()
        .chunks_exact(8)
        .map(|w| w.first_chunk().map_or(0, |w| u64::from_ne_bytes(*w)));
    let hash = words.fold(seed, mix);
    let hash = (hash ^ hash >> 32).wrapping_mul(a);
    (hash ^ hash >> 29) as u32
}

fn network(addr: IpAddr, bits: u8) -> (IpAddr, u8) {
    match addr {
        IpAddr::V4(a) => {
            let bits = bits.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            (IpAddr::V4((u32::from(a) & mask).into()), bits)
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            (IpAddr::V6((u128::from(a) & mask).into()), bits)
        }
    }
}

impl Given {
    /// Takes what is still open in `all`; returns the names of the fields taken.
    fn fill(&self, all: &mut Self) -> Vec<String> {
        let mut decides = Vec::new();
        if all.lifetime.is_none() && self.lifetime.is_some() {
            all.lifetime = self.lifetime;
            decides.push("deadline".to_string());
        }
        if all.priority.is_none() && self.priority.is_some() {
            all.priority = self.priority;
            decides.push("priority".to_string());
        }
        if all.treatment.is_none() && self.treatment.is_some() {
            all.treatment = self.treatment;
            decides.push("treatment".to_string());
        }
        decides
    }
}

/// What a description leaves open: whether the packet is forwarded, and what its payload is. `mark`: it has bestby's.
fn notes(p: &PacketDescription, mark: bool, flow: &str, forwarded_marks: bool) -> Vec<String> {
    if mark {
        // A mark wins over what the payload looks like.
        return vec![
            if forwarded_marks {
                "The mark counts on forwarded packets, too: forwarded_marks is true in the configuration."
            } else {
                "Of a forwarded packet this mark is not believed: forwarded_marks is false in the configuration."
            }
            .into(),
        ];
    }
    if p.proto != bestby_api::Proto::Udp || p.rtp.is_some() {
        return Vec::new();
    }
    let says = if flow == NO_RULE {
        "DTLS application data is plain traffic.".into()
    } else {
        format!("DTLS application data is what flow rule \"{flow}\" says.")
    };
    vec![
        "STUN, RTCP and DTLS handshakes are signalling: priority 0, never stale, whatever a rule says.".into(),
        says,
    ]
}

/// What a header alone is worth to the receiver of this packet.
fn header_alone(p: &PacketDescription, treatment: &str) -> Option<String> {
    if treatment != "truncate" {
        return None;
    }
    let says = match p.rtp {
        Some(_) => {
            "Of SRTP the header alone fails authentication: the receiver drops it, and only what reads RTP \
             without the keys learns which packet is missing."
        }
        None => {
            "Of QUIC the header alone is an empty datagram, which the receiver ignores: `discard` does the \
             same at no cost."
        }
    };
    Some(says.into())
}

fn ms(ns: i64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

impl Datapath {
    fn packet_fields(&self, request: &ExplainRequest, mark: u32) -> PacketFields {
        let p = &request.packet;
        let unknown: IpAddr = if p.dst.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let cgroups = p
            .cgroup
            .as_ref()
            .and_then(|c| self.names.cgroup_ancestors(c))
            .unwrap_or_default();
        let key = abi::bb_rule_key {
            src: address_bytes(p.src.unwrap_or(unknown)),
            dst: address_bytes(p.dst),
            mark,
            ifindex: self.names.ifindex(&request.dev).unwrap_or(0),
            sport: p.sport.unwrap_or(0),
            dport: p.dport.unwrap_or(0),
            family: if p.dst.is_ipv4() { 4 } else { 6 },
            proto: p.proto.number(),
            dscp: p.dscp.get(),
            rtp: p.rtp.map_or(0, |pt| abi::BB_RTP as u8 | pt),
            ssrc: p.ssrc.map_or(0, |s| s.get()),
            ..Default::default()
        };
        PacketFields { key, cgroups }
    }

    /// The rule that the kernel's maps give for a packet.
    fn rule_in_force(&self, fields: &PacketFields, config: &abi::bb_config) -> Result<Option<u16>> {
        let mut shapes = Vec::new();
        for index in 0..config.shapes.min(abi::BB_MAX_SHAPES) {
            let at = (config.rule_set & 1) * abi::BB_MAX_SHAPES + index;
            shapes.push(self.shared.shapes.get(&at)?.unwrap_or_default());
        }
        let set = u8::try_from(config.rule_set & 1).unwrap_or(0);
        let found = search(&shapes, set, fields, |key| {
            self.shared.rule_keys.get(key).ok().flatten()
        });
        Ok(found.and_then(|r| u16::try_from(r.rule).ok()))
    }

    fn verdicts(
        &self,
        request: &ExplainRequest,
        packet: &PacketDescription,
        winner: Option<usize>,
    ) -> (Vec<RuleVerdict>, u32) {
        let end = winner.map_or(self.book.entries.len(), |w| w + 1);
        let mut rules: Vec<RuleVerdict> = Vec::new();
        let mut left_out = 0;
        for (index, entry) in self.book.entries[..end].iter().enumerate() {
            if index >= SHOWN && index + SHOWN < end {
                left_out += 1;
                continue;
            }
            let waits = self
                .waiting
                .iter()
                .find(|(n, _)| *n == entry.rule.name)
                .map(|(_, why)| why.clone());
            let because = if Some(index) == winner {
                String::new()
            } else {
                waits.or_else(|| entry.rule.matches(&request.dev, packet, self.rtp_profile).err()).unwrap_or_else(|| {
                    "its fields match as far as they were given, but the packet's description leaves some open".into()
                })
            };
            rules.push(RuleVerdict {
                flow: entry.rule.name.to_string(),
                wins: Some(index) == winner,
                because,
            });
        }
        (rules, left_out)
    }

    /// POST /v1/explain.
    ///
    /// # Errors
    /// Unknown interface, or a map cannot be read.
    pub fn explain(&mut self, request: &ExplainRequest) -> Result<Explanation> {
        self.tc.link(request.dev.as_str())?;
        let p = &request.packet;
        let now = monotonic_ns();
        let config = self.shared.config.get(&0)?.unwrap_or_default();
        let ours =
            config.mark_magic_mask != 0 && p.mark & config.mark_magic_mask == config.mark_magic;
        // Rules see the marks of others only: ours differ with every packet.
        let mark = if ours {
            0
        } else {
            p.mark & config.flow_mark_mask
        };
        let fields = self.packet_fields(request, mark);
        let id = self.rule_in_force(&fields, &config)?;
        let winner = id.and_then(|id| self.book.entries.iter().position(|e| e.id == id));
        let seen = PacketDescription {
            mark: if ours { 0 } else { p.mark },
            ..p.clone()
        };
        let (rules, rules_left_out) = self.verdicts(request, &seen, winner);

        let mut all = Given::default();
        let mut sources = Vec::new();
        let mut say = |source, given: &Given, all: &mut Given, says: String| {
            sources.push(SourceAnswer {
                source,
                decides: given.fill(all),
                says,
            });
        };
        if ours {
            let given = from_mark(p.mark, config.mark_magic_mask, now);
            let time = match given.lifetime.flatten() {
                None => "no deadline".to_string(),
                Some(ns) => format!("deadline in {}", ms(ns)),
            };
            let says = format!(
                "{time}, priority {}, treatment {}",
                given.priority.unwrap_or(3),
                given.treatment.unwrap_or("not said")
            );
            say(Source::Mark, &given, &mut all, says);
        } else {
            let says = if p.mark == 0 {
                "no mark"
            } else {
                "the mark is not bestby's: it says nothing"
            };
            say(Source::Mark, &Given::default(), &mut all, says.into());
        }
        let quiet = Given::default();
        say(Source::Txtime, &quiet, &mut all, "a description cannot say: a deadline-mode SO_TXTIME socket would decide the deadline here".into());
        say(
            Source::Sockopt,
            &quiet,
            &mut all,
            "a description cannot say: options set on the socket would decide here".into(),
        );
        let (option, says) = self.option_of(&request.dev, p);
        let given = option.map_or(Given::default(), |o| Given {
            lifetime: Some(Some(i64::from(o.left_ms) * 1_000_000)),
            treatment: Some(o.treatment),
            ..Given::default()
        });
        say(Source::IpOption, &given, &mut all, says);
        let mut rule_owd = 0;
        let flow = match winner.and_then(|w| self.book.entries.get(w)) {
            None => {
                say(
                    Source::Rule,
                    &quiet,
                    &mut all,
                    "no flow rule matches".into(),
                );
                NO_RULE.to_string()
            }
            Some(entry) => {
                let kernel = self
                    .shared
                    .rules
                    .get(&u32::from(entry.id))?
                    .unwrap_or_default();
                rule_owd = kernel.owd_default_ns;
                let given = Given {
                    lifetime: (kernel.lifetime_ns > 0)
                        .then(|| i64::try_from(kernel.lifetime_ns).ok()),
                    priority: (u32::from(kernel.priority) < abi::BB_PRIORITIES)
                        .then_some(kernel.priority),
                    treatment: match u32::from(kernel.treatment) {
                        abi::BB_TREAT_FORWARD => Some("forward"),
                        abi::BB_TREAT_DISCARD => Some("discard"),
                        abi::BB_TREAT_TRUNCATE => Some("truncate"),
                        _ => None,
                    },
                };
                let says: Vec<String> = entry
                    .rule
                    .given()
                    .into_iter()
                    .filter(|(field, _)| {
                        matches!(*field, "lifetime" | "priority" | "treatment" | "owd")
                    })
                    .map(|(field, value)| format!("{field} {value}"))
                    .collect();
                say(
                    Source::Rule,
                    &given,
                    &mut all,
                    format!("flow rule \"{}\": {}", entry.rule.name, says.join(", ")),
                );
                entry.rule.name.to_string()
            }
        };
        let has_metadata = ours || option.is_some() || winner.is_some();
        if has_metadata && all.priority.is_none() {
            let by_socket = p.priority.map_or(abi::BB_PRIORITY_NONE as u8, |n| {
                config.prio_table[usize::from(n.get())]
            });
            let by_dscp = config.dscp_table[usize::from(p.dscp.get() & 63)];
            let (priority, says) = match (by_socket, by_dscp) {
                (n @ 0..=7, _) => (n, "SO_PRIORITY, through the table of the configuration"),
                (_, n @ 0..=7) => (n, "DSCP, through the table of the configuration"),
                _ => (abi::BB_PRIORITY_DEFAULT as u8, "the default"),
            };
            say(
                Source::None,
                &Given {
                    priority: Some(priority),
                    ..Given::default()
                },
                &mut all,
                says.into(),
            );
        } else {
            let says = if has_metadata {
                "nothing is left open"
            } else {
                "best effort, never stale"
            };
            say(Source::None, &quiet, &mut all, says.into());
        }

        let delay = self.delay_to(p.dst)?.or_rule(rule_owd);
        let owd = delay.owd_ns.unwrap_or(0).cast_signed();
        let attached = self.by_name(&request.dev).map(|(_, a)| a.clone());
        let session = match &attached {
            None => String::new(),
            Some(_) if !has_metadata => format!("{}/plain-{}", request.dev, p.dst),
            Some(a) => match a.request.session {
                SessionKey::Dst => format!("{}/{}", request.dev, p.dst),
                SessionKey::Interface => format!("{}/interface", request.dev),
                SessionKey::Prefix(bits) => {
                    let (addr, bits) = network(p.dst, bits);
                    format!("{}/{addr}/{bits}", request.dev)
                }
                SessionKey::Flow => {
                    let key = abi::bb_flow_key {
                        src: fields.key.src,
                        dst: fields.key.dst,
                        ifindex: fields.key.ifindex,
                        mark,
                        sport: fields.key.sport,
                        dport: fields.key.dport,
                        family: fields.key.family,
                        proto: fields.key.proto,
                        dscp: fields.key.dscp,
                        pad: 0,
                    };
                    let seed = self.shared.config.get(&0)?.unwrap_or_default().seed;
                    format!("{}/flow-{:08x}", request.dev, flow_hash(&key, seed))
                }
            },
        };
        let lifetime_ns = if has_metadata {
            all.lifetime.flatten()
        } else {
            None
        };
        // A local TCP would take a drop at egress as congestion: the classifier never drops its packets.
        let local_tcp = p.proto == bestby_api::Proto::Tcp;
        let treatment = if local_tcp {
            "forward"
        } else {
            all.treatment.unwrap_or("discard")
        };
        let verdict = match (&attached, lifetime_ns) {
            (None, _) => format!("interface {} is not attached: the packet is sent untouched", request.dev),
            (Some(_), None) => "the packet has no deadline: it is never stale, and dropped only when the queue is full".into(),
            (Some(_), Some(left)) if left < owd => format!(
                "it is stale already: {} left, {} needed to arrive; treatment {treatment}",
                ms(left),
                ms(owd)
            ),
            (Some(a), Some(left)) => format!(
                "it must leave within {}, or it is stale (treatment {treatment}){}",
                ms(left - owd),
                match (a.request.observe, a.mode) {
                    (true, _) => "; counted at once if the model says it cannot, and sent all the same",
                    (_, Mode::Tc) => "; refused at once if the model says it cannot",
                    _ => "",
                }
            ),
        };
        let forwarded_marks = config.flags & abi::BB_CONFIG_FORWARDED_MARKS != 0;
        let mut notes = notes(p, ours, &flow, forwarded_marks);
        notes.extend(header_alone(p, treatment));
        let rule = winner.and_then(|w| self.book.entries.get(w));
        if let (Some(attached), Some(entry)) = (&attached, rule) {
            let rto = local_tcp && entry.rule.lifetime == Some(FlowLifetime::Rto);
            let state = if attached.request.observe {
                Err("It leaves without LPD's option: the interface only observes.")
            } else if lifetime_ns.is_none() && !rto {
                Err("It leaves without LPD's option: it has no deadline.")
            } else if p.option.is_some() {
                Err("It keeps the option that it has.")
            } else {
                Ok(())
            };
            notes.extend(self.stamp_note(&entry.rule, p.dst, state));
        }
        Ok(Explanation {
            packet: p.clone(),
            dev: request.dev.clone(),
            mode: attached.map(|a| a.mode.to_string()),
            rules,
            rules_left_out,
            sources,
            flow,
            session,
            priority: all.priority.unwrap_or(abi::BB_PRIORITY_DEFAULT as u8),
            treatment: treatment.into(),
            lifetime_ns,
            owd_ns: delay.owd_ns,
            owd_source: delay.source,
            owd_age_ns: delay.age_ns,
            verdict,
            notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_tells_what_the_description_leaves_open() {
        let of = |text: &str, mark, flow, forwarded_marks| {
            notes(&text.parse().unwrap(), mark, flow, forwarded_marks).join(" ")
        };
        let said = of("udp 10.0.0.2:5004", false, "audio", false);
        assert!(
            said.contains("signalling") && said.contains("\"audio\""),
            "{said}"
        );
        let said = of("udp 10.0.0.2:5004", false, NO_RULE, false);
        assert!(said.contains("plain"), "{said}");
        for other in ["udp 10.0.0.2:5004 rtp 111", "tcp 10.0.0.2:80"] {
            assert_eq!(of(other, false, "audio", false), "", "{other}");
        }
        let said = of("tcp 10.0.0.2:80", true, "audio", false);
        assert!(said.contains("false"), "{said}");
        let said = of("udp 10.0.0.2:80", true, "audio", true);
        assert!(
            said.contains("true") && !said.contains("signalling"),
            "{said}"
        );
    }

    #[test]
    fn header_alone_is_worth_nothing_to_srtp_and_quic() {
        let of = |text: &str, treatment| header_alone(&text.parse().unwrap(), treatment);
        let rtp = of("udp 10.0.0.2:5004 rtp 111", "truncate").unwrap();
        assert!(rtp.contains("SRTP"), "{rtp}");
        let other = of("udp 10.0.0.2:443", "truncate").unwrap();
        assert!(other.contains("QUIC"), "{other}");
        assert_eq!(of("udp 10.0.0.2:443", "discard"), None);
    }

    #[test]
    fn mark_gives_lifetime_and_priority() {
        let relative = abi::BB_MARK_RELATIVE | 800 | 2 << abi::BB_MARK_PRIORITY_SHIFT;
        let given = from_mark(0xb000_0000 | relative, 0xf000_0000, 77);
        assert_eq!(
            (given.lifetime, given.priority, given.treatment),
            (Some(Some(200_000_000)), Some(2), None)
        );
        // Absolute, across the wrap of the 19-bit clock: 100 units ahead.
        let now = (3 * (1 << 19) - 50) * 250_000;
        let given = from_mark(50, 0, now);
        assert_eq!(given.lifetime, Some(Some(100 * 250_000)));
        // ... and behind.
        let given = from_mark((1 << 19) - 60, 0, now);
        assert_eq!(given.lifetime, Some(Some(-10 * 250_000)));
        assert_eq!(from_mark(0, 0, now).lifetime, Some(None));
    }
}
