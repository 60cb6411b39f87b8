//! An SFU and its receivers over one link, by a real WebRTC stack: ICE, DTLS, SRTP, NACK, RTX, TWCC and GCC are str0m's.
//!
//! 1. The SFU has one socket. Each receiver gets a session (`Rtc`) of its own, all streams in one 5-tuple (BUNDLE).
//! 2. What the publishers would send is a plan made beforehand: Opus and VP8 by their sizes, the content is a [`Label`].
//!    A publisher paces the packets of a frame, so the frames of several streams interleave.
//! 3. The receivers judge by the label, after SRTP and RTX: which audio was on time, which frames were whole in time.
//!    The age of a retransmission is judged by the header that bestby sees, too.

#![allow(clippy::unwrap_used)] // helpers of tests

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use bestby_tests::netns::Netns;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use plan::{AUDIO_BITRATE, Label, PUBLISHERS, Planned, VIDEO_BITRATE, WANTED, plan};
use str0m::bwe::{Bitrate, BweKind};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{RtpPacket, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};

/// Where the SFU sends from.
pub(crate) const PORT: u16 = 7882;
/// Payload types that the sessions negotiate.
pub(crate) const OPUS: u8 = 111;
pub(crate) const VP8: u8 = 96;
pub(crate) const VP8_RTX: u8 = 97;
/// Addresses of the receivers.
pub(crate) const RECEIVERS: [&str; 2] = ["10.9.0.2", "10.9.0.3"];

/// Ethernet, IPv4 and UDP.
const HEADERS: u64 = 42;

/// Audio that arrives later than this after its capture is late.
const AUDIO_IN_TIME: Duration = Duration::from_millis(200);
/// A frame whose last packet arrives later than this after its capture is late.
pub(crate) const FRAME_IN_TIME: Duration = Duration::from_millis(400);

/// What a run showed, all receivers together.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Audio packets: sent, arrived, arrived in [`AUDIO_IN_TIME`].
    pub(crate) audio: [u64; 3],
    /// Frames: sent, whole at any time, whole in [`FRAME_IN_TIME`].
    pub(crate) frames: [u64; 3],
    /// Frames sent in the upper layer that were whole in time.
    pub(crate) upper: u64,
    /// Retransmitted packets: sent, arrived, and arrived when older than [`FRAME_IN_TIME`] while media was still sent.
    pub(crate) rtx: [u64; 3],
    /// Packets that the receivers asked for again.
    pub(crate) nacks: u64,
    /// Bytes of all datagrams that the SFU sent, with the headers that the link carries.
    pub(crate) bytes: u64,
    /// Datagrams that the SFU's socket refused.
    pub(crate) blocked: u64,
    /// Sessions whose connection was lost.
    pub(crate) disconnected: u64,
    /// The last estimate of the links to the receivers by GCC, bit/s; empty without it.
    pub(crate) estimates: Vec<u64>,
}

/// Share of [`Figures::audio`] or [`Figures::frames`] in time, in thousandths.
pub(crate) fn in_time([sent, _, in_time]: [u64; 3]) -> u64 {
    in_time * 1000 / sent
}

/// One end of a session.
struct Peer {
    rtc: Rtc,
    local: SocketAddr,
    lost: bool,
}

impl Peer {
    fn new(local: SocketAddr, bwe: bool) -> Self {
        let mut config = Rtc::builder()
            .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
            .set_rtp_mode(true)
            .set_stats_interval(Some(Duration::from_millis(500)));
        if bwe {
            // As if the link had been wide enough until now.
            config = config.enable_bwe(Some(Bitrate::bps(WANTED)));
        }
        let mut rtc = config.build(Instant::now());
        rtc.bwe().set_desired_bitrate(Bitrate::bps(WANTED));
        rtc.add_local_candidate(Candidate::host(local, "udp").unwrap());
        Self {
            rtc,
            local,
            lost: false,
        }
    }

    /// Takes what the session has to say until only time can change it; returns until when.
    fn drain(
        &mut self,
        mut sent: impl FnMut(SocketAddr, &[u8]),
        mut event: impl FnMut(Event),
    ) -> Instant {
        loop {
            match self.rtc.poll_output().unwrap() {
                Output::Timeout(at) => {
                    let now = Instant::now();
                    if at > now {
                        return at;
                    }
                    self.rtc.handle_input(Input::Timeout(now)).unwrap();
                }
                Output::Transmit(datagram) => sent(datagram.destination, &datagram.contents),
                Output::Event(Event::IceConnectionStateChange(state))
                    if state.is_disconnected() =>
                {
                    self.lost = true
                }
                Output::Event(other) => event(other),
            }
        }
    }

