//! What a packet is worth, and from which source: frames in, control blocks out
//! (`BPF_PROG_TEST_RUN` on the loopback interface).

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, PASS, Rule, SkBuff, default_config, iface},
    classify::*,
    clock::{MS, SECOND, now_ns},
    frame::*,
};

#[test]
fn mark_gives_deadline_priority_and_treatment_per_packet() {
    let lab = lab();
    let packet = udp4(9, b"no rule");
    let before = now_ns();
    let out = lab.run_marked(
        &packet,
        relative(80 * MS) | prio(6) | BB_TREAT_FORWARD << BB_MARK_TREATMENT_SHIFT,
    );
    let after = now_ns();
    assert_eq!(
        (out.priority(), out.treatment(), out.cb.rule),
        (6, BB_TREAT_FORWARD, 0)
    );
    assert!((before + 80 * MS..=after + 80 * MS).contains(&out.deadline()));
    assert_eq!(
        u32::from(lab.session(out.cb.session).key.kind),
        BB_SESSION_DST
    );

    // Absolute: modulo 2^19 units of 250 us around now, on both sides and far from it.
    let now = now_ns();
    let unit = u64::from(BB_MARK_UNIT_NS);
    let all = 1u64 << BB_MARK_TIME_BITS;
    for ahead in [1, 40, 800, 100_000, all / 2 - 4000] {
        let wanted = (now / unit + ahead) * unit;
        if !(wanted / unit).is_multiple_of(all) {
            assert_eq!(
                lab.run_marked(&packet, absolute(wanted)).deadline(),
                wanted,
                "{ahead} units ahead"
            );
        }
    }
    for past in [1, 4000, 100_000, all / 2 - 4000] {
        if now / unit <= past || (now / unit - past).is_multiple_of(all) {
            continue;
        }
        let wanted = (now / unit - past) * unit;
        let count = lab.global(BB_G_PAST_DEADLINE);
        let out = lab.run_marked(&packet, absolute(wanted));
        assert_eq!(
            (out.deadline(), out.verdict),
            (wanted, PASS),
            "{past} units ago"
        );
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), count + 1);
    }

    // One wire value, two turns of the clock apart, is the same deadline.
    let soon = now_ns() + 500 * MS;
    let a = lab.run_marked(&packet, absolute(soon));
    let b = lab.run_marked(&packet, absolute(soon + all * unit));
    assert_eq!(a.deadline(), b.deadline());
    assert_eq!(
        a.cb.adu, b.cb.adu,
        "equal deadlines of one flow are one ADU"
    );
    assert_ne!(
        a.cb.adu,
        lab.run_marked(&packet, absolute(soon + unit)).cb.adu
    );

    // Time 0: the packet says it has no deadline, and the rule's is not put in its place.
    let out = lab.run_marked(&udp4(PORT, b"x"), mark(prio(4)));
    assert_eq!(
        (out.priority(), out.cb.rule, out.has(BB_CB_DEADLINE)),
        (4, 1, false)
    );
}

#[test]
fn marks_of_one_adu_number_share_its_first_deadline() {
    let lab = lab();
    let packet = udp4(9, b"x");
    let adu = |bits: u32| relative(100 * MS) | bits << BB_MARK_ADU_SHIFT;
    let first = lab.run_marked(&packet, adu(3));
    std::thread::sleep(std::time::Duration::from_millis(5));
    let second = lab.run_marked(&packet, adu(3));
    let other = lab.run_marked(&packet, adu(4));
    assert_eq!(
        (first.deadline(), first.cb.adu),
        (second.deadline(), second.cb.adu)
    );
    assert!(other.deadline() > first.deadline() && other.cb.adu != first.cb.adu);
    // The bits come round: after two others, the same number is another ADU.
    assert_ne!(lab.run_marked(&packet, adu(5)).cb.adu, other.cb.adu);
    assert_ne!(lab.run_marked(&packet, adu(3)).cb.adu, first.cb.adu);
    // Another flow's ADU 4 is not this one's.
    assert_ne!(lab.run_marked(&udp4(10, b"x"), adu(4)).cb.adu, other.cb.adu);
    // Without the field there is no ADU.
    assert!(!lab.run_marked(&packet, relative(100 * MS)).has(BB_CB_ADU));
}

