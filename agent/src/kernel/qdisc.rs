//! Mode qdisc: one libbpf load of `qdisc.bpf.c` per interface, registered with the kernel as a kind of qdisc.
//!
//! The queue's maps are pinned below `DIR/iface/IFINDEX`. An upgrade loads the new object over the same maps
//! under the other letter (`bestby0a`, `bestby0b`) and grafts it over the old one: queued packets stay.

use std::path::Path;

use bestby_bpf::{Device, Instance, qdisc};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapHandle};

use crate::error::{Error, Result, Tried as _};
use crate::kernel::layouts::Layouts;
use crate::kernel::locked;
use crate::kernel::sys;
use crate::kernel::tc::{Link, TC_H_ROOT, Tc, handle};

/// Whether this kernel has qdiscs in BPF (6.16 with CONFIG_NET_SCH_BPF).
pub fn supported() -> bool {
    libbpf_rs::btf::Btf::from_vmlinux().is_ok_and(|btf| {
        btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>("bpf_struct_ops_Qdisc_ops")
            .is_some()
    })
}

/// Fingerprint of the object this agent brings: another one is an upgrade.
pub fn version() -> String {
    crate::fingerprint(bestby_bpf::QDISC)
}

/// One interface's queue.
#[derive(Debug, Clone)]
pub struct Queue<'a> {
    /// Directory of the shared pins.
    pub dir: &'a Path,
    /// Directory of this interface's pins.
    pub pins: &'a Path,
    /// Index in `bb_ifaces`.
    pub slot: u32,
    /// Packets per instance.
    pub limit: u32,
    /// Instances: 1, or the number of transmit queues.
    pub instances: u32,
    /// `a` or `b`.
    pub letter: char,
}

/// Refuses a pinned map of an earlier queue that has not the layout and size that the object wants.
fn compare(
    layouts: &Layouts,
    link: &Link,
    name: &str,
    old: &MapHandle,
    (entries, value_size): (u32, u32),
) -> Result<()> {
    let misfit = if old.max_entries() != entries || old.value_size() != value_size {
        Some("it is of another size".to_string())
    } else {
        layouts.misfit(name, old)?
    };
    let Some(why) = misfit else {
        return Ok(());
    };
    Err(Error::conflict(format!(
        "interface {}: the earlier queue is of another layout: map {name}: {why}",
        link.name
    ))
    .hint(format!(
        "the earlier queue goes on as it was; `bestby iface detach {0}` and \
         `bestby iface attach {0} --enforce`, with its settings again, replace it and lose what waits in it",
        link.name
    )))
}

