//! Viewers over plain HTTP (`relay`, `flv`): one answer that does not end.

use std::io;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A request is no longer.
const LONGEST: usize = 16_384;

/// Reads the request and begins the answer.
pub(crate) async fn greet(socket: &mut TcpStream, head: &str) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if request.len() == LONGEST {
            return Err(io::Error::other("its request does not end"));
        }
        request.push(socket.read_u8().await?);
    }
    socket.write_all(head.as_bytes()).await
}
