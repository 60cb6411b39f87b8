//! The list of flow rules: order, kernel ids, and what of it the file knows. Pure.
//!
//! A rule keeps its id as long as it keeps its name, so that its counters continue across changes,
//! reordering and reloads. A freed id rests before it is used again: packets still queued carry it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bestby_api::{FlowName, FlowRule};
use bestby_bpf::abi;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Between the places of two neighbours of the list, so that others find a place between them.
const GAP: u64 = 1 << 32;

/// How long a freed id is not used again, as long as others are free.
const REST: Duration = Duration::from_secs(60);

/// One rule in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Index in `bb_rules` and `bb_rule_stats`.
    pub id: u16,
    /// What the operator said.
    pub rule: FlowRule,
    /// Fingerprint of what the file said about this name when it was read last; `None`: it did not.
    pub file: Option<u64>,
}

/// A rule as it is remembered across restarts of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Place in the list: only their order counts.
    #[serde(rename = "o")]
    pub place: u64,
    /// The rule.
    #[serde(rename = "r")]
    pub rule: FlowRule,
    /// See [`Entry::file`].
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub file: Option<u64>,
}

/// What to do with rules that were changed at run time when a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The agent starts: what runs goes on, unless the file says something new.
    Adopt,
    /// The operator asked for the file (SIGHUP): for names it has, the file wins.
    Reload,
}

