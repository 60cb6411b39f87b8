//! Numbered datagrams from one namespace to another: what was lost, and in which order the rest came.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::netns::Netns;
use crate::socket::force_buffer;

/// The far end of [`crate::netns::linked_lab`].
pub const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// Number's place in a datagram: behind bytes that look like neither RTP, STUN nor DTLS, which the classifier knows.
const NUMBER: usize = 8;
/// A datagram has at least this many bytes.
const HEADER: usize = NUMBER + 8;

/// Receives numbered datagrams in a namespace until told to stop.
#[derive(Debug)]
pub struct Counter {
    thread: thread::JoinHandle<Vec<u64>>,
    stop: Arc<AtomicBool>,
}

impl Counter {
    /// Listens on `address:port`.
    ///
    /// # Panics
    /// If the address cannot be used.
    pub fn new(netns: &Netns, address: IpAddr, port: u16) -> Self {
        let socket = netns.enter(|| UdpSocket::bind((address, port)).expect("binding"));
        force_buffer(&socket, libc::SO_RCVBUFFORCE, 8 << 20);
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .expect("a timeout");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let (mut buffer, mut seen) = ([0; 2048], Vec::new());
            loop {
                match socket.recv(&mut buffer) {
                    Ok(length) if length >= HEADER => {
                        seen.push(u64::from_ne_bytes(
                            buffer[NUMBER..HEADER].try_into().expect("8 bytes"),
                        ));
                    }
                    Ok(_) => {}
                    // Nothing more under way.
                    Err(_) if stopped.load(Ordering::Relaxed) => return seen,
                    Err(_) => {}
                }
            }
        });
        Self { thread, stop }
    }

    /// The numbers received, in order of arrival; waits until nothing comes any more.
    ///
    /// # Panics
    /// If the receiver did.
    pub fn finish(self) -> Vec<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the receiver")
    }

    /// Ends the counting: each of `sent` (ascending) must have come once, and nothing else.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn expect_all(self, sent: &[u64]) {
        let mut seen = self.finish();
        seen.sort_unstable();
        assert!(
            seen == sent,
            "of {} packets {} arrived",
            sent.len(),
            seen.len()
        );
    }
}

/// Sends numbered datagrams of `size` bytes at a steady pace while `keep_going` says so; returns how many.
///
/// # Panics
/// If the kernel refuses one.
pub fn send_numbered(
    netns: &Netns,
    to: (IpAddr, u16),
    size: usize,
    pace: Duration,
    keep_going: impl Fn(u64) -> bool + Sync,
) -> u64 {
    netns.enter(|| {
        let any: IpAddr = if to.0.is_ipv4() {
            [0; 4].into()
        } else {
            [0; 16].into()
        };
        let socket = UdpSocket::bind((any, 0)).expect("binding");
        let mut packet = vec![0xffu8; size.max(HEADER)];
        let (mut number, start) = (0_u64, Instant::now());
        while keep_going(number) {
            packet[NUMBER..HEADER].copy_from_slice(&number.to_ne_bytes());
            socket
                .send_to(&packet, to)
                .unwrap_or_else(|e| panic!("sending packet {number}: {e}"));
            number += 1;
            let due = pace * u32::try_from(number).expect("few packets");
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
        number
    })
}

/// Sends `each` numbered datagrams from each of two CPUs through one socket, pair by pair at once; the numbers, sorted.
///
/// # Panics
/// If the kernel refuses one.
pub fn send_on_both(netns: &Netns, port: u16, each: u64) -> Vec<u64> {
    let socket = netns.enter(|| UdpSocket::bind("0.0.0.0:0").expect("binding"));
    socket.connect((PEER, port)).unwrap();
    let sent = crate::cpu::on_both(|cpu, start| {
        let mut packet = [0xffu8; 200];
        let numbers = (0..each).map(|n| (cpu as u64) << 32 | n);
        numbers
            .inspect(|number| {
                packet[NUMBER..HEADER].copy_from_slice(&number.to_ne_bytes());
                start.together();
                socket.send(&packet).unwrap();
            })
            .collect::<Vec<_>>()
    });
    sent.concat()
}

/// Sends numbered datagrams to [`PEER`], many at once as one packet (UDP GSO).
#[derive(Debug)]
pub struct SuperPackets {
    socket: UdpSocket,
    size: usize,
    next: u64,
}

impl SuperPackets {
    /// From `netns` to `port`, datagrams of `size` bytes.
    ///
    /// # Panics
    /// On a kernel without UDP GSO (4.18).
    pub fn new(netns: &Netns, port: u16, size: usize) -> Self {
        const UDP_SEGMENT: i32 = 103;
        let socket = netns.enter(|| UdpSocket::bind("0.0.0.0:0").expect("binding"));
        socket.connect((PEER, port)).unwrap();
        force_buffer(&socket, libc::SO_SNDBUFFORCE, 8 << 20);
        let segment = i32::try_from(size).unwrap();
        crate::socket::set(&socket, libc::IPPROTO_UDP, UDP_SEGMENT, &segment).unwrap();
        Self {
            socket,
            size,
            next: 0,
        }
    }

    /// Sends the next `count` datagrams as one packet.
    ///
    /// # Panics
    /// If the kernel refuses it.
    pub fn send(&mut self, count: usize) {
        let mut packet = vec![0xffu8; count * self.size];
        for datagram in packet.chunks_exact_mut(self.size) {
            datagram[NUMBER..HEADER].copy_from_slice(&self.next.to_ne_bytes());
            self.next += 1;
        }
        self.socket.send(&packet).unwrap();
    }

    /// Datagrams sent so far: their numbers are all below.
    pub fn sent(&self) -> u64 {
        self.next
    }
}

/// What is sent while a test disturbs the path.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Destination port at [`PEER`].
    pub port: u16,
    /// Bytes of a datagram, 16 at least.
    pub size: usize,
    /// Between two datagrams.
    pub pace: Duration,
    /// Datagrams sent at least.
    pub least: u64,
    /// How long it lasts before the disturbance, and after it.
    pub around: Duration,
}

