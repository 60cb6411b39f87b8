//! What happens to the runs of a series, as it happens: to the lab itself, or from a
//! guest to the lab outside, one line of JSON each.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::job::Job;

/// What happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fate {
    /// It is under way.
    Begun,
    /// It is kept; what came of it, in a few words.
    Done(String),
    /// There is no such queue here: where not, and why.
    Absent(String),
    /// It failed: why.
    Failed(String),
}

/// Names a run. Both sides read the same scenarios, so it names the same one to both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Name {
    scenario: String,
    cell: String,
    number: u32,
}

impl Name {
    pub(super) fn of(job: &Job<'_>) -> Self {
        Self {
            scenario: job.scenario.name.clone(),
            cell: job.cell.id.clone(),
            number: job.number,
        }
    }
}

/// A line from a guest.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The results' directory is open, and runs of something else are out of it.
    Open,
    /// Something happened to a run.
    Run {
        /// To which.
        name: Name,
        /// What.
        fate: Fate,
    },
    /// The series cannot go on.
    Broken {
        /// Why.
        why: String,
    },
}

impl Event {
    /// `line` as an event; `None` if it is something else that a guest prints.
    pub(super) fn parse(line: &str) -> Option<Self> {
        // Cheap, and most lines are events.
        line.starts_with(r#"{"event":"#)
            .then(|| serde_json::from_str(line).ok())
            .flatten()
    }

    /// Prints it.
    pub(super) fn send(&self) -> Result<()> {
        say!("{}", serde_json::to_string(self)?);
        Ok(())
    }
}

/// Who is told what happens to runs.
pub(super) trait Listener {
    /// An error ends the series.
    fn hear(&mut self, job: &Job<'_>, fate: Fate) -> Result<()>;
}

/// The lab outside of the guest in which this process is.
pub(super) struct Outside;

impl Listener for Outside {
    fn hear(&mut self, job: &Job<'_>, fate: Fate) -> Result<()> {
        let name = Name::of(job);
        Event::Run { name, fate }.send()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_and_other_lines_are_none() {
        let name = Name {
            scenario: "s".into(),
            cell: "owd=5_pfifo-5".into(),
            number: 3,
        };
        for fate in [
            Fate::Begun,
            Fate::Done("audio 99 %\nstale \"0\"".into()),
            Fate::Absent("no".into()),
            Fate::Failed("broken".into()),
        ] {
            let name = name.clone();
            let event = Event::Run { name, fate };
            let line = serde_json::to_string(&event).expect("JSON");
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(Event::parse(&line), Some(event));
        }
        let line = serde_json::to_string(&Event::Open).expect("JSON");
        assert_eq!(Event::parse(&line), Some(Event::Open));
        assert_eq!(Event::parse("no netem here"), None);
        assert_eq!(Event::parse(r#"{"event":"run","name":{"scen"#), None);
    }
}
