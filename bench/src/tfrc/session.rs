//! A TFRC sender on real sockets, with the queue where it is tried: in bestby, below
//! the socket, or in user space, as DCCP's own transmit queue was.
//!
//! - [`Queueing::Bestby`]: every packet is sent when it is created, without blocking.
//!   bestby holds it. The allowed rate goes to bestby as the session's rate, and RTT/2 as
//!   its one-way delay, as SFDPS has it, by the unprivileged socket option `BB_SO_PEER`.
//! - [`Queueing::Fifo`]: a FIFO of so many packets, paced in user space at X; what
//!   arrives at a full one is refused. That is unmodified DCCP.
//!
//! Both number packets by what a packet socket sees leave the device, behind the
//! qdisc: SFDPS, too, dropped before DCCP numbered. A drop by the sender's own queue is
//! therefore never taken for a loss in the network.

use std::{
    net::{IpAddr, SocketAddrV4, UdpSocket},
    num::NonZeroU64,
    os::{fd::AsRawFd as _, unix::net::UnixDatagram},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use bestby::{Peer, SocketOptions};

use super::{
    Restart,
    control::{Control, Departure},
    fifo::{Fifo, Waiting},
    reports::{self, Reporter},
    sender::Rests,
};
use crate::{
    sniff::{self, Sniffer},
    sys::{self, MILLI, SECOND},
    topology::{self, Path},
    traffic::{
        HEADERS, Schedule,
        receiver::{Arrival, Ends},
        sender::{Marking, Sender, Sent},
        wire::Record,
    },
};

/// First of the three data ports.
const PORT: u16 = 5004;
/// The control loop wakes up at least so often, ns.
const TICK: u64 = 20 * MILLI;

/// Where packets wait for their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// In bestby, which is on the device already; marked so.
    Bestby(Marking),
    /// In a FIFO of so many packets in user space.
    Fifo(usize),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As the schedule was sent.
    pub sent: Sent,
    /// What arrived.
    pub arrivals: Vec<Arrival>,
    /// What left the host, in this order.
    pub departures: Vec<Departure>,
    /// Packets that the FIFO in user space refused.
    pub refused: u64,
    /// Losses that TFRC counted.
    pub counted: u64,
    /// How often the sender was idle or data-limited.
    pub rests: Rests,
    /// Mean of the smoothed round trip, ns.
    pub rtt: f64,
}

/// The FIFO in user space and the socket below it. Two threads send from it: the one that offers
/// packets, as a call of the kernel's socket does, and the one that knows when the next is due.
#[derive(Debug)]
struct Outlet<'a> {
    fifo: Mutex<Fifo>,
    socket: UdpSocket,
    schedule: &'a Schedule,
}

impl Outlet<'_> {
    fn fifo(&self) -> MutexGuard<'_, Fifo> {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, packets: Vec<Waiting>) -> Result<()> {
        let mut buffer = [0; 2048];
        for waiting in packets {
            let packet = &self.schedule.packets[waiting.sequence as usize];
            let payload = &mut buffer[..(packet.wire_bytes - HEADERS) as usize];
            let (sequence, created) = (waiting.sequence, waiting.created);
            Record { sequence, created }.write(packet, payload);
            let to = (topology::RECEIVER, PORT + packet.class as u16);
            self.socket
                .send_to(payload, to)
                .context("sending from the FIFO")?;
        }
        Ok(())
    }

    /// Offers the schedule's packets at their times, and wakes who waits for the next to be due.
    fn fill(&self, start: u64, wake: &UnixDatagram) -> Result<Sent> {
        Sent::at_times(self.schedule, start, |_, _, record| {
            let Record { sequence, created } = record;
            let mut fifo = self.fifo();
            self.send(fifo.offer(Waiting { sequence, created }, sys::now()))?;
            drop(fifo);
            // Full: then the loop has been woken and has not come to it yet.
            let _ = wake.send(&[0]);
            Ok(())
        })
    }
}

