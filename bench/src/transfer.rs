//! Bulk data over TCP through the router of a [`Path`]: one flow under test, and others beside it, each with a
//! congestion control of its own.
//!
//! 1. Every flow has a port, so that the receiver knows which is which. It starts when the model says, with a
//!    SYN that may be lost like any packet.
//! 2. It ends when all its bytes are there, or when the run does; a flow that is not finished is judged by what
//!    came.
//! 3. With an interval the receiver is an application that takes so much at each of its ends, if all of it is
//!    there. What it does not take fills the receive buffer, and TCP waits for the window.
//! 4. Both ends are looked at each 10 ms, for the windows and for how a flow comes back after a blackout.

use std::{
    ffi::OsString,
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrIn, setsockopt, sockopt};

use crate::{
    fading::{Fading, Switching},
    measure::{Flow, Spread, Transfer, jain, share},
    netns::Netns,
    program::Congestion,
    sys::{self, MILLI, SECOND},
    topology::{DEVICE, Path, RECEIVER},
    traffic::transfer::Parameters,
};

/// Of the first flow.
const PORT: u16 = 5100;
/// TCP's timestamps in each segment, bytes; TCP_MAXSEG includes them.
const TIMESTAMPS: u32 = 12;
/// How often both ends are looked at, ns.
const LOOK: u64 = 10 * MILLI;

/// What is to be transferred.
#[derive(Debug)]
pub struct Task<'a> {
    /// Sizes and times.
    pub model: &'a Parameters,
    /// Congestion control of the flow under test.
    pub congestion: Congestion,
    /// Losses, if there are any.
    pub fading: Option<&'a Fading>,
    /// One way, ns, as asked for.
    pub delay: u64,
    /// When the run ends, ns since its start.
    pub duration: u64,
    /// What comes before is not judged, ns.
    pub discard: u64,
    /// Of the losses.
    pub seed: u64,
}

impl Task<'_> {
    /// Congestion controls of all flows, in the order of their starts.
    pub fn kinds(&self) -> Vec<Congestion> {
        let beside = self.model.beside.iter().copied();
        [self.congestion].into_iter().chain(beside).collect()
    }

    /// Phases of loss that are over when the run is, ns since its start.
    fn blackouts(&self) -> Vec<[u64; 2]> {
        let phases = self.fading.map(|fading| fading.phases(self.seed));
        let phases = phases.into_iter().flatten();
        phases.take_while(|[_, end]| *end < self.duration).collect()
    }
}

/// Transfers what `task` says over `path`.
pub fn run(path: &Path, task: &Task<'_>) -> Result<Transfer> {
    for ns in [path.sender(), path.receiver()] {
        // A flow must not begin with what one before it has learnt of the path.
        ns.enter(|| Ok(fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?))?;
    }
    // A packet that is lost is one segment.
    let segments = format!("link set dev {DEVICE} gso_max_segs 1");
    path.sender().sh("ip", &segments)?;
    let kinds = task.kinds();
    let listeners = kinds.iter().zip(PORT..).map(|(_, port)| {
        path.receiver()
            .enter(|| listen(port, task.model.window_kb * 1024))
    });
    let listeners = listeners.collect::<Result<Vec<_>>>()?;
    let start = sys::now() + 50 * MILLI;
    let fading = task.fading.map(|fading| {
        let (delay, seed) = (task.delay, task.seed);
        Switching::start(path.middle(), fading, delay, seed, start)
    });
    let fading = fading.transpose()?;
    let begins = task.model.starts(task.seed);
    let flows: Result<Vec<Flow>> = thread::scope(|scope| {
        let flows: Vec<_> = begins
            .iter()
            .zip(kinds.iter().zip(&listeners))
            .map(|(&begin, (&kind, listener))| {
                scope.spawn(move || {
                    flow(path.sender(), task, kind, listener, [start, start + begin])
                })
            })
            .collect();
        let panicked = |_| anyhow!("a thread of a transfer panicked");
        let joined = flows.into_iter().map(|flow| flow.join().map_err(panicked)?);
        joined.collect()
    });
    // First the losses' end: it has an error of its own, and the next run needs the path without them.
    fading.map_or(Ok(()), Switching::stop)?;
    let flows = flows?;
    let goodputs: Vec<f64> = flows.iter().map(|flow| flow.goodput_kb).collect();
    Ok(Transfer {
        jain: (flows.len() > 1).then(|| jain(&goodputs)),
        share: (flows.len() > 1).then(|| share(&goodputs)),
        flows: (1..).map(|n: u32| n.to_string()).zip(flows).collect(),
        real: None,
    })
}

