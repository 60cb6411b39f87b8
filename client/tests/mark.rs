//! Properties of the mark's encoding.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bestby::{
    AduId, Deadline, Expiry, Lifetime, Magic, Mark, Metadata, Priority, Treatment, ValueError,
};
use proptest::prelude::*;

const UNIT: u64 = 250_000;
const SECOND: i64 = 1_000_000_000;

fn fields() -> impl Strategy<Value = Metadata> {
    let treatment = proptest::option::of(prop_oneof![
        Just(Treatment::Forward),
        Just(Treatment::Discard),
        Just(Treatment::Truncate)
    ]);
    (0..8u8, treatment, 0..8u8).prop_map(|(priority, treatment, adu)| {
        let mut metadata = Metadata::new().priority(Priority::new(priority).unwrap());
        if let Some(treatment) = treatment {
            metadata = metadata.treatment(treatment);
        }
        if adu > 0 {
            metadata = metadata.adu(AduId::new(adu).unwrap());
        }
        metadata
    })
}

/// Times of the clock, often near a multiple of the circle (131.072 s).
fn clock() -> impl Strategy<Value = u64> {
    let near = (1..10_000u64, -2_000_000i64..2_000_000)
        .prop_map(|(turns, offset)| (turns * (UNIT << 19)).saturating_add_signed(offset));
    prop_oneof![0..200_000_000_000u64, 0..1u64 << 58, near]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A deadline survives, rounded down by less than two units, wherever the clock stands
    /// and however late (within the range) the data path reads it.
    #[test]
    fn deadline_is_rounded_down_by_less_than_two_units(
        metadata in fields(),
        now in clock(),
        ahead in -30 * SECOND..=65 * SECOND,
        waited in 0..=30 * SECOND as u64,
    ) {
        let deadline = Deadline::from_monotonic_ns(now.saturating_add_signed(ahead));
        let metadata = metadata.deadline(deadline);
        let mark = Mark::encode(&metadata, now, Magic::default()).unwrap();
        let read = mark.decode(now + waited, Magic::default()).unwrap();
        let Expiry::At(got) = read.get_expiry() else { panic!("{read:?}") };
        let lost = deadline.as_monotonic_ns() - got.as_monotonic_ns().min(deadline.as_monotonic_ns());
        prop_assert!(got <= deadline && lost < 2 * UNIT, "{got:?} for {deadline:?}");
        prop_assert!(lost < UNIT || got.as_monotonic_ns() / UNIT % (1 << 19) == (1 << 19) - 1 || got.as_monotonic_ns() == 1);
        prop_assert_eq!(read.deadline(deadline), metadata, "the other fields");
    }

    /// However long ago a deadline passed, it never reads as one to come.
    #[test]
    fn past_deadline_never_decodes_as_future(now in clock(), ago in 1..u64::MAX, waited in 0..=30 * SECOND as u64) {
        let metadata = Metadata::new().deadline(Deadline::from_monotonic_ns(now.saturating_sub(ago)));
        let mark = Mark::encode(&metadata, now, Magic::default()).unwrap();
        let read = mark.decode(now + waited, Magic::default()).unwrap();
        let Expiry::At(got) = read.get_expiry() else { panic!("{read:?}") };
        prop_assert!(got.as_monotonic_ns() <= now.max(1), "{got:?} at {now}");
    }

    /// Too far ahead is an error, never a wrap.
    #[test]
    fn deadline_beyond_65_s_is_refused(now in clock(), ahead in 65 * SECOND as u64 + 1..1u64 << 62) {
        let metadata = Metadata::new().deadline(Deadline::from_monotonic_ns(now + ahead));
        prop_assert_eq!(
            Mark::encode(&metadata, now, Magic::default()),
            Err(ValueError::DeadlineTooFar(Duration::from_nanos(ahead)))
        );
    }

    /// A lifetime is rounded down, but never to 0, and says nothing about the clock.
    #[test]
    fn lifetime_is_rounded_down_but_not_to_0(
        metadata in fields(),
        now in clock(),
        ns in prop_oneof![1..3 * UNIT, 1..=131_000_000_000u64],
    ) {
        let lifetime = Lifetime::new(Duration::from_nanos(ns)).unwrap();
        let mark = Mark::encode(&metadata.lifetime(lifetime), now, Magic::default()).unwrap();
        let read = mark.decode(0, Magic::default()).unwrap();
        let Expiry::After(got) = read.get_expiry() else { panic!("{read:?}") };
        prop_assert_eq!(got.as_nanos(), (ns / UNIT).max(1) * UNIT);
        prop_assert_eq!(read.lifetime(lifetime), metadata.lifetime(lifetime));
    }

    /// Any 32 bits decode to something that encodes again to the same bits, or have no magic.
    #[test]
    fn any_32_bits_are_foreign_or_encode_again_to_themselves(bits: u32, now in clock()) {
        let magic = Magic::default();
        match Mark::from_bits(bits).decode(now, magic) {
            None => prop_assert_ne!(bits >> 28, 0xB),
            Some(metadata) => {
                prop_assert_eq!(bits >> 28, 0xB);
                let again = match metadata.get_expiry() {
                    // Beyond what the encoder accepts, or before the clock's zero.
                    Expiry::At(deadline) if deadline.as_monotonic_ns() > now + 65 * SECOND as u64
                        || deadline.as_monotonic_ns() + 30 * (SECOND as u64) < now
                        || deadline.as_monotonic_ns() == 1 => return Ok(()),
                    _ => Mark::encode(&metadata, now, magic).unwrap().get(),
                };
                // Left out: `relative` of a mark without time; a lifetime above 131 s.
                let mut kept = bits;
                if kept & 0x7ffff == 0 {
                    kept &= !(1 << 19);
                } else if kept & 1 << 19 != 0 && kept & 0x7ffff > 524_000 {
                    kept = kept & !0x7ffff | 524_000;
                }
                prop_assert_eq!(again, kept);
            }
        }
    }

    /// Every bit of a custom magic is there, and marks of another magic are not ours.
    #[test]
    fn mark_with_another_magic_is_foreign(metadata in fields(), mask in 1..16u32, value in 0..16u32, other in 0..16u32) {
        let (mask, value, other) = (mask << 28, value << 28 & mask << 28, other << 28 & mask << 28);
        let magic = Magic::new(value, mask).unwrap();
        let mark = Mark::encode(&metadata, 0, magic).unwrap();
        prop_assert_eq!(mark.get() & 0xf000_0000, value);
        prop_assert!(mark.decode(0, magic).is_some());
        let found = mark.decode(0, Magic::new(other, mask).unwrap()).is_some();
        prop_assert_eq!(found, other == value);
    }
}

