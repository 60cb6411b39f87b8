//! What `top` knows, and what the person at the keyboard chose.

use std::collections::BTreeMap;
use std::time::Instant;

use bestby_api::{Counters, Drops, Event, InterfaceInfo, SessionInfo, SessionList, Stats};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::slack::Slack;
use crate::rank::Sort;

/// The agent's answers of one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picture {
    pub(crate) stats: Stats,
    pub(crate) interfaces: Vec<InterfaceInfo>,
    /// Asked for only while one is looked at: there may be thousands.
    pub(crate) sessions: Option<SessionList>,
}

/// Two pictures, the time between them, and what is to be seen of them.
#[derive(Debug)]
pub(crate) struct View {
    before: Picture,
    pub(crate) now: Picture,
    /// When the agent last answered.
    pub(crate) answered: Instant,
    /// Between the pictures; 0: there is only one.
    pub(crate) seconds: f64,
    /// Why there was no answer; empty: there was one.
    pub(crate) trouble: String,
    pub(crate) sort: Sort,
    pub(crate) filter: String,
    /// The filter is being typed.
    pub(crate) typing: bool,
    pub(crate) paused: bool,
    /// Row among the sessions shown.
    pub(crate) selected: usize,
    /// The session that is looked at.
    pub(crate) detail: Option<String>,
    /// Of the notices since it is looked at.
    pub(crate) slack: Slack,
}

/// What one line shows: the change per second, and the queue now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Per second; `queued` is what is queued now.
    pub(crate) rate: Counters,
    /// Dropped of what came in during the interval, percent.
    pub(crate) loss: f64,
    /// Since the agent's data path began.
    pub(crate) total: Counters,
}

impl View {
    pub(crate) fn new(first: Picture, now: Instant) -> Self {
        Self {
            before: first.clone(),
            now: first,
            answered: now,
            seconds: 0.0,
            trouble: String::new(),
            sort: Sort::Dropped,
            filter: String::new(),
            typing: false,
            paused: false,
            selected: 0,
            detail: None,
            slack: Slack::default(),
        }
    }

    /// A new picture takes the place of the last one.
    pub(crate) fn take(&mut self, picture: Picture, now: Instant) {
        self.before = std::mem::replace(&mut self.now, picture);
        self.seconds = (now - self.answered).as_secs_f64();
        self.answered = now;
        self.trouble.clear();
    }

    /// A drop notice counts if it is of the session that is looked at.
    pub(crate) fn notice(&mut self, event: &Event) {
        if self.detail.as_deref() == Some(&event.session) {
            self.slack.add(event);
        }
    }

    /// Does what a key asks for; true: end.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => {
                    self.typing = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(c) if !control => self.filter.push(c),
                _ => {}
            }
            self.selected = 0;
            return false;
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Esc | KeyCode::Backspace if self.detail.is_some() => self.detail = None,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return true,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('/') if self.detail.is_none() => self.typing = true,
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(20),
            KeyCode::PageUp => self.step(-20),
            KeyCode::Home => self.selected = 0,
            KeyCode::Enter => {
                let session = self.sessions().into_iter().nth(self.selected);
                self.detail = session.map(|row| row.name);
                self.slack = Slack::default();
            }
            _ => {}
        }
        false
    }

    fn step(&mut self, rows: isize) {
        let last = self.sessions().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(rows).min(last);
    }

    /// Whether anything is observed only.
    pub(crate) fn observes(&self) -> bool {
        self.now.interfaces.iter().any(|i| i.observe)
            || self
                .now
                .stats
                .interfaces
                .values()
                .any(|c| c.would_drop.total() > 0)
    }

    /// Interfaces, by name. In mode tc what is queued is in the leaves of the tree.
    pub(crate) fn interfaces(&self) -> Vec<Row> {
        let mut rows = rates(
            &self.before.stats.interfaces,
            &self.now.stats.interfaces,
            self.seconds,
        );
        for row in &mut rows {
            if let Some(leaves) = self.now.stats.leaves.get(&row.name) {
                row.rate.queued = leaves.iter().map(|l| l.queued).sum();
            }
        }
        rows
    }

    /// Flows that pass the filter, sorted.
    pub(crate) fn flows(&self) -> Vec<Row> {
        self.chosen(&self.before.stats.flows, &self.now.stats.flows)
    }

    /// Sessions that pass the filter, sorted.
    pub(crate) fn sessions(&self) -> Vec<Row> {
        self.chosen(&self.before.stats.sessions, &self.now.stats.sessions)
    }

    fn chosen(
        &self,
        before: &BTreeMap<String, Counters>,
        now: &BTreeMap<String, Counters>,
    ) -> Vec<Row> {
        let mut rows = rates(before, now, self.seconds);
        rows.retain(|row| row.name.contains(&self.filter));
        self.sort.sort(&mut rows, |row| &row.rate);
        rows
    }

    /// Row and description of the session that is looked at; the description comes with the next answer.
    pub(crate) fn looked_at(&self) -> Option<(Row, Option<&SessionInfo>)> {
        let name = self.detail.as_ref()?;
        let (before, now) = (&self.before.stats.sessions, &self.now.stats.sessions);
        let one = |all: &BTreeMap<String, Counters>| {
            let counters = all.get(name).copied();
            counters.map(|c| (name.clone(), c)).into_iter().collect()
        };
        let row = rates(&one(before), &one(now), self.seconds).pop()?;
        let list = self.now.sessions.as_ref();
        let info = list.and_then(|list| list.sessions.iter().find(|s| s.name == *name));
        Some((row, info))
    }
}

