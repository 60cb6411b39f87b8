//! Interfaces: attach, change, detach, adopt, upgrade.

use std::path::PathBuf;

use bestby_api::{DevName, Done, InterfaceSettings, LinkRate, Method, Mode};
use bestby_bpf::abi;

use super::ruleset;
use crate::datapath::Datapath;
use crate::error::{Error, Result};
use crate::kernel::qdisc::{self, Queue};
use crate::kernel::tc::{Link, Qdisc};
use crate::kernel::{hooks, htb, tc};
use crate::observed::attached::{Attached, in_place_of_fq, instances, limit, needs_root};

/// What passed an attached interface.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    /// Its packets.
    pub(crate) counters: abi::bb_counters,
    /// Mode qdisc: how long they waited.
    pub(crate) times: Option<abi::bb_times>,
    /// Mode qdisc: what its device took when it was in the way last; `None`: it never was.
    pub(crate) device: Option<bestby_bpf::Device>,
}

/// Where classifiers are without tcx.
const NO_TCX: &str = "the classifier is attached by clsact: this kernel has no tcx (6.6)";

/// Whether the place of a root qdisc may be taken.
///
/// # Errors
/// It is somebody's, and the operator did not say that it may be replaced.
fn may_replace(link: &Link, q: &Qdisc, replace: bool) -> Result<()> {
    if replace || q.is_default() {
        return Ok(());
    }
    let (whose, hint) = if q.is_ours() {
        (
            ", left by another bestbyd or by one that is gone",
            "attach with --replace to remove it",
        )
    } else {
        (
            "",
            "attach with --replace to take its place; detach restores it (its classes and filters, if it has any, are not)",
        )
    };
    Err(Error::conflict(format!(
        "interface {}: its root qdisc is {} {:x}: and not the kernel's default one{whose}",
        link.name,
        q.kind,
        q.handle >> 16
    ))
    .hint(hint))
}

/// What of an earlier root qdisc does not come back with it.
fn not_restored(q: &Qdisc) -> Option<String> {
    let classful = matches!(
        q.kind.as_str(),
        "htb" | "hfsc" | "prio" | "drr" | "qfq" | "mqprio" | "taprio"
    );
    match (q.below.as_str(), classful) {
        ("", false) => None,
        ("", true) => Some(format!(
            "the earlier root qdisc, {}, may have classes and filters: detach restores only the qdisc itself",
            q.kind
        )),
        (below, _) => Some(format!(
            "detach restores the earlier root qdisc, {}, without the qdiscs below it: {below}",
            q.kind
        )),
    }
}

impl Datapath {
    /// Directory of an interface's pins: by index, because another device may have its name by now.
    pub(crate) fn pins(&self, ifindex: u32) -> PathBuf {
        self.paths.bpffs.join("iface").join(ifindex.to_string())
    }

    pub(crate) fn by_name(&self, dev: &DevName) -> Option<(u32, &Attached)> {
        self.attached
            .iter()
            .find(|(_, a)| a.dev == *dev)
            .map(|(slot, a)| (*slot, a))
    }

    /// Slot and record of an attached interface.
    ///
    /// # Errors
    /// It is not attached (missing, with those that are).
    pub(crate) fn known(&self, dev: &DevName) -> Result<(u32, Attached)> {
        let known = self.by_name(dev).map(|(slot, a)| (slot, a.clone()));
        known.ok_or_else(|| {
            let names: Vec<&str> = self.attached.values().map(|a| a.dev.as_str()).collect();
            Error::missing(format!("interface {dev} is not attached")).hint(if names.is_empty() {
                "no interface is".to_string()
            } else {
                format!("attached: {}", names.join(", "))
            })
        })
    }

    pub(crate) fn keep(&mut self, slot: u32, attached: Attached) -> Result<()> {
        self.kept_ifaces.set(slot, &attached)?;
        self.attached.insert(slot, attached);
        self.generation += 1;
        self.trust()
    }

