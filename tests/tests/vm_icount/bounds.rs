//! What one enqueue or dequeue costs at most, whatever is queued.
//!
//! In virtual time: an instruction takes 2 ns, and the kernel says how long its programs ran.

use std::{fs, os::fd::AsFd as _, thread, time::Duration};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::runs,
    clock::{MS, SECOND, now_ns},
};

/// Instructions that one operation may take.
const MOST: u64 = 5_000;
/// Packets that it may free.
const FREES: u64 = 64;
const NS_PER_INSTRUCTION: u64 = 2;

fn lab_with_stats(name: &str, options: &Options) -> Lab {
    with_stats(Lab::new(name, options))
}

fn with_stats(lab: Lab) -> Lab {
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
    lab.set_events(100);
    lab
}

/// Instructions that one enqueue took.
fn enqueue(lab: &Lab, packet: &Packet) -> u64 {
    enqueue_by(lab, || {
        lab.send(packet);
    })
}

/// The same of what is sent otherwise.
fn enqueue_by(lab: &Lab, send: impl FnOnce()) -> u64 {
    let program = lab.queue().skel.progs.bestby_enqueue.as_fd();
    let before = runs(program);
    let dropped_before = dropped(&lab.instance(0));
    send();
    let after = runs(program);
    assert_eq!(after.0 - before.0, 1);
    let freed = dropped(&lab.instance(0)) - dropped_before;
    assert!(freed <= FREES, "{freed}");
    (after.1 - before.1) / NS_PER_INSTRUCTION
}

/// The most of these, but for one in 50: interrupts count where they come.
fn most(mut costs: Vec<u64>) -> u64 {
    costs.sort_unstable();
    costs[costs.len() - 1 - costs.len() / 50]
}

/// The most instructions that a dequeue took, judging by as few at once as can be seen, until `done`,
/// and how many there were; what comes meanwhile is the caller's.
fn dequeues(lab: &Lab, start: impl FnOnce(), mut done: impl FnMut() -> bool) -> (u64, u64) {
    let program = lab.queue().skel.progs.bestby_dequeue.as_fd();
    let (first, mut before, mut costs) = (runs(program), runs(program), Vec::new());
    start();
    loop {
        let after = runs(program);
        if after.0 > before.0 {
            costs.push((after.1 - before.1) / (after.0 - before.0) / NS_PER_INSTRUCTION);
        }
        before = after;
        if done() {
            break;
        }
    }
    (most(costs), before.0 - first.0)
}

fn queued(lab: &Lab) -> u64 {
    lab.instance(0).queued
}

/// 300 packets that are stale now, of so many ADUs' packets each, and the link is shut.
fn stale(lab: Lab, adu: u32) -> Lab {
    let mut lab = with_stats(lab);
    lab.shut_link();
    let deadline = now_ns() + 200 * MS;
    for _ in 0..300 {
        lab.send(&Packet {
            deadline,
            adu,
            ..Packet::default()
        });
    }
    assert_eq!(queued(&lab), 300);
    thread::sleep(Duration::from_millis(250));
    lab
}

/// Enqueues until all that was stale is gone.
fn enqueue_until_gone(lab: Lab, adu: u32) {
    let lab = stale(lab, adu);
    let mut sent = 0;
    let mut costs = Vec::new();
    while queued(&lab) > sent {
        costs.push(enqueue(
            &lab,
            &Packet {
                deadline: now_ns() + 100 * SECOND,
                ..Packet::default()
            },
        ));
        sent += 1;
        assert!(sent < 300);
    }
    println!(
        "{adu}: {} times enqueue, {:?}",
        costs.len(),
        most(costs.clone())
    );
    assert!(most(costs.clone()) < MOST, "{costs:?}");
    let c = lab.rule(1);
    assert_eq!(dropped(&c), 300);
    let stale = if adu == 0 { 300 } else { 1 };
    assert_eq!(c.dropped[BB_DROP_STALE as usize], stale);
    assert_eq!(c.dropped[BB_DROP_ADU as usize], 300 - stale);
    assert_conserved("rule", &c);
}

/// The same with dequeues.
fn dequeue_until_gone(lab: Lab, adu: u32) {
    let lab = stale(lab, adu);
    // The rate stays known: else the last one, as it is alone, would be sent.
    lab.set_iface(|iface| iface.link_next = 0);
    let mut kick = None;
    let start = || {
        kick = Some(lab.send(&Packet {
            session: 11,
            ..Packet::default()
        }));
    };
    let (most, runs) = dequeues(&lab, start, || queued(&lab) == 0);
    // As many as free that much, at least.
    assert!(runs >= 300 / FREES, "{runs}");
    println!("{adu}: dequeue {most}, {runs} runs");
    assert!(most < MOST, "{most}");
    assert_eq!(lab.drain(), [kick.unwrap()]);
    let c = lab.rule(1);
    assert_eq!((dropped(&c), c.queued), (300, 0));
    assert_conserved("rule", &c);
}

#[test]
fn stale_packets_are_freed_by_several_operations() {
    let options = Options::default();
    enqueue_until_gone(Lab::new("bse", &options), 0);
    // The kernel's part in it depends on what the device has sent: 5,058 instead of 4,961.
    dequeue_until_gone(Lab::fresh("bsd", &options), 0);
}

#[test]
fn one_large_adu_is_freed_by_several_operations() {
    let options = Options::default();
    enqueue_until_gone(Lab::new("bae", &options), 7);
    dequeue_until_gone(Lab::new("bad", &options), 7);
}

