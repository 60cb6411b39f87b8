//! The attached interfaces as the API shows them.

use bestby_api::{InterfaceInfo, Mode, PushedBack, Rate};

use crate::datapath::Datapath;
use crate::desired::interfaces::Origin;
use crate::error::Result;
use crate::kernel::sys::monotonic_ns;
use crate::kernel::tc::Qdisc;
use crate::kernel::{maps, qdisc};

/// As the API shows what a device took.
fn pushed_back(device: bestby_bpf::Device) -> Option<PushedBack> {
    Some(PushedBack {
        rate: Rate::from_bytes_per_s(device.rate)?,
        age_ns: monotonic_ns().saturating_sub(device.seen_ns),
    })
}

impl Datapath {
    /// Everything attached.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn interfaces(&mut self) -> Result<Vec<InterfaceInfo>> {
        let mut all = Vec::new();
        let wanted = self.wanted.wanted();
        for (slot, a) in self.attached.clone() {
            let mut notes = a.notes.clone();
            let root = self.tc.root(a.ifindex).unwrap_or(None);
            if a.needs_root() && !root.as_ref().is_some_and(Qdisc::is_ours) {
                let is = root.as_ref().map_or("none", |q| q.kind.as_str());
                notes.push(format!(
                    "somebody replaced the root qdisc, it is {is} now: bestby iface attach {} --replace takes its place", a.dev
                ));
            }
            if !self.classifier_there(&a) {
                notes.push(
                    "the classifier is gone, its packets are not judged: attach again".into(),
                );
            }
            if !self.leaf_filter_there(&a) {
                notes.push(
                    "the filter of its HTB tree is gone, all its packets share one leaf: restart bestbyd".into(),
                );
            }
            let before = self.before_classifier(&a);
            if !before.is_empty() {
                notes.push(format!(
                    "{} at tcx before the classifier: packets for which it ends the chain are not judged",
                    before.join(", ")
                ));
            }
            if let (false, Some(why)) = (a.request.trust.is_empty(), self.clock.trouble()) {
                notes.push(format!(
                    "{why}: deadlines in IP options are ignored, lifetimes count"
                ));
            }
            let kernel = a.kernel(self.plain_share);
            let counted = self.iface_counted(slot, &a)?;
            all.push(InterfaceInfo {
                dev: a.dev.clone(),
                ifindex: a.ifindex,
                mode: a.mode,
                predicts_delay: a.mode == Mode::Tc,
                method: a.method(),
                session: a.request.session,
                rate: a.request.rate,
                path: self.path(slot, &a)?,
                limit: kernel.limit,
                overhead: kernel.overhead,
                observe: a.request.observe,
                trust: a.request.trust.clone(),
                decrement: a.request.decrement,
                cuts: kernel.segment_ifindex != 0,
                instances: a.instances,
                restores: a
                    .earlier
                    .as_ref()
                    .filter(|_| a.needs_root())
                    .map(|q| q.kind.clone()),
                memory_bytes: (a.mode == Mode::Qdisc).then(|| qdisc::memory(&self.pins(a.ifindex))),
                device: counted.device.and_then(pushed_back),
                counters: maps::counters(&counted.counters),
                times: counted.times.as_ref().map(maps::times),
                origin: a
                    .request
                    .fields()
                    .iter()
                    .map(|(field, _)| {
                        let said = wanted.get(&a.dev).and_then(|w| w.origin.get(field));
                        let origin = said.copied().unwrap_or(Origin::Default);
                        ((*field).to_string(), origin.name().to_string())
                    })
                    .collect(),
                notes,
            });
        }
        Ok(all)
    }
}
