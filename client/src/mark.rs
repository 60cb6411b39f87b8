//! The mark form: 32 bits in `SO_MARK`, laid out as docs/metadata.md says.

use crate::{
    abi,
    error::ValueError,
    metadata::{AduId, Expiry, Metadata, Priority, Treatment},
    time::{Deadline, Lifetime},
};

/// How marks of bestby are told from those of other software: `mark & mask == value`.
/// Must equal the setting of this host's agent; the default fits its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Magic {
    value: u32,
    mask: u32,
}

impl Magic {
    /// A magic in some of the bits 28 to 31, the others being left 0.
    ///
    /// ```
    /// use bestby::Magic;
    /// // Bit 31 belongs to another program: bestby gets bits 28 to 30.
    /// let magic = Magic::new(0x3000_0000, 0x7000_0000)?;
    /// assert!(Magic::new(0xB, 0xF).is_err(), "the time field is there");
    /// # Ok::<(), bestby::ValueError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ValueError::Magic`] if `mask` is 0 or has bits below 28 (they carry the
    /// metadata), or if `value` has bits outside of `mask`.
    pub const fn new(value: u32, mask: u32) -> Result<Self, ValueError> {
        if mask == 0 || mask & !(0xf << abi::MARK_MAGIC_SHIFT) != 0 || value & !mask != 0 {
            return Err(ValueError::Magic { value, mask });
        }
        Ok(Self { value, mask })
    }
}

impl Default for Magic {
    fn default() -> Self {
        let shift = abi::MARK_MAGIC_SHIFT;
        Self {
            value: abi::MARK_MAGIC << shift,
            mask: 0xf << shift,
        }
    }
}

/// A packet's mark.
///
/// Rounding: times are in units of 250 µs. A deadline is rounded **down** (by
/// less than 250 µs; by less than 500 µs where the field would become 0, which
/// means "none"): data is never taken for fresh after its deadline. A lifetime
/// is rounded down, too, but never to 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(u32);

impl Mark {
    /// Encodes `metadata` for a packet sent at `now_ns` (`CLOCK_MONOTONIC`).
    /// A deadline that has passed by more than 30 s becomes one that has passed by
    /// 30 s: stale either way, and it cannot wrap into the future.
    ///
    /// ```
    /// use bestby::{Lifetime, Magic, Mark, Metadata, Priority};
    ///
    /// let metadata = Metadata::new()
    ///     .lifetime(Lifetime::from_millis(200)?)
    ///     .priority(Priority::HIGHEST);
    /// let mark = Mark::encode(&metadata, 0, Magic::default())?;
    /// assert_eq!(mark.get(), 0xB008_0000 | 800);
    /// # Ok::<(), bestby::ValueError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ValueError::DeadlineTooFar`] for a deadline more than 65 s ahead.
    pub fn encode(metadata: &Metadata, now_ns: u64, magic: Magic) -> Result<Self, ValueError> {
        let time = match metadata.expiry {
            Expiry::Unset => 0,
            Expiry::After(lifetime) => abi::MARK_RELATIVE | lifetime_units(lifetime),
            Expiry::At(deadline) => deadline_units(deadline, now_ns)?,
        };
        let priority = u32::from(metadata.priority.unwrap_or_default().get());
        let treatment = match metadata.treatment {
            None => 0,
            Some(Treatment::Forward) => abi::TREAT_FORWARD,
            Some(Treatment::Discard) => abi::TREAT_DISCARD,
            Some(Treatment::Truncate) => abi::TREAT_TRUNCATE,
        };
        let adu = metadata.adu.map_or(0, |id| u32::from(id.get()));
        Ok(Self(
            magic.value
                | time
                | priority << abi::MARK_PRIORITY_SHIFT
                | treatment << abi::MARK_TREATMENT_SHIFT
                | adu << abi::MARK_ADU_SHIFT,
        ))
    }

    /// What the data path reads from this mark at `now_ns`; `None` without the magic.
    /// A deadline is the one nearest to `now_ns` (from 65.536 s before to 65.53575 s
    /// after it).
    pub fn decode(self, now_ns: u64, magic: Magic) -> Option<Metadata> {
        if self.0 & magic.mask != magic.value {
            return None;
        }
        let units = u64::from(self.0 & abi::MARK_TIME_MASK);
        let expiry = if units == 0 {
            Expiry::Unset
        } else if self.0 & abi::MARK_RELATIVE != 0 {
            // 2^19 units are 131.072 s: a foreign encoder may exceed our maximum by 72 ms.
            let ns = (units * abi::MARK_UNIT_NS).min(abi::LIFETIME_MAX_NS);
            Expiry::After(Lifetime::new(std::time::Duration::from_nanos(ns)).ok()?)
        } else {
            Expiry::At(nearest(units, now_ns))
        };
        Some(Metadata {
            expiry,
            priority: Some(Priority::from_bits(self.0 >> abi::MARK_PRIORITY_SHIFT)),
            treatment: match self.0 >> abi::MARK_TREATMENT_SHIFT & 3 {
                abi::TREAT_FORWARD => Some(Treatment::Forward),
                abi::TREAT_DISCARD => Some(Treatment::Discard),
                abi::TREAT_TRUNCATE => Some(Treatment::Truncate),
                _ => None,
            },
            adu: AduId::new((self.0 >> abi::MARK_ADU_SHIFT & 7) as u8).ok(),
        })
    }

    /// A mark read from a socket or a packet.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The 32 bits for `SO_MARK`.
    pub const fn get(self) -> u32 {
        self.0
    }
}

fn lifetime_units(lifetime: Lifetime) -> u32 {
    // At most 524,000 units: Lifetime::MAX is 131 s.
    (lifetime.as_nanos() / abi::MARK_UNIT_NS).max(1) as u32
}

fn deadline_units(deadline: Deadline, now_ns: u64) -> Result<u32, ValueError> {
    let ahead = deadline.as_monotonic_ns().saturating_sub(now_ns);
    if ahead > abi::MARK_AHEAD_MAX_NS {
        return Err(ValueError::DeadlineTooFar(std::time::Duration::from_nanos(
            ahead,
        )));
    }
    let earliest = now_ns.saturating_sub(abi::MARK_PAST_MAX_NS);
    let units = deadline.as_monotonic_ns().max(earliest) / abi::MARK_UNIT_NS;
    match units as u32 & abi::MARK_TIME_MASK {
        // 0 is taken by "none": one unit earlier, at the far end of the circle.
        0 => Ok(abi::MARK_TIME_MASK),
        field => Ok(field),
    }
}

/// The deadline congruent to `units` modulo 2^19 that lies nearest to now.
fn nearest(units: u64, now_ns: u64) -> Deadline {
    const CIRCLE: u64 = 1 << abi::MARK_TIME_BITS;
    let now_units = now_ns / abi::MARK_UNIT_NS;
    let ahead = units.wrapping_sub(now_units) % CIRCLE;
    let deadline = if ahead < CIRCLE / 2 {
        now_units + ahead
    } else {
        // Before the clock's zero: long past, but not "none".
        now_units.saturating_sub(CIRCLE - ahead)
    };
    Deadline::from_monotonic_ns(deadline * abi::MARK_UNIT_NS)
}
