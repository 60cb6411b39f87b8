//! Late data choice in front of a TCP socket: [`Ring`].
//!
//! The problem: what a program has written to a TCP socket is sent, however late. The socket's buffer
//! holds seconds of it on a narrow link, and `TCP_NOTSENT_LOWAT` leaves up to 64 kB unsent whatever
//! its value (one super-packet of the kernel). So ADUs stay in the ring as long as TCP could not send
//! them anyway, and there they can still be given up, replaced or overtaken:
//!
//! 1. [`Ring::push`] takes an ADU with its [`Metadata`](crate::Metadata) and never blocks.
//! 2. [`Ring::drive`] asks the kernel for the congestion window, the rate and what is in flight
//!    (`TCP_INFO`), and hands over what can leave at once, and no more.
//! 3. The kernel tells of acknowledgements on the socket's error queue; that is when to drive again.
//! 4. [`Ring::outcomes`] tells of each ADU exactly once: sent, or given up and why.
//!
//! This is "Evaluating and Improving the Performance of TCP with Late Data Choice" (`tcp-ldc.txt`) without
//! its kernel patch. Its words, and what they are here:
//!
//! | paper (section 5) | here |
//! |---|---|
//! | packet ring shared with the kernel | reference-counted buffers, `B: AsRef<[u8]>` |
//! | `user_i`, the next ring buffer to fill | [`Ring::push`] |
//! | `kern_i`, the next to be sent | the byte that [`Ring::drive`] hands over next |
//! | `umod_i`, from where on buffers may be changed | [`Ring::hold`], [`Ring::replace`], [`Ring::amend`] |
//! | flag "deleted" of a buffer | [`Ring::cancel`] |
//! | `ioctl` that wakes the kernel | [`Ring::drive`] |
//!
//! The receiver is unmodified: an ADU that has begun is sent to its end, so that the application's
//! framing stays whole. [`Ring::push_parts`] says where it may end before.

mod core;
mod history;
mod info;
mod ring;
#[cfg(feature = "rustls")]
mod rustls;
pub(crate) mod sys;
#[cfg(test)]
mod tests;
mod types;
mod wire;

#[cfg(feature = "rustls")]
pub use self::rustls::Tls;
pub use self::{
    ring::{Hold, Ring},
    types::{Closed, Content, ForRing, Form, Next, Options, Rest, RingStats, Stop},
    wire::Wire,
};
pub use crate::{
    adu::{Fate, GivenUp, Outcome, PathInfo, State, Ticket, TooLate},
    backlog::{Method, Reason},
};
