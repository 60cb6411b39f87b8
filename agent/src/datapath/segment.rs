//! Super-packets (UDP GSO, TSO) on slow links: the device that cuts them, and TCP's own limit.
//!
//! `bpf/include/bb_segment.bpf.h` explains the device: the classifier sends it what would hold the link for more than
//! a millisecond. It is one of a pair: a netkit device and its peer, or, before Linux 6.7, a macvlan on a dummy device
//! (on the interface itself it would make that promiscuous).
//!
//! TCP would still fill a packet beyond that, because it takes the time that such packets wait for the path's; so the
//! interface's `gso_max_segs` is set to what fits into a millisecond, too.
//!
//! Without the device nothing else changes: super-packets stay whole, and doctor says so.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _};

use bestby_api::LinkRate;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};

use crate::datapath::Datapath;
use crate::error::{Error, Kind, Result, Tried as _, os_error};
use crate::kernel::filter::Side;
use crate::kernel::hooks;
use crate::kernel::netlink::{NetlinkError, Raw, c_string, encode};
use crate::kernel::sys;
use crate::kernel::tc::{Link, Tc};
use crate::observed::attached::{Attached, Segmenter};

/// A packet stays whole if it holds the link for less than this part of a second (`BB_SEGMENT_HOLDS_PER_S`).
const HOLDS_PER_S: u64 = 1000;
/// The largest packet that applications hand over at once.
const LARGEST: u64 = 64 << 10;

const NO_DEVICE: &str = "this kernel has neither netkit (6.7, CONFIG_NETKIT) nor macvlan and dummy devices \
                         (CONFIG_MACVLAN, CONFIG_DUMMY)";

const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_NETKIT_PEER_INFO: u16 = 1;
const IFLA_NETKIT_POLICY: u16 = 3;
const IFLA_NETKIT_PEER_POLICY: u16 = 4;
const IFLA_NETKIT_MODE: u16 = 5;
const NETKIT_DROP: u32 = 2;
const NETKIT_L2: u32 = 0;
const IFLA_MACVLAN_MODE: u16 = 1;
const MACVLAN_PRIVATE: u32 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFF_UP: u32 = 1;

const ARPHRD_ETHER: u16 = 1;
/// Devices whose packets begin with the IP header; the kernel's `dev_is_mac_header_xmit` has the same list.
const WITHOUT_HEADER: [u16; 10] = [
    512,    // ARPHRD_PPP
    519,    // ARPHRD_RAWIP
    768,    // ARPHRD_TUNNEL
    769,    // ARPHRD_TUNNEL6
    776,    // ARPHRD_SIT
    778,    // ARPHRD_IPGRE
    779,    // ARPHRD_PIMREG
    823,    // ARPHRD_IP6GRE
    0xfffe, // ARPHRD_NONE: tun, WireGuard
    0xffff, // ARPHRD_VOID
];

/// The pair of an interface: the device that packets are sent to, and its peer, or what it stands on.
fn names(ifindex: u32) -> [String; 2] {
    [format!("bbs{ifindex}"), format!("bbs{ifindex}p")]
}

/// Segments that fit into the time a packet may hold the link; `None`: all packets stay whole. `found`: the rate in
/// force, bytes/s, if it is found (0: none is).
fn segments(attached: &Attached, link: &Link, found: u64) -> Option<u32> {
    if link.loopback || attached.request.observe {
        return None;
    }
    let held = match attached.request.rate? {
        LinkRate::Fixed(rate) => rate.bytes_per_s() / HOLDS_PER_S,
        // It may fall again: what is cut once is cut until the rate is set.
        LinkRate::Auto(_) => return (attached.segmenter.is_some() || is_slow(found)).then_some(1),
    };
    if held >= LARGEST {
        return None;
    }
    u32::try_from((held / u64::from(link.mtu.max(1))).max(1)).ok()
}

/// Whether a super-packet holds a path of this rate, bytes/s, for too long (0: it is not known).
const fn is_slow(found: u64) -> bool {
    found > 0 && found / HOLDS_PER_S < LARGEST
}

/// An `RTM_*LINK` message.
fn message(kind: u16, ifindex: u32, flags: u32, attributes: &[(u16, Vec<u8>)]) -> Raw {
    // struct ifinfomsg: family, pad, type u16, index, flags, change.
    let mut body = vec![0u8; 4];
    for word in [ifindex, flags, flags] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(encode(attributes));
    Raw { kind, body }
}

fn refused(what: &str, e: &NetlinkError) -> Error {
    Error::failed(format!("{what}: {e}"))
}

