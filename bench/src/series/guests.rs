//! Several guests at once make the runs of a series.
//!
//! A guest gets a share of the runs, makes them in this order and writes what becomes of each into
//! the results' directory, where it is seen here. The runs of one point and repetition stay together
//! (see [`groups`]). Shares get smaller towards the end, so that all guests end at about the same
//! time. A guest that dies, or finishes no run for too long, is replaced; a run on which two guests
//! ended has failed.

use std::{
    collections::{HashMap, VecDeque},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use super::{
    progress::Progress,
    run::{Job, Outcome, groups},
};
use crate::{cleanup, run};

/// Guests that may end on one run, or before any.
const TRIES: u32 = 2;

/// How often the results' directory is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How long a guest may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A guest at work; ends when dropped.
struct Guest<'a> {
    child: Child,
    /// Below the number of guests at once, and no other's while this guest lives.
    seat: usize,
    /// Has its share in it until it has begun.
    paper: PathBuf,
    /// What it has not finished.
    share: VecDeque<Job<'a>>,
    /// When it began, or finished a run.
    heard: Instant,
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // tests/vm/run waits for its QEMU then; a SIGKILL QEMU sees only later, and lives beside its
        // successor meanwhile. A guest that has ended is asked nothing: its number may be another's.
        let (asked, pid) = (Instant::now(), Pid::from_raw(self.child.id() as i32));
        if let Ok(None) = self.child.try_wait() {
            let _ = kill(pid, Signal::SIGTERM);
        }
        while let Ok(None) = self.child.try_wait()
            && asked.elapsed() < GRACE
        {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Has the runs made by so many guests at once. However this ends, no guest is left.
///
/// `launch` gives the command of a guest that makes such a share of them on this seat, and the file
/// with the share, named by the guest's own number, which the guest removes when it begins.
/// `patience` is how long a guest may work on a run, where the slowest so far took so long.
pub(super) fn work<'a>(
    jobs: &[Job<'a>],
    at_once: usize,
    patience: impl Fn(Option<&Job<'a>>, Duration) -> Duration,
    progress: &mut Progress<'a>,
    mut launch: impl FnMut(&[Job<'a>], usize, usize) -> Result<(Command, PathBuf)>,
) -> Result<()> {
    let store = progress.store;
    let mut queue: VecDeque<Vec<Job<'a>>> = groups(jobs).into();
    let mut guests: Vec<Guest<'a>> = Vec::new();
    let mut ended_on: HashMap<(&str, &str, u32), u32> = HashMap::new();
    let (mut started, mut in_vain, mut slowest) = (0, 0, Duration::ZERO);
    loop {
        while guests.len() < at_once
            && let Some(share) = share(&mut queue, at_once)
        {
            let free = |seat: &usize| guests.iter().all(|guest| guest.seat != *seat);
            let seat = (0..at_once).find(free);
            let seat = seat.context("no seat for one more guest")?;
            let (mut command, paper) = launch(&share, seat, started)?;
            started += 1;
            guests.push(Guest {
                child: start(&mut command)?,
                seat,
                paper,
                share: share.into(),
                heard: Instant::now(),
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
                && store.has_outcome(&job)
            {
                guest.share.pop_front();
                progress.hear(&job)?;
                in_vain = 0;
                slowest = slowest.max(guest.heard.elapsed());
                guest.heard = Instant::now();
            }
            let silence = guest.heard.elapsed();
            let how = match ended {
                Ok(None) if silence <= patience(guest.share.front(), slowest) => {
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
            if guest.paper.exists() {
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
                    let why = format!("{tries} guests ended in it, this one so: {how}");
                    store.put_outcome(&job, &Outcome::Failed(why))?;
                    progress.hear(&job)?;
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
    // SAFETY: between fork and exec only system calls are made (pthread_sigmask, prctl), and nothing
    // is allocated. Without the first the script would inherit that SIGTERM is blocked here; with
    // the second a guest ends however this process does.
    unsafe {
        command.pre_exec(|| {
            cleanup::unblock_in_child();
            Ok(set_pdeathsig(Signal::SIGTERM)?)
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
    use std::fs;

    use super::*;
    use crate::series::{run::jobs, store::Store, tests};

    /// What came of the scenario of the series' tests, eight runs of 20 s in four groups, in the hands
    /// of guests that are shell scripts.
    struct Made {
        directory: tempfile::TempDir,
        /// Seat and length of each share.
        shares: Vec<(usize, usize)>,
        heard: usize,
        result: Result<()>,
    }

    impl Made {
        /// `script` makes the run `$run`, after the guest has begun.
        fn by(at_once: usize, script: &str) -> Self {
            let begin = r#"rm "$0"; make() { echo no >"$run.absent"; }; for run; do "#;
            Self::by_all_of(at_once, &format!("{begin}{script}; make; done"))
        }

        fn by_all_of(at_once: usize, script: &str) -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let scenario = tests::scenario(directory.path(), tests::TEXT);
            for cell in &scenario.cells {
                fs::create_dir_all(directory.path().join("t").join(&cell.id)).expect("made");
            }
            let store = Store::at(directory.path());
            let mut progress = Progress::new(&store, 8, 0);
            let mut shares = Vec::new();
            let launch = |share: &[Job<'_>], seat, guest| {
                shares.push((seat, share.len()));
                let paper = directory.path().join(format!("share-{guest}"));
                fs::write(&paper, "")?;
                let mut command = Command::new("sh");
                command.current_dir(directory.path()).args(["-euc", script]);
                command.arg(&paper);
                command.args(
                    share
                        .iter()
                        .map(|job| format!("t/{}/run-{}", job.cell.id, job.number)),
                );
                Ok((command, paper))
            };
            let patience = |_: Option<&Job<'_>>, _| Duration::from_secs(2);
            let result = work(
                &jobs(&scenario, 2, &[]),
                at_once,
                patience,
                &mut progress,
                launch,
            );
            let heard = progress.done;
            Self {
                directory,
                shares,
                heard,
                result,
            }
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
        }
    }

    #[test]
    fn work_makes_each_run_once_and_points_stay_together() {
        let made = Made::by(2, ":");
        made.result.expect("made");
        assert_eq!(made.heard, 8);
        for (seat, runs) in &made.shares {
            assert!(*seat < 2 && runs.is_multiple_of(2), "{runs}");
        }
        assert!(made.shares.len() > 2, "shares get smaller");
    }

    #[test]
    fn work_replaces_a_guest_that_dies_and_repeats_nothing() {
        let script = r#"echo "$run" >>log
            case $run in *pfifo-5/run-0) [ -e dead ] || { : >dead; exit 3; } ;; esac"#;
        let made = Made::by(1, script);
        // The run in which it died was begun twice.
        assert_eq!((made.heard, made.read("log").lines().count()), (8, 9));
        assert_eq!(made.shares.len(), 2);
        made.result.expect("made");
    }

    #[test]
    fn work_passes_over_a_run_on_which_two_guests_end() {
        let made = Made::by(1, "case $run in */owd=5_pfifo-5/run-0) kill -9 $$ ;; esac");
        assert!(
            made.read("t/owd=5_pfifo-5/run-0.failed")
                .contains("signal 9")
        );
        assert_eq!(made.heard, 8);
        made.result.expect("the rest");
    }

    #[test]
    fn work_asks_a_guest_that_hangs_to_end_and_then_ends_it() {
        // The first one does not listen, the second one has something to put away.
        let script = r#"case $run in */owd=40_pfifo-5/run-1)
            if [ -e deaf ]; then trap ': >tidy; exit 1' TERM; else : >deaf; trap '' TERM; fi
            while :; do sleep 0.1; done ;; esac"#;
        let made = Made::by(2, script);
        assert!(
            made.read("t/owd=40_pfifo-5/run-1.failed")
                .contains("no run finished")
        );
        assert!(made.directory.path().join("tidy").exists());
        assert_eq!(made.heard, 8);
        made.result.expect("the rest");
    }

    #[test]
    fn work_ends_where_no_guest_can_begin() {
        let made = Made::by_all_of(1, "exit 125");
        let error = made.result.expect_err("no guest").to_string();
        assert!(error.contains("before they could begin"), "{error}");
        assert_eq!((made.shares.len(), made.heard), (2, 0));
    }
}
