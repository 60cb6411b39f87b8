//! Settings that are valid and probably a mistake. Pure, so that the commands, a reload, `bestby doctor` and
//! `bestby config check` say the same.
//!
//! A warning refuses nothing. It says what was set, on what, why that is likely a mistake, and what to do.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::{
    Config, FlowRule, InterfaceSettings, LinkRate, Mode, Owd, PeerConfig, Prefix, Probe, Rate,
    SessionKey,
};

/// Rules that are compared with each other: all pairs of a very long list would take seconds.
const COMPARED: usize = 2000;
/// Receivers that are looked at for one rule, those with the longest delays first.
const RECEIVERS: usize = 16;
/// Warnings of one kind that are told one by one.
const TOLD: usize = 10;

/// Something that is allowed and probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Which kind of mistake, for programs: lower-case words joined by `-`, which later versions keep.
    pub id: &'static str,
    /// What was set, on what, and why that is likely a mistake.
    pub what: String,
    /// What to do.
    pub todo: String,
    /// It may well be meant: `doctor` says it and does not complain.
    pub harmless: bool,
}

impl Warning {
    fn new(id: &'static str, what: String, todo: String) -> Self {
        Self {
            id,
            what,
            todo,
            harmless: false,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.todo)
    }
}

/// An interface under control, or one that shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controlled {
    /// Its settings; the mode in force, where that is known.
    pub settings: InterfaceSettings,
    /// What its link can carry, Mbit/s; `None`: nobody knows.
    pub speed_mbit_s: Option<u32>,
    /// A VLAN device that makes the priority of its tags of `SO_PRIORITY` (`egress-qos-map`), and whose HTB tree has no
    /// filter.
    pub tags_priority: bool,
    /// Whether its device has pushed back, so that its rate is seen; `None`: nobody looked.
    pub pushed_back: Option<bool>,
}

/// All that is set, and what is known of the links.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    rules: Vec<&'a FlowRule>,
    /// Those with the longest delays come first.
    receivers: Vec<PeerConfig>,
    interfaces: Vec<Controlled>,
}

impl<'a> Setup<'a> {
    /// Rules in the order in which they are tried, receivers of which the operator said something, and interfaces.
    pub fn new(
        rules: Vec<&'a FlowRule>,
        mut receivers: Vec<PeerConfig>,
        interfaces: Vec<Controlled>,
    ) -> Self {
        receivers.sort_by_key(|r| std::cmp::Reverse(r.owd.map_or(0, Owd::as_ns)));
        Self {
            rules,
            receivers,
            interfaces,
        }
    }

    /// What a file says by itself: links are not looked at.
    pub fn of_file(config: &'a Config) -> Self {
        let interface = |request: &crate::AttachRequest| Controlled {
            settings: request.settings(),
            speed_mbit_s: None,
            tags_priority: false,
            pushed_back: None,
        };
        Self::new(
            config.flows.iter().collect(),
            config.peers.clone(),
            config.interfaces.iter().map(interface).collect(),
        )
    }

    /// The earlier rule because of which a packet that matches `rule` never comes to place `at`.
    fn hider(&self, at: usize, rule: &FlowRule) -> Option<&FlowRule> {
        let earlier = self.rules.iter().take(at.min(COMPARED));
        earlier.copied().find(|earlier| earlier.covers(rule))
    }

    fn hidden(rule: &FlowRule, by: &FlowRule) -> Warning {
        Warning::new(
            "flow-hidden",
            format!(
                "flow rule \"{}\" never gets a packet: \"{}\" comes first and matches everything it does",
                rule.name, by.name
            ),
            format!(
                "remove it, or add it again in front: bestby flow rm {0}; bestby flow add {0} ... --before {1}",
                rule.name, by.name
            ),
        )
    }

