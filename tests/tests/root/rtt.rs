//! Round trip times from real TCP connections reach the classifier's map.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, PASS, Rule, SHOT, iface, mapped},
    clock::{MS, SECOND, now_ns},
    frame::{rtp, udp4_to},
    netns::{Netns, cgroup_root, in_namespace},
};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Some turns of ping-pong over a connection to a listener at `at`.
fn talk(at: &str) {
    let listener = TcpListener::bind(at).unwrap();
    let to = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut byte = [0];
        while stream.read(&mut byte).unwrap() == 1 {
            stream.write_all(&byte).unwrap();
        }
    });
    let mut stream = TcpStream::connect(to).unwrap();
    for _ in 0..20 {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    drop(stream);
    server.join().unwrap();
}

fn rtt(lab: &Lab, addr: [u8; 16]) -> Option<bb_rtt> {
    lab.get("bb_rtts", &bb_addr { addr })
}

#[test]
fn rtt_of_ipv4_and_ipv6_connections_is_measured() {
    let _one = alone();
    in_namespace(|| {
        let mut lab = Lab::new();
        lab.attach_rtt(&cgroup_root());
        let v4 = mapped([127, 0, 0, 1]);
        let mut v6 = [0; 16];
        v6[15] = 1;
        assert!(rtt(&lab, v4).is_none() && rtt(&lab, v6).is_none());
        for (at, addr) in [("127.0.0.1:0", v4), ("[::1]:0", v6)] {
            let before = now_ns();
            talk(at);
            let r = rtt(&lab, addr).expect(at);
            assert!(r.srtt_ns > 0 && r.srtt_ns < SECOND, "{at} {r:?}");
            assert!(r.min_rtt_ns > 0 && r.min_rtt_ns <= r.srtt_ns, "{at} {r:?}");
            // The kernel's lower bound of the variance term is 200 ms.
            assert!((200 * MS..2 * SECOND).contains(&r.rto_ns), "{at} {r:?}");
            assert!((before..=now_ns()).contains(&r.updated_ns), "{at} {r:?}");
        }
        // Nobody else's address.
        assert!(rtt(&lab, mapped([127, 0, 0, 2])).is_none());
    });
}

#[test]
fn rtt_of_a_v4_mapped_socket_counts_as_ipv4() {
    let _one = alone();
    in_namespace(|| {
        let mut lab = Lab::new();
        lab.attach_rtt(&cgroup_root());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let to: SocketAddr = format!("[::ffff:127.0.0.1]:{port}").parse().unwrap();
        let mut stream = TcpStream::connect(to).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        for _ in 0..3 {
            stream.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            far.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }
        assert!(rtt(&lab, mapped([127, 0, 0, 1])).is_some());
    });
}

#[test]
fn half_a_measured_rtt_is_the_owd_of_udp() {
    let _one = alone();
    in_namespace(|| {
        let mut lab = Lab::new();
        lab.attach_rtt(&cgroup_root());
        lab.rules(&[Rule::new().dport(5004).lifetime(SECOND).owd(400 * MS)]);
        let owd = |lab: &Lab| {
            std::thread::sleep(Duration::from_millis(11));
            let out = lab.run(&udp4_to([127, 0, 0, 1], 5004, b"x"));
            lab.session(out.cb.session).owd_ns
        };
        assert_eq!(
            owd(&lab),
            400 * MS,
            "the rule's default before the first connection"
        );
        talk("127.0.0.1:0");
        let measured = rtt(&lab, mapped([127, 0, 0, 1])).unwrap().min_rtt_ns;
        assert_eq!(owd(&lab), measured / 2);
        // Too old: the default again.
        lab.configure(|c| c.rtt_max_age_ns = MS);
        assert_eq!(owd(&lab), 400 * MS);
    });
}

