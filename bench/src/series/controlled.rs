//! Runs in which a congestion control sets the rate (`control = "tfrc"`), and TCP flows
//! beside any sender (`tcp`, both with a router).

use std::{rc::Rc, thread};

use anyhow::{Result, bail};

use super::bench::counters;
use crate::{
    bestby::Agent,
    competing::{self, Competitor, Delivered, Flows, Running},
    measure::QueueCounters,
    queue::{Installed, Queue, Told},
    scenario::cell::Point,
    tfrc::session::{self, Choice, Queueing},
    topology::{self, Path},
    traffic::{Schedule, receiver::Arrival, sender::Sent},
};

/// bit/s; the sender's device is no bottleneck: the rate that TFRC sets is.
const DEVICE_RATE: u64 = 1_000_000_000;
/// Bytes on the wire of a competing packet: the conference's mean, as in SFDPS §5.2.
const TCP_BYTES: u32 = 519;

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
    let flows = Flows {
        count: point.tcp as usize,
        control: "reno".into(),
        wire_bytes: TCP_BYTES,
    };
    let running = competitor.start(path, &flows)?;
    thread::sleep(competing::WARM_UP);
    Ok(Some(running))
}

/// Ends the flows. Payload bytes that they delivered together while the media's run was
/// judged: from `discard` ns of it to `duration` ns, when the media end; the flows go on
/// alone until the receiver has seen the last of them.
pub(super) fn delivered(running: Running, discard: u64, duration: u64) -> Result<u64> {
    Ok(between(&running.stop()?, discard, duration))
}

fn between(flows: &[Delivered], discard: u64, duration: u64) -> u64 {
    let bucket = |ns| ((competing::WARM_UP.as_nanos() as u64 + ns) / competing::BUCKET) as usize;
    let (from, to) = (bucket(discard), bucket(duration));
    flows
        .iter()
        .flat_map(|flow| flow.bytes.iter().take(to).skip(from))
        .sum()
}

/// Sends `schedule` under TFRC through `queue`: bestby below the socket, told rate and
/// one-way delay by the application alone; or, for `pfifo N`, a FIFO of N packets in
/// user space, as DCCP has one.
pub(super) fn pass(
    path: &Path,
    queue: &Queue,
    schedule: &Schedule,
    agent: &mut Option<Rc<Agent>>,
) -> Result<(Sent, Vec<Arrival>, Option<QueueCounters>)> {
    let (installed, queueing) = match queue {
        Queue::Pfifo(packets) => (None, Queueing::Fifo(*packets as usize)),
        Queue::Bestby { method, .. } => {
            let told = Told {
                rate: DEVICE_RATE,
                session_rate: None,
                owd: 0,
                receivers: &[],
                largest: schedule.largest(),
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
    let outcome = session::run(path, schedule, queueing, Choice::default())?;
    let counters = match &installed {
        Some(installed) => counters(installed, topology::DEVICE)?,
        None => None,
    };
    Ok((outcome.sent, outcome.arrivals, counters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::SECOND;

    #[test]
    fn only_the_judged_time_counts() {
        // 2 s to warm up, 3 s of which the first is discarded, then the receiver waits.
        let seconds = [1000, 1000, 200, 300, 400, 9000].map(|bytes| [bytes / 10; 10]);
        let flow = Delivered {
            bytes: seconds.concat(),
            control: "reno".into(),
        };
        let flows = [flow.clone(), flow];
        assert_eq!(between(&flows, SECOND, 3 * SECOND), 1400);
        assert_eq!(between(&[Delivered::default()], SECOND, 3 * SECOND), 0);
    }
}