    /// What is likely wrong with the rule at a place of the list, from 0. There is nothing to say of a place behind
    /// the list's end.
    pub fn of_rule(&self, at: usize) -> Vec<Warning> {
        let Some(rule) = self.rules.get(at).copied() else {
            return Vec::new();
        };
        // Nothing that it says has an effect.
        if let Some(by) = self.hider(at, rule) {
            return vec![Self::hidden(rule, by)];
        }
        let mut warnings = Vec::new();
        if rule.matches_all() {
            warnings.push(Warning::new(
                "flow-matches-all",
                format!(
                    "flow rule \"{}\" matches every packet that no earlier rule takes, downloads and DNS included: all \
                     of that counts as media and goes first",
                    rule.name
                ),
                format!("bestby flow set {} --dport PORT, or another match", rule.name),
            ));
        }
        warnings.extend(late_by_itself(rule));
        warnings.extend(self.roles_in_mode_tc(rule));
        let receivers = self.receivers.iter().take(RECEIVERS);
        warnings.extend(receivers.filter_map(|r| self.late_to(at, r)).next());
        warnings
    }

    /// Mode tc keeps room for the usual burst of each priority. Until it knows when key frames come, they are one
    /// (bb_tc_model.h).
    fn roles_in_mode_tc(&self, rule: &FlowRule) -> Option<Warning> {
        let roles = rule.roles?;
        let [key, links @ .., _] = roles.priorities();
        if links.iter().all(|link| *link == key) {
            return None;
        }
        let refuses = |i: &&Controlled| {
            let s = &i.settings;
            let here = rule.dev.as_ref().is_none_or(|dev| *dev == s.dev);
            here && s.mode == Mode::Tc && !s.observe && s.rate.is_some()
        };
        let dev = &self.interfaces.iter().find(refuses)?.settings.dev;
        let level = format!("{key},{key},{key},{key},7");
        Some(Warning::new(
            "roles-in-mode-tc",
            format!(
                "flow rule \"{}\": with roles {roles} mode tc on {dev} keeps room for a key frame until it knows when \
                 one comes, so it refuses frames that would have found room",
                rule.name
            ),
            format!(
                "bestby flow set {} --roles none, or one priority for all but the last: {level}; or use mode qdisc \
                 (Linux 6.16)",
                rule.name
            ),
        ))
    }

    /// The later rules that get no packet because of the one at this place.
    pub fn hidden_by(&self, at: usize) -> Vec<Warning> {
        let Some(by) = self.rules.get(at).copied() else {
            return Vec::new();
        };
        let later = self.rules.iter().skip(at + 1).copied();
        let hidden = later.filter(|later| by.covers(later));
        hidden.map(|later| Self::hidden(later, by)).collect()
    }

    /// Whether the rule's packets to this receiver are too late whenever they leave. A delay that the operator set
    /// counts whole, and before the rule's own.
    fn late_to(&self, at: usize, receiver: &PeerConfig) -> Option<Warning> {
        let rule = *self.rules.get(at)?;
        let (lifetime, owd) = (rule.lifetime?.time()?, receiver.owd?);
        if lifetime.as_ns() >= owd.as_ns() {
            return None;
        }
        let its = narrowed(rule, receiver.addr)?;
        if self.hider(at, &its).is_some() {
            return None;
        }
        Some(Warning::new(
            "flow-late",
            format!(
                "flow rule \"{}\": lifetime {lifetime} is below the one-way delay of {owd} that is set for receiver {}, \
                 so each of its packets there is too late",
                rule.name, receiver.addr
            ),
            format!(
                "bestby flow set {} --lifetime TIME, or bestby session set {} --owd TIME",
                rule.name, receiver.addr
            ),
        ))
    }

    /// What is likely wrong with what is set of a receiver.
    pub fn of_receiver(&self, receiver: &PeerConfig) -> Vec<Warning> {
        let mut warnings = self.rate_of(receiver);
        let rules = 0..self.rules.len().min(COMPARED);
        warnings.extend(rules.filter_map(|at| self.late_to(at, receiver)));
        warnings
    }