#[test]
fn constant_adu_number_begins_a_new_adu_after_a_second() {
    let lab = lab();
    let packet = udp4(9, b"x");
    let constant = relative(20 * MS) | 1 << BB_MARK_ADU_SHIFT;
    let first = lab.run_marked(&packet, constant);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let later = lab.run_marked(&packet, constant);
    assert!(
        later.deadline() > now_ns() - SECOND,
        "still the first packet's deadline"
    );
    assert_ne!(first.deadline(), later.deadline());
}

#[test]
fn constant_rtp_like_payload_begins_a_new_adu_after_a_second() {
    let lab = lab();
    lab.rules(&[Rule::new().dport(9).lifetime(20 * MS)]);
    let packet = udp4(9, &rtp(1, 7, false));
    let first = lab.run(&packet);
    assert_eq!(lab.run(&packet).cb.adu, first.cb.adu);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    // By the number of the first one the qdisc would take it for given up, if that was.
    let later = lab.run(&packet);
    assert!(later.has(BB_CB_ADU) && later.cb.adu != first.cb.adu);
    assert_eq!(lab.run(&packet).cb.adu, later.cb.adu);
}

#[test]
fn foreign_mark_is_counted_and_left_alone() {
    let lab = lab();
    let packet = udp4(9, b"x");
    for foreign in [1, 0xff, 0xa000_0001, 0xcfff_ffff, 0x7fff_ffff] {
        let count = lab.global(BB_G_FOREIGN_MARK);
        let out = lab.run_marked(&packet, foreign);
        assert_plain(&lab, "foreign mark", &out);
        assert_eq!(out.skb.mark, foreign);
        assert_eq!(lab.global(BB_G_FOREIGN_MARK), count + 1);
    }
    let count = lab.global(BB_G_FOREIGN_MARK);
    assert_plain(&lab, "no mark", &lab.run(&packet));
    assert_eq!(lab.global(BB_G_FOREIGN_MARK), count);

    // Another magic: ours is foreign now. A wider one takes the adu field away.
    lab.configure(|c| {
        c.mark_magic = 0x5 << 28 | 0x3 << 25;
        c.mark_magic_mask = 0xfe00_0000;
    });
    assert_plain(
        &lab,
        "old magic",
        &lab.run_marked(&packet, relative(SECOND)),
    );
    let out = lab.run_marked(&packet, 0x5600_0000 | BB_MARK_RELATIVE | 400 | prio(2));
    assert_eq!(
        (out.priority(), out.has(BB_CB_DEADLINE), out.has(BB_CB_ADU)),
        (2, true, false)
    );
    // No mask: marks are not read at all.
    lab.configure(|c| c.mark_magic_mask = 0);
    let count = lab.global(BB_G_FOREIGN_MARK);
    assert_plain(&lab, "no magic", &lab.run_marked(&packet, relative(SECOND)));
    assert_eq!(lab.global(BB_G_FOREIGN_MARK), count);
}