/// The kernel has no devices of this kind.
fn unknown(e: &NetlinkError) -> bool {
    e.errno() == Some(libc::EOPNOTSUPP)
}

impl Tc {
    fn set_gso_max_segs(&mut self, link: &Link, segs: u32) -> Result<()> {
        let segs = [(IFLA_GSO_MAX_SEGS, segs.to_ne_bytes().to_vec())];
        self.netlink
            .change(0, message(libc::RTM_SETLINK, link.ifindex, 0, &segs))
            .map_err(|e| refused("setting gso_max_segs", &e))
    }

    fn make(&mut self, attributes: &[(u16, Vec<u8>)]) -> Result<(), NetlinkError> {
        self.netlink.change(
            NLM_F_CREATE | NLM_F_EXCL,
            message(libc::RTM_NEWLINK, 0, 0, attributes),
        )
    }

    /// Makes a pair, down, of the kind that this kernel has. What has no program to go on by is dropped: nothing of
    /// it must get out.
    fn make_pair(&mut self, names: &[String; 2]) -> Result<()> {
        match self.make_netkit(names) {
            Err(e) if unknown(&e) => self.make_macvlan(names),
            made => made.map_err(|e| refused(&format!("creating {}", names[0]), &e)),
        }
    }

    fn make_macvlan(&mut self, names: &[String; 2]) -> Result<()> {
        let [name, below] = names;
        let not_made = |name: &str, e: &NetlinkError| {
            if unknown(e) {
                Error::unsupported(NO_DEVICE)
            } else {
                refused(&format!("creating {name}"), e)
            }
        };
        let dummy = encode(&[(IFLA_INFO_KIND, c_string("dummy"))]);
        self.make(&[(IFLA_IFNAME, c_string(below)), (IFLA_LINKINFO, dummy)])
            .map_err(|e| not_made(below, &e))?;
        let below = crate::kernel::tc::named(&self.links()?, below)?;
        let data = encode(&[(IFLA_MACVLAN_MODE, MACVLAN_PRIVATE.to_ne_bytes().to_vec())]);
        let info = encode(&[
            (IFLA_INFO_KIND, c_string("macvlan")),
            (IFLA_INFO_DATA, data),
        ]);
        let made = self.make(&[
            (IFLA_IFNAME, c_string(name)),
            (IFLA_LINK, below.ifindex.to_ne_bytes().to_vec()),
            (IFLA_GSO_MAX_SEGS, 1u32.to_ne_bytes().to_vec()),
            (IFLA_LINKINFO, info),
        ]);
        made.map_err(|e| {
            // Half a pair is of no use to anybody.
            let _ = self.delete_pair(names);
            not_made(name, &e)
        })
    }

    fn make_netkit(&mut self, [name, peer]: &[String; 2]) -> Result<(), NetlinkError> {
        let mut peer_info = vec![0u8; 16]; // struct ifinfomsg
        peer_info.extend(encode(&[(IFLA_IFNAME, c_string(peer))]));
        let number = |n: u32| n.to_ne_bytes().to_vec();
        let data = encode(&[
            (IFLA_NETKIT_MODE, number(NETKIT_L2)),
            (IFLA_NETKIT_POLICY, number(NETKIT_DROP)),
            (IFLA_NETKIT_PEER_POLICY, number(NETKIT_DROP)),
            (IFLA_NETKIT_PEER_INFO, peer_info),
        ]);
        let info = encode(&[(IFLA_INFO_KIND, c_string("netkit")), (IFLA_INFO_DATA, data)]);
        self.make(&[
            (IFLA_IFNAME, c_string(name)),
            (IFLA_GSO_MAX_SEGS, number(1)),
            (IFLA_LINKINFO, info),
        ])
    }

    /// Brings a device up that has no address of its own, not even IPv6's.
    fn up_without_address(&mut self, ifindex: u32) -> Result<()> {
        let mode = encode(&[(IFLA_INET6_ADDR_GEN_MODE, vec![IN6_ADDR_GEN_MODE_NONE])]);
        let inet6 = encode(&[(libc::AF_INET6 as u16, mode)]);
        // Without IPv6 there is nothing to turn off.
        let _ = self.netlink.change(
            0,
            message(libc::RTM_SETLINK, ifindex, 0, &[(IFLA_AF_SPEC, inet6)]),
        );
        self.netlink
            .change(0, message(libc::RTM_SETLINK, ifindex, IFF_UP, &[]))
            .map_err(|e| refused("bringing it up", &e))
    }

