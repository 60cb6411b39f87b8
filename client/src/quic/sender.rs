//! The sender's handle, and the task that drives it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, SendStream, StoppedError};
use tokio::task::AbortHandle;

use super::{
    GIVEN_UP,
    core::{Core, Stream, Transport},
    meter::Counters,
    types::{Options, Outcome, RenewError, Renewed, SenderStats},
};
use crate::{
    adu::{PathInfo, State, Ticket, TooLate},
    error::ValueError,
    handle,
    metadata::Metadata,
    path::{Path, Report, View},
    sys::monotonic_ns,
};

const MS: u64 = 1_000_000;
/// tokio's timers count in whole ms and are late by up to one. So everything ends one earlier.
const GUARD: u64 = MS;
/// Of a packet: UDP payload that is no stream data.
const PACKET: u64 = 40;
/// So long after something waited for room, it is expected to do so again.
const PRESSED: u64 = 1_000 * MS;
/// What waits is looked at so often although nothing woke.
const LOOK: u64 = 250 * MS;

/// Sends ADUs over a QUIC connection, each as long as it can be in time. Clones are the same sender.
///
/// ```no_run
/// use std::time::Duration;
/// use bestby::{Deadline, Metadata, quic::{Options, Sender}};
///
/// # async fn example(connection: quinn::Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let sender = Sender::new(connection, Options::new());
/// let frame = Metadata::new().deadline(Deadline::after(Duration::from_millis(200)));
/// let ticket = sender.send("frame", frame)?; // never waits
/// println!("{:?}", sender.outcome(ticket).await);
/// # Ok(())
/// # }
/// ```
///
/// One sender per connection and direction. All methods but the `async` ones return at once; those are cancel safe.
pub struct Sender {
    shared: Arc<Shared>,
}

struct Inner {
    core: Core<Outgoing>,
    path: Path,
    report: Report,
    handles: usize,
    /// The driver has ended.
    ended: bool,
}

type Shared = handle::Shared<Inner>;

impl Sender {
    /// Takes the connection's outgoing unidirectional streams, and spawns the task that drives them. The task
    /// ends with the connection, or when every handle is dropped and each ADU has its outcome.
    ///
    /// # Panics
    ///
    /// Outside of a runtime of tokio with time, as quinn does.
    pub fn new(connection: Connection, options: Options) -> Self {
        let shared = Arc::new(Shared::new(Inner {
            core: Core::new(options, monotonic_ns()),
            path: Path::new(options.queue),
            report: Report::default(),
            handles: 1,
            ended: false,
        }));
        let driver = Driver::new(&shared, connection);
        tokio::spawn(driver.run());
        Self { shared }
    }

    /// Takes an ADU; never waits. Its fate is in the outcomes. An ADU without a deadline, or with
    /// [`Treatment::Forward`](crate::Treatment::Forward), is repeated until it is acknowledged.
    ///
    /// # Errors
    ///
    /// [`ValueError::AduTooLarge`]; the ADU is then not counted, and has no outcome. An ADU on a connection that
    /// has ended is taken, and given up as [`Reason::Closed`](crate::quic::Reason::Closed). One whose deadline has
    /// passed is taken, and given up as [`Reason::Stale`](crate::quic::Reason::Stale).
    pub fn send(&self, data: impl Into<Bytes>, metadata: Metadata) -> Result<Ticket, ValueError> {
        let data = data.into();
        self.with(|inner, now| inner.core.send(data, &metadata, now))
    }

    /// Gives an ADU new content, with the same id, deadline and priority.
    ///
    /// # Errors
    ///
    /// [`RenewError`]; the ADU goes on as it was.
    pub fn renew(&self, ticket: Ticket, data: impl Into<Bytes>) -> Result<Renewed, RenewError> {
        let data = data.into();
        self.with(|inner, now| inner.core.renew(ticket, data, now))
    }

