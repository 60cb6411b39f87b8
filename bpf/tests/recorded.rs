//! What real encoders and a real sender write (ffmpeg), read as the classifier reads it: `include/bb_codec.h`.

#![allow(clippy::unwrap_used)]

mod video;

use std::{
    io::ErrorKind,
    net::UdpSocket,
    process::{Command, Stdio},
    time::Duration,
};

use video::{Role::*, *};

/// Frames of each recording, and from one key frame to the next.
const FRAMES: usize = 150;
const GROUP: usize = 30;

/// RTP's payloads of a moving picture that ffmpeg encodes with these options and sends, by frame.
fn record(encoder: &[&str]) -> Vec<(u32, Vec<Vec<u8>>)> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut sender = Command::new("ffmpeg")
        .args(["-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i"])
        .arg("testsrc2=s=320x180:r=50")
        .args(["-frames:v", &FRAMES.to_string(), "-b:v", "500k"])
        .args(["-g", &GROUP.to_string()])
        .args(encoder)
        .args(["-f", "rtp"])
        // So that each frame has several packets.
        .arg(format!("rtp://127.0.0.1:{port}?pkt_size=400"))
        .stdout(Stdio::null())
        .spawn()
        .expect("ffmpeg");
    let mut frames: Vec<(u32, Vec<Vec<u8>>)> = Vec::new();
    let mut buffer = [0; 2048];
    loop {
        let n = match socket.recv(&mut buffer) {
            Ok(n) => n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                match sender.try_wait().unwrap() {
                    Some(status) => break assert!(status.success()),
                    Option::None => continue,
                }
            }
            Err(error) => panic!("{error}"),
        };
        let packet = &buffer[..n];
        let time = u32::from_be_bytes(packet[4..8].try_into().unwrap());
        if frames.last().is_none_or(|(last, _)| *last != time) {
            frames.push((time, Vec::new()));
        }
        frames.last_mut().unwrap().1.push(packet[12..].to_vec());
    }
    frames
}

/// A frame as it was read.
struct Frame {
    /// It is shown before one that was sent before it.
    back: bool,
    /// A key frame, by its place in the recording.
    key: bool,
    /// Of each packet.
    roles: Vec<Role>,
}

/// A stream of such frames, and those of them that came once its codec was known.
fn read(encoder: &str) -> (Stream, Vec<Frame>) {
    let mut stream = Stream::default();
    let mut latest = Option::None;
    let mut read = Vec::new();
    for (n, (time, packets)) in record(&encoder.split(' ').collect::<Vec<_>>())
        .into_iter()
        .enumerate()
    {
        let roles = stream.frame_at(time, &packets);
        let back = latest.is_some_and(|latest| (time.wrapping_sub(latest) as i32) < 0);
        if !back {
            latest = Some(time);
        }
        let key = n % GROUP == 0;
        read.push(Frame { back, key, roles });
    }
    (stream, read.split_off(SURE))
}

/// All of a frame's packets say the same, but for what comes before the picture: delimiters say nothing, and parameter
/// sets are as important as a key frame.
fn role(frame: &Frame) -> Role {
    let role = *frame.roles.last().expect("a packet");
    let mut before = frame.roles.iter().skip_while(|said| **said != role);
    assert!(before.all(|said| *said == role || (role == Key && *said == None)));
    role
}

/// Key frames, and links between them; frames that are shown out of order are what others of their kind need, or none.
fn expect(encoder: &str, codec: u8, out_of_order: &[Role]) {
    let (stream, frames) = read(encoder);
    assert_eq!(stream.video.codec, codec, "{encoder}");
    let mut seen = Vec::new();
    for (n, frame) in frames.iter().enumerate() {
        let role = role(frame);
        let want = match frame {
            Frame { key: true, .. } => &[Key][..],
            Frame { back: true, .. } => out_of_order,
            _ => &[Link],
        };
        assert!(want.contains(&role), "{encoder}: frame {n}: {role:?}");
        if frame.back && !seen.contains(&role) {
            seen.push(role);
        }
    }
    assert_eq!(seen.len(), out_of_order.len(), "{encoder}: {seen:?}");
    assert_eq!(usize::from(stream.video.group), GROUP, "{encoder}");
}

#[test]
fn x264_for_a_conference() {
    expect("-c:v libx264 -tune zerolatency", H264, &[]);
}

#[test]
fn x264_with_b_pictures() {
    expect("-c:v libx264", H264, &[Leaf, Link1]);
}

#[test]
fn x264_with_delimiters_and_one_b_picture() {
    expect(
        "-c:v libx264 -x264-params aud=1:bframes=1:b-adapt=0",
        H264,
        &[Leaf],
    );
}

#[test]
fn x264_without_key_frames_has_no_group() {
    let (stream, frames) = read("-c:v libx264 -tune zerolatency -intra-refresh 1");
    assert_eq!((stream.video.codec, stream.video.group), (H264, 0));
    // Parameter sets are as important as a key frame; what follows them is none.
    for frame in frames {
        assert!(matches!(frame.roles.last(), Some(Link)));
    }
}

#[test]
fn x265_with_b_pictures() {
    expect(
        "-c:v libx265 -x265-params log-level=error:open-gop=0:scenecut=0",
        H265,
        &[Leaf, Link1],
    );
}

#[test]
fn libvpx_for_a_conference() {
    let quick = "-deadline realtime -cpu-used 8";
    expect(&format!("-c:v libvpx {quick}"), VP8, &[]);
    expect(&format!("-c:v libvpx-vp9 {quick} -strict -2"), VP9, &[]);
}

#[test]
fn codecs_that_are_not_read_say_nothing() {
    for encoder in [
        "-c:v mpeg2video",
        "-c:v h263p -s 352x288",
        "-c:v mpeg4 -bf 2",
    ] {
        let (_, frames) = read(encoder);
        for frame in frames {
            assert_eq!(role(&frame), None, "{encoder}");
        }
    }
}
