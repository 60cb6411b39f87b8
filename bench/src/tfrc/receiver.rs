//! The receiver's half of TFRC (RFC 5348 §6): when feedback is due, and what it says.

use std::collections::VecDeque;

use super::{
    equation,
    losses::{Intervals, Losses},
    seconds,
};

/// A data packet that arrived (§3.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its number: counted without gaps as packets left the host.
    pub number: u64,
    /// When it left, ns.
    pub sent: u64,
    /// The sender's RTT when it left, ns.
    pub rtt: u64,
    /// Its bytes, counted as the rate counts them.
    pub bytes: u32,
}

/// A feedback packet (§3.2.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feedback {
    /// When the newest packet left the sender, ns (t_recvdata).
    pub sent: u64,
    /// From its arrival to this feedback, ns (t_delay).
    pub delay: u64,
    /// Rate of arrivals over the last round trip, bytes/s.
    pub x_recv: f64,
    /// Loss events per packet, 0..=1.
    pub p: f64,
    /// A loss event came since the last feedback.
    pub new_loss: bool,
}

/// The state of a receiver. Times are ns of one clock, passed in.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    losses: Losses,
    intervals: Intervals,
    /// First packet of the newest loss event.
    event: Option<u64>,
    /// Arrivals of the last round trip and a little more: time and bytes.
    recent: VecDeque<(u64, u32)>,
    newest: Option<(Data, u64)>,
    /// Mean size of packets in bytes, over about 64.
    size: f64,
    /// Largest X_recv that any feedback has carried.
    x_recv_max: f64,
    p_told: f64,
    new_loss: bool,
    /// Data came since the last feedback.
    fresh: bool,
    due: Option<u64>,
}

impl Receiver {
    /// `data` arrived at `at` ns. Returns true if feedback must go now: after the first
    /// packet, and when the rate of loss events has risen (§6.1).
    pub fn on_data(&mut self, data: Data, at: u64) -> bool {
        let first = self.newest.is_none();
        self.size = if first {
            f64::from(data.bytes)
        } else {
            self.size + (f64::from(data.bytes) - self.size) / 64.0
        };
        self.recent.push_back((at, data.bytes));
        // Two round trips are more than any feedback looks back.
        while let Some(&(old, _)) = self.recent.front()
            && old + 2 * data.rtt.max(1_000_000) < at
            && self.recent.len() > 1
        {
            self.recent.pop_front();
        }
        if self
            .newest
            .is_none_or(|(newest, _)| data.sent >= newest.sent)
        {
            self.newest = Some((data, at));
        }
        self.fresh = true;
        for event in self.losses.on_arrival(data.number, at, data.rtt) {
            let length = match self.event {
                Some(before) => (event - before) as f64,
                None => 1.0 / self.first_loss_event_rate(data.rtt),
            };
            self.intervals.close(length);
            self.event = Some(event);
            self.new_loss = true;
        }
        first || (self.new_loss && self.p() > self.p_told)
    }

    /// §6.3.1: the rate of loss events that explains the rate so far, rather than the
    /// number of packets before the first loss, which slow start has inflated. With
    /// nothing received over a whole round trip yet: half a packet per round trip.
    fn first_loss_event_rate(&self, rtt: u64) -> f64 {
        let r = seconds(rtt.max(1_000_000));
        let least = self.size / (2.0 * r);
        let x = self.x_recv_max.max(self.rate_over(rtt)).max(least);
        equation::loss_event_rate(self.size, r, x)
    }

    /// Loss events per packet now (§5.4).
    pub fn p(&self) -> f64 {
        match (self.event, self.losses.highest()) {
            (Some(event), Some(highest)) => self
                .intervals
                .loss_event_rate((highest - event) as f64 + 1.0),
            _ => 0.0,
        }
    }

