//! Sessions and statistics, by the names an operator knows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use bestby_api::{
    Counters, GlobalCounters, NO_RULE, Owd, PeerInfo, Rate, RttInfo, SessionInfo, SessionList,
    Stats, Status,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::faces::delay::{Delay, measured_by};
use crate::faces::session::{address_of, kind_name, kind_of, session_name, user_name};
use crate::kernel::address::address;
use crate::kernel::htb;
use crate::kernel::maps::{self, Shared};
use crate::kernel::sys::monotonic_ns;

/// The host's counters.
pub(crate) fn global(shared: &Shared) -> Result<GlobalCounters> {
    let get = |which: abi::bb_global_counter| {
        Ok::<u64, crate::error::Error>(shared.global.get(&which)?.unwrap_or(0))
    };
    Ok(GlobalCounters {
        no_metadata: get(abi::BB_G_NO_METADATA)?,
        malformed: get(abi::BB_G_MALFORMED)?,
        foreign_mark: get(abi::BB_G_FOREIGN_MARK)?,
        no_rtt: get(abi::BB_G_NO_RTT)?,
        sessions_full: get(abi::BB_G_SESSIONS_FULL)?,
        events_lost: get(abi::BB_G_EVENTS_LOST)?,
        past_deadline: get(abi::BB_G_PAST_DEADLINE)?,
        bad_cb: get(abi::BB_G_BAD_CB)?,
        no_cb: get(abi::BB_G_NO_CB)?,
        streams_full: get(abi::BB_G_STREAMS_FULL)?,
        users_full: get(abi::BB_G_USERS_FULL)?,
        forwarded_mark: get(abi::BB_G_FORWARDED_MARK)?,
        refused: get(abi::BB_G_REFUSED)?,
        segmenter_lost: get(abi::BB_G_SEGMENTER_LOST)?,
        option_malformed: get(abi::BB_G_OPTION_MALFORMED)?,
        option_unknown: get(abi::BB_G_OPTION_UNKNOWN)?,
        option_far: get(abi::BB_G_OPTION_FAR)?,
        option_many: get(abi::BB_G_OPTION_MANY)?,
        option_untrusted: get(abi::BB_G_OPTION_UNTRUSTED)?,
        option_no_clock: get(abi::BB_G_OPTION_NO_CLOCK)?,
        decremented: get(abi::BB_G_DECREMENTED)?,
        stamped: get(abi::BB_G_STAMPED)?,
        stamp_mtu: get(abi::BB_G_STAMP_MTU)?,
        stamp_path_mtu: get(abi::BB_G_STAMP_PATH_MTU)?,
        stamp_gso: get(abi::BB_G_STAMP_GSO)?,
        stamp_checksum: get(abi::BB_G_STAMP_CHECKSUM)?,
        stamp_fragment: get(abi::BB_G_STAMP_FRAGMENT)?,
        stamp_shared: get(abi::BB_G_STAMP_SHARED)?,
        stamp_ah: get(abi::BB_G_STAMP_AH)?,
        stamp_options: get(abi::BB_G_STAMP_OPTIONS)?,
        stamp_clock: get(abi::BB_G_STAMP_CLOCK)?,
        stamp_probe: get(abi::BB_G_STAMP_PROBE)?,
        stamp_failed: get(abi::BB_G_STAMP_FAILED)?,
        answers_unknown: get(abi::BB_G_ANSWER_UNKNOWN)?,
        answers_refused: get(abi::BB_G_ANSWER_REFUSED)?,
        held_back: get(abi::BB_G_HELD_BACK)?,
        preempted: get(abi::BB_G_PREEMPTED)?,
        routed_time: get(abi::BB_G_ROUTED_TIME)?,
        no_cgroup: get(abi::BB_G_NO_CGROUP)?,
        untimely: get(abi::BB_G_UNTIMELY)?,
        network: get(abi::BB_G_NETWORK)?,
        network_over: get(abi::BB_G_NETWORK_OVER)?,
    })
}

/// One session that is shown.
#[derive(Debug, Clone, Default)]
pub struct TopSession {
    /// Its name, as in `bestby session ls`.
    pub name: String,
    /// What passed.
    pub counters: Counters,
    /// Its one-way delay.
    pub delay: Delay,
    /// How long its packets wait behind this host, ns; `None`: nobody measures that.
    pub queue_behind_ns: Option<u64>,
}

