//! Properties of `include/bb_rtt.h`, compiled natively (`src/core_native.c`): what samples of TCP that waited in our
//! own queue say about the path.

use bestby_bpf::abi::*;
use proptest::prelude::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_rtt_init(rtt: &mut bb_rtt);
    safe fn bbn_rtt_add(rtt: &mut bb_rtt, sample_ns: u64, wait_ns: u64, now_ns: u64);
    safe fn bbn_rtt_takes(rtt: &mut bb_rtt, source: u32, now_ns: u64) -> i32;
    safe fn bbn_rtt_of_answer(age_ns: u64, held_ns: u64) -> u64;
    safe fn bbn_dlsr_ns(dlsr: u32) -> u64;
    safe fn bbn_wait_add(session: &mut bb_session, wait_ns: u64, now_ns: u64);
    safe fn bbn_wait_lately(session: &bb_session, now_ns: u64) -> u64;
    safe fn bbn_measured_owd(owd_ns: u64, from_ns: u64, deadline_ns: u64) -> u64;
    safe fn bbn_stale(now_ns: u64, owd_ns: u64, deadline_ns: u64) -> i32;
    safe fn bbn_latest_departure(owd_ns: u64, deadline_ns: u64) -> u64;
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const WINDOW: u64 = 1 << BB_RTT_WINDOW_SHIFT;
/// Where the tests' clocks start: an uptime.
const START: u64 = 1000 * SECOND;

struct Estimate(bb_rtt);

impl Estimate {
    fn new() -> Self {
        // Whatever was there before.
        let mut rtt = bb_rtt {
            min_rtt_ns: 7,
            least_ns: [7; 2],
            window: 7,
            srtt_ns: 7,
            rto_ns: 7,
            updated_ns: 7,
            base_ns: [7; 2],
            base_window: 7,
            source: 7,
        };
        bbn_rtt_init(&mut rtt);
        let mut estimate = Self(rtt);
        assert!(estimate.takes(BB_RTT_TCP, START));
        estimate
    }

    fn add(&mut self, sample: u64, wait: u64, now: u64) -> u64 {
        bbn_rtt_add(&mut self.0, sample, wait, now);
        self.0.min_rtt_ns
    }
}

impl Estimate {
    fn takes(&mut self, source: u32, now: u64) -> bool {
        bbn_rtt_takes(&mut self.0, source, now) != 0
    }

    /// A sample of one of the sources, as the hooks add it; whether it counted.
    fn hear(&mut self, source: u32, sample: u64, now: u64) -> bool {
        let takes = self.takes(source, now);
        if takes {
            self.add(sample, 0, now);
            self.0.updated_ns = now;
        }
        takes
    }
}

#[test]
fn better_source_speaks_until_it_is_silent() {
    let held = 1 << BB_RTT_SELDOM_SHIFT;
    let mut e = Estimate::new();
    let now = START;
    assert!(e.hear(BB_RTT_RTCP, 90 * MS, now));
    assert!(e.hear(BB_RTT_STUN, 50 * MS, now + 1));
    assert!(!e.hear(BB_RTT_RTCP, MS, now + 2));
    assert!(e.hear(BB_RTT_TCP, 40 * MS, now + 3));
    for source in [BB_RTT_STUN, BB_RTT_RTCP] {
        assert!(!e.hear(source, MS, now + 3 + held - 1));
        assert_eq!((e.0.min_rtt_ns, e.0.source), (40 * MS, BB_RTT_TCP));
    }
    // What speaks next is followed at once, whatever the one before said.
    assert!(e.hear(BB_RTT_RTCP, 80 * MS, now + 3 + held));
    assert_eq!((e.0.min_rtt_ns, e.0.source), (80 * MS, BB_RTT_RTCP));
    // Another CPU's sample came just after `now` was read.
    assert!(
        !Estimate(bb_rtt {
            source: BB_RTT_TCP,
            updated_ns: now + 1,
            ..e.0
        })
        .takes(BB_RTT_STUN, now)
    );
}

