//! bestby's socket options: defaults for all packets of a socket, without privilege.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU64,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use crate::{
    abi,
    error::{Error, Result},
    metadata::{Priority, Treatment},
    sys,
    time::{self, Lifetime},
};

/// The options of one socket (UDP or TCP, std or tokio). What a packet's own
/// metadata says comes first, then these, then the operator's rules.
///
/// ```
/// use std::net::UdpSocket;
/// use bestby::{Error, Lifetime, Priority, SocketOptions};
///
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let options = SocketOptions::of(&socket);
/// match options.set_lifetime(Some(Lifetime::from_millis(200)?)) {
///     Ok(()) => options.set_priority(Priority::new(2)?)?,
///     // No bestby here: go on without deadlines.
///     Err(Error::NotActive) => {}
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions<'fd> {
    fd: BorrowedFd<'fd>,
}

impl<'fd> SocketOptions<'fd> {
    /// The options of `socket`.
    pub fn of<S: AsFd>(socket: &'fd S) -> Self {
        Self { fd: socket.as_fd() }
    }

    /// True if bestby serves this socket: its programs are loaded, and this process is in
    /// their cgroup. It does not say whether the interface on the way is attached, nor whether
    /// the packets come there with their socket: a routed container's do not, and then
    /// [`SocketStats::packets_in`] stays 0.
    pub fn is_active(&self) -> bool {
        self.stats().is_ok()
    }

    /// Lifetime of packets without a deadline of their own, counted from when the classifier
    /// sees them; `None` takes it back.
    ///
    /// # Errors
    ///
    /// [`Error::NotActive`], or [`Error::Option`] if bestby refuses the value.
    pub fn set_lifetime(&self, lifetime: Option<Lifetime>) -> Result<()> {
        let ns = lifetime.map_or(0, Lifetime::as_nanos);
        self.set("BB_SO_LIFETIME", abi::SO_LIFETIME, &ns.to_ne_bytes())
    }

    /// Priority of packets without one of their own: all eight values, no capability needed
    /// (`SO_PRIORITY` has six levels without).
    ///
    /// # Errors
    ///
    /// As [`SocketOptions::set_lifetime`].
    pub fn set_priority(&self, priority: Priority) -> Result<()> {
        let value = u32::from(priority.get());
        self.set("BB_SO_PRIORITY", abi::SO_PRIORITY, &value.to_ne_bytes())
    }

    /// What happens to stale packets of this socket that do not say so themselves.
    ///
    /// # Errors
    ///
    /// As [`SocketOptions::set_lifetime`].
    pub fn set_treatment(&self, treatment: Treatment) -> Result<()> {
        let value = match treatment {
            Treatment::Forward => abi::TREAT_FORWARD,
            Treatment::Discard => abi::TREAT_DISCARD,
            Treatment::Truncate => abi::TREAT_TRUNCATE,
        };
        self.set("BB_SO_TREATMENT", abi::SO_TREATMENT, &value.to_ne_bytes())
    }

    /// What the application knows of the way to `destination`; for all sockets of this user
    /// (uid), not only for this one. [`Peer::default`] takes it back. What the operator set
    /// (`bestby session set`) comes first.
    ///
    /// # Errors
    ///
    /// As [`SocketOptions::set_lifetime`]: `EPERM` where the operator has set this
    /// destination, `EINVAL` for an owd above 131 s.
    pub fn set_peer(&self, destination: IpAddr, peer: &Peer) -> Result<()> {
        let mut value = [0; 32];
        value[..16].copy_from_slice(&match destination {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        });
        let owd_ns = peer.owd.map_or(0, time::ns);
        value[16..24].copy_from_slice(&owd_ns.to_ne_bytes());
        let rate = peer.rate.map_or(0, NonZeroU64::get);
        value[24..].copy_from_slice(&rate.to_ne_bytes());
        self.set("BB_SO_PEER", abi::SO_PEER, &value)
    }

    /// What happened to this socket's packets; all 0 until an option is set: only sockets with one
    /// are counted.
    ///
    /// # Errors
    ///
    /// [`Error::NotActive`].
    pub fn stats(&self) -> Result<SocketStats> {
        let mut value = [0; SocketStats::BYTES];
        let option = "BB_SO_STATS";
        let len = sys::get_option(self.fd, abi::SOL_BESTBY, abi::SO_STATS, &mut value)
            .map_err(refused(option))?;
        // An earlier bestby has fewer counters, a later one writes those that this crate knows.
        if len < size_of::<u64>() {
            let message = format!("{len} bytes of counters");
            return Err(Error::Option {
                option,
                source: io::Error::new(io::ErrorKind::InvalidData, message),
            });
        }
        Ok(SocketStats::from_bytes(&value))
    }

