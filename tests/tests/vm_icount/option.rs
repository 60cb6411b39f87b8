//! What LPD's option costs the classifier, in virtual time.

use std::fs;

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Rule, iface},
    clock::SECOND,
    frame::*,
    require,
};

const PORT: u16 = 5004;
/// Instructions that a packet's options may add, whoever wrote them. One option of LPD adds 950: 290 because the
/// packet is none of the usual ones, 60 for the option, the rest to find out whose socket sent it.
const MOST: u64 = 1_500;

/// A datagram with these options.
fn frame(six: bool, options: &[u8]) -> Vec<u8> {
    let datagram = udp(PORT, &rtp_with(96, 1, 7, 3000));
    if !six {
        return ethernet(0x0800, &ip4_with(17, &datagram, 0, options, DST4));
    }
    if options.is_empty() {
        return ethernet(0x86dd, &ip6(17, &datagram));
    }
    // Padded to a multiple of eight bytes, where LPD's begins at one of four.
    let length = 4 + options.len();
    let tail = &[1, 2, 0, 0][..length % 8];
    let units = ((length + tail.len()) / 8 - 1) as u8;
    let header = [&[17, units, 1, 0][..], options, tail, &datagram].concat();
    ethernet(0x86dd, &ip6(0, &header))
}

#[test]
fn options_of_a_packet_take_bounded_instructions() {
    if !require::can(require::root()) {
        return;
    }
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
    let lab = Lab::bare();
    lab.iface(0, &iface(LO, BB_MODE_QDISC));
    lab.rules(&[Rule::new().dport(PORT).lifetime(SECOND)]);
    let classifier = lab.classifier();
    let cost = |frame: &[u8]| {
        let _ = classifier.instructions(frame, 10);
        classifier.instructions(frame, 200)
    };
    for (six, kind, length, foreign) in [(false, 0x9e, 8, 0x88), (true, 0x3e, 6, 0x3d)] {
        let family = if six { 6 } else { 4 };
        let usual = cost(&frame(six, &[]));
        let ours = [kind, length, 0, 0x10, 0, 0, 0, 200];
        // Four bytes each, IPv6's without the first two; there padding comes first.
        let other = [foreign, length - 4, 0, 0];
        let behind_seven = [other.repeat(7 - usize::from(six)), ours.to_vec()].concat();
        let many = other.repeat(10);
        for (what, options) in [
            ("one", &ours[..]),
            ("one behind seven", &behind_seven),
            ("too many", &many),
        ] {
            let costs = cost(&frame(six, options));
            println!("IPv{family}, {what}: {usual} without, {costs} with");
            assert!(costs <= usual + MOST, "{what}: {usual} {costs}");
        }
        // It counts: the packet has a deadline before that of the rule.
        let with = lab.run(&frame(six, &ours)).deadline();
        assert!(with + SECOND / 2 < lab.run(&frame(six, &[])).deadline());
    }
}
