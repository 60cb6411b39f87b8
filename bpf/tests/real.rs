//! Properties of `include/bb_real.h`, compiled natively (`src/real_native.c`): TCP-Real's option, waves, rates, the
//! receiver's decision and the sender's verdict.

#![allow(clippy::unwrap_used)] // helpers of tests

use bestby_bpf::abi::*;
use proptest::prelude::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_real_valid(option: &[u8; 8]) -> i32;
    safe fn bbn_real_code(rate: u64) -> u8;
    safe fn bbn_real_rate(code: u8) -> u64;
    safe fn bbn_real_next(level: u32, threshold: u32, before: u32, rate: u32, most: u32) -> u32;
    safe fn bbn_real_told(rx: &bb_real_rx) -> u8;
    safe fn bbn_real_told_rate(rx: &bb_real_rx) -> u8;
    safe fn bbn_real_arrive(
        rx: &mut bb_real_rx,
        now_ns: u64,
        seq: u32,
        length: u32,
        segments: u32,
        wave: u8,
        wave_level: u8,
        most: u32,
    ) -> i32;
    safe fn bbn_real_tag(
        tx: &mut bb_real_tx,
        cwnd: u32,
        segments: u32,
        srtt_us: u32,
        now_ns: u64,
    ) -> u8;
    safe fn bbn_real_live(conn: &bb_real_conn, cwnd: u32) -> i32;
    safe fn bbn_real_window(conn: &bb_real_conn, most: u32) -> u32;
    safe fn bbn_real_quiet(rtt_us: u32, min_rtt_us: u32) -> i32;
    safe fn bbn_real_room(cwnd: u32, mss: u32, rate: u8, min_rtt_us: u32) -> i32;
    safe fn bbn_real_kept(cwnd: u32, half: u32, most: u32) -> u32;
}

/// One level, as the receiver keeps it.
const ONE: u32 = 65536;
const LAST: u8 = 0x80;
const MS: u64 = 1_000_000;
const MSS: u32 = 1000;
/// What [`bbn_real_arrive`] says of a wave.
const MEASURED: i32 = 1;
const UNMEASURED: i32 = 2;
const TIMER: i32 = 4;

const VALID: [u8; 8] = [253, 8, 0x52, 0x54, 7, 3 | LAST, 90, 24];

/// A path that carries one segment in each `each_ns`; waves of `level` enter it.
struct Path {
    rx: bb_real_rx,
    seq: u32,
    now_ns: u64,
    wave: u8,
    most: u32,
}

impl Path {
    fn new(seq: u32, wave: u8) -> Self {
        Self {
            rx: bb_real_rx::default(),
            seq,
            now_ns: 1000 * MS,
            wave,
            most: 24,
        }
    }

