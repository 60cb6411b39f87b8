//! Brings the interfaces to what is wanted of them: asks the plan, carries its steps out, remembers who said what.

use std::collections::BTreeMap;

use bestby_api::{AttachRequest, Config, ConfigDiff, DevName, Done, InterfaceSettings};

use crate::datapath::Datapath;
use crate::desired::book::Merge;
use crate::desired::file::config_error;
use crate::desired::interfaces::{self, Interfaces, Kept, Wanted};
use crate::error::{Error, Result};
use crate::kernel::store::Store;
use crate::kernel::tc::Link;
use crate::plan::interfaces::{Observed, Plan, Step, changes, plan, settled};

/// What is wanted of the interfaces, as far as the agent could do something about it.
pub(crate) struct WantedInterfaces {
    pub(crate) said: Interfaces,
    kept: Store<Kept>,
    /// Wanted and not attached: the index of the device that could not be attached (`None`: there is none), and why.
    pub(crate) missing: BTreeMap<DevName, (Option<u32>, Error)>,
}

impl WantedInterfaces {
    /// What an earlier agent kept.
    pub(crate) fn adopt(kept: Store<Kept>) -> Self {
        let mut layers = kept.all();
        layers.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        let mut said = Interfaces::new();
        for (_, layer) in layers {
            let dev = layer.request.dev.clone();
            said.entry(dev).or_default().adopt(layer);
        }
        Self {
            said,
            kept,
            missing: BTreeMap::new(),
        }
    }

    /// What is wanted, each field with its origin.
    pub(crate) fn wanted(&self) -> BTreeMap<DevName, Wanted> {
        wanted(&self.said)
    }

    fn keep(&self) -> Result<()> {
        let mut count = 0;
        for layer in self.said.values().flat_map(interfaces::Said::kept) {
            self.kept.set(count, &layer)?;
            count += 1;
        }
        for (index, _) in self.kept.all() {
            if index >= count {
                self.kept.remove(index)?;
            }
        }
        Ok(())
    }
}

fn wanted(said: &Interfaces) -> BTreeMap<DevName, Wanted> {
    let all = said.iter();
    all.filter_map(|(dev, said)| Some((dev.clone(), said.wanted()?)))
        .collect()
}

impl Datapath {
    fn observed(&self, links: &[Link]) -> Observed {
        let devices = links.iter();
        Observed {
            devices: devices
                .filter_map(|l| Some((l.name.parse().ok()?, l.ifindex)))
                .collect(),
            attached: self
                .attached
                .values()
                .map(|a| (a.dev.clone(), a.request.clone()))
                .collect(),
        }
    }

    /// What is attached and nobody is known to have asked for: of an agent that did not remember who did.
    fn claim_attached(&mut self) {
        for attached in self.attached.values() {
            let said = self.wanted.said.entry(attached.dev.clone()).or_default();
            if said.file.is_none() && said.command.is_none() {
                let all = Some(AttachRequest::all_of(&attached.request));
                if attached.from_file {
                    said.file = all;
                } else {
                    said.command = all;
                }
            }
        }
    }

    /// Brings the interfaces to what the file says and commands said; tells what went wrong.
    pub(crate) fn read_interfaces(&mut self, file: &[AttachRequest], how: Merge) -> Vec<Error> {
        self.claim_attached();
        self.wanted.said = interfaces::read(&self.wanted.said, file, how);
        self.wanted.missing.clear();
        let mut problems: Vec<Error> = self.wanted.keep().err().into_iter().collect();
        match self.tc.links() {
            Ok(links) => problems.extend(self.carry_out(&links, |_| true)),
            Err(e) => problems.push(e),
        }
        problems
    }

    /// Whether nothing that is known now stands against bringing the interfaces to what this file says.
    ///
    /// # Errors
    /// The first thing that does.
    pub(crate) fn may_read_interfaces(&mut self, file: &[AttachRequest]) -> Result<()> {
        let links = self.tc.links()?;
        self.follow(&links);
        self.claim_attached();
        let said = interfaces::read(&self.wanted.said, file, Merge::Reload);
        for step in plan(&wanted(&said), &self.observed(&links)).steps {
            if let Step::Attach(settings) | Step::Change(settings, _) = step {
                self.may_put(&links, &settings)?;
            }
        }
        Ok(())
    }

    /// Brings the interfaces back to what was said of them and attached before.
    pub(crate) fn say_again(
        &mut self,
        said: Interfaces,
        attached: &BTreeMap<DevName, InterfaceSettings>,
    ) -> Vec<Error> {
        let mut problems = Vec::new();
        let there: Vec<DevName> = self.attached.values().map(|a| a.dev.clone()).collect();
        for dev in there.iter().filter(|dev| !attached.contains_key(dev)) {
            problems.extend(self.give_back(dev).err());
        }
        self.wanted.said = said;
        self.wanted.missing.clear();
        problems.extend(self.wanted.keep().err());
        for (dev, settings) in attached {
            let now = self.by_name(dev).map(|(_, a)| &a.request);
            if now != Some(settings) {
                problems.extend(self.put(settings, self.is_from_file(dev)).err());
            }
        }
        problems
    }

