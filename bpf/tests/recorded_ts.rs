//! MPEG-TS as real multiplexers write it (ffmpeg, GStreamer), read as the classifier reads it: `include/bb_ts.h`.

#![allow(clippy::unwrap_used)]

mod mpeg;

use std::{
    io::ErrorKind,
    net::UdpSocket,
    process::{Command, Stdio},
    time::Duration,
};

use mpeg::{Place::*, Role::*, *};

/// Pictures of each recording, and from one key frame to the next.
const PICTURES: usize = 150;
const GROUP: usize = 30;

/// What this command sends to a port, in place of PORT.
fn record(program: &str, args: &str) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let port = socket.local_addr().unwrap().port();
    let args = args.replace("PORT", &port.to_string());
    let mut sender = Command::new(program)
        .args(args.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect(program);
    let mut datagrams = Vec::new();
    let mut buffer = [0; 2048];
    loop {
        match socket.recv(&mut buffer) {
            Ok(n) => datagrams.push(buffer[..n].to_vec()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if let Some(status) = sender.try_wait().unwrap() {
                    assert!(status.success());
                    return datagrams;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A moving picture and a tone that ffmpeg encodes with these options and sends.
fn ffmpeg(encoder: &str, output: &str) -> Vec<Vec<u8>> {
    record(
        "ffmpeg",
        &format!(
            "-v error -nostdin -re -f lavfi -i testsrc2=s=320x180:r=50 -f lavfi -i sine=f=440 -t 3 -pix_fmt yuv420p \
             -b:v 900k -g {GROUP} {encoder} -b:a 64k {output}"
        ),
    )
}

const UDP: &str = "-f mpegts udp://127.0.0.1:PORT?pkt_size=1316";
const RTP: &str = "-f rtp_mpegts rtp://127.0.0.1:PORT";

/// Of the pictures that came once the codec was known.
#[derive(Debug, Default)]
struct Seen {
    /// Their roles in order.
    roles: Vec<Role>,
    /// Datagrams of pictures, and others.
    pictures: usize,
    alone: usize,
}

/// Reads all datagrams behind so many bytes of another header.
fn read(datagrams: &[Vec<u8>], header: usize) -> (Stream, Seen) {
    let mut stream = Stream::default();
    let mut seen = Seen::default();
    let mut last = 0;
    for datagram in datagrams {
        let place = stream.read(&datagram[header..]).expect("MPEG-TS");
        if !stream.known() {
            continue;
        }
        match place {
            Picture(number, role) => {
                if number != last {
                    seen.roles.push(role);
                }
                last = number;
                seen.pictures += 1;
            }
            _ => seen.alone += 1,
        }
    }
    (stream, seen)
}

/// A key frame in `GROUP`, and of the other pictures these; no other ones.
fn expect(encoder: &str, output: &str, codec: u8, others: &[Role]) {
    let (stream, seen) = read(&ffmpeg(encoder, output), if output == RTP { 12 } else { 0 });
    assert_eq!(stream.video.codec, codec, "{encoder}");
    assert_eq!(usize::from(stream.video.group), GROUP, "{encoder}");
    let count = |role| seen.roles.iter().filter(|told| **told == role).count();
    let keys = count(Key);
    assert!((3..=5).contains(&keys), "{encoder}: {seen:?}");
    for role in [Link, Link1, Link2, Leaf] {
        assert_eq!(
            count(role) > 2,
            others.contains(&role),
            "{encoder}: {role:?} {seen:?}"
        );
    }
    // Tables each 100 ms, in front of a picture.
    assert!(
        seen.alone >= 20 && seen.pictures > seen.alone,
        "{encoder}: {seen:?}"
    );
    assert!(seen.roles.len() > PICTURES / 2, "{encoder}: {seen:?}");
}

#[test]
fn ts_of_x264_with_b_pictures_and_audio() {
    let encoder = "-c:v libx264 -preset veryfast -bf 3 -sc_threshold 0 -c:a aac";
    expect(encoder, UDP, H264, &[Link, Link1, Leaf]);
    expect(encoder, RTP, H264, &[Link, Link1, Leaf]);
}

#[test]
fn ts_of_x264_for_low_delay_at_a_constant_rate() {
    let encoder = "-c:v libx264 -preset veryfast -tune zerolatency -x264-params nal-hrd=cbr:aud=1 -maxrate 900k \
                   -bufsize 900k -sc_threshold 0 -c:a aac -muxrate 1500k";
    expect(encoder, UDP, H264, &[Link]);
}

#[test]
fn ts_of_x265_with_b_pictures() {
    let encoder = "-c:v libx265 -preset ultrafast -x265-params \
                   log-level=error:bframes=3:b-adapt=0:b-pyramid=1:scenecut=0:open-gop=0 -c:a aac";
    expect(encoder, UDP, H265, &[Link, Link1, Leaf]);
}

#[test]
fn ts_of_mpeg2_as_broadcasters_send_it() {
    expect(
        "-c:v mpeg2video -bf 2 -sc_threshold 1000000000 -c:a mp2",
        UDP,
        MPEG2,
        &[Link, Leaf],
    );
}

#[test]
fn ts_without_video_or_with_two_of_them_says_nothing() {
    let radio = record(
        "ffmpeg",
        "-v error -nostdin -re -f lavfi -i sine=f=440 -t 2 -c:a aac -b:a 128k -f mpegts udp://127.0.0.1:PORT?pkt_size=1316",
    );
    assert_eq!(read(&radio, 0).0.video.codec, 0);
    let two = ffmpeg(
        "-map 0:v -map 0:v -map 1:a -c:v libx264 -preset ultrafast -c:a aac",
        UDP,
    );
    assert_eq!(read(&two, 0).0.video.codec, OPAQUE);
}

/// Its multiplexer fills each datagram, whatever comes next.
#[test]
fn ts_of_gstreamer_is_read_too() {
    if Command::new("gst-launch-1.0")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        println!("SKIPPED: gst-launch-1.0 is not installed");
        return;
    }
    let video = format!(
        "videotestsrc pattern=snow num-buffers={PICTURES} ! video/x-raw,width=320,height=180,framerate=50/1 \
         ! x264enc bitrate=3000 key-int-max={GROUP} speed-preset=veryfast ! mux. \
         audiotestsrc num-buffers=130 ! avenc_aac ! mux."
    );
    for (mux, header) in [("", 0), ("rtpmp2tpay !", 12)] {
        let output = format!(
            "mpegtsmux name=mux alignment=7 ! {mux} udpsink host=127.0.0.1 port=PORT sync=false"
        );
        let datagrams = record("gst-launch-1.0", &format!("-q {video} {output}"));
        let (stream, seen) = read(&datagrams, header);
        assert_eq!(stream.video.codec, H264);
        for role in [Key, Link] {
            assert!(seen.roles.contains(&role), "{seen:?}");
        }
        println!("{mux} {} of pictures, {} alone", seen.pictures, seen.alone);
    }
}
