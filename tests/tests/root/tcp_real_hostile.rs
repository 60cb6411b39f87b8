//! A peer that speaks TCP-Real's option and lies, or says anything at all; floods.
//!
//! The peer is a program at a tun device: each segment of it is the test's.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bestby_netns::wait::Wait;
use bestby_tests::agent::Agent;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::tcp_real_lab::peer::*;
use crate::tcp_real_lab::*;

/// Patience with an emulated machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn receiver_that_lies_holds_no_window_above_the_guards() {
    with_agent(|lab, _, agent| {
        let mut stranger = Stranger::new(&lab.netns);
        let most = option(0, 0, 255, 127);
        for level in [24, 6, 127] {
            agent.ok("PUT", API, Some(json!({ "max_level": level })));
            let mut judge = |control: &str, word: &[u8], queue| {
                let (cwnd, left) = loss(
                    lab,
                    &mut stranger,
                    control,
                    word,
                    Duration::from_millis(queue),
                );
                (cwnd / 2, left)
            };
            let (half, left) = judge("reno", &most, 0);
            assert_eq!(left, half);
            // The greatest rate and level: what Reno leaves, or what the greatest level stands for.
            let (half, left) = judge(REAL, &most, 0);
            assert!(left >= half && left <= half.max(2 * level), "{half} {left}");
            // A queue stands: whatever is said of the rate.
            let (half, left) = judge(REAL, &most, 30);
            assert_eq!(left, half);
            // No rate, or one that the window exceeds.
            for rate in [0, 1, 40] {
                let (half, left) = judge(REAL, &option(0, 0, rate, 127), 0);
                assert_eq!(left, half, "{rate}");
            }
        }
        assert!(count(&agent, "reduced") >= 12);
    });
}

/// What the agent says of the level and rate that were told.
fn told(agent: &Agent, sender: &TcpStream) -> (Value, Value) {
    let connection = connection(agent, sender);
    (
        connection["level"].clone(),
        connection["rate_bytes_s"].clone(),
    )
}

#[test]
fn segments_that_acknowledge_nothing_say_nothing() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let (sender, [syn, ack]) = meet(lab, &mut stranger, REAL, &speaks());
        assert!(syn.real().is_some() && ack.real().is_some());
        let state = || connection(&agent, &sender)["state"].clone();
        assert_eq!(state(), "waiting");
        // In the window by its sequence number, by somebody who does not know what was sent.
        let (seq, next) = (stranger.seq, stranger.next);
        for off in [1 << 30, 1, 100_000, 1 << 31, u32::MAX - 100_000] {
            stranger.send_as(
                seq,
                next.wrapping_add(off),
                ACK,
                &option(9, 9, 200, 99),
                &[1; 10],
            );
        }
        // Outside the window.
        for off in [1 << 30, 1 << 31, 200_000] {
            stranger.send_as(
                seq.wrapping_add(off),
                next,
                ACK,
                &option(9, 9, 200, 99),
                &[],
            );
            stranger.send_as(
                seq.wrapping_add(off),
                next,
                RST,
                &option(9, 9, 200, 99),
                &[],
            );
        }
        // A SYN, and a reset that is not exact: both only challenged.
        stranger.send_as(seq, next, SYN | ACK, &option(9, 9, 200, 99), &[]);
        stranger.send_as(
            seq.wrapping_add(5),
            next,
            RST | ACK,
            &option(9, 9, 200, 99),
            &[],
        );
        while stranger.read(Duration::from_millis(300)).is_some() {}
        assert_eq!(
            (state(), told(&agent, &sender)),
            (json!("waiting"), (Value::Null, Value::Null))
        );
        // What acknowledges does.
        stranger.ack(&option(0, 0, 100, 7));
        let mut wait = Wait::new(PATIENCE);
        while told(&agent, &sender).0 != 7 {
            assert!(wait.pause(), "{:?}", told(&agent, &sender));
        }
        assert_eq!(state(), "real");
    });
}

