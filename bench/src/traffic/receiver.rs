//! Records when each packet arrived, by the kernel's own timestamp.

use std::{
    io,
    net::{Ipv4Addr, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result, ensure};

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
    /// Its payload came with it; otherwise a last hop has left its header alone.
    pub whole: bool,
    /// When the kernel took it from the device, ns of CLOCK_MONOTONIC.
    pub at: u64,
}

impl Arrival {
    /// When each of `count` packets arrived whole first, if it did, with `extra_delay` ns on top;
    /// and how many came again.
    pub fn firsts(all: &[Self], count: usize, extra_delay: u64) -> (Vec<Option<u64>>, u64) {
        let (mut firsts, mut again) = (vec![None; count], 0);
        for arrival in all.iter().filter(|arrival| arrival.whole) {
            match firsts.get_mut(arrival.record.sequence as usize) {
                Some(first @ None) => *first = Some(arrival.at + extra_delay),
                Some(_) => again += 1,
                None => {}
            }
        }
        (firsts, again)
    }
}

/// Stores the end of the sending in `ended`, for [`Receiver::run`], when dropped: a receiver must
/// come to its end although the sender panicked.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(sys::now(), Ordering::Release);
    }
}

/// Sockets on three ports (audio, video, data), or one of a connection.
#[derive(Debug)]
pub struct Receiver {
    sockets: Vec<OwnedFd>,
    /// Where no bytes are the end; a datagram of UDP may have none.
    is_connection: bool,
    quiet: u64,
}

/// After the last packet, this long without another ends a run, ns: longer than any
/// queue under test holds its head back at the slowest rate of a scenario.
pub const QUIET: u64 = 1500 * MILLI;

impl Receiver {
    /// Opens the sockets inside `ns` on `port` and the two after it, on every
    /// address that is local there, of a path that may carry nothing for `gap` ns.
    pub fn new(ns: &Netns, port: u16, gap: u64) -> Result<Self> {
        let open = |port: u16| -> Result<OwnedFd> {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))
                .with_context(|| format!("binding the receiver's port {port}"))?;
            socket.set_nonblocking(true)?;
            sys::big_receive_buffer(socket.as_raw_fd(), 16 << 20)
                .context("SO_RCVBUFFORCE (needs CAP_NET_ADMIN)")?;
            sys::timestamp_arrivals(socket.as_raw_fd()).context("SO_TIMESTAMPNS")?;
            Ok(socket.into())
        };
        let sockets = ns.enter(|| (port..port + 3).map(open).collect::<Result<_>>())?;
        Ok(Self {
            sockets,
            is_connection: false,
            quiet: QUIET + gap,
        })
    }

    /// Of a connection without timestamps: the time of an arrival is that of the thread.
    pub fn of(connection: OwnedFd) -> Self {
        Self {
            sockets: vec![connection],
            is_connection: true,
            quiet: QUIET,
        }
    }

    /// Receives until the sender has stored the time of its end in `ended` (ns of
    /// CLOCK_MONOTONIC; 0 = still sending) and nothing came for [`QUIET`] and the
    /// path's gap, or until a connection ends.
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
        let own = self.sockets.iter().map(|socket| socket.as_raw_fd());
        let fds: Vec<RawFd> = own.clone().chain(other).collect();
        let mut arrivals: Vec<Arrival> = Vec::new();
        let mut buffer = [0u8; 2048];
        let (mut last, mut near) = (sys::now(), 0);
        loop {
            sys::wait_readable(&fds, 100)?;
            let old = arrivals.len();
            for fd in own.clone() {
                while let Some((length, stamp)) = receive(fd, &mut buffer)? {
                    if length == 0 && self.is_connection {
                        return Ok(arrivals);
                    }
                    last = sys::now();
                    let payload = &buffer[..length];
                    let (whole, at) = (
                        Record::read(payload),
                        stamp.map_or(last, |ns| ns.saturating_add_signed(-offset)),
                    );
                    if let Some(record) = whole.or_else(|| Record::of_header(payload, near)) {
                        near = record.sequence;
                        arrivals.push(Arrival {
                            record,
                            whole: whole.is_some(),
                            at,
                        });
                    }
                }
            }
            // Across the sockets of the classes in the order of the wire.
            arrivals[old..].sort_by_key(|arrival| arrival.at);
            each(&arrivals, old)?;
            let end = ended.load(Ordering::Acquire);
            if end != 0 && sys::now() > end.max(last) + self.quiet {
                return Ok(arrivals);
            }
            ensure!(
                end == 0 || sys::now() <= end + 600 * SECOND,
                "packets still arrive 600 s after the last was sent"
            );
        }
    }
}

/// [`sys::receive`]; a connection that was reset has ended.
fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<(usize, Option<u64>)>> {
    match sys::receive(fd, buffer) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some((0, None))),
        received => received,
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, thread};

    use super::*;
    use crate::traffic::{Class, Packet};

    #[test]
    fn ends_are_stored_where_the_sender_panics() {
        let ended = AtomicU64::new(0);
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let _ends = Ends(&ended);
                panic::resume_unwind(Box::new("as a sender does"));
            });
            assert!(sending.join().is_err());
        });
        assert_ne!(ended.into_inner(), 0);
    }

    #[test]
    fn receiver_takes_an_empty_datagram_for_no_end_and_a_lone_header_for_no_packet() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
        socket.set_nonblocking(true).expect("set");
        let to = socket.local_addr().expect("an address");
        let record = Record {
            sequence: 7,
            created: 1,
        };
        let mut payload = [0; 60];
        record.write(&Packet::of(Class::Audio, 0), &mut payload);
        for payload in [&[][..], &payload, &payload[..12]] {
            socket.send_to(payload, to).expect("sent");
        }
        let receiver = Receiver {
            sockets: vec![socket.into()],
            is_connection: false,
            quiet: QUIET,
        };
        let arrivals = receiver.run(&AtomicU64::new(sys::now())).expect("received");
        let seen = arrivals.iter().map(|a| (a.record.sequence, a.whole));
        assert_eq!(seen.collect::<Vec<_>>(), [(7, true), (7, false)]);
        assert_eq!(arrivals[0].record, record);
        let (firsts, again) = Arrival::firsts(&arrivals[1..], 8, 0);
        assert_eq!((firsts[7], again), (None, 0));
    }
}
