//! Histograms of what packets waited, and of what was left of their time (`bpf/include/bbq_sojourn.bpf.h`).
//!
//! In virtual time, so that each packet leaves when it should.

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, now_ns};

/// Ten packets of 20 ms each, at once, of use for so long; 0 = without a deadline.
fn ten(lifetime: u64) -> bb_times {
    let lab = lab("tim", BB_FIFO);
    lab.set_iface(|iface| iface.rate = RATE);
    let deadline = if lifetime == 0 {
        0
    } else {
        now_ns() + lifetime
    };
    for _ in 0..10 {
        lab.send(&Packet {
            deadline,
            len: 1_000,
            ..Packet::default()
        });
    }
    lab.wait_until_empty();
    let c = lab.instance(0);
    assert_eq!(c.packets_sent, 10);
    let times = lab.times(0);
    assert_eq!(count(&times.lateness), c.sent_stale);
    times
}

fn count(t: &bb_time) -> u64 {
    t.count.iter().sum()
}

/// Packets of the bucket that ends at so many ns.
fn up_to(t: &bb_time, end: u64) -> u64 {
    t.count[(end.trailing_zeros() - BB_TIME_SHIFT) as usize]
}

#[test]
fn packets_are_counted_by_what_they_waited_and_had_left() {
    // The last ones leave after 140, 160 and 180 ms, the first at once.
    let times = ten(150 * MS);
    assert_eq!(count(&times.sojourn), 10);
    assert!((880..=920).contains(&(times.sojourn.sum_ns / MS)));
    assert_eq!(up_to(&times.sojourn, 1 << 28), 3);
    assert!(up_to(&times.sojourn, 1 << 27) >= 3);
    assert!((count(&times.slack), count(&times.lateness)) == (8, 2));
    // 10 and 30 ms late.
    assert!((35..=45).contains(&(times.lateness.sum_ns / MS)));
    assert_eq!(up_to(&times.lateness, 1 << 25), 1);
    // 150, 130 ... 10 ms.
    assert!((630..=650).contains(&(times.slack.sum_ns / MS)));
}

#[test]
fn packets_without_a_deadline_have_no_slack() {
    let times = ten(0);
    assert_eq!(count(&times.sojourn), 10);
    assert_eq!((count(&times.slack), count(&times.lateness)), (0, 0));
}
