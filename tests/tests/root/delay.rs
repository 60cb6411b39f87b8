//! The delay to receivers that have no TCP: answers of STUN and reports of RTCP measure it, and nothing else does.

use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use bestby_bpf::abi::*;
use bestby_tests::agent::{Agent, wait_for};
use bestby_tests::bpf::{Classifier, Lab, PASS, Rule, SkBuff, mapped};
use bestby_tests::clock::{MS, SECOND, now_ns};
use bestby_tests::frame::{DST4, DST6, SRC4, SRC6, ethernet, ip4_with, udp, udp4, udp6};
use bestby_tests::load::PEER;
use bestby_tests::netns::{in_namespace, linked_lab};
use serde_json::{Value, json};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::ice;

const PORT: u16 = 5004;
/// The port that the frames of the tests come from.
const OWN: u16 = 4000;
/// How long ago what is answered was sent.
const RTT: u64 = 40 * MS;

const ID: [u8; 12] = *b"transaction!";
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
const REQUEST: u16 = 0x0001;
const SUCCESS: u16 = 0x0101;
const ERROR: u16 = 0x0111;

/// A STUN message without attributes (RFC 8489, 5).
fn stun(kind: u16, id: [u8; 12]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &[0, 0], &COOKIE, &id].concat()
}

const SSRC: u32 = 0xdead_beef;
/// The middle half of the sender report's NTP timestamp.
const LSR: u32 = 0xb705_2000;

/// A sender report without report blocks (RFC 3550, 6.4.1).
fn sender_report(ssrc: u32) -> Vec<u8> {
    let mut out = vec![0x80, 200, 0, 6];
    out.extend(ssrc.to_be_bytes());
    out.extend(0xb44d_b705_u32.to_be_bytes());
    out.extend(0x2000_0000_u32.to_be_bytes());
    out.resize(28, 0);
    out
}

/// SSRC, LSR and DLSR of a report block.
type Block = (u32, u32, u32);

/// A receiver report; or a sender report with such blocks.
fn report(kind: u8, blocks: &[Block]) -> Vec<u8> {
    let head = if kind == 200 { 28 } else { 8 };
    let words = head / 4 + 6 * blocks.len() - 1;
    let mut out = vec![0x80 | u8::try_from(blocks.len()).unwrap(), kind];
    out.extend(u16::try_from(words).unwrap().to_be_bytes());
    out.resize(head, 0x11);
    for (ssrc, lsr, dlsr) in blocks {
        out.extend(ssrc.to_be_bytes());
        out.extend([0; 12]);
        out.extend(lsr.to_be_bytes());
        out.extend(dlsr.to_be_bytes());
    }
    out
}

/// An Ethernet frame that comes in: source and destination, ports, payload.
fn inbound(src: [u8; 4], dst: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut datagram = udp(ports[1], payload);
    datagram[..2].copy_from_slice(&ports[0].to_be_bytes());
    let mut packet = ip4_with(17, &datagram, 0, &[], dst);
    packet[12..16].copy_from_slice(&src);
    ethernet(0x0800, &packet)
}

/// What the receiver of the tests answers.
fn answer(payload: &[u8]) -> Vec<u8> {
    inbound(DST4, SRC4, [PORT, OWN], payload)
}

/// The two programs on loopback, with a rule for what is asked.
struct Bench {
    lab: Lab,
    answers: Classifier,
    /// What was counted before this case.
    before: Cell<[u64; 2]>,
}

impl Bench {
    fn new() -> Self {
        let lab = Lab::new();
        lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
        let answers = lab.answers();
        Self {
            lab,
            answers,
            before: Cell::default(),
        }
    }

    /// For the next case: as if nothing had been asked or heard.
    fn clear(&self) {
        for (key, _) in self.asked() {
            self.forget("bb_asked", key.as_bytes());
        }
        self.forget("bb_rtts", &mapped(DST4));
        self.before.set(self.globals());
    }

    fn forget(&self, map: &str, key: &[u8]) {
        // What is not there need not go.
        let _ = libbpf_rs::MapCore::delete(&self.lab.map(map), key);
    }

    fn globals(&self) -> [u64; 2] {
        [BB_G_ANSWER_UNKNOWN, BB_G_ANSWER_REFUSED].map(|which| self.lab.global(which))
    }

    /// What is waited for.
    fn asked(&self) -> Vec<(bb_asked_key, bb_asked)> {
        let keys = self.lab.map("bb_asked");
        let keys = libbpf_rs::MapCore::keys(&keys);
        let keys = keys.map(|key| bb_asked_key::read_from_bytes(&key).unwrap());
        keys.map(|key| (key, self.lab.get("bb_asked", &key).unwrap()))
            .collect()
    }

    /// Sends something that is to be answered, as if that had been `age` ago.
    fn ask(&self, frame: &[u8], age: u64) {
        assert_eq!(self.lab.run(frame).verdict, PASS);
        for (key, mut asked) in self.asked() {
            asked.sent_ns = now_ns() - age;
            self.lab.put("bb_asked", &key, &asked);
        }
    }

    /// An answer comes in; how long ago its question was sent, at least and at most.
    fn hear(&self, frame: &[u8]) -> [u64; 2] {
        let sent = self.asked().first().map_or(0, |(_, asked)| asked.sent_ns);
        let before = now_ns();
        assert_eq!(self.answers.run(frame, SkBuff::default()).verdict, PASS);
        [before - sent, now_ns() - sent]
    }

    fn rtt(&self, addr: [u8; 16]) -> Option<bb_rtt> {
        self.lab.get("bb_rtts", &bb_addr { addr })
    }

    /// Answers that answered nothing, and those that measure nothing.
    fn counted(&self) -> [u64; 2] {
        let (now, before) = (self.globals(), self.before.get());
        [now[0] - before[0], now[1] - before[1]]
    }

    /// The owd of the next packet to the receiver.
    fn owd(&self) -> u64 {
        thread::sleep(Duration::from_millis(11));
        let out = self.lab.run(&udp4(PORT, b"media"));
        self.lab.session(out.cb.session).owd_ns
    }
}

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

/// How long the receiver kept the report, in 1/65536 s; and how long ago it was sent then.
const HELD: u32 = 2 * 65536;
const SENT: u64 = 2 * SECOND + RTT;

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

/// The session of media to the receiver, as the API has it.
fn session(agent: &Agent) -> Option<Value> {
    let known = agent.ok("GET", "/v1/sessions", None);
    let all = known["sessions"].as_array().unwrap();
    let found = |s: &&Value| s["kind"] == "dst" && s["addr"] == PEER.to_string();
    all.iter().find(found).cloned()
}

fn source(agent: &Agent) -> Value {
    session(agent).map_or(Value::Null, |s| s["owd_source"].clone())
}

/// Answers to nothing so far.
fn strays(agent: &Agent) -> u64 {
    agent.stats()["global"]["answers_unknown"].as_u64().unwrap()
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