impl Queue<'_> {
    /// Kind of the qdisc.
    pub fn kind(&self) -> String {
        format!("bestby{}{}", self.slot, self.letter)
    }

    /// Refuses a queue that would take more than a quarter of the host's memory: the kernel would give it, and then
    /// end other processes, or this one.
    fn affordable(&self, dev: &str, wanted: u64, total: u64) -> Result<()> {
        if wanted <= total / 4 {
            return Ok(());
        }
        let mib = |bytes: u64| bytes >> 20;
        Err(Error::conflict(format!(
            "interface {}: its queue would take {} MiB for {} transmit queues with a limit of {} packets, and the host \
             has {} MiB: it may take a quarter",
            dev,
            mib(wanted),
            self.instances,
            self.limit,
            mib(total)
        ))
        .hint(format!(
            "a --rate below 1gbit has one queue for all; or a lower --limit; or fewer transmit queues: ethtool -L {dev} tx 4"
        )))
    }

    /// Loads the object, registers the qdisc and pins its maps and link. Pinned maps of an earlier object are
    /// taken over. Returns the kernel memory of the queue's own maps, bytes.
    ///
    /// # Errors
    /// The kernel refuses the object, or pinned maps have another size.
    pub fn register(&self, link: &Link) -> Result<u64> {
        let failed = |what: &str| format!("interface {}: {what}", link.name);
        let mut storage = std::mem::MaybeUninit::uninit();
        let mut builder = qdisc::QdiscSkelBuilder::default();
        builder
            .obj_builder
            .pin_root_path(self.dir)
            .tried(|| failed("using the pins"))?;
        let mut open = builder
            .open(&mut storage)
            .tried(|| failed("opening the qdisc object"))?;

        let rodata = open
            .maps
            .rodata_data
            .as_deref_mut()
            .ok_or_else(|| Error::failed(failed("the object has no settings")))?;
        rodata.bbq_slot = self.slot;
        rodata.bbq_ifindex = link.ifindex;
        rodata.bbq_netns = sys::netns_cookie()?;
        rodata.bbq_instances_n = self.instances;
        rodata.bbq_quantum = bestby_bpf::quantum(link.mtu);
        rodata.bbq_packets_n = bestby_bpf::packets_per_instance(self.limit);
        let ops = open.struct_ops.bestby_ops_mut();
        ops.id = Default::default();
        for (to, from) in ops.id.iter_mut().zip(self.kind().bytes()) {
            *to = libc::c_char::try_from(from).unwrap_or(0);
        }

        let layouts = Layouts::new(open.open_object(), self.pins)?;
        let sizes = bestby_bpf::qdisc_sizes(self.limit, self.instances);
        let mut wanted = 0u64;
        for mut map in open.open_object_mut().maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let Some((_, entries)) = sizes.iter().find(|(n, _)| *n == name) else {
                continue;
            };
            map.set_max_entries(*entries)
                .tried(|| failed("sizing the queue"))?;
            let pin = self.pins.join(&name);
            if pin.exists() {
                let old = MapHandle::from_pinned_path(&pin)
                    .tried(|| failed("opening the earlier queue"))?;
                compare(&layouts, link, &name, &old, (*entries, map.value_size()))?;
                map.reuse_pinned_map(&pin)
                    .tried(|| failed("taking over the earlier queue"))?;
            } else {
                wanted += u64::from(*entries) * u64::from(map.value_size().next_multiple_of(8));
            }
        }
        self.affordable(&link.name, wanted, sys::memory_total())?;
        let mut loaded = open.load().map_err(|e| {
            let what = failed("the kernel refuses the qdisc");
            locked::locked(&what, "", locked::text().as_deref()).unwrap_or_else(|| {
                Error::failed(format!("{what}: {e:#}"))
                    .hint("`bestby iface attach --mode tc` works on this kernel; please report the kernel's version")
            })
        })?;
        let mut memory = 0;
        for mut map in loaded.object_mut().maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if sizes.iter().any(|(n, _)| *n == name) {
                memory += crate::kernel::maps::memory(&map).unwrap_or(0);
                let pin = self.pins.join(&name);
                if !pin.exists() {
                    map.pin(&pin).tried(|| failed("pinning the queue"))?;
                }
            }
        }
        layouts.keep(sizes.iter().map(|(name, _)| *name))?;
        let ops = loaded
            .maps
            .bestby_ops
            .attach_struct_ops()
            .tried(|| failed(&format!("registering the qdisc {}", self.kind())))?;
        let pin = self.pins.join(format!("ops_{}", self.letter));
        sys::pin(std::os::fd::AsFd::as_fd(&ops), &pin).tried(|| failed("pinning the qdisc"))?;
        Ok(memory)
    }

    /// Compares the pinned maps with what the object wants, as [`Queue::register`] does, and changes nothing.
    ///
    /// # Errors
    /// A pinned map has another layout or size, or is gone.
    pub fn fits(&self, link: &Link) -> Result<()> {
        let failed = |what: &str| format!("interface {}: {what}", link.name);
        let mut storage = std::mem::MaybeUninit::uninit();
        let open = qdisc::QdiscSkelBuilder::default()
            .open(&mut storage)
            .tried(|| failed("opening the qdisc object"))?;
        let layouts = Layouts::new(open.open_object(), self.pins)?;
        let sizes = bestby_bpf::qdisc_sizes(self.limit, self.instances);
        for map in open.open_object().maps() {
            let name = map.name().to_string_lossy().into_owned();
            let Some((_, entries)) = sizes.iter().find(|(n, _)| *n == name) else {
                continue;
            };
            let old = MapHandle::from_pinned_path(self.pins.join(&name))
                .tried(|| failed("opening the earlier queue"))?;
            compare(&layouts, link, &name, &old, (*entries, map.value_size()))?;
        }
        Ok(())
    }

    /// Puts the registered qdisc at the root, or on every class of mq, in place of what is there. Where it is already,
    /// it stays: the kernel would take that for a change of it, and refuse.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn graft(&self, tc: &mut Tc, link: &Link) -> Result<()> {
        let there = tc.qdiscs(link.ifindex)?;
        let is_at = |parent: u32| {
            let mut all = there.iter();
            all.any(|q| q.kind == self.kind() && q.parent == parent)
        };
        if self.instances <= 1 {
            if !is_at(TC_H_ROOT) {
                tc.place(link, &self.kind(), 0, 0, None)?;
            }
        } else {
            let mq = there
                .iter()
                .any(|q| q.parent == TC_H_ROOT && q.kind == "mq" && q.handle == handle(0));
            if !mq {
                tc.place(link, "mq", handle(0), 0, None)?;
            }
            for instance in 1..=self.instances {
                let class = handle(u16::try_from(instance).unwrap_or(u16::MAX));
                if !is_at(class) {
                    tc.place(link, &self.kind(), 0, class, None)?;
                }
            }
        }
        Ok(())
    }

    /// As [`Self::graft`], where packets of an earlier object are queued.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn take_over(&self, tc: &mut Tc, link: &Link) -> Result<()> {
        self.graft(tc, link)?;
        // A qdisc cannot arm its own timer when it takes over a queue: any packet makes it. A device that is
        // down has none queued.
        let _ = sys::kick(link.ifindex);
        Ok(())
    }

    /// Whether the kernel has it.
    pub fn is_registered(&self) -> bool {
        self.pins.join(format!("ops_{}", self.letter)).exists()
    }

    /// Unregisters a letter's object; the kernel keeps it as long as a qdisc uses it.
    pub fn unregister(&self, letter: char) {
        let _ = std::fs::remove_file(self.pins.join(format!("ops_{letter}")));
    }
}

