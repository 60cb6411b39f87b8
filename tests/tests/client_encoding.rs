//! The client crate's numbers and encoding against the data path's own (`bb_abi.h`,
//! `bb_core.h`) and the agent's tables. No privilege needed.

#![allow(clippy::unwrap_used)]

mod client_lab;

use std::{net::UdpSocket, os::fd::AsRawFd as _, time::Duration};

use bestby::{Deadline, Lifetime, Magic, Mark, Priority, Sender};
use bestby_api::SoPriorityTable;
use bestby_bpf::abi;
use proptest::prelude::*;

unsafe extern "C" {
    safe fn bbn_mark_deadline(mark: u32, now_ns: u64) -> u64;
    safe fn bbn_mark_priority(mark: u32) -> u8;
    safe fn bbn_mark_treatment(mark: u32) -> u8;
    safe fn bbn_mark_adu(mark: u32) -> u8;
}

const UNIT: u64 = abi::BB_MARK_UNIT_NS as u64;

#[test]
fn client_constants_equal_those_of_the_header() {
    use bestby::abi as client;
    assert_eq!(client::MARK_TIME_BITS, abi::BB_MARK_TIME_BITS);
    assert_eq!(client::MARK_UNIT_NS, UNIT);
    assert_eq!(client::MARK_TIME_MASK, abi::BB_MARK_TIME_MASK);
    assert_eq!(client::MARK_RELATIVE, abi::BB_MARK_RELATIVE);
    assert_eq!(client::MARK_PRIORITY_SHIFT, abi::BB_MARK_PRIORITY_SHIFT);
    assert_eq!(client::MARK_TREATMENT_SHIFT, abi::BB_MARK_TREATMENT_SHIFT);
    assert_eq!(client::MARK_ADU_SHIFT, abi::BB_MARK_ADU_SHIFT);
    assert_eq!(client::MARK_MAGIC_SHIFT, abi::BB_MARK_MAGIC_SHIFT);
    assert_eq!(client::MARK_MAGIC, abi::BB_MARK_MAGIC);
    assert_eq!(client::TREAT_FORWARD, abi::BB_TREAT_FORWARD);
    assert_eq!(client::TREAT_DISCARD, abi::BB_TREAT_DISCARD);
    assert_eq!(client::TREAT_TRUNCATE, abi::BB_TREAT_TRUNCATE);
    assert_eq!(client::SOL_BESTBY as u32, abi::SOL_BESTBY);
    assert_eq!(client::SO_LIFETIME as u32, abi::BB_SO_LIFETIME);
    assert_eq!(client::SO_PRIORITY as u32, abi::BB_SO_PRIORITY);
    assert_eq!(client::SO_TREATMENT as u32, abi::BB_SO_TREATMENT);
    assert_eq!(client::SO_PEER as u32, abi::BB_SO_PEER);
    assert_eq!(client::SO_STATS as u32, abi::BB_SO_STATS);
    assert_eq!(client::LIFETIME_MAX_NS, abi::BB_LIFETIME_MAX_NS);
    assert_eq!(
        u32::from(Priority::default().get()),
        abi::BB_PRIORITY_DEFAULT
    );
    assert_eq!(
        size_of::<abi::bb_counters>(),
        21 * 8,
        "SocketStats reads 21 words"
    );
    assert_eq!(
        size_of::<abi::bb_so_peer>(),
        32,
        "SocketOptions::set_peer writes 32 bytes"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// What the crate encodes, `bb_core.h` reads; both read every mark alike.
    #[test]
    fn client_mark_is_read_by_the_data_path_as_encoded(
        turns in 0..1000u64,
        offset in prop_oneof![-1_000_000i64..1_000_000, -65_000_000_000..65_000_000_000i64],
        ahead in prop_oneof![-1_000_000i64..1_000_000, -30_000_000_000..=65_000_000_000i64],
        relative: bool,
        n: u8,
        waited in 0..500_000_000u64,
        bits: u32,
    ) {
        let now = (turns * (UNIT << 19)).saturating_add_signed(offset);
        let deadline = now.saturating_add_signed(ahead).max(1);
        let lifetime = Duration::from_nanos(ahead.unsigned_abs().max(1));
        let metadata = if relative {
            client_lab::metadata(n).lifetime(Lifetime::new(lifetime).unwrap())
        } else {
            client_lab::metadata(n).deadline(Deadline::from_monotonic_ns(deadline))
        };
        let mark = Mark::encode(&metadata, now, Magic::default()).unwrap();
        prop_assert_eq!(bbn_mark_priority(mark.get()), n % 8);
        prop_assert_eq!(bbn_mark_treatment(mark.get()), 1 + n % 3);
        prop_assert_eq!(bbn_mark_adu(mark.get()), n % 7 + 1);
        let read = bbn_mark_deadline(mark.get(), now + waited);
        let wanted = if relative { now + waited + lifetime.as_nanos() as u64 } else { deadline };
        let shortest = if relative { UNIT } else { 0 };
        prop_assert!(read <= wanted.max(now + waited + shortest) && wanted.saturating_sub(read) < 2 * UNIT,
            "{} for {}", read, wanted);

        // Any mark at all, and any clock.
        let any = Mark::from_bits(bits & 0x0fff_ffff | 0xb000_0000);
        let expected = match any.decode(now, Magic::default()).unwrap().get_expiry() {
            bestby::Expiry::Unset => 0,
            bestby::Expiry::At(at) => at.as_monotonic_ns(),
            // The crate knows no lifetime above 131 s; the field reaches 131.07175 s.
            bestby::Expiry::After(after) if after == Lifetime::MAX => return Ok(()),
            bestby::Expiry::After(after) => now + after.as_nanos(),
        };
        prop_assert_eq!(bbn_mark_deadline(any.get(), now), expected);
    }
}

/// The six values of SO_PRIORITY that the crate uses mean, to the agent, the priority or its neighbour.
#[test]
fn client_so_priority_is_read_by_the_agent_within_one() {
    let table = SoPriorityTable::default();
    let socket = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
    let mut exact = 0;
    for priority in 0..8u8 {
        socket
            .set_socket_priority(Priority::new(priority).unwrap())
            .unwrap();
        let (mut value, mut len) = (0i32, 4u32);
        // SAFETY: the kernel writes at most four bytes to `value`, and the length to `len`.
        let result = unsafe {
            let fd = socket.get_ref().as_raw_fd();
            let to = (&raw mut value).cast();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, to, &raw mut len)
        };
        assert_eq!(result, 0);
        assert!(
            (1..=6).contains(&value),
            "{value} needs a capability, or says nothing"
        );
        let read = table.get(value as usize).expect("an entry").get();
        assert!(
            read.abs_diff(priority) <= 1,
            "{priority} goes as {value}, read as {read}"
        );
        exact += u8::from(read == priority);
    }
    assert_eq!(exact, 6, "0 goes as 1, and 6 as 7");
}

/// Where past and future meet, half a circle away, and at both ends of the field.
#[test]
fn client_and_data_path_read_the_ends_of_the_clock_alike() {
    let circle = 1u64 << 19;
    let mut read = 0;
    for now_units in (0..4)
        .chain(circle / 2 - 2..circle / 2 + 3)
        .chain(5 * circle - 2..5 * circle + 3)
    {
        for ahead in (0..3)
            .chain(circle / 2 - 2..circle / 2 + 3)
            .chain(circle - 2..circle)
        {
            let field = ((now_units + ahead) % circle) as u32;
            let now = now_units * UNIT + 123_456;
            let mark = Mark::from_bits(0xb000_0000 | field);
            let expected = match mark.decode(now, Magic::default()).unwrap().get_expiry() {
                bestby::Expiry::At(at) => at.as_monotonic_ns(),
                expiry => {
                    assert_eq!((expiry, field), (bestby::Expiry::Unset, 0));
                    0
                }
            };
            assert_eq!(
                bbn_mark_deadline(mark.get(), now),
                expected,
                "{field} at {now_units}"
            );
            read += u32::from(expected > 1);
        }
    }
    assert!(read > 50, "{read} deadlines");
}
