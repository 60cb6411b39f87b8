//! What LPD's option costs the classifier, and what becomes of a burst with one deadline, in virtual time.

use std::{fs, net::UdpSocket, time::Duration};

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::{Agent, wait_for},
    bpf::{LO, Lab, Rule, iface},
    clock::{MS, SECOND, clock_ns},
    frame::*,
    load::PEER,
    netns::linked_lab,
    require, socket,
};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::json;
use zerocopy::FromBytes as _;

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

/// As an NTP client that found its server, exact to 1 ms.
fn discipline() {
    // SAFETY: plain numbers, and a valid pointer to them.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        timex.modes = libc::ADJ_STATUS | libc::ADJ_MAXERROR | libc::ADJ_ESTERROR;
        (timex.maxerror, timex.esterror) = (1_000, 1_000);
        libc::adjtimex(&raw mut timex)
    };
    assert!(state >= 0);
}

/// Thirty packets at once on 100 kbit/s, which carries one in 43 ms: those of a second arrive. A deadline that they share
/// makes no difference to a lifetime, and no ADU of them, which would be given up whole.
#[test]
fn burst_with_one_deadline_arrives_as_far_as_there_is_time() {
    for mode in ["qdisc", "tc"] {
        linked_lab(require::bpf_qdisc(), |lab, peer| {
            discipline();
            let agent = Agent::start(lab, &[]);
            agent.attach(json!({"dev": "v0", "mode": mode, "rate": "100kbit"}));
            wait_for("the clock to be believed", || {
                let map = MapHandle::from_pinned_path(lab.bpffs.join("bb_config")).unwrap();
                let config = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
                bb_config::read_from_bytes(&config).unwrap().clock_until_ns != 0
            });
            let arrived = |absolute: bool| {
                let receiver = peer.enter(|| UdpSocket::bind((PEER, PORT)).unwrap());
                let idle = Some(Duration::from_secs(2));
                receiver.set_read_timeout(idle).unwrap();
                let sender = lab.netns.enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
                let utc = clock_ns(libc::CLOCK_REALTIME) / MS;
                let value = match absolute {
                    true => 65_535 + ((utc + 1000) % 86_400_000).max(1) as u32,
                    false => 1000,
                };
                let option = [&[0x9e, 8, 3, 0x10][..], &value.to_be_bytes()].concat();
                socket::set(&sender, libc::IPPROTO_IP, libc::IP_OPTIONS, &option[..]).unwrap();
                for _ in 0..30 {
                    sender.send_to(&[0; 500], (PEER, PORT)).unwrap();
                }
                let mut packet = [0; 600];
                std::iter::from_fn(|| receiver.recv(&mut packet).ok()).count()
            };
            let (relative, absolute) = (arrived(false), arrived(true));
            println!("mode {mode}: {relative} of 30 by a lifetime, {absolute} by one deadline");
            // Mode tc predicts for media, which an option alone is not.
            if mode == "qdisc" {
                assert!((20..=25).contains(&relative), "{relative}");
                assert!(absolute >= 22, "{absolute}");
            }
            assert!(absolute.abs_diff(relative) <= 1, "{mode}: {absolute}");
        });
    }
}
