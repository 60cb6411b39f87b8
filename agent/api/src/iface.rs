//! Interfaces: what is said of them (the same in the API and in the file), what is in force, and their state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::flow::some_option;
use crate::{
    Counters, Decrement, DevName, Limit, LinkRate, Method, Mode, Overhead, PathInfo, Prefixes,
    Probe, Rate, SessionKey, Times,
};

const fn auto() -> Mode {
    Mode::Auto
}

const fn off() -> Decrement {
    Decrement::Off
}

fn is_off(v: &Decrement) -> bool {
    *v == Decrement::Off
}

const fn is_false(v: &bool) -> bool {
    !*v
}

/// How an interface is controlled: every field has a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceSettings {
    /// The interface.
    pub dev: DevName,
    /// `auto` picks `qdisc` where the kernel can.
    #[serde(default = "auto")]
    pub mode: Mode,
    /// What the interface may send; without it the interface is not shaped, and mode tc cannot predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<LinkRate>,
    /// Who is asked for a rate that is found; receivers if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Queue discipline inside a session; `triage` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Which packets share one queue.
    #[serde(default)]
    pub session: SessionKey,
    /// Packets queued on the interface (per transmit queue below mq); the agent's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Bytes added to each packet for the link's framing; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Count what would be dropped, drop and shape nothing. True where nobody says anything; a record without it is
    /// false.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// Sources whose options of LPD count on packets that are forwarded here.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub trust: Prefixes,
    /// What becomes of the lifetime in such an option.
    #[serde(default = "off", skip_serializing_if = "is_off")]
    pub decrement: Decrement,
    /// Take the place of a root qdisc that is not the kernel's default one (it is restored at detach).
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
}

impl InterfaceSettings {
    /// Everything at its default.
    pub const fn new(dev: DevName) -> Self {
        Self {
            dev,
            mode: Mode::Auto,
            rate: None,
            probe: None,
            method: None,
            session: SessionKey::Dst,
            limit: None,
            overhead: None,
            observe: true,
            trust: Prefixes::NONE,
            decrement: Decrement::Off,
            replace: false,
        }
    }

    /// Every field as an operator writes it, by its name; `replace` is no setting but leave to do something.
    pub fn fields(&self) -> [(&'static str, String); 10] {
        fn or<T: std::fmt::Display>(value: Option<T>, default: &str) -> String {
            value.map_or_else(|| default.into(), |v| v.to_string())
        }
        [
            ("mode", self.mode.to_string()),
            ("rate", or(self.rate, "none")),
            ("probe", or(self.probe, "default")),
            ("method", or(self.method, "default")),
            ("session", self.session.to_string()),
            ("limit", or(self.limit, "default")),
            ("overhead", or(self.overhead, "0")),
            ("observe", self.observe.to_string()),
            (
                "trust",
                or((!self.trust.is_empty()).then_some(&self.trust), "none"),
            ),
            ("decrement", self.decrement.to_string()),
        ]
    }
}

/// Wishes for an interface: body of POST /v1/interfaces, and `[[interface]]` of the file. An attached interface keeps
/// its value of each field that is absent. Another one gets the default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// The interface.
    pub dev: DevName,
    /// `auto` picks `qdisc` where the kernel can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What the interface may send; null: as much as it can.
    #[serde(
        default,
        deserialize_with = "some_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub rate: Option<Option<LinkRate>>,
    /// Who is asked for a rate that is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// Queue discipline inside a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Which packets share one queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Packets queued on the interface (per transmit queue below mq).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Bytes added to each packet for the link's framing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// True: count what would be dropped, drop and shape nothing. The default of a new interface; only an explicit
    /// false ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<bool>,
    /// Sources whose options of LPD count on packets that are forwarded here; empty: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Prefixes>,
    /// What becomes of the lifetime in such an option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decrement: Option<Decrement>,
    /// Take the place of a root qdisc that is not the kernel's default one (it is restored at detach).
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
    /// Write it to the file, too (never part of the file).
    #[serde(default, skip_serializing_if = "is_false")]
    pub save: bool,
}

/// Calls a macro with every field that may be said, or not.
macro_rules! with_said_fields {
    ($callback:ident) => {
        $callback!(
            mode, rate, probe, method, session, limit, overhead, observe, trust, decrement
        )
    };
}

impl AttachRequest {
    /// Nothing is said.
    pub const fn new(dev: DevName) -> Self {
        Self {
            dev,
            mode: None,
            rate: None,
            probe: None,
            method: None,
            session: None,
            limit: None,
            overhead: None,
            observe: None,
            trust: None,
            decrement: None,
            replace: false,
            save: false,
        }
    }