#[test]
fn least_round_trip_of_minutes_is_not_raised_by_a_queue_that_stands() {
    let base = |e: &Estimate| e.0.base_ns.into_iter().min().unwrap();
    let mut e = Estimate::new();
    let mut now = START;
    assert_eq!(base(&e), u64::MAX);
    e.add(80 * MS, 0, now);
    // Four minutes of a full queue raise the path's estimate, but not this.
    while now < START + 240 * SECOND {
        now += SECOND;
        e.add(900 * MS, 0, now);
        assert_eq!(base(&e), 80 * MS);
    }
    assert_eq!(e.0.min_rtt_ns, 900 * MS);
    // A path that is longer is one at last.
    while now < START + (3 << BB_RTT_BASE_SHIFT) {
        now += SECOND;
        e.add(900 * MS, 0, now);
    }
    assert_eq!(base(&e), 900 * MS);
    // Another source measures something else.
    assert!(e.takes(BB_RTT_STUN, now + 60 * SECOND));
    assert_eq!(base(&e), u64::MAX);
}

#[test]
fn one_late_answer_of_many_raises_nothing() {
    let mut e = Estimate::new();
    let mut now = START;
    for n in 0..20 {
        // An answer each 5 s, as ICE's consent has it, and each fourth one is late.
        now += 5 * SECOND;
        let sample = if n % 4 == 3 {
            900 * MS
        } else {
            (40 + n % 3) * MS
        };
        e.hear(BB_RTT_STUN, sample, now + 60 * SECOND);
        assert!(
            (40 * MS..=42 * MS).contains(&e.0.min_rtt_ns),
            "{n}: {:?}",
            e.0
        );
    }
    // A path that is longer is followed within two windows and an answer.
    let changed = now;
    while e.0.min_rtt_ns < 100 * MS {
        now += 5 * SECOND;
        e.hear(BB_RTT_STUN, 100 * MS, now + 60 * SECOND);
    }
    assert!(now - changed <= (2 << BB_RTT_SELDOM_SHIFT) + 5 * SECOND);
}

#[test]
fn answer_of_a_delay_that_cannot_be_is_no_measure() {
    for (age, held, sample) in [
        (40 * MS, 0, 40 * MS),
        (5 * SECOND, 5 * SECOND - 40 * MS, 40 * MS),
        (40 * MS, 40 * MS, 1000), // 0 says that nothing is known
        (40 * MS, 40 * MS + 1, 0),
        (40 * MS, u64::MAX, 0),
        (10 * SECOND, 0, 10 * SECOND),
        (10 * SECOND + 1, 0, 0),
        (u64::MAX, 0, 0),
    ] {
        assert_eq!(bbn_rtt_of_answer(age, held), sample, "{age} {held}");
    }
    assert_eq!(bbn_dlsr_ns(0x0005_4000), 5_250 * MS); // the example of RFC 3550, 6.4.1
    assert_eq!(bbn_dlsr_ns(u32::MAX) / SECOND, 65535);
}

/// What a sample proves of the path.
fn least(sample: u64, wait: u64) -> u64 {
    sample.saturating_sub(wait)
}

