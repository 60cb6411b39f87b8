//! A packet socket that sees what leaves one device, and changes nothing there.
//!
//! The filter runs before a packet is copied, so unwanted packets cost little: packets that come in, and other
//! protocols than IP. Where there are too many packets, the filter leaves out whole flows, because RTP is known by
//! packets that follow each other.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockFilter, Socket, Type};

/// Bytes of a packet that are copied, from its network header on: all headers, the first packet of MPEG-TS, and the
/// latency in a handshake of SRT.
pub(crate) const SNAP: u32 = 256;
/// Memory for packets that wait to be read, bytes; the kernel counts some 800 for each.
const BUFFER: usize = 8 << 20;
/// How long a read waits, so that the reader sees that it is to end.
const WAIT: Duration = Duration::from_millis(50);
/// Mixes a flow's addresses and ports.
const MIX: u32 = 0x9e37_79b1;

/// An instruction of the filter: code, jumps if it is so and if not, operand.
type Op = (u16, u8, u8, u32);

/// The filter for one of 2^`shift` flows.
fn filter(shift: u32) -> Vec<Op> {
    // Places beyond the packet: its type, and its protocol (linux/filter.h).
    const TYPE: u32 = (-0x1000_i32 + 4).cast_unsigned();
    const PROTOCOL: u32 = (-0x1000_i32).cast_unsigned();
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const LOAD_X: u16 = 0x40; // BPF_LD | BPF_W | BPF_IND
    const HEADER: u16 = 0xb1; // BPF_LDX | BPF_B | BPF_MSH
    const STORE: u16 = 0x02;
    const LOAD_MEMORY_X: u16 = 0x61; // BPF_LDX | BPF_MEM
    const TAKE_X: u16 = 0x07; // BPF_MISC | BPF_TAX
    const XOR: u16 = 0xac; // BPF_ALU | BPF_XOR | BPF_X
    const MULTIPLY: u16 = 0x24;
    const RIGHT: u16 = 0x74;
    const AND: u16 = 0x54;
    const EQUAL: u16 = 0x15;
    const JUMP: u16 = 0x05;
    const RETURN: u16 = 0x06;
    let op = |code, k| (code, 0, 0, k);
    let jump = |k, yes, no| (EQUAL, yes, no, k);
    let mut all = vec![
        op(LOAD, TYPE),
        jump(u32::from(libc::PACKET_OUTGOING), 1, 0),
        op(RETURN, 0),
        op(LOAD, PROTOCOL),
        // Tags may be in front of these: what is behind them is looked at later.
        jump(0x8100, 4, 0),
        jump(0x88a8, 3, 0),
        jump(0x0800, 3, 0),
        jump(0x86dd, 3, 0),
        op(RETURN, 0),
        op(RETURN, SNAP),
    ];
    // Of IPv4 and IPv6 from here on.
    let mix = |all: &mut Vec<Op>| {
        all.push(op(MULTIPLY, MIX));
        all.push(op(RIGHT, 16));
        all.push(op(AND, (1 << shift) - 1));
        all.push(jump(0, 1, 0));
        all.push(op(RETURN, 0));
        all.push(op(RETURN, SNAP));
    };
    let mut v4 = vec![
        op(LOAD, 12),
        op(STORE, 0),
        op(LOAD, 16),
        op(LOAD_MEMORY_X, 0),
        op(XOR, 0),
        op(STORE, 0),
        op(HEADER, 0),
        op(LOAD_X, 0),
        op(LOAD_MEMORY_X, 0),
        op(XOR, 0),
    ];
    mix(&mut v4);
    let mut v6 = vec![op(LOAD, 8)];
    for at in (12..=40).step_by(4) {
        v6.push(op(TAKE_X, 0));
        v6.push(op(LOAD, at));
        v6.push(op(XOR, 0));
    }
    mix(&mut v6);
    // The two jumps above lead to these two.
    all.push(op(JUMP, 1));
    all.push(op(JUMP, u32::try_from(v4.len()).unwrap_or(0)));
    all.extend(v4);
    all.extend(v6);
    all
}