    /// Puts settings in force: attaches an interface, or changes one that is attached.
    ///
    /// # Errors
    /// Unknown interface, another root qdisc, a mode the kernel cannot do: nothing was changed then.
    pub(crate) fn put(&mut self, request: &InterfaceSettings, from_file: bool) -> Result<Done> {
        // The name may be another device's than a moment ago.
        let links = self.tc.links()?;
        self.follow(&links);
        let link = tc::named(&links, request.dev.as_str())?;
        let mut notes = Vec::new();
        let mode = self.mode(request, &mut notes)?;
        let set = request.rate.and_then(LinkRate::fixed);
        if mode == Mode::Tc && set.is_none() && request.observe {
            notes.push(
                "no rate is known, so delay cannot be predicted: only what is stale already is counted"
                    .into(),
            );
        }
        if mode == Mode::Tc && !request.observe {
            if let Some(method) = request.method.filter(|m| *m != Method::Triage) {
                notes.push(format!(
                    "method {method} has no effect in mode tc, which holds no queue of its own"
                ));
            }
            if request.limit.is_some() {
                notes.push(
                    "the limit has no effect in mode tc, which holds no queue of its own".into(),
                );
            }
        }
        let root = self.tc.root(link.ifindex)?;
        if let Some((slot, old)) = self.by_name(&request.dev)
            && old.ifindex == link.ifindex
        {
            let old = old.clone();
            // Who had leave to replace a root qdisc of this interface keeps it.
            let request = &InterfaceSettings {
                replace: request.replace || old.request.replace,
                ..request.clone()
            };
            let takes_root = needs_root(mode, request) && !old.needs_root();
            if old.needs_root() && !root.as_ref().is_some_and(Qdisc::is_ours) {
                // Somebody put another qdisc there: that one is now what was there before.
                self.take_away(slot, &old, Some(&link));
            } else if old.mode == mode
                && old.limit() == limit(request)
                && old.instances == instances(mode, request, &link)
                || old.mode == mode && mode == Mode::Tc
            {
                // Its first rate takes the root: what is there may be somebody's.
                let earlier = if takes_root {
                    self.take_root(&link, root, request.replace)?
                } else {
                    old.earlier
                };
                return self.change(slot, &link, request, earlier, from_file, notes);
            } else {
                let earlier = if takes_root {
                    self.take_root(&link, root, request.replace)?
                } else {
                    old.earlier.clone().filter(|_| needs_root(mode, request))
                };
                // Another mode or size: the packets queued now cannot be carried over.
                self.give_back(&request.dev)?;
                return self
                    .attach_new(&link, request, mode, earlier, from_file, notes)
                    .map_err(|e| self.go_back(&old, e));
            }
        }
        let paced = self
            .tc
            .qdiscs(link.ifindex)
            .is_ok_and(|all| all.iter().any(|q| q.kind == "fq"));
        if paced {
            notes.extend(in_place_of_fq(mode, request).map(String::from));
        }
        // Who only observes leaves it alone, unless it is what an agent of ours left.
        let earlier = if request.observe && !root.as_ref().is_some_and(Qdisc::is_ours) {
            None
        } else {
            self.take_root(&link, root, request.replace)?
        };
        self.attach_new(&link, request, mode, earlier, from_file, notes)
    }

    /// Whether nothing that is known now stands against these settings.
    ///
    /// # Errors
    /// Unknown interface, another root qdisc, a mode the kernel cannot do.
    pub(crate) fn may_put(&mut self, links: &[Link], request: &InterfaceSettings) -> Result<()> {
        let link = tc::named(links, request.dev.as_str())?;
        let mode = self.mode(request, &mut Vec::new())?;
        let attached = self.by_name(&request.dev).map(|(_, a)| a);
        let replace = request.replace || attached.is_some_and(|a| a.request.replace);
        let has_root = attached.is_some_and(Attached::needs_root);
        match self.tc.root(link.ifindex)? {
            Some(q) if needs_root(mode, request) && !(has_root && q.is_ours()) => {
                may_replace(&link, &q, replace)
            }
            _ => Ok(()),
        }
    }

