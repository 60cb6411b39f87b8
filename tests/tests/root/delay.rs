//! The delay to receivers that have no TCP: answers of STUN and reports of RTCP measure it, and nothing else does.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::thread;

use bestby_bpf::abi::*;
use bestby_tests::agent::{Agent, wait_for};
use bestby_tests::bpf::mapped;
use bestby_tests::clock::{MS, SECOND, now_ns};
use bestby_tests::frame::{DST4, DST6, SRC4, SRC6, udp4, udp6};
use bestby_tests::load::PEER;
use bestby_tests::netns::{in_namespace, linked_lab};
use serde_json::json;

use crate::delay_lab::*;
use crate::ice;

#[test]
fn stun_answer_measures_the_path() {
    in_namespace(|| {
        let bench = Bench::new();
        for kind in [SUCCESS, ERROR] {
            bench.clear();
            bench.ask(&udp4(PORT, &stun(REQUEST, ID)), RTT);
            let [least, most] = bench.hear(&answer(&stun(kind, ID)));
            let rtt = bench.rtt(mapped(DST4)).unwrap();
            assert!(
                (least..=most).contains(&rtt.min_rtt_ns) && least >= RTT,
                "{rtt:?}"
            );
            assert_eq!((rtt.source, rtt.rto_ns), (BB_RTT_STUN, 0));
            assert_eq!(bench.owd(), rtt.min_rtt_ns / 2);
            assert!(bench.asked().is_empty());
            // The same once more answers nothing.
            bench.hear(&answer(&stun(kind, ID)));
            assert_eq!(bench.rtt(mapped(DST4)), Some(rtt));
            assert_eq!(bench.counted(), [1, 0]);
        }
    });
}

#[test]
fn stun_answer_over_ipv6_measures_the_path() {
    in_namespace(|| {
        let bench = Bench::new();
        bench.ask(&udp6(PORT, &stun(REQUEST, ID)), RTT);
        let reply = |id| {
            let mut frame = udp6(OWN, &stun(SUCCESS, id));
            frame[14 + 8..14 + 24].copy_from_slice(&DST6);
            frame[14 + 24..14 + 40].copy_from_slice(&SRC6);
            frame[14 + 40..14 + 42].copy_from_slice(&PORT.to_be_bytes());
            frame
        };
        bench.hear(&reply([0; 12]));
        assert_eq!((bench.rtt(DST6), bench.counted()), (None, [1, 0]));
        let [least, most] = bench.hear(&reply(ID));
        let rtt = bench.rtt(DST6).unwrap();
        assert!((least..=most).contains(&rtt.min_rtt_ns), "{rtt:?}");
    });
}

#[test]
fn stun_that_answers_nothing_changes_nothing() {
    let with = |at: usize, byte: u8| {
        let mut message = stun(SUCCESS, ID);
        message[at] = byte;
        message
    };
    let good = stun(SUCCESS, ID);
    let ports = [PORT, OWN];
    // Some are looked for, and not there; others are no answers at all.
    let forged = [
        ("another transaction", answer(&with(19, 0)), 1),
        (
            "another host",
            inbound([198, 51, 100, 8], SRC4, ports, &good),
            1,
        ),
        (
            "another port of it",
            inbound(DST4, SRC4, [PORT + 1, OWN], &good),
            1,
        ),
        (
            "to another port",
            inbound(DST4, SRC4, [PORT, OWN + 1], &good),
            1,
        ),
        (
            "to another address",
            inbound(DST4, [192, 0, 2, 2], ports, &good),
            1,
        ),
        ("no cookie", answer(&with(4, 0)), 0),
        ("a request", answer(&stun(REQUEST, ID)), 0),
        ("an indication", answer(&stun(0x0011, ID)), 0),
        ("another method", answer(&stun(0x0103, ID)), 0),
        ("longer than the datagram", answer(&with(3, 4)), 0),
        ("cut short", answer(&good[..19]), 0),
    ];
    in_namespace(|| {
        let bench = Bench::new();
        for (what, frame, unknown) in forged {
            bench.clear();
            bench.ask(&udp4(PORT, &stun(REQUEST, ID)), RTT);
            bench.hear(&frame);
            assert_eq!(bench.rtt(mapped(DST4)), None, "{what}");
            assert_eq!(bench.counted(), [unknown, 0], "{what}");
            assert_eq!(bench.asked().len(), 1, "{what}: the answer may still come");
            bench.hear(&answer(&good));
            assert!(bench.rtt(mapped(DST4)).is_some(), "{what}");
        }
    });
}

#[test]
fn stun_answer_that_is_no_measure_is_refused() {
    in_namespace(|| {
        let request = udp4(PORT, &stun(REQUEST, ID));
        // Of a request that was sent twice, nobody can tell which one is answered.
        let bench = Bench::new();
        bench.ask(&request, RTT);
        bench.ask(&request, RTT);
        bench.hear(&answer(&stun(SUCCESS, ID)));
        assert_eq!((bench.rtt(mapped(DST4)), bench.counted()), (None, [0, 1]));
        // No path takes longer than 10 s.
        bench.clear();
        bench.ask(&request, 10 * SECOND);
        bench.hear(&answer(&stun(SUCCESS, ID)));
        assert_eq!((bench.rtt(mapped(DST4)), bench.counted()), (None, [0, 1]));
    });
}

#[test]
fn only_what_the_operator_vouches_for_is_noted() {
    in_namespace(|| {
        let bench = Bench::new();
        bench.ask(&udp4(PORT + 1, &stun(REQUEST, ID)), RTT);
        bench.ask(&udp4(PORT, &stun(SUCCESS, ID)), RTT);
        bench.ask(&udp4(PORT, &report(201, &[(SSRC, LSR, 0)])), RTT);
        bench.ask(&udp4(PORT, b"media, which nobody answers"), RTT);
        assert!(bench.asked().is_empty());
        bench.ask(&udp4(PORT, &stun(REQUEST, ID)), RTT);
        assert_eq!(bench.asked().len(), 1);
    });
}

