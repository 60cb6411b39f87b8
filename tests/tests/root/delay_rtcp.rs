//! The delay to receivers that have no TCP, by RTCP: reports in clear measure it; SRTCP, forgeries and repetitions do not.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bestby_bpf::abi::*;
use bestby_tests::agent::{Agent, wait_for};
use bestby_tests::bpf::{Rule, mapped};
use bestby_tests::clock::SECOND;
use bestby_tests::frame::{DST4, SRC4, udp4, udp6};
use bestby_tests::load::PEER;
use bestby_tests::netns::{in_namespace, linked_lab};
use serde_json::json;

use crate::delay_lab::*;

#[test]
fn rtcp_report_measures_the_path() {
    let other = (SSRC + 1, LSR + 1, 0);
    let ours = (SSRC, LSR, HELD);
    in_namespace(|| {
        let bench = Bench::new();
        for (kind, blocks) in [
            (201, vec![ours]),
            (200, vec![ours]),
            (201, vec![other, other, other, ours]),
        ] {
            bench.clear();
            bench.ask(&udp4(PORT, &sender_report(SSRC)), SENT);
            // Its ports need not be those of the sender report.
            let frame = inbound(DST4, SRC4, [6001, 6003], &report(kind, &blocks));
            let [least, most] = bench.hear(&frame).map(|age| age - 2 * SECOND);
            let rtt = bench.rtt(mapped(DST4)).unwrap();
            assert!(
                (least..=most).contains(&rtt.min_rtt_ns) && least >= RTT,
                "{rtt:?}"
            );
            assert_eq!(rtt.source, BB_RTT_RTCP);
            assert_eq!(bench.owd(), rtt.min_rtt_ns / 2);
            // The next report may repeat the same: it was counted.
            bench.hear(&frame);
            assert_eq!(bench.rtt(mapped(DST4)), Some(rtt));
        }
    });
}

#[test]
fn rtcp_report_on_nothing_or_absurd_changes_nothing() {
    let ours = (SSRC, LSR, HELD);
    let one = |block| answer(&report(201, &[block]));
    let mut cut = report(201, &[ours]);
    cut.truncate(31);
    let mut counts_more = report(201, &[ours]);
    counts_more[3] = 6; // words: the block ends behind them
    let forged = [
        ("another stream", one((SSRC + 1, LSR, HELD)), [1, 0]),
        ("another report", one((SSRC, LSR + 1, HELD)), [1, 0]),
        ("no report came", one((SSRC, 0, 0)), [0, 0]),
        (
            "another host",
            inbound([198, 51, 100, 8], SRC4, [PORT, OWN], &report(201, &[ours])),
            [1, 0],
        ),
        (
            "kept for longer than it is old",
            one((SSRC, LSR, 3 * 65536)),
            [0, 1],
        ),
        ("kept for 18 hours", one((SSRC, LSR, u32::MAX)), [0, 1]),
        ("cut short", answer(&cut), [0, 0]),
        ("a block beyond its end", answer(&counts_more), [0, 0]),
        ("a goodbye", answer(&report(203, &[ours])), [0, 0]),
        (
            "the fifth block",
            answer(&report(
                201,
                &[(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1), ours],
            )),
            [4, 0],
        ),
    ];
    in_namespace(|| {
        let bench = Bench::new();
        for (what, frame, counted) in forged {
            bench.clear();
            bench.ask(&udp4(PORT, &sender_report(SSRC)), SENT);
            bench.hear(&frame);
            assert_eq!(bench.rtt(mapped(DST4)), None, "{what}");
            assert_eq!(bench.counted(), counted, "{what}");
        }
    });
}

