//! A link that stops for 5 s while the conference goes on, and then comes back.
//!
//! The link is SLIP over a pseudo-terminal: while nobody reads the other end, the
//! device stops its queue, as a real one does. What had left the queue before
//! that is lost to it (the device's own buffer, one packet); what counts is what
//! leaves the queue from the moment the link is back.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::{Options, Target};
use crate::{
    bestby::{Agent, Events},
    netns::Netns,
    queue::{self, Queue},
    report::Table,
    slip::Slip,
    sniff::Sniffer,
    sys::{self, MILLI, SECOND},
    traffic::{conference, receiver::Arrival, sender::Sender},
};

const RATE: u64 = 253_000;
const OWD: u64 = 40 * MILLI;
const STALL_AT: u64 = 3 * SECOND;
const STALL: u64 = 5 * SECOND;
/// Length of the traffic, s.
const SECONDS: u64 = 12;
const FAR: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);

/// One queue through a stall.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stall {
    /// The queue.
    pub queue: String,
    /// Packets that left while the link stood (into the device's own buffer).
    pub left_during: u64,
    /// From the link's return to the first packet that left the queue, ms.
    pub first_after_ms: f64,
    /// Age of that packet when it left, ms.
    pub first_age_ms: f64,
    /// Whether it could still arrive by its deadline.
    pub first_fresh: bool,
    /// Packets that left after the link's return although stale.
    pub stale_sent: u64,
    /// From the link's return until the last packet that was stale by then had been
    /// sent or dropped, ms.
    pub backlog_gone_ms: f64,
    /// Drop notices during the stall: the backlog that went stale under way. Absent
    /// for queues that give no notice.
    pub dropped_during: Option<u64>,
    /// How that is known.
    pub known_by: String,
}

/// bestby and the peers that an operator would have instead.
pub fn run(options: &Options) -> Result<Vec<Stall>> {
    let mut list = Vec::new();
    for queue in options.queues() {
        let wanted = match &queue {
            Queue::Bestby { method, .. } => method == "triage" || method == "ring-sfdps2",
            Queue::Pfifo(1000) | Queue::FqCodel | Queue::CakeBesteffort => true,
            _ => false,
        };
        if !wanted {
            continue;
        }
        match stall(&queue, options) {
            Ok(stall) => {
                options.progress(&format!(
                    "{}: first packet {:.1} ms old, {} stale sent",
                    stall.queue, stall.first_age_ms, stall.stale_sent
                ));
                list.push(stall);
            }
            Err(error) if options.keep_going => {
                note!("stall of {} not measured: {error:#}", queue.name());
            }
            Err(error) => return Err(error).with_context(|| format!("stall of {}", queue.name())),
        }
    }
    Ok(list)
}

