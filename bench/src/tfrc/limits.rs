//! What limits a sender beside the equation: the rates at which its packets arrived (RFC
//! 5348 §4.3), unless it had nothing to send (§8.2.1), and those of old (Faster Restart).

/// Receive rates with the time each was reported.
#[derive(Clone, Debug)]
pub struct ReceiveRates(Vec<(f64, u64)>);

impl ReceiveRates {
    /// No limit yet, as of `now` ns.
    pub fn new(now: u64) -> Self {
        Self(vec![(f64::INFINITY, now)])
    }

    /// The largest, bytes/s; infinite before anything limits.
    pub fn max(&self) -> f64 {
        self.0.iter().fold(0.0, |max, (rate, _)| max.max(*rate))
    }

    /// Adds `rate` and forgets what is older than two round trips of `rtt` ns.
    pub fn update(&mut self, rate: f64, now: u64, rtt: u64) {
        self.0.retain(|(_, at)| at + 2 * rtt >= now);
        self.0.push((rate, now));
    }

    /// Adds `rate`, then keeps only the largest, as of `now`. The initial infinity goes.
    pub fn maximize(&mut self, rate: f64, now: u64) {
        self.0.retain(|(rate, _)| rate.is_finite());
        self.replace(self.max().max(rate), now);
    }

    /// Halves all.
    pub fn halve(&mut self) {
        for (rate, _) in &mut self.0 {
            *rate /= 2.0;
        }
    }

    /// `rate` alone from `now` on.
    pub fn replace(&mut self, rate: f64, now: u64) {
        self.0 = vec![(rate, now)];
    }
}

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

/// DecayTime, ns.
const DECAY: u64 = 120_000_000_000;

/// Faster Restart for TFRC (draft-ietf-dccp-tfrc-faster-restart-06, 14 July 2008, §3): after
/// an idle or data-limited time the rate may quadruple in a round trip, not only double,
/// up to what the path carried before; and a sender that is idle keeps twice as much.
///
/// The draft changes the limit that the receive rates set (RFC 5348 §4.3 step 4), and the rate
/// below which idleness does not halve (§4.4). Before the first loss event it changes nothing.
/// Its text and its formula disagree on how an old rate decays. Here the text counts: whole up
/// to DecayTime = 2 min, nothing from 3 · DecayTime, linear between.
///
/// This is X_active_recv, the receive rate of the last time without a loss event, and when it
/// was measured.
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

    #[test]
    fn receive_rates_keep_two_round_trips_or_the_largest() {
        let mut rates = ReceiveRates::new(0);
        for (now, rate, max) in [
            (5, 100.0, f64::INFINITY),
            (21, 50.0, 100.0),
            (26, 60.0, 60.0),
        ] {
            rates.update(rate, now, 10);
            assert_eq!(rates.max(), max, "{now}");
        }
        let mut rates = ReceiveRates::new(0);
        rates.maximize(80.0, 1);
        rates.maximize(50.0, 2);
        assert_eq!(rates.max(), 80.0);
        rates.halve();
        rates.maximize(42.5, 3);
        assert_eq!(rates.max(), 42.5);
    }

    #[test]
    fn limited_is_an_interval_without_a_moment_at_the_full_rate() {
        let mut limited = Limited::default();
        assert!(limited.on_feedback(10, 20));
        // The second was sent after the packet that the next feedback is about.
        limited.not_limited(15);
        limited.not_limited(24);
        for (sent, result) in [(18, false), (26, false), (34, true)] {
            assert_eq!(limited.on_feedback(sent, sent + 10), result, "{sent}");
        }
    }

    const S: u64 = 1_000_000_000;

    #[test]
    fn achieved_rate_is_kept_and_decays_in_minutes() {
        let mut achieved = Achieved::new(0);
        assert_eq!(achieved.on_feedback(800.0, false, S), 800.0);
        // A low rate without loss says that there was little to send.
        assert_eq!(achieved.on_feedback(10.0, false, 2 * S), 800.0);
        for (at, rate) in [(121, 800.0), (241, 400.0), (301, 200.0), (361, 0.0)] {
            assert_eq!(achieved.fast_max(at * S), rate, "{at} s");
        }
        // Half decayed, it is reached again sooner, and counts from then on.
        assert_eq!(achieved.on_feedback(500.0, false, 241 * S), 500.0);
        assert_eq!(achieved.fast_max(361 * S), 500.0);
    }

    #[test]
    fn achieved_rate_with_a_loss_below_it_is_half_of_that() {
        let mut achieved = Achieved::new(0);
        // A loss at a higher rate than ever does not refute the old one; an event reaches into
        // the next feedback.
        for (now, x_recv, rose, fast) in [
            (1, 800.0, false, 800.0),
            (2, 900.0, true, 800.0),
            (3, 100.0, false, 50.0),
            (4, 40.0, false, 50.0),
            (5, 60.0, false, 60.0),
        ] {
            assert_eq!(achieved.on_feedback(x_recv, rose, now * S), fast, "{now} s");
        }
    }
}
