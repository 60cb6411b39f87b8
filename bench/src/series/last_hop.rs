//! A run over a path whose last hop is a line that a trace opens and shuts (`bottleneck = "line"`):
//! the queue under test is on the router in front of it.

use std::{
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use super::passage::{Passage, counters};
use super::{controlled, run::Job};
use crate::{
    bestby::Agent,
    competing::Competitor,
    download,
    line::OPPORTUNITY,
    measure::LastHop,
    queue::{Installed, Queue, Told},
    scenario::cell::Control,
    sniff::{self, Sniffer},
    sys::{self, MILLI, SECOND},
    tfrc::session::{self, Queueing},
    topology::{self, Path, RECEIVER},
    traffic::{Schedule, receiver::Arrival, sender::Marking},
};

/// bit/s of the sender's device where bestby stamps; a segment takes a millisecond.
const STAMPED_RATE: u64 = 8_000_000;

/// Sends `schedule` over `path`, which has a line, through the queue under test.
pub(super) fn pass(
    job: &Job<'_>,
    path: &Path,
    schedule: &Schedule,
    agent: &mut Option<Rc<Agent>>,
    competitor: &mut Option<Competitor>,
) -> Result<Passage> {
    let (queue, point) = (&job.cell.queue, &job.cell.point);
    let ends = path.router().zip(path.line());
    let (router, line) = ends.context("this path has no line")?;
    // Before its deadline a packet must leave the hop by the way behind it, on which it may just have
    // missed an opportunity, and by the way to it, which its lifetime does not count there.
    let told = Told {
        rate: None,
        session_rate: None,
        owd: path.owd + OPPORTUNITY as u64 * 8 * SECOND / point.link.of(0.0).0,
        receivers: &[RECEIVER],
    };
    let installed = Installed::sharing(queue, router, line.near.name(), &told, agent)
        .with_context(|| format!("installing {queue} in front of the line"))?;
    if let Some(agent) = installed.agent() {
        let first = schedule.packets.first().context("no packet to send")?;
        // The rule of the run before, if there was one.
        let _ = agent.bestby("flow rm last-hop");
        if !point.option {
            let ms = first.lifetime / MILLI;
            let treatment = match queue {
                Queue::Bestby { truncate: true, .. } => " --treatment truncate",
                _ => "",
            };
            agent.bestby(&format!(
                "flow add last-hop --lifetime {ms}ms --frames none{treatment}"
            ))?;
        }
    }
    let _stamping = point.option.then(|| stamp(path)).transpose()?;
    let sniffer = Sniffer::new(router, line.near.name())?;
    let (stop, start) = (AtomicBool::new(false), sys::now() + MILLI);
    let (passage, departures) = thread::scope(|scope| -> Result<_> {
        let carrying = scope.spawn(|| {
            let _ = sys::realtime_thread(45);
            line.carry(start, &stop)
        });
        let watching = scope.spawn(|| sniffer.watch(&stop, sniff::record));
        let passage = traffic(job, path, schedule, start, competitor);
        stop.store(true, Ordering::Release);
        let panicked = |_| anyhow!("a thread of the last hop panicked");
        carrying.join().map_err(panicked)??;
        let departures = watching.join().map_err(panicked)??;
        Ok((passage?, departures))
    })?;
    let discard = job.scenario.discard_ns();
    Ok(Passage {
        counters: counters(&installed, line.near.name())?,
        last_hop: Some(last_hop(schedule, &passage, &departures, discard)),
        ..passage
    })
}

/// bestby in front of the sender's device: it says in LPD's option when TCP gives a segment up. The
/// rate, far above the line's, makes TCP hand over each segment by itself.
fn stamp(path: &Path) -> Result<Installed<'_>> {
    let sender = path.sender();
    let told = Told {
        rate: Some(STAMPED_RATE),
        session_rate: None,
        owd: 0,
        receivers: &[],
    };
    let installed = Installed::new(&Queue::BestbyTc, sender, topology::DEVICE, &told)
        .context("installing bestby at the sender")?;
    let agent = installed.agent().context("bestby has no agent")?;
    let port = download::PORT;
    agent.bestby(&format!(
        "flow add download --proto tcp --dport {port} --lifetime rto --stamp yes"
    ))?;
    Ok(installed)
}

