//! The media server's part: takes RTP from the encoder and passes it on to the
//! client, packet by packet. It knows nothing of bestby. Asked to mark frames,
//! it does what RFC 8837 has for interactive video: a DSCP of class AF4x that
//! says what may be given up first, read from two bits of the payload.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    Event,
    account::{Received, Sent, Stream},
    rtp::{self, Layer},
    sys::{be_punctual, readable},
    world::{CLIENT, World},
};
use crate::sys::{
    big_receive_buffer, big_send_buffer, now, realtime_offset, receive, set_option,
    timestamp_arrivals,
};

/// RTP ports; RTCP is on the next one.
pub(super) const AUDIO_PORT: u16 = 5004;
pub(super) const VIDEO_PORT: u16 = 5006;

/// The DSCP of a frame: AF41 if others need it, AF43 (drop first) if none does.
pub(super) fn dscp(layer: Layer) -> u8 {
    match layer {
        Layer::Key | Layer::Reference => 34,
        Layer::Disposable => 38,
    }
}

/// A thread of the demo; ends when dropped.
#[derive(Debug)]
pub(super) struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Worker {
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new().name(name.into()).spawn({
            let stop = Arc::clone(&stop);
            move || work(&stop)
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends it; an error if it ended before, or panicked.
    pub(super) fn finish(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("a thread was stopped twice")?;
        let name = thread.thread().name().unwrap_or("?").to_owned();
        thread
            .join()
            .map_err(|_| anyhow!("the thread `{name}` panicked"))?
            .with_context(|| format!("the thread `{name}` failed"))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The running relay.
#[derive(Debug)]
pub(super) struct Relay {
    refused: Arc<AtomicU64>,
    worker: Worker,
}

impl Relay {
    pub(super) fn start(world: &World, mark_frames: bool, events: Sender<Event>) -> Result<Self> {
        let sockets = world.server.enter(|| bind([127, 0, 0, 1]))?;
        let out = world.server.enter(|| {
            let open = |port| -> Result<UdpSocket> {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect(format!("{CLIENT}:{port}"))?;
                socket.set_nonblocking(true)?;
                // The queue under test shall fill up, not this socket.
                big_send_buffer(socket.as_raw_fd(), 16 << 20)?;
                Ok(socket)
            };
            ports().map(open).into_iter().collect::<Result<Vec<_>>>()
        })?;
        let refused = Arc::new(AtomicU64::new(0));
        let worker = Worker::start("relay", {
            let refused = Arc::clone(&refused);
            move |stop| {
                be_punctual();
                let mut tos = 0;
                each_packet(&sockets, stop, |index, _, packet| {
                    // From here on the data exists at the server.
                    let at_ns = now();
                    let rtp = stream(index).zip(rtp::parse(packet));
                    if let Some((stream, (key, _))) = rtp {
                        let _ = events.send(Event::Sent(Sent { at_ns, stream, key }));
                    }
                    if mark_frames
                        && let Some((Stream::Video, (_, payload))) = rtp
                        && let Some(layer) = Layer::of_h264(payload)
                    {
                        let wanted = i32::from(dscp(layer)) << 2;
                        if wanted != tos {
                            let fd = out[index].as_raw_fd();
                            let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_TOS, wanted);
                            tos = wanted;
                        }
                    }
                    // A queue may refuse a packet at once: as lost as one dropped later.
                    // An ICMP error of an earlier one says nothing of this one.
                    if out[index].send(packet).is_err() {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                })
            }
        })?;
        Ok(Self { refused, worker })
    }

    /// Ends it; packets for which `send` returned an error.
    pub(super) fn finish(self) -> Result<u64> {
        self.worker.finish()?;
        Ok(self.refused.load(Ordering::Relaxed))
    }
}

/// Receives in the client's namespace and reports every RTP packet.
pub(super) fn start_client(world: &World, events: Sender<Event>) -> Result<Worker> {
    let sockets = world.client.enter(|| bind([0, 0, 0, 0]))?;
    for socket in &sockets {
        timestamp_arrivals(socket.as_raw_fd())?;
    }
    Worker::start("client", move |stop| {
        be_punctual();
        each_packet(&sockets, stop, |index, stamp, packet| {
            let Some((stream, (key, payload))) = stream(index).zip(rtp::parse(packet)) else {
                return;
            };
            // When the kernel had it: this thread may wake up later.
            let at_ns =
                stamp.map_or_else(now, |real| real.saturating_add_signed(-realtime_offset()));
            let payload = if stream == Stream::Video {
                payload.to_vec()
            } else {
                Vec::new()
            };
            let _ = events.send(Event::Received(Received {
                at_ns,
                key,
                payload,
            }));
        })
    })
}

/// Audio, its RTCP, video, its RTCP.
fn ports() -> [u16; 4] {
    [AUDIO_PORT, AUDIO_PORT + 1, VIDEO_PORT, VIDEO_PORT + 1]
}

fn stream(index: usize) -> Option<Stream> {
    match index {
        0 => Some(Stream::Audio),
        2 => Some(Stream::Video),
        _ => None,
    }
}

fn bind(address: [u8; 4]) -> Result<[UdpSocket; 4]> {
    let open = |port: u16| -> Result<UdpSocket> {
        let address = SocketAddr::from((address, port));
        let socket = UdpSocket::bind(address).with_context(|| format!("binding UDP {address}"))?;
        socket.set_nonblocking(true)?;
        big_receive_buffer(socket.as_raw_fd(), 8 << 20)?;
        Ok(socket)
    };
    let [a, b, c, d] = ports().map(open);
    Ok([a?, b?, c?, d?])
}

/// Calls `on_packet(socket, stamp, packet)` until `stop`; the stamp is the
/// kernel's, CLOCK_REALTIME, on sockets that ask for one.
fn each_packet(
    sockets: &[UdpSocket; 4],
    stop: &AtomicBool,
    mut on_packet: impl FnMut(usize, Option<u64>, &[u8]),
) -> io::Result<()> {
    let mut buffer = [0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let [a, b, c, d] = sockets;
        let ready = readable([a, b, c, d], Duration::from_millis(50))?;
        for (index, socket) in sockets.iter().enumerate().filter(|(i, _)| ready[*i]) {
            while let Some((length, stamp)) = receive(socket.as_raw_fd(), &mut buffer)? {
                on_packet(index, stamp, &buffer[..length]);
            }
        }
    }
    Ok(())
}
