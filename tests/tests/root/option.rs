//! LPD's option: frames in, control blocks out, and whose option counts.

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::wait_for,
    bpf::{Lab, Outcome, PASS, iface, mapped},
    classify::*,
    clock::{MS, SECOND, now_ns},
    frame::*,
    netns::{ifindex, in_namespace, shell, tun, veth},
};
use std::io::{Read as _, Write as _};

/// Stale-treatment bits.
const FORWARD: u8 = 0x00;
const DISCARD: u8 = 0x10;
const TRUNCATE: u8 = 0x20;
const RESERVED: u8 = 0x30;

/// The option itself, of any type.
fn option(kind: u8, flags: u8, lifetime: u32) -> Vec<u8> {
    let mut out = vec![kind, 8, 3, flags];
    out.extend(lifetime.to_be_bytes());
    out
}

/// A datagram to a port that no rule has.
fn datagram() -> Vec<u8> {
    udp(9, b"a datagram without a rule")
}

fn v4(options: &[u8]) -> Vec<u8> {
    ethernet(0x0800, &ip4_with(17, &datagram(), 0, options, DST4))
}

/// With a hop-by-hop header: `options` fill it up to a multiple of 8 bytes, less 2.
fn v6(options: &[u8]) -> Vec<u8> {
    let mut header = vec![17, u8::try_from((options.len() + 2) / 8 - 1).unwrap()];
    header.extend(options);
    header.extend(datagram());
    ethernet(0x86dd, &ip6(0, &header))
}

/// The 14 bytes of options that hold one of this type.
fn in_hop_by_hop(kind: u8, flags: u8, lifetime: u32) -> Vec<u8> {
    let mut out = vec![1, 0]; // PadN
    out.push(kind);
    out.push(6);
    out.extend([3, flags]);
    out.extend(lifetime.to_be_bytes());
    out.extend([1, 2, 0, 0]); // PadN
    out
}

/// The option says so many ms, and the packet was classified between these times.
#[track_caller]
fn assert_lives(what: &str, out: &Outcome, ms: u64, before: u64) {
    let since = before + ms * MS..=now_ns() + ms * MS;
    assert!(since.contains(&out.deadline()), "{what}: {out:?}");
    assert_eq!((out.cb.rule, out.verdict), (0, PASS), "{what}");
}

#[track_caller]
fn assert_ignored(lab: &Lab, what: &str, frame: &[u8], counter: u32) {
    let before = lab.global(counter);
    assert_plain(lab, what, &lab.run(frame));
    assert_eq!(lab.global(counter), before + 1, "{what}");
}

#[test]
fn option_lifetime_counts_with_each_type_and_family() {
    let lab = lab();
    for kind in [0x1e, 0x5e, 0x9e, 0xde] {
        let before = now_ns();
        let out = lab.run(&v4(&option(kind, DISCARD, 300)));
        assert_lives(&format!("IPv4 {kind:#x}"), &out, 300, before);
        assert_eq!(out.treatment(), BB_TREAT_DISCARD);
    }
    for kind in [0x1e, 0x3e] {
        let before = now_ns();
        let out = lab.run(&v6(&in_hop_by_hop(kind, DISCARD, 65_535)));
        assert_lives(&format!("IPv6 {kind:#x}"), &out, 65_535, before);
    }
    // Of other types nothing is said.
    for (what, frame) in [
        ("timestamp", v4(&option(0x44, DISCARD, 300))),
        ("RFC 4727's other class", v4(&option(0x1f, DISCARD, 300))),
        (
            "IPv6, discard if unknown",
            v6(&in_hop_by_hop(0x5e, DISCARD, 300)),
        ),
    ] {
        assert_plain(&lab, what, &lab.run(&frame));
    }
}

