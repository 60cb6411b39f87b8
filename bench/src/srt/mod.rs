//! SRT as a peer, as a real program: the lab's traffic passes two `srt-live-transmit` of
//! libsrt (Debian's `srt-tools`) in live mode, with too-late packet drop.
//!
//! ```text
//! sender ns                                        receiver ns
//! lab ── UDP, lo ── srt-live-transmit ── s0 ─ ... ─ r0 ── srt-live-transmit ── UDP, lo ── lab
//!                   caller               htb, pfifo 1000  listener
//! ```
//!
//! One connection carries all classes, as a stream of a broadcaster is one. A datagram
//! in is one message and one datagram out, up to [`LARGEST`] bytes (`-chunk`; a larger one
//! is cut short, so it is refused here).
//!
//! What decides, from libsrt 1.5.1 and its documentation:
//!
//! - The receiver hands a packet over when its source's time, the one-way delay of the
//!   handshake and the latency have passed, never before. A packet that is later than this
//!   but in order is handed over late; one that follows a gap is dropped, if the gap was
//!   given up.
//! - The sender drops what has been unacknowledged, sent or not, for longer than
//!   max(latency + `snddropdelay`, 1000 ms) + 20 ms. `snddropdelay` may not be below 0, so
//!   nothing makes it drop earlier than after 1020 ms (SRT_TLPKTDROP_MINTHRESHOLD_MS).
//! - Live mode has no congestion control: it sends at up to `maxbw`, by default 1 Gbit/s,
//!   and its pace is one period for every packet, from their mean size.
//! - The sender looks for what to drop when the application sends the next packet, and only then.
//!
//! So the latency is what the shortest lifetime leaves beside the one-way delay, less what
//! the programs need; and where it can be as long as SRT's sender waits, so much less that
//! what the sender does not drop comes in time. `srt` has the defaults of live mode
//! otherwise; its queue is then in the FIFO, and in what its UDP socket's 64 KiB hold back.
//! `srt paced` is the best that was found: `maxbw` is the link's rate, so the queue is where
//! SRT can drop, and the tracer of clock drift is off (both ends have one clock, and it
//! takes a forward queue for drift).
//!
//! A live stream does not end, and the sender drops nothing after one that did: when the
//! schedule is over, small packets that are not the lab's go on, until all of the schedule's
//! is over.

mod counters;
mod tool;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

pub use self::counters::Counters;
use self::tool::Tool;
use crate::{
    netns::Netns,
    run,
    sys::{self, MILLI},
    topology::{self, Path},
    traffic::{HEADERS, Packet, Schedule, receiver::Arrival, sender::Sent},
};

/// libsrt's program.
const PROGRAM: &str = "srt-live-transmit";
/// Bytes of the header of an SRT data packet.
const HEADER: u32 = 16;
/// Bytes that libsrt adds to a payload when it counts: its own header, UDP's and IPv4's.
const COUNTED_HEADERS: u64 = 16 + 8 + 20;
/// Bytes of the largest payload of live mode: 1500 less the headers of IPv4, UDP, SRT.
const LARGEST: u32 = 1456;
/// For a packet's way through the programs, ms: the sending one looks for datagrams every
/// 10 ms, and stamps a packet when it has read it.
const PROGRAMS_MS: u64 = 25;
/// Below this latency the sender's threshold no longer falls with it, ms
/// (SRT_TLPKTDROP_MINTHRESHOLD_MS).
const MIN_THRESHOLD_MS: u64 = 1000;
/// What the sender grants on top of its threshold (two intervals of acknowledgement), ms.
const GRACE_MS: u64 = 20;
/// From one packet of the application to the next, when the sender looks for late ones: the
/// cadence of audio, ms.
const CADENCE_MS: u64 = 20;
/// Packets that go through the connection before the traffic: they prove the way. Where the path
/// loses packets fewer are enough: what SRT cannot retransmit in time it drops.
const PROBES: u64 = 40;
const PROBES_OF_LOSSY: u64 = 30;
/// bit/s that the sender's answers to acknowledgements take: one each 10 ms, 20 bytes of SRT.
const ACKACK_RATE: u64 = 100 * (20 + HEADERS as u64) * 8;
/// Pace in percent of what the link would carry of the whole schedule: what SRT drops
/// changes the mix of sizes, and with 100 a queue of 100 to 300 ms built up below it in 20 s.
const PACE_PERCENT: u64 = 97;
const PORT: u16 = 5030;
/// What no receiver of the lab takes for a packet of its own.
const FILLER: &[u8] = b"not of the lab";
/// Where the lab and the programs meet.
const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5004);

