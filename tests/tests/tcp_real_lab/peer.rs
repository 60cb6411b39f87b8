//! A TCP peer at a tun device whose segments are whatever a test makes of them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd};
use std::thread;
use std::time::Duration;

use bestby_netns::wait::Wait;
use bestby_tests::netns::{Lab, Netns, tun};
use bestby_tests::socket;
use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, PacketBuilder, SlicedPacket, TransportSlice};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{connected, in_cgroup};

/// The agent's end of the device.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(10, 9, 7, 1);
/// The peer.
pub(crate) const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 9, 7, 2);

/// How long it takes to answer.
pub(crate) const RTT: Duration = Duration::from_millis(5);

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const ECE: u8 = 0x40;

/// TCP-Real's option as a sender of ours writes it.
pub(crate) const fn option(wave: u8, wave_level: u8, rate: u8, next: u8) -> [u8; 8] {
    [253, 8, 0x52, 0x54, wave, wave_level, rate, next]
}

/// What it was sent.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) flags: u8,
    pub(crate) ports: (u16, u16),
    pub(crate) options: Vec<u8>,
    pub(crate) length: u32,
    /// Headers of IP, and the ports and sequence number of TCP: what ICMP quotes.
    pub(crate) quote: Vec<u8>,
}

impl Segment {
    /// Sequence number behind it.
    pub(crate) fn end(&self) -> u32 {
        let marks = self.flags & (SYN | FIN);
        self.seq.wrapping_add(self.length + marks.count_ones())
    }

    /// Our option in it, by a reader of the test's own.
    pub(crate) fn real(&self) -> Option<&[u8]> {
        let mut rest = &self.options[..];
        loop {
            match *rest {
                [1, ..] => rest = &rest[1..],
                [253, 8, 0x52, 0x54, ..] if rest.len() >= 8 => return Some(&rest[..8]),
                [_, length, ..] if (2..=rest.len()).contains(&usize::from(length)) => {
                    rest = &rest[usize::from(length)..];
                }
                _ => return None,
            }
        }
    }
}

/// The peer of one connection, or of many.
pub(crate) struct Stranger {
    tun: File,
    /// Its port, and the host's.
    pub(crate) ports: (u16, u16),
    /// Its next sequence number.
    pub(crate) seq: u32,
    /// The host's next one, as far as it has all before it.
    pub(crate) next: u32,
}

impl Stranger {
    /// Makes the device.
    pub(crate) fn new(netns: &Netns) -> Self {
        let tun = tun("t0");
        netns.run(&format!("ip addr add {HOST}/24 dev t0"));
        netns.run("ip link set t0 up");
        Self {
            tun,
            ports: (7000, 0),
            seq: 1_000_000,
            next: 0,
        }
    }

    /// The next TCP segment that is sent to it within this time.
    pub(crate) fn read(&mut self, wait: Duration) -> Option<Segment> {
        loop {
            let timeout = PollTimeout::try_from(wait).unwrap();
            let mut fds = [PollFd::new(self.tun.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout).unwrap() == 0 {
                return None;
            }
            let mut bytes = [0; 65536];
            let length = self.tun.read(&mut bytes).unwrap();
            let Ok(packet) = SlicedPacket::from_ip(&bytes[..length]) else {
                continue;
            };
            let Some(TransportSlice::Tcp(tcp)) = packet.transport else {
                continue; // neighbour discovery
            };
            return Some(Segment {
                seq: tcp.sequence_number(),
                flags: tcp.slice()[13],
                ports: (tcp.destination_port(), tcp.source_port()),
                options: tcp.options().to_vec(),
                length: tcp.payload().len() as u32,
                quote: bytes[..28].to_vec(),
            });
        }
    }

    /// Sends a segment; options are filled up to words.
    pub(crate) fn send_as(&mut self, seq: u32, ack: u32, flags: u8, options: &[u8], data: &[u8]) {
        let mut tcp = PacketBuilder::ipv4(STRANGER.octets(), HOST.octets(), 64)
            .tcp(self.ports.0, self.ports.1, seq, 65535)
            .options_raw(options)
            .unwrap();
        if flags & ACK != 0 {
            tcp = tcp.ack(ack);
        }
        if flags & SYN != 0 {
            tcp = tcp.syn();
        }
        if flags & RST != 0 {
            tcp = tcp.rst();
        }
        if flags & FIN != 0 {
            tcp = tcp.fin();
        }
        if flags & ECE != 0 {
            tcp = tcp.ece();
        }
        let mut packet = Vec::with_capacity(tcp.size(data.len()));
        tcp.write(&mut packet, data).unwrap();
        self.tun.write_all(&packet).unwrap();
    }

    /// Acknowledges all that it has in order.
    pub(crate) fn ack(&mut self, options: &[u8]) {
        self.send_as(self.seq, self.next, ACK, options, &[]);
    }

    /// Says that a segment was too large for a path of this MTU.
    pub(crate) fn too_large(&mut self, segment: &Segment, mtu: u16) {
        let message = PacketBuilder::ipv4(STRANGER.octets(), HOST.octets(), 64).icmpv4(
            Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu: mtu,
            }),
        );
        let mut packet = Vec::new();
        message.write(&mut packet, &segment.quote).unwrap();
        self.tun.write_all(&packet).unwrap();
    }

    /// Answers the SYN of a connection with these options; returns the SYN, and what completes the handshake.
    pub(crate) fn accept(&mut self, options: &[u8]) -> [Segment; 2] {
        let patience = Duration::from_secs(20);
        let syn = self.read(patience).unwrap();
        assert_eq!(syn.flags & (SYN | ACK), SYN);
        self.ports = syn.ports;
        self.next = syn.end();
        thread::sleep(RTT);
        // It takes part in ECN if it is asked to.
        let flags = SYN | ACK | syn.flags & ECE;
        self.send_as(self.seq, self.next, flags, options, &[]);
        self.seq = self.seq.wrapping_add(1);
        [syn, self.read(patience).unwrap()]
    }
}

