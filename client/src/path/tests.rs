//! The path against a fluid link: constant delay, a FIFO, a sender that follows the room it is given.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const MSS: u64 = 1448;

/// One direction of a link, its receiver, and what the kernel would report about it.
struct Link {
    now: u64,
    /// bytes/s.
    rate: u64,
    min_rtt: u64,
    /// Bytes that the FIFO holds at most; what comes then is lost and counts as retransmitted.
    fifo: u64,
    queue: f64,
    /// (time of its ACK, bytes) of what is on the way.
    acks: VecDeque<(u64, u64)>,
    in_flight: u64,
    /// (time, bytes acknowledged).
    delivered: VecDeque<(u64, u64)>,
    total: u64,
    srtt: u64,
    least: u64,
    retransmitted: u32,
    cwnd: u64,
    /// When the window was last halved.
    halved: u64,
}

impl Link {
    fn new(rate: u64, min_rtt: u64) -> Self {
        Self {
            now: SECOND,
            rate,
            min_rtt,
            fifo: 60 * MSS,
            queue: 0.0,
            acks: VecDeque::new(),
            in_flight: 0,
            delivered: VecDeque::new(),
            total: 0,
            srtt: min_rtt,
            least: min_rtt,
            retransmitted: 0,
            cwnd: 10_000 * MSS,
            halved: 0,
        }
    }

    fn send(&mut self, bytes: u64) {
        if self.queue + bytes as f64 > self.fifo as f64 {
            self.retransmitted = self.retransmitted.wrapping_add(1);
            if self.now > self.halved + self.srtt {
                self.cwnd = (self.in_flight / 2).max(4 * MSS);
                self.halved = self.now;
            }
            return;
        }
        self.queue += bytes as f64;
        let wait = (self.queue * 1e9 / self.rate as f64) as u64;
        self.acks.push_back((self.now + self.min_rtt + wait, bytes));
        self.in_flight += bytes;
    }

    /// One millisecond.
    fn step(&mut self) {
        self.now += MS;
        self.queue = (self.queue - self.rate as f64 / 1000.0).max(0.0);
        while let Some(&(at, bytes)) = self.acks.front() {
            if at > self.now {
                break;
            }
            self.acks.pop_front();
            self.in_flight -= bytes;
            self.total += bytes;
            self.cwnd += bytes / 32; // 3 % in a round trip
            self.delivered.push_back((at, bytes));
            let rtt = self.min_rtt + (self.queue * 1e9 / self.rate as f64) as u64;
            self.srtt = (7 * self.srtt + rtt) / 8;
            self.least = self.least.min(rtt);
        }
        let span = self.srtt.max(5 * MS);
        while self
            .delivered
            .front()
            .is_some_and(|d| d.0 + span < self.now)
        {
            self.delivered.pop_front();
        }
    }

    fn report(&self) -> Report {
        let span = self.srtt.max(5 * MS);
        let bytes: u64 = self.delivered.iter().map(|d| d.1).sum();
        Report {
            now: self.now,
            srtt: self.srtt,
            min_rtt: self.least,
            rate: (u128::from(bytes) * 1_000_000_000 / u128::from(span)) as u64,
            app_limited: self.in_flight + MSS < self.cwnd,
            retransmitted: self.retransmitted,
            mss: MSS,
            cwnd: self.cwnd,
            segments_in_flight: self.in_flight,
            in_flight: self.in_flight,
            unsent: 0,
            window: None,
            acked: Some(self.total),
        }
    }
}

/// Drives `link` for `time`; `offered` bytes/s come in, all of them at once every `period`. What has waited for
/// 200 ms is given up. Returns bytes/s that arrived.
fn drive(path: &mut Path, link: &mut Link, time: u64, offered: u64, period: u64) -> u64 {
    let (end, before) = (link.now + time, link.total);
    let mut waiting = 0u64;
    let mut pressed = false;
    while link.now < end {
        link.step();
        if link.now.is_multiple_of(period) {
            waiting += offered * (period / MS) / 1000;
            waiting = waiting.min(offered / 5);
        }
        let report = link.report();
        path.update(&report, pressed);
        let mut room = path.room(&report, 0);
        while waiting >= MSS && room >= MSS {
            link.send(MSS);
            waiting -= MSS;
            room -= MSS;
        }
        pressed = waiting >= MSS;
    }
    let bytes = u128::from(link.total - before);
    (bytes * u128::from(SECOND) / u128::from(time)) as u64
}

