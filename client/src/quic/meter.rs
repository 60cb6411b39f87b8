//! What quinn does not tell: acknowledged bytes, what is in flight, and the delivery rate.
//!
//! A stream is acknowledged as a whole. 100 kB that are acknowledged at once look like a path of
//! 5 MB/s, and only the congestion controller learns of each packet. So ours wraps another one, counts, and wakes
//! the sender with each acknowledgement: a clock that needs no timer.
//!
//! The delivery rate is Linux's (`tcp_rate.c`, draft-cheng-iccrg-delivery-rate-estimation): what was delivered from
//! the sending of a packet to its acknowledgement, over the longer of the times in which that much was sent and
//! acknowledged. Acknowledgements that come in a heap after a pause raise it no further than the sending did.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
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
            sampler: Sampler {
                sent: VecDeque::new(),
                delivered: 0,
                delivered_at: now,
                first_sent: now,
                newest: None,
                min_rtt: Duration::ZERO,
            },
            counters: Arc::default(),
        })
    }
}

/// Bytes of UDP payload; they only grow, but for `in_flight`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    acked: AtomicU64,
    in_flight: AtomicU64,
    rate: AtomicU64,
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

    /// The last sample of the delivery rate, bytes/s; 0 = none yet.
    pub(super) fn rate(&self) -> u64 {
        self.rate.load(Relaxed)
    }

    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.notify_one();
        }
    }
}

/// Packets whose sending is remembered, at most: one for each call that sent some.
const SENT_MOST: usize = 1 << 14;

/// How it was when a packet was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// Bytes acknowledged by then, and when the last ones were.
    delivered: u64,
    delivered_at: Instant,
    /// When the packet was sent that was acknowledged last.
    first_sent: Instant,
}

#[derive(Clone, Debug)]
struct Sampler {
    /// By time.
    sent: VecDeque<Sent>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// The newest packet of the acknowledgements at hand.
    newest: Option<Sent>,
    min_rtt: Duration,
}

impl Sampler {
    fn sent(&mut self, now: Instant, in_flight: u64) {
        if in_flight == 0 {
            self.delivered_at = now;
            self.first_sent = now;
        }
        if self.sent.back().is_some_and(|last| last.at >= now) {
            return;
        }
        if self.sent.len() >= SENT_MOST {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
        });
    }

    fn acknowledged(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.delivered += bytes;
        self.delivered_at = now;
        if self.newest.is_none_or(|newest| newest.at < sent)
            && let Ok(found) = self.sent.binary_search_by_key(&sent, |sent| sent.at)
        {
            self.newest = Some(self.sent[found]);
        }
    }

    /// bytes/s, once all packets of an acknowledgement are in.
    fn sample(&mut self, now: Instant) -> Option<u64> {
        let newest = self.newest.take()?;
        while self.sent.front().is_some_and(|sent| sent.at < newest.at) {
            self.sent.pop_front();
        }
        self.first_sent = self.first_sent.max(newest.at);
        let sending = newest.at.saturating_duration_since(newest.first_sent);
        let interval = sending.max(now.saturating_duration_since(newest.delivered_at));
        if interval < self.min_rtt || interval.is_zero() {
            return None;
        }
        let bytes = u128::from(self.delivered - newest.delivered);
        let rate = bytes * 1_000_000_000 / interval.as_nanos();
        u64::try_from(rate).ok()
    }
}

/// One connection's; its clones count together.
struct Meter {
    inner: Box<dyn Controller>,
    /// The last datagram's time, and the bytes of its batch.
    batch: (Instant, u64),
    sampler: Sampler,
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
        let in_flight = &self.counters.in_flight;
        let in_flight = in_flight.fetch_add(bytes - before, Relaxed);
        self.sampler.sent(now, in_flight);
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
        self.sampler.min_rtt = rtt.min();
        self.sampler.acknowledged(now, sent, bytes);
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
        if let Some(rate) = self.sampler.sample(now) {
            self.counters.rate.store(rate, Relaxed);
        }
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
            sampler: self.sampler.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet of 1000 bytes each ms, acknowledged 50 ms later, but for a pause of 40 ms after which
    /// what has heaped up is acknowledged at once.
    #[test]
    fn acknowledgements_in_a_heap_raise_the_rate_no_further_than_the_sending() {
        let start = Instant::now();
        let ms = |n: u64| start + Duration::from_millis(n);
        let mut sampler = Sampler {
            sent: VecDeque::new(),
            delivered: 0,
            delivered_at: start,
            first_sent: start,
            newest: None,
            min_rtt: Duration::from_millis(50),
        };
        let mut rates = Vec::new();
        let mut acknowledged = 0;
        for now in 0..500 {
            sampler.sent(ms(now), if now == 0 { 0 } else { 1000 });
            let heaps = (200..240).contains(&now);
            while !heaps && acknowledged + 50 <= now {
                sampler.acknowledged(ms(now), ms(acknowledged), 1000);
                acknowledged += 1;
            }
            let sample = sampler.sample(ms(now));
            rates.extend(sample.filter(|_| now > 100));
        }
        let (least, most) = (rates.iter().min().unwrap(), rates.iter().max().unwrap());
        assert!(*most <= 1_000_000 && *least > 500_000, "{least} {most}");
        assert_eq!(rates.last(), Some(&1_000_000));
        assert!(sampler.sent.len() <= 51);
    }
}
