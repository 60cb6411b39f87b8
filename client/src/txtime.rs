//! The `SO_TXTIME` form: priorities through `SO_PRIORITY`, reports of the error queue.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd as _, BorrowedFd},
    sync::OnceLock,
};

use socket2::SockAddr;

use crate::{
    error::{Error, Result},
    metadata::Priority,
    sys,
};

/// Where the priority of [`crate::Metadata`] takes effect in a given form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PriorityScope {
    /// Each packet has its own.
    PerPacket,
    /// The kernel (before 6.14) knows no `SO_PRIORITY` control message: all packets
    /// have the socket's priority ([`crate::Sender::set_socket_priority`]), that of
    /// [`crate::Metadata`] is left out. Use one socket per priority.
    PerSocket,
    /// The form says nothing about packets.
    None,
}

/// The value of `SO_PRIORITY` that stands for each priority in the agent's default table
/// (which follows linux/pkt_sched.h; a test of the workspace compares the two), within the 1 to 6
/// that need no capability: 0 goes as 1, and 6 as 7. The value 0 would say nothing.
const SO_PRIORITIES: [u32; 8] = [6, 6, 5, 3, 4, 2, 1, 1];

pub(crate) fn so_priority(priority: Priority) -> u32 {
    SO_PRIORITIES[usize::from(priority.get())]
}

/// Whether this kernel takes `SO_PRIORITY` per packet (6.14 and newer); asked once
/// per process, on a socket of its own, without sending anything.
pub(crate) fn priority_per_packet() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else {
            return false;
        };
        let discard = SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
        let mut control = sys::Control::new();
        control.priority(1);
        // An older kernel refuses the unknown control message before anything else
        // is looked at; any other failure (no route) comes after it was accepted.
        match sys::probe(socket.as_fd(), &discard, &control) {
            Ok(()) => true,
            Err(error) => error.raw_os_error() != Some(libc::EINVAL),
        }
    })
}

/// A packet that a queue refused because of its deadline, told through the
/// socket's error queue.
///
/// Only the `etf` qdisc tells. bestby itself reports its drops through the agent
/// (`bestby events`) and the socket's counters ([`crate::SocketOptions::stats`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTimeReport {
    /// The packet's deadline, ns of `CLOCK_MONOTONIC`.
    pub deadline_ns: u64,
    /// Why it was dropped.
    pub reason: TxTimeReason,
}

/// Why a queue refused a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TxTimeReason {
    /// The deadline passed while the packet was queued (`SO_EE_CODE_TXTIME_MISSED`).
    Missed,
    /// The queue takes no such deadlines (`SO_EE_CODE_TXTIME_INVALID_PARAM`): it runs on another
    /// clock or not in deadline mode, or the deadline had passed already. On an interface with
    /// `etf` every packet of this form ends here: use the mark form.
    Refused,
}

/// Takes what the error queue holds about deadlines; other entries of the queue
/// (ICMP errors with `IP_RECVERR`, timestamps) are consumed and left out.
pub(crate) fn reports(fd: BorrowedFd<'_>) -> Result<Vec<TxTimeReport>> {
    let mut reports = Vec::new();
    loop {
        match sys::error_queue(fd) {
            Ok(Some(error)) if error.ee_origin == SO_EE_ORIGIN_TXTIME => {
                let reason = match error.ee_code {
                    SO_EE_CODE_TXTIME_MISSED => TxTimeReason::Missed,
                    _ => TxTimeReason::Refused,
                };
                let deadline_ns = u64::from(error.ee_data) << 32 | u64::from(error.ee_info);
                reports.push(TxTimeReport {
                    deadline_ns,
                    reason,
                });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(reports),
            Err(error) => return Err(Error::io("reading the socket's error queue")(error)),
        }
    }
}

// `linux/errqueue.h`; not in the libc crate.
const SO_EE_ORIGIN_TXTIME: u8 = 6;
const SO_EE_CODE_TXTIME_MISSED: u8 = 2;
