//! The path under test: a sender, a middle that delays, a receiver.
//!
//! ```text
//! sender ns          middle ns             receiver ns
//! s0 ───────────── m0 → forward → m1 ───────────── r0
//! queue under test       netem delay (one way)
//!
//! the same with a router:
//!
//! sender ns     router ns         middle ns        receiver ns
//! s0 ──────── x0 → forward → x1 ──────── m0 → forward → m1 ──────── r0
//! queue       its rate and FIFO       netem delay (both ways)
//!
//! the same with a line as the last hop:
//!
//! sender ns     middle ns                router ns            receiver ns
//! s0 ──────── m0 → forward → m1 ──────── x0 → forward → sl ═════════════ sl
//!          netem delay (both ways)       queue under test    crate::line
//! ```
//!
//! But for the line, the only queue is the one on `s0`: veth has none, and netem holds every packet
//! for exactly the delay (its limit is far above what the path can carry).
//! A kernel without netem gets a path without delay, and the same delay is added
//! to every arrival by arithmetic: with the queue at the sender and UDP alone the
//! two are the same, and the report says which it was.

use std::{
    fmt, fs,
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::AtomicU64,
    thread,
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{
    line::{Device, Line, Trace},
    netns::{self, Netns},
    run,
    sys::{self, MILLI},
    traffic::{
        Class, Packet, Schedule,
        receiver::{Arrival, Ends, Receiver},
        sender::{Marking, Sender, Sent},
    },
};

/// The device that carries the queue under test.
pub const DEVICE: &str = "s0";
/// The receiver's address.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const PORT: u16 = 5004;

/// UDP port of the receiver to which packets of `class` go.
pub fn port_of(class: Class) -> u16 {
    PORT + class as u16
}

/// The router's device towards the receiver, which carries its FIFO.
pub const ROUTER_DEVICE: &str = "x1";
/// What its bucket holds, bytes; just above TCP's packet of 1514.
pub const ROUTER_BURST: u32 = 1600;
/// The last hop's end of the line.
const LAST_HOP: &str = "10.77.2.1";
/// Where the clients of a relay are.
const CLIENTS: &str = "10.78.0.0/16";

/// Addresses of the first `count` clients of a relay.
pub fn clients(count: usize) -> Vec<Ipv4Addr> {
    let first = u32::from(Ipv4Addr::new(10, 78, 0, 1));
    (first..).take(count).map(Ipv4Addr::from).collect()
}

/// What a path is like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// One way, ns. With a router also on the way back.
    pub delay: u64,
    /// Packets lost behind the queue under test, %. By netem, not seeded.
    pub loss: f64,
    /// Whether a router with a rate and a FIFO of its own stands between sender and
    /// middle, see [`Path::set_router`].
    pub router: bool,
    /// What the line to the receiver is made of and carries, where the router is the last hop.
    pub line: Option<(Device, Trace)>,
}

/// What stands in front of the link of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum RouterQueue {
    /// A FIFO of so many packets.
    Fifo(u32),
    /// The kernel's, with its defaults.
    FqCodel,
    /// bestby's in mode qdisc, which shapes by itself.
    Bestby,
}

impl TryFrom<toml::Value> for RouterQueue {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match (value.as_integer(), value.as_str()) {
            (Some(packets @ 1..=100_000), _) => Ok(Self::Fifo(packets as u32)),
            (_, Some("fq_codel")) => Ok(Self::FqCodel),
            (_, Some("bestby")) => Ok(Self::Bestby),
            _ => Err(format!(
                "router_queue is 1 to 100000 (packets of a FIFO), \"fq_codel\" or \"bestby\", not {value}"
            )),
        }
    }
}

impl fmt::Display for RouterQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo(packets) => packets.fmt(f),
            Self::FqCodel => f.write_str("fq_codel"),
            Self::Bestby => f.write_str("bestby"),
        }
    }
}

/// The namespaces, connected.
#[derive(Debug)]
pub struct Path {
    sender: Netns,
    middle: Netns,
    receiver: Netns,
    router: Option<Netns>,
    line: Option<Line>,
    /// Added to every arrival by arithmetic, ns: 0 when netem delays.
    pub extra_delay: u64,
    /// One-way delay of the idle path in ns, measured (95 % of packets are no
    /// slower), arithmetic included.
    pub owd: u64,
}

