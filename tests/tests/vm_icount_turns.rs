//! Transmit queues that share the rate of one session take turns.
//!
//! In virtual time, on one CPU: the timers of both queues go off at the same moment, in the
//! same order, each time.

#![allow(clippy::unwrap_used)] // helpers of tests

mod qdisc_lab;

use std::{thread, time::Duration};

use bestby_tests::{
    clock::{SECOND, now_ns},
    netns::shell,
};
use qdisc_lab::*;

/// bytes/s: 200 bytes take 10 ms.
const RATE: u64 = 20_000;

/// Below mq, with two transmit queues.
fn two_queues(name: &str) -> Lab {
    let options = Options {
        instances: 2,
        ..Options::default()
    };
    let lab = Lab::new(name, &options);
    shell(&format!(
        "tc qdisc replace dev {name}0 root handle 77: mq && for n in 1 2; do \
         tc qdisc replace dev {name}0 parent 77:$n bb{name}; done"
    ));
    lab
}

/// So many packets of 200 bytes and of session 10 through transmit queue `queue`: the only one
/// that the CPU may use meanwhile.
fn send_through(lab: &mut Lab, queue: usize, count: u64) {
    let queues = format!("/sys/class/net/{}/queues", lab.device);
    shell(&format!(
        "for n in 0 1; do echo 0 > {queues}/tx-$n/xps_cpus; done; echo 1 > {queues}/tx-{queue}/xps_cpus"
    ));
    for _ in 0..count {
        lab.send(&Packet {
            deadline: now_ns() + 30 * SECOND,
            ..Packet::default()
        });
    }
}

fn sent(lab: &Lab) -> [u64; 2] {
    [0, 1].map(|i| lab.instance(i).packets_sent)
}

#[test]
fn each_sends_one_packet_in_turn() {
    let mut lab = two_queues("trn");
    lab.set_session(10, Duration::ZERO, RATE);
    send_through(&mut lab, 0, 100);
    send_through(&mut lab, 1, 100);
    assert_eq!([0, 1].map(|i| lab.instance(i).packets_in), [100, 100]);
    let (before, from) = (sent(&lab), now_ns());
    thread::sleep(Duration::from_millis(500));
    let more = [0, 1].map(|i| sent(&lab)[i] - before[i]);
    let allowed = RATE * (now_ns() - from) / SECOND / 200;
    assert!(more[0].abs_diff(more[1]) <= 1, "{more:?}");
    // Turns cost the session nothing of its rate, and give it nothing.
    assert!(
        (more[0] + more[1]).abs_diff(allowed) <= 2,
        "{more:?} of {allowed}"
    );
}

#[test]
fn one_that_has_nothing_more_to_send_is_not_waited_for() {
    let mut lab = two_queues("tro");
    lab.set_session(10, Duration::ZERO, RATE);
    send_through(&mut lab, 0, 100);
    send_through(&mut lab, 1, 3);
    let (before, from) = (sent(&lab), now_ns());
    thread::sleep(Duration::from_millis(500));
    let now = sent(&lab);
    let allowed = RATE * (now_ns() - from) / SECOND / 200;
    assert_eq!(now[1], 3);
    let more = now[0] + now[1] - before[0] - before[1];
    assert!(more.abs_diff(allowed) <= 2, "{more} of {allowed}");
}
