//! `--rate auto`: who is asked by echo requests, and how often. Pure.
//!
//! 1. Echo requests cost at most 1 % of what is sent. An answer each 50 ms is worth having; one each second at least
//!    shows that somebody answers.
//! 2. A path on which nothing is sent has no queue of ours: it is not asked.
//! 3. Of the receivers the busiest says most of the path, if it answers. It stays while it answers, because another
//!    one has another path, of which nothing is known yet.

use std::collections::VecDeque;
use std::net::IpAddr;

const SECOND: u64 = 1_000_000_000;
/// Between two requests, ns.
pub(crate) const SHORTEST: u64 = SECOND / 20;
const LONGEST: u64 = SECOND;
/// Requests are one part of so many of what is sent.
const PARTS: u64 = 100;
/// The rate of what is sent is that of so long, ns.
const WINDOW: u64 = SECOND;
/// Looks of a window that are kept.
const LOOKS: usize = 32;
/// An interface on which nothing but requests was sent for so long is idle, ns.
const IDLE: u64 = 60 * SECOND;
/// The most that the data path counts for a request, bytes.
const REQUEST_MOST: u64 = 128;
/// More was wanted, if it was so lately, ns.
const WANTED: u64 = 10 * SECOND;
/// A receiver answers, if it did so lately, ns.
const ANSWERS: u64 = 5 * SECOND;
/// A receiver that has not answered for so long makes room for another, ns.
const PATIENCE: u64 = 3 * SECOND;
/// A receiver that did not answer is not asked again for so long, ns.
const TRIED: u64 = 60 * SECOND;
/// A receiver to which nothing was sent for so long has no traffic, ns.
const TRAFFIC: u64 = 10 * SECOND;

/// Between two echo requests of so many bytes, ns. `rate`: what is sent, or could be, bytes/s.
pub(crate) fn interval(bytes: u64, rate: u64) -> u64 {
    let ns = u128::from(PARTS * bytes) * u128::from(SECOND) / u128::from(rate.max(1));
    u64::try_from(ns).map_or(LONGEST, |ns| ns.clamp(SHORTEST, LONGEST))
}

/// Whether more would have been sent lately than left.
pub(crate) const fn is_wanted(gave_up_ns: u64, waited_ns: u64, now: u64) -> bool {
    let last = if gave_up_ns > waited_ns {
        gave_up_ns
    } else {
        waited_ns
    };
    last > 0 && now.saturating_sub(last) < WANTED
}

/// How much leaves an interface.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// When it was looked at, and the bytes that had left by then.
    looks: VecDeque<(u64, u64)>,
    /// When other traffic than requests was seen last.
    busy_ns: u64,
    /// The beginning of the time in which other traffic is looked for, and the bytes that had left by then.
    from: (u64, u64),
    /// Requests since.
    requests: u64,
}

impl Pace {
    pub(crate) fn new(now: u64, sent: u64) -> Self {
        Self {
            looks: VecDeque::from([(now, sent)]),
            busy_ns: now,
            from: (now, sent),
            requests: 0,
        }
    }

    /// Takes in how many bytes have left by now.
    pub(crate) fn look(&mut self, now: u64, sent: u64) {
        if self.looks.back().is_some_and(|(_, before)| *before > sent) {
            // The path's state was begun again.
            let busy_ns = self.busy_ns;
            *self = Self::new(now, sent);
            self.busy_ns = busy_ns;
            return;
        }
        self.looks.push_back((now, sent));
        // The oldest one is as old as the window, or the last one that is older.
        while self.looks.len() > LOOKS
            || self.looks.get(1).is_some_and(|(at, _)| *at + WINDOW <= now)
        {
            self.looks.pop_front();
        }
        let (from, before) = self.from;
        if now.saturating_sub(from) >= WINDOW {
            if sent - before > self.requests * REQUEST_MOST {
                self.busy_ns = now;
            }
            (self.from, self.requests) = ((now, sent), 0);
        }
    }

    /// A request was sent.
    pub(crate) fn asked(&mut self) {
        self.requests += 1;
    }

    /// Bytes that left in the last second.
    pub(crate) fn rate(&self) -> u64 {
        let (Some((from, before)), Some((to, sent))) = (self.looks.front(), self.looks.back())
        else {
            return 0;
        };
        let ns = u128::from((to - from).max(WINDOW));
        u64::try_from(u128::from(sent - before) * u128::from(SECOND) / ns).unwrap_or(u64::MAX)
    }