#[test]
fn option_of_length_0_is_none_and_a_whole_one_is_spoken() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let size = [2, 4, 3, 232];
        let empty = [253, 0, 0x52, 0x54];
        let silent = "the other end does not speak it";
        for (answer, state, why) in [
            (speaks(), "waiting", ""),
            ([&size[..], &empty, &[0; 4]].concat(), "plain", silent),
            ([&size[..], &[253, 1, 0x52, 0x54]].concat(), "plain", silent),
            // Nobody can tell where the next one begins.
            (
                [&size[..], &empty, &option(0, 0, 0, 0)].concat(),
                "plain",
                silent,
            ),
        ] {
            stranger.ports.0 += 1;
            let (sender, _) = meet(lab, &mut stranger, REAL, &answer);
            let said = connection(&agent, &sender);
            assert_eq!(
                (&said["state"], &said["why"]),
                (&json!(state), &json!(why)),
                "{answer:?}"
            );
            exchange(
                &mut stranger,
                &sender,
                5,
                &[253, 0, 0x52, 0x54, 0, 0, 100, 7],
            );
            let said = connection(&agent, &sender);
            assert_eq!(
                (&said["state"], &said["level"]),
                (&json!(state), &Value::Null)
            );
            // A whole one later on: only who spoke at the handshake is heard.
            exchange(&mut stranger, &sender, 1, &option(0, 0, 100, 7));
            let mut wait = Wait::new(PATIENCE);
            while state == "waiting" && told(&agent, &sender).0 != 7 {
                assert!(wait.pause(), "{:?}", told(&agent, &sender));
            }
            let heard = connection(&agent, &sender)["state"].clone();
            assert_eq!(heard, if state == "waiting" { "real" } else { "plain" });
            reset(&mut stranger);
        }
    });
}

/// Options of any content, half of them with our kind and identifier somewhere.
fn any_options(random: &mut StdRng, room: usize) -> Vec<u8> {
    let mut options = vec![0; random.random_range(0..=room / 4) * 4];
    random.fill(&mut options[..]);
    if options.len() >= 4 && random.random_bool(0.6) {
        let length = if random.random_bool(0.5) {
            8
        } else {
            random.random()
        };
        let at = if random.random_bool(0.6) {
            0
        } else {
            random.random_range(0..=options.len() - 4)
        };
        options[at..at + 4].copy_from_slice(&[253, length, 0x52, 0x54]);
        if random.random_bool(0.2) && options.len() >= at + 12 {
            options.copy_within(at..at + 4, at + 8);
        }
    }
    options
}

#[test]
fn options_of_any_content_leave_the_window_to_reno() {
    with_agent(|lab, _, agent| {
        use std::io::Write as _;
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let (mut sender, _) = meet(lab, &mut stranger, REAL, &speaks());
        let begin = window(&sender).cwnd;
        let mut random = StdRng::seed_from_u64(361);
        for round in 0..100_u32 {
            // Data of random length, and ACKs that acknowledge nothing new; some repeat what was sent before.
            for _ in 0..30 {
                let options = any_options(&mut random, 40);
                let data = vec![0x33; random.random_range(0..3) * 40];
                let seq = stranger
                    .seq
                    .wrapping_add(random.random_range(0..3) * 4000)
                    .wrapping_sub(2000);
                stranger.send_as(seq, stranger.next, ACK, &options, &data);
            }
            // One segment, acknowledged: nothing is ever out when a duplicate comes.
            sender.write_all(&[0x44; 500]).unwrap();
            let mut wait = Wait::new(PATIENCE);
            let until = stranger.next.wrapping_add(500);
            while stranger.next != until {
                let Some(segment) = stranger.read(Duration::from_millis(20)) else {
                    assert!(wait.pause(), "round {round}");
                    continue;
                };
                if segment.seq == stranger.next && segment.length > 0 {
                    assert!(segment.real().is_some() || segment.options.len() > 32);
                    stranger.next = segment.end();
                    let options = any_options(&mut random, 40);
                    stranger.ack(&options);
                }
            }
        }
        let real = connection(&agent, &sender);
        println!("{real}, malformed {}", count(&agent, "malformed"));
        // No loss: nothing to cancel, and the window has not been used, so it has not grown.
        let end = window(&sender).cwnd;
        assert!(end >= 2 && end <= begin, "{begin} {end}");
        assert_eq!(count(&agent, "cancelled"), 0);
        assert!(count(&agent, "malformed") > 100);
        assert!(
            real["level"].is_null() || real["level"].as_u64() <= Some(127),
            "{real}"
        );
        assert!(
            real["receiving_level"].is_null() || real["receiving_level"].as_u64() <= Some(24),
            "{real}"
        );
    });
}

