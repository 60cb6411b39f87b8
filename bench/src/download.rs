//! A file that the kernel's TCP carries over a [`Path`] with a last hop (LPD §V.B): segments that
//! arrive are seen at the receiver's device, so that those that arrive twice are.
//!
//! The sender is as the paper has it: Reno, SACK, and a window of 50 segments at the receiver.
//! Everything else is Linux's.

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::{
    competing,
    netns::Netns,
    scenario::cell::Point,
    sniff::Sniffer,
    sys,
    topology::Path,
    traffic::{Schedule, lpd::SEGMENT, receiver::Arrival, sender::Sent, wire::Record},
};

/// The receiver's.
pub const PORT: u16 = 5202;
/// The receiver's window, segments (§V).
const WINDOW: u32 = 50;
/// TCP's timestamps in each segment, bytes.
const TIMESTAMPS: u32 = 12;
const SYN: u8 = 2;

/// Downloads `schedule`, whose packets are segments, from the time of its first on; 0 is `start`.
pub fn run(
    path: &Path,
    point: &Point,
    schedule: &Schedule,
    start: u64,
) -> Result<(Sent, Vec<Arrival>)> {
    let line = path.line().context("a download needs a path with a line")?;
    let first = schedule.packets.first().context("nothing to download")?;
    let (sender, receiver) = (path.sender(), path.receiver());
    prepare(sender, point.undo)?;
    prepare(receiver, point.undo)?;
    let segment = SEGMENT + if point.undo { TIMESTAMPS } else { 0 };
    let listener = receiver.enter(listen)?;
    let sniffer = Sniffer::new(receiver, line.far.name())?;
    let (stop, begin) = (AtomicBool::new(false), start + first.at);
    let bytes = schedule.packets.len() * SEGMENT as usize;
    // Whatever is not over then is given up.
    let limit = Duration::from_nanos(schedule.duration);
    thread::scope(|scope| {
        let watching = scope.spawn(|| sniffer.watch(&stop, segments()));
        let receiving = scope.spawn(move || receive(&listener, limit));
        let sending = || -> Result<TcpStream> {
            sys::sleep_until(begin);
            // Each packet takes more room there than it has bytes.
            let stream = sender.enter(|| competing::connect(PORT, segment, 4 * bytes))?;
            (&stream).write_all(&vec![0x5a; bytes]).context("sending")?;
            stream.shutdown(Shutdown::Write)?;
            Ok(stream)
        };
        // Open until all of it is there.
        let sent = sending();
        let received = receiving.join();
        stop.store(true, Ordering::Release);
        let panicked = |_| anyhow!("a thread of the download panicked");
        let arrivals = watching.join().map_err(panicked)??;
        sent?;
        let received = received.map_err(panicked)??;
        ensure!(
            received == bytes,
            "of {bytes} bytes {received} arrived in {limit:?}: give it more `seconds`"
        );
        let sent = Sent {
            created: vec![begin; schedule.packets.len()],
            ..Sent::default()
        };
        Ok((sent, arrivals))
    })
}

/// Makes TCP undo timeouts or not.
fn prepare(ns: &Netns, undo: bool) -> Result<()> {
    let all = ["tcp_frto=2", "tcp_timestamps=1", "tcp_dsack=1"];
    for (name, of_linux) in all.iter().filter_map(|setting| setting.split_once('=')) {
        let file = format!("/proc/sys/net/ipv4/{name}");
        let write = || fs::write(&file, if undo { of_linux } else { "0" });
        ns.enter(|| write().with_context(|| format!("writing {file}")))?;
    }
    // Nothing that an earlier run found out about the path.
    ns.enter(|| Ok(fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1")?))
}

fn listen() -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
        .with_context(|| format!("listening on TCP port {PORT}"))?;
    let (fd, window) = (listener.as_raw_fd(), (WINDOW * SEGMENT) as libc::c_int);
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, window)
        .context("TCP_WINDOW_CLAMP")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Bytes that arrive until the connection ends, `limit` after now at the latest.
fn receive(listener: &TcpListener, limit: Duration) -> Result<usize> {
    let until = sys::now() + limit.as_nanos() as u64;
    sys::wait_readable_until(&[listener.as_raw_fd()], until)?;
    let (mut stream, _) = listener.accept().context("accepting the download")?;
    stream.set_nonblocking(true)?;
    let (mut all, mut block) = (0, vec![0; 64 << 10]);
    while sys::now() < until {
        sys::wait_readable_until(&[stream.as_raw_fd()], until)?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(length) => all += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("receiving the download"),
        }
    }
    Ok(all)
}

/// Reads the segments of one connection out of IPv4 packets.
fn segments() -> impl FnMut(&[u8]) -> Option<Record> {
    let mut first = None;
    move |packet| {
        let header = usize::from(packet.first()? & 15) * 4;
        if packet[0] >> 4 != 4 || *packet.get(9)? != libc::IPPROTO_TCP as u8 {
            return None;
        }
        let tcp = packet.get(header..)?;
        let (to, sequence) = (tcp.get(2..4)?, tcp.get(4..)?.first_chunk()?);
        if to != PORT.to_be_bytes() {
            return None;
        }
        let sequence = u32::from_be_bytes(*sequence);
        let (offset, flags) = (usize::from(tcp.get(12)? >> 4) * 4, *tcp.get(13)?);
        if flags & SYN != 0 {
            first = Some(sequence.wrapping_add(1));
        }
        let sequence = sequence.wrapping_sub(first?) / SEGMENT;
        (tcp.len() > offset).then_some(Record {
            sequence,
            created: 0,
        })
    }
}
