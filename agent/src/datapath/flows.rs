//! Flow rules: add, change, remove, list; and the file, when asked to save.

use std::collections::{HashMap, HashSet};

use bestby_api::{
    CgroupPath, Document, Done, FlowAdd, FlowAdds, FlowInfo, FlowName, FlowRule, FlowSet,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::desired::book::{Entry, Kept, fingerprint};
use crate::desired::file::config_error;
use crate::error::{Error, Result};
use crate::kernel::maps;
use crate::observed::names::Names;
use crate::observed::names::Resolve as _;
use crate::plan::rules::{Compiled, compile_list};

/// What the cgroups that rules name are now. One that was made again has another id under the same name.
fn cgroups(list: &[Entry], names: &Names) -> HashMap<CgroupPath, Option<(u64, u32)>> {
    list.iter()
        .filter_map(|e| e.rule.cgroup.as_ref())
        .map(|path| (path.clone(), names.cgroup(path)))
        .collect()
}

impl Datapath {
    /// Whether the rules would compile differently with these names.
    pub(crate) fn rules_depend_on(&self, names: &Names) -> bool {
        self.book.entries.iter().any(|e| {
            let dev = e.rule.dev.as_ref();
            dev.is_some_and(|d| names.ifindex(d) != self.names.ifindex(d))
        }) || self
            .cgroups
            .iter()
            .any(|(path, was)| names.cgroup(path) != *was)
    }

    fn compiled(&self, list: &[Entry]) -> Result<Compiled> {
        compile_list(list, self.rtp_profile, &self.media_tables, &self.names)
    }

    /// Puts a list in force: kernel first, then memory; entries with id 0 get one.
    ///
    /// # Errors
    /// The list does not compile or the kernel refuses it: the old one stays in force.
    pub(crate) fn put_rules(&mut self, mut list: Vec<Entry>) -> Result<()> {
        let queued = |id: u16| {
            self.shared
                .rule_stats
                .get(&u32::from(id))
                .ok()
                .flatten()
                .is_some_and(|c| maps::counters(&c).queued > 0)
        };
        for id in self.book.number(&mut list, queued)? {
            self.shared
                .rule_stats
                .set(&u32::from(id), &abi::bb_counters::default())?;
            self.shared.rule_adus.set(&u32::from(id), &0)?;
        }
        // Before the rules are compiled: a cgroup that is made again in between is seen at the next look.
        let cgroups = cgroups(&list, &self.names);
        let compiled = self.compiled(&list)?;
        // Remembered first: an agent killed in between finds at most a rule that is not yet in force, and
        // puts it in force. From the last to the first: see `Book::places`.
        let before: HashMap<u16, &Entry> = self.book.entries.iter().map(|e| (e.id, e)).collect();
        for (entry, place) in list.iter().zip(self.book.places(&list)).rev() {
            let there = self.book.place(entry.id) == Some(place);
            if !there || before.get(&entry.id) != Some(&entry) {
                let kept = Kept {
                    place,
                    rule: entry.rule.clone(),
                    file: entry.file,
                };
                self.kept_rules
                    .set(u32::from(entry.id), &kept)
                    .map_err(|e| e.within(format!("flow rule \"{}\"", entry.rule.name)))?;
            }
        }
        self.ruleset.apply(&self.shared, &compiled)?;
        let held: HashSet<u16> = list.iter().map(|e| e.id).collect();
        for old in self.book.entries.iter().filter(|e| !held.contains(&e.id)) {
            self.kept_rules.remove(u32::from(old.id))?;
        }
        self.waiting = compiled.waiting;
        self.cgroups = cgroups;
        self.book.replace(list);
        self.generation += 1;
        Ok(())
    }

    /// Puts a list in force and, if asked, in the file; both or none.
    fn commit(
        &mut self,
        list: Vec<Entry>,
        save: bool,
        edit: impl FnOnce(&mut Document) -> Result<(), Vec<bestby_api::ConfigError>>,
    ) -> Result<()> {
        if !save {
            return self.put_rules(list);
        }
        let mut document = self.paths.config.document()?;
        edit(&mut document).map_err(|e| config_error(&e))?;
        let before = self.book.entries.clone();
        self.put_rules(list)?;
        if let Err(e) = self.paths.config.write(&document.text()) {
            self.put_rules(before)?;
            return Err(e
                .within("nothing was changed")
                .hint("free some space or check the rights, or leave out --save"));
        }
        self.config.flows.clone_from(&document.config().flows);
        Ok(())
    }

    fn warnings_for(&self, name: &FlowName) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some((_, why)) = self.waiting.iter().find(|(n, _)| n == name) {
            warnings.push(format!("flow rule \"{name}\" matches nothing yet: {why}"));
        }
        warnings.extend(self.mistakes_of_rule(name));
        warnings
    }

    /// Adds rules, all or none, one behind the other unless a request says where.
    ///
    /// # Errors
    /// There is none to add, a name is taken, a rule says nothing, or the list would not compile.
    pub fn flows_add(&mut self, requests: FlowAdds) -> Result<Done> {
        let requests = requests.0;
        let save = requests.iter().any(|request| request.save);
        if requests.iter().any(|request| request.save != save) {
            return Err(Error::invalid(
                "some of the rules are to be saved, and some are not: save all of them or none",
            ));
        }
        let mut list = self.book.entries.clone();
        for FlowAdd { flow, before, .. } in &requests {
            self.may_be_added(&list, flow)?;
            let at = match before {
                Some(before) => match list.iter().position(|e| e.rule.name == *before) {
                    Some(at) => at,
                    // Says which there are.
                    None => self.book.position(before)?,
                },
                None => list.len(),
            };
            let file = save.then(|| fingerprint(flow));
            let entry = Entry {
                id: 0,
                rule: flow.clone(),
                file,
            };
            list.insert(at, entry);
        }
        let names: Vec<_> = requests.iter().map(|r| r.flow.name.clone()).collect();
        let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let message = match &quoted[..] {
            [] => return Err(Error::invalid("no flow rule to add is named")),
            [one] => format!("flow rule {one} added"),
            all => format!("flow rules {} added", all.join(", ")),
        };
        self.commit(list, save, |d| {
            let mut all = requests.iter();
            all.try_for_each(|r| d.put_flow(&r.flow, r.before.as_ref()))
        })?;
        let warnings = names.iter().flat_map(|name| self.warnings_for(name));
        Ok(Done {
            message,
            warnings: warnings.collect(),
        })
    }

    fn may_be_added(&self, list: &[Entry], rule: &FlowRule) -> Result<()> {
        rule.check().map_err(Error::invalid)?;
        self.knows_media(rule)?;
        if list.iter().any(|e| e.rule.name == rule.name) {
            return Err(
                Error::conflict(format!("there is a flow rule \"{}\" already", rule.name))
                    .hint(format!("bestby flow set {} changes it", rule.name)),
            );
        }
        Ok(())
    }

    /// Changes a rule; its counters continue.
    ///
    /// # Errors
    /// There is no such rule, or the changed one is not valid.
    pub fn flow_set(&mut self, name: &FlowName, request: &FlowSet) -> Result<Done> {
        let at = self.book.position(name)?;
        let rule = request
            .change
            .apply(&self.book.entries[at].rule)
            .map_err(Error::invalid)?;
        self.knows_media(&rule)?;
        let mut list = self.book.entries.clone();
        list[at].rule = rule.clone();
        if request.save {
            list[at].file = Some(fingerprint(&rule));
        }
        self.commit(list, request.save, |d| d.put_flow(&rule, None))?;
        Ok(Done {
            message: format!("flow rule \"{name}\" changed"),
            warnings: self.warnings_for(name),
        })
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn flow_remove(&mut self, name: &FlowName, save: bool) -> Result<Done> {
        let at = self.book.position(name)?;
        let mut list = self.book.entries.clone();
        let entry = list.remove(at);
        let mut warnings = Vec::new();
        if entry.file.is_some() && !save {
            warnings
                .push("the configuration file still has it: --save removes it there, too".into());
        }
        self.commit(list, save, |d| d.remove_flow(name).map(drop))?;
        Ok(Done {
            message: format!("flow rule \"{name}\" removed"),
            warnings,
        })
    }

    /// Why a rule matches nothing: it waits, or compares cgroups where packets come without a socket.
    pub(crate) fn matches_nothing(&self, rule: &FlowRule, packets_in: u64) -> Option<String> {
        if let Some((_, why)) = self.waiting.iter().find(|(name, _)| *name == rule.name) {
            return Some(why.clone());
        }
        if rule.cgroup.is_none() || packets_in > 0 {
            return None;
        }
        let routed = self.shared.global.get(&abi::BB_G_NO_CGROUP).ok()??;
        (routed > 0).then(|| {
            format!("{routed} routed flows were seen, which have no socket and so no cgroup: match a routed container by its ports, by --src if its address is not translated, \
                 or by a mark of the host's firewall (--mark)")
        })
    }

    fn info(&self, position: usize, entry: &Entry) -> Result<FlowInfo> {
        let counters = maps::counters(
            &self
                .shared
                .rule_stats
                .get(&u32::from(entry.id))?
                .unwrap_or_default(),
        );
        Ok(FlowInfo {
            position: u32::try_from(position + 1).unwrap_or(u32::MAX),
            flow: entry.rule.clone(),
            saved: entry.file == Some(fingerprint(&entry.rule)),
            matches_nothing: self.matches_nothing(&entry.rule, counters.packets_in),
            counters,
        })
    }

    /// All rules in order.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn flows(&self) -> Result<Vec<FlowInfo>> {
        self.book
            .entries
            .iter()
            .enumerate()
            .map(|(i, e)| self.info(i, e))
            .collect()
    }

    /// One rule.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn flow(&self, name: &FlowName) -> Result<FlowInfo> {
        let at = self.book.position(name)?;
        self.info(at, &self.book.entries[at])
    }
}
