//! What TCP-Real makes of a peer's marks, levels, holes and path, in virtual time.
//!
//! The peer is a program at a tun device.

use std::io::Write as _;
use std::time::Duration;

use bestby_netns::wait::Wait;
use bestby_tests::agent::Agent;

use serde_json::json;

use crate::tcp_real_lab::peer::*;
use crate::tcp_real_lab::*;

/// Rate and level as high as they go.
const MOST: [u8; 8] = option(0, 0, 255, 127);

#[test]
fn congestion_marks_reduce_as_renos_do() {
    with_agent(|lab, _, agent| {
        agent.ok("PUT", API, Some(json!({ "max_level": 127 })));
        let mut stranger = Stranger::new(&lab.netns);
        let sysctl = |value: &str| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", value).unwrap();
        let mut mark = |ecn: &str| {
            lab.netns.enter(|| sysctl(ecn));
            let sender = grown(lab, &mut stranger, REAL, &MOST, Duration::ZERO);
            let before = window(&sender).cwnd;
            stranger.next = stranger.next.wrapping_add(1000);
            stranger.send_as(stranger.seq, stranger.next, ACK | ECE, &MOST, &[]);
            std::thread::sleep(RTT);
            let after = window(&sender);
            reset(&mut stranger);
            (before, after.ssthresh)
        };
        let (before, left) = mark("1");
        assert_eq!(left, before / 2);
        // Who did not ask for marks gets none.
        let (_, left) = mark("0");
        assert!(left > 1_000_000, "{left}");
        assert_eq!(
            (count(&agent, "reduced"), count(&agent, "cancelled")),
            (1, 0)
        );
    });
}

#[test]
fn timeout_in_a_recovery_asks_the_guards_again() {
    with_agent(|lab, _, agent| {
        agent.ok("PUT", API, Some(json!({ "max_level": 127 })));
        let mut stranger = Stranger::new(&lab.netns);
        let counted = || ["restored", "collapsed"].map(|what| count(&agent, what));
        // What became of the window, of one that was out when nothing came any more.
        let mut after = |words: &[[u8; 8]]| {
            let before = counted();
            stranger.ports.0 += 1;
            let (mut sender, _) = meet(lab, &mut stranger, REAL, &speaks());
            let mut send = |stranger: &mut Stranger, segments: u32| {
                sender
                    .write_all(&vec![0x55; 992 * segments as usize])
                    .unwrap();
                let read = (0..segments).map(|_| stranger.read(Duration::from_secs(20)).unwrap());
                let end = read.last().unwrap().end();
                std::thread::sleep(RTT);
                end
            };
            // Segments of 1000 bytes with the option. It has measured the RTT, and an initial window is out.
            stranger.next = send(&mut stranger, 2);
            stranger.ack(&MOST);
            send(&mut stranger, 10);
            for word in words {
                stranger.ack(word);
            }
            let mut wait = Wait::new(Duration::from_secs(60));
            while counted() == before {
                assert!(wait.pause(), "no timeout: {:?}", window(&sender));
            }
            let (left, now) = (window(&sender), counted());
            println!("{left:?}, {}", connection(&agent, &sender));
            reset(&mut stranger);
            (left, [now[0] - before[0], now[1] - before[1]])
        };
        // The loss is spared. At the timeout the guards say the same.
        let (left, became) = after(&[MOST; 6]);
        assert_eq!(became, [1, 0]);
        assert!(left.cwnd >= 10 && left.cwnd == left.ssthresh, "{left:?}");
        // The receiver has told of a rate that the window exceeds since then.
        let (left, became) = after(&[&[MOST; 5][..], &[option(0, 0, 40, 127)]].concat());
        assert_eq!(became, [0, 1]);
        assert!(left.cwnd < 5 && left.ssthresh >= 10, "{left:?}");
        // Nothing came at all: the path may be dead.
        let (left, became) = after(&[]);
        assert_eq!(became, [0, 1]);
        assert!(left.cwnd < 5, "{left:?}");
    });
}

#[test]
fn other_end_that_stops_is_reno_and_is_heard_again_only_if_it_comes_back_soon() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let word = option(0, 0, 100, 7);
        let (sender, _) = meet(lab, &mut stranger, REAL, &speaks());
        let cwnd = window(&sender).cwnd as usize;
        let until = |state: &str, why: &str| {
            let mut wait = Wait::new(Duration::from_secs(60));
            loop {
                let said = connection(&agent, &sender);
                if said["state"] == state && said["why"] == why {
                    return;
                }
                assert!(wait.pause(), "{state} {why}: {said}");
            }
        };
        exchange(&mut stranger, &sender, 1, &word);
        until("real", "");
        // As where a middlebox takes the options away: at first that may be acknowledgements without room.
        exchange(&mut stranger, &sender, 2 * cwnd + 7, &[]);
        until("real", "");
        exchange(&mut stranger, &sender, 1, &[]);
        until("plain", "the other end has told nothing lately");
        exchange(&mut stranger, &sender, 1, &word);
        until("real", "");
        // For good: it writes no more options, and no longer listens.
        exchange(&mut stranger, &sender, 2 * cwnd + 70, &[]);
        until("plain", "the other end stopped speaking it");
        exchange(&mut stranger, &sender, 20, &word);
        until("plain", "the other end stopped speaking it");
        assert_eq!(count(&agent, "silent"), 1);
        // A loss is Reno's now.
        let plain = |agent: &Agent| count(agent, "plain");
        let before = plain(&agent);
        (&sender).write_all(&[0x44; 8000]).unwrap();
        for _ in 0..5 {
            stranger.ack(&word);
        }
        assert_eq!(reduced(&sender).ssthresh as usize, (cwnd / 2).max(2));
        assert_eq!((plain(&agent), count(&agent, "cancelled")), (before + 1, 0));
    });
}

