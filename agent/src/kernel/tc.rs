//! Links and qdiscs over rtnetlink: what is there, put ours in its place, give the earlier one back.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kernel::netlink::{
    Netlink, NetlinkError, Raw, attributes, c_string, encode, find, number, text,
};

/// Major number of every root qdisc of bestby: handles are per device, so one number serves all.
pub const MAJOR: u16 = 0xbb;

pub(crate) const TC_H_ROOT: u32 = 0xffff_ffff;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_TSO_MAX_SEGS: u16 = 60;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;

/// What the agent needs to know of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Transmit queues that are allocated; it may send by fewer.
    pub tx_queues: u32,
    /// The loopback device.
    pub loopback: bool,
    /// Whether it is administratively up.
    pub up: bool,
    /// `ARPHRD_*`.
    pub arp_type: u16,
    /// Kind of a virtual device, e.g. `veth`; empty for others.
    pub kind: String,
    /// Segments of a packet that TCP hands over whole.
    pub gso_max_segs: u32,
    /// The most that the device allows `gso_max_segs` to be.
    pub tso_max_segs: u32,
}

impl Link {
    /// What the kernel says of a device; `None` if the message is of something else, or too short.
    pub(crate) fn read(raw: &Raw) -> Option<Self> {
        // struct ifinfomsg: family, pad, type u16, index, flags, change.
        if raw.kind != libc::RTM_NEWLINK {
            return None;
        }
        let all = attributes(raw.body.get(16..)?);
        let value = |kind| find(&all, kind).and_then(number);
        Some(Self {
            ifindex: word(&raw.body, 1),
            name: find(&all, IFLA_IFNAME).map(text).unwrap_or_default(),
            mtu: value(IFLA_MTU).unwrap_or(1500),
            tx_queues: value(IFLA_NUM_TX_QUEUES).unwrap_or(1),
            loopback: word(&raw.body, 2) & IFF_LOOPBACK != 0,
            up: word(&raw.body, 2) & IFF_UP != 0,
            arp_type: u16::from_ne_bytes([raw.body[2], raw.body[3]]),
            kind: find(&all, IFLA_LINKINFO)
                .map(attributes)
                .and_then(|info| find(&info, IFLA_INFO_KIND).map(text))
                .unwrap_or_default(),
            gso_max_segs: value(IFLA_GSO_MAX_SEGS).unwrap_or(u32::from(u16::MAX)),
            tso_max_segs: value(IFLA_TSO_MAX_SEGS).unwrap_or(u32::from(u16::MAX)),
        })
    }
}

/// A qdisc as the kernel described it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// Its kind, e.g. `fq_codel`.
    pub kind: String,
    /// Its handle; 0 for the kernel's default one.
    pub handle: u32,
    /// Where it hangs.
    pub parent: u32,
    /// `TCA_OPTIONS`, byte for byte.
    pub options: Option<Vec<u8>>,
    /// A root whose place was taken: the qdiscs below it that somebody chose. They do not come back with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub below: String,
}

impl Qdisc {
    /// What the kernel says of a qdisc, and of which device; `None` if the message is of something else, or too short.
    pub(crate) fn read(raw: &Raw) -> Option<(u32, Self)> {
        // struct tcmsg: family and pad, index, handle, parent, info.
        if raw.kind != libc::RTM_NEWQDISC {
            return None;
        }
        let all = attributes(raw.body.get(20..)?);
        let qdisc = Self {
            kind: find(&all, TCA_KIND).map(text).unwrap_or_default(),
            handle: word(&raw.body, 2),
            parent: word(&raw.body, 3),
            options: find(&all, TCA_OPTIONS).map(<[u8]>::to_vec),
            below: String::new(),
        };
        Some((word(&raw.body, 1), qdisc))
    }

    /// Whether the kernel put it there by itself: such ones have no handle, and come back when ours goes.
    pub fn is_default(&self) -> bool {
        self.handle == 0
    }

    /// The qdiscs below it that somebody chose, in words; the kernel's own come back.
    pub fn children(&self, all: &[Self]) -> String {
        let below: Vec<_> = all
            .iter()
            .filter(|q| !q.is_default() && q.parent != TC_H_ROOT)
            .filter(|q| q.parent >> 16 == self.handle >> 16)
            .collect();
        let named = below.iter().take(4);
        let mut words: Vec<String> = named
            .map(|q| format!("{} at {}", q.kind, place_name(q.parent)))
            .collect();
        if below.len() > words.len() {
            words.push(format!("{} more", below.len() - words.len()));
        }
        words.join(", ")
    }

