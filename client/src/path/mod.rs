//! What the transport reports, as what the backlog needs: owd, rate, margin, room. No I/O, no clock.
//!
//! The problem: a congestion window is not a rate, and it is far more than the path holds without a
//! queue (Cubic fills the whole FIFO, BBR holds two round trips). What is in that queue can no
//! longer be chosen.
//!
//! 1. **Rate**: `rate.rs`. What counts in full is decided here: samples of a sender that always had more to
//!    send, or of a path on which a queue stood all the time. The kernel calls every sample of a sender
//!    below its window application-limited, and so it would one that is limited by the cap.
//! 2. **Cap**: in flight ≤ rate × (least RTT + queue). It is a standing queue that short, and no longer.
//! 3. **Growth**: while the cap is the limit and yet no queue is seen, the path carries more, and the
//!    cap is two round trips. The congestion window stands behind it.
//! 4. **Drain**: where a queue is seen all the time for 10 s, either the path became longer or others
//!    fill the queue. The cap is halved for a moment, and the RTT then seen is the new least.
//! 5. **owd** = smoothed RTT − half of the least RTT: the queue is on the way there.
//!    After a time with nothing in flight the smoothed RTT is that of a queue which is gone. Nothing new would
//!    tell, if everything were given up because of it. So for a while the queue is taken for what is in
//!    flight, and no more. The least RTT may be wrong, too: a handshake whose answer was lost has measured a
//!    timer. So where everything is given up with nothing in flight, something is sent now and then all the same.
//! 6. **Margin**: 1.25 smoothed RTT while segments were retransmitted in the last 3 s, because
//!    everything behind a lost segment waits for it.
//!
//! All times in ns, all amounts in bytes.

mod rate;
#[cfg(test)]
mod tests;

use self::rate::Rate;

/// How long a retransmission is remembered.
const LOSS_MEMORY: u64 = 3_000_000_000;
/// How long a queue must be seen before the cap is halved.
const NEVER_EMPTY: u64 = 10_000_000_000;
/// After nothing was in flight, the smoothed RTT is not believed for so long, and for itself.
const DISBELIEF: u64 = 1_000_000_000;
/// The rate is doubted once in so long or a round trip.
const DOUBT_LEAST: u64 = 100_000_000;
/// An ADU that seems too late is tried after `DOUBT_LEAST`, then after twice as long, which doubles so many times.
const TRIES: u32 = 6;
/// More is no short queue.
const QUEUE_MOST: u64 = 10_000_000_000;
/// Segments that may always be in flight.
const FLOOR: u64 = 4;

/// What the transport says at one time. 0 stands for "not known", but for the amounts in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) now: u64,
    /// Smoothed RTT.
    pub(crate) srtt: u64,
    /// Least RTT as the transport has it (the kernel's window is five minutes).
    pub(crate) min_rtt: u64,
    /// Delivery rate, bytes/s.
    pub(crate) rate: u64,
    /// The transport calls that rate application-limited.
    pub(crate) app_limited: bool,
    /// Segments retransmitted so far; may wrap.
    pub(crate) retransmitted: u32,
    /// Bytes of a segment.
    pub(crate) mss: u64,
    /// Congestion window.
    pub(crate) cwnd: u64,
    /// In flight as the congestion window counts it: whole segments.
    pub(crate) segments_in_flight: u64,
    /// In flight, in bytes.
    pub(crate) in_flight: u64,
    /// With the transport, but not yet on the wire.
    pub(crate) unsent: u64,
    /// What the peer has room for, beyond what is on its way.
    pub(crate) window: Option<u64>,
    /// Acknowledged so far; `None` = not known.
    pub(crate) acked: Option<u64>,
}

/// What the backlog chooses by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// One-way delay to the receiver, ns.
    pub(crate) owd: u64,
    /// Time for one retransmission, ns; 0 while nothing is lost.
    pub(crate) margin: u64,
    /// The margin has time for its acknowledgement, too.
    pub(crate) acknowledged: bool,
    /// bytes/s; 0 = not known.
    pub(crate) rate: u64,
}

