//! The one-way delay to a receiver: what is known of it, who knows it, and since when. The classifier (`bb_rtt.h`) has
//! the same order of preference.

use std::net::IpAddr;

use bestby_api::OwdSource;
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

impl Datapath {
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
