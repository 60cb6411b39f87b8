//! The rules of streams that were found, and the delay to their receivers, as the data path knows them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bestby_api::{
    DevName, DiscoverRequest, Discovery, Dscp, FlowName, PacketDescription, Proto, Ssrc,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::discover::anchor::anchors;
use crate::discover::flow::Found;
use crate::discover::packet::Key;
use crate::discover::report::{Stream, rows};
use crate::discover::suggest::suggest;
use crate::discover::watch::Watched;
use crate::error::{Error, Result};
use crate::faces::streams::heard;
use crate::kernel::address::address;

/// What is to be watched.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) dev: DevName,
    pub(crate) ifindex: u32,
    pub(crate) time: Duration,
}

/// The device of the default route with the lowest metric, IPv4 before IPv6; `v4`, `v6`: the kernel's tables as
/// /proc/net/route and /proc/net/ipv6_route have them.
fn default_device(v4: &str, v6: &str) -> Option<String> {
    let of_v4 = v4.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [dev, "00000000", _, flags, _, _, metric, "00000000", ..] = words[..] else {
            return None;
        };
        // RTF_UP, and not RTF_REJECT.
        let flags = u32::from_str_radix(flags, 16).ok()?;
        (flags & 0x201 == 1).then_some((metric.parse::<u32>().ok()?, dev))
    });
    let of_v6 = v6.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [to, "00", _, _, _, metric, _, _, flags, dev] = words[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let all = to.bytes().all(|b| b == b'0');
        (all && flags & 0x201 == 1).then_some((u32::from_str_radix(metric, 16).ok()?, dev))
    });
    let of_v4 = of_v4.min_by_key(|(metric, _)| *metric);
    let found = of_v4.or_else(|| of_v6.min_by_key(|(metric, _)| *metric));
    found.map(|(_, dev)| dev.to_string())
}

/// A request with its seconds checked.
///
/// # Errors
/// Too few or too many.
pub(crate) fn seconds(request: &DiscoverRequest) -> Result<Duration> {
    let asked = request.seconds.unwrap_or(DiscoverRequest::USUAL);
    if !DiscoverRequest::SECONDS.contains(&asked) {
        let (least, most) = (
            DiscoverRequest::SECONDS.start(),
            DiscoverRequest::SECONDS.end(),
        );
        return Err(Error::invalid(format!(
            "discover: {asked} seconds are not {least} to {most}"
        ))
        .hint("10 are usual"));
    }
    Ok(Duration::from_secs(asked.into()))
}

impl Datapath {
    /// The device that a request is for.
    ///
    /// # Errors
    /// There is no such device, it is down, or none can be chosen.
    pub(crate) fn discover_target(&mut self, request: &DiscoverRequest) -> Result<Target> {
        let time = seconds(request)?;
        let dev = match &request.dev {
            Some(dev) => dev.clone(),
            None => self.usual_device()?,
        };
        // Renamed since it was attached, it has its new name.
        let links = self.tc.links()?;
        let Some(link) = links.iter().find(|l| l.name == dev.as_str()) else {
            let mut names: Vec<&str> = links.iter().map(|l| l.name.as_str()).collect();
            names.sort_unstable();
            names.truncate(20);
            return Err(Error::missing(format!("there is no interface {dev}"))
                .hint(format!("interfaces: {}", names.join(", "))));
        };
        if !link.up {
            return Err(
                Error::conflict(format!("interface {dev} is down: nothing leaves it"))
                    .hint(format!("ip link set {dev} up")),
            );
        }
        Ok(Target {
            dev,
            ifindex: link.ifindex,
            time,
        })
    }

    fn usual_device(&mut self) -> Result<DevName> {
        let mut attached = self.attached.values().map(|a| &a.dev);
        match (attached.next(), attached.count()) {
            (Some(dev), 0) => return Ok(dev.clone()),
            (Some(dev), more) => {
                return Err(Error::invalid(format!(
                    "discover: {} interfaces are under control, and none was named",
                    more + 1
                ))
                .hint(format!("for example: bestby discover {dev}")));
            }
            (None, _) => {}
        }
        let table = |name: &str| {
            std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default()
        };
        default_device(&table("route"), &table("ipv6_route"))
            .and_then(|name| name.parse().ok())
            .ok_or_else(|| {
                Error::invalid(
                    "discover: no interface is under control, and there is no default route",
                )
                .hint("name the interface: bestby discover DEV")
            })
    }

