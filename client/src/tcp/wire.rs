//! What a ring writes to: [`Wire`].

use std::{
    io::{self, IoSlice},
    net::TcpStream,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use super::sys;

/// A connected stream socket, or something on top of one (with the feature `rustls`, `bestby::tcp::Tls`).
///
/// A ring asks [`Wire::fd`] for the congestion window and writes no more than leaves at once. So what
/// implements this must not collect bytes: [`Wire::write`] hands them on at once.
pub trait Wire {
    /// The socket, for `TCP_INFO`, socket options and `poll`.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Takes bytes, as many as it can without blocking; returns how many. `last`: what follows goes into
    /// another packet buffer of the kernel (`MSG_EOR`).
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it can take nothing now; every other error ends the ring.
    fn write(&mut self, parts: &[IoSlice<'_>], last: bool) -> io::Result<usize>;

    /// Hands on what [`Wire::held`] counts.
    ///
    /// # Errors
    ///
    /// As [`Wire::write`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Bytes taken, but not yet with the kernel: records of TLS. While there are any the ring writes nothing.
    fn held(&self) -> usize {
        0
    }

    /// Bytes that writing `bytes` at once adds to them.
    fn overhead(&self, bytes: usize) -> usize {
        let _ = bytes;
        0
    }

    /// Bytes handed to the kernel so far; `None` where that is the sum of what [`Wire::write`] returned.
    fn handed(&self) -> Option<u64> {
        None
    }
}

impl Wire for TcpStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn write(&mut self, parts: &[IoSlice<'_>], last: bool) -> io::Result<usize> {
        sys::send(self.as_fd(), parts, last)
    }
}

/// For programs that read from the same socket elsewhere.
impl Wire for Arc<TcpStream> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn write(&mut self, parts: &[IoSlice<'_>], last: bool) -> io::Result<usize> {
        sys::send(self.as_fd(), parts, last)
    }
}

/// For tests, and for programs whose peers are sometimes on this host. The ring then knows no rate, and
/// hands over what the socket takes.
impl Wire for UnixStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn write(&mut self, parts: &[IoSlice<'_>], last: bool) -> io::Result<usize> {
        sys::send(self.as_fd(), parts, last)
    }
}
