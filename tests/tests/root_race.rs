//! Two CPUs classify packets of one flow at the same moment, as two transmit queues do: nothing is counted twice or
//! lost, and no packet is judged by anything but its own ADU's deadline or the one beside it.

#![allow(clippy::unwrap_used)]

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, PASS, Rule, SHOT, SkBuff, iface},
    classify::PORT,
    clock::{MS, SECOND, now_ns},
    cpu,
    frame::{rtp, udp4},
    load::{Counter, PEER, send_on_both},
    netns::linked_lab,
    require,
};
use serde_json::json;

#[test]
fn a_frame_met_by_two_cpus_is_one_adu() {
    if !require::can(cpu::two()) {
        return;
    }
    let lab = Lab::bare();
    // Where the classifier counts, not a queue.
    lab.iface(0, &iface(LO, BB_MODE_TC));
    // Others use the machine, too: nothing is stale when a CPU was away for a while.
    const LIFETIME: u64 = 100 * SECOND;
    lab.rules(&[Rule::new().dport(PORT).lifetime(LIFETIME).priority(1)]);
    let classifier = lab.classifier();
    const FRAMES: usize = 1_000;
    const PACKETS: usize = 3;
    // Each CPU sends packets of the same frame, beginning together: both meet it new.
    let seen = cpu::on_both(|_, start| {
        let mut seen = Vec::new();
        for frame in 0..FRAMES {
            let packet = udp4(PORT, &rtp(7, 3000 * frame as u32, false));
            start.together();
            for _ in 0..PACKETS {
                let before = now_ns();
                let out = classifier.run(&packet, SkBuff::default());
                seen.push((frame, before, now_ns(), out));
            }
        }
        seen
    });
    let total = (2 * FRAMES * PACKETS) as u64;
    let counters = lab.rule_stats(1);
    assert_eq!((counters.packets_in, counters.packets_sent), (total, total));

    // When each frame's first packet was handed over, and when its last came back.
    let mut spans = vec![(u64::MAX, 0); FRAMES];
    for (frame, before, after, _) in seen.iter().flatten() {
        let span: &mut (u64, u64) = &mut spans[*frame];
        *span = (span.0.min(*before), span.1.max(*after));
    }
    let mut adus = vec![0; FRAMES];
    let mut apart = 0;
    let mut deadlines = vec![0; FRAMES];
    for (frame, _, after, out) in seen.iter().flatten() {
        assert_eq!((out.verdict, out.cb.rule, out.priority()), (PASS, 1, 1));
        assert!(out.has(BB_CB_DEADLINE | BB_CB_ADU), "frame {frame}");
        // Its own frame began within `spans[frame]`; the one beside it, before that.
        let began = out.deadline() - LIFETIME;
        assert!(
            (spans[frame.saturating_sub(1)].0..=*after).contains(&began),
            "frame {frame} has the deadline of neither its own nor the frame beside it"
        );
        if adus[*frame] == 0 {
            (adus[*frame], deadlines[*frame]) = (out.cb.adu, out.deadline());
        }
        assert_eq!(out.cb.adu, adus[*frame], "frame {frame} has one name");
        apart += usize::from(out.deadline() != deadlines[*frame]);
    }
    adus.sort_unstable();
    adus.dedup();
    assert!(adus.len() > FRAMES - 2, "frames share a name");
    println!("{apart} of {total} packets have another deadline than the first of their frame");
    // One destination is one session, or two where both CPUs met it new.
    let sessions: Vec<bb_session> = (0..BB_MAX_SESSIONS)
        .map(|i| lab.get("bb_sessions", &i).unwrap())
        .filter(|s: &bb_session| u32::from(s.key.kind) == BB_SESSION_DST && s.way.tag != 0)
        .collect();
    assert!((1..=2).contains(&sessions.len()), "{}", sessions.len());
    assert_eq!(
        sessions.iter().map(|s| s.counters.packets_in).sum::<u64>(),
        total
    );
}

#[test]
fn two_cpus_cannot_fill_one_link_twice() {
    if !require::can(cpu::two()) {
        return;
    }
    const RATE: u64 = 1_000_000;
    const LIFETIME: u64 = 200 * MS;
    const SIZE: usize = 1_000;
    let lab = Lab::bare();
    let mut i = iface(LO, BB_MODE_TC);
    i.rate = RATE;
    i.htb_major = 0xbb;
    lab.iface(0, &i);
    lab.rules(&[Rule::new().dport(PORT).lifetime(LIFETIME).priority(1)]);
    let classifier = lab.classifier();
    let packet = udp4(PORT, &[0; SIZE - 42]);
    let begin = now_ns();
    let sent = cpu::on_both(|_, start| {
        start.together();
        let mut sent = [0u64; 2];
        for _ in 0..4_000 {
            match classifier.run(&packet, SkBuff::default()).verdict {
                PASS => sent[0] += 1,
                SHOT => sent[1] += 1,
                other => panic!("verdict {other}"),
            }
        }
        sent
    });
    let [admitted, refused] = [0, 1].map(|n| sent[0][n] + sent[1][n]);
    let counters = lab.rule_stats(1);
    assert_eq!(counters.packets_in, 8_000);
    assert_eq!(counters.packets_sent, admitted);
    assert_eq!(counters.dropped.iter().sum::<u64>(), refused);
    assert!(refused > 0, "the link was never full");
    // What the link carries from the first packet until the deadline of the last.
    let room = (now_ns() - begin + LIFETIME) * RATE / SECOND;
    assert!(
        admitted * SIZE as u64 <= room,
        "{admitted} packets of {SIZE} bytes do not fit into {room} bytes"
    );
}

#[test]
fn one_socket_on_two_cpus_loses_nothing() {
    if !require::can(cpu::two()) {
        return;
    }
    linked_lab(require::root(), |lab, peer| {
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "100mbit"}));
        agent.add(json!({"name": "audio", "dport": PORT, "lifetime": "100s"}));
        let counter = Counter::new(peer, PEER, PORT);
        let sent = send_on_both(&lab.netns, PORT, 2_000);
        counter.expect_all(&sent);
        for counted in ["packets_in", "packets_sent"] {
            assert_eq!(agent.flow("audio", counted), sent.len() as u64, "{counted}");
        }
    });
}
