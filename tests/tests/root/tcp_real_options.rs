//! What strangers send: TCP-Real's ingress program on options of any content, by the kernel's test run.

use std::net::SocketAddr;

use bestby_tests::bpf::{Classifier, PASS, SkBuff};
use bestby_tests::frame::{ethernet, ip4_with};
use bestby_tests::socket;
use libbpf_rs::Program;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;

use crate::tcp_real_lab::*;

/// A segment of the peer's with these options, which are filled up to words.
fn segment(pair: &Pair, seq: u32, options: &[u8], data: usize) -> Vec<u8> {
    let (SocketAddr::V4(to), SocketAddr::V4(from)) = (
        pair.receiver.local_addr().unwrap(),
        pair.receiver.peer_addr().unwrap(),
    ) else {
        panic!("not IPv4");
    };
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4).min(40), 0);
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 1, words << 4, 0x10, 1, 0, 0, 0, 0, 0]);
    tcp.extend(&options);
    tcp.resize(tcp.len() + data, 0x55);
    let mut ip = ip4_with(6, &tcp, 0, &[], to.ip().octets());
    ip[12..16].copy_from_slice(&from.ip().octets());
    ethernet(0x0800, &ip)
}

/// What a sender of ours would write: wave, level and mark, nothing told.
fn valid(wave: u8, level: u8) -> [u8; 8] {
    [253, 8, 0x52, 0x54, wave, level, 0, 0]
}

/// The next sequence number that the receiver waits for: of TCP_REPAIR's queue.
fn expected(pair: &Pair) -> u32 {
    const TCP_REPAIR: i32 = 19;
    const TCP_REPAIR_QUEUE: i32 = 20;
    const TCP_QUEUE_SEQ: i32 = 21;
    const RECEIVE: i32 = 1;
    let set = |name: i32, value: i32| {
        socket::set(&pair.receiver, libc::IPPROTO_TCP, name, &value).unwrap();
    };
    set(TCP_REPAIR, 1);
    set(TCP_REPAIR_QUEUE, RECEIVE);
    let next: u32 = socket::get(&pair.receiver, libc::IPPROTO_TCP, TCP_QUEUE_SEQ).unwrap();
    set(TCP_REPAIR_QUEUE, 0);
    // Off, without a probe of the window.
    set(TCP_REPAIR, -1);
    next
}

#[test]
fn options_of_any_content_pass_and_leave_the_connection_alone() {
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(300_000, || ());
        let program = Program::fd_from_pinned_path(lab.bpffs.join("real/ingress")).unwrap();
        let program = Classifier::new(program);
        let run = |frame: &[u8]| program.run(frame, SkBuff::default()).verdict;
        let waves = || count(&agent, "measured") + count(&agent, "unmeasured");
        let next = expected(&pair);

        // Outside the window, nobody's word counts; inside, a new wave ends the one before.
        let before = (waves(), pair.receives(&agent));
        for seq in [next.wrapping_sub(1_000_000), next.wrapping_add(1 << 30)] {
            for wave in [100, 101] {
                assert_eq!(run(&segment(&pair, seq, &valid(wave, 10), 500)), PASS);
            }
        }
        assert_eq!((waves(), pair.receives(&agent)), before);
        let wave = (0..=255)
            .find(|wave: &u8| {
                let (seen, later) = (waves(), wave.wrapping_add(1));
                run(&segment(&pair, next, &valid(*wave, 10), 500));
                run(&segment(
                    &pair,
                    next.wrapping_add(500),
                    &valid(later, 10),
                    500,
                ));
                waves() > seen
            })
            .unwrap()
            .wrapping_add(1);
        // Malformed: another length, another identifier, a mark without a wave, an impossible level.
        let malformed = [
            [253, 7, 0x52, 0x54, wave, 10, 0, 0],
            [253, 8, 0x52, 0x55, wave, 10, 0, 0],
            [253, 8, 0x52, 0x54, wave, 0x80, 0, 0],
            [253, 8, 0x52, 0x54, wave, 10, 0, 200],
            [254, 8, 0x52, 0x54, wave, 10, 0, 0],
            [1, 1, 253, 8, 0x52, 0x54, wave, 10],
        ];
        let before = (waves(), pair.receives(&agent));
        for option in malformed {
            for wave in 0..4 {
                let mut option = option;
                option[4] = option[4].wrapping_add(wave);
                assert_eq!(
                    run(&segment(&pair, next.wrapping_add(2000), &option, 500)),
                    PASS
                );
            }
        }
        assert_eq!((waves(), pair.receives(&agent)), before);

        // Anything at all.
        let mut random = StdRng::seed_from_u64(36);
        for _ in 0..5000 {
            let mut options = vec![0; random.random_range(0..=10) * 4];
            random.fill(&mut options[..]);
            if options.len() >= 8 && random.random_bool(0.5) {
                let at = random.random_range(0..=options.len() - 8);
                options[at..at + 4].copy_from_slice(&[253, 8, 0x52, 0x54]);
            }
            let seq = next.wrapping_add(random.random_range(0..60_000));
            let mut frame = segment(&pair, seq, &options, random.random_range(0..1400));
            if random.random_bool(0.2) {
                let at = random.random_range(12..frame.len().min(54));
                frame[at] = random.random();
            }
            assert_eq!(run(&frame), PASS);
        }
        let level = pair.receives(&agent)["receiving_level"].clone();
        assert!(
            level == Value::Null || level.as_u64() <= Some(24),
            "{level}"
        );

        // The connection works, and what it is told lets it go no further than Reno would.
        pair.transfer(500_000, || ());
    });
}
