//! `--stamp probed`: which destinations' paths carry LPD's option.
//!
//! 1. The classifier notes each destination of such a rule (`bb_probed`), and stamps nothing until the agent has
//!    probed the path: one destination a second, whoever has waited longest.
//! 2. What came through is asked again each minute while packets go there. The answer counts for three: should the
//!    agent die, stamping ends.
//! 3. What did not is asked again after 1, 2, 4, ... 60 minutes.
//! 4. Where TCP's stamped segments vanish, the classifier takes the answer back, and the path is asked at once. If
//!    nothing comes back, the path is down, and asked until it is up again. Otherwise echo requests may pass where TCP
//!    does not: if that repeats itself, stamping waits as after a failure.

use std::collections::HashMap;
use std::net::IpAddr;

use bestby_bpf::abi;
use bestby_probe::Path;

/// What the classifier leaves in the entry where TCP's segments vanish.
const VANISH: u64 = abi::BB_PROBED_VANISH as u64;
pub(crate) const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
/// How often a path that carries the option is asked again.
const RENEW: u64 = MINUTE;
/// For so many renewals an answer counts.
const COUNTS: u64 = 3;
/// The longest wait after a failure.
const LONGEST: u64 = 60 * MINUTE;
/// A path that carries the option for so long has no failures any more; a destination to which nothing goes for so
/// long is forgotten.
pub(crate) const HELD: u64 = 10 * MINUTE;
/// Until a path that is down is asked again.
const AGAIN: u64 = 10 * SECOND;
/// Far longer than a probe takes: its answer was lost.
const PATIENCE: u64 = 30 * SECOND;

/// What is known of one destination. Times are ns of CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    /// When it is asked next.
    pub(crate) due: u64,
    /// When it was asked last; `None`: never.
    pub(crate) asked: Option<u64>,
    /// Whether the answer is still awaited.
    waiting: bool,
    /// The last answer.
    pub(crate) found: Option<Path>,
    /// Since when each answer was that the path carries the option.
    since: u64,
    /// Probes without success, and answers that were taken back, since the path has [`HELD`].
    pub(crate) failures: u32,
    /// Since when TCP's stamped segments vanish, while nothing says why.
    pub(crate) doubt: Option<u64>,
    /// Meanwhile echo requests without the option were not answered either.
    outage: bool,
}

/// What becomes of a destination's entry in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The path counts as one that carries the option until then; 0: it does not.
    Until(u64),
    /// It stays as it is.
    Stays,
}

/// All destinations of rules with `stamp probed`.
#[derive(Debug, Default)]
pub(crate) struct Probes(pub(crate) HashMap<IpAddr, Destination>);

fn pause(failures: u32) -> u64 {
    (MINUTE << failures.saturating_sub(1).min(6)).min(LONGEST)
}

/// Whether a probe can be sent there: to one host, and no link need be named.
pub(crate) fn can_be_asked(addr: IpAddr) -> bool {
    let one_link = matches!(addr, IpAddr::V6(a) if a.is_unicast_link_local());
    let broadcast = addr == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
    !addr.is_multicast() && !addr.is_unspecified() && !broadcast && !one_link
}

impl Probes {
    /// Takes in what the kernel has, and names the destination to ask now.
    pub(crate) fn next(&mut self, seen: &[(IpAddr, abi::bb_probed)], now: u64) -> Option<IpAddr> {
        let seen: HashMap<IpAddr, abi::bb_probed> = seen.iter().copied().collect();
        self.0.retain(|addr, _| seen.contains_key(addr));
        for (&addr, entry) in &seen {
            let known = self.0.entry(addr).or_insert(Destination {
                due: now,
                asked: None,
                waiting: false,
                found: None,
                since: now,
                failures: 0,
                doubt: None,
                outage: false,
            });
            if known.found == Some(Path::Tolerates) && entry.until_ns == 0 {
                // It made room for another, and is back.
                known.found = None;
                known.due = now;
            }
            if known.found == Some(Path::Tolerates) && entry.until_ns == VANISH {
                tracing::warn!(
                    "packets with LPD's option to {addr} vanish: they go without until a probe comes through"
                );
                known.found = None;
                known.doubt = Some(now);
                known.due = now;
            }
        }
        // Every other second the answers that count go first: a thousand new destinations, which any user can make,
        // must not let them grow old.
        let renewals = (now / SECOND).is_multiple_of(2);
        let (&addr, known) = self
            .0
            .iter_mut()
            .filter(|(addr, known)| {
                let used = seen
                    .get(addr)
                    .is_some_and(|e| now < e.used_ns.saturating_add(RENEW));
                let waiting =
                    known.waiting && known.asked.is_some_and(|asked| now < asked + PATIENCE);
                known.due <= now && !waiting && (used || known.asked.is_none())
            })
            .min_by_key(|(addr, known)| {
                let renewal = known.found == Some(Path::Tolerates);
                (renewal != renewals, known.due, **addr)
            })?;
        known.waiting = true;
        known.asked = Some(now);
        Some(addr)
    }