/// Who hands over the schedule's packets.
enum Source<'a> {
    Bestby(Sender),
    Fifo(Outlet<'a>),
}

/// Sends `schedule` over `path` under TFRC.
pub fn run(
    path: &Path,
    schedule: &Schedule,
    queueing: Queueing,
    restart: Restart,
) -> Result<Outcome> {
    let reporter = Reporter::new(path.receiver(), PORT, path.longest_gap())?;
    let to = SocketAddrV4::new(topology::RECEIVER, PORT);
    let source = match queueing {
        Queueing::Bestby(marking) => Source::Bestby(Sender::new(path.sender(), to, marking)?),
        Queueing::Fifo(limit) => Source::Fifo(Outlet {
            fifo: Mutex::new(Fifo::new(limit)),
            socket: path.sender().enter(open)?,
            schedule,
        }),
    };
    let outlet = match &source {
        Source::Bestby(_) => None,
        Source::Fifo(outlet) => Some(outlet),
    };
    let tap = Sniffer::new(path.sender(), topology::DEVICE)?;
    let (wake, woken) = UnixDatagram::pair().context("a pair of sockets")?;
    woken.set_nonblocking(true)?;
    wake.set_nonblocking(true)?;
    let ended = AtomicU64::new(0);
    let (source, wake, ended) = (&source, &wake, &ended);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let _ = sys::realtime_thread(40);
            reporter.run(ended)
        });
        let controlling = scope.spawn(|| {
            let mut control = Loop::new(path, tap, woken, schedule, outlet, restart)?;
            let start = sys::now() + 50 * MILLI;
            let sending = scope.spawn(move || {
                let _ends = Ends(ended);
                let _ = sys::realtime_thread(50);
                match source {
                    Source::Bestby(sender) => sender.run(schedule, start),
                    Source::Fifo(outlet) => outlet.fill(start, wake),
                }
            });
            let _ = sys::realtime_thread(45);
            while !receiving.is_finished() {
                control.turn()?;
            }
            let sent = sending
                .join()
                .map_err(|_| anyhow!("the sender panicked"))??;
            let arrivals = receiving.join();
            let arrivals = arrivals.map_err(|_| anyhow!("the receiver panicked"))??;
            Ok(control.outcome(sent, arrivals))
        });
        let outcome = controlling.join();
        // Wherever it failed: the reporter must come to its end.
        ended.fetch_max(1, Ordering::AcqRel);
        outcome.unwrap_or_else(|_| bail!("the controlling thread panicked"))
    })
}

/// The thread that knows what left and what arrived.
struct Loop<'a> {
    tap: Sniffer,
    offset: i64,
    greeter: UdpSocket,
    woken: UnixDatagram,
    schedule: &'a Schedule,
    control: Control,
    departures: Vec<Departure>,
    /// None: bestby paces.
    outlet: Option<&'a Outlet<'a>>,
    /// Rate, bytes/s, and one-way delay, ns, that bestby has.
    told: (u64, u64),
}

impl<'a> Loop<'a> {
    fn new(
        path: &Path,
        tap: Sniffer,
        woken: UnixDatagram,
        schedule: &'a Schedule,
        outlet: Option<&'a Outlet<'a>>,
        restart: Restart,
    ) -> Result<Self> {
        let greeter = path.sender().enter(open)?;
        greeter
            .connect((topology::RECEIVER, reports::PORT))
            .context("connecting to the receiver's control port")?;
        let rtt = greet(&greeter)?;
        let sizes = schedule.packets.iter().map(|p| u64::from(p.wire_bytes));
        let bytes: u64 = sizes.sum();
        let segment = bytes as f64 / schedule.packets.len().max(1) as f64;
        let mut new = Self {
            tap,
            offset: sys::realtime_offset(),
            greeter,
            woken,
            schedule,
            control: Control::new(segment, restart, rtt, sys::now()),
            departures: Vec::new(),
            outlet,
            told: (0, 0),
        };
        // Before the first packet.
        new.apply()?;
        Ok(new)
    }

