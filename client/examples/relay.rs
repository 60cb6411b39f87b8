//! A camera for many viewers over plain HTTP, that stays live on links that are too narrow for it.
//!
//! Reads JPEG images from standard input and sends them to every viewer as `multipart/x-mixed-replace`, which
//! browsers, ffplay and VLC show. A viewer whose link is too narrow misses images; it never falls behind.
//!
//! ```sh
//! ffmpeg -re -i video.mp4 -f mjpeg - | cargo run -p bestby --example relay --features tokio -- 127.0.0.1:8080
//! ffplay http://127.0.0.1:8080/
//! ```

#[path = "live/http.rs"]
mod http;

use std::{cell::RefCell, io, rc::Rc, sync::Arc, time::Duration};

use bestby::{Deadline, Metadata, tcp::Options, tokio::Ring};
use tokio::{
    net::{TcpListener, TcpStream, tcp::OwnedWriteHalf},
    sync::mpsc,
};

/// How long an image is of use.
const LIFETIME: Duration = Duration::from_millis(500);
/// After the end of the stream.
const GRACE: Duration = Duration::from_secs(3);
/// An image is no larger.
const LARGEST: usize = 8 << 20;

const HEAD: &str = "HTTP/1.0 200 OK\r\nCache-Control: no-store\r\n\
                    Content-Type: multipart/x-mixed-replace; boundary=image\r\n\r\n--image\r\n";

/// One image for all viewers: the buffer is shared.
type Viewer = Ring<OwnedWriteHalf, Arc<[u8]>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(address) = std::env::args().nth(1) else {
        return Err("usage: relay ADDRESS:PORT < stream of JPEG images".into());
    };
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/", listener.local_addr()?);
    let (sender, mut images) = mpsc::channel(4);
    std::thread::spawn(move || split(io::stdin().lock(), &sender));
    let viewers: Rc<RefCell<Vec<Viewer>>> = Rc::default();

    let tasks = tokio::task::LocalSet::new();
    let accepting = tasks.spawn_local(accept(listener, Rc::clone(&viewers)));
    tasks
        .run_until(async {
            while let Some(image) = images.recv().await {
                let part: Arc<[u8]> = part(&image).into();
                let metadata = Metadata::new().deadline(Deadline::after(LIFETIME));
                for viewer in viewers.borrow().iter() {
                    viewer.push(Arc::clone(&part), metadata);
                }
                // Those that left.
                viewers
                    .borrow_mut()
                    .retain(|viewer| viewer.stats().given_up.closed == 0);
            }
        })
        .await;
    // The drivers send what waits and end; but for a viewer that does not read.
    for viewer in viewers.borrow().iter() {
        let stats = viewer.stats();
        println!("{} sent, {} given up", stats.sent, stats.given_up.total());
    }
    viewers.borrow_mut().clear();
    accepting.abort();
    let _ = tokio::time::timeout(GRACE, tasks).await;
    Ok(())
}

/// Takes viewers in until the images end.
async fn accept(listener: TcpListener, viewers: Rc<RefCell<Vec<Viewer>>>) {
    loop {
        let Ok((mut socket, _)) = listener.accept().await else {
            continue;
        };
        let viewers = Rc::clone(&viewers);
        tokio::task::spawn_local(async move {
            match http::greet(&mut socket, HEAD).await {
                Ok(()) => serve(socket, &viewers).await,
                Err(error) => eprintln!("a viewer left before its first image: {error}"),
            }
        });
    }
}

/// Drives the viewer's ring until it leaves.
async fn serve(socket: TcpStream, viewers: &RefCell<Vec<Viewer>>) {
    let (_reading, writing) = socket.into_split();
    match Ring::new(writing, Options::new()) {
        Ok((viewer, driver)) => {
            viewers.borrow_mut().push(viewer);
            if let Err(error) = driver.await {
                eprintln!("a viewer left: {error}");
            }
        }
        Err(error) => eprintln!("{error}"),
    }
}

/// An image as a part of the answer: an ADU, framing included.
fn part(image: &[u8]) -> Vec<u8> {
    let head = format!(
        "Content-Type: image/jpeg\r\nContent-Length: {}\r\n\r\n",
        image.len()
    );
    [head.as_bytes(), image, b"\r\n--image\r\n"].concat()
}

/// Cuts a stream of JPEG images: each begins with FF D8 and ends with FF D9.
fn split(mut stream: impl io::Read, images: &mpsc::Sender<Vec<u8>>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..read]);
        // What follows an image is the next one: FF D9 within an image's thumbnail is no end.
        while let Some(end) = bytes.windows(4).position(|w| w == [0xff, 0xd9, 0xff, 0xd8]) {
            let rest = bytes.split_off(end + 2);
            if images
                .blocking_send(std::mem::replace(&mut bytes, rest))
                .is_err()
            {
                return;
            }
        }
        if bytes.len() > LARGEST {
            eprintln!("no end of an image in {LARGEST} bytes");
            return;
        }
    }
    if bytes.ends_with(&[0xff, 0xd9]) {
        let _ = images.blocking_send(bytes);
    }
}
