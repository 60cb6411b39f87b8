//! `bestby explain`: for one packet, what the classifier itself says (`kernel/explain.rs`), in words.

mod described;
mod frame;
mod words;

use std::net::IpAddr;

use bestby_api::{
    ExplainRequest, Explanation, FlowLifetime, FlowName, LpdExpiry, NO_RULE, PacketDescription,
    Proto, RuleVerdict, Source, SourceAnswer, StaleTreatment,
};
use bestby_bpf::{abi, dscp_so_priority};
use nix::ifaddrs::getifaddrs;

use crate::datapath::Datapath;
use crate::error::{Error, Result, Tried as _};
use crate::faces::session::session_name;
use crate::faces::streams::Stream;
use crate::kernel::explain::{Answer, Question};
use crate::observed::attached::Attached;

/// Rules listed before and at the winning one; the middle of a longer list is left out.
const SHOWN: usize = 50;

/// The steps of the classifier, and the sources that they ask.
const STEPS: [(u32, Source); 7] = [
    (abi::BB_STEP_MARK, Source::Mark),
    (abi::BB_STEP_TXTIME, Source::Txtime),
    (abi::BB_STEP_SOCKET, Source::Sockopt),
    (abi::BB_STEP_OPTION, Source::IpOption),
    (abi::BB_STEP_RULE, Source::Rule),
    // Says no more than the priority, and is no step in which all that is known is written down.
    (abi::BB_STEPS, Source::Frame),
    (abi::BB_STEP_REST, Source::None),
];

/// Whether this host would not send such a packet, but forward it: its source is no address of the host's.
fn is_forwarded(src: Option<IpAddr>) -> Result<bool> {
    let Some(src) = src else {
        return Ok(false);
    };
    if src.is_unspecified() || src.is_loopback() {
        return Ok(false);
    }
    let all = getifaddrs().tried(|| "listing the addresses of this host".into())?;
    let own = all.filter_map(|a| a.address).any(|a| {
        let v4 = a.as_sockaddr_in().map(|a| IpAddr::from(a.ip()));
        let v6 = a.as_sockaddr_in6().map(|a| IpAddr::from(a.ip()));
        v4.or(v6) == Some(src)
    });
    Ok(!own)
}

/// `SO_PRIORITY`, if said, else what the kernel makes of IPv4's TOS.
fn so_priority(p: &PacketDescription) -> u32 {
    match p.priority {
        Some(priority) => priority.get().into(),
        None if p.dst.is_ipv4() => dscp_so_priority(p.dscp.get()),
        None => 0,
    }
}

/// A question to the classifier, and of what time it is.
pub(crate) struct Asking {
    /// For [`crate::kernel::explain::ask`].
    pub question: Question,
    /// Generation of the rules in force, which a change of an interface moves on, too.
    rule_gen: u32,
    forwarded: bool,
    /// Its RTP stream, if it was heard at the interface.
    stream: Option<Stream>,
}

/// What came of it.
pub(crate) struct Answered {
    pub answer: Answer,
    pub asked: Asking,
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

    fn rule_gen(&self) -> Result<u32> {
        Ok(self.shared.config.get(&0)?.unwrap_or_default().rule_gen)
    }

