//! `--rate auto`: sends the echo requests whose answers say how long packets wait behind this host.
//!
//! The BPF programs take the answers: nothing is read here. If this task stops, the law goes on until answers are
//! missed for 10 s. Then no rate is in force.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bestby_api::Probe;
use bestby_bpf::abi;

use crate::datapath::auto::{Asker, ENDS, Receivers};
use crate::datapath::{Datapath, Handle};
use crate::error::Result;
use crate::kernel::address::address;
use crate::kernel::echo::{Echo, EchoSocket, wire_bytes};
use crate::kernel::route;
use crate::kernel::sys::monotonic_ns;
use crate::observed::asker::{Choice, Pace, SHORTEST, interval, is_wanted};
use crate::observed::attached::Attached;

const MS: u64 = 1_000_000;
/// Between two looks where nothing else is due, ns.
const LAZY: u64 = 1000 * MS;
/// Between two looks at the rates that trees follow, ns.
const FOLLOW: u64 = 100 * MS;
/// Between two looks at receivers and gateways, ns: the table of sessions takes milliseconds.
const LOOK: u64 = 2000 * MS;
/// The first look only counts.
const FIRST_LOOK: u64 = 200 * MS;
/// A request may be sent so much earlier than it is due, ns: timers have a millisecond.
const EARLY: u64 = 2 * MS;
/// Between two lines of the log about one interface, ns.
const LOG: u64 = 60_000 * MS;

impl Asker {
    fn new(now: u64, state: &abi::bb_auto, probe: Probe, asked: [Option<IpAddr>; ENDS]) -> Self {
        let choices = asked.map(|addr| {
            let mut choice = Choice::default();
            choice.aim(addr, now);
            choice
        });
        Self {
            probe,
            pace: Pace::new(now, state.sent),
            choices,
            turn: 0,
            socket: None,
            sequence: 0,
            sent_ns: 0,
            interval_ns: None,
            gateway_ns: 0,
            problem: None,
            logged_ns: 0,
        }
    }

    /// Nobody but this one is asked.
    fn ask_only(&mut self, addr: Option<IpAddr>, now: u64) {
        self.choices[0].aim(addr, now);
        self.choices[1].aim(None, now);
    }

    /// Chooses among receivers to which packets were sent since the last look, and how many: two, where there are two.
    fn choose(&mut self, busy: &[(IpAddr, u64)], state: &abi::bb_auto, now: u64) {
        for end in 0..ENDS {
            let other = self.choices[1 - end].asked.map(|a| a.addr);
            let busy: Vec<_> = busy
                .iter()
                .filter(|(addr, _)| Some(*addr) != other)
                .copied()
                .collect();
            self.choices[end].choose(&busy, state.end[end].heard_ns, now);
        }
    }

    /// Who is asked, by end.
    pub(crate) fn asked(&self) -> [Option<IpAddr>; ENDS] {
        [0, 1].map(|end: usize| self.choices[end].asked.map(|a| a.addr))
    }

    /// A problem, or none any more.
    fn trouble(&mut self, dev: &str, problem: Option<String>, now: u64) {
        if let Some(text) = &problem
            && self.problem.is_none()
            && (self.logged_ns == 0 || now.saturating_sub(self.logged_ns) >= LOG)
        {
            tracing::warn!("interface {dev}: no rate is found: {text}");
            self.logged_ns = now;
        }
        self.problem = problem;
    }

    /// Sends one request.
    fn send(&mut self, attached: &Attached, to: IpAddr, nonce: u64) -> io::Result<()> {
        let socket = match self.socket.take().filter(|s| s.fits(to)) {
            Some(socket) => socket,
            None => EchoSocket::open(attached.dev.as_str(), to)?,
        };
        let echo = Echo {
            sequence: self.sequence,
            nonce,
        };
        self.sequence = self.sequence.wrapping_add(1);
        let sent = self.socket.insert(socket).send(to, attached.ifindex, &echo);
        match sent {
            // A queue was full, as that of a path may be.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => Ok(()),
            sent => sent,
        }
    }
}

/// Why a request could not be sent, and what to do.
fn not_sent(to: IpAddr, e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!(
                "an echo request to {to}: {e} (bestbyd needs CAP_NET_RAW; a firewall may refuse it, too)"
            )
        }
        _ => format!("an echo request to {to}: {e}"),
    }
}

