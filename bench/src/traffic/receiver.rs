//! Records when each packet arrived, by the kernel's own timestamp.

use std::{
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd as _, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};

use super::wire::Record;
use crate::{
    netns::Netns,
    sys::{self, MILLI, SECOND},
};

/// One packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What it said.
    pub record: Record,
    /// When the kernel took it from the device, ns of CLOCK_MONOTONIC.
    pub at: u64,
}

/// Sockets on three ports: audio, video, data.
#[derive(Debug)]
pub struct Receiver {
    sockets: [UdpSocket; 3],
}

/// After the last packet, this long without another ends a run: longer than any
/// queue under test holds its head back at the slowest rate of a scenario.
const QUIET: u64 = 1500 * MILLI;

impl Receiver {
    /// Opens the sockets inside `ns` on `port` and the two after it, on every
    /// address that is local there.
    pub fn new(ns: &Netns, port: u16) -> Result<Self> {
        let open = |port: u16| -> Result<UdpSocket> {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
                .with_context(|| format!("binding the receiver's port {port}"))?;
            socket.set_nonblocking(true)?;
            sys::big_receive_buffer(socket.as_raw_fd(), 16 << 20)
                .context("SO_RCVBUFFORCE (needs CAP_NET_ADMIN)")?;
            sys::timestamp_arrivals(socket.as_raw_fd()).context("SO_TIMESTAMPNS")?;
            Ok(socket)
        };
        ns.enter(|| {
            Ok(Self {
                sockets: [open(port)?, open(port + 1)?, open(port + 2)?],
            })
        })
    }

    /// Receives until the sender has stored the time of its end in `ended` (ns of
    /// CLOCK_MONOTONIC; 0 = still sending) and nothing came for 1.5 s.
    pub fn run(&self, ended: &AtomicU64) -> Result<Vec<Arrival>> {
        self.run_with(ended, None, |_, _| Ok(()))
    }

    /// The same; `each` gets what came at once (all arrivals, and how many are old) whenever
    /// something did, or `other` is readable.
    pub fn run_with(
        &self,
        ended: &AtomicU64,
        other: Option<RawFd>,
        mut each: impl FnMut(&[Arrival], usize) -> Result<()>,
    ) -> Result<Vec<Arrival>> {
        let offset = sys::realtime_offset();
        let own: Vec<RawFd> = self.sockets.iter().map(|s| s.as_raw_fd()).collect();
        let fds: Vec<RawFd> = own.iter().copied().chain(other).collect();
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut buffer = [0u8; 2048];
        let mut last = sys::now();
        loop {
            sys::wait_readable(&fds, 100)?;
            let old = arrivals.len();
            for &fd in &own {
                while let Some((length, stamp)) = sys::receive(fd, &mut buffer)? {
                    last = sys::now();
                    if let Some(record) = Record::read(&buffer[..length]) {
                        let at = stamp.map_or(last, |ns| ns.saturating_add_signed(-offset));
                        arrivals.push(Arrival { record, at });
                    }
                }
            }
            // Across the sockets of the classes in the order of the wire.
            arrivals[old..].sort_by_key(|arrival| arrival.at);
            each(&arrivals, old)?;
            let end = ended.load(Ordering::Acquire);
            if end != 0 && sys::now() > end.max(last) + QUIET {
                return Ok(arrivals);
            }
            if end != 0 && sys::now() > end + 600 * SECOND {
                anyhow::bail!("packets still arrive 600 s after the last was sent");
            }
        }
    }
}
