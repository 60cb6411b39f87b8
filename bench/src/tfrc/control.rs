//! The control loop of a TFRC sender: what left (a tap behind the queue) and what
//! arrived (reports) in, the allowed rate out. No sockets here: a test can drive it.

use std::collections::HashMap;

use super::{
    LossEvents,
    receiver::{Data, Receiver},
    reports::Entry,
    sender::{Options, Rests, Sender},
    window::WindowCounter,
};
use crate::sys::MILLI;

/// A packet that left later than this after it was ready had to wait for the rate, ns:
/// above the lateness of a sender on a busy machine, below the time of one packet at
/// any rate that media are sent at.
const WAITED: u64 = MILLI;

/// A packet that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Position in the schedule.
    pub sequence: u32,
    /// When it was ready to be sent, ns.
    pub created: u64,
    /// When it left, ns.
    pub at: u64,
    /// Bytes on the wire.
    pub bytes: u32,
}

/// A moment of the control loop.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Sample {
    /// ns of CLOCK_MONOTONIC.
    pub at: u64,
    /// Allowed rate, bytes/s.
    pub rate: f64,
    /// Smoothed round trip, ns.
    pub rtt: u64,
    /// Loss events per packet.
    pub p: f64,
}

/// Both halves of TFRC on the sending host. The receiver's half runs on reported
/// arrivals; its clock is this host's, late by the reports' way back.
#[derive(Debug)]
pub struct Control {
    sender: Sender,
    receiver: Receiver,
    /// Where it tells loss events apart.
    windows: Option<WindowCounter>,
    /// By number: when the packet left, the RTT known then, and its size.
    left: Vec<Data>,
    number_of: HashMap<u32, u64>,
    arrived: u64,
    /// Shortest way back of a report, ns.
    back: u64,
    samples: Vec<Sample>,
}

impl Control {
    /// Starts at `now` ns with the RTT (ns) that the greeting took.
    pub fn new(options: Options, loss_events: LossEvents, rtt: u64, now: u64) -> Self {
        let windows = match loss_events {
            LossEvents::RoundTrip => None,
            LossEvents::WindowCounter => Some(WindowCounter::default()),
        };
        let mut control = Self {
            sender: Sender::new(options, Some(rtt), now),
            receiver: Receiver::default(),
            windows,
            left: Vec::new(),
            number_of: HashMap::new(),
            arrived: 0,
            back: u64::MAX,
            samples: Vec::new(),
        };
        control.sample(now);
        control
    }

    /// A packet left the host, after all queues of it. Only now it gets a number.
    pub fn on_departure(&mut self, departure: Departure) {
        let (number, rtt) = (self.left.len() as u64, self.sender.rtt());
        let window = self.windows.as_mut();
        self.left.push(Data {
            number,
            sent: departure.at,
            rtt,
            window: window.map(|counter| counter.on_sent(departure.at, rtt)),
            bytes: departure.bytes,
        });
        self.number_of.insert(departure.sequence, number);
        let waited = departure.at > departure.created + WAITED;
        self.sender.on_sent(departure.at, departure.bytes, waited);
    }

    /// A report came at `now` ns. Entries seen before change nothing.
    pub fn on_report(&mut self, entries: &[Entry], now: u64) {
        if let Some(newest) = entries.last() {
            self.back = self.back.min(now.saturating_sub(newest.at));
        }
        for entry in entries {
            // Known once: the first report of an arrival takes it out.
            let Some(number) = self.number_of.remove(&entry.sequence) else {
                continue;
            };
            self.arrived += 1;
            if self.receiver.on_data(self.left[number as usize], entry.at) {
                self.feed(entry.at, now);
            }
        }
    }

    /// When [`on_time`](Self::on_time) must be called next, ns.
    pub fn due(&self) -> u64 {
        let feedback = self.receiver.due().map_or(u64::MAX, |due| self.here(due));
        feedback.min(self.sender.nofeedback())
    }

    /// The receiver's time `at` as this host learns of it.
    fn here(&self, at: u64) -> u64 {
        at.saturating_add(if self.back == u64::MAX { 0 } else { self.back })
    }

    /// Timers, at `now` ns.
    pub fn on_time(&mut self, now: u64) {
        if let Some(due) = self.receiver.due()
            && self.here(due) <= now
        {
            self.feed(due, now);
        }
        if self.sender.nofeedback() <= now {
            self.sender.on_nofeedback(now);
            self.sample(now);
        }
    }

    /// The receiver's feedback of its time `then` reaches the sender at `now`.
    fn feed(&mut self, then: u64, now: u64) {
        if let Some(feedback) = self.receiver.feedback(then) {
            self.sender.on_feedback(&feedback, now);
            self.sample(now);
        }
    }

    fn sample(&mut self, at: u64) {
        self.samples.push(Sample {
            at,
            rate: self.sender.rate(),
            rtt: self.sender.rtt(),
            p: self.sender.p(),
        });
    }

    /// Allowed rate, bytes/s.
    pub fn rate(&self) -> f64 {
        self.sender.rate()
    }

    /// Mean size of what left, bytes (s).
    pub fn segment(&self) -> f64 {
        self.sender.segment()
    }

    /// Smoothed round trip, ns.
    pub fn rtt(&self) -> u64 {
        self.sender.rtt()
    }

    /// The least sample of the round trip so far, ns.
    pub fn least_rtt(&self) -> u64 {
        self.sender.least_rtt()
    }