    /// Bytes/s over the `window` ns up to the newest arrival.
    fn rate_over(&self, window: u64) -> f64 {
        let Some((_, at)) = self.newest else {
            return 0.0;
        };
        let window = window.max(1_000_000);
        let bytes: u64 = self
            .recent
            .iter()
            .filter(|(then, _)| then + window > at)
            .map(|(_, bytes)| u64::from(*bytes))
            .sum();
        bytes as f64 / seconds(window)
    }

    /// When feedback is due, ns (once per round trip, §6.2); `None` before the first packet.
    pub fn due(&self) -> Option<u64> {
        self.due
    }

    /// The feedback to send at `now` ns, either because [`due`](Self::due) has come or
    /// because [`on_data`](Self::on_data) asked for it; `None` where no data came since the
    /// last one (§6.2). The timer starts again either way.
    pub fn feedback(&mut self, now: u64) -> Option<Feedback> {
        let (data, at) = self.newest?;
        let first = self.due.is_none();
        self.due = Some(now + data.rtt);
        if !self.fresh {
            return None;
        }
        // §6.3: the first feedback has measured no rate yet.
        let x_recv = if first { 0.0 } else { self.rate_over(data.rtt) };
        self.x_recv_max = self.x_recv_max.max(x_recv);
        let feedback = Feedback {
            sent: data.sent,
            delay: now.saturating_sub(at),
            x_recv,
            p: self.p(),
            new_loss: self.new_loss,
        };
        self.p_told = feedback.p;
        self.new_loss = false;
        self.fresh = false;
        Some(feedback)
    }

    /// Packets counted as lost in the network.
    pub fn lost(&self) -> u64 {
        self.losses.lost()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RTT: u64 = 100 * MS;

    fn data(number: u64, sent: u64) -> Data {
        Data {
            number,
            sent,
            rtt: RTT,
            bytes: 1000,
        }
    }

    #[test]
    fn receiver_answers_the_first_packet_at_once_and_then_once_per_round_trip() {
        let mut receiver = Receiver::default();
        assert_eq!(receiver.due(), None);
        assert!(receiver.on_data(data(0, 0), 50 * MS));
        let first = receiver.feedback(50 * MS).expect("feedback");
        assert_eq!((first.x_recv, first.p, first.delay), (0.0, 0.0, 0));
        assert_eq!(receiver.due(), Some(150 * MS));
        // Ten packets of 1000 bytes in the next 100 ms: 100,000 bytes/s.
        for n in 1..=10 {
            assert!(!receiver.on_data(data(n, n * 10 * MS), (50 + n * 10) * MS));
        }
        let second = receiver.feedback(155 * MS).expect("feedback");
        assert_eq!((second.sent, second.delay), (100 * MS, 5 * MS));
        assert!((second.x_recv - 100_000.0).abs() < 1.0, "{}", second.x_recv);
        // Nothing new: no feedback, but the timer goes on.
        assert_eq!(receiver.feedback(255 * MS), None);
        assert_eq!(receiver.due(), Some(355 * MS));
    }

    #[test]
    fn receiver_tells_a_loss_at_once_and_seeds_its_history_from_the_rate() {
        let mut receiver = Receiver::default();
        let mut told = None;
        for n in 0..100 {
            if n == 50 {
                continue;
            }
            let at = n * 10 * MS + 50 * MS;
            if receiver.on_data(data(n, n * 10 * MS), at) || receiver.due().is_some_and(|d| d <= at)
            {
                let feedback = receiver.feedback(at).expect("feedback");
                if feedback.p > 0.0 && told.is_none() {
                    told = Some((n, feedback));
                }
            }
        }
        let (n, feedback) = told.expect("the loss is told");
        // Three packets after the hole.
        assert_eq!(n, 53);
        assert!(feedback.new_loss);
        // 100,000 bytes/s arrived: p is what the equation needs for that.
        let x = equation::rate(1000.0, 0.1, feedback.p);
        assert!((x / 100_000.0 - 1.0).abs() < 0.05, "{x}");
    }
}