impl Path {
    /// Builds a path of this shape and measures its delay.
    pub fn build(shape: &Shape) -> Result<Self> {
        if let Some((device, trace)) = &shape.line {
            return Self::to_the_last_hop(shape, *device, trace);
        }
        let (sender, middle, receiver) = (Netns::new("s")?, Netns::new("m")?, Netns::new("r")?);
        let router = shape.router.then(|| Netns::new("x")).transpose()?;
        for ns in [&sender, &middle, &receiver].into_iter().chain(&router) {
            prepare(ns)?;
        }
        let s0 = (&sender, DEVICE, "10.77.1.1/24");
        match &router {
            None => netns::veth(s0, (&middle, "m0", "10.77.1.2/24"))?,
            Some(router) => {
                netns::veth(s0, (router, "x0", "10.77.1.2/24"))?;
                let near = (router, ROUTER_DEVICE, "10.77.3.1/24");
                netns::veth(near, (&middle, "m0", "10.77.3.2/24"))?;
                router.sh("ip", "route add default via 10.77.3.2")?;
                // All that is on the router's other side: the sender, and who competes with it.
                middle.sh("ip", "route add 10.77.0.0/16 via 10.77.3.1")?;
            }
        }
        netns::veth(
            (&middle, "m1", "10.77.2.1/24"),
            (&receiver, "r0", "10.77.2.2/24"),
        )?;
        sender.sh("ip", "route add default via 10.77.1.2")?;
        receiver.sh("ip", "route add default via 10.77.2.1")?;
        // Every client's address is the receiver's, without a device or a neighbour each.
        middle.sh("ip", &format!("route add {CLIENTS} via 10.77.2.2"))?;
        receiver.sh("ip", &format!("route add local {CLIENTS} dev lo"))?;

        let extra_delay = impair(&middle, shape)?;
        let mut path = Self {
            sender,
            middle,
            receiver,
            router,
            line: None,
            extra_delay,
            owd: shape.delay,
        };
        path.owd = path.measure_owd()?;
        // Only now: the delay is that of packets, which a loss would thin out.
        if shape.loss > 0.0 {
            let (netem, loss) = (netem("change", "m1", shape.delay), shape.loss);
            path.middle
                .sh("tc", &format!("{netem} loss {loss}%"))
                .context("a loss of packets needs netem: use --vm")?;
        }
        Ok(path)
    }

    /// The path with a line behind its router. Its delay is not measured, for that takes more than
    /// such a line can spare.
    fn to_the_last_hop(shape: &Shape, device: Device, trace: &Trace) -> Result<Self> {
        let [sender, middle, router, receiver] = ["s", "m", "x", "r"].map(Netns::new);
        let (sender, middle, router, receiver) = (sender?, middle?, router?, receiver?);
        for ns in [&sender, &middle, &router, &receiver] {
            prepare(ns)?;
        }
        let m0 = (&middle, "m0", "10.77.1.2/24");
        netns::veth((&sender, DEVICE, "10.77.1.1/24"), m0)?;
        let m1 = (&middle, "m1", "10.77.3.2/24");
        netns::veth((&router, "x0", "10.77.3.1/24"), m1)?;
        let ends = ((&router, LAST_HOP), (&receiver, &*RECEIVER.to_string()));
        let line = Line::new(device, ends.0, ends.1, trace.clone())?;
        // The default is 10 packets of SLIP and one of tun, which acknowledgements might fill.
        let longer = format!(
            "qdisc replace dev {} root pfifo limit 1000",
            line.far.name()
        );
        receiver.sh("tc", &longer)?;
        for (ns, gateway) in [
            (&sender, "10.77.1.2"),
            (&middle, "10.77.3.1"),
            (&router, "10.77.3.2"),
            (&receiver, LAST_HOP),
        ] {
            ns.sh("ip", &format!("route add default via {gateway}"))?;
        }
        impair(&middle, shape)?;
        Ok(Self {
            sender,
            middle,
            receiver,
            router: Some(router),
            line: Some(line),
            extra_delay: 0,
            owd: shape.delay,
        })
    }

    /// Makes the router's link one of `rate` bit/s with a bucket of `burst` bytes and this queue. bestby's is
    /// attached by its agent: here the device is only made free for it.
    pub fn set_router(&self, rate: u64, burst: u32, queue: RouterQueue) -> Result<()> {
        let Some(router) = &self.router else {
            bail!("this path has no router");
        };
        // Anew each time: no packet of the run before stands in it.
        let _ = router.sh("tc", &format!("qdisc del dev {ROUTER_DEVICE} root"));
        let below = match queue {
            RouterQueue::Fifo(packets) => format!("pfifo limit {packets}"),
            RouterQueue::FqCodel => "fq_codel".into(),
            RouterQueue::Bestby => return Ok(()),
        };
        for below in [
            format!("root handle 1: tbf rate {rate}bit burst {burst} limit 10000000"),
            format!("parent 1:1 handle 10: {below}"),
        ] {
            router.sh("tc", &format!("qdisc add dev {ROUTER_DEVICE} {below}"))?;
        }
        Ok(())
    }

    /// The namespace with the queue under test.
    pub fn sender(&self) -> &Netns {
        &self.sender
    }

    /// The router's namespace, if the path has one.
    pub fn router(&self) -> Option<&Netns> {
        self.router.as_ref()
    }

    /// The namespace that delays.
    pub fn middle(&self) -> &Netns {
        &self.middle
    }

    /// The line behind the last hop, if the path has one.
    pub fn line(&self) -> Option<&Line> {
        self.line.as_ref()
    }

