//! What an attached interface is: remembered across restarts, and as the kernel side reads it.

use std::net::IpAddr;
use std::path::Path;

use bestby_api::{
    Bounds, Decrement, DevName, InterfaceSettings, LinkRate, Method, Mode, PlainShare, Rate,
    SessionKey,
};
use bestby_bpf::abi;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernel::htb::Tree;
use crate::kernel::tc::{Link, MAJOR, Qdisc};
use crate::observed::speed::{link_speed, queues_in_use};

/// Packets queued at most unless the operator says otherwise: two seconds of 50 Mbit/s, 1 MiB of entries.
const DEFAULT_LIMIT: u32 = 10_000;
/// From this rate on (1 Gbit/s, in bytes/s) one CPU may not be enough for a shaped interface.
const PARALLEL_RATE: u64 = 125_000_000;
/// What a tree carries, bytes/s, where a rate is to be found and nobody knows the link's speed: 1 Gbit/s.
const UNKNOWN_SPEED: u64 = 125_000_000;

/// What was done for super-packets of an interface: remembered with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segmenter {
    /// Index of the device that cuts them; 0: there is none.
    pub ifindex: u32,
    /// `gso_max_segs` that we gave the interface.
    pub segs: u32,
    /// What it was before.
    pub earlier_segs: u32,
}

/// An attached interface, as it is remembered across restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its name when it was attached.
    pub dev: DevName,
    /// Its index.
    pub ifindex: u32,
    /// The mode in force, never `auto`; `tc` while it only observes, whatever was asked for.
    pub mode: Mode,
    /// What the operator asked for.
    pub request: InterfaceSettings,
    /// Root qdisc to restore; `None`: the kernel's default one.
    pub earlier: Option<Qdisc>,
    /// Whether the classifier is attached by tcx; else by clsact.
    pub tcx: bool,
    /// Mode qdisc: which of the two names is in use.
    pub letter: char,
    /// Mode qdisc: instances; mode tc: 1.
    pub instances: u32,
    /// Mode qdisc: fingerprint of the object that is loaded.
    pub object: String,
    /// Whether the configuration file asked for it, for agents that know no other origin.
    pub from_file: bool,
    /// What the operator should know.
    pub notes: Vec<String>,
    /// Cookie of the network namespace it is in; 0 in records that have none.
    #[serde(default)]
    pub netns: u64,
    /// Still being built: whoever finds this in a record takes over from an agent that was killed meanwhile.
    #[serde(default)]
    pub unfinished: bool,
    /// Its first rate is about to take the root: whoever finds this in a record finishes that.
    #[serde(default)]
    pub shaping: bool,
    /// What was done for super-packets; `None`: they stay whole, at this rate.
    #[serde(default)]
    pub segmenter: Option<Segmenter>,
    /// Mode tc: the HTB tree has the filter that tells it each packet's leaf.
    #[serde(default)]
    pub steers: bool,
    /// Of a rate that is found: who was asked last. The path's state is of the path there.
    #[serde(default)]
    pub asked: [Option<IpAddr>; 2],
}

const fn kernel_method(method: Method) -> abi::bb_method {
    match method {
        Method::Fifo => abi::BB_FIFO,
        Method::Sfdps1 => abi::BB_SFDPS1,
        Method::Sfdps2 => abi::BB_SFDPS2,
        Method::Ring => abi::BB_RING,
        Method::RingSfdps2 => abi::BB_RING_SFDPS2,
        Method::Lazy => abi::BB_LAZY,
        Method::Triage => abi::BB_TRIAGE,
    }
}

pub(crate) fn limit(request: &InterfaceSettings) -> u32 {
    request.limit.map_or(DEFAULT_LIMIT, |l| l.get())
}

/// One queue per transmit queue, where the device's own speed is the limit. An interface that is shaped to
/// less has one queue for all: its order then holds for the whole link, and one lock suffices.
pub(crate) fn instances(mode: Mode, request: &InterfaceSettings, link: &Link) -> u32 {
    match request.rate {
        _ if mode != Mode::Qdisc => 1,
        // A rate that is found may become as low.
        Some(rate) if rate.least().bytes_per_s() < PARALLEL_RATE => 1,
        _ => queues_in_use(&link.name, link.ifindex)
            .map_or(link.tx_queues, |in_use| in_use.min(link.tx_queues))
            .max(1),
    }
}

