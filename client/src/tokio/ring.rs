//! Late data choice for async programs: a handle, and a future that drives the ring.

use std::{
    fmt,
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use ::tokio::{
    io::{Interest, unix::AsyncFd},
    net::{TcpStream, tcp::OwnedWriteHalf},
};

use crate::{
    error::{Error, Result},
    handle,
    metadata::Metadata,
    tcp::{
        self, Content, Next, Options, Outcome, PathInfo, RingStats, State, Ticket, TooLate, Wire,
    },
};

/// While acknowledgements wake, readiness to write is looked at so often only.
const LOOK: Duration = Duration::from_millis(50);

/// [`tcp::Ring`] for tokio: a handle that any task may push to. Clones are the same ring.
///
/// ```
/// use std::time::Duration;
/// use bestby::{Deadline, Metadata, tcp::{Options, State}, tokio::Ring};
/// use tokio::{io::AsyncReadExt, net::{TcpListener, TcpStream}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let (socket, _) = tokio::join!(TcpStream::connect(listener.local_addr()?), async {});
/// let mut viewer = listener.accept().await?.0;
///
/// let (_reading, writing) = socket?.into_split();
/// let (ring, driver) = Ring::new(writing, Options::new())?;
/// let driver = tokio::spawn(driver);
/// let frame = Metadata::new().deadline(Deadline::after(Duration::from_secs(2)));
/// let ticket = ring.push(b"frame".to_vec(), frame); // never waits
/// assert!(matches!(ring.outcome(ticket).await, State::Sent | State::Acknowledged));
/// # let mut got = [0; 5];
/// # viewer.read_exact(&mut got).await?;
/// # assert_eq!(&got, b"frame");
/// drop(ring); // the driver sends what waits, and ends
/// driver.await??;
/// # Ok(())
/// # }
/// ```
///
/// `S` is anything that a ring can write to: `TcpStream` or the writing half of tokio's, or of the standard
/// library, or TLS above one. All methods but the `async` ones return at once; those are cancel safe.
pub struct Ring<S: Wire, B: AsRef<[u8]>> {
    shared: Arc<Shared<S, B>>,
}

struct Inner<S, B> {
    ring: tcp::Ring<S, B>,
    holds: usize,
    /// The driver has ended.
    ended: bool,
}

type Shared<S, B> = handle::Shared<Inner<S, B>>;

impl<S: Wire, B: AsRef<[u8]>> Ring<S, B> {
    /// A ring in front of a connected socket, and the future that drives it: spawn it. The future ends with `Ok` once
    /// every handle is dropped and nothing waits; the socket is then closed. If it is dropped
    /// itself, everything that waits is given up.
    ///
    /// # Errors
    ///
    /// As [`tcp::Ring::with`]. The future ends with [`Error::Io`] when the connection does.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio with I/O and time, as all of tokio's sockets do.
    pub fn new(
        socket: S,
        options: Options,
    ) -> Result<(Self, impl Future<Output = Result<()>> + use<S, B>)> {
        let ring = tcp::Ring::with(socket, options)?;
        // Of its own, because the socket may be registered with the runtime already.
        let fd = ring.wire().fd().try_clone_to_owned();
        let fd = fd.map_err(Error::io("one more descriptor of the socket"))?;
        // An acknowledgement on the error queue looks to mio like the end of the writing direction, and
        // that readiness is never cleared. So it is either errors or readiness to write.
        let interest = match ring.form().events {
            true => Interest::ERROR,
            false => Interest::WRITABLE,
        };
        // SAFETY: an OwnedFd is open as long as it lives, and always the same descriptor.
        let fd = unsafe { AsyncFd::register_with_interest(fd, interest) };
        let registering = Error::io("registering the socket with tokio");
        let fd = fd.map_err(|error| registering(error.into()))?;
        let shared = Arc::new(Shared::new(Inner {
            ring,
            holds: 0,
            ended: false,
        }));
        let driver = Driver {
            shared: Arc::clone(&shared),
        };
        Ok((Self { shared }, driver.run(fd, interest)))
    }

    /// As [`tcp::Ring::push`]; the driver sends it.
    pub fn push(&self, data: B, metadata: Metadata) -> Ticket {
        self.with(|ring| ring.push(data, metadata))
    }

    /// As [`tcp::Ring::push_parts`].
    pub fn push_parts(&self, parts: Vec<B>, end: Option<B>, metadata: Metadata) -> Ticket {
        self.with(|ring| ring.push_parts(parts, end, metadata))
    }

    /// As [`tcp::Ring::replace`].
    ///
    /// # Errors
    ///
    /// [`TooLate`].
    pub fn replace(&self, ticket: Ticket, data: B) -> Result<Content<B>, TooLate> {
        self.with(|ring| ring.replace(ticket, data))
    }

    /// As [`tcp::Ring::cancel`].
    ///
    /// # Errors
    ///
    /// [`TooLate`].
    pub fn cancel(&self, ticket: Ticket) -> Result<Content<B>, TooLate> {
        self.with(|ring| ring.cancel(ticket))
    }

    /// As [`tcp::Ring::amend`].
    ///
    /// # Errors
    ///
    /// [`TooLate`].
    pub fn amend(&self, ticket: Ticket, metadata: Metadata) -> Result<(), TooLate> {
        self.with(|ring| ring.amend(ticket, metadata))
    }

    /// Nothing begins, and nothing is given up because of the time, while the guard lives
    /// ([`tcp::Ring::hold`]).
    pub fn hold(&self) -> Hold<S, B> {
        self.shared.with(|inner| {
            inner.holds += 1;
            inner.ring.set_held(true);
        });
        Hold { ring: self.clone() }
    }

    /// Where an ADU is.
    pub fn state(&self, ticket: Ticket) -> State {
        self.shared.lock().ring.state(ticket)
    }

    /// Waits until the ADU is sent or given up; returns its state then.
    pub async fn outcome(&self, ticket: Ticket) -> State {
        let ended = |inner: &mut Inner<S, B>| {
            let state = inner.ring.state(ticket);
            let open = matches!(state, State::Waiting | State::Begun { .. });
            (!open).then_some(state)
        };
        self.shared.wait(ended).await
    }

    /// Waits until there are outcomes that were not taken; returns all of them. Nothing after the driver has
    /// ended and all were taken.
    pub async fn outcomes(&self) -> Vec<Outcome> {
        let some = |inner: &mut Inner<S, B>| {
            let outcomes: Vec<Outcome> = inner.ring.outcomes().collect();
            (inner.ended || !outcomes.is_empty()).then_some(outcomes)
        };
        self.shared.wait(some).await
    }

    /// Counters.
    pub fn stats(&self) -> RingStats {
        self.shared.lock().ring.stats()
    }

    /// The path ([`tcp::Ring::path`]).
    pub fn path(&self) -> Option<PathInfo> {
        self.shared.lock().ring.path()
    }

    /// Does something with the ring, such as to read from TLS, and lets the driver look again. Keep it
    /// short: the driver waits meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut tcp::Ring<S, B>) -> T) -> T {
        self.shared.with(|inner| work(&mut inner.ring))
    }
}