    /// A session's rate matters only in mode qdisc, and where it is the lower one.
    fn rate_of(&self, receiver: &PeerConfig) -> Vec<Warning> {
        let tc = |i: &Controlled| i.settings.mode == Mode::Tc && !i.settings.observe;
        if let (Some(rate), Some(first)) = (receiver.rate, self.interfaces.first())
            && self.interfaces.iter().all(tc)
        {
            return vec![Warning::new(
                "rate-in-mode-tc",
                format!(
                    "receiver {}: rate {rate} has no effect, because every interface under control is in mode tc, which \
                     knows the rate of the interface only",
                    receiver.addr
                ),
                format!(
                    "give the rate of the slowest link on the way to the interface: bestby iface set {} --rate RATE; or \
                     use mode qdisc (Linux 6.16)",
                    first.settings.dev
                ),
            )];
        }
        let most = |i: &Controlled| i.settings.rate.and_then(LinkRate::most);
        let rates: Option<Vec<Rate>> = self.interfaces.iter().map(most).collect();
        let largest = rates.and_then(|rates| rates.into_iter().max());
        let (Some(rate), Some(largest)) = (receiver.rate, largest) else {
            return Vec::new();
        };
        if rate <= largest {
            return Vec::new();
        }
        vec![Warning::new(
            "rate-above-interface",
            format!(
                "receiver {}: rate {rate} is above the rate of every interface under control ({largest} at most), so it \
                 has no effect",
                receiver.addr
            ),
            format!(
                "give what its link carries, or nothing: bestby session set {} --rate RATE|none",
                receiver.addr
            ),
        )]
    }

    /// Without a rate nothing waits here, so nothing can be chosen: what is late waits somewhere else.
    fn holds_no_queue(&self, controlled: &Controlled) -> Option<Warning> {
        let settings = &controlled.settings;
        let told = settings.rate.is_some() || self.receivers.iter().any(|r| r.rate.is_some());
        if told || settings.observe || controlled.pushed_back != Some(false) {
            return None;
        }
        Some(Warning::new(
            "holds-no-queue",
            format!(
                "interface {} holds no queue: no rate is known, and the device has not pushed back; so packets wait \
                 elsewhere, and only what is late already is dropped",
                settings.dev
            ),
            format!(
                "give a little less than the narrowest link on the way carries: bestby iface set {} --rate RATE",
                settings.dev
            ),
        ))
    }

    /// What is likely wrong with an interface, and what rates of receivers mean because of it.
    pub fn of_interface(&self, controlled: &Controlled) -> Vec<Warning> {
        let mut warnings = of_settings(controlled);
        warnings.extend(self.holds_no_queue(controlled));
        warnings.extend(self.receivers.iter().flat_map(|r| self.rate_of(r)));
        warnings
    }

    /// All that is likely wrong.
    pub fn all(&self) -> Vec<Warning> {
        let rules = 0..self.rules.len().min(COMPARED);
        let mut all: Vec<Warning> = rules.flat_map(|at| self.of_rule(at)).collect();
        all.extend(self.interfaces.iter().flat_map(of_settings));
        all.extend(
            self.interfaces
                .iter()
                .filter_map(|i| self.holds_no_queue(i)),
        );
        all.extend(self.receivers.iter().flat_map(|r| self.rate_of(r)));
        shortened(all)
    }
}

/// Where no delay is measured or set, the rule's own applies.
fn late_by_itself(rule: &FlowRule) -> Option<Warning> {
    let (lifetime, owd) = (rule.lifetime?.time()?, rule.owd?);
    (lifetime.as_ns() < owd.as_ns()).then(|| {
        Warning::new(
            "flow-late",
            format!(
                "flow rule \"{}\": lifetime {lifetime} is below its one-way delay (owd) of {owd}, so each packet is too \
                 late to a receiver whose delay is neither measured nor set",
                rule.name
            ),
            format!("bestby flow set {} --lifetime TIME, or --owd TIME", rule.name),
        )
    })
}

/// What of a rule matches packets to one receiver; `None`: nothing.
fn narrowed(rule: &FlowRule, to: IpAddr) -> Option<FlowRule> {
    let to = to.to_canonical();
    if rule.dst.is_some_and(|dst| !dst.contains(to))
        || rule
            .src
            .is_some_and(|src| src.addr().is_ipv4() != to.is_ipv4())
    {
        return None;
    }
    Some(FlowRule {
        dst: Prefix::new(to, if to.is_ipv4() { 32 } else { 128 }),
        ..rule.clone()
    })
}

