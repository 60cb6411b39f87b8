//! The classifier over mutated packets, `BPF_PROG_TEST_RUN`: whatever comes, it has a verdict, and no packet without a
//! deadline is dropped, but for want of room, or with an ADU that lost another packet.
//!
//! Real frames of each kind are mutated. A mutant with an outcome that was not seen before becomes a parent itself.

use std::collections::HashSet;

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Outcome, PASS, Rule, SHOT, SkBuff, iface},
    classify::PORT,
    clock::{MS, now_ns},
    cpu,
    frame::*,
    long,
    netns::{ifindex, in_namespace, shell},
    require,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

/// `TC_ACT_REDIRECT`: in mode tc a packet that was cut to its headers comes to its device once more.
const REDIRECTED: i32 = 7;
/// The shortest that a test run takes: an Ethernet header, and a byte.
const SHORTEST: usize = 15;
const LONGEST: usize = 1_800;

/// LPD's option with a lifetime, IPv4 or inside of a hop-by-hop header.
fn lpd(kind: u8, length: u8, ms: u32) -> Vec<u8> {
    let mut out = vec![kind, length, 0, 0x20];
    out.extend(ms.to_be_bytes());
    out
}

/// A frame of each kind that the parser knows.
fn parents() -> Vec<Vec<u8>> {
    let media = udp(PORT, &rtp(7, 3000, true));
    let (v4, v6) = (ip4(17, &media), ip6(17, &media));
    let with_option = ip4_with(17, &media, 0, &lpd(0x9e, 8, 300), DST4);
    let hop_by_hop = {
        let mut out = vec![17, 1, 1, 0];
        out.extend(lpd(0x3e, 6, 300));
        out.extend([1, 2, 0, 0]);
        out.extend(&media);
        ip6(0, &out)
    };
    let chain = {
        let mut out = vec![43, 0, 0, 0, 0, 0, 0, 0]; // destination options, routing, fragment
        out.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        out.extend([17, 0, 0, 1, 0, 0, 0, 9]);
        out.extend(&media);
        ip6(60, &out)
    };
    let dtls = {
        let mut out = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 1, 0, 40];
        out.resize(53, 1);
        out
    };
    let rtcp = {
        let mut out = vec![0x80, 200, 0, 6];
        out.resize(28, 2);
        out
    };
    let nd = {
        let mut out = vec![135, 0, 0, 0, 0, 0, 0, 0];
        out.extend(DST6);
        ip6(58, &out)
    };
    let mut all = vec![
        ethernet(0x0800, &v4),
        ethernet(0x86dd, &v6),
        ethernet(0x8100, &tag(5, 0x0800, &v4)),
        ethernet(0x88a8, &tag(5, 0x8100, &tag(6, 0x86dd, &v6))),
        ethernet(0x0800, &with_option),
        ethernet(0x86dd, &hop_by_hop),
        ethernet(0x86dd, &chain),
        ethernet(0x0800, &ip4_with(17, &media, 0x2000, &[], DST4)),
        ethernet(0x0800, &ip4_with(17, &media[8..], 185, &[], DST4)),
        ethernet(0x0800, &ip4_with(6, &ports(PORT), 0, &[1; 40], DST4)),
        ethernet(0x86dd, &nd),
        ethernet(0x0806, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]),
        ethernet(0x88cc, &[2, 7, 4]),
        udp4(PORT, &stun(100)),
        udp4(PORT, &dtls),
        udp6(PORT + 1, &rtcp),
        udp4(PORT, &[0xff; 1200]),
    ];
    // TCP, IPv4 in IPv4, IPv6, GRE, ESP, AH, ICMP, SCTP, UDP-Lite, DCCP.
    for proto in [6, 4, 41, 47, 50, 51, 1, 132, 136, 33] {
        all.push(ethernet(0x0800, &ip4(proto, &ports(PORT))));
        all.push(ethernet(0x86dd, &ip6(proto, &ports(PORT))));
    }
    all
}