    /// Attaches what is wanted and appeared.
    pub(crate) fn attach_missing(&mut self, links: &[Link]) {
        let before: Vec<DevName> = self.attached.values().map(|a| a.dev.clone()).collect();
        self.carry_out(links, |step| matches!(step, Step::Attach(_)));
        let now = self.attached.values().map(|a| &a.dev);
        for dev in now.filter(|dev| !before.contains(dev)) {
            for warning in self.mistakes_of_interface(dev) {
                tracing::warn!("{warning}");
            }
        }
    }

    /// Carries the plan out as far as it goes. What failed for a device is not tried again for the same device until
    /// somebody asks.
    pub(crate) fn carry_out(
        &mut self,
        links: &[Link],
        which: impl Fn(&Step) -> bool,
    ) -> Vec<Error> {
        let Plan { steps, waiting } = plan(&self.wanted.wanted(), &self.observed(links));
        let mut problems = Vec::new();
        let index = |dev: &DevName| links.iter().find(|l| l.name == dev.as_str());
        for dev in waiting {
            let why = Error::missing(format!("interface {dev}: there is no such device yet"))
                .hint("it is attached when it appears");
            match self.wanted.missing.insert(dev, (None, why.clone())) {
                Some((None, _)) => {}
                _ => tracing::warn!("{why}"),
            }
        }
        for step in steps.into_iter().filter(which) {
            let tried = match &step {
                Step::Attach(settings) => {
                    let at = index(&settings.dev).map(|l| l.ifindex);
                    let known = self.wanted.missing.get(&settings.dev);
                    if known.is_some_and(|(before, _)| before.is_some() && *before == at) {
                        continue;
                    }
                    let tried = self.put(settings, self.is_from_file(&settings.dev));
                    match &tried {
                        Ok(_) => drop(self.wanted.missing.remove(&settings.dev)),
                        Err(e) => {
                            let missing = (at, e.clone());
                            self.wanted.missing.insert(settings.dev.clone(), missing);
                        }
                    }
                    tried
                }
                Step::Change(settings, _) => self.put(settings, self.is_from_file(&settings.dev)),
                Step::Detach(dev) => self.give_back(dev),
            };
            match tried {
                Ok(_) => tracing::info!("{step}"),
                Err(e) => problems.push(e),
            }
        }
        for problem in &problems {
            tracing::error!("{problem}");
        }
        problems
    }

    fn is_from_file(&self, dev: &DevName) -> bool {
        self.wanted.said.get(dev).is_some_and(|s| s.file.is_some())
    }

    /// POST /v1/interfaces: attaches an interface, or changes what is said of an attached one. PUT: changes only.
    ///
    /// # Errors
    /// Unknown interface, another root qdisc, a mode the kernel cannot do, a file that cannot be written: nothing was
    /// changed then.
    pub fn interface_set(&mut self, mut request: AttachRequest, attached: bool) -> Result<Done> {
        let save = std::mem::take(&mut request.save);
        let dev = request.dev.clone();
        let links = self.tc.links()?;
        self.follow(&links);
        if attached {
            self.known(&dev)?;
        }
        self.claim_attached();
        let in_force = self.by_name(&dev).map(|(_, a)| a.request.clone());
        let mut said = self.wanted.said.get(&dev).cloned().unwrap_or_default();
        said = said.commanded(&request);
        let Some(wanted) = said.wanted() else {
            return Err(Error::failed(format!("interface {dev}: nothing is wanted")));
        };
        let settings = InterfaceSettings {
            replace: request.replace,
            ..settled(&wanted, in_force.as_ref())
        };
        let document = if save {
            let mut document = self.paths.config.document()?;
            let entry = document.config().interfaces.iter().find(|i| i.dev == dev);
            let mut entry = entry
                .cloned()
                .unwrap_or_else(|| AttachRequest::new(dev.clone()));
            if let Some(command) = &said.command {
                entry = entry.with(command);
            }
            document
                .put_interface(&entry)
                .map_err(|e| config_error(&e))?;
            Some(document)
        } else {
            None
        };
        let mut done = self.put(&settings, save || said.file.is_some())?;
        if let Some(document) = document {
            if let Err(e) = self.paths.config.write(&document.text()) {
                let undone = match &in_force {
                    Some(before) => self.put(before, said.file.is_some()),
                    None => self.give_back(&dev),
                };
                if let Err(e) = undone {
                    tracing::error!("{e}");
                }
                return Err(e
                    .within("nothing was changed")
                    .hint("free some space or check the rights, or leave out --save"));
            }
            self.config
                .interfaces
                .clone_from(&document.config().interfaces);
            let entry = document.config().interfaces.iter().find(|i| i.dev == dev);
            said.file = entry.cloned();
            said.command = None;
        }
        self.wanted.said.insert(dev.clone(), said);
        self.wanted.missing.remove(&dev);
        self.wanted.keep()?;
        done.warnings.extend(self.mistakes_of_interface(&dev));
        if let Some(before) = &in_force {
            let changes = changes(before, &settings);
            let list: Vec<String> = changes.iter().map(ToString::to_string).collect();
            done.message = if list.is_empty() {
                format!("interface {dev} is as it was")
            } else {
                format!("interface {dev} changed: {}", list.join(", "))
            };
            if before.observe && !settings.observe {
                done.warnings.insert(
                    0,
                    format!("interface {dev} does not observe any more: what is late is dropped from now on"),
                );
            }
        }
        Ok(done)
    }

