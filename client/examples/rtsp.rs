//! An RTSP server for one publisher and many viewers: H.264 and audio, interleaved in TCP, and live on links that
//! are too narrow for it.
//!
//! A viewer whose link is too narrow goes without some video: first without frames that no other needs, then
//! without all up to the next key frame. What arrives decodes without an error, and is at most about 1 s old.
//!
//! ```sh
//! cargo run -p bestby --example rtsp --features tokio -- 127.0.0.1:8554
//! ffmpeg -re -i video.mp4 -c:v libx264 -bf 3 -b_strategy 0 -g 50 -x264-params b-pyramid=none -c:a aac \
//!     -f rtsp -rtsp_transport tcp rtsp://127.0.0.1:8554/live
//! ffplay -rtsp_transport tcp rtsp://127.0.0.1:8554/live
//! ```
//!
//! To see it on a narrow link, make what comes from the server narrow in a shell of `sudo unshare --net`, and run
//! all of the commands above in it:
//!
//! ```sh
//! ip link set lo up mtu 1500; tc qdisc add dev lo root handle 1: htb
//! tc class add dev lo parent 1: classid 1:2 htb rate 600kbit; tc qdisc add dev lo parent 1:2 bfifo limit 90000
//! tc filter add dev lo parent 1: protocol ip u32 match ip sport 8554 0xffff flowid 1:2
//! ```

mod live;
#[path = "live/request.rs"]
mod request;
#[path = "live/rtp.rs"]
mod rtp;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    rc::Rc,
    sync::Arc,
};

use bestby::tokio::Ring;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{LocalSet, spawn_local},
};

use live::{Frame, Kind, Viewer};
use request::Request;

/// What is published.
#[derive(Default)]
struct Stream {
    /// The session description; empty without a publisher.
    description: String,
    tracks: Vec<rtp::Track>,
    /// The newest report of each channel: without, a viewer cannot bring audio and video together.
    reports: BTreeMap<u8, Arc<[u8]>>,
    /// By number of their connection, with the tracks that they want.
    viewers: BTreeMap<u64, (Viewer, BTreeSet<usize>)>,
}

type Shared = Rc<RefCell<Stream>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = std::env::args().nth(1) else {
        return Err("usage: rtsp ADDRESS:PORT".into());
    };
    let listener = TcpListener::bind(address).await?;
    println!("rtsp://{}/live", listener.local_addr()?);
    let stream = Shared::default();
    let tasks = LocalSet::new();
    let serving = tasks.run_until(async {
        for number in 0.. {
            let (socket, _) = listener.accept().await?;
            let stream = Rc::clone(&stream);
            spawn_local(async move {
                if let Err(error) = serve(socket, number, stream).await {
                    eprintln!("connection {number}: {error}");
                }
            });
        }
        Ok(())
    });
    serving.await
}

/// Of a publisher or a viewer.
struct Connection {
    number: u64,
    reading: BufReader<OwnedReadHalf>,
    /// All that goes out. A viewer that plays has it in the stream.
    ring: Option<Ring<OwnedWriteHalf, Arc<[u8]>>>,
    stream: Shared,
    publishes: bool,
    tracks: BTreeSet<usize>,
}

async fn serve(socket: TcpStream, number: u64, stream: Shared) -> io::Result<()> {
    let (reading, writing) = socket.into_split();
    let (ring, driver) = Ring::new(writing, Viewer::options()).map_err(io::Error::other)?;
    // It ends with the last handle, after all has gone out.
    spawn_local(driver);
    let mut connection = Connection {
        number,
        reading: BufReader::new(reading),
        ring: Some(ring),
        stream,
        publishes: false,
        tracks: BTreeSet::new(),
    };
    let result = connection.run().await;
    let mut stream = connection.stream.borrow_mut();
    let leaving = match connection.publishes {
        // Its viewers get what waits, and then the end.
        true => std::mem::take(&mut *stream).viewers,
        false => stream.viewers.remove_entry(&number).into_iter().collect(),
    };
    for (number, (viewer, _)) in leaving {
        println!("viewer {number}: {}", viewer.summary());
    }
    result
}

