//! Which packets the classifier sends to the device that cuts super-packets, and what it does when they do not return.

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::Agent,
    bpf::{LO, Lab, PASS, SHOT, SkBuff, iface},
    clock::{SECOND, now_ns},
    cpu,
    frame::udp4,
    netns::linked_lab,
    require,
};
use serde_json::json;

/// `TC_ACT_REDIRECT`.
const REDIRECT: i32 = 7;
/// Any index: a test run redirects nothing.
const DEVICE: u32 = 77;
/// 2 Mbit/s in bytes/s: 250 bytes take a millisecond.
const RATE: u64 = 250_000;

fn lab(rate: u64, segment_ifindex: u32) -> Lab {
    let lab = Lab::bare();
    let iface = bb_iface {
        rate,
        segment_ifindex,
        ..iface(LO, BB_MODE_QDISC)
    };
    lab.iface(0, &iface);
    lab
}

/// A packet of 1000 bytes and more.
fn frame() -> Vec<u8> {
    udp4(9, &[0xff; 1000])
}

fn gso() -> SkBuff {
    SkBuff {
        gso_size: 300,
        gso_segs: 4,
        ..Default::default()
    }
}

#[test]
fn segment_long_gso_packet_is_redirected_and_back() {
    cpu::on_one(|| {
        let lab = lab(RATE, DEVICE);
        let segmenter = lab.segmenter();
        for _ in 0..3 {
            let out = lab.run_with(&frame(), gso());
            assert_eq!((out.verdict, out.skb.cb[1]), (REDIRECT, LO));
            let segment = SkBuff {
                cb: out.skb.cb,
                ..Default::default()
            };
            assert_eq!(segmenter.run(&frame(), segment).verdict, REDIRECT);
            // Each segment is judged as any packet is.
            let back = lab.run_with(&frame(), segment);
            assert_eq!(back.verdict, PASS);
            assert!(bestby_bpf::sealed(&back.cb));
        }
        assert_eq!(lab.global(BB_G_SEGMENTER_LOST), 0);
    });
}

#[test]
fn segment_packet_that_need_not_or_cannot_be_cut_stays_whole() {
    let slow = lab(RATE, DEVICE);
    let short = udp4(9, &[0xff; 100]);
    for (what, lab, frame, skb) in [
        ("not GSO", &slow, frame(), SkBuff::default()),
        ("less than a millisecond", &slow, short, gso()),
        ("a fast link", &lab(RATE * 100, DEVICE), frame(), gso()),
        ("no rate", &lab(0, DEVICE), frame(), gso()),
        ("no device", &lab(RATE, 0), frame(), gso()),
    ] {
        let out = lab.run_with(&frame, skb);
        assert_eq!(out.verdict, PASS, "{what}");
        assert!(bestby_bpf::sealed(&out.cb), "{what}: not judged");
    }
}

#[test]
fn segment_packet_that_returns_uncut_is_not_redirected_again() {
    let lab = lab(RATE, DEVICE);
    let out = lab.run_with(&frame(), gso());
    assert_eq!(out.verdict, REDIRECT);
    let back = SkBuff {
        cb: out.skb.cb,
        ..gso()
    };
    let out = lab.run_with(&frame(), back);
    assert_eq!(out.verdict, PASS);
    assert!(bestby_bpf::sealed(&out.cb), "not judged");
}

#[test]
fn segment_packet_cut_for_another_interface_is_cut_again() {
    let mut skb = gso();
    let out = lab(RATE, DEVICE).run_with(&frame(), skb);
    // As if an interface above this one had sent it to its own device.
    skb.cb = out.skb.cb;
    skb.cb[1] += 1;
    let out = lab(RATE, DEVICE).run_with(&frame(), skb);
    assert_eq!((out.verdict, out.skb.cb[1]), (REDIRECT, LO));
}

#[test]
fn segment_lost_device_costs_one_packet_per_second() {
    cpu::on_one(|| {
        let lab = lab(RATE, DEVICE);
        assert_eq!(lab.run_with(&frame(), gso()).verdict, REDIRECT);
        // It does not come back.
        let begin = now_ns();
        let mut whole = 0;
        let mut lost = 0;
        while lost == 0 {
            match lab.run_with(&frame(), gso()).verdict {
                PASS => whole += 1,
                _ => lost += 1,
            }
        }
        let took = now_ns() - begin;
        assert!(whole > 0 && took >= SECOND, "{whole} whole, {took} ns");
        assert_eq!(lab.global(BB_G_SEGMENTER_LOST), 1);
    });
}

#[test]
fn segmenter_drops_a_packet_the_classifier_did_not_send() {
    let lab = lab(RATE, DEVICE);
    let segmenter = lab.segmenter();
    let verdict = segmenter.run(&frame(), SkBuff::default()).verdict;
    assert_eq!(verdict, SHOT);
}

#[test]
fn segment_kernel_without_a_device_attaches_and_warns() {
    linked_lab(require::root(), |lab, _| {
        let cuts = require::segmenter().is_ok();
        let segs = |n| {
            let link = lab.netns.run("ip -details link show dev v0");
            assert!(link.contains(&format!("gso_max_segs {n} ")), "{link}");
        };
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "2mbit"}));
        let info = agent.ok("GET", "/v1/interfaces", None)[0].clone();
        assert_eq!(info["cuts"], cuts, "{info}");
        // TCP's need no device.
        segs(1);
        assert_eq!(agent.complaints("super-packets").is_empty(), cuts);
        // Said once, not each time that the agent looks after its devices.
        std::thread::sleep(std::time::Duration::from_millis(2500));
        assert!(
            agent.log().matches("netkit").count() <= 1,
            "{}",
            agent.log()
        );
        agent.detach("v0");
        segs(65535);
    });
}