    /// One wave; `lost` segments of it do not come. Returns what became of it and of the one before.
    fn wave(&mut self, level: u8, each_ns: u64, lost: impl Fn(u32) -> bool) -> i32 {
        self.wave = self.wave.wrapping_add(1);
        let count = u32::from(level) * 2;
        let mut became = 0;
        for i in 0..count {
            self.now_ns += each_ns;
            let last = if i + 1 == count { LAST } else { 0 };
            if !lost(i) {
                became |= bbn_real_arrive(
                    &mut self.rx,
                    self.now_ns,
                    self.seq,
                    MSS,
                    1,
                    self.wave,
                    level | last,
                    self.most,
                );
            }
            self.seq = self.seq.wrapping_add(MSS);
        }
        self.now_ns += 50 * MS;
        became
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Rounded down by less than an eighth, in order.
    #[test]
    fn rate_in_the_option_is_at_most_an_eighth_too_low(rate in 8..=u64::from(u32::MAX), more in 0..1_000_000_u64) {
        let code = bbn_real_code(rate);
        let back = bbn_real_rate(code);
        prop_assert!(back <= rate && rate < back + back / 8 + 1, "{} {}", rate, back);
        prop_assert!(bbn_real_code(rate + more) >= code);
    }

    /// The next level is within 1 and the greatest, whatever the rates are.
    #[test]
    fn next_level_is_within_bounds(
        level in 0..=200 * ONE, threshold in 0..=200 * ONE, before: u32, rate: u32, most in 1..=127_u32,
    ) {
        let next = bbn_real_next(level, threshold, before, rate, most);
        prop_assert!((ONE..=most * ONE).contains(&next));
    }

    /// Figure 1: a rate that falls below nine tenths never makes the level grow, and the fall has the paper's weights.
    #[test]
    fn falling_rate_lowers_the_level_by_the_papers_weights(
        level in 4 * ONE..=100 * ONE, threshold in ONE..=100 * ONE, before in 1000..=4_000_000_u32, permille in 0..900_u64,
    ) {
        let rate = u32::try_from(u64::from(before) * permille / 1000).unwrap();
        let ratio = f64::from(rate) / f64::from(before);
        let next = f64::from(bbn_real_next(level, threshold, before, rate, 127));
        let (keep, adjust) = if level > threshold { (0.618, 0.382) } else { (0.382, 0.618) };
        let paper = f64::from(level) * (keep + adjust * ratio);
        prop_assert!(next < f64::from(level));
        prop_assert!((next - paper.max(f64::from(ONE))).abs() <= f64::from(level) / 500.0, "{} {}", next, paper);
    }

    /// Our growth: a rate that stays doubles the level below the threshold, and adds half a level above it.
    #[test]
    fn steady_rate_grows_the_level(level in ONE..=60 * ONE, threshold in ONE..=60 * ONE, rate in 1000..=4_000_000_u32) {
        let grown = bbn_real_next(level, threshold, rate, rate, 127);
        prop_assert_eq!(grown, if level < threshold { 2 * level } else { level + ONE / 2 });
        // Nothing is known before: the level stays.
        prop_assert_eq!(bbn_real_next(level, threshold, 0, rate, 127), level);
    }

    /// Losses inside a wave do not change its rate, wherever the sequence and the wave numbers are.
    #[test]
    fn rate_of_a_wave_does_not_depend_on_losses_inside(
        seq: u32, wave: u8, level in 2..=24_u8, each_us in 100..20_000_u64, lost in prop::collection::hash_set(1..46_u32, 0..20),
    ) {
        let mut path = Path::new(seq, wave);
        let last = u32::from(level) * 2 - 1;
        let became = path.wave(level, each_us * 1000, |i| i != last && lost.contains(&i));
        prop_assert_eq!(became & MEASURED, MEASURED);
        let rate = u64::from(MSS) * 1_000_000 / each_us;
        prop_assert!(u64::from(path.rx.rate).abs_diff(rate) <= rate / 1000 + 1, "{} {}", path.rx.rate, rate);
        prop_assert_eq!(bbn_real_told(&path.rx), level);
    }

    /// A wave without its end is decided by the next wave's beginning.
    #[test]
    fn wave_without_its_end_is_decided_by_the_next_one(seq: u32, wave: u8, level in 3..=24_u8) {
        let mut path = Path::new(seq, wave);
        let last = u32::from(level) * 2 - 1;
        prop_assert_eq!(path.wave(level, MS, |i| i == last), 0);
        prop_assert_eq!(path.wave(level, MS, |_| false), MEASURED);
        prop_assert_eq!(u64::from(path.rx.rate), 1_000_000);
    }

    /// A stranger's segment that puts the wave's number ahead costs a wave or two, not all until the number is reached.
    #[test]
    fn wave_number_that_goes_back_is_measured_again(seq: u32, wave: u8, ahead in 2..=127_u8) {
        let mut path = Path::new(seq, wave);
        path.wave(10, MS, |_| false);
        let (now, seq, forged) = (path.now_ns, path.seq, path.wave.wrapping_add(ahead));
        bbn_real_arrive(&mut path.rx, now, seq.wrapping_sub(MSS), MSS, 1, forged, 10, 24);
        path.wave(10, MS, |_| false);
        prop_assert_eq!(path.wave(10, 2 * MS, |_| false) & MEASURED, MEASURED);
        prop_assert_eq!(path.rx.rate, 500_000);
        // Data that were there already begin no wave.
        let before = path.rx;
        bbn_real_arrive(&mut path.rx, path.now_ns, seq, MSS, 1, path.wave.wrapping_sub(1), 10, 24);
        prop_assert_eq!(before, path.rx);
    }

    /// Whatever is sent, what is told stays within the option's bits, and nothing else of the host is touched.
    #[test]
    fn any_segments_leave_a_level_and_a_rate_that_fit(
        segments in prop::collection::vec((0..10_000_000_u64, any::<u32>(), any::<u32>(), 0..100_u32, any::<u8>(), any::<u8>()), 1..60),
        most in 1..=127_u32,
    ) {
        let (mut rx, mut now) = (bb_real_rx::default(), 1000 * MS);
        for (gap, seq, length, count, wave, wave_level) in segments {
            now += gap;
            bbn_real_arrive(&mut rx, now, seq, length, count, wave, wave_level, most);
            prop_assert!(u32::from(bbn_real_told(&rx)) <= most);
            prop_assert!(rx.level == 0 || (ONE..=most * ONE).contains(&rx.level));
            prop_assert!(bbn_real_rate(bbn_real_told_rate(&rx)) <= u64::from(u32::MAX));
        }
    }

    /// A tag is a level that fits, and the last segment of a wave has the mark.
    #[test]
    fn sender_marks_each_window_as_a_wave(cwnd in 0..100_000_u32, wave: u8, gap in 0..1_900_000_u64) {
        let mut tx = bb_real_tx { wave, ..Default::default() };
        let mut now = 1000 * MS;
        let size = cwnd.clamp(2, 254);
        for round in 1..4_u8 {
            for i in 0..size {
                now += gap;
                let tag = bbn_real_tag(&mut tx, cwnd, 1, 0, now);
                prop_assert_eq!(tx.wave, wave.wrapping_add(round));
                prop_assert_eq!(u32::from(tag & !LAST), size.div_ceil(2));
                prop_assert_eq!(tag & LAST != 0, i + 1 == size);
            }
        }
        // A pause ends it, and so does a timeout.
        let tag = bbn_real_tag(&mut tx, 100, 1, 40_000, now + 11 * MS);
        prop_assert_eq!((tag, tx.wave), (50, wave.wrapping_add(4)));
        tx.restart = 1;
        bbn_real_tag(&mut tx, 100, 1, 40_000, now + 11 * MS);
        prop_assert_eq!(tx.wave, wave.wrapping_add(5));
    }

    /// The guards: a queue, or a window above the measured rate, leaves the reduction to Reno.
    #[test]
    fn guards_refuse_a_queue_and_a_window_above_the_rate(
        min_rtt in 100..2_000_000_u32, extra in 0..4_000_000_u32, cwnd in 1..100_000_u32, mss in 200..9000_u32, code: u8,
    ) {
        let rtt = min_rtt + extra;
        prop_assert_eq!(bbn_real_quiet(rtt, min_rtt) != 0, u64::from(extra) * 4 <= u64::from(min_rtt));
        let carries = bbn_real_rate(code) as f64 * f64::from(min_rtt) / 1e6;
        let window = f64::from(cwnd) * f64::from(mss);
        if bbn_real_room(cwnd, mss, code, min_rtt) != 0 {
            prop_assert!(window <= carries * 0.75);
        } else {
            prop_assert!(window > carries * 0.75 - 4.0 || code == 0);
        }
        // Without a measurement there is neither.
        prop_assert_eq!(bbn_real_quiet(rtt, 0) | bbn_real_quiet(0, min_rtt) | bbn_real_room(cwnd, mss, 0, min_rtt), 0);
    }

    /// However high the level that a receiver tells, it holds no window above the greatest level.
    #[test]
    fn told_level_holds_no_window_above_the_greatest_level(cwnd in 2..1_000_000_u32, told: u8, most in 1..=127_u32) {
        let half = cwnd / 2;
        let kept = bbn_real_kept(cwnd, half, most);
        prop_assert!(kept >= half && kept <= cwnd && kept <= half.max(2 * most));
        let conn = bb_real_conn { told_level: told, ..Default::default() };
        prop_assert!((2..=2 * most).contains(&bbn_real_window(&conn, most)));
    }

    /// Options with one changed byte, or none: what is accepted has our kind, length and identifier.
    #[test]
    fn malformed_options_are_refused(at in 0..8_usize, value: u8) {
        let mut option = VALID;
        option[at] = value;
        let ours = option[..4] == VALID[..4] && option[5] != LAST && option[7] <= 127;
        prop_assert_eq!(bbn_real_valid(&option) != 0, ours);
    }
}

#[test]
fn two_segments_and_one_burst_give_no_rate() {
    let mut path = Path::new(u32::MAX - 500, 255);
    path.wave(1, MS, |_| false);
    assert_eq!(path.rx.rate, 0);
    // All at one time, as after generic receive offload; the next wave's first segment tells that it is over.
    path.wave(10, 0, |_| false);
    assert_eq!((path.rx.rate, bbn_real_told(&path.rx)), (0, 0));
    assert_eq!(path.wave(10, MS, |_| false) & MEASURED, MEASURED);
    assert_eq!(path.rx.rate, 1_000_000);
}

#[test]
fn rate_that_was_not_measured_for_16_waves_is_not_told() {
    let mut path = Path::new(0, 0);
    path.wave(10, MS, |_| false);
    assert_ne!(bbn_real_told_rate(&path.rx), 0);
    let mut unmeasured = 0;
    while bbn_real_told_rate(&path.rx) != 0 {
        if path.wave(1, MS, |_| false) & UNMEASURED != 0 {
            unmeasured += 1;
        }
    }
    assert_eq!(unmeasured, 16);
    assert_eq!(bbn_real_told(&path.rx), 10);
}

#[test]
fn slower_wave_is_decided_by_the_timer_and_halves_the_threshold() {
    let mut path = Path::new(0, 0);
    path.wave(10, MS, |_| false);
    path.wave(10, MS, |_| false);
    assert_eq!(bbn_real_told(&path.rx), 20);
    // Five times as slow: after twice its 40 ms and 2 ms it is known.
    let became = path.wave(20, 5 * MS, |_| false);
    assert_eq!(became, MEASURED | TIMER);
    assert_eq!(path.rx.threshold, 10 * ONE);
    // 0.618 + 0.382 / 5 of 20.
    assert_eq!(bbn_real_told(&path.rx), 14);
}

#[test]
fn retransmissions_and_overtaken_waves_change_no_rate() {
    let mut path = Path::new(5000, 3);
    path.wave(10, MS, |_| false);
    let before = path.rx;
    // Of an earlier wave, and of this one: the data were there already.
    for wave in [1, 4] {
        bbn_real_arrive(
            &mut path.rx,
            path.now_ns + 400 * MS,
            6000,
            MSS,
            1,
            wave,
            10,
            24,
        );
    }
    assert_eq!(path.rx, before);
}

#[test]
fn silent_peer_is_not_live() {
    let mut conn = bb_real_conn {
        told_level: 5,
        ..Default::default()
    };
    conn.acks = 28;
    assert_eq!(bbn_real_live(&conn, 10), 1);
    conn.acks = 29;
    assert_eq!(bbn_real_live(&conn, 10), 0);
    conn.acks = 0;
    conn.why = u8::try_from(BB_REAL_SILENT).unwrap();
    assert_eq!(bbn_real_live(&conn, 10), 0);
    assert_eq!(bbn_real_live(&bb_real_conn::default(), 10), 0);
}