fn path() -> Path {
    Path::new(Some(20 * MS))
}

#[test]
fn pressed_sender_fills_the_link_with_a_short_queue() {
    for (rate, rtt) in [(125_000, 80), (32_000, 20), (2_500_000, 40), (125_000, 300)] {
        let (mut path, mut link) = (path(), Link::new(rate, rtt * MS));
        drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
        let got = drive(&mut path, &mut link, 10 * SECOND, 3 * rate, 20 * MS);
        assert!(got * 100 >= rate * 95, "{rate} bytes/s, {rtt} ms: {got}");
        let queue = link.srtt - link.min_rtt;
        let segments = 6 * MSS * SECOND / rate;
        assert!(queue <= 40 * MS + segments, "{rate}, {rtt}: {queue} ns");
        let estimate = path.rate() * 100 / rate;
        assert!(
            (90..=130).contains(&estimate),
            "{rate}, {rtt}: {estimate} %"
        );
    }
}

#[test]
fn application_limited_samples_do_not_start_the_spiral() {
    // A frame every 33 ms, 92 % of the link: most of the kernel's samples see a pause.
    let rate = 108_750; // 870 kbit/s
    let (mut path, mut link) = (path(), Link::new(rate, 80 * MS));
    drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
    for _ in 0..10 {
        drive(&mut path, &mut link, 10 * SECOND, rate * 92 / 100, 33 * MS);
        assert!(path.rate() * 100 >= rate * 95, "{} of {rate}", path.rate());
    }
    let got = drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
    assert!(got * 100 >= rate * 95, "{got} of {rate}");
}

#[test]
fn rate_follows_a_step_down_and_up_again() {
    for rtt in [20, 80, 150] {
        let rate = 500_000;
        let (mut path, mut link) = (path(), Link::new(rate, rtt * MS));
        drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
        link.rate = rate / 4;
        drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
        let down = path.rate() * 100 / link.rate;
        assert!((90..=140).contains(&down), "{rtt} ms: {down} %");
        assert!(link.srtt - link.min_rtt < 120 * MS, "{rtt}: {}", link.srtt);
        link.rate = rate;
        drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
        let up = drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
        assert!(up * 100 >= rate * 95, "{rtt} ms: {up}");
    }
}

#[test]
fn a_longer_path_is_taken_for_one_after_a_while() {
    let rate = 250_000;
    let (mut path, mut link) = (path(), Link::new(rate, 30 * MS));
    drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
    link.min_rtt = 150 * MS; // the kernel's least RTT stays what it was
    drive(&mut path, &mut link, 30 * SECOND, 3 * rate, 20 * MS);
    let got = drive(&mut path, &mut link, 10 * SECOND, 3 * rate, 20 * MS);
    assert!(got * 100 >= rate * 90, "{got} of {rate}, {path:?}");
    assert!(path.min_rtt() >= 140 * MS, "{path:?}");
    link.min_rtt = 30 * MS;
    drive(&mut path, &mut link, 5 * SECOND, 3 * rate, 20 * MS);
    assert!(path.min_rtt() <= 60 * MS, "{path:?}");
}

#[test]
fn without_a_cap_the_window_decides() {
    let mut path = Path::new(None);
    let mut report = Link::new(125_000, 40 * MS).report();
    report.rate = 125_000;
    report.cwnd = 20 * MSS;
    report.segments_in_flight = 15 * MSS;
    path.update(&report, true);
    assert_eq!((path.cap(), path.room(&report, 0)), (None, 5 * MSS));
    report.window = Some(2 * MSS);
    report.unsent = 100;
    assert_eq!(path.room(&report, 48), 2 * MSS - 148);
    report.segments_in_flight = 25 * MSS; // the window collapsed
    assert_eq!(path.room(&report, 0), 0);
}

