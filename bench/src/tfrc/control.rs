//! The control loop of a TFRC sender: what left (a tap behind the queue) and what
//! arrived (reports) in, the allowed rate out. No sockets here: a test can drive it.

use std::collections::HashMap;

use super::{
    Restart,
    receiver::{Data, Receiver},
    reports::Entry,
    sender::Sender,
};
use crate::{
    sys::MILLI,
    traffic::{HEADERS, wire::HEADER},
};

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

    /// A report came at `now` ns. Entries seen before change nothing. A header alone is as good as its
    /// packet, but for the bytes.
    pub fn on_report(&mut self, entries: &[Entry], now: u64) {
        if let Some(newest) = entries.last() {
            self.back = self.back.min(now.saturating_sub(newest.at));
        }
        for entry in entries {
            // Known once: the first report of an arrival takes it out.
            let Some(number) = self.number_of.remove(&entry.sequence) else {
                continue;
            };
            let mut data = self.left[number as usize];
            if !entry.whole {
                data.bytes = HEADERS + HEADER as u32;
            }
            if self.receiver.on_data(data, entry.at) {
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
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::tfrc::equation;

    const RTT: u64 = 80 * MILLI;
    const SIZE: u32 = 1000;

    /// A packet that leaves at `at`, ready at `created`, and arrives `delay` later, ns.
    fn leave(control: &mut Control, sequence: u32, created: u64, at: u64, delay: u64) -> Entry {
        control.on_departure(Departure {
            sequence,
            created,
            at,
            bytes: SIZE,
        });
        let at = at + delay;
        Entry {
            sequence,
            whole: true,
            at,
        }
    }

    /// A path of `delay` ms each way for so many seconds, and what is offered to it: a packet
    /// every 10 ms, or, greedy, all that may be sent. Some the queue drops, some the network
    /// loses. Returns the packets/s of the second half, too.
    fn course(
        (restart, greedy): (Restart, bool),
        (delay, seconds): (u64, u64),
        dropped: impl Fn(u32) -> bool,
        lost: impl Fn(u32) -> bool,
    ) -> (Control, f64) {
        let (delay, end) = (delay * MILLI, seconds * 1000 * MILLI);
        let mut control = Control::new(SIZE.into(), restart, 2 * delay, 0);
        let mut reports: VecDeque<(u64, Entry)> = VecDeque::new();
        let (mut sequence, mut next, mut now, mut late) = (0, 0, 0, 0);
        while now < end {
            let report = reports.front().map_or(u64::MAX, |(at, _)| *at);
            now = next.min(report).min(control.due());
            if let Some((_, entry)) = reports.pop_front_if(|(at, _)| *at <= now) {
                control.on_report(&[entry], now);
            } else if control.due() <= now {
                control.on_time(now);
            } else {
                if !dropped(sequence) {
                    let created = if greedy { 0 } else { now };
                    let entry = leave(&mut control, sequence, created, now, delay);
                    if !lost(sequence) {
                        reports.push_back((now + 2 * delay, entry));
                    }
                }
                sequence += 1;
                late += u32::from(now > end / 2);
                next = now + 10 * MILLI;
                if greedy {
                    next = now + (f64::from(SIZE) / control.sender().rate() * 1e9) as u64;
                }
            }
        }
        (control, f64::from(late) * 2.0 / seconds as f64)
    }

    fn greedy(restart: Restart, path: (u64, u64), lost: impl Fn(u32) -> bool) -> (Control, f64) {
        course((restart, true), path, |_| false, lost)
    }

    #[test]
    fn control_takes_losses_of_the_network_alone_for_losses() {
        let run = |dropped: fn(u32) -> bool, lost: fn(u32) -> bool| {
            course((Restart::default(), false), (40, 10), dropped, lost).0
        };
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
    fn control_under_constant_loss_converges_to_the_equation() {
        for (delay, every) in [(15, 50), (40, 100), (75, 400), (40, 20)] {
            let lost = |n| n % every == every - 1;
            let (_, rate) = greedy(Restart::Rfc5348, (delay, 120), lost);
            let expected = equation::rate(1.0, 2e-3 * delay as f64, 1.0 / f64::from(every));
            assert!(
                (rate / expected - 1.0).abs() < 0.05,
                "{delay} ms, 1/{every}: {rate} not {expected}"
            );
        }
    }

    #[test]
    fn control_without_loss_doubles_its_rate_every_other_round_trip() {
        let (control, _) = greedy(Restart::Rfc5348, (50, 2), |_| false);
        // From 4000 bytes per 100 ms. Twice the receive rate is the limit, and that rate is
        // of packets sent before the last doubling: so not every round trip.
        let doublings = (control.sender().rate() / 40_000.0).log2();
        assert!((9.0..=11.0).contains(&doublings), "{doublings}");
    }

    #[test]
    fn control_never_idle_is_not_changed_by_a_faster_restart() {
        let [(slow, slow_rate), (fast, fast_rate)] = [Restart::Rfc5348, Restart::Faster]
            .map(|restart| greedy(restart, (40, 60), |n| n % 100 == 99));
        let rates = [slow, fast].map(|control| control.sender().rate());
        assert_eq!((rates[0], slow_rate), (rates[1], fast_rate));
    }

    #[test]
    fn control_without_a_report_learns_it_from_the_next() {
        let mut control = Control::new(SIZE.into(), Restart::default(), RTT, 0);
        let entries = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(|n| {
            let at = u64::from(n) * 10 * MILLI;
            leave(&mut control, n, at, at, RTT / 2)
        });
        // Only the last of twelve reports comes, and then once more.
        control.on_report(&entries, 200 * MILLI);
        control.on_report(&entries, 201 * MILLI);
        assert_eq!((control.number_of.len(), control.lost()), (0, 0));
    }

    #[test]
    fn control_takes_a_lone_header_for_an_arrival_of_few_bytes() {
        // A packet each 20 ms, and what becomes of all but the first.
        let course = |fate: fn(Entry) -> Option<Entry>| {
            let mut control = Control::new(SIZE.into(), Restart::default(), RTT, 0);
            for n in 0..60 {
                let at = u64::from(n) * 20 * MILLI;
                let entry = leave(&mut control, n, at, at, RTT / 2);
                let entry = if n > 0 { fate(entry) } else { Some(entry) };
                control.on_report(entry.as_slice(), at + RTT);
                control.on_time(at + RTT);
            }
            (control.lost(), control.sender().rate() / f64::from(SIZE))
        };
        let (lost, rate) = course(|entry| (entry.sequence % 4 != 1).then_some(entry));
        assert!(lost > 10 && rate < 30.0, "{lost} {rate}");
        // Twice what was received, and what a sender begins with.
        let (lost, rate) = course(Some);
        assert!(lost == 0 && (rate - 100.0).abs() < 1.0, "{lost} {rate}");
        let (lost, rate) = course(|entry| {
            Some(Entry {
                whole: false,
                ..entry
            })
        });
        assert!(lost == 0 && (rate - 50.0).abs() < 1.0, "{lost} {rate}");
    }

    #[test]
    fn control_leaves_the_senders_queue_out_of_the_round_trip() {
        let mut control = Control::new(SIZE.into(), Restart::default(), RTT, 0);
        for sequence in 0..100u32 {
            let created = u64::from(sequence) * 20 * MILLI;
            let at = created + 150 * MILLI;
            let entry = leave(&mut control, sequence, created, at, RTT / 2);
            control.on_report(&[entry], at + RTT);
            control.on_time(at + RTT);
        }
        let rtt = control.sender().rtt();
        assert!(rtt.abs_diff(RTT) < MILLI, "{rtt}");
    }

    proptest! {
        #[test]
        fn control_under_random_loss_stays_near_the_equation(
            seed in any::<u64>(), one_in in 20u64..200,
        ) {
            // A generator of its own (splitmix64), so that the loss of packet n is fixed.
            let lost = move |n: u32| {
                let mut z = seed.wrapping_add(u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                (z ^ (z >> 31)) % one_in == 0
            };
            let (_, rate) = greedy(Restart::Rfc5348, (40, 200), lost);
            let expected = equation::rate(1.0, 0.08, 1.0 / one_in as f64);
            // Losses within a round trip are one event, so it may be faster than 1/p.
            prop_assert!(rate > 0.7 * expected && rate < 1.8 * expected, "{rate}, {expected}");
        }
    }
}
