//! Encodes, packs into RTP, and keeps the packets in a capture file.

use std::{
    fs,
    io::Write as _,
    net::UdpSocket,
    os::fd::AsRawFd as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use etherparse::PacketBuilder;

use super::{AUDIO_CLOCK, AUDIO_TYPE, Parameters, VIDEO_CLOCK, VIDEO_TYPE};
use crate::{
    decoder, run,
    sys::{self, SECOND},
    traffic::build::{RngCore as _, random},
};

/// Bytes of an RTP packet with its header, at most.
const RTP_BYTES: u32 = 1200;
/// In the capture: from, to, ports of audio and video.
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const PORTS: [u16; 2] = [5004, 5006];

/// Runs begin at places within so many seconds of test pictures; what is before a run's
/// place is made, too, and takes its time.
const BEGIN_WITHIN_S: u64 = 60;

/// The camera moves, as parts of the picture in each frame. Else most of a picture stands
/// still, and one that is frozen for 10 s is nearly as like the source as the right one.
const PAN: &str = "scroll=horizontal=0.003:vertical=0.002";

/// Where in the test pictures the run of a seed begins, in frames. With the grain alone to
/// tell them apart the frames of two seeds would be nearly of one size.
pub(super) fn begin(fps: u32, seed: u64) -> u64 {
    random(seed).next_u64() % (BEGIN_WITHIN_S * u64::from(fps))
}

/// The pictures before they are encoded, as a source of ffmpeg; the same for one seed.
pub fn source(parameters: &Parameters, seed: u64) -> String {
    let Parameters {
        width,
        height,
        fps,
        grain,
        ..
    } = parameters;
    let begin = begin(*fps, seed);
    // The filter's seed is an i32.
    let seed = seed % (1 << 31);
    format!(
        "testsrc2=s={width}x{height}:r={fps},trim=start_frame={begin},setpts=PTS-STARTPTS,\
         {PAN},noise=alls={grain}:allf=t:all_seed={seed},format=yuv420p"
    )
}

/// Records `seconds` of media as `file`.
pub(super) fn record(parameters: &Parameters, seconds: u64, seed: u64, file: &Path) -> Result<()> {
    fs::create_dir_all(&parameters.directory)
        .with_context(|| format!("making {}", parameters.directory.display()))?;
    // Other processes may record the same: each writes files of its own.
    let encoded = file.with_extension(format!("{}.nut", std::process::id()));
    let result = encode(parameters, seconds, seed, &encoded)
        .and_then(|()| pack(&encoded))
        .and_then(|streams| write(parameters, seconds, streams, file));
    // It may not be there when encoding failed.
    let _ = fs::remove_file(&encoded);
    result
}

fn encode(parameters: &Parameters, seconds: u64, seed: u64, file: &Path) -> Result<()> {
    let [video, audio] = [parameters.video_kbit, parameters.audio_kbit];
    let (key, disposable) = (parameters.key_frames_every, parameters.disposable);
    let x264 = format!(
        "keyint={key}:min-keyint={key}:scenecut=0:open-gop=0:bframes={disposable}:b-adapt=0:\
         b-pyramid=none:weightp=0:sliced-threads=0:repeat-headers=1"
    );
    let chord = "aevalsrc=0.2*sin(2*PI*220*t)+0.2*sin(2*PI*277*t)+0.2*sin(2*PI*330*t):s=48000";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg
        .args("-hide_banner -v error -nostdin -y -f lavfi -i".split(' '))
        .arg(source(parameters, seed))
        .args(["-f", "lavfi", "-i", chord, "-t", &seconds.to_string()])
        // One thread: with more, what is encoded would depend on the machine.
        .args("-c:v libx264 -threads 1 -preset veryfast".split(' '))
        .args(["-b:v", &format!("{video}k")])
        .args(["-maxrate", &format!("{}k", video * 3 / 2)])
        // As live encoders are set: no frame is much more than an eighth of a second of the
        // rate, or it could not arrive in a lifetime.
        .args(["-bufsize", &format!("{}k", video / 8)])
        .args(["-x264-params", &x264])
        .args(["-c:a", "libopus", "-b:a", &format!("{audio}k")])
        .args("-vbr off -frame_duration 20 -ac 2 -f nut".split(' '))
        .arg(file);
    decoder::check()?;
    run::output(&mut ffmpeg).map(drop).context("encoding")
}

/// Audio's and video's RTP packets in the order of their sequence numbers.
fn pack(encoded: &Path) -> Result<[Vec<Vec<u8>>; 2]> {
    // Four sockets, so that RTCP, which nobody reads, meets one, too: an ICMP error would stop ffmpeg.
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let socket = UdpSocket::bind("127.0.0.1:0").context("binding to loopback")?;
        socket.set_nonblocking(true)?;
        // Without the privilege the default buffer has to do; a loss is seen below.
        let _ = sys::big_receive_buffer(socket.as_raw_fd(), 256 << 20);
        sockets.push(socket);
    }
    let (media, control) = sockets.split_at(2);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg
        .args("-hide_banner -v error -nostdin -i".split(' '))
        .arg(encoded);
    for (place, (stream, kind)) in [("0:a", AUDIO_TYPE), ("0:v", VIDEO_TYPE)]
        .into_iter()
        .enumerate()
    {
        let [port, control] = [&media[place], &control[place]].map(UdpSocket::local_addr);
        let (port, control) = (port?.port(), control?.port());
        let url = format!("rtp://127.0.0.1:{port}?rtcpport={control}&pkt_size={RTP_BYTES}");
        ffmpeg
            .args(["-map", stream, "-c", "copy", "-payload_type"])
            .args([&kind.to_string(), "-f", "rtp", &url]);
    }
    // On stdout it describes the session, which both ends know here.
    let mut child = ffmpeg
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .context("starting ffmpeg to pack the media into RTP")?;
    let fds = [&media[0], &media[1]].map(|socket| socket.as_raw_fd());
    let mut streams = [Vec::new(), Vec::new()];
    let mut buffer = [0; 2048];
    let mut ended = None;
    // What was sent before the end is here 100 ms after it.
    while ended.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(100)) {
        sys::wait_readable(&fds, 20)?;
        for (&fd, stream) in fds.iter().zip(&mut streams) {
            while let Some((length, _)) = sys::receive(fd, &mut buffer)? {
                stream.push(buffer[..length].to_vec());
            }
        }
        if ended.is_none()
            && let Some(status) = child.try_wait()?
        {
            let line = run::line(&ffmpeg);
            ensure!(status.success(), "`{line}` failed ({status})");
            ended = Some(Instant::now());
        }
    }
    for (packets, name) in streams.iter().zip(["audio", "video"]) {
        whole(packets).with_context(|| format!("{name} from ffmpeg over loopback"))?;
    }
    Ok(streams)
}