    fn receive(&mut self, source: SocketAddr, bytes: &[u8]) {
        if let Ok(received) = Receive::new(Protocol::Udp, source, self.local, bytes) {
            let input = Input::Receive(Instant::now(), received);
            if self.rtc.accepts(&input) {
                self.rtc.handle_input(input).unwrap();
            }
        }
    }
}

/// A socket that never blocks. Its send buffer does not bound what waits at the link, as a server's must not.
fn socket(address: (&str, u16)) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    setsockopt(&socket, sockopt::SndBufForce, &(16 << 20)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).unwrap();
    socket
}

/// Waits for a datagram, until `until` at the latest.
fn wait(sockets: &[&UdpSocket], until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let ms = u16::try_from(left.as_micros().div_ceil(1000))
        .unwrap_or(100)
        .min(100);
    let mut fds: Vec<_> = sockets
        .iter()
        .map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
        .collect();
    poll(&mut fds, PollTimeout::from(ms)).unwrap();
}

fn received(socket: &UdpSocket) -> Option<(SocketAddr, Vec<u8>)> {
    let mut buffer = [0; 2000];
    match socket.recv_from(&mut buffer) {
        Ok((length, source)) => Some((source, buffer[..length].to_vec())),
        Err(e) if e.kind() == ErrorKind::WouldBlock => None,
        Err(e) => panic!("{e}"),
    }
}

/// Payload type and RTP timestamp of a datagram, in the clear under SRTP.
fn header(datagram: &[u8]) -> Option<(u8, u32)> {
    let header: &[u8; 12] = datagram.first_chunk()?;
    let rtp = header[0] >> 6 == 2 && !(192..=223).contains(&header[1]);
    let [_, second, _, _, a, b, c, d, ..] = *header;
    rtp.then_some((second & 0x7f, u32::from_be_bytes([a, b, c, d])))
}

/// What the SFU knows of one receiver.
struct Session {
    peer: Peer,
    receiver: SocketAddr,
    /// Sections of the session by publisher: audio, video.
    mids: Vec<[Mid; 2]>,
    /// Last sequence number of each.
    sequence: Vec<[u64; 2]>,
    /// Layer of each publisher's present frame.
    layers: Vec<usize>,
    nacks: BTreeMap<Mid, u64>,
    estimate: Option<u64>,
}

impl Session {
    /// Videos whose upper layer fits the estimate; all without one.
    fn upper(&self) -> usize {
        let Some(estimate) = self.estimate else {
            return PUBLISHERS;
        };
        let [lower, upper] = VIDEO_BITRATE;
        let least = PUBLISHERS as u64 * (AUDIO_BITRATE + lower);
        (estimate.saturating_sub(least) / (upper - lower)) as usize
    }

    /// Sends a publisher's packet on, if it is of the layer that this receiver gets.
    fn forward(&mut self, packet: &Planned, begin: Instant, figures: &mut Figures) {
        let label = &packet.label;
        let publisher = label.publisher;
        if label.video && label.index == 0 && label.layer == 0 {
            self.layers[publisher] = usize::from(publisher < self.upper());
        }
        if label.video && label.layer != self.layers[publisher] {
            return;
        }
        let (mid, sequence) = (
            self.mids[publisher][usize::from(label.video)],
            &mut self.sequence[publisher][usize::from(label.video)],
        );
        *sequence += 1;
        let last = label.index + 1 == label.count;
        let (pt, clock) = if label.video { (VP8, 90) } else { (OPUS, 48) };
        if last {
            let sent = if label.video {
                &mut figures.frames
            } else {
                &mut figures.audio
            };
            sent[0] += 1;
        }
        let time = u32::try_from(label.captured.as_millis() * clock).unwrap();
        let payload = label.write(packet.size);
        let rtp = RtpWrite::new(
            pt.into(),
            (*sequence).into(),
            time,
            begin + packet.at,
            payload,
        )
        .marker(last && label.video)
        .nackable(label.video);
        let mut direct = self.peer.rtc.direct_api();
        direct.stream_tx_by_mid(mid, None).unwrap().write_rtp(rtp);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::MediaEgressStats(stats) => {
                self.nacks.insert(stats.mid, stats.nacks);
            }
            Event::EgressBitrateEstimate(BweKind::Twcc { estimate, .. }) => {
                self.estimate = Some(estimate.as_u64())
            }
            _ => {}
        }
    }
}

