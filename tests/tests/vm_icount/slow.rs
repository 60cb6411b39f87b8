//! A link that takes less than its rate says: flow control, a slow modem, a processor that is late.
//!
//! In virtual time, so that the schedules of milliseconds below are kept.

use crate::qdisc_lab::*;
use bestby_tests::clock::{MS, SECOND, now_ns};

/// Between two packets of audio.
const STEP: u64 = 20 * MS;

/// Audio and video that fill a link of [`RATE`], for ten seconds; the link is held up for `held` of
/// `held + 1` steps.
/// What of 500 packets of audio, and of 500 of video, is sent in time.
fn sent(name: &str, held: u64) -> [usize; 2] {
    let lab = free_link(name);
    let start = now_ns() + STEP;
    let (mut audio, mut video) = (Vec::new(), Vec::new());
    for n in 0..500_u32 {
        let now = start + u64::from(n) * STEP;
        sleep_until(now);
        if held > 0 && u64::from(n) % (held + 1) == 0 {
            lab.set_iface(|iface| iface.link_next = now + held * STEP);
        }
        audio.push(lab.send(&Packet {
            priority: 0,
            adu: 1_000 + n,
            deadline: now + 200 * MS,
            len: 100,
            ..Packet::default()
        }));
        if n % 10 != 0 {
            continue;
        }
        for _ in 0..10 {
            video.push(lab.send(&Packet {
                priority: 4,
                adu: n + 1,
                deadline: now + 300 * MS,
                len: 800,
                ..Packet::default()
            }));
        }
    }
    sleep_until(now_ns() + SECOND);
    let came = lab.drain();
    assert_conserved("rule", &lab.rule(1));
    [audio, video].map(|sent| sent.iter().filter(|n| came.contains(n)).count())
}

#[test]
fn audio_is_in_time_on_a_link_slower_than_its_rate() {
    // The whole rate, a third and an eighth of it.
    for (held, least_video) in [(0, 490), (2, 150), (7, 0)] {
        let [audio, video] = sent(&format!("sl{held}"), held);
        println!(
            "held up {held} of {}: {audio} of audio, {video} of video",
            held + 1
        );
        assert!(
            audio >= 495 && video >= least_video,
            "{held}: {audio}, {video}"
        );
    }
}