/// What keeps a rate from being found, and what has no effect because none is.
fn of_auto(settings: &InterfaceSettings) -> Option<Warning> {
    let (dev, auto) = (&settings.dev, settings.rate.and_then(LinkRate::auto));
    match (auto, settings.probe) {
        (None, Some(probe)) => Some(Warning::new(
            "probe-without-auto",
            format!(
                "interface {dev}: probe {probe} has no effect, because only rate auto asks anybody"
            ),
            format!("bestby iface set {dev} --rate auto, or leave the probe out"),
        )),
        (Some(_), _) if settings.observe => Some(Warning::new(
            "auto-observes",
            format!(
                "interface {dev}: rate auto finds no rate while the interface only observes: packets that are not held \
                 back show nothing of the path, and nobody is asked"
            ),
            format!("bestby iface set {dev} --enforce, or give a rate: --rate RATE"),
        )),
        (Some(_), Some(Probe::None)) => Some(Warning::new(
            "auto-asks-nobody",
            format!(
                "interface {dev}: rate auto finds no rate with probe none, because nobody is asked"
            ),
            format!("bestby iface set {dev} --probe receivers|gateway|ADDR"),
        )),
        (Some(_), None | Some(Probe::Receivers)) if !settings.session.names_receivers() => {
            Some(Warning::new(
                "auto-asks-nobody",
                format!(
                    "interface {dev}: rate auto finds no rate with session {}, because it names no receiver who could be \
                     asked",
                    settings.session
                ),
                format!("bestby iface set {dev} --probe gateway|ADDR, or --session dst"),
            ))
        }
        _ => None,
    }
}

fn of_settings(controlled: &Controlled) -> Vec<Warning> {
    let Controlled {
        settings,
        speed_mbit_s,
        tags_priority,
        pushed_back: _,
    } = controlled;
    let mut warnings: Vec<Warning> = of_auto(settings).into_iter().collect();
    let speed = speed_mbit_s.and_then(|m| Rate::from_bytes_per_s(u64::from(m) * 125_000));
    if let (Some(rate), Some(speed)) = (settings.rate.and_then(LinkRate::most), speed)
        && rate > speed
    {
        warnings.push(Warning::new(
            "rate-above-link",
            format!(
                "interface {}: rate {rate} is above the link's speed of {speed}, so packets wait in the device, where \
                 bestby cannot drop them",
                settings.dev
            ),
            format!(
                "give a little less than the link carries: bestby iface set {} --rate RATE",
                settings.dev
            ),
        ));
    }
    if *tags_priority && settings.mode == Mode::Tc && settings.rate.is_some() {
        warnings.push(Warning::new(
            "vlan-priority",
            format!(
                "interface {0}: its HTB tree has no filter, so the packet's priority names the leaf, the egress-qos-map \
                 of {0} sees no SO_PRIORITY, and the priority of each tag is 0",
                settings.dev
            ),
            "a kernel with CONFIG_NET_CLS_BPF, then restart bestbyd; or attach the device below it".into(),
        ));
    }
    if let SessionKey::Prefix(bits @ 33..) = settings.session {
        warnings.push(Warning {
            harmless: true,
            ..Warning::new(
                "session-prefix",
                format!(
                    "interface {}: session prefix/{bits} is longer than an IPv4 address: each IPv4 receiver has a \
                     session of its own, as with dst, and IPv6 receivers share one by networks of {bits} bits",
                    settings.dev
                ),
                "nothing, if that is meant; give at most 32 to put IPv4 receivers together".into(),
            )
        });
    }
    warnings
}

/// The first warnings of each kind, and how many more there are of it.
pub fn shortened(all: Vec<Warning>) -> Vec<Warning> {
    let mut kinds: BTreeMap<&'static str, (usize, bool)> = BTreeMap::new();
    let mut told = Vec::new();
    for warning in all {
        let (count, harmless) = kinds.entry(warning.id).or_default();
        (*count, *harmless) = (*count + 1, warning.harmless);
        if *count <= TOLD {
            told.push(warning);
        }
    }
    for (id, (count, harmless)) in kinds {
        if count > TOLD {
            told.push(Warning {
                harmless,
                ..Warning::new(
                    id,
                    format!("{} more of this kind", count - TOLD),
                    "mend those named first: then others are named".into(),
                )
            });
        }
    }
    told
}

#[cfg(test)]
mod tests;