impl<S: Wire, B: AsRef<[u8]>> Clone for Ring<S, B> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<S: Wire, B: AsRef<[u8]>> Drop for Ring<S, B> {
    fn drop(&mut self) {
        self.shared.changed.notify_one();
    }
}

impl<S: Wire, B: AsRef<[u8]>> fmt::Debug for Ring<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// See [`Ring::hold`].
#[derive(Debug)]
#[must_use = "the hold ends when this is dropped"]
pub struct Hold<S: Wire, B: AsRef<[u8]>> {
    ring: Ring<S, B>,
}

impl<S: Wire, B: AsRef<[u8]>> Drop for Hold<S, B> {
    fn drop(&mut self) {
        self.ring.shared.with(|inner| {
            inner.holds -= 1;
            if inner.holds == 0 {
                inner.ring.set_held(false);
            }
        });
    }
}

/// What the future owns. When it goes, nobody drives the ring any more.
struct Driver<S: Wire, B: AsRef<[u8]>> {
    shared: Arc<Shared<S, B>>,
}

impl<S: Wire, B: AsRef<[u8]>> Driver<S, B> {
    async fn run(self, fd: AsyncFd<OwnedFd>, interest: Interest) -> Result<()> {
        loop {
            // Before the look: what is pushed after it leaves a permit.
            let changed = self.shared.changed.notified();
            let next = self.shared.lock().ring.drive();
            self.shared.driven.notify_waiters();
            let next = next?;
            if next.idle && Arc::strong_count(&self.shared) == 1 {
                return Ok(());
            }
            wait(changed, &fd, interest, &next).await?;
        }
    }
}

impl<S: Wire, B: AsRef<[u8]>> Drop for Driver<S, B> {
    fn drop(&mut self) {
        {
            let mut inner = self.shared.lock();
            inner.ring.abandon();
            inner.ended = true;
        }
        self.shared.driven.notify_waiters();
    }
}

/// Until something is pushed, the socket has something to tell, or the time has come.
async fn wait(
    changed: impl Future<Output = ()>,
    fd: &AsyncFd<OwnedFd>,
    interest: Interest,
    next: &Next,
) -> Result<()> {
    let asks_to_write = next.events & libc::POLLOUT != 0;
    let socket_tells = interest.is_error() || asks_to_write;
    let mut at = next.at;
    if interest.is_error() && asks_to_write {
        let look = Instant::now() + LOOK;
        at = Some(at.map_or(look, |at| at.min(look)));
    }
    let mut changed = pin!(changed);
    let mut ready = pin!(async {
        let mut guard = fd.ready(interest).await?;
        guard.clear_ready();
        io::Result::Ok(())
    });
    let mut sleep = pin!(handle::sleep(at));
    let first = poll_fn(|context| {
        let is_ready = |future: Pin<&mut dyn Future<Output = ()>>, context: &mut _| {
            future.poll(context).is_ready()
        };
        if is_ready(changed.as_mut(), context) || is_ready(sleep.as_mut(), context) {
            return Poll::Ready(Ok(()));
        }
        match socket_tells {
            true => ready.as_mut().poll(context),
            false => Poll::Pending,
        }
    });
    first.await.map_err(Error::io("waiting for the socket"))
}

macro_rules! wire_of_a_socket {
    ($socket:ty, $as_fd:expr) => {
        impl Wire for $socket {
            fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
                let as_fd: fn(&$socket) -> std::os::fd::BorrowedFd<'_> = $as_fd;
                as_fd(self)
            }

            fn write(&mut self, parts: &[io::IoSlice<'_>], last: bool) -> io::Result<usize> {
                tcp::sys::send(self.fd(), parts, last)
            }
        }
    };
}

wire_of_a_socket!(TcpStream, |socket| std::os::fd::AsFd::as_fd(socket));
wire_of_a_socket!(Arc<TcpStream>, |socket| std::os::fd::AsFd::as_fd(&**socket));
wire_of_a_socket!(OwnedWriteHalf, |half| std::os::fd::AsFd::as_fd(
    half.as_ref()
));
