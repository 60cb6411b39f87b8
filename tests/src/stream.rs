//! A TCP stream to another namespace that must arrive as it was sent.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use crate::netns::Netns;

/// Sends `data` over a new connection to an address of `far`; `prepare` has the socket before.
///
/// # Panics
/// When other bytes arrive, or none for 20 s.
#[track_caller]
pub fn carry(far: &Netns, to: SocketAddr, data: &[u8], prepare: impl FnOnce(&TcpStream)) {
    let listener = far.enter(|| TcpListener::bind(to).unwrap());
    let mut near = TcpStream::connect(to).unwrap();
    prepare(&near);
    let (mut end, _) = listener.accept().unwrap();
    end.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let got = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut got = vec![0; data.len()];
            end.read_exact(&mut got).map(|()| got)
        });
        near.write_all(data).unwrap();
        reader.join().unwrap().expect("a stream that stands still")
    });
    assert!(got == data, "another stream");
}
