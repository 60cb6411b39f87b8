//! What is wanted of the interfaces: what the file says, what commands set, and which of the two a value is from. Pure.
//!
//! 1. A command's word wins over the file's, field by field, until the file says something new of that field.
//! 2. What nobody says has its default, except `observe`: an attached interface goes on as it is. A new one observes.
//! 3. An interface that a command detached stays detached until somebody asks for it again.

use std::collections::BTreeMap;

use bestby_api::{AttachRequest, DevName, InterfaceSettings};
use serde::{Deserialize, Serialize};

use crate::desired::book::Merge;

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The configuration file.
    File,
    /// A command.
    Command,
    /// Nobody.
    Default,
}

impl Origin {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Command => "command",
            Self::Default => "default",
        }
    }
}

/// What was said of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// `[[interface]]` of the file as it was read last.
    pub file: Option<AttachRequest>,
    /// What commands set.
    pub command: Option<AttachRequest>,
    /// A command detached it.
    pub detached: bool,
}

/// One layer of one interface, as it is remembered across restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Whose layer it is.
    #[serde(rename = "o")]
    pub origin: Origin,
    /// What was said.
    #[serde(rename = "r")]
    pub request: AttachRequest,
    /// A command detached it.
    #[serde(rename = "d", default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
}

/// What is wanted of an interface, each field with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The values.
    pub settings: InterfaceSettings,
    /// Who said which; a field that is not in it has its default.
    pub origin: BTreeMap<&'static str, Origin>,
}

impl Wanted {
    /// Whether somebody said so himself.
    pub fn is_said(&self, field: &str) -> bool {
        self.origin.contains_key(field)
    }
}

impl Said {
    /// What both layers ask for; `None`: that it is left alone.
    pub fn wanted(&self) -> Option<Wanted> {
        if self.detached {
            return None;
        }
        let both = match (&self.file, &self.command) {
            (Some(file), Some(command)) => file.with(command),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => return None,
        };
        let mut origin = BTreeMap::new();
        for (layer, name) in [(&self.file, Origin::File), (&self.command, Origin::Command)] {
            for field in layer.iter().flat_map(AttachRequest::said) {
                origin.insert(field, name);
            }
        }
        Some(Wanted {
            settings: both.settings(),
            origin,
        })
    }

    /// What is wanted once a command has said this, too.
    #[must_use]
    pub fn commanded(&self, request: &AttachRequest) -> Self {
        let before = match (&self.command, self.detached) {
            (Some(before), false) => before.clone(),
            _ => AttachRequest::new(request.dev.clone()),
        };
        Self {
            file: self.file.clone(),
            command: Some(before.with(request)),
            detached: false,
        }
    }

    /// What is wanted once the file says this; `None`: it does not have the interface any more.
    #[must_use]
    pub fn read(&self, file: Option<&AttachRequest>, how: Merge) -> Self {
        let Some(new) = file else {
            // What only the file asked for goes with it.
            let command = self.command.clone().filter(|_| self.file.is_none());
            return Self {
                detached: self.detached && command.is_some(),
                command,
                file: None,
            };
        };
        let says = new.said();
        let command = self.command.as_ref().map(|command| {
            command.without(|field| {
                says.contains(&field)
                    && match (how, &self.file) {
                        (Merge::Reload, _) => true,
                        (Merge::Adopt, Some(old)) => !old.agrees(new, field),
                        (Merge::Adopt, None) => false,
                    }
            })
        });
        Self {
            command: command.filter(|c| !c.said().is_empty()),
            file: Some(new.clone()),
            detached: self.detached && how == Merge::Adopt,
        }
    }

    /// As it is remembered.
    pub fn kept(&self) -> Vec<Kept> {
        let layer = |request: &Option<AttachRequest>, origin, detached| {
            request.clone().map(|request| Kept {
                origin,
                request,
                detached,
            })
        };
        [
            layer(&self.file, Origin::File, self.detached),
            layer(&self.command, Origin::Command, self.detached),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Takes a remembered layer back.
    pub fn adopt(&mut self, kept: Kept) {
        self.detached |= kept.detached;
        match kept.origin {
            Origin::File => self.file = Some(kept.request),
            Origin::Command | Origin::Default => self.command = Some(kept.request),
        }
    }
}

/// What was said of each interface.
pub type Interfaces = BTreeMap<DevName, Said>;

/// What is wanted after the file was read.
#[must_use]
pub fn read(said: &Interfaces, file: &[AttachRequest], how: Merge) -> Interfaces {
    let mut names: Vec<&DevName> = said.keys().collect();
    names.extend(file.iter().map(|f| &f.dev));
    names
        .into_iter()
        .map(|dev| {
            let before = said.get(dev).cloned().unwrap_or_default();
            let new = file.iter().find(|f| f.dev == *dev);
            (dev.clone(), before.read(new, how))
        })
        .filter(|(_, said)| said.file.is_some() || said.command.is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(edit: impl FnOnce(&mut AttachRequest)) -> AttachRequest {
        let mut request = AttachRequest::new("eth0".parse().unwrap());
        edit(&mut request);
        request
    }

    fn rate(text: &str) -> AttachRequest {
        request(|r| r.rate = Some(text.parse().ok()))
    }

    #[test]
    fn command_wins_by_field_until_file_says_something_new() {
        let file = request(|r| {
            r.rate = Some("10mbit".parse().ok());
            r.observe = Some(true);
        });
        let said = Said::default().read(Some(&file), Merge::Adopt);
        let said = said.commanded(&rate("20mbit"));
        let wanted = said.wanted().unwrap();
        assert_eq!(wanted.settings.rate, "20mbit".parse().ok());
        assert!(wanted.settings.observe);
        assert_eq!(wanted.origin["rate"], Origin::Command);
        assert_eq!(wanted.origin["observe"], Origin::File);
        // A restart with the same file changes nothing, a reload takes the file's word.
        assert_eq!(said.read(Some(&file), Merge::Adopt), said);
        let reloaded = said.read(Some(&file), Merge::Reload).wanted().unwrap();
        assert_eq!(reloaded.settings.rate, "10mbit".parse().ok());
        // While the agent was down, the file changed its mind.
        let new = rate("30mbit").with(&request(|r| r.observe = Some(true)));
        let wanted = said.read(Some(&new), Merge::Adopt).wanted().unwrap();
        assert_eq!(wanted.settings.rate, "30mbit".parse().ok());
    }

    #[test]
    fn detached_interface_stays_detached_until_asked_for() {
        let file = rate("10mbit");
        let said = Said {
            detached: true,
            ..Said::default().read(Some(&file), Merge::Adopt)
        };
        assert_eq!(said.wanted(), None);
        assert_eq!(said.read(Some(&file), Merge::Adopt).wanted(), None);
        assert!(said.read(Some(&file), Merge::Reload).wanted().is_some());
        assert!(said.commanded(&rate("1mbit")).wanted().is_some());
    }

    #[test]
    fn kept_layers_are_adopted_as_they_were() {
        let said = Said::default()
            .read(Some(&rate("10mbit")), Merge::Adopt)
            .commanded(&request(|r| r.observe = Some(true)));
        let mut again = Said::default();
        for kept in said.kept() {
            let text = serde_json::to_string(&kept).unwrap();
            again.adopt(serde_json::from_str(&text).unwrap());
        }
        assert_eq!(again, said);
    }
}