#[test]
fn owd_counts_the_queue_on_the_way_there() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    path.update(&report, false);
    assert_eq!(path.view(report.now).owd, 40 * MS);
    report.srtt = 130 * MS;
    report.in_flight = 5 * MSS;
    path.update(&report, false);
    assert_eq!(path.view(report.now).owd, 90 * MS);
}

#[test]
fn margin_lasts_3_s_after_a_retransmission_and_the_counter_may_wrap() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    report.retransmitted = u32::MAX;
    path.update(&report, false);
    assert_eq!(
        path.view(report.now).margin,
        0,
        "the first report is no loss"
    );
    report.retransmitted = 0;
    path.update(&report, false);
    assert_eq!(path.view(report.now).margin, 100 * MS);
    assert_eq!(path.view(report.now + 3 * SECOND - 1).margin, 100 * MS);
    assert_eq!(path.view(report.now + 3 * SECOND).margin, 0);
    assert_eq!(path.view(0).margin, 100 * MS, "a clock that jumped back");
}

#[test]
fn nothing_known_is_no_limit_but_the_window() {
    let mut path = path();
    let report = Report {
        cwnd: 10,
        ..Report::default()
    };
    path.update(&report, true);
    assert_eq!(path.view(0), View::default());
    assert_eq!((path.cap(), path.room(&report, 3)), (None, 7));
}

prop_compose! {
    fn any_report()(
        times in prop::array::uniform3(any::<u64>()),
        amounts in prop::array::uniform6(any::<u64>()),
        small in any::<bool>(),
        app_limited in any::<bool>(),
        retransmitted in any::<u32>(),
        window in any::<Option<u64>>(),
        acked in any::<Option<u64>>(),
    ) -> Report {
        let shift = if small { 30 } else { 0 };
        let [now, srtt, min_rtt] = times.map(|t| t >> shift);
        let [rate, mss, cwnd, segments_in_flight, in_flight, unsent] = amounts.map(|a| a >> shift);
        Report {
            now, srtt, min_rtt, rate, app_limited, retransmitted, mss: mss & 0xffff, cwnd,
            segments_in_flight, in_flight, unsent, window, acked,
        }
    }
}

proptest! {
    /// No report and no clock makes it panic, or gives room beyond window and congestion window.
    #[test]
    fn room_is_never_more_than_any_limit(
        reports in prop::collection::vec((any_report(), any::<bool>(), any::<u64>()), 1..40),
        queue in any::<Option<u64>>(),
    ) {
        let mut path = Path::new(queue.map(|q| q >> 20));
        for (report, pressed, held) in reports {
            path.update(&report, pressed);
            let room = path.room(&report, held);
            let in_flight = report.segments_in_flight;
            prop_assert!(room <= report.cwnd.saturating_sub(in_flight));
            prop_assert!(report.window.is_none_or(|window| room <= window));
            if let Some(cap) = path.cap() {
                prop_assert!(room <= cap.saturating_sub(report.in_flight));
            }
            prop_assert!(path.view(report.now).owd <= path.srtt());
        }
    }

    /// A sample that is application-limited while nothing waits never lowers what full samples said.
    #[test]
    fn application_limited_sample_never_lowers_the_rate(
        rates in prop::collection::vec((1u64..10_000_000, 1u64..5_000), 1..200),
        full in 1u64..1_000_000,
    ) {
        let mut path = path();
        let mut report = Link::new(125_000, 80 * MS).report();
        report.acked = None;
        (report.rate, report.app_limited) = (full, false);
        path.update(&report, true);
        prop_assert_eq!(path.rate(), full);
        for (rate, ms) in rates {
            report.now += ms * MS;
            (report.rate, report.app_limited) = (rate, true);
            path.update(&report, false);
            prop_assert!(path.rate() >= full.max(rate));
        }
    }
}

#[test]
fn one_fast_packet_is_no_rate() {
    // A bucket lets the first packet through at once.
    let mut path = path();
    let mut report = Link::new(32_000, MS / 20).report();
    path.update(&report, true);
    for n in 1..100 {
        report.now += 45 * MS;
        report.rate = 45_000_000;
        report.acked = Some(n * MSS);
        path.update(&report, true);
        assert!(path.rate() <= 80_000, "{}", path.rate());
    }
}

