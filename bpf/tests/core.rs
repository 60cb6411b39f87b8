//! Properties of `include/bb_core.h`, compiled natively (`src/core_native.c`):
//! the wrap of the mark's clock, staleness, pacing, byte overhead.

use bestby_bpf::abi::*;
use proptest::prelude::*;
use zerocopy::{FromBytes as _, IntoBytes as _};

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_mark_deadline(mark: u32, now_ns: u64) -> u64;
    safe fn bbn_mark_priority(mark: u32) -> u8;
    safe fn bbn_mark_treatment(mark: u32) -> u8;
    safe fn bbn_mark_adu(mark: u32) -> u8;
    safe fn bbn_option_until(lifetime: u32, utc_ns: u64) -> i64;
    safe fn bbn_option_time(utc_ns: u64) -> u32;
    safe fn bbn_option_is_time(lifetime: u32) -> i32;
    safe fn bbn_option_treatment(flags: u8) -> u8;
    safe fn bbn_option_bits(treatment: u8) -> u8;
    safe fn bbn_believe(since: &mut u16, deadline_ns: u64, now_ns: u64) -> i32;
    safe fn bbn_stale(now_ns: u64, owd_ns: u64, deadline_ns: u64) -> i32;
    safe fn bbn_latest_departure(owd_ns: u64, deadline_ns: u64) -> u64;
    safe fn bbn_in_order(due: &mut u32, deadline_ns: u64) -> u64;
    safe fn bbn_behind_all(due: u32, now_ns: u64) -> u64;
    safe fn bbn_tx_time(bytes: u64, rate: u64) -> u64;
    safe fn bbn_pace(next_ns: u64, now_ns: u64, bytes: u64, rate: u64) -> u64;
    safe fn bbn_wire_bytes(len: u32, segments: u32, overhead: u32) -> u32;
}

const UNIT: u64 = BB_MARK_UNIT_NS as u64;
const TURN: u64 = 1 << BB_MARK_TIME_BITS;
const HALF: u64 = TURN / 2;
const SECOND: u64 = 1_000_000_000;
/// Uptimes: up to a hundred years.
const UPTIME: u64 = 100 * 365 * 86_400 * SECOND;
const PACE_MAX: u64 = 60 * SECOND;
const CREDIT: u64 = 1_000_000;

/// The mark of an absolute deadline, as an application encodes it: rounded down to a unit.
fn absolute(deadline_ns: u64) -> u32 {
    u32::try_from(deadline_ns / UNIT % TURN).expect("19 bits")
}

