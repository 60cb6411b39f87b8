//! The system calls the lab needs and std does not have: exact sleep, real-time
//! scheduling, datagrams with control messages and receive timestamps.

use std::{
    io, mem,
    net::{SocketAddrV4, UdpSocket},
    os::fd::{AsRawFd as _, RawFd},
    ptr,
};

/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond in nanoseconds.
pub const MILLI: u64 = 1_000_000;

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live timespec. The clocks used here always exist, so the
    // call cannot fail.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

/// CLOCK_MONOTONIC in ns: the clock of all deadlines, shared by all namespaces of a kernel.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CLOCK_`id` − CLOCK_MONOTONIC in ns, sampled tightly around one reading.
fn ahead_of_monotonic(id: libc::clockid_t) -> i64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..16 {
        let (before, other, after) = (now(), clock(id), now());
        let width = after - before;
        if width < best.0 {
            best = (width, other as i64 - (before + width / 2) as i64);
        }
    }
    best.1
}

/// CLOCK_REALTIME − CLOCK_MONOTONIC in ns (receive timestamps are CLOCK_REALTIME).
pub fn realtime_offset() -> i64 {
    ahead_of_monotonic(libc::CLOCK_REALTIME)
}

/// CLOCK_TAI − CLOCK_MONOTONIC in ns (ETF knows only CLOCK_TAI).
pub fn tai_offset() -> i64 {
    ahead_of_monotonic(libc::CLOCK_TAI)
}

/// Sleeps until CLOCK_MONOTONIC reads `at` ns; returns at once if that is past.
pub fn sleep_until(at: u64) {
    let time = libc::timespec {
        tv_sec: (at / SECOND) as libc::time_t,
        tv_nsec: (at % SECOND) as libc::c_long,
    };
    // SAFETY: `time` is a valid timespec; the remainder pointer may be null. An
    // absolute sleep that a signal interrupts is simply started again.
    while unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &time,
            ptr::null_mut(),
        )
    } == libc::EINTR
    {}
}

/// Gives the calling thread a real-time priority (1..=99, larger first), so that a
/// busy machine does not delay it. Needs CAP_SYS_NICE.
pub fn realtime_thread(priority: i32) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread; `param` is a live sched_param.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) })
}

/// Puts the calling thread into the class that runs only when nothing else wants to.
pub fn idle_thread() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; `param` is a live sched_param.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// `setsockopt` with a value of plain old data.
pub fn set_option<T: Copy>(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: `value` is live and its size is what is passed; the kernel only reads it.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            ptr::from_ref(&value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })
}

/// `struct sock_txtime` of linux/net_tstamp.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct SockTxtime {
    clockid: libc::clockid_t,
    flags: u32,
}

const SOF_TXTIME_DEADLINE_MODE: u32 = 1;

/// SO_TXTIME on CLOCK_TAI in deadline mode: SCM_TXTIME then means "not after".
pub fn set_txtime_deadline(socket: &UdpSocket) -> io::Result<()> {
    let value = SockTxtime {
        clockid: libc::CLOCK_TAI,
        flags: SOF_TXTIME_DEADLINE_MODE,
    };
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TXTIME, value)
}

/// What one datagram says about itself to the kernel; absent fields say nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// SO_MARK; needs CAP_NET_ADMIN or CAP_NET_RAW.
    pub mark: Option<u32>,
    /// IP_TOS byte (DSCP << 2).
    pub tos: Option<u8>,
    /// SCM_TXTIME in ns of the socket's SO_TXTIME clock.
    pub txtime: Option<u64>,
    /// SO_PRIORITY; as a control message from Linux 6.14 on.
    pub priority: Option<u32>,
}

/// Room for the four control messages of [`Meta`]: CMSG_SPACE(8) is 24 each.
#[repr(C, align(8))]
struct Control([u8; 96]);

