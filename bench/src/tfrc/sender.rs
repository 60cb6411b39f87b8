//! The sender's half of TFRC (RFC 5348 §4): how fast it may send.

use super::{
    Restart, equation,
    limits::{Achieved, Limited, ReceiveRates, quicken},
    receiver::Feedback,
    seconds,
};

/// Longest time between two packets (t_mbi), s.
const T_MBI: f64 = 64.0;
/// Share of the old value in the smoothed RTT (the RFC's q).
const Q: f64 = 0.9;
/// A mean of equal RTTs may come out a little larger than each, ns.
const ROUNDING: u64 = 1000;
/// Nofeedback timer before the first feedback, ns (§4.2).
const FIRST_NOFEEDBACK: u64 = 2_000_000_000;

/// How often the rules for idle and data-limited senders had a say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rests {
    /// Feedback packets after the first.
    pub feedback: u64,
    /// Those of them that cover a data-limited interval (§8.2.1).
    pub data_limited: u64,
    /// Ends of the nofeedback timer.
    pub silence: u64,
    /// Those of them before which nothing had left: the sender was idle (§4.4).
    pub idle: u64,
    /// Feedback packets upon which Faster Restart raised the limit of the receive rates; X
    /// rises with it only where the equation allows.
    pub quickened: u64,
}

/// The state of a sender. Times are ns of one clock, passed in.
#[derive(Clone, Debug)]
pub struct Sender {
    restart: Restart,
    /// Allowed rate X, bytes/s.
    x: f64,
    /// What the equation gave last; infinite before the first loss event.
    x_bps: f64,
    p: f64,
    /// Mean size in bytes of what left, over about 64 packets (§4.1).
    size: f64,
    /// Smoothed, s.
    rtt: f64,
    rates: ReceiveRates,
    limited: Limited,
    achieved: Achieved,
    rests: Rests,
    /// When X was doubled last, ns.
    doubled: u64,
    nofeedback: u64,
    /// Something was sent since the nofeedback timer was set.
    busy: bool,
    fed: bool,
}

impl Sender {
    /// A sender that starts at `now` ns with packets of `segment` bytes (s, until some have
    /// left) and the RTT in ns that a handshake measured (§4.2).
    pub fn new(segment: f64, restart: Restart, rtt: u64, now: u64) -> Self {
        let mut sender = Self {
            restart,
            x: 0.0,
            x_bps: f64::INFINITY,
            p: 0.0,
            size: segment,
            rtt: seconds(rtt),
            rates: ReceiveRates::new(now),
            limited: Limited::default(),
            achieved: Achieved::new(now),
            rests: Rests::default(),
            doubled: now,
            nofeedback: now + FIRST_NOFEEDBACK,
            busy: false,
            fed: false,
        };
        sender.x = sender.initial_rate();
        sender
    }

    /// Allowed rate now, bytes/s. (Oscillations are not damped: §4.5 leaves it open.)
    pub fn rate(&self) -> f64 {
        self.x
    }

    /// Mean size of what left over about 64 packets, bytes (s, §4.1).
    pub fn segment(&self) -> f64 {
        self.size
    }

    /// Smoothed round trip, ns.
    pub fn rtt(&self) -> u64 {
        (self.rtt * 1e9) as u64
    }

    /// How often it was idle or data-limited.
    pub fn rests(&self) -> Rests {
        self.rests
    }

    /// When the nofeedback timer ends, ns.
    pub fn nofeedback(&self) -> u64 {
        self.nofeedback
    }

    /// A packet of `bytes` left at `at` ns. `waited`: it was ready earlier and the rate
    /// held it back, so the sender is sending all that it is allowed to (§8.2.1).
    pub fn on_sent(&mut self, at: u64, bytes: u32, waited: bool) {
        self.size += (f64::from(bytes) - self.size) / 64.0;
        self.busy = true;
        if waited {
            self.limited.not_limited(at);
        }
    }

    /// W_init/R: two to four packets per round trip, 4380 bytes if they are between (§4.2).
    fn initial_rate(&self) -> f64 {
        let s = self.size;
        (4.0 * s).min((2.0 * s).max(4380.0)) / self.rtt
    }

    /// One packet per 64 s.
    fn least(&self) -> f64 {
        self.size / T_MBI
    }

    /// Feedback came at `now` ns (§4.3).
    pub fn on_feedback(&mut self, feedback: &Feedback, now: u64) {
        let sample = seconds(now.saturating_sub(feedback.sent + feedback.delay).max(1000));
        self.rtt = Q * self.rtt + (1.0 - Q) * sample;
        let rose = feedback.new_loss || feedback.p > self.p;
        self.p = feedback.p;
        let data_limited = self.limited.on_feedback(feedback.sent, now);
        if !self.fed {
            // §4.2: the first feedback brings an RTT and no rate worth the name.
            self.fed = true;
            self.doubled = now;
            if self.p > 0.0 {
                self.set_rate(f64::INFINITY, now);
            }
        } else {
            let fast_max = self.achieved.on_feedback(feedback.x_recv, rose, now);
            let mut limit = if !data_limited {
                self.rates.update(feedback.x_recv, now, self.rtt());
                2.0 * self.rates.max()
            } else if rose {
                self.rates.halve();
                self.rates.maximize(0.85 * feedback.x_recv, now);
                self.rates.max()
            } else {
                self.rates.maximize(feedback.x_recv, now);
                2.0 * self.rates.max()
            };
            self.rests.feedback += 1;
            self.rests.data_limited += u64::from(data_limited);
            // Not where a loss event ends a data-limited interval.
            if self.restart == Restart::Faster && !(data_limited && rose) {
                let quickened = quicken(limit, fast_max);
                self.rests.quickened += u64::from(quickened > limit);
                limit = quickened;
            }
            self.set_rate(limit, now);
        }
        self.set_timer(now);
    }

    /// Step 4 of §4.3.
    fn set_rate(&mut self, limit: f64, now: u64) {
        if self.p > 0.0 {
            self.x_bps = equation::rate(self.size, self.rtt, self.p);
            self.x = self.x_bps.min(limit).max(self.least());
        } else if now.saturating_sub(self.doubled) + ROUNDING >= self.rtt() {
            self.x = (2.0 * self.x).min(limit).max(self.initial_rate());
            self.doubled = now;
        }
    }

    /// RTO = max(4R, 2s/X) from `now` on.
    fn set_timer(&mut self, now: u64) {
        self.nofeedback = now + ((4.0 * self.rtt).max(2.0 * self.size / self.x) * 1e9) as u64;
        self.busy = false;
    }

    /// The nofeedback timer ended (§4.4): half the rate, unless the sender was idle and
    /// no faster than it may start.
    pub fn on_nofeedback(&mut self, now: u64) {
        let idle = !self.busy;
        self.rests.silence += 1;
        self.rests.idle += u64::from(idle);
        let x_recv = self.rates.max();
        let recover = match self.restart {
            Restart::Rfc5348 => self.initial_rate(),
            Restart::Faster => 2.0 * self.initial_rate(),
        };
        let slow = if self.p > 0.0 {
            x_recv < recover
        } else {
            self.x < 2.0 * recover
        };
        if slow && idle {
            // Nothing to tell, nothing to be told.
        } else if self.p <= 0.0 {
            self.x = (self.x / 2.0).max(self.least());
        } else {
            // Whichever limited the rate is halved; X_recv does by half of itself.
            let halved = x_recv.min(self.x_bps / 2.0).max(self.least());
            self.rates.replace(halved / 2.0, now);
            self.set_rate(2.0 * self.rates.max(), now);
        }
        self.set_timer(now);
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
