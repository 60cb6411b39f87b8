//! Our programs at an interface: the classifier where packets leave, the program that reads answers where they come in.

use std::os::fd::{AsFd as _, AsRawFd as _};

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::filter::Side;
use crate::kernel::tc::Link;
use crate::kernel::{hooks, sys};
use crate::observed::attached::Attached;
use crate::observed::speed::reads_priority;

/// Where they are, and the names of their pins.
const HOOKS: [(Side, &str); 2] = [(Side::Ingress, "answers"), (Side::Egress, "classify")];

impl Datapath {
    /// Puts our programs on both sides of an interface. Returns whether tcx was used.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn hook(&mut self, link: &Link) -> Result<bool> {
        let pins = self.pins(link.ifindex);
        let mut tcx = true;
        for (side, name) in HOOKS {
            let program = match side {
                Side::Egress => self.classifier.fd(),
                Side::Ingress => self.answers.as_fd(),
            };
            tcx &= hooks::attach_to(program, &mut self.tc, link, &pins.join(name), side)?;
        }
        Ok(tcx)
    }

    /// Takes our programs from both sides of an interface. What fails is logged: the rest goes all the same.
    pub(crate) fn unhook(&mut self, link: &Link) {
        let pins = self.pins(link.ifindex);
        for (side, name) in HOOKS {
            let pin = pins.join(name);
            if let Err(e) = hooks::detach(&mut self.tc, link.ifindex, &link.name, &pin, side) {
                tracing::error!("{e}");
            }
        }
    }

    /// Builds the HTB tree of an interface, or changes the rates of the one that is there, and attaches its filter where
    /// a device below reads the packets' priority.
    ///
    /// # Errors
    /// The kernel's refusal of the tree. Without the filter the tree works, but the packets' priority names the leaf.
    pub(crate) fn tree(
        &mut self,
        slot: u32,
        link: &Link,
        attached: &mut Attached,
        existing: bool,
    ) -> Result<()> {
        let tree = self.tree_of(slot, attached);
        self.put_tree(slot, link, &tree, existing)?;
        // It costs some 200 instructions a packet.
        if !reads_priority(&link.name, link.ifindex, &link.kind) {
            attached.steers = false;
            return Ok(());
        }
        let filtered = self.leaf_filter(link);
        attached.steers = filtered.is_ok();
        if let Err(e) = filtered {
            let note = format!("{e}: SO_PRIORITY does not reach the devices below");
            tracing::warn!("{note}");
            if !attached.notes.contains(&note) {
                attached.notes.push(note);
            }
        }
        Ok(())
    }

    fn leaf_filter(&mut self, link: &Link) -> Result<()> {
        if self.leaf.is_none() {
            let netns = sys::netns_cookie()?;
            let mut loader = hooks::loader(&self.paths.bpffs, &netns);
            self.leaf = Some(hooks::load_leaf(&mut loader)?);
        }
        let Some(program) = &self.leaf else {
            return Ok(());
        };
        self.tc.leaf_filter(link, program.as_raw_fd())
    }

    /// Whether the tree of an interface has its filter, if it shall. What cannot be found out counts as there.
    pub(crate) fn leaf_filter_there(&mut self, attached: &Attached) -> bool {
        !attached.shapes()
            || !attached.steers
            || self.tc.has_leaf_filter(attached.ifindex).unwrap_or(true)
    }

    /// Whether the classifier is where it was attached. What cannot be found out counts as there.
    pub(crate) fn classifier_there(&mut self, attached: &Attached) -> bool {
        self.is_there(attached, Side::Egress)
    }

    /// Whether the program that reads answers is where it was attached, as of the classifier.
    pub(crate) fn answers_there(&mut self, attached: &Attached) -> bool {
        self.is_there(attached, Side::Ingress)
    }

    fn is_there(&mut self, attached: &Attached, at: Side) -> bool {
        if !attached.tcx {
            return self.tc.has_filter(attached.ifindex, at).unwrap_or(true);
        }
        let Some((_, name)) = HOOKS.iter().find(|(side, _)| *side == at) else {
            return true;
        };
        let pin = self.pins(attached.ifindex).join(name);
        libbpf_rs::Link::open(pin).is_ok_and(|link| match link.info().map(|i| i.info) {
            // Detached by somebody, it has no device.
            Ok(libbpf_rs::query::LinkTypeInfo::Tcx(tcx)) => tcx.ifindex == attached.ifindex,
            _ => true,
        })
    }

    /// Programs of others that run before the classifier, and can keep packets from it.
    pub(crate) fn before_classifier(&self, attached: &Attached) -> Vec<String> {
        let pin = self.pins(attached.ifindex).join("classify");
        let ours = libbpf_rs::Link::open(pin)
            .and_then(|link| link.info())
            .map(|info| info.prog_id);
        let (true, Ok(ours)) = (attached.tcx, ours) else {
            return Vec::new();
        };
        sys::tcx_egress(attached.ifindex)
            .unwrap_or_default()
            .into_iter()
            .take_while(|id| *id != ours)
            .map(|id| match sys::program_name(id) {
                Some(name) => format!("{name} (program {id})"),
                None => format!("program {id}"),
            })
            .collect()
    }
}
