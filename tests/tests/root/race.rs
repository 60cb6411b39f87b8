//! Two CPUs classify packets of one flow at the same moment, as two transmit queues do: nothing is counted twice or
//! lost, and no packet is judged by anything but its own ADU's deadline or the one beside it.

use std::fs::File;

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, Outcome, PASS, Rule, SHOT, SkBuff, iface},
    classify::{PORT, assert_matched},
    clock::{MS, SECOND, now_ns},
    cpu,
    frame::{rtp, udp4},
    load::{Counter, PEER, send_on_both},
    netns::{ifindex, in_namespace, linked_lab, shell, tun},
    require,
};
use serde_json::json;

#[test]
fn frame_met_by_two_cpus_is_one_adu() {
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
    let (mut apart, mut unnamed) = (0, 0);
    let mut deadlines = vec![0; FRAMES];
    for (frame, _, after, out) in seen.iter().flatten() {
        assert_eq!((out.verdict, out.cb.rule, out.priority()), (PASS, 1, 1));
        assert!(out.has(BB_CB_DEADLINE), "frame {frame}");
        if *frame == 0 && !out.has(BB_CB_ADU) {
            unnamed += 1;
            continue;
        }
        assert!(out.has(BB_CB_ADU), "frame {frame}");
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
    // Who adds a session or a stream waits a few looks for the other CPU, and not for one that was stopped: then its
    // packets of the first frame have none, and are counted as such.
    let [without, streamless] = [BB_G_SESSIONS_FULL, BB_G_STREAMS_FULL].map(|g| lab.global(g));
    assert!(
        without.max(streamless) <= PACKETS as u64,
        "{without} {streamless}"
    );
    assert_eq!(unnamed, streamless);
    let counted = sessions.iter().map(|s| s.counters.packets_in);
    assert_eq!(counted.sum::<u64>() + without, total);
}

#[test]
fn two_cpus_never_admit_more_than_the_link_carries() {
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
fn socket_on_two_cpus_loses_no_packet_and_no_count() {
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

/// As another program at tcx leaves the control block.
const FOREIGN: [u32; 5] = [1, 2, 3, 4, 5];

/// Two interfaces, one without Ethernet headers, whose indices are the same modulo the slots of `bb_ifaces`, and a
/// third one that is not attached.
struct Alike {
    lab: Lab,
    /// Index, and a packet that the rule matches.
    each: [(u32, Vec<u8>); 3],
    _tun: File,
}

impl Alike {
    fn new() -> Self {
        let tun = tun("bbt0");
        let first = ifindex("bbt0");
        let [second, third] = [1, 2].map(|n| {
            let index = first + n * BB_MAX_IFACES;
            shell(&format!(
                "ip link add bba{n} index {index} type veth peer name bbb{n}"
            ));
            index
        });
        let mut bare = udp4(PORT, &[0; 40]).split_off(14);
        // Read as an Ethernet header, the packet is of IPv4, too: its source is 8.0.0.1.
        bare[12..16].copy_from_slice(&[8, 0, 0, 1]);
        let lab = Lab::bare();
        // Where the classifier counts, not a queue.
        lab.iface(0, &iface(first, BB_MODE_TC));
        lab.iface(1, &iface(second, BB_MODE_TC));
        lab.rules(&[Rule::new().dport(PORT).lifetime(100 * SECOND).priority(1)]);
        let frame = udp4(PORT, b"x");
        Self {
            lab,
            each: [(first, bare), (second, frame.clone()), (third, frame)],
            _tun: tun,
        }
    }

    fn skb(&self, n: usize) -> SkBuff {
        SkBuff {
            ifindex: self.each[n].0,
            cb: FOREIGN,
            ..Default::default()
        }
    }

    fn run(&self, n: usize) -> Outcome {
        self.lab.run_with(&self.each[n].1, self.skb(n))
    }

    /// Judged as a packet of this interface.
    #[track_caller]
    fn assert_judged(&self, n: usize, out: &Outcome) {
        assert_ne!(out.skb.cb, FOREIGN, "interface {n}");
        assert_matched(&format!("interface {n}"), out);
        assert_eq!(self.lab.session(out.cb.session).key.ifindex, self.each[n].0);
    }

    /// Left alone.
    #[track_caller]
    fn assert_passed(&self, n: usize, out: &Outcome) {
        assert_eq!((out.verdict, out.skb.cb), (PASS, FOREIGN), "interface {n}");
    }
}

#[test]
fn interfaces_of_one_cache_slot_are_told_apart() {
    in_namespace(|| {
        let alike = Alike::new();
        for _ in 0..3 {
            for n in [0, 1] {
                alike.assert_judged(n, &alike.run(n));
            }
            alike.assert_passed(2, &alike.run(2));
        }
        // Others take their places.
        for (slot, n) in [(0, 1), (1, 2)] {
            alike.lab.iface(slot, &iface(alike.each[n].0, BB_MODE_TC));
        }
        for n in [2, 1] {
            alike.assert_judged(n, &alike.run(n));
        }
        alike.assert_passed(0, &alike.run(0));
    });
}

#[test]
fn interfaces_of_one_cache_slot_are_told_apart_by_two_cpus() {
    if !require::can(cpu::two()) {
        return;
    }
    in_namespace(|| {
        let alike = Alike::new();
        let classifier = alike.lab.classifier();
        const ROUNDS: u32 = 20;
        const TIMES: u32 = 10_000;
        let skbs = [alike.skb(0), alike.skb(1)];
        let packets = [&alike.each[0].1, &alike.each[1].1];
        let seen = cpu::on_both(|n, start| {
            (0..ROUNDS)
                .map(|_| {
                    start.together();
                    classifier.repeat(packets[n], skbs[n], TIMES)
                })
                .collect::<Vec<_>>()
        });
        for (n, outs) in seen.iter().enumerate() {
            for out in outs {
                alike.assert_judged(n, out);
            }
        }
        // Of most packets only this is known.
        let matched = alike.lab.rule_stats(1).packets_in;
        assert_eq!(matched, u64::from(2 * ROUNDS * TIMES));
    });
}