#[test]
fn rtt_of_another_network_namespace_is_ignored() {
    let _one = alone();
    in_namespace(|| {
        let mut lab = Lab::new();
        lab.attach_rtt(&cgroup_root());
        let loopback = mapped([127, 0, 0, 1]);
        Netns::new().enter(|| talk("127.0.0.1:0"));
        assert!(rtt(&lab, loopback).is_none());
        talk("127.0.0.1:0");
        assert!(rtt(&lab, loopback).is_some());
    });
}

/// What a test run's packet to 127.0.0.1 is told of the path.
fn path_of(lab: &Lab, min_rtt_ns: u64) {
    let known = bb_rtt {
        min_rtt_ns,
        updated_ns: now_ns(),
        ..Default::default()
    };
    let addr = mapped([127, 0, 0, 1]);
    lab.tell("bb_rtts", &bb_addr { addr }, &known);
}

/// And by the operator.
fn set_owd(lab: &Lab, owd_ns: u64) {
    let set = bb_peer {
        owd_ns,
        flags: BB_PEER_OWD | BB_PEER_OPERATOR,
        ..Default::default()
    };
    let addr = mapped([127, 0, 0, 1]);
    lab.tell("bb_peers", &bb_addr { addr }, &set);
}

const LIFETIME: u64 = 200 * MS;

#[test]
fn measured_owd_alone_makes_no_packet_stale() {
    let _one = alone();
    in_namespace(|| {
        let lab = Lab::new();
        lab.rules(&[Rule::new().dport(5004).lifetime(LIFETIME)]);
        // 400 ms of owd, a lifetime of 200 ms: half of it remains for the queue.
        path_of(&lab, 800 * MS);
        let frame = |timestamp| udp4_to([127, 0, 0, 1], 5004, &rtp(1, timestamp, false));
        let before = now_ns();
        let first = lab.run(&frame(1));
        let after = now_ns();
        let departure = first.deadline() - lab.session(first.cb.session).owd_ns;
        let half = LIFETIME / 2;
        assert!((before + half..=after + half).contains(&departure));
        // One frame, one deadline, whenever its packets come.
        std::thread::sleep(Duration::from_millis(15));
        assert_eq!(lab.run(&frame(1)).deadline(), first.deadline());
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), 0);
        // What is far below the lifetime counts whole.
        path_of(&lab, 20 * MS);
        std::thread::sleep(Duration::from_millis(11));
        let before = now_ns();
        let near = lab.run(&frame(2));
        let after = now_ns();
        assert!((before + LIFETIME..=after + LIFETIME).contains(&near.deadline()));
        assert_eq!(lab.session(near.cb.session).owd_ns, 10 * MS);
        // The operator is believed.
        set_owd(&lab, 400 * MS);
        std::thread::sleep(Duration::from_millis(11));
        let before = now_ns();
        let set = lab.run(&frame(3));
        let after = now_ns();
        assert!((before + LIFETIME..=after + LIFETIME).contains(&set.deadline()));
        assert_eq!(lab.session(set.cb.session).owd_ns, 400 * MS);
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), 1);
    });
}

#[test]
fn packet_late_by_a_measured_owd_only_is_sent_in_mode_tc() {
    let _one = alone();
    in_namespace(|| {
        let lab = Lab::bare();
        for kind in [BB_SESSION_DST, BB_SESSION_INTERFACE] {
            let mut slot = iface(LO, BB_MODE_TC);
            slot.rate = 1_000_000;
            slot.session_kind = u8::try_from(kind).unwrap();
            lab.iface(0, &slot);
            lab.rules(&[Rule::new().dport(5004).lifetime(LIFETIME)]);
            let run = || {
                std::thread::sleep(Duration::from_millis(11));
                lab.run(&udp4_to([127, 0, 0, 1], 5004, b"x")).verdict
            };
            path_of(&lab, 800 * MS);
            assert_eq!(run(), PASS);
            set_owd(&lab, 400 * MS);
            assert_eq!(run(), SHOT);
            set_owd(&lab, 10 * MS);
            assert_eq!(run(), PASS);
            let addr = mapped([127, 0, 0, 1]);
            lab.tell("bb_peers", &bb_addr { addr }, &bb_peer::default());
        }
    });
}
