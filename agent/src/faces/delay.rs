//! The one-way delay to a receiver: what is known of it, who knows it, and since when. The classifier (`bb_rtt.h`) has
//! the same order of preference.

use std::net::IpAddr;

use bestby_api::{Check, CheckStatus, OwdSource};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::faces::session::{address_of, kind_of};
use crate::kernel::address::address_bytes;
use crate::kernel::sys::monotonic_ns;

/// A one-way delay, who knows it, and since when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delay {
    /// The delay, ns; `None`: nobody knows one.
    pub owd_ns: Option<u64>,
    /// Who knows it.
    pub source: OwdSource,
    /// Since it was said or measured last, ns; `None`: a rule says it, or nobody.
    pub age_ns: Option<u64>,
}

impl Delay {
    /// What somebody said; `None`: nothing of the delay.
    fn said(source: OwdSource, peer: &abi::bb_peer, now_ns: u64) -> Option<Self> {
        (peer.flags & abi::BB_PEER_OWD != 0).then(|| Self {
            owd_ns: Some(peer.owd_ns),
            source,
            age_ns: Some(now_ns.saturating_sub(peer.said_ns)),
        })
    }

    /// What a flow rule says where nobody else knows.
    pub(crate) fn or_rule(self, owd_ns: u64) -> Self {
        match self.owd_ns {
            None if owd_ns > 0 => Self {
                owd_ns: Some(owd_ns),
                source: OwdSource::Rule,
                age_ns: None,
            },
            _ => self,
        }
    }
}

/// Who measured a round trip.
pub(super) fn measured_by(rtt: &abi::bb_rtt) -> OwdSource {
    match rtt.source {
        abi::BB_RTT_STUN => OwdSource::Stun,
        abi::BB_RTT_RTCP => OwdSource::Rtcp,
        _ => OwdSource::Tcp,
    }
}

/// Media that wait longer behind this host are worth a word, ns.
const QUEUE_WARN_NS: u64 = 50_000_000;

/// A round trip that was measured longer ago says nothing of a queue of now.
const QUEUE_AGE_NS: u64 = 10_000_000_000;

/// How long packets of a session waited in our own queue of which answers may come now (`bb_wait_lately`), ns.
fn waited_lately(s: &abi::bb_session, now_ns: u64) -> u64 {
    let age = now_ns.saturating_sub(s.wait_from_ns);
    match age / u64::from(abi::BB_WAIT_WINDOW_NS) {
        0 | 1 => s.wait_ns[0].max(s.wait_ns[1]),
        2 => s.wait_ns[0],
        _ => 0,
    }
}

/// How long the last round trip waited behind this host: what it took above the least one of minutes, less our own
/// queue, ns. `None`: none was measured lately.
fn queue_behind(rtt: &abi::bb_rtt, own_ns: u64, now_ns: u64) -> Option<u64> {
    let [this, before] = rtt.base_ns;
    let base = this.min(before);
    if base == u64::MAX || now_ns.saturating_sub(rtt.updated_ns) > QUEUE_AGE_NS {
        return None;
    }
    Some(rtt.srtt_ns.saturating_sub(base).saturating_sub(own_ns))
}

impl Datapath {
    /// How long packets of a session wait in a queue behind this host, ns; `None`: nobody measures that.
    pub(crate) fn queue_behind(&self, s: &abi::bb_session) -> Result<Option<u64>> {
        let Some(addr) = address_of(s).filter(|_| kind_of(s) != abi::BB_SESSION_PREFIX) else {
            return Ok(None);
        };
        let key = abi::bb_addr {
            addr: address_bytes(addr),
        };
        let now = monotonic_ns();
        let rtt = self.shared.rtts.get(&key)?;
        Ok(rtt.and_then(|rtt| queue_behind(&rtt, waited_lately(s, now), now)))
    }