    /// The root qdisc to restore one day, if its place may be taken.
    ///
    /// # Errors
    /// It is somebody's, and the operator did not say that it may be replaced.
    fn take_root(
        &mut self,
        link: &Link,
        root: Option<Qdisc>,
        replace: bool,
    ) -> Result<Option<Qdisc>> {
        let Some(q) = root.filter(|q| !q.is_default()) else {
            return Ok(None);
        };
        may_replace(link, &q, replace)?;
        if q.is_ours() {
            // The kernel would take one of this handle for a change of it, and refuse that.
            self.tc.remove_root(link.ifindex, &link.name)?;
            return Ok(None);
        }
        let below = q.children(&self.tc.qdiscs(link.ifindex)?);
        Ok(Some(Qdisc { below, ..q }))
    }

    /// Attaches an interface again as it was before a change that failed; says in the error how that went.
    fn go_back(&mut self, old: &Attached, failed: Error) -> Error {
        // What a detach left there is the kernel's, or what our queue had replaced.
        let request = InterfaceSettings {
            replace: true,
            ..old.request.clone()
        };
        let put = self.put(&request, old.from_file).and_then(|_| {
            // The leave was for this once.
            let (slot, mut attached) = self.known(&old.dev)?;
            attached.request.replace = old.request.replace;
            self.keep(slot, attached)
        });
        match put {
            Ok(()) => Error {
                message: format!(
                    "{}; interface {} goes on as it was before, without what was queued",
                    failed.message, old.dev
                ),
                ..failed
            },
            Err(e) => Error {
                message: format!(
                    "{}; interface {} is not attached any more: {}",
                    failed.message, old.dev, e.message
                ),
                ..failed
            },
        }
    }

    /// The mode that will be in force. Who only observes has no queue of ours: the model of mode tc judges.
    fn mode(&self, request: &InterfaceSettings, notes: &mut Vec<String>) -> Result<Mode> {
        let mode = self.enforcing_mode(request, notes)?;
        Ok(if request.observe { Mode::Tc } else { mode })
    }

    fn enforcing_mode(&self, request: &InterfaceSettings, notes: &mut Vec<String>) -> Result<Mode> {
        match request.mode {
            Mode::Tc => Ok(Mode::Tc),
            _ if self.qdisc_supported => Ok(Mode::Qdisc),
            Mode::Qdisc => Err(Error::unsupported(format!(
                "interface {}: this kernel has no qdiscs in BPF (they came with 6.16, CONFIG_NET_SCH_BPF)",
                request.dev
            ))
            .hint("attach with --mode tc or --mode auto")),
            Mode::Auto => {
                notes.push("mode tc: this kernel has no qdiscs in BPF; delay is predicted, not observed".into());
                Ok(Mode::Tc)
            }
        }
    }

    fn attach_new(
        &mut self,
        link: &Link,
        request: &InterfaceSettings,
        mode: Mode,
        earlier: Option<Qdisc>,
        from_file: bool,
        mut notes: Vec<String>,
    ) -> Result<Done> {
        let slot = (0..abi::BB_MAX_IFACES)
            .find(|slot| !self.attached.contains_key(slot))
            .ok_or_else(|| {
                Error::conflict(format!(
                    "interface {}: {} interfaces are attached already",
                    link.name,
                    abi::BB_MAX_IFACES
                ))
            })?;
        notes.extend(earlier.as_ref().and_then(not_restored));
        let instances = instances(mode, request, link);
        let mut attached = Attached {
            dev: request.dev.clone(),
            ifindex: link.ifindex,
            mode,
            request: request.clone(),
            earlier,
            tcx: true,
            letter: 'a',
            instances,
            object: qdisc::version(),
            from_file,
            notes,
            netns: self.netns,
            unfinished: true,
            shaping: false,
            segmenter: None,
            steers: false,
            asked: [None; 2],
        };
        // Remembered before anything is placed: only the record knows what is to be restored.
        let done = self
            .kept_ifaces
            .set(slot, &attached)
            .and_then(|()| self.place(slot, &mut attached, link))
            .and_then(|()| {
                attached.unfinished = false;
                self.keep(slot, attached.clone())
            });
        if let Err(e) = done {
            // As it was before.
            self.take_away(slot, &attached, Some(link));
            return Err(e);
        }
        self.cut(slot);
        ruleset::forget_flows(&self.shared)?;
        let message = if request.observe {
            format!(
                "interface {0} attached; it only observes: nothing is dropped, and `bestby stats` counts what would be\n\
                 to drop what is late: bestby iface set {0} --enforce --save",
                link.name
            )
        } else {
            format!("interface {} attached in mode {mode}", link.name)
        };
        Ok(Done {
            message,
            warnings: attached.notes,
        })
    }

