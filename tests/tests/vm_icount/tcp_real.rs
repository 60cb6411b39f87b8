//! What TCP-Real gains where losses are no congestion, and that it gains nothing where they are.
//!
//! In virtual time, over 10 Mbit/s and 50 ms each way. Losses are behind the bottleneck, the same in each run.

use std::time::{Duration, Instant};

use bestby_tests::agent::Agent;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::require;

use crate::tcp_real_lab::*;

/// Bytes of a transfer.
const BYTES: usize = 1_500_000;

/// A bottleneck of this many packets in front of the way to the agent's end.
fn path(lab: &Lab, peer: &Netns, packets: u32) {
    for netns in [&lab.netns, peer] {
        netns.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").unwrap());
    }
    peer.run("ip link set dev v1 gso_max_segs 1");
    peer.run(&format!(
        "tc qdisc add dev v1 root netem rate 10mbit delay 50ms limit {packets}"
    ));
    lab.netns
        .run("tc qdisc add dev v0 root netem delay 50ms limit 10000");
}

/// How long a transfer takes, and how many reductions the kernel side cancelled and reduced in it.
fn timed(lab: &Lab, peer: &Netns, agent: &Agent, control: &str) -> (Duration, u64, u64) {
    let counted = || ["cancelled", "reduced"].map(|what| count(agent, what));
    let listener = listen(lab, HERE[0]);
    let mut pair = connect(lab, peer, &listener, control);
    let (before, start) = (counted(), Instant::now());
    pair.transfer(BYTES, || ());
    let (took, after) = (start.elapsed(), counted());
    println!(
        "{control}: {took:.2?}, {} kB/s, cancelled {}, reduced {}, {}",
        BYTES as u128 / took.as_millis().max(1),
        after[0] - before[0],
        after[1] - before[1],
        pair.sends(agent)
    );
    (took, after[0] - before[0], after[1] - before[1])
}

#[test]
fn losses_without_congestion_cost_tcp_real_less_than_reno() {
    linked_lab(require::root(), |lab, peer| {
        path(lab, peer, 100);
        let agent = Agent::start(lab, &[]);
        switch_on(&agent);
        lossy(&lab.netns, "v0", 2);
        let (reno, ..) = timed(lab, peer, &agent, "reno");
        let (real, cancelled, _) = timed(lab, peer, &agent, REAL);
        assert!(cancelled > 0);
        assert!(real * 3 < reno * 2, "{real:?} of {reno:?}");
    });
}

#[test]
fn losses_of_a_full_queue_are_reductions_as_renos() {
    linked_lab(require::root(), |lab, peer| {
        path(lab, peer, 60);
        let agent = Agent::start(lab, &[]);
        switch_on(&agent);
        let (reno, ..) = timed(lab, peer, &agent, "reno");
        let (real, cancelled, reduced) = timed(lab, peer, &agent, REAL);
        assert!(cancelled == 0 && reduced > 0, "{cancelled} {reduced}");
        assert!(real * 97 <= reno * 100, "{real:?} of {reno:?}");
    });
}