/// Changes a frame a few times.
fn mutate(random: &mut StdRng, frame: &mut Vec<u8>, others: &[Vec<u8>]) {
    const TELLING: [u8; 12] = [0, 1, 4, 5, 6, 17, 44, 59, 60, 0x7f, 0x80, 0xff];
    for _ in 0..random.random_range(1..8) {
        // Headers more often than what is behind them.
        let end = if random.random_bool(0.7) {
            frame.len().min(90)
        } else {
            frame.len()
        };
        let at = random.random_range(0..end);
        match random.random_range(0..9) {
            0 | 1 => frame[at] ^= 1 << random.random_range(0..8),
            2 => frame[at] = random.random(),
            3 => frame[at] = *TELLING.choose(random).unwrap(),
            4 => frame.truncate(at),
            5 => drop(frame.drain(at..(at + random.random_range(1..20)).min(frame.len()))),
            6 => {
                let other = others.choose(random).unwrap();
                let from = random.random_range(0..other.len());
                let to = (from + random.random_range(1..60)).min(other.len());
                frame.splice(at..at, other[from..to].iter().copied());
            }
            7 => {
                let word: u16 = *[0, 1, 8, 20, 0x1fff, 0x2000, 0x7fff, 0x8000, 0xffff]
                    .choose(random)
                    .unwrap();
                for (to, from) in frame[at..].iter_mut().zip(word.to_be_bytes()) {
                    *to = from;
                }
            }
            _ => frame.resize(
                (frame.len() + random.random_range(1..600)).min(LONGEST),
                0x80,
            ),
        }
        frame.truncate(LONGEST);
        if frame.len() < SHORTEST {
            frame.resize(SHORTEST, 0);
        }
    }
}

/// What a socket, a rule of the firewall or another device may say of it.
fn context(random: &mut StdRng, length: usize, device: u32) -> SkBuff {
    let mut skb = SkBuff {
        ifindex: device,
        priority: random.random::<u32>() >> random.random_range(0..32),
        ..Default::default()
    };
    if random.random_bool(0.5) {
        skb.ingress_ifindex = LO;
    }
    skb.mark = match random.random_range(0..4) {
        0 => random.random(),
        1 => BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT | random.random::<u32>() >> 4,
        _ => 0,
    };
    if random.random_bool(0.1) {
        skb.tstamp = match random.random_range(0..3) {
            0 => random.random(),
            1 => 1,
            _ => now_ns() + random.random_range(0..400 * MS),
        };
    }
    if random.random_bool(0.1) {
        skb.gso_size = random.random_range(1..2_000);
        skb.gso_segs = random.random_range(0..64);
        skb.wire_len = u32::try_from(length).unwrap() + random.random_range(0..60_000);
    }
    skb
}

/// Whether a test run may refuse a frame: one of IP without the whole header of IP (Linux 6.18). Behind a VLAN tag it
/// takes it.
fn refused(frame: &[u8]) -> bool {
    match frame[12..14] {
        [8, 0] => frame.len() < 34,
        [0x86, 0xdd] => frame.len() < 54,
        _ => false,
    }
}

/// What of an outcome makes a mutant worth to be a parent.
fn kind(device: usize, out: &Outcome) -> (usize, i32, u8, u8, u8, bool) {
    let cb = &out.cb;
    let rule = cb.rule != 0;
    (device, out.verdict, cb.flags, cb.class_, cb.rtp, rule)
}

/// Devices by index, and how each is attached.
struct Rig {
    lab: Lab,
    devices: Vec<(u32, bb_iface)>,
}

const RATE: u64 = 200_000;

impl Rig {
    /// Each mode, shaped and not, on devices of this namespace.
    fn new() -> Self {
        let shaped = |mut i: bb_iface| {
            i.rate = RATE;
            i.htb_major = 0xbb;
            i.plain_share = 20;
            i.limit_bytes = 1 << 20;
            i
        };
        let device = |n: u32| ifindex(&format!("f{n}"));
        let mut observed = shaped(iface(device(3), BB_MODE_TC));
        observed.flags = u8::try_from(BB_IFACE_OBSERVE).unwrap();
        let all = [
            iface(device(0), BB_MODE_QDISC),
            iface(device(1), BB_MODE_TC),
            shaped(iface(device(2), BB_MODE_TC)),
            observed,
        ];
        let lab = Lab::bare();
        for (slot, iface) in all.iter().enumerate() {
            lab.iface(u32::try_from(slot).unwrap(), iface);
        }
        Self {
            lab,
            devices: all.into_iter().map(|i| (i.ifindex, i)).collect(),
        }
    }

    fn counters(&self, slot: usize) -> bb_counters {
        let slot = u32::try_from(slot).unwrap();
        let iface: bb_iface = self.lab.get("bb_ifaces", &slot).unwrap();
        iface.counters
    }

