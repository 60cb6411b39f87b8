//! Unmodified DCCP CCID3, the baseline that SFDPS compared with: the kernel's own, where
//! it still has one (Linux left it out in 6.16; Debian's 6.12 has it).
//!
//! `bestby-lab run bench/scenarios/sfdps-dccp.toml --vm --kernel 6.12`
//!
//! Same schedule, same path. Sends never block: DCCP answers EAGAIN when its transmit
//! queue of `tx_qlen` packets is full, and that packet is dropped and counted. DCCP
//! numbers a packet when it leaves this queue. Its header is 16 bytes with the extended
//! sequence numbers that CCID3 needs, UDP's is 8: the payload is 8 bytes shorter, so
//! that the packets are as large on the wire.

use std::{
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    netns::Netns,
    run,
    sys::{self, MILLI, SECOND},
    topology::{self, Path},
    traffic::{HEADERS, Schedule, receiver::Arrival, sender::Sent, wire},
};

const SOCK_DCCP: libc::c_int = 6;
const IPPROTO_DCCP: libc::c_int = 33;
const SOL_DCCP: libc::c_int = 269;
/// Options of linux/dccp.h.
const SERVICE: libc::c_int = 2;
const CCID: libc::c_int = 13;
const TX_QUEUE_LENGTH: libc::c_int = 17;
const CCID3: u8 = 3;
/// `bbl1` as DCCP's service code; any will do, both ends must say the same.
const SERVICE_CODE: u32 = 0x6262_6c31;
const PORT: u16 = 5020;
/// Ethernet (14), IPv4 (20), DCCP-Data with extended sequence numbers (16).
const DCCP_HEADERS: u32 = 14 + 20 + 16;
/// After the last packet, this long without another ends a run, ns.
const QUIET: u64 = 1500 * MILLI;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As the schedule was sent.
    pub sent: Sent,
    /// What arrived.
    pub arrivals: Vec<Arrival>,
    /// Packets that the full transmit queue refused (EAGAIN).
    pub refused: u64,
}

/// Says why there is no DCCP here, if there is none.
pub fn missing() -> Option<String> {
    // Loaded by name: distributions keep it from being loaded by its socket family.
    let loaded = run::sh("modprobe dccp_ipv4");
    match socket() {
        Ok(_) => None,
        Err(error) => Some(format!(
            "no DCCP on this kernel ({error:#}{}): use `tests/vm/run --kernel 6.12`",
            loaded.err().map_or(String::new(), |e| format!("; {e:#}"))
        )),
    }
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: plain integers in, a new descriptor out that nobody else owns.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, SOCK_DCCP | libc::SOCK_CLOEXEC, IPPROTO_DCCP);
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("DCCP socket");
        }
        OwnedFd::from_raw_fd(fd)
    };
    let fd = socket.as_raw_fd();
    sys::set_option(fd, SOL_DCCP, SERVICE, SERVICE_CODE.to_be()).context("DCCP_SOCKOPT_SERVICE")?;
    // Both directions, before the handshake that negotiates them.
    sys::set_option(fd, SOL_DCCP, CCID, CCID3).context("DCCP_SOCKOPT_CCID 3")?;
    Ok(socket)
}

fn address(ip: std::net::Ipv4Addr) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: PORT.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(ip).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn check(result: libc::c_int, what: &str) -> Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error()).with_context(|| what.to_owned());
    }
    Ok(result)
}

/// Waits on `fd` for `events`, at most `ms`; whether they came.
fn wait(fd: RawFd, events: i16, ms: i32) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    // SAFETY: `poll` is one live pollfd.
    unsafe { libc::poll(&mut poll, 1, ms) == 1 }
}

fn listen(ns: &Netns) -> Result<OwnedFd> {
    ns.enter(|| {
        let listener = socket()?;
        // Now and then Linux 6.12 still counts the port of the run before as taken, in a namespace
        // that is new.
        sys::set_option(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            1,
        )
        .context("SO_REUSEADDR")?;
        let any = address(std::net::Ipv4Addr::UNSPECIFIED);
        // SAFETY: `any` is a live sockaddr_in and its size is what is passed.
        let bound = unsafe {
            libc::bind(
                listener.as_raw_fd(),
                std::ptr::from_ref(&any).cast(),
                size_of_val(&any) as libc::socklen_t,
            )
        };
        check(bound, "binding the DCCP port")?;
        // SAFETY: plain integers.
        let listening = unsafe { libc::listen(listener.as_raw_fd(), 1) };
        check(listening, "listening for DCCP")?;
        Ok(listener)
    })
}

