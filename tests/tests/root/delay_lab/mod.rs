//! Questions and answers of STUN and RTCP, and the two programs that measure by them, on loopback.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use bestby_bpf::abi::*;
use bestby_tests::agent::Agent;
use bestby_tests::bpf::{Classifier, Lab, PASS, Rule, SkBuff, mapped};
use bestby_tests::clock::{MS, SECOND, now_ns};
use bestby_tests::frame::{DST4, SRC4, ethernet, ip4_with, udp, udp4};
use bestby_tests::load::PEER;
use serde_json::Value;
use zerocopy::{FromBytes as _, IntoBytes as _};

pub(crate) const PORT: u16 = 5004;
/// The port that the frames of the tests come from.
pub(crate) const OWN: u16 = 4000;
/// How long ago what is answered was sent.
pub(crate) const RTT: u64 = 40 * MS;

pub(crate) const ID: [u8; 12] = *b"transaction!";
pub(crate) const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
pub(crate) const REQUEST: u16 = 0x0001;
pub(crate) const SUCCESS: u16 = 0x0101;
pub(crate) const ERROR: u16 = 0x0111;

/// A STUN message without attributes (RFC 8489, 5).
pub(crate) fn stun(kind: u16, id: [u8; 12]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &[0, 0], &COOKIE, &id].concat()
}

pub(crate) const SSRC: u32 = 0xdead_beef;
/// The middle half of the sender report's NTP timestamp.
pub(crate) const LSR: u32 = 0xb705_2000;

/// A sender report without report blocks (RFC 3550, 6.4.1).
pub(crate) fn sender_report(ssrc: u32) -> Vec<u8> {
    let mut out = vec![0x80, 200, 0, 6];
    out.extend(ssrc.to_be_bytes());
    out.extend(0xb44d_b705_u32.to_be_bytes());
    out.extend(0x2000_0000_u32.to_be_bytes());
    out.resize(28, 0);
    out
}

/// SSRC, LSR and DLSR of a report block.
pub(crate) type Block = (u32, u32, u32);

/// A receiver report; or a sender report with such blocks.
pub(crate) fn report(kind: u8, blocks: &[Block]) -> Vec<u8> {
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
pub(crate) fn inbound(src: [u8; 4], dst: [u8; 4], ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut datagram = udp(ports[1], payload);
    datagram[..2].copy_from_slice(&ports[0].to_be_bytes());
    let mut packet = ip4_with(17, &datagram, 0, &[], dst);
    packet[12..16].copy_from_slice(&src);
    ethernet(0x0800, &packet)
}

/// What the receiver of the tests answers.
pub(crate) fn answer(payload: &[u8]) -> Vec<u8> {
    inbound(DST4, SRC4, [PORT, OWN], payload)
}

/// The two programs on loopback, with a rule for what is asked.
pub(crate) struct Bench {
    pub(crate) lab: Lab,
    pub(crate) answers: Classifier,
    /// What was counted before this case.
    pub(crate) before: Cell<[u64; 2]>,
}

impl Bench {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn clear(&self) {
        for (key, _) in self.asked() {
            self.forget("bb_asked", key.as_bytes());
        }
        self.forget("bb_rtts", &mapped(DST4));
        self.before.set(self.globals());
    }

    pub(crate) fn forget(&self, map: &str, key: &[u8]) {
        // What is not there need not go.
        let _ = libbpf_rs::MapCore::delete(&self.lab.map(map), key);
    }

    pub(crate) fn globals(&self) -> [u64; 2] {
        [BB_G_ANSWER_UNKNOWN, BB_G_ANSWER_REFUSED].map(|which| self.lab.global(which))
    }

    /// What is waited for.
    pub(crate) fn asked(&self) -> Vec<(bb_asked_key, bb_asked)> {
        let keys = self.lab.map("bb_asked");
        let keys = libbpf_rs::MapCore::keys(&keys);
        let keys = keys.map(|key| bb_asked_key::read_from_bytes(&key).unwrap());
        keys.map(|key| (key, self.lab.get("bb_asked", &key).unwrap()))
            .collect()
    }

    /// Sends something that is to be answered, as if that had been `age` ago.
    pub(crate) fn ask(&self, frame: &[u8], age: u64) {
        assert_eq!(self.lab.run(frame).verdict, PASS);
        for (key, mut asked) in self.asked() {
            asked.sent_ns = now_ns() - age;
            self.lab.put("bb_asked", &key, &asked);
        }
    }

    /// An answer comes in; how long ago its question was sent, at least and at most.
    pub(crate) fn hear(&self, frame: &[u8]) -> [u64; 2] {
        let sent = self.asked().first().map_or(0, |(_, asked)| asked.sent_ns);
        let before = now_ns();
        assert_eq!(self.answers.run(frame, SkBuff::default()).verdict, PASS);
        [before - sent, now_ns() - sent]
    }

    pub(crate) fn rtt(&self, addr: [u8; 16]) -> Option<bb_rtt> {
        self.lab.get("bb_rtts", &bb_addr { addr })
    }

    /// Answers that answered nothing, and those that measure nothing.
    pub(crate) fn counted(&self) -> [u64; 2] {
        let (now, before) = (self.globals(), self.before.get());
        [now[0] - before[0], now[1] - before[1]]
    }

    /// The owd of the next packet to the receiver.
    pub(crate) fn owd(&self) -> u64 {
        thread::sleep(Duration::from_millis(11));
        let out = self.lab.run(&udp4(PORT, b"media"));
        self.lab.session(out.cb.session).owd_ns
    }
}

/// How long the receiver kept the report, in 1/65536 s; and how long ago it was sent then.
pub(crate) const HELD: u32 = 2 * 65536;
pub(crate) const SENT: u64 = 2 * SECOND + RTT;

/// The session of media to the receiver, as the API has it.
pub(crate) fn session(agent: &Agent) -> Option<Value> {
    let known = agent.ok("GET", "/v1/sessions", None);
    let all = known["sessions"].as_array().unwrap();
    let found = |s: &&Value| s["kind"] == "dst" && s["addr"] == PEER.to_string();
    all.iter().find(found).cloned()
}

pub(crate) fn source(agent: &Agent) -> Value {
    session(agent).map_or(Value::Null, |s| s["owd_source"].clone())
}

/// Answers to nothing so far.
pub(crate) fn strays(agent: &Agent) -> u64 {
    agent.stats()["global"]["answers_unknown"].as_u64().unwrap()
}