    /// Deletes a pair of ours, or what is left of it.
    fn delete_pair(&mut self, names: &[String; 2]) -> Result<()> {
        for name in names {
            // One goes with the other.
            let links = self.links()?;
            if let Some(link) = ours(&links, name) {
                self.netlink
                    .change(0, message(libc::RTM_DELLINK, link.ifindex, 0, &[]))
                    .map_err(|e| refused(&format!("deleting {}", link.name), &e))?;
            }
        }
        Ok(())
    }
}

/// A device of this name, of a kind that we make.
fn ours<'a>(links: &'a [Link], name: &str) -> Option<&'a Link> {
    let kinds = ["netkit", "macvlan", "dummy"];
    links
        .iter()
        .find(|l| l.name == name && kinds.contains(&l.kind.as_str()))
}

/// Deletes the pair of an interface, and gives the interface its own limit back.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn give_back(tc: &mut Tc, old: &Segmenter, ifindex: u32) -> Result<()> {
    let deleted = tc.delete_pair(&names(ifindex));
    let links = tc.links()?;
    // What is not ours any more was set by somebody since.
    if let Some(link) = links.iter().find(|l| l.ifindex == ifindex)
        && link.gso_max_segs == old.segs
        && old.segs != old.earlier_segs
    {
        tc.set_gso_max_segs(link, old.earlier_segs)?;
    }
    deleted
}

/// What was done for an interface of which no record tells: its limit before counts as the device's own.
pub(crate) fn unrecorded(link: &Link) -> Segmenter {
    Segmenter {
        ifindex: 0,
        segs: link.gso_max_segs,
        earlier_segs: link.tso_max_segs,
    }
}

/// Pairs that are there, by the index of their interface, which may be gone.
pub(crate) fn pairs(links: &[Link]) -> BTreeMap<u32, Segmenter> {
    let index = |link: &Link| {
        let number = link.name.strip_prefix("bbs")?;
        let ifindex: u32 = number.strip_suffix('p').unwrap_or(number).parse().ok()?;
        ours(links, &link.name)?;
        let alone = Segmenter {
            ifindex: 0,
            segs: 0,
            earlier_segs: 0,
        };
        let interface = links.iter().find(|l| l.ifindex == ifindex);
        Some((ifindex, interface.map_or(alone, unrecorded)))
    };
    links.iter().filter_map(index).collect()
}

/// The device that cuts, if it and its peer are as they were made.
fn intact(links: &[Link], ifindex: u32) -> Option<u32> {
    let [name, peer] = names(ifindex);
    let (device, peer) = (ours(links, &name)?, ours(links, &peer)?);
    (device.up && peer.up && device.gso_max_segs == 1).then_some(device.ifindex)
}

impl Datapath {
    /// Cuts the super-packets of an attached interface, or leaves them whole, as its rate wants it. What does not
    /// work is a problem for doctor, never an error: packets then stay whole.
    pub(crate) fn cut(&mut self, slot: u32) {
        let Some(attached) = self.attached.get(&slot).cloned() else {
            return;
        };
        match self.try_cut(slot, attached) {
            Ok(()) => drop(self.segmenters.problems.remove(&slot)),
            Err(e) => {
                if self.segmenters.problems.get(&slot) != Some(&e) {
                    tracing::warn!("{e}");
                    self.segmenters.problems.insert(slot, e);
                }
            }
        }
    }

    fn try_cut(&mut self, slot: u32, mut attached: Attached) -> Result<()> {
        let links = self.tc.links()?;
        let Some(link) = links.iter().find(|l| l.ifindex == attached.ifindex) else {
            return Ok(());
        };
        let Some(segs) = segments(&attached, link, self.found(slot, &attached)) else {
            let Some(old) = attached.segmenter.take() else {
                return Ok(());
            };
            self.table.write(slot, &attached.kernel(self.plain_share));
            self.keep(slot, attached)?;
            return self.uncut(&old, link.ifindex);
        };
        let earlier = attached
            .segmenter
            .filter(|old| old.segs == link.gso_max_segs)
            .map_or(link.gso_max_segs, |old| old.earlier_segs);
        let mut new = Segmenter {
            ifindex: 0,
            segs: segs.min(earlier),
            earlier_segs: earlier,
        };
        let there = intact(&links, link.ifindex).unwrap_or(0);
        if there == 0 {
            // Nothing is sent to what is about to change.
            attached.segmenter = None;
            self.table.write(slot, &attached.kernel(self.plain_share));
        }
        // Remembered before anything is changed: only the record knows what to restore.
        attached.segmenter = Some(new);
        self.keep(slot, attached.clone())?;
        let within = |what: &str| format!("interface {}: {what}", link.name);
        let limited = if link.gso_max_segs == new.segs {
            Ok(())
        } else {
            self.tc.set_gso_max_segs(link, new.segs)
        };
        let device = self.segmenter(link, there);
        new.ifindex = *device.as_ref().unwrap_or(&0);
        attached.segmenter = Some(new);
        self.table.write(slot, &attached.kernel(self.plain_share));
        self.keep(slot, attached)?;
        device.map_err(|e| e.within(within("super-packets stay whole")))?;
        limited.map_err(|e| e.within(within("super-packets of TCP must be cut")))
    }

