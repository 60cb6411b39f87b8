//! Echo requests that leave by one interface. The BPF programs note when they leave and when they are answered; this
//! end reads nothing.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, SocketAddrV6};
use std::os::fd::{AsRawFd as _, OwnedFd};

use bestby_bpf::abi;
use etherparse::{IcmpEchoHeader, Icmpv4Header, Icmpv4Type};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, SockaddrIn6, sendto,
    setsockopt, socket, sockopt,
};

/// Type of an echo request of ICMPv6 (RFC 4443).
const ECHO6: u8 = 128;

/// An echo request: what the interface knows it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Counts requests of an interface, and wraps.
    pub sequence: u16,
    /// `bb_auto_end.nonce`.
    pub nonce: u64,
}

impl Echo {
    /// One for each end: middleboxes follow echo requests by it.
    fn identifier(&self) -> u16 {
        (self.nonce >> 16) as u16
    }

    /// The message without its IP header.
    pub fn message(&self, ipv6: bool) -> [u8; abi::BB_ECHO_BYTES as usize] {
        let nonce = self.nonce.to_ne_bytes();
        let header = if ipv6 {
            // The kernel computes the checksum: it alone knows the source address.
            let [id, seq] = [self.identifier(), self.sequence].map(u16::to_be_bytes);
            [ECHO6, 0, 0, 0, id[0], id[1], seq[0], seq[1]]
        } else {
            let echo = Icmpv4Type::EchoRequest(IcmpEchoHeader {
                id: self.identifier(),
                seq: self.sequence,
            });
            let bytes = Icmpv4Header::with_checksum(echo, &nonce).to_bytes();
            bytes.first_chunk().copied().unwrap_or_default()
        };
        let mut message = [0; abi::BB_ECHO_BYTES as usize];
        message[..8].copy_from_slice(&header);
        message[8..].copy_from_slice(&nonce);
        message
    }
}

/// Bytes of an echo request on an Ethernet, with its IP header.
pub const fn wire_bytes(to: IpAddr) -> u64 {
    let ip = if to.is_ipv4() { 20 } else { 40 };
    14 + ip + abi::BB_ECHO_BYTES as u64
}

/// A raw socket of one family, bound to an interface.
#[derive(Debug)]
pub struct EchoSocket {
    fd: OwnedFd,
    ipv6: bool,
}

impl EchoSocket {
    /// Opens one for addresses of the family of `to`.
    ///
    /// # Errors
    /// No CAP_NET_RAW, or no such interface.
    pub fn open(dev: &str, to: IpAddr) -> io::Result<Self> {
        let ipv6 = to.is_ipv6();
        let (family, protocol) = if ipv6 {
            (AddressFamily::Inet6, SockProtocol::IcmpV6)
        } else {
            (AddressFamily::Inet, SockProtocol::Icmp)
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(family, SockType::Raw, flags, protocol)?;
        setsockopt(&fd, sockopt::BindToDevice, &OsString::from(dev))?;
        // A raw socket gets a copy of every ICMP message. The kernel keeps two or so of them, and drops the others.
        setsockopt(&fd, sockopt::RcvBuf, &0)?;
        Ok(Self { fd, ipv6 })
    }

    /// Whether it is for addresses of the family of `to`.
    pub const fn fits(&self, to: IpAddr) -> bool {
        self.ipv6 == to.is_ipv6()
    }

    /// Sends a request through the interface of this index.
    ///
    /// # Errors
    /// No route, the interface is down, or its queue dropped it.
    pub fn send(&self, to: IpAddr, ifindex: u32, echo: &Echo) -> io::Result<()> {
        let message = echo.message(self.ipv6);
        let (fd, flags) = (self.fd.as_raw_fd(), MsgFlags::empty());
        match to {
            IpAddr::V4(to) => {
                let [a, b, c, d] = to.octets();
                sendto(fd, &message, &SockaddrIn::new(a, b, c, d, 0), flags)
            }
            IpAddr::V6(to) => {
                // Where an address is of one link only, it is this one.
                let scope = if to.is_unicast_link_local() {
                    ifindex
                } else {
                    0
                };
                let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, scope));
                sendto(fd, &message, &to, flags)
            }
        }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Echo = Echo {
        sequence: 0xfffe,
        nonce: 0x1122_3344_5566_7788,
    };

    #[test]
    fn echo_request_has_number_and_nonce_where_the_programs_look() {
        for (ipv6, kind) in [(false, 8), (true, 128)] {
            let message = ECHO.message(ipv6);
            assert_eq!(message[..2], [kind, 0]);
            assert_eq!(message[4..8], [0x55, 0x66, 0xff, 0xfe]);
            assert_eq!(message[8..], ECHO.nonce.to_ne_bytes());
        }
    }

    #[test]
    fn echo_request_of_icmp_has_a_valid_checksum() {
        let message = ECHO.message(false);
        let words = message.chunks_exact(2);
        let sum: u32 = words
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn bytes_on_the_wire_are_those_of_headers_and_nonce() {
        assert_eq!(wire_bytes("192.0.2.1".parse().unwrap()), 50);
        assert_eq!(wire_bytes("2001:db8::1".parse().unwrap()), 70);
    }
}