    /// Whether it is one of bestby's. Our own kind has whatever handle the kernel picked: one of its
    /// generation can take the place of another only under a handle of its own.
    pub fn is_ours(&self) -> bool {
        let handle = self.handle == handle(0);
        self.kind.starts_with("bestby") || handle && matches!(self.kind.as_str(), "htb" | "mq")
    }
}

/// What a qdisc counted since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QdiscStats {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent; the kernel's counter wraps at 2^32.
    pub packets: u32,
    /// Packets queued.
    pub queued: u32,
    /// Bytes queued.
    pub backlog: u32,
    /// Packets dropped; wraps, too.
    pub drops: u32,
}

impl QdiscStats {
    /// From the value of `TCA_STATS2`; what the kernel did not say is 0.
    fn read(stats: &[u8]) -> Self {
        let all = attributes(stats);
        // struct gnet_stats_basic: bytes u64, packets u32. struct gnet_stats_queue: qlen, backlog, drops, ...
        let basic = find(&all, TCA_STATS_BASIC).unwrap_or_default();
        let queue = find(&all, TCA_STATS_QUEUE).unwrap_or_default();
        Self {
            bytes: basic.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b)),
            packets: word(basic, 2),
            queued: word(queue, 0),
            backlog: word(queue, 1),
            drops: word(queue, 2),
        }
    }
}

/// Class or qdisc of our tree.
pub const fn handle(minor: u16) -> u32 {
    (MAJOR as u32) << 16 | minor as u32
}

pub(crate) fn refused(what: String, e: &NetlinkError) -> Error {
    match e.errno() {
        Some(libc::EPERM | libc::EACCES) => Error::forbidden(format!("{what}: {e}"))
            .hint("bestbyd needs CAP_NET_ADMIN; run it as root or by its systemd unit"),
        _ => Error::failed(format!("{what}: {e}")),
    }
}

/// Traffic control of this network namespace.
pub struct Tc {
    pub(crate) netlink: Netlink,
}

pub(crate) fn tcmsg(
    kind: u16,
    ifindex: u32,
    handle: u32,
    parent: u32,
    info: u32,
    attributes: &[(u16, Vec<u8>)],
) -> Raw {
    let mut body = vec![0u8; 4]; // family AF_UNSPEC and padding
    for word in [ifindex, handle, parent, info] {
        body.extend(word.to_ne_bytes());
    }
    body.extend(encode(attributes));
    Raw { kind, body }
}

pub(crate) fn word(body: &[u8], index: usize) -> u32 {
    body.get(index * 4..).and_then(number).unwrap_or(0)
}

impl Tc {
    /// Opens a netlink socket in the caller's network namespace.
    ///
    /// # Errors
    /// No socket.
    pub fn open() -> Result<Self> {
        let netlink =
            Netlink::route().map_err(|e| Error::failed(format!("opening rtnetlink: {e}")))?;
        Ok(Self { netlink })
    }