impl Load {
    /// Sends from `netns` to `peer` before, during and after `disturb`. Returns how many were sent, and the counter
    /// of those that arrived.
    ///
    /// # Panics
    /// As `disturb` does.
    pub fn during(self, netns: &Netns, peer: &Netns, disturb: impl FnOnce()) -> (u64, Counter) {
        let counter = Counter::new(peer, PEER, self.port);
        let stop = AtomicBool::new(false);
        let sent = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                send_numbered(netns, (PEER, self.port), self.size, self.pace, |n| {
                    n < self.least || !stop.load(Ordering::Relaxed)
                })
            });
            thread::sleep(self.around);
            let result = panic::catch_unwind(panic::AssertUnwindSafe(disturb));
            thread::sleep(self.around);
            stop.store(true, Ordering::Relaxed);
            let sent = sender.join().unwrap();
            if let Err(panic) = result {
                panic::resume_unwind(panic);
            }
            sent
        });
        (sent, counter)
    }
}

/// Plain traffic that was dropped until now because it waited for long: by fq_codel below mode tc, or by bestby's own
/// queue.
#[track_caller]
pub fn dropped_plain(netns: &Netns, agent: &Agent, dev: &str) -> u64 {
    let own = agent.stats()["interfaces"][dev]["dropped"]["codel"].as_u64();
    let shown = netns.run(&format!("tc -s -json qdisc show dev {dev}"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    // HTB counts what its leaves drop once more; bestby's own queue may drop nothing else here.
    let below: u64 = shown
        .as_array()
        .unwrap()
        .iter()
        .filter(|q| q["kind"] == "fq_codel" || q["kind"] == "bfifo")
        .map(|q| q["drops"].as_u64().unwrap_or(0))
        .sum();
    own.unwrap() + below
}

/// Numbers that arrived in order: all of `sent`, but for so many that were dropped.
///
/// # Panics
/// If others are missing, or came in another order.
#[track_caller]
pub fn assert_nothing_else_lost(seen: &[u64], sent: u64, dropped: u64) {
    assert!(seen.is_sorted(), "out of order: {seen:?}");
    let arrived = seen.len() as u64;
    assert_eq!(arrived + dropped, sent, "{dropped} were dropped: {seen:?}");
}
