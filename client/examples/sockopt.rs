//! Defaults for a whole socket, without privilege and without touching the send path: for
//! programs that only want "late packets of this socket are of no use".
//!
//! ```text
//! cargo run --example sockopt -- 192.0.2.7:5004
//! ```

use std::{env, error::Error, net::SocketAddr, net::UdpSocket, num::NonZeroU64, time::Duration};

use bestby::{Lifetime, Peer, Priority, SocketOptions, Treatment};

fn main() -> Result<(), Box<dyn Error>> {
    let to: SocketAddr = env::args()
        .nth(1)
        .ok_or("usage: sockopt ADDRESS:PORT")?
        .parse()?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;

    let active = match configure(&socket, to) {
        Ok(()) => true,
        Err(error @ bestby::Error::NotActive) => {
            println!("{error}");
            false
        }
        Err(error) => return Err(error.into()),
    };
    // From here on nothing of bestby is left in the program.
    for _ in 0..10 {
        socket.send_to(&[0; 1_000], to)?;
    }
    if active {
        println!("{:?}", SocketOptions::of(&socket).stats()?);
    }
    Ok(())
}

fn configure(socket: &UdpSocket, to: SocketAddr) -> bestby::Result<()> {
    let options = SocketOptions::of(socket);
    options.set_lifetime(Some(Lifetime::from_millis(200)?))?;
    options.set_priority(Priority::new(2)?)?;
    options.set_treatment(Treatment::Discard)?;
    // Known from the receiver's feedback: 40 ms away, behind 1 Mbit/s.
    let rate = NonZeroU64::new(1_000_000 / 8);
    options.set_peer(
        to.ip(),
        &Peer {
            owd: Some(Duration::from_millis(40)),
            rate,
        },
    )
}