/// Says what is missing, if this machine has no SRT. A program that is there and fails is an error.
pub fn missing() -> Result<Option<String>> {
    // Also so that it is loaded before any clock runs that could run out meanwhile.
    let Err(error) = run::output(Command::new(PROGRAM).arg("-version")) else {
        return Ok(None);
    };
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::NotFound) => Ok(Some(format!(
            "{error:#}: install Debian's package srt-tools (`./dev` does)"
        ))),
        _ => Err(error),
    }
}

/// How the two programs are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// SRTO_LATENCY, ms.
    pub latency_ms: u64,
    /// SRTO_MAXBW, bytes/s with the headers of SRT, UDP and IPv4; absent: the default of live
    /// mode.
    pub max_bandwidth: Option<u64>,
}

impl Settings {
    /// For `schedule` over a link of `rate` bit/s and a one-way delay of `owd` ns.
    pub fn new(schedule: &Schedule, rate: u64, owd: u64, paced: bool) -> Result<Self> {
        let packets = &schedule.packets;
        let largest = schedule.largest().saturating_sub(HEADERS);
        ensure!(
            largest <= LARGEST,
            "SRT's live mode carries at most {LARGEST} bytes in a packet, not {largest}"
        );
        // Of packets: those of a frame are sent one after the other and share a deadline.
        let lifetime = packets.iter().map(|packet| packet.lifetime).min();
        let lifetime = lifetime.context("SRT needs traffic: the schedule is empty")? / MILLI;
        let owd_ms = owd.div_ceil(MILLI);
        let latency_ms = match lifetime.checked_sub(owd_ms + PROGRAMS_MS) {
            Some(latency @ 1..) => latency,
            _ => bail!(
                "SRT cannot keep a lifetime of {lifetime} ms: {owd_ms} ms of it are the way, \
                 {PROGRAMS_MS} ms that of the programs, and nothing is left for its latency"
            ),
        };
        // A packet waits for the one before it to leave, and for its own last byte.
        let packet_ms = (u64::from(schedule.largest() + HEADER) * 8_000).div_ceil(rate.max(1));
        let after_threshold = GRACE_MS + CADENCE_MS + 2 * packet_ms;
        let latency_ms = match latency_ms.checked_sub(after_threshold) {
            Some(less) if less >= MIN_THRESHOLD_MS => less,
            _ => latency_ms,
        };
        if !paced {
            return Ok(Self {
                latency_ms,
                max_bandwidth: None,
            });
        }
        let left = rate.checked_sub(ACKACK_RATE).with_context(|| {
            format!("on a link of {rate} bit/s SRT's answers to acknowledgements alone take {ACKACK_RATE}")
        })?;
        let payload = packets.iter().map(payload).sum::<u64>() / packets.len() as u64;
        // Packets in a second, and what libsrt takes for the size of each.
        let counted = assumed_payload(packets, payload) + COUNTED_HEADERS;
        let on_wire = payload + u64::from(HEADER + HEADERS);
        let bytes = left / 8 * counted / on_wire * PACE_PERCENT / 100;
        Ok(Self {
            latency_ms,
            max_bandwidth: Some(bytes.max(1)),
        })
    }

    /// Options of both ends, as a URI has them. The limits on bandwidth and drops are the
    /// sender's only, the tracer of drift the receiver's only; both take all of them.
    fn uri(&self) -> String {
        let pace = self.max_bandwidth.map_or(String::new(), |bandwidth| {
            format!("&maxbw={bandwidth}&drifttracer=0")
        });
        format!(
            "transtype=live&tlpktdrop=1&snddropdelay=0&latency={}{pace}",
            self.latency_ms
        )
    }
}

