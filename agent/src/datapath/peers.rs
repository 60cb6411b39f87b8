//! What is set of receivers: by the file, and by commands.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use bestby_api::{Done, Owd, PeerConfig, Rate, SessionSet};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::datapath::mistakes::receiver;
use crate::desired::file::config_error;
use crate::error::Result;
use crate::kernel::address::address_bytes;
use crate::kernel::sys::monotonic_ns;

impl Datapath {
    /// Sets the peers of the file, and forgets those that an earlier file had.
    pub(crate) fn set_peers(&mut self, peers: &[PeerConfig]) -> Result<()> {
        let there: HashSet<IpAddr> = peers.iter().map(|p| p.addr).collect();
        let earlier = self.kept_peers.all();
        for (_, old) in earlier.iter().filter(|(_, old)| !there.contains(old)) {
            self.shared.peers.remove(&abi::bb_addr {
                addr: address_bytes(*old),
            })?;
        }
        // Remembered before they are set: one that is set is never forgotten.
        self.remember_peers(peers)?;
        for peer in peers {
            let mut flags = abi::BB_PEER_OPERATOR;
            flags |= if peer.owd.is_some() {
                abi::BB_PEER_OWD
            } else {
                0
            };
            flags |= if peer.rate.is_some() {
                abi::BB_PEER_RATE
            } else {
                0
            };
            let value = abi::bb_peer {
                owd_ns: peer.owd.map_or(0, |o| o.as_ns()),
                said_ns: monotonic_ns(),
                rate: peer.rate.map_or(0, |r| r.bytes_per_s()),
                flags,
                pad: 0,
            };
            self.shared.peers.set(
                &abi::bb_addr {
                    addr: address_bytes(peer.addr),
                },
                &value,
            )?;
        }
        Ok(())
    }

    /// What a file's peers would change, a line each.
    pub(crate) fn peers_changed(&self, peers: &[PeerConfig]) -> Vec<String> {
        let said = |p: &PeerConfig| {
            let owd = p.owd.map_or("none".into(), |owd| owd.to_string());
            let rate = p.rate.map_or("none".into(), |rate| rate.to_string());
            format!("owd {owd}, rate {rate}")
        };
        let now: HashMap<IpAddr, PeerConfig> =
            self.receivers().into_iter().map(|p| (p.addr, p)).collect();
        let set = peers.iter().filter_map(|new| match now.get(&new.addr) {
            None => Some(format!("set receiver {}: {}", new.addr, said(new))),
            Some(old) if said(old) == said(new) => None,
            Some(old) => Some(format!(
                "change receiver {}: {} -> {}",
                new.addr,
                said(old),
                said(new)
            )),
        });
        let there: HashSet<IpAddr> = peers.iter().map(|p| p.addr).collect();
        let earlier = self.kept_peers.all();
        let gone = earlier
            .into_iter()
            .map(|(_, addr)| addr)
            .filter(|addr| !there.contains(addr) && now.contains_key(addr))
            .map(|addr| format!("forget receiver {addr}"));
        set.chain(gone).collect()
    }

    /// Remembers whose peers are the file's.
    fn remember_peers(&self, peers: &[PeerConfig]) -> Result<()> {
        let mut count = 0;
        for peer in peers {
            self.kept_peers.set(count, &peer.addr)?;
            count += 1;
        }
        for (index, _) in self.kept_peers.all() {
            if index >= count {
                self.kept_peers.remove(index)?;
            }
        }
        Ok(())
    }

    /// PUT /v1/sessions/{addr}.
    ///
    /// # Errors
    /// The table of peers is full, or the file cannot be written: nothing was changed then.
    pub fn session_set(&mut self, addr: IpAddr, request: &SessionSet) -> Result<Done> {
        let addr = addr.to_canonical();
        let key = abi::bb_addr {
            addr: address_bytes(addr),
        };
        let before = self.shared.peers.get(&key)?;
        let mut peer = before.unwrap_or_default();
        if let Some(rate) = request.rate {
            peer.rate = rate.map_or(0, Rate::bytes_per_s);
            peer.flags = peer.flags & !abi::BB_PEER_RATE
                | if rate.is_some() { abi::BB_PEER_RATE } else { 0 };
        }
        if let Some(owd) = request.owd {
            peer.owd_ns = owd.map_or(0, Owd::as_ns);
            peer.said_ns = monotonic_ns();
            peer.flags =
                peer.flags & !abi::BB_PEER_OWD | if owd.is_some() { abi::BB_PEER_OWD } else { 0 };
        }
        let document = if request.save {
            let mut document = self.paths.config.document()?;
            document
                .put_peer(&receiver(&key, &peer))
                .map_err(|e| config_error(&e))?;
            Some(document)
        } else {
            None
        };
        let forget = peer.flags & (abi::BB_PEER_OWD | abi::BB_PEER_RATE) == 0;
        if forget {
            self.shared.peers.remove(&key)?;
        } else {
            peer.flags |= abi::BB_PEER_OPERATOR;
            self.shared.peers.set(&key, &peer)?;
        }
        if let Some(document) = document {
            if let Err(e) = self.paths.config.write(&document.text()) {
                match &before {
                    Some(before) => self.shared.peers.set(&key, before)?,
                    None => self.shared.peers.remove(&key)?,
                }
                return Err(e
                    .within("nothing was changed")
                    .hint("free some space or check the rights, or leave out --save"));
            }
            // A later file without this receiver takes it away again.
            let peers = document.config().peers.clone();
            self.remember_peers(&peers)?;
            self.config.peers = peers;
        }
        let message = if forget {
            format!("what was set for {addr} is forgotten")
        } else {
            format!("session {addr} set")
        };
        Ok(Done {
            message,
            warnings: self.mistakes_of_receiver(&receiver(&key, &peer)),
        })
    }
}
