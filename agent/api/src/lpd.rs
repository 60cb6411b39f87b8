//! The option of Lifetime Packet Discard (LPD), as it is in packets.
//!
//! Gurtov and Ludwig (INFOCOM 2004, appendix A) propose eight bytes: type, length, the depth of reordering that the
//! transport bears, flags, and 32 bits that say until when the packet is of use. IPv6 has the same fields in an
//! option of the hop-by-hop header.
//!
//! The 32 bits have two forms. Up to 65535 they are the milliseconds left. Above, they are a deadline, in milliseconds
//! since midnight UTC plus 65535. The paper leaves open what 65535 itself is. The classifier reads a lifetime
//! (`bpf/include/bb_core.h`), so a deadline at midnight is written as 1 ms later.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::net::parse_u32;
use crate::value::ValueError;

/// What midnight would be in the packet.
const MIDNIGHT: u32 = u16::MAX as u32;
const DAY_MS: u32 = 24 * 60 * 60 * 1000;

/// Length of the IPv4 option, type and length included.
const IPV4_BYTES: usize = 8;
/// Length of the hop-by-hop header with this option alone.
pub const HOP_BY_HOP_BYTES: usize = 16;

/// Type and length come before the fields in both families.
const HEAD: usize = 2;
const FIELDS: usize = 6;
/// Where the option begins in [`LpdOption::hop_by_hop`].
const HOP_BY_HOP_OPTION: usize = 4;

// The flags, counted from the most significant bit as the paper draws them.
const CORRUPTION_TOLERABLE: u8 = 0x80;
const DATA_CORRUPTED: u8 = 0x40;
const TREATMENT_SHIFT: u8 = 4;
const SLOW: u8 = 0x08;

/// IPv4 options whose types differ only in the copied bit and the class are one option here.
const IPV4_NUMBER: u8 = 0x1f;

/// The option's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LpdTypes {
    /// IPv4.
    pub ipv4: u8,
    /// IPv6, hop by hop, with a deadline: it does not change on the way.
    pub ipv6_deadline: u8,
    /// IPv6, hop by hop, with a lifetime: it may change on the way.
    pub ipv6_lifetime: u8,
}

impl LpdTypes {
    /// Those for experiments (RFC 4727).
    pub const EXPERIMENTAL: Self = Self {
        // The copied bit is set, so that each fragment has the option.
        ipv4: 0x9e,
        ipv6_deadline: 0x1e,
        ipv6_lifetime: 0x3e,
    };
}

impl FromStr for LpdTypes {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        const ALLOWED: &str = "three types: IPv4's, IPv6's with a deadline (0x02 to 0x1f), IPv6's with a lifetime \
             (0x20 to 0x3f), for example 0x9e,0x1e,0x3e";
        let refuse = |problem: &str| ValueError::new("ip_option", s, problem, ALLOWED);
        let types: Option<Vec<u8>> = s
            .split(',')
            .map(|t| parse_u32(t.trim()).and_then(|t| u8::try_from(t).ok()))
            .collect();
        let Some([ipv4, deadline, lifetime]) = types.as_deref().and_then(|t| t.as_array()).copied()
        else {
            return Err(refuse("are not three numbers up to 255"));
        };
        // End of list and no operation; Pad1 and PadN.
        if ipv4 & IPV4_NUMBER < 2 || deadline < 2 {
            return Err(refuse("has a type that is padding"));
        }
        // The topmost bits say that who does not know it skips it; the third that it may change on the way.
        if deadline > 0x1f || !(0x20..=0x3f).contains(&lifetime) {
            return Err(refuse(
                "has a type of IPv6 that others would not skip, or not let change",
            ));
        }
        Ok(Self {
            ipv4,
            ipv6_deadline: deadline,
            ipv6_lifetime: lifetime,
        })
    }
}

impl fmt::Display for LpdTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#04x},{:#04x},{:#04x}",
            self.ipv4, self.ipv6_deadline, self.ipv6_lifetime
        )
    }
}

string_value!(LpdTypes, "three types such as 0x9e,0x1e,0x3e");

/// What the sender wants done with the packet once it is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StaleTreatment {
    /// It goes on.
    #[default]
    Forward = 0,
    /// It is dropped.
    Discard = 1,
    /// Its headers go on, its payload does not.
    Truncate = 2,
}

/// Until when a packet is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LpdExpiry {
    /// So many milliseconds more; it needs no clock. 0 is stale.
    Lifetime(u16),
    /// Milliseconds since midnight UTC, from 1 and less than a day; it needs synchronised clocks.
    Deadline(u32),
}