/// Whether an interface in this mode must have a root qdisc of ours. Who only observes takes no qdisc's place.
pub(crate) fn needs_root(mode: Mode, request: &InterfaceSettings) -> bool {
    !request.observe && (mode == Mode::Qdisc || request.rate.is_some())
}

/// What changes for paced sockets where the queue takes the place of fq.
pub(crate) fn in_place_of_fq(mode: Mode, request: &InterfaceSettings) -> Option<&'static str> {
    match mode {
        // Without a rate, mode tc takes no qdisc's place.
        _ if !needs_root(mode, request) => None,
        Mode::Qdisc => Some(
            "it takes the place of fq: paced sockets (SO_MAX_PACING_RATE, TCP's pacing) now rely on bestby, which sends \
             no packet before its timestamp",
        ),
        _ => Some(
            "it takes the place of fq: in mode tc nothing holds the packets of paced sockets (SO_MAX_PACING_RATE, TCP's \
             pacing) until their timestamps",
        ),
    }
}

impl Attached {
    /// Packets queued at most.
    pub(crate) fn limit(&self) -> u32 {
        limit(&self.request)
    }

    /// Whether its root qdisc must be one of ours.
    pub(crate) fn needs_root(&self) -> bool {
        needs_root(self.mode, &self.request)
    }

    /// Whether it has a tree of HTB below its classifier.
    pub(crate) fn shapes(&self) -> bool {
        self.mode == Mode::Tc && self.needs_root()
    }

    /// Bounds of its rate, if that is found. Where nothing is held back nothing is: an interface that only observes
    /// sends whatever comes.
    pub(crate) fn auto(&self) -> Option<Bounds> {
        let auto = self.request.rate.and_then(LinkRate::auto);
        auto.filter(|_| !self.request.observe)
    }

    /// What its tree of HTB is made of; `found`: the rate in force, bytes/s, if it is found (0: none is).
    pub(crate) fn tree(&self, plain_share: PlainShare, found: u64) -> Tree {
        let mut iface = self.kernel(plain_share);
        let Some(bounds) = self.auto() else {
            return Tree {
                iface,
                room_for: iface.rate,
            };
        };
        let speed = || {
            let mbit = link_speed(self.dev.as_str(), self.ifindex).filter(|mbit| *mbit > 0);
            mbit.map_or(UNKNOWN_SPEED, |mbit| u64::from(mbit) * 125_000)
        };
        // Nothing is shaped before a queue was met.
        let first = bounds.most().map_or_else(speed, Rate::bytes_per_s);
        iface.rate = if found > 0 { found } else { first };
        Tree {
            iface,
            room_for: first,
        }
    }

    pub(crate) fn method(&self) -> Method {
        self.request.method.unwrap_or(Method::Triage)
    }

    /// What the kernel side reads; the counters are not part of it.
    pub(crate) fn kernel(&self, plain_share: PlainShare) -> abi::bb_iface {
        let (kind, bits) = match self.request.session {
            SessionKey::Dst => (abi::BB_SESSION_DST, 128),
            SessionKey::Flow => (abi::BB_SESSION_FLOW, 128),
            SessionKey::Interface => (abi::BB_SESSION_INTERFACE, 0),
            SessionKey::Prefix(bits) => (abi::BB_SESSION_PREFIX, bits),
        };
        // One that is found is the data path's to write.
        let rate = self.request.rate.and_then(LinkRate::fixed);
        let rate = rate.map_or(0, Rate::bytes_per_s);
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        abi::bb_iface {
            ifindex: self.ifindex,
            mode: (if self.mode == Mode::Qdisc {
                abi::BB_MODE_QDISC
            } else {
                abi::BB_MODE_TC
            }) as u8,
            method: kernel_method(self.method()) as u8,
            session_kind: kind as u8,
            flags: (flag(self.request.observe, abi::BB_IFACE_OBSERVE)
                | flag(self.auto().is_some(), abi::BB_IFACE_AUTO)
                | flag(self.steers && self.shapes(), abi::BB_IFACE_STEERS))
                as u8,
            prefix4: bits.min(32),
            prefix6: bits,
            // Without a tree the model of the rate judges all the same.
            htb_major: if self.shapes() { MAJOR } else { 0 },
            overhead: self.request.overhead.map_or(0, |o| u32::from(o.get())),
            rate,
            limit: self.limit(),
            plain_share: plain_share.get(),
            decrement: match self.request.decrement {
                Decrement::Off => abi::BB_DECREMENT_OFF,
                Decrement::Clock => abi::BB_DECREMENT_CLOCK,
                Decrement::Predict => abi::BB_DECREMENT_PREDICT,
            } as u8,
            session_limit: self.limit(),
            // Room for full-sized packets, and always for a few GSO packets of 64 KiB.
            limit_bytes: (u64::from(self.limit()) * 2048).max(1 << 20),
            segment_ifindex: self.segmenter.map_or(0, |s| s.ifindex),
            pad: [0; 2],
            counters: abi::bb_counters::default(),
            link_next: 0,
            link_rate: 0,
        }
    }
}

