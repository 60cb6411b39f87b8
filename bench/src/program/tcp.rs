//! Programs over TCP. Their receiver is a plain reader of frames.

use std::{
    ffi::OsString,
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use bestby::{
    Deadline, Metadata, Priority,
    tcp::{Options, Ring},
};
use nix::sys::socket::{setsockopt, sockopt};

use super::{Congestion, Frames, Program, Seen, Task, Times, arrival, frame};
use crate::{
    netns::Netns,
    sys::{self, MILLI},
    topology::{Path, RECEIVER},
    traffic::{Schedule, receiver::Arrival},
};

const PORT: u16 = 5040;
/// How often the connection is looked at, ns.
const LOOK: u64 = 10 * MILLI;
/// Cloudflare's `tcp_notsent_lowat`, bytes.
const LOWAT: libc::c_int = 16 << 10;
/// h2o's defaults: its rule holds for round trips from so long on (µs) and congestion windows up to so many
/// bytes, and writes so many segments more than the window has room for, so that poll waits for the window.
const H2O_RTT_US: u32 = 50_000;
const H2O_WINDOW: u64 = 65_535;
const H2O_MORE: u32 = 2;

pub(super) fn run(
    path: &Path,
    task: &Task<'_>,
    times: impl FnOnce() -> Times,
) -> Result<(Times, Seen)> {
    let listener = path.receiver().enter(|| {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
            .with_context(|| format!("listening on TCP port {PORT}"))
    })?;
    let near = connect(path.sender(), task.congestion)?;
    let far = listener.accept().context("accepting the program")?.0;
    let times = times();
    let seen = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let _ = sys::realtime_thread(40);
            read(&far, task.schedule, times)
        });
        let looking = scope.spawn(|| look(&near, times));
        let sent = match task.program {
            Program::Ring { capped } => ring(&near, task.schedule, capped, times),
            _ => Queue::new(&near, task).send(times),
        };
        // What the kernel holds goes with the connection: nothing of this run meets the next one's.
        let linger = socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO));
        // Fails where the other end was quicker.
        let _ = far.shutdown(Shutdown::Both);
        let panicked = |_| anyhow!("a thread of the program's run panicked");
        let read = reading.join().map_err(panicked)?;
        let looked = looking.join().map_err(panicked)?;
        linger?;
        let (late, given_up) = sent?;
        let (arrivals, received) = read?;
        let (unsent, rtts) = looked?;
        anyhow::Ok(Seen {
            arrivals,
            received,
            rtts,
            unsent,
            given_up,
            late,
            ..Seen::default()
        })
    })?;
    Ok((times, seen))
}

