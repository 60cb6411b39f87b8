//! The network namespace that the programs are for.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, socket};
// The macro names its helpers without their crate.
use nix::{getsockopt_impl, sockopt_impl};

sockopt_impl!(
    /// `SO_NETNS_COOKIE` (Linux 5.14): a number that no other network namespace has, or will have.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

/// The cookie of the calling thread's network namespace: what `bbq_netns` of the qdisc and `bb_netns` of
/// [`RTT`](crate::RTT) must be before they are loaded.
///
/// # Errors
/// The kernel has no sockets, or no such option (before 5.14).
pub fn netns_cookie() -> Result<u64, Errno> {
    let any = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    getsockopt(&any, NetnsCookie)
}
