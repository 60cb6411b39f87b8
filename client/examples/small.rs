//! The smallest relay that stays live: from a camera over TCP to one viewer over TCP, for any stream of JPEG images.
//! `docs/applications.md` shows it.
//!
//! ```sh
//! ffmpeg -re -i video.mp4 -f mjpeg 'tcp://127.0.0.1:9000?listen=1'
//! cargo run -p bestby --example small --features tokio -- 127.0.0.1:9000 127.0.0.1:8080
//! ffplay -f mjpeg tcp://127.0.0.1:8080
//! ```
use std::{env::args, time::Duration};

use bestby::{Deadline, Metadata, tcp::Options, tokio::Ring};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (Some(camera), Some(address)) = (args().nth(1), args().nth(2)) else {
        return Err("usage: small CAMERA:PORT ADDRESS:PORT".into());
    };
    let mut camera = BufReader::new(TcpStream::connect(camera).await?);
    let (viewer, _) = TcpListener::bind(address).await?.accept().await?;
    let (ring, driver) = Ring::new(viewer, Options::new())?;
    let driver = tokio::spawn(driver);
    let mut image = Vec::new();
    while !driver.is_finished() && camera.read_until(0xd9, &mut image).await? > 0 {
        if image.ends_with(&[0xff, 0xd9]) {
            let useful = Metadata::new().deadline(Deadline::after(Duration::from_millis(500)));
            ring.push(std::mem::take(&mut image), useful);
        }
    }
    let stats = ring.stats();
    println!("{} sent, {} given up", stats.sent, stats.given_up.total());
    drop(ring); // the driver sends what waits, and ends
    Ok(driver.await??)
}