    /// Takes in an answer.
    pub(crate) fn learn(&mut self, addr: IpAddr, path: Path, until: u64, now: u64) -> Entry {
        let many = self.0.len() as u64 * SECOND;
        let Some(known) = self.0.get_mut(&addr) else {
            return Entry::Stays; // its entry made room for another
        };
        known.waiting = false;
        if let Some(since) = known.doubt {
            // The link that LPD is for stands still at times. That is not the option's fault.
            if path == Path::Silent && now < since + MINUTE {
                known.outage = true;
                known.due = now + AGAIN;
                return Entry::Stays;
            }
            known.doubt = None;
            if path == Path::Tolerates && !std::mem::take(&mut known.outage) {
                known.failures = known.failures.saturating_add(1);
                if known.failures > 1 {
                    known.due = now + pause(known.failures - 1);
                    return Entry::Stays;
                }
            }
        }
        if path == Path::Tolerates {
            if known.found != Some(Path::Tolerates) {
                known.since = now;
            }
            if now - known.since >= HELD {
                known.failures = 0;
            }
            known.found = Some(path);
            known.due = now + RENEW;
            return Entry::Until(now + COUNTS * RENEW.max(many));
        }
        // What does not tell takes nothing back.
        if path != Path::Drops && now < until {
            known.due = now + RENEW;
            return Entry::Stays;
        }
        known.found = Some(path);
        known.failures = known.failures.saturating_add(1);
        known.due = now + pause(known.failures);
        Entry::Until(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn entry(until_ns: u64, used_ns: u64) -> abi::bb_probed {
        abi::bb_probed { until_ns, used_ns }
    }

    /// A destination in use, second by second.
    struct Run {
        probes: Probes,
        now: u64,
        until: u64,
    }

    impl Run {
        fn new() -> Self {
            Self {
                probes: Probes::default(),
                now: 1000 * SECOND,
                until: 0,
            }
        }

        /// Seconds until it is asked again, which gives this answer.
        fn until_asked(&mut self, path: Path) -> u64 {
            for waited in 0.. {
                let seen = [(A, entry(self.until, self.now))];
                if self.probes.next(&seen, self.now).is_some() {
                    if let Entry::Until(until) = self.probes.learn(A, path, self.until, self.now) {
                        self.until = until;
                    }
                    return waited;
                }
                self.now += SECOND;
            }
            unreachable!()
        }

        fn stamps(&self) -> bool {
            self.now < self.until
        }
    }

    #[test]
    fn path_that_carries_the_option_is_asked_each_minute() {
        let mut run = Run::new();
        assert_eq!(run.until_asked(Path::Tolerates), 0);
        for _ in 0..20 {
            assert!(run.stamps());
            assert_eq!(run.until_asked(Path::Tolerates), 60);
        }
        assert_eq!(run.until - run.now, 180 * SECOND);
    }

    #[test]
    fn path_that_does_not_is_asked_ever_more_seldom() {
        for path in [Path::Drops, Path::Silent, Path::Unsure] {
            let mut run = Run::new();
            assert_eq!(run.until_asked(path), 0);
            for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
                assert_eq!(run.until_asked(path), minutes * 60);
                assert!(!run.stamps());
            }
            // One that works then is asked as any other.
            assert_eq!(run.until_asked(Path::Tolerates), 3600);
            assert!(run.stamps());
            assert_eq!(run.until_asked(Path::Tolerates), 60);
        }
    }

    #[test]
    fn answer_that_does_not_tell_takes_back_nothing_until_it_is_too_old() {
        let mut run = Run::new();
        run.until_asked(Path::Tolerates);
        for _ in 0..2 {
            assert_eq!(run.until_asked(Path::Silent), 60);
            assert!(run.stamps());
        }
        assert_eq!(run.until_asked(Path::Silent), 60);
        assert!(!run.stamps());
        // One that tells does.
        let mut run = Run::new();
        run.until_asked(Path::Tolerates);
        run.until_asked(Path::Drops);
        assert!(!run.stamps());
    }

    #[test]
    fn path_where_packets_vanish_is_asked_at_once_and_then_ever_more_seldom() {
        let mut run = Run::new();
        run.until_asked(Path::Tolerates);
        for (minutes, n) in [0, 1, 2, 4].into_iter().zip(0..) {
            run.now += SECOND;
            run.until = VANISH; // the classifier does
            assert_eq!(run.until_asked(Path::Tolerates), 0, "{n}");
            assert_eq!(run.stamps(), minutes == 0);
            if minutes > 0 {
                assert_eq!(run.until_asked(Path::Tolerates), minutes * 60, "{n}");
            }
            assert!(run.stamps());
        }
        // Ten minutes without such a thing are forgiveness.
        for _ in 0..10 {
            run.until_asked(Path::Tolerates);
        }
        run.until = VANISH;
        assert_eq!(run.until_asked(Path::Tolerates), 0);
        assert!(run.stamps());
        // An entry that made room and is back was nobody's fault.
        for _ in 0..3 {
            run.until = 0;
            assert_eq!(run.until_asked(Path::Tolerates), 0);
            assert!(run.stamps());
        }
    }

    #[test]
    fn path_that_is_down_for_a_while_is_no_failure() {
        let mut run = Run::new();
        run.until_asked(Path::Tolerates);
        for _ in 0..5 {
            run.now += SECOND;
            run.until = VANISH; // the classifier does
            assert_eq!(run.until_asked(Path::Silent), 0);
            assert!(!run.stamps());
            assert_eq!(run.until_asked(Path::Tolerates), AGAIN / SECOND);
            assert!(run.stamps());
        }
    }

    #[test]
    fn destinations_take_turns() {
        let mut probes = Probes::default();
        let now = 1000 * SECOND;
        let seen = [(A, entry(0, now)), (B, entry(0, now))];
        assert_eq!(probes.next(&seen, now), Some(A));
        // It is not asked twice at once.
        assert_eq!(probes.next(&seen, now), Some(B));
        assert_eq!(probes.next(&seen, now), None);
        // Whom nobody sends to is not asked again.
        probes.learn(A, Path::Tolerates, 0, now);
        probes.learn(B, Path::Tolerates, 0, now);
        let later = now + 2 * RENEW;
        let seen = [(A, entry(now, now)), (B, entry(now, later))];
        assert_eq!(probes.next(&seen, later), Some(B));
        assert_eq!(probes.next(&seen, later), None);
        // An entry that made room is forgotten, and its answer is no use.
        assert_eq!(probes.next(&[(A, entry(now, later))], later), Some(A));
        assert_eq!(probes.learn(B, Path::Tolerates, 0, later), Entry::Stays);
    }

    #[test]
    fn new_destinations_do_not_hold_up_renewals() {
        let mut probes = Probes::default();
        let now = 1000 * SECOND;
        let new = |n: u32| (IpAddr::V4((0x0A00_0000 + n).into()), entry(0, now + RENEW));
        assert_eq!(probes.next(&[(A, entry(0, now))], now), Some(A));
        probes.learn(A, Path::Tolerates, 0, now);
        let seen: Vec<_> = (0..1000)
            .map(new)
            .chain([(A, entry(now + COUNTS * RENEW, now + RENEW))])
            .collect();
        let renewed =
            (1..=RENEW / SECOND + 1).filter(|s| probes.next(&seen, now + s * SECOND) == Some(A));
        assert_eq!(renewed.collect::<Vec<_>>(), [60]);
    }

    #[test]
    fn destination_whose_answer_was_lost_is_asked_again() {
        let mut probes = Probes::default();
        let now = 1000 * SECOND;
        let asked = |probes: &mut Probes, now| probes.next(&[(A, entry(0, now))], now);
        assert_eq!(asked(&mut probes, now), Some(A));
        assert_eq!(asked(&mut probes, now + PATIENCE - 1), None);
        assert_eq!(asked(&mut probes, now + PATIENCE), Some(A));
    }

    #[test]
    fn answers_of_many_destinations_count_until_each_has_had_its_turn() {
        let mut probes = Probes::default();
        let now = 1000 * SECOND;
        let seen: Vec<_> = (0..1024_u32)
            .map(|n| (IpAddr::V4(n.into()), entry(0, now)))
            .collect();
        let first = probes.next(&seen, now).unwrap();
        let until = probes.learn(first, Path::Tolerates, 0, now);
        assert_eq!(until, Entry::Until(now + 3 * 1024 * SECOND));
    }

    #[test]
    fn only_one_host_can_be_asked() {
        for (addr, can) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("224.0.0.1", false),
            ("ff02::1", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(can_be_asked(addr.parse().unwrap()), can, "{addr}");
        }
    }
}
