//! Unmodified DCCP CCID3, the baseline that SFDPS compared with: the kernel's own, where
//! it still has one (Linux left it out in 6.16; Debian's 6.12 has it).
//!
//! Same schedule, same path. Sends never block: DCCP answers EAGAIN when its transmit
//! queue of `tx_qlen` packets is full, and that packet is dropped and counted. DCCP
//! numbers a packet when it leaves this queue. Its header is 16 bytes with the extended
//! sequence numbers that CCID3 needs, UDP's is 8: the payload is 8 bytes shorter, so
//! that the packets are as large on the wire.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::AsRawFd as _,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use socket2::{Domain, Socket};

use crate::{
    netns::Netns,
    run,
    sys::{self, MILLI, Meta},
    topology::{self, Path},
    traffic::{
        HEADERS, Schedule,
        receiver::{Arrival, QUIET, Receiver},
        sender::Sent,
        wire,
    },
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
/// Bytes that DCCP-Data with extended sequence numbers has more of than UDP.
const LONGER: u32 = 16 - 8;

/// Says why there is no DCCP here, if there is none.
pub fn missing() -> Option<String> {
    // Loaded by name: distributions keep it from being loaded by its socket family.
    let loaded = run::sh("modprobe dccp_ipv4");
    let error = socket().err()?;
    let loading = loaded.err().map_or(String::new(), |e| format!("; {e:#}"));
    Some(format!(
        "no DCCP on this kernel ({error:#}{loading}): use `tests/vm/run --kernel 6.12`"
    ))
}

fn socket() -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, SOCK_DCCP.into(), Some(IPPROTO_DCCP.into()))
        .context("DCCP socket")?;
    let fd = socket.as_raw_fd();
    sys::set_option(fd, SOL_DCCP, SERVICE, SERVICE_CODE.to_be()).context("DCCP_SOCKOPT_SERVICE")?;
    // Both directions, before the handshake that negotiates them.
    sys::set_option(fd, SOL_DCCP, CCID, CCID3).context("DCCP_SOCKOPT_CCID 3")?;
    Ok(socket)
}

fn listen(ns: &Netns) -> Result<Socket> {
    ns.enter(|| {
        let listener = socket()?;
        // Now and then Linux 6.12 still counts the port of the run before as taken, in a namespace
        // that is new.
        listener.set_reuse_address(true).context("SO_REUSEADDR")?;
        listener.set_nonblocking(true)?;
        listener
            .bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT).into())
            .and_then(|()| listener.listen(1))
            .context("listening for DCCP")?;
        Ok(listener)
    })
}

fn accept(listener: &Socket) -> Result<Socket> {
    sys::wait_readable(&[listener.as_raw_fd()], 10_000)?;
    let accepted = listener.accept();
    Ok(accepted.context("no DCCP connection came within 10 s")?.0)
}

/// Connects from inside `ns`; blocks until the handshake is done.
fn connect(ns: &Netns, queue: usize) -> Result<Socket> {
    ns.enter(|| {
        let socket = socket()?;
        let length = queue as libc::c_int;
        sys::set_option(socket.as_raw_fd(), SOL_DCCP, TX_QUEUE_LENGTH, length)
            .context("DCCP_SOCKOPT_QPOLICY_TXQLEN")?;
        socket
            .connect(&SocketAddrV4::new(topology::RECEIVER, PORT).into())
            .context("DCCP handshake")?;
        Ok(socket)
    })
}

/// Sends `schedule` over `path` by DCCP with a transmit queue of `queue` packets. Returns how it
/// was sent, what arrived, and how many packets the full transmit queue refused (EAGAIN).
pub fn run(path: &Path, schedule: &Schedule, queue: usize) -> Result<(Sent, Vec<Arrival>, u64)> {
    let listener = listen(path.receiver())?;
    let ended = AtomicU64::new(0);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let connection = accept(&listener)?;
            let _ = sys::realtime_thread(40);
            Receiver::of(connection.into()).run(&ended)
        });
        let sending = scope.spawn(|| {
            let socket = connect(path.sender(), queue)?;
            // The reply to the handshake's last packet ends the connection's set-up.
            thread::sleep(Duration::from_millis(500));
            let _ = sys::realtime_thread(50);
            let sent = send(&socket, schedule);
            ended.store(sys::now(), Ordering::Release);
            // The transmit queue goes with the socket: let it drain.
            thread::sleep(Duration::from_nanos(QUIET));
            sent
        });
        let sent = sending.join();
        ended.fetch_max(1, Ordering::AcqRel);
        let arrivals = receiving.join();
        let (sent, refused) = sent.map_err(|_| anyhow!("the DCCP sender panicked"))??;
        let arrivals = arrivals.map_err(|_| anyhow!("the DCCP receiver panicked"))??;
        Ok((sent, arrivals, refused))
    })
}

fn send(socket: &Socket, schedule: &Schedule) -> Result<(Sent, u64)> {
    let mut full = 0;
    let mut buffer = [0u8; 2048];
    let start = sys::now() + 50 * MILLI;
    let sent = Sent::at_times(schedule, start, |_, packet, record| {
        // The shortest packet keeps its record whole and is 8 bytes longer on the wire.
        let length = (packet.wire_bytes - HEADERS - LONGER).max(wire::RECORD as u32);
        let payload = &mut buffer[..length as usize];
        record.write(packet, payload);
        match sys::send(socket.as_raw_fd(), payload, Meta::default(), None) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => full += 1,
            other => other.context("sending by DCCP")?,
        }
        Ok(())
    })?;
    Ok((sent, full))
}
