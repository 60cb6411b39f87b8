//! The path under test: a sender, a middle that delays, a receiver.
//!
//! ```text
//! sender ns          middle ns             receiver ns
//! s0 ───────────── m0 → forward → m1 ───────────── r0
//! queue under test       netem delay (one way)
//! ```
//!
//! The only queue is the one on `s0`: veth has none, and netem holds every packet
//! for exactly the delay (its limit is far above what the path can carry).
//! A kernel without netem gets a path without delay, and the same delay is added
//! to every arrival by arithmetic: with the queue at the sender and UDP alone the
//! two are the same, and the report says which it was.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    netns::{self, Netns},
    run,
    sys::{self, MILLI},
    traffic::{
        Class, Packet, Schedule,
        receiver::{Arrival, Receiver},
        sender::{Marking, Sender, Sent},
    },
};

/// The device that carries the queue under test.
pub const DEVICE: &str = "s0";
/// The receiver's address.
pub const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const PORT: u16 = 5004;

/// The three namespaces, connected.
#[derive(Debug)]
pub struct Path {
    sender: Netns,
    _middle: Netns,
    receiver: Netns,
    /// Added to every arrival by arithmetic, ns: 0 when netem delays.
    pub extra_delay: u64,
    /// One-way delay of the idle path in ns, measured (95 % of packets are no
    /// slower), arithmetic included.
    pub owd: u64,
}

impl Path {
    /// Builds the path with a one-way delay of `delay` ns and measures it.
    pub fn new(delay: u64) -> Result<Self> {
        let (sender, middle, receiver) = (Netns::new("s")?, Netns::new("m")?, Netns::new("r")?);
        for ns in [&sender, &middle, &receiver] {
            // Neighbour discovery and listener reports would be queued with the traffic.
            ns.enter(|| {
                for file in [
                    "ipv6/conf/all/disable_ipv6",
                    "ipv6/conf/default/disable_ipv6",
                ] {
                    // A kernel without IPv6 has no such file, and needs none.
                    let _ = fs::write(format!("/proc/sys/net/{file}"), "1");
                }
                fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("ip_forward")
            })?;
        }
        netns::veth(
            (&sender, DEVICE, "10.77.1.1/24"),
            (&middle, "m0", "10.77.1.2/24"),
        )?;
        netns::veth(
            (&middle, "m1", "10.77.2.1/24"),
            (&receiver, "r0", "10.77.2.2/24"),
        )?;
        sender.sh("ip", "route add default via 10.77.1.2")?;
        receiver.sh("ip", "route add default via 10.77.2.1")?;

        let netem = format!(
            "qdisc add dev m1 root netem limit 1000000 delay {}us",
            delay / 1000
        );
        let extra_delay = match middle.sh("tc", &netem) {
            Ok(_) => 0,
            Err(error) if !has_netem() => {
                eprintln!("no netem here ({error:#}): the delay is added to arrivals");
                delay
            }
            Err(error) => return Err(error),
        };
        let mut path = Self {
            sender,
            _middle: middle,
            receiver,
            extra_delay,
            owd: delay,
        };
        path.owd = path.measure_owd()?;
        Ok(path)
    }

    /// The namespace with the queue under test.
    pub fn sender(&self) -> &Netns {
        &self.sender
    }

    /// Sends `schedule` through whatever queue is on the device now.
    pub fn run(&self, schedule: &Schedule, marking: Marking) -> Result<(Sent, Vec<Arrival>)> {
        let receiver = Receiver::new(&self.receiver, PORT)?;
        let sender = Sender::new(&self.sender, SocketAddrV4::new(RECEIVER, PORT), marking)?;
        let ended = AtomicU64::new(0);
        thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                real_time(40);
                receiver.run(&ended)
            });
            let sending = scope.spawn(|| {
                real_time(50);
                let result = sender.run(schedule, sys::now() + 50 * MILLI);
                ended.store(sys::now(), Ordering::Release);
                result
            });
            let (sent, arrivals) = (sending.join(), receiving.join());
            match (sent, arrivals) {
                (Ok(sent), Ok(arrivals)) => Ok((sent?, arrivals?)),
                _ => bail!("the sending or the receiving thread panicked"),
            }
        })
    }

    /// One-way delay of the path with nothing in the way: 100 packets of 1026 bytes.
    fn measure_owd(&self) -> Result<u64> {
        let packets = (0..100)
            .map(|i| Packet {
                at: u64::from(i) * 3 * MILLI,
                lifetime: 10 * sys::SECOND,
                class: Class::Audio,
                stream: 0,
                adu: i,
                last: true,
                wire_bytes: 1026,
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

fn has_netem() -> bool {
    run::sh("modprobe sch_netem").is_ok()
}

/// Precision is lost, not correctness, where real-time scheduling is not allowed:
/// the report carries how late the sender was.
fn real_time(priority: i32) {
    let _ = sys::realtime_thread(priority);
}
