//! Who shares with whom: media first, then users, then their sessions (`bpf/include/bbq_turns.bpf.h`), and who
//! pays for whom (`bpf/include/bbq_room.bpf.h`).
//!
//! Needs CONFIG_NET_SCH_BPF: run in the VM (`just test-vm`).

use std::time::Duration;

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::{
    clock::{SECOND, now_ns},
    netns::{shell, try_shell},
};

const MEDIA: u16 = 10;
const LEN: usize = 1_000;

fn shared(name: &str, plain_share: u8, limit: u32) -> Lab {
    let lab = Lab::new(
        name,
        &Options {
            limit,
            session_limit: limit,
            ..Options::default()
        },
    );
    lab.set_iface(|iface| iface.plain_share = plain_share);
    media(&lab, MEDIA);
    lab
}

fn media(lab: &Lab, session: u16) {
    lab.change_session(session, |s| s.key.media = 1);
}

fn user(lab: &Lab, session: u16, user: u16) {
    lab.change_session(session, |s| s.user = user);
}

fn packet(session: u16) -> Packet {
    Packet {
        session,
        deadline: now_ns() + 50 * SECOND,
        len: LEN,
        ..Packet::default()
    }
}

fn send(lab: &Lab, session: u16, count: usize) -> Vec<u32> {
    (0..count).map(|_| lab.send(&packet(session))).collect()
}

/// How many of the first `n` that arrived are of these.
fn among(got: &[u32], n: usize, of: &[u32]) -> usize {
    got[..n].iter().filter(|s| of.contains(s)).count()
}

fn evicted(lab: &Lab, session: u16) -> u64 {
    lab.session(session).dropped[BB_DROP_EVICTED as usize]
}

#[test]
fn users_have_their_share_beside_media_and_no_more() {
    for (share, least, most) in [(0, 0, 2), (20, 97, 105), (50, 246, 255)] {
        let mut lab = shared(&format!("shr{share}"), share, 10_000);
        user(&lab, 11, 1);
        lab.shut_link();
        let plain = send(&lab, 11, 600);
        send(&lab, MEDIA, 800);
        lab.open_link(&packet(MEDIA));
        let got = lab.drain();
        assert_eq!(got.len(), 1_401);
        let n = among(&got, 500, &plain);
        assert!(
            (least..=most).contains(&n),
            "{share} per cent: {n} of 500 packets"
        );
    }
}

#[test]
fn users_get_what_media_leave() {
    let mut lab = shared("lev", 20, 10_000);
    user(&lab, 11, 1);
    lab.shut_link();
    let plain = send(&lab, 11, 100);
    let first = send(&lab, MEDIA, 5);
    lab.open_link(&packet(11));
    let got = lab.drain();
    assert_eq!(got.len(), 106);
    assert_eq!(among(&got, 8, &first), 5);
    assert_eq!(among(&got, 105, &plain), 100);
}

#[test]
fn user_with_50_sessions_gets_as_much_as_a_user_with_one() {
    let mut lab = shared("usr", 20, 10_000);
    user(&lab, 11, 1);
    for session in 100..150 {
        user(&lab, session, 2);
    }
    lab.shut_link();
    let one = send(&lab, 11, 200);
    for session in (100..150).chain(100..150).chain(100..150).chain(100..150) {
        lab.send(&packet(session));
    }
    lab.open_link(&packet(11));
    let got = lab.drain();
    for n in [100, 200, 300] {
        let have = among(&got, n, &one);
        assert!(have.abs_diff(n / 2) <= 7, "{have} of {n}");
    }
}

#[test]
fn sessions_of_one_user_share_by_bytes() {
    let mut lab = shared("ses", 20, 10_000);
    for session in [11, 12] {
        user(&lab, session, 1);
    }
    lab.shut_link();
    let one = send(&lab, 11, 100);
    send(&lab, 12, 100);
    lab.open_link(&packet(12));
    assert!(among(&lab.drain(), 100, &one).abs_diff(50) <= 7);
}