/// Loopback keeps the order; a gap in the sequence numbers is a packet that was lost.
fn whole(packets: &[Vec<u8>]) -> Result<()> {
    ensure!(!packets.is_empty(), "no packet arrived");
    ensure!(
        packets.iter().all(|packet| packet.len() > 12),
        "a packet is too short for RTP"
    );
    let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
    for pair in packets.windows(2) {
        let next = sequence(&pair[0]).wrapping_add(1);
        ensure!(
            sequence(&pair[1]) == next,
            "packet {next} is missing: is this machine out of memory for sockets?"
        );
    }
    Ok(())
}

/// RTP timestamp of a packet that is long enough.
fn timestamp(packet: &[u8]) -> u32 {
    u32::from_be_bytes([packet[4], packet[5], packet[6], packet[7]])
}

/// Audio is sent by its timestamps, frame n of the video in decoding order at n / fps.
fn write(
    parameters: &Parameters,
    seconds: u64,
    [audio, video]: [Vec<Vec<u8>>; 2],
    file: &Path,
) -> Result<()> {
    // When each is sent, ns, and its stream.
    let mut packets: Vec<(u64, usize, &[u8])> = Vec::new();
    let begin = timestamp(&audio[0]);
    for packet in &audio {
        let ticks = u64::from(timestamp(packet).wrapping_sub(begin));
        packets.push((ticks * SECOND / AUDIO_CLOCK, 0, packet));
    }
    let frames = video.chunk_by(|one, other| timestamp(one) == timestamp(other));
    for (number, frame) in (0..).zip(frames) {
        let at = number * SECOND / u64::from(parameters.fps);
        packets.extend(frame.iter().map(|packet| (at, 1, packet.as_slice())));
    }
    packets.retain(|(at, ..)| *at < seconds * SECOND);
    packets.sort_by_key(|(at, ..)| *at);

    let unfinished = file.with_extension(format!("{}.unfinished", std::process::id()));
    let mut out = std::io::BufWriter::new(fs::File::create(&unfinished)?);
    // pcap with ns, version 2.4, UTC, whole packets, raw IP (link type 101).
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        out.write_all(&word.to_le_bytes())?;
    }
    for (at, stream, rtp) in packets {
        let mut packet = Vec::with_capacity(rtp.len() + 28);
        PacketBuilder::ipv4(ADDRESSES[0], ADDRESSES[1], 64)
            .udp(PORTS[stream], PORTS[stream])
            .write(&mut packet, rtp)?;
        let length = packet.len() as u32;
        for word in [(at / SECOND) as u32, (at % SECOND) as u32, length, length] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&packet)?;
    }
    out.flush()?;
    fs::rename(&unfinished, file)?;
    Ok(())
}

/// The picture that a packet is part of, in the order in which pictures are shown,
/// counted from that of the timestamp `begin`.
pub(super) fn shown(parameters: &Parameters, timestamp: u32, begin: u32) -> u64 {
    let ticks = u64::from(timestamp.wrapping_sub(begin));
    (ticks * u64::from(parameters.fps) + VIDEO_CLOCK / 2) / VIDEO_CLOCK
}