/// Whether an echo request to this address has one answer.
fn is_one_host(addr: IpAddr) -> bool {
    !addr.is_multicast() && !addr.is_unspecified() && addr != IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// Sessions of media to one address, with the index of their interface and the packets sent.
fn receiver(session: &abi::bb_session) -> Option<(u32, IpAddr, u64)> {
    let key = &session.key;
    let one = matches!(
        u32::from(key.kind),
        abi::BB_SESSION_DST | abi::BB_SESSION_FLOW
    );
    if session.way.tag == 0 || key.media == 0 || !one {
        return None;
    }
    let addr = address(key.addr);
    is_one_host(addr).then_some((key.ifindex, addr, session.counters.packets_sent))
}

impl Receivers {
    /// Takes in what the sessions have sent by now.
    fn take(&mut self, sessions: Vec<(u32, (u32, IpAddr, u64))>, now: u64) {
        let first = self.due_ns == 0;
        let mut busy: BTreeMap<u32, BTreeMap<IpAddr, u64>> = BTreeMap::new();
        let before = std::mem::take(&mut self.before);
        for (index, (ifindex, addr, sent)) in sessions {
            // A session that is new, or another one at the same place, has sent all since.
            let known = before.get(&index).filter(|before| **before <= sent);
            let since = sent - known.copied().unwrap_or(0);
            self.before.insert(index, sent);
            if since > 0 && !first {
                *busy.entry(ifindex).or_default().entry(addr).or_default() += since;
            }
        }
        let lists = busy.into_iter();
        self.busy = lists
            .map(|(ifindex, all)| (ifindex, all.into_iter().collect()))
            .collect();
        self.due_ns = now + if first { FIRST_LOOK } else { LOOK };
    }
}

impl Datapath {
    /// Sends what is due, and lets trees follow; until when nothing else is due.
    pub fn beat(&mut self) -> Duration {
        let slots: Vec<(u32, Probe)> = self
            .attached
            .iter()
            .filter(|(_, a)| a.auto().is_some())
            .map(|(slot, a)| (*slot, a.request.probe.unwrap_or_default()))
            .collect();
        if slots.is_empty() {
            self.autos.askers.clear();
            self.autos.receivers = Receivers::default();
            return Duration::from_nanos(LAZY);
        }
        let mut wait = if self.follow_rates() { FOLLOW } else { LAZY };
        let now = monotonic_ns();
        let looked = slots.iter().any(|(_, p)| *p == Probe::Receivers) && self.look(now);
        for (slot, probe) in slots {
            match self.ask(slot, probe, looked, now) {
                Ok(due) => wait = wait.min(due),
                Err(e) => {
                    let dev = self.attached.get(&slot).map(|a| a.dev.clone());
                    if let (Some(asker), Some(dev)) = (self.autos.askers.get_mut(&slot), dev) {
                        asker.trouble(dev.as_str(), Some(e.to_string()), now);
                    }
                }
            }
        }
        Duration::from_nanos(wait.clamp(SHORTEST / 2, LAZY))
    }

    /// Looks at the sessions, if that is due; whether it did.
    fn look(&mut self, now: u64) -> bool {
        if now < self.autos.receivers.due_ns {
            return false;
        }
        match self
            .shared
            .sessions
            .collect(|index, session| Some((index, receiver(session)?)))
        {
            Ok(sessions) => {
                let first = self.autos.receivers.due_ns == 0;
                self.autos.receivers.take(sessions, now);
                !first
            }
            Err(e) => {
                tracing::error!("{e}");
                self.autos.receivers.due_ns = now + LOOK;
                false
            }
        }
    }

    /// Chooses the host that is asked from now on; the reason, if there is none.
    fn aim_at(
        &mut self,
        asker: &mut Asker,
        attached: &Attached,
        probe: Probe,
        state: &abi::bb_auto,
        looked: bool,
        now: u64,
    ) -> Result<Option<String>> {
        match probe {
            Probe::None => asker.ask_only(None, now),
            Probe::Addr(addr) => asker.ask_only(Some(addr), now),
            Probe::Gateway => {
                if now < asker.gateway_ns {
                    return Ok(asker
                        .problem
                        .clone()
                        .filter(|_| asker.choices[0].asked.is_none()));
                }
                asker.gateway_ns = now + LOOK;
                let gateway = route::gateway(&mut self.tc, attached.ifindex)?;
                asker.ask_only(gateway, now);
                if gateway.is_none() {
                    return Ok(Some(format!(
                        "{} has no default route with a gateway: --probe ADDR says who is asked",
                        attached.dev
                    )));
                }
            }
            Probe::Receivers => {
                // The command that set it has warned.
                if !attached.request.session.names_receivers() {
                    asker.ask_only(None, now);
                    return Ok(None);
                }
                if looked {
                    let busy = self.autos.receivers.busy.get(&attached.ifindex);
                    let busy = busy.map_or(&[][..], Vec::as_slice);
                    asker.choose(busy, state, now);
                }
            }
        }
        Ok(None)
    }

    /// Asks for one interface, if that is due; when it is due next, from now, ns.
    fn ask(&mut self, slot: u32, probe: Probe, looked: bool, now: u64) -> Result<u64> {
        let Some(attached) = self.attached.get(&slot).cloned() else {
            return Ok(LAZY);
        };
        let state = self.shared.autos.get(&slot)?.unwrap_or_default();
        let known = self.autos.askers.remove(&slot);
        let mut asker = known.unwrap_or_else(|| Asker::new(now, &state, probe, attached.asked));
        if asker.probe != probe {
            (asker.probe, asker.choices) = (probe, Default::default());
            (asker.gateway_ns, asker.problem) = (0, None);
        }
        asker.pace.look(now, state.sent);
        let done = self.ask_with(&mut asker, slot, &attached, probe, &state, looked, now);
        self.autos.askers.insert(slot, asker);
        done
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one step")]
    fn ask_with(
        &mut self,
        asker: &mut Asker,
        slot: u32,
        attached: &Attached,
        probe: Probe,
        state: &abi::bb_auto,
        looked: bool,
        now: u64,
    ) -> Result<u64> {
        let dev = attached.dev.as_str();
        let nobody = self.aim_at(asker, attached, probe, state, looked, now)?;
        let asked = asker.asked();
        let Some(to) = asked[asker.turn].or(asked[0]).or(asked[1]) else {
            asker.interval_ns = None;
            asker.trouble(dev, nobody, now);
            return Ok(LAZY);
        };
        if asker.pace.is_idle(now) {
            asker.interval_ns = None;
            asker.choices.iter_mut().for_each(|c| c.rest(now));
            return Ok(LAZY);
        }
        for (end, addr) in asked.into_iter().enumerate() {
            self.aim(slot, end, addr)?;
        }
        let wants = state.rate > 0 || is_wanted(state.gave_up_ns, state.waited_ns, now);
        let carries = if wants { state.carries } else { 0 };
        let interval = interval(wire_bytes(to), asker.pace.rate().max(carries));
        asker.interval_ns = Some(interval);
        let due = asker.sent_ns.saturating_add(interval);
        if asker.sent_ns > 0 && now + EARLY < due {
            return Ok(due - now);
        }
        // An end that was just aimed has a new nonce.
        let state = self.shared.autos.get(&slot)?.unwrap_or_default();
        let end = asked.iter().position(|addr| *addr == Some(to)).unwrap_or(0);
        asker.sent_ns = now;
        asker.turn = (end + 1) % ENDS;
        let sent = asker.send(attached, to, state.end[end].nonce);
        if sent.is_ok() {
            asker.pace.asked();
        }
        asker.trouble(dev, sent.err().map(|e| not_sent(to, &e)), now);
        Ok(interval)
    }
}

/// Asks, for ever.
pub async fn run(datapath: Handle) {
    loop {
        // The data path's thread is gone only if the agent is.
        let wait = datapath.run(|d| Ok(d.beat())).await;
        tokio::time::sleep(wait.unwrap_or(Duration::from_nanos(LAZY))).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::address::address_bytes;

    fn session(kind: u32, media: u8, to: &str, packets: u64) -> abi::bb_session {
        abi::bb_session {
            way: abi::bb_way {
                tag: 1,
                ..Default::default()
            },
            key: abi::bb_session_key {
                addr: address_bytes(to.parse().unwrap()),
                ifindex: 2,
                kind: kind as u8,
                media,
                ..Default::default()
            },
            counters: abi::bb_counters {
                packets_sent: packets,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    #[test]
    fn receiver_is_who_gets_media_and_is_one_host() {
        let to = |kind, media, to: &str| receiver(&session(kind, media, to, 3));
        let addr: IpAddr = "192.0.2.1".parse().unwrap();
        let wanted = Some((2, addr, 3));
        assert_eq!(to(abi::BB_SESSION_DST, 1, "192.0.2.1"), wanted);
        assert_eq!(to(abi::BB_SESSION_FLOW, 1, "192.0.2.1"), wanted);
        assert_eq!(to(abi::BB_SESSION_DST, 0, "192.0.2.1"), None);
        assert_eq!(to(abi::BB_SESSION_PREFIX, 1, "192.0.2.0"), None);
        assert_eq!(to(abi::BB_SESSION_CONTROL, 1, "192.0.2.1"), None);
        assert_eq!(to(abi::BB_SESSION_DST, 1, "224.0.0.1"), None);
        assert_eq!(to(abi::BB_SESSION_DST, 1, "ff02::1"), None);
    }

    #[test]
    fn busy_receivers_are_those_who_got_packets_since_the_look_before() {
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|a| a.parse().unwrap());
        let mut receivers = Receivers::default();
        receivers.take(vec![(9, (2, a, 100))], 1);
        assert!(receivers.busy.is_empty());
        assert_eq!(receivers.due_ns, 1 + FIRST_LOOK);
        // Two sessions of one receiver, one of which is new; another receiver in a place that was somebody's.
        receivers.take(vec![(9, (2, a, 104)), (10, (2, a, 3)), (11, (3, b, 1))], 5);
        assert_eq!(receivers.busy[&2], [(a, 7)]);
        assert_eq!(receivers.busy[&3], [(b, 1)]);
        receivers.take(vec![(9, (2, a, 104)), (10, (2, b, 1))], 9);
        assert_eq!(receivers.busy[&2], [(b, 1)]);
        assert_eq!(receivers.before.len(), 2);
    }
}
