//! What a packet must look like of which only the headers are left.
#![allow(clippy::unwrap_used)]

use std::{
    net::UdpSocket,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use crate::{
    netns::{Netns, ifindex},
    socket::set,
};

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// The one's complement sum of these bytes, folded.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Where the IP header and the transport header start, and the transport protocol.
fn layout(frame: &[u8]) -> (usize, usize, u8) {
    let mut network = 14;
    while matches!(be16(frame, network - 2), 0x8100 | 0x88a8) {
        network += 4;
    }
    if frame[network] >> 4 == 4 {
        let header = usize::from(frame[network] & 15) * 4;
        return (network, network + header, frame[network + 9]);
    }
    let (mut at, mut next) = (network + 40, frame[network + 6]);
    while matches!(next, 0 | 43 | 44 | 60) {
        next = frame[at];
        at += usize::from(frame[at + 1]) * 8 + 8;
    }
    (network, at, next)
}

/// The frame with right checksums of IPv4, and of UDP, UDP-Lite, TCP and DCCP if it is whole. Its transport header
/// reaches from the end of IP's to the end of the frame.
#[must_use]
pub fn checksummed(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    let (network, transport, proto) = layout(frame);
    let four = frame[network] >> 4 == 4;
    if four {
        out[network + 10..network + 12].fill(0);
        let check = !sum(&out[network..transport]) as u16;
        out[network + 10..network + 12].copy_from_slice(&check.to_be_bytes());
    }
    let at = transport
        + match proto {
            6 => 16,
            17 | 33 | 136 => 6,
            _ => return out,
        };
    out[at..at + 2].fill(0);
    let length = out.len() - transport;
    let covered = match (proto, be16(frame, transport + 4)) {
        (136, coverage @ 1..) => coverage,
        (33, _) if frame[transport + 5] & 15 == 1 => usize::from(frame[transport + 4]) * 4,
        _ => length,
    };
    let addresses = if four {
        network + 12..network + 20
    } else {
        network + 8..network + 40
    };
    let pseudo = sum(&frame[addresses]) + length as u32 + u32::from(proto);
    let total = sum(&out[transport..transport + covered]) + pseudo;
    let check = match !sum(&total.to_be_bytes()) as u16 {
        0 if proto != 6 => 0xffff,
        check => check,
    };
    out[at..at + 2].copy_from_slice(&check.to_be_bytes());
    out
}

/// What is left of this frame if `kept` bytes of its transport header are: with right lengths and checksums, and
/// without RTP's padding.
#[must_use]
pub fn headers(frame: &[u8], kept: usize) -> Vec<u8> {
    let (network, transport, proto) = layout(frame);
    let mut out = frame[..transport + kept].to_vec();
    let (at, length) = if frame[network] >> 4 == 4 {
        (network + 2, out.len() - network)
    } else {
        (network + 4, out.len() - network - 40)
    };
    let be = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
    out[at..at + 2].copy_from_slice(&be(length));
    if proto == 17 || (proto == 136 && be16(frame, transport + 4) != 0) {
        out[transport + 4..transport + 6].copy_from_slice(&be(kept));
    }
    if proto == 17 && kept > 8 {
        out[transport + 8] &= !0x20;
    }
    checksummed(&out)
}

/// The address of a device.
#[must_use]
pub fn mac(netns: &Netns, device: &str) -> [u8; 6] {
    let shown = netns.run(&format!("ip -o link show {device}"));
    let address = shown.split("link/ether ").nth(1).unwrap();
    let mut bytes = address[..17]
        .split(':')
        .map(|b| u8::from_str_radix(b, 16).unwrap());
    std::array::from_fn(|_| bytes.next().unwrap())
}

/// A packet socket of one device of the calling thread's namespace.
#[derive(Debug)]
pub struct Raw(OwnedFd);

impl Raw {
    /// Sends and receives whole frames; waits for a second at most.
    #[must_use]
    pub fn open(device: &str) -> Self {
        // SAFETY: plain system calls; the address is a zeroed sockaddr_ll, filled here, and outlives the call.
        unsafe {
            let all = (libc::ETH_P_ALL as u16).to_be();
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_PACKET, kind, all.into());
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut at: libc::sockaddr_ll = std::mem::zeroed();
            at.sll_family = libc::AF_PACKET as u16;
            at.sll_protocol = all;
            at.sll_ifindex = ifindex(device) as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const at).cast(), size), 0);
            set(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &[1i64, 0]).unwrap();
            Self(fd)
        }
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the slice is valid for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(usize::try_from(sent), Ok(frame.len()));
    }

    /// The next frame that came in, of IPv4 and this protocol.
    #[must_use]
    pub fn receive(&self, proto: u8) -> Option<Vec<u8>> {
        self.matching(|frame| frame.len() > 34 && be16(frame, 12) == 0x0800 && frame[23] == proto)
    }

    /// The next frame of which this holds.
    #[must_use]
    pub fn matching(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        loop {
            let mut frame = vec![0; 2000];
            // SAFETY: the buffer is valid for its length.
            let got = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    0,
                )
            };
            frame.truncate(usize::try_from(got).ok()?);
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }
}

/// A socket in a namespace that waits for seconds.
#[must_use]
pub fn receiver(netns: &Netns, address: &str, port: u16) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind((address, port)).unwrap());
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    socket
}

/// Lets the device make the checksums of what it sends, or the kernel.
pub fn checksum_offload(device: &str, on: bool) {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let value = [ETHTOOL_STXCSUM, on.into()];
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_ptr().cast_mut().cast();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: the request and what it points to are valid and outlive the call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}