    fn set(&self, name: &'static str, option: i32, value: &[u8]) -> Result<()> {
        sys::set_option(self.fd, abi::SOL_BESTBY, option, value).map_err(refused(name))
    }
}

fn refused(option: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| match source.raw_os_error() {
        // The kernel's answer to a level nobody knows; unix sockets answer EOPNOTSUPP.
        Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP) => Error::NotActive,
        _ => Error::Option { option, source },
    }
}

/// What is known of the way to one destination.
///
/// ```
/// use std::{num::NonZeroU64, time::Duration};
///
/// let peer = bestby::Peer {
///     owd: Some(Duration::from_millis(40)),
///     rate: NonZeroU64::new(1_000_000 / 8), // 1 Mbit/s
/// };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// One-way delay from this host; `None` (and 0): half of the measured RTT.
    pub owd: Option<Duration>,
    /// Rate of the bottleneck in **bytes** per second; `None`: not known.
    pub rate: Option<NonZeroU64>,
}

/// Counters of one socket. `packets_in` = `packets_sent` + all `dropped` + `queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketStats {
    /// Packets that reached the classifier.
    pub packets_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    /// Packets that left the host.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Packets in the queue now.
    pub queued: u64,
    /// Dropped packets, by reason.
    pub dropped: Drops,
    /// Packets sent although stale.
    pub sent_stale: u64,
    /// What would have been dropped, in observe mode.
    pub would_drop: Drops,
    /// Packets of which only the headers were sent; they count as sent, too.
    pub truncated: u64,
}

/// Packets by reason of their drop; each has exactly one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drops {
    /// Would have arrived after its deadline.
    pub stale: u64,
    /// Rest of an ADU that is lost already or was given up.
    pub adu: u64,
    /// Arrived at a full queue.
    pub overflow: u64,
    /// Made room for a more important packet.
    pub evicted: u64,
    /// Would have become stale before it could leave (mode tc).
    pub predicted: u64,
    /// Had no deadline, was not media, and waited too long behind others of its session (mode qdisc).
    pub codel: u64,
    /// Of frames that need another one that was given up.
    pub chain: u64,
}

impl Drops {
    /// All reasons together.
    pub const fn total(&self) -> u64 {
        self.stale
            + self.adu
            + self.overflow
            + self.evicted
            + self.predicted
            + self.codel
            + self.chain
    }
}

impl SocketStats {
    const WORDS: usize = 21;
    const BYTES: usize = 8 * Self::WORDS;

    /// `struct bb_counters`.
    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut words = [0; Self::WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        let drops = |at: usize, chain: usize| Drops {
            stale: words[at],
            adu: words[at + 1],
            overflow: words[at + 2],
            evicted: words[at + 3],
            predicted: words[at + 4],
            codel: words[at + 5],
            chain: words[chain],
        };
        Self {
            packets_in: words[0],
            bytes_in: words[1],
            packets_sent: words[2],
            bytes_sent: words[3],
            queued: words[4],
            dropped: drops(5, 19),
            sent_stale: words[11],
            would_drop: drops(12, 20),
            truncated: words[18],
        }
    }
}

/// True if bestby serves this process's sockets (see [`SocketOptions::is_active`]); asked
/// on a socket of its own. An application need not ask: without bestby everything is sent as usual.
pub fn is_active() -> bool {
    std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .is_ok_and(|socket| SocketOptions::of(&socket).is_active())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_stats_are_read_in_the_order_of_the_header() {
        let mut bytes = [0; SocketStats::BYTES];
        for (n, word) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
            *word = (n as u64 + 1).to_ne_bytes();
        }
        let stats = SocketStats::from_bytes(&bytes);
        assert_eq!(
            (stats.packets_in, stats.bytes_in, stats.packets_sent),
            (1, 2, 3)
        );
        assert_eq!(
            (stats.bytes_sent, stats.queued, stats.sent_stale),
            (4, 5, 12)
        );
        let dropped = stats.dropped;
        assert_eq!((dropped.stale, dropped.codel, dropped.chain), (6, 11, 20));
        assert_eq!(
            (
                stats.would_drop.stale,
                stats.would_drop.codel,
                stats.truncated
            ),
            (13, 18, 19)
        );
        assert_eq!(stats.dropped.total(), 6 + 7 + 8 + 9 + 10 + 11 + 20);
    }
}
