//! X_recv_set: the receive rates that limit how fast a sender may go (RFC 5348 §4.3).

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_round_trips_are_remembered() {
        let mut rates = ReceiveRates::new(0);
        rates.update(100.0, 5, 10);
        assert_eq!(rates.max(), f64::INFINITY);
        rates.update(50.0, 21, 10);
        assert_eq!(rates.max(), 100.0);
        rates.update(60.0, 26, 10);
        assert_eq!(rates.max(), 60.0);
    }

    #[test]
    fn maximizing_keeps_the_largest_and_forgets_infinity() {
        let mut rates = ReceiveRates::new(0);
        rates.maximize(80.0, 1);
        assert_eq!(rates.max(), 80.0);
        rates.maximize(50.0, 2);
        assert_eq!(rates.max(), 80.0);
        rates.halve();
        rates.maximize(42.5, 3);
        assert_eq!(rates.max(), 42.5);
        rates.replace(7.0, 4);
        assert_eq!(rates.max(), 7.0);
    }
}
