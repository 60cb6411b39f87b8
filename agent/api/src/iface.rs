//! Interfaces: attach requests (the same in the API and in the file) and their state.

use serde::{Deserialize, Serialize};

use crate::{
    Counters, Decrement, DevName, Limit, Method, Mode, Overhead, Prefixes, Rate, SessionKey,
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

/// How an interface is to be controlled: body of POST /v1/interfaces, and `[[interface]]` of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttachRequest {
    /// The interface.
    pub dev: DevName,
    /// `auto` picks `qdisc` where the kernel can.
    #[serde(default = "auto")]
    pub mode: Mode,
    /// What the interface may send; without it the interface is not shaped, and mode tc cannot predict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Queue discipline inside a session; default `triage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Which packets share one queue; default `dst`.
    #[serde(default)]
    pub session: SessionKey,
    /// Packets queued on the interface (per transmit queue below mq); the agent's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Bytes added to each packet for the link's framing; default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Count what would be dropped, drop nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// Sources whose options of LPD count on packets that are forwarded here; none unless said.
    #[serde(default, skip_serializing_if = "Prefixes::is_empty")]
    pub trust: Prefixes,
    /// What becomes of the lifetime in such an option; default `off`.
    #[serde(default = "off", skip_serializing_if = "is_off")]
    pub decrement: Decrement,
    /// Take the place of a root qdisc that is not the kernel's default one (it is restored at detach).
    #[serde(default, skip_serializing_if = "is_false")]
    pub replace: bool,
}

impl AttachRequest {
    /// Everything at its default.
    pub const fn new(dev: DevName) -> Self {
        Self {
            dev,
            mode: Mode::Auto,
            rate: None,
            method: None,
            session: SessionKey::Dst,
            limit: None,
            overhead: None,
            observe: false,
            trust: Prefixes::NONE,
            decrement: Decrement::Off,
            replace: false,
        }
    }
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
    /// False in mode tc, where delay is predicted from a model and not observed.
    pub observes: bool,
    /// Queue discipline.
    pub method: Method,
    /// Which packets share one queue.
    pub session: SessionKey,
    /// What the interface may send, if limited.
    #[serde(default)]
    pub rate: Option<Rate>,
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
    /// What passed.
    pub counters: Counters,
    /// What the operator should know, e.g. why mode tc was chosen.
    #[serde(default)]
    pub notes: Vec<String>,
}
