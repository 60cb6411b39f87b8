//! One live line on a terminal; elsewhere a line each five seconds.

use std::{
    cell::Cell,
    io::{IsTerminal as _, Write as _},
    time::Duration,
};

use super::{
    Plan,
    account::{self, Received, Sent},
};
use crate::sys::now;

/// Where progress is shown: stderr, so that stdout has the result only.
#[derive(Debug)]
pub(super) struct Progress {
    terminal: bool,
    /// Second of the last line printed elsewhere than on a terminal.
    printed_s: Cell<Option<u64>>,
}

const BAR: usize = 24;
const EVERY_S: u64 = 5;

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            printed_s: Cell::new(None),
        }
    }

    /// A step that has no measure of progress.
    pub(super) fn note(&self, text: &str) {
        note!("{text} ...");
    }

    /// How far a run is and how it goes, from the packets whose fate is known.
    pub(super) fn update(
        &self,
        title: &str,
        elapsed: Duration,
        plan: &Plan,
        sent: &[Sent],
        received: &[Received],
    ) {
        let second = elapsed.as_secs();
        if !self.terminal {
            let due = self.printed_s.get().map_or(EVERY_S, |last| last + EVERY_S);
            if second < due {
                return;
            }
            self.printed_s.set(Some(second));
        }
        let longest_ms = plan.video_lifetime_ms.max(plan.audio_lifetime_ms);
        let decided_ns = now().saturating_sub(longest_ms * 1_000_000);
        let decided = sent.partition_point(|s| s.at_ns < decided_ns);
        let (figures, _) = account::judge(&sent[..decided], received, plan.lifetimes());
        let line = line(title, elapsed, plan.media.seconds, &figures);
        let mut err = std::io::stderr().lock();
        let _ = if self.terminal {
            write!(err, "\r{line}\x1b[K").and_then(|()| err.flush())
        } else {
            writeln!(err, "{line}")
        };
    }

    /// The run is over: keep the last line.
    pub(super) fn end(&self) {
        if self.terminal {
            note!("");
        }
    }
}

fn line(title: &str, elapsed: Duration, seconds: u32, figures: &account::Figures) -> String {
    let share = |part: u64, whole: u64| match whole {
        0 => "  - %".to_owned(),
        _ => format!("{:3.0} %", part as f64 * 100.0 / whole as f64),
    };
    let done = elapsed.as_secs_f64().min(f64::from(seconds));
    let filled = (done / f64::from(seconds) * BAR as f64) as usize;
    let state = if elapsed.as_secs() > u64::from(seconds) {
        "emptying the queue".to_owned()
    } else {
        format!("{done:4.1} of {seconds} s")
    };
    format!(
        "{title:<36} {}{} {state:<18}  on time: audio {}, video frames {}",
        "█".repeat(filled),
        "░".repeat(BAR - filled),
        share(figures.audio.on_time, figures.audio.offered),
        share(figures.frames.on_time, figures.frames.offered),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_time_and_shares() {
        let mut figures = account::Figures::default();
        figures.audio.offered = 4;
        figures.audio.on_time = 3;
        let text = line("FIFO", Duration::from_secs(5), 10, &figures);
        assert!(
            text.contains("5.0 of 10 s") && text.contains("audio  75 %"),
            "{text}"
        );
        assert!(text.contains("frames   - %"), "{text}");
        assert_eq!(text.matches('█').count(), 12);
        let text = line("FIFO", Duration::from_secs(13), 10, &figures);
        assert!(text.contains("emptying"), "{text}");
    }
}