#[test]
fn a_claim_alone_is_no_rate_and_ends_with_a_full_sample() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    report.acked = None;
    (report.rate, report.app_limited) = (900_000, true);
    path.update(&report, false);
    assert_eq!((path.rate(), path.cap()), (0, None));
    (report.rate, report.app_limited) = (100_000, false);
    path.update(&report, false);
    assert_eq!(path.rate(), 100_000);
    (report.rate, report.app_limited) = (300_000, true);
    path.update(&report, false);
    assert_eq!(path.rate(), 300_000);
    (report.rate, report.app_limited) = (90_000, false);
    path.update(&report, false);
    assert_eq!(path.rate(), 100_000);
}

#[test]
fn a_rate_that_starves_everybody_is_doubted_while_there_is_room() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    (report.rate, report.app_limited, report.acked) = (12_500, false, None);
    path.update(&report, true);
    path.starved(report.now);
    assert_eq!(path.rate(), 12_500, "the room is the limit");
    report.app_limited = true;
    for _ in 0..40 {
        report.now += 20 * MS;
        path.update(&report, false);
        path.starved(report.now);
    }
    let doubled = path.rate();
    assert!((50_000..=3_200_000).contains(&doubled), "{doubled}");
    report.app_limited = false;
    path.update(&report, true);
    assert_eq!(path.rate(), 12_500, "a full sample says better");
}

#[test]
fn a_queue_that_is_gone_keeps_nothing_back_for_ever() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    (report.rate, report.app_limited, report.acked) = (125_000, false, None);
    (report.srtt, report.min_rtt) = (900 * MS, 80 * MS);
    report.in_flight = 100_000;
    path.update(&report, true);
    assert_eq!(path.view(report.now).owd, 860 * MS);
    // All is given up because of that, and the kernel has no new sample.
    report.in_flight = 0;
    path.update(&report, false);
    assert!(path.view(report.now + MS).owd <= 50 * MS);
    // It tries, and the queue is still there: somebody else's.
    report.now += 2 * SECOND;
    report.in_flight = 2 * MSS;
    path.update(&report, true);
    assert_eq!(path.view(report.now).owd, 860 * MS);
}

#[test]
fn a_handshake_that_measured_a_timer_keeps_nothing_back_for_ever() {
    let mut path = path();
    let mut report = Link::new(125_000, 80 * MS).report();
    // The answer to the first SYN was lost, and the second one names the first.
    (report.srtt, report.min_rtt) = (1_200 * MS, 1_200 * MS);
    (report.rate, report.acked, report.in_flight) = (0, None, 0);
    path.update(&report, false);
    assert_eq!(path.view(report.now).owd, 600 * MS);
    // Who gives nothing up tries nothing.
    report.now += SECOND;
    path.update(&report, false);
    assert_eq!(path.view(report.now).owd, 600 * MS);
    path.refused(report.now);
    assert_eq!(path.view(report.now + 99 * MS).owd, 600 * MS);
    report.now += 100 * MS;
    path.refused(report.now);
    assert_eq!(path.view(report.now).owd, 0);
    report.in_flight = MSS;
    path.update(&report, false);
    assert_eq!(path.view(report.now).owd, 600 * MS);
    // The way is as long as it seemed: the next try waits longer, but no more than some seconds.
    for pause in [200, 400, 800, 1_600, 3_200, 6_400, 6_400] {
        report.in_flight = 0;
        report.now += 2 * SECOND;
        path.update(&report, false);
        path.refused(report.now);
        report.now += pause * MS;
        assert_eq!(path.view(report.now - MS).owd, 600 * MS, "{pause}");
        assert_eq!(path.view(report.now).owd, 0, "{pause}");
        report.in_flight = MSS;
        path.update(&report, false);
    }
    // It is short: then the way is known.
    (report.srtt, report.min_rtt) = (1_060 * MS, 80 * MS);
    (report.rate, report.app_limited, report.in_flight) = (125_000, false, 0);
    path.update(&report, false);
    assert!(path.view(report.now + MS).owd <= 50 * MS);
}
