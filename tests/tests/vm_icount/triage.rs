//! What triage gives up, and what it holds back, on a link whose rate it knows.
//!
//! In virtual time, so that the schedules of milliseconds below are kept.

use std::time::Duration;

use crate::qdisc_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

#[test]
fn least_important_adu_in_the_way_is_given_up() {
    let lab = free_link("giv");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let due = |ms: u64| opens + ms * MS;
    let send = |priority, adu, due, len| {
        lab.send(&Packet {
            priority,
            adu,
            deadline: due,
            len,
            ..Packet::default()
        })
    };
    // All of it is due 80 ms after the link opens, and fits.
    let frame: Vec<_> = (0..2).map(|_| send(4, 1, due(80), 1_000)).collect();
    let small = send(4, 2, due(80), 900);
    // With 2,000 bytes of audio the last of them would begin too late: the larger video ADU
    // is given up, whole. Audio is due at the same time, and goes first.
    let audio: Vec<_> = (0..2).map(|_| send(0, 3, due(80), 1_000)).collect();
    // An ADU that could not arrive even alone is not started, and costs nobody anything.
    send(0, 4, due(10), 1_000);
    send(0, 4, due(10), 1_000);
    // Due later than what is in the way: nothing is given up.
    let later = send(7, 5, due(160), 1_000);
    assert_eq!(
        dropped(&lab.rule(1)),
        0,
        "nothing is decided while the link is shut"
    );

    sleep_until(due(10));
    let c = lab.rule(1);
    assert_eq!((c.dropped[BB_DROP_ADU as usize], dropped(&c)), (4, 4));
    // The rest of that frame is refused on arrival.
    send(4, 1, due(80), 1_000);
    assert_eq!(lab.rule(1).dropped[BB_DROP_ADU as usize], 5);
    let kept = [audio[0], audio[1], small, later];
    assert_eq!(lab.drain(), kept, "given up: {frame:?}");
    assert_conserved("rule", &lab.rule(1));
}

#[test]
fn burst_is_judged_as_a_whole_when_the_link_is_free() {
    let lab = free_link("bur");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let frame = |adu, packets| -> Vec<u32> {
        let packet = Packet {
            priority: 4,
            adu,
            deadline: opens + 90 * MS,
            len: 1_000,
            ..Packet::default()
        };
        (0..packets).map(|_| lab.send(&packet)).collect()
    };
    // Five packets have room. With the first packet of the second frame one had to go, and
    // then the first was the larger: decided there and then, five packets of the second and
    // none of the first would have left.
    let first = frame(1, 5);
    frame(2, 6);
    sleep_until(opens);
    assert_eq!(lab.drain(), first);
    assert_conserved("rule", &lab.rule(1));
}

/// Frames of three, five and two packets, all due 150 ms after the link opens, which is time for eight of them;
/// (priority, large) of each. Which frames leave.
fn of_three(name: &str, frames: [(u8, bool); 3]) -> Vec<u32> {
    let lab = free_link(name);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let mut sent = Vec::new();
    for (adu, (count, (priority, large))) in (1..).zip([3, 5, 2].into_iter().zip(frames)) {
        for n in 0..count {
            let packet = Packet {
                priority,
                // Of another stream each. It is known to be large from its second packet on.
                adu: adu << 16 | 7,
                large: large && n > 0,
                deadline: opens + 150 * MS,
                len: 1_000,
                ..Packet::default()
            };
            sent.push((lab.send(&packet), adu));
        }
    }
    sleep_until(opens);
    let left = lab.drain();
    let mut kept: Vec<u32> = Vec::new();
    for (number, adu) in sent {
        if left.contains(&number) && kept.last() != Some(&adu) {
            kept.push(adu);
        }
    }
    assert_conserved("rule", &lab.rule(1));
    kept
}

#[test]
fn large_adu_is_no_victim_among_equals() {
    let small = (4, false);
    assert_eq!(of_three("lrn", [small; 3]), [1, 3]);
    assert_eq!(of_three("lry", [small, (4, true), small]), [2, 3]);
    // Of two the larger is; and what is less important is.
    assert_eq!(of_three("lrb", [(4, true), (4, true), (3, false)]), [1, 3]);
    assert_eq!(of_three("lrl", [small, (5, true), small]), [1, 3]);
}

