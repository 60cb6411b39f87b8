//! The ring: [`Ring`].

use std::{
    io::{self, IoSlice},
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

use super::{
    core::{Core, PIECES},
    info::{self, Info},
    sys,
    types::{Closed, Content, Form, Next, Options, RingStats},
    wire::Wire,
};
use crate::{
    adu::{Outcome, PathInfo, State, Ticket, TooLate},
    error::{Error, Result},
    metadata::Metadata,
    path::{Path, Report, View},
    sys::{get_option, monotonic_ns, set_option},
};

const MS: u64 = 1_000_000;
/// Unsent bytes are counted in steps of so many.
const STEP: u64 = 512;
const STEPS: usize = 128;
/// Messages taken from the error queue by one drive.
const ERRORS: usize = 4096;
/// Below so many segments of congestion window each write is one segment.
const SMALL_WINDOW: u64 = 20;

/// A packet ring in front of a TCP socket: what is not yet on the wire can still be given up, replaced or
/// overtaken (`tcp-ldc.txt`, section 5; [the module](crate::tcp) has the paper's words).
///
/// `S` is the socket ([`Wire`]), `B` the buffers: `Vec<u8>`, or `Arc<[u8]>` where many viewers get the
/// same bytes without a copy.
///
/// ```
/// use std::{io::Read, net::{TcpListener, TcpStream}, time::{Duration, Instant}};
/// use bestby::{Deadline, Metadata, Priority, tcp::{Fate, Ring}};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut ring = Ring::new(TcpStream::connect(listener.local_addr()?)?)?;
/// let mut viewer = listener.accept()?.0;
///
/// let frame = Metadata::new()
///     .deadline(Deadline::after(Duration::from_millis(200)))
///     .priority(Priority::new(4)?);
/// let ticket = ring.push(b"frame".to_vec(), frame); // never blocks
/// ring.run_until(Instant::now() + Duration::from_millis(20))?; // until the next frame
/// for outcome in ring.outcomes() {
///     assert_eq!((outcome.ticket, outcome.fate), (ticket, Fate::Sent { late: false }));
/// }
/// # let mut got = [0; 5];
/// # viewer.read_exact(&mut got)?;
/// # assert_eq!(&got, b"frame");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Programs with an event loop call [`Ring::drive`] after each push and whenever its [`Next`] says.
///
/// The ring sets `TCP_NODELAY`, `TCP_NOTSENT_LOWAT` and `SO_TIMESTAMPING` of the socket, and reads
/// its error queue. Nobody else may write to the socket. Reading from it is the application's, through
/// [`Ring::wire`] or a clone. Times are on `CLOCK_MONOTONIC` only.
#[derive(Debug)]
pub struct Ring<S, B = Vec<u8>> {
    wire: S,
    core: Core<B>,
    path: Path,
    options: Options,
    form: Form,
    /// `tcpi_bytes_acked` where the ring's first byte begins.
    base: u64,
    /// Bytes handed to the kernel, unless the wire counts them.
    written: u64,
    /// The last report, brought up to date by what was written since.
    report: Report,
    /// More was waiting than there was room for.
    pressed: bool,
    /// The socket took less than it was offered: it is not writable.
    full: bool,
    /// Looks without progress, for the timer where acknowledgements do not wake.
    quiet: u32,
    acked: u64,
    unsent_seen: [u32; STEPS + 1],
    failed: bool,
}

impl<S: Wire, B: AsRef<[u8]>> Ring<S, B> {
    /// A ring in front of a connected socket, with [`Options::default`].
    ///
    /// # Errors
    ///
    /// As [`Ring::with`].
    pub fn new(socket: S) -> Result<Self> {
        Self::with(socket, Options::default())
    }

    /// A ring with options. What the socket or the kernel cannot do is left out: see [`Ring::form`].
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with `NotConnected` if the connection has ended already.
    pub fn with(socket: S, options: Options) -> Result<Self> {
        let fd = socket.fd();
        let one = 1u32.to_ne_bytes();
        // Sockets of other kinds, and old kernels, go without.
        let _ = set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &one);
        let _ = set_option(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &one);
        let info = read_info(&socket, options.own.info_bytes);
        if info.is_closed() {
            return Err(Error::io("making a ring")(
                io::ErrorKind::NotConnected.into(),
            ));
        }
        let mut form = info.form();
        form.unsent |= sys::unsent(fd).is_ok();
        form.events = options.own.acknowledgements
            && info.state.is_some()
            && sys::report_acknowledgements(fd).is_ok();
        let written = socket.handed().unwrap_or(0);
        let base = match (info.bytes_acked, sys::unacknowledged(fd)) {
            // What others have written before is in front of the ring's first byte.
            (Some(acked), Ok(waiting)) => acked + waiting,
            _ => {
                form.acknowledged = false;
                0
            }
        };
        let mut ring = Self {
            wire: socket,
            core: Core::new(options),
            path: Path::new(options.queue.filter(|_| form.rate)),
            options,
            form,
            base: base.wrapping_sub(written),
            written,
            report: Report::default(),
            pressed: false,
            full: false,
            quiet: 0,
            acked: 0,
            unsent_seen: [0; STEPS + 1],
            failed: false,
        };
        ring.look(monotonic_ns())
            .map_err(Error::io("making a ring"))?;
        Ok(ring)
    }

    /// Takes an ADU: a whole message of the application's protocol, framing included. Never blocks, and sends
    /// nothing: call [`Ring::drive`]. What is pushed out for it is in the [`Ring::outcomes`], and so is the
    /// ADU itself if it is larger than the limit, if nothing that waits is less important, or if its
    /// deadline has passed.
    ///
    /// The metadata is that of datagrams: deadline or lifetime (from now), priority, and of the treatments
    /// [`Treatment::Forward`](crate::Treatment::Forward), which keeps the ADU whatever its deadline. The ADU
    /// id is not used.
    pub fn push(&mut self, data: B, metadata: Metadata) -> Ticket {
        self.push_parts(vec![data], None, metadata)
    }

    /// Takes an ADU in parts, each a whole unit of the application's framing (RTSP packets, RTMP chunks).
    /// Between two of them the ADU may be given up ([`Options::stop`]), and then `end` is sent, or others
    /// may overtake it ([`Options::interleave`]).
    pub fn push_parts(&mut self, parts: Vec<B>, end: Option<B>, metadata: Metadata) -> Ticket {
        let content = Content { parts, end };
        let ticket = self.core.push(content, &metadata, monotonic_ns());
        if self.failed {
            self.core.refuse();
        }
        ticket
    }

    /// Other bytes for an ADU of which nothing is sent; gives the old ones back. Its deadline and its
    /// place in the order stay. A larger one may be evicted, as by [`Ring::push`].
    ///
    /// # Errors
    ///
    /// [`TooLate`] once the first byte is sent, or the ADU is given up.
    pub fn replace(&mut self, ticket: Ticket, data: B) -> Result<Content<B>, TooLate> {
        let parts = vec![data];
        self.core.replace(ticket, Content { parts, end: None })
    }

    /// Gives up an ADU of which nothing is sent; gives its bytes back.
    ///
    /// # Errors
    ///
    /// As [`Ring::replace`].
    pub fn cancel(&mut self, ticket: Ticket) -> Result<Content<B>, TooLate> {
        self.core.cancel(ticket)
    }

    /// Another deadline, priority or treatment for an ADU of which nothing is sent. What `metadata` does not say
    /// stays; a lifetime counts from now.
    ///
    /// # Errors
    ///
    /// As [`Ring::replace`].
    pub fn amend(&mut self, ticket: Ticket, metadata: Metadata) -> Result<(), TooLate> {
        self.core.amend(ticket, &metadata, monotonic_ns())
    }

    /// Nothing begins, and nothing is given up because of the time, while the guard lives: the paper's `umod_i`
    /// (section 5.1). What has begun goes on. The guard is the ring meanwhile.
    pub fn hold(&mut self) -> Hold<'_, S, B> {
        self.core.held = true;
        Hold { ring: self }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn set_held(&mut self, held: bool) {
        self.core.held = held;
    }

    /// Nobody will drive it any more.
    #[cfg(feature = "tokio")]
    pub(crate) fn abandon(&mut self) {
        self.failed = true;
        self.core.close();
    }

    /// Where an ADU is.
    pub fn state(&self, ticket: Ticket) -> State {
        self.core.state(ticket)
    }

    /// Outcomes since the last call: each ADU exactly once. The ring keeps 4 times as many as its limit of
    /// ADUs, and counts what it has to forget.
    pub fn outcomes(&mut self) -> impl Iterator<Item = Outcome> + '_ {
        self.core.history.outcomes()
    }

    /// Gives up what is stale, writes what may leave now, and says when to call again. Never blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the connection has ended: everything that waits is then given up as
    /// [`Reason::Closed`](crate::tcp::Reason::Closed). Every later call says so again.
    pub fn drive(&mut self) -> Result<Next> {
        if self.failed {
            return Err(Error::io("sending")(io::ErrorKind::NotConnected.into()));
        }
        self.core.history.stats.drives += 1;
        match self.try_drive() {
            Ok(next) => Ok(next),
            Err(error) => {
                self.failed = true;
                self.core.close();
                Err(Error::io("sending")(error))
            }
        }
    }

    fn try_drive(&mut self) -> io::Result<Next> {
        if self.form.events {
            let told = sys::drain_errors(self.wire.fd(), ERRORS);
            self.core.history.stats.acknowledgements += told as u64;
        }
        flush(&mut self.wire)?;
        let now = monotonic_ns();
        self.look(now)?;
        let view = self.path.view(now);
        let before = self.core.history.stats.given_up;
        self.core.expire(now, &view);
        self.quiet = self.quiet.saturating_add(1);
        self.full = false;
        let blocked = self.write_all(now, &view)?;
        self.pressed = blocked;
        let waits = !blocked && !self.core.held && !self.core.is_idle();
        let given_up = self.core.history.stats.given_up;
        if given_up.stale > before.stale {
            self.path.refused(now);
        }
        if waits || given_up.predicted > before.predicted {
            self.path.starved(now);
        }
        Ok(self.next(now, &view, blocked))
    }

    /// Takes in what the kernel says.
    fn look(&mut self, now: u64) -> io::Result<()> {
        let info = read_info(&self.wire, self.options.own.info_bytes);
        if info.is_closed() {
            let error = sys::error(self.wire.fd());
            return Err(error.unwrap_or(io::ErrorKind::NotConnected.into()));
        }
        let unsent = match info.unsent {
            Some(unsent) => unsent,
            None if self.form.unsent => sys::unsent(self.wire.fd()).unwrap_or(0),
            None => 0,
        };
        let outstanding = info
            .bytes_acked
            .filter(|_| self.form.acknowledged)
            .map(|acked| {
                let position = acked.wrapping_sub(self.base);
                self.core.history.acknowledged(position);
                if position != self.acked {
                    self.quiet = 0;
                }
                self.acked = position;
                self.handed().saturating_sub(position)
            });
        // A connection made by a SYN cookie, or with a SYN that was lost, has no RTT yet, if the peer has no timestamps.
        if !self.form.rate && info.form().rate {
            self.form.rate = true;
            self.path.allow_queue(self.options.queue);
        }
        self.report = info.report(now, outstanding, unsent);
        self.path.update(&self.report, self.pressed);
        if self.form.unsent {
            let step = unsent.div_ceil(STEP).min(STEPS as u64) as usize;
            self.unsent_seen[step] = self.unsent_seen[step].saturating_add(1);
        }
        Ok(())
    }

    fn handed(&self) -> u64 {
        self.wire.handed().unwrap_or(self.written)
    }

    /// Writes while there is room; returns whether something waits for more of it.
    fn write_all(&mut self, now: u64, view: &View) -> io::Result<bool> {
        loop {
            let (limit, segment) = self.limit();
            if limit == 0 {
                return Ok(!self.core.is_idle());
            }
            let len = self.core.fill(now, view, limit, segment);
            if len == 0 {
                // Nothing may begin, or it waits for a whole segment of room.
                self.core.wrote(0, now, view);
                return Ok(limit < segment && !self.core.is_idle());
            }
            let written = {
                let mut slices = [IoSlice::new(&[]); PIECES];
                let count = self.core.slices(&mut slices);
                self.wire.write(&slices[..count], true)
            };
            let written = match written {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            self.core.wrote(written, now, view);
            if written > 0 {
                self.core.history.stats.writes += 1;
                self.quiet = 0;
                self.account(written);
            }
            if written < len {
                self.full = true;
                return Ok(!self.core.is_idle());
            }
            flush(&mut self.wire)?;
        }
    }

    /// What was written leaves at once, if the room was right.
    fn account(&mut self, written: usize) {
        let bytes = (written + self.wire.overhead(written)) as u64;
        self.written = self.written.wrapping_add(written as u64);
        let position = self.handed().saturating_add(self.wire.held() as u64);
        for id in std::mem::take(&mut self.core.finished) {
            self.core.history.ends_at(id, position);
        }
        let report = &mut self.report;
        let segments = bytes.div_ceil(report.mss.max(1));
        report.in_flight += bytes;
        report.segments_in_flight += segments * report.mss;
        report.window = report.window.map(|window| window.saturating_sub(bytes));
        if !self.form.window {
            report.unsent += bytes;
        }
    }

    /// Bytes that the next write may have, and those of a segment.
    fn limit(&self) -> (usize, usize) {
        let report = &self.report;
        let held = self.wire.held() as u64;
        if !self.form.window {
            // Without a congestion window: a segment at a time, while nothing is unsent.
            let full = self.form.unsent && report.unsent > 0 || held > 0;
            return (if full { 0 } else { 16 << 10 }, 1);
        }
        let mss = report.mss.max(1);
        let mut room = self.path.room(report, held);
        if room < mss && held == 0 && report.unsent == 0 && report.segments_in_flight == 0 {
            // Only the peer's window is in the way. TCP asks a peer whether it has room again only while it
            // has something to send: so it gets a segment, and a lost answer stops nothing.
            room = mss;
        }
        let segments = match report.cwnd / mss {
            window if window < SMALL_WINDOW => 1,
            window => window / 8,
        };
        let limit = room.min(segments.saturating_mul(mss));
        let limit = if limit >= mss {
            limit - limit % mss
        } else {
            limit
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let overhead = self.wire.overhead(limit);
        (
            limit.saturating_sub(overhead),
            (mss as usize).saturating_sub(overhead).max(1),
        )
    }

    fn next(&self, now: u64, view: &View, blocked: bool) -> Next {
        let held = self.wire.held() > 0;
        let idle = self.core.is_idle() && !held;
        // With nothing unsent the socket is writable, however full the congestion window is: that would spin.
        let writable_wakes = held || blocked && (self.full || self.report.unsent > 0);
        let mut at = self.core.next_expiry(view);
        if blocked || held {
            let wake = now.saturating_add(self.timer(writable_wakes));
            at = Some(at.map_or(wake, |at| at.min(wake)));
        }
        let events = if writable_wakes { libc::POLLOUT } else { 0 };
        Next {
            events,
            at: at.map(|at| Instant::now() + Duration::from_nanos(at.saturating_sub(now))),
            idle,
        }
    }

    /// When to look again although nothing woke, ns.
    fn timer(&self, writable_wakes: bool) -> u64 {
        if writable_wakes {
            return 250 * MS;
        }
        let srtt = self.path.srtt();
        if self.form.events {
            // A write of several segments is told of with its last one.
            return (srtt / 4).clamp(5 * MS, 50 * MS);
        }
        // About one segment's time, then twice as long each time nothing has changed.
        let segment = crate::backlog::transmission(self.report.mss as usize, self.path.rate());
        let least = if segment > 0 { segment } else { srtt / 8 };
        (least.clamp(MS, 5 * MS) << self.quiet.saturating_sub(4).min(6)).min(50 * MS)
    }

    /// Drives the ring until then, whether or not something waits: for programs with a thread per connection,
    /// which call it between two pushes.
    ///
    /// # Errors
    ///
    /// As [`Ring::drive`].
    pub fn run_until(&mut self, until: Instant) -> Result<()> {
        while !self.run(until)? {}
        Ok(())
    }

    /// Drives the ring until nothing waits any more, at most until then. Returns whether that is so: everything
    /// is sent or given up.
    ///
    /// # Errors
    ///
    /// As [`Ring::drive`].
    pub fn finish(&mut self, until: Instant) -> Result<bool> {
        while !self.drive()?.idle {
            if self.run(until)? {
                return Ok(self.drive()?.idle);
            }
        }
        Ok(true)
    }

    /// Drives once and waits; returns whether the time is over.
    fn run(&mut self, until: Instant) -> Result<bool> {
        let next = self.drive()?;
        let wake = next.at.map_or(until, |at| at.min(until));
        let span = crate::time::ns(wake.saturating_duration_since(Instant::now()));
        let waited = sys::wait(self.wire.fd(), next.events, span);
        let came = waited.map_err(Error::io("waiting for the socket"))?;
        if came & libc::POLLHUP != 0 {
            // Neither direction is open: no event will ever end, so this is the last one.
            self.failed = true;
            self.core.close();
            let error = sys::error(self.wire.fd());
            let error = error.unwrap_or(io::ErrorKind::BrokenPipe.into());
            return Err(Error::io("sending")(error));
        }
        Ok(Instant::now() >= until)
    }

    /// What this ring can know and do on this socket and kernel.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The socket, e.g. to read from it.
    pub fn wire(&self) -> &S {
        &self.wire
    }

    /// The socket. Whoever writes to it tears the ADUs.
    pub fn wire_mut(&mut self) -> &mut S {
        &mut self.wire
    }

    /// Counters.
    pub fn stats(&self) -> RingStats {
        let looks: u64 = self.unsent_seen.iter().map(|&seen| u64::from(seen)).sum();
        let share = |percent: u64| {
            let mut left = (looks * percent).div_ceil(100);
            let at = self.unsent_seen.iter().position(|&seen| {
                let found = u64::from(seen) >= left;
                left = left.saturating_sub(seen.into());
                found
            });
            at.unwrap_or(0) as u64 * STEP
        };
        RingStats {
            unsent_p50: share(50),
            unsent_p99: share(99),
            ..self.core.stats()
        }
    }

    /// The path as it was at the last [`Ring::drive`]; `None` where [`Form::rate`] is false.
    pub fn path(&self) -> Option<PathInfo> {
        let info = || PathInfo::new(&self.path, &self.report);
        self.form.rate.then(info)
    }

    /// Ends the ring, and gives back the socket and what has begun: the receiver's framing waits for its rest.
    /// Everything else that waits is given up. Call [`Ring::finish`] first to send it.
    pub fn close(mut self) -> Closed<S, B> {
        let rest = self.core.close();
        let outcomes = self.core.history.outcomes().collect();
        let stats = self.stats();
        Closed {
            rest,
            outcomes,
            stats,
            wire: self.wire,
        }
    }
}

/// A ring in which nothing begins; see [`Ring::hold`].
#[derive(Debug)]
#[must_use = "the hold ends when this is dropped"]
pub struct Hold<'a, S: Wire, B: AsRef<[u8]>> {
    ring: &'a mut Ring<S, B>,
}

impl<S: Wire, B: AsRef<[u8]>> Deref for Hold<'_, S, B> {
    type Target = Ring<S, B>;

    fn deref(&self) -> &Self::Target {
        self.ring
    }
}

impl<S: Wire, B: AsRef<[u8]>> DerefMut for Hold<'_, S, B> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.ring
    }
}

impl<S: Wire, B: AsRef<[u8]>> Drop for Hold<'_, S, B> {
    fn drop(&mut self) {
        self.ring.core.held = false;
    }
}

fn flush(wire: &mut impl Wire) -> io::Result<()> {
    match wire.flush() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

fn read_info(wire: &impl Wire, most: usize) -> Info {
    let mut bytes = [0; info::BYTES];
    let most = most.min(info::BYTES);
    let read = get_option(
        wire.fd(),
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        &mut bytes[..most],
    );
    Info::parse(&bytes[..read.unwrap_or(0).min(most)])
}
