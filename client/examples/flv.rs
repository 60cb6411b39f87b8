//! H.264 and audio for many viewers as FLV over plain HTTP, live on links that are too narrow for it.
//!
//! Reads FLV from standard input and sends it to every viewer. A viewer whose link is too narrow goes without
//! some video: first without frames that no other needs, then without all up to the next key frame. What
//! arrives decodes without an error, and is at most about 1 s old.
//!
//! ```sh
//! ffmpeg -re -i video.mp4 -c:v libx264 -bf 3 -b_strategy 0 -g 50 -x264-params b-pyramid=none -c:a aac -f flv - | \
//!     cargo run -p bestby --example flv --features tokio -- 127.0.0.1:8080
//! ffplay -fflags nobuffer http://127.0.0.1:8080/
//! ```
//!
//! To see it on a narrow link, begin a shell with `sudo unshare --net`, type
//! `ip link set lo up mtu 1500; tc qdisc add dev lo root tbf rate 600kbit burst 3000 limit 90000`,
//! and run all of the commands above in it.

#[path = "live/http.rs"]
mod http;
mod live;

use std::{cell::RefCell, io, rc::Rc, sync::Arc, thread, time::Duration};

use bestby::tokio::Ring;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::timeout,
};

use live::{Frame, Kind, Viewer};

const HEAD: &str =
    "HTTP/1.0 200 OK\r\nContent-Type: video/x-flv\r\nCache-Control: no-store\r\n\r\n";
/// Signature, version, "audio and video", length; and the length of the tag before the first.
const FILE_HEADER: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";
/// Type, length, time and stream of a tag.
const TAG_HEADER: usize = 11;

/// After the end of the stream.
const GRACE: Duration = Duration::from_secs(3);

/// What a viewer needs before the first key frame: the newest of each kind.
#[derive(Default)]
struct Stream {
    headers: Vec<(u8, Frame)>,
    viewers: Vec<Viewer>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = std::env::args().nth(1) else {
        return Err("usage: flv ADDRESS:PORT < stream in FLV, of H.264 and any audio".into());
    };
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/", listener.local_addr()?);
    let (sender, mut frames) = mpsc::channel(16);
    let reader = thread::spawn(move || read(io::stdin().lock(), &sender));
    let stream: Rc<RefCell<Stream>> = Rc::default();

    let tasks = LocalSet::new();
    let accepting = tasks.spawn_local(accept(listener, Rc::clone(&stream)));
    tasks
        .run_until(async {
            while let Some((tag, frame)) = frames.recv().await {
                stream.borrow_mut().send(tag, frame);
            }
        })
        .await;
    for viewer in std::mem::take(&mut stream.borrow_mut().viewers) {
        println!("{}", viewer.summary());
    }
    // The drivers send what waits and end; but for a viewer that does not read.
    accepting.abort();
    let _ = timeout(GRACE, tasks).await;
    match reader.join() {
        Ok(result) => Ok(result?),
        Err(_) => Err("the reader of standard input has failed".into()),
    }
}

impl Stream {
    fn send(&mut self, tag: u8, frame: Frame) {
        self.viewers.retain(|viewer| !viewer.has_left());
        for viewer in &mut self.viewers {
            viewer.send(&frame);
        }
        if matches!(frame.kind, Kind::Header | Kind::VideoHeader) {
            self.headers.retain(|(of, _)| *of != tag);
            self.headers.push((tag, frame));
        }
    }
}

async fn accept(listener: TcpListener, stream: Rc<RefCell<Stream>>) {
    loop {
        if let Ok((socket, _)) = listener.accept().await {
            let stream = Rc::clone(&stream);
            spawn_local(async move {
                if let Err(error) = serve(socket, &stream).await {
                    eprintln!("a viewer left: {error}");
                }
            });
        }
    }
}

/// Drives the viewer's ring until it leaves.
async fn serve(mut socket: TcpStream, stream: &RefCell<Stream>) -> Result<(), bestby::Error> {
    if let Err(error) = http::greet(&mut socket, HEAD).await {
        eprintln!("a viewer left before its first frame: {error}");
        return Ok(());
    }
    let (_reading, writing) = socket.into_split();
    let (ring, driver) = Ring::new(writing, Viewer::options())?;
    let mut viewer = Viewer::new(ring);
    viewer.say(FILE_HEADER.into());
    {
        let mut stream = stream.borrow_mut();
        for (_, header) in &stream.headers {
            viewer.send(&Frame::new(header.kind, header.parts.clone()));
        }
        stream.viewers.push(viewer);
    }
    driver.await
}

/// Cuts FLV into tags, each an ADU: the tag and the length behind it.
fn read(mut input: impl io::Read, frames: &mpsc::Sender<(u8, Frame)>) -> io::Result<()> {
    let mut header = [0; FILE_HEADER.len()];
    input.read_exact(&mut header)?;
    if !header.starts_with(b"FLV") {
        return Err(io::Error::other("standard input is not FLV"));
    }
    // Bytes that say how long a NAL unit is; the video's header says how many.
    let mut length_bytes = 4;
    loop {
        let mut tag = vec![0; TAG_HEADER];
        match input.read_exact(&mut tag) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            result => result?,
        }
        let length = u32::from_be_bytes([0, tag[1], tag[2], tag[3]]) as usize;
        tag.resize(TAG_HEADER + length + 4, 0);
        input.read_exact(&mut tag[TAG_HEADER..])?;
        let body = &tag[TAG_HEADER..TAG_HEADER + length];
        let kind = kind(tag[0], body, &mut length_bytes)?;
        let frame = Frame::new(kind, vec![Arc::from(&tag[..])]);
        if frames.blocking_send((tag[0], frame)).is_err() {
            return Ok(());
        }
    }
}

/// Of a tag (Adobe's "Video File Format Specification", annex E.4).
fn kind(tag: u8, body: &[u8], length_bytes: &mut usize) -> io::Result<Kind> {
    const AUDIO: u8 = 8;
    const VIDEO: u8 = 9;
    Ok(match (tag, body) {
        // AAC's header.
        (AUDIO, [format, 0, ..]) if format >> 4 == 10 => Kind::Header,
        (AUDIO, _) => Kind::Audio,
        // An AVCDecoderConfigurationRecord begins behind the five bytes of the tag.
        (VIDEO, [0x17, 0, _, _, _, _, _, _, _, lengths, ..]) => {
            *length_bytes = (lengths & 3) as usize + 1;
            Kind::VideoHeader
        }
        (VIDEO, [0x17, 1, ..]) => Kind::Key,
        (VIDEO, [0x27, 1, _, _, _, units @ ..]) if is_disposable(units, *length_bytes) => {
            Kind::Disposable
        }
        (VIDEO, [0x17 | 0x27, ..]) => Kind::Reference,
        (VIDEO, _) => return Err(io::Error::other("the video is not H.264")),
        _ => Kind::Header,
    })
}

/// Whether no NAL unit has a nal_ref_idc (H.264, 7.4.1).
fn is_disposable(mut units: &[u8], length_bytes: usize) -> bool {
    let mut slices = false;
    while let Some((length, rest)) = units.split_at_checked(length_bytes) {
        let length = length.iter().fold(0, |n, byte| n << 8 | usize::from(*byte));
        let Some((unit, rest)) = rest.split_at_checked(length) else {
            return false;
        };
        let Some(first) = unit.first() else {
            return false;
        };
        slices |= first & 0x1f == 1;
        if first & 0x60 != 0 {
            return false;
        }
        units = rest;
    }
    slices
}