/// Uptimes that lie just beside a wrap of the 19-bit clock (every 131.072 s), in units.
fn beside_a_wrap() -> impl Strategy<Value = u64> {
    (1..UPTIME / UNIT / TURN, -2i64..=2)
        .prop_map(|(turn, beside)| (turn * TURN).checked_add_signed(beside).expect("in range"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What the sender meant is what the classifier reads, if it is within half a turn.
    #[test]
    fn absolute_deadline_within_half_a_turn_is_read_exactly(
        now in HALF * UNIT..UPTIME,
        ahead in -(HALF as i64)..HALF as i64,
    ) {
        let deadline = (now / UNIT).checked_add_signed(ahead).expect("in range") * UNIT;
        prop_assume!(absolute(deadline) != 0 && deadline != 0);
        prop_assert_eq!(bbn_mark_deadline(absolute(deadline), now), deadline);
    }

    /// The same at every boundary: both times beside a wrap, and half a turn from it.
    #[test]
    fn absolute_deadline_beside_a_wrap_is_read_exactly(
        now in beside_a_wrap(),
        inside in 0..UNIT,
        ahead in prop_oneof![
            -3i64..=3,
            -(HALF as i64)..-(HALF as i64) + 4,
            HALF as i64 - 4..HALF as i64,
        ],
    ) {
        let deadline = now.checked_add_signed(ahead).expect("in range") * UNIT;
        prop_assume!(absolute(deadline) != 0);
        prop_assert_eq!(bbn_mark_deadline(absolute(deadline), now * UNIT + inside), deadline);
    }

    /// Just beyond half a turn, the other side is meant: never off by anything but a turn.
    #[test]
    fn deadline_beyond_half_a_turn_is_read_as_the_nearest(now in 2 * TURN * UNIT..UPTIME, time in 1..TURN) {
        let mark = u32::try_from(time).expect("19 bits");
        let deadline = bbn_mark_deadline(mark, now);
        prop_assert_eq!(deadline / UNIT % TURN, time);
        prop_assert_eq!(deadline % UNIT, 0);
        let distance = (deadline / UNIT) as i64 - (now / UNIT) as i64;
        prop_assert!((-(HALF as i64)..HALF as i64).contains(&distance), "{}", distance);
    }

    /// Soon after boot "65 s ago" is before the clock's zero: past, but never "none".
    #[test]
    fn deadline_before_boot_is_past_but_not_none(now in 1..HALF * UNIT, time in 1..TURN) {
        let mark = u32::try_from(time).expect("19 bits");
        let deadline = bbn_mark_deadline(mark, now);
        prop_assert!(deadline > 0);
        let forward = (time + TURN - now / UNIT % TURN) % TURN;
        if forward < HALF {
            prop_assert_eq!(deadline, ((now / UNIT + forward) * UNIT).max(1));
        } else {
            prop_assert!(bbn_stale(now, 0, deadline) == 1 || now / UNIT == 0 && deadline >= now);
        }
    }

    /// A lifetime starts now, whatever the other fields say.
    #[test]
    fn relative_deadline_counts_from_now(now in 0..UPTIME, time in 1..TURN, other in any::<u32>()) {
        let fields = other & !(BB_MARK_TIME_MASK | BB_MARK_RELATIVE);
        let mark = fields | BB_MARK_RELATIVE | u32::try_from(time).expect("19 bits");
        prop_assert_eq!(bbn_mark_deadline(mark, now), now + time * UNIT);
    }

    #[test]
    fn mark_with_time_0_has_no_deadline(now in 0..UPTIME, other in any::<u32>()) {
        prop_assert_eq!(bbn_mark_deadline(other & !BB_MARK_TIME_MASK, now), 0);
    }

    #[test]
    fn mark_fields_do_not_overlap(time in 0..TURN, priority in 0u32..8, treatment in 0u32..4, adu in 0u32..8, magic in 0u32..16) {
        let mark = u32::try_from(time).expect("19 bits")
            | priority << BB_MARK_PRIORITY_SHIFT
            | treatment << BB_MARK_TREATMENT_SHIFT
            | adu << BB_MARK_ADU_SHIFT
            | magic << BB_MARK_MAGIC_SHIFT;
        prop_assert_eq!(u32::from(bbn_mark_priority(mark)), priority);
        prop_assert_eq!(u32::from(bbn_mark_treatment(mark)), treatment);
        prop_assert_eq!(u32::from(bbn_mark_adu(mark)), adu);
    }

    /// Which deadlines count, of packets that come one after the other: all but those of another clock.
    #[test]
    fn deadline_counts_unless_all_of_its_flow_are_past_by_a_second_for_a_second(
        now in 200 * SECOND..UPTIME, late in SECOND + 1..131 * SECOND, step in SECOND / 100..SECOND / 10,
    ) {
        let mut since = 0;
        let believed = |since: &mut u16, after: u64, late: u64| {
            bbn_believe(since, now + after - late, now + after) == 1
        };
        // As long as that may be a moment's delay, and behind one that is not so late.
        let mut after = 0;
        while after < SECOND {
            prop_assert!(believed(&mut since, after, late));
            after += step;
        }
        prop_assert!(believed(&mut since, after, SECOND), "late by no more than a second");
        prop_assert!(believed(&mut since, after, late), "and so it begins anew");
        after += SECOND * 3 / 2;
        prop_assert!(!believed(&mut since, after, late));
        prop_assert!(!believed(&mut since, after + step, late));
        prop_assert_eq!(bbn_believe(&mut since, now + after + SECOND, now + after), 1);
        prop_assert!(believed(&mut since, after, late), "one was in time");
    }

    #[test]
    fn deadline_further_away_than_any_lifetime_counts_never(now in 200 * SECOND..UPTIME, more in 1..HALF) {
        let (mut since, far) = (0, BB_LIFETIME_MAX_NS);
        prop_assert_eq!(bbn_believe(&mut since, now + far, now), 1);
        prop_assert_eq!(bbn_believe(&mut since, now + far + more, now), 0);
        prop_assert_eq!(bbn_believe(&mut since, now - far, now), 1);
        prop_assert_eq!(bbn_believe(&mut since, (now - far).saturating_sub(more).max(1), now), 0);
    }

    /// stale is exactly now + owd > deadline, for any owd, without overflow.
    #[test]
    fn packet_is_stale_if_now_plus_owd_is_beyond_the_deadline(now in 0..UPTIME, owd in any::<u64>(), deadline in 1..2 * UPTIME) {
        let late = u128::from(now) + u128::from(owd) > u128::from(deadline);
        prop_assert_eq!(bbn_stale(now, owd, deadline), i32::from(late));
        prop_assert_eq!(bbn_stale(now, owd, 0), 0, "no deadline is never stale");
    }

    #[test]
    fn packet_turns_stale_1_ns_after_its_last_chance(now in 1..UPTIME, owd in 0..PACE_MAX) {
        let deadline = now + owd;
        prop_assert_eq!(bbn_stale(now, owd, deadline), 0);
        prop_assert_eq!(bbn_stale(now + 1, owd, deadline), 1);
        prop_assert_eq!(bbn_stale(now, owd + 1, deadline), 1);
    }

    /// Sending at the latest departure is in time, one ns later is not.
    #[test]
    fn packet_is_stale_1_ns_after_its_latest_departure(owd in 0..UPTIME, deadline in 1..UPTIME) {
        let latest = bbn_latest_departure(owd, deadline);
        prop_assert!(latest >= 1);
        if deadline > owd {
            prop_assert_eq!(bbn_stale(latest, owd, deadline), 0);
        }
        prop_assert_eq!(bbn_stale(latest + 1, owd, deadline), 1);
        prop_assert_eq!(bbn_latest_departure(owd, 0), 0);
    }

    /// Rounded up by less than a ns of the rate, monotonic in bytes, bounded.
    #[test]
    fn tx_time_is_bytes_by_rate_rounded_up(bytes in 0u64..1 << 34, rate in 1u64..100_000_000_000) {
        let exact = u128::from(bytes) * u128::from(SECOND);
        let ns = bbn_tx_time(bytes, rate);
        if exact <= u128::from(rate) * u128::from(PACE_MAX) {
            prop_assert!(u128::from(ns) * u128::from(rate) >= exact);
            prop_assert!(ns == 0 || u128::from(ns - 1) * u128::from(rate) < exact);
        } else {
            prop_assert_eq!(ns, PACE_MAX);
        }
        prop_assert!(bbn_tx_time(bytes + 1, rate) >= ns);
        prop_assert_eq!(bbn_tx_time(bytes, 0), 0, "an unknown rate takes no time");
    }

    #[test]
    fn tx_time_of_any_bytes_and_rate_is_bounded(bytes in any::<u64>(), rate in 1..u64::MAX / 2) {
        prop_assert!(bbn_tx_time(bytes, rate) <= PACE_MAX);
    }

    /// A busy sender, woken a little late each time, keeps the rate exactly.
    #[test]
    fn pacing_of_a_busy_sender_keeps_the_rate(
        start in SECOND..UPTIME,
        rate in 10_000u64..1_000_000_000,
        packets in prop::collection::vec((1u64..65_536, 0..CREDIT), 1..200),
    ) {
        let (mut next, mut owed) = (start, 0);
        for (bytes, late) in packets {
            let now = next + late;
            next = bbn_pace(next, now, bytes, rate);
            owed += bbn_tx_time(bytes, rate);
        }
        prop_assert_eq!(next, start + owed);
    }

    /// Idle time is not saved up: after any pause at most the credit is made up for.
    #[test]
    fn pacing_after_idle_time_catches_up_by_the_credit_only(next in 0..UPTIME, idle in 0..UPTIME, bytes in 1u64..65_536, rate in 1u64..1_000_000_000) {
        let now = next + idle;
        let after = bbn_pace(next, now, bytes, rate);
        prop_assert!(after + CREDIT >= now + bbn_tx_time(bytes, rate));
        prop_assert!(after <= now.max(next) + bbn_tx_time(bytes, rate));
    }

    #[test]
    fn overhead_counts_once_per_segment(len in 0u32..1 << 20, segments in 0u32..64, overhead in 0u32..256) {
        let expected = len + overhead * segments.max(1);
        prop_assert_eq!(bbn_wire_bytes(len, segments, overhead), expected);
    }
}

/// Every unit of two turns around one wrap, exhaustively, at three places within the unit.
#[test]
fn no_unit_is_misread_around_a_wrap() {
    let wrap = 3 * TURN;
    for now in [
        wrap - 1,
        wrap,
        wrap + 1,
        wrap + HALF - 1,
        wrap + HALF,
        wrap + HALF + 1,
    ] {
        for inside in [0, 1, UNIT - 1] {
            for deadline in now - HALF..now + HALF {
                let mark = absolute(deadline * UNIT);
                if mark != 0 {
                    assert_eq!(
                        bbn_mark_deadline(mark, now * UNIT + inside),
                        deadline * UNIT,
                        "now {now} + {inside} ns, deadline {deadline}"
                    );
                }
            }
        }
    }
}

/// Addresses side by side have indices of their own: one peer that is known costs its neighbours
/// no look-ups.
#[test]
fn neighbour_addresses_have_different_known_indices() {
    let addr = |n: u16| {
        let mut addr = [0; 16];
        addr[10..14].copy_from_slice(&[0xff, 0xff, 10, 78]);
        addr[14..].copy_from_slice(&n.to_be_bytes());
        bb_addr { addr }
    };
    let indices: std::collections::HashSet<u32> = (0..10_000)
        .map(|n| bestby_bpf::known_index(&addr(n)))
        .collect();
    assert!(indices.iter().all(|&index| index < BB_KNOWN));
    assert!(indices.len() > 8_000, "{} indices", indices.len());
}

/// A block that was filled with one byte, or had one word written to, is no metadata.
#[test]
fn overwritten_control_block_is_not_sealed() {
    let cb = bb_cb {
        rule: 7,
        session: 9,
        class_: 3,
        flags: 0x07,
        adu: 0x1234_5678,
        rtp: 0x80 | 96,
        ..Default::default()
    };
    let cb = bestby_bpf::seal(cb, 123_456_789_000);
    assert!(bestby_bpf::sealed(&cb));
    for byte in 0..=255u8 {
        assert!(!bestby_bpf::sealed(
            &bb_cb::read_from_bytes(&[byte; 20]).unwrap()
        ));
        for word in 0..5 {
            let mut bytes: [u8; 20] = cb.as_bytes().try_into().unwrap();
            bytes[4 * word..4 * word + 4].fill(byte);
            let other = bb_cb::read_from_bytes(&bytes).unwrap();
            assert!(other.as_bytes() == cb.as_bytes() || !bestby_bpf::sealed(&other));
        }
    }
}

const MS: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Times of day just beside midnight, and any other, of the years 2000 to 2100.
fn utc() -> impl Strategy<Value = u64> {
    (
        10_957..47_482u64,
        prop_oneof![0..DAY, 0..5 * MS, DAY - 5 * MS..DAY],
    )
        .prop_map(|(day, time)| day * DAY + time)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// A deadline within half a day comes back to the millisecond below; of midnight it is the one after.
    #[test]
    fn option_deadline_within_half_a_day_is_read_to_the_millisecond(
        now in utc(),
        ahead in prop_oneof![-5_000_000..5_000_000_i64, -(DAY as i64) / 2 + 2_000_000..DAY as i64 / 2 - 2_000_000],
    ) {
        let deadline = now.checked_add_signed(ahead).expect("in range");
        let lifetime = bbn_option_time(deadline);
        prop_assert!(bbn_option_is_time(lifetime) != 0);
        let read = now.checked_add_signed(bbn_option_until(lifetime, now)).expect("in range");
        let midnight = deadline % DAY < MS;
        prop_assert_eq!(read, deadline / MS * MS + if midnight { MS } else { 0 });
    }

    /// Whatever a packet says, the deadline is at most half a day and a millisecond away.
    #[test]
    fn option_deadline_is_at_most_half_a_day_away(lifetime in 65_536..65_535 + 86_400_000_u32, now in utc()) {
        let until = bbn_option_until(lifetime, now);
        prop_assert!(until.unsigned_abs() <= DAY / 2 + MS, "{}", until);
        let at = now.checked_add_signed(until).expect("in range");
        prop_assert_eq!(at % DAY / MS, u64::from(lifetime - 65_535));
        prop_assert_eq!(at % MS, 0);
    }
}

proptest! {
    /// Deadlines of one flow never go back, and are never later than the latest that was said. What
    /// was remembered long ago makes none later than the longest lifetime could.
    #[test]
    fn deadline_of_a_segment_is_not_before_an_earlier_ones(
        start in 1..UPTIME,
        mut due in any::<u32>(),
        steps in prop::collection::vec((0..2 * SECOND, 0..10 * SECOND), 1..50),
    ) {
        let (mut now, mut last) = (start, bbn_in_order(&mut due, start));
        prop_assert!((start..start + BB_LIFETIME_MAX_NS + (2 << 20)).contains(&last));
        let mut latest = last;
        for (pause, lifetime) in steps {
            now += pause;
            latest = latest.max(now + lifetime);
            let deadline = bbn_in_order(&mut due, now + lifetime);
            prop_assert!(deadline >= last.max(now + lifetime) && deadline <= latest + (1 << 20));
            last = deadline;
        }
    }
}

#[test]
fn deadline_of_a_segment_is_its_own_where_none_is_ahead() {
    let mut due = 0;
    for deadline in [5 * SECOND, 7 * SECOND, 9 * SECOND] {
        assert_eq!(bbn_in_order(&mut due, deadline), deadline);
    }
    // Behind one with a longer lifetime, by at most a unit.
    let behind = bbn_in_order(&mut due, 8 * SECOND);
    assert!((9 * SECOND..9 * SECOND + (1 << 20)).contains(&behind));
    assert_eq!(bbn_in_order(&mut due, 8 * SECOND), behind);
    assert_eq!(bbn_in_order(&mut due, 10 * SECOND), 10 * SECOND);
    // One without a deadline has the latest, until that is over.
    let latest = 3 * SECOND + bbn_behind_all(due, 3 * SECOND);
    let before = due;
    assert_eq!(bbn_in_order(&mut due, latest), latest + 1);
    assert!((10 * SECOND..10 * SECOND + (1 << 20)).contains(&latest) && due == before);
    for (due, now) in [
        (due, 11 * SECOND),
        (due, 180 * 86_400 * SECOND),
        (0, SECOND),
    ] {
        assert_eq!(bbn_behind_all(due, now), 0);
    }
    // Half a year later the clock of 52 days says nothing.
    let later = 180 * 86_400 * SECOND;
    assert_eq!(bbn_in_order(&mut due, later), later);
}

#[test]
fn option_value_is_a_time_of_day_above_65535_and_below_a_day_more() {
    for (lifetime, is) in [
        (0, false),
        (65_535, false),
        (65_536, true),
        (65_535 + 86_399_999, true),
        (65_535 + 86_400_000, false),
        (u32::MAX, false),
    ] {
        assert_eq!(bbn_option_is_time(lifetime) != 0, is, "{lifetime}");
    }
}

#[test]
fn option_treatment_bits_are_the_papers() {
    for (bits, treatment) in [
        (0b00, BB_TREAT_FORWARD),
        (0b01, BB_TREAT_DISCARD),
        (0b10, BB_TREAT_TRUNCATE),
        (0b11, BB_TREAT_DEFAULT),
    ] {
        // The other flags say nothing of it.
        for others in [0, 0b1100_1111_u8] {
            assert_eq!(
                u32::from(bbn_option_treatment(bits << 4 | others)),
                treatment
            );
        }
        if bits != 0b11 {
            assert_eq!(bbn_option_bits(treatment as u8), bits << 4);
        }
    }
    assert_eq!(bbn_option_bits(BB_TREAT_DEFAULT as u8), 0b01 << 4);
}