    /// Puts everything of ours on an interface that has nothing of it yet.
    fn place(&mut self, slot: u32, attached: &mut Attached, link: &Link) -> Result<()> {
        let pins = self.pins(link.ifindex);
        // Left by a device of the same index that is gone.
        let _ = std::fs::remove_dir_all(&pins);
        hooks::directory(&pins)?;
        self.begin_auto(slot, attached)?;
        let kernel = attached.kernel(self.plain_share);
        self.shared.ifaces.set(&slot, &kernel)?;
        self.build(slot, attached, link)
    }

    /// Qdisc first, classifier last: no packet is marked for a queue that is not there.
    fn build(&mut self, slot: u32, attached: &mut Attached, link: &Link) -> Result<()> {
        if attached.mode == Mode::Qdisc {
            let pins = self.pins(attached.ifindex);
            let queue = Queue {
                dir: &self.paths.bpffs,
                pins: &pins,
                slot,
                limit: attached.limit(),
                instances: attached.instances,
                letter: attached.letter,
            };
            queue.register(link)?;
            queue.graft(&mut self.tc, link)?;
        } else if attached.shapes() {
            self.tree(slot, link, attached, false)?;
            self.settle(slot, attached)?;
        }
        attached.tcx = self.hook(link)?;
        if !attached.tcx {
            attached.notes.push(NO_TCX.into());
        }
        Ok(())
    }

    /// Changes rate, method, session key, overhead or observation of an attached interface.
    fn change(
        &mut self,
        slot: u32,
        link: &Link,
        request: &InterfaceSettings,
        earlier: Option<Qdisc>,
        from_file: bool,
        mut notes: Vec<String>,
    ) -> Result<Done> {
        let Some(old) = self.attached.get(&slot).cloned() else {
            return Err(Error::missing(format!(
                "interface {} is not attached",
                link.name
            )));
        };
        // It may have been lost: its pin removed, or clsact.
        hooks::directory(&self.pins(old.ifindex))?;
        let tcx = self.hook(link)?;
        if !tcx {
            notes.push(NO_TCX.into());
        }
        if earlier != old.earlier {
            notes.extend(earlier.as_ref().and_then(not_restored));
        }
        let mut new = Attached {
            request: request.clone(),
            earlier,
            tcx,
            from_file,
            notes,
            ..old.clone()
        };
        let (there, shaped) = (old.shapes(), new.shapes());
        if there != shaped
            || shaped && htb::differs(&self.tree_of(slot, &new), &self.tree_of(slot, &old))
        {
            // Remembered before: an agent that finds this record after a kill goes the rest of the way.
            let begun = Attached {
                shaping: shaped && !there,
                ..new.clone()
            };
            self.kept_ifaces.set(slot, &begun)?;
            let done = if shaped {
                self.tree(slot, link, &mut new, there)
            } else {
                self.tc.restore(link, old.earlier.as_ref())
            };
            if let Err(e) = done {
                // Half a tree of ours is worse than what was there.
                let undone = if there {
                    Ok(())
                } else {
                    self.tc.restore(link, new.earlier.as_ref())
                };
                if let Err(e) = undone.and_then(|()| self.kept_ifaces.set(slot, &old)) {
                    tracing::error!("{e}");
                }
                return Err(e);
            }
        }
        self.settle(slot, &new)?;
        // What holds since it was attached was said then; `iface ls` goes on saying it.
        let fresh = new.notes.iter().filter(|note| !old.notes.contains(note));
        let warnings = fresh.cloned().collect();
        self.keep(slot, new)?;
        self.cut(slot);
        ruleset::forget_flows(&self.shared)?;
        Ok(Done {
            message: format!("interface {} changed", link.name),
            warnings,
        })
    }