/// What one receiver saw.
struct Receiver {
    peer: Peer,
    socket: UdpSocket,
    /// Arrivals, from the moment when media began.
    audio: BTreeMap<Label, Duration>,
    /// Packets of frames that are not whole.
    parts: BTreeMap<Label, BTreeSet<u32>>,
    /// When which frame was whole.
    frames: BTreeMap<Label, Duration>,
    /// When retransmissions came, and how old they were.
    rtx: Vec<[Duration; 2]>,
}

impl Receiver {
    fn datagram(&mut self, source: SocketAddr, bytes: &[u8], begin: Option<Instant>) {
        if let (Some(begin), Some((VP8_RTX, time))) = (begin, header(bytes)) {
            let captured = Duration::from_millis(u64::from(time / 90));
            let now = begin.elapsed();
            self.rtx.push([now, now.saturating_sub(captured)]);
        }
        self.peer.receive(source, bytes);
    }

    fn packet(&mut self, packet: &RtpPacket, begin: Option<Instant>) {
        let (Some(begin), Some(label)) = (begin, Label::read(&packet.payload)) else {
            return;
        };
        let arrived = packet.timestamp.saturating_duration_since(begin);
        if !label.video {
            self.audio.entry(label).or_insert(arrived);
            return;
        }
        let frame = Label { index: 0, ..label };
        let parts = self.parts.entry(frame).or_default();
        if parts.insert(label.index) && parts.len() == label.count as usize {
            self.frames.insert(frame, arrived);
        }
    }

    fn drain(&mut self, begin: Option<Instant>) -> Instant {
        let mut packets = Vec::new();
        let socket = &self.socket;
        let until = self.peer.drain(
            |to, bytes| {
                // Feedback that is lost is sent again.
                let _ = socket.send_to(bytes, to);
            },
            |event| {
                if let Event::RtpPacket(packet) = event {
                    packets.push(packet);
                }
            },
        );
        packets.iter().for_each(|packet| self.packet(packet, begin));
        until
    }

    fn add_to(&self, figures: &mut Figures, length: Duration) {
        let in_time = |arrivals: &BTreeMap<Label, Duration>, limit| {
            let late = |label: &Label, at: &Duration| *at > label.captured + limit;
            let all = arrivals.len() as u64;
            all - arrivals
                .iter()
                .filter(|(label, at)| late(label, at))
                .count() as u64
        };
        figures.audio[1] += self.audio.len() as u64;
        figures.audio[2] += in_time(&self.audio, AUDIO_IN_TIME);
        figures.frames[1] += self.frames.len() as u64;
        figures.frames[2] += in_time(&self.frames, FRAME_IN_TIME);
        let upper = self
            .frames
            .iter()
            .filter(|(label, at)| label.layer == 1 && **at <= label.captured + FRAME_IN_TIME);
        figures.upper += upper.count() as u64;
        figures.rtx[1] += self.rtx.len() as u64;
        let late = |[at, age]: &&[Duration; 2]| *at <= length && *age > FRAME_IN_TIME;
        figures.rtx[2] += self.rtx.iter().filter(late).count() as u64;
        figures.disconnected += u64::from(self.peer.lost);
    }
}

/// Offer and answer, as signalling would carry them.
fn negotiate(sfu: &mut Peer, receiver: &mut Peer) -> Vec<[Mid; 2]> {
    let mut changes = sfu.rtc.sdp_api();
    let mut section = |kind| changes.add_media(kind, Direction::SendOnly, None, None, None);
    let mids = (0..PUBLISHERS)
        .map(|_| [MediaKind::Audio, MediaKind::Video].map(&mut section))
        .collect();
    let (offer, pending) = changes.apply().unwrap();
    let answer = receiver.rtc.sdp_api().accept_offer(offer).unwrap();
    sfu.rtc.sdp_api().accept_answer(pending, answer).unwrap();
    mids
}

