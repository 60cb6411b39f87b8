//! Places in the session table: what anybody can make takes none of those that media have
//! (`BPF_PROG_TEST_RUN` on the loopback interface).

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Rule},
    classify::PORT,
    clock::{SECOND, now_ns},
    frame::udp4_to,
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
