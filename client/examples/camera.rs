//! A conference sender that says what its packets are worth: audio every 20 ms,
//! video at 25 frames/s, every frame one ADU with one deadline.
//!
//! ```text
//! cargo run --example camera -- receive 0.0.0.0:5004 10
//! cargo run --example camera -- send 192.0.2.7:5004 10
//! ```
//!
//! The receiver counts what arrived in time. It compares with the sender's clock, so both
//! must run on one host (in different network namespaces, if you like).

use std::{
    collections::HashMap,
    env,
    error::Error,
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use bestby::{AduId, AduIds, Deadline, Metadata, Packet, Priority, Sender, Treatment};

/// What is older than this when it arrives is of no use to a conversation.
const LIFETIME: Duration = Duration::from_millis(200);
const AUDIO_EVERY: Duration = Duration::from_millis(20);
const VIDEO_EVERY: Duration = Duration::from_millis(40);
/// Opus at 96 kbit/s.
const AUDIO_BYTES: usize = 240;
/// One reference frame per second, at 2 Mbit/s on the whole.
const REFERENCE_BYTES: usize = 60_000;
const OTHER_BYTES: usize = 7_900;
const PAYLOAD_BYTES: usize = 1_200;

/// RTP payload types.
const AUDIO: u8 = 111;
const VIDEO: u8 = 96;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let usage = "usage: camera send ADDRESS:PORT SECONDS | camera receive ADDRESS:PORT SECONDS";
    let [verb, address, seconds] = args.as_slice() else {
        return Err(usage.into());
    };
    let (address, seconds) = (address.parse()?, Duration::from_secs(seconds.parse()?));
    match verb.as_str() {
        "send" => send(address, seconds),
        "receive" => receive(address, seconds),
        _ => Err(usage.into()),
    }
}

fn send(to: SocketAddr, run: Duration) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    // A packet that does not fit into the send buffer must not delay the next frame.
    socket.set_nonblocking(true)?;
    let sender = Sender::auto(socket);
    println!("form: {:?}", sender.form());
    // What happens to stale packets anyway; but sockets with an option are counted.
    if let Err(error) = sender.options().set_treatment(Treatment::Discard) {
        println!("no counters: {error}");
    }

    // One ring for all that goes over this socket: ids of audio and video must differ.
    let mut adus = AduIds::default();
    let mut audio = Stream::new(AUDIO);
    let mut video = Stream::new(VIDEO);
    let start = Instant::now();
    let (mut next_audio, mut next_video) = (start, start);
    let mut refused = 0;
    while start.elapsed() < run {
        let next = next_audio.min(next_video);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        if next == next_audio {
            next_audio += AUDIO_EVERY;
            // Nothing is sent before audio, and nothing is given up after it.
            refused += audio.send(
                &sender,
                next,
                AUDIO_BYTES,
                Priority::HIGHEST,
                adus.take_id(),
            )?;
        } else {
            next_video += VIDEO_EVERY;
            // Other frames need the reference frame: it is worth more than they are.
            let (bytes, priority) = if video.frames.is_multiple_of(25) {
                (REFERENCE_BYTES, 2)
            } else {
                (OTHER_BYTES, 4)
            };
            refused += video.send(
                &sender,
                next,
                bytes,
                Priority::new(priority)?,
                adus.take_id(),
            )?;
        }
    }
    println!(
        "frames sent: {} audio, {} video",
        audio.frames, video.frames
    );
    println!("packets that found the send buffer full: {refused}");
    if let Ok(stats) = sender.options().stats() {
        println!("{stats:?}");
    }
    Ok(())
}

/// One RTP stream.
struct Stream {
    payload_type: u8,
    sequence: u16,
    frames: u32,
}

impl Stream {
    fn new(payload_type: u8) -> Self {
        Self {
            payload_type,
            sequence: 0,
            frames: 0,
        }
    }

    /// Sends one frame captured at `created`; returns how many packets found the buffer full.
    fn send(
        &mut self,
        sender: &Sender<UdpSocket>,
        created: Instant,
        bytes: usize,
        priority: Priority,
        adu: AduId,
    ) -> Result<usize, bestby::Error> {
        // Once per frame: all of its packets share the deadline, and so their fate.
        let deadline = Deadline::from_instant(created + LIFETIME);
        let metadata = Metadata::new()
            .deadline(deadline)
            .priority(priority)
            .adu(adu);
        let count = bytes.div_ceil(PAYLOAD_BYTES);
        let payloads: Vec<Vec<u8>> = (0..count)
            .map(|n| self.rtp(n + 1 == count, deadline, bytes.min(PAYLOAD_BYTES)))
            .collect();
        self.frames += 1;

        let packets: Vec<Packet> = payloads
            .iter()
            .map(|payload| Packet::new(payload).metadata(metadata))
            .collect();
        let mut rest = packets.as_slice();
        while !rest.is_empty() {
            match sender.send_batch(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.is_would_block() => break,
                // Nobody listens (yet): an ICMP error about an earlier packet.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(rest.len())
    }

    /// An RTP packet (RFC 3550); its payload begins with the deadline, for `receive`.
    fn rtp(&mut self, marker: bool, deadline: Deadline, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0x80, self.payload_type | u8::from(marker) << 7];
        packet.extend(self.sequence.to_be_bytes());
        packet.extend(self.frames.to_be_bytes()); // timestamp: one per frame
        packet.extend(u32::from(self.payload_type).to_be_bytes()); // SSRC
        packet.extend(deadline.as_monotonic_ns().to_be_bytes());
        packet.resize(12 + bytes, 0);
        self.sequence = self.sequence.wrapping_add(1);
        packet
    }
}

fn receive(at: SocketAddr, run: Duration) -> Result<(), Box<dyn Error>> {
    let socket = UdpSocket::bind(at)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let (mut in_time, mut late) = (HashMap::from([(AUDIO, 0), (VIDEO, 0)]), 0);
    let start = Instant::now();
    let mut packet = [0; 2_048];
    while start.elapsed() < run {
        let len = match socket.recv(&mut packet) {
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some(deadline) = packet[..len].get(12..20) else {
            continue;
        };
        let deadline = Deadline::from_monotonic_ns(u64::from_be_bytes(deadline.try_into()?));
        match (deadline.remaining(), in_time.get_mut(&(packet[1] & 0x7f))) {
            (Some(_), Some(count)) => *count += 1,
            (None, Some(_)) => late += 1,
            _ => {}
        }
    }
    println!(
        "packets in time: {} audio, {} video",
        in_time[&AUDIO], in_time[&VIDEO]
    );
    println!("packets after their deadline: {late}");
    Ok(())
}