#[test]
fn option_of_a_tcp_segment_is_no_deadline_before_that_of_an_earlier_one() {
    let lab = lab();
    // From port 1 to port 9: all but the checksum of a segment with 4 bytes of data.
    let segment = [&[0, 1, 0, 9][..], &[0; 8], &[0x50, 0x10], &[0; 6], b"data"].concat();
    let lives = |proto: u8, payload: &[u8], ms: u32| {
        let ip = ip4_with(proto, payload, 0, &option(0x9e, DISCARD, ms), DST4);
        lab.run(&ethernet(0x0800, &ip)).deadline()
    };
    let first = lives(6, &segment, 5000);
    let (second, third) = (lives(6, &segment, 300), lives(6, &segment, 400));
    assert!((first..first + 2 * MS).contains(&second) && second == third);
    assert!(lives(6, &segment, 9000) > first + 3 * SECOND);
    // Without the option it goes behind them, and is not dropped.
    let silent = lab.run(&ethernet(0x0800, &ip4(6, &segment)));
    assert!(silent.deadline() > first + 3 * SECOND);
    assert_eq!(silent.treatment(), BB_TREAT_FORWARD);
    // Of another flow, and of a datagram: as the packet says.
    let other = [&[0, 2][..], &segment[2..]].concat();
    assert!(lives(6, &other, 300) < first);
    let plain = ethernet(0x0800, &ip4(6, &[&[0, 3][..], &segment[2..]].concat()));
    assert_eq!(lab.run(&plain).deadline(), 0);
    lives(17, &datagram(), 5000);
    assert!(lives(17, &datagram(), 300) < first);
}

#[test]
fn option_code_points_are_those_of_the_configuration() {
    let lab = lab();
    lab.configure(|c| (c.option4, c.option6_deadline, c.option6_lifetime) = (0x88, 0x10, 0x30));
    let before = now_ns();
    assert_lives(
        "v4",
        &lab.run(&v4(&option(0x08, DISCARD, 300))),
        300,
        before,
    );
    assert_lives(
        "v6",
        &lab.run(&v6(&in_hop_by_hop(0x30, DISCARD, 300))),
        300,
        before,
    );
    assert_plain(&lab, "v4", &lab.run(&v4(&option(0x9e, DISCARD, 300))));
    assert_plain(
        &lab,
        "v6",
        &lab.run(&v6(&in_hop_by_hop(0x3e, DISCARD, 300))),
    );
}

#[test]
fn option_behind_others_counts_up_to_the_eighth() {
    let lab = lab();
    let behind = |others: &[u8], fill: usize| {
        let mut options = others.to_vec();
        options.extend(option(0x9e, DISCARD, 300));
        options.resize(fill, 0);
        v4(&options)
    };
    let before = now_ns();
    for (what, frame) in [
        ("7 NOPs", behind(&[1; 7], 16)),
        ("record route", behind(&[7, 7, 4, 0, 0, 0, 0], 16)),
        ("router alert", behind(&[0x94, 4, 0, 0], 12)),
    ] {
        assert_lives(what, &lab.run(&frame), 300, before);
    }
    assert_ignored(&lab, "8 NOPs", &behind(&[1; 8], 16), BB_G_OPTION_MANY);
    assert_ignored(&lab, "32 NOPs", &behind(&[1; 32], 40), BB_G_OPTION_MANY);
    assert_ignored(&lab, "40 NOPs", &v4(&[1; 40]), BB_G_OPTION_MANY);
    let mut padded = vec![0; 6]; // Pad1
    padded.extend(in_hop_by_hop(0x3e, DISCARD, 300));
    padded.extend([1, 0]);
    assert_lives("IPv6, 6 Pad1", &lab.run(&v6(&padded)), 300, before);
    let mut padded = vec![0; 8];
    padded.extend(in_hop_by_hop(0x3e, DISCARD, 300));
    assert_ignored(&lab, "IPv6, 8 Pad1", &v6(&padded), BB_G_OPTION_MANY);
    // Behind the list's end is no option.
    assert_plain(&lab, "end of list", &lab.run(&behind(&[0; 4], 12)));
}

#[test]
fn option_of_impossible_length_or_value_is_ignored_and_counted() {
    let lab = lab();
    let with_length = |length: u8| {
        let mut options = option(0x9e, DISCARD, 300);
        options[1] = length;
        v4(&options)
    };
    for length in [0, 1, 4, 7, 9, 255] {
        let what = format!("length {length}");
        assert_ignored(&lab, &what, &with_length(length), BB_G_OPTION_MALFORMED);
    }
    let mut short = in_hop_by_hop(0x3e, DISCARD, 300);
    short[3] = 5;
    assert_ignored(&lab, "IPv6, 5 bytes", &v6(&short), BB_G_OPTION_MALFORMED);
    for time in [65_535 + 86_400_000, u32::MAX] {
        let frame = v4(&option(0x9e, DISCARD, time));
        assert_ignored(&lab, "no time of day", &frame, BB_G_OPTION_MALFORMED);
    }
    let frame = v4(&option(0x9e, RESERVED, 300));
    assert_ignored(&lab, "treatment 11", &frame, BB_G_OPTION_UNKNOWN);
}

