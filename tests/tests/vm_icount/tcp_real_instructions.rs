//! What TCP-Real costs a segment, in instructions. In virtual time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use bestby_tests::agent::Agent;
use bestby_tests::clock::now_ns;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::require;

use crate::tcp_real_lab::*;

const NS_PER_INSTRUCTION: u64 = 2;
/// Instructions that a segment may cost more than Reno's, at both ends and with what acknowledges it.
/// (2,750 to 3,800 measured: what the agent does meanwhile differs.)
const MOST: u64 = 5_000;

/// A lab whose link costs nothing but instructions.
fn site(test: impl FnOnce(&Lab, &Netns, &Agent) + Send) {
    linked_lab(require::root(), |lab, peer| {
        // Each segment is a packet, as on the way of a slow link.
        peer.run("ip link set dev v1 gso_max_segs 1");
        test(lab, peer, &Agent::start(lab, &[]));
    });
}

/// Sends so many bytes, by programs that do nothing else.
fn pour(pair: &Pair, bytes: usize) {
    thread::scope(|scope| {
        let (mut sender, mut receiver) = (&pair.sender, &pair.receiver);
        scope.spawn(move || sender.write_all(&vec![0x55; bytes]).unwrap());
        let (mut block, mut left) = (vec![0; 1 << 18], bytes);
        while left > 0 {
            left -= receiver.read(&mut block).unwrap();
        }
    });
}

#[test]
fn segment_costs_a_bounded_number_of_instructions() {
    site(|lab, peer, agent| {
        let cost = |control: &str| {
            let listener = listen(lab, HERE[0]);
            let pair = connect(lab, peer, &listener, control);
            pour(&pair, 2_000_000);
            let (before, sent) = (now_ns(), segments(&pair.sender));
            pour(&pair, 6_000_000);
            let took = now_ns() - before;
            let sent = segments(&pair.sender) - sent;
            println!("{control}: {sent} segments, {}", pair.sends(agent));
            took / sent / NS_PER_INSTRUCTION
        };
        // The least of three: whatever else the kernel and the agent do meanwhile comes on top.
        let least = |control: &str| (0..3).map(|_| cost(control)).min().unwrap();
        let plain = least("reno");
        switch_on(agent);
        let (option, real) = (least("reno"), least(REAL));
        println!("instructions a segment: Reno {plain}, with the option {option}, TCP-Real {real}");
        assert!(real > plain && real - plain < MOST, "{plain} {real}");
    });
}

/// Segments that it has sent.
fn segments(sender: &TcpStream) -> u64 {
    // Eight bytes and 24 words, four of 64 bits, then tcpi_segs_out.
    let info: [u32; 35] =
        bestby_tests::socket::get(sender, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap();
    info[34].into()
}
