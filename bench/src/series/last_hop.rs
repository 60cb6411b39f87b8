//! A run over a path whose last hop is a line that a trace opens and shuts (`bottleneck = "line"`):
//! the queue under test is on the router in front of it.

use std::{
    rc::Rc,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, anyhow};

use super::{
    controlled,
    passage::{Passage, counters},
    run::Job,
};
use crate::{
    bestby::Agent,
    download,
    line::OPPORTUNITY,
    measure::LastHop,
    queue::{Installed, Told},
    scenario::cell::{Control, Says},
    sniff::Sniffer,
    sys::{self, MILLI},
    tfrc::session::{self, Queueing},
    topology::{Path, RECEIVER},
    traffic::{
        Schedule,
        receiver::Arrival,
        sender::{Marking, Sent},
    },
};

/// Sends `schedule` over `path`, which has a line, through the queue under test.
pub(super) fn pass(
    job: &Job<'_>,
    path: &Path,
    schedule: &Schedule,
    agent: &mut Option<Rc<Agent>>,
) -> Result<Passage> {
    let (queue, says) = (&job.cell.queue, job.cell.point.says);
    let ends = path.router().zip(path.line());
    let (router, line) = ends.context("this path has no line")?;
    let told = Told {
        rate: None,
        session_rate: None,
        owd: reserve(path.owd, job.cell.point.link.of(0.0).0),
        receivers: &[RECEIVER],
    };
    let installed = Installed::sharing(queue, router, line.device(), &told, agent)
        .with_context(|| format!("installing {queue} in front of the line"))?;
    if let Some(agent) = installed.agent() {
        let first = schedule.packets.first().context("no packet to send")?;
        hear(agent, line.device(), says, first.lifetime)?;
    }
    let sniffer = Sniffer::new(router, line.device())?;
    let (stop, start) = (AtomicBool::new(false), sys::now() + MILLI);
    let (passage, departures) = thread::scope(|scope| -> Result<_> {
        let carrying = scope.spawn(|| {
            let _ = sys::realtime_thread(45);
            line.carry(start, &stop)
        });
        let watching = scope.spawn(|| sniffer.watch(&stop));
        let passage = traffic(job, path, schedule, start);
        stop.store(true, Ordering::Release);
        let panicked = |_| anyhow!("a thread of the last hop panicked");
        carrying.join().map_err(panicked)??;
        let departures = watching.join().map_err(panicked)??;
        Ok((passage?, departures))
    })?;
    let discard = job.scenario.discard_ns();
    Ok(Passage {
        counters: counters(&installed, line.device())?,
        last_hop: Some(last_hop(schedule, &passage, &departures, discard)),
        ..passage
    })
}

/// How long before its deadline a packet must leave the hop, ns: its lifetime counts from there, after
/// `owd`, and the line may have carried something just now.
fn reserve(owd: u64, rate: u64) -> u64 {
    owd + OPPORTUNITY as u64 * 8 * sys::SECOND / rate.max(1)
}

/// Tells the last hop where it finds the lifetime of packets, here all of `lifetime` ns.
fn hear(agent: &Agent, device: &str, says: Says, lifetime: u64) -> Result<()> {
    match says {
        Says::Rule => {
            // That of the run before, if there was one.
            let _ = agent.bestby("flow rm last-hop");
            let lifetime = lifetime / MILLI;
            agent.bestby(&format!(
                "flow add last-hop --lifetime {lifetime}ms --frames none"
            ))
        }
        Says::Option => agent.bestby(&format!("iface set {device} --trust 10.77.0.0/16")),
    }
    .map(drop)
}

/// Sends it by whatever the scenario says.
fn traffic(job: &Job<'_>, path: &Path, schedule: &Schedule, start: u64) -> Result<Passage> {
    let point = &job.cell.point;
    let mut passage = Passage::default();
    // All packets of a schedule live as long here.
    let first = schedule.packets.first();
    let lifetime = first.map(|packet| (packet.lifetime / MILLI) as u32);
    let option = lifetime.filter(|_| point.says == Says::Option);
    match point.control {
        Control::Tcp => {
            let (undo, says) = (point.undo, point.says);
            (passage.sent, passage.arrivals) = download::run(path, schedule, start, undo, says)?;
            let last = passage.arrivals.iter().map(|arrival| arrival.at).max();
            let begin = passage.sent.created.first();
            passage.download = begin.zip(last).map(|(begin, last)| last - begin);
        }
        Control::Tfrc => {
            // One packet waits at the sender, as an application has it that looks before it sends.
            let outcome = session::run(path, schedule, Queueing::Fifo(1, option), point.restart)?;
            let discard = job.scenario.discard_ns();
            passage.tfrc = Some(controlled::seen(&outcome, schedule, discard));
            passage.tail_drops = Some(outcome.refused);
            (passage.sent, passage.arrivals) = (outcome.sent, outcome.arrivals);
        }
        _ => {
            let marking = Marking {
                option,
                ..Marking::default()
            };
            (passage.sent, passage.arrivals) = path.run(schedule, marking)?;
        }
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
    let Sent { created, .. } = sent;
    let mut found = LastHop::default();
    for (((packet, created), arrived), left) in
        schedule.packets.iter().zip(created).zip(arrived).zip(left)
    {
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
        // In time, on the line, in the queue, never; and one that is not judged.
        let seen: [(u64, Option<u64>); 5] = [
            (5, Some(10)),
            (5, Some(11)),
            (11, Some(12)),
            (5, None),
            (11, Some(12)),
        ];
        let packet = |n: u32| Packet {
            at: u64::from(n < 4),
            lifetime: 10,
            ..Packet::of(Class::Data, n)
        };
        let schedule = Schedule {
            packets: (0..5).map(packet).collect(),
            duration: 10,
        };
        let at = |sequence, at| Arrival {
            record: Record {
                sequence,
                created: 0,
            },
            at,
        };
        let departures: Vec<_> = seen.iter().zip(0..).map(|(s, n)| at(n, s.0)).collect();
        let arrivals = seen.iter().zip(0..);
        let passage = Passage {
            sent: Sent {
                created: vec![0; 5],
                ..Sent::default()
            },
            arrivals: arrivals.filter_map(|(s, n)| Some(at(n, s.1?))).collect(),
            ..Passage::default()
        };
        let found = last_hop(&schedule, &passage, &departures, 1);
        assert_eq!((found.on_line, found.left_stale), (1, 1));
    }
}