    /// How long it may carry nothing, ns.
    pub fn longest_gap(&self) -> u64 {
        let line = self.line.as_ref();
        line.map_or(0, |line| line.trace.longest_gap())
    }

    /// The namespace where packets arrive.
    pub fn receiver(&self) -> &Netns {
        &self.receiver
    }

    /// Sends `schedule` through whatever queue is on the device now, all of it to
    /// [`RECEIVER`].
    pub fn run(&self, schedule: &Schedule, marking: Marking) -> Result<(Sent, Vec<Arrival>)> {
        let to = SocketAddrV4::new(RECEIVER, PORT);
        self.send(schedule, Sender::new(&self.sender, to, marking)?)
    }

    /// The same from one socket, each stream to the client of its number.
    pub fn relay(&self, schedule: &Schedule, marking: Marking) -> Result<(Sent, Vec<Arrival>)> {
        let clients = clients(schedule.streams())
            .into_iter()
            .map(|client| SocketAddrV4::new(client, PORT))
            .collect();
        self.send(schedule, Sender::relay(&self.sender, clients, marking)?)
    }

    /// The same, all of it to one port inside the sender's own namespace, where a program
    /// takes it over and brings it to the receiver.
    pub fn hand_over(&self, schedule: &Schedule, to: SocketAddrV4) -> Result<(Sent, Vec<Arrival>)> {
        self.send(
            schedule,
            Sender::to_ports(&self.sender, [to; 3], Marking::default())?,
        )
    }

    fn send(&self, schedule: &Schedule, sender: Sender) -> Result<(Sent, Vec<Arrival>)> {
        let receiver = Receiver::new(&self.receiver, PORT, self.longest_gap())?;
        let ended = AtomicU64::new(0);
        thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let _ = sys::realtime_thread(40);
                receiver.run(&ended)
            });
            let sending = scope.spawn(|| {
                let _ends = Ends(&ended);
                let _ = sys::realtime_thread(50);
                sender.run(schedule, sys::now() + 50 * MILLI)
            });
            let (sent, arrivals) = (sending.join(), receiving.join());
            match (sent, arrivals) {
                (Ok(sent), Ok(arrivals)) => Ok((sent?, arrivals?)),
                _ => bail!("the sending or the receiving thread panicked"),
            }
        })
    }

    /// One-way delay, ns, of the path with nothing in the way: 100 packets of 1026 bytes.
    fn measure_owd(&self) -> Result<u64> {
        let packets = (0..100)
            .map(|i| Packet {
                at: u64::from(i) * 3 * MILLI,
                lifetime: 10 * sys::SECOND,
                class: Class::Audio,
                priority: Class::Audio.priority(),
                stream: 0,
                adu: i,
                last: true,
                wire_bytes: 1026,
                recorded: None,
            })
            .collect();
        let probes = Schedule {
            packets,
            duration: 300 * MILLI,
        };
        let (sent, arrivals) = self.run(&probes, Marking::default())?;
        let mut delays: Vec<u64> = arrivals
            .iter()
            .filter_map(|a| Some(a.at - sent.created.get(a.record.sequence as usize)?))
            .collect();
        delays.sort_unstable();
        if delays.len() < 95 {
            bail!(
                "the idle path lost {} of 100 packets: is something else filtering here?",
                100 - delays.len()
            );
        }
        Ok(delays[94] + self.extra_delay)
    }
}

/// No packet but the lab's, and forwarding.
fn prepare(ns: &Netns) -> Result<()> {
    ns.enter(|| {
        // Neighbour discovery and listener reports would be queued with the traffic.
        for file in [
            "ipv6/conf/all/disable_ipv6",
            "ipv6/conf/default/disable_ipv6",
        ] {
            // A kernel without IPv6 has no such file, and needs none.
            let _ = fs::write(format!("/proc/sys/net/{file}"), "1");
        }
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("ip_forward")
    })
}

/// The words of `tc` that delay what leaves `device` by `delay` ns.
pub(crate) fn netem(verb: &str, device: &str, delay: u64) -> String {
    let delay = delay / 1000;
    format!("qdisc {verb} dev {device} root netem limit 1000000 delay {delay}us")
}

/// Puts the delay on the middle's devices. Returns what is to be added to arrivals
/// instead, ns.
fn impair(middle: &Netns, shape: &Shape) -> Result<u64> {
    let delay = |device: &str| middle.sh("tc", &netem("add", device, shape.delay));
    match delay("m1") {
        Ok(_) if shape.router || shape.line.is_some() => delay("m0").map(|_| 0),
        Ok(_) => Ok(0),
        Err(error) if run::sh("modprobe sch_netem").is_ok() => Err(error),
        Err(error) if shape.router || shape.line.is_some() => Err(error
            .context("a router's feedback needs the delay on both ways, and so netem: use --vm")),
        Err(_) => Ok(shape.delay),
    }
}