/// Per second, from two pictures; a counter that began anew counts as no change.
fn rates(
    before: &BTreeMap<String, Counters>,
    now: &BTreeMap<String, Counters>,
    seconds: f64,
) -> Vec<Row> {
    let change = |new: u64, old: u64| {
        if seconds <= 0.0 {
            return 0;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let rounded = (new.saturating_sub(old) as f64 / seconds).round() as u64;
        rounded
    };
    let drops = |new: &Drops, old: &Drops| Drops {
        stale: change(new.stale, old.stale),
        adu: change(new.adu, old.adu),
        overflow: change(new.overflow, old.overflow),
        evicted: change(new.evicted, old.evicted),
        predicted: change(new.predicted, old.predicted),
        codel: change(new.codel, old.codel),
        chain: change(new.chain, old.chain),
    };
    now.iter()
        .map(|(name, now)| {
            // What is new began at 0.
            let old = before.get(name).copied().unwrap_or_default();
            let arrived = now.packets_in.saturating_sub(old.packets_in);
            let dropped = now.dropped.total().saturating_sub(old.dropped.total());
            #[allow(clippy::cast_precision_loss)]
            let loss = if arrived == 0 {
                0.0
            } else {
                100.0 * dropped as f64 / arrived as f64
            };
            Row {
                name: name.clone(),
                rate: Counters {
                    packets_in: change(now.packets_in, old.packets_in),
                    bytes_in: change(now.bytes_in, old.bytes_in),
                    packets_sent: change(now.packets_sent, old.packets_sent),
                    bytes_sent: change(now.bytes_sent, old.bytes_sent),
                    queued: now.queued,
                    dropped: drops(&now.dropped, &old.dropped),
                    sent_stale: change(now.sent_stale, old.sent_stale),
                    truncated: change(now.truncated, old.truncated),
                    would_drop: drops(&now.would_drop, &old.would_drop),
                },
                loss,
                total: *now,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(n: u64) -> BTreeMap<String, Counters> {
        let counters = Counters {
            packets_in: 100 * n,
            dropped: Drops {
                stale: 10 * n,
                ..Drops::default()
            },
            ..Counters::default()
        };
        [("video".to_string(), counters)].into()
    }

    #[test]
    fn rate_over_no_time_or_of_a_new_agent_is_0() {
        // The first picture has nothing to compare with; a new agent begins at 0.
        assert_eq!(rates(&counted(1), &counted(1), 0.0)[0].rate.packets_in, 0);
        assert_eq!(rates(&counted(9), &counted(1), 1.0)[0].rate.packets_in, 0);
        let row = &rates(&BTreeMap::new(), &counted(1), 2.0)[0];
        assert_eq!((row.rate.packets_in, row.rate.dropped.stale), (50, 5));
        assert!((row.loss - 10.0).abs() < 1e-9);
        assert!(rates(&BTreeMap::new(), &BTreeMap::new(), 1.0).is_empty());
    }

    #[test]
    fn keys_sort_filter_pause_and_open_a_session() {
        let mut stats = Stats::default();
        for name in ["v0/10.0.0.1", "v0/10.0.0.2", "v1/10.0.0.1"] {
            stats.sessions.insert(name.into(), Counters::default());
        }
        let picture = Picture {
            stats,
            ..Picture::default()
        };
        let mut view = View::new(picture, Instant::now());
        let press = |view: &mut View, code| view.key(KeyEvent::from(code));
        for c in "/v0/".chars() {
            assert!(!press(&mut view, KeyCode::Char(c)));
        }
        // While a filter is typed, no letter is a command.
        assert!(view.typing && !press(&mut view, KeyCode::Char('q')));
        assert_eq!(view.filter, "v0/q");
        press(&mut view, KeyCode::Backspace);
        press(&mut view, KeyCode::Enter);
        assert_eq!(view.sessions().len(), 2);
        for _ in 0..5 {
            press(&mut view, KeyCode::Down);
        }
        press(&mut view, KeyCode::Enter);
        assert_eq!(view.detail.as_deref(), Some("v0/10.0.0.2"));
        press(&mut view, KeyCode::Char('p'));
        assert!(view.paused);
        press(&mut view, KeyCode::Char('s'));
        assert_eq!(view.sort, Sort::Dropped.next());
        // Escape goes back step by step, then ends.
        assert!(!press(&mut view, KeyCode::Esc) && view.detail.is_none());
        assert!(!press(&mut view, KeyCode::Esc) && view.filter.is_empty());
        assert!(press(&mut view, KeyCode::Esc));
    }
}
