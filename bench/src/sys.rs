//! The system calls the lab needs and std does not have: exact sleep, real-time
//! scheduling, datagrams with control messages and receive timestamps.

use std::{
    io::{self, IoSliceMut},
    mem,
    net::{SocketAddrV4, UdpSocket},
    os::fd::RawFd,
    ptr,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        socket::{
            ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrLike as _, recvmsg, setsockopt,
            sockopt,
        },
        time::TimeSpec,
    },
    time::{ClockId, ClockNanosleepFlags, clock_nanosleep},
};

/// One second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;
/// One millisecond in nanoseconds.
pub const MILLI: u64 = 1_000_000;

fn nanoseconds(time: TimeSpec) -> u64 {
    Duration::from(time).as_nanos() as u64
}

fn clock(id: ClockId) -> u64 {
    // The clocks used here always exist, so the call cannot fail.
    id.now().map_or(0, nanoseconds)
}

/// CLOCK_MONOTONIC in ns: the clock of all deadlines, shared by all namespaces of a kernel.
pub fn now() -> u64 {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_`id` − CLOCK_MONOTONIC in ns, sampled tightly around one reading.
fn ahead_of_monotonic(id: ClockId) -> i64 {
    let sample = |_| {
        let (before, other, after) = (now(), clock(id), now());
        let width = after - before;
        (width, other as i64 - (before + width / 2) as i64)
    };
    let best = (0..16).map(sample).min_by_key(|(width, _)| *width);
    best.map_or(0, |(_, offset)| offset)
}

/// CLOCK_REALTIME − CLOCK_MONOTONIC in ns (receive timestamps are CLOCK_REALTIME).
pub fn realtime_offset() -> i64 {
    ahead_of_monotonic(ClockId::CLOCK_REALTIME)
}

/// CLOCK_TAI − CLOCK_MONOTONIC in ns (ETF knows only CLOCK_TAI).
pub fn tai_offset() -> i64 {
    ahead_of_monotonic(ClockId::CLOCK_TAI)
}

/// Sleeps until CLOCK_MONOTONIC reads `at` ns; returns at once if that is past.
pub fn sleep_until(at: u64) {
    let (clock, flags) = (ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME);
    let time = Duration::from_nanos(at).into();
    // An absolute sleep that a signal interrupts is simply started again.
    while clock_nanosleep(clock, flags, &time) == Err(Errno::EINTR) {}
}

/// Gives the calling thread a real-time priority (1..=99, larger first), so that a
/// busy machine does not delay it. Needs CAP_SYS_NICE; without it precision is lost, not
/// correctness.
pub fn realtime_thread(priority: i32) -> io::Result<()> {
    schedule(libc::SCHED_FIFO, priority)
}

/// Puts the calling thread into the class that runs only when nothing else wants to.
pub fn idle_thread() -> io::Result<()> {
    schedule(libc::SCHED_IDLE, 0)
}

fn schedule(policy: libc::c_int, priority: i32) -> io::Result<()> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: 0 is the calling thread; `param` is a live sched_param.
    check(unsafe { libc::sched_setscheduler(0, policy, &param) })
}

/// What a system call returned: below 0, it failed.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    Ok(Errno::result(result).map(drop)?)
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

/// SO_TXTIME on CLOCK_TAI in deadline mode: SCM_TXTIME then means "not after".
pub fn set_txtime_deadline(socket: &UdpSocket) -> io::Result<()> {
    let value = libc::sock_txtime {
        clockid: libc::CLOCK_TAI,
        flags: libc::SOF_TXTIME_DEADLINE_MODE,
    };
    Ok(setsockopt(socket, sockopt::TxTime, &value)?)
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
    // One control message: header, data, padding to 8 bytes.
    let mut push = |level: i32, kind: i32, data: &[u8]| {
        let length = mem::size_of::<libc::cmsghdr>() + data.len();
        let message = &mut control.0[used..used + length];
        message[..8].copy_from_slice(&length.to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[16..].copy_from_slice(data);
        used += length.next_multiple_of(8);
    };
    if let Some(mark) = meta.mark {
        push(libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes());
    }
    if let Some(tos) = meta.tos {
        let tos = libc::c_int::from(tos).to_ne_bytes();
        push(libc::IPPROTO_IP, libc::IP_TOS, &tos);
    }
    if let Some(txtime) = meta.txtime {
        push(libc::SOL_SOCKET, libc::SCM_TXTIME, &txtime.to_ne_bytes());
    }
    if let Some(priority) = meta.priority {
        push(libc::SOL_SOCKET, libc::SO_PRIORITY, &priority.to_ne_bytes());
    }
    let name = to.map(SockaddrIn::from);
    let mut part = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    // SAFETY: an all-zero msghdr is a valid empty one.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(name) = &name {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.len();
    }
    if used > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = used;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: everything `message` points at lives until the call returns, and
    // sendmsg does not write through iov_base or msg_name.
    Errno::result(unsafe { libc::sendmsg(fd, &message, flags) })?;
    Ok(())
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
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<()>(fd, &mut parts, Some(&mut control.0), flags) {
        Ok(message) => message,
        // An ICMP error of an earlier packet says nothing about this one.
        Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stamp = message.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(nanoseconds(time)),
        _ => None,
    });
    Ok(Some((message.bytes, stamp)))
}

