//! Interfaces that are attached already: taken over from an earlier agent, upgraded, followed when their devices get
//! other names or go.

use std::path::Path;

use bestby_api::{DevName, Done, Mode};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::{Error, Result};
use crate::kernel::hooks::{self, Classifier};
use crate::kernel::qdisc::{self, Queue};
use crate::kernel::sys;
use crate::kernel::tc::{self, Link, Qdisc};
use crate::observed::attached::Attached;

fn queue<'a>(dir: &'a Path, pins: &'a Path, slot: u32, attached: &Attached) -> Queue<'a> {
    Queue {
        dir,
        pins,
        slot,
        limit: attached.limit(),
        instances: attached.instances,
        letter: attached.letter,
    }
}

/// The letter of a queue that takes the place of one with this letter.
const fn next_letter(letter: char) -> char {
    if letter == 'a' { 'b' } else { 'a' }
}

impl Datapath {
    /// Takes over what an earlier agent attached.
    pub(crate) fn adopt_interfaces(&mut self, links: &[Link]) {
        for (slot, attached) in self.kept_ifaces.all() {
            self.pins_by_name(&attached);
            self.attached.insert(slot, attached);
        }
        for (slot, iface) in self.shared.ifaces.entries().unwrap_or_default() {
            // Killed between the first and the last step of an attach or detach.
            if iface.ifindex != 0 && !self.attached.contains_key(&slot) {
                let _ = self.shared.ifaces.set(&slot, &abi::bb_iface::default());
            }
        }
        self.follow(links);
        for (slot, attached) in self.attached.clone() {
            let Some(link) = links.iter().find(|l| l.ifindex == attached.ifindex) else {
                continue;
            };
            if attached.unfinished {
                let warning = format!(
                    "interface {}: an earlier bestbyd ended while it attached or detached it; that was undone, it has {} again",
                    attached.dev,
                    attached
                        .earlier
                        .as_ref()
                        .map_or("the kernel's default qdisc", |q| &q.kind)
                );
                tracing::warn!("{warning}");
                self.warnings.push(warning);
                self.take_away(slot, &attached, Some(link));
                self.forget_commands(&attached.dev);
                continue;
            }
            // An agent whose observing interfaces had queues left it.
            let queues = attached.mode == Mode::Qdisc && attached.request.observe;
            let adopted = if queues {
                self.put(&attached.request, attached.from_file).map(drop)
            } else {
                self.readopt(slot, attached, link)
            };
            if let Err(e) = adopted {
                tracing::error!("{e}");
                self.warnings.push(e.to_string());
            }
            self.cut(slot);
        }
    }

    fn readopt(&mut self, slot: u32, mut attached: Attached, link: &Link) -> Result<()> {
        let pins = self.pins(attached.ifindex);
        hooks::directory(&pins)?;
        attached.netns = self.netns;
        attached.tcx = self.hook(link)?;
        let mut root = self.tc.root(link.ifindex)?;
        let ours = root.as_ref().is_some_and(Qdisc::is_ours);
        // The earlier agent may have ended between its record and the tree.
        if attached.mode == Mode::Tc && (ours || attached.shaping) {
            let tree = attached.shapes();
            // Half a tree that has just been begun, or one that should be gone.
            let afresh = attached.shaping || !tree;
            if ours && afresh {
                self.tc.restore(link, attached.earlier.as_ref())?;
            }
            if tree {
                self.tree(slot, link, &mut attached, !afresh)?;
            }
            attached.shaping = false;
            root = self.tc.root(link.ifindex)?;
        }
        // Fields that this version reads and the earlier one may not have written.
        self.settle(slot, &attached)?;
        if attached.needs_root() && !root.as_ref().is_some_and(Qdisc::is_ours) {
            let is = root.map_or("gone".to_string(), |q| q.kind);
            return Err(Error::conflict(format!(
                "interface {}: somebody replaced its root qdisc, it is {is} now",
                link.name
            ))
            .hint(format!("bestby iface attach {} --replace", link.name)));
        }
        if attached.mode == Mode::Qdisc {
            self.finish_upgrade(slot, &mut attached, link)?;
        }
        if attached.mode == Mode::Qdisc && attached.object != qdisc::version() {
            self.attached.insert(slot, attached.clone());
            self.upgrade(&attached.dev.clone())?;
            return Ok(());
        }
        self.keep(slot, attached.clone())?;
        if attached.mode == Mode::Qdisc {
            queue(&self.paths.bpffs, &pins, slot, &attached).fits(link)?;
        }
        Ok(())
    }

