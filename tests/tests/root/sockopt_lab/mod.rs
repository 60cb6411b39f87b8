//! What the tests of sockets share: a veth with the classifier and the socket options on it, mode tc without a rate.

#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{Mutex, MutexGuard},
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, iface, mapped},
    netns::{cgroup_root, ifindex, veth},
    socket::get,
};
use zerocopy::FromBytes as _;

pub(crate) const LEVEL: i32 = SOL_BESTBY as i32;

/// The options are attached to the root of the cgroup tree: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub(crate) fn lab() -> Lab {
    veth();
    let mut lab = Lab::bare();
    lab.iface(0, &iface(ifindex("bb0"), BB_MODE_TC));
    lab.configure(|c| {
        c.events_per_s = 1000;
        c.prio_table[6] = 0;
        c.dscp_table[46] = 2;
    });
    lab.attach_sockopt(&cgroup_root());
    lab.attach("bb0");
    lab
}

#[track_caller]
pub(crate) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

pub(crate) fn udp() -> UdpSocket {
    UdpSocket::bind("10.9.0.1:0").unwrap()
}

pub(crate) const TO: &str = "10.9.0.2:5004";

pub(crate) fn stats(socket: &UdpSocket) -> bb_counters {
    get(socket, LEVEL, BB_SO_STATS).unwrap()
}

/// Packets that arrived at the far end of the veth.
pub(crate) fn arrived() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text
        .lines()
        .find(|l| l.trim_start().starts_with("bb1:"))
        .unwrap();
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

pub(crate) fn peer(owd_ns: u64, rate: u64) -> bb_so_peer {
    bb_so_peer {
        addr: mapped([10, 9, 0, 2]),
        owd_ns,
        rate,
    }
}

/// Sends; a packet refused at egress is ENOBUFS at most, never an error of another kind.
pub(crate) fn send(socket: &UdpSocket, count: usize) {
    for _ in 0..count {
        if let Err(error) = socket.send_to(&[0x33; 100], TO) {
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS), "{error}");
        }
    }
}

/// The drop notices so far.
pub(crate) fn notices(lab: &Lab) -> Vec<bb_event> {
    let mut events = Vec::new();
    {
        let map = lab.map("bb_events");
        let mut builder = libbpf_rs::RingBufferBuilder::new();
        builder
            .add(&map, |bytes| {
                events.push(bb_event::read_from_bytes(bytes).unwrap());
                0
            })
            .unwrap();
        builder.build().unwrap().consume().unwrap();
    }
    events
}

/// Sends one datagram with one control message.
pub(crate) fn send_cmsg(
    socket: &UdpSocket,
    level: i32,
    kind: i32,
    value: &[u8],
) -> io::Result<usize> {
    let to: SocketAddr = TO.parse().unwrap();
    let SocketAddr::V4(to) = to else {
        unreachable!()
    };
    // SAFETY: all zeroes is a valid address.
    let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    name.sin_family = libc::AF_INET as u16;
    name.sin_port = to.port().to_be();
    name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
    let mut payload = [0x33u8; 100];
    let mut part = libc::iovec {
        iov_base: payload.as_mut_ptr().cast(),
        iov_len: payload.len(),
    };
    let mut control = [0u64; 8];
    // SAFETY: the message points to values that outlive the call; the control buffer is
    // aligned and has room for one header and at most 8 bytes of data.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(value.len() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(value.len() as u32) as usize;
        std::ptr::copy_nonoverlapping(value.as_ptr(), libc::CMSG_DATA(header), value.len());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