    /// Packets that left, arrived by report, and counted as lost by TFRC.
    pub fn counts(&self) -> [u64; 3] {
        [self.left.len() as u64, self.arrived, self.receiver.lost()]
    }

    /// How often the sender was idle or data-limited.
    pub fn rests(&self) -> Rests {
        self.sender.rests()
    }

    /// The course of the rate.
    pub fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 80 * MILLI;

    /// Offers a packet of 500 bytes every 10 ms for 10 s; some the queue drops, some the
    /// network loses; the rest arrives 40 ms after it left, its report 40 ms later.
    fn run(queue_drops: impl Fn(u32) -> bool, network_loses: impl Fn(u32) -> bool) -> Control {
        run_with(LossEvents::RoundTrip, queue_drops, network_loses)
    }

    fn run_with(
        loss_events: LossEvents,
        queue_drops: impl Fn(u32) -> bool,
        network_loses: impl Fn(u32) -> bool,
    ) -> Control {
        let options = Options {
            segment: 500.0,
            damp: false,
            nominal: false,
            faster: false,
        };
        let mut control = Control::new(options, loss_events, RTT, 0);
        let mut reports: Vec<(u64, Entry)> = Vec::new();
        for sequence in 0..1000u32 {
            let now = u64::from(sequence) * 10 * MILLI;
            while let Some((at, entry)) = reports.first().copied()
                && at <= now
            {
                reports.remove(0);
                control.on_report(&[entry], at);
            }
            while control.due() <= now {
                control.on_time(control.due());
            }
            if queue_drops(sequence) {
                continue;
            }
            control.on_departure(Departure {
                sequence,
                created: now,
                at: now,
                bytes: 500,
            });
            if !network_loses(sequence) {
                let at = now + RTT / 2;
                reports.push((now + RTT, Entry { sequence, at }));
            }
        }
        control
    }

    #[test]
    fn what_the_senders_queue_drops_is_no_loss() {
        let dropping = run(|n| n % 10 == 3 || n % 100 < 20, |_| false);
        let [left, arrived, lost] = dropping.counts();
        assert!(left < 800 && arrived > 600, "{left} {arrived}");
        assert_eq!((lost, dropping.sender.p()), (0, 0.0));

        // The same gaps, but in the network: every fifth packet and more.
        let losing = run(|_| false, |n| n % 10 == 3 || n % 100 < 20);
        let [_, _, lost] = losing.counts();
        assert!(lost > 200, "{lost}");
        assert!(losing.sender.p() > 0.01, "{}", losing.sender.p());
        assert!(losing.rate() < dropping.rate());
    }

    #[test]
    fn a_window_counter_makes_events_longer() {
        // A packet every 10 ms, a round trip of 80: every tenth that is lost is an event of its
        // own. The counter moves every 20 ms, and in 100 ms by five, which is an event, too;
        // every ninth is lost within four or five of it.
        let p = |events, every| {
            run_with(events, |_| false, move |n| n % every == 5)
                .sender
                .p()
        };
        let tenth = [LossEvents::RoundTrip, LossEvents::WindowCounter].map(|e| p(e, 10));
        assert!((tenth[0] - tenth[1]).abs() < 0.01, "{tenth:?}");
        let ninth = [LossEvents::RoundTrip, LossEvents::WindowCounter].map(|e| p(e, 9));
        assert!(ninth[1] < 0.8 * ninth[0], "{ninth:?}");
    }

    #[test]
    fn both_at_once_are_told_apart() {
        let control = run(|n| n % 3 == 0, |n| n % 50 == 1);
        let [_, _, lost] = control.counts();
        // Before the first arrival nothing can be missed.
        assert_eq!(
            lost,
            (2..980).filter(|n| n % 50 == 1 && n % 3 != 0).count() as u64
        );
    }

    #[test]
    fn a_lost_report_loses_nothing() {
        let options = Options {
            segment: 500.0,
            damp: false,
            nominal: false,
            faster: false,
        };
        let mut control = Control::new(options, LossEvents::default(), RTT, 0);
        let mut entries = Vec::new();
        for sequence in 0..12 {
            let at = u64::from(sequence) * 10 * MILLI;
            control.on_departure(Departure {
                sequence,
                created: at,
                at,
                bytes: 500,
            });
            entries.push(Entry {
                sequence,
                at: at + RTT / 2,
            });
        }
        // Only the last of twelve reports comes, and then once more.
        control.on_report(&entries, 200 * MILLI);
        control.on_report(&entries, 201 * MILLI);
        assert_eq!(control.counts(), [12, 12, 0]);
    }

    #[test]
    fn the_round_trip_leaves_out_the_senders_queue() {
        let options = Options {
            segment: 500.0,
            damp: false,
            nominal: false,
            faster: false,
        };
        let mut control = Control::new(options, LossEvents::default(), RTT, 0);
        for sequence in 0..100u32 {
            // Ready 150 ms before it left.
            let at = u64::from(sequence) * 20 * MILLI + 150 * MILLI;
            control.on_departure(Departure {
                sequence,
                created: at - 150 * MILLI,
                at,
                bytes: 500,
            });
            let entry = Entry {
                sequence,
                at: at + RTT / 2,
            };
            control.on_report(&[entry], at + RTT);
            control.on_time(at + RTT);
        }
        assert!(control.rtt().abs_diff(RTT) < MILLI, "{}", control.rtt());
    }
}