    /// Says everything that is in force.
    pub fn all_of(settings: &InterfaceSettings) -> Self {
        Self {
            dev: settings.dev.clone(),
            mode: Some(settings.mode),
            rate: Some(settings.rate),
            probe: settings.probe,
            method: settings.method,
            session: Some(settings.session),
            limit: settings.limit,
            overhead: settings.overhead,
            observe: Some(settings.observe),
            trust: Some(settings.trust.clone()),
            decrement: Some(settings.decrement),
            replace: settings.replace,
            save: false,
        }
    }

    /// Names of the fields that are said.
    pub fn said(&self) -> Vec<&'static str> {
        let mut said = Vec::new();
        macro_rules! each {
            ($($field:ident),*) => { $(if self.$field.is_some() { said.push(stringify!($field)); })* };
        }
        with_said_fields!(each);
        said
    }

    /// What both say; where both say something of a field, `later` wins.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        let mut both = self.clone();
        macro_rules! each {
            ($($field:ident),*) => { $(if later.$field.is_some() { both.$field.clone_from(&later.$field); })* };
        }
        with_said_fields!(each);
        both.replace |= later.replace;
        both
    }

    /// Without what is said of the fields for which `drop` is true, given their names.
    #[must_use]
    pub fn without(&self, drop: impl Fn(&str) -> bool) -> Self {
        let mut rest = self.clone();
        macro_rules! each {
            ($($field:ident),*) => { $(if drop(stringify!($field)) { rest.$field = None; })* };
        }
        with_said_fields!(each);
        rest
    }

    /// Whether both say the same of a field.
    pub fn agrees(&self, other: &Self, field: &str) -> bool {
        macro_rules! each {
            ($($field:ident),*) => { match field { $(stringify!($field) => self.$field == other.$field,)* _ => true } };
        }
        with_said_fields!(each)
    }

    /// What holds if only this was said.
    #[must_use]
    pub fn settings(&self) -> InterfaceSettings {
        let default = InterfaceSettings::new(self.dev.clone());
        InterfaceSettings {
            mode: self.mode.unwrap_or(default.mode),
            rate: self.rate.flatten(),
            probe: self.probe,
            method: self.method,
            session: self.session.unwrap_or(default.session),
            limit: self.limit,
            overhead: self.overhead,
            observe: self.observe.unwrap_or(default.observe),
            trust: self.trust.clone().unwrap_or_default(),
            decrement: self.decrement.unwrap_or(default.decrement),
            replace: self.replace,
            dev: default.dev,
        }
    }
}

/// What a device takes that pushes back: a modem, a NIC that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedBack {
    /// What left it while it was in the way.
    pub rate: Rate,
    /// Since it was, ns.
    pub age_ns: u64,
}

impl PushedBack {
    /// Longer ago it says nothing of now, ns.
    pub const LATELY_NS: u64 = 10_000_000_000;
}

/// An attached interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    /// Its name.
    pub dev: DevName,
    /// Its index.
    pub ifindex: u32,
    /// The mode in force, never `auto`.
    pub mode: Mode,
    /// True in mode tc: delay is predicted from a model, and not measured in a queue of bestby's own.
    pub predicts_delay: bool,
    /// Queue discipline.
    pub method: Method,
    /// Which packets share one queue.
    pub session: SessionKey,
    /// What the interface may send, if limited.
    #[serde(default)]
    pub rate: Option<LinkRate>,
    /// Of a rate that is found: the path behind the interface. Null where the interface only observes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathInfo>,
    /// Packets queued at most (per transmit queue below mq).
    pub limit: u32,
    /// Bytes added to each packet.
    #[serde(default)]
    pub overhead: u32,
    /// True: nothing is dropped, `would_drop` counts.
    pub observe: bool,
    /// Sources whose options of LPD count on packets that are forwarded here.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub trust: Prefixes,
    /// What becomes of the lifetime in such an option.
    #[serde(default = "off")]
    pub decrement: Decrement,
    /// Super-packets (UDP GSO, TSO) that would hold the link for more than a millisecond are cut.
    #[serde(default)]
    pub cuts: bool,
    /// Queues of our own on it: 1, or the number of transmit queues below mq.
    #[serde(default)]
    pub instances: u32,
    /// Kind of the root qdisc that a detach restores, e.g. `fq_codel`.
    #[serde(default)]
    pub restores: Option<String>,
    /// Kernel memory preallocated for this interface, bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Mode qdisc: what the device took when it pushed back last; null: it never has. Plans reckon with it, or with
    /// a lower rate that was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PushedBack>,
    /// What passed.
    pub counters: Counters,
    /// Mode qdisc: how long the packets waited that left, and how much of their time was left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// Who said what of its settings, by field: `file`, `command` or `default`.
    #[serde(default)]
    pub origin: BTreeMap<String, String>,
    /// What the operator should know, e.g. why mode tc was chosen.
    #[serde(default)]
    pub notes: Vec<String>,
}
