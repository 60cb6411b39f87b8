//! TCP bulk flows beside the media, through the same router (SFDPS §5.2: two Reno flows
//! by iperf, with packets of the media's mean size).
//!
//! They start in a namespace of their own at the router, so that they never pass the
//! queue under test:
//!
//! ```text
//! sender ns      router ns
//! s0 ──────── x0 → forward → x1 ── ...
//!                 x2 ┘
//! t0 ────────────────
//! competitor ns
//! ```

use std::{
    ffi::OsString,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn, setsockopt, sockopt};

use crate::{
    netns::{self, Netns},
    sys::{self, MILLI},
    topology::{Path, RECEIVER},
};

const PORT: u16 = 5201;
/// TCP_CONGESTION; in every kernel.
const CONTROL: &str = "reno";
/// A full packet on the wire, MAC header included: the conference's mean, as in SFDPS §5.2.
const WIRE_BYTES: u32 = 519;
/// Ethernet, IPv4, TCP with timestamps: what a segment's payload has in front.
const HEADERS: u32 = 14 + 20 + 32;
/// Options that TCP_MAXSEG includes: the timestamps.
const OPTIONS: u32 = 12;
const SEGMENT: u32 = WIRE_BYTES - HEADERS + OPTIONS;
/// Bytes delivered are counted for so long each, ns.
pub const BUCKET: u64 = 100 * MILLI;
/// Bytes in a sender's buffer: more than any window here, less than a second of it.
const SEND_BUFFER: usize = 64 << 10;
/// Until TCP has left slow start and fills the router's queue.
pub const WARM_UP: Duration = Duration::from_secs(2);

/// Bytes on the wire of the packets that carry `payload` bytes. A bulk flow fills its packets
/// but for the last, so their size says it.
pub fn on_the_wire(payload: u64) -> u64 {
    let carried = WIRE_BYTES - HEADERS;
    (payload as f64 * f64::from(WIRE_BYTES) / f64::from(carried)).round() as u64
}

/// The competitor's namespace, connected to the router of a path.
#[derive(Debug)]
pub struct Competitor {
    ns: Netns,
}

impl Competitor {
    /// Connects a namespace to the router of `path`.
    pub fn new(path: &Path) -> Result<Self> {
        let router = path
            .router()
            .context("competing flows need a path with a router")?;
        let ns = Netns::new("t")?;
        netns::veth((&ns, "t0", "10.77.4.1/24"), (router, "x2", "10.77.4.2/24"))?;
        ns.sh("ip", "route add default via 10.77.4.2")?;
        Ok(Self { ns })
    }

    /// Starts `count` flows to the receiver of `path`; they go on until [`Running::stop`].
    pub fn start(&self, path: &Path, count: u32) -> Result<Running> {
        let listener = path.receiver().enter(|| {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
                .with_context(|| format!("listening on TCP port {PORT}"))
        })?;
        let mut running = Running {
            senders: Vec::new(),
            receivers: Vec::new(),
            sockets: Vec::new(),
            began: sys::now(),
        };
        let began = running.began;
        for _ in 0..count {
            let sending = self.ns.enter(|| connect(PORT, SEGMENT, SEND_BUFFER))?;
            let (receiving, _) = listener.accept().context("accepting a competing flow")?;
            let ends = [sending.try_clone()?, receiving.try_clone()?];
            running.sockets.extend(ends);
            running.senders.push(thread::spawn(move || send(sending)));
            let receiver = thread::spawn(move || receive(receiving, began));
            running.receivers.push(receiver);
        }
        Ok(running)
    }
}

/// A connection to the receiver's `port` with the options set before its handshake: segments of
/// `segment` bytes, TCP's and IP's options included, and a buffer of `buffer` bytes.
pub fn connect(port: u16, segment: u32, buffer: usize) -> Result<TcpStream> {
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let socket =
        socket::socket(family, SockType::Stream, flags, None).context("opening a TCP socket")?;
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(CONTROL))
        .with_context(|| format!("TCP_CONGESTION {CONTROL}"))?;
    setsockopt(&socket, sockopt::TcpMaxSeg, &segment)
        .with_context(|| format!("TCP_MAXSEG {segment}"))?;
    sys::big_send_buffer(socket.as_raw_fd(), buffer as libc::c_int).context("SO_SNDBUFFORCE")?;
    let to = SocketAddrV4::new(RECEIVER, port);
    socket::connect(socket.as_raw_fd(), &SockaddrIn::from(to))
        .with_context(|| format!("connecting to {to}"))?;
    Ok(socket.into())
}

fn send(mut stream: TcpStream) {
    // An error is the end of the connection, which `Running::end` brings about.
    while stream.write_all(&[0x5a; 8192]).is_ok() {}
}

fn receive(mut stream: TcpStream, began: u64) -> Result<Vec<u64>> {
    let mut buckets = Vec::new();
    let mut block = vec![0; 64 << 10];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Ok(buckets),
            Ok(length) => {
                let bucket = (sys::now().saturating_sub(began) / BUCKET) as usize;
                if buckets.len() <= bucket {
                    buckets.resize(bucket + 1, 0);
                }
                buckets[bucket] += length as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(buckets),
            Err(error) => return Err(error).context("receiving a competing flow"),
        }
    }
}

/// Flows under way.
#[derive(Debug)]
pub struct Running {
    senders: Vec<JoinHandle<()>>,
    receivers: Vec<JoinHandle<Result<Vec<u64>>>>,
    sockets: Vec<TcpStream>,
    began: u64,
}

impl Running {
    /// When the flows were started, ns of CLOCK_MONOTONIC.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Ends the flows at once. Returns the payload bytes that each delivered, by [`BUCKET`] since
    /// [`began`](Self::began).
    pub fn stop(mut self) -> Result<Vec<Vec<u64>>> {
        self.end();
        let panicked = |_| anyhow!("a thread of a competing flow panicked");
        for sender in self.senders.drain(..) {
            sender.join().map_err(panicked)?;
        }
        let receivers = self.receivers.drain(..);
        receivers
            .map(|receiver| receiver.join().map_err(panicked)?)
            .collect()
    }

    /// Ends both ends of every flow. What is still under way is not waited for.
    fn end(&mut self) {
        for socket in self.sockets.drain(..) {
            // Fails where the other end was quicker.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_payload_on_the_wire_has_the_headers_of_its_packets() {
        assert_eq!(on_the_wire(453_000), 519_000);
        assert_eq!(on_the_wire(0), 0);
    }
}
