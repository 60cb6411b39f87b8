//! Every `unsafe` line of the ring: writes with `MSG_EOR`, the error queue, `SIOCOUTQNSD`, `poll`.

use std::{
    io::{self, IoSlice},
    mem,
    os::fd::{AsRawFd as _, BorrowedFd},
    ptr,
};

use libc::c_int;

use crate::sys::{get_option, set_option};

/// "Bytes that are not sent": `linux/sockios.h`; not in the libc crate for Linux.
const SIOCOUTQNSD: u32 = 0x894B;

/// Messages taken from the error queue with one call.
const BATCH: usize = 16;

/// Writes to a stream socket without blocking and without a signal. `last`: the last byte ends a
/// record, so that TCP puts what follows into another packet buffer (`MSG_EOR`).
pub(crate) fn send(fd: BorrowedFd<'_>, parts: &[IoSlice<'_>], last: bool) -> io::Result<usize> {
    let mut flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    if last {
        flags |= libc::MSG_EOR;
    }
    // SAFETY: all-zero bytes are a valid msghdr: no address, no data, no control.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = parts.as_ptr().cast_mut().cast();
    header.msg_iovlen = parts.len() as _;
    loop {
        // SAFETY: an IoSlice has the layout of an iovec; the slices live in the caller, and the kernel
        // only reads them.
        let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) };
        if sent >= 0 {
            return Ok(sent as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads from a stream socket without blocking.
#[cfg(feature = "rustls")]
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel writes at most the length of `buffer` to it.
        let read = unsafe {
            libc::recv(
                fd.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        if read >= 0 {
            return Ok(read as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Bytes in the kernel that are not sent.
pub(crate) fn unsent(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), SIOCOUTQNSD as _, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes in the kernel that are not acknowledged, sent or not.
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Asks for a message on the error queue whenever the last byte of a write is acknowledged
/// (`Documentation/networking/timestamping.rst`). Flags that are set already stay.
pub(crate) fn report_acknowledgements(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut value = [0; 4];
    let len = get_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &mut value)?;
    let before = if len == 4 {
        u32::from_ne_bytes(value)
    } else {
        0
    };
    let flags = before
        | libc::SOF_TIMESTAMPING_TX_ACK
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    let value = flags.to_ne_bytes();
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &value)
}

/// Empties the error queue; returns how many messages it held, at most `most`. Never blocks.
pub(crate) fn drain_errors(fd: BorrowedFd<'_>, most: usize) -> usize {
    let mut taken = 0;
    while taken < most {
        // SAFETY: all-zero bytes are valid mmsghdrs: nothing to write to.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the headers ask for no data and no control messages; the kernel writes their
        // lengths and flags only.
        let count = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as _,
                flags as _,
                ptr::null_mut(),
            )
        };
        match usize::try_from(count) {
            Ok(count) if count > 0 => taken += count,
            _ => break,
        }
        // Fewer than asked for: it is empty. One more call would cost as much as this one.
        if count < BATCH as c_int {
            break;
        }
    }
    taken
}

/// The socket's pending error, which is then no longer pending.
pub(crate) fn error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    let mut value = [0; 4];
    get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut value).ok()?;
    match i32::from_ne_bytes(value) {
        0 => None,
        code => Some(io::Error::from_raw_os_error(code)),
    }
}

/// Waits for `events` (`POLLERR` and `POLLHUP` come unasked), at most `timeout_ns`; returns what came. A
/// signal ends the wait as the time does.
pub(crate) fn wait(fd: BorrowedFd<'_>, events: i16, timeout_ns: u64) -> io::Result<i16> {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as _,
        tv_nsec: (timeout_ns % 1_000_000_000) as _,
    };
    // SAFETY: one pollfd and one timespec, both live here; no signal mask.
    let result = unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, ptr::null()) };
    if result >= 0 {
        return Ok(poll.revents);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}