/// libsrt's mean of the payloads' sizes, from which it makes its period: a running average in
/// whole bytes, each packet with 1/128, always rounded down. Where sizes differ it is below
/// the true mean by some tens of bytes, and SRT faster than `maxbw` by as many percent.
fn assumed_payload(packets: &[Packet], mean: u64) -> u64 {
    let mut average = mean;
    let averages = packets.iter().map(|packet| {
        average = (average * 127 + payload(packet)) / 128;
        average
    });
    averages.sum::<u64>() / packets.len().max(1) as u64
}

/// Bytes in it for SRT.
fn payload(packet: &Packet) -> u64 {
    packet.wire_bytes.saturating_sub(HEADERS).into()
}

/// Sends `schedule` over the path, which may lose packets if it is `lossy`, through a connection
/// that is there before the first packet. Returns how it was sent, what the receiving program
/// handed over, and what SRT says of itself.
pub fn run(
    path: &Path,
    schedule: &Schedule,
    settings: &Settings,
    lossy: bool,
) -> Result<(Sent, Vec<Arrival>, Counters)> {
    let options = settings.uri();
    let (here, there) = (path.sender(), path.receiver());
    let lost = [overflowed(here)?, overflowed(there)?];
    let local = format!("udp://{LOCAL}");
    let listening = format!("srt://:{PORT}?mode=listener&{options}");
    let calling = format!("srt://{}:{PORT}?mode=caller&{options}", topology::RECEIVER);
    let mut receiver = Tool::start(there, "receiver", [&listening, &local])?;
    receiver.wait_bound(there, PORT)?;
    receiver.bring_into_memory()?;
    let mut sender = Tool::start(here, "sender", [&local, &calling])?;
    sender.wait_for("SRT target connected")?;
    receiver.wait_for("Accepted SRT source connection")?;
    let needed = if lossy { PROBES_OF_LOSSY } else { PROBES };
    probe(here, there, settings, needed)?;
    let end = sys::now() + schedule.duration;
    let (sent, arrivals) = thread::scope(|scope| {
        let over = end + (settings.latency_ms + 1000) * MILLI;
        let going_on = scope.spawn(move || go_on(here, end, over));
        let passed = path.hand_over(schedule, LOCAL);
        let panicked = |_| anyhow!("a thread of SRT's run panicked");
        going_on.join().map_err(panicked)??;
        passed
    })?;
    sender.check("SRT target disconnected")?;
    receiver.check("SRT source disconnected")?;
    for (ns, before) in [here, there].into_iter().zip(lost) {
        let dropped = overflowed(ns)? - before;
        ensure!(
            dropped == 0,
            "{dropped} datagrams were lost inside {}, before a program had read them: the run \
             measured the machine",
            ns.name()
        );
    }
    let reported = sender.last_report()?;
    let reported = reported.context("SRT's sender has reported nothing: too few packets")?;
    let counters = Counters::new(&reported, receiver.last_report()?.as_ref())?;
    counters.check(settings)?;
    Ok((sent, arrivals, counters))
}

/// Sends packets that are not the lab's through the connection and waits for all of them, or
/// until none comes any more and there were as many as `needed`.
fn probe(here: &Netns, there: &Netns, settings: &Settings, needed: u64) -> Result<()> {
    let bind = |ns: &Netns, to: SocketAddrV4| {
        ns.enter(|| UdpSocket::bind(to).with_context(|| format!("binding {to} for SRT's probes")))
    };
    let receiver = bind(there, LOCAL)?;
    let patience = Duration::from_millis(settings.latency_ms) + Duration::from_secs(20);
    receiver.set_read_timeout(Some(patience))?;
    let sender = bind(here, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let mut buffer = [0; 64];
    for _ in 0..PROBES {
        sender
            .send_to(FILLER, LOCAL)
            .context("sending SRT's probes")?;
        sys::sleep_until(sys::now() + 10 * MILLI);
    }
    for number in 0..PROBES {
        match receiver.recv(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && number >= needed => break,
            received => received.with_context(|| {
                format!("SRT is connected, but only {number} of {PROBES} packets came through")
            })?,
        };
    }
    Ok(())
}

/// Sends what is not the lab's from `from` to `until`, ns, at the cadence of audio.
fn go_on(here: &Netns, from: u64, until: u64) -> Result<()> {
    let socket = here.enter(|| Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?))?;
    let mut at = from + 100 * MILLI;
    while at < until {
        sys::sleep_until(at);
        // Lost where the run has failed: the run says so.
        let _ = socket.send_to(FILLER, LOCAL);
        at += CADENCE_MS * MILLI;
    }
    Ok(())
}

