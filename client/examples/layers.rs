//! Layered video over TCP: on a narrow link the upper layers go, and the base layer stays (the experiment of
//! `tcp-ldc.txt`, section 6).
//!
//! Eight layers of 128 kbit/s; one second of a layer is an ADU of 16 kB, of use for 1.05 s. Layer 0 is the base,
//! and each layer refines all below it. `receive` is an ordinary TCP program. `send plain` writes
//! everything to the socket, as programs without a ring do.
//!
//! ```sh
//! cargo run -p bestby --example layers -- receive 127.0.0.1:5004
//! cargo run -p bestby --example layers -- send 127.0.0.1:5004 20
//! cargo run -p bestby --example layers -- send plain 127.0.0.1:5004 20
//! ```
//!
//! The receiver serves one sender and ends.
//!
//! To see it on a narrow link, begin a shell with `sudo unshare --net`, type
//! `ip link set lo up mtu 1500; tc qdisc add dev lo root tbf rate 512kbit burst 3000 limit 90000`,
//! and run all of the commands above in it.

use std::{
    collections::BTreeSet,
    error::Error,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bestby::{
    Lifetime, Metadata, Priority,
    tcp::{Method, Options, Ring},
};

const LAYERS: u8 = 8;
const BYTES: usize = 16_000;
const SECOND: Duration = Duration::from_secs(1);
const LIFETIME: Duration = Duration::from_millis(1_050);
/// In front of each ADU: time of day in ms, second, layer.
const HEADER: usize = 8 + 4 + 1;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["receive", address] => receive(address),
        ["send", "plain", address, seconds] => send_plain(address, seconds.parse()?),
        ["send", address, seconds] => send(address, seconds.parse()?),
        _ => Err(
            "usage: layers receive ADDRESS:PORT | layers send [plain] ADDRESS:PORT SECONDS".into(),
        ),
    }
}

/// A second of a layer, for both senders.
fn adu(second: u32, layer: u8) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = vec![layer; BYTES];
    let now = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    bytes[..8].copy_from_slice(&now.to_be_bytes());
    bytes[8..12].copy_from_slice(&second.to_be_bytes());
    Ok(bytes)
}

fn send(address: &str, seconds: u32) -> Result<(), Box<dyn Error>> {
    // By layer, and of one layer the older second first.
    let options = Options::new().method(Method::Priority);
    let mut ring = Ring::with(TcpStream::connect(address)?, options)?;
    let lifetime = Metadata::new().lifetime(Lifetime::new(LIFETIME)?);
    let start = Instant::now();
    for second in 0..seconds {
        for layer in 0..LAYERS {
            ring.push(
                adu(second, layer)?,
                lifetime.priority(Priority::new(layer)?),
            );
        }
        ring.run_until(start + SECOND * (second + 1))?;
    }
    ring.finish(Instant::now() + LIFETIME)?;
    let stats = ring.stats();
    println!(
        "{} sent, of these {} late, {} given up",
        stats.sent,
        stats.late,
        stats.given_up.total()
    );
    Ok(())
}

fn send_plain(address: &str, seconds: u32) -> Result<(), Box<dyn Error>> {
    let mut socket = TcpStream::connect(address)?;
    let start = Instant::now();
    for second in 0..seconds {
        for layer in 0..LAYERS {
            socket.write_all(&adu(second, layer)?)?;
        }
        let next = start + SECOND * (second + 1);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    println!("{} sent, 0 given up", seconds * u32::from(LAYERS));
    Ok(())
}

fn receive(address: &str) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(address)?;
    println!("{}", listener.local_addr()?);
    let mut socket = listener.accept()?.0;
    let mut bytes = [0; BYTES];
    let mut on_time: BTreeSet<(u32, u8)> = BTreeSet::new();
    let (mut seconds, mut late) = (0, 0);
    loop {
        match socket.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            result => result?,
        }
        let (header, content) = bytes.split_at(HEADER);
        let (sent, rest) = header.split_first_chunk().ok_or("no time")?;
        let (second, layer) = rest.split_first_chunk().ok_or("no second")?;
        let (second, layer) = (u32::from_be_bytes(*second), layer[0]);
        if layer >= LAYERS || content.iter().any(|byte| *byte != layer) {
            return Err(format!("not a whole ADU of layer {layer}").into());
        }
        seconds = seconds.max(second + 1);
        let sent = UNIX_EPOCH + Duration::from_millis(u64::from_be_bytes(*sent));
        // By the same clock, where both run on one host.
        let age = SystemTime::now().duration_since(sent).unwrap_or_default();
        if age <= LIFETIME {
            on_time.insert((second, layer));
        } else {
            late += 1;
        }
    }
    for layer in 0..LAYERS {
        let of = |&&(_, of): &&(u32, u8)| of == layer;
        let count = on_time.iter().filter(of).count();
        println!("layer {layer}: {count} of {seconds} seconds on time");
    }
    // A layer is of use if all below it are there.
    let useful = |second| {
        (0..LAYERS)
            .take_while(|layer| on_time.contains(&(second, *layer)))
            .count()
    };
    let useful: usize = (0..seconds).map(useful).sum();
    println!("{useful} ADUs of use, {late} late");
    Ok(())
}
