//! Sends the probes that are due (`probes.rs`), and says what is known of a path.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bestby_api::{FlowRule, Stamp};
use bestby_bpf::abi;
use bestby_probe::{Kind, Manner, Path};
use tokio::time::{MissedTickBehavior, interval};

use crate::datapath::{Datapath, Handle};
use crate::error::Result;
use crate::kernel::address::{address, address_bytes};
use crate::kernel::sys::monotonic_ns;
use crate::observed::probes::{Entry, HELD, Probes, SECOND, can_be_asked};

/// Packets of each of the two trains.
const COUNT: u16 = 10;
/// A probe that is due.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    to: IpAddr,
    manner: Manner,
}

impl Datapath {
    pub(crate) fn stamps_probed(&self) -> bool {
        let probed = |rule: &FlowRule| rule.stamp == Some(Stamp::Probed);
        self.book.entries.iter().any(|e| probed(&e.rule))
    }

    /// The probe that is due; asked once a second.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn next_probe(&mut self) -> Result<Option<Due>> {
        if !self.stamps_probed() && self.probes.0.is_empty() {
            return Ok(None);
        }
        let now = monotonic_ns();
        let mut seen = Vec::new();
        for (key, entry) in self.shared.probed.entries()? {
            let addr = address(key.addr);
            if now < entry.used_ns.saturating_add(HELD) {
                seen.push((addr, entry));
            } else {
                self.shared.probed.remove(&key)?;
            }
        }
        seen.retain(|(addr, _)| can_be_asked(*addr));
        let Some(to) = self.probes.next(&seen, now) else {
            return Ok(None);
        };
        let agent = &self.config.agent;
        let (magic, mask) = agent.mark_magic.bits();
        let manner = Manner {
            count: COUNT,
            // bestby's own without a deadline, where marks are read.
            mark: (mask != 0)
                .then_some(magic | abi::BB_TREAT_FORWARD << abi::BB_MARK_TREATMENT_SHIFT),
            types: agent.ip_option,
        };
        Ok(Some(Due { to, manner }))
    }

    /// Forgets all answers: each path is asked again when a packet goes there.
    ///
    /// # Errors
    /// The map cannot be written.
    pub(crate) fn forget_probes(&mut self) -> Result<()> {
        for key in self.shared.probed.keys() {
            self.shared.probed.remove(&key)?;
        }
        self.probes = Probes::default();
        Ok(())
    }

    /// Takes in what a probe found.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn probed(&mut self, due: Due, path: Path) -> Result<()> {
        let key = abi::bb_addr {
            addr: address_bytes(due.to),
        };
        let kept = self.shared.probed.get(&key);
        let Ok(Some(mut entry)) = kept else {
            // It made room for another. Should packets go there again, it is a new one.
            self.probes.0.remove(&due.to);
            return kept.map(|_| ());
        };
        let before = self.probes.0.get(&due.to).and_then(|d| d.found);
        let now = monotonic_ns();
        match self.probes.learn(due.to, path, entry.until_ns, now) {
            Entry::Stays => return Ok(()),
            Entry::Until(until) => entry.until_ns = until,
        }
        if before != Some(path) {
            tracing::info!("the path to {} {}", due.to, in_words(path));
        }
        self.shared.probed.set(&key, &entry)
    }

    /// What becomes of a packet of this rule on its way to a destination: LPD's option.
    pub(crate) fn stamp_note(
        &self,
        rule: &FlowRule,
        dst: IpAddr,
        may: std::result::Result<(), &str>,
    ) -> Option<String> {
        match (rule.stamp, may) {
            (None | Some(Stamp::No), _) => return None,
            (_, Err(why)) => return Some(why.into()),
            (Some(Stamp::Yes), Ok(())) => {
                return Some("It leaves with LPD's option, if it has room for it.".into());
            }
            (Some(Stamp::Probed), Ok(())) => {}
        }
        if !can_be_asked(dst) {
            return Some(format!(
                "It leaves without LPD's option: {dst} cannot be probed."
            ));
        }
        let now = monotonic_ns();
        let key = abi::bb_addr {
            addr: address_bytes(dst),
        };
        let until = self.shared.probed.get(&key).ok().flatten();
        let known = self.probes.0.get(&dst);
        let asked = known
            .and_then(|known| Some((known.found?, (now - known.asked?) / SECOND)))
            .map(|(path, age)| format!("the path {} (probed {age} s ago)", in_words(path)));
        Some(match (until.is_some_and(|e| now < e.until_ns), asked) {
            (true, Some(asked)) => {
                format!("It leaves with LPD's option, if it has room for it: {asked}.")
            }
            // An earlier agent's answer still counts.
            (true, None) => "It leaves with LPD's option, if it has room for it.".into(),
            (false, Some(asked)) if known.is_some_and(|k| k.found == Some(Path::Tolerates)) => {
                format!(
                    "It leaves without LPD's option: that {asked} counts no more; it is asked again."
                )
            }
            (false, Some(asked)) => format!("It leaves without LPD's option: {asked}."),
            (false, None) if known.is_some_and(|k| k.doubt.is_some() || k.failures > 0) => format!(
                "It leaves without LPD's option: TCP segments with it vanished on the path to {dst}, which is asked again {}.",
                match known.map_or(0, |k| k.due.saturating_sub(now) / SECOND) {
                    0 => "now".into(),
                    s => format!("in {s} s"),
                }
            ),
            (false, None) => format!(
                "It leaves without LPD's option: the path to {dst} has not been probed yet; the first packet asks for it."
            ),
        })
    }
}

fn in_words(path: Path) -> &'static str {
    match path {
        Path::Tolerates => "carries LPD's option",
        Path::Drops => "drops packets with LPD's option",
        Path::Silent => "does not answer echo requests",
        Path::Unsure => "loses too much to tell",
    }
}

/// Probes what is due, for ever.
pub async fn run(datapath: Handle) {
    let mut clock = interval(Duration::from_secs(1));
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complained = false;
    loop {
        clock.tick().await;
        let due = match datapath.run(Datapath::next_probe).await {
            Ok(due) => due,
            Err(e) => {
                if !std::mem::replace(&mut complained, true) {
                    tracing::error!("destinations of rules with stamp probed: {e}");
                }
                continue;
            }
        };
        let Some(due) = due else { continue };
        let datapath = datapath.clone();
        tokio::spawn(async move {
            let to = SocketAddr::new(due.to, 0);
            let trains = bestby_probe::send(to, [Kind::Plain, Kind::Valid], &due.manner).await;
            let path = match trains {
                Ok([plain, valid]) => bestby_probe::judge_path([&plain, &valid]),
                Err(e) => {
                    tracing::warn!("probing {}: {e}", due.to);
                    Path::Silent
                }
            };
            // The data path's thread is gone only if the agent is.
            let _ = datapath.run(move |d| d.probed(due, path)).await;
        });
    }
}
