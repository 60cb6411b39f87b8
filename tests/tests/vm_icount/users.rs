//! A flood beside audio: whose fault it is, pays.
//!
//! In virtual time, so that each packet comes when it should.

use std::{thread, time::Duration};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// 2 Mbit/s.
const RATE: u64 = 250_000;
const AUDIO: u16 = 10;

/// Two seconds of audio, 50 packets/s of use for 200 ms, beside 350 packets/s of 1,200 bytes. The
/// session of the n-th of those is `session(n)`.
fn audio_beside(name: &str, session: impl Fn(u16) -> u16) -> Lab {
    let lab = lab(name, BB_TRIAGE);
    lab.set_iface(|iface| (iface.rate, iface.plain_share) = (RATE, 20));
    lab.change_session(AUDIO, |s| s.key.media = 1);
    let start = now_ns() + 10 * MS;
    let mut packets: Vec<_> = (0..100)
        .map(|n| (start + n * 20 * MS, None))
        .chain((0..700).map(|n| (start + n * SECOND / 350, Some(n as u16))))
        .collect();
    packets.sort_unstable();
    for (at, flood) in packets {
        thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
        lab.send(&match flood {
            None => Packet {
                session: AUDIO,
                priority: 0,
                deadline: now_ns() + 200 * MS,
                ..Packet::default()
            },
            Some(n) => Packet {
                rule: 0,
                session: session(n),
                len: 1_200,
                ..Packet::default()
            },
        });
    }
    thread::sleep(Duration::from_millis(200));
    let c = lab.session(AUDIO);
    assert_eq!((c.packets_in, c.packets_sent, c.sent_stale), (100, 100, 0));
    lab
}

#[test]
fn audio_is_on_time_beside_a_flood_to_one_destination() {
    let lab = audio_beside("fl1", |_| 11);
    assert_conserved("session", &lab.session(11));
}

#[test]
fn audio_is_on_time_beside_a_flood_to_a_destination_per_packet() {
    audio_beside("flm", |n| 100 + n);
}