    /// All devices.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        // struct ifinfomsg: family, pad, type u16, index, flags, change.
        let answers = self
            .netlink
            .dump(Raw {
                kind: libc::RTM_GETLINK,
                body: vec![0; 16],
            })
            .map_err(|e| refused("listing the interfaces".into(), &e))?;
        Ok(answers.iter().filter_map(Link::read).collect())
    }

    /// A device by name.
    ///
    /// # Errors
    /// There is none (missing, with the names that exist).
    pub fn link(&mut self, name: &str) -> Result<Link> {
        named(&self.links()?, name)
    }

    /// The kernel's description of each qdisc of a device.
    fn described(&mut self, ifindex: u32) -> Result<Vec<Raw>> {
        self.netlink
            .dump(tcmsg(libc::RTM_GETQDISC, ifindex, 0, 0, 0, &[]))
            .map_err(|e| refused("listing the qdiscs".into(), &e))
    }

    /// All qdiscs of a device.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn qdiscs(&mut self, ifindex: u32) -> Result<Vec<Qdisc>> {
        let described = self.described(ifindex)?;
        let all = described.iter().filter_map(Qdisc::read);
        Ok(all
            .filter(|(of, _)| *of == ifindex)
            .map(|(_, qdisc)| qdisc)
            .collect())
    }

    /// What the qdiscs of a device counted, each with the handle of its parent.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn counted(&mut self, ifindex: u32) -> Result<Vec<(u32, QdiscStats)>> {
        let described = self.described(ifindex)?;
        Ok(described
            .iter()
            .filter_map(|raw| Some((Qdisc::read(raw)?, raw)))
            .filter(|((of, _), _)| *of == ifindex)
            .map(|((_, qdisc), raw)| {
                let all = attributes(&raw.body[20..]);
                let stats = find(&all, TCA_STATS2).map(QdiscStats::read);
                (qdisc.parent, stats.unwrap_or_default())
            })
            .collect())
    }

    /// The root qdisc of a device, if it has one.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn root(&mut self, ifindex: u32) -> Result<Option<Qdisc>> {
        Ok(self
            .qdiscs(ifindex)?
            .into_iter()
            .find(|q| q.parent == TC_H_ROOT))
    }

    /// Puts a qdisc in a place, whatever was there before (`parent` 0 = root; `handle` 0 = the kernel picks).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn place(
        &mut self,
        link: &Link,
        kind: &str,
        handle: u32,
        parent: u32,
        options: Option<&[u8]>,
    ) -> Result<()> {
        let mut all = vec![(TCA_KIND, c_string(kind))];
        if let Some(options) = options {
            all.push((TCA_OPTIONS, options.to_vec()));
        }
        let parent = if parent == 0 { TC_H_ROOT } else { parent };
        self.netlink
            .change(
                NLM_F_CREATE | NLM_F_REPLACE,
                tcmsg(libc::RTM_NEWQDISC, link.ifindex, handle, parent, 0, &all),
            )
            .map_err(|e| {
                refused(
                    format!(
                        "interface {}: creating qdisc {kind} at {}",
                        link.name,
                        place_name(parent)
                    ),
                    &e,
                )
            })
    }

    /// Removes the root qdisc: the kernel's default one takes its place.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_root(&mut self, ifindex: u32, name: &str) -> Result<()> {
        match self
            .netlink
            .change(0, tcmsg(libc::RTM_DELQDISC, ifindex, 0, TC_H_ROOT, 0, &[]))
        {
            // The device is gone, or nothing of ours is left on it.
            Err(e) if matches!(e.errno(), Some(libc::ENODEV | libc::ENOENT | libc::EINVAL)) => {
                Ok(())
            }
            other => {
                other.map_err(|e| refused(format!("interface {name}: deleting the root qdisc"), &e))
            }
        }
    }

    /// Gives an interface its earlier root qdisc back (`None`: the kernel's default one).
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn restore(&mut self, link: &Link, earlier: Option<&Qdisc>) -> Result<()> {
        match earlier {
            // Straight from ours to the earlier one: there is no moment without a qdisc.
            Some(q) if !q.is_default() => {
                self.place(link, &q.kind, q.handle, TC_H_ROOT, q.options.as_deref())
                    .or_else(|_| {
                        // Some qdiscs do not take the options they print; their kind is better than nothing.
                        self.place(link, &q.kind, q.handle, TC_H_ROOT, None)
                    })
            }
            _ => self.remove_root(link.ifindex, &link.name),
        }
    }

    /// Creates or changes an HTB class.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn class(&mut self, link: &Link, minor: u16, parent: u32, options: &[u8]) -> Result<()> {
        let all = [(TCA_KIND, c_string("htb")), (TCA_OPTIONS, options.to_vec())];
        self.netlink
            .change(
                NLM_F_CREATE,
                tcmsg(
                    libc::RTM_NEWTCLASS,
                    link.ifindex,
                    handle(minor),
                    parent,
                    0,
                    &all,
                ),
            )
            .map_err(|e| {
                refused(
                    format!(
                        "interface {}: creating HTB class {MAJOR:x}:{minor:x}",
                        link.name
                    ),
                    &e,
                )
            })
    }
}

/// The device of this name.
///
/// # Errors
/// There is none (missing, with the names that exist).
pub fn named(links: &[Link], name: &str) -> Result<Link> {
    let names: Vec<&str> = links.iter().map(|l| l.name.as_str()).take(12).collect();
    links
        .iter()
        .find(|l| l.name == name)
        .cloned()
        .ok_or_else(|| {
            Error::missing(format!(
                "interface {name} does not exist in the agent's network namespace"
            ))
            .hint(format!("interfaces there: {}", names.join(", ")))
        })
}

fn place_name(parent: u32) -> String {
    if parent == TC_H_ROOT {
        "root".into()
    } else {
        format!("{:x}:{:x}", parent >> 16, parent & 0xffff)
    }
}