    /// Waits for the next thing to happen and deals with it.
    fn turn(&mut self) -> Result<()> {
        let now = sys::now();
        let next = self.outlet.map(|outlet| outlet.fifo().due());
        let next = next.filter(|due| *due > now).unwrap_or(u64::MAX);
        let until = self.control.due().min(now + TICK).min(next);
        let (greeter, woken) = (self.greeter.as_raw_fd(), self.woken.as_raw_fd());
        sys::wait_readable_until(&[self.tap.fd(), greeter, woken], until)?;
        while self.woken.recv(&mut [0]).is_ok() {}
        // Departures first: a report is about packets that left long before.
        while let Some(left) = self.tap.take(self.offset, sniff::record)? {
            self.left(&left)?;
        }
        let mut buffer = [0; 2048];
        while let Ok(length) = self.greeter.recv(&mut buffer) {
            if let Some(entries) = reports::decode(&buffer[..length]) {
                self.control.on_report(&entries, sys::now());
            }
        }
        while self.control.due() <= sys::now() {
            self.control.on_time(sys::now());
        }
        self.apply()
    }

    /// The rate of now becomes that of the FIFO, which sends what it allows, or bestby's.
    fn apply(&mut self) -> Result<()> {
        let Some(outlet) = self.outlet else {
            return self.tell();
        };
        let sender = self.control.sender();
        let mut fifo = outlet.fifo();
        fifo.pace(sender.rate(), sender.segment());
        outlet.send(fifo.release(sys::now()))
    }

    fn left(&mut self, left: &Arrival) -> Result<()> {
        let Record {
            sequence, created, ..
        } = left.record;
        let packet = self.schedule.packets.get(sequence as usize);
        let packet = packet.with_context(|| format!("packet {sequence} is not ours"))?;
        let departure = Departure {
            sequence,
            created,
            at: left.at,
            bytes: packet.wire_bytes,
        };
        self.control.on_departure(departure);
        self.departures.push(departure);
        Ok(())
    }

    /// Sets the session's rate and one-way delay in bestby, where they have changed.
    fn tell(&mut self) -> Result<()> {
        let rate = self.control.sender().rate().min(1e12) as u64;
        let owd = self.control.sender().rtt() / 2;
        if (rate, owd) == self.told {
            return Ok(());
        }
        self.told = (rate, owd);
        let peer = Peer {
            owd: Some(Duration::from_nanos(owd)),
            rate: NonZeroU64::new(rate.max(1)),
        };
        SocketOptions::of(&self.greeter)
            .set_peer(IpAddr::V4(topology::RECEIVER), &peer)
            .context("telling bestby the session's rate (BB_SO_PEER)")
    }

    fn outcome(self, sent: Sent, arrivals: Vec<Arrival>) -> Outcome {
        Outcome {
            sent,
            arrivals,
            departures: self.departures,
            refused: self.outlet.map_or(0, |o| o.fifo().refused()),
            counted: self.control.lost(),
            rests: self.control.sender().rests(),
            rtt: self.control.mean_rtt(),
        }
    }
}

/// In the namespace of the calling thread.
fn open() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("binding a socket")?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Greets the receiver, so that it knows where reports go, and takes the first RTT, ns,
/// as DCCP does with its Request and Response.
fn greet(socket: &UdpSocket) -> Result<u64> {
    let mut buffer = [0; 64];
    for _ in 0..10 {
        let began = sys::now();
        socket
            .send(&reports::encode(std::iter::empty()))
            .context("greeting the receiver")?;
        sys::wait_readable_until(&[socket.as_raw_fd()], began + SECOND)?;
        if let Ok(length) = socket.recv(&mut buffer)
            && reports::decode(&buffer[..length]).is_some()
        {
            return Ok(sys::now() - began);
        }
    }
    bail!("the receiver did not answer ten greetings: does the path lose everything?")
}
