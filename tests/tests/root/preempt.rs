//! PREEMPT_RT: a packet comes while its CPU judges another one. It goes as plain traffic, and takes nothing of what is
//! known of the other. The classifier is loaded as on such a kernel; the other packet is one that has the CPU's scratch
//! area and does not come back.
//!
//! 64 interfaces on one host: none of them is searched for with each packet.

use bestby_bpf::{abi::*, seal};
use bestby_tests::{
    bpf::{LO, Lab, Outcome, PASS, Rule, SHOT, SkBuff, iface},
    clock::{MS, SECOND},
    frame::{ethernet, ip4, ports, rtp, udp, udp4},
    netns::{in_namespace, shell},
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, btf::Btf, btf::types};
use zerocopy::{FromBytes as _, IntoBytes as _};

const PORT: u16 = 5004;
const OTHER: u64 = 0xffff_8880_1234_5600;

/// Where a field of a struct of the classifier is, bytes.
fn offset(name: &str, field: &str) -> usize {
    let btf = Btf::from_raw("classify", bestby_bpf::CLASSIFY)
        .unwrap()
        .unwrap();
    let found = btf.type_by_name::<types::Struct<'_>>(name).unwrap();
    let member = found.iter().find(|m| m.name.is_some_and(|n| n == field));
    match member.unwrap().attr {
        types::MemberAttr::Normal { offset } => offset as usize / 8,
        types::MemberAttr::BitField { .. } => panic!("{field} is a bit field"),
    }
}

/// A rule whose packets are stale when they come, and truncated.
fn lab(lab: Lab, mode: u32) -> Lab {
    let mut i = iface(LO, mode);
    if mode == BB_MODE_TC {
        i.htb_major = 0xbb;
    }
    lab.iface(0, &i);
    lab.rules(&[
        Rule::new()
            .dport(PORT)
            .lifetime(MS)
            .owd(SECOND)
            .priority(1)
            .treatment(BB_TREAT_TRUNCATE),
        Rule::new().dport(PORT + 1).lifetime(SECOND).priority(1),
    ]);
    lab
}

/// The scratch areas of all CPUs.
struct Areas(MapHandle);

impl Areas {
    fn of(lab: &Lab) -> Self {
        Self(lab.own_map("bb_cpus"))
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let zero = 0u32;
        let areas = self.0.lookup_percpu(zero.as_bytes(), MapFlags::ANY);
        areas.unwrap().unwrap()
    }

    /// Another packet has each: one that waits for its twin, or for itself, and would keep so many bytes.
    fn take(&self) {
        let mut areas = self.read();
        for area in &mut areas {
            let mut put = |field: (&str, &str), bytes: &[u8]| {
                let at = offset(field.0, field.1);
                area[at..at + bytes.len()].copy_from_slice(bytes);
            };
            put(("bb_cpu", "taken"), 1u32.as_bytes());
            put(("bb_work", "again"), LO.as_bytes());
            put(("bb_work", "again_of"), OTHER.as_bytes());
            put(("bb_work", "again_len"), 42u32.as_bytes());
            // network, transport, length, then the protocol
            put(("bb_work", "header"), &[14, 0, 34, 0, 8, 0, 17, 0]);
        }
        let zero = 0u32;
        self.0
            .update_percpu(zero.as_bytes(), &areas, MapFlags::ANY)
            .unwrap();
    }

    fn taken(&self) -> u32 {
        let at = offset("bb_cpu", "taken");
        let areas = self.read();
        let each = areas.iter();
        each.map(|area| u32::read_from_bytes(&area[at..at + 4]).unwrap())
            .sum()
    }
}

/// What an earlier interface said of the packet, and is no business of this one.
fn earlier() -> bb_cb {
    let said = bb_cb {
        rule: 1,
        session: 7,
        class_: 0x10,
        flags: BB_CB_DEADLINE as u8,
        ..Default::default()
    };
    seal(said, 1)
}

/// The control block of the twin of a packet at this address.
fn twin(of: u64) -> bb_cb {
    let mut twin = bb_cb {
        flags: BB_CB_TWIN as u8,
        ..Default::default()
    };
    let bytes = of.to_le_bytes();
    twin.rtp = bytes[7];
    seal(twin, of)
}

fn with(cb: bb_cb) -> SkBuff {
    let words = <[u32; 5]>::read_from_bytes(cb.as_bytes()).unwrap();
    SkBuff {
        cb: words,
        ..Default::default()
    }
}

#[track_caller]
fn assert_plain(out: &Outcome, sent: &[u8], left: &[u8]) {
    assert_eq!((out.verdict, out.skb.cb), (PASS, [0; 5]));
    assert_eq!(sent, left, "not a byte of it changes");
}

