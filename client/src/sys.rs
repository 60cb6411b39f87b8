//! Every `unsafe` line of the crate: control messages, `sendmmsg`, socket
//! options, the error queue. socket2 and rustix have no `SO_MARK`,
//! `SO_PRIORITY` or `UDP_SEGMENT` control messages and no `sendmmsg`.

use std::{
    io, mem,
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr,
};

use libc::{c_int, c_void, cmsghdr, iovec, mmsghdr, msghdr, socklen_t};
use socket2::SockAddr;

/// Not in the libc crate for every target; the value is the same on all of Linux.
const UDP_SEGMENT: c_int = 103;
/// Linux: "do not send, only probe the path".
const MSG_PROBE: c_int = 0x10;

/// Messages per `sendmmsg` call; bounds the stack that a batch takes (about 11 KiB).
pub(crate) const BATCH: usize = 32;

/// Now on `CLOCK_MONOTONIC`, ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a valid timespec to write to. CLOCK_MONOTONIC always
    // exists, so the call cannot fail; if it did, 0 would be read.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Space of one control message of up to 8 bytes, a multiple of the alignment.
const SLOT: usize = space(8);
/// Mark or txtime, priority, segment size.
const SLOTS: usize = 3;

const fn space(payload: usize) -> usize {
    // SAFETY: pure arithmetic.
    unsafe { libc::CMSG_SPACE(payload as u32) as usize }
}

/// Control messages of one packet.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; SLOT * SLOTS],
    len: usize,
}

const _: () =
    assert!(mem::align_of::<cmsghdr>() <= 8 && SLOT.is_multiple_of(mem::align_of::<cmsghdr>()));

impl Control {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; SLOT * SLOTS],
            len: 0,
        }
    }

    pub(crate) fn mark(&mut self, mark: u32) {
        self.push(libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes());
    }

    pub(crate) fn txtime(&mut self, ns: u64) {
        self.push(libc::SOL_SOCKET, libc::SCM_TXTIME, &ns.to_ne_bytes());
    }

    pub(crate) fn priority(&mut self, priority: u32) {
        self.push(libc::SOL_SOCKET, libc::SO_PRIORITY, &priority.to_ne_bytes());
    }

    pub(crate) fn segment(&mut self, bytes: u16) {
        self.push(libc::SOL_UDP, UDP_SEGMENT, &bytes.to_ne_bytes());
    }

    /// Appends one message; its payload is at most 8 bytes, and there are at most
    /// [`SLOTS`]: mark and txtime exclude each other.
    fn push(&mut self, level: c_int, kind: c_int, payload: &[u8]) {
        let slot = &mut self.bytes[self.len..self.len + space(payload.len())];
        // SAFETY: all-zero bytes are a valid cmsghdr (musl's has private padding).
        let mut header: cmsghdr = unsafe { mem::zeroed() };
        // SAFETY: pure arithmetic.
        header.cmsg_len = unsafe { libc::CMSG_LEN(payload.len() as u32) } as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: `slot` has room for a cmsghdr; write_unaligned asks for no alignment.
        unsafe { ptr::write_unaligned(slot.as_mut_ptr().cast(), header) };
        let start = space(0);
        slot[start..start + payload.len()].copy_from_slice(payload);
        self.len += slot.len();
    }
}

/// One datagram to send. The references keep what the kernel reads alive.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) to: Option<&'a SockAddr>,
    pub(crate) control: &'a Control,
}

/// The kernel's form of `message`. It holds pointers into `message` and to
/// `iov`: both must outlive the use, and `iov` must not move.
fn header(message: &Message<'_>, iov: &mut iovec) -> msghdr {
    *iov = iovec {
        iov_base: message.payload.as_ptr().cast_mut().cast(),
        iov_len: message.payload.len(),
    };
    // SAFETY: all-zero bytes are a valid msghdr: no address, no data, no control.
    let mut header: msghdr = unsafe { mem::zeroed() };
    if let Some(to) = message.to {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
    }
    header.msg_iov = iov;
    header.msg_iovlen = 1;
    if message.control.len > 0 {
        header.msg_control = message.control.bytes.as_ptr().cast_mut().cast();
        header.msg_controllen = message.control.len as _;
    }
    header
}

/// Sends one datagram; returns the bytes of its payload.
pub(crate) fn sendmsg(fd: BorrowedFd<'_>, message: &Message<'_>) -> io::Result<usize> {
    sendmsg_flags(fd, message, 0)
}