impl LpdExpiry {
    /// A lifetime; `None` if it is longer than the option can say.
    pub fn lifetime(lifetime: Duration) -> Option<Self> {
        u16::try_from(lifetime.as_millis()).ok().map(Self::Lifetime)
    }

    /// The deadline at a time since the epoch (UTC).
    pub fn deadline(since_epoch: Duration) -> Self {
        Self::Deadline(of_day(since_epoch).max(1))
    }

    /// Milliseconds left at a time since the epoch (UTC). A deadline is the one nearest to that time, so at most half
    /// a day away.
    pub fn remaining_ms(self, now_since_epoch: Duration) -> i32 {
        match self {
            Self::Lifetime(ms) => ms.into(),
            Self::Deadline(at) => {
                // Both are below a day, and a day is far below 2^31.
                let (at, now, day) = (at as i32, of_day(now_since_epoch) as i32, DAY_MS as i32);
                (at - now + day / 2).rem_euclid(day) - day / 2
            }
        }
    }

    fn to_wire(self) -> u32 {
        match self {
            Self::Lifetime(ms) => ms.into(),
            Self::Deadline(at) => MIDNIGHT + (at % DAY_MS).max(1),
        }
    }

    fn from_wire(value: u32) -> Option<Self> {
        match u16::try_from(value) {
            Ok(ms) => Some(Self::Lifetime(ms)),
            Err(_) => {
                let at = value - MIDNIGHT;
                (at < DAY_MS).then_some(Self::Deadline(at))
            }
        }
    }
}

/// Milliseconds since midnight.
fn of_day(since_epoch: Duration) -> u32 {
    (since_epoch.as_millis() % u128::from(DAY_MS)) as u32
}

/// What the option says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LpdOption {
    /// Depth of reordering that the transport bears; TCP bears 3.
    pub reorder: u8,
    /// The payload may arrive with errors.
    pub corruption_tolerable: bool,
    /// A link set this: the payload has errors.
    pub data_corrupted: bool,
    /// What to do once it is stale.
    pub treatment: StaleTreatment,
    /// It is of a flow that answers to congestion slowly.
    pub slow: bool,
    /// Until when it is of use.
    pub expiry: LpdExpiry,
}

impl LpdOption {
    /// An option that says nothing else.
    pub const fn new(expiry: LpdExpiry, treatment: StaleTreatment) -> Self {
        Self {
            reorder: 0,
            corruption_tolerable: false,
            data_corrupted: false,
            treatment,
            slow: false,
            expiry,
        }
    }

    /// The IPv4 option.
    pub fn ipv4(&self, types: &LpdTypes) -> [u8; IPV4_BYTES] {
        let mut bytes = [0; IPV4_BYTES];
        bytes[..HEAD].copy_from_slice(&[types.ipv4, IPV4_BYTES as u8]);
        bytes[HEAD..].copy_from_slice(&self.fields());
        bytes
    }

    /// The whole hop-by-hop header, `next_header` behind it. The padding before the option puts its 32 bits on a
    /// multiple of four bytes.
    pub fn hop_by_hop(&self, types: &LpdTypes, next_header: u8) -> [u8; HOP_BY_HOP_BYTES] {
        let kind = match self.expiry {
            LpdExpiry::Lifetime(_) => types.ipv6_lifetime,
            LpdExpiry::Deadline(_) => types.ipv6_deadline,
        };
        let mut bytes = [0; HOP_BY_HOP_BYTES];
        // Length of the header in units of eight bytes, without the first; PadN without data.
        bytes[..HOP_BY_HOP_OPTION].copy_from_slice(&[next_header, 1, 1, 0]);
        let option = &mut bytes[HOP_BY_HOP_OPTION..];
        option[..HEAD].copy_from_slice(&[kind, FIELDS as u8]);
        option[HEAD..][..FIELDS].copy_from_slice(&self.fields());
        option[HEAD + FIELDS..].copy_from_slice(&[1, 2, 0, 0]); // PadN with two bytes of data
        bytes
    }

    /// Reads an IPv4 option; `None` if it is another one, or malformed.
    pub fn from_ipv4(option: &[u8], types: &LpdTypes) -> Option<Self> {
        let [kind, length, fields @ ..] = option else {
            return None;
        };
        let ours = kind & IPV4_NUMBER == types.ipv4 & IPV4_NUMBER;
        (ours && usize::from(*length) == IPV4_BYTES)
            .then(|| Self::from_fields(fields))
            .flatten()
    }

    /// Reads an option of a hop-by-hop header; `None` if it is another one, or malformed.
    pub fn from_ipv6(option: &[u8], types: &LpdTypes) -> Option<Self> {
        let [kind, length, fields @ ..] = option else {
            return None;
        };
        let ours = [types.ipv6_deadline, types.ipv6_lifetime].contains(kind);
        (ours && usize::from(*length) == FIELDS)
            .then(|| Self::from_fields(fields))
            .flatten()
    }