/// Sends it by whatever the scenario says.
fn traffic(
    job: &Job<'_>,
    path: &Path,
    schedule: &Schedule,
    start: u64,
    competitor: &mut Option<Competitor>,
) -> Result<Passage> {
    let (point, discard) = (&job.cell.point, job.scenario.discard_ns());
    let tcp = controlled::compete(competitor, path, point)?;
    let mut passage = Passage::default();
    match point.control {
        Control::Tcp => {
            (passage.sent, passage.arrivals) = download::run(path, point, schedule, start)?;
            let last = passage.arrivals.iter().map(|arrival| arrival.at).max();
            let begin = passage.sent.created.first();
            passage.download = begin.zip(last).map(|(begin, last)| last - begin);
        }
        Control::Tfrc => {
            // One packet waits at the sender, as an application has it that looks before it sends.
            let outcome = session::run(path, schedule, Queueing::Fifo(1), point.restart)?;
            passage.tfrc = Some(controlled::seen(&outcome, schedule, discard));
            passage.tail_drops = Some(outcome.refused);
            (passage.sent, passage.arrivals) = (outcome.sent, outcome.arrivals);
        }
        _ => (passage.sent, passage.arrivals) = path.run(schedule, Marking::default())?,
    }
    if let Some(running) = tcp {
        let bytes = controlled::delivered(running, &passage.sent, schedule, discard)?;
        passage.tcp_bytes = Some(bytes);
    }
    Ok(passage)
}

/// Of the packets that arrived stale, those that left the queue stale, and those that were on the
/// line in time.
fn last_hop(
    schedule: &Schedule,
    Passage { sent, arrivals, .. }: &Passage,
    departures: &[Arrival],
    discard: u64,
) -> LastHop {
    let count = schedule.packets.len();
    let (arrived, _) = Arrival::firsts(arrivals, count, 0);
    let (left, _) = Arrival::firsts(departures, count, 0);
    let mut found = LastHop::default();
    let sent = schedule.packets.iter().zip(&sent.created);
    for ((packet, created), (arrived, left)) in sent.zip(arrived.into_iter().zip(left)) {
        let deadline = created + packet.lifetime;
        if packet.at < discard || arrived.is_none_or(|at| at <= deadline) {
            continue;
        }
        match left {
            Some(at) if at <= deadline => found.on_line += 1,
            _ => found.left_stale += 1,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, Packet, wire::Record};

    #[test]
    fn last_hop_stale_packet_on_the_line_is_told_from_one_in_the_queue() {
        // When each left and arrived: in time, on the line, in the queue, never; not judged.
        let seen = [(5, 10), (5, 11), (11, 12), (5, 0), (11, 12)];
        let packet = |n: u32| Packet {
            at: u64::from(n < 4),
            lifetime: 10,
            ..Packet::of(Class::Data, n)
        };
        let schedule = Schedule {
            packets: (0..5).map(packet).collect(),
            duration: 10,
        };
        let at = |(at, sequence)| Arrival {
            record: Record {
                sequence,
                created: 0,
            },
            whole: true,
            at,
        };
        let mut passage = Passage::default();
        passage.sent.created = vec![0; 5];
        let arrived = seen.map(|(_, arrived)| arrived).into_iter().zip(0..);
        passage.arrivals = arrived.filter(|a| a.0 > 0).map(at).collect();
        let left = seen.map(|(left, _)| left).into_iter().zip(0..);
        let found = last_hop(&schedule, &passage, &left.map(at).collect::<Vec<_>>(), 1);
        assert_eq!((found.on_line, found.left_stale), (1, 1));
    }
}