/// Refuses the records of another network namespace: its devices would seem to be gone, and their pins with them.
pub(crate) fn same_namespace(kept: &[(u32, Attached)], netns: u64, dir: &Path) -> Result<()> {
    let foreign: Vec<&str> = kept
        .iter()
        .filter(|(_, a)| a.netns != 0 && a.netns != netns)
        .map(|(_, a)| a.dev.as_str())
        .collect();
    if foreign.is_empty() {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "{}: what is pinned there is of another network namespace (interfaces {})",
        dir.display(),
        foreign.join(", ")
    ))
    .hint(format!(
        "start bestbyd in that namespace, or give this one its own --bpffs and --socket; \
         if that namespace is gone: rm -r {}",
        dir.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_in_place_of_fq_warns_about_pacing() {
        let mut request = InterfaceSettings::new("eth0".parse().unwrap());
        request.observe = false;
        let said =
            |mode, request: &InterfaceSettings| in_place_of_fq(mode, request).unwrap_or_default();
        assert!(said(Mode::Qdisc, &request).contains("rely"));
        assert_eq!(said(Mode::Tc, &request), "");
        request.rate = "1mbit".parse().ok();
        assert!(said(Mode::Tc, &request).contains("holds"));
        request.observe = true;
        assert_eq!(said(Mode::Tc, &request), "");
    }

    fn attached(rate: &str, observe: bool) -> Attached {
        let mut request = InterfaceSettings::new("nonesuch0".parse().unwrap());
        request.rate = Some(rate.parse().unwrap());
        request.observe = observe;
        Attached {
            dev: request.dev.clone(),
            ifindex: 7,
            mode: Mode::Tc,
            request,
            earlier: None,
            tcx: true,
            letter: 'a',
            instances: 1,
            object: String::new(),
            from_file: false,
            notes: Vec::new(),
            netns: 0,
            unfinished: false,
            shaping: false,
            segmenter: None,
            steers: false,
            asked: [None; 2],
        }
    }

    #[test]
    fn rate_that_is_found_is_not_written_and_the_tree_follows_it() {
        let share = PlainShare::default();
        let flags = |a: &Attached| u32::from(a.kernel(share).flags) & abi::BB_IFACE_AUTO;
        let fixed = attached("10mbit", false);
        assert_eq!(flags(&fixed), 0);
        assert_eq!(fixed.kernel(share).rate, 1_250_000);
        let tree = fixed.tree(share, 5);
        assert_eq!((tree.iface.rate, tree.room_for), (1_250_000, 1_250_000));

        let auto = attached("auto:..10mbit", false);
        assert_ne!(flags(&auto), 0);
        assert_eq!(auto.kernel(share).rate, 0);
        let tree = |found| auto.tree(share, found);
        assert_eq!(tree(0).iface.rate, 1_250_000);
        assert_eq!(tree(31_000).iface.rate, 31_000);
        assert_eq!(tree(31_000).room_for, 1_250_000);
        let unbounded = attached("auto", false).tree(share, 0);
        assert_eq!(unbounded.iface.rate, UNKNOWN_SPEED);

        let observes = attached("auto", true);
        assert_eq!((flags(&observes), observes.auto()), (0, None));
    }
}
