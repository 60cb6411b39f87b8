//! The control loop of a TFRC sender: what left (a tap behind the queue) and what
//! arrived (reports) in, the allowed rate out. No sockets here: a test can drive it.

use std::collections::HashMap;

use super::{
    Restart,
    receiver::{Data, Receiver},
    reports::Entry,
    sender::Sender,
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

/// Both halves of TFRC on the sending host. The receiver's half runs on reported
/// arrivals; its clock is this host's, late by the reports' way back.
#[derive(Debug)]
pub struct Control {
    sender: Sender,
    receiver: Receiver,
    /// By number: when the packet left, the RTT known then, and its size.
    left: Vec<Data>,
    /// Of those that no report has named yet.
    number_of: HashMap<u32, u64>,
    /// Shortest way back of a report, ns.
    back: u64,
    /// Smoothed round trips after each change, ns: their sum and number.
    rtts: (f64, u32),
}

impl Control {
    /// Starts at `now` ns with packets of `segment` bytes in the mean and the RTT (ns) that
    /// the greeting took.
    pub fn new(segment: f64, restart: Restart, rtt: u64, now: u64) -> Self {
        let mut control = Self {
            sender: Sender::new(segment, restart, rtt, now),
            receiver: Receiver::default(),
            left: Vec::new(),
            number_of: HashMap::new(),
            back: u64::MAX,
            rtts: (0.0, 0),
        };
        control.observe();
        control
    }

    /// A packet left the host, after all queues of it. Only now it gets a number.
    pub fn on_departure(&mut self, departure: Departure) {
        let number = self.left.len() as u64;
        self.left.push(Data {
            number,
            sent: departure.at,
            rtt: self.sender.rtt(),
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
            self.observe();
        }
    }

    /// The receiver's feedback of its time `then` reaches the sender at `now`.
    fn feed(&mut self, then: u64, now: u64) {
        if let Some(feedback) = self.receiver.feedback(then) {
            self.sender.on_feedback(&feedback, now);
            self.observe();
        }
    }

    fn observe(&mut self) {
        self.rtts.0 += self.sender.rtt() as f64;
        self.rtts.1 += 1;
    }

    /// The sender's half.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Packets that TFRC counted as lost.
    pub fn lost(&self) -> u64 {
        self.receiver.lost()
    }

    /// Mean of the smoothed round trip, ns.
    pub fn mean_rtt(&self) -> f64 {
        self.rtts.0 / f64::from(self.rtts.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 80 * MILLI;

    fn control() -> Control {
        Control::new(500.0, Restart::default(), RTT, 0)
    }

    /// A packet that leaves at `at`, ready before by so many ns.
    fn leave(control: &mut Control, sequence: u32, at: u64, before: u64) -> Entry {
        control.on_departure(Departure {
            sequence,
            created: at - before,
            at,
            bytes: 500,
        });
        Entry {
            sequence,
            at: at + RTT / 2,
        }
    }

    /// Offers a packet of 500 bytes every 10 ms for 10 s; some the queue drops, some the
    /// network loses; the rest arrives 40 ms after it left, its report 40 ms later.
    fn run(queue_drops: impl Fn(u32) -> bool, network_loses: impl Fn(u32) -> bool) -> Control {
        let mut control = control();
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
            let entry = leave(&mut control, sequence, now, 0);
            if !network_loses(sequence) {
                reports.push((now + RTT, entry));
            }
        }
        control
    }

    #[test]
    fn control_takes_losses_of_the_network_alone_for_losses() {
        let dropping = run(|n| n % 10 == 3 || n % 100 < 20, |_| false);
        assert_eq!(dropping.lost(), 0);
        // The same gaps, but in the network: every fifth packet and more.
        let losing = run(|_| false, |n| n % 10 == 3 || n % 100 < 20);
        assert!(losing.lost() > 200, "{}", losing.lost());
        assert!(losing.sender().rate() < dropping.sender().rate());

        let both = run(|n| n % 3 == 0, |n| n % 50 == 1);
        // Before the first arrival nothing can be missed.
        let lost = (2..980).filter(|n| n % 50 == 1 && n % 3 != 0).count();
        assert_eq!(both.lost(), lost as u64);
    }

    #[test]
    fn control_without_a_report_learns_it_from_the_next() {
        let mut control = control();
        let entries: Vec<Entry> = (0..12)
            .map(|n| leave(&mut control, n, u64::from(n) * 10 * MILLI, 0))
            .collect();
        // Only the last of twelve reports comes, and then once more.
        control.on_report(&entries, 200 * MILLI);
        control.on_report(&entries, 201 * MILLI);
        assert_eq!((control.number_of.len(), control.lost()), (0, 0));
    }

    #[test]
    fn control_leaves_the_senders_queue_out_of_the_round_trip() {
        let mut control = control();
        for sequence in 0..100u32 {
            let at = u64::from(sequence) * 20 * MILLI + 150 * MILLI;
            let entry = leave(&mut control, sequence, at, 150 * MILLI);
            control.on_report(&[entry], at + RTT);
            control.on_time(at + RTT);
        }
        let rtt = control.sender().rtt();
        assert!(rtt.abs_diff(RTT) < MILLI, "{rtt}");
    }
}