fn accept(listener: &OwnedFd) -> Result<OwnedFd> {
    if !wait(listener.as_raw_fd(), libc::POLLIN, 10_000) {
        bail!("no DCCP connection came within 10 s");
    }
    // SAFETY: the address is not asked for; a new descriptor comes out.
    unsafe {
        let fd = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        );
        check(fd, "accepting a DCCP connection")?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Connects from inside `ns`; blocks until the handshake is done.
fn connect(ns: &Netns, queue: usize) -> Result<OwnedFd> {
    ns.enter(|| {
        let socket = socket()?;
        let fd = socket.as_raw_fd();
        sys::set_option(fd, SOL_DCCP, TX_QUEUE_LENGTH, queue as libc::c_int)
            .context("DCCP_SOCKOPT_QPOLICY_TXQLEN")?;
        let to = address(topology::RECEIVER);
        // SAFETY: `to` is a live sockaddr_in and its size is what is passed.
        let connected = unsafe {
            libc::connect(
                fd,
                std::ptr::from_ref(&to).cast(),
                size_of_val(&to) as libc::socklen_t,
            )
        };
        check(connected, "DCCP handshake")?;
        Ok(socket)
    })
}

/// Sends `schedule` over `path` by DCCP with a transmit queue of `queue` packets.
pub fn run(path: &Path, schedule: &Schedule, queue: usize) -> Result<Outcome> {
    if let Some(why) = missing() {
        bail!(why);
    }
    let listener = listen(path.receiver())?;
    let ended = AtomicU64::new(0);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let connection = accept(&listener)?;
            let _ = sys::realtime_thread(40);
            receive(connection.as_raw_fd(), &ended)
        });
        let sending = scope.spawn(|| {
            let socket = connect(path.sender(), queue)?;
            // The reply to the handshake's last packet ends the connection's set-up.
            thread::sleep(Duration::from_millis(500));
            let _ = sys::realtime_thread(50);
            let sent = send(socket.as_raw_fd(), schedule, sys::now() + 50 * MILLI);
            ended.store(sys::now(), Ordering::Release);
            // The transmit queue goes with the socket: let it drain.
            thread::sleep(Duration::from_nanos(QUIET));
            sent
        });
        let sent = sending.join();
        ended.fetch_max(1, Ordering::AcqRel);
        let arrivals = receiving.join();
        let (sent, refused) = sent.map_err(|_| anyhow!("the DCCP sender panicked"))??;
        Ok(Outcome {
            sent,
            arrivals: arrivals.map_err(|_| anyhow!("the DCCP receiver panicked"))??,
            refused,
        })
    })
}

fn send(fd: RawFd, schedule: &Schedule, start: u64) -> Result<(Sent, u64)> {
    let mut sent = Sent::default();
    let mut full = 0;
    let mut buffer = [0u8; 2048];
    for (sequence, packet) in schedule.packets.iter().enumerate() {
        let created = start + packet.at;
        sys::sleep_until(created);
        let began = sys::now();
        sent.latest = sent.latest.max(began - created.min(began));
        // The shortest packet keeps its record whole and is 8 bytes longer on the wire.
        let length = (packet.wire_bytes - DCCP_HEADERS).max(wire::RECORD as u32);
        debug_assert!(length <= packet.wire_bytes - HEADERS);
        let payload = &mut buffer[..length as usize];
        wire::Record::of(packet, sequence as u32, created).write(payload);
        // SAFETY: the buffer is live and its length is what is passed.
        let result = unsafe {
            libc::send(
                fd,
                payload.as_ptr().cast(),
                payload.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => full += 1,
                _ => return Err(error).context("sending by DCCP"),
            }
        }
        sent.created.push(created);
    }
    Ok((sent, full))
}

fn receive(fd: RawFd, ended: &AtomicU64) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    let mut buffer = [0u8; 2048];
    let mut last = sys::now();
    loop {
        wait(fd, libc::POLLIN, 100);
        loop {
            // SAFETY: the buffer is live and its length is what is passed.
            let length = unsafe {
                libc::recv(
                    fd,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            if length < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::ConnectionReset => return Ok(arrivals),
                    _ => return Err(error).context("receiving by DCCP"),
                }
            }
            if length == 0 {
                return Ok(arrivals);
            }
            // DCCP gives no receive timestamps: the time is that of this thread.
            last = sys::now();
            if let Some(record) = wire::Record::read(&buffer[..length as usize]) {
                arrivals.push(Arrival { record, at: last });
            }
        }
        let end = ended.load(Ordering::Acquire);
        if end != 0 && sys::now() > end.max(last) + QUIET {
            return Ok(arrivals);
        }
        if end != 0 && sys::now() > end + 600 * SECOND {
            bail!("packets still arrive 600 s after the last was sent");
        }
    }
}
