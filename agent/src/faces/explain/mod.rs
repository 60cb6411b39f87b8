//! `bestby explain`: for one packet, what the classifier itself says (`kernel/explain.rs`), in words.

use std::net::UdpSocket;

use bestby_api::{
    ExplainRequest, Explanation, FlowLifetime, LpdExpiry, Mode, NO_RULE, PacketDescription,
    RuleVerdict, Source, SourceAnswer,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::{Error, Result};
use crate::faces::described::frame;
use crate::faces::session::session_name;
use crate::kernel::explain::{Answer, Question, ask};
use crate::kernel::tc::Link;
use crate::observed::attached::Attached;

/// Rules listed before and at the winning one; the middle of a longer list is left out.
const SHOWN: usize = 50;
/// Device types whose frames begin with Ethernet's header, as the classifier has it.
const ETHERNET: [u16; 2] = [1, 772];

/// Whether this host would not send such a packet, but forward it.
fn is_forwarded(p: &PacketDescription) -> bool {
    p.src.is_some_and(|src| UdpSocket::bind((src, 0)).is_err())
}

const fn treatment_name(treatment: u32) -> Option<&'static str> {
    match treatment {
        abi::BB_TREAT_FORWARD => Some("forward"),
        abi::BB_TREAT_DISCARD => Some("discard"),
        abi::BB_TREAT_TRUNCATE => Some("truncate"),
        _ => None,
    }
}

/// What no source has said anything of.
const NOTHING: abi::bb_said = abi::bb_said {
    deadline: 0,
    lifetime: 0,
    done: 1,
    no_deadline: 0,
    counts: 0,
    priority: abi::BB_PRIORITY_NONE as u8,
    treatment: abi::BB_TREAT_DEFAULT as u8,
    pad: [0; 3],
};

/// Time left of what was said, ns; `None`: no deadline.
fn left(said: &abi::bb_said, now: u64) -> Option<i64> {
    match (said.lifetime, said.deadline) {
        (0, 0) => None,
        (0, deadline) => Some(deadline.wrapping_sub(now).cast_signed()),
        (lifetime, _) => i64::try_from(lifetime).ok(),
    }
}

/// The fields that are said after a step, and were not before it.
fn decided(before: &abi::bb_said, after: &abi::bb_said) -> Vec<String> {
    let has_time = |s: &abi::bb_said| s.deadline != 0 || s.lifetime != 0 || s.no_deadline != 0;
    let has_priority = |s: &abi::bb_said| u32::from(s.priority) < abi::BB_PRIORITIES;
    [
        ("deadline", has_time(before), has_time(after)),
        ("priority", has_priority(before), has_priority(after)),
        ("treatment", before.treatment != 0, after.treatment != 0),
    ]
    .into_iter()
    .filter(|(_, was, is)| !was && *is)
    .map(|(field, ..)| field.to_string())
    .collect()
}

/// The steps of the classifier, and the sources that they ask.
const STEPS: [(u32, Source); 6] = [
    (abi::BB_STEP_MARK, Source::Mark),
    (abi::BB_STEP_TXTIME, Source::Txtime),
    (abi::BB_STEP_SOCKET, Source::Sockopt),
    (abi::BB_STEP_OPTION, Source::IpOption),
    (abi::BB_STEP_RULE, Source::Rule),
    (abi::BB_STEP_REST, Source::None),
];

/// What the mark says, or why it does not count.
fn mark_says(mark: u32, counts: Option<&abi::bb_said>, answer: &Answer, now: u64) -> String {
    let Some(said) = counts else {
        return if answer.counted(abi::BB_G_FORWARDED_MARK) {
            "the mark of a forwarded packet is not believed: forwarded_marks is false in the configuration"
        } else if mark == 0 {
            "no mark"
        } else {
            "the mark is not bestby's: it says nothing"
        }
        .into();
    };
    let time = match left(said, now) {
        None => "no deadline".to_string(),
        Some(ns) => format!("deadline in {}", ms(ns)),
    };
    let priority = match u32::from(said.priority) {
        n @ 0..abi::BB_PRIORITIES => n.to_string(),
        _ => "not said".into(),
    };
    let treatment = treatment_name(said.treatment.into()).unwrap_or("not said");
    format!("{time}, priority {priority}, treatment {treatment}")
}

