//! Sending with metadata: [`Sender`].

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicU8, Ordering},
};

use socket2::SockAddr;

use crate::{
    error::{Error, Result},
    mark::{Magic, Mark},
    metadata::{Expiry, Metadata, Priority},
    options::SocketOptions,
    packet::Packet,
    sys::{self, BATCH, Control, Message},
    txtime::{self, PriorityScope, TxTimeReport},
};

/// How metadata travels from the socket to the classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Form {
    /// `SO_MARK` per packet: everything, at 250 µs. Needs CAP_NET_RAW or CAP_NET_ADMIN.
    Mark = 0,
    /// `SO_TXTIME` in deadline mode: the deadline, at 1 ns; no privilege.
    TxTime = 1,
    /// No metadata per packet: packets are sent as without this crate.
    Plain = 2,
}

impl Form {
    fn from_u8(value: u8) -> Self {
        match value {
            0 => Self::Mark,
            1 => Self::TxTime,
            _ => Self::Plain,
        }
    }
}

/// Sends datagrams with [`Metadata`] over a UDP socket (`std`, `socket2`, …; for tokio see
/// `bestby::tokio::Sender`).
///
/// ```
/// use std::{net::UdpSocket, time::Duration};
/// use bestby::{Deadline, Metadata, Priority, Sender};
///
/// let receiver = UdpSocket::bind("127.0.0.1:0")?;
/// // Works unchanged on hosts without bestby and without privilege.
/// let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0")?);
/// let metadata = Metadata::new()
///     .deadline(Deadline::after(Duration::from_millis(200)))
///     .priority(Priority::HIGHEST);
/// sender.send_to(b"audio", receiver.local_addr()?, &metadata)?;
/// # let mut buffer = [0; 16];
/// # assert_eq!(receiver.recv(&mut buffer)?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A blocking socket blocks while its send buffer is full; whatever waits
/// there is out of bestby's reach. Senders of media should be non-blocking and
/// look at [`Error::is_would_block`].
#[derive(Debug)]
pub struct Sender<S> {
    socket: S,
    magic: Magic,
    form: AtomicU8,
    /// Whether the form was chosen here, and may be chosen again.
    auto: bool,
}

impl<S: AsFd> Sender<S> {
    /// Takes the best form this process may use **now**: the mark; without the capability,
    /// `SO_TXTIME` if bestby is active (elsewhere a plain `fq` qdisc would hold the
    /// packets until their deadline); else none. If the process gives up the capability
    /// later, the next form is taken without losing a packet.
    pub fn auto(socket: S) -> Self {
        let form = AtomicU8::new(detect(socket.as_fd()) as u8);
        Self {
            socket,
            magic: Magic::default(),
            form,
            auto: true,
        }
    }

    /// The mark form. Note that routing rules (`ip rule fwmark`) and firewalls may
    /// look at marks, too; `Magic` and their masks must not overlap.
    ///
    /// # Errors
    ///
    /// [`Error::MarkNotPermitted`].
    pub fn mark(socket: S) -> Result<Self> {
        try_mark(socket.as_fd()).map_err(Error::MarkNotPermitted)?;
        Ok(Self::fixed(socket, Form::Mark))
    }

    /// The `SO_TXTIME` form; `report_errors` also asks for [`Sender::tx_time_reports`].
    ///
    /// **Only for interfaces that bestby is attached to.** The kernel's own qdiscs read the
    /// same field differently: `fq` *holds* the packet until its deadline (and drops it if that is
    /// more than 10 s ahead), `etf` refuses the clock. bestby's classifier clears the field
    /// before a qdisc sees it. [`Sender::auto`] looks whether bestby is active first.
    ///
    /// # Errors
    ///
    /// [`Error::TxTimeUnavailable`].
    pub fn tx_time(socket: S, report_errors: bool) -> Result<Self> {
        sys::enable_txtime(socket.as_fd(), report_errors).map_err(Error::TxTimeUnavailable)?;
        Ok(Self::fixed(socket, Form::TxTime))
    }

    fn fixed(socket: S, form: Form) -> Self {
        Self {
            socket,
            magic: Magic::default(),
            form: AtomicU8::new(form as u8),
            auto: false,
        }
    }

    /// Another magic than 0xB in bits 28 to 31, where the agent is set so.
    #[must_use]
    pub fn with_magic(mut self, magic: Magic) -> Self {
        self.magic = magic;
        self
    }

    /// The form in use.
    pub fn form(&self) -> Form {
        Form::from_u8(self.form.load(Ordering::Relaxed))
    }