    /// Runs so many mutants; how many were dropped, and how many kinds of outcome there were.
    fn run(&self, random: &mut StdRng, count: u64, rules: bool) -> (u64, usize) {
        let classifier = self.lab.classifier();
        let mut parents = parents();
        let mut kinds = HashSet::new();
        let mut incomplete = HashSet::new();
        let mut ran = vec![0_u64; self.devices.len()];
        let mut shot = vec![0_u64; self.devices.len()];
        let mut full = vec![0_u64; self.devices.len()];
        for number in 0..count {
            let mut frame = parents.choose(random).unwrap().clone();
            mutate(random, &mut frame, &parents);
            let at = random.random_range(0..self.devices.len());
            let mut skb = context(random, frame.len(), self.devices[at].0);
            if !rules {
                (skb.mark, skb.tstamp) = (0, 0);
            }
            let (out, after) = match classifier.try_change(&frame, skb) {
                Ok(done) => done,
                Err(e) => {
                    assert!(
                        refused(&frame),
                        "packet {number}: {e}: {skb:?} {frame:02x?}"
                    );
                    continue;
                }
            };
            ran[at] += 1;
            let told = || format!("packet {number}, device {at}: {out:?} {skb:?} {frame:02x?}");
            let passes = match out.verdict {
                PASS => true,
                SHOT => false,
                REDIRECTED if out.has(BB_CB_DEADLINE) || incomplete.contains(&out.cb.adu) => {
                    // Its headers come to the device at once, and pass.
                    let again = SkBuff {
                        ifindex: skb.ifindex,
                        ..Default::default()
                    };
                    let headers = classifier.run(&after, again);
                    assert_eq!(headers.verdict, PASS, "{}", told());
                    true
                }
                other => panic!("verdict {other}: {}", told()),
            };
            assert!(bestby_bpf::sealed(&out.cb), "no control block: {}", told());
            if out.verdict == PASS && at != 1 {
                assert!(after == frame, "changed: {after:02x?} {}", told());
            }
            if !passes {
                shot[at] += 1;
                assert!(at == 1 || at == 2, "device {at} drops: {}", told());
                let room = self.counters(at).dropped[BB_DROP_OVERFLOW as usize];
                // A queue below is full.
                let overflow = room > full[at];
                full[at] = room;
                // What is left of an ADU that lost a packet goes, too: it is of no use.
                let rest = incomplete.contains(&out.cb.adu);
                let may = out.has(BB_CB_DEADLINE) || rest || rules && overflow;
                assert!(may, "dropped without a deadline: {}", told());
            }
            if out.verdict != PASS && out.has(BB_CB_ADU) {
                incomplete.insert(out.cb.adu);
            }
            if kinds.insert(kind(at, &out)) && parents.len() < 5_000 {
                parents.push(frame);
            }
        }
        for at in 1..self.devices.len() {
            let c = self.counters(at);
            let dropped: u64 = c.dropped.iter().sum();
            assert_eq!(c.packets_in, ran[at], "device {at}: {c:?}");
            assert_eq!(dropped, shot[at], "device {at}: {c:?}");
            assert_eq!(c.packets_in, c.packets_sent + dropped, "{at}: {c:?}");
        }
        (shot.iter().sum(), kinds.len())
    }
}

fn with_devices(test: impl FnOnce(&mut StdRng, u64) + Send) {
    if !require::can(require::root()) {
        return;
    }
    let mut random = StdRng::seed_from_u64(long::seed());
    in_namespace(|| {
        cpu::stay();
        for n in 0..4 {
            shell(&format!("ip link add f{n} type veth peer name g{n}"));
        }
        test(&mut random, long::run(50_000, 5_000_000));
    });
}

#[test]
fn mutated_packets_without_rules_are_dropped_only_for_an_options_deadline() {
    with_devices(|random, count| {
        let rig = Rig::new();
        // No rule, no mark, no timestamp: only LPD's option says a deadline.
        let (shot, kinds) = rig.run(random, count, false);
        println!("{count} packets without rules: {shot} dropped, {kinds} kinds of outcome");
    });
}

#[test]
fn mutated_packets_with_rules_are_dropped_only_with_a_deadline_or_for_want_of_room() {
    with_devices(|random, count| {
        let rig = Rig::new();
        rig.lab.configure(|c| c.flags |= BB_CONFIG_RTP_RULES);
        rig.lab.rules(&[
            Rule::new()
                .payload_type(97)
                .rtx(98, Some(97))
                .lifetime(20 * MS)
                .priority(0),
            Rule::new()
                .dport(PORT)
                .proto(17)
                .lifetime(50 * MS)
                .priority(1),
            Rule::new().dport(PORT).proto(6).lifetime(50 * MS),
            Rule::new()
                .dport(PORT + 1)
                .lifetime(MS)
                .treatment(BB_TREAT_TRUNCATE),
            Rule::new().proto(132).priority(2), // no lifetime
            Rule::new()
                .proto(136)
                .lifetime(1)
                .treatment(BB_TREAT_FORWARD),
        ]);
        let (shot, kinds) = rig.run(random, count, true);
        println!("{count} packets with rules: {shot} dropped, {kinds} kinds of outcome");
        assert!(
            shot > 0,
            "nothing was dropped: the test would prove nothing"
        );
    });
}
