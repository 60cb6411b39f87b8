//! What must be undone however the lab ends: a guard undoes it when dropped,
//! Ctrl-C undoes everything that is still registered, newest first.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use nix::sys::signal::{SigSet, Signal};

type Action = Box<dyn FnOnce() + Send>;

/// By the order in which they were registered.
static ACTIONS: Mutex<BTreeMap<u64, Action>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

fn actions() -> MutexGuard<'static, BTreeMap<u64, Action>> {
    // A panic inside `insert` or `remove` cannot leave the list half changed.
    ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs its action when dropped, or earlier on Ctrl-C; never twice.
#[derive(Debug)]
#[must_use = "the action runs as soon as the guard is dropped"]
pub struct Guard(u64);

/// Registers `action` to be run once, at the latest when the lab ends.
pub fn on_exit(action: impl FnOnce() + Send + 'static) -> Guard {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    actions().insert(id, Box::new(action));
    Guard(id)
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Not locked while an action runs.
        let action = actions().remove(&self.0);
        if let Some(action) = action {
            action();
        }
    }
}

/// Whether a signal is ending the lab. A thread whose devices vanish under it then has
/// nothing to report and nothing to go on with: it should [`wait_for_the_end`].
pub fn is_ending() -> bool {
    ENDING.load(Ordering::Acquire)
}

/// Never returns: the thread that undoes everything ends the process.
pub fn wait_for_the_end() -> ! {
    loop {
        std::thread::park();
    }
}

fn undo_all() {
    let newest = || actions().pop_last();
    while let Some((_, action)) = newest() {
        action();
    }
}

/// Undoes everything registered and ends the process with `status`. What another
/// thread undoes already, because of a signal, is waited for.
pub fn end(status: i32) -> ! {
    if ENDING.swap(true, Ordering::AcqRel) {
        wait_for_the_end();
    }
    undo_all();
    std::process::exit(status);
}

/// From here on SIGINT, SIGTERM and SIGHUP (its terminal is closed) undo everything
/// registered and end the process with status 130. Call once, before any thread is
/// started: threads inherit the blocked signals.
///
/// A SIGHUP that is ignored stays so: `nohup` wants the lab to go on.
pub fn on_signals() -> io::Result<()> {
    let mut set = ending_signals();
    // sigwait takes a blocked signal even where it is ignored.
    if is_ignored(libc::SIGHUP)? {
        set.remove(Signal::SIGHUP);
    }
    set.thread_block()?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if set.wait().is_ok() {
                // `eprintln!` panics where the reader is gone: of `2>&1 | tee` it is.
                let words = b"\ninterrupted: removing namespaces and programs of this run\n";
                let _ = io::stderr().write_all(words);
                end(130);
            }
        })?;
    Ok(())
}

/// Unblocks the signals that [`on_signals`] blocked; for a child between fork and exec.
pub fn unblock_in_child() {
    // Fails only for signals that do not exist.
    let _ = ending_signals().thread_unblock();
}

/// Async-signal-safe.
fn ending_signals() -> SigSet {
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
        .into_iter()
        .collect()
}

fn is_ignored(signal: libc::c_int) -> io::Result<bool> {
    // SAFETY: an all-zero sigaction is valid memory for the call to fill; a null new action
    // changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(action.sa_sigaction == libc::SIG_IGN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn guard_dropped_runs_its_action_once() {
        let count = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&count);
        let guard = on_exit(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(count.load(Ordering::SeqCst), 0);
        drop(guard);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
