//! From what is wanted of the interfaces and what is there to the steps between. Pure.

use std::collections::BTreeMap;

use bestby_api::{DevName, InterfaceSettings};

use crate::desired::interfaces::Wanted;

/// What is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// Devices of the host, with their indices.
    pub devices: BTreeMap<DevName, u32>,
    /// Settings in force.
    pub attached: BTreeMap<DevName, InterfaceSettings>,
}

/// A field that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub field: &'static str,
    /// What it was.
    pub from: String,
    /// What it will be.
    pub to: String,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} -> {}", self.field, self.from, self.to)
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take an interface.
    Attach(InterfaceSettings),
    /// Change what is in force.
    Change(InterfaceSettings, Vec<Change>),
    /// Give an interface back.
    Detach(DevName),
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Attach(settings) => {
                write!(f, "attach {}", settings.dev)?;
                let fields = settings.fields();
                let default = InterfaceSettings::new(settings.dev.clone()).fields();
                for ((name, is), (_, default)) in fields.iter().zip(&default) {
                    if is != default {
                        write!(f, " {name} {is}")?;
                    }
                }
                Ok(())
            }
            Self::Change(settings, changes) => {
                let all: Vec<String> = changes.iter().map(ToString::to_string).collect();
                write!(f, "change {}: {}", settings.dev, all.join(", "))
            }
            Self::Detach(dev) => write!(f, "detach {dev}"),
        }
    }
}

/// What to do, and what cannot be done yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// Interfaces that are wanted and have no device.
    pub waiting: Vec<DevName>,
}

/// The settings that will be in force; who observes, or does not, goes on with it until somebody says otherwise.
#[must_use]
pub fn settled(wanted: &Wanted, in_force: Option<&InterfaceSettings>) -> InterfaceSettings {
    let mut settings = wanted.settings.clone();
    if let Some(now) = in_force
        && !wanted.is_said("observe")
    {
        settings.observe = now.observe;
    }
    settings
}

/// Fields in which two settings differ.
#[must_use]
pub fn changes(from: &InterfaceSettings, to: &InterfaceSettings) -> Vec<Change> {
    let (old, new) = (from.fields(), to.fields());
    let pairs = old.into_iter().zip(new);
    pairs
        .filter(|((_, from), (_, to))| from != to)
        .map(|((field, from), (_, to))| Change { field, from, to })
        .collect()
}

/// The steps from what is there to what is wanted.
#[must_use]
pub fn plan(wanted: &BTreeMap<DevName, Wanted>, observed: &Observed) -> Plan {
    let mut plan = Plan::default();
    for dev in observed.attached.keys() {
        if !wanted.contains_key(dev) {
            plan.steps.push(Step::Detach(dev.clone()));
        }
    }
    for (dev, wanted) in wanted {
        let in_force = observed.attached.get(dev);
        let settings = settled(wanted, in_force);
        match in_force {
            Some(now) => {
                let changes = changes(now, &settings);
                if !changes.is_empty() {
                    plan.steps.push(Step::Change(settings, changes));
                }
            }
            None if observed.devices.contains_key(dev) => plan.steps.push(Step::Attach(settings)),
            None => plan.waiting.push(dev.clone()),
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use bestby_api::{AttachRequest, LinkRate, Rate};
    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;
    use crate::desired::book::Merge;
    use crate::desired::interfaces::{Interfaces, Said, read};

    fn devs() -> Vec<DevName> {
        ["a", "b", "c"].map(|d| d.parse().unwrap()).to_vec()
    }

    prop_compose! {
        fn request(dev: DevName)(rate in of(of(125u64..1000)), observe in of(any::<bool>()), overhead in of(0u64..9))
            -> AttachRequest {
            let mut request = AttachRequest::new(dev.clone());
            request.rate = rate.map(|r| r.and_then(Rate::from_bytes_per_s).map(LinkRate::Fixed));
            request.observe = observe;
            request.overhead = overhead.and_then(|o| bestby_api::Overhead::try_from(o).ok());
            request
        }
    }

    fn said() -> impl Strategy<Value = Interfaces> {
        let one = |dev: DevName| {
            (
                of(request(dev.clone())),
                of(request(dev.clone())),
                any::<bool>(),
            )
                .prop_map(move |(file, command, detached)| {
                    let said = Said {
                        file,
                        command,
                        detached,
                    };
                    (dev.clone(), said)
                })
        };
        let all: Vec<_> = devs().into_iter().map(one).collect();
        all.prop_map(|all| all.into_iter().collect())
    }

    fn observed() -> impl Strategy<Value = Observed> {
        let one = |dev: DevName| {
            let name = dev.clone();
            (any::<bool>(), of(request(dev)))
                .prop_map(move |(there, attached)| (name.clone(), there, attached))
        };
        let all: Vec<_> = devs().into_iter().map(one).collect();
        all.prop_map(|all| {
            let mut observed = Observed::default();
            for (index, (dev, there, attached)) in (1..).zip(all) {
                if there || attached.is_some() {
                    observed.devices.insert(dev.clone(), index);
                }
                if let Some(request) = attached {
                    observed.attached.insert(dev, request.settings());
                }
            }
            observed
        })
    }

    fn wanted(said: &Interfaces) -> BTreeMap<DevName, Wanted> {
        let all = said.iter();
        all.filter_map(|(dev, said)| Some((dev.clone(), said.wanted()?)))
            .collect()
    }

    fn carried_out(mut observed: Observed, plan: &Plan) -> Observed {
        for step in &plan.steps {
            match step {
                Step::Attach(s) | Step::Change(s, _) => {
                    observed.attached.insert(s.dev.clone(), s.clone());
                }
                Step::Detach(dev) => drop(observed.attached.remove(dev)),
            }
        }
        observed
    }

    proptest! {
        #[test]
        fn plan_after_its_steps_is_empty(said in said(), observed in observed()) {
            let wanted = wanted(&said);
            let first = plan(&wanted, &observed);
            let then = plan(&wanted, &carried_out(observed, &first));
            prop_assert_eq!(then.steps, vec![]);
            prop_assert_eq!(then.waiting, first.waiting);
        }

        /// Neither by an attach: a new interface observes.
        #[test]
        fn new_interface_drops_only_if_somebody_says_so(said in said(), observed in observed()) {
            for step in plan(&wanted(&said), &observed).steps {
                let Step::Attach(settings) = step else { continue };
                let said = &said[&settings.dev];
                let layers = said.file.iter().chain(&said.command);
                let explicit = layers.last().is_some_and(|r| r.observe == Some(false))
                    || said.file.as_ref().is_some_and(|r| r.observe == Some(false));
                prop_assert!(settings.observe || explicit);
            }
        }

        /// Whatever the file says and however it is read.
        #[test]
        fn observe_ends_only_by_an_explicit_word(
            said in said(), files in prop::collection::vec(said(), 1..3), observed in observed(), reload: bool,
        ) {
            let mut said = said;
            let mut observed = observed;
            let how = if reload { Merge::Reload } else { Merge::Adopt };
            for file in files {
                let file: Vec<AttachRequest> = file.into_values().filter_map(|s| s.file).collect();
                said = read(&said, &file, how);
                let steps = plan(&wanted(&said), &observed);
                for step in &steps.steps {
                    let Step::Change(to, _) = step else { continue };
                    let explicit = said[&to.dev].file.iter().chain(&said[&to.dev].command)
                        .any(|r| r.observe == Some(false));
                    prop_assert!(to.observe || !observed.attached[&to.dev].observe || explicit);
                }
                observed = carried_out(observed, &steps);
            }
        }
    }
}