/// What TCP_INFO says of a sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    /// Segments that are out.
    pub(crate) out: u32,
}

pub(crate) fn window(sender: &impl AsRawFd) -> Window {
    // Eight bytes, then words.
    let info: [u32; 26] = socket::get(sender, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap();
    Window {
        cwnd: info[20],
        ssthresh: info[19],
        out: info[6],
    }
}

/// Bytes of the SYN that the kernel keeps for a connection (TCP_SAVED_SYN).
pub(crate) fn saved_syn(receiver: &TcpStream) -> u32 {
    const TCP_SAVED_SYN: i32 = 28;
    let (mut bytes, mut size) = ([0_u8; 512], 512_u32);
    // SAFETY: the buffer is valid for the size said.
    let status = unsafe {
        libc::getsockopt(
            receiver.as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_SAVED_SYN,
            bytes.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    size
}

/// Options of a SYN, or of what answers it: 1000 bytes a segment, and ours.
pub(crate) fn speaks() -> Vec<u8> {
    [&[2, 4, 3, 232][..], &option(0, 0, 0, 0)].concat()
}

/// A connection of a socket in the lab's cgroup to the stranger, who answers with these options; and the handshake.
pub(crate) fn meet(
    lab: &Lab,
    stranger: &mut Stranger,
    control: &str,
    answer: &[u8],
) -> (TcpStream, [Segment; 2]) {
    let to = SocketAddr::from((STRANGER, stranger.ports.0));
    thread::scope(|scope| {
        let sender = scope.spawn(|| in_cgroup(&lab.cgroup, || connected(to, control)));
        let handshake = stranger.accept(answer);
        (sender.join().unwrap(), handshake)
    })
}

/// Acknowledges each segment that is in order, `delay` after it came, until there is enough; the rest is lost.
fn follow(stranger: &mut Stranger, delay: Duration, word: &[u8], mut enough: impl FnMut() -> bool) {
    let mut wait = Wait::new(Duration::from_secs(60));
    while !enough() {
        let Some(first) = stranger.read(Duration::from_millis(20)) else {
            assert!(wait.pause(), "the sender sends nothing");
            continue;
        };
        thread::sleep(delay);
        let mut segments = vec![first];
        while let Some(more) = stranger.read(Duration::ZERO) {
            segments.push(more);
        }
        for segment in segments {
            if segment.seq == stranger.next && !enough() {
                stranger.next = segment.end();
                stranger.ack(word);
            }
        }
    }
}

/// A connection whose sender has a window of 80 segments, all of them out; the peer said `word` all the time. `queue`
/// is what is added to the RTT while the second half of that window grows.
pub(crate) fn grown(
    lab: &Lab,
    stranger: &mut Stranger,
    control: &str,
    word: &[u8],
    queue: Duration,
) -> TcpStream {
    stranger.ports.0 += 1;
    let (mut sender, _) = meet(lab, stranger, control, &speaks());
    sender.set_nonblocking(true).unwrap();
    for (delay, cwnd) in [(RTT, 40), (RTT + queue, 80)] {
        follow(stranger, delay, word, || {
            while sender.write(&[0x55; 4096]).is_ok() {}
            window(&sender).cwnd >= cwnd
        });
    }
    thread::sleep(RTT);
    sender
}

/// Sends so many segments, one after the other; each is acknowledged with these options.
pub(crate) fn exchange(
    stranger: &mut Stranger,
    mut sender: &TcpStream,
    segments: usize,
    options: &[u8],
) {
    for number in 0..segments {
        sender.write_all(&[0x44; 500]).unwrap();
        let mut wait = Wait::new(Duration::from_secs(60));
        let until = stranger.next.wrapping_add(500);
        while stranger.next != until {
            match stranger.read(Duration::from_millis(20)) {
                Some(segment) if segment.end() == until => stranger.next = until,
                _ => assert!(wait.pause(), "segment {number}"),
            }
        }
        stranger.ack(options);
    }
}

/// Ends the connection for both.
pub(crate) fn reset(stranger: &mut Stranger) {
    stranger.send_as(stranger.seq, stranger.next, RST | ACK, &[], &[]);
    while stranger.read(Duration::from_millis(50)).is_some() {}
}

/// The same when the window has been reduced.
pub(crate) fn reduced(sender: &impl AsRawFd) -> Window {
    let mut wait = Wait::new(Duration::from_secs(60));
    while window(sender).ssthresh > 1_000_000 {
        assert!(wait.pause(), "no reduction: {:?}", window(sender));
    }
    window(sender)
}

/// What a loss, seen by duplicate acknowledgements, leaves of such a window: the window before it, and the threshold
/// after it.
pub(crate) fn loss(
    lab: &Lab,
    stranger: &mut Stranger,
    control: &str,
    word: &[u8],
    queue: Duration,
) -> (u32, u32) {
    let sender = grown(lab, stranger, control, word, queue);
    let before = window(&sender);
    for _ in 0..5 {
        stranger.ack(word);
    }
    let after = reduced(&sender);
    println!("{control}: {word:?}, {before:?}, {after:?}");
    reset(stranger);
    (before.cwnd, after.ssthresh)
}
