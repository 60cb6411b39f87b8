//! What the tests of the client crate share: a namespace of their own, threads without
//! capabilities, and a receiver that sees marks and priorities.

#![allow(dead_code, clippy::unwrap_used)]

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    time::Duration,
};

use bestby::{AduId, Metadata, Priority, Treatment};
use bestby_tests::socket::set;

/// `SO_RCVPRIORITY` (Linux 6.14).
const SO_RCVPRIORITY: i32 = 82;

/// Metadata that names each field but the deadline, different for each `n`.
pub(crate) fn metadata(n: u8) -> Metadata {
    Metadata::new()
        .priority(Priority::new(n % 8).unwrap())
        .treatment(match n % 3 {
            0 => Treatment::Forward,
            1 => Treatment::Discard,
            _ => Treatment::Truncate,
        })
        .adu(AduId::new(n % 7 + 1).unwrap())
}

/// Takes all capabilities from the calling thread, for good.
pub(crate) fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    // struct __user_cap_header_struct: version, pid (0 = this thread); then two sets
    // of effective, permitted, inheritable.
    let header = [VERSION_3, 0];
    let data = [0u32; 6];
    // SAFETY: both arrays have the layout that version 3 of capset reads.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    assert_eq!(result, 0, "capset: {}", io::Error::last_os_error());
}

/// A datagram as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) payload: Vec<u8>,
    pub(crate) mark: u32,
    /// `None` where the kernel has no `SO_RCVPRIORITY`.
    pub(crate) priority: Option<u32>,
}

/// A UDP socket that sees marks and priorities of what it receives. They survive on
/// loopback: the same packet goes out and comes in.
pub(crate) struct Receiver {
    pub(crate) socket: UdpSocket,
    pub(crate) address: SocketAddr,
}

impl Receiver {
    pub(crate) fn new(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let address = socket.local_addr().unwrap();
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVMARK, &1i32).expect("SO_RCVMARK (Linux 5.19)");
        // Unknown before 6.14; then `priority` stays None.
        let _ = set(&socket, libc::SOL_SOCKET, SO_RCVPRIORITY, &1i32);
        Self { socket, address }
    }

    /// The next datagram; panics after 5 s without.
    pub(crate) fn receive(&self) -> Received {
        self.try_receive().expect("a datagram")
    }

    /// The next datagram, or the error after the socket's timeout.
    pub(crate) fn try_receive(&self) -> io::Result<Received> {
        let mut payload = vec![0u8; 70_000];
        let mut control = [0u64; 32];
        let mut iov = libc::iovec {
            iov_base: payload.as_mut_ptr().cast(),
            iov_len: payload.len(),
        };
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut iov;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `header` describes `payload` and `control`, which outlive the call.
        let len = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0) };
        if len < 0 {
            return Err(io::Error::last_os_error());
        }
        payload.truncate(len as usize);
        let (mut mark, mut priority) = (None, None);
        // SAFETY: the kernel filled `control` with well-formed messages.
        let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        while !message.is_null() {
            // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return whole messages; both kinds carry a u32.
            let (kind, value) = unsafe {
                (
                    (*message).cmsg_type,
                    libc::CMSG_DATA(message).cast::<u32>().read_unaligned(),
                )
            };
            match kind {
                libc::SO_MARK => mark = Some(value),
                libc::SO_PRIORITY => priority = Some(value),
                _ => {}
            }
            // SAFETY: as for CMSG_FIRSTHDR.
            message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
        }
        Ok(Received {
            payload,
            mark: mark.expect("SO_RCVMARK is set"),
            priority,
        })
    }

    /// Asserts that nothing has arrived within 20 ms.
    pub(crate) fn assert_empty(&self) {
        self.socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let result = self.try_receive();
        assert!(result.is_err(), "{result:?}");
        self.socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
    }
}