    /// The rules of these flows as the classifier found them for their last packets, by flow, and by SSRC where rules
    /// compare payload types. Empty where it does not see the interface.
    fn rules_found(&self, ifindex: u32, keys: &HashSet<Key>) -> Result<HashMap<(Key, u32), u64>> {
        if !self.attached.values().any(|a| a.ifindex == ifindex) {
            return Ok(HashMap::new());
        }
        let mask = u64::from(abi::BB_MAX_RULES - 1);
        let flows = self.shared.flows.collect(|_, flow| {
            let key = Key {
                proto: flow.key.proto,
                src: address(flow.key.src),
                sport: flow.key.sport,
                dst: address(flow.key.dst),
                dport: flow.key.dport,
            };
            let wanted = flow.way.tag != 0 && flow.key.ifindex == ifindex && keys.contains(&key);
            wanted.then_some((flow.hash, (key, flow.rule & mask)))
        })?;
        let flows: HashMap<u64, (Key, u64)> = flows.into_iter().collect();
        let config = self.shared.config.get(&0)?.unwrap_or_default();
        if config.flags & abi::BB_CONFIG_RTP_RULES == 0 {
            return Ok(flows
                .into_values()
                .map(|(key, rule)| ((key, 0), rule))
                .collect());
        }
        let mut all = HashMap::new();
        for s in heard(&self.shared)? {
            if let Some((key, _)) = flows.get(&s.stream.key.flow) {
                let ssrc = if s.ts { 0 } else { s.stream.key.ssrc };
                all.insert((*key, ssrc), s.stream.verdict & mask);
            }
        }
        Ok(all)
    }

    /// The rule of a stream: the classifier's answer, else what the rules themselves say.
    fn covered(
        &self,
        dev: &DevName,
        found: &Found,
        verdicts: &HashMap<(Key, u32), u64>,
    ) -> Option<FlowName> {
        let exact = verdicts.get(&(found.key, found.ssrc.unwrap_or(0)));
        let whole = verdicts.get(&(found.key, 0));
        let known = exact.or(whole).filter(|id| **id > 0);
        let entries = &self.book.entries;
        if let Some(entry) = known.and_then(|id| entries.iter().find(|e| u64::from(e.id) == *id)) {
            return Some(entry.rule.name.clone());
        }
        let packet = PacketDescription {
            proto: match found.key.proto {
                Key::TCP => Proto::Tcp,
                Key::UDP => Proto::Udp,
                _ => return None,
            },
            src: Some(found.key.src),
            sport: Some(found.key.sport),
            dst: found.key.dst,
            dport: Some(found.key.dport),
            dscp: Dscp::new(found.dscp)?,
            mark: 0,
            priority: None,
            cgroup: None,
            len: 1000,
            rtp: found.types.and_then(|types| types.iter().next()),
            ssrc: found.ssrc.map(Ssrc::new),
            payload: None,
            option: None,
        };
        let mut rules = entries.iter().map(|e| &e.rule);
        let rule = rules.find(|rule| rule.matches(dev, &packet, self.rtp_profile).is_ok())?;
        Some(rule.name.clone())
    }

    /// The answer, of what was watched.
    ///
    /// # Errors
    /// A map cannot be read.
    pub(crate) fn discovered(&mut self, target: &Target, watched: &Watched) -> Result<Discovery> {
        let found = watched.table.found(watched.watched_ns, self.rtp_profile);
        let keys = found.iter().map(|f| f.key).collect();
        let verdicts = self.rules_found(target.ifindex, &keys)?;
        let anchors = anchors(&found);
        let streams: Vec<Stream> = found
            .into_iter()
            .zip(anchors)
            .map(|(found, anchor)| Stream {
                rule: self.covered(&target.dev, &found, &verdicts),
                found,
                anchor,
            })
            .collect();
        let (list, left_out) = rows(&streams, |addr| self.delay_to(addr).unwrap_or_default());
        let taken: Vec<FlowName> = self
            .book
            .entries
            .iter()
            .map(|e| e.rule.name.clone())
            .collect();
        let (rules, mut notes) = suggest(&streams, &taken);
        if !self.attached.values().any(|a| a.ifindex == target.ifindex) {
            notes.push(format!(
                "{} is not under control: rules do nothing there before bestby iface attach {}",
                target.dev, target.dev
            ));
        }
        let (packets, beyond) = (watched.table.packets, watched.table.beyond);
        Ok(Discovery {
            dev: target.dev.clone(),
            watched_ns: watched.watched_ns,
            packets,
            missed: watched.missed,
            one_of: watched.one_of,
            beyond,
            streams: list,
            left_out,
            rules,
            notes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_the_default_route_is_found() {
        let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                  wlan0\t00000000\t0102A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0\n\
                  eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
                  eth1\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let v6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                  fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth2\n\
                  00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
                  00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
        assert_eq!(default_device(v4, v6).as_deref(), Some("eth0"));
        assert_eq!(default_device("", v6).as_deref(), Some("eth2"));
        assert_eq!(default_device("", ""), None);
    }

    #[test]
    fn seconds_beyond_the_bounds_are_refused() {
        let of = |n| {
            seconds(&DiscoverRequest {
                dev: None,
                seconds: Some(n),
            })
        };
        assert!(of(1).is_ok() && of(60).is_ok());
        for n in [0, 61, 1000] {
            let error = of(n).unwrap_err();
            assert!(error.message.contains("1 to 60"), "{error}");
        }
    }
}