impl Connection {
    /// Until it ends.
    async fn run(&mut self) -> io::Result<()> {
        while let Some(&first) = self.reading.fill_buf().await?.first() {
            if first == b'$' {
                let packet = rtp::packet(&mut self.reading).await?;
                if self.publishes {
                    self.stream.borrow_mut().send(packet);
                }
            } else {
                let request = Request::read(&mut self.reading).await?;
                let sequence = request.headers.get("cseq").map_or("0", |value| value);
                let (status, more) = self
                    .answer(&request)
                    .unwrap_or_else(|status| (status, "\r\n".into()));
                self.say(format!(
                    "RTSP/1.0 {status}\r\nCSeq: {sequence}\r\nSession: 1\r\n{more}"
                ));
                match request.method.as_str() {
                    "PLAY" => self.play(),
                    "TEARDOWN" => return Ok(()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Status, and what stands behind the session's header; or the status of a refusal.
    fn answer(&mut self, request: &Request) -> Result<(&'static str, String), &'static str> {
        let mut stream = self.stream.borrow_mut();
        let mut more = "\r\n".to_owned();
        match request.method.as_str() {
            "OPTIONS" => {
                more = "Public: DESCRIBE, ANNOUNCE, SETUP, PLAY, RECORD, TEARDOWN\r\n\r\n".into()
            }
            "ANNOUNCE" if !stream.description.is_empty() => {
                return Err("403 Another Publisher Is There");
            }
            "ANNOUNCE" => {
                stream.tracks = rtp::tracks(&request.body);
                stream.description.clone_from(&request.body);
                self.publishes = true;
            }
            "DESCRIBE" if stream.description.is_empty() => return Err("404 Nothing Is Published"),
            "DESCRIBE" => {
                let (url, body) = (&request.url, &stream.description);
                let length = body.len();
                more = format!(
                    "Content-Base: {url}/\r\nContent-Type: application/sdp\r\nContent-Length: {length}\r\n\r\n{body}"
                );
            }
            "SETUP" => {
                let mut tracks = stream.tracks.iter();
                let track = tracks.position(|track| request.url.ends_with(&track.control));
                let track = track.ok_or("404 No Such Track")?;
                let transport = request.headers.get("transport").map_or("", |value| value);
                if !transport.contains("RTP/AVP/TCP") {
                    return Err("461 Only Interleaved In TCP");
                }
                self.tracks.insert(track);
                let (packets, reports) = (2 * track, 2 * track + 1);
                more = format!(
                    "Transport: RTP/AVP/TCP;unicast;interleaved={packets}-{reports}\r\n\r\n"
                );
            }
            "PLAY" if self.tracks.is_empty() => return Err("455 SETUP Comes First"),
            "PLAY" | "RECORD" | "TEARDOWN" | "GET_PARAMETER" => {}
            _ => return Err("501 Not Implemented"),
        }
        Ok(("200 OK", more))
    }

    /// In front of all that waits.
    fn say(&self, message: String) {
        let message: Arc<[u8]> = message.into_bytes().into();
        match &self.ring {
            Some(ring) => live::say(ring, message),
            None => {
                if let Some((viewer, _)) = self.stream.borrow().viewers.get(&self.number) {
                    viewer.say(message);
                }
            }
        }
    }

    fn play(&mut self) {
        if let Some(ring) = self.ring.take_if(|_| !self.tracks.is_empty()) {
            let mut stream = self.stream.borrow_mut();
            let tracks = std::mem::take(&mut self.tracks);
            let viewer = Viewer::new(ring);
            for (channel, report) in &stream.reports {
                if tracks.contains(&usize::from(channel / 2)) {
                    viewer.say(Arc::clone(report));
                }
            }
            stream.viewers.insert(self.number, (viewer, tracks));
        }
    }
}

impl Stream {
    /// Sends a packet of the publisher, or keeps it until its frame is complete.
    fn send(&mut self, packet: Arc<[u8]>) {
        let channel = packet[1];
        let number = usize::from(channel / 2);
        let Some(track) = self.tracks.get_mut(number) else {
            return;
        };
        let frame = match channel % 2 {
            0 => track.take(packet),
            _ => {
                self.reports.insert(channel, Arc::clone(&packet));
                Some(Frame::new(Kind::Header, vec![packet]))
            }
        };
        if let Some(frame) = frame {
            let viewers = self.viewers.values_mut();
            for (viewer, _) in
                viewers.filter(|(viewer, tracks)| tracks.contains(&number) && !viewer.has_left())
            {
                viewer.send(&frame);
            }
        }
    }
}