#[test]
fn stream_that_lost_a_large_adu_keeps_the_next() {
    let lab = free_link("lrs");
    // Streams 1 and 2 have a large frame each, again and again; there is time for one of the two.
    let mut kept = Vec::new();
    for round in 1..=4 {
        let opens = now_ns() + SECOND;
        lab.set_iface(|iface| iface.link_next = opens);
        let frame = |stream: u32, count: u32| -> Vec<u32> {
            let packet = Packet {
                priority: 4,
                adu: stream << 16 | round,
                large: true,
                deadline: opens + 90 * MS,
                len: 1_000,
                ..Packet::default()
            };
            (0..count).map(|_| lab.send(&packet)).collect()
        };
        let first = frame(1, 4);
        frame(2, 5);
        sleep_until(opens);
        kept.push(if lab.drain() == first { 1 } else { 2 });
    }
    assert_eq!(kept, [1, 2, 1, 2]);
    assert_conserved("rule", &lab.rule(1));
}

/// A packet (0) that can wait for 0.1 ms after the link opens and keeps it busy for 20 ms, and
/// one (1) that can wait for so many µs; what leaves.
fn now_or_never(name: &str, other_us: u64) -> Vec<u32> {
    let lab = free_link(name);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    for (us, len) in [(100, 1_000), (other_us, 100)] {
        lab.send(&Packet {
            priority: 0,
            deadline: opens + us * 1_000,
            len,
            ..Packet::default()
        });
    }
    sleep_until(opens + 30 * MS);
    assert_conserved("rule", &lab.rule(1));
    lab.drain()
}

#[test]
fn next_packet_needs_no_margin_for_a_late_timer() {
    assert_eq!(now_or_never("now", 21_000), [0, 1]);
}

#[test]
fn waiting_packet_needs_a_margin_for_a_late_timer() {
    // It would begin 0.1 ms before its last moment: the larger is given up for it.
    assert_eq!(now_or_never("nev", 20_100), [1]);
}

/// Audio every 20 ms that is of use for so many ms, and 1 ms before the last packet `video`;
/// the last comes or not. The order in which the last five leave: three of audio (0 to 2), the
/// video packet (3), the last of audio (4).
fn video_before_audio(lab: &Lab, audio_lifetime: u64, video: Packet, goes_on: bool) -> Vec<u32> {
    let start = now_ns() + 20 * MS;
    let audio = |n: u64| {
        sleep_until(start + n * 20 * MS);
        lab.send(&Packet {
            priority: 0,
            deadline: start + (n * 20 + audio_lifetime) * MS,
            len: 100,
            ..Packet::default()
        });
    };
    // The first three only warm up: a page fetched for the first time costs ms, and the
    // queue judges by the last two.
    for n in 0..6 {
        audio(n);
    }
    sleep_until(start + 119 * MS);
    lab.send(&video);
    if goes_on {
        audio(6);
    }
    let order = lab.drain();
    assert_eq!(order[..3], [0, 1, 2]);
    assert_conserved("rule", &lab.rule(1));
    order[3..].iter().map(|number| number - 3).collect()
}

/// 20 ms of the link, of use for a second.
fn video() -> Packet {
    Packet {
        priority: 4,
        deadline: now_ns() + SECOND,
        len: 1_000,
        ..Packet::default()
    }
}

#[test]
fn packet_waits_for_an_expected_one_that_could_not_wait() {
    let order = video_before_audio(&free_link("hld"), 10, video(), true);
    assert_eq!(order, [0, 1, 2, 4, 3]);
}

