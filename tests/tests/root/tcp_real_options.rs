//! What strangers send: TCP-Real's ingress program on options of any content, by the kernel's test run.

use std::net::IpAddr;

use bestby_tests::agent::Agent;
use bestby_tests::bpf::{Classifier, PASS, SkBuff};
use bestby_tests::frame::{ethernet, ip4_with, ip6, tag};
use bestby_tests::socket;
use libbpf_rs::Program;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::Value;

use crate::tcp_real_lab::*;

/// TCP of the peer's with these options, which are filled up to words.
fn tcp(pair: &Pair, seq: u32, flags: u8, options: &[u8], data: usize) -> Vec<u8> {
    let [to, from] = [pair.receiver.local_addr(), pair.receiver.peer_addr()].map(Result::unwrap);
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4).min(40), 0);
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let mut tcp = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 1, words << 4, flags, 1, 0, 0, 0, 0, 0]);
    tcp.extend(&options);
    tcp.resize(tcp.len() + data, 0x55);
    tcp
}

/// The same in IPv4, with options and a word of fragmentation of its own.
fn packet4(pair: &Pair, tcp: &[u8], fragment: u16, options: &[u8]) -> Vec<u8> {
    let ends = [pair.receiver.local_addr(), pair.receiver.peer_addr()].map(|end| end.unwrap().ip());
    let [IpAddr::V4(to), IpAddr::V4(from)] = ends else {
        panic!("not IPv4");
    };
    let mut ip = ip4_with(6, tcp, fragment, options, to.octets());
    ip[12..16].copy_from_slice(&from.octets());
    ip
}

/// The same in IPv6, behind these extension headers; `next` is the first one's number.
fn packet6(pair: &Pair, tcp: &[u8], next: u8, headers: &[u8]) -> Vec<u8> {
    let ends = [pair.receiver.local_addr(), pair.receiver.peer_addr()].map(|end| end.unwrap().ip());
    let [IpAddr::V6(to), IpAddr::V6(from)] = ends else {
        panic!("not IPv6");
    };
    let mut ip = ip6(next, &[headers, tcp].concat());
    ip[8..24].copy_from_slice(&from.octets());
    ip[24..40].copy_from_slice(&to.octets());
    ip
}

