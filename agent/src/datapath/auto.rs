//! Interfaces whose rate is found (`--rate auto`): what the data path gets for that, and what follows the rate.
//!
//! 1. The BPF programs find the rate and write it into `bb_ifaces`. The state of the path is in `bb_autos`, at the same
//!    slot. The agent begins it, sets its bounds, and says who is asked and by which nonces the answers are known.
//! 2. An agent that restarts finds a state that goes on. It leaves the state alone.
//! 3. A write of the agent takes the whole state. Between its reading and its writing a program may have changed it:
//!    one answer is lost then. So the agent writes only when something changed.
//! 4. In mode tc the HTB tree follows the rate (`htb::follow`). The model reads the rate itself.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use bestby_api::{LinkRate, Probe, Rate};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::echo::EchoSocket;
use crate::kernel::grace::Grace;
use crate::kernel::htb::{self, Tree};
use crate::kernel::seed;
use crate::kernel::tc::Link;
use crate::observed::asker::{Choice, Pace};
use crate::observed::attached::Attached;

/// Ends that are asked at most.
pub(crate) const ENDS: usize = 2;
/// No round trip is known.
const NO_ROUND_TRIP: u64 = u64::MAX;

/// Who asks for one interface.
pub(crate) struct Asker {
    /// The operator said who is asked.
    pub(crate) probe: Probe,
    pub(crate) pace: Pace,
    /// The ends that are asked in turns. Only receivers are more than one: what a single one says may be of its own
    /// line, or false (`bb_auto_common`).
    pub(crate) choices: [Choice; ENDS],
    /// Whose turn it is.
    pub(crate) turn: usize,
    pub(crate) socket: Option<EchoSocket>,
    /// Of the next request.
    pub(crate) sequence: u16,
    /// When the last request was sent, ns; 0: never.
    pub(crate) sent_ns: u64,
    /// Between two requests, ns; `None`: none is sent.
    pub(crate) interval_ns: Option<u64>,
    /// When the gateway is looked for again, ns.
    pub(crate) gateway_ns: u64,
    /// Why none is sent.
    pub(crate) problem: Option<String>,
    /// When a problem was logged last, ns; 0: never.
    pub(crate) logged_ns: u64,
}

/// Receivers of media, as they were looked at last.
#[derive(Default)]
pub(crate) struct Receivers {
    /// When they are looked at again, ns.
    pub(crate) due_ns: u64,
    /// Packets that each session had sent by then, by its index.
    pub(crate) before: HashMap<u32, u64>,
    /// Those to whom packets were sent since the look before, by interface index, and how many.
    pub(crate) busy: BTreeMap<u32, Vec<(IpAddr, u64)>>,
}

/// All that works for interfaces whose rate is found.
#[derive(Default)]
pub(crate) struct Autos {
    /// By slot.
    pub(crate) askers: BTreeMap<u32, Asker>,
    pub(crate) receivers: Receivers,
    /// Trees that were built, by slot, and their rates, bytes/s.
    trees: BTreeMap<u32, (Link, u64)>,
    /// Slots whose tree could not follow: that was logged.
    complained: BTreeMap<u32, String>,
}

/// The nonce of an end, made of random bits: its last bits are the slot, then the end's index, and 0 is nobody.
fn nonce(random: u64, slot: u32, end: usize) -> u64 {
    let bits = abi::BB_ECHO_END_SHIFT + abi::BB_AUTO_ENDS.ilog2();
    let known = u64::from(slot) | (end as u64) << abi::BB_ECHO_END_SHIFT;
    (random | 1) << bits | known
}

/// A state of which nothing is known.
fn begun(least: u64, most: u64) -> abi::bb_auto {
    let end = abi::bb_auto_end {
        least_ns: [NO_ROUND_TRIP; 2],
        ..Default::default()
    };
    abi::bb_auto {
        least,
        most,
        end: [end; abi::BB_AUTO_ENDS as usize],
        due_ns: u64::MAX,
        ..Default::default()
    }
}

/// The state, where another host is asked from now on, or nobody (0): its round trips are others, the narrow place may
/// be the same.
fn aimed(state: &abi::bb_auto, end: usize, nonce: u64) -> abi::bb_auto {
    let mut aimed = abi::bb_auto { busy: 0, ..*state };
    aimed.end[end] = abi::bb_auto_end {
        nonce,
        least_ns: [NO_ROUND_TRIP; 2],
        ..Default::default()
    };
    aimed
}

