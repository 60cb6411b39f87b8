//! What can go wrong, and what to do about it.

use std::{io, time::Duration};

/// A value outside of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// More than the mark's clock can tell from the past.
    #[error(
        "deadline is {0:?} ahead; a mark carries at most 65 s: send nearer to the deadline, or use the SO_TXTIME form"
    )]
    DeadlineTooFar(Duration),
    /// Not in (0, 131 s].
    #[error(
        "lifetime {0:?} is not within 1 ns to 131 s (to say \"no deadline\", give no lifetime)"
    )]
    Lifetime(Duration),
    /// Not in 0..=7.
    #[error("priority {0} is not within 0 (sent first) to 7")]
    Priority(u8),
    /// Not in 1..=7.
    #[error("ADU id {0} is not within 1 to 7")]
    AduId(u8),
    /// More than the sender's limit for one ADU (`bestby::quic`).
    #[error(
        "ADU of {bytes} bytes; the limit is {limit}: send it in parts, or raise Options::adu_limit"
    )]
    AduTooLarge {
        /// Of the ADU.
        bytes: usize,
        /// The sender's limit.
        limit: usize,
    },
    /// The magic would hide the fields of the mark, or can never match.
    #[error(
        "mark magic {value:#010x} with mask {mask:#010x}: the mask needs at least one of the bits 28 to 31 and none below, the value no bit outside of the mask"
    )]
    Magic {
        /// The bits every mark carries.
        value: u32,
        /// The bits that are compared.
        mask: u32,
    },
}

/// Why a packet was not sent or an option not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The metadata cannot be expressed; nothing was sent.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// `SO_MARK` was refused.
    #[error(
        "setting SO_MARK on this socket: not permitted; give the process CAP_NET_RAW or CAP_NET_ADMIN (CAP_NET_ADMIN before Linux 5.17), or use the SO_TXTIME form or the socket options, which need neither"
    )]
    MarkNotPermitted(#[source] io::Error),
    /// `SO_TXTIME` was refused.
    #[error(
        "setting SO_TXTIME on this socket: {0}; it needs Linux 4.19 or newer and an IPv4 or IPv6 UDP socket; use the mark form or the socket options"
    )]
    TxTimeUnavailable(#[source] io::Error),
    /// No program of bestby serves this socket. Applications usually go on without.
    #[error(
        "bestby is not active on this host (or not for this process's cgroup): level SOL_BESTBY is unknown; packets are sent as usual, without deadlines. Start bestbyd to change that"
    )]
    NotActive,
    /// A socket option of bestby was refused.
    #[error("setting {option} through bestby: {source}")]
    Option {
        /// Its name in `bestby.h`.
        option: &'static str,
        /// `EINVAL`: out of range; `EPERM`: the operator's setting comes first.
        source: io::Error,
    },
    /// The kernel cannot cut this packet into segments; nothing was sent.
    #[error(
        "sending with UDP_SEGMENT {segment_size} a payload of {payload} bytes: {source}; the segment must fit the path's MTU, the payload holds at most 64 segments and 65,507 bytes, and the device needs checksum offload: send the segments one by one (Packet::segments)"
    )]
    Segmentation {
        /// Bytes per segment.
        segment_size: u16,
        /// Bytes in the whole super-packet.
        payload: usize,
        /// `EINVAL`, `EMSGSIZE`, `EIO` or `ENOPROTOOPT`.
        source: io::Error,
    },
    /// A queue of this host refused the packet (`ENOBUFS`; only sockets with `IP_RECVERR`
    /// are told). Do not send it again: the queue judged that it would be late, or it is full.
    #[error("sending: a queue of this host dropped the packet ({0})")]
    DroppedLocally(#[source] io::Error),
    /// Everything else, as the socket reports it; `WouldBlock` included.
    #[error("{operation}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The socket's error.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { operation, source }
    }

    /// The kind of the underlying socket error, `InvalidInput` for values.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Value(_) => io::ErrorKind::InvalidInput,
            Self::NotActive => io::ErrorKind::Unsupported,
            Self::MarkNotPermitted(source)
            | Self::TxTimeUnavailable(source)
            | Self::DroppedLocally(source)
            | Self::Option { source, .. }
            | Self::Segmentation { source, .. }
            | Self::Io { source, .. } => source.kind(),
        }
    }

    /// True if a non-blocking socket has no room now; try again when it is writable.
    pub fn is_would_block(&self) -> bool {
        self.kind() == io::ErrorKind::WouldBlock
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
