//! When data stops being of use: [`Deadline`] (absolute), [`Lifetime`] (relative).

use std::time::{Duration, Instant};

use crate::{abi, error::ValueError, sys};

/// Absolute time after which the data is of no use **at the receiver**
/// (`CLOCK_MONOTONIC` of this host, ns; the clock of [`Instant`]).
///
/// Compute it once per ADU (video frame, audio packet, message) and use the
/// same value for all of its packets.
///
/// ```
/// use std::time::Duration;
/// use bestby::Deadline;
///
/// let deadline = Deadline::after(Duration::from_millis(200));
/// assert!(deadline.remaining().unwrap() <= Duration::from_millis(200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// `from_now` from now. Saturates at the end of the clock (584 years).
    pub fn after(from_now: Duration) -> Self {
        Self::from_monotonic_ns(sys::monotonic_ns().saturating_add(ns(from_now)))
    }

    /// A time of `CLOCK_MONOTONIC` in ns, e.g. from `clock_gettime` or a capture timestamp of V4L2. Not of the
    /// wall clock, which jumps: its times are some fifty years away here, and so never stale. The clock
    /// stands still while the machine sleeps. 0 is taken as 1 (long past): the kernel side reads 0 as "none".
    pub const fn from_monotonic_ns(ns: u64) -> Self {
        Self(if ns == 0 { 1 } else { ns })
    }

    /// The same moment as `instant`. [`Instant`] hides its clock, so this reads
    /// both clocks; two conversions of one instant may differ by some
    /// microseconds. Convert once per ADU.
    pub fn from_instant(instant: Instant) -> Self {
        let (now, now_ns) = (Instant::now(), sys::monotonic_ns());
        Self::from_monotonic_ns(match instant.checked_duration_since(now) {
            Some(ahead) => now_ns.saturating_add(ns(ahead)),
            None => now_ns.saturating_sub(ns(now.duration_since(instant))),
        })
    }

    /// ns of `CLOCK_MONOTONIC`; never 0.
    pub const fn as_monotonic_ns(self) -> u64 {
        self.0
    }

    /// Time left until the deadline, `None` once it has passed.
    pub fn remaining(self) -> Option<Duration> {
        self.0
            .checked_sub(sys::monotonic_ns())
            .map(Duration::from_nanos)
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self::from_instant(instant)
    }
}

/// How long data is of use, counted from when it is sent (mark and `SO_TXTIME`
/// form) or first seen by the classifier (socket option): more than 0, at most 131 s.
///
/// ```
/// use std::time::Duration;
/// use bestby::Lifetime;
///
/// let lifetime = Lifetime::new(Duration::from_millis(200))?;
/// assert_eq!(lifetime.as_nanos(), 200_000_000);
/// assert!(Lifetime::new(Duration::ZERO).is_err(), "\"no deadline\" is said by giving none");
/// assert!(Lifetime::new(Duration::from_secs(132)).is_err());
/// # Ok::<(), bestby::ValueError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lifetime(u64);

impl Lifetime {
    /// The longest lifetime: 131 s.
    pub const MAX: Self = Self(abi::LIFETIME_MAX_NS);

    /// # Errors
    ///
    /// [`ValueError::Lifetime`] for 0 and for more than [`Lifetime::MAX`].
    pub fn new(duration: Duration) -> Result<Self, ValueError> {
        match ns(duration) {
            value @ 1..=abi::LIFETIME_MAX_NS => Ok(Self(value)),
            _ => Err(ValueError::Lifetime(duration)),
        }
    }

    /// `ms` milliseconds.
    ///
    /// # Errors
    ///
    /// As [`Lifetime::new`].
    pub fn from_millis(ms: u64) -> Result<Self, ValueError> {
        Self::new(Duration::from_millis(ms))
    }

    /// In ns; 1 to 131,000,000,000.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The deadline of data created at `now_ns` (`CLOCK_MONOTONIC`).
    pub(crate) const fn from(self, now_ns: u64) -> Deadline {
        Deadline::from_monotonic_ns(now_ns.saturating_add(self.0))
    }
}

impl TryFrom<Duration> for Lifetime {
    type Error = ValueError;

    fn try_from(duration: Duration) -> Result<Self, ValueError> {
        Self::new(duration)
    }
}

impl From<Lifetime> for Duration {
    fn from(lifetime: Lifetime) -> Self {
        Self::from_nanos(lifetime.0)
    }
}

/// `duration` in ns, saturated.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_from_an_instant_equals_one_from_a_duration() {
        for offset in [
            Duration::ZERO,
            Duration::from_millis(1),
            Duration::from_secs(3600),
        ] {
            let before = Deadline::after(offset);
            let deadline = Deadline::from_instant(Instant::now() + offset);
            let after = Deadline::after(offset);
            assert!(before <= deadline && deadline <= after, "{offset:?}");
        }
        let past = Instant::now() - Duration::from_millis(5);
        assert_eq!(Deadline::from_instant(past).remaining(), None);
    }

    #[test]
    fn deadline_of_extreme_time_saturates() {
        assert_eq!(Deadline::after(Duration::MAX).as_monotonic_ns(), u64::MAX);
        assert_eq!(Deadline::from_monotonic_ns(0).as_monotonic_ns(), 1);
        assert_eq!(Lifetime::MAX.from(u64::MAX - 1).as_monotonic_ns(), u64::MAX);
    }

    #[test]
    fn lifetime_outside_1_ns_to_131_s_is_refused() {
        assert_eq!(
            Lifetime::new(Duration::from_nanos(1)).unwrap().as_nanos(),
            1
        );
        assert_eq!(
            Lifetime::new(Duration::from_secs(131)).unwrap(),
            Lifetime::MAX
        );
        for bad in [
            Duration::ZERO,
            Duration::from_nanos(131_000_000_001),
            Duration::MAX,
        ] {
            assert_eq!(Lifetime::new(bad), Err(ValueError::Lifetime(bad)));
        }
    }
}