/// One flow, from its SYN at `begin` to its end, in a run that starts at `start`.
fn flow(
    ns: &Netns,
    task: &Task<'_>,
    kind: Congestion,
    listener: &TcpListener,
    [start, begin]: [u64; 2],
) -> Result<Flow> {
    let end = start + task.duration;
    sys::sleep_until(begin);
    let near = ns.enter(|| connect(listener, task.model.segment, kind))?;
    let (far, _) = listener.accept().context("accepting a transfer")?;
    let stop = AtomicBool::new(false);
    let (received, looks, last) = thread::scope(|scope| {
        let sending = scope.spawn(|| send(&near, task.model.bytes));
        let looking = scope.spawn(|| look(&near, &far, &stop));
        let received = receive(&far, task.model, end);
        stop.store(true, Ordering::Release);
        let last = sys::tcp_info(near.as_raw_fd()).context("TCP_INFO");
        // What is under way goes with the connection: nothing of this run meets the next one's.
        let linger = socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO));
        for end in [&near, &far] {
            // Fails where the other end was quicker.
            let _ = end.shutdown(Shutdown::Both);
        }
        let panicked = |_| anyhow!("a thread of a transfer panicked");
        let looks = looking.join().map_err(panicked)??;
        sending.join().map_err(panicked)?;
        linger?;
        anyhow::Ok((received?, looks, last?))
    })?;
    let judged = begin.max(start + task.discard);
    let counted = received.arrivals.iter().filter(|(at, _)| *at >= judged);
    let bytes: u64 = counted.map(|(_, bytes)| bytes).sum();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let blackouts = task.blackouts();
    let returns: Vec<Return> = blackouts
        .iter()
        .filter_map(|phase| comes_back(&looks, phase.map(|at| start + at), received.at))
        .collect();
    let took = received.at.saturating_sub(begin);
    let sent = last.tcpi_bytes_sent as f64 / 1e3;
    Ok(Flow {
        kind: kind.to_string(),
        finished: received.finished,
        took_s: seconds(took),
        goodput_kb: bytes as f64 / 1e3 / seconds(received.at.saturating_sub(judged)).max(1e-9),
        reads: received.reads,
        retransmitted: last.tcpi_total_retrans.into(),
        timeouts: last.tcpi_total_rto.into(),
        sent_kb: sent / seconds(took).max(1e-9),
        cwnd: Spread::of(looks.iter().map(|look| look.cwnd.into())),
        rtt_ms: Spread::of(looks.iter().map(|look| f64::from(look.rtt_us) / 1e3)),
        silent_ms: Spread::of(returns.iter().map(|back| back.silent as f64 / 1e6)),
        back_rtts: Spread::of(returns.iter().filter_map(|back| back.rtts)),
        lost_again: returns.iter().filter(|back| back.rtts.is_none()).count() as u64,
    })
}

fn listen(port: u16, window: u32) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        .with_context(|| format!("listening on TCP port {port}"))?;
    if window > 0 {
        let (fd, window) = (listener.as_raw_fd(), window as libc::c_int);
        sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
            .context("TCP_WINDOW_CLAMP")?;
    }
    Ok(listener)
}

fn connect(listener: &TcpListener, segment: u32, kind: Congestion) -> Result<TcpStream> {
    let (family, flags) = (AddressFamily::Inet, SockFlag::SOCK_CLOEXEC);
    let socket =
        socket::socket(family, SockType::Stream, flags, None).context("opening a TCP socket")?;
    let name = kind.kernel_name();
    setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(&name))
        .with_context(|| format!("TCP_CONGESTION {name}"))?;
    let segment = segment + TIMESTAMPS;
    setsockopt(&socket, sockopt::TcpMaxSeg, &segment)
        .with_context(|| format!("TCP_MAXSEG {segment}"))?;
    let to = SocketAddrV4::new(RECEIVER, listener.local_addr()?.port());
    socket::connect(socket.as_raw_fd(), &SockaddrIn::from(to))
        .with_context(|| format!("connecting to {to}"))?;
    Ok(socket.into())
}

/// Writes so many bytes, or without end for 0. An error is the end of the connection.
fn send(mut near: &TcpStream, bytes: u64) {
    let block = vec![0x5a; 64 << 10];
    let mut left = if bytes == 0 { u64::MAX } else { bytes };
    while left > 0 {
        let length = left.min(block.len() as u64);
        if near.write_all(&block[..length as usize]).is_err() {
            return;
        }
        left -= length;
    }
}

/// What the receiver saw.
#[derive(Debug, Default)]
struct Received {
    /// When it read, and how many bytes.
    arrivals: Vec<(u64, u64)>,
    finished: bool,
    /// When it was over.
    at: u64,
    /// Attempts of the application, and those that found enough.
    reads: [u64; 2],
}

