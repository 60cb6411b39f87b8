//! What quinn does not tell: acknowledged bytes, and what is in flight.
//!
//! A stream is acknowledged as a whole. 100 kB that are acknowledged at once look like a path of
//! 5 MB/s, and only the congestion controller learns of each packet. So ours wraps another one, counts, and wakes
//! the sender with each acknowledgement: a clock that needs no timer.

use std::{
    any::Any,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics};
use quinn_proto::RttEstimator;
use tokio::sync::Notify;

/// A congestion controller of quinn's that tells a [`crate::quic::Sender`] what it is told.
///
/// [`crate::quic::transport_config`] has one around Cubic. For another controller:
///
/// ```
/// use std::sync::Arc;
/// use bestby::quic::{Metered, transport_config};
/// use quinn::congestion::BbrConfig;
///
/// let mut transport = transport_config();
/// transport.congestion_controller_factory(Arc::new(Metered::new(BbrConfig::default())));
/// ```
///
/// A sender on a connection without it works with less: no rate, so no cap on what is in flight but the
/// congestion window, and nothing is predicted.
pub struct Metered {
    inner: Arc<dyn ControllerFactory + Send + Sync>,
}

impl Metered {
    /// Around controllers that `inner` makes.
    pub fn new(inner: impl ControllerFactory + Send + Sync + 'static) -> Self {
        let inner = Arc::new(inner);
        Self { inner }
    }
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").finish_non_exhaustive()
    }
}

impl ControllerFactory for Metered {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Meter {
            inner: Arc::clone(&self.inner).build(now, current_mtu),
            batch: (now, 0),
            counters: Arc::default(),
        })
    }
}

/// Bytes of UDP payload; they only grow, but for `in_flight`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    acked: AtomicU64,
    in_flight: AtomicU64,
    wake: OnceLock<Arc<Notify>>,
}

impl Counters {
    /// Of a connection whose transport has a [`Metered`] controller.
    pub(super) fn of(connection: &quinn::Connection, wake: &Arc<Notify>) -> Option<Arc<Self>> {
        let meter = connection.congestion_state().into_any();
        let counters = meter.downcast::<Meter>().ok()?.counters;
        // A second sender of the same connection is woken by its timers alone.
        let _ = counters.wake.set(Arc::clone(wake));
        Some(counters)
    }

    pub(super) fn acked(&self) -> u64 {
        self.acked.load(Relaxed)
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.notify_one();
        }
    }
}

/// One connection's; its clones count together.
struct Meter {
    inner: Box<dyn Controller>,
    /// The last datagram's time, and the bytes of its batch.
    batch: (Instant, u64),
    counters: Arc<Counters>,
}

impl Controller for Meter {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        // quinn 0.11 says of each datagram of a GSO batch how long the batch is up to its end.
        let before = match self.batch {
            (time, before) if time == now && before < bytes => before,
            _ => 0,
        };
        self.batch = (now, bytes);
        self.counters.in_flight.fetch_add(bytes - before, Relaxed);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.counters.acked.fetch_add(bytes, Relaxed);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.counters.in_flight.store(in_flight, Relaxed);
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
        self.counters.wake();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let in_flight = self.counters.in_flight().saturating_sub(lost_bytes);
        self.counters.in_flight.store(in_flight, Relaxed);
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
        self.counters.wake();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            batch: self.batch,
            counters: Arc::clone(&self.counters),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
