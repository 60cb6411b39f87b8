//! Places in the session table: what anybody can make takes none of those that media have
//! (`BPF_PROG_TEST_RUN` on the loopback interface).

use std::net::UdpSocket;

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Rule, iface},
    classify::PORT,
    clock::{SECOND, now_ns},
    frame::udp4_to,
    netns::{Netns, ifindex, linked_lab, shell},
    require,
};

const SHARED: u16 = BB_SESSION_SHARED as u16;
/// More destinations than there are ways.
const MANY: u32 = 20_000;

fn frame(net: u8, n: u32, port: u16) -> Vec<u8> {
    let [.., a, b] = n.to_be_bytes();
    udp4_to([10, net, a, b], port, b"x")
}

/// A table whose every way that what is not media may take is taken, and used at each moment. Returns how many.
fn flood(lab: &Lab) -> usize {
    let mut taken = 0;
    // In parts: what the first packets took must not be idle when the last ones come.
    for part in 0..10 {
        for n in part * MANY / 10..(part + 1) * MANY / 10 {
            let _ = lab.run(&frame(50, n, 9));
        }
        taken = 0;
        for index in 2..BB_MAX_SESSIONS {
            let mut session: bb_session = lab.get("bb_sessions", &index).unwrap();
            if session.way.tag != 0 && session.key.media == 0 {
                taken += 1;
                session.way.used_ns = now_ns() + 3600 * SECOND;
                lab.put("bb_sessions", &index, &session);
            }
        }
    }
    assert!(lab.global(BB_G_SESSIONS_FULL) > 1000);
    taken
}

fn lab() -> Lab {
    let lab = Lab::new();
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
    lab
}

#[test]
fn media_has_places_that_destinations_without_a_rule_do_not_take() {
    let lab = lab();
    let taken = flood(&lab);
    let ways = BB_MAX_SESSIONS / BB_SESSION_WAYS * (BB_SESSION_WAYS - BB_MEDIA_WAYS);
    assert!(
        taken > ways as usize * 9 / 10 && taken <= ways as usize,
        "{taken}"
    );
    let mut found = 0;
    for n in 0..1000 {
        let out = lab.run(&frame(60, n, PORT));
        assert_eq!(out.cb.rule, 1);
        found += u32::from(out.cb.session != SHARED);
    }
    // Of a thousand at once, two or three find both of their sets full.
    assert!(found >= 990, "{found}");
    // More of what is not media finds none.
    let shared = (MANY..MANY + 200).filter(|n| lab.run(&frame(50, *n, 9)).cb.session == SHARED);
    assert!(shared.count() > 150);
}

/// Makes a session of this many seconds ago, wherever its way is.
fn age(lab: &Lab, index: u16, seconds: u64) {
    let mut session = lab.session(index);
    session.way.used_ns = now_ns() - seconds * SECOND;
    lab.put("bb_sessions", &u32::from(index), &session);
}

#[test]
fn media_that_pauses_keeps_its_place_against_what_is_not_media() {
    let lab = lab();
    // Enough for some to be beside the places that are media's alone.
    let media: Vec<u16> = (0..6000)
        .map(|n| lab.run(&frame(60, n, PORT)).cb.session)
        .collect();
    let beside = |index: &u16| u32::from(*index) % BB_SESSION_WAYS >= BB_MEDIA_WAYS;
    assert!(media.iter().filter(|index| beside(index)).count() > 500);
    let before: Vec<bb_session> = media.iter().map(|index| lab.session(*index)).collect();
    for index in &media {
        age(&lab, *index, 50);
    }
    flood(&lab);
    for (index, before) in media.iter().zip(&before).filter(|(i, _)| **i != SHARED) {
        let now = lab.session(*index);
        assert_eq!((now.key, now.way.gen_), (before.key, before.way.gen_));
    }
    // After a minute the places that are everybody's are.
    for index in &media {
        age(&lab, *index, 61);
    }
    flood(&lab);
    let kept = |index: &&u16| lab.session(**index).key.media == 1;
    let kept: Vec<_> = media
        .iter()
        .filter(kept)
        .filter(|i| **i != SHARED)
        .collect();
    assert!(kept.iter().filter(|index| beside(index)).count() < 200);
    assert!(kept.iter().filter(|index| !beside(index)).count() > 3000);
}

/// How the addresses of IPv4 begin.
const V4: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Users that the classifier knows: forwarded ones, by the first bytes of their addresses.
fn users(lab: &Lab, from: &[u8]) -> Vec<[u8; 16]> {
    (0..BB_MAX_USERS)
        .map(|n| lab.get::<u32, bb_user>("bb_users", &n).unwrap())
        .filter(|user| user.way.tag != 0 && user.key.user == 0)
        .map(|user| user.key.addr)
        .filter(|addr| addr.starts_with(from))
        .collect()
}

#[test]
fn forwarded_ipv6_user_is_the_64_bit_prefix_of_its_source() {
    linked_lab(require::root(), |net, peer| {
        let mut lab = Lab::bare();
        lab.iface(0, &iface(ifindex("v0"), BB_MODE_QDISC));
        shell("tc qdisc add dev v0 clsact");
        lab.attach("v0");
        let source = Netns::new();
        source.link("s0", "10.7.0.1/24", &net.netns, "r0", "10.7.0.9/24");
        shell(
            "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
             ip addr add fd09::1/64 dev v0 nodad; ip addr add fd07::9/48 dev r0 nodad",
        );
        peer.run("ip addr add fd09::2/64 dev v1 nodad");
        for address in ["fd07:0:0:1::1", "fd07:0:0:1:2::1", "fd07:0:0:2::1"] {
            source.run(&format!("ip addr add {address}/48 dev s0 nodad"));
        }
        source.run("ip addr add 10.7.0.2/24 dev s0");
        source.run("ip route add default via 10.7.0.9");
        source.run("ip -6 route add default via fd07::9");
        source.enter(|| {
            for (from, to) in [
                ("fd07:0:0:1::1", "fd09::2"),
                ("fd07:0:0:1:2::1", "fd09::2"),
                ("fd07:0:0:2::1", "fd09::2"),
                ("10.7.0.1", "10.9.0.2"),
                ("10.7.0.2", "10.9.0.2"),
            ] {
                let socket = UdpSocket::bind((from, 0)).unwrap();
                socket.send_to(b"x", (to, 9)).unwrap();
            }
        });
        bestby_tests::agent::wait_for("five packets", || {
            users(&lab, &[0xfd, 7]).len() + users(&lab, &V4).len() == 4
        });
        let mut six = users(&lab, &[0xfd, 7]);
        six.sort_unstable();
        assert_eq!((six[0][7], six[1][7], six.len()), (1, 2, 2));
        assert!(six.iter().all(|addr| addr[8..] == [0; 8]));
        // IPv4 has no such prefixes.
        assert_eq!(users(&lab, &V4).len(), 2);
    });
}
