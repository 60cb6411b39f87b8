//! Sends a schedule at its times: absolute sleeps on a real-time thread, sockets
//! that never block, and a count of what the sender itself could not keep up with.

use std::{
    collections::HashMap,
    io,
    net::{SocketAddrV4, UdpSocket},
    os::fd::AsRawFd as _,
};

use anyhow::{Context as _, Result, ensure};
use bestby::{AduId, AduIds, Deadline, Magic, Mark, Metadata, Priority};

use super::{Class, HEADERS, Packet, Schedule, wire::Record};
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
    /// With the mark: every packet is an ADU of its own, as SFDPS and LPD's flows have
    /// them; otherwise the packets of a frame live and die together.
    pub alone: bool,
    /// DSCP: EF for audio, AF41 for video, none for data.
    pub dscp: bool,
    /// SO_PRIORITY: 6 for audio, 0 for video, 2 (`TC_PRIO_BULK`) for data: the first,
    /// second and third band of prio's default map.
    pub priority: bool,
    /// SO_TXTIME in deadline mode; the time given is the last departure that is
    /// of use, deadline − this one-way delay in ns.
    pub txtime_owd: Option<u64>,
}

/// IP_TOS of each class.
const TOS: [u8; 3] = [46 << 2, 34 << 2, 0];
/// SO_PRIORITY of each class.
const SO_PRIORITY: [u32; 3] = [6, 0, 2];

/// What the sender did, beside sending.
///
/// No send ever blocks. A packet that the socket does not take is not tried again: it
/// is counted here, it stays in the schedule as offered, and so it is judged as one
/// that never arrived. A run with any `would_block` has measured the sender's socket
/// and not the queue; its buffer of 64 MiB holds more than any queue under test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When each packet of the schedule was created, ns of CLOCK_MONOTONIC
    /// (start + its time in the schedule).
    pub created: Vec<u64>,
    /// Packets that the socket's own full buffer refused (EAGAIN), or for which the kernel
    /// had no memory (ENOBUFS; UDP hides a queue's drop unless IP_RECVERR is set).
    pub would_block: u64,
    /// Packets that the kernel refused with another error.
    pub refused: u64,
    /// Longest time in ns by which a send began after its time in the schedule.
    pub latest: u64,
}

impl Sent {
    /// Calls `send` for each packet of `schedule` when its time has come, time 0 being
    /// `start` (ns of CLOCK_MONOTONIC).
    pub fn at_times(
        schedule: &Schedule,
        start: u64,
        mut send: impl FnMut(&mut Self, &Packet, Record) -> Result<()>,
    ) -> Result<Self> {
        let mut sent = Self::default();
        for (packet, sequence) in schedule.packets.iter().zip(0..) {
            let created = start + packet.at;
            sys::sleep_until(created);
            sent.latest = sent.latest.max(sys::now().saturating_sub(created));
            send(&mut sent, packet, Record { sequence, created })?;
            sent.created.push(created);
        }
        Ok(sent)
    }
}

/// Where packets go.
#[derive(Debug)]
enum Sockets {
    /// A connected socket per class, as an application with one peer has them.
    Call([UdpSocket; 3]),
    /// One socket for all clients, as a selective forwarding unit has it.
    Relay(UdpSocket, Vec<SocketAddrV4>),
}

/// The sockets of a sender in a namespace.
#[derive(Debug)]
pub struct Sender {
    sockets: Sockets,
    marking: Marking,
}

/// Room for the longest queue under test, so that the socket is never the queue.
const SEND_BUFFER: libc::c_int = 64 << 20;

impl Sender {
    /// Opens a socket per class inside `ns`; audio goes to `to`, video to the next
    /// port, data to the one after. Streams differ in their SSRC only.
    pub fn new(ns: &Netns, to: SocketAddrV4, marking: Marking) -> Result<Self> {
        Self::to_ports(ns, Class::ALL.map(|class| port_of(to, class)), marking)
    }

    /// The same; `to` has the port of each class.
    pub fn to_ports(ns: &Netns, to: [SocketAddrV4; 3], marking: Marking) -> Result<Self> {
        let connected = |class: Class| -> Result<UdpSocket> {
            let (socket, to) = (open(marking)?, to[class as usize]);
            socket
                .connect(to)
                .with_context(|| format!("connecting to {to}"))?;
            if marking.priority {
                sys::set_priority(socket.as_raw_fd(), SO_PRIORITY[class as usize])
                    .context("SO_PRIORITY")?;
            }
            Ok(socket)
        };
        let [audio, video, data] = Class::ALL;
        let sockets = ns.enter(|| Ok([connected(audio)?, connected(video)?, connected(data)?]))?;
        Ok(Self {
            sockets: Sockets::Call(sockets),
            marking,
        })
    }

    /// Opens one socket inside `ns` for all `clients`: stream n goes to client n, each
    /// class to its port as in [`new`](Self::new). With [`Marking::priority`] the kernel
    /// must be 6.14 or newer.
    pub fn relay(ns: &Netns, clients: Vec<SocketAddrV4>, marking: Marking) -> Result<Self> {
        Ok(Self {
            sockets: Sockets::Relay(ns.enter(|| open(marking))?, clients),
            marking,
        })
    }