    fn fields(&self) -> [u8; FIELDS] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = flag(self.corruption_tolerable, CORRUPTION_TOLERABLE)
            | flag(self.data_corrupted, DATA_CORRUPTED)
            | (self.treatment as u8) << TREATMENT_SHIFT
            | flag(self.slow, SLOW);
        let [a, b, c, d] = self.expiry.to_wire().to_be_bytes();
        [self.reorder, flags, a, b, c, d]
    }

    fn from_fields(fields: &[u8]) -> Option<Self> {
        let [reorder, flags, a, b, c, d] = *<&[u8; FIELDS]>::try_from(fields).ok()?;
        Some(Self {
            reorder,
            corruption_tolerable: flags & CORRUPTION_TOLERABLE != 0,
            data_corrupted: flags & DATA_CORRUPTED != 0,
            treatment: match flags >> TREATMENT_SHIFT & 3 {
                0 => StaleTreatment::Forward,
                1 => StaleTreatment::Discard,
                2 => StaleTreatment::Truncate,
                _ => return None,
            },
            slow: flags & SLOW != 0,
            expiry: LpdExpiry::from_wire(u32::from_be_bytes([a, b, c, d]))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPES: LpdTypes = LpdTypes::EXPERIMENTAL;

    fn discard(expiry: LpdExpiry) -> LpdOption {
        LpdOption {
            reorder: 3,
            ..LpdOption::new(expiry, StaleTreatment::Discard)
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn option_has_the_bytes_of_the_paper() {
        let lifetime = discard(LpdExpiry::Lifetime(5000));
        assert_eq!(lifetime.ipv4(&TYPES), [0x9e, 8, 3, 0x10, 0, 0, 0x13, 0x88]);
        assert_eq!(
            lifetime.hop_by_hop(&TYPES, 17),
            [17, 1, 1, 0, 0x3e, 6, 3, 0x10, 0, 0, 0x13, 0x88, 1, 2, 0, 0]
        );
        let deadline = discard(LpdExpiry::Deadline(1));
        assert_eq!(deadline.ipv4(&TYPES)[4..], [0, 1, 0, 0]);
        assert_eq!(deadline.hop_by_hop(&TYPES, 17)[4], 0x1e);
    }

    #[test]
    fn flag_is_the_bit_that_the_paper_draws() {
        let plain = LpdOption::new(LpdExpiry::Lifetime(1), StaleTreatment::Forward);
        for (option, flags) in [
            (plain, 0),
            (
                LpdOption {
                    corruption_tolerable: true,
                    ..plain
                },
                0x80,
            ),
            (
                LpdOption {
                    data_corrupted: true,
                    ..plain
                },
                0x40,
            ),
            (
                LpdOption {
                    treatment: StaleTreatment::Discard,
                    ..plain
                },
                0x10,
            ),
            (
                LpdOption {
                    treatment: StaleTreatment::Truncate,
                    ..plain
                },
                0x20,
            ),
            (
                LpdOption {
                    slow: true,
                    ..plain
                },
                0x08,
            ),
        ] {
            let bytes = option.ipv4(&TYPES);
            assert_eq!(bytes[3], flags);
            assert_eq!(LpdOption::from_ipv4(&bytes, &TYPES), Some(option));
        }
    }

    #[test]
    fn forms_meet_at_65535() {
        for (wire, expiry) in [
            (0, Some(LpdExpiry::Lifetime(0))),
            (65535, Some(LpdExpiry::Lifetime(65535))),
            (65536, Some(LpdExpiry::Deadline(1))),
            (65535 + DAY_MS - 1, Some(LpdExpiry::Deadline(DAY_MS - 1))),
            (65535 + DAY_MS, None),
            (u32::MAX, None),
        ] {
            assert_eq!(LpdExpiry::from_wire(wire), expiry, "{wire}");
        }
        assert_eq!(
            LpdExpiry::lifetime(ms(65535)),
            Some(LpdExpiry::Lifetime(65535))
        );
        assert_eq!(LpdExpiry::lifetime(ms(65536)), None);
        assert_eq!(LpdExpiry::deadline(ms(0)), LpdExpiry::Deadline(1));
    }

    #[test]
    fn ipv4_types_that_differ_in_copied_bit_and_class_are_read() {
        let mut bytes = discard(LpdExpiry::Lifetime(1)).ipv4(&TYPES);
        for (kind, ours) in [
            (0x1e, true),
            (0x5e, true),
            (0x9e, true),
            (0xde, true),
            (0x9f, false),
            (7, false),
        ] {
            bytes[0] = kind;
            assert_eq!(
                LpdOption::from_ipv4(&bytes, &TYPES).is_some(),
                ours,
                "{kind:#x}"
            );
        }
    }

    #[test]
    fn malformed_option_is_not_read() {
        let option = discard(LpdExpiry::Lifetime(1));
        let v4 = option.ipv4(&TYPES);
        let v6 = &option.hop_by_hop(&TYPES, 0)[4..12];
        for at in 0..8 {
            assert_eq!(LpdOption::from_ipv4(&v4[..at], &TYPES), None, "{at}");
            assert_eq!(LpdOption::from_ipv6(&v6[..at], &TYPES), None, "{at}");
        }
        let with = |at: usize, value: u8| {
            let mut bytes = v4;
            bytes[at] = value;
            LpdOption::from_ipv4(&bytes, &TYPES)
        };
        assert_eq!(with(1, 6), None, "length");
        assert_eq!(with(3, 0x30), None, "treatment");
        assert_eq!(with(4, 0xff), None, "deadline");
        assert_eq!(LpdOption::from_ipv6(&v4, &TYPES), None, "family");
    }

    #[test]
    fn deadline_across_midnight_is_the_nearest() {
        let day = u64::from(DAY_MS);
        for (deadline, now, left) in [
            (20_000 * day + 5, 20_000 * day - 5, 10),
            (20_000 * day - 5, 20_000 * day + 5, -10),
            (20_000 * day + 1, 20_000 * day + 1, 0),
            // Midnight itself is written as 1 ms later.
            (20_000 * day, 20_000 * day, 1),
            // Half a day is where both are equally near: it is past.
            (
                20_000 * day + 1,
                20_000 * day + day / 2 + 1,
                -(DAY_MS as i32) / 2,
            ),
            (20_000 * day + day / 2, 20_000 * day, -(DAY_MS as i32) / 2),
            (
                20_000 * day + day / 2 - 1,
                20_000 * day,
                DAY_MS as i32 / 2 - 1,
            ),
        ] {
            let expiry = LpdExpiry::deadline(ms(deadline));
            assert_eq!(expiry.remaining_ms(ms(now)), left, "{deadline} {now}");
        }
        assert_eq!(LpdExpiry::Lifetime(7).remaining_ms(ms(1)), 7);
    }

    fn expiry() -> impl Strategy<Value = LpdExpiry> {
        prop_oneof![
            any::<u16>().prop_map(LpdExpiry::Lifetime),
            (1..DAY_MS).prop_map(LpdExpiry::Deadline),
        ]
    }

    fn option() -> impl Strategy<Value = LpdOption> {
        let treatment = prop_oneof![
            Just(StaleTreatment::Forward),
            Just(StaleTreatment::Discard),
            Just(StaleTreatment::Truncate)
        ];
        (any::<[bool; 3]>(), any::<u8>(), treatment, expiry()).prop_map(
            |([corruption_tolerable, data_corrupted, slow], reorder, treatment, expiry)| {
                LpdOption {
                    reorder,
                    corruption_tolerable,
                    data_corrupted,
                    treatment,
                    slow,
                    expiry,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn written_option_is_read_as_the_same(option in option(), next_header: u8) {
            prop_assert_eq!(LpdOption::from_ipv4(&option.ipv4(&TYPES), &TYPES), Some(option));
            let header = option.hop_by_hop(&TYPES, next_header);
            prop_assert_eq!(LpdOption::from_ipv6(&header[4..12], &TYPES), Some(option));
        }

        #[test]
        fn any_bytes_are_read_as_what_writes_them(reorder: u8, flags: u8, wire: u32) {
            let mut bytes = [0x9e, 8, reorder, flags, 0, 0, 0, 0];
            bytes[4..].copy_from_slice(&wire.to_be_bytes());
            if let Some(option) = LpdOption::from_ipv4(&bytes, &TYPES) {
                // Three bits of the flags mean nothing.
                bytes[3] &= 0xf8;
                prop_assert_eq!(option.ipv4(&TYPES), bytes);
            }
        }

        #[test]
        fn deadline_is_left_what_was_ahead(now in 0u64..1 << 45, ahead in -43_200_000i64..43_200_000) {
            let now = now + u64::from(DAY_MS);
            let expiry = LpdExpiry::deadline(ms(now.checked_add_signed(ahead).unwrap()));
            let left = i64::from(expiry.remaining_ms(ms(now)));
            let midnight = expiry == LpdExpiry::Deadline(1) && left == ahead + 1;
            prop_assert!(left == ahead || midnight, "{left} {ahead}");
        }
    }
}