/// Sends one datagram without blocking: to `to`, or to the peer of a connected socket.
/// `WouldBlock` means that the socket's own buffer is full.
pub fn send(fd: RawFd, payload: &[u8], meta: Meta, to: Option<SocketAddrV4>) -> io::Result<()> {
    let mut control = Control([0; 96]);
    let mut used = 0;
    if let Some(mark) = meta.mark {
        push(
            &mut control,
            &mut used,
            libc::SOL_SOCKET,
            libc::SO_MARK,
            &mark.to_ne_bytes(),
        );
    }
    if let Some(tos) = meta.tos {
        let tos = libc::c_int::from(tos).to_ne_bytes();
        push(
            &mut control,
            &mut used,
            libc::IPPROTO_IP,
            libc::IP_TOS,
            &tos,
        );
    }
    if let Some(txtime) = meta.txtime {
        let bytes = txtime.to_ne_bytes();
        push(
            &mut control,
            &mut used,
            libc::SOL_SOCKET,
            libc::SCM_TXTIME,
            &bytes,
        );
    }
    if let Some(priority) = meta.priority {
        let bytes = priority.to_ne_bytes();
        push(
            &mut control,
            &mut used,
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            &bytes,
        );
    }
    let mut name = to.map(|to| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(to.ip().octets()),
        },
        sin_zero: [0; 8],
    });
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(name) = &mut name {
        message.msg_name = ptr::from_mut(name).cast();
        message.msg_namelen = mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
    }
    if used > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = used;
    }
    // SAFETY: everything `message` points at lives until the call returns, and
    // sendmsg does not write through iov_base.
    if unsafe { libc::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Appends one control message: header, data, padding to 8 bytes.
fn push(control: &mut Control, used: &mut usize, level: i32, kind: i32, data: &[u8]) {
    let header = mem::size_of::<libc::cmsghdr>();
    let at = *used;
    control.0[at..at + 8].copy_from_slice(&(header + data.len()).to_ne_bytes());
    control.0[at + 8..at + 12].copy_from_slice(&level.to_ne_bytes());
    control.0[at + 12..at + 16].copy_from_slice(&kind.to_ne_bytes());
    control.0[at + header..at + header + data.len()].copy_from_slice(data);
    *used = at + header + data.len().next_multiple_of(8);
}

/// Asks for receive timestamps (SO_TIMESTAMPNS), read by [`receive`].
pub fn timestamp_arrivals(fd: RawFd) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1 as libc::c_int)
}

/// Receives one packet without blocking: its length and, when [`timestamp_arrivals`]
/// was asked for, the CLOCK_REALTIME ns at which the kernel took it from the device.
/// `None`: nothing there.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
    let mut control = Control([0; 96]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: everything `message` points at lives until the call returns.
    let length = unsafe { libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            // An ICMP error of an earlier packet says nothing about this one.
            io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(error),
        };
    }
    let mut stamp = None;
    // SAFETY: the kernel filled `control` and set msg_controllen; the CMSG macros stay inside it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let time: libc::timespec = ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                stamp = Some(time.tv_sec as u64 * SECOND + time.tv_nsec as u64);
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok(Some((length as usize, stamp)))
}

/// Waits until one of `fds` can be read, at most `timeout_ms`.
pub fn wait_readable(fds: &[RawFd], timeout_ms: u64) -> io::Result<()> {
    wait_readable_until(fds, now() + timeout_ms * MILLI)
}

/// Waits until one of `fds` can be read or CLOCK_MONOTONIC reads `at` ns.
pub fn wait_readable_until(fds: &[RawFd], at: u64) -> io::Result<()> {
    let mut list: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let left = at.saturating_sub(now());
    let time = libc::timespec {
        tv_sec: (left / SECOND) as libc::time_t,
        tv_nsec: (left % SECOND) as libc::c_long,
    };
    let count = list.len() as libc::nfds_t;
    // SAFETY: `list` and `time` are live and `count` is the length of `list`; a null
    // signal mask changes none.
    match check(unsafe { libc::ppoll(list.as_mut_ptr(), count, &time, ptr::null()) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other,
    }
}

/// Receive buffer of `bytes`, beyond the system's limit (needs CAP_NET_ADMIN).
pub fn big_receive_buffer(fd: RawFd, bytes: libc::c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Send buffer of `bytes`, beyond the system's limit (needs CAP_NET_ADMIN).
pub fn big_send_buffer(fd: RawFd, bytes: libc::c_int) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
}

/// SO_PRIORITY of a socket (0..6 need no privilege).
pub fn set_priority(fd: RawFd, priority: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_carries_tos_and_gets_a_timestamp() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("bind");
        receiver.set_nonblocking(true).expect("nonblocking");
        timestamp_arrivals(receiver.as_raw_fd()).expect("timestamps");
        set_option(
            receiver.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_RECVTOS,
            1i32,
        )
        .expect("tos");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        sender
            .connect(receiver.local_addr().expect("addr"))
            .expect("connect");
        let before = now();
        send(
            sender.as_raw_fd(),
            b"hello",
            Meta {
                tos: Some(0xb8),
                ..Meta::default()
            },
            None,
        )
        .expect("send");
        wait_readable(&[receiver.as_raw_fd()], 1000).expect("poll");
        let mut buffer = [0; 64];
        let (length, stamp) = receive(receiver.as_raw_fd(), &mut buffer)
            .expect("receive")
            .expect("a packet");
        assert_eq!(&buffer[..length], b"hello");
        let arrived = stamp.expect("stamp") as i64 - realtime_offset();
        assert!(arrived >= before as i64 - 100_000 && arrived <= now() as i64 + 100_000);
        assert_eq!(
            receive(receiver.as_raw_fd(), &mut buffer).expect("receive"),
            None
        );
    }

    #[test]
    fn an_absolute_sleep_ends_after_its_time() {
        let at = now() + 2 * MILLI;
        sleep_until(at);
        assert!(now() >= at);
        sleep_until(0);
    }
}