    /// The device that cuts, with this agent's program: `there`, or a new one (0).
    fn segmenter(&mut self, link: &Link, there: u32) -> Result<u32> {
        if link.arp_type != ARPHRD_ETHER && !WITHOUT_HEADER.contains(&link.arp_type) {
            return Err(Error::unsupported(
                "its link-layer header is not Ethernet's",
            ));
        }
        let names = names(link.ifindex);
        if there == 0 {
            self.tc.delete_pair(&names)?;
            self.tc.make_pair(&names)?;
        }
        let links = self.tc.links()?;
        let [device, peer] =
            [&names[0], &names[1]].map(|name| crate::kernel::tc::named(&links, name));
        let (device, peer) = (device?, peer?);
        if there == 0 {
            self.tc.up_without_address(peer.ifindex)?;
            self.tc.up_without_address(device.ifindex)?;
        }
        let ifindex = device.ifindex;
        let pin = self.pins(link.ifindex).join("segment");
        if self.segmenters.program.is_none() {
            let netns = sys::netns_cookie()?;
            let mut loader = hooks::loader(&self.paths.bpffs, &netns);
            self.segmenters.program = Some(hooks::load_segment(&mut loader)?);
        }
        let Some(program) = &self.segmenters.program else {
            return Ok(0);
        };
        let program = program.as_fd();
        if device.kind != "netkit" {
            // What leaves the macvlan leaves by the device below.
            self.tc.filter(&peer, Side::Egress, program.as_raw_fd())?;
            return Ok(ifindex);
        }
        if there != 0
            && let Ok(old) = sys::open_pin(&pin)
            && sys::link_update(old.as_fd(), program).is_ok()
        {
            return Ok(ifindex);
        }
        let _ = std::fs::remove_file(&pin);
        let new = sys::link_netkit(program, ifindex)
            .map_err(|e| os_error(&format!("attaching a program to {}", names[0]), &e))?;
        sys::pin(new.as_fd(), &pin).tried(|| format!("pinning {}", pin.display()))?;
        Ok(ifindex)
    }

    /// Deletes the device of an interface, and gives the interface its own limit back. The classifier must not know
    /// the device any more.
    pub(crate) fn uncut(&mut self, old: &Segmenter, ifindex: u32) -> Result<()> {
        let _ = std::fs::remove_file(self.pins(ifindex).join("segment"));
        give_back(&mut self.tc, old, ifindex)
    }

    /// Whether trying once more is of no use.
    fn never_cut(&self, slot: u32) -> bool {
        let problem = self.segmenters.problems.get(&slot);
        problem.is_some_and(|e| e.kind == Kind::Unsupported)
    }

    /// Whether the way back from the device that cuts is there. A netkit's program goes with its link alone; the
    /// filter below a macvlan can be deleted by anybody with `tc`.
    fn sends_back(&mut self, links: &[Link], ifindex: u32) -> bool {
        let Some(below) = ours(links, &names(ifindex)[1]).filter(|l| l.kind == "dummy") else {
            return true;
        };
        // Who cannot ask leaves it alone.
        self.tc
            .has_filter(below.ifindex, Side::Egress)
            .unwrap_or(true)
    }

    /// Makes devices anew that somebody took down or deleted.
    pub(crate) fn watch_segmenters(&mut self, links: &[Link]) {
        for (slot, attached) in self.attached.clone() {
            let Some(segmenter) = attached.segmenter else {
                if is_slow(self.found(slot, &attached)) {
                    self.cut(slot);
                }
                continue;
            };
            let [device, below] = names(attached.ifindex);
            let lost = if segmenter.ifindex == 0 {
                if self.never_cut(slot) {
                    continue;
                }
                None
            } else if intact(links, attached.ifindex) != Some(segmenter.ifindex) {
                Some(format!("{device} is down or gone"))
            } else if !self.sends_back(links, attached.ifindex) {
                Some(format!("{below} has lost its filter"))
            } else {
                continue;
            };
            if let Some(what) = lost {
                tracing::warn!(
                    "interface {}: the device that cuts its super-packets: {what}; making it anew",
                    attached.dev
                );
            }
            self.cut(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_have_at_most_15_bytes() {
        for name in names(u32::MAX) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