    /// Chooses the form again, for a sender made with [`Sender::auto`]: e.g. once a minute,
    /// to notice an agent that was started after the application. Returns the form in use.
    pub fn redetect(&self) -> Form {
        if self.auto {
            self.form
                .store(detect(self.socket.as_fd()) as u8, Ordering::Relaxed);
        }
        self.form()
    }

    /// Where the priority of [`Metadata`] takes effect.
    pub fn priority_scope(&self) -> PriorityScope {
        match self.form() {
            Form::Mark => PriorityScope::PerPacket,
            Form::TxTime if txtime::priority_per_packet() => PriorityScope::PerPacket,
            Form::TxTime => PriorityScope::PerSocket,
            Form::Plain => PriorityScope::None,
        }
    }

    /// Sets `SO_PRIORITY` of the socket, for packets without a priority of their own and for
    /// kernels without `SO_PRIORITY` per packet. Six levels (0 goes as 1, 6 as 7);
    /// [`SocketOptions::set_priority`] has all eight, but needs an active bestby.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn set_socket_priority(&self, priority: Priority) -> Result<()> {
        let value = txtime::so_priority(priority).to_ne_bytes();
        sys::set_option(
            self.socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_PRIORITY,
            &value,
        )
        .map_err(Error::io("setting SO_PRIORITY"))
    }

    /// bestby's options of the socket.
    pub fn options(&self) -> SocketOptions<'_> {
        SocketOptions::of(&self.socket)
    }

    /// The socket.
    pub fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Gives the socket back.
    pub fn into_inner(self) -> S {
        self.socket
    }

    /// Sends to the connected peer; returns the bytes of `payload`.
    ///
    /// # Errors
    ///
    /// As [`Sender::send_packet`].
    pub fn send(&self, payload: &[u8], metadata: &Metadata) -> Result<usize> {
        self.send_packet(&Packet::new(payload).metadata(*metadata))
    }

    /// Sends to `to`; returns the bytes of `payload`.
    ///
    /// # Errors
    ///
    /// As [`Sender::send_packet`].
    pub fn send_to(&self, payload: &[u8], to: SocketAddr, metadata: &Metadata) -> Result<usize> {
        self.send_packet(&Packet::new(payload).to(to).metadata(*metadata))
    }

    /// Sends one packet; returns the bytes of its payload.
    ///
    /// # Errors
    ///
    /// - [`Error::Value`]: the form in use cannot express the deadline.
    /// - [`Error::MarkNotPermitted`]: the process gave up its capability (not with [`Sender::auto`]).
    /// - [`Error::Segmentation`]: the kernel cannot cut this super-packet.
    /// - [`Error::DroppedLocally`], [`Error::Io`] (`WouldBlock` included): as the socket says.
    pub fn send_packet(&self, packet: &Packet<'_>) -> Result<usize> {
        let to = packet.to.map(SockAddr::from);
        self.recovering(packet, |form| {
            let control = self.control(form, packet, sys::monotonic_ns())?;
            let message = Message {
                payload: packet.payload,
                to: to.as_ref(),
                control: &control,
            };
            Ok(sys::sendmsg(self.socket.as_fd(), &message))
        })
    }

    /// Sends many packets, each with its own destination and metadata, with one
    /// `sendmmsg` per 32. Returns how many were accepted: at least one, unless `packets` is empty.
    /// Where it is fewer than all, call again with the rest; an error is about the first packet.
    ///
    /// ```
    /// # use std::{net::UdpSocket, time::Duration};
    /// # use bestby::{Deadline, Metadata, Packet, Sender};
    /// # let receiver = UdpSocket::bind("127.0.0.1:0")?;
    /// # let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0")?);
    /// # sender.get_ref().connect(receiver.local_addr()?)?;
    /// let metadata = Metadata::new().deadline(Deadline::after(Duration::from_millis(200)));
    /// let packets: Vec<Packet> =
    ///     [b"one", b"two"].iter().map(|p| Packet::new(*p).metadata(metadata)).collect();
    /// let mut rest = packets.as_slice();
    /// while !rest.is_empty() {
    ///     let sent = sender.send_batch(rest)?;
    ///     rest = &rest[sent..];
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sender::send_packet`].
    pub fn send_batch(&self, packets: &[Packet<'_>]) -> Result<usize> {
        let mut sent = 0;
        for chunk in packets.chunks(BATCH) {
            match self.send_chunk(chunk) {
                Ok(count) => {
                    sent += count;
                    if count < chunk.len() {
                        break;
                    }
                }
                Err(error) if sent == 0 => return Err(error),
                // The next call meets it again, at its own first packet.
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// At most [`BATCH`] packets, at least one.
    fn send_chunk(&self, packets: &[Packet<'_>]) -> Result<usize> {
        let mut addresses = [const { None::<SockAddr> }; BATCH];
        for (packet, address) in packets.iter().zip(&mut addresses) {
            *address = packet.to.map(SockAddr::from);
        }
        self.recovering(&packets[0], |form| {
            let now_ns = sys::monotonic_ns();
            let mut controls = [const { Control::new() }; BATCH];
            let mut ready = 0;
            for (packet, control) in packets.iter().zip(&mut controls) {
                match self.control(form, packet, now_ns) {
                    Ok(encoded) => *control = encoded,
                    Err(error) if ready == 0 => return Err(error),
                    // Send what precedes it.
                    Err(_) => break,
                }
                ready += 1;
            }
            let empty = Control::new();
            let mut messages = [Message {
                payload: &[],
                to: None,
                control: &empty,
            }; BATCH];
            let parts = packets
                .iter()
                .zip(&addresses)
                .zip(&controls)
                .zip(&mut messages);
            for (((packet, address), control), message) in parts.take(ready) {
                *message = Message {
                    payload: packet.payload,
                    to: address.as_ref(),
                    control,
                };
            }
            Ok(sys::sendmmsg(self.socket.as_fd(), &messages[..ready]))
        })
    }

    /// Calls `send` with the form in use. Where the mark turns out to be no longer
    /// permitted, an automatic sender takes the next form and sends again.
    fn recovering(
        &self,
        first: &Packet<'_>,
        send: impl Fn(Form) -> Result<io::Result<usize>>,
    ) -> Result<usize> {
        loop {
            let form = self.form();
            let error = match send(form)? {
                Ok(sent) => return Ok(sent),
                Err(error) => error,
            };
            // EPERM may also come from a firewall: ask the socket which it was.
            if form == Form::Mark
                && error.raw_os_error() == Some(libc::EPERM)
                && try_mark(self.socket.as_fd()).is_err()
            {
                if !self.auto {
                    return Err(Error::MarkNotPermitted(error));
                }
                // Never the mark again at once: detect() has just been told that it may not.
                self.redetect();
                continue;
            }
            return Err(describe(error, first));
        }
    }

    /// The control messages that express `packet` in `form`.
    fn control(&self, form: Form, packet: &Packet<'_>, now_ns: u64) -> Result<Control> {
        let mut control = Control::new();
        let metadata = &packet.metadata;
        match form {
            Form::Mark if !metadata.is_empty() => {
                control.mark(Mark::encode(metadata, now_ns, self.magic)?.get());
            }
            Form::TxTime => {
                let deadline = match metadata.expiry {
                    Expiry::Unset => None,
                    Expiry::At(deadline) => Some(deadline),
                    Expiry::After(lifetime) => Some(lifetime.from(now_ns)),
                };
                if let Some(deadline) = deadline {
                    // The kernel's clock is signed.
                    control.txtime(deadline.as_monotonic_ns().min(i64::MAX as u64));
                }
                if let Some(priority) = metadata.priority
                    && txtime::priority_per_packet()
                {
                    control.priority(txtime::so_priority(priority));
                }
            }
            Form::Mark | Form::Plain => {}
        }
        if packet.segment_size > 0 {
            control.segment(packet.segment_size);
        }
        Ok(control)
    }

    /// Takes the reports of packets that a queue refused because of their deadline (see
    /// [`TxTimeReport`]); never blocks. Empty unless the sender was made with
    /// `tx_time(socket, true)`. Reports make the socket readable with `POLLERR`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn tx_time_reports(&self) -> Result<Vec<TxTimeReport>> {
        txtime::reports(self.socket.as_fd())
    }
}

/// The best form for this socket and this process; turns `SO_TXTIME` on if that is it.
fn detect(fd: BorrowedFd<'_>) -> Form {
    if try_mark(fd).is_ok() {
        Form::Mark
    } else if SocketOptions::of(&fd).is_active() && sys::enable_txtime(fd, false).is_ok() {
        Form::TxTime
    } else {
        Form::Plain
    }
}

/// Sets the socket's mark to what it is, to learn whether that is permitted.
fn try_mark(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut mark = [0; 4];
    sys::get_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &mut mark)?;
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

fn describe(source: io::Error, packet: &Packet<'_>) -> Error {
    match source.raw_os_error() {
        Some(libc::ENOBUFS) => Error::DroppedLocally(source),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::ENOPROTOOPT | libc::EOPNOTSUPP)
            if packet.segment_size > 0 =>
        {
            Error::Segmentation {
                segment_size: packet.segment_size,
                payload: packet.payload.len(),
                source,
            }
        }
        _ => Error::Io {
            operation: "sending",
            source,
        },
    }
}