/// Serves all receivers until the plan is over and a second for what still waits.
fn serve(
    socket: &UdpSocket,
    mut sessions: Vec<Session>,
    length: Duration,
    begin: &OnceLock<Instant>,
) -> Figures {
    let mut figures = Figures::default();
    let plan = plan(length);
    let mut next = 0;
    loop {
        let mut until = Instant::now() + Duration::from_millis(100);
        for session in &mut sessions {
            let mut events = Vec::new();
            let sent = |to, bytes: &[u8]| {
                let rtx = matches!(header(bytes), Some((VP8_RTX, _)));
                figures.rtx[0] += u64::from(rtx);
                figures.bytes += HEADERS + bytes.len() as u64;
                figures.blocked += u64::from(socket.send_to(bytes, to).is_err());
            };
            until = until.min(session.peer.drain(sent, |event| events.push(event)));
            events.into_iter().for_each(|event| session.event(event));
        }
        if let Some(begin) = begin.get() {
            let now = Instant::now();
            if now > *begin + length + Duration::from_secs(1) {
                break;
            }
            if let Some(packet) = plan.get(next) {
                if *begin + packet.at <= now {
                    next += 1;
                    for session in &mut sessions {
                        session.forward(packet, *begin, &mut figures);
                    }
                    continue;
                }
                until = until.min(*begin + packet.at);
            }
        } else if sessions
            .iter()
            .all(|session| session.peer.rtc.is_connected())
        {
            // Time for the receivers to see it, too, and for the first reports.
            begin
                .set(Instant::now() + Duration::from_millis(500))
                .unwrap();
        }
        wait(&[socket], until);
        while let Some((source, bytes)) = received(socket) {
            let session = sessions
                .iter_mut()
                .find(|session| session.receiver == source);
            session.unwrap().peer.receive(source, &bytes);
        }
        for session in &mut sessions {
            session
                .peer
                .rtc
                .handle_input(Input::Timeout(Instant::now()))
                .unwrap();
        }
    }
    for session in &sessions {
        figures.nacks += session.nacks.values().sum::<u64>();
        figures.estimates.extend(session.estimate);
        figures.disconnected += u64::from(session.peer.lost);
    }
    figures
}

/// The receivers, until `over`.
fn listen(
    mut receivers: Vec<Receiver>,
    begin: &OnceLock<Instant>,
    over: &AtomicBool,
) -> Vec<Receiver> {
    while !over.load(Ordering::Relaxed) {
        let mut until = Instant::now() + Duration::from_millis(100);
        let media = begin.get().copied();
        for receiver in &mut receivers {
            until = until.min(receiver.drain(media));
        }
        let sockets: Vec<_> = receivers.iter().map(|receiver| &receiver.socket).collect();
        wait(&sockets, until);
        for receiver in &mut receivers {
            while let Some((source, bytes)) = received(&receiver.socket) {
                receiver.datagram(source, &bytes, media);
                receiver.drain(media);
            }
            receiver
                .peer
                .rtc
                .handle_input(Input::Timeout(Instant::now()))
                .unwrap();
        }
    }
    receivers
}

/// A conference of this length from `server` to the receivers in `clients`. With `bwe` the SFU follows GCC's estimate,
/// without it sends all it has.
pub(crate) fn conference(server: &Netns, clients: &Netns, length: Duration, bwe: bool) -> Figures {
    let own = server.enter(|| socket(("10.9.0.1", PORT)));
    let mut sessions = Vec::new();
    let mut receivers = Vec::new();
    for address in RECEIVERS {
        let socket = clients.enter(|| socket((address, 0)));
        let local = socket.local_addr().unwrap();
        let mut peer = Peer::new(local, false);
        let mut sfu = Peer::new(own.local_addr().unwrap(), bwe);
        let mids = negotiate(&mut sfu, &mut peer);
        for [audio, video] in &mids {
            let params = |mid: &Mid| sfu.rtc.media(*mid).unwrap().remote_pts().to_vec();
            assert!(params(audio).contains(&OPUS.into()) && params(video).contains(&VP8.into()));
        }
        sessions.push(Session {
            peer: sfu,
            receiver: local,
            mids,
            sequence: vec![[0; 2]; PUBLISHERS],
            layers: vec![0; PUBLISHERS],
            nacks: BTreeMap::new(),
            estimate: None,
        });
        receivers.push(Receiver {
            peer,
            socket,
            audio: BTreeMap::new(),
            parts: BTreeMap::new(),
            frames: BTreeMap::new(),
            rtx: Vec::new(),
        });
    }
    let (begin, over) = (OnceLock::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let listening = scope.spawn(|| listen(receivers, &begin, &over));
        let mut figures = serve(&own, sessions, length, &begin);
        over.store(true, Ordering::Relaxed);
        let receivers = listening.join().unwrap();
        receivers
            .iter()
            .for_each(|receiver| receiver.add_to(&mut figures, length));
        println!("{figures:?}");
        figures
    })
}