fn stall(queue: &Queue, options: &Options) -> Result<Stall> {
    let ns = Netns::new("st")?;
    let link = Slip::new(&ns, "10.80.0.1", &FAR.to_string())?;
    let installed = queue::Installed::on(queue, &ns, link.name(), RATE, (FAR, OWD))?;
    let events = installed.agent().map(Agent::events).transpose()?;
    let schedule = conference::schedule(SECONDS, options.seed);
    let sender = Sender::new(&ns, SocketAddrV4::new(FAR, 5004), queue.marking(OWD))?;
    let sniffer = Sniffer::new(&ns, link.name())?;
    let (stalled, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let start = sys::now() + 100 * MILLI;

    let (departures, stopped, back) = thread::scope(|scope| -> Result<_> {
        let carrying = scope.spawn(|| {
            let _ = sys::realtime_thread(45);
            link.carry(&stalled, &stop)
        });
        let watching = scope.spawn(|| sniffer.watch(&stop));
        let sending = scope.spawn(|| {
            let _ = sys::realtime_thread(50);
            sender.run(&schedule, start)
        });
        sys::sleep_until(start + STALL_AT);
        stalled.store(true, Ordering::Release);
        let stopped = sys::now();
        sys::sleep_until(start + STALL_AT + STALL);
        let back = sys::now();
        stalled.store(false, Ordering::Release);
        let sent = sending.join();
        sys::sleep_until(sys::now() + SECOND);
        stop.store(true, Ordering::Release);
        let panicked = |_| anyhow!("a thread of the stall panicked");
        carrying.join().map_err(panicked)??;
        let departures = watching.join().map_err(panicked)??;
        sent.map_err(panicked)??;
        Ok((departures, stopped, back))
    })?;
    let dropped = events.map(Events::stop).transpose()?;
    judge(
        &queue.name(),
        &departures,
        dropped.as_deref(),
        stopped,
        back,
    )
}

/// A drop notice: when, and by how much the packet was late (negative: it was not).
pub type Drop = (u64, i64);

fn judge(
    queue: &str,
    departures: &[Arrival],
    drops: Option<&[Drop]>,
    stopped: u64,
    back: u64,
) -> Result<Stall> {
    let stale_at = |deadline: u64, at: u64| at + OWD > deadline;
    let after: Vec<&Arrival> = departures.iter().filter(|d| d.at >= back).collect();
    let first = after
        .first()
        .context("nothing left the queue after the link came back")?;
    let ms = |ns: u64| ns as f64 / 1e6;
    // Whatever was stale when the link came back: sent late, or dropped.
    let sent = after
        .iter()
        .filter(|d| stale_at(d.record.deadline, back))
        .map(|d| d.at - back)
        .max();
    let dropped = drops.and_then(|drops| {
        let was_stale = |&&(at, late): &&Drop| at >= back && late > (at - back) as i64;
        drops
            .iter()
            .filter(was_stale)
            .map(|(at, _)| at - back)
            .max()
    });
    if drops.is_some_and(<[Drop]>::is_empty) {
        bail!(
            "no drop notice in a stall of {} s: the notices were not received",
            STALL / SECOND
        );
    }
    Ok(Stall {
        queue: queue.into(),
        left_during: departures
            .iter()
            .filter(|d| d.at >= stopped + 50 * MILLI && d.at < back)
            .count() as u64,
        first_after_ms: ms(first.at - back),
        first_age_ms: ms(first.at.saturating_sub(first.record.created)),
        first_fresh: !stale_at(first.record.deadline, first.at),
        stale_sent: after
            .iter()
            .filter(|d| stale_at(d.record.deadline, d.at))
            .count() as u64,
        backlog_gone_ms: ms(sent.max(dropped).unwrap_or(0)),
        dropped_during: drops.map(|drops| {
            drops
                .iter()
                .filter(|(at, _)| (stopped..back).contains(at))
                .count() as u64
        }),
        known_by: if drops.is_some() {
            "departures and drop notices"
        } else {
            "departures"
        }
        .into(),
    })
}

/// The stalls as a table.
pub fn render(stalls: &[Stall]) -> String {
    let mut table = Table::new(&[
        "queue",
        "left during",
        "dropped during",
        "first after ms",
        "its age ms",
        "fresh",
        "stale sent after",
        "stale backlog gone after ms",
    ]);
    for s in stalls {
        table.row(vec![
            s.queue.clone(),
            s.left_during.to_string(),
            s.dropped_during
                .map_or("-".into(), |count| count.to_string()),
            format!("{:.2}", s.first_after_ms),
            format!("{:.1}", s.first_age_ms),
            if s.first_fresh { "yes" } else { "no" }.into(),
            s.stale_sent.to_string(),
            format!("{:.1}", s.backlog_gone_ms),
        ]);
    }
    format!(
        "\nLink (SLIP) stopped for {} s under the conference at {} kbit/s\n{}",
        STALL / SECOND,
        RATE / 1000,
        table.render()
    )
}

/// What must hold of them.
pub fn targets(stalls: &[Stall]) -> Vec<Target> {
    let mut list = Vec::new();
    for s in stalls.iter().filter(|s| s.queue.starts_with("bestby")) {
        let fresh = f64::from(u8::from(s.first_fresh));
        list.push(Target::at_least(
            &format!("{}: first packet after a stall is fresh", s.queue),
            fresh,
            1.0,
        ));
        let what = format!("{}: stale backlog gone after a stall, ms", s.queue);
        list.push(Target::at_most(&what, s.backlog_gone_ms, 10.0));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, wire::Record};

    fn left(at_ms: u64, deadline_ms: u64) -> Arrival {
        let record = Record {
            class: Class::Video,
            stream: 0,
            last: true,
            sequence: 0,
            adu: 0,
            created: (deadline_ms - 200) * MILLI,
            deadline: deadline_ms * MILLI,
        };
        Arrival {
            record,
            at: at_ms * MILLI,
        }
    }

    #[test]
    fn a_fresh_first_packet_and_a_quick_purge() {
        // Back at 8000 ms; dropped at 8004 with a lateness of 3 s, and at 8100 one that
        // became stale later only.
        let drops = [(8004 * MILLI, 3_000_000_000), (8100 * MILLI, 50_000_000)];
        let all = [left(2990, 3200), left(8005, 8150)];
        let s = judge("q", &all, Some(&drops), 3000 * MILLI, 8000 * MILLI).expect("judged");
        assert!(s.first_fresh && s.stale_sent == 0 && s.left_during == 0);
        assert!((s.backlog_gone_ms - 4.0).abs() < 1e-9 && (s.first_age_ms - 55.0).abs() < 1e-9);
    }

    #[test]
    fn a_fifo_sends_its_stale_backlog() {
        let all = [left(8001, 3300), left(9000, 3400), left(9001, 9200)];
        let s = judge("q", &all, None, 3000 * MILLI, 8000 * MILLI).expect("judged");
        assert!(!s.first_fresh && s.stale_sent == 2);
        assert!((s.backlog_gone_ms - 1000.0).abs() < 1e-9);
    }
}
