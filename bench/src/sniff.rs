//! When packets leave a queue: a packet socket sees each one as it is handed to the
//! device, with the kernel's timestamp.

use std::{
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result};
use nix::{
    net::if_::if_nametoindex,
    sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket},
};

use crate::{
    netns::Netns,
    sys,
    traffic::{receiver::Arrival, wire::Record},
};

/// Watches one device, with or without Ethernet headers (the socket shows none).
#[derive(Debug)]
pub struct Sniffer {
    socket: OwnedFd,
}

impl Sniffer {
    /// Watches `device` inside `ns`.
    pub fn new(ns: &Netns, device: &str) -> Result<Self> {
        ns.enter(|| {
            let socket = socket(
                AddressFamily::Packet,
                SockType::Datagram,
                SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
                SockProtocol::EthAll,
            )
            .context("opening a packet socket")?;
            // SAFETY: an all-zero sockaddr_ll is a valid one to fill in.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
            let watching = || format!("watching {device}");
            address.sll_ifindex = if_nametoindex(device).with_context(watching)? as i32;
            let size = std::mem::size_of_val(&address) as libc::socklen_t;
            let pointer = std::ptr::from_ref(&address).cast();
            // SAFETY: `address` outlives the call that reads it, and its size is passed.
            sys::check(unsafe { libc::bind(socket.as_raw_fd(), pointer, size) })
                .with_context(watching)?;
            sys::big_receive_buffer(socket.as_raw_fd(), 16 << 20).context("SO_RCVBUFFORCE")?;
            sys::timestamp_arrivals(socket.as_raw_fd()).context("SO_TIMESTAMPNS")?;
            Ok(Self { socket })
        })
    }

    /// To wait for the next packet with others.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// The next packet in which `read` finds a record that left and has not been taken yet, if
    /// there is one. `offset` is [`sys::realtime_offset`].
    pub fn take(
        &self,
        offset: i64,
        mut read: impl FnMut(&[u8]) -> Option<Record>,
    ) -> Result<Option<Arrival>> {
        let mut buffer = [0; 2048];
        while let Some((length, stamp)) = sys::receive(self.fd(), &mut buffer)? {
            if let (Some(record), Some(stamp)) = (read(&buffer[..length]), stamp) {
                let at = stamp.saturating_add_signed(-offset);
                return Ok(Some(Arrival {
                    record,
                    whole: true,
                    at,
                }));
            }
        }
        Ok(None)
    }

    /// The packets with a record that left until `stop`, in order; `at` is when they left.
    pub fn watch(
        &self,
        stop: &AtomicBool,
        mut read: impl FnMut(&[u8]) -> Option<Record>,
    ) -> Result<Vec<Arrival>> {
        let offset = sys::realtime_offset();
        let mut departures = Vec::new();
        while !stop.load(Ordering::Acquire) {
            sys::wait_readable(&[self.fd()], 20)?;
            while let Some(departure) = self.take(offset, &mut read)? {
                departures.push(departure);
            }
        }
        Ok(departures)
    }
}

/// The lab's record in an IPv4 UDP packet.
pub fn record(packet: &[u8]) -> Option<Record> {
    let first = *packet.first()?;
    if first >> 4 != 4 || *packet.get(9)? != libc::IPPROTO_UDP as u8 {
        return None;
    }
    Record::read(packet.get(usize::from(first & 15) * 4 + 8..)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, Packet};

    #[test]
    fn record_behind_ip_options_is_found() {
        let record_in = Record {
            sequence: 7,
            created: 1,
        };
        let mut packet = vec![0u8; 24 + 8 + 40];
        packet[0] = 0x46;
        packet[9] = 17;
        record_in.write(&Packet::of(Class::Audio, 3), &mut packet[32..]);
        assert_eq!(record(&packet), Some(record_in));
        packet[9] = 6;
        assert_eq!(record(&packet), None);
        assert_eq!(record(&[]), None);
    }
}
