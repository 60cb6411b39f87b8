//! Several guests at once make the runs of a series.
//!
//! A guest gets a share of the runs, makes them in this order and writes what becomes of each into
//! the results' directory, where it is seen here. The runs of one point and repetition stay together
//! (see [`groups`]). Shares get smaller towards the end, so that all guests end at about the same
//! time. A guest that dies, or finishes no run for too long, is replaced; a run on which two guests
//! ended has failed.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::job::{Job, groups};
use crate::{cleanup, run};

/// Guests that may end on one run, or before any.
const TRIES: u32 = 2;

/// How often the results' directory is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// When a guest that finishes no run is taken for hanging. What counts is the longest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Real time, whatever it does.
    pub(super) least: Duration,
    /// As many times the length of the run's traffic.
    pub(super) per_traffic: u32,
    /// As many times the slowest run of this series so far.
    pub(super) per_slowest: u32,
}

impl Patience {
    fn with(self, job: Option<&Job<'_>>, slowest: Duration) -> Duration {
        let traffic = job.map_or(0, |job| job.scenario.seconds);
        self.least
            .max(Duration::from_secs(traffic) * self.per_traffic)
            .max(slowest * self.per_slowest)
    }
}

/// What guests do for a series.
pub(super) trait Work<'a> {
    /// The command of a guest that makes these runs. Below the number of guests at once, `seat` is
    /// no other's while this one lives.
    fn launch(&mut self, share: &[Job<'a>], seat: usize) -> Result<Command>;
    /// Whether the guest on this seat has begun with its share.
    fn has_begun(&self, seat: usize) -> bool;
    /// Whether something became of a run.
    fn is_over(&self, job: &Job<'a>) -> Result<bool>;
    /// Takes that in.
    fn hear(&mut self, job: &Job<'a>) -> Result<()>;
    /// Takes in that a run cannot be made.
    fn fail(&mut self, job: &Job<'a>, why: String) -> Result<()>;
}

/// A guest at work; ends when dropped.
struct Guest<'a> {
    child: Child,
    seat: usize,
    /// What it has not finished.
    share: VecDeque<Job<'a>>,
    /// When it began, or finished a run.
    heard: Instant,
    made: usize,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // tests/vm/run ends QEMU however it ends. Both fail only where it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has the runs made by so many guests at once. However this ends, no guest is left.
pub(super) fn work<'a>(
    jobs: &[Job<'a>],
    at_once: usize,
    patience: Patience,
    work: &mut impl Work<'a>,
) -> Result<()> {
    let mut queue: VecDeque<Vec<Job<'a>>> = groups(jobs).into();
    let mut guests: Vec<Guest<'a>> = Vec::new();
    let mut ended_on: HashMap<(&str, &str, u32), u32> = HashMap::new();
    let (mut in_vain, mut slowest) = (0, Duration::ZERO);
    loop {
        while guests.len() < at_once
            && let Some(share) = share(&mut queue, at_once)
        {
            let seat = (0..at_once).find(|seat| guests.iter().all(|guest| guest.seat != *seat));
            let seat = seat.context("no seat for one more guest")?;
            let child = start(&mut work.launch(&share, seat)?)?;
            guests.push(Guest {
                child,
                seat,
                share: share.into(),
                heard: Instant::now(),
                made: 0,
            });
        }
        if guests.is_empty() {
            return Ok(());
        }
        thread::sleep(LOOK);
        if cleanup::is_ending() {
            cleanup::wait_for_the_end();
        }
        for mut guest in std::mem::take(&mut guests) {
            // Before what it made is looked at: what it wrote last is seen.
            let ended = guest.child.try_wait();
            while let Some(job) = guest.share.front().copied()
                && work.is_over(&job)?
            {
                guest.share.pop_front();
                work.hear(&job)?;
                (guest.made, in_vain) = (guest.made + 1, 0);
                slowest = slowest.max(guest.heard.elapsed());
                guest.heard = Instant::now();
            }
            let silence = guest.heard.elapsed();
            let how = match ended {
                Ok(None) if silence <= patience.with(guest.share.front(), slowest) => {
                    guests.push(guest);
                    continue;
                }
                Ok(None) => format!("no run finished in {} s", silence.as_secs()),
                Ok(Some(status)) => words(status),
                Err(error) => error.to_string(),
            };
            let Some(job) = guest.share.front().copied() else {
                continue;
            };
            if !work.has_begun(guest.seat) {
                in_vain += 1;
                ensure!(
                    in_vain < TRIES,
                    "{TRIES} guests in a row ended ({how}) before they could begin, see above: \
                     `tests/vm/run -- true` shows whether guests start at all"
                );
                note!("a guest ended ({how}) before its first run: the next one goes on");
            } else {
                let name = (job.scenario.name.as_str(), job.cell.id.as_str(), job.number);
                let tries = ended_on.entry(name).or_default();
                *tries += 1;
                if *tries < TRIES {
                    note!("a guest ended ({how}) in {name:?}: the next one goes on");
                } else {
                    guest.share.pop_front();
                    work.fail(
                        &job,
                        format!("{tries} guests ended in it, this one so: {how}"),
                    )?;
                }
            }
            let left: Vec<Job<'a>> = guest.share.drain(..).collect();
            for group in groups(&left).into_iter().rev() {
                queue.push_front(group);
            }
        }
    }
}

/// The next share: of the work that no guest has, what leaves each guest two shares more.
fn share<'a>(queue: &mut VecDeque<Vec<Job<'a>>>, at_once: usize) -> Option<Vec<Job<'a>>> {
    let work = |group: &Vec<Job<'_>>| -> u64 { group.iter().map(|job| job.scenario.seconds).sum() };
    let total: u64 = queue.iter().map(work).sum();
    let fair = match at_once {
        // Nobody would wait for it.
        0 | 1 => total,
        guests => total.div_ceil(2 * guests as u64),
    };
    let mut share = queue.pop_front()?;
    while let Some(group) = queue.front()
        && work(&share) + work(group) <= fair
    {
        share.extend(queue.pop_front().into_iter().flatten());
    }
    Some(share)
}

fn start(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: sigprocmask and prctl are async-signal-safe, and nothing else is called. Without the
    // first the script would inherit that SIGTERM is blocked here; with the second a guest ends
    // however this process does.
    unsafe {
        command.pre_exec(|| {
            cleanup::unblock_in_child();
            match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    let child = command.spawn();
    child.with_context(|| format!("cannot start `{}`", run::line(command)))
}

/// How a guest ended, in words.
fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // As tests/vm/run says; of 125 it has given the reason on standard error.
        (Some(0), _) => "without an error".to_owned(),
        (Some(123), _) => "its kernel panicked".to_owned(),
        (Some(124), _) => "its time was over".to_owned(),
        (Some(125), _) => "without a status".to_owned(),
        (Some(code), _) => format!("status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::PathBuf};

    use super::*;
    use crate::{
        scenario::Scenario,
        series::{job::jobs, tests},
    };

    /// Guests that are shell scripts: `$1` is the directory of results, then the names of runs.
    struct Scripts {
        directory: PathBuf,
        script: &'static str,
        shares: Vec<(usize, Vec<String>)>,
        heard: Vec<String>,
        failed: Vec<String>,
    }

    fn name(job: &Job<'_>) -> String {
        format!("{}-{}", job.cell.id, job.number)
    }

    impl<'a> Work<'a> for Scripts {
        fn launch(&mut self, share: &[Job<'a>], seat: usize) -> Result<Command> {
            let names: Vec<String> = share.iter().map(name).collect();
            let _ = fs::remove_file(self.directory.join(format!("begun-{seat}")));
            let mut command = Command::new("sh");
            command
                .args(["-euc", self.script, "sh"])
                .arg(seat.to_string());
            command.current_dir(&self.directory).args(&names);
            self.shares.push((seat, names));
            Ok(command)
        }

        fn has_begun(&self, seat: usize) -> bool {
            self.directory.join(format!("begun-{seat}")).exists()
        }

        fn is_over(&self, job: &Job<'a>) -> Result<bool> {
            Ok(self.directory.join(name(job)).exists())
        }

        fn hear(&mut self, job: &Job<'a>) -> Result<()> {
            self.heard.push(name(job));
            Ok(())
        }

        fn fail(&mut self, job: &Job<'a>, why: String) -> Result<()> {
            self.failed.push(format!("{}: {why}", name(job)));
            Ok(())
        }
    }

    /// What came of the scenario of the series' tests, eight runs of 20 s in four groups.
    fn made(at_once: usize, script: &'static str) -> (Scripts, Result<()>) {
        let directory = tempfile::tempdir().expect("a directory");
        let scenario: Scenario = tests::scenario(directory.path(), tests::TEXT);
        let mut scripts = Scripts {
            directory: directory.path().to_owned(),
            script,
            shares: Vec::new(),
            heard: Vec::new(),
            failed: Vec::new(),
        };
        let patience = Patience {
            least: Duration::from_secs(2),
            per_traffic: 0,
            per_slowest: 0,
        };
        let jobs = jobs(&scenario, 2, &[]);
        let result = work(&jobs, at_once, patience, &mut scripts);
        (scripts, result)
    }

    fn all(scripts: &Scripts) -> BTreeSet<&String> {
        scripts.heard.iter().collect()
    }

    #[test]
    fn work_makes_each_run_once_and_points_stay_together() {
        let (scripts, result) = made(2, r#": >begun-$1; shift; for run; do : >"$run"; done"#);
        result.expect("made");
        assert_eq!((scripts.heard.len(), all(&scripts).len()), (8, 8));
        for (seat, share) in &scripts.shares {
            assert!(*seat < 2 && share.len().is_multiple_of(2), "{share:?}");
        }
        assert!(scripts.shares.len() > 2, "shares get smaller");
    }

    #[test]
    fn work_replaces_a_guest_that_dies_and_repeats_nothing() {
        let script = r#": >begun-$1; shift; for run; do
            case $run in *pfifo-5-0) [ -e dead ] || { : >dead; exit 3; } ;; esac; : >"$run"; done"#;
        let (scripts, result) = made(1, script);
        result.expect("made");
        assert_eq!((scripts.heard.len(), all(&scripts).len()), (8, 8));
        assert_eq!((scripts.shares.len(), scripts.failed.len()), (2, 0));
    }

    #[test]
    fn work_passes_over_a_run_on_which_two_guests_end() {
        let script = r#": >begun-$1; shift; for run; do
            case $run in owd=5_pfifo-5-0) kill -9 $$ ;; esac; : >"$run"; done"#;
        let (scripts, result) = made(1, script);
        result.expect("the rest");
        assert_eq!(scripts.heard.len(), 7);
        assert!(
            scripts.failed[0].contains("signal 9"),
            "{:?}",
            scripts.failed
        );
    }

    #[test]
    fn work_ends_a_guest_that_hangs() {
        let script = r#": >begun-$1; shift; for run; do
            case $run in owd=40_pfifo-5-1) trap "" TERM; sleep 60 ;; esac; : >"$run"; done"#;
        let began = Instant::now();
        let (scripts, result) = made(2, script);
        result.expect("the rest");
        assert_eq!(scripts.heard.len(), 7);
        assert!(
            scripts.failed[0].contains("no run finished"),
            "{:?}",
            scripts.failed
        );
        assert!(
            began.elapsed() < Duration::from_secs(50),
            "it was waited for"
        );
    }

    #[test]
    fn work_ends_where_no_guest_can_begin() {
        let (scripts, result) = made(1, "exit 125");
        let error = result.expect_err("no guest").to_string();
        assert!(error.contains("before they could begin"), "{error}");
        assert_eq!((scripts.shares.len(), scripts.heard.len()), (2, 0));
    }

    #[test]
    fn patience_follows_the_traffic_and_the_slowest_run() {
        let patience = Patience {
            least: Duration::from_secs(10),
            per_traffic: 2,
            per_slowest: 3,
        };
        let directory = tempfile::tempdir().expect("a directory");
        let scenario = tests::scenario(directory.path(), tests::TEXT);
        let job = jobs(&scenario, 1, &[])[0];
        for (job, slowest, limit) in [(None, 0, 10), (Some(&job), 0, 40), (Some(&job), 20, 60)] {
            let found = patience.with(job, Duration::from_secs(slowest));
            assert_eq!(found, Duration::from_secs(limit));
        }
    }
}
