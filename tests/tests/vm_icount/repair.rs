//! A sender that repeats what its receiver misses, on a link that does not carry what it sends: no repair goes in the place
//! of media. SRT, RIST and WebRTC as their packets are, and what looks nearly so. In virtual time.

use std::{collections::HashMap, net::UdpSocket, sync::Mutex, thread, time::Duration};

use bestby_tests::{
    agent::Agent,
    clock::{MS, SECOND, now_ns},
    netns::{Netns, linked_lab},
    require,
    socket::force_buffer,
};
use serde_json::json;

const TO: (&str, u16) = ("10.9.0.2", 9000);
const LIFETIME: u64 = 400 * MS;
/// From the queue to the receiver's clock: a packet may leave at its last moment.
const TRANSIT: u64 = 3 * MS;
/// 105 packets a second for 6 s: 1.15 Mbit/s.
const PACKETS: u32 = 630;
const APART: u64 = SECOND / 105;
const BYTES: usize = 1332;
const WIRE: u64 = BYTES as u64 + 42;
/// What is missing is asked for again so often, and sent while SRT's sender would not have dropped it.
const ASKED: u64 = 60 * MS;
const KEPT: u64 = 1020 * MS;
/// Where each packet has its number and when it was due, for the receiver.
const PROBE: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Srt,
    RistSimple,
    RistMain,
    /// WebRTC without RTX: the same packet again.
    SameSsrc,
    /// RTX (RFC 4588), which no rule declares.
    Rtx,
    /// SRT but for the socket id, which is another one in each packet.
    Nearly,
}

impl Form {
    fn packet(self, n: u32, due: u64, again: bool) -> Vec<u8> {
        let (kind, ssrc, seq) = match self {
            Self::Rtx if again => (97, 0x7000_1234, n / 2),
            Self::Rtx | Self::SameSsrc => (96, 0x7000_0000, n),
            _ => (33, 0x7000_0000 | u32::from(again), n),
        };
        let rtp = [0x8000_0000 | kind << 16 | seq, (due / 11_111) as u32, ssrc];
        let words = match self {
            Self::RistSimple | Self::SameSsrc | Self::Rtx => rtp.to_vec(),
            Self::RistMain => [&[0x88b6, 0x07b3_07b0], &rtp[..]].concat(),
            Self::Srt | Self::Nearly => {
                let id = if self == Self::Srt { 7 } else { 7 + n };
                let message = (0xc000_0001 + n) | u32::from(again) << 26;
                vec![
                    (0x7fff_ff00 + n) & 0x7fff_ffff,
                    message,
                    (due / 1000) as u32,
                    id,
                ]
            }
        };
        let mut packet: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        packet.resize(PROBE, 0x47);
        packet.extend(n.to_ne_bytes());
        packet.extend(due.to_ne_bytes());
        packet.resize(BYTES, 0x47);
        packet
    }
}

/// What has arrived, by number; whether in time.
type Arrived = Mutex<HashMap<u32, bool>>;

/// Until nothing comes for two seconds.
fn receive(far: &UdpSocket, arrived: &Arrived) {
    let mut buffer = [0; 2048];
    while let Ok(length) = far.recv(&mut buffer) {
        assert_eq!(length, BYTES);
        let n = u32::from_ne_bytes(buffer[PROBE..PROBE + 4].try_into().unwrap());
        let due = u64::from_ne_bytes(buffer[PROBE + 4..PROBE + 12].try_into().unwrap());
        let in_time = now_ns() <= due + LIFETIME + TRANSIT;
        arrived.lock().unwrap().entry(n).or_insert(in_time);
    }
}

/// Sends all when it is due, and before, as SRT does, what the receiver must be missing.
fn send(form: Form, arrived: &Arrived) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    force_buffer(&socket, libc::SO_SNDBUFFORCE, 16 << 20);
    let start = now_ns() + 10 * MS;
    let due = |n: u32| start + u64::from(n) * APART;
    let mut sent: HashMap<u32, u64> = HashMap::new();
    for n in 0..PACKETS {
        thread::sleep(Duration::from_nanos(due(n).saturating_sub(now_ns())));
        let now = now_ns();
        let missing: Vec<u32> = {
            let arrived = arrived.lock().unwrap();
            let newest = arrived.keys().max().copied().unwrap_or(0);
            (0..newest).filter(|n| !arrived.contains_key(n)).collect()
        };
        for missing in missing {
            let last = sent[&missing];
            if now < due(missing) + KEPT && now >= last + ASKED {
                // A full queue is no reason to stop.
                let _ = socket.send_to(&form.packet(missing, due(missing), true), TO);
                sent.insert(missing, now);
            }
        }
        let _ = socket.send_to(&form.packet(n, due(n), false), TO);
        sent.insert(n, now);
    }
}

/// Packets in time, per cent of those for which the link has room; `load` is what it carries of all, per cent.
fn in_time(peer: &Netns, form: Form) -> u64 {
    let far = peer.enter(|| UdpSocket::bind(TO).unwrap());
    force_buffer(&far, libc::SO_RCVBUFFORCE, 16 << 20);
    far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let arrived = Arrived::default();
    thread::scope(|scope| {
        scope.spawn(|| receive(&far, &arrived));
        send(form, &arrived);
    });
    let arrived = arrived.into_inner().unwrap();
    arrived.values().filter(|in_time| **in_time).count() as u64
}

/// The part of the link's room that is used by what is in time, per cent.
fn of_room(mode: &str, carried: u64, forms: &[(Form, u64)]) {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        let rate = WIRE * SECOND / APART * carried / 100;
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": format!("{rate}B/s")}));
        agent.add(json!({"name": "media", "proto": "udp", "dport": TO.1, "lifetime": "400ms", "priority": 4}));
        let mut uses = HashMap::new();
        for (form, least) in forms {
            let in_time = in_time(peer, *form);
            let used = in_time * 10_000 / (u64::from(PACKETS) * carried);
            println!(
                "{mode}, {carried} %, {form:?}: {in_time} of {PACKETS} in time, {used} % of the room"
            );
            uses.insert(format!("{form:?}"), used);
            assert!(used >= *least, "{form:?}: {used} %, wanted {least} %");
        }
        if let (Some(srt), Some(nearly)) = (uses.get("Srt"), uses.get("Nearly")) {
            assert!(nearly < srt, "it was read as SRT");
        }
    });
}

const ALL: [(Form, u64); 6] = [
    (Form::Srt, 95),
    (Form::RistSimple, 90),
    (Form::RistMain, 90),
    (Form::SameSsrc, 90),
    (Form::Rtx, 90),
    (Form::Nearly, 0),
];

#[test]
fn qdisc_repairs_leave_the_link_at_60_per_cent_to_media() {
    of_room("qdisc", 60, &ALL);
}

#[test]
fn qdisc_repairs_leave_the_link_at_88_per_cent_to_media() {
    of_room("qdisc", 88, &ALL);
}

#[test]
fn tc_repairs_leave_the_link_at_60_per_cent_to_media() {
    of_room("tc", 60, &ALL);
}

#[test]
fn tc_repairs_leave_the_link_at_88_per_cent_to_media() {
    of_room("tc", 88, &ALL);
}
