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
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, FromRawFd as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::{
    netns::{self, Netns},
    sys::{self, MILLI},
    topology::{Path, RECEIVER},
};

const PORT: u16 = 5201;
/// Ethernet, IPv4, TCP with timestamps: what a segment's payload has in front.
const HEADERS: u32 = 14 + 20 + 32;
/// Options that TCP_MAXSEG includes: the timestamps.
const OPTIONS: u32 = 12;
/// Bytes delivered are counted for so long each, ns.
pub const BUCKET: u64 = 100 * MILLI;
/// Bytes in a sender's buffer: more than any window here, less than a second of it.
const SEND_BUFFER: libc::c_int = 64 << 10;

/// What the flows are like.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// How many.
    pub count: usize,
    /// TCP_CONGESTION, e.g. `reno` (in every kernel).
    pub control: String,
    /// Largest packet on the wire, MAC header included: 154 to 1514 bytes.
    pub wire_bytes: u32,
}

impl Flows {
    /// Bytes on the wire of the packets that carry `payload` bytes. A bulk flow fills its
    /// packets but for the last, so their size says it.
    pub fn on_the_wire(&self, payload: u64) -> u64 {
        let carried = self.wire_bytes - HEADERS;
        (payload as f64 * f64::from(self.wire_bytes) / f64::from(carried)).round() as u64
    }
}

/// What one flow delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Payload bytes by [`BUCKET`] since the flows were started.
    pub bytes: Vec<u64>,
    /// Congestion control in force, as the kernel reports it.
    pub control: String,
}

impl Delivered {
    /// Mean payload rate from `from` ns on to the last byte, bit/s.
    pub fn rate(&self, from: u64) -> f64 {
        let rest = self.bytes.get((from / BUCKET) as usize..).unwrap_or(&[]);
        if rest.is_empty() {
            return 0.0;
        }
        rest.iter().sum::<u64>() as f64 * 8e9 / (rest.len() as u64 * BUCKET) as f64
    }
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

    /// Starts `flows` to the receiver of `path`; they go on until [`Running::stop`].
    pub fn start(&self, path: &Path, flows: &Flows) -> Result<Running> {
        let listener = path.receiver().enter(|| {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
                .with_context(|| format!("listening on TCP port {PORT}"))
        })?;
        let mut running = Running {
            stop: Arc::new(AtomicBool::new(false)),
            senders: Vec::new(),
            receivers: Vec::new(),
            sockets: Vec::new(),
            began: sys::now(),
        };
        let began = running.began;
        for _ in 0..flows.count {
            let sending = self.ns.enter(|| connect(flows))?;
            let (receiving, _) = listener.accept().context("accepting a competing flow")?;
            let control = control(&sending)?;
            let ends = [sending.try_clone()?, receiving.try_clone()?];
            running.sockets.extend(ends);
            let stop = running.stop.clone();
            running
                .senders
                .push(thread::spawn(move || send(sending, &stop)));
            running.receivers.push(thread::spawn(move || {
                receive(receiving, began).map(|bytes| Delivered { bytes, control })
            }));
        }
        Ok(running)
    }
}

/// A connection with the options set before its handshake.
fn connect(flows: &Flows) -> Result<TcpStream> {
    // SAFETY: plain integers in, a new descriptor out that the stream owns from here on.
    let stream = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("TCP socket");
        }
        TcpStream::from_raw_fd(fd)
    };
    let fd = stream.as_raw_fd();
    let mut name = [0u8; 16];
    let word = flows.control.as_bytes();
    name.get_mut(..word.len())
        .with_context(|| format!("`{}` is no congestion control", flows.control))?
        .copy_from_slice(word);
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name).with_context(|| {
        format!(
            "TCP_CONGESTION {}: see `modprobe -n tcp_{0}`",
            flows.control
        )
    })?;
    let segment = (flows.wire_bytes - HEADERS + OPTIONS) as libc::c_int;
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, segment)
        .with_context(|| format!("TCP_MAXSEG {segment}"))?;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER).context("SO_SNDBUF")?;
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(RECEIVER).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: `to` is a live sockaddr_in and its size is what is passed.
    let result = unsafe {
        libc::connect(
            fd,
            std::ptr::from_ref(&to).cast(),
            size_of_val(&to) as libc::socklen_t,
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("connecting to {}", SocketAddrV4::new(RECEIVER, PORT)));
    }
    Ok(stream)
}

/// The congestion control that a socket uses.
fn control(stream: &TcpStream) -> Result<String> {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `name`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error()).context("reading TCP_CONGESTION");
    }
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

fn send(mut stream: TcpStream, stop: &AtomicBool) {
    let block = [0x5a; 8192];
    while !stop.load(Ordering::Acquire) {
        // An error is the end of the connection, which `stop` brings about.
        if stream.write_all(&block).is_err() {
            return;
        }
    }
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
    stop: Arc<AtomicBool>,
    senders: Vec<JoinHandle<()>>,
    receivers: Vec<JoinHandle<Result<Delivered>>>,
    sockets: Vec<TcpStream>,
    began: u64,
}

impl Running {
    /// When the flows were started, from which [`Delivered::bytes`] are counted: ns of
    /// CLOCK_MONOTONIC.
    pub fn began(&self) -> u64 {
        self.began
    }

    /// Ends the flows at once and says what each delivered.
    pub fn stop(mut self) -> Result<Vec<Delivered>> {
        self.end();
        for sender in self.senders.drain(..) {
            sender
                .join()
                .map_err(|_| anyhow!("a competing sender panicked"))?;
        }
        self.receivers
            .drain(..)
            .map(|receiver| {
                receiver
                    .join()
                    .map_err(|_| anyhow!("a competing receiver panicked"))?
            })
            .collect()
    }

    /// Wakes both ends of every flow. What is still under way is not waited for.
    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
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

/// Until TCP has left slow start and fills the router's queue.
pub const WARM_UP: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_counted_with_the_headers_of_its_packets() {
        let flows = Flows {
            count: 2,
            control: "reno".into(),
            wire_bytes: 519,
        };
        assert_eq!(flows.on_the_wire(453_000), 519_000);
        assert_eq!(flows.on_the_wire(0), 0);
    }

    #[test]
    fn a_rate_is_of_the_time_asked_for() {
        let delivered = Delivered {
            bytes: vec![0, 0, 1000, 3000],
            control: "reno".into(),
        };
        assert_eq!(delivered.rate(0), 4000.0 * 8.0 / 0.4);
        assert_eq!(delivered.rate(2 * BUCKET), 4000.0 * 8.0 / 0.2);
        assert_eq!(delivered.rate(10 * BUCKET), 0.0);
    }
}