#[test]
fn flood_of_syns_keeps_nothing_and_cookies_carry_the_answer() {
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let listener = listen(lab, "0.0.0.0");
        let port = listener.local_addr().unwrap().port();
        stranger.ports.1 = port;
        // Without a flood: nothing of the SYN is kept for as long as the connection lives.
        let here = SocketAddr::new(HERE[0].parse().unwrap(), port);
        let join = |control| {
            let sender = in_cgroup(&lab.cgroup, || peer.enter(|| connected(here, control)));
            let (receiver, _) = listener.accept().unwrap();
            Pair { sender, receiver }
        };
        let pair = join(REAL);
        assert_eq!(pair.receives(&agent)["state"], "receives");
        assert_eq!(saved_syn(&pair.receiver), 0);

        // Nobody completes these: the backlog is full, then cookies answer.
        let before = count(&agent, "negotiated");
        let mut answers = 0;
        for source in 0..5000_u16 {
            stranger.ports.0 = 10_000 + source;
            stranger.send_as(u32::from(source), 0, SYN, &speaks(), &[]);
            while let Some(answer) = stranger.read(Duration::ZERO) {
                assert!(answer.flags != SYN | ACK || answer.real().is_some());
                answers += 1;
            }
        }
        let cookies = lab.netns.run("cat /proc/net/netstat");
        println!("{answers} answers, {cookies}");
        assert!(answers > 1000, "{answers}");
        let known = |agent: &Agent| {
            agent.ok("GET", API, None)["connections"]
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!((count(&agent, "negotiated"), known(&agent)), (before, 2));

        // By a cookie, a connection speaks it as without one, though nothing was kept of its SYN.
        lab.netns
            .enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap());
        let mut pair = join(REAL);
        pair.transfer(500_000, || ());
        assert_eq!(pair.sends(&agent)["state"], "real");
        assert_eq!(pair.receives(&agent)["state"], "receives");
        // And one whose SYN had no option is plain TCP.
        let sender = peer.enter(|| connected(here, "reno"));
        let (receiver, _) = listener.accept().unwrap();
        let mut plain = Pair { sender, receiver };
        plain.transfer(100_000, || ());
        assert_eq!(plain.receives(&agent), Value::Null);
    });
}

#[test]
fn flood_of_segments_makes_no_connection_and_no_waves_of_strangers() {
    with_agent(|lab, _, agent| {
        switch_on(&agent);
        let mut stranger = Stranger::new(&lab.netns);
        let (sender, _) = meet(lab, &mut stranger, REAL, &speaks());
        let counted = || agent.ok("GET", API, None)["counters"].clone();
        let known = || {
            agent.ok("GET", API, None)["connections"]
                .as_array()
                .unwrap()
                .len()
        };
        let before = counted();
        let ours = stranger.ports;
        let mut random = StdRng::seed_from_u64(362);
        for _ in 0..20_000 {
            // To no connection.
            stranger.ports = (random.random_range(20_000..60_000), ours.1);
            let (seq, ack) = (random.random(), random.random());
            stranger.send_as(
                seq,
                ack,
                ACK,
                &option(random.random(), 10, 200, 99),
                &[7; 100],
            );
            while stranger.read(Duration::ZERO).is_some() {}
        }
        assert_eq!((counted(), known()), (before.clone(), 1));
        // To one, outside its window.
        stranger.ports = ours;
        for _ in 0..20_000 {
            let seq = stranger
                .seq
                .wrapping_add(random.random_range(1 << 24..1 << 31));
            stranger.send_as(
                seq,
                stranger.next,
                ACK,
                &option(random.random(), 10, 200, 99),
                &[7; 100],
            );
            while stranger.read(Duration::ZERO).is_some() {}
        }
        assert_eq!((counted(), known()), (before, 1));
        // In its window: a wave is at most a segment, and what is told is the last word.
        for number in 0..20_000_u32 {
            let word = option(number as u8, 10, 200, (number % 127) as u8 + 1);
            stranger.send_as(stranger.seq, stranger.next, ACK, &word, &[]);
        }
        while stranger.read(Duration::from_millis(100)).is_some() {}
        let after = counted();
        let waves = ["measured", "unmeasured"].map(|w| after[w].as_u64().unwrap());
        assert!(waves[0] + waves[1] <= 20_000, "{after}");
        assert_eq!((&after["malformed"], known()), (&json!(0), 1));
        assert_eq!(told(&agent, &sender).0, 19_999 % 127 + 1);
    });
}