    /// An earlier agent ended between the registration of the next qdisc and its record: that qdisc takes over.
    fn finish_upgrade(&mut self, slot: u32, attached: &mut Attached, link: &Link) -> Result<()> {
        let pins = self.pins(attached.ifindex);
        let next = Attached {
            letter: next_letter(attached.letter),
            // Whose it is, only that agent knew.
            object: String::new(),
            ..attached.clone()
        };
        let queue = queue(&self.paths.bpffs, &pins, slot, &next);
        if queue.is_registered() {
            queue.take_over(&mut self.tc, link)?;
            queue.unregister(attached.letter);
            self.kept_ifaces.set(slot, &next)?;
            *attached = next;
        }
        Ok(())
    }

    /// Mode qdisc: loads this agent's object and lets it take over the queue, packet by packet.
    ///
    /// # Errors
    /// The new object does not fit the old queue, or the kernel refuses it: the old one goes on.
    pub fn upgrade(&mut self, dev: &DevName) -> Result<Done> {
        let links = self.tc.links()?;
        self.follow(&links);
        let (slot, old) = self.known(dev)?;
        let link = tc::named(&links, dev.as_str())?;
        let pins = self.pins(old.ifindex);
        let (bpffs, netns) = (&self.paths.bpffs, sys::netns_cookie()?);
        let mut loader = hooks::loader(bpffs, &netns);
        self.classifier = Classifier::load(&mut loader, bpffs)?;
        self.answers = hooks::load_answers(&mut loader)?;
        self.hook(&link)?;
        if old.mode == Mode::Qdisc {
            let letter = next_letter(old.letter);
            let new = Attached {
                letter,
                object: qdisc::version(),
                ..old.clone()
            };
            let queue = queue(&self.paths.bpffs, &pins, slot, &new);
            queue.unregister(letter);
            queue.register(&link)?;
            if let Err(e) = queue.take_over(&mut self.tc, &link) {
                queue.unregister(letter);
                return Err(e);
            }
            queue.unregister(old.letter);
            self.keep(slot, new)?;
        }
        Ok(Done {
            message: format!("interface {dev}: programs upgraded"),
            warnings: Vec::new(),
        })
    }

    /// Forgets interfaces whose device is gone (the kernel has removed everything of ours with it), and calls those
    /// that were renamed by their new names.
    pub(crate) fn follow(&mut self, links: &[Link]) {
        for (slot, attached) in self.attached.clone() {
            let Some(link) = links.iter().find(|l| l.ifindex == attached.ifindex) else {
                tracing::warn!("interface {} is gone", attached.dev);
                self.take_away(slot, &attached, None);
                self.forget_commands(&attached.dev);
                continue;
            };
            if link.name == attached.dev.as_str() {
                continue;
            }
            // Any name the kernel has is a valid one.
            let Ok(dev) = link.name.parse::<DevName>() else {
                continue;
            };
            tracing::info!("interface {} is {dev} now", attached.dev);
            let old = attached.dev.clone();
            let mut renamed = attached;
            renamed.dev = dev.clone();
            renamed.request.dev = dev;
            let settings = renamed.request.clone();
            if let Err(e) = self.keep(slot, renamed) {
                tracing::error!("{e}");
            }
            self.follow_name(&old, &settings);
        }
    }

    /// Pins of an agent that had them by name: under the index, they stay where they are when the name changes.
    fn pins_by_name(&self, attached: &Attached) {
        // A name that is a number may be the index of another.
        if attached.dev.as_str().parse::<u32>().is_ok() {
            return;
        }
        let pins = self.pins(attached.ifindex);
        let name = attached.dev.as_str().replace('.', ":");
        let old = pins.with_file_name(name);
        if !pins.exists()
            && old.exists()
            && let Err(e) = std::fs::rename(&old, &pins)
        {
            tracing::error!(
                "moving the pins at {} to {}: {e}",
                old.display(),
                pins.display()
            );
        }
    }
}