#[test]
fn option_treatment_and_lifetime_are_the_packets_where_its_rule_says_others() {
    let lab = lab();
    let frame = |flags: u8| {
        ethernet(
            0x0800,
            &ip4_with(17, &udp(PORT, b"x"), 0, &option(0x9e, flags, 50), DST4),
        )
    };
    let before = now_ns();
    for (flags, treatment) in [
        (FORWARD, BB_TREAT_FORWARD),
        (DISCARD | 0xcf, BB_TREAT_DISCARD),
    ] {
        let out = lab.run(&frame(flags));
        assert!((before + 50 * MS..=now_ns() + 50 * MS).contains(&out.deadline()));
        // What it does not say is the rule's.
        assert_eq!(
            (out.cb.rule, out.priority(), out.treatment()),
            (1, 1, treatment)
        );
    }
    // A mark comes first, field by field.
    let out = lab.run_marked(&frame(FORWARD), relative(80 * MS));
    assert!(out.deadline() >= before + 80 * MS);
    assert_eq!(out.treatment(), BB_TREAT_FORWARD);
    // A mark that says "no deadline" has said it.
    assert_eq!(lab.run_marked(&frame(DISCARD), mark(prio(4))).deadline(), 0);
    // 0 of this host is a place to be filled: the rule's lifetime counts.
    let place = ip4_with(17, &udp(PORT, b"x"), 0, &option(0x9e, TRUNCATE, 0), DST4);
    let out = lab.run(&ethernet(0x0800, &place));
    assert!(out.deadline() >= before + 200 * MS);
}

/// CLOCK_TAI, ns.
fn tai() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid pointer.
    assert_eq!(unsafe { libc::clock_gettime(11, &raw mut time) }, 0);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// The option's value for a deadline that is so many ms ahead.
fn ahead(ms: i64, tai_s: u64) -> u32 {
    let utc = tai() / MS - tai_s * 1_000;
    let day = utc.checked_add_signed(ms).unwrap() % 86_400_000;
    u32::try_from(65_535 + day.max(1)).unwrap()
}

#[test]
fn option_deadline_counts_while_the_clock_is_synchronised() {
    let lab = lab();
    let frame = |time: u32| v4(&option(0x9e, DISCARD, time));
    assert_ignored(
        &lab,
        "no clock",
        &frame(ahead(300, 0)),
        BB_G_OPTION_NO_CLOCK,
    );
    // At any hour: midnight is 12 hours and less away for one of these.
    for tai_s in (0..24).map(|hour| hour * 3_600 + 37) {
        lab.configure(|c| {
            c.tai_s = tai_s as u32;
            c.clock_until_ns = now_ns() + 60 * SECOND;
        });
        let before = now_ns();
        let out = lab.run(&frame(ahead(300, tai_s)));
        let late = 2 * MS + (now_ns() - before);
        assert!(
            out.deadline().abs_diff(before + 300 * MS) <= late,
            "{tai_s}"
        );
        let stale = lab.global(BB_G_PAST_DEADLINE);
        let out = lab.run(&v6(&in_hop_by_hop(0x1e, DISCARD, ahead(-20, tai_s))));
        assert!(out.deadline() > 0 && out.deadline() < now_ns(), "{tai_s}");
        assert_eq!(lab.global(BB_G_PAST_DEADLINE), stale + 1);
    }
    for ms in [-132_000, 132_000, 43_000_000] {
        let frame = frame(ahead(ms, 23 * 3_600 + 37));
        assert_ignored(&lab, &format!("{ms} ms"), &frame, BB_G_OPTION_FAR);
    }
    lab.configure(|c| c.clock_until_ns = now_ns());
    let frame = frame(ahead(300, 23 * 3_600 + 37));
    assert_ignored(&lab, "clock too old", &frame, BB_G_OPTION_NO_CLOCK);
}

/// A ms has one value, and a burst may have one deadline: a router discards packets one by one.
#[test]
fn option_of_equal_deadlines_is_no_adu() {
    let lab = lab();
    lab.configure(|c| {
        c.tai_s = 37;
        c.clock_until_ns = now_ns() + 60 * SECOND;
    });
    let time = ahead(1000, 37);
    for frame in [
        v4(&option(0x9e, DISCARD, time)),
        v6(&in_hop_by_hop(0x1e, DISCARD, time)),
    ] {
        for _ in 0..2 {
            let out = lab.run(&frame);
            assert!(out.deadline() > 0 && !out.has(BB_CB_ADU), "{out:?}");
        }
    }
    // A mark's deadline is an application's, which names an ADU by it.
    let deadline = (now_ns() + SECOND) / u64::from(BB_MARK_UNIT_NS);
    let mark = (BB_MARK_MAGIC << BB_MARK_MAGIC_SHIFT) | (deadline as u32 & BB_MARK_TIME_MASK);
    let marked = |frame: &[u8]| lab.run_marked(frame, mark);
    let (first, second) = (marked(&v4(&[])), marked(&v4(&[])));
    assert!(first.has(BB_CB_ADU), "{first:?}");
    assert_eq!(first.cb.adu, second.cb.adu);
    // And it counts in a packet that has an option, too.
    let both = marked(&v4(&option(0x9e, DISCARD, time)));
    assert_eq!(both.cb.adu, first.cb.adu);
}