/// Datagrams that found a socket's buffer full in this namespace (Udp: RcvbufErrors).
fn overflowed(ns: &Netns) -> Result<u64> {
    let file = "/proc/thread-self/net/snmp";
    let text = ns.enter(|| fs::read_to_string(file).context(file))?;
    udp_counter(&text, "RcvbufErrors").with_context(|| format!("no RcvbufErrors in {file}"))
}

fn udp_counter(snmp: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Class;

    /// Packets of which one lives `lifetime_ms` and the other longer.
    fn schedule(wire_bytes: u32, lifetime_ms: u64) -> Schedule {
        let packet = |times: u64| Packet {
            lifetime: times * lifetime_ms * MILLI,
            wire_bytes,
            ..Packet::of(Class::Video, 0)
        };
        Schedule {
            packets: vec![packet(2), packet(1)],
            duration: MILLI,
        }
    }

    #[test]
    fn settings_latency_is_what_the_shortest_lifetime_leaves_or_there_are_none() {
        for (wire_bytes, lifetime_ms, latency) in [
            (1042, 200, Ok(135)),
            (1042, 50, Err("lifetime of 50 ms")),
            // Where the sender's threshold is the latency + 20 ms: two packets take 18 ms here.
            (1042, 2000, Ok(2000 - 40 - 25 - 20 - 20 - 18)),
            // And where it is 1000 ms, whatever the latency.
            (1042, 1000, Ok(935)),
            (1498, 200, Ok(135)),
            (1499, 200, Err("1456 bytes")),
        ] {
            let schedule = schedule(wire_bytes, lifetime_ms);
            let settings = Settings::new(&schedule, 1_000_000, 40 * MILLI, false);
            match (settings, latency) {
                (Ok(settings), Ok(latency)) => assert_eq!(settings.latency_ms, latency),
                (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{error}"),
                (settings, _) => panic!("{lifetime_ms} ms: {settings:?}"),
            }
        }
    }

    #[test]
    fn settings_pace_leaves_room_for_headers_and_acknowledgements() {
        let settings = Settings::new(&schedule(1042, 200), 1_049_600, 40 * MILLI, true);
        // 1049600 - 49600 bit/s = 125000 bytes/s; SRT does not count 14 bytes of 1058.
        let expected = 125_000 * 1044 / 1058 * 97 / 100;
        assert_eq!(settings.expect("possible").max_bandwidth, Some(expected));
        let slow = Settings::new(&schedule(1042, 200), 40_000, 40 * MILLI, true);
        assert!(slow.expect_err("40 kbit/s").to_string().contains("49600"));
    }

    #[test]
    fn assumed_payload_is_below_the_mean_of_mixed_sizes() {
        // 600 and 1000 bytes in turn: srt-live-transmit 1.5.1 reports a period for 790 bytes.
        let (small, large) = (schedule(642, 200).packets, schedule(1042, 200).packets);
        let mixed: Vec<Packet> = (0..1000).flat_map(|_| [small[0], large[0]]).collect();
        let assumed = assumed_payload(&mixed, 800) + COUNTED_HEADERS;
        assert!((785..795).contains(&assumed), "{assumed}");
        assert_eq!(assumed_payload(&large, 1000), 1000);
    }

    #[test]
    fn udp_counter_is_found_by_name() {
        let snmp = "Ip: Forwarding\nIp: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 9 4\nUdpLite: a\n";
        assert_eq!(udp_counter(snmp, "RcvbufErrors"), Some(4));
        assert_eq!(udp_counter(snmp, "InErrors"), None);
        assert_eq!(udp_counter("Udp: A\n", "A"), None);
    }
}
