//! One line per finished run, with an estimate of the time that is left.

use std::time::{Duration, Instant};

use super::{job::Job, summary::RunSummary};
use crate::say::count;

/// How far a series is. Runs made at once count together, so the estimate holds for them.
#[derive(Debug)]
pub(super) struct Progress {
    total: usize,
    /// Finished before this start.
    before: usize,
    done: usize,
    started: Instant,
}

impl Progress {
    /// Of `total` runs, `before` of them finished already.
    pub(super) fn new(total: usize, before: usize) -> Self {
        Self {
            total,
            before,
            done: 0,
            started: Instant::now(),
        }
    }

    /// Counts a run, or one that cannot be made, and says where the series is.
    pub(super) fn count(&mut self) -> String {
        self.done += 1;
        self.position(self.started.elapsed())
    }

    fn position(&self, elapsed: Duration) -> String {
        let at = self.before + self.done;
        let left = self.total.saturating_sub(at) as u32;
        let mut text = format!("[{at}/{}", self.total);
        if left > 0 && self.done > 0 {
            text += &format!(
                ", {} left",
                words(elapsed * left / u32::try_from(self.done).unwrap_or(u32::MAX))
            );
        }
        text + "]"
    }
}

/// A duration for people: `40 s`, `12 min`, `3 h 05 min`.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds.div_ceil(60)) {
        (0, _) if seconds < 100 => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min"),
        (hours, _) => format!("{hours} h {:02} min", seconds % 3600 / 60),
    }
}

/// A run in a few words.
pub(super) fn describe(job: &Job<'_>, run: &RunSummary) -> String {
    let m = &run.measures;
    let mut parts = Vec::new();
    for (what, of, percent) in [
        ("audio", m.audio[0], m.audio_on_time()),
        ("frames", m.frames[0], m.frames_on_time()),
        ("data", m.data[0], m.data_on_time()),
    ] {
        if of > 0 {
            parts.push(format!("{what} {percent:.1} %"));
        }
    }
    parts.push(format!("stale {}", m.stale_arrivals));
    let refused = m.not_offered();
    let warning = (refused > 0).then(|| {
        format!(
            "; {} not offered: it has measured the sender's socket and not the queue",
            count(refused, "packet")
        )
    });
    format!(
        "{} {} run {}: {}{}",
        job.scenario.name,
        job.cell.id,
        run.number,
        parts.join(", "),
        warning.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_which_the_socket_took_not_all_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let scenario = super::super::tests::scenario(directory.path(), super::super::tests::TEXT);
        let job = Job {
            scenario: &scenario,
            cell: &scenario.cells[0],
            number: 0,
        };
        let mut run = super::super::tests::made_up(0, 7);
        assert!(describe(&job, &run).ends_with("run 0: stale 0"));
        (run.measures.would_block, run.measures.refused) = (2, 1);
        assert!(
            describe(&job, &run).ends_with(
                "run 0: stale 0; 3 packets not offered: it has measured the sender's socket and \
                 not the queue"
            ),
            "{}",
            describe(&job, &run)
        );
    }

    #[test]
    fn the_estimate_counts_this_start_only() {
        let mut progress = Progress::new(100, 60);
        assert_eq!(progress.position(Duration::ZERO), "[60/100]");
        progress.done = 10;
        // 10 runs in 100 s, 30 to go.
        let text = progress.position(Duration::from_secs(100));
        assert_eq!(text, "[70/100, 5 min left]");
        progress.done = 40;
        assert_eq!(progress.position(Duration::from_secs(400)), "[100/100]");
    }

    #[test]
    fn durations_are_words() {
        for (seconds, text) in [
            (0, "0 s"),
            (99, "99 s"),
            (100, "2 min"),
            (11_100, "3 h 05 min"),
        ] {
            assert_eq!(words(Duration::from_secs(seconds)), text);
        }
    }
}
