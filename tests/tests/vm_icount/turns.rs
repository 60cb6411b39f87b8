//! Transmit queues that share the rate of one session take turns.
//!
//! In virtual time, on one CPU: the timers of both queues go off at the same moment, in the
//! same order, each time.

use std::{fs, thread, time::Duration};

use crate::qdisc_lab::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// bytes/s: 200 bytes take 10 ms.
const RATE: u64 = 20_000;

/// A session of [`RATE`] that has so many packets of 200 bytes in either transmit queue, first in queue
/// 0; those of queue 1 are of use for so many ms.
fn session(name: &str, counts: [u32; 2], lifetime: u64) -> Lab {
    let lab = Lab::below_mq(name);
    lab.set_session(10, Duration::ZERO, RATE);
    let queues = format!("/sys/class/net/{}/queues", lab.device);
    for (queue, lifetime) in [(0, 30_000), (1, lifetime)] {
        // The only one that the CPU may use meanwhile. No program is started for it: virtual time runs on while the
        // host reads one for the guest, and the first queue would be empty before the second has a packet.
        for (n, cpus) in [(1 - queue, "0"), (queue, "1")] {
            fs::write(format!("{queues}/tx-{n}/xps_cpus"), cpus).unwrap();
        }
        for _ in 0..counts[queue] {
            lab.send(&Packet {
                deadline: now_ns() + lifetime * MS,
                ..Packet::default()
            });
        }
    }
    lab
}

/// Packets that either queue sends in half a second, and how many the rate allows.
fn half_a_second(lab: &Lab) -> ([u64; 2], u64) {
    let sent = || [0, 1].map(|i| lab.instance(i).packets_sent);
    let (before, from) = (sent(), now_ns());
    thread::sleep(Duration::from_millis(500));
    let (after, allowed) = (sent(), RATE * (now_ns() - from) / SECOND / 200);
    ([0, 1].map(|i| after[i] - before[i]), allowed)
}

#[test]
fn two_transmit_queues_send_one_packet_in_turn() {
    let lab = session("trn", [100, 100], 30_000);
    assert_eq!([0, 1].map(|i| lab.instance(i).packets_in), [100, 100]);
    let (sent, allowed) = half_a_second(&lab);
    assert!(sent[0].abs_diff(sent[1]) <= 1, "{sent:?}");
    // Turns cost the session nothing of its rate, and give it nothing.
    assert!(
        (sent[0] + sent[1]).abs_diff(allowed) <= 2,
        "{sent:?} of {allowed}"
    );
}

#[test]
fn transmit_queue_whose_packets_expired_loses_its_turn() {
    // Its turn comes when they are stale.
    let lab = session("tro", [100, 3], 1);
    let (sent, allowed) = half_a_second(&lab);
    let gone = lab.instance(1);
    // The first of them may just have been in time.
    assert_eq!((gone.packets_in, gone.queued), (3, 0));
    assert!(dropped(&gone) >= 2, "{gone:?}");
    assert_eq!(lab.turn(10), None);
    assert!(sent[0].abs_diff(allowed) <= 2, "{sent:?} of {allowed}");
}