/// How many sessions are in use, by interface and kind.
pub type SessionCounts = BTreeMap<(String, &'static str), u64>;

impl Datapath {
    /// Names of the attached devices by index.
    fn devices(&self) -> HashMap<u32, String> {
        self.attached
            .values()
            .map(|a| (a.ifindex, a.dev.to_string()))
            .collect()
    }

    /// Index and content of the sessions in use on attached interfaces, and of the shared one.
    fn unnamed_sessions<'d>(
        &self,
        devices: &'d HashMap<u32, String>,
    ) -> Result<impl Iterator<Item = (u32, abi::bb_session)> + use<'d>> {
        let all = self.shared.sessions.entries()?.into_iter();
        Ok(all.filter(|(_, s)| {
            (s.way.tag != 0 && devices.contains_key(&s.key.ifindex)) || s.counters.packets_in > 0
        }))
    }

    /// Sessions in use on attached interfaces, and the shared one.
    fn used_sessions(&self) -> Result<Vec<(u32, String, abi::bb_session)>> {
        let devices = self.devices();
        let mut all: Vec<_> = self
            .unnamed_sessions(&devices)?
            .map(|(i, s)| (i, session_name(i, &s, |dev| devices.get(&dev).cloned()), s))
            .collect();
        // Two keys may have one name only by a hash collision of flows: the index tells them apart.
        let mut seen: HashMap<String, u32> = HashMap::new();
        for (index, name, _) in &mut all {
            if *seen.entry(name.clone()).or_insert(*index) != *index {
                *name = format!("{name}#{index}");
            }
        }
        Ok(all)
    }

    /// GET /v1/stats.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn stats(&mut self) -> Result<Stats> {
        let sessions = self
            .used_sessions()?
            .into_iter()
            .map(|(_, name, s)| (name, maps::counters(&s.counters)))
            .collect();
        let (mut interfaces, mut delays) = (BTreeMap::new(), BTreeMap::new());
        for (slot, attached) in &self.attached {
            let counted = self.iface_counted(*slot, attached)?;
            interfaces.insert(attached.dev.to_string(), maps::counters(&counted.counters));
            if let Some(delay) = counted.times.and_then(|t| maps::times(&t).sojourn.delay()) {
                delays.insert(attached.dev.to_string(), delay);
            }
        }
        let mut leaves = BTreeMap::new();
        for (slot, attached) in self.attached.clone() {
            if attached.shapes() {
                let tree = self.tree_of(slot, &attached);
                let of = htb::leaves(&mut self.tc, attached.ifindex, &tree.iface)?;
                leaves.insert(attached.dev.to_string(), of);
            }
        }
        Ok(Stats {
            flows: self.flow_counters()?,
            sessions,
            interfaces,
            delays,
            leaves,
            payload_types: self.payload_type_counters()?,
            global: global(&self.shared)?,
        })
    }

    /// By flow rule; what matches none under [`NO_RULE`].
    pub(crate) fn flow_counters(&self) -> Result<BTreeMap<String, Counters>> {
        let mut flows = BTreeMap::new();
        let stats = |id: u16| -> Result<_> {
            Ok(maps::counters(
                &self
                    .shared
                    .rule_stats
                    .get(&u32::from(id))?
                    .unwrap_or_default(),
            ))
        };
        flows.insert(NO_RULE.to_string(), stats(0)?);
        for entry in &self.book.entries {
            flows.insert(entry.rule.name.to_string(), stats(entry.id)?);
        }
        Ok(flows)
    }

    /// By RTP payload type, those that were seen.
    pub(crate) fn payload_type_counters(&self) -> Result<BTreeMap<u8, Counters>> {
        let mut payload_types = BTreeMap::new();
        for (index, counters) in self.shared.rtp_stats.entries()? {
            if let Some(pt) = index
                .checked_sub(abi::BB_RTP)
                .and_then(|pt| u8::try_from(pt).ok())
                && counters.packets_in > 0
            {
                payload_types.insert(pt, maps::counters(&counters));
            }
        }
        Ok(payload_types)
    }

    /// How long packets wait behind this host, by session, where somebody measures that, ns.
    pub(crate) fn queues_behind(&self) -> Result<Vec<(String, u64)>> {
        let mut behind = Vec::new();
        for (_, name, s) in self.used_sessions()? {
            if let Some(ns) = self.queue_behind(&s)? {
                behind.push((name, ns));
            }
        }
        Ok(behind)
    }

    /// The sessions with most trouble (packets dropped or sent stale, then packets), at most `most` of them, and how
    /// many there are in all, by interface and kind. Only those that are returned get a name: that is what takes time.
    pub(crate) fn top_sessions(&self, most: usize) -> Result<(Vec<TopSession>, SessionCounts)> {
        let devices = self.devices();
        let mut counts: HashMap<(u32, u32), u64> = HashMap::new();
        let mut ranked = Vec::new();
        for (index, s) in self.unnamed_sessions(&devices)? {
            let shared = s.way.tag == 0;
            let ifindex = if shared { 0 } else { s.key.ifindex };
            *counts.entry((ifindex, kind_of(&s))).or_default() += 1;
            let c = maps::counters(&s.counters);
            let trouble = [c.dropped.total(), c.would_drop.total(), c.sent_stale];
            let trouble = trouble.into_iter().fold(0, u64::saturating_add);
            ranked.push((std::cmp::Reverse((trouble, c.packets_in)), index, s));
        }
        ranked.sort_unstable_by_key(|(rank, index, _)| (*rank, *index));
        ranked.truncate(most);
        let mut names = HashSet::new();
        let mut top = Vec::with_capacity(ranked.len());
        for (_, index, s) in ranked {
            let mut name = session_name(index, &s, |dev| devices.get(&dev).cloned());
            if !names.insert(name.clone()) {
                name = format!("{name}#{index}");
            }
            top.push(TopSession {
                name,
                counters: maps::counters(&s.counters),
                delay: self.delay_of(&s)?,
                queue_behind_ns: self.queue_behind(&s)?,
            });
        }
        let device = |index: u32| match index {
            0 => String::new(),
            _ => devices
                .get(&index)
                .cloned()
                .unwrap_or_else(|| format!("#{index}")),
        };
        let counts = counts
            .into_iter()
            .map(|((index, kind), count)| ((device(index), kind_name(kind)), count))
            .collect();
        Ok((top, counts))
    }

    /// GET /v1/sessions.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn sessions(&self) -> Result<SessionList> {
        let now = monotonic_ns();
        let devices = self.devices();
        let mut sessions = Vec::new();
        for (_, name, s) in self.used_sessions()? {
            let kind = kind_of(&s);
            let addr = address_of(&s);
            let delay = self.delay_of(&s)?;
            sessions.push(SessionInfo {
                dev: devices.get(&s.key.ifindex).cloned().unwrap_or_default(),
                kind: kind_name(kind).into(),
                media: s.key.media != 0,
                user: user_name(&s, &self.shared.users),
                addr: addr.map(|a| a.to_string()),
                rate_bytes_s: (s.rate > 0).then_some(s.rate),
                owd_ns: delay.owd_ns,
                owd_source: delay.source,
                owd_age_ns: delay.age_ns,
                queue_behind_ns: self.queue_behind(&s)?,
                idle_ns: if s.way.used_ns == 0 {
                    0
                } else {
                    now.saturating_sub(s.way.used_ns)
                },
                counters: maps::counters(&s.counters),
                name,
            });
        }
        let mut peers: BTreeMap<IpAddr, PeerInfo> = BTreeMap::new();
        let blank = |addr| PeerInfo {
            addr,
            rate: None,
            owd: None,
            set_by: String::new(),
            rtt: None,
        };
        for (key, p) in self.shared.peers.entries()? {
            let addr = address(key.addr);
            let info = peers.entry(addr).or_insert_with(|| blank(addr));
            info.rate = (p.flags & abi::BB_PEER_RATE != 0)
                .then(|| Rate::from_bytes_per_s(p.rate))
                .flatten();
            info.owd = (p.flags & abi::BB_PEER_OWD != 0)
                .then(|| Owd::from_ns(p.owd_ns))
                .flatten();
            info.set_by = if p.flags & abi::BB_PEER_OPERATOR != 0 {
                "operator"
            } else {
                "socket"
            }
            .into();
        }
        for (key, r) in self.shared.rtts.entries()? {
            let addr = address(key.addr);
            peers.entry(addr).or_insert_with(|| blank(addr)).rtt = Some(RttInfo {
                srtt_ns: r.srtt_ns,
                min_rtt_ns: r.min_rtt_ns,
                rto_ns: r.rto_ns,
                age_ns: now.saturating_sub(r.updated_ns),
                source: measured_by(&r),
            });
        }
        Ok(SessionList {
            sessions,
            peers: peers.into_values().collect(),
        })
    }

    /// GET /v1/status.
    pub fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            abi_version: abi::BB_ABI_VERSION,
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            kernel: kernel_release(),
            bpffs: self.paths.bpffs.display().to_string(),
            config: Some(self.paths.config.path())
                .filter(|path| path.exists())
                .map(|path| path.display().to_string()),
            config_read_s: unix_s(self.file_taken.read),
            config_taken_s: self.file_taken.taken.map(unix_s),
            config_error: self.file_taken.why_not.clone(),
            adopted: self.shared.adopted,
            flows: u32::try_from(self.book.entries.len()).unwrap_or(u32::MAX),
            interfaces: u32::try_from(self.attached.len()).unwrap_or(u32::MAX),
        }
    }
}

fn unix_s(time: std::time::SystemTime) -> u64 {
    let since = time.duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Release of the running kernel.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|s| s.trim().to_string())
        .unwrap_or_default()
}