/// What happens to the packet, in a sentence.
fn verdict(
    request: &ExplainRequest,
    attached: Option<&Attached>,
    explained: &abi::bb_explained,
    lifetime_ns: Option<i64>,
    treatment: &str,
) -> String {
    let Some(attached) = attached else {
        let dev = &request.dev;
        return format!("interface {dev} is not attached: the packet is sent untouched");
    };
    let Some(left) = lifetime_ns else {
        return if explained.control != 0 {
            "the packet is signalling: it is never stale, and dropped only when the queue is full"
        } else {
            "the packet has no deadline: it is never stale, and dropped only when the queue is full"
        }
        .into();
    };
    let owd = explained.owd_ns.cast_signed();
    if explained.stale != 0 {
        return format!(
            "it is stale already: {} left, {} needed to arrive; treatment {treatment}",
            ms(left),
            ms(owd)
        );
    }
    let then = match (attached.request.observe, attached.mode) {
        (true, _) => "; counted at once if the model says it cannot, and sent all the same",
        (_, Mode::Tc) => "; refused at once if the model says it cannot",
        _ => "",
    };
    let within = format!(
        "it must leave within {}, or it is stale (treatment {treatment}){then}",
        ms(left - owd)
    );
    if explained.reason == abi::BB_DROP_PREDICTED.cast_signed() {
        format!("{within}; on an idle link it cannot: its transmission takes longer")
    } else {
        within
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

    /// What the classifier says of the packet.
    fn judged(
        &self,
        link: &Link,
        attached: Option<(u32, &Attached)>,
        p: &PacketDescription,
        forwarded: bool,
    ) -> Result<Answer> {
        let ethernet = ETHERNET.contains(&link.arp_type);
        let frame = frame(p, &self.config.agent.ip_option, ethernet)
            .map_err(|e| Error::invalid(format!("no such packet can be made: {e}")))?;
        let mut told = abi::bb_told {
            explain: 1,
            forwarded: forwarded.into(),
            ..Default::default()
        };
        let above = p
            .cgroup
            .as_ref()
            .and_then(|c| self.names.cgroup_ancestors(c));
        for (to, id) in told.cgroups.iter_mut().zip(above.unwrap_or_default()) {
            *to = id;
        }
        // One that is not attached is judged as if it were, so that the rules can be asked.
        let mut iface = match attached {
            Some((slot, _)) => self.shared.ifaces.get(&slot)?.unwrap_or_default(),
            None => abi::bb_iface {
                mode: abi::BB_MODE_QDISC as u8,
                session_kind: abi::BB_SESSION_DST as u8,
                ..Default::default()
            },
        };
        iface.ifindex = link.ifindex;
        ask(
            &self.paths.bpffs,
            &Question {
                iface,
                told,
                frame: &frame.bytes,
                wire_len: frame.wire_len,
                mark: p.mark,
                priority: p.priority.map_or(0, |n| n.get().into()),
            },
        )
    }

    /// What LPD's option says, or why it does not count.
    fn option_says(
        &self,
        request: &ExplainRequest,
        attached: Option<&Attached>,
        answer: &Answer,
        forwarded: bool,
    ) -> String {
        let (dev, p) = (&request.dev, &request.packet);
        let Some(option) = p.option else {
            return "the packet has no IP option of LPD".into();
        };
        let whose = p.src.filter(|_| forwarded);
        if let Some(said) = answer.after(abi::BB_STEP_OPTION)
            && said.counts != 0
        {
            let form = match option.expiry {
                LpdExpiry::Lifetime(_) => "lifetime",
                LpdExpiry::Deadline(_) => "deadline in",
            };
            let whose = match whose.and_then(|src| attached?.request.trust.of(src)) {
                Some(prefix) => format!("{prefix} is trusted on {dev}"),
                None => "of this host".into(),
            };
            let treatment = match option.treatment {
                bestby_api::StaleTreatment::Forward => "forward",
                bestby_api::StaleTreatment::Discard => "discard",
                bestby_api::StaleTreatment::Truncate => "truncate",
            };
            let since_epoch = std::time::SystemTime::now()
                .duration_since(std::time::SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            let ms = option.expiry.remaining_ms(since_epoch);
            return format!("{form} {ms} ms, treatment {treatment} ({whose})");
        }
        let why = [
            (abi::BB_G_OPTION_UNTRUSTED, "untrusted"),
            (abi::BB_G_OPTION_NO_CLOCK, "clock"),
            (abi::BB_G_OPTION_FAR, "far"),
        ]
        .into_iter()
        .find(|(which, _)| answer.counted(*which));
        match (why, whose) {
            (Some((_, "untrusted")), Some(src)) => format!(
                "{src} is not trusted on {dev}, so its IP option does not count: bestby iface attach {dev} --trust {src}"
            ),
            (Some((_, "clock")), _) => {
                let why = self
                    .clock
                    .trouble()
                    .unwrap_or_else(|| "the clock is not synchronised".into());
                format!("its deadline does not count: {why}")
            }
            (Some((_, "far")), _) => {
                "its deadline is more than 131 s away, so it does not count".into()
            }
            _ if answer.after(abi::BB_STEP_OPTION).is_none() => {
                "not asked: the packet is signalling".into()
            }
            _ => "it says nothing that counts".into(),
        }
    }

    /// What a flow rule says, and whether it is the first that matches.
    fn rule_says(&self, winner: Option<usize>) -> (String, String) {
        let Some(entry) = winner.and_then(|w| self.book.entries.get(w)) else {
            return (NO_RULE.into(), "no flow rule matches".into());
        };
        let said: Vec<String> = entry
            .rule
            .given()
            .into_iter()
            .filter(|(field, _)| matches!(*field, "lifetime" | "priority" | "treatment" | "owd"))
            .map(|(field, value)| format!("{field} {value}"))
            .collect();
        let name = entry.rule.name.to_string();
        let says = format!("flow rule \"{name}\": {}", said.join(", "));
        (name, says)
    }

    /// What gives a packet a priority that no source gave one.
    fn rest_says(&self, p: &PacketDescription, answer: &Answer, decides: bool) -> Result<String> {
        if answer.explained.known == 0 {
            return Ok("best effort, never stale".into());
        }
        if !decides {
            return Ok("nothing is left open".into());
        }
        let config = self.shared.config.get(&0)?.unwrap_or_default();
        let is_priority = |n: u8| u32::from(n) < abi::BB_PRIORITIES;
        let of_socket = p.priority.map_or(0, |n| usize::from(n.get()));
        Ok(if is_priority(config.prio_table[of_socket]) {
            "SO_PRIORITY, through the table of the configuration".into()
        } else if is_priority(config.dscp_table[usize::from(p.dscp.get() & 63)]) {
            "DSCP, through the table of the configuration".into()
        } else {
            "the default".into()
        })
    }

    /// POST /v1/explain.
    ///
    /// # Errors
    /// Unknown interface, a packet that cannot be, or the kernel refuses to run the classifier on it.
    pub fn explain(&mut self, request: &ExplainRequest) -> Result<Explanation> {
        let link = self.tc.link(request.dev.as_str())?;
        let p = &request.packet;
        let forwarded = is_forwarded(p);
        let attached = self.by_name(&request.dev);
        let answer = self.judged(&link, attached, p, forwarded)?;
        let attached = attached.map(|(_, a)| a.clone());
        let explained = &answer.explained;
        let now = explained.now;

        let winner = match explained.rule {
            0 => None,
            id => self.book.entries.iter().position(|e| e.id == id),
        };
        let by_mark = answer.after(abi::BB_STEP_MARK).filter(|s| s.counts != 0);
        // Rules see the marks of others only: ours differ with every packet.
        let seen = PacketDescription {
            mark: if by_mark.is_some() { 0 } else { p.mark },
            ..p.clone()
        };
        let (rules, rules_left_out) = self.verdicts(request, &seen, winner);
        let (flow, rule_says) = self.rule_says(winner);

        let mut sources: Vec<SourceAnswer> = Vec::new();
        let mut before = NOTHING;
        for (step, source) in STEPS {
            let mut decides = Vec::new();
            if let Some(after) = answer.after(step) {
                decides = decided(&before, after);
                before = *after;
            }
            let says = match source {
                Source::Mark => mark_says(p.mark, by_mark, &answer, now),
                Source::Txtime => {
                    "a description cannot say: a deadline-mode SO_TXTIME socket would decide the deadline here".into()
                }
                Source::Sockopt => {
                    "a description cannot say: options set on the socket would decide here".into()
                }
                Source::IpOption => self.option_says(request, attached.as_ref(), &answer, forwarded),
                Source::Rule => rule_says.clone(),
                Source::None => self.rest_says(p, &answer, !decides.is_empty())?,
            };
            sources.push(SourceAnswer {
                source,
                decides,
                says,
            });
        }

        let rule = winner.and_then(|w| self.book.entries.get(w));
        let rule_owd = match rule {
            Some(entry) => self.shared.rules.get(&u32::from(entry.id))?,
            None => None,
        }
        .map_or(0, |kernel| kernel.owd_default_ns);
        let delay = self.delay_to(p.dst)?.or_rule(rule_owd);
        let lifetime_ns = match explained.deadline {
            0 => None,
            deadline => Some(deadline.wrapping_sub(now).cast_signed()),
        };
        let treatment = treatment_name(u32::from(explained.class_ >> 4)).unwrap_or("discard");
        let forwarded_marks = self.shared.config.get(&0)?.unwrap_or_default().flags
            & abi::BB_CONFIG_FORWARDED_MARKS
            != 0;
        let mut notes = notes(p, by_mark.is_some(), &flow, forwarded_marks);
        notes.extend(header_alone(p, treatment));
        let local_tcp = p.proto == bestby_api::Proto::Tcp && !forwarded;
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
        // Which of its user's 16 a plain flow joins differs by its ports, which may not be said.
        let mut session = answer.session;
        session.key.part = 0;
        let session = match attached {
            None => String::new(),
            Some(_) => session_name(explained.session, &session, |_| {
                Some(request.dev.to_string())
            }),
        };
        Ok(Explanation {
            packet: p.clone(),
            dev: request.dev.clone(),
            mode: attached.as_ref().map(|a| a.mode.to_string()),
            rules,
            rules_left_out,
            sources,
            flow,
            session,
            priority: explained.class_ & 7,
            treatment: treatment.into(),
            lifetime_ns,
            owd_ns: delay.owd_ns,
            owd_source: delay.source,
            owd_age_ns: delay.age_ns,
            verdict: verdict(
                request,
                attached.as_ref(),
                explained,
                lifetime_ns,
                treatment,
            ),
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
    fn decided_is_what_a_step_adds() {
        let by_mark = abi::bb_said {
            lifetime: 200_000_000,
            priority: 2,
            counts: 1,
            ..NOTHING
        };
        assert_eq!(decided(&NOTHING, &by_mark), ["deadline", "priority"]);
        assert_eq!(left(&by_mark, 77), Some(200_000_000));
        let by_rule = abi::bb_said {
            treatment: abi::BB_TREAT_DISCARD as u8,
            ..by_mark
        };
        assert_eq!(decided(&by_mark, &by_rule), ["treatment"]);
        assert_eq!(decided(&by_rule, &by_rule), [""; 0]);
        let none = abi::bb_said {
            no_deadline: 1,
            ..NOTHING
        };
        assert_eq!(
            (decided(&NOTHING, &none), left(&none, 77)),
            (vec!["deadline".into()], None)
        );
        let past = abi::bb_said {
            deadline: 67,
            ..NOTHING
        };
        assert_eq!(left(&past, 77), Some(-10));
    }
}
