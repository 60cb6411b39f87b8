//! One packet of a probe, and its answer.
//!
//! Each packet has a socket of its own, so that an answer says which packet it answers. Without a port it is an echo
//! request: only the receiver itself answers it. With a port it is a datagram, and the answer is any datagram from
//! there, or that the receiver says by ICMP that nobody listens. The same words of a router on the way are no answer:
//! firewalls refuse packets like this.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Slice, Icmpv4Type, Icmpv6Header, Icmpv6Slice, Icmpv6Type,
    Ipv4HeaderSlice,
};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, connect, recv, recvmsg, send, setsockopt, socket, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An ICMP error alone does not make a socket readable.
const NEWS: Interest = Interest::READABLE.add(Interest::ERROR);

/// A socket that has one packet to send.
#[derive(Debug)]
pub(super) struct Question {
    socket: AsyncFd<OwnedFd>,
    to: SocketAddr,
    /// Of an echo request; a datagram has none.
    echo: Option<Echo>,
}

/// What tells one's own echoes from others'.
#[derive(Debug, Clone, Copy)]
pub(super) struct Echo {
    pub(super) header: IcmpEchoHeader,
    pub(super) cookie: [u8; 8],
}

impl Question {
    /// A question to one receiver; `option` goes into its IP header, `mark` is the packet's.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, without a route, or if the address is of no single host.
    pub(super) fn new(
        to: SocketAddr,
        echo: Option<Echo>,
        option: Option<&[u8]>,
        mark: Option<u32>,
    ) -> io::Result<Self> {
        let family = if to.is_ipv4() {
            AddressFamily::Inet
        } else {
            AddressFamily::Inet6
        };
        let (kind, protocol) = match (echo, to) {
            (None, _) => (SockType::Datagram, SockProtocol::Udp),
            (Some(_), SocketAddr::V4(_)) => (SockType::Raw, SockProtocol::Icmp),
            (Some(_), SocketAddr::V6(_)) => (SockType::Raw, SockProtocol::IcmpV6),
        };
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let socket = socket(family, kind, flags, protocol)?;
        // Errors come with the address of who sent them, and the own host's refusal comes at all.
        if to.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        }
        if let Some(mark) = mark {
            setsockopt(&socket, sockopt::Mark, &mark)?;
        }
        if let Some(option) = option {
            set_ip_option(&socket, to.ip(), option)?;
        }
        connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
        // SAFETY: it owns the descriptor, and lives until it closes it.
        let socket = unsafe { AsyncFd::register_with_interest(socket, NEWS)? };
        Ok(Self { socket, to, echo })
    }

    /// Sends it.
    ///
    /// # Errors
    /// If this host refuses it: its firewall or its queue does.
    pub(super) fn ask(&self) -> io::Result<()> {
        let packet = match (&self.echo, self.to) {
            (None, _) => b"bestby probe".to_vec(),
            (Some(echo), SocketAddr::V4(_)) => {
                let kind = Icmpv4Type::EchoRequest(echo.header);
                let header = Icmpv4Header::with_checksum(kind, &echo.cookie).to_bytes();
                [&header[..], &echo.cookie].concat()
            }
            (Some(echo), SocketAddr::V6(_)) => {
                // The kernel makes the checksum.
                let header = Icmpv6Header::new(Icmpv6Type::EchoRequest(echo.header)).to_bytes();
                [&header[..], &echo.cookie].concat()
            }
        };
        send(
            self.socket.get_ref().as_raw_fd(),
            &packet,
            MsgFlags::empty(),
        )?;
        Ok(())
    }

    /// Waits until it is answered; without an answer for ever.
    ///
    /// # Errors
    /// If there is nothing to wait with.
    pub(super) async fn answer(self) -> io::Result<()> {
        loop {
            let mut ready = self.socket.ready(NEWS).await?;
            // Anything else is no answer, or an error that a router reports: then none will come.
            if let Ok(Ok(true)) = ready.try_io(|socket| self.next(socket.get_ref())) {
                return Ok(());
            }
        }
    }

    /// Whether what came next is the answer. An error is the socket's, or that nothing more has come.
    fn next(&self, socket: &OwnedFd) -> io::Result<bool> {
        if self.echo.is_none() && refused_by(socket, self.to.ip()) {
            return Ok(true);
        }
        // An echo is far shorter; of a longer datagram only that it came counts.
        let mut bytes = [0; 512];
        let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
        Ok(self
            .echo
            .is_none_or(|echo| echo.is_in(&bytes[..length], self.to.is_ipv4())))
    }
}

impl Echo {
    /// Whether these bytes of a raw socket are its reply. Those of IPv4 begin with the IP header, which may have
    /// options: some receivers send back those that came.
    fn is_in(&self, bytes: &[u8], ipv4: bool) -> bool {
        if ipv4 {
            Ipv4HeaderSlice::from_slice(bytes)
                .ok()
                .and_then(|ip| Icmpv4Slice::from_slice(&bytes[ip.slice().len()..]).ok())
                .is_some_and(|icmp| {
                    icmp.icmp_type() == Icmpv4Type::EchoReply(self.header)
                        && icmp.payload() == self.cookie
                })
        } else {
            Icmpv6Slice::from_slice(bytes).is_ok_and(|icmp| {
                icmp.icmp_type() == Icmpv6Type::EchoReply(self.header)
                    && icmp.payload() == self.cookie
            })
        }
    }
}

/// Whether the receiver has said that nobody listens at the port.
fn refused_by(socket: &OwnedFd, receiver: IpAddr) -> bool {
    let mut quoted = [0; 64];
    let mut parts = [IoSliceMut::new(&mut quoted)];
    let mut space = cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
    let flags = MsgFlags::MSG_ERRQUEUE;
    let Ok(message) =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)
    else {
        return false;
    };
    message.cmsgs().into_iter().flatten().any(|control| {
        let (error, from) = match control {
            ControlMessageOwned::Ipv4RecvErr(error, Some(from)) => {
                let address = u32::from_be(from.sin_addr.s_addr);
                (error, IpAddr::V4(address.into()))
            }
            ControlMessageOwned::Ipv6RecvErr(error, Some(from)) => {
                (error, IpAddr::V6(from.sin6_addr.s6_addr.into()))
            }
            _ => return false,
        };
        error.ee_errno == Errno::ECONNREFUSED as u32 && from == receiver
    })
}

/// Puts an option, or for IPv6 the whole hop-by-hop header, into all packets of a socket.
fn set_ip_option(socket: &OwnedFd, to: IpAddr, option: &[u8]) -> io::Result<()> {
    let (level, name) = match to {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_OPTIONS),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS),
    };
    // At most 16 bytes.
    let length = option.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `option`, which outlives the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            option.as_ptr().cast(),
            length,
        )
    };
    Errno::result(status)?;
    Ok(())
}