fn connect(ns: &Netns, congestion: Congestion) -> Result<TcpStream> {
    ns.enter(|| {
        // A run must not begin with what the one before it has learnt of the path.
        fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").context("tcp_no_metrics_save")?;
        let to = SocketAddrV4::new(RECEIVER, PORT);
        let stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
        let name = congestion.kernel_name();
        setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(&name))
            .with_context(|| format!("TCP_CONGESTION {name}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    })
}

/// Reads frames until the connection ends.
fn read(far: &TcpStream, schedule: &Schedule, times: Times) -> Result<(Vec<Arrival>, u64)> {
    let (mut arrivals, mut received, mut frames) = (Vec::new(), 0, Frames::default());
    let (mut far, mut block) = (far, vec![0; 64 << 10]);
    loop {
        match far.read(&mut block) {
            Ok(0) => return Ok((arrivals, received)),
            Ok(length) => {
                if sys::now() <= times.made {
                    received += length as u64;
                }
                arrivals.extend(
                    frames
                        .take(&block[..length], schedule)?
                        .into_iter()
                        .map(arrival),
                );
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Ok((arrivals, received));
            }
            Err(error) => return Err(error).context("reading what the program sent"),
        }
    }
}

/// Bytes unsent in the kernel and the smoothed round trip while ADUs are made.
fn look(near: &TcpStream, times: Times) -> Result<(Vec<u64>, Vec<u64>)> {
    let (mut unsent, mut rtts, mut at) = (Vec::new(), Vec::new(), times.start);
    while at < times.made {
        sys::sleep_until(at);
        let info = sys::tcp_info(near.as_raw_fd()).context("TCP_INFO")?;
        unsent.push(sys::tcp_unsent(near.as_raw_fd()).context("SIOCOUTQNSD")?);
        rtts.push(u64::from(info.tcpi_rtt) * 1000);
        at += LOOK;
    }
    Ok((unsent, rtts))
}

/// Sends through a ring; returns by how much it was late, and how many ADUs were given up.
fn ring(near: &TcpStream, schedule: &Schedule, capped: bool, times: Times) -> Result<(u64, u64)> {
    let options = match capped {
        true => Options::new(),
        false => Options::new().queue(None),
    };
    let mut ring = Ring::with(near.try_clone()?, options)?;
    let mut late = 0;
    for (sequence, packet) in (0..).zip(&schedule.packets) {
        let created = times.start + packet.at;
        ring.run_until(instant(created))?;
        late = late.max(sys::now().saturating_sub(created));
        let metadata = Metadata::new()
            .deadline(Deadline::from_monotonic_ns(created + packet.lifetime))
            .priority(Priority::new(packet.priority)?);
        ring.push(frame(sequence, packet), metadata);
        ring.outcomes().for_each(drop);
    }
    ring.run_until(instant(times.end))?;
    Ok((late, ring.stats().given_up.total()))
}

fn instant(at: u64) -> Instant {
    Instant::now() + Duration::from_nanos(at.saturating_sub(sys::now()))
}

/// An ADU in a queue in front of a socket.
struct Waiting {
    sequence: u32,
    priority: u8,
    deadline: u64,
    bytes: Vec<u8>,
}

/// A program's own queue in front of its socket.
struct Queue<'a> {
    near: &'a TcpStream,
    program: Program,
    schedule: &'a Schedule,
    waiting: Vec<Waiting>,
    /// What has begun, and how much of it is written.
    begun: Option<(Vec<u8>, usize)>,
    given_up: u64,
}

impl<'a> Queue<'a> {
    fn new(near: &'a TcpStream, task: &Task<'a>) -> Self {
        Self {
            near,
            program: task.program,
            schedule: task.schedule,
            waiting: Vec::new(),
            begun: None,
            given_up: 0,
        }
    }

    /// Sends all; returns by how much it was late, and how many ADUs were given up.
    fn send(mut self, times: Times) -> Result<(u64, u64)> {
        let lowat = match self.program {
            Program::Lowat => Some(LOWAT),
            Program::H2o => Some(1),
            _ => None,
        };
        let fd = self.near.as_raw_fd();
        if let Some(bytes) = lowat {
            sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
                .context("TCP_NOTSENT_LOWAT")?;
        }
        let mut late = 0;
        let mut packets = (0..).zip(&self.schedule.packets).peekable();
        loop {
            let now = sys::now();
            if now >= times.end {
                return Ok((late, self.given_up));
            }
            while let Some((sequence, packet)) =
                packets.next_if(|(_, packet)| times.start + packet.at <= now)
            {
                let created = times.start + packet.at;
                late = late.max(now - created);
                self.waiting.push(Waiting {
                    sequence,
                    priority: packet.priority,
                    deadline: created + packet.lifetime,
                    bytes: frame(sequence, packet),
                });
            }
            self.write(now)?;
            let next = packets
                .peek()
                .map_or(times.end, |(_, packet)| times.start + packet.at);
            let waits = self.begun.is_some() || !self.waiting.is_empty();
            let events = if waits { libc::POLLOUT } else { 0 };
            sys::wait_until(&[fd], events, next.min(times.end))?;
        }
    }

    /// Writes what the socket takes, and the program lets it have.
    fn write(&mut self, now: u64) -> Result<()> {
        let mut room = match self.program {
            Program::H2o => self.window()?,
            _ => usize::MAX,
        };
        while room > 0 {
            let next = self.begun.take().or_else(|| Some((self.choose(now)?, 0)));
            let Some((bytes, at)) = next else { break };
            let part = &bytes[at..bytes.len().min(at.saturating_add(room))];
            let written = match (&mut &*self.near).write(part) {
                Ok(written) => written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Begun only if some of it is written.
                    self.begun = Some((bytes, at));
                    break;
                }
                Err(error) => return Err(error).context("the program's write"),
            };
            room -= written;
            if at + written < bytes.len() {
                self.begun = Some((bytes, at + written));
            }
        }
        Ok(())
    }

    /// The ADU that begins now; drops what is stale, if the program does.
    fn choose(&mut self, now: u64) -> Option<Vec<u8>> {
        if self.program != Program::Plain {
            let before = self.waiting.len();
            self.waiting.retain(|adu| adu.deadline > now);
            self.given_up += (before - self.waiting.len()) as u64;
        }
        let ranked = matches!(self.program, Program::Lowat | Program::H2o);
        let order = |adu: &Waiting| (if ranked { adu.priority } else { 0 }, adu.sequence);
        let first = (0..self.waiting.len()).min_by_key(|&at| order(&self.waiting[at]))?;
        Some(self.waiting.remove(first).bytes)
    }

    /// Bytes that h2o would write now.
    fn window(&self) -> Result<usize> {
        let info = sys::tcp_info(self.near.as_raw_fd()).context("TCP_INFO")?;
        let segment = u64::from(info.tcpi_snd_mss);
        if info.tcpi_rtt < H2O_RTT_US || u64::from(info.tcpi_snd_cwnd) * segment > H2O_WINDOW {
            return Ok(usize::MAX);
        }
        let segments = info.tcpi_snd_cwnd.saturating_sub(info.tcpi_unacked) + H2O_MORE;
        Ok(usize::try_from(u64::from(segments) * segment)?)
    }
}
