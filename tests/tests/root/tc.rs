//! Mode tc: what the classifier refuses, in which leaf the rest goes, and what it counts.
//! Packets by `BPF_PROG_TEST_RUN`, a real socket's over a veth, and the HTB tree as the agent builds it.

use std::time::{Duration, Instant};

use crate::sockopt_lab::{LEVEL, alone, send, stats, udp};
use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, Outcome, PASS, Rule, SHOT, SkBuff, iface},
    clock::MS,
    frame::{ethernet, ip4, rtp, stun, udp4},
    netns::{ifindex, in_namespace, linked_lab},
    require,
    socket::set,
    user::as_nobody,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

const AUDIO: u16 = 5000;
const VIDEO: u16 = 5002;
/// 253 kbit/s.
const RATE: u64 = 31_625;
const LIFETIME: u64 = 200 * MS;
const OWD: u64 = 40 * MS;
const MAJOR: u16 = 0xbb;

fn media(port: u16, priority: u8) -> Rule {
    Rule::new()
        .dport(port)
        .lifetime(LIFETIME)
        .priority(priority)
        .owd(OWD)
}

fn lab_with(change: impl FnOnce(&mut bb_iface)) -> Lab {
    let lab = Lab::bare();
    let mut i = iface(LO, BB_MODE_TC);
    i.rate = RATE;
    i.htb_major = MAJOR;
    i.plain_share = 20;
    change(&mut i);
    lab.iface(0, &i);
    lab.rules(&[media(AUDIO, 0), media(VIDEO, 3)]);
    lab
}

fn lab() -> Lab {
    lab_with(|_| {})
}

/// A video packet of 1000 bytes on the wire, of the frame `timestamp`.
fn video(timestamp: u32) -> Vec<u8> {
    let mut payload = rtp(2, timestamp, false);
    payload.resize(1000 - 42, 0);
    udp4(VIDEO, &payload)
}

fn audio(timestamp: u32) -> Vec<u8> {
    udp4(AUDIO, &rtp(1, timestamp, false))
}

fn leaf(out: &Outcome) -> u32 {
    assert_eq!(out.verdict, PASS);
    assert_eq!(out.skb.priority >> 16, u32::from(MAJOR));
    (out.skb.priority & 0xffff) - BB_TC_LEAF_MINOR
}

fn drops(c: &bb_counters) -> u64 {
    c.dropped.iter().sum()
}

#[test]
fn tree_with_a_filter_leaves_the_priority_to_the_application() {
    let lab = lab_with(|i| i.flags = u8::try_from(BB_IFACE_STEERS).unwrap());
    let with = |priority: u32| {
        let skb = SkBuff {
            priority,
            ..Default::default()
        };
        lab.run_with(&audio(1), skb).skb.priority
    };
    let major = u32::from(MAJOR);
    let others = [0, 6, 0xffff_ffff, (major + 1) << 16 | BB_TC_LEAF_MINOR];
    assert_eq!(others.map(with), others);
    // Classes of the tree are none of the application's.
    let ours = [0, 1, BB_TC_LEAF_MINOR, 0xffff].map(|minor| with(major << 16 | minor));
    assert_eq!(ours, [0; 4]);
}

#[test]
fn packet_that_would_be_late_is_refused_with_its_adu() {
    let lab = lab();
    // 158 ms (200 - 40 - the margin of 2) of 31,625 bytes/s hold four packets of 1,000 bytes.
    let verdicts: Vec<i32> = (0..7).map(|_| lab.run(&video(1)).verdict).collect();
    assert_eq!(verdicts, [PASS, PASS, PASS, PASS, SHOT, SHOT, SHOT]);
    let c = lab.rule_stats(2);
    assert_eq!((c.packets_in, c.packets_sent, c.bytes_sent), (7, 4, 4000));
    assert_eq!(
        c.dropped[BB_DROP_PREDICTED as usize], 1,
        "the first one refused"
    );
    assert_eq!(
        c.dropped[BB_DROP_ADU as usize], 2,
        "and the rest of its ADU"
    );
    assert_eq!(
        lab.run(&audio(1)).verdict,
        PASS,
        "a small packet still fits"
    );
    // The queue drains with time. A frame as large as the last would not fit even now: it is
    // not started; another stream's is.
    std::thread::sleep(Duration::from_millis(140));
    assert_eq!(lab.run(&video(2)).verdict, SHOT);
    let mut other = rtp(3, 1, false);
    other.resize(1000 - 42, 0);
    assert_eq!(lab.run(&udp4(VIDEO, &other)).verdict, PASS);
}