/// The state with other bounds; `None`: these are its bounds.
fn bounded(state: &abi::bb_auto, least: u64, most: u64) -> Option<abi::bb_auto> {
    ((state.least, state.most) != (least, most)).then_some(abi::bb_auto {
        least,
        most,
        // A processor that holds it changes a copy that is gone.
        busy: 0,
        ..*state
    })
}

impl Datapath {
    /// The rate in force of an interface whose rate is found, bytes/s; 0: none is.
    pub(crate) fn found(&self, slot: u32, attached: &Attached) -> u64 {
        if attached.auto().is_none() {
            return 0;
        }
        let state = self.shared.autos.get(&slot).ok().flatten();
        state.map_or(0, |s| s.rate)
    }

    /// The rate of an interface: set, or found and in force.
    pub(crate) fn rate_of(&self, slot: u32, attached: &Attached) -> Option<Rate> {
        let found = || Rate::from_bytes_per_s(self.found(slot, attached));
        let set = attached.request.rate.and_then(LinkRate::fixed);
        set.or_else(found)
    }

    /// The HTB tree that an interface should have now.
    pub(crate) fn tree_of(&self, slot: u32, attached: &Attached) -> Tree {
        attached.tree(self.plain_share, self.found(slot, attached))
    }

    /// Builds the tree of an interface, or changes the one that is there, and remembers its rate.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn put_tree(
        &mut self,
        slot: u32,
        link: &Link,
        tree: &Tree,
        there: bool,
    ) -> Result<()> {
        htb::build(&mut self.tc, link, tree, there)?;
        let rate = tree.iface.rate;
        self.autos.trees.insert(slot, (link.clone(), rate));
        Ok(())
    }

    /// Begins the state of an interface that is attached.
    ///
    /// # Errors
    /// The map cannot be written.
    pub(crate) fn begin_auto(&mut self, slot: u32, attached: &Attached) -> Result<()> {
        self.autos.askers.remove(&slot);
        if let Some(bounds) = attached.auto() {
            let most = bounds.most().map_or(0, Rate::bytes_per_s);
            let state = begun(bounds.least().bytes_per_s(), most);
            self.shared.autos.set(&slot, &state)?;
        }
        Ok(())
    }

    /// Writes the settings of an attached interface. A rate that is found goes on being found, between other bounds if
    /// these changed.
    ///
    /// # Errors
    /// A map cannot be written.
    pub(crate) fn settle(&mut self, slot: u32, attached: &Attached) -> Result<()> {
        let iface = self.shared.ifaces.get(&slot)?.unwrap_or_default();
        let finds =
            iface.ifindex == attached.ifindex && u32::from(iface.flags) & abi::BB_IFACE_AUTO != 0;
        let state = self.shared.autos.get(&slot)?.filter(|s| s.due_ns != 0);
        match (attached.auto(), state.filter(|_| finds)) {
            // Before the flag: a program that sees the flag finds a state.
            (Some(_), None) => self.begin_auto(slot, attached)?,
            (Some(bounds), Some(state)) => {
                let most = bounds.most().map_or(0, Rate::bytes_per_s);
                if let Some(state) = bounded(&state, bounds.least().bytes_per_s(), most) {
                    self.shared.autos.set(&slot, &state)?;
                }
            }
            (None, _) => {}
        }
        let kernel = attached.kernel(self.plain_share);
        self.table.write(slot, &kernel);
        if finds && attached.auto().is_none() {
            // A program that saw the flag may still write its rate: the one that is set comes last.
            Grace::new()?.wait()?;
            self.table.write(slot, &kernel);
            self.end_auto(slot);
        }
        Ok(())
    }

    /// Nothing is found for this slot any more.
    pub(crate) fn end_auto(&mut self, slot: u32) {
        self.autos.askers.remove(&slot);
        if let Err(e) = self.shared.autos.set(&slot, &abi::bb_auto::default()) {
            tracing::error!("{e}");
        }
    }

    /// The slot is free again.
    pub(crate) fn forget_auto(&mut self, slot: u32) {
        self.end_auto(slot);
        self.autos.trees.remove(&slot);
        self.autos.complained.remove(&slot);
    }

    /// Another host is asked at this end from now on, or nobody.
    ///
    /// # Errors
    /// A map cannot be written.
    pub(crate) fn aim(&mut self, slot: u32, end: usize, addr: Option<IpAddr>) -> Result<()> {
        let Some(attached) = self.attached.get(&slot) else {
            return Ok(());
        };
        let state = self.shared.autos.get(&slot)?.unwrap_or_default();
        if attached.asked[end] == addr && (state.end[end].nonce != 0) == addr.is_some() {
            return Ok(());
        }
        let mut aimed_at = attached.clone();
        aimed_at.asked[end] = addr;
        let nonce = match addr {
            Some(_) => nonce(seed::random()?, slot, end),
            None => 0,
        };
        self.shared.autos.set(&slot, &aimed(&state, end, nonce))?;
        self.kept_ifaces.set(slot, &aimed_at)?;
        self.attached.insert(slot, aimed_at);
        Ok(())
    }

    /// Mode tc: gives each tree the rate that was found since, without losing what is queued. Whether there is any that
    /// follows.
    pub(crate) fn follow_rates(&mut self) -> bool {
        let follows = |a: &Attached| a.shapes() && a.auto().is_some();
        let all = self.attached.iter().filter(|(_, a)| follows(a));
        let wanted: Vec<(u32, Tree)> = all
            .map(|(slot, a)| (*slot, self.tree_of(*slot, a)))
            .collect();
        for (slot, tree) in &wanted {
            let Some((link, has)) = self.autos.trees.get(slot).cloned() else {
                continue;
            };
            let rate = tree.iface.rate;
            if !htb::is_worth(has, rate) {
                continue;
            }
            match htb::follow(&mut self.tc, &link, &tree.iface) {
                Ok(()) => {
                    self.autos.complained.remove(slot);
                    self.autos.trees.insert(*slot, (link, rate));
                }
                Err(e) => {
                    let text = e.to_string();
                    if self.autos.complained.get(slot) != Some(&text) {
                        tracing::error!("following the rate that was found: {text}");
                        self.autos.complained.insert(*slot, text);
                    }
                }
            }
        }
        !wanted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begun_state_knows_nothing_but_its_bounds() {
        let state = begun(8_000, 0);
        assert_eq!((state.least, state.most), (8_000, 0));
        let unknown = |e: &abi::bb_auto_end| e.least_ns == [u64::MAX; 2] && e.nonce == 0;
        assert!(state.end.iter().all(unknown));
        assert_eq!(state.due_ns, u64::MAX);
        assert_eq!((state.rate, state.next, state.sent), (0, 0, 0));
    }

    #[test]
    fn nonce_says_whose_it_is_and_is_not_0() {
        for random in [0, 1, u64::MAX] {
            for (slot, end) in [(0, 0), (5, 1), (abi::BB_MAX_IFACES - 1, 3)] {
                let nonce = nonce(random, slot, end);
                assert_eq!(nonce % 64, u64::from(slot));
                assert_eq!(nonce >> 6 & 3, end as u64);
                assert!(nonce >> 8 != 0);
            }
        }
    }

    #[test]
    fn end_that_asks_another_host_forgets_its_round_trips_and_nothing_else_changes() {
        let mut state = begun(8_000, 0);
        (state.rate, state.next, state.busy) = (31_000, 40, 1);
        state.end[0].heard_ns = 7;
        state.end[1].least_ns = [5, 6];
        state.marker[3].name = 9;
        let other = aimed(&state, 1, 77);
        let mut wanted = abi::bb_auto { busy: 0, ..state };
        wanted.end[1].nonce = 77;
        wanted.end[1].least_ns = [u64::MAX; 2];
        assert_eq!(other, wanted);
        assert_eq!(aimed(&other, 1, 0).end[1].nonce, 0);
    }

    #[test]
    fn other_bounds_change_nothing_else() {
        let state = begun(8_000, 0);
        assert_eq!(bounded(&state, 8_000, 0), None);
        let other = bounded(&state, 9_000, 10_000).unwrap();
        let wanted = abi::bb_auto {
            least: 9_000,
            most: 10_000,
            ..state
        };
        assert_eq!(other, wanted);
    }
}
