//! Whom `CoDel` drops from, and whom it spares (`bpf/include/bbq_codel.bpf.h`).
//!
//! In virtual time, so that each packet comes when it should.

use std::{thread, time::Duration};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// 2 Mbit/s: 1,000 bytes take 4 ms.
const LINK: u64 = 250_000;
/// Of one user, as is whoever has no other.
const BULK: u16 = 11;
const SPARSE: u16 = 12;

/// What comes of a session without a deadline.
fn bulk() -> Packet {
    Packet {
        rule: 0,
        session: BULK,
        len: 1_000,
        ..Packet::default()
    }
}

fn link(name: &str, options: &Options) -> Lab {
    let lab = Lab::new(name, options);
    lab.set_iface(|iface| iface.rate = LINK);
    lab
}

/// Two seconds of these, so many per cent of the link; beside it 100 bytes of [`SPARSE`] each 20 ms.
fn load(lab: &Lab, percent: u64, packet: impl Fn() -> Packet) {
    let start = now_ns() + 10 * MS;
    let gap = 400 * MS / percent;
    let mut packets: Vec<_> = (0..2 * SECOND / gap)
        .map(|n| (start + n * gap, true))
        .chain((0..100).map(|n| (start + n * 20 * MS, false)))
        .collect();
    packets.sort_unstable();
    for (at, bulk) in packets {
        thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
        lab.send(&if bulk {
            packet()
        } else {
            Packet {
                rule: 0,
                session: SPARSE,
                len: 100,
                ..Packet::default()
            }
        });
    }
    lab.wait_until_empty();
    for session in [BULK, SPARSE] {
        assert_conserved("session", &lab.session(session));
    }
    assert_eq!(dropped(&lab.session(SPARSE)), 0);
}

fn codel(dropped: &[u64]) -> u64 {
    dropped[BB_DROP_CODEL as usize]
}

#[test]
fn queue_that_stands_loses_packets_and_the_sparse_one_beside_it_none() {
    let lab = link("cdl", &Options::default());
    load(&lab, 130, bulk);
    let c = lab.session(BULK);
    // From 100 ms on one in 100 ms, then one in 71, 58 ...: some 80 in two seconds, if none helped.
    let n = codel(&c.dropped);
    assert!((20..=120).contains(&n), "{c:?}");
    assert_eq!(dropped(&c), n, "{c:?}");
}

#[test]
fn queue_that_drains_loses_none() {
    let lab = link("cde", &Options::default());
    load(&lab, 85, bulk);
    assert_eq!(dropped(&lab.session(BULK)), 0);
}

#[test]
fn burst_that_is_gone_within_the_interval_loses_none() {
    let lab = link("cdb", &Options::default());
    for _ in 0..3 {
        for _ in 0..20 {
            lab.send(&bulk());
        }
        lab.wait_until_empty();
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(dropped(&lab.session(BULK)), 0);
}

#[test]
fn media_deadlines_local_tcp_and_fifo_are_spared() {
    type Change = fn(&mut Packet);
    let changes: [(&str, u8, u32, Change); 4] = [
        ("cdm", 1, BB_TRIAGE, |_| {}),
        ("cdd", 0, BB_TRIAGE, |p| p.deadline = now_ns() + 50 * SECOND),
        ("cdt", 0, BB_TRIAGE, |p| p.tcp = true),
        ("cdf", 0, BB_FIFO, |_| {}),
    ];
    for (name, media, method, change) in changes {
        let lab = link(
            name,
            &Options {
                method,
                ..Options::default()
            },
        );
        lab.change_session(BULK, |s| s.key.media = media);
        load(&lab, 130, || {
            let mut packet = bulk();
            change(&mut packet);
            packet
        });
        let c = lab.session(BULK);
        assert_eq!(dropped(&c), 0, "{name}: {c:?}");
    }
}