    /// Whether nothing but requests was sent for a minute.
    pub(crate) const fn is_idle(&self, now: u64) -> bool {
        now.saturating_sub(self.busy_ns) >= IDLE
    }
}

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) addr: IpAddr,
    /// Since when it is asked, without a pause.
    pub(crate) since_ns: u64,
    /// When something was sent to it last.
    traffic_ns: u64,
}

/// Chooses who is asked. Times are ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    pub(crate) asked: Option<Asked>,
    /// Receivers that did not answer, and when they were given up. A minute has few.
    tried: Vec<(IpAddr, u64)>,
}

impl Choice {
    /// This one is asked from now on, or nobody.
    pub(crate) fn aim(&mut self, addr: Option<IpAddr>, now: u64) {
        if self.asked.map(|a| a.addr) != addr {
            self.asked = addr.map(|addr| Asked {
                addr,
                since_ns: now,
                traffic_ns: now,
            });
        }
    }

    /// Nobody was asked for a while: silence says nothing.
    pub(crate) fn rest(&mut self, now: u64) {
        if let Some(asked) = &mut self.asked {
            asked.since_ns = now;
        }
    }

    /// For how long it is asked in vain, ns; `heard_ns`: the last answer.
    pub(crate) fn unanswered(&self, heard_ns: u64, now: u64) -> Option<u64> {
        let asked = self.asked?;
        Some(now.saturating_sub(asked.since_ns.max(heard_ns)))
    }