#[test]
fn old_session_keeps_a_share_beside_400_new_ones() {
    for (name, of_media) in [("old", 0), ("olm", 1)] {
        let mut lab = shared(name, 20, 10_000);
        for session in (11..12).chain(100..500) {
            lab.change_session(session, |s| s.key.media = of_media);
        }
        lab.shut_link();
        let old = send(&lab, 11, 200);
        for session in 100..500 {
            lab.send(&packet(session));
        }
        lab.open_link(&packet(11));
        let got = lab.drain();
        assert_eq!(got.len(), 601);
        let n = among(&got, 300, &old);
        assert!((50..=80).contains(&n), "{n} of 300");
    }
}

#[test]
fn old_user_keeps_a_share_beside_400_new_ones() {
    let mut lab = shared("olu", 20, 10_000);
    user(&lab, 11, 1);
    for session in 100..500 {
        user(&lab, session, session);
    }
    lab.shut_link();
    let old = send(&lab, 11, 200);
    for session in 100..500 {
        lab.send(&packet(session));
    }
    lab.open_link(&packet(11));
    let n = among(&lab.drain(), 300, &old);
    assert!((50..=80).contains(&n), "{n} of 300");
}

#[test]
fn full_queue_evicts_users_above_their_share_before_media() {
    let mut lab = shared("pay", 22, 20);
    for (session, of) in [(11, 1), (12, 2), (13, 3)] {
        user(&lab, session, of);
    }
    lab.shut_link();
    send(&lab, MEDIA, 10);
    send(&lab, 12, 2);
    send(&lab, 11, 8);
    send(&lab, MEDIA, 4);
    // The user who holds most, not the one who holds little.
    let paid = |lab: &Lab| [MEDIA, 11, 12].map(|session| evicted(lab, session));
    assert_eq!(paid(&lab), [0, 4, 0]);
    // 22 % of 20 packets are left to users; then media pay for media.
    send(&lab, MEDIA, 6);
    let [of_media, first, second] = paid(&lab);
    assert_eq!((of_media, first + second), (4, 6));
    // Who holds nothing finds room, and below their part users are not who pays for it.
    send(&lab, 13, 1);
    assert_eq!(dropped(&lab.session(13)), 0);
    assert_eq!(paid(&lab)[0], of_media + 1);
    for session in [MEDIA, 11, 12, 13] {
        assert_conserved("session", &lab.session(session));
    }
}

#[test]
fn user_of_many_sessions_loses_its_own_packets() {
    let mut lab = shared("own", 20, 20);
    user(&lab, 11, 1);
    for session in 100..120 {
        user(&lab, session, 2);
    }
    lab.shut_link();
    send(&lab, 11, 5);
    // One packet in each of many sessions, none of which holds much.
    for session in 100..115 {
        send(&lab, session, 1);
    }
    send(&lab, 100, 3);
    assert_eq!(evicted(&lab, 11), 0);
    let queued: u64 = (100..120).map(|s| lab.session(s).queued).sum();
    assert_eq!((lab.session(11).queued, queued), (5, 15));
}

#[test]
fn users_without_a_share_evict_no_media() {
    let mut lab = shared("noc", 0, 20);
    lab.shut_link();
    send(&lab, MEDIA, 20);
    send(&lab, 11, 1);
    assert_eq!((dropped(&lab.session(11)), evicted(&lab, MEDIA)), (1, 0));
}

#[test]
fn session_released_by_its_rate_returns_to_its_user() {
    let mut lab = shared("rat", 20, 10_000);
    user(&lab, 11, 1);
    lab.set_session(11, Duration::ZERO, 100_000);
    lab.set_session(MEDIA, Duration::ZERO, 100_000);
    lab.shut_link();
    send(&lab, 11, 10);
    send(&lab, MEDIA, 10);
    lab.open_link(&packet(MEDIA));
    assert_eq!(lab.drain().len(), 21);
    assert_eq!(lab.instance(0).queued, 0);
}

#[test]
fn mq_class_without_an_instance_is_refused() {
    let options = Options {
        instances: 2,
        ..Options::default()
    };
    let mut lab = Lab::bare("min", &options);
    lab.queue = Some(load(
        &lab.pins,
        &lab.device,
        lab.slot,
        "bbmin",
        options.limit,
        1,
        None,
    ));
    shell(
        "tc qdisc replace dev min0 root handle 77: mq && tc qdisc replace dev min0 parent 77:1 bbmin",
    );
    let error = try_shell("tc qdisc replace dev min0 parent 77:2 bbmin").unwrap_err();
    assert!(error.contains("Invalid argument"), "{error}");
}
