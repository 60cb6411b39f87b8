//! One guest as a process: what it prints, line by line, and its end.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::{cleanup, run};

/// News of a guest.
#[derive(Debug)]
pub(super) enum News {
    /// A line from its standard output.
    Line(String),
    /// A line from its standard error.
    Aside(String),
    /// It ended, after all its lines; a program that it left behind may say more.
    Ended(io::Result<ExitStatus>),
}

/// The guests that are there. They end with it, and with the lab.
#[derive(Debug)]
pub(super) struct Guests {
    alive: Arc<Mutex<Alive>>,
    /// How long one may take to be gone after SIGTERM; then it is killed.
    grace: Duration,
    /// Ends them when dropped, and on Ctrl-C.
    _guard: cleanup::Guard,
}

#[derive(Debug, Default)]
struct Alive {
    /// No more are started.
    ending: bool,
    /// Processes by guest. They have not been waited for, so the numbers are theirs.
    pids: BTreeMap<usize, u32>,
}

impl Alive {
    fn signal(&self, id: usize, signal: libc::c_int) {
        if let Some(&pid) = self.pids.get(&id) {
            // SAFETY: plain integers; the process has not been waited for.
            unsafe { libc::kill(pid as libc::pid_t, signal) };
        }
    }

    fn signal_all(&self, signal: libc::c_int) {
        self.pids.keys().for_each(|&id| self.signal(id, signal));
    }
}

fn lock(alive: &Mutex<Alive>) -> MutexGuard<'_, Alive> {
    // A panic cannot leave it half changed.
    alive.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guests {
    pub(super) fn new(grace: Duration) -> Self {
        let alive = Arc::new(Mutex::new(Alive::default()));
        let guard = cleanup::on_exit({
            let alive = Arc::clone(&alive);
            move || end_all(&alive, grace)
        });
        Self {
            alive,
            grace,
            _guard: guard,
        }
    }

    /// Starts a guest; `news` gets what comes of it, with `id`, which no other has had.
    pub(super) fn start(
        &self,
        command: &mut Command,
        id: usize,
        news: &Sender<(usize, News)>,
    ) -> Result<()> {
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
        alive.pids.insert(id, child.id());
        drop(alive);

        let (out, err) = (child.stdout.take(), child.stderr.take());
        // Closed when both readers have come to the end.
        let (reading, read) = mpsc::channel::<()>();
        let reader = |pipe: Option<Box<dyn Read + Send>>, wrap: fn(String) -> News| {
            let (news, reading) = (news.clone(), reading.clone());
            thread::spawn(move || {
                for line in pipe.into_iter().flat_map(lines) {
                    // Nobody listens any more: the guest is being ended.
                    let _ = news.send((id, wrap(line)));
                }
                drop(reading);
            });
        };
        reader(out.map(|pipe| Box::new(pipe) as _), News::Line);
        reader(err.map(|pipe| Box::new(pipe) as _), News::Aside);
        let (alive, news, grace) = (Arc::clone(&self.alive), news.clone(), self.grace);
        thread::spawn(move || {
            let status = wait(&alive, id, child);
            // Longer only where a program that it left behind holds its output open.
            drop(reading);
            if let Err(RecvTimeoutError::Timeout) = read.recv_timeout(grace) {
                let words = "a program that the guest left behind still has its output";
                let _ = news.send((id, News::Aside(words.to_owned())));
            }
            let _ = news.send((id, News::Ended(status)));
        });
        Ok(())
    }

    /// Ends one, as hard as it takes; its end is news as any other.
    pub(super) fn end(&self, id: usize) {
        lock(&self.alive).signal(id, libc::SIGTERM);
        let (alive, grace) = (Arc::clone(&self.alive), self.grace);
        thread::spawn(move || {
            thread::sleep(grace);
            lock(&alive).signal(id, libc::SIGKILL);
        });
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
fn wait(alive: &Mutex<Alive>, id: usize, mut child: Child) -> io::Result<ExitStatus> {
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
    alive.pids.remove(&id);
    child.wait()
}

/// Ends all, and waits until they are gone; kills those that are not after `grace`.
fn end_all(alive: &Mutex<Alive>, grace: Duration) {
    lock(alive).ending = true;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        lock(alive).signal_all(signal);
        let limit = Instant::now() + grace;
        while !lock(alive).pids.is_empty() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// How a process ended, in words.
pub(super) fn words(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            // As tests/vm/run says; of 125 it has given the reason on standard error.
            (Some(123), _) => "its kernel panicked".to_owned(),
            (Some(124), _) => "its time was over".to_owned(),
            (Some(125), _) => "without a status".to_owned(),
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        },
        Err(error) => error.to_string(),
    }
}
