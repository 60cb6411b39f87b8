//! Many receivers with little each: audio must not wait for the turns of all the others.
//!
//! In virtual time, so that each packet comes when it should.

use std::{thread, time::Duration};

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// A conference of 30 over a link that has 127 kbit/s for each: audio takes two thirds of it, and with video 1.4 links
/// are sent. The receivers' sessions are the first of these numbers and those behind it.
const FIRST: u16 = 10;
const RECEIVERS: u16 = 30;
/// bytes/s.
const RATE: u64 = 127_000 / 8 * RECEIVERS as u64;
/// Audio of 50 packets/s, a session's audio under the rule of its number; and a rule for all the video.
const AUDIO: u16 = 200;
const VIDEO: u16 = 2;
const SECONDS: u64 = 3;

fn sessions(lab: &Lab, many: u16) -> Vec<u16> {
    let sessions: Vec<_> = (FIRST..FIRST + many).collect();
    for session in &sessions {
        lab.change_session(*session, |s| s.key.media = 1);
    }
    sessions
}

/// The audio packets of the receivers that were in time, per cent of all and of the worst one's; and the video's.
fn conference(name: &str) -> (f64, f64, f64) {
    let lab = lab(name, BB_TRIAGE);
    lab.set_iface(|iface| (iface.rate, iface.plain_share) = (RATE, 20));
    let sessions = sessions(&lab, RECEIVERS);
    let start = now_ns() + 10 * MS;
    let mut packets = Vec::new();
    for (n, session) in (0..).zip(&sessions) {
        // As they joined, one after the other.
        let from = start + n * 20 * MS / u64::from(RECEIVERS);
        packets.extend((0..50 * SECONDS).map(|i| (from + i * 20 * MS, *session, None)));
        let frame = |i| (from + i * SECOND / 15, *session, Some(i as u32 + 1));
        packets.extend((0..15 * SECONDS).map(frame));
    }
    packets.sort_unstable();
    for (at, session, frame) in packets {
        thread::sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
        lab.send(&match frame {
            None => Packet {
                rule: session,
                session,
                priority: 0,
                deadline: now_ns() + 200 * MS,
                len: usize::from(AUDIO),
                ..Packet::default()
            },
            Some(adu) => Packet {
                rule: VIDEO,
                session,
                adu,
                priority: 4,
                deadline: now_ns() + 400 * MS,
                len: 750,
                ..Packet::default()
            },
        });
    }
    thread::sleep(Duration::from_millis(500));
    let in_time = |rule| {
        let c = lab.rule(rule);
        assert_conserved("rule", &c);
        (c.packets_sent - c.sent_stale) as f64 * 100.0 / c.packets_in as f64
    };
    let audio: Vec<_> = sessions.iter().map(|session| in_time(*session)).collect();
    let worst = audio.iter().copied().fold(100.0, f64::min);
    let all = audio.iter().sum::<f64>() / audio.len() as f64;
    let shares = (all, worst, in_time(VIDEO));
    println!("audio, the worst receiver's, video: {shares:?}");
    shares
}

#[test]
fn audio_of_30_receivers_is_in_time_beside_their_video() {
    let (all, worst, video) = conference("rec");
    assert!(video > 20.0, "{video}");
    assert!(all >= 99.9 && worst >= 99.0, "{all} {worst}");
}

#[test]
fn receiver_of_important_packets_alone_gets_no_larger_part_of_the_link() {
    let lab = lab("rei", BB_TRIAGE);
    let sessions = sessions(&lab, 8);
    // Twice what the link carries.
    let (each, len) = (SECOND / 50, 1_000);
    lab.set_iface(|iface| iface.rate = 50 * 1_000 / 2 * 8);
    let start = now_ns() + 10 * MS;
    for n in 0..50 * SECONDS {
        thread::sleep(Duration::from_nanos(
            (start + n * each).saturating_sub(now_ns()),
        ));
        for session in &sessions {
            lab.send(&Packet {
                rule: *session,
                session: *session,
                priority: if *session == FIRST { 0 } else { 4 },
                deadline: now_ns() + 400 * MS,
                len,
                ..Packet::default()
            });
        }
    }
    thread::sleep(Duration::from_millis(500));
    let sent: Vec<_> = sessions
        .iter()
        .map(|session| lab.rule(*session).packets_sent)
        .collect();
    println!("{sent:?}");
    let others = &sent[1..];
    // Ahead by the next turn and one more, of four packets at most.
    assert!(
        sent[0] <= others.iter().max().unwrap() + 8,
        "{sent:?} packets sent, the first of the important ones"
    );
    assert!(
        others.iter().min().unwrap() + 6 >= 50 * SECONDS / 2,
        "{sent:?}"
    );
}
