//! Runs in which a congestion control sets the rate (`control = "tfrc"`), and TCP flows
//! beside any sender (`tcp`, both with a router).

use std::{rc::Rc, thread};

use anyhow::{Context as _, Result, bail, ensure};

use super::passage::{Passage, counters};
use crate::{
    bestby::Agent,
    competing::{self, Competitor, Running},
    measure::Tfrc,
    queue::{Installed, Queue, Told},
    scenario::cell::Point,
    tfrc::{
        Restart,
        session::{self, Outcome, Queueing},
    },
    topology::{self, Path},
    traffic::{Schedule, sender::Sent},
};

/// bit/s; the sender's device is no bottleneck: the rate that TFRC sets is.
const DEVICE_RATE: u64 = 1_000_000_000;

/// Starts the TCP flows that a point asks for and lets them fill the router's queue.
pub(super) fn compete(
    competitor: &mut Option<Competitor>,
    path: &Path,
    point: &Point,
) -> Result<Option<Running>> {
    if point.tcp == 0 {
        return Ok(None);
    }
    let competitor = match competitor {
        Some(competitor) => competitor,
        None => competitor.insert(Competitor::new(path)?),
    };
    let running = competitor.start(path, point.tcp)?;
    thread::sleep(competing::WARM_UP);
    Ok(Some(running))
}

/// Ends the flows. Bytes on the wire, as the media's are counted, that they delivered together
/// while the media's run was judged: from `discard` ns of it to `duration` ns, when the media
/// end; the flows go on alone until the receiver has seen the last of them.
pub(super) fn delivered(
    running: Running,
    media: &Sent,
    schedule: &Schedule,
    discard: u64,
) -> Result<u64> {
    // Not after the warm-up: until the queue is installed TCP has the link to itself.
    let first = media.created.first().zip(schedule.packets.first());
    let (created, packet) = first.context("no packet of the media was sent beside TCP")?;
    let start = created.saturating_sub(packet.at + running.began());
    let payload = between(
        &running.stop()?,
        [start + discard, start + schedule.duration],
    );
    Ok(competing::on_the_wire(payload))
}

/// What the flows delivered together between two times, ns since their start.
fn between(flows: &[Vec<u64>], times: [u64; 2]) -> u64 {
    let [from, to] = times.map(|ns| (ns / competing::BUCKET) as usize);
    flows
        .iter()
        .flat_map(|flow| flow.iter().take(to).skip(from))
        .sum()
}

/// Sends `schedule` under TFRC through `queue`: bestby below the socket, told rate and
/// one-way delay by the application alone; or, for `pfifo N`, a FIFO of N packets in
/// user space, as DCCP has one. What is created in the first `discard` ns is not judged.
pub(super) fn pass(
    path: &Path,
    queue: &Queue,
    schedule: &Schedule,
    restart: Restart,
    discard: u64,
    agent: &mut Option<Rc<Agent>>,
) -> Result<Passage> {
    let (installed, queueing) = match queue {
        Queue::Pfifo(packets) => (None, Queueing::Fifo(*packets as usize)),
        Queue::Bestby { method, .. } => {
            let told = Told {
                rate: Some(DEVICE_RATE),
                session_rate: None,
                owd: 0,
                receivers: &[],
            };
            let ns = path.sender();
            let installed = Installed::sharing(queue, ns, topology::DEVICE, &told, agent)?;
            let mut marking = queue.marking(path.owd);
            // The papers' methods know packets only; triage gives up whole frames.
            marking.alone = method != "triage";
            (Some(installed), Queueing::Bestby(marking))
        }
        other => {
            bail!("control = \"tfrc\" works with `bestby qdisc ...` and `pfifo N`, not `{other}`")
        }
    };
    let outcome = session::run(path, schedule, queueing, restart)?;
    let counted = installed
        .as_ref()
        .map(|installed| counters(installed, topology::DEVICE));
    let counters = counted.transpose()?.flatten();
    let tfrc = seen(&outcome, schedule, discard);
    // Nothing here reorders, so every loss counted is one that the network made.
    ensure!(
        tfrc.counted <= tfrc.lost,
        "TFRC counted {} losses, but of {} packets that left only {} did not arrive",
        tfrc.counted,
        tfrc.left,
        tfrc.lost
    );
    Ok(Passage {
        sent: outcome.sent,
        arrivals: outcome.arrivals,
        counters,
        tfrc: Some(tfrc),
        tail_drops: installed.is_none().then_some(outcome.refused),
        ..Passage::default()
    })
}

/// What TFRC saw of a run.
pub(super) fn seen(outcome: &Outcome, schedule: &Schedule, discard: u64) -> Tfrc {
    let left = outcome.departures.len() as u64;
    let judged = |sequence: u32| {
        let packet = schedule.packets.get(sequence as usize);
        packet.is_some_and(|packet| packet.at >= discard)
    };
    let bytes: u64 = outcome
        .departures
        .iter()
        .filter(|departure| judged(departure.sequence))
        .map(|departure| u64::from(departure.bytes))
        .sum();
    Tfrc {
        left,
        lost: left.saturating_sub(outcome.arrivals.len() as u64),
        headers: outcome.arrivals.iter().filter(|a| !a.whole).count() as u64,
        counted: outcome.counted,
        rests: outcome.rests,
        sent_kbit: bytes as f64 * 8e6 / schedule.duration.saturating_sub(discard).max(1) as f64,
        rtt_ms: outcome.rtt / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sys::{MILLI, SECOND},
        tfrc::{control::Departure, sender::Rests},
        traffic::{Class, Packet},
    };

    #[test]
    fn seen_counts_all_that_left_and_the_rate_of_what_is_judged() {
        // Four video packets, one every 500 ms.
        let packet = |n: u32| Packet {
            at: u64::from(n) * 500 * MILLI,
            lifetime: 200 * MILLI,
            class: Class::Video,
            priority: Class::Video.priority(),
            stream: 0,
            adu: n,
            last: true,
            wire_bytes: 1000,
            recorded: None,
        };
        let schedule = Schedule {
            packets: (0..4).map(packet).collect(),
            duration: 2 * SECOND,
        };
        let departure = |sequence| Departure {
            sequence,
            created: 0,
            at: 0,
            bytes: 1000,
        };
        let outcome = Outcome {
            sent: Sent::default(),
            arrivals: Vec::new(),
            departures: (0..4).map(departure).collect(),
            refused: 0,
            counted: 3,
            rests: Rests::default(),
            rtt: 90e6,
        };
        let tfrc = seen(&outcome, &schedule, SECOND);
        // Two packets of 1000 bytes in the second that is judged.
        assert_eq!((tfrc.left, tfrc.lost, tfrc.counted), (4, 4, 3));
        assert_eq!((tfrc.sent_kbit, tfrc.rtt_ms), (16.0, 90.0));
    }

    #[test]
    fn between_counts_the_judged_time_only() {
        // 2 s to warm up, 3 s of which the first is discarded, then the receiver waits.
        let seconds = [1000, 1000, 200, 300, 400, 9000].map(|bytes| [bytes / 10; 10]);
        let flows = [seconds.concat(), seconds.concat()];
        let judged = [3 * SECOND, 5 * SECOND];
        assert_eq!(between(&flows, judged), 1400);
        assert_eq!(between(&[Vec::new()], judged), 0);
    }
}