/// See the file's comment.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Standing queue that the cap allows, ns; None = no cap.
    queue: Option<u64>,
    rate: Rate,
    srtt: u64,
    min_rtt: u64,
    /// The transport's least RTT when `min_rtt` was set.
    reported_min: u64,
    mss: u64,
    retransmitted: Option<u32>,
    lost_at: Option<u64>,
    /// Since when there was always more to send than room, and when there was last.
    pressed_since: Option<u64>,
    pressed_at: u64,
    /// Since when something was always in flight.
    busy_since: Option<u64>,
    in_flight: u64,
    /// Until when the smoothed RTT may be that of a queue which is gone.
    disbelief: u64,
    /// Since when ADUs were given up as too late with nothing in flight, and how often one was tried in vain.
    refused_since: Option<u64>,
    tries: u32,
    growing: bool,
    /// When the queue was last seen short.
    short_at: u64,
    drain: Option<Drain>,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    until: u64,
    least: u64,
}

impl Path {
    /// The standing queue that is allowed from now on, ns; None = no cap.
    pub(crate) fn allow_queue(&mut self, queue: Option<u64>) {
        self.queue = queue.map(|queue| queue.min(QUEUE_MOST));
    }

    pub(crate) fn new(queue: Option<u64>) -> Self {
        Self {
            queue: queue.map(|queue| queue.min(QUEUE_MOST)),
            rate: Rate::default(),
            srtt: 0,
            min_rtt: 0,
            reported_min: 0,
            mss: 0,
            retransmitted: None,
            lost_at: None,
            pressed_since: None,
            pressed_at: 0,
            busy_since: None,
            in_flight: 0,
            disbelief: 0,
            refused_since: None,
            tries: 0,
            growing: true,
            short_at: 0,
            drain: None,
        }
    }

    /// Takes a report in. `pressed`: since the report before, more was always waiting than there was room for.
    pub(crate) fn update(&mut self, report: &Report, pressed: bool) {
        let now = report.now;
        self.mss = report.mss;
        if report.srtt > 0 {
            self.srtt = report.srtt;
        }
        if pressed {
            self.pressed_since.get_or_insert(now);
            self.pressed_at = now;
        } else {
            self.pressed_since = None;
        }
        if let Some(before) = self.retransmitted.replace(report.retransmitted)
            && before != report.retransmitted
        {
            self.lost_at = Some(now);
        }
        self.update_min_rtt(report, pressed);

        self.update_busy(report);

        // A sample covers about one round trip: all of it must have been under pressure, or behind a queue.
        let queue = self.queue.unwrap_or(0);
        let seen = self.srtt.saturating_sub(self.min_rtt);
        let stands = seen > queue / 2 + self.min_rtt / 16;
        let span = self.srtt.saturating_add(self.srtt / 4);
        let since = |at: Option<u64>| at.map_or(0, |at| now.saturating_sub(at));
        let pressed = self.drain.is_none() && since(self.pressed_since) > span;
        let behind_queue = stands && since(self.busy_since) > span;
        let counts = pressed || behind_queue || !report.app_limited;
        self.rate.sample(report, self.srtt, self.min_rtt, counts);

        if stands {
            self.growing = false;
        } else if pressed && seen <= queue / 4 {
            self.growing = true;
        }
    }

    /// ADUs were given up or wait because of the rate, not because of the room.
    pub(crate) fn starved(&mut self, now: u64) {
        let pause = self.srtt.clamp(DOUBT_LEAST, QUEUE_MOST);
        if now.saturating_sub(self.pressed_at) > pause.saturating_mul(2) {
            self.rate.doubt(now, pause);
        }
    }

    /// ADUs were given up because they would be late.
    pub(crate) fn refused(&mut self, now: u64) {
        if self.in_flight == 0 {
            self.refused_since.get_or_insert(now);
        }
    }

    /// Whether what seems too late is sent all the same: nothing else would tell how long the way is.
    fn tries(&self, now: u64) -> bool {
        self.refused_since
            .is_some_and(|since| now.saturating_sub(since) >= DOUBT_LEAST << self.tries)
    }

    fn update_busy(&mut self, report: &Report) {
        let now = report.now;
        self.in_flight = report.in_flight;
        if report.in_flight > 0 {
            if self.refused_since.take().is_some() {
                self.tries = TRIES.min(self.tries + 1);
            }
            self.busy_since.get_or_insert(now);
        } else {
            self.busy_since = None;
            let believed = self.srtt.saturating_add(DISBELIEF);
            self.disbelief = now.saturating_add(believed);
        }
    }