#[test]
fn shrinking_path_is_no_timeout() {
    with_agent(|lab, _, agent| {
        for mode in ["guarded", "paper"] {
            agent.ok("PUT", API, Some(json!({ "max_level": 127, "mode": mode })));
            let mut stranger_of = Stranger::new(&lab.netns);
            let stranger = &mut stranger_of;
            let (mut sender, _) = meet(lab, stranger, REAL, &speaks());
            stranger.ack(&MOST);
            sender.write_all(&[0x55; 8000]).unwrap();
            let first = stranger.read(Duration::from_secs(20)).unwrap();
            let before = window(&sender).cwnd;
            stranger.too_large(&first, 700);
            let mut wait = Wait::new(Duration::from_secs(60));
            while connection(&agent, &sender)["mss"].as_u64() >= Some(700) {
                assert!(wait.pause(), "{}", connection(&agent, &sender));
            }
            assert!(
                window(&sender).cwnd >= before.min(10),
                "{before} {:?}",
                window(&sender)
            );
            assert_eq!(count(&agent, "collapsed") + count(&agent, "restored"), 0);
            reset(stranger);
        }
    });
}

#[test]
fn paper_mode_follows_the_told_level_up_to_the_greatest() {
    with_agent(|lab, _, agent| {
        let mut stranger = Stranger::new(&lab.netns);
        let mut after = |mode: &str, level: u8| {
            agent.ok("PUT", API, Some(json!({ "mode": mode, "max_level": 24 })));
            stranger.ports.0 += 1;
            let (mut sender, _) = meet(lab, &mut stranger, REAL, &speaks());
            sender.write_all(&[0x55; 1000]).unwrap();
            let segment = stranger.read(Duration::from_secs(20)).unwrap();
            stranger.next = segment.end();
            std::thread::sleep(RTT);
            stranger.ack(&option(0, 0, 100, level));
            std::thread::sleep(RTT);
            let cwnd = window(&sender).cwnd;
            reset(&mut stranger);
            cwnd
        };
        assert_eq!(
            [1, 7, 24, 25, 127].map(|level| after("paper", level)),
            [2, 14, 48, 48, 48]
        );
        // Not decided, and not a level: as Reno, which has not used its window.
        assert_eq!([0, 128, 255].map(|level| after("paper", level)), [10; 3]);
        assert_eq!([1, 127].map(|level| after("guarded", level)), [10; 2]);
    });
}

#[test]
fn acknowledgement_of_three_holes_has_no_room_and_the_next_one_has() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        // SACK and timestamps; without an echo of the SYN's the kernel refuses the answer.
        let to = (STRANGER, stranger.ports.0);
        let patience = Duration::from_secs(20);
        let (_sender, ack) = std::thread::scope(|scope| {
            let sender = scope.spawn(|| in_cgroup(&lab.cgroup, || connected(to.into(), REAL)));
            let syn = stranger.read(patience).unwrap();
            stranger.ports = syn.ports;
            stranger.next = syn.end();
            let at = syn.options.windows(2).position(|w| w == [8, 10]).unwrap();
            let stamps = [&[4, 2, 8, 10, 0, 0, 0, 9][..], &syn.options[at + 2..at + 6]].concat();
            let answer = [&speaks()[..], &stamps].concat();
            stranger.send_as(stranger.seq, stranger.next, SYN | ACK, &answer, &[]);
            stranger.seq += 1;
            let ack = stranger.read(patience).unwrap();
            (sender.join().unwrap(), ack)
        });
        assert!(ack.real().is_some() && ack.options.len() == 20, "{ack:?}");
        let has = |segment: Segment| segment.real().is_some();
        let seq = stranger.seq;
        let mut answers = Vec::new();
        for hole in 1..=3 {
            let word = option(1, 5, 0, 0);
            stranger.send_as(seq + hole * 200, stranger.next, ACK, &word, &[7; 100]);
            answers.push(has(stranger.read(patience).unwrap()));
        }
        assert_eq!(answers, [true, true, false]);
        // The first hole is filled: two are left.
        stranger.send_as(seq, stranger.next, ACK, &option(1, 5, 0, 0), &[7; 200]);
        assert!(has(stranger.read(patience).unwrap()));
        let all = agent.ok("GET", API, None);
        assert_eq!(all["connections"][0]["state"], "waiting", "{all}");
        assert_eq!(all["counters"]["silent"], 0);
    });
}