    /// The question that a request is.
    ///
    /// # Errors
    /// Unknown interface, or a packet that cannot be.
    pub(crate) fn question(&mut self, request: &ExplainRequest) -> Result<Asking> {
        let link = self.tc.link(request.dev.as_str())?;
        let p = &request.packet;
        let forwarded = is_forwarded(p.src)?;
        let frame = described::frame(p, &self.config.agent.ip_option)
            .map_err(|e| Error::invalid(format!("no such packet can be made: {e}")))?;
        let stream = self.stream_of(link.ifindex, p)?;
        let mut told = abi::bb_told {
            explain: 1,
            forwarded: forwarded.into(),
            // What stands for a payload that was not described is not read.
            video: match (stream, &p.payload) {
                (Some(stream), Some(_)) => stream.between_frames(),
                _ => abi::bb_video::default(),
            },
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
        let mut iface = match self.by_name(&request.dev) {
            Some((slot, _)) => self.shared.ifaces.get(&slot)?.unwrap_or_default(),
            None => abi::bb_iface {
                mode: abi::BB_MODE_QDISC as u8,
                session_kind: abi::BB_SESSION_DST as u8,
                ..Default::default()
            },
        };
        iface.ifindex = link.ifindex;
        Ok(Asking {
            question: Question {
                dir: self.paths.bpffs.clone(),
                in_force: self.shared.in_force()?,
                iface,
                told,
                frame: frame.bytes,
                wire_len: frame.wire_len,
                mark: p.mark,
                priority: so_priority(p),
            },
            rule_gen: self.rule_gen()?,
            forwarded,
            stream,
        })
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
                StaleTreatment::Forward => "forward",
                StaleTreatment::Discard => "discard",
                StaleTreatment::Truncate => "truncate",
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

    /// The first rule that covers the media of an RTCP packet: they are on the port before.
    fn media_of_rtcp(
        &self,
        request: &ExplainRequest,
        seen: &PacketDescription,
    ) -> Option<&FlowName> {
        let before = |port: Option<u16>| port.map(|port| port.wrapping_sub(1));
        let media = PacketDescription {
            sport: before(seen.sport),
            dport: before(seen.dport),
            ..seen.clone()
        };
        let mut rules = self.book.entries.iter().map(|entry| &entry.rule);
        let covers = |rule: &&bestby_api::FlowRule| {
            rule.matches(&request.dev, &media, self.rtp_profile).is_ok()
        };
        let rule = rules.find(covers)?;
        (seen.proto == Proto::Udp && seen.dport.is_some()).then_some(&rule.name)
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
            .filter(|(field, _)| {
                matches!(
                    *field,
                    "lifetime" | "priority" | "treatment" | "owd" | "media" | "chain" | "roles"
                )
            })
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
        let by_dscp = config.dscp_table[usize::from(p.dscp.get() & 63)];
        // What the kernel makes of the DSCP says less than that.
        let of_socket = so_priority(p);
        let said = !is_priority(by_dscp) || of_socket != dscp_so_priority(p.dscp.get());
        Ok(
            if said && is_priority(config.prio_table[of_socket as usize & 15]) {
                "SO_PRIORITY, through the table of the configuration".into()
            } else if is_priority(by_dscp) {
                "DSCP, through the table of the configuration".into()
            } else {
                "the default".into()
            },
        )
    }

    /// POST /v1/explain, when the classifier has answered; `None`: rules or interfaces changed meanwhile.
    ///
    /// # Errors
    /// A map cannot be read.
    pub(crate) fn explanation(
        &self,
        request: &ExplainRequest,
        of: &Answered,
    ) -> Result<Option<Explanation>> {
        let Answered { answer, asked } = of;
        if asked.rule_gen != self.rule_gen()? {
            return Ok(None);
        }
        let (p, forwarded) = (&request.packet, asked.forwarded);
        let there = self
            .by_name(&request.dev)
            .map(|(slot, a)| (slot, a.clone()));
        let rate = there.as_ref().and_then(|(slot, a)| self.rate_of(*slot, a));
        let attached = there.map(|(_, a)| a);
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
        let mut before = words::NOTHING;
        for (step, source) in STEPS {
            let mut decides = Vec::new();
            if let Some(after) = answer.after(step) {
                decides = words::decided(&before, after);
                before = *after;
            }
            // The default comes first, and what the frame is for in its place.
            let by_frame = explained.read.decides != 0;
            if by_frame && source == Source::Frame {
                decides.push("priority".into());
            }
            if by_frame && source == Source::None {
                decides.retain(|field| field != "priority");
            }
            let says = match source {
                Source::Mark => words::mark_says(p.mark, by_mark, answer, now),
                Source::Txtime => {
                    "a description cannot say: a deadline-mode SO_TXTIME socket would decide the deadline here".into()
                }
                Source::Sockopt => {
                    "a description cannot say: options set on the socket would decide here".into()
                }
                Source::IpOption => self.option_says(request, attached.as_ref(), answer, forwarded),
                Source::Rule => rule_says.clone(),
                Source::Frame => {
                    let rule = winner.and_then(|w| self.book.entries.get(w));
                    match frame::says(p, rule.map(|e| &e.rule), asked.stream.as_ref(), &explained.read) {
                        Some(says) => says,
                        None => continue,
                    }
                }
                Source::None => self.rest_says(p, answer, !decides.is_empty())?,
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
        let treatment =
            words::treatment_name(u32::from(explained.class_ >> 4)).unwrap_or("discard");
        let forwarded_marks = self.shared.config.get(&0)?.unwrap_or_default().flags
            & abi::BB_CONFIG_FORWARDED_MARKS
            != 0;
        let mut notes = words::notes(p, by_mark.is_some(), &flow, forwarded_marks);
        notes.extend(words::header_alone(p, treatment));
        if let (None, Some(media)) = (winner, self.media_of_rtcp(request, &seen)) {
            notes.extend(words::rtcp(p, explained, media.as_str()));
        }
        if let (Some(_), Some(entry), Some(left)) = (&attached, rule, lifetime_ns) {
            let largest = self.largest_frame(entry.id);
            let owd = explained.owd_ns;
            notes.extend(words::too_large(p.len, largest, rate, left, owd));
        }
        if let Some(cgroup) = &p.cgroup
            && self.names.cgroup_ancestors(cgroup).is_none()
        {
            notes.push(format!(
                "There is no cgroup {cgroup}, so no rule with a cgroup matches."
            ));
        }
        let local_tcp = p.proto == Proto::Tcp && !forwarded;
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
        // A description says no user, and of a plain flow its ports perhaps not, which say to which of 16 it belongs.
        let mut session = answer.session;
        session.key.part = 0;
        let of_user = session.way.tag != 0 && session.key.media == 0 && !forwarded;
        let session = match attached {
            None => String::new(),
            Some(_) => {
                let name = session_name(explained.session, &session, |_| {
                    Some(request.dev.to_string())
                });
                if of_user {
                    format!("{name}/uid-N")
                } else {
                    name
                }
            }
        };
        Ok(Some(Explanation {
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
            read_as: words::read_as(p, explained),
            verdict: words::verdict(request, attached.as_ref(), answer, lifetime_ns, treatment),
            notes,
        }))
    }
}