#[test]
fn option_of_a_fragment_is_its_own_deadline_without_the_first() {
    let lab = lab();
    let before = now_ns();
    let later = ip4_with(17, &[0x55; 64], 185, &option(0x9e, DISCARD, 300), DST4);
    let out = lab.run(&ethernet(0x0800, &later));
    assert_lives("without its first", &out, 300, before);
    let again = lab.run(&ethernet(0x0800, &later));
    assert_eq!(again.cb.adu, out.cb.adu, "of one datagram");
    assert!(out.has(BB_CB_ADU));
    let without = ip4_with(17, &[0x55; 64], 185, &[], DST4);
    assert_plain(&lab, "no option", &lab.run(&ethernet(0x0800, &without)));
}

#[test]
fn option_of_a_forwarded_packet_counts_only_from_a_trusted_source() {
    in_namespace(|| {
        veth();
        let mut device = tun("bbt0");
        shell(
            "ip addr add 192.0.2.254/24 dev bbt0; ip link set bbt0 up
             echo 1 >/proc/sys/net/ipv4/conf/bbt0/forwarding
             ip route add 198.51.100.0/24 via 10.9.0.2 dev bb0",
        );
        let mut lab = Lab::bare();
        lab.iface(3, &iface(ifindex("bb0"), BB_MODE_TC));
        lab.attach("bb0");
        // A lifetime of 0 is over: who believes it drops the packet.
        let stale = with_checksum(ip4_with(
            17,
            &datagram(),
            0,
            &option(0x9e, DISCARD, 0),
            DST4,
        ));
        let dropped = || lab.rule_stats(0).dropped[BB_DROP_STALE as usize];
        let untrusted = || lab.global(BB_G_OPTION_UNTRUSTED);
        let trust = |net: [u8; 4], bits: u32, device: &str| {
            let key = bb_trust_key {
                prefix: 32 + 96 + bits,
                ifindex: ifindex(device),
                addr: mapped(net),
            };
            lab.put("bb_trust", &key, &1u32);
        };
        device.write_all(&stale).unwrap();
        wait_for("not believed", || untrusted() == 1);
        // Neither a neighbour's prefix nor another interface's.
        trust([192, 0, 3, 0], 24, "bb0");
        trust([192, 0, 2, 0], 24, "bbt0");
        device.write_all(&stale).unwrap();
        wait_for("still not believed", || untrusted() == 2);
        assert_eq!(dropped(), 0);
        trust([192, 0, 2, 0], 24, "bb0");
        device.write_all(&stale).unwrap();
        wait_for("believed", || dropped() == 1);
        assert_eq!(untrusted(), 2);
        // It says how long, not how important: what nobody vouches for stays plain.
        let live = with_checksum(ip4_with(
            17,
            &datagram(),
            0,
            &option(0x9e, DISCARD, 900),
            DST4,
        ));
        let sent = lab.rule_stats(0).packets_sent;
        device.write_all(&live).unwrap();
        wait_for("a live one", || lab.rule_stats(0).packets_sent > sent);
        assert!(
            (0..BB_MAX_SESSIONS)
                .map(|index| lab.session(index as u16))
                .all(|s| s.way.tag == 0
                    || s.key.media == 0
                    || s.key.kind == BB_SESSION_CONTROL as u8)
        );
    });
}

/// What a router makes of the option of a packet that leaves.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    kind: u8,
    value: u32,
    checksum: bool,
    /// Length of the packet, bytes.
    length: u32,
    /// Since the first packet, ms.
    since: u32,
}