#[test]
fn packet_that_preempts_another_is_plain_and_leaves_its_area_alone() {
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        let lab = lab(Lab::preemptible(), mode);
        let areas = Areas::of(&lab);
        areas.take();
        let before = areas.read();
        let frame = udp4(PORT, &rtp(7, 9, true));
        let rounds = [with(earlier()), with(twin(OTHER + 256)), SkBuff::default()];
        for (n, skb) in rounds.into_iter().enumerate() {
            let (out, left) = lab.classifier().change(&frame, skb);
            assert_plain(&out, &frame, &left);
            assert_eq!(lab.global(BB_G_PREEMPTED), n as u64 + 1);
            if mode == BB_MODE_TC {
                let leaf = 0xbb << 16 | (BB_TC_LEAF_MINOR + BB_TC_LEAF_PLAIN);
                assert_eq!(out.skb.priority, leaf);
            }
        }
        assert!(areas.read() == before, "the other packet's area");
        assert_eq!(lab.rule_stats(1), bb_counters::default());
    }
}

/// Beside it: the twin that the other packet waits for is what it was made for.
#[test]
fn twin_of_the_packet_that_has_the_area_is_truncated() {
    let lab = lab(Lab::preemptible(), BB_MODE_QDISC);
    let areas = Areas::of(&lab);
    areas.take();
    let frame = udp4(PORT, &[5; 100]);
    let (out, left) = lab.classifier().change(&frame, with(twin(OTHER)));
    assert_eq!((out.verdict, left.len()), (PASS, 42));
    assert_eq!(lab.global(BB_G_PREEMPTED), 0);
    assert_ne!(areas.taken(), 0, "the other packet has it still");
}

#[test]
fn area_is_given_back_on_every_way_out() {
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        let lab = lab(Lab::preemptible(), mode);
        let areas = Areas::of(&lab);
        let mut short = udp4(PORT, b"x");
        short[14] = 0x44; // a header of 16 bytes
        let cases = [
            ("rule", udp4(PORT + 1, b"x")),
            ("media", udp4(PORT + 1, &rtp(7, 9, true))),
            ("refused", udp4(PORT, b"")),
            ("truncated", udp4(PORT, &[5; 100])),
            ("plain", udp4(7, b"x")),
            ("plain tcp", ethernet(0x0800, &ip4(6, &ports(443)))),
            ("no ip", ethernet(0x0806, &[0; 28])),
            ("malformed", short),
            ("fragment", ethernet(0x0800, &fragment())),
        ];
        for (name, frame) in cases {
            for _ in 0..2 {
                let out = lab.run(&frame);
                let refused = mode == BB_MODE_TC && name == "refused";
                assert_eq!(out.verdict == SHOT, refused, "{name}");
                assert_eq!(
                    (areas.taken(), lab.global(BB_G_PREEMPTED)),
                    (0, 0),
                    "{name}"
                );
            }
        }
    }
}

fn fragment() -> Vec<u8> {
    let mut packet = ip4(17, &udp(PORT + 1, &[1; 64]));
    packet[6] = 0x20;
    packet
}

/// Beside it: where nothing preempts, nobody asks.
#[test]
fn area_is_no_question_on_other_kernels() {
    let lab = lab(Lab::bare(), BB_MODE_QDISC);
    let areas = Areas::of(&lab);
    areas.take();
    // What comes first is what `again` waits for.
    let _ = lab.run(&udp4(PORT + 1, &[5; 100]));
    let out = lab.run(&udp4(PORT + 1, &[5; 100]));
    assert_eq!((out.cb.rule, lab.global(BB_G_PREEMPTED)), (2, 0));
}

/// Interfaces whose indices are equal modulo 64, and all others: the classifier remembers the slot of each.
#[test]
fn slot_of_each_of_64_interfaces_is_remembered() {
    in_namespace(|| {
        let lab = Lab::bare();
        lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
        let indices: Vec<u32> = (0..BB_MAX_IFACES).map(|n| 1000 + n * 64).collect();
        for (slot, index) in (0..).zip(&indices) {
            shell(&format!(
                "ip link add bbh{slot} index {index} type veth peer name bbp{slot}"
            ));
            lab.iface(slot, &iface(*index, BB_MODE_QDISC));
        }
        let run = |index: u32| {
            let skb = SkBuff {
                ifindex: index,
                ..Default::default()
            };
            let out = lab.run_with(&udp4(PORT, b"x"), skb);
            assert_eq!(out.cb.rule, 1, "interface {index}");
        };
        indices.iter().for_each(|&index| run(index));
        let remembered = || {
            let bss = lab.own_map(".bss");
            let zero = 0u32;
            let bytes = bss.lookup(zero.as_bytes(), MapFlags::ANY).unwrap().unwrap();
            let words = bytes.chunks_exact(8);
            let words: Vec<u64> = words.map(|w| u64::read_from_bytes(w).unwrap()).collect();
            let there = (0u64..).zip(&indices).filter(|&(slot, &index)| {
                let hint = u64::from(index) | slot << 32;
                words.iter().any(|word| word & 0xffff_ffff_ffff == hint)
            });
            there.count()
        };
        assert_eq!(remembered(), indices.len());
        // And stays so: nobody takes another one's place.
        indices.iter().rev().for_each(|&index| run(index));
        assert_eq!(remembered(), indices.len());
        // One that is gone gives its place up; who comes has one.
        shell("ip link del bbh5; ip link add bbh5 index 77 type veth peer name bbp5");
        lab.iface(5, &iface(77, BB_MODE_QDISC));
        run(77);
        run(indices[6]);
    });
}
