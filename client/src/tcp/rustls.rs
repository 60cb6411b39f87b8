//! A ring above TLS: [`Tls`].
//!
//! rustls keeps what it has encrypted until somebody writes it, up to 64 KiB, and a record that is encrypted
//! can no longer be replaced. So the ring is above: it chooses, one record with no more bytes than leave at
//! once is encrypted, and that record is with the kernel before the ring chooses again.

use std::{
    io::{self, IoSlice, Read, Write as _},
    os::fd::BorrowedFd,
};

use rustls::{Connection, ProtocolVersion};

use super::{sys, wire::Wire};

/// Plaintext of a record, at most (RFC 8446, section 5.1).
const RECORD: usize = 16 << 10;
/// Header, content type and tag of a record of TLS 1.3 (RFC 8446, section 5.2).
const OVERHEAD_13: usize = 5 + 1 + 16;
/// Header, nonce and tag of a record of TLS 1.2 with AES-GCM (RFC 5288, section 3).
const OVERHEAD_12: usize = 5 + 8 + 16;

/// A connection of rustls over a socket, for a ring to write to.
///
/// ```no_run
/// # fn example(connection: rustls::ServerConnection, mut socket: std::net::TcpStream)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use bestby::{Metadata, tcp::{Ring, Tls}};
///
/// let mut connection = connection;
/// while connection.is_handshaking() {
///     connection.complete_io(&mut socket)?;
/// }
/// let mut ring = Ring::new(Tls::new(connection, socket)?)?;
/// ring.push(b"frame".to_vec(), Metadata::new());
/// ring.drive()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tls<S> {
    connection: Connection,
    wire: S,
    /// Encrypted, and not yet with the kernel from `at` on.
    records: Vec<u8>,
    at: usize,
    handed: u64,
}

impl<S: Wire> Tls<S> {
    /// A connection whose handshake is complete, over the socket that it was made on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` before the end of the handshake: what is written then would wait in rustls.
    pub fn new(connection: impl Into<Connection>, wire: S) -> io::Result<Self> {
        let connection = connection.into();
        if connection.is_handshaking() {
            let message = "the TLS handshake is not complete";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self {
            connection,
            wire,
            records: Vec::new(),
            at: 0,
            handed: 0,
        })
    }

    /// The connection, e.g. for its protocol and certificates. Whoever writes to it tears the ADUs.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Reads what the peer sent; never blocks. 0 at its end. Call it when the socket is readable: it is also
    /// how TLS learns of new keys.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing; `InvalidData` if it is not TLS; and as the socket says.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let mut socket = Socket(self.wire.fd());
            let read = self.connection.read_tls(&mut socket)?;
            let processed = self.connection.process_new_packets();
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if read == 0 {
                return self.connection.reader().read(buffer);
            }
        }
    }

    /// Tells the peer that nothing follows. Call it after [`crate::tcp::Ring::close`], and [`Wire::flush`] until
    /// [`Wire::held`] is 0.
    ///
    /// # Errors
    ///
    /// As [`Wire::flush`].
    pub fn close_notify(&mut self) -> io::Result<()> {
        self.connection.send_close_notify();
        self.flush()
    }

    /// Gives connection and socket back. What is [`Wire::held`] is lost.
    pub fn into_parts(self) -> (Connection, S) {
        (self.connection, self.wire)
    }
}

impl<S: Wire> Wire for Tls<S> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.wire.fd()
    }

    fn write(&mut self, parts: &[IoSlice<'_>], _last: bool) -> io::Result<usize> {
        self.flush()?;
        let written = self.connection.writer().write_vectored(parts)?;
        match self.flush() {
            // What is encrypted counts as taken.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(written),
            result => result.map(|()| written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.records)?;
        }
        while self.at < self.records.len() {
            let rest = IoSlice::new(&self.records[self.at..]);
            let written = self.wire.write(&[rest], true)?;
            self.at += written;
            self.handed += written as u64;
        }
        self.records.clear();
        self.at = 0;
        self.wire.flush()
    }

    fn held(&self) -> usize {
        self.records.len() - self.at + self.wire.held()
    }

    fn overhead(&self, bytes: usize) -> usize {
        let record = match self.connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => OVERHEAD_13,
            _ => OVERHEAD_12,
        };
        bytes.div_ceil(RECORD) * record
    }

    fn handed(&self) -> Option<u64> {
        Some(self.wire.handed().unwrap_or(self.handed))
    }
}

/// The reading direction of a socket.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        sys::receive(self.0, buffer)
    }
}