    /// Receivers whose packets wait behind this host.
    pub(super) fn queue_elsewhere(&self) -> Option<Check> {
        let behind = self.queues_behind().ok()?;
        let waits = behind.iter().filter(|(_, ns)| *ns >= QUEUE_WARN_NS);
        let (name, ns) = waits.clone().max_by_key(|(_, ns)| *ns)?;
        let more = match waits.count() - 1 {
            0 => String::new(),
            n => format!(" ({n} more wait for over {} ms)", QUEUE_WARN_NS / 1_000_000),
        };
        Some(Check::new(
            "queue elsewhere",
            CheckStatus::Warn,
            format!(
                "packets of {name} wait {} ms in a queue behind this host{more}: the narrow place is there, and bestby does not choose what waits",
                ns / 1_000_000
            ),
            "tell what that link carries, less a little: bestby iface set DEV --rate RATE, or bestby session set ADDR --rate RATE; or attach bestby there",
        ))
    }

    /// What is known of the delay to one address by anybody but sockets, and who knows it.
    pub(crate) fn delay_to(&self, addr: IpAddr) -> Result<Delay> {
        let now = monotonic_ns();
        let key = abi::bb_addr {
            addr: address_bytes(addr),
        };
        if let Some(peer) = self.shared.peers.get(&key)?
            && let Some(delay) = Delay::said(OwdSource::Set, &peer, now)
        {
            return Ok(delay);
        }
        if let Some(rtt) = self.shared.rtts.get(&key)?
            && rtt.min_rtt_ns > 0
        {
            let age = now.saturating_sub(rtt.updated_ns);
            if age <= self.config.agent.rtt_max_age.as_ns() {
                return Ok(Delay {
                    owd_ns: Some(rtt.min_rtt_ns / 2),
                    source: measured_by(&rtt),
                    age_ns: Some(age),
                });
            }
        }
        Ok(Delay::default())
    }

    /// The owd that the sockets of a session's user gave.
    fn said_by_sockets(&self, key: &abi::bb_session_key) -> Result<Option<Delay>> {
        let Some(uid) = key.user.checked_sub(1) else {
            return Ok(None);
        };
        let key = abi::bb_sock_peer_key {
            addr: key.addr,
            uid,
        };
        let said = self.shared.sock_peers.get(&key)?;
        Ok(said.and_then(|p| Delay::said(OwdSource::Socket, &p, monotonic_ns())))
    }

    /// The delay that a session reckons with. Where it has many destinations, each has one of its own.
    pub(super) fn delay_of(&self, s: &abi::bb_session) -> Result<Delay> {
        let delay = match address_of(s) {
            Some(addr) if kind_of(s) != abi::BB_SESSION_PREFIX => self.delay_to(addr)?,
            _ => Delay::default(),
        };
        match delay.source {
            OwdSource::Set => Ok(delay),
            _ => Ok(self.said_by_sockets(&s.key)?.unwrap_or(delay)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const NOW: u64 = 1_000_000 * MS;

    #[test]
    fn queue_behind_is_what_a_round_trip_took_above_the_least_but_for_our_own() {
        let rtt = abi::bb_rtt {
            srtt_ns: 300 * MS,
            base_ns: [200 * MS, 80 * MS],
            updated_ns: NOW - MS,
            ..abi::bb_rtt::default()
        };
        assert_eq!(queue_behind(&rtt, 0, NOW), Some(220 * MS));
        assert_eq!(queue_behind(&rtt, 50 * MS, NOW), Some(170 * MS));
        assert_eq!(queue_behind(&rtt, 900 * MS, NOW), Some(0));
        // Nothing is known of now, or of the path.
        assert_eq!(queue_behind(&rtt, 0, NOW + 11_000 * MS), None);
        let unknown = abi::bb_rtt {
            base_ns: [u64::MAX; 2],
            ..rtt
        };
        assert_eq!(queue_behind(&unknown, 0, NOW), None);
    }

    #[test]
    fn a_wait_counts_as_long_as_its_answer_may_come() {
        let session = abi::bb_session {
            wait_from_ns: NOW,
            wait_ns: [3, 7],
            ..abi::bb_session::default()
        };
        let after = |s: u64| waited_lately(&session, NOW + s * 1000 * MS);
        assert_eq!([0, 1, 2, 3].map(after), [7, 7, 3, 0]);
    }
}
