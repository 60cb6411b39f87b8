//! Waiting for another program to come up.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// How long it is looked without a pause when the time is over.
const AWAKE: Duration = Duration::from_secs(30);

/// Time that another program has to come up.
///
/// An idle guest in virtual time skips to its next timer, but what it reads from its disk takes
/// real time: beside a waiter that sleeps 20 ms between two looks, 3 s of the machine's disk
/// take two minutes of the guest's clock, and a program that is still being read counts as one
/// that hangs. So the last half minute is spent awake: then every ns is an instruction executed,
/// and the clock is no faster than the machine. (In real time it is half a minute.)
#[derive(Debug)]
pub struct Wait {
    asleep_until: Instant,
    awake: Duration,
    awake_until: Option<Instant>,
}

impl Wait {
    /// For so long, and half a minute.
    pub fn new(asleep: Duration) -> Self {
        Self {
            asleep_until: Instant::now() + asleep,
            awake: AWAKE,
            awake_until: None,
        }
    }

    /// Pauses before the next look; false = the time is over.
    pub fn pause(&mut self) -> bool {
        let now = Instant::now();
        if now < self.asleep_until {
            thread::sleep(PAUSE);
            return true;
        }
        // Counted from the look that finds the first time over, however late that is.
        let until = *self.awake_until.get_or_insert(now + self.awake);
        thread::yield_now();
        now < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_counts_its_time_awake_from_the_look_that_finds_the_other_over() {
        let span = Duration::from_millis(50);
        let mut wait = Wait::new(span);
        wait.awake = span;
        // A clock that ran ahead: both times have passed before the second look.
        thread::sleep(3 * span);
        let late = Instant::now();
        while wait.pause() {}
        assert!(late.elapsed() >= span);
        assert!(!wait.pause());
    }
}