    /// Chooses among receivers to which packets were sent since the last look, and how many. `heard_ns`: the last
    /// answer.
    pub(crate) fn choose(&mut self, busy: &[(IpAddr, u64)], heard_ns: u64, now: u64) {
        self.tried.retain(|(_, at)| now.saturating_sub(*at) < TRIED);
        if let Some(asked) = &mut self.asked {
            if busy.iter().any(|(addr, _)| *addr == asked.addr) {
                asked.traffic_ns = now;
            }
            let silent = now.saturating_sub(asked.since_ns.max(heard_ns));
            // Before its first answer there is less patience.
            let patience = if heard_ns > asked.since_ns {
                ANSWERS
            } else {
                PATIENCE
            };
            let addr = asked.addr;
            if silent < patience {
                if now.saturating_sub(asked.traffic_ns) < TRAFFIC {
                    return;
                }
            } else if self.tried.iter().all(|(tried, _)| *tried != addr) {
                self.tried.push((addr, now));
            }
        }
        let asked = self.asked.map(|a| a.addr);
        let others = busy.iter().filter(|(addr, _)| {
            Some(*addr) != asked && self.tried.iter().all(|(tried, _)| tried != addr)
        });
        // Where nobody else is left, the same one may answer one day.
        if let Some((addr, _)) = others.max_by_key(|(addr, packets)| (*packets, *addr)) {
            self.aim(Some(*addr), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = SECOND / 1000;

    fn addr(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn interval_of_requests_is_one_per_cent_of_the_rate_within_bounds() {
        // 50 bytes in 98 ms are 1 % of 51 kB/s.
        assert_eq!(interval(50, 51_000), 98_039_215);
        assert_eq!(interval(50, 0), LONGEST);
        assert_eq!(interval(50, 1), LONGEST);
        assert_eq!(interval(50, u64::MAX), SHORTEST);
    }

    #[test]
    fn more_is_wanted_for_ten_seconds() {
        assert!(!is_wanted(0, 0, SECOND));
        assert!(is_wanted(SECOND, 0, 10 * SECOND));
        assert!(is_wanted(0, SECOND, 10 * SECOND));
        assert!(!is_wanted(SECOND, SECOND, 11 * SECOND));
    }

    #[test]
    fn pace_is_what_left_in_the_last_second() {
        let mut pace = Pace::new(0, 1000);
        assert_eq!(pace.rate(), 0);
        for n in 1..=100 {
            pace.look(n * 50 * MS, 1000 + n * 500);
        }
        assert_eq!(pace.rate(), 10_000);
        // Looks that are far apart.
        pace.look(15 * SECOND, 151_000);
        assert_eq!(pace.rate(), 10_000);
        // A state that was begun again.
        pace.look(16 * SECOND, 0);
        assert_eq!(pace.rate(), 0);
    }

    #[test]
    fn interface_is_idle_after_a_minute_of_nothing_but_requests() {
        let mut pace = Pace::new(0, 0);
        let mut sent = 0;
        for s in 1..60 {
            sent += REQUEST_MOST;
            pace.asked();
            pace.look(s * SECOND, sent);
            assert!(!pace.is_idle(s * SECOND));
        }
        pace.look(61 * SECOND, sent);
        assert!(pace.is_idle(61 * SECOND));
        pace.look(62 * SECOND, sent + 1500);
        assert!(!pace.is_idle(62 * SECOND));
    }

    #[test]
    fn busiest_receiver_is_asked_and_stays_while_it_answers() {
        let mut choice = Choice::default();
        let asked = |choice: &Choice| choice.asked.map(|a| a.addr);
        choice.choose(&[], 0, SECOND);
        assert_eq!(asked(&choice), None);
        choice.choose(&[(addr(1), 5), (addr(2), 9)], 0, 2 * SECOND);
        assert_eq!(asked(&choice), Some(addr(2)));
        // It has three seconds for its first answer, and then five for each.
        choice.choose(&[(addr(1), 50), (addr(2), 9)], 0, 4 * SECOND);
        assert_eq!(asked(&choice), Some(addr(2)));
        let heard = 4 * SECOND + 1;
        choice.choose(&[(addr(1), 50), (addr(2), 9)], heard, 9 * SECOND);
        assert_eq!(asked(&choice), Some(addr(2)));
        choice.choose(&[(addr(1), 50), (addr(2), 9)], heard, 10 * SECOND);
        assert_eq!(asked(&choice), Some(addr(1)));
    }

    #[test]
    fn receiver_that_does_not_answer_makes_room_for_a_minute() {
        let mut choice = Choice::default();
        let busy = [(addr(1), 1), (addr(2), 2), (addr(3), 3)];
        let mut seen = Vec::new();
        for s in 0..=61 {
            choice.choose(&busy, 0, s * SECOND);
            seen.push(choice.asked.unwrap().addr);
        }
        assert_eq!(seen[..3], [addr(3); 3]);
        assert_eq!(seen[3..6], [addr(2); 3]);
        // All were tried: the last one goes on.
        assert_eq!(seen[6..61], [addr(1); 55]);
    }

    #[test]
    fn receiver_without_traffic_makes_room_and_silence_in_a_pause_does_not_count() {
        let mut choice = Choice::default();
        choice.choose(&[(addr(1), 1)], 0, SECOND);
        for s in 2..=11 {
            let now = s * SECOND;
            choice.choose(&[(addr(2), 1)], now, now);
            let wanted = if s < 11 { addr(1) } else { addr(2) };
            assert_eq!(choice.asked.unwrap().addr, wanted, "{s}");
        }
        choice.rest(100 * SECOND);
        assert_eq!(
            choice.unanswered(11 * SECOND, 102 * SECOND),
            Some(2 * SECOND)
        );
        choice.choose(&[(addr(1), 1), (addr(2), 1)], 11 * SECOND, 102 * SECOND);
        assert_eq!(choice.asked.unwrap().addr, addr(2));
    }

    proptest! {
        #[test]
        fn who_is_asked_is_busy_or_was_and_few_are_remembered(
            looks in prop::collection::vec(
                (prop::collection::vec((0u8..9, 1u64..99), 0..9), any::<bool>()), 0..200),
        ) {
            let (mut choice, mut heard) = (Choice::default(), 0);
            let mut before = None;
            for ((busy, answers), s) in looks.into_iter().zip(1..) {
                let now = s * 2 * SECOND;
                let busy: Vec<_> = busy.into_iter().map(|(a, n)| (addr(a), n)).collect();
                choice.choose(&busy, heard, now);
                let is = choice.asked.map(|a| a.addr);
                prop_assert!(is == before || busy.iter().any(|(a, _)| Some(*a) == is));
                prop_assert!(choice.tried.len() <= 32);
                before = is;
                if answers {
                    heard = now + 1;
                }
            }
        }
    }
}
