//! Whether this host knows the time of day: deadlines in LPD's option are UTC.

use std::os::fd::AsFd as _;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A deadline that is wrong by more is worth nothing.
const MOST_ERROR_NS: u64 = 100_000_000;
/// By so much the kernel's estimate of the error grows while nobody disciplines the clock: 500 ppm (NTP's MAXFREQ).
const GROWTH: u64 = 1_000_000 / 500;

/// What adjtimex(2) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// CLOCK_TAI - UTC, s; 0 until something set it, and then CLOCK_TAI is UTC.
    pub tai_s: u32,
    /// How wrong the clock may be, ns.
    pub error_ns: u64,
    /// Whether something disciplines it.
    pub disciplined: bool,
    /// Whether a sandbox forbids to ask: systemd's ProtectClock= does, and then nothing else is known.
    pub hidden: bool,
}

impl Clock {
    /// Asks the kernel.
    pub fn read() -> Self {
        let mut timex = libc::timex {
            modes: 0,
            // SAFETY: plain numbers, for which all zeros are valid.
            ..unsafe { std::mem::zeroed() }
        };
        // SAFETY: a valid pointer; with modes 0 nothing is changed.
        let state = unsafe { libc::adjtimex(&raw mut timex) };
        let hidden = state < 0 && nix::errno::Errno::last() == nix::errno::Errno::EPERM;
        Self {
            hidden,
            tai_s: u32::try_from(timex.tai).unwrap_or(0),
            error_ns: u64::try_from(timex.maxerror)
                .unwrap_or(u64::MAX)
                .saturating_mul(1_000),
            disciplined: (0..libc::TIME_ERROR).contains(&state)
                && timex.status & libc::STA_UNSYNC == 0,
        }
    }

    /// Until when (CLOCK_MONOTONIC, ns) it is exact enough, whatever becomes of this agent; 0: it is not.
    pub fn until(self, now_ns: u64) -> u64 {
        if !self.disciplined || self.error_ns >= MOST_ERROR_NS {
            return 0;
        }
        now_ns + (MOST_ERROR_NS - self.error_ns) * GROWTH
    }

    /// Why it is not exact enough; `None`: it is.
    pub fn trouble(self) -> Option<String> {
        if self.hidden {
            return Some("the unit's sandbox hides the clock (ProtectClock=)".into());
        }
        if !self.disciplined {
            return Some("nothing disciplines the clock".into());
        }
        (self.error_ns >= MOST_ERROR_NS)
            .then(|| format!("the clock may be wrong by {} ms", self.error_ns / 1_000_000))
    }
}

/// Returns when somebody set the time of day.
pub async fn stepped() {
    if wait().await.is_none() {
        // No timer of this kind: the clock is looked at once a second anyway.
        std::future::pending::<()>().await;
    }
}

async fn wait() -> Option<()> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags).ok()?;
    // Later than a clock can be set: else each look would find it due.
    let far = Expiration::OneShot(TimeSpec::new(i64::MAX, 0));
    let when = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(far, when).ok()?;
    // A copy: tokio wants one that says its number.
    let timer = timer.as_fd().try_clone_to_owned().ok()?;
    // SAFETY: the descriptor is the value's own, which the registration keeps as long as itself.
    let timer = unsafe { tokio::io::unix::AsyncFd::register(timer) }.ok()?;
    timer.readable().await.ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn clock_is_exact_enough_until_its_error_has_grown_to_100_ms() {
        let clock = Clock {
            tai_s: 37,
            error_ns: 40_000_000,
            disciplined: true,
            hidden: false,
        };
        assert_eq!(clock.until(7 * S), 7 * S + 120 * S);
        assert_eq!(clock.trouble(), None);
        for bad in [
            Clock {
                disciplined: false,
                ..clock
            },
            Clock {
                disciplined: false,
                hidden: true,
                ..clock
            },
            // Status 0 alone says nothing: at boot the error is 16 s.
            Clock {
                error_ns: 16 * S,
                ..clock
            },
            Clock {
                error_ns: MOST_ERROR_NS,
                ..clock
            },
        ] {
            assert_eq!(bad.until(7 * S), 0);
            assert!(bad.trouble().is_some());
        }
    }
}
