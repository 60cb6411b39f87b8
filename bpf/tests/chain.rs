//! Properties of `include/bb_chain.h`, compiled natively (`src/role_native.c`): which frames need one that was given
//! up, against what a decoder would say.

use bestby_bpf::abi::*;
use proptest::prelude::*;

// Links the archive that holds the functions below.
use bestby_bpf as _;

unsafe extern "C" {
    safe fn bbn_chain_lost(video: &mut bb_video, number: u16, role: u32) -> i32;
    safe fn bbn_chain_broken(video: &mut bb_video, number: u16, role: u32) -> i32;
    safe fn bbn_chain_ends(video: &bb_video, rule_flags: u32) -> i32;
}

/// `enum bb_role`.
const KEY: u32 = 1;
const LINK: u32 = 2;
const LINK1: u32 = 3;
const LINK2: u32 = 4;
const LEAF: u32 = 5;

fn level(role: u32) -> usize {
    role.saturating_sub(LINK) as usize
}

/// What a decoder has: whether the newest frame of each level can be referred to.
struct Decoder([bool; 3]);

impl Decoder {
    /// A frame refers to the newest one of each level up to its own, as temporal layers do; whether it can be decoded.
    fn decodes(&mut self, role: u32, arrives: bool) -> bool {
        let level = level(role);
        let whole = arrives && (role == KEY || self.0[..(level + 1).min(3)].iter().all(|ok| *ok));
        if role == KEY {
            self.0 = [whole; 3];
        } else if level < 3 {
            self.0[level] = whole;
            // The levels above begin again with a frame of this one.
            for above in &mut self.0[level + 1..] {
                *above = whole;
            }
        }
        whole
    }
}

proptest! {
    /// In any stream that begins with a key frame, whatever is given up: exactly those frames are said to be of no
    /// use that a decoder could not decode.
    #[test]
    fn frames_that_no_decoder_could_decode_are_known(
        start in 1u16..,
        frames in prop::collection::vec((prop::sample::select(vec![KEY, LINK, LINK, LINK, LINK1, LINK2, LEAF]), prop::bool::weighted(0.2)), 1..400),
    ) {
        let mut video = bb_video::default();
        let mut decoder = Decoder([true; 3]);
        let (mut number, mut skipped) = (start, 0);
        for (role, lost) in frames {
            number = if number == u16::MAX { 1 } else { number + 1 };
            let broken = bbn_chain_broken(&mut video, number, role) == 1;
            // Each of its packets asks.
            prop_assert_eq!(bbn_chain_broken(&mut video, number, role) == 1, broken);
            skipped += u32::from(broken);
            prop_assert_eq!(video.skipped, skipped);
            let given_up = broken || lost;
            if !broken && lost {
                bbn_chain_lost(&mut video, number, role);
            }
            let decodes = decoder.decodes(role, !given_up);
            // What was not lost by itself is sent exactly if it can be decoded.
            prop_assert_eq!(decodes, !given_up, "role {}", role);
        }
    }
}

#[test]
fn lost_leaf_takes_nothing_along_and_a_link_its_level() {
    let mut video = bb_video::default();
    assert_eq!(bbn_chain_lost(&mut video, 10, LEAF), 0);
    assert_eq!(bbn_chain_broken(&mut video, 11, LINK), 0);
    assert_eq!(bbn_chain_lost(&mut video, 12, LINK1), 1);
    // Its own packets, and what came before, are none of it.
    assert_eq!(bbn_chain_broken(&mut video, 12, LINK1), 0);
    assert_eq!(bbn_chain_broken(&mut video, 11, LEAF), 0);
    assert_eq!(bbn_chain_broken(&mut video, 13, LEAF), 1);
    assert_eq!(bbn_chain_broken(&mut video, 14, LINK2), 1);
    assert_eq!(bbn_chain_broken(&mut video, 15, LINK), 0);
    assert_eq!(bbn_chain_broken(&mut video, 16, LEAF), 0);
    // A lower level that is lost after a higher one counts; a higher one does not.
    assert_eq!(bbn_chain_lost(&mut video, 20, LINK2), 1);
    assert_eq!(bbn_chain_lost(&mut video, 21, LINK), 1);
    assert_eq!(bbn_chain_lost(&mut video, 22, LINK1), 0);
    assert_eq!(bbn_chain_broken(&mut video, 23, LINK), 1);
    assert_eq!(bbn_chain_broken(&mut video, 24, 0), 0);
    assert_eq!(bbn_chain_broken(&mut video, 25, KEY), 0);
    assert_eq!(bbn_chain_broken(&mut video, 26, LINK), 0);
}

#[test]
fn stream_without_an_end_in_sight_goes_on() {
    let regular = bb_video {
        group: 60,
        position: 30,
        key: BB_VIDEO_STEADY as u8,
        ..Default::default()
    };
    assert_eq!(bbn_chain_ends(&regular, 0), 1);
    let endless = bb_video {
        group: 0,
        ..regular
    };
    let long = bb_video {
        group: 601,
        ..regular
    };
    let overdue = bb_video {
        position: 91,
        ..regular
    };
    let on_demand = bb_video { key: 0, ..regular };
    let healed = bb_video {
        key: (BB_VIDEO_STEADY | BB_VIDEO_HEALED) as u8,
        ..regular
    };
    for video in [endless, long, overdue, on_demand, healed] {
        assert_eq!(bbn_chain_ends(&video, 0), 0, "{video:?}");
    }
    // A rule may say that repairs come too late. It cannot bring an end in sight.
    assert_eq!(bbn_chain_ends(&healed, BB_RULE_CHAIN_SKIP), 1);
    for video in [endless, long, overdue, on_demand] {
        assert_eq!(bbn_chain_ends(&video, BB_RULE_CHAIN_SKIP), 0, "{video:?}");
    }
    for video in [regular, healed] {
        assert_eq!(bbn_chain_ends(&video, BB_RULE_CHAIN_OFF), 0, "{video:?}");
    }
}