#[test]
fn planning_a_long_queue_takes_bounded_instructions() {
    // 200 bytes take 200 us.
    let lab = lab_with_stats("bfe", &Options::default());
    lab.set_iface(|iface| iface.rate = 1_000_000);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    // The first is due long before the last leaves.
    let packet = |n: u64| Packet {
        deadline: opens + 15 * MS + n * 200_000,
        ..Packet::default()
    };
    let mut n = 0;
    let costs = (0..190).map(|n| enqueue(&lab, &packet(n))).collect();
    n += 190;
    let worst = most(costs);
    println!("bfe: enqueue {worst}");
    // For each that leaves another one comes: there is something to plan each time.
    let (most, runs) = dequeues(
        &lab,
        || (),
        || {
            while n < 1_000 && queued(&lab) < 190 {
                lab.send(&packet(n));
                n += 1;
            }
            n == 1_000
        },
    );
    println!("bfe: dequeue {most}, {runs} runs");
    assert!(worst < MOST && most < MOST, "{worst} {most}");
    let c = lab.rule(1);
    assert_eq!(dropped(&c), 0);
    assert_conserved("rule", &c);
}

#[test]
fn many_sessions_are_released_by_several_operations() {
    let lab = lab_with_stats("bre", &Options::default());
    let opens = now_ns() + 2 * SECOND;
    for session in 100..1_100 {
        lab.change_session(session, |s| {
            s.rate = 1_000_000;
            s.next_rate = s.rate;
            s.next_ns = opens;
        });
        lab.send(&Packet {
            session,
            ..Packet::default()
        });
    }
    assert_eq!(queued(&lab), 1_000);
    let (most, runs) = dequeues(&lab, || (), || queued(&lab) == 0);
    println!("bre: dequeue {most}, {runs} runs");
    assert!(now_ns() > opens);
    assert!(most < MOST, "{most}");
    assert_eq!(lab.rule(1).packets_sent, 1_000);
}

#[test]
fn sorting_in_a_packet_takes_bounded_instructions() {
    let mut lab = lab_with_stats("bor", &Options::default());
    lab.shut_link();
    let now = now_ns();
    // Deadlines in no order.
    let costs: Vec<_> = (0..2_000u64)
        .map(|n| {
            enqueue(
                &lab,
                &Packet {
                    deadline: now + 60 * SECOND + n * 7_919 % 2_003 * 10 * MS,
                    ..Packet::default()
                },
            )
        })
        .collect();
    let worst = most(costs);
    println!("bor: enqueue {worst}");
    assert!(worst < MOST, "{worst}");
    let kick = lab.open_link(&Packet::default());
    assert!(lab.drain().contains(&kick));
    assert_eq!(lab.rule(1).packets_sent, 2_001);
}

#[test]
fn departure_times_take_bounded_instructions() {
    let lab = lab_with_stats("bed", &Options::default());
    lab.out.say_departure();
    // One leaves in 200 us, so each dequeue is seen by itself.
    lab.set_iface(|iface| iface.rate = 1_000_000);
    let opens = now_ns() + 8 * SECOND;
    // They may leave all at once, in no order; and are due in another one.
    let costs: Vec<_> = (0..300u64)
        .map(|n| {
            let packet = Packet {
                deadline: opens + 60 * SECOND + n * 7_919 % 2_003 * 10 * MS,
                ..Packet::default()
            };
            let at = opens + n * 104_729 % 499;
            enqueue_by(&lab, || lab.out.send_at(&packet.frame(n as u32), at))
        })
        .collect();
    let worst = most(costs);
    assert_eq!((queued(&lab), now_ns() < opens), (300, true));
    let (most, runs) = dequeues(&lab, || (), || queued(&lab) == 0);
    println!("bed: enqueue {worst}, dequeue {most}, {runs} runs");
    assert!(worst < MOST && most < MOST, "{worst} {most}");
    assert_eq!(lab.rule(1).packets_sent, 300);
}

/// Instructions of an enqueue that evicts a packet, and of one that takes the room of many.
fn eviction(name: &str) -> [u64; 2] {
    let mut lab = lab_with_stats(
        name,
        &Options {
            limit: 500,
            session_limit: 300,
            ..Options::default()
        },
    );
    lab.shut_link();
    let deadline = now_ns() + 100 * SECOND;
    let packet = |n: u64| Packet {
        session: 10 + (n % 3) as u16,
        deadline: deadline + n * MS,
        priority: (n % 5) as u8,
        ..Packet::default()
    };
    let costs: Vec<_> = (0..800).map(|n| enqueue(&lab, &packet(n))).collect();
    let worst = most(costs);
    lab.set_iface(|iface| iface.limit_bytes = 500 * 200);
    let large = enqueue(
        &lab,
        &Packet {
            len: 1_500,
            priority: 0,
            ..packet(1)
        },
    );
    println!("{name}: enqueue {worst}, of a large one {large}");
    assert_conserved("rule", &lab.rule(1));
    [worst, large]
}

#[test]
fn eviction_takes_bounded_instructions() {
    // The same three times: of one enqueue alone nothing tells whether an interrupt came.
    let times = ["bro", "brp", "brq"].map(eviction);
    let least = |which: usize| times.iter().map(|costs| costs[which]).min();
    assert!(least(0) < Some(MOST) && least(1) < Some(MOST), "{times:?}");
}