/// Answers that are matched and in bounds, and false: of a receiver that lies about itself, or delays some of them.
#[test]
fn late_answers_beside_honest_ones_raise_nothing() {
    in_namespace(|| {
        let bench = Bench::new();
        let hear = |n: u8, age| {
            let id = [n; 12];
            bench.ask(&udp4(PORT, &stun(REQUEST, id)), age);
            bench.hear(&answer(&stun(SUCCESS, id)));
            bench.rtt(mapped(DST4)).unwrap().min_rtt_ns
        };
        let honest = hear(0, RTT);
        for n in 1..20 {
            assert_eq!(hear(n, 9 * SECOND), honest, "{n}");
        }
        assert_eq!(bench.owd(), honest / 2);
        // Where nobody is honest, what is heard takes half of a lifetime (1 s) at most: nothing is stale for it.
        bench.clear();
        let late = bench.lab.global(BB_G_PAST_DEADLINE);
        let far = hear(0, 9 * SECOND);
        assert!(far >= 9 * SECOND);
        assert_eq!(bench.owd(), far / 2);
        assert_eq!(bench.lab.global(BB_G_PAST_DEADLINE), late);
        // Said by the operator, it counts whole.
        let said = bb_peer {
            owd_ns: far / 2,
            flags: BB_PEER_OWD | BB_PEER_OPERATOR,
            ..Default::default()
        };
        let addr = bb_addr { addr: mapped(DST4) };
        bench.lab.tell("bb_peers", &addr, &said);
        assert_eq!(bench.owd(), far / 2);
        assert_eq!(bench.lab.global(BB_G_PAST_DEADLINE), late + 1);
    });
}

#[test]
fn tcp_speaks_before_stun_and_stun_before_rtcp() {
    in_namespace(|| {
        let bench = Bench::new();
        let known = |source, age| bb_rtt {
            min_rtt_ns: 7 * MS,
            least_ns: [u64::MAX; 2],
            updated_ns: now_ns() - age,
            source,
            ..Default::default()
        };
        let addr = bb_addr { addr: mapped(DST4) };
        let stun_says = || {
            bench.ask(&udp4(PORT, &stun(REQUEST, ID)), RTT);
            bench.hear(&answer(&stun(SUCCESS, ID)));
            bench.rtt(addr.addr).unwrap().source
        };
        let rtcp_says = || {
            bench.ask(&udp4(PORT, &sender_report(SSRC)), SENT);
            bench.hear(&answer(&report(201, &[(SSRC, LSR, HELD)])));
            bench.rtt(addr.addr).unwrap().source
        };
        let silent = 1 << BB_RTT_SELDOM_SHIFT;
        for (source, heard) in [
            (BB_RTT_TCP, [BB_RTT_TCP, BB_RTT_TCP]),
            (BB_RTT_STUN, [BB_RTT_STUN, BB_RTT_STUN]),
            (BB_RTT_RTCP, [BB_RTT_RTCP, BB_RTT_STUN]),
        ] {
            bench.lab.tell("bb_rtts", &addr, &known(source, 0));
            assert_eq!([rtcp_says(), stun_says()], heard);
        }
        bench.lab.tell("bb_rtts", &addr, &known(BB_RTT_TCP, silent));
        assert_eq!(rtcp_says(), BB_RTT_RTCP);
        assert!(bench.rtt(addr.addr).unwrap().min_rtt_ns >= RTT);
    });
}

/// A real WebRTC stack on both sides: its own checks and consent measure the path, in either mode.
#[test]
fn full_ice_measures_the_path_of_its_media() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        agent.add(json!({"name": "media", "proto": "udp", "sport": PORT, "lifetime": "200ms"}));
        let own = lab
            .netns
            .enter(|| UdpSocket::bind(("10.9.0.1", PORT)).unwrap());
        let far = peer.enter(|| UdpSocket::bind((PEER, PORT)).unwrap());
        let forger = peer.enter(|| UdpSocket::bind((PEER, PORT + 1)).unwrap());
        let to = own.local_addr().unwrap();
        let media = own.try_clone().unwrap();
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| ice::talk([own, far], &over));
            // Whatever happens, the talk must end.
            let end = ice::End(&over);
            wait_for("an answer of ICE", || {
                media.send_to(b"media", (PEER, PORT)).unwrap();
                source(&agent) == "stun"
            });
            let known = session(&agent).unwrap();
            assert!(known["owd_ns"].as_u64() > Some(0), "{known}");
            assert!(known["owd_age_ns"].is_u64(), "{known}");
            let asked =
                json!({"dev": "v0", "packet": format!("udp 10.9.0.1:{PORT} to {PEER}:{PORT}")});
            let explained = agent.ok("POST", "/v1/explain", Some(asked));
            assert_eq!(explained["owd_source"], "stun", "{explained}");
            // Answers that were made up are counted, and that is all.
            let before = strays(&agent);
            for n in 0..10 {
                forger.send_to(&stun(SUCCESS, [n; 12]), to).unwrap();
            }
            wait_for("forged answers", || strays(&agent) >= before + 10);
            // The operator's word, and a socket's, go before.
            agent.ok(
                "PUT",
                &format!("/v1/sessions/{PEER}"),
                Some(json!({"owd": "3ms"})),
            );
            let set = session(&agent).unwrap();
            assert_eq!(
                [&set["owd_source"], &set["owd_ns"]],
                [&json!("set"), &json!(3_000_000)]
            );
            drop(end);
        });
    });
}