fn sendmsg_flags(fd: BorrowedFd<'_>, message: &Message<'_>, flags: c_int) -> io::Result<usize> {
    let mut iov = iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    };
    let header = header(message, &mut iov);
    retry(|| {
        // SAFETY: `header` points to `iov`, and to the payload, address and control
        // bytes that `message` borrows; all live here, and the kernel only reads them.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) }
    })
    .map(|sent| sent as usize)
}

/// Sends up to [`BATCH`] datagrams with one system call. Returns how many were
/// accepted (at least 1 unless `messages` is empty); an error concerns the first one.
pub(crate) fn sendmmsg(fd: BorrowedFd<'_>, messages: &[Message<'_>]) -> io::Result<usize> {
    let count = messages.len().min(BATCH);
    if count == 0 {
        return Ok(0);
    }
    let mut iovs = [const {
        iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        }
    }; BATCH];
    // SAFETY: all-zero bytes are valid mmsghdrs: empty messages.
    let mut headers: [mmsghdr; BATCH] = unsafe { mem::zeroed() };
    for ((message, iov), entry) in messages.iter().zip(&mut iovs).zip(&mut headers) {
        entry.msg_hdr = header(message, iov);
    }
    retry(|| {
        // SAFETY: the first `count` headers are filled in and point to `iovs` and to what
        // `messages` borrows; all live here. The kernel writes only msg_len of `headers`.
        let sent = unsafe { libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), count as _, 0) };
        sent as isize
    })
    .map(|sent| sent as usize)
}

/// Parses `control` as sending one packet to `to` would, without sending anything:
/// UDP returns before it makes a packet if it is asked to probe with no payload.
pub(crate) fn probe(fd: BorrowedFd<'_>, to: &SockAddr, control: &Control) -> io::Result<()> {
    let message = Message {
        payload: &[],
        to: Some(to),
        control,
    };
    sendmsg_flags(fd, &message, libc::MSG_CONFIRM | MSG_PROBE).map(drop)
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<isize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// `setsockopt` with the bytes of an option value.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes of `value`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            value.as_ptr().cast::<c_void>(),
            value.len() as socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `getsockopt` into `value`; returns how many bytes the kernel wrote.
pub(crate) fn get_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `value`, and the length to `len`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast::<c_void>(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(len as usize)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Turns the deadline mode of `SO_TXTIME` on, on `CLOCK_MONOTONIC`.
pub(crate) fn enable_txtime(fd: BorrowedFd<'_>, report_errors: bool) -> io::Result<()> {
    let mut flags = libc::SOF_TXTIME_DEADLINE_MODE;
    if report_errors {
        flags |= libc::SOF_TXTIME_REPORT_ERRORS;
    }
    // struct sock_txtime: clock id, flags.
    let mut value = [0; 8];
    value[..4].copy_from_slice(&libc::CLOCK_MONOTONIC.to_ne_bytes());
    value[4..].copy_from_slice(&flags.to_ne_bytes());
    set_option(fd, libc::SOL_SOCKET, libc::SO_TXTIME, &value)
}

const _: () = assert!(mem::size_of::<libc::sock_txtime>() == 8);

/// Takes one message from the socket's error queue; never blocks.
pub(crate) fn error_queue(fd: BorrowedFd<'_>) -> io::Result<Option<libc::sock_extended_err>> {
    // An IPv6 error: sock_extended_err (16 bytes) and the offender's address (28).
    let mut control = [0u64; 64];
    // SAFETY: all-zero bytes are a valid msghdr: nothing to write to.
    let mut header: msghdr = unsafe { mem::zeroed() };
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: `header` asks for no data; its control pointer and length describe `control`.
    retry(|| unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) })?;

    // SAFETY: the kernel filled `control` with well-formed control messages and set
    // msg_controllen to their length; the CMSG functions stay within that.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return a whole header within `control`, or null.
        let entry = unsafe { *message };
        let is_error = matches!(
            (entry.cmsg_level, entry.cmsg_type),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
        );
        // SAFETY: pure arithmetic.
        let needed = unsafe { libc::CMSG_LEN(mem::size_of::<libc::sock_extended_err>() as u32) };
        if is_error && entry.cmsg_len as usize >= needed as usize {
            // SAFETY: the message holds at least a sock_extended_err, at any alignment.
            return Ok(Some(unsafe {
                ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::sock_extended_err>())
            }));
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    Ok(None)
}
