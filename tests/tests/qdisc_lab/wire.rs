//! Frames that carry their own control block, and the packet sockets that send and receive them.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd as _, OwnedFd},
};

use bestby_bpf::abi::*;
use bestby_tests::{netns::ifindex, socket::force_buffer};
use zerocopy::IntoBytes;

/// Ethertype of test frames: IEEE 802 local experimental 1.
const ETHERTYPE: u16 = 0x88b5;

/// What a test says of one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) rule: u16,
    pub(crate) session: u16,
    pub(crate) priority: u8,
    pub(crate) treatment: u32,
    pub(crate) adu: u32,
    /// 0 = none.
    pub(crate) deadline: u64,
    /// Length of the frame.
    pub(crate) len: usize,
    /// A retransmission.
    pub(crate) repair: bool,
    /// Of a TCP socket of this host.
    pub(crate) tcp: bool,
    /// `BB_RTP` and the payload type.
    pub(crate) rtp: u8,
    /// Of an ADU much larger than its stream's others.
    pub(crate) large: bool,
}

impl Default for Packet {
    fn default() -> Self {
        Self {
            rule: 1,
            session: 10,
            priority: 3,
            treatment: BB_TREAT_DISCARD,
            adu: 0,
            deadline: 0,
            len: 200,
            repair: false,
            tcp: false,
            rtp: 0,
            large: false,
        }
    }
}

impl Packet {
    /// As it is sent; the far end reads the sequence number.
    pub(crate) fn frame(&self, sequence: u32) -> Vec<u8> {
        let mut flags = 0;
        if self.deadline != 0 {
            flags |= BB_CB_DEADLINE;
        }
        if self.adu != 0 {
            flags |= BB_CB_ADU;
        }
        if self.repair {
            flags |= BB_CB_REPAIR;
        }
        if self.tcp {
            flags |= BB_CB_TCP;
        }
        if self.large {
            flags |= BB_CB_LARGE;
        }
        let cb = bb_cb {
            rule: self.rule,
            session: self.session,
            class_: self.priority | u8::try_from(self.treatment << 4).unwrap(),
            flags: u8::try_from(flags).unwrap(),
            adu: self.adu,
            rtp: self.rtp,
            ..Default::default()
        };
        let cb = bestby_bpf::seal(cb, self.deadline);
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend(cb.as_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.resize(self.len.max(frame.len()), 0);
        frame
    }
}

/// A packet socket bound to one device.
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(super) fn open(device: &str) -> Self {
        // SAFETY: plain system calls; the address is a zeroed sockaddr_ll, filled below, and
        // outlives the call that reads it.
        unsafe {
            let fd = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                i32::from(ETHERTYPE.to_be()),
            );
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_protocol = ETHERTYPE.to_be();
            to.sll_ifindex = ifindex(device) as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const to).cast(), size), 0);
            for option in [libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE] {
                force_buffer(&fd, option, 256 << 20);
            }
            Self(fd)
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the slice is valid for its length.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Lets the socket say when packets depart (`SO_TXTIME`, `CLOCK_MONOTONIC`).
    pub(crate) fn say_departure(&self) {
        // struct sock_txtime: clock, flags.
        let option = [libc::CLOCK_MONOTONIC as u32, 0];
        // SAFETY: the option is valid for its length.
        let set = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TXTIME,
                option.as_ptr().cast(),
                size_of_val(&option) as u32,
            )
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
    }

    /// Sends a frame that leaves at `at` at the earliest.
    pub(crate) fn send_at(&self, frame: &[u8], at: u64) {
        let mut control = [0u64; 3]; // cmsghdr and the time
        let mut data = libc::iovec {
            iov_base: frame.as_ptr().cast_mut().cast(),
            iov_len: frame.len(),
        };
        // SAFETY: all that the message points to is valid for its length, and outlives the call.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut data;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_TXTIME;
            (*header).cmsg_len = libc::CMSG_LEN(8) as usize;
            libc::CMSG_DATA(header).cast::<u64>().write_unaligned(at);
            libc::sendmsg(self.0.as_raw_fd(), &raw const message, 0)
        };
        assert!(sent > 0, "{}", io::Error::last_os_error());
    }

    /// Sequence number of the next frame, None when there is none now.
    pub(crate) fn receive(&self) -> Option<u32> {
        let mut frame = [0u8; 4096];
        // SAFETY: the buffer is valid for its length.
        let got = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                0,
            )
        };
        (got >= 38).then(|| u32::from_be_bytes(frame[34..38].try_into().unwrap()))
    }

    /// Bytes of kernel memory that packets sent by this socket still hold.
    pub(crate) fn held(&self) -> i32 {
        let mut bytes = 0i32;
        // SAFETY: TIOCOUTQ (a packet socket's SIOCOUTQ) writes one int.
        let asked = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        assert_eq!(asked, 0);
        bytes
    }
}