#[test]
fn packet_does_not_wait_for_one_that_can_wait() {
    let order = video_before_audio(&free_link("hlw"), 50, video(), true);
    assert_eq!(order, [0, 1, 2, 3, 4]);
    // However long both take: 1,400 bytes hold this link for 140 ms, and audio has 200.
    let slow = free_link("hls");
    slow.set_iface(|iface| iface.rate = 10_000);
    let len = 1_400;
    let order = video_before_audio(&slow, 200, Packet { len, ..video() }, true);
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn packet_waits_for_one_that_lacks_the_timer_margin_only() {
    // The next audio is expected 1 ms later and can wait for 19 ms: 0.12 ms more, and 0.4 ms
    // more, than the packet needs.
    let len = 994;
    let order = video_before_audio(&free_link("jit"), 19, Packet { len, ..video() }, true);
    assert_eq!(order, [0, 1, 2, 4, 3]);
    let len = 980;
    let order = video_before_audio(&free_link("jno"), 19, Packet { len, ..video() }, true);
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn packet_stops_waiting_for_one_that_does_not_come() {
    let order = video_before_audio(&free_link("hln"), 10, video(), false);
    assert_eq!(order, [0, 1, 2, 3]);
}

#[test]
fn packet_that_never_expires_does_not_wait() {
    // With audio all the time it would wait for ever. So it goes, and the audio behind it
    // is late.
    let plain = Packet {
        deadline: 0,
        ..video()
    };
    let forward = Packet {
        treatment: BB_TREAT_FORWARD,
        ..video()
    };
    for (name, packet) in [("hlp", plain), ("hlf", forward)] {
        let lab = free_link(name);
        assert_eq!(video_before_audio(&lab, 10, packet, true), [0, 1, 2, 3]);
        assert_eq!(dropped(&lab.rule(1)), 1);
    }
}

#[test]
fn important_packet_goes_before_one_due_slightly_earlier() {
    let lab = free_link("ear");
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    let owd = 20 * MS;
    lab.set_session(10, Duration::from_nanos(owd), 0);
    let due = |ms: u64| opens + 500 * MS + ms * MS;
    let send = |priority, deadline| {
        lab.send(&Packet {
            priority,
            deadline,
            ..Packet::default()
        })
    };
    // It cannot wait, so nothing goes before it, and the others have their places by their deadlines.
    let tight = |opens| send(3, opens + owd + MS);
    let first = tight(opens);
    // By the owd, in steps.
    let frame = send(3, due(0));
    let soon = send(2, due(18));
    let later = send(2, due(22));
    let usual = send(3, due(20));
    sleep_until(opens);
    assert_eq!(lab.drain(), [first, soon, frame, later, usual]);
    // What could wait for some 56 ms, were the way twice as long, is taken for due 6 or 7 ms
    // earlier, not 20.
    let now = now_ns();
    let opens = now + 20 * MS;
    lab.set_iface(|iface| iface.link_next = opens);
    let due = |ms: u64| now + owd + 72 * MS + ms * MS;
    let first = tight(opens);
    let frame = send(3, due(0));
    let soon = send(2, due(4));
    let later = send(2, due(9));
    sleep_until(opens);
    assert_eq!(lab.drain(), [first, soon, frame, later]);
    // What could not wait at all, were the way twice as long, keeps its place.
    let now = now_ns();
    let opens = now + 5 * MS;
    lab.set_iface(|iface| iface.link_next = opens);
    let first = tight(opens);
    let frame = send(3, now + owd + 15 * MS);
    let hopeless = send(2, now + owd + 17 * MS);
    sleep_until(opens);
    assert_eq!(lab.drain(), [first, frame, hopeless]);
    assert_conserved("rule", &lab.rule(1));
}

/// A frame of `packets` packets of `len` bytes, the last of which may begin `due` ms after the
/// link opens, and a packet that `comes` so many ms after that and may begin at `other_due`.
struct Meeting {
    packets: u32,
    len: usize,
    due: u64,
    priority: u8,
    comes: i64,
    other_due: u64,
}

/// What leaves of the frame (numbers from 0) and of the other packet (the next number), on a path
/// of 20 ms.
fn meet(name: &str, meeting: &Meeting) -> Vec<u32> {
    let lab = free_link(name);
    let opens = now_ns() + SECOND;
    lab.set_iface(|iface| iface.link_next = opens);
    lab.set_session(10, Duration::from_millis(20), 0);
    let due = |ms: u64| opens + (20 + ms) * MS;
    for _ in 0..meeting.packets {
        lab.send(&Packet {
            priority: 4,
            adu: 1,
            deadline: due(meeting.due),
            len: meeting.len,
            ..Packet::default()
        });
    }
    sleep_until(opens.saturating_add_signed(meeting.comes * MS as i64));
    lab.send(&Packet {
        priority: meeting.priority,
        deadline: due(meeting.other_due),
        ..Packet::default()
    });
    sleep_until(opens);
    let order = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    order
}

/// A frame of two packets that waits long before the link opens, and another packet.
fn beside_a_frame(name: &str, due: u64, priority: u8, other_due: u64) -> Vec<u32> {
    let meeting = Meeting {
        packets: 2,
        len: 1_000,
        due,
        priority,
        comes: -900,
        other_due,
    };
    meet(name, &meeting)
}

#[test]
fn important_packet_keeps_its_owd_as_a_margin() {
    // Behind the frame it begins after 40 ms, and its owd is kept free.
    assert_eq!(beside_a_frame("pln", 22, 0, 58), [2]);
    assert_eq!(beside_a_frame("plw", 22, 0, 64), [0, 1, 2]);
}

#[test]
fn plan_keeps_time_for_the_next_more_important_packet() {
    // It came 900 ms before the link opens, so a quarter of what it can wait is 310 and 317 ms.
    let usual = BB_PRIORITY_DEFAULT as u8;
    assert_eq!(beside_a_frame("lay", 22, usual, 340), [2]);
    assert_eq!(beside_a_frame("law", 22, usual, 370), [0, 1, 2]);
    // Among equals none is.
    assert_eq!(beside_a_frame("lae", 22, 4, 45), [0, 1, 2]);
}

#[test]
fn packet_that_must_end_first_goes_first() {
    // The frame's last packet may begin after 30 ms, and so end after 50. The other one is taken
    // for due after 32 or 38, could not begin by then behind the frame, and takes 4.
    assert_eq!(beside_a_frame("end", 30, 0, 52), [2, 0, 1]);
    let usual = BB_PRIORITY_DEFAULT as u8;
    assert_eq!(beside_a_frame("enu", 30, usual, 38), [2, 0, 1]);
    // Among equals the deadline counts, and the larger is given up.
    assert_eq!(beside_a_frame("ene", 30, 4, 38), [2]);
}

#[test]
fn adu_that_has_begun_is_not_given_up_for_a_margin() {
    // The frame ends after 140 ms, and what is important could wait for 16 ms more: less than it
    // should have to spare, and too long for it to go before the frame's last packet.
    let meeting = |comes| Meeting {
        packets: 5,
        len: 1_400,
        due: 114,
        priority: 0,
        comes,
        other_due: 156,
    };
    assert_eq!(meet("bgn", &meeting(-2)), [5]);
    assert_eq!(meet("bgy", &meeting(2)), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn adu_has_begun_even_if_its_rest_comes_later() {
    let lab = free_link("bgl");
    lab.set_session(10, Duration::from_millis(20), 0);
    // As above, but what came first of the frame has left before the rest is there.
    let opens = now_ns();
    let due = |ms: u64| opens + (20 + ms) * MS;
    let frame = Packet {
        priority: 4,
        adu: 1,
        deadline: due(114),
        len: 1_400,
        ..Packet::default()
    };
    let mut all = vec![lab.send(&frame)];
    sleep_until(opens + 5 * MS);
    all.extend((0..4).map(|_| lab.send(&frame)));
    sleep_until(opens + 10 * MS);
    all.push(lab.send(&Packet {
        priority: 0,
        deadline: due(155),
        ..Packet::default()
    }));
    assert_eq!(lab.drain(), all);
    assert_conserved("rule", &lab.rule(1));
}

/// Three frames come, of which 8, 5 and 5 packets are due in 400, 440 and 440 ms: 360 ms of the
/// link. How many packets of each leave, and of audio, which comes every 10 ms before and
/// beside them and takes half of the link.
fn three_frames(name: &str, audio: u64) -> ([usize; 3], usize) {
    let lab = free_link(name);
    let start = now_ns() + 20 * MS;
    let came = start + 300 * MS;
    let mut frames = [const { Vec::new() }; 3];
    let mut heard = Vec::new();
    for n in 0..74 {
        sleep_until(start + n * 10 * MS);
        if n == 30 {
            for (adu, (packets, due)) in [(8, 400), (5, 440), (5, 440)].into_iter().enumerate() {
                let packet = Packet {
                    priority: 4,
                    adu: adu as u32 + 1,
                    deadline: came + due * MS,
                    len: 1_000,
                    ..Packet::default()
                };
                frames[adu].extend((0..packets).map(|_| lab.send(&packet)));
            }
        }
        if n < audio {
            heard.push(lab.send(&Packet {
                priority: 0,
                deadline: now_ns() + 50 * MS,
                len: 250,
                ..Packet::default()
            }));
        }
    }
    let left = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    let of = |sent: &Vec<u32>| sent.iter().filter(|number| left.contains(number)).count();
    (frames.each_ref().map(of), heard.len() - of(&heard))
}

#[test]
fn plan_counts_audio_that_is_still_to_come() {
    // Beside the audio some 220 ms of the link are left: two of the frames. The first packet of
    // the other one left before the rest came.
    assert_eq!(three_frames("xpy", 74), ([1, 5, 5], 0));
}

#[test]
fn plan_counts_no_audio_that_never_came_or_stopped() {
    assert_eq!(three_frames("xpn", 0), ([8, 5, 5], 0));
    // Nothing came for 150 ms.
    assert_eq!(three_frames("xpo", 15), ([8, 5, 5], 0));
}

#[test]
fn waiting_session_lets_other_sessions_pass() {
    let lab = free_link("hlo");
    let start = now_ns() + 20 * MS;
    let audio = Packet {
        priority: 0,
        len: 100,
        ..Packet::default()
    };
    let video = Packet {
        priority: 4,
        deadline: start + SECOND,
        len: 1_000,
        ..Packet::default()
    };
    let mut want = Vec::new();
    for n in 0..3 {
        sleep_until(start + n * 20 * MS);
        let deadline = start + (n * 20 + 10) * MS;
        want.push(lab.send(&Packet { deadline, ..audio }));
    }
    sleep_until(start + 59 * MS);
    let waits = lab.send(&video);
    // No audio is expected in this one.
    let session = 11;
    want.push(lab.send(&Packet { session, ..video }));
    want.push(waits);
    assert_eq!(lab.drain(), want);
    assert_conserved("rule", &lab.rule(1));
}

#[test]
fn rest_of_an_overtaken_adu_stays_behind_its_first_packet() {
    let lab = free_link("ovt");
    lab.set_session(10, Duration::from_millis(40), 0);
    let start = now_ns();
    let packet = |priority, due: u64, len| Packet {
        priority,
        len,
        deadline: start + due * MS,
        ..Packet::default()
    };
    lab.set_iface(|iface| iface.link_next = start + 30 * MS);
    let others: Vec<_> = (0..3)
        .map(|n| lab.send(&packet(7, 3_000 + 100 * n, 1_000)))
        .collect();
    // It cannot wait, so that nothing goes before it.
    let before = lab.send(&packet(4, 72, 1_400));
    let frame = |len| Packet {
        adu: 1,
        ..packet(4, 200, len)
    };
    let mut want = vec![before, 0, lab.send(&frame(1_400))];
    // Due a little later than the frame, and before its last packet has ended: it overtakes it.
    sleep_until(start + 28 * MS);
    want[1] = lab.send(&packet(0, 230, 200));
    // That is decided when the link is free, and the rest of the frame comes while `before` leaves.
    sleep_until(start + 34 * MS);
    want.extend([800, 400].map(|len| lab.send(&frame(len))));
    want.extend(others);
    assert_eq!(lab.drain(), want);
    assert_conserved("rule", &lab.rule(1));
}
