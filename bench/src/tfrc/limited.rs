//! Was the sender data-limited, so that a low receive rate says nothing of the path?
//! (RFC 5348 §8.2.1)

/// Remembers two times at which the sender sent all that it was allowed to: one for
/// the interval that the next feedback covers, one for the interval after that.
#[derive(Clone, Debug, Default)]
pub struct Limited {
    full1: Option<u64>,
    full2: Option<u64>,
    new: u64,
    next: u64,
}

impl Limited {
    /// At `now` ns the rate held the sender back.
    pub fn not_limited(&mut self, now: u64) {
        if self.full1.is_none_or(|at| at <= self.new) {
            self.full1 = Some(now);
        } else if self.full2.is_none_or(|at| at <= self.next) {
            self.full2 = Some(now);
        }
    }

    /// Feedback about packets sent up to `sent` ns came at `now` ns. Returns true if the
    /// whole interval since the last one was data-limited.
    pub fn on_feedback(&mut self, sent: u64, now: u64) -> bool {
        let old = self.new;
        self.new = sent;
        self.next = now;
        let inside = |at: Option<u64>| at.is_some_and(|at| old < at && at <= sent);
        let limited = !(inside(self.full1) || inside(self.full2));
        if self.full1.is_none_or(|at| at <= sent) && self.full2.is_some_and(|at| at > sent) {
            self.full1 = self.full2;
        }
        limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_full_moment_is_enough() {
        let mut limited = Limited::default();
        assert!(limited.on_feedback(10, 20));
        limited.not_limited(15);
        assert!(!limited.on_feedback(20, 30));
        assert!(limited.on_feedback(30, 40));
    }

    #[test]
    fn what_the_feedback_does_not_cover_yet_counts_for_the_next() {
        let mut limited = Limited::default();
        limited.on_feedback(10, 20);
        // Sent after the packet that the next feedback will be about.
        limited.not_limited(25);
        assert!(limited.on_feedback(22, 32));
        assert!(!limited.on_feedback(32, 42));
    }

    #[test]
    fn both_intervals_are_remembered() {
        let mut limited = Limited::default();
        limited.on_feedback(10, 20);
        limited.not_limited(15);
        limited.not_limited(24);
        assert!(!limited.on_feedback(18, 28));
        assert!(!limited.on_feedback(26, 36));
        assert!(limited.on_feedback(34, 44));
    }
}