/// Rules that leave RTCP's port out: it is that of the media, and one more.
#[test]
fn rtcp_of_media_that_a_rule_covers_measures_the_path() {
    in_namespace(|| {
        let bench = Bench::new();
        let ask = |frame: &[u8]| {
            bench.clear();
            bench.ask(frame, SENT);
            bench.asked().len()
        };
        let report = sender_report(SSRC);
        assert_eq!(ask(&udp4(PORT + 1, &report)), 1);
        bench.hear(&inbound(
            DST4,
            SRC4,
            [6001, 6003],
            &self::report(201, &[(SSRC, LSR, HELD)]),
        ));
        assert_eq!(bench.rtt(mapped(DST4)).unwrap().source, BB_RTT_RTCP);
        assert_eq!(ask(&udp6(PORT + 1, &report)), 1);
        // It is signalling of media, and nothing else there is.
        let out = bench.lab.run(&udp4(PORT + 1, &report));
        assert_eq!(bench.lab.session(out.cb.session).key.media, 1);
        for (what, frame) in [
            ("media's port and two", udp4(PORT + 2, &report)),
            ("no RTCP", udp4(PORT + 1, &[0x80; 28])),
            ("STUN", udp4(PORT + 1, &stun(REQUEST, ID))),
        ] {
            assert_eq!(ask(&frame), 0, "{what}");
            let out = bench.lab.run(&frame);
            assert_eq!(bench.lab.session(out.cb.session).key.media, 0, "{what}");
        }
        // A rule that comes later, and one that goes.
        bench
            .lab
            .rules(&[Rule::new().dport(PORT + 1).lifetime(SECOND)]);
        assert_eq!(ask(&udp4(PORT + 2, &report)), 1);
        bench
            .lab
            .rules(&[Rule::new().dport(PORT + 7).lifetime(SECOND)]);
        assert_eq!(ask(&udp4(PORT + 2, &report)), 0);
    });
}

/// An encrypted report (RFC 3711, 3.4) names nothing, so it is none that is not known.
#[test]
fn srtcp_is_no_unknown_answer() {
    in_namespace(|| {
        let bench = Bench::new();
        let clear = report(201, &[(SSRC, LSR, HELD)]);
        let index = [&0x8000_0001_u32.to_be_bytes()[..], &[0x5a; 10]].concat();
        let more = [0x81, 202, 0, 1, 1, 2, 3, 4];
        for (what, tail, unknown) in [
            ("in clear", &[][..], 1),
            ("in clear, with a description", &more[..], 1),
            ("encrypted", &index[..], 0),
        ] {
            bench.clear();
            let payload = [&clear[..], tail].concat();
            bench.hear(&inbound(DST4, SRC4, [6001, 6003], &payload));
            assert_eq!(bench.counted(), [unknown, 0], "{what}");
        }
    });
}

/// A sender report through the agent's programs, and the report of its receiver, over real sockets.
#[test]
fn rtcp_in_clear_measures_the_path_of_its_media() {
    linked_lab(Ok(()), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        agent.add(json!({"name": "media", "proto": "udp", "sport": PORT, "lifetime": "200ms"}));
        let own = lab
            .netns
            .enter(|| UdpSocket::bind(("10.9.0.1", PORT)).unwrap());
        let far = peer.enter(|| UdpSocket::bind((PEER, PORT)).unwrap());
        let to: SocketAddr = own.local_addr().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 2000];
        let mut exchange = |dlsr| {
            own.send_to(&sender_report(SSRC), (PEER, PORT)).unwrap();
            far.recv(&mut buffer).unwrap();
            far.send_to(&report(201, &[(SSRC, LSR, dlsr)]), to).unwrap();
            own.send_to(b"media", (PEER, PORT)).unwrap();
            far.recv(&mut buffer).unwrap();
        };
        // One that claims to have kept it for longer than it is old measures nothing.
        exchange(65536 * 60);
        wait_for("a refusal", || {
            agent.stats()["global"]["answers_refused"] == 1
        });
        assert_eq!(source(&agent), "none");
        exchange(0);
        wait_for("a report", || source(&agent) == "rtcp");
        // What is detached reads no more answers.
        agent.detach("v0");
        let before = strays(&agent);
        far.send_to(&stun(SUCCESS, ID), to).unwrap();
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "10mbit"}));
        far.send_to(&stun(SUCCESS, ID), to).unwrap();
        wait_for("the stray after it", || strays(&agent) > before);
        assert_eq!(strays(&agent), before + 1);
    });
}