    /// Sends all of `schedule`, its time 0 being `start` (ns of CLOCK_MONOTONIC).
    /// Blocks the calling thread until the last packet is out.
    pub fn run(&self, schedule: &Schedule, start: u64) -> Result<Sent> {
        if let Sockets::Relay(_, clients) = &self.sockets {
            let (streams, clients) = (schedule.streams(), clients.len());
            ensure!(
                streams <= clients,
                "{streams} streams need as many clients, not {clients}"
            );
        }
        let mut ids = adu_ids(&schedule.packets, self.marking.alone).into_iter();
        let mut buffer = [0u8; 2048];
        let tai = sys::tai_offset();
        Sent::at_times(schedule, start, |sent, packet, record| {
            let class = packet.class as usize;
            let deadline = record.created + packet.lifetime;
            let id = ids.next().flatten();
            let payload = &mut buffer[..(packet.wire_bytes - HEADERS) as usize];
            record.write(packet, payload);
            let mut meta = Meta::default();
            if self.marking.mark {
                let mut metadata = Metadata::new()
                    .deadline(Deadline::from_monotonic_ns(deadline))
                    .priority(Priority::new(packet.priority)?);
                if let Some(id) = id {
                    metadata = metadata.adu(id);
                }
                meta.mark = Some(Mark::encode(&metadata, sys::now(), Magic::default())?.get());
            }
            meta.tos = self.marking.dscp.then_some(TOS[class]);
            if let Some(owd) = self.marking.txtime_owd {
                meta.txtime = Some((deadline - owd).saturating_add_signed(tai));
            }
            let result = match &self.sockets {
                Sockets::Call(sockets) => {
                    sys::send(sockets[class].as_raw_fd(), payload, meta, None)
                }
                Sockets::Relay(socket, clients) => {
                    meta.priority = self.marking.priority.then_some(SO_PRIORITY[class]);
                    let to = port_of(clients[usize::from(packet.stream)], packet.class);
                    sys::send(socket.as_raw_fd(), payload, meta, Some(to))
                }
            };
            if let Err(error) = result {
                let full = error.kind() == io::ErrorKind::WouldBlock
                    || error.raw_os_error() == Some(libc::ENOBUFS);
                *(if full {
                    &mut sent.would_block
                } else {
                    &mut sent.refused
                }) += 1;
            }
            Ok(())
        })
    }
}

fn open(marking: Marking) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("binding the sender's socket")?;
    sys::big_send_buffer(socket.as_raw_fd(), SEND_BUFFER)
        .context("SO_SNDBUFFORCE (needs CAP_NET_ADMIN)")?;
    if marking.txtime_owd.is_some() {
        sys::set_txtime_deadline(&socket).context("SO_TXTIME in deadline mode")?;
    }
    Ok(socket)
}

/// Where `class` goes when audio goes to `to`.
fn port_of(to: SocketAddrV4, class: Class) -> SocketAddrV4 {
    SocketAddrV4::new(*to.ip(), to.port() + class as u16)
}

/// The rolling id of each packet's ADU: ids follow each other within a flow (stream and
/// class), where the classifier looks at them. A packet that is an ADU by itself, as all
/// audio is here, needs none; but where all are (`alone`), packets of equal deadlines or RTP
/// timestamps would be taken for one ADU without an id each.
fn adu_ids(packets: &[Packet], alone: bool) -> Vec<Option<AduId>> {
    let mut flows: HashMap<(u16, Class), AduIds> = HashMap::new();
    let mut open: HashMap<u32, AduId> = HashMap::new();
    let id = |packet: &Packet| {
        if alone {
            open.clear();
        } else if packet.class == Class::Audio {
            return None;
        }
        let ids = flows.entry((packet.stream, packet.class)).or_default();
        Some(*open.entry(packet.adu).or_insert_with(|| ids.take_id()))
    };
    packets.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_roll_within_a_flow_and_interleaved_adus_keep_theirs() {
        let packet = |class, stream, adu| Packet {
            stream,
            ..Packet::of(class, adu)
        };
        let packets = [
            packet(Class::Video, 0, 0),
            packet(Class::Video, 1, 1),
            packet(Class::Audio, 0, 2),
            packet(Class::Video, 0, 3),
            packet(Class::Video, 0, 0),
            packet(Class::Video, 1, 4),
        ];
        let ids = adu_ids(&packets, false);
        assert_eq!(ids[2], None, "audio");
        assert_eq!(ids[0], ids[1], "each flow counts by itself");
        assert_eq!(ids[0], ids[4]);
        assert_eq!(ids[0].map(AduId::next), ids[3]);
        assert_eq!(ids[3], ids[5]);
        let alone = adu_ids(&packets, true);
        assert_eq!(alone[4], alone[3].map(AduId::next));
    }
}