/// Fingerprint of a rule (FNV-1a of its JSON): equal texts, equal fingerprints, across versions.
pub fn fingerprint(rule: &FlowRule) -> u64 {
    serde_json::to_vec(rule)
        .unwrap_or_default()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| {
            (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// The list and its free ids.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// Rules in the operator's order.
    pub entries: Vec<Entry>,
    /// Where each id of `entries` is kept.
    places: HashMap<u16, u64>,
    freed: Vec<(u16, Instant)>,
    next: u16,
}

impl Book {
    /// The list that an earlier agent kept.
    pub fn adopt(kept: Vec<(u32, Kept)>) -> Self {
        let mut kept: Vec<(u16, Kept)> = kept
            .into_iter()
            .filter_map(|(id, k)| Some((u16::try_from(id).ok().filter(|id| *id > 0)?, k)))
            .collect();
        kept.sort_by_key(|(id, k)| (k.place, *id));
        let places = kept.iter().map(|(id, k)| (*id, k.place)).collect();
        let mut names = HashSet::new();
        let entries: Vec<Entry> = kept
            .into_iter()
            .filter(|(_, k)| names.insert(k.rule.name.clone()))
            .map(|(id, k)| Entry {
                id,
                rule: k.rule,
                file: k.file,
            })
            .collect();
        let next = entries.iter().map(|e| e.id).max().unwrap_or(0);
        Self {
            entries,
            places,
            freed: Vec::new(),
            next,
        }
    }

    /// Where each entry of a list is kept, all with ids. What is in order stays where it is: whoever adds or removes a
    /// rule writes no record but that rule's, so that an agent killed meanwhile leaves the old list or the new one.
    /// Without room between two neighbours all move behind the last place; written from the last to the first, they
    /// are in order at each moment.
    pub fn places(&self, list: &[Entry]) -> Vec<u64> {
        let mut places = Vec::with_capacity(list.len());
        let mut from = 0;
        while places.len() < list.len() {
            let rest = &list[places.len()..];
            let known = rest.iter().enumerate().find_map(|(i, e)| {
                let place = *self.places.get(&e.id)?;
                (place >= from).then_some((i, place))
            });
            // So many are new, or out of order.
            let (count, step) = match known {
                Some((count, place)) => (count, (place - from) / (count as u64 + 1)),
                None => (rest.len(), GAP),
            };
            if count > 0 && step == 0 {
                let last = self.places.values().max().copied().unwrap_or(0);
                return (1..=list.len() as u64).map(|n| last + n * GAP).collect();
            }
            places.extend((1..=count as u64).map(|n| from + n * step));
            places.extend(known.map(|(_, place)| place));
            from = places.last().map_or(from, |last| last + 1);
        }
        places
    }

    /// Where an entry is kept now.
    pub fn place(&self, id: u16) -> Option<u64> {
        self.places.get(&id).copied()
    }

    /// A rule by name.
    pub fn find(&self, name: &FlowName) -> Option<&Entry> {
        self.entries.iter().find(|e| e.rule.name == *name)
    }

    /// Place of a rule.
    ///
    /// # Errors
    /// There is none of that name (missing, with those that exist).
    pub fn position(&self, name: &FlowName) -> Result<usize> {
        self.entries
            .iter()
            .position(|e| e.rule.name == *name)
            .ok_or_else(|| {
                let names: Vec<&str> = self
                    .entries
                    .iter()
                    .map(|e| e.rule.name.as_str())
                    .take(10)
                    .collect();
                Error::missing(format!("there is no flow rule \"{name}\"")).hint(
                    if names.is_empty() {
                        "there are no flow rules at all".to_string()
                    } else {
                        format!("flow rules: {}", names.join(", "))
                    },
                )
            })
    }

    /// Gives each entry that has none an id, and returns these; `busy` says whether packets with an id are still
    /// queued. One packet of each transmit queue may escape it: what waits alone there is counted when it leaves.
    /// Should that last longer than a freed id rests, the packet counts for the id's next rule.
    ///
    /// # Errors
    /// All ids are taken.
    pub fn number(&mut self, list: &mut [Entry], busy: impl Fn(u16) -> bool) -> Result<Vec<u16>> {
        // What runs keeps its ids until the new list is in force, also those that the new list gives up.
        let mut held: HashSet<u16> = self.entries.iter().map(|e| e.id).collect();
        held.extend(list.iter().map(|e| e.id));
        let mut fresh = Vec::new();
        for entry in list.iter_mut().filter(|e| e.id == 0) {
            entry.id = self.allocate(&held, &busy)?;
            held.insert(entry.id);
            fresh.push(entry.id);
        }
        Ok(fresh)
    }

    fn allocate(&mut self, held: &HashSet<u16>, busy: impl Fn(u16) -> bool) -> Result<u16> {
        let max = u16::try_from(abi::BB_MAX_RULES - 1).unwrap_or(u16::MAX);
        while self.next < max {
            self.next += 1;
            if !busy(self.next) {
                return Ok(self.next);
            }
            self.freed.push((self.next, Instant::now()));
        }
        // After a restart, ids below `next` that nobody holds are not in `freed`.
        let known: HashSet<u16> = self.freed.iter().map(|(id, _)| *id).collect();
        if let Some(id) =
            (1..=max).find(|id| !held.contains(id) && !known.contains(id) && !busy(*id))
        {
            self.freed.push((id, Instant::now()));
        }
        let rested = self
            .freed
            .iter()
            .position(|(id, since)| since.elapsed() >= REST && !held.contains(id) && !busy(*id));
        let at = rested.or_else(|| {
            self.freed
                .iter()
                .position(|(id, _)| !held.contains(id) && !busy(*id))
        });
        at.map(|i| self.freed.remove(i).0).ok_or_else(|| {
            Error::conflict(format!(
                "there are {max} flow rules already, and that is the most"
            ))
            .hint("remove some")
        })
    }

    /// Takes a new list; ids that it does not hold any more begin to rest.
    pub fn replace(&mut self, entries: Vec<Entry>) {
        let held: HashSet<u16> = entries.iter().map(|e| e.id).collect();
        let now = Instant::now();
        self.freed.retain(|(id, _)| !held.contains(id));
        for entry in &self.entries {
            if !held.contains(&entry.id) {
                self.freed.push((entry.id, now));
            }
        }
        let places = self.places(&entries);
        self.places = entries.iter().map(|e| e.id).zip(places).collect();
        self.entries = entries;
    }

    /// The list after reading a file; entries with id 0 need one.
    pub fn merged(&self, file: &[FlowRule], how: Merge) -> Vec<Entry> {
        let known: HashMap<&FlowName, &Entry> =
            self.entries.iter().map(|e| (&e.rule.name, e)).collect();
        let in_file: HashSet<&FlowName> = file.iter().map(|r| &r.name).collect();
        let mut list: Vec<Entry> = file
            .iter()
            .map(|rule| {
                let said = Some(fingerprint(rule));
                match known.get(&rule.name).copied() {
                    // Changed at run time, and the file says what it said before: the change stays.
                    Some(old) if how == Merge::Adopt && old.file == said => Entry {
                        file: said,
                        ..old.clone()
                    },
                    Some(old) => Entry {
                        id: old.id,
                        rule: rule.clone(),
                        file: said,
                    },
                    None => Entry {
                        id: 0,
                        rule: rule.clone(),
                        file: said,
                    },
                }
            })
            .collect();
        // Rules that only the running agent knows keep their place behind what preceded them.
        for (index, old) in self.entries.iter().enumerate() {
            if in_file.contains(&old.rule.name) || old.file.is_some() {
                continue; // there already, or removed from the file
            }
            let behind = self.entries[..index]
                .iter()
                .rev()
                .find_map(|earlier| list.iter().position(|e| e.rule.name == earlier.rule.name));
            list.insert(behind.map_or(0, |p| p + 1), old.clone());
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, ms: u64) -> FlowRule {
        let mut rule = FlowRule::new(name.parse().unwrap());
        rule.lifetime = bestby_api::Lifetime::from_ns(ms * 1_000_000).map(Into::into);
        rule
    }

    fn names(list: &[Entry]) -> Vec<(&str, u16, u64)> {
        list.iter()
            .map(|e| {
                (
                    e.rule.name.as_str(),
                    e.id,
                    e.rule.lifetime.unwrap().time().unwrap().as_ns() / 1_000_000,
                )
            })
            .collect()
    }

    #[test]
    fn adopt_keeps_runtime_changes_and_reload_undoes_them() {
        let mut book = Book::default();
        let entry = |id, rule: FlowRule, file: Option<&FlowRule>| Entry {
            id,
            rule,
            file: file.map(fingerprint),
        };
        book.replace(vec![
            entry(1, rule("a", 100), Some(&rule("a", 100))),
            entry(2, rule("mine", 5), None),
            entry(3, rule("b", 999), Some(&rule("b", 200))), // changed at run time
            entry(4, rule("gone", 1), Some(&rule("gone", 1))),
        ]);
        let file = [rule("b", 200), rule("a", 150), rule("new", 7)];
        assert_eq!(
            names(&book.merged(&file, Merge::Adopt)),
            [("b", 3, 999), ("a", 1, 150), ("mine", 2, 5), ("new", 0, 7)]
        );
        assert_eq!(
            names(&book.merged(&file, Merge::Reload)),
            [("b", 3, 200), ("a", 1, 150), ("mine", 2, 5), ("new", 0, 7)]
        );
    }

    /// One id for a new rule.
    fn allocate(book: &mut Book, busy: impl Fn(u16) -> bool) -> Result<u16> {
        let mut list = book.entries.clone();
        list.push(Entry {
            id: 0,
            rule: rule("new", 1),
            file: None,
        });
        book.number(&mut list, busy).map(|ids| ids[0])
    }

    #[test]
    fn rules_of_one_request_get_different_ids() {
        let max = u16::try_from(abi::BB_MAX_RULES - 1).unwrap();
        // After a restart: the highest id is in use, and which ids were freed is not known any more.
        let mut book = Book::adopt(vec![(
            u32::from(max),
            Kept {
                place: 0,
                rule: rule("last", 1),
                file: None,
            },
        )]);
        let mut list = book.entries.clone();
        for name in ["a", "b", "c"] {
            list.push(Entry {
                id: 0,
                rule: rule(name, 1),
                file: None,
            });
        }
        book.number(&mut list, |_| false).unwrap();
        let ids: HashSet<u16> = list.iter().map(|e| e.id).collect();
        assert_eq!(ids.len(), 4, "{list:?}");
    }

    #[test]
    fn freed_and_busy_ids_are_not_given_to_the_next_rule() {
        let mut book = Book::default();
        let a = allocate(&mut book, |_| false).unwrap();
        book.replace(vec![Entry {
            id: a,
            rule: rule("a", 1),
            file: None,
        }]);
        book.replace(vec![]);
        let b = allocate(&mut book, |_| false).unwrap();
        assert_ne!(a, b);
        let c = allocate(&mut book, |id| id == 3).unwrap();
        assert_eq!((b, c), (2, 4));
    }

    #[test]
    fn last_free_id_is_given_and_none_after_it() {
        let mut book = Book::default();
        let mut list = Vec::new();
        for n in 1..abi::BB_MAX_RULES {
            list.push(Entry {
                id: 0,
                rule: rule(&format!("r{n}"), 1),
                file: None,
            });
        }
        book.number(&mut list, |_| false).unwrap();
        let one = list.pop().unwrap();
        book.replace(list);
        assert_eq!(allocate(&mut book, |_| false).unwrap(), one.id);
        assert!(allocate(&mut book, |id| id == one.id).is_err());
    }

    #[test]
    fn list_is_the_old_or_the_new_one_after_each_record_written() {
        let entry = |id| Entry {
            id,
            rule: rule(&format!("r{id}"), 1),
            file: None,
        };
        let mut random = 7_u64;
        let mut next = move |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        let ids = |kept: &HashMap<u16, u64>| {
            let mut ids: Vec<u16> = kept.keys().copied().collect();
            ids.sort_by_key(|id| kept[id]);
            ids
        };
        // As an agent that numbered from 0 left it: no room between neighbours.
        let mut kept: HashMap<u16, u64> = (1..6).map(|id| (id, u64::from(id) - 1)).collect();
        let mut book = Book::adopt(
            kept.iter()
                .map(|(id, place)| {
                    let rule = entry(*id).rule;
                    let (place, file) = (*place, None);
                    (u32::from(*id), Kept { place, rule, file })
                })
                .collect(),
        );
        for round in 0..500_u16 {
            let mut list = book.entries.clone();
            let old: Vec<u16> = list.iter().map(|e| e.id).collect();
            if list.len() > 3 && next(5) < 2 {
                let gone = list.remove(next(list.len()));
                kept.remove(&gone.id);
            } else {
                // Often at the same place.
                list.insert(next(2).min(list.len()), entry(100 + round));
            }
            let new: Vec<u16> = list.iter().map(|e| e.id).collect();
            for (entry, place) in list.iter().zip(book.places(&list)).rev() {
                kept.insert(entry.id, place);
                let now = ids(&kept);
                assert!(now == old || now == new, "{old:?} to {new:?}: {now:?}");
            }
            book.replace(list);
            assert_eq!(ids(&kept), new);
        }
    }

    #[test]
    fn adopted_rules_come_back_in_order() {
        let kept = |place, name| Kept {
            place,
            rule: rule(name, 1),
            file: None,
        };
        let book = Book::adopt(vec![
            (9, kept(1, "b")),
            (4, kept(0, "a")),
            (0, kept(2, "bad")),
        ]);
        assert_eq!(names(&book.entries), [("a", 4, 1), ("b", 9, 1)]);
    }
}
