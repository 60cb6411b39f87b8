//! One guest as a process: what it prints, line by line, and its end.

use std::{
    io::{self, BufRead as _, BufReader, Read},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{cleanup, run};

/// How long an ended guest may take to be gone. `tests/vm/run` kills QEMU after 5 s.
const GRACE: Duration = Duration::from_secs(15);

/// News of a guest.
#[derive(Debug)]
pub(super) enum News {
    /// A line from its standard output.
    Line(String),
    /// A line from its standard error.
    Aside(String),
    /// It ended, after all its lines.
    Ended(io::Result<ExitStatus>),
}

/// The guests that are there. They end with it, and with the lab.
#[derive(Debug)]
pub(super) struct Guests {
    alive: Arc<Mutex<Alive>>,
    /// Ends them when dropped, and on Ctrl-C.
    _guard: cleanup::Guard,
}

#[derive(Debug, Default)]
struct Alive {
    /// No more are started.
    ending: bool,
    /// Of processes that have not been waited for, so the numbers are theirs.
    pids: Vec<u32>,
}

fn lock(alive: &Mutex<Alive>) -> MutexGuard<'_, Alive> {
    // A panic cannot leave it half changed.
    alive.lock().unwrap_or_else(PoisonError::into_inner)
}

fn terminate(pid: u32) {
    // SAFETY: plain integers; the caller holds the lock, so the process has not been waited for.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
}

impl Guests {
    pub(super) fn new() -> Self {
        let alive = Arc::new(Mutex::new(Alive::default()));
        let guard = cleanup::on_exit({
            let alive = Arc::clone(&alive);
            move || end_all(&alive)
        });
        Self {
            alive,
            _guard: guard,
        }
    }

    /// Starts a guest; `news` gets what comes of it, with `id`. Returns its process' id.
    pub(super) fn start(
        &self,
        command: &mut Command,
        id: usize,
        news: &Sender<(usize, News)>,
    ) -> Result<u32> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: sigprocmask and prctl are async-signal-safe, and nothing else is called.
        // Without the first the script would inherit that SIGTERM is blocked here; with the
        // second a guest ends even if this process is killed.
        unsafe {
            command.pre_exec(|| {
                cleanup::unblock_in_child();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let mut alive = lock(&self.alive);
        if alive.ending {
            cleanup::wait_for_the_end();
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start `{}`", run::line(command)))?;
        let pid = child.id();
        alive.pids.push(pid);
        drop(alive);

        let (out, err) = (child.stdout.take(), child.stderr.take());
        let reader = |pipe: Option<Box<dyn Read + Send>>, wrap: fn(String) -> News| {
            let news = news.clone();
            thread::spawn(move || {
                for line in pipe.into_iter().flat_map(lines) {
                    // Nobody listens any more: the guest is being ended.
                    let _ = news.send((id, wrap(line)));
                }
            })
        };
        let readers = [
            reader(out.map(|pipe| Box::new(pipe) as _), News::Line),
            reader(err.map(|pipe| Box::new(pipe) as _), News::Aside),
        ];
        let (alive, news) = (Arc::clone(&self.alive), news.clone());
        thread::spawn(move || {
            let status = wait(&alive, child);
            for reader in readers {
                let _ = reader.join();
            }
            let _ = news.send((id, News::Ended(status)));
        });
        Ok(pid)
    }

    /// Ends one; its end is news as any other.
    pub(super) fn end(&self, pid: u32) {
        let alive = lock(&self.alive);
        if alive.pids.contains(&pid) {
            terminate(pid);
        }
    }
}

/// What a pipe says, line by line; bytes that are no text are replaced.
fn lines(pipe: Box<dyn Read + Send>) -> impl Iterator<Item = String> {
    BufReader::new(pipe)
        .split(b'\n')
        .map_while(io::Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

/// Waits for the child's end. It keeps its number until it is off the list.
fn wait(alive: &Mutex<Alive>, mut child: Child) -> io::Result<ExitStatus> {
    let pid = child.id();
    loop {
        // SAFETY: an all-zero siginfo_t is valid memory for waitid to fill.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` outlives the call; the child has not been waited for.
        let failed =
            unsafe { libc::waitid(libc::P_PID, pid, &mut info, libc::WEXITED | libc::WNOWAIT) };
        if failed == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            break;
        }
    }
    let mut alive = lock(alive);
    alive.pids.retain(|&other| other != pid);
    child.wait()
}

/// Ends all, and waits until they are gone.
fn end_all(alive: &Mutex<Alive>) {
    let mut list = lock(alive);
    list.ending = true;
    list.pids.iter().copied().for_each(terminate);
    drop(list);
    let limit = Instant::now() + GRACE;
    while !lock(alive).pids.is_empty() && Instant::now() < limit {
        thread::sleep(Duration::from_millis(20));
    }
}

/// How a process ended, in words.
pub(super) fn words(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            // See tests/vm/run, which cannot tell the two apart.
            (Some(124), _) => "QEMU was killed, or its time was over".to_owned(),
            (Some(125), _) => "without a status".to_owned(),
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        },
        Err(error) => error.to_string(),
    }
}