fn attach(socket: &Socket, shift: u32) -> io::Result<()> {
    let ops = filter(shift).into_iter();
    let ops: Vec<SockFilter> = ops
        .map(|(code, yes, no, k)| SockFilter::new(code, yes, no, k))
        .collect();
    socket.attach_filter(&ops)
}

/// The filter's number of a flow: flows with 0 in the lowest bits stay.
pub(crate) fn mixed(src: IpAddr, dst: IpAddr, sport: u16, dport: u16) -> u32 {
    fn words(of: IpAddr) -> u32 {
        let xor = |bytes: &[u8]| {
            let words = bytes.chunks_exact(4);
            words.fold(0, |all, w| {
                all ^ w.first_chunk().map_or(0, |w| u32::from_be_bytes(*w))
            })
        };
        match of {
            IpAddr::V4(of) => xor(&of.octets()),
            IpAddr::V6(of) => xor(&of.octets()),
        }
    }
    let ports = u32::from(sport) << 16 | u32::from(dport);
    (words(src) ^ words(dst) ^ ports).wrapping_mul(MIX) >> 16
}

/// The socket.
pub(crate) struct Capture(Socket);

impl Capture {
    /// Sees what leaves the device of this index from now on.
    ///
    /// # Errors
    /// No CAP_NET_RAW, or there is no such device.
    pub(crate) fn open(ifindex: u32) -> io::Result<Self> {
        // Without a protocol it sees nothing until the filter is there.
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, None)?;
        attach(&socket, 0)?;
        set_buffer(&socket);
        socket.set_read_timeout(Some(WAIT))?;
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: the storage is zeroed and large enough for any address; a sockaddr_ll is plain data, and all that the
        // kernel reads of it is written.
        let ((), address) = unsafe {
            SockAddr::try_init(|storage, length| {
                let address = storage.cast::<libc::sockaddr_ll>();
                (*address).sll_family = libc::AF_PACKET as u16;
                (*address).sll_protocol = all;
                (*address).sll_ifindex = i32::try_from(ifindex).unwrap_or(0);
                *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                Ok(())
            })
        }?;
        socket.bind(&address)?;
        Ok(Self(socket))
    }

    /// Keeps one of 2^`shift` flows, `shift` at most 15.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(crate) fn thin(&self, shift: u32) -> io::Result<()> {
        attach(&self.0, shift.min(15))
    }

    /// The next packet and whether tags may come before its network header; `None`: none came for some time.
    ///
    /// # Errors
    /// The device is gone or down.
    pub(crate) fn next<'a>(&self, room: &'a mut [u8]) -> io::Result<Option<(&'a [u8], bool)>> {
        let mut from = libc::sockaddr_ll {
            sll_family: 0,
            sll_protocol: 0,
            sll_ifindex: 0,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointers are to `room` and to a sockaddr_ll with their lengths, which the kernel fills at most.
        let got = unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                room.as_mut_ptr().cast(),
                room.len(),
                0,
                (&raw mut from).cast(),
                &raw mut length,
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let e = io::Error::last_os_error();
            return match e.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(e),
            };
        };
        let protocol = u16::from_be(from.sll_protocol);
        let tagged = protocol == 0x8100 || protocol == 0x88a8;
        Ok(room.get(..got).map(|bytes| (bytes, tagged)))
    }

    /// Packets that found no room since this was asked last.
    pub(crate) fn missed(&self) -> u64 {
        let mut counts = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the pointer is to plain data of `length` bytes, which the kernel fills at most.
        let done = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counts).cast(),
                &raw mut length,
            )
        };
        if done == 0 {
            u64::from(counts.tp_drops)
        } else {
            0
        }
    }
}