/// The layout itself, bit by bit (docs/metadata.md, "The mark").
#[test]
fn each_field_of_a_mark_has_its_documented_bits() {
    let encode = |metadata: Metadata, now| {
        Mark::encode(&metadata, now, Magic::default())
            .unwrap()
            .get()
    };
    let base = Metadata::new();
    assert_eq!(
        encode(base, 0),
        0xB030_0000,
        "magic and the default priority 3"
    );
    let first = base.priority(Priority::HIGHEST);
    assert_eq!(encode(first, 0), 0xB000_0000);
    assert_eq!(encode(base.priority(Priority::LOWEST), 0), 0xB070_0000);
    assert_eq!(encode(first.treatment(Treatment::Forward), 0), 0xB080_0000);
    assert_eq!(encode(first.treatment(Treatment::Discard), 0), 0xB100_0000);
    assert_eq!(encode(first.treatment(Treatment::Truncate), 0), 0xB180_0000);
    assert_eq!(encode(first.adu(AduId::new(7).unwrap()), 0), 0xBE00_0000);
    let relative = first.lifetime(Lifetime::MAX);
    assert_eq!(encode(relative, 0), 0xB008_0000 | 524_000);
    let absolute = first.deadline(Deadline::from_monotonic_ns(5 * UNIT + 249_999));
    assert_eq!(encode(absolute, 0), 0xB000_0005);
    // A field of 0 means "none": the deadline at a whole turn goes one unit earlier.
    let turn = first.deadline(Deadline::from_monotonic_ns(UNIT << 19));
    assert_eq!(encode(turn, (UNIT << 19) - 1_000_000), 0xB007_FFFF);
}
