//! Faster Restart for TFRC (draft-ietf-dccp-tfrc-faster-restart-06, 14 July 2008, §3): after
//! an idle or data-limited time the rate may quadruple in a round trip, not only double,
//! up to what the path carried before; and a sender that is idle keeps twice as much.
//!
//! The draft changes two places of RFC 5348: the limit that the receive rates set (§4.3 step
//! 4), and the rate below which idleness does not halve (§4.4). Its third value, the rate of
//! a session's beginning, is the RFC's. Before the first loss event it changes nothing at
//! the return: there the RFC doubles X itself, which the draft leaves as it is.
//!
//! Version 06 contradicts itself in how an old rate decays: two minutes after it was
//! measured or one, and a formula that would begin at twice the rate. Here it is as the
//! text says: whole up to DecayTime = 2 min, nothing from 3 · DecayTime, linear between.
//! SFDPS (2007) had an earlier version, on RFC 3448, which limits X by twice the last
//! receive rate in data-limited times too; RFC 5348 does not.

/// DecayTime, ns.
const DECAY: u64 = 120_000_000_000;

/// X_active_recv, the receive rate of the last time without a loss event, and when it was
/// measured.
#[derive(Clone, Copy, Debug)]
pub struct Achieved {
    active: f64,
    at: u64,
    rose_before: bool,
}

impl Achieved {
    /// Nothing achieved yet, at `now` ns.
    pub fn new(now: u64) -> Self {
        Self {
            active: 0.0,
            at: now,
            rose_before: false,
        }
    }

    /// Feedback came at `now` ns with the receive rate `x_recv`, bytes/s; `rose`: it tells
    /// of a loss event. Returns X_fast_max, the rate up to which X may quadruple, bytes/s.
    pub fn on_feedback(&mut self, x_recv: f64, rose: bool, now: u64) -> f64 {
        let fast = self.fast_max(now);
        // A loss event may reach into the interval of the next feedback.
        let lossy = rose || self.rose_before;
        self.rose_before = rose;
        let active = match (lossy, x_recv >= fast) {
            (false, true) => x_recv,
            (true, false) => x_recv / 2.0,
            _ => return fast,
        };
        (self.active, self.at) = (active, now);
        active
    }

    /// X_active_recv as it counts at `now` ns.
    fn fast_max(&self, now: u64) -> f64 {
        let old = now.saturating_sub(self.at).clamp(DECAY, 3 * DECAY);
        self.active * (3 * DECAY - old) as f64 / (2 * DECAY) as f64
    }
}

/// The limit on X, bytes/s, where the receive rates set `limit`: twice that, but for the
/// doubling no more than `fast_max`.
pub fn quicken(limit: f64, fast_max: f64) -> f64 {
    if limit < fast_max {
        (2.0 * limit).min(fast_max)
    } else {
        limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_best_rate_without_loss_is_kept_and_decays_in_minutes() {
        let mut achieved = Achieved::new(0);
        assert_eq!(achieved.on_feedback(800.0, false, S), 800.0);
        // A low rate without loss says that there was little to send.
        assert_eq!(achieved.on_feedback(10.0, false, 2 * S), 800.0);
        for (at, rate) in [
            (121, 800.0),
            (241, 400.0),
            (301, 200.0),
            (361, 0.0),
            (999, 0.0),
        ] {
            assert_eq!(achieved.fast_max(at * S), rate, "{at} s");
        }
        // Half decayed, it is reached again sooner, and counts from then on.
        assert_eq!(achieved.on_feedback(500.0, false, 241 * S), 500.0);
        assert_eq!(achieved.fast_max(361 * S), 500.0);
    }

    #[test]
    fn a_loss_at_a_low_rate_halves_that_rate() {
        let mut achieved = Achieved::new(0);
        achieved.on_feedback(800.0, false, S);
        // At a higher one than ever: the old one has not been refuted.
        assert_eq!(achieved.on_feedback(900.0, true, 2 * S), 800.0);
        // The event reaches into the next feedback.
        assert_eq!(achieved.on_feedback(100.0, false, 3 * S), 50.0);
        assert_eq!(achieved.on_feedback(40.0, false, 4 * S), 50.0);
        assert_eq!(achieved.on_feedback(60.0, false, 5 * S), 60.0);
    }

    #[test]
    fn the_limit_doubles_no_further_than_allowed() {
        assert_eq!(quicken(100.0, 800.0), 200.0);
        assert_eq!(quicken(500.0, 800.0), 800.0);
        assert_eq!(quicken(800.0, 800.0), 800.0);
        assert_eq!(quicken(900.0, 800.0), 900.0);
    }
}