fn receive(mut far: &TcpStream, model: &Parameters, end: u64) -> Result<Received> {
    let (mut received, mut all) = (Received::default(), 0);
    let (every, size) = (model.read_every_ms * MILLI, model.read_bytes());
    far.set_nonblocking(true)?;
    let mut block = vec![0; (64 << 10).max(size)];
    let mut tick = sys::now();
    loop {
        let room = if every > 0 {
            tick += every;
            if tick > end {
                break;
            }
            sys::sleep_until(tick);
            received.reads[0] += 1;
            let left = model.bytes.saturating_sub(all) as usize;
            let wanted = if model.bytes == 0 {
                size
            } else {
                size.min(left)
            };
            let there = sys::tcp_unread(far.as_raw_fd()).context("SIOCINQ")?;
            if there < wanted as u64 {
                continue;
            }
            received.reads[1] += 1;
            wanted
        } else {
            sys::wait_readable_until(&[far.as_raw_fd()], end)?;
            block.len()
        };
        match far.read(&mut block[..room]) {
            Ok(0) => anyhow::bail!("the sender closed a transfer after {all} bytes"),
            Ok(length) => {
                all += length as u64;
                received.arrivals.push((sys::now(), length as u64));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("receiving a transfer"),
        }
        received.finished = model.bytes > 0 && all >= model.bytes;
        if received.finished || sys::now() >= end {
            break;
        }
    }
    received.at = sys::now().min(end);
    Ok(received)
}

/// Both ends of a flow at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    at: u64,
    cwnd: u32,
    rtt_us: u32,
    min_rtt_us: u32,
    /// Segments with data that have reached the receiver, also those that came twice.
    segments: u32,
}

fn look(near: &TcpStream, far: &TcpStream, stop: &AtomicBool) -> Result<Vec<Look>> {
    let (mut looks, mut at) = (Vec::new(), sys::now());
    while !stop.load(Ordering::Acquire) {
        sys::sleep_until(at);
        let ends = [near, far].map(|end| sys::tcp_info(end.as_raw_fd()));
        let [near, far] = ends.map(|info| info.context("TCP_INFO"));
        let (near, far) = (near?, far?);
        looks.push(Look {
            at,
            cwnd: near.tcpi_snd_cwnd,
            rtt_us: near.tcpi_rtt,
            min_rtt_us: near.tcpi_min_rtt,
            segments: far.tcpi_data_segs_in,
        });
        at += LOOK;
    }
    Ok(looks)
}

/// How a flow came back after a phase of loss.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Return {
    /// From the end of the phase until the first segment arrives, ns: TCP does not know that it is over.
    silent: u64,
    /// From then until as much arrives in a round trip as before the phase (nine tenths, and of the mean of the
    /// second before it), in round trips; absent if the next phase or the end came first.
    rtts: Option<f64>,
}

/// Of the phase from `begin` to `end`; `None` where the flow was no second old, or nothing came after it.
fn comes_back(looks: &[Look], [begin, end]: [u64; 2], over: u64) -> Option<Return> {
    let arrived = |at: u64| {
        let next = looks.partition_point(|look| look.at <= at);
        next.checked_sub(1).map(|place| looks[place])
    };
    let before = begin.checked_sub(SECOND)?;
    let (then, there) = (arrived(before)?, arrived(begin)?);
    let rtt = u64::from(there.min_rtt_us) * 1000;
    let wanted = f64::from(there.segments - then.segments) * 0.9 * rtt as f64 / SECOND as f64;
    let at_end = arrived(end)?;
    if end >= over || wanted < 1.0 {
        return None;
    }
    let first = looks.iter().find(|look| look.segments > at_end.segments)?;
    let back = looks.iter().filter(|look| look.at >= first.at + rtt);
    let back = back
        .filter_map(|look| {
            let came = look.segments - arrived(look.at - rtt)?.segments;
            (f64::from(came) >= wanted).then_some(look.at)
        })
        .next();
    Some(Return {
        silent: first.at - end,
        rtts: back.map(|at| (at - first.at) as f64 / rtt as f64 - 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look each 10 ms; so many segments come in each.
    fn looks(arriving: impl Fn(u64) -> u32) -> Vec<Look> {
        let mut segments = 0;
        let look = |n: u64| {
            segments += arriving(n);
            Look {
                at: SECOND + n * LOOK,
                cwnd: 10,
                rtt_us: 110_000,
                min_rtt_us: 100_000,
                segments,
            }
        };
        (0..400).map(look).collect()
    }

    #[test]
    fn comes_back_counts_from_the_first_segment_in_round_trips() {
        // 2 segments each 10 ms; nothing from 1 s to 1.7 s of it, though the phase ends at 1.5 s; then 1 each
        // 10 ms for 200 ms.
        let seen = looks(|n| match n {
            100..170 => 0,
            170..190 => 1,
            _ => 2,
        });
        let phase = [SECOND + 100 * LOOK, SECOND + 150 * LOOK];
        let found = comes_back(&seen, phase, 10 * SECOND).expect("it came back");
        assert_eq!(found.silent, 200 * MILLI);
        // 18 come in 100 ms if 2 each came in eight tenths of it: 270 ms after the first, less one round trip.
        let rtts = found.rtts.expect("its rate");
        assert!((rtts - 1.7).abs() < 0.01, "{rtts}");
        let never = looks(|n| if n < 100 { 2 } else { u32::from(n > 170) });
        let found = comes_back(&never, phase, 10 * SECOND).expect("it came back");
        assert_eq!(found.rtts, None);
        let gone = looks(|n| if n < 100 { 2 } else { 0 });
        assert_eq!(comes_back(&gone, phase, 10 * SECOND), None);
        let late = phase.map(|at| at + 20 * SECOND);
        assert_eq!(comes_back(&seen, late, 10 * SECOND), None);
    }
}