    /// Removes everything of ours from an interface, as far as that works.
    pub(crate) fn take_away(&mut self, slot: u32, attached: &Attached, link: Option<&Link>) {
        if let Some(link) = link {
            let ours = self
                .tc
                .root(link.ifindex)
                .ok()
                .flatten()
                .is_some_and(|q| q.is_ours());
            if ours && let Err(e) = self.tc.restore(link, attached.earlier.as_ref()) {
                tracing::error!("{e}");
            }
            self.unhook(link);
        }
        let _ = self.shared.ifaces.set(&slot, &abi::bb_iface::default());
        self.forget_auto(slot);
        if let Some(old) = &attached.segmenter
            && let Err(e) = self.uncut(old, attached.ifindex)
        {
            tracing::error!("interface {}: {e}", attached.dev);
        }
        self.segmenters.problems.remove(&slot);
        let _ = std::fs::remove_dir_all(self.pins(attached.ifindex));
        // Last: while it is there, the next agent knows what is left to do.
        let _ = self.kept_ifaces.remove(slot);
        self.attached.remove(&slot);
        let _ = self.trust();
        let _ = ruleset::forget_flows(&self.shared);
        self.forget_sessions(attached.ifindex);
        self.generation += 1;
    }

    /// Sessions of an interface that is gone are nobody's: their places are free again.
    fn forget_sessions(&self, ifindex: u32) {
        for (index, session) in self.shared.sessions.entries().unwrap_or_default() {
            if session.key.ifindex == ifindex && session.way.tag != 0 {
                let free = abi::bb_session {
                    way: abi::bb_way {
                        gen_: session.way.gen_.wrapping_add(1),
                        ..Default::default()
                    },
                    ..Default::default()
                };
                let _ = self.shared.sessions.set(&index, &free);
            }
        }
    }

    /// Gives an interface back: the earlier qdisc, no classifier.
    ///
    /// # Errors
    /// It is not attached, or the earlier qdisc cannot be restored.
    pub(crate) fn give_back(&mut self, dev: &DevName) -> Result<Done> {
        let links = self.tc.links()?;
        self.follow(&links);
        let (slot, attached) = self.known(dev)?;
        let link = links.into_iter().find(|l| l.ifindex == attached.ifindex);
        let mut warnings = Vec::new();
        if let Some(link) = &link {
            match self.tc.root(link.ifindex)? {
                Some(q) if q.is_ours() => {
                    // An agent that finds this record after a kill goes the rest of the way.
                    let unfinished = Attached {
                        unfinished: true,
                        ..attached.clone()
                    };
                    self.kept_ifaces.set(slot, &unfinished)?;
                    if let Err(e) = self.tc.restore(link, attached.earlier.as_ref()) {
                        self.kept_ifaces.set(slot, &attached)?;
                        return Err(e);
                    }
                    if let Some(q) = &attached.earlier
                        && !q.below.is_empty()
                    {
                        warnings.push(format!(
                            "{} is the root qdisc again, without the qdiscs that were below it: {}",
                            q.kind, q.below
                        ));
                    }
                }
                Some(q) if attached.needs_root() => {
                    warnings.push(format!(
                        "the root qdisc is {}, which bestby did not put there: it is left alone",
                        q.kind
                    ));
                }
                _ => {}
            }
        }
        self.take_away(slot, &attached, link.as_ref());
        let message = match self.tc.root(attached.ifindex) {
            _ if link.is_none() => format!("interface {dev} detached; its device is gone"),
            Ok(Some(q)) => format!("interface {dev} detached; its root qdisc is {} now", q.kind),
            _ => format!("interface {dev} detached; it has no root qdisc now"),
        };
        Ok(Done { message, warnings })
    }

    /// What passed an attached interface.
    pub(crate) fn iface_counted(&self, slot: u32, attached: &Attached) -> Result<Counted> {
        if attached.mode == Mode::Qdisc {
            let all = qdisc::counted(&self.pins(attached.ifindex))?;
            return Ok(Counted {
                counters: all.counters,
                times: Some(all.times),
                device: (all.device.rate > 0).then_some(all.device),
            });
        }
        let iface = self.shared.ifaces.get(&slot)?.unwrap_or_default();
        Ok(Counted {
            counters: iface.counters,
            times: None,
            device: None,
        })
    }
}
