//! Which frames the examples `flv` and `rtsp` give up.
#![cfg(feature = "tokio")]

#[allow(dead_code)]
#[path = "../examples/live/mod.rs"]
mod live;

use std::time::Duration;

use live::{Candidate, Choice, Kind, choose};

/// `K` key, `r` reference, `d` disposable, `h` header; each of 100 bytes, and of use for so many ms.
fn frames(kinds: &str, left: impl Fn(usize) -> u64) -> Vec<Candidate> {
    let kind = |letter| match letter {
        'K' => Kind::Key,
        'r' => Kind::Reference,
        'd' => Kind::Disposable,
        _ => Kind::VideoHeader,
    };
    let candidate = |(at, letter)| Candidate {
        kind: kind(letter),
        bytes: 100,
        left: Duration::from_millis(left(at)),
    };
    kinds.chars().enumerate().map(candidate).collect()
}

/// At 100 bytes each 10 ms.
fn chosen(kinds: &str, ahead: usize, left: impl Fn(usize) -> u64) -> (String, bool) {
    let frames = frames(kinds, left);
    let Choice { gone, broken } = choose(&frames, ahead, Some(10_000));
    let letters = kinds.chars().enumerate();
    let letters = letters.map(|(at, letter)| if gone.contains(&at) { '-' } else { letter });
    (letters.collect(), broken)
}

fn kept(text: &str) -> (String, bool) {
    (text.to_owned(), false)
}

fn broken(text: &str) -> (String, bool) {
    (text.to_owned(), true)
}

#[test]
fn what_is_in_time_stays() {
    assert_eq!(
        chosen("Kddrddr", 0, |at| 10 * at as u64 + 10),
        kept("Kddrddr")
    );
    assert_eq!(chosen("", 0, |_| 0), kept(""));
}

#[test]
fn frames_that_nobody_needs_go_first() {
    // Room for four.
    assert_eq!(chosen("Kddrddr", 0, |_| 40), kept("Kd-r--r"));
    // What is ahead takes the room of two.
    assert_eq!(chosen("Kddr", 200, |_| 40), kept("K--r"));
    // Those behind what is late may stay.
    assert_eq!(
        chosen("Kdrd", 0, |at| if at == 3 { 100 } else { 20 }),
        kept("K-rd")
    );
}

#[test]
fn then_all_up_to_the_next_key_frame_go() {
    // Room for three, then for two more.
    let left = |at| if at < 4 { 30 } else { 50 };
    assert_eq!(chosen("KrrrKrrr", 0, left), broken("Krr-Kr--"));
}

#[test]
fn reference_frame_that_goes_takes_its_followers_with_it() {
    let left = |at| if at == 1 { 5 } else { 1_000 };
    assert_eq!(chosen("Krdr", 0, left), broken("K---"));
    assert_eq!(chosen("KrdrKdr", 0, left), kept("K---Kdr"));
    assert_eq!(chosen("KrhdrKdr", 0, left), kept("K-h--Kdr"));
}

#[test]
fn key_frame_goes_only_for_a_newer_one() {
    // Both are late: the newer one stays, alone.
    assert_eq!(chosen("KrdKr", 0, |_| 0), broken("---K-"));
    // Late is better than never.
    assert_eq!(chosen("K", 0, |_| 0), kept("K"));
    // What stands before it goes for it.
    assert_eq!(
        chosen("rdK", 0, |at| if at == 2 { 10 } else { 100 }),
        kept("--K")
    );
    assert_eq!(chosen("hK", 0, |_| 0), kept("hK"));
}

#[test]
fn path_that_is_not_known_is_believed_to_be_fast() {
    assert_eq!(
        choose(&frames("Kd", |_| 1), 1_000_000, None),
        Choice::default()
    );
    // But what is late by the clock is late.
    assert_eq!(choose(&frames("Kd", |_| 0), 0, None).gone, [1]);
}