/// Beyond the limit of the host where that is allowed, else as much as it allows.
fn set_buffer(socket: &Socket) {
    let bytes = i32::try_from(BUFFER).unwrap_or(i32::MAX);
    // SAFETY: the pointer is to an int of the given length.
    let forced = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if forced != 0 {
        // With less memory more packets are missed, which the answer says.
        let _ = socket.set_recv_buffer_size(BUFFER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that the filter keeps of a packet, as the kernel runs it (net/core/filter.c).
    fn run(ops: &[Op], kind: u32, protocol: u32, packet: &[u8]) -> u32 {
        let (mut a, mut x, mut memory, mut at) = (0_u32, 0_u32, [0_u32; 16], 0);
        let word = |at: u32| {
            let bytes = packet.get(at as usize..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        loop {
            let (code, yes, no, k) = ops[at];
            at += 1;
            match code {
                0x20 if k == (-0x1000_i32).cast_unsigned() => a = protocol,
                0x20 if k == (-0x0ffc_i32).cast_unsigned() => a = kind,
                0x20 | 0x40 => match word(if code == 0x40 { x + k } else { k }) {
                    Some(value) => a = value,
                    None => return 0,
                },
                0xb1 => x = u32::from(packet[k as usize] & 15) * 4,
                0x02 => memory[k as usize] = a,
                0x61 => x = memory[k as usize],
                0x07 => x = a,
                0xac => a ^= x,
                0x24 => a = a.wrapping_mul(k),
                0x74 => a >>= k,
                0x54 => a &= k,
                0x15 => at += usize::from(if a == k { yes } else { no }),
                0x05 => at += k as usize,
                0x06 => return k,
                other => panic!("{other:#x}"),
            }
        }
    }

    fn v4(of: u8, port: u16) -> (Vec<u8>, u32) {
        let mut packet = vec![0x46; 20];
        packet[12..20].copy_from_slice(&[10, 0, 0, of, 10, 0, 1, 2]);
        packet.extend([1; 4]); // an option
        packet.extend(5004_u16.to_be_bytes());
        packet.extend(port.to_be_bytes());
        let [src, dst] = [[10, 0, 0, of], [10, 0, 1, 2]].map(IpAddr::from);
        (packet, mixed(src, dst, 5004, port))
    }

    fn v6(of: u8, port: u16) -> (Vec<u8>, u32) {
        let (mut src, mut dst) = ([0xfd; 16], [0x20; 16]);
        (src[15], dst[3]) = (of, of);
        let mut packet = vec![0x60; 8];
        packet.extend(src);
        packet.extend(dst);
        packet.extend(5004_u16.to_be_bytes());
        packet.extend(port.to_be_bytes());
        (packet, mixed(src.into(), dst.into(), 5004, port))
    }

    #[test]
    fn filter_keeps_what_leaves_and_the_flows_of_its_share() {
        const OUT: u32 = 4;
        for shift in [0, 1, 3, 15] {
            let ops = filter(shift);
            let mut kept = 0;
            for n in 0..=255 {
                for (protocol, (packet, number)) in [
                    (0x0800, v4(n, u16::from(n) * 7)),
                    (0x86dd, v6(n, u16::from(n) * 7)),
                ] {
                    let stays = number & ((1 << shift) - 1) == 0;
                    let bytes = if stays { SNAP } else { 0 };
                    assert_eq!(run(&ops, OUT, protocol, &packet), bytes, "{shift} {n}");
                    kept += usize::from(stays);
                    // To this host.
                    assert_eq!(run(&ops, 0, protocol, &packet), 0);
                }
            }
            assert!(
                shift > 3 || kept * 2 > 512 >> shift && kept < 1024 >> shift,
                "{shift}: {kept}"
            );
            let (packet, _) = v4(1, 1);
            assert_eq!(run(&ops, OUT, 0x8100, &packet), SNAP);
            assert_eq!(run(&ops, OUT, 0x0806, &packet), 0);
            assert_eq!(run(&ops, OUT, 0x0800, &packet[..22]), 0);
        }
    }
}