/// Waits until one of `fds` can be read, at most `timeout_ms`.
pub fn wait_readable(fds: &[RawFd], timeout_ms: u64) -> io::Result<()> {
    wait_readable_until(fds, now() + timeout_ms * MILLI)
}

/// Waits until one of `fds` can be read or CLOCK_MONOTONIC reads `at` ns.
pub fn wait_readable_until(fds: &[RawFd], at: u64) -> io::Result<()> {
    wait_until(fds, libc::POLLIN, at)
}

/// Waits for one of `events` of one of `fds`, or until CLOCK_MONOTONIC reads `at` ns.
pub fn wait_until(fds: &[RawFd], events: libc::c_short, at: u64) -> io::Result<()> {
    let poll = |&fd| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut list: Vec<libc::pollfd> = fds.iter().map(poll).collect();
    let time = TimeSpec::from(Duration::from_nanos(at.saturating_sub(now())));
    let count = list.len() as libc::nfds_t;
    // SAFETY: `list` and `time` are live and `count` is the length of `list`; a null
    // signal mask changes none.
    match check(unsafe { libc::ppoll(list.as_mut_ptr(), count, time.as_ref(), ptr::null()) }) {
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

/// What the kernel says of a TCP connection.
pub fn tcp_info(fd: RawFd) -> io::Result<libc::tcp_info> {
    // SAFETY: plain old data, of which all zeros are a value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: `info` and `length` are live, and `length` is the size of `info`.
    check(unsafe { libc::getsockopt(fd, level, option, (&raw mut info).cast(), &mut length) })?;
    Ok(info)
}

/// SIOCOUTQNSD, which libc does not have.
const UNSENT: libc::Ioctl = 0x894b;

/// Bytes that a TCP connection holds unsent.
pub fn tcp_unsent(fd: RawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQNSD writes an int, which is live.
    check(unsafe { libc::ioctl(fd, UNSENT, &raw mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// Bytes that a TCP connection holds and nobody has read.
pub fn tcp_unread(fd: RawFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD, which is SIOCINQ, writes an int, which is live.
    check(unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) })?;
    Ok(bytes.max(0) as u64)
}

/// SO_PRIORITY of a socket (0..6 need no privilege).
pub fn set_priority(fd: RawFd, priority: u32) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn datagram_with_a_tos_gets_a_timestamp() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("bind");
        timestamp_arrivals(receiver.as_raw_fd()).expect("timestamps");
        setsockopt(&receiver, sockopt::IpRecvTos, &true).expect("tos");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let Ok(std::net::SocketAddr::V4(to)) = receiver.local_addr() else {
            panic!("an IPv4 address");
        };
        let meta = Meta {
            tos: Some(0xb8),
            ..Meta::default()
        };
        let before = now();
        send(sender.as_raw_fd(), b"hello", meta, Some(to)).expect("send");
        wait_readable(&[receiver.as_raw_fd()], 1000).expect("poll");
        let mut buffer = [0; 64];
        let mut received = || receive(receiver.as_raw_fd(), &mut buffer).expect("receive");
        let (length, stamp) = received().expect("a packet");
        let arrived = stamp.expect("stamp") as i64 - realtime_offset();
        assert!(arrived >= before as i64 - 100_000 && arrived <= now() as i64 + 100_000);
        assert_eq!(received(), None);
        assert_eq!(&buffer[..length], b"hello");
    }
}