/// A router with this decrement that forwards packets with a lifetime of 900 ms, one after the other.
fn pass_on(six: bool, clock: bool, decrement: u32, rate: u64, count: usize) -> Vec<Passed> {
    in_namespace(|| {
        let (mut from, mut to) = (tun("bbt0"), tun("bbt1"));
        shell(
            "ip link set bbt0 up; ip link set bbt1 up
             ip addr add 192.0.2.254/24 dev bbt0; ip addr add 198.51.100.1/24 dev bbt1
             ip -6 addr add 2001:db8::ff/128 dev bbt0 nodad; ip -6 route add 2001:db8::7/128 dev bbt1
             echo 1 >/proc/sys/net/ipv4/conf/all/forwarding
             echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
        );
        let mut lab = Lab::bare();
        let device = ifindex("bbt1");
        let mut slot = iface(device, BB_MODE_TC);
        (slot.decrement, slot.rate) = (decrement as u8, rate);
        lab.iface(3, &slot);
        lab.attach("bbt1");
        if clock {
            lab.configure(|c| c.clock_until_ns = now_ns() + 60 * SECOND);
        }
        for addr in [mapped(SRC4), SRC6] {
            let key = bb_trust_key {
                prefix: 32 + 128,
                ifindex: device,
                addr,
            };
            lab.put("bb_trust", &key, &1u32);
        }
        let packet = if six {
            v6(&in_hop_by_hop(0x3e, DISCARD | 0x80, 900)).split_off(14)
        } else {
            with_checksum(ip4_with(
                17,
                &datagram(),
                0,
                &option(0x5e, DISCARD | 0x80, 900),
                DST4,
            ))
        };
        let first = now_ns();
        let passed: Vec<Passed> = (0..count)
            .map(|_| {
                from.write_all(&packet).unwrap();
                let mut bytes = [0; 2000];
                let at = loop {
                    let size = to.read(&mut bytes).unwrap();
                    // Not what IPv6 says of its own accord.
                    match (bytes[0] >> 4, six) {
                        (6, true) if bytes[6] == 0 && bytes[42] != 5 && size == packet.len() => {
                            break 44;
                        }
                        (4, false) => break 20,
                        _ => {}
                    }
                };
                assert_eq!(bytes[at + 3] & 0xf0, DISCARD | 0x80, "flags stay");
                Passed {
                    kind: bytes[at],
                    value: u32::from_be_bytes(*bytes[at + 4..].first_chunk().unwrap()),
                    checksum: six || {
                        with_checksum(bytes[..packet.len()].to_vec())[10..12] == bytes[10..12]
                    },
                    length: packet.len() as u32,
                    since: ((now_ns() - first) / MS) as u32,
                }
            })
            .collect();
        let changed = passed.iter().filter(|p| p.value != 900).count();
        assert_eq!(lab.global(BB_G_DECREMENTED), changed as u64);
        passed
    })
}

#[test]
fn option_lifetime_of_a_forwarded_packet_becomes_a_deadline_where_the_clock_is_exact() {
    let passed_on = |six, decrement, clock| {
        let passed = pass_on(six, clock, decrement, 0, 1).remove(0);
        assert!(passed.checksum);
        (passed.kind, passed.value)
    };
    assert_eq!(passed_on(false, BB_DECREMENT_OFF, true), (0x5e, 900));
    assert_eq!(passed_on(true, BB_DECREMENT_OFF, true), (0x3e, 900));
    // Without a clock it stays; nothing waits, so nothing is foretold.
    assert_eq!(passed_on(false, BB_DECREMENT_CLOCK, false), (0x5e, 900));
    assert_eq!(passed_on(false, BB_DECREMENT_PREDICT, true), (0x5e, 900));
    for (six, kind) in [(false, 0x5e), (true, 0x1e)] {
        let before = tai() / MS;
        let (is, value) = passed_on(six, BB_DECREMENT_CLOCK, true);
        assert_eq!(is, kind);
        let at = u64::from(value - 65_535);
        let since = (at + 86_400_000 - 900 - before % 86_400_000) % 86_400_000;
        assert!(since <= tai() / MS - before + 1, "{since} ms");
    }
}

/// At 1,000 bytes a second each packet takes as many milliseconds as it has bytes.
#[test]
fn option_lifetime_of_a_forwarded_packet_is_less_by_the_wait_that_is_expected() {
    for (six, kind) in [(false, 0x5e), (true, 0x3e)] {
        let passed = pass_on(six, false, BB_DECREMENT_PREDICT, 1_000, 5);
        for (n, packet) in (1..).zip(&passed) {
            assert!(packet.checksum && packet.kind == kind, "{packet:?}");
            // What has left since the first came waits no more.
            let least = 900 - n * packet.length;
            let range = least - 1..=least + packet.since + 1;
            assert!(range.contains(&packet.value), "{n}: {packet:?} {range:?}");
        }
    }
}
