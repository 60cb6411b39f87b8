//! A run over a link that stands still for a while: the SLIP line of `slip`.
//!
//! What leaves the queue is watched, and arrives the path's delay later by
//! arithmetic. What left while the line stood waited in the device's own buffer (a
//! packet or two) and arrives that much after the line's return.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    passage::{Passage, counters},
    run::Job,
};
use crate::{
    netns::Netns,
    queue::{Installed, Told},
    scenario::cell::Stall,
    slip::Slip,
    sniff::{self, Sniffer},
    sys::{self, MILLI, SECOND},
    traffic::{Schedule, receiver::Arrival, sender::Sender},
};

const FAR: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);

/// Sends `schedule` over a line of `rate` bit/s that stands still during `stall`.
pub(super) fn pass(job: &Job<'_>, schedule: &Schedule, rate: u64, stall: Stall) -> Result<Passage> {
    let (queue, point) = (&job.cell.queue, &job.cell.point);
    let owd = point.owd_ms.ns();
    let ns = Netns::new("st")?;
    let link = Slip::new(&ns, "10.80.0.1", &FAR.to_string())?;
    let told = Told::of(point, rate, owd, &[FAR]);
    let installed = Installed::new(queue, &ns, link.name(), &told)
        .with_context(|| format!("installing {queue} at {rate} bit/s"))?;
    let sender = Sender::new(&ns, SocketAddrV4::new(FAR, 5004), queue.marking(told.owd))?;
    let sniffer = Sniffer::new(&ns, link.name())?;
    let (stalled, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let start = sys::now() + 100 * MILLI;

    let (sent, departures, stood, back) = thread::scope(|scope| -> Result<_> {
        let carrying = scope.spawn(|| {
            let _ = sys::realtime_thread(45);
            link.carry(&stalled, &stop)
        });
        let watching = scope.spawn(|| sniffer.watch(&stop, sniff::record));
        let sending = scope.spawn(|| {
            let _ = sys::realtime_thread(50);
            sender.run(schedule, start)
        });
        sys::sleep_until(start + stall.at.ns());
        stalled.store(true, Ordering::Release);
        let stood = sys::now();
        sys::sleep_until(stood + stall.length.ns());
        stalled.store(false, Ordering::Release);
        let back = sys::now();
        let sent = sending.join();
        drain(&ns, schedule, rate);
        stop.store(true, Ordering::Release);
        let panicked = |_| anyhow!("a thread of the stalled run panicked");
        carrying.join().map_err(panicked)??;
        let departures = watching.join().map_err(panicked)??;
        Ok((sent.map_err(panicked)??, departures, stood, back))
    })?;
    let mut arrivals = departures;
    hold_back(&mut arrivals, stood, back);
    Ok(Passage {
        sent,
        arrivals,
        extra_delay: owd,
        owd,
        counters: counters(&installed, link.name())?,
        ..Passage::default()
    })
}

/// What left while the line stood was really on its way when that was back.
fn hold_back(departures: &mut [Arrival], stood: u64, back: u64) {
    for departure in departures {
        if (stood..back).contains(&departure.at) {
            departure.at = back;
        }
    }
}

/// Waits until the namespace's only device has sent nothing for a while, at most as long as all the
/// traffic would take.
fn drain(ns: &Netns, schedule: &Schedule, rate: u64) {
    let bits = schedule.load() * schedule.duration as f64 / 1e9;
    let limit = sys::now() + SECOND + (bits / rate as f64 * 1e9) as u64;
    let counters = || Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?);
    let sent = || ns.enter(counters).ok();
    let mut before = sent();
    while sys::now() < limit {
        sys::sleep_until(sys::now() + SECOND);
        let now = sent();
        if now == before {
            return;
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::wire::Record;

    #[test]
    fn hold_back_moves_what_left_while_the_line_stood_to_its_return() {
        let record = Record {
            sequence: 0,
            created: 0,
        };
        let mut departures = [99, 100, 199, 200].map(|at| Arrival {
            record,
            whole: true,
            at,
        });
        hold_back(&mut departures, 100, 200);
        assert_eq!(departures.map(|arrival| arrival.at), [99, 200, 200, 200]);
    }
}