/// Gaps, samples and waits of any kind.
fn samples() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((0..12 * SECOND, 1..5 * SECOND, 0..6 * SECOND), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Never above the last sample, never below what all samples of two windows prove.
    #[test]
    fn rtt_lies_within_the_samples_of_two_windows(samples in samples()) {
        let mut estimate = Estimate::new();
        let (mut now, mut past) = (START, Vec::new());
        for (gap, sample, wait) in samples {
            now += gap;
            past.push((now / WINDOW, least(sample, wait)));
            let m = estimate.add(sample, wait, now);
            prop_assert!(m <= sample);
            let window = now / WINDOW;
            let proven = past.iter().filter(|(w, _)| *w + 1 >= window).map(|(_, c)| *c).min();
            prop_assert!(Some(m) >= proven, "{} < {:?}", m, proven);
        }
    }

    /// However long the packets wait in our own queue, as long as the queue says so: never above the path, and exactly
    /// the path from two windows without a wait on.
    #[test]
    fn wait_in_our_own_queue_does_not_raise_the_rtt(
        path in MS..SECOND,
        samples in prop::collection::vec((0..SECOND, 0..5 * SECOND, 0..SECOND), 1..100),
    ) {
        let mut estimate = Estimate::new();
        let mut now = START;
        for (gap, own, more) in samples {
            now += gap;
            // Others of the session waited longer than this one.
            prop_assert!(estimate.add(path + own, own + more, now) <= path);
        }
        let quiet = now;
        while now < quiet + 2 * WINDOW {
            now += 200 * MS;
            prop_assert!(estimate.add(path, 0, now) <= path);
        }
        for _ in 0..100 {
            now += 200 * MS;
            prop_assert_eq!(estimate.add(path + 3 * SECOND, 4 * SECOND, now), path);
        }
    }

    /// A path that got longer is followed within 10 s, one that got shorter at once.
    #[test]
    fn longer_path_is_followed_in_10_s_and_a_shorter_one_at_once(
        short in MS..200 * MS,
        longer in MS..SECOND,
        phase in 0..WINDOW,
        gap in MS..SECOND,
        jitter in prop::collection::vec(0..50 * MS, 1..40),
    ) {
        let mut estimate = Estimate::new();
        let mut now = START + phase;
        for extra in &jitter {
            now += gap;
            estimate.add(short + extra, 0, now);
        }
        prop_assert!(estimate.0.min_rtt_ns <= short + 50 * MS);
        estimate.add(short, 0, now);
        let (path, changed) = (short + longer, now);
        let mut jitter = jitter.iter().cycle();
        while now + gap <= changed + 10 * SECOND {
            now += gap;
            estimate.add(path + jitter.next().expect("endless"), 0, now);
        }
        let m = estimate.0.min_rtt_ns;
        prop_assert!((path..=path + 50 * MS).contains(&m), "{} of {}", m, path);
        prop_assert!(estimate.add(short, 0, now) <= short);
    }

    /// One that says whatever it likes, beside an honest one of the same address that is heard in every window.
    #[test]
    fn false_samples_beside_honest_ones_do_not_raise_the_rtt(
        path in MS..200 * MS,
        said in prop::collection::vec((1..4 * SECOND, MS..100 * SECOND), 1..60),
        own in 0..SECOND,
    ) {
        let mut estimate = Estimate::new();
        let mut now = START;
        estimate.add(path, 0, now);
        for (gap, lie) in said {
            now += gap;
            estimate.add(path + own, own, now);
            prop_assert!(estimate.add(lie.max(path), 0, now) <= path);
        }
    }

    /// A wait counts for a second at least after the packet left, and for four at most.
    #[test]
    fn wait_of_a_session_counts_for_1_to_4_s(waits in prop::collection::vec((0..2 * SECOND, 0..5 * SECOND), 1..60)) {
        let mut session = bb_session::default();
        let (mut now, mut past) = (START, Vec::<(u64, u64)>::new());
        for (gap, wait) in waits {
            now += gap;
            let longest = |within| past.iter().filter(|(at, _)| now - *at < within).map(|(_, w)| *w).max();
            let lately = bbn_wait_lately(&session, now);
            prop_assert!(lately >= longest(SECOND).unwrap_or(0));
            prop_assert!(lately <= longest(4 * SECOND).unwrap_or(0));
            bbn_wait_add(&mut session, wait, now);
            past.push((now, wait));
        }
    }

    /// A measured owd leaves half of a lifetime for waiting, and changes nothing where it is shorter.
    #[test]
    fn measured_owd_leaves_half_the_lifetime_for_waiting(
        from in START..2 * START,
        lifetime in 1..10 * SECOND,
        owd in 0..u64::MAX / 2,
    ) {
        let deadline = from + lifetime;
        let judged = bbn_measured_owd(owd, from, deadline);
        prop_assert_eq!(judged, owd.min(lifetime / 2));
        prop_assert_eq!(bbn_stale(from, judged, deadline), 0);
        // The queue takes off the whole owd again.
        let told = deadline + (owd - judged);
        prop_assert_eq!(bbn_latest_departure(owd, told), bbn_latest_departure(judged, deadline));
        prop_assert!(bbn_latest_departure(owd, told) >= from + lifetime / 2);
        // A deadline that has passed stays passed.
        prop_assert_eq!(bbn_measured_owd(owd, deadline, from), owd);
        prop_assert_eq!(bbn_stale(deadline, bbn_measured_owd(owd, deadline, from), from), 1);
    }
}

/// One bulk connection of 24 behind a queue of two seconds; the path has 40 ms.
#[test]
fn bulk_download_behind_a_queue_does_not_raise_the_rtt() {
    let mut estimate = Estimate::new();
    let mut now = START;
    let path = 40 * MS;
    estimate.add(path, 0, now);
    for i in 0..1000u64 {
        now += 50 * MS;
        let wait = 1500 * MS + i % 24 * 20 * MS;
        estimate.add(path + wait, wait, now);
    }
    assert_eq!(estimate.0.min_rtt_ns, path);
}
