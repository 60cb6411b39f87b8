//! Sending with metadata from `tokio::net::UdpSocket`, and late data choice for its `TcpStream`.

mod ring;

use std::{borrow::Borrow, io, net::SocketAddr, os::fd::AsFd};

use ::tokio::{io::Interest, net::UdpSocket};

use crate::{
    error::{Error, Result},
    mark::Magic,
    metadata::Metadata,
    packet::Packet,
};

pub use self::ring::{Hold, Ring};

/// [`crate::Sender`] for tokio: waits until the socket is writable instead of
/// blocking or failing with `WouldBlock`. `S` is a [`UdpSocket`] or an `Arc` of one.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use bestby::{Deadline, Metadata};
/// use tokio::net::UdpSocket;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let receiver = UdpSocket::bind("127.0.0.1:0").await?;
/// let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await?);
/// let sender = bestby::tokio::Sender::auto(Arc::clone(&socket));
/// let metadata = Metadata::new().deadline(Deadline::after(Duration::from_millis(200)));
/// sender.send_to(b"frame", receiver.local_addr()?, &metadata).await?;
/// # let mut buffer = [0; 16];
/// # assert_eq!(receiver.recv(&mut buffer).await?, 5);
/// # Ok(())
/// # }
/// ```
///
/// Every method is cancel safe: it sends (and completes) or does not send.
#[derive(Debug)]
pub struct Sender<S = UdpSocket> {
    inner: crate::Sender<S>,
}

impl<S: AsFd + Borrow<UdpSocket>> Sender<S> {
    /// As [`crate::Sender::auto`].
    pub fn auto(socket: S) -> Self {
        Self {
            inner: crate::Sender::auto(socket),
        }
    }

    /// As [`crate::Sender::mark`].
    ///
    /// # Errors
    ///
    /// [`Error::MarkNotPermitted`].
    pub fn mark(socket: S) -> Result<Self> {
        Ok(Self {
            inner: crate::Sender::mark(socket)?,
        })
    }

    /// As [`crate::Sender::tx_time`], with its warning.
    ///
    /// # Errors
    ///
    /// [`Error::TxTimeUnavailable`].
    pub fn tx_time(socket: S, report_errors: bool) -> Result<Self> {
        Ok(Self {
            inner: crate::Sender::tx_time(socket, report_errors)?,
        })
    }

    /// As [`crate::Sender::with_magic`].
    #[must_use]
    pub fn with_magic(self, magic: Magic) -> Self {
        Self {
            inner: self.inner.with_magic(magic),
        }
    }

    /// The sender below: form, options, socket, reports. Its own `send` methods try
    /// once, outside of tokio's readiness; use those of this type.
    pub fn inner(&self) -> &crate::Sender<S> {
        &self.inner
    }

    /// Gives the socket back.
    pub fn into_inner(self) -> S {
        self.inner.into_inner()
    }

    /// Sends to the connected peer; returns the bytes of `payload`.
    ///
    /// # Errors
    ///
    /// As [`crate::Sender::send_packet`], without `WouldBlock`.
    pub async fn send(&self, payload: &[u8], metadata: &Metadata) -> Result<usize> {
        self.send_packet(&Packet::new(payload).metadata(*metadata))
            .await
    }

    /// Sends to `to`; returns the bytes of `payload`.
    ///
    /// # Errors
    ///
    /// As [`crate::Sender::send_packet`], without `WouldBlock`.
    pub async fn send_to(
        &self,
        payload: &[u8],
        to: SocketAddr,
        metadata: &Metadata,
    ) -> Result<usize> {
        self.send_packet(&Packet::new(payload).to(to).metadata(*metadata))
            .await
    }

    /// Sends one packet; returns the bytes of its payload.
    ///
    /// # Errors
    ///
    /// As [`crate::Sender::send_packet`], without `WouldBlock`.
    pub async fn send_packet(&self, packet: &Packet<'_>) -> Result<usize> {
        self.writable(|sender| sender.send_packet(packet)).await
    }

    /// Waits until at least one packet is accepted; returns how many were. Otherwise as
    /// [`crate::Sender::send_batch`].
    ///
    /// # Errors
    ///
    /// As [`crate::Sender::send_packet`], without `WouldBlock`.
    pub async fn send_batch(&self, packets: &[Packet<'_>]) -> Result<usize> {
        self.writable(|sender| sender.send_batch(packets)).await
    }

    /// Runs `send` whenever the socket is writable, until it does not say `WouldBlock`
    /// (which is what clears tokio's readiness).
    async fn writable(&self, send: impl Fn(&crate::Sender<S>) -> Result<usize>) -> Result<usize> {
        let socket: &UdpSocket = self.inner.get_ref().borrow();
        let attempt = || match send(&self.inner) {
            Err(error) if error.is_would_block() => Err(io::ErrorKind::WouldBlock.into()),
            result => Ok(result),
        };
        let waited = socket.async_io(Interest::WRITABLE, attempt).await;
        waited.map_err(Error::io("waiting until the socket is writable"))?
    }
}