    /// Gives an ADU up, on its way, too: its stream is then reset.
    ///
    /// # Errors
    ///
    /// [`TooLate`]: it is acknowledged, or was given up.
    pub fn cancel(&self, ticket: Ticket) -> Result<(), TooLate> {
        self.with(|inner, now| inner.core.cancel(ticket, now))
    }

    /// Changes what `metadata` says of an ADU: deadline, priority, treatment; on its way, too.
    ///
    /// # Errors
    ///
    /// As [`Sender::cancel`].
    pub fn amend(&self, ticket: Ticket, metadata: Metadata) -> Result<(), TooLate> {
        self.with(|inner, now| inner.core.amend(ticket, &metadata, now))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Inner, u64) -> T) -> T {
        self.shared.with(|inner| work(inner, monotonic_ns()))
    }

    /// Where an ADU is.
    pub fn state(&self, ticket: Ticket) -> State {
        self.shared.lock().core.state(ticket)
    }

    /// Waits until the ADU is acknowledged or given up. None if it is not of this sender, or too long ago
    /// ([`State::Unknown`]).
    pub async fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        let ended = |inner: &mut Inner| match inner.core.state(ticket) {
            State::Waiting | State::Begun { .. } | State::Sent => None,
            _ => Some(inner.core.history.past.outcome(ticket.0)),
        };
        self.shared.wait(ended).await
    }

    /// Waits until there are outcomes that were not taken; returns all of them, each ADU's exactly once.
    /// Nothing after the driver has ended and all were taken. The sender keeps 4 times as many as its limit
    /// of ADUs and 1024 more, and counts what it has to forget.
    pub async fn outcomes(&self) -> Vec<Outcome> {
        let some = |inner: &mut Inner| {
            let outcomes: Vec<Outcome> = inner.core.history.past.take().collect();
            (inner.ended || !outcomes.is_empty()).then_some(outcomes)
        };
        self.shared.wait(some).await
    }

    /// Waits until each ADU has its outcome and the receiver is told what was given up.
    pub async fn finish(&self) {
        let done = |inner: &mut Inner| (inner.ended || inner.core.is_idle()).then_some(());
        self.shared.wait(done).await;
    }

    /// Counters.
    pub fn stats(&self) -> SenderStats {
        self.shared.lock().core.stats()
    }

    /// The path as the driver saw it last, e.g. for an encoder. Amounts are bytes of UDP payload.
    pub fn path(&self) -> PathInfo {
        let inner = self.shared.lock();
        PathInfo::new(&inner.path, &inner.report)
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        shared.lock().handles += 1;
        Self { shared }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.with(|inner| inner.handles -= 1);
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// A stream and the task that waits for its end.
#[derive(Debug)]
struct Outgoing {
    stream: SendStream,
    watch: Option<AbortHandle>,
}

impl Stream for Outgoing {
    fn reset(&mut self) {
        // It is closed already if the peer acknowledged or refused it.
        let _ = self.stream.reset(GIVEN_UP.into());
    }

    fn set_priority(&mut self, priority: i32) {
        let _ = self.stream.set_priority(priority);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}

type Opening = Pin<Box<dyn Future<Output = Result<SendStream, ConnectionError>> + Send>>;

/// The connection as the core uses it, during one look.
struct Streams<'a, 'b> {
    shared: &'a Arc<Shared>,
    connection: &'a Connection,
    opening: &'a mut Option<Opening>,
    context: &'a mut Context<'b>,
}

impl Transport for Streams<'_, '_> {
    type Stream = Outgoing;

    fn open(&mut self, of: Option<(u64, u16)>) -> Poll<Option<Outgoing>> {
        let opening = self.opening.get_or_insert_with(|| {
            let connection = self.connection.clone();
            Box::pin(async move { connection.open_uni().await })
        });
        let Poll::Ready(stream) = opening.as_mut().poll(self.context) else {
            return Poll::Pending;
        };
        *self.opening = None;
        let Ok(stream) = stream else {
            return Poll::Ready(None);
        };
        let watch = of.map(|(id, version)| {
            let stopped = stream.stopped();
            let shared = Arc::clone(self.shared);
            tokio::spawn(watch(shared, id, version, stopped)).abort_handle()
        });
        Poll::Ready(Some(Outgoing { stream, watch }))
    }

    fn write(&mut self, outgoing: &mut Outgoing, bytes: &mut [Bytes; 2]) -> Poll<Option<usize>> {
        let write = pin!(outgoing.stream.write_chunks(bytes));
        match write.poll(self.context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(written)) => Poll::Ready(Some(written.bytes)),
            Poll::Ready(Err(_)) => Poll::Ready(None),
        }
    }

    fn finish(&mut self, outgoing: &mut Outgoing) {
        let _ = outgoing.stream.finish();
    }
}

/// Waits for a stream's end.
async fn watch(
    shared: Arc<Shared>,
    id: u64,
    version: u16,
    stopped: impl Future<Output = Result<Option<quinn::VarInt>, StoppedError>>,
) {
    // The driver sees that the connection has ended.
    let Ok(code) = stopped.await else {
        return;
    };
    shared.with(|inner| {
        let now = monotonic_ns();
        match code {
            None => inner.core.acknowledged(id, version, now),
            Some(code) => inner.core.refused(id, version, code.into_inner(), now),
        }
    });
}

/// The task. When it goes, everything that waits is given up.
struct Driver {
    shared: Arc<Shared>,
    connection: Connection,
    counters: Option<Arc<Counters>>,
    /// Of the path that the counters are of.
    address: std::net::SocketAddr,
    /// Acknowledged on paths before.
    acked_before: u64,
    acked: u64,
    /// Of all bytes sent, where the last one handed over is at least.
    handed: u64,
    /// There was always more to send than room since the last look.
    pressed: bool,
    /// Until then ADUs are expected to wait, ns.
    pressed_until: u64,
    opening: Option<Opening>,
}

impl Driver {
    fn new(shared: &Arc<Shared>, connection: Connection) -> Self {
        Self {
            counters: Counters::of(&connection, &shared.changed),
            address: connection.remote_address(),
            connection,
            shared: Arc::clone(shared),
            acked_before: 0,
            acked: 0,
            handed: 0,
            pressed: false,
            pressed_until: 0,
            opening: None,
        }
    }

    async fn run(mut self) {
        let connection = self.connection.clone();
        let mut closed = Box::pin(async move { connection.closed().await });
        let shared = Arc::clone(&self.shared);
        loop {
            // Before the look: what is sent after it leaves a permit.
            let mut changed = pin!(shared.changed.notified());
            let at = poll_fn(|context| Poll::Ready(self.look(context))).await;
            shared.driven.notify_waiters();
            let Some(at) = at else {
                return;
            };
            let mut sleep = pin!(handle::sleep(at));
            // A stream that can be opened or written wakes the task without any of these.
            let mut again = false;
            poll_fn(|context| {
                let woken = changed.as_mut().poll(context).is_ready()
                    || sleep.as_mut().poll(context).is_ready()
                    || closed.as_mut().poll(context).is_ready()
                    || again;
                again = true;
                if woken {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
        }
    }

    /// Gives up what is stale, hands over what may leave. Returns when to look again; outer None = never.
    fn look(&mut self, context: &mut Context<'_>) -> Option<Option<Instant>> {
        let shared = Arc::clone(&self.shared);
        let stats = self.connection.stats();
        let closed = self.connection.close_reason().is_some();
        let mut inner = shared.lock();
        let Inner {
            core,
            path,
            report,
            handles,
            ..
        } = &mut *inner;
        core.history.stats.drives += 1;
        let now = monotonic_ns();
        if closed {
            core.close(now);
            return None;
        }
        *report = self.report(&stats, core, now);
        path.update(report, self.pressed);
        let view = self.view(path, now);
        let before = core.history.stats.given_up;
        core.expire(now, &view);

        let segment = report.mss.saturating_sub(PACKET).max(1);
        let room = match self.counters {
            Some(_) => path.room(report, 0),
            // Acknowledged as a whole, so sent as a whole.
            None if path.room(report, 0) > 0 => u64::MAX,
            None => 0,
        };
        let mut streams = Streams {
            shared: &self.shared,
            connection: &self.connection,
            opening: &mut self.opening,
            context,
        };
        let wrote = core.write(now, &view, room, segment, &mut streams);
        self.handed = self.handed.max(stats.udp_tx.bytes) + wrote.bytes;
        report.unsent += wrote.bytes;
        self.pressed = wrote.no_room;
        let waits = core.is_waiting() && !wrote.no_room && !wrote.no_leave;
        let given_up = core.history.stats.given_up;
        if given_up.stale > before.stale {
            path.refused(now);
        }
        if waits || given_up.predicted > before.predicted {
            path.starved(now);
        }

        if core.is_idle() && *handles == 0 {
            return None;
        }
        let mut at = core.next_event(&view);
        if core.is_waiting() {
            let look = match self.counters {
                None if wrote.no_room => (path.srtt() / 4).clamp(5 * MS, 50 * MS),
                _ => LOOK,
            };
            let look = now.saturating_add(look);
            at = Some(at.map_or(look, |at| at.min(look)));
        }
        let instant = |at: u64| Instant::now() + Duration::from_nanos(at.saturating_sub(now));
        Some(at.map(instant))
    }

    /// As the backlog is to see it.
    fn view(&mut self, path: &Path, now: u64) -> View {
        let mut view = path.view(now);
        if self.pressed {
            self.pressed_until = now.saturating_add(PRESSED);
        }
        if now < self.pressed_until {
            // Where ADUs wait, each begins as late as it may. What is not acknowledged by deadline - owd is
            // reset, so there must be time for the acknowledgement, and where segments are lost for that of a
            // retransmission. What begins earlier is only another ADU: the path is busy all the time.
            let rtt = view.owd.saturating_add(path.min_rtt() / 2);
            let once = rtt.saturating_add(rtt / 4);
            view.acknowledged = view.margin > 0;
            view.margin = match view.acknowledged {
                true => once.saturating_add(rtt),
                false => once,
            };
        }
        view.owd = view.owd.saturating_add(GUARD);
        view
    }

    fn report(
        &mut self,
        stats: &quinn::ConnectionStats,
        core: &Core<Outgoing>,
        now: u64,
    ) -> Report {
        let connection = &self.connection;
        let address = connection.remote_address();
        if self.address != address {
            // A new path has a new controller.
            self.address = address;
            self.acked_before = self.acked;
            self.counters = Counters::of(connection, &self.shared.changed);
        }
        let outstanding = core.outstanding();
        let ns = |duration: Duration| crate::time::ns(duration);
        let common = Report {
            now,
            srtt: ns(stats.path.rtt),
            min_rtt: ns(stats.path.min_rtt),
            app_limited: true,
            retransmitted: stats.path.lost_packets as u32,
            mss: stats.path.current_mtu.into(),
            cwnd: stats.path.cwnd,
            ..Report::default()
        };
        let Some(counters) = &self.counters else {
            return Report {
                segments_in_flight: outstanding,
                in_flight: outstanding,
                ..common
            };
        };
        self.acked = self.acked_before + counters.acked();
        let in_flight = counters.in_flight();
        let unsent = self.handed.saturating_sub(stats.udp_tx.bytes);
        Report {
            rate: counters.rate(),
            acked: Some(self.acked),
            segments_in_flight: in_flight,
            in_flight,
            unsent: unsent.min(outstanding),
            ..common
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        {
            let mut inner = self.shared.lock();
            inner.core.close(monotonic_ns());
            inner.ended = true;
        }
        self.shared.driven.notify_waiters();
    }
}