    /// DELETE /v1/interfaces/{dev}: gives an interface back.
    ///
    /// # Errors
    /// It is not attached, or the earlier qdisc cannot be restored.
    pub fn interface_detach(&mut self, dev: &DevName) -> Result<Done> {
        let mut done = self.give_back(dev)?;
        let in_file = self.is_from_file(dev);
        match self.wanted.said.get_mut(dev) {
            Some(said) if in_file => {
                said.command = None;
                said.detached = true;
                done.warnings
                    .push("the configuration file still has it: a reload attaches it again, unless its [[interface]] is removed there".into());
            }
            _ => drop(self.wanted.said.remove(dev)),
        }
        self.wanted.keep()?;
        Ok(done)
    }

    /// An attached device is gone: what only commands said of it goes with it.
    pub(crate) fn forget_commands(&mut self, dev: &DevName) {
        match self.wanted.said.get_mut(dev) {
            Some(said) if said.file.is_some() => {}
            _ => drop(self.wanted.said.remove(dev)),
        }
        if let Err(e) = self.wanted.keep() {
            tracing::error!("{e}");
        }
    }

    /// An attached device has another name: what is in force is what a command set for the new one.
    pub(crate) fn follow_name(&mut self, old: &DevName, settings: &InterfaceSettings) {
        self.forget_commands(old);
        if let Some(said) = self.wanted.said.get_mut(old) {
            said.command = None;
        }
        let said = self.wanted.said.entry(settings.dev.clone()).or_default();
        said.command = Some(AttachRequest::all_of(settings));
        said.detached = false;
        if let Err(e) = self.wanted.keep() {
            tracing::error!("{e}");
        }
    }

    /// GET /v1/config/diff: what reading the file would change.
    ///
    /// # Errors
    /// What is wrong in the file.
    pub fn config_diff(&mut self) -> Result<ConfigDiff> {
        let mut config: Config = self.paths.config.read()?;
        let restart = self.needs_restart(&mut config);
        let links = self.tc.links()?;
        self.follow(&links);
        self.claim_attached();
        let said = interfaces::read(&self.wanted.said, &config.interfaces, Merge::Reload);
        let Plan { steps, waiting } = plan(&wanted(&said), &self.observed(&links));
        let mut changes: Vec<String> = steps.iter().map(ToString::to_string).collect();
        changes.extend(
            waiting
                .iter()
                .map(|dev| format!("wait for {dev}, which does not exist")),
        );
        let list = self.book.merged(&config.flows, Merge::Reload);
        for new in &list {
            match self.book.find(&new.rule.name) {
                None => changes.push(format!("add flow rule \"{}\"", new.rule.name)),
                Some(old) if old.rule != new.rule => {
                    changes.push(format!("change flow rule \"{}\"", new.rule.name));
                }
                Some(_) => {}
            }
        }
        for old in &self.book.entries {
            if list.iter().all(|new| new.rule.name != old.rule.name) {
                changes.push(format!("remove flow rule \"{}\"", old.rule.name));
            }
        }
        changes.extend(self.peers_changed(&config.peers));
        changes.extend(self.config.agent.changes(&config.agent));
        let changed = [
            ("rtp_profile", self.config.rtp_profile != config.rtp_profile),
            ("media", self.media_tables != config.media),
            ("tcp_real", self.config.tcp_real != config.tcp_real),
        ];
        let changed = changed.iter().filter(|(_, changed)| *changed);
        changes.extend(changed.map(|(table, _)| format!("change [{table}]")));
        changes.extend(restart);
        Ok(ConfigDiff {
            file: self.paths.config.path().display().to_string(),
            changes,
        })
    }
}
