//! Reads the configuration file again: all of it comes into force, or nothing of it.
//!
//! 1. What can be known before is asked before: the file's syntax, rules that do not compile, root qdiscs of others.
//! 2. What the kernel refuses later is undone: rules, receivers and interfaces are brought back to what was in force.
//!
//! An interface without a device is no failure: it is attached when its device comes.

use std::collections::BTreeMap;

use bestby_api::{Config, DevName, Done, InterfaceSettings, MediaTables, RtpProfile};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::desired::book::{Entry, Merge};
use crate::desired::interfaces::Interfaces;
use crate::error::{Error, Result};

/// What is in force, as far as a file can change it.
struct InForce {
    config: Config,
    rules: Vec<Entry>,
    rtp_profile: RtpProfile,
    media_tables: MediaTables,
    peers: Vec<(abi::bb_addr, abi::bb_peer)>,
    said: Interfaces,
    attached: BTreeMap<DevName, InterfaceSettings>,
}

impl Datapath {
    /// Reads the file again.
    ///
    /// # Errors
    /// What is wrong in the file, or does not work; what was in force is in force.
    pub fn reload(&mut self) -> Result<Done> {
        let result = self.take_file();
        let why_not = result.as_ref().err().map(ToString::to_string);
        self.file_taken.again(why_not);
        result
    }

    fn take_file(&mut self) -> Result<Done> {
        let mut config = self.paths.config.read()?;
        let mut warnings = config.unsaid();
        warnings.extend(self.needs_restart(&mut config));
        let path = self.paths.config.path().display().to_string();
        let nothing = format!("nothing of {path} is in force");
        self.may_read_interfaces(&config.interfaces)
            .map_err(|e| e.within(&nothing))?;
        let before = self.in_force()?;
        if let Err(failed) = self.take(&config) {
            let undone = self.take_back(before);
            let failed = failed.within(&nothing);
            return Err(match undone {
                Ok(()) => failed,
                Err(e) => Error {
                    message: format!(
                        "{}; and not all is as it was before: {}",
                        failed.message, e.message
                    ),
                    ..failed
                },
            });
        }
        self.config = config;
        warnings.extend(self.mistakes().iter().map(ToString::to_string));
        warnings.extend(self.unknown_media());
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        Ok(Done {
            message: format!("{path} is in force"),
            warnings,
        })
    }

    fn in_force(&self) -> Result<InForce> {
        let attached = self.attached.values();
        Ok(InForce {
            config: self.config.clone(),
            rules: self.book.entries.clone(),
            rtp_profile: self.rtp_profile,
            media_tables: self.media_tables.clone(),
            peers: self.shared.peers.entries()?,
            said: self.wanted.said.clone(),
            attached: attached
                .map(|a| (a.dev.clone(), a.request.clone()))
                .collect(),
        })
    }

    fn take(&mut self, config: &Config) -> Result<()> {
        let list = self.book.merged(&config.flows, Merge::Reload);
        self.rtp_profile = config.rtp_profile;
        self.media_tables.clone_from(&config.media);
        self.put_rules(list)?;
        self.configure(config)?;
        self.set_peers(&config.peers)?;
        all(self.read_interfaces(&config.interfaces, Merge::Reload))?;
        self.follow_file(config.tcp_real.as_ref())
    }

    /// Brings back what was in force, as far as that works.
    fn take_back(&mut self, before: InForce) -> Result<()> {
        let mut problems = Vec::new();
        self.rtp_profile = before.rtp_profile;
        self.media_tables = before.media_tables;
        problems.extend(self.put_rules(before.rules).err());
        problems.extend(self.configure(&before.config).err());
        problems.extend(self.set_peers(&before.config.peers).err());
        for (key, peer) in &before.peers {
            problems.extend(self.shared.peers.set(key, peer).err());
        }
        problems.extend(self.say_again(before.said, &before.attached));
        let real = before.config.tcp_real.as_ref();
        problems.extend(self.follow_file(real).err());
        for problem in &problems {
            tracing::error!("going back after a refused reload: {problem}");
        }
        all(problems)
    }

    /// Keeps what a reload cannot change, and says so.
    pub(super) fn needs_restart(&self, config: &mut Config) -> Option<String> {
        let (now, new) = (&self.config.agent, &mut config.agent);
        let mut changed = Vec::new();
        if now.socket != new.socket {
            changed.push("socket");
        }
        if now.metrics != new.metrics {
            changed.push("metrics");
        }
        new.socket.clone_from(&now.socket);
        new.metrics = now.metrics;
        (!changed.is_empty()).then(|| {
            format!(
                "{} in [agent] changed: in force when bestbyd starts the next time (systemctl restart bestbyd)",
                changed.join(" and ")
            )
        })
    }
}

/// One error that says all of them.
pub(super) fn all(problems: Vec<Error>) -> Result<()> {
    let one = problems.into_iter().reduce(|a, b| Error {
        message: format!("{}\n{b}", a.message),
        ..a
    });
    one.map_or(Ok(()), Err)
}
