//! What `bestby doctor` sees of media under way: frames for which no lifetime is left, receivers that share one address,
//! streams of which nothing can be read.

use std::collections::{BTreeMap, BTreeSet};

use bestby_api::{Check, CheckStatus, FlowLifetime, MediaList, Owd, Rate};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::faces::streams::CRYPTEX;
use crate::kernel::address::address;
use crate::kernel::sys::monotonic_ns;

/// Ports of one receiver's address that media go to at once: fewer may all be one receiver's.
const PORTS: usize = 8;
/// Flows that were silent for so long are over.
const SILENT_NS: u64 = 5_000_000_000;

/// Frames that need more of a link than the time for which they are of use.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::faces) struct TooLarge {
    /// Time that one takes of the link, ms.
    pub(in crate::faces) takes_ms: u64,
    /// The lifetime that it needs, a quarter to spare, ms.
    pub(in crate::faces) needs_ms: u64,
}

impl TooLarge {
    /// Of frames of so many bytes on a link of this rate, `owd_ns` away; `None`: their lifetime suffices.
    pub(in crate::faces) fn frames(
        bytes: u32,
        rate: Rate,
        lifetime_ns: u64,
        owd_ns: u64,
    ) -> Option<Self> {
        let takes = u64::from(bytes).saturating_mul(1_000_000_000) / rate.bytes_per_s().max(1);
        let needs = takes.saturating_mul(5) / 4 + owd_ns;
        (takes + owd_ns > lifetime_ns).then(|| Self {
            takes_ms: takes.div_ceil(1_000_000),
            needs_ms: needs.div_ceil(1_000_000),
        })
    }
}

/// Addresses that media go to by at least [`PORTS`] ports, and how many.
fn crowded(flows: &[abi::bb_flow], sessions: &BTreeSet<u32>, now: u64) -> Vec<(String, usize)> {
    let mut ports: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
    for flow in flows {
        let session = u32::try_from(flow.session & 0xffff).unwrap_or(0);
        // Refreshed each 10 ms by what is sent.
        if sessions.contains(&session) && now.saturating_sub(flow.refreshed_ns) < SILENT_NS {
            ports
                .entry((session, flow.key.dst))
                .or_default()
                .insert(flow.key.dport);
        }
    }
    ports
        .into_iter()
        .filter(|(_, ports)| ports.len() >= PORTS)
        .map(|((_, dst), ports)| (address(dst).to_string(), ports.len()))
        .collect()
}

/// Rules with streams whose header extensions are encrypted, and how many these are.
fn encrypted(list: &MediaList) -> BTreeMap<&str, usize> {
    let mut rules = BTreeMap::new();
    let streams = list.streams.iter();
    for s in streams.filter(|s| s.codec.as_deref() == Some(CRYPTEX)) {
        *rules.entry(s.flow.as_str()).or_default() += 1;
    }
    rules
}

impl Datapath {
    /// Bytes of the largest frame that was seen of a rule.
    pub(in crate::faces) fn largest_frame(&self, rule: u16) -> u32 {
        let largest = self.shared.rule_adus.get(&u32::from(rule));
        largest.ok().flatten().unwrap_or_default()
    }

    /// Says how to find rules where an interface is under control and no packet has matched one.
    fn matched_check(&self) -> Option<Check> {
        let dev = &self.attached.values().next()?.dev;
        let matched = self.flows().ok()?;
        let matched = matched.iter().any(|rule| rule.counters.packets_in > 0);
        (!matched).then(|| {
            Check::new(
                "matched",
                CheckStatus::Ok,
                "no packet has matched a flow rule yet",
                format!(
                    "bestby discover {dev} shows which media leave, and the rules that would cover them"
                ),
            )
        })
    }