/// What all instances of an attached interface counted and saw together. A device below mq takes what all of its
/// transmit queues take that were in the way of late.
///
/// # Errors
/// The pinned map is gone or of another layout.
pub fn counted(pins: &Path) -> Result<Instance> {
    /// Queues that were in the way so shortly after each other were so at once.
    const TOGETHER_NS: u64 = 10_000_000_000;
    let path = pins.join("bbq_instances");
    let map = MapHandle::from_pinned_path(&path).tried(|| format!("opening {}", path.display()))?;
    let mut sum = Instance::default();
    let mut devices = Vec::new();
    for instance in 0..map.max_entries() {
        let value = map
            .lookup(&instance.to_ne_bytes(), libbpf_rs::MapFlags::ANY)
            .tried(|| format!("reading {}", path.display()))?;
        let Some(one) = value.as_deref().and_then(bestby_bpf::instance) else {
            return Err(Error::failed(format!(
                "{} is of another layout",
                path.display()
            )));
        };
        devices.push(one.device);
        sum.packets = sum.packets.wrapping_add(one.packets);
        sum.bytes = sum.bytes.wrapping_add(one.bytes);
        let (c, t) = (one.counters, one.times);
        for (to, from) in [
            (&mut sum.counters.packets_in, c.packets_in),
            (&mut sum.counters.bytes_in, c.bytes_in),
            (&mut sum.counters.packets_sent, c.packets_sent),
            (&mut sum.counters.bytes_sent, c.bytes_sent),
            (&mut sum.counters.queued, c.queued),
            (&mut sum.counters.sent_stale, c.sent_stale),
            (&mut sum.counters.truncated, c.truncated),
        ] {
            *to = to.wrapping_add(from);
        }
        for reason in 0..c.dropped.len() {
            sum.counters.dropped[reason] += c.dropped[reason];
            sum.counters.would_drop[reason] += c.would_drop[reason];
        }
        for (to, from) in [
            (&mut sum.times.sojourn, t.sojourn),
            (&mut sum.times.slack, t.slack),
            (&mut sum.times.lateness, t.lateness),
        ] {
            to.sum_ns = to.sum_ns.wrapping_add(from.sum_ns);
            for (to, from) in to.count.iter_mut().zip(from.count) {
                *to = to.wrapping_add(from);
            }
        }
    }
    let newest = devices.iter().map(|d| d.seen_ns).max().unwrap_or(0);
    let lately = devices
        .iter()
        .filter(|d| newest.saturating_sub(d.seen_ns) < TOGETHER_NS);
    sum.device = Device {
        rate: lately.map(|d| d.rate).fold(0, u64::saturating_add),
        seen_ns: newest,
    };
    Ok(sum)
}

/// Kernel memory of the pinned maps of an attached interface, bytes.
pub fn memory(pins: &Path) -> u64 {
    [
        "bbq_packets",
        "bbq_queues",
        "bbq_users",
        "bbq_instances",
        "bbq_wheels",
        "bbq_parked",
    ]
    .iter()
    .filter_map(|name| MapHandle::from_pinned_path(pins.join(name)).ok())
    .filter_map(|map| crate::kernel::maps::memory(&map))
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_of_more_than_a_quarter_of_the_memory_is_refused_with_what_to_do() {
        let queue = Queue {
            dir: Path::new("/"),
            pins: Path::new("/"),
            slot: 0,
            limit: 10_000,
            instances: 256,
            letter: 'a',
        };
        assert!(queue.affordable("eth0", 512 << 20, 2 << 30).is_ok());
        let said = queue.affordable("eth0", 1952 << 20, 2 << 30).unwrap_err();
        let said = said.to_string();
        for part in [
            "eth0",
            "1952 MiB",
            "256 transmit queues",
            "2048 MiB",
            "--rate",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