    fn update_min_rtt(&mut self, report: &Report, pressed: bool) {
        let now = report.now;
        let reported = if report.min_rtt > 0 {
            report.min_rtt
        } else {
            self.srtt
        };
        if reported == 0 {
            return;
        }
        if self.min_rtt == 0 {
            self.min_rtt = reported;
            self.short_at = now;
        } else if reported < self.reported_min {
            self.min_rtt = self.min_rtt.min(reported);
            self.tries = 0;
        }
        self.reported_min = reported;
        if self.srtt > 0 {
            self.min_rtt = self.min_rtt.min(self.srtt);
        }

        let queue = self.queue.unwrap_or(0);
        if let Some(drain) = &mut self.drain {
            drain.least = drain.least.min(self.srtt);
            if now >= drain.until {
                self.min_rtt = drain.least.max(reported);
                self.short_at = now;
                self.drain = None;
            }
        } else if !pressed || self.srtt <= self.min_rtt.saturating_add(queue + queue / 2) {
            self.short_at = now;
        } else if self.queue.is_some() && now.saturating_sub(self.short_at) > NEVER_EMPTY {
            // The smoothed RTT follows within some ten samples, one of each segment.
            let span = 2 * self.srtt.min(QUEUE_MOST) + 200_000_000;
            self.drain = Some(Drain {
                until: now.saturating_add(span),
                least: self.srtt,
            });
        }
    }

    pub(crate) fn view(&self, now: u64) -> View {
        let lost = self
            .lost_at
            .is_some_and(|at| now.saturating_sub(at) < LOSS_MEMORY);
        let rtt = self.rtt(now);
        View {
            owd: if self.tries(now) {
                0
            } else {
                rtt.saturating_sub(self.min_rtt / 2)
            },
            margin: if lost { rtt.saturating_add(rtt / 4) } else { 0 },
            acknowledged: false,
            // While neither a queue nor a loss is seen, more and more is sent, and nobody can say what will be late.
            rate: if self.growing && !lost {
                0
            } else {
                self.rate()
            },
        }
    }

    /// bytes/s; 0 = not known.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.get()
    }

    pub(crate) fn srtt(&self) -> u64 {
        self.srtt
    }

    pub(crate) fn min_rtt(&self) -> u64 {
        self.min_rtt
    }

    /// The smoothed RTT, or less where its queue is gone.
    fn rtt(&self, now: u64) -> u64 {
        let own = match self.rate() {
            _ if now >= self.disbelief => return self.srtt,
            // So little is no queue at any rate.
            0 if self.in_flight <= FLOOR * self.mss => 0,
            0 => return self.srtt,
            rate => u128::from(self.in_flight) * 1_000_000_000 / u128::from(rate),
        };
        let own = u64::try_from(own).unwrap_or(u64::MAX);
        let most = self.min_rtt.saturating_add(self.queue.unwrap_or(0) / 2);
        self.srtt.min(most.max(own))
    }

    /// Bytes that may be in flight without a queue longer than allowed; None = as many as the
    /// congestion window holds.
    pub(crate) fn cap(&self) -> Option<u64> {
        let queue = self.queue?;
        let rate = self.rate();
        if rate == 0 || self.min_rtt == 0 {
            return None;
        }
        let round_trips = if self.growing { 2 } else { 1 };
        let span = u128::from(self.min_rtt) * round_trips + u128::from(queue);
        let cap = u128::from(rate).saturating_mul(span) / 1_000_000_000;
        let cap = u64::try_from(cap).unwrap_or(u64::MAX);
        let cap = if self.drain.is_some() { cap / 2 } else { cap };
        Some(cap.max(FLOOR.saturating_mul(self.mss)))
    }

    /// Bytes that may be handed to the transport now. `held` were taken by something above it
    /// (TLS) and are not with it yet.
    pub(crate) fn room(&self, report: &Report, held: u64) -> u64 {
        let mut room = report.cwnd.saturating_sub(report.segments_in_flight);
        if let Some(cap) = self.cap() {
            room = room.min(cap.saturating_sub(report.in_flight));
        }
        if let Some(window) = report.window {
            room = room.min(window);
        }
        room.saturating_sub(report.unsent).saturating_sub(held)
    }
}