#[test]
fn audio_finds_room_after_video_has_filled_the_link() {
    let lab = lab();
    assert_eq!(lab.run(&audio(1)).verdict, PASS);
    let mut frame = 1;
    // Other flows' video takes what it gets, one packet per frame.
    while lab.run(&video(frame)).verdict == PASS {
        frame += 1;
        assert!(frame < 50);
    }
    assert_eq!(
        lab.run(&audio(2)).verdict,
        PASS,
        "video took the room of audio"
    );
    assert_eq!(drops(&lab.rule_stats(1)), 0);
    assert_eq!(drops(&lab.rule_stats(2)), 1);
    // Without anything more important, video may use all of it: as many or one more.
    let alone = self::lab();
    let mut fits = 1;
    while alone.run(&video(fits)).verdict == PASS {
        fits += 1;
    }
    assert!(fits >= frame, "{fits} {frame}");
}

#[test]
fn zero_slack_packet_does_not_refuse_others() {
    let lab = lab();
    let lifetime = BB_LIFETIME_MAX_NS - MS;
    lab.rules(&[
        media(AUDIO, 0),
        media(VIDEO, 3),
        media(6000, 0).lifetime(lifetime).owd(lifetime - 10 * MS),
    ]);
    assert_eq!(lab.run(&udp4(6000, &[0; 20])).verdict, PASS);
    assert_eq!(lab.run(&video(1)).verdict, PASS);
}

#[test]
fn frame_that_will_not_fit_is_not_started() {
    let lab = lab();
    // The stream's frames have four packets; each has the link to itself.
    for frame in 1..=3 {
        for _ in 0..4 {
            assert_eq!(lab.run(&video(frame)).verdict, PASS, "frame {frame}");
        }
        std::thread::sleep(Duration::from_millis(135));
    }
    // Another stream fills more than half of what fits, so that one packet of the next frame
    // would fit, but not the frame. On a busy machine the link may drain meanwhile: again, then.
    for attempt in 4..20u32 {
        let filled = Instant::now();
        for i in 0..3 {
            let mut other = rtp(9, 10 * attempt + i, false);
            other.resize(1000 - 42, 0);
            assert_eq!(lab.run(&udp4(VIDEO, &other)).verdict, PASS);
        }
        let sent = lab.rule_stats(2).bytes_sent;
        let verdicts: Vec<i32> = (0..4).map(|_| lab.run(&video(attempt)).verdict).collect();
        if filled.elapsed() > Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(135));
            continue;
        }
        assert_eq!(verdicts, [SHOT; 4]);
        assert_eq!(lab.rule_stats(2).bytes_sent, sent);
        return;
    }
    panic!("this machine never ran seven packets within 50 ms");
}

