//! Round trip times from real TCP connections reach the classifier's map.

#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Rule, mapped},
    clock::{MS, SECOND, now_ns},
    frame::udp4_to,
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
fn connections_of_both_families_are_measured() {
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
fn a_v4_mapped_socket_counts_as_v4() {
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
fn a_measured_delay_becomes_the_owd_of_udp() {
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
        let measured = rtt(&lab, mapped([127, 0, 0, 1])).unwrap().srtt_ns;
        assert_eq!(owd(&lab), measured / 2);
        // Too old: the default again.
        lab.configure(|c| c.rtt_max_age_ns = MS);
        assert_eq!(owd(&lab), 400 * MS);
    });
}

#[test]
fn an_address_of_another_network_is_somebody_else() {
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