/// A segment of the peer's, in IPv4.
fn segment(pair: &Pair, seq: u32, options: &[u8], data: usize) -> Vec<u8> {
    ethernet(
        0x0800,
        &packet4(pair, &tcp(pair, seq, 0x10, options, data), 0, &[]),
    )
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

/// Whether segments of such frames count as waves: each begins a new one, which ends the one before.
fn counts(agent: &Agent, program: &Classifier, frame: impl Fn(u32, u8) -> Vec<u8>) -> bool {
    let waves = || count(agent, "measured") + count(agent, "unmeasured");
    let before = waves();
    for number in 0..6 {
        let verdict = program.run(
            &frame(u32::from(number) * 300, 50 + number),
            SkBuff::default(),
        );
        assert_eq!(verdict.verdict, PASS);
    }
    // The first may be the one that a wave before it ends with.
    waves() >= before + 5
}

#[test]
fn only_whole_segments_that_tcp_would_take_count() {
    with_agent(|lab, peer, agent| {
        switch_on(&agent);
        let connected = |address| {
            let listener = listen(lab, address);
            let mut pair = connect(lab, peer, &listener, REAL);
            pair.transfer(100_000, || ());
            pair
        };
        let program = Program::fd_from_pinned_path(lab.bpffs.join("real/ingress")).unwrap();
        let program = Classifier::new(program);
        let pair = connected(HERE[0]);
        let next = expected(&pair);
        let base = std::cell::Cell::new(next);
        // Later ones are beyond all before.
        let four = |flags: u8,
                    options: &dyn Fn(u8) -> Vec<u8>,
                    data,
                    wrap: &dyn Fn(Vec<u8>) -> Vec<u8>| {
            let from = base.get();
            base.set(from.wrapping_add(2000));
            counts(&agent, &program, |at, wave| {
                wrap(tcp(
                    &pair,
                    from.wrapping_add(at),
                    flags,
                    &options(wave),
                    data,
                ))
            })
        };
        let ours: &dyn Fn(u8) -> Vec<u8> = &|wave| valid(wave, 10).to_vec();
        let plain: &dyn Fn(Vec<u8>) -> Vec<u8> =
            &|tcp| ethernet(0x0800, &packet4(&pair, &tcp, 0, &[]));
        let shaped = |fragment: u16, options: &'static [u8], cut: usize| {
            let pair = &pair;
            move |tcp: Vec<u8>| {
                let mut frame = ethernet(0x0800, &packet4(pair, &tcp, fragment, options));
                frame.truncate(frame.len() - cut);
                frame
            }
        };
        assert!(four(0x10, ours, 300, plain));
        assert!(four(0x18, ours, 300, plain));
        assert!(four(0x11, ours, 300, plain), "with FIN");
        assert!(four(
            0x10,
            &|w| [&[1; 3][..], &valid(w, 10)].concat(),
            300,
            plain
        ));
        assert!(
            four(
                0x10,
                &|w| [valid(w, 10), valid(w, 0x80)].concat(),
                300,
                plain
            ),
            "the first counts"
        );
        assert!(four(
            0x10,
            &|w| [&[2, 4, 3, 232][..], &valid(w, 10)].concat(),
            300,
            plain
        ));
        assert!(
            four(0x10, ours, 300, &shaped(0x4000, &[1, 1, 1, 0], 0)),
            "IP options, not to be fragmented"
        );
        for (what, flags, data) in [
            ("SYN", 0x12, 300),
            ("RST", 0x14, 300),
            ("no ACK", 0x08, 300),
            ("no data", 0x10, 0),
        ] {
            assert!(!four(flags, ours, data, plain), "{what}");
        }
        assert!(
            !four(
                0x10,
                &|w| [valid(w, 0x80), valid(w, 10)].concat(),
                300,
                plain
            ),
            "the first counts"
        );
        assert!(
            !four(0x10, &|w| [&[0][..], &valid(w, 10)].concat(), 300, plain),
            "the list has ended"
        );
        assert!(
            !four(0x10, &|w| [&[9, 1][..], &valid(w, 10)].concat(), 300, plain),
            "the list is broken"
        );
        assert!(
            !four(
                0x10,
                &|w| [&[9, 39][..], &valid(w, 10)].concat(),
                300,
                plain
            ),
            "beyond it"
        );
        for (what, wrap) in [
            ("first fragment", shaped(0x2000, &[], 0)),
            ("later fragment", shaped(0x0010, &[], 0)),
            ("shorter than it says", shaped(0, &[], 1)),
            ("cut in its options", shaped(0, &[], 304)),
        ] {
            assert!(!four(0x10, ours, 300, &wrap), "{what}");
        }
        let tagged =
            |tcp: Vec<u8>| ethernet(0x8100, &tag(5, 0x0800, &packet4(&pair, &tcp, 0, &[])));
        assert!(
            !four(0x10, ours, 300, &tagged),
            "a second tag: the first one is gone by then"
        );
        let version = |tcp: Vec<u8>| {
            let mut ip = packet4(&pair, &tcp, 0, &[]);
            ip[0] = 0x65;
            ethernet(0x0800, &ip)
        };
        assert!(!four(0x10, ours, 300, &version), "another version");

        let pair = connected(HERE[1]);
        let base = std::cell::Cell::new(expected(&pair));
        let six = |next: u8, headers: &[u8], cut: usize| {
            let from = base.get();
            base.set(from.wrapping_add(2000));
            counts(&agent, &program, |at, wave| {
                let tcp = tcp(&pair, from.wrapping_add(at), 0x10, &valid(wave, 10), 300);
                let mut frame = ethernet(0x86dd, &packet6(&pair, &tcp, next, headers));
                frame.truncate(frame.len() - cut);
                frame
            })
        };
        // Hop-by-hop, routing and destination options, padded.
        let header = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        assert!(six(6, &[], 0));
        assert!(six(0, &header(6), 0));
        assert!(six(
            0,
            &[header(60), header(43), header(60), header(6)].concat(),
            0
        ));
        assert!(
            !six(
                0,
                &[header(60), header(43), header(60), header(60), header(6)].concat(),
                0
            ),
            "too many"
        );
        assert!(!six(44, &[6, 0, 0, 1, 0, 0, 0, 7], 0), "a fragment");
        assert!(
            !six(0, &[6, 255, 1, 4, 0, 0, 0, 0], 0),
            "a header beyond the packet"
        );
        assert!(!six(17, &[], 0), "not TCP");
        assert!(!six(6, &[], 1), "shorter than it says");
        let mut pair = pair;
        pair.transfer(100_000, || ());
    });
}
