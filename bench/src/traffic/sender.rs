//! Sends a schedule at its times: absolute sleeps on a real-time thread, sockets
//! that never block, and a count of what the sender itself could not keep up with.

use std::{
    io,
    net::{SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
};

use anyhow::{Context as _, Result};
use bestby::{AduIds, Deadline, Magic, Mark, Metadata, Priority};

use super::{Class, HEADERS, Schedule, wire::Record};
use crate::{
    netns::Netns,
    sys::{self, Meta},
};

/// How packets tell the queue what they are worth. Everything else about them,
/// sizes and times, is the same for every queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Marking {
    /// bestby's mark: absolute deadline, priority, rolling ADU id.
    pub mark: bool,
    /// DSCP: EF for audio, AF41 for video.
    pub dscp: bool,
    /// SO_PRIORITY of the sockets: 6 for audio, 0 for video.
    pub priority: bool,
    /// SO_TXTIME in deadline mode; the time given is the last departure that is
    /// of use, deadline − this one-way delay in ns.
    pub txtime_owd: Option<u64>,
}

/// What the sender did, beside sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When each packet of the schedule was created, ns of CLOCK_MONOTONIC
    /// (start + its time in the schedule).
    pub created: Vec<u64>,
    /// Packets that the socket's own buffer refused: never offered to the queue.
    pub would_block: u64,
    /// Packets that the kernel refused with another error.
    pub refused: u64,
    /// Longest time in ns by which a send began after its time in the schedule.
    pub latest: u64,
}

/// Two connected sockets in a namespace, one per class, as a conference has them.
#[derive(Debug)]
pub struct Sender {
    audio: UdpSocket,
    video: UdpSocket,
    marking: Marking,
}

/// Room for the longest queue under test, so that the socket is never the queue.
const SEND_BUFFER: libc::c_int = 64 << 20;

impl Sender {
    /// Opens the sockets inside `ns`; audio goes to `to`, video to the next port.
    pub fn new(ns: &Netns, to: SocketAddrV4, marking: Marking) -> Result<Self> {
        let open = |port: u16, priority: u32| -> Result<UdpSocket> {
            let socket = UdpSocket::bind("0.0.0.0:0").context("binding the sender's socket")?;
            socket
                .connect(SocketAddrV4::new(*to.ip(), port))
                .context("connecting to receiver")?;
            sys::big_send_buffer(socket.as_raw_fd(), SEND_BUFFER)
                .context("SO_SNDBUFFORCE (needs CAP_NET_ADMIN)")?;
            if marking.priority {
                sys::set_priority(socket.as_raw_fd(), priority).context("SO_PRIORITY")?;
            }
            if marking.txtime_owd.is_some() {
                sys::set_txtime_deadline(&socket).context("SO_TXTIME in deadline mode")?;
            }
            Ok(socket)
        };
        ns.enter(|| {
            Ok(Self {
                audio: open(to.port(), 6)?,
                video: open(to.port() + 1, 0)?,
                marking,
            })
        })
    }

    /// Sends all of `schedule`, its time 0 being `start` (ns of CLOCK_MONOTONIC).
    /// Blocks the calling thread until the last packet is out.
    pub fn run(&self, schedule: &Schedule, start: u64) -> Result<Sent> {
        let mut sent = Sent::default();
        let mut ids = AduIds::default();
        let mut adu = (u32::MAX, None);
        let mut buffer = [0u8; 2048];
        let tai = sys::tai_offset();
        for (sequence, packet) in schedule.packets.iter().enumerate() {
            let created = start + packet.at;
            let deadline = created + packet.lifetime;
            if adu.0 != packet.adu {
                adu = (packet.adu, Some(ids.take_id()));
            }
            sys::sleep_until(created);
            let began = sys::now();
            sent.latest = sent.latest.max(began - created.min(began));

            let payload = &mut buffer[..(packet.wire_bytes - HEADERS) as usize];
            Record {
                class: packet.class,
                last: packet.last,
                sequence: sequence as u32,
                adu: packet.adu,
                created,
                deadline,
            }
            .write(payload);
            let mut meta = Meta::default();
            if self.marking.mark {
                let mut metadata = Metadata::new()
                    .deadline(Deadline::from_monotonic_ns(deadline))
                    .priority(Priority::new(packet.class.priority())?);
                // An audio packet is an ADU by itself: it needs no id.
                if let (Class::Video, Some(id)) = (packet.class, adu.1) {
                    metadata = metadata.adu(id);
                }
                meta.mark = Some(Mark::encode(&metadata, began, Magic::default())?.get());
            }
            if self.marking.dscp {
                meta.tos = Some(match packet.class {
                    Class::Audio => 46 << 2,
                    Class::Video => 34 << 2,
                });
            }
            if let Some(owd) = self.marking.txtime_owd {
                meta.txtime = Some((deadline - owd).saturating_add_signed(tai));
            }
            let socket = match packet.class {
                Class::Audio => &self.audio,
                Class::Video => &self.video,
            };
            match sys::send(socket.as_raw_fd(), payload, meta) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sent.would_block += 1,
                // A queue that drops may say so (ENOBUFS); that is the queue's doing.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => sent.refused += 1,
            }
            sent.created.push(created);
        }
        Ok(sent)
    }
}