#[test]
fn each_field_comes_from_its_first_source() {
    let lab = Lab::new();
    lab.rules(&[Rule::new()
        .dport(PORT)
        .lifetime(300 * MS)
        .priority(6)
        .treatment(BB_TREAT_FORWARD)]);
    let packet = udp4(PORT, b"x");
    // Rule alone.
    let out = lab.run(&packet);
    assert_eq!(
        (out.priority(), out.treatment(), out.cb.rule),
        (6, BB_TREAT_FORWARD, 1)
    );
    // The mark gives deadline and priority; the treatment it leaves open is the rule's.
    let before = now_ns();
    let out = lab.run_marked(&packet, relative(10 * MS) | prio(0));
    assert!(out.deadline() < before + 200 * MS);
    assert_eq!(
        (out.priority(), out.treatment(), out.cb.rule),
        (0, BB_TREAT_FORWARD, 1)
    );
    // The mark's treatment wins, too. A packet of nothing but headers cannot be truncated.
    for (said, payload, done) in [
        (BB_TREAT_DISCARD, "x", BB_TREAT_DISCARD),
        (BB_TREAT_TRUNCATE, "x", BB_TREAT_TRUNCATE),
        (BB_TREAT_TRUNCATE, "", BB_TREAT_DISCARD),
    ] {
        let packet = udp4(PORT, payload.as_bytes());
        let out = lab.run_marked(&packet, relative(10 * MS) | said << BB_MARK_TREATMENT_SHIFT);
        assert_eq!(out.treatment(), done, "{said}");
    }
    // A rule without a priority: the tables, SO_PRIORITY before DSCP, then the default.
    lab.rules(&[Rule::new().dport(PORT).lifetime(300 * MS)]);
    assert_eq!(
        lab.run(&packet).priority(),
        u8::try_from(BB_PRIORITY_DEFAULT).unwrap()
    );
    lab.configure(|c| {
        c.prio_table[6] = 0;
        c.dscp_table[46] = 1;
    });
    let mut expedited = packet.clone();
    expedited[15] = 46 << 2;
    assert_eq!(lab.run(&expedited).priority(), 1);
    let skb = SkBuff {
        priority: 6,
        ..Default::default()
    };
    assert_eq!(lab.run_with(&expedited, skb).priority(), 0);
    // An SO_PRIORITY that the kernel made of the TOS says less than the DSCP, if that says anything.
    lab.configure(|c| c.prio_table[4] = 5);
    let derived = SkBuff {
        priority: bestby_bpf::dscp_so_priority(46),
        ..Default::default()
    };
    assert_eq!(derived.priority, 4);
    assert_eq!(lab.run_with(&expedited, derived).priority(), 1);
    assert_eq!(lab.run_with(&packet, derived).priority(), 5);
    lab.configure(|c| c.dscp_table[46] = 255);
    assert_eq!(lab.run_with(&expedited, derived).priority(), 5);
    assert_eq!(
        lab.run_with(
            &packet,
            SkBuff {
                priority: 5,
                ..Default::default()
            }
        )
        .priority(),
        3
    );
}

#[test]
fn packet_of_an_unattached_interface_is_unchanged() {
    let lab = Lab::bare();
    lab.rules(&[Rule::new().lifetime(SECOND)]);
    lab.iface(3, &iface(4711, BB_MODE_QDISC));
    let skb = SkBuff {
        cb: [1, 2, 3, 4, 5],
        priority: 9,
        ..Default::default()
    };
    let out = lab.run_with(&udp4(PORT, b"x"), skb);
    assert_eq!(
        (out.verdict, out.skb.cb, out.skb.priority),
        (PASS, skb.cb, 9)
    );
    // Attached, moved to another slot, detached: the cached slot is never trusted.
    for slot in [5, 6, 63] {
        lab.iface(slot, &iface(LO, BB_MODE_QDISC));
        assert_eq!(
            lab.run_with(&udp4(PORT, b"x"), skb).cb.rule,
            1,
            "slot {slot}"
        );
        lab.iface(slot, &bb_iface::default());
        assert_eq!(
            lab.run_with(&udp4(PORT, b"x"), skb).skb.cb,
            skb.cb,
            "slot {slot}"
        );
    }
}

#[test]
fn lab_defaults_equal_those_of_the_header() {
    // The marks of these tests, built by hand, are the ones the ABI describes.
    assert_eq!(relative(MS), 0xb008_0004);
    assert_eq!(default_config().mark_magic, 0xb000_0000);
    assert_eq!(udp4(1, b"").len(), 42);
}