    /// What media under way say of the settings.
    pub(super) fn media_checks(&self, checks: &mut Vec<Check>) {
        checks.extend(self.matched_check());
        for entry in &self.book.entries {
            let Some(FlowLifetime::Time(lifetime)) = entry.rule.lifetime else {
                continue;
            };
            let largest = self.largest_frame(entry.id);
            let owd = entry.rule.owd.map_or(0, Owd::as_ns);
            for (slot, attached) in &self.attached {
                if let Some(rate) = self.rate_of(*slot, attached)
                    && let Some(of) = TooLarge::frames(largest, rate, lifetime.as_ns(), owd)
                {
                    checks.push(Check::new(
                        "frame size",
                        CheckStatus::Warn,
                        format!(
                            "flow rule \"{}\": frames of {largest} bytes take {} ms of {rate} ({}) and are of use for \
                             {lifetime}: none of them leaves whole",
                            entry.rule.name, of.takes_ms, attached.dev
                        ),
                        format!(
                            "bestby flow set {} --lifetime {}ms, or smaller frames",
                            entry.rule.name, of.needs_ms
                        ),
                    ));
                }
            }
        }
        for (rule, streams) in encrypted(&self.media().unwrap_or_default()) {
            checks.push(Check::new(
                "cryptex",
                CheckStatus::Ok,
                format!(
                    "flow rule \"{rule}\": {streams} streams encrypt RTP's header extensions, too (Cryptex, RFC 9335): \
                     nothing says what their frames are for"
                ),
                "let the application mark its packets, or leave Cryptex out of its session descriptions",
            ));
        }
        let sessions = self.shared.sessions.entries().unwrap_or_default();
        let by_destination = sessions.into_iter().filter(|(_, s)| {
            s.way.tag != 0 && s.key.media != 0 && u32::from(s.key.kind) == abi::BB_SESSION_DST
        });
        let sessions = by_destination.map(|(index, _)| index).collect();
        let flows = self.shared.flows.entries().unwrap_or_default();
        let flows: Vec<_> = flows.into_iter().map(|(_, flow)| flow).collect();
        for (receiver, ports) in crowded(&flows, &sessions, monotonic_ns()) {
            checks.push(Check::new(
                "shared address",
                CheckStatus::Ok,
                format!(
                    "media go to {ports} ports of {receiver}: receivers behind one address (NAT) share the part of one"
                ),
                "if they are several receivers: bestby iface set DEV --session flow",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::address::address_bytes;

    #[test]
    fn frame_is_too_large_where_the_link_takes_longer_than_it_is_of_use() {
        let rate = "1.2mbit".parse().unwrap();
        let of = |bytes, lifetime_ms: u64, owd_ms: u64| {
            let of = TooLarge::frames(bytes, rate, lifetime_ms * 1_000_000, owd_ms * 1_000_000)?;
            Some((of.takes_ms, of.needs_ms))
        };
        // A screen: 100 kB take 667 ms.
        assert_eq!(of(100_000, 400, 0), Some((667, 834)));
        assert_eq!(of(100_000, 700, 0), None);
        assert_eq!(of(100_000, 700, 40), Some((667, 874)));
        assert_eq!(of(100_000, 834, 0), None);
        assert_eq!(of(0, 1, 0), None);
    }

    #[test]
    fn rules_with_encrypted_header_extensions_are_named() {
        let of = |flow: &str, codec: &str| serde_json::json!({"flow": flow, "codec": codec, "ssrc": 7, "payload_type": 96, "idle_ns": 0});
        let streams = [
            of("a", "cryptex"),
            of("b", "opaque"),
            of("a", "cryptex"),
            of("c", "cryptex"),
        ];
        let list = serde_json::from_value(serde_json::json!({"streams": streams})).unwrap();
        assert_eq!(encrypted(&list), [("a", 2), ("c", 1)].into());
    }

    #[test]
    fn address_with_many_ports_of_media_is_named_and_one_with_few_is_not() {
        let flow = |to: &str, dport, session, refreshed_ns| abi::bb_flow {
            key: abi::bb_flow_key {
                dst: address_bytes(to.parse().unwrap()),
                dport,
                ..Default::default()
            },
            session,
            refreshed_ns,
            ..Default::default()
        };
        let now = 100_000_000_000;
        let mut flows = Vec::new();
        for port in 0..9 {
            flows.push(flow("192.0.2.1", 5000 + port, 7, now));
            flows.push(flow("192.0.2.2", 5000 + port % 4, 8, now));
            flows.push(flow("192.0.2.3", 5000 + port, 9, now - 2 * SILENT_NS));
            flows.push(flow("192.0.2.4", 5000 + port, 10, now));
        }
        let media = [7, 8, 9].into();
        let named = vec![("192.0.2.1".to_string(), 9)];
        assert_eq!(crowded(&flows, &media, now), named);
    }
}