#[test]
fn frame_that_fits_beside_audio_is_admitted() {
    // Audio every 20 ms and frames of 4,400 bytes, which an empty link of 253 kbit/s carries
    // in 139 of the 158 ms they have: the first of a burst must be taken beside audio, or a
    // conference loses every large frame (25 instead of 44 % arrive).
    let lab = lab();
    let mut taken = 0;
    for frame in 1..=6u32 {
        let whole = (0..4).all(|_| {
            let mut payload = rtp(2, frame, false);
            payload.resize(1100 - 42, 0);
            lab.run(&udp4(VIDEO, &payload)).verdict == PASS
        });
        taken += u32::from(whole);
        for n in 0..10 {
            assert_eq!(lab.run(&audio(frame * 10 + n)).verdict, PASS);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // 4,400 + 10 * 214 bytes in 200 ms are just beyond the rate: nearly every frame fits.
    assert!(taken >= 3, "{taken} of 6 frames");
}

#[test]
fn interface_without_a_rate_refuses_stale_packets_only() {
    let lab = lab_with(|i| {
        i.rate = 0;
        i.htb_major = 0;
    });
    for frame in 0..200 {
        let out = lab.run(&video(frame));
        assert_eq!((out.verdict, out.skb.priority), (PASS, 0));
    }
    let late = lab.run_marked(&video(500), 0xb000_0000 | BB_MARK_RELATIVE | 100); // 25 ms, owd 40
    assert_eq!(late.verdict, SHOT);
    let c = lab.rule_stats(2);
    assert_eq!(
        (c.packets_sent, c.dropped[BB_DROP_STALE as usize]),
        (200, 1)
    );
    // Forward: goes, and is counted as what it is.
    let forward =
        0xb000_0000 | BB_MARK_RELATIVE | 100 | BB_TREAT_FORWARD << BB_MARK_TREATMENT_SHIFT;
    assert_eq!(lab.run_marked(&video(501), forward).verdict, PASS);
    assert_eq!(lab.rule_stats(2).sent_stale, 1);
}

#[test]
fn forward_traffic_is_never_refused_and_leaves_room_for_audio() {
    let lab = lab();
    lab.rules(&[
        media(AUDIO, 0),
        media(VIDEO, 7).treatment(BB_TREAT_FORWARD),
        media(6000, 7),
    ]);
    assert_eq!(lab.run(&audio(1)).verdict, PASS);
    // 32 s of the link. What does not fit before its deadline, beside audio, goes as plain traffic.
    let leaves: Vec<u32> = (0..1000)
        .map(|frame| leaf(&lab.run(&video(frame))))
        .collect();
    assert_eq!(leaves[0], 4);
    assert_eq!(leaves[999], BB_TC_LEAF_PLAIN);
    assert_eq!(
        lab.run(&audio(2)).verdict,
        PASS,
        "the flood took the room of audio"
    );
    // Where it may be refused, the same is refused.
    let same = |n: u32| {
        let mut payload = rtp(7, n, false);
        payload.resize(1000 - 42, 0);
        lab.run(&udp4(6000, &payload)).verdict
    };
    assert!((0..10).any(|n| same(n) == SHOT));
}

#[test]
fn flow_that_overflowed_to_plain_is_not_reordered() {
    let lab = lab();
    lab.rules(&[media(VIDEO, 3).treatment(BB_TREAT_FORWARD)]);
    let leaves: Vec<u32> = (0..20).map(|frame| leaf(&lab.run(&video(frame)))).collect();
    assert_eq!((leaves[0], leaves[19]), (3, BB_TC_LEAF_PLAIN));
    // Its leaf is empty again after 140 ms; some 14 packets of 158 ms each are still before it in the other.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(leaf(&lab.run(&video(20))), BB_TC_LEAF_PLAIN);
    // Another flow of the rule has nothing there.
    let mut other = video(1);
    other[34..36].copy_from_slice(&7777u16.to_be_bytes());
    assert_eq!(leaf(&lab.run(&other)), 3);
}

#[test]
fn tcp_with_a_rule_has_a_quarter_of_the_link_before_plain() {
    // A quarter of 250 ms is 1976 bytes; these are 500 each.
    let lab = lab();
    lab.rules(&[
        media(AUDIO, 0),
        Rule::new()
            .proto(6)
            .lifetime(LIFETIME)
            .treatment(BB_TREAT_FORWARD),
    ]);
    let mut segment = vec![0u8; 500 - 34];
    segment[2..4].copy_from_slice(&VIDEO.to_be_bytes());
    segment[12] = 5 << 4;
    let tcp = ethernet(0x0800, &ip4(6, &segment));
    let leaves: Vec<u32> = (0..20).map(|_| leaf(&lab.run(&tcp))).collect();
    assert_eq!(leaves[..3], [3; 3]);
    assert_eq!(leaves[3..], [BB_TC_LEAF_PLAIN; 17]);
    assert_eq!(lab.run(&audio(1)).verdict, PASS);
}

#[test]
fn audio_is_admitted_again_once_a_super_packet_has_left() {
    // 2 Mbit/s: 48 KiB take 197 ms.
    let lab = lab_with(|i| i.rate = 250_000);
    let super_packet = SkBuff {
        wire_len: 49_152,
        gso_segs: 34,
        gso_size: 1448,
        ..Default::default()
    };
    let started = Instant::now();
    assert_eq!(lab.run(&audio(0)).verdict, PASS);
    let plain = lab.run_with(&udp4(9, b"plain"), super_packet);
    assert_eq!(leaf(&plain), BB_TC_LEAF_PLAIN);
    let at_once = lab.run(&audio(1)).verdict;
    if started.elapsed() < Duration::from_millis(30) {
        assert_eq!(
            at_once, SHOT,
            "the link is not free before the audio's deadline"
        );
    }
    std::thread::sleep(Duration::from_millis(260));
    for n in 2..20 {
        // A small one is always on its way, 5 % of the link.
        assert_eq!(lab.run(&udp4(9, &[0; 58])).verdict, PASS);
        assert_eq!(lab.run(&audio(n)).verdict, PASS, "audio packet {n}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn flood_with_socket_options_takes_no_room_from_media() {
    let _one = alone();
    in_namespace(|| {
        let lab = crate::sockopt_lab::lab();
        let mut slot = iface(ifindex("bb0"), BB_MODE_TC);
        slot.rate = RATE;
        slot.plain_share = 20;
        lab.iface(0, &slot);
        lab.rules(&[Rule::new()
            .dport(5006)
            .lifetime(LIFETIME)
            .priority(0)
            .owd(OWD)]);
        as_nobody(|| {
            let flood = udp();
            set(&flood, LEVEL, BB_SO_LIFETIME, &LIFETIME).unwrap();
            set(&flood, LEVEL, BB_SO_PRIORITY, &0u32).unwrap();
            // 4.5 s of the link: nothing is refused for others, and nothing goes before others.
            send(&flood, 1000);
            let said = stats(&flood);
            assert_eq!((said.packets_sent, drops(&said)), (1000, 0));
            for _ in 0..5 {
                udp().send_to(&[0; 100], "10.9.0.2:5006").unwrap();
            }
            // Its own deadline still counts for its own packets.
            set(&flood, LEVEL, BB_SO_LIFETIME, &MS).unwrap();
            set(
                &flood,
                LEVEL,
                BB_SO_PEER,
                &crate::sockopt_lab::peer(10 * MS, 0),
            )
            .unwrap();
            std::thread::sleep(Duration::from_millis(20));
            send(&flood, 1);
            assert_eq!(stats(&flood).dropped[BB_DROP_STALE as usize], 1);
        });
        let media = lab.rule_stats(1);
        assert_eq!((media.packets_sent, drops(&media)), (5, 0));
    });
}

#[test]
fn htb_leaves_hold_the_bytes_of_the_model() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        let check = |rate: &str, bytes_per_s: u64, own: &str| {
            agent.attach(json!({"dev": "v0", "mode": "tc", "rate": rate, "limit": 3000}));
            let classes = lab.netns.run("tc class show dev v0");
            let plain = classes.lines().find(|l| l.contains("htb bb:18 ")).unwrap();
            assert!(plain.contains(&format!("rate {own} ")), "{plain}");
            let qdiscs = lab.netns.run("tc qdisc show dev v0");
            for leaf in 0..=8u32 {
                let parent = format!("parent bb:{:x} ", BB_TC_LEAF_MINOR + leaf);
                let qdisc = qdiscs.lines().find(|l| l.contains(&parent)).unwrap();
                let bytes = bestby_bpf::tc_leaf_bytes(leaf, bytes_per_s, 3000 * 2048);
                let limit = qdisc.split("limit ").nth(1).unwrap();
                if leaf == BB_TC_LEAF_PLAIN && qdisc.contains("fq_codel") {
                    assert!(limit.starts_with("3000p"), "{qdisc}");
                } else {
                    let number: String = limit.chars().take_while(char::is_ascii_digit).collect();
                    let unit = if limit.contains("Kb") { 1024 } else { 1 };
                    assert!(qdisc.contains("bfifo"), "{qdisc}");
                    assert_eq!(
                        number.parse::<u64>().unwrap() * unit,
                        bytes / unit * unit,
                        "{qdisc}"
                    );
                }
            }
        };
        check("2mbit", 250_000, "400Kbit");
        // Changed in place, with all that is queued.
        check("20mbit", 2_500_000, "4Mbit");
    });
}

#[test]
fn full_leaf_refuses_as_overflow() {
    // No deadline: only the leaf's room, of ten seconds of the link, bounds it.
    let lab = lab();
    lab.rules(&[media(AUDIO, 0), Rule::new().dport(VIDEO).priority(3)]);
    for frame in 0..400 {
        let _ = lab.run(&video(frame));
    }
    let c = lab.rule_stats(2);
    let holds = bestby_bpf::tc_leaf_bytes(7, RATE, 0) / 1000;
    assert!(
        c.packets_sent >= holds && c.packets_sent < holds + 10,
        "{}",
        c.packets_sent
    );
    assert_eq!(c.dropped[BB_DROP_OVERFLOW as usize], 400 - c.packets_sent);
    assert_eq!(
        lab.run(&audio(1)).verdict,
        PASS,
        "the full leaf is behind that of audio"
    );
}

#[test]
fn each_payload_type_has_its_counters() {
    let lab = lab();
    let video_type = BB_RTP | u32::from(rtp(1, 1, false)[1] & 0x7f);
    for _ in 0..7 {
        let _ = lab.run(&video(1));
    }
    let c: bb_counters = lab.get("bb_rtp_stats", &video_type).unwrap();
    assert_eq!((c.packets_in, c.packets_sent, drops(&c)), (7, 4, 3));
    assert_eq!(lab.run(&udp4(9, b"plain")).verdict, PASS);
    let none: bb_counters = lab.get("bb_rtp_stats", &0u32).unwrap();
    assert_eq!(none.packets_in, 1, "what is not RTP");
}

#[test]
fn observed_interface_refuses_no_packet() {
    let lab = lab_with(|i| i.flags = u8::try_from(BB_IFACE_OBSERVE).unwrap());
    for _ in 0..7 {
        assert_eq!(lab.run(&video(1)).verdict, PASS);
    }
    let c = lab.rule_stats(2);
    assert_eq!((c.packets_in, c.packets_sent, drops(&c)), (7, 7, 0));
    assert_eq!(c.would_drop[BB_DROP_PREDICTED as usize], 1);
    assert_eq!(c.would_drop[BB_DROP_ADU as usize], 2);
}

#[test]
fn observed_interface_notes_no_wait_for_the_rtt() {
    for (observe, major) in [(0, MAJOR), (BB_IFACE_OBSERVE, 0)] {
        let lab = lab_with(|i| {
            i.flags = u8::try_from(observe).unwrap();
            i.htb_major = major;
        });
        let last = (0..3).map(|_| lab.run(&audio(1))).last().unwrap();
        let waits = lab.session(last.cb.session).wait_ns;
        assert_eq!(waits != [0; 2], major != 0, "{waits:?}");
    }
}

#[test]
fn leaf_is_chosen_by_lifetime_and_priority() {
    let lab = lab_with(|i| i.rate = 12_500_000);
    let of = |ns: u64, priority: u8| {
        lab.rules(&[Rule::new().dport(VIDEO).lifetime(ns).priority(priority)]);
        let mut packet = video(u32::try_from(ns / MS).unwrap() + u32::from(priority));
        packet[34..36].copy_from_slice(&(u16::try_from(ns / MS).unwrap()).to_be_bytes());
        leaf(&lab.run(&packet))
    };
    let leaves: Vec<u32> = [20, 60, 150, 400, 1000, 3000, 20_000]
        .map(|ms| of(ms * MS, 4))
        .to_vec();
    assert_eq!(leaves, [1, 2, 3, 4, 5, 6, 7]);
    // Of equal lifetimes what is more important goes first ...
    let leaves: Vec<u32> = (0..8).map(|priority| of(400 * MS, priority)).collect();
    assert_eq!(leaves, [2, 2, 3, 3, 4, 4, 4, 5]);
    // ... but what can wait for long does not go before what cannot.
    assert!(of(5000 * MS, 1) > of(400 * MS, 4));
    // What never expires goes first if it is important, else last.
    let leaves: Vec<u32> = (0..8)
        .map(|priority| {
            lab.rules(&[Rule::new().dport(VIDEO).priority(priority)]);
            leaf(&lab.run(&video(7000 + u32::from(priority))))
        })
        .collect();
    assert_eq!(leaves, [1, 1, 1, 7, 7, 7, 7, 7]);
    assert_eq!(leaf(&lab.run(&udp4(9, b"plain"))), BB_TC_LEAF_PLAIN);
    assert_eq!(leaf(&lab.run(&ethernet(0x0806, &[0; 28]))), 0);
    // A deadline near the bound of two leaves does not flip the flow between them.
    let mark = 0xb000_0000 | BB_MARK_RELATIVE | 4 << BB_MARK_PRIORITY_SHIFT;
    let near = |units: u32| leaf(&lab.run_marked(&udp4(77, b"x"), mark | units));
    let first = near(2390); // 597.5 ms, the bound is 600
    assert_eq!([near(2410), near(2390), near(2450)], [first; 3]);
    assert_ne!(near(4000), first, "a second is another leaf");
}

#[test]
fn signalling_has_a_quarter_of_the_link_before_media() {
    // A quarter of 250 ms is 1976 bytes; these are 500 each.
    let lab = lab();
    let signalling = udp4(VIDEO, &stun(500 - 42));
    let leaves: Vec<u32> = (0..20).map(|_| leaf(&lab.run(&signalling))).collect();
    assert_eq!(leaves[..3], [0; 3]);
    assert_eq!(leaves[3..], [BB_TC_LEAF_PLAIN; 17]);
    // Nothing of it is dropped, what cannot be forged goes first still, and media has its room.
    assert_eq!(lab.rule_stats(0).dropped, [0; BB_REASONS as usize]);
    assert_eq!(leaf(&lab.run(&ethernet(0x0806, &[0; 28]))), 0);
    assert!(leaf(&lab.run(&audio(1))) < BB_TC_LEAF_PLAIN);

    // One packet alone may be more than that.
    let lab = self::lab();
    assert_eq!(
        leaf(&lab.run(&udp4(VIDEO, &stun(2000 - 42)))),
        BB_TC_LEAF_PLAIN
    );
    assert_eq!(leaf(&lab.run(&signalling)), 0);
}

#[test]
fn packets_in_equal_sent_plus_dropped_in_every_counter() {
    let lab = lab();
    lab.configure(|c| c.events_per_s = 20);
    let mut rng = StdRng::seed_from_u64(7);
    let mut shot = 0;
    for i in 0..3000u32 {
        let packet = match rng.random_range(0..4) {
            0 => audio(i),
            1 => {
                assert_eq!(lab.run(&udp4(9, b"plain")).verdict, PASS);
                continue;
            }
            _ => video(i / 3),
        };
        let garbage = 0xb000_0000 | rng.random_range(0..1 << 27);
        let mark = if rng.random_bool(0.1) { garbage } else { 0 };
        shot += u64::from(lab.run_marked(&packet, mark).verdict == SHOT);
    }
    let mut total = bb_counters::default();
    let mut check = |c: &bb_counters| {
        assert_eq!(c.packets_in, c.packets_sent + drops(c));
        assert_eq!(c.queued, 0);
        total.packets_in += c.packets_in;
        total.packets_sent += c.packets_sent;
    };
    let plain = lab.rule_stats(0);
    assert_eq!(
        plain.dropped[BB_DROP_PREDICTED as usize], 0,
        "plain traffic has no deadline"
    );
    for rule in 0..=2 {
        check(&lab.rule_stats(rule));
    }
    assert_eq!(
        (total.packets_in, total.packets_in - total.packets_sent),
        (3000, shot)
    );
    let i: bb_iface = lab.get("bb_ifaces", &0u32).unwrap();
    assert_eq!((i.counters.packets_in, drops(&i.counters)), (3000, shot));
    let sessions: u64 = (0..BB_MAX_SESSIONS)
        .map(|n| {
            lab.get::<u32, bb_session>("bb_sessions", &n)
                .unwrap()
                .counters
                .packets_in
        })
        .sum();
    assert_eq!(sessions, 3000);
    assert!(shot > 100, "{shot}");
    assert!(
        lab.global(BB_G_EVENTS_LOST) >= shot.saturating_sub(20 * 30),
        "notices are limited"
    );
}
