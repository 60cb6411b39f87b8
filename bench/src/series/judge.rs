//! What is worked out of a run's packets when it is over, outside of any guest: the clairvoyant bound
//! of its schedule, its false drops, and what a decoder makes of real media.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::{job::Job, run::Run};
use crate::{
    bound::{
        self, Bound, Departure, FalseDrops, Fate, Link,
        stall::{self, Stall},
    },
    columns::Columns,
    records::{self, Seen},
    scenario::cell::{Bottleneck, Control, Point},
    slip,
    sys::SECOND,
    topology,
    traffic::{Model, Schedule, media},
};

/// The bounds that are known by what they depend on: one for all queues.
#[derive(Debug, Default)]
pub(super) struct Judge {
    known: BTreeMap<String, Bound>,
}

impl Judge {
    /// Adds to `run` its bound and its false drops, where there is such a thing, and its pictures,
    /// if it sent any.
    pub(super) fn complete(
        &mut self,
        job: &Job<'_>,
        run: &mut Run,
        packets: &Columns,
    ) -> Result<()> {
        let (scenario, point) = (job.scenario, &job.cell.point);
        let seen = records::seen(packets)?;
        let schedule = point.schedule(scenario.seconds, run.seed)?;
        if let Model::Media(parameters) = point.model()? {
            ensure!(
                are_of(&seen, &schedule),
                "its packets are not of the media in {}, which were made anew since: remove the \
                 run's files to make it again",
                parameters.directory.display()
            );
            let on_time: Vec<bool> = seen.iter().map(|packet| packet.on_time).collect();
            let (seconds, discard) = (scenario.seconds, scenario.discard_first);
            let picture = media::judge(&parameters, seconds, run.seed, &on_time, discard);
            run.measures.picture = Some(picture.context("decoding what arrived")?);
        }
        let Some(way) = Way::of(point, run) else {
            return Ok(());
        };
        let discard = (scenario.discard_first * SECOND as f64).round() as u64;
        let (judged, places) = judged(&way.shorter(schedule), discard);
        let bound = self.known.entry(key(point, run, &way)?);
        run.bound = Some(*bound.or_insert_with(|| way.bound(&judged)));
        // A packet that the network lost was not given up.
        if point.loss_percent.0 == 0.0 {
            let fate = |&place: &usize| match seen.get(place) {
                Some(packet) if packet.on_time => Fate::OnTime,
                Some(packet) if packet.arrived => Fate::Late,
                _ => Fate::Dropped,
            };
            let fates: Vec<Fate> = places.iter().map(fate).collect();
            run.false_drops = Some(way.false_drops(&judged, &fates));
        }
        Ok(())
    }
}

/// Another ffmpeg encodes the same pictures to other packets.
fn are_of(seen: &[Seen], schedule: &Schedule) -> bool {
    let of_schedule = schedule
        .packets
        .iter()
        .map(|packet| (packet.at, packet.wire_bytes));
    of_schedule.eq(seen
        .iter()
        .map(|packet| (packet.created, packet.wire_bytes)))
}

/// What a run's packets had to pass.
struct Way {
    link: Link,
    stall: Option<Stall>,
}

impl Way {
    /// `None` where the rate that the media could have is not known.
    fn of(point: &Point, run: &Run) -> Option<Self> {
        Some(Self {
            link: link(point, run)?,
            stall: point.stall.map(|stall| Stall {
                at: stall.at.ns(),
                length: stall.length.ns(),
            }),
        })
    }

    /// `schedule` with the bytes that its packets have there.
    fn shorter(&self, mut schedule: Schedule) -> Schedule {
        if self.stall.is_some() {
            for packet in &mut schedule.packets {
                packet.wire_bytes = packet.wire_bytes.saturating_sub(slip::SHORTER);
            }
        }
        schedule
    }

    fn bound(&self, judged: &Schedule) -> Bound {
        match self.stall {
            Some(stall) => stall::bound(judged, self.link, stall),
            None => bound::on(judged, self.link),
        }
    }

    /// `fates[i]` is that of packet `i`.
    fn false_drops(&self, judged: &Schedule, fates: &[Fate]) -> FalseDrops {
        let Some(stall) = self.stall else {
            return bound::false_drops(judged, fates, &self.link);
        };
        let (mapped, places) = stall::mapped(judged, &self.link, stall);
        let fates: Vec<Fate> = places.iter().map(|&place| fates[place]).collect();
        bound::false_drops(&mapped, &fates, &self.link)
    }
}

/// The link of a run while it is up. Beside TCP, and where a congestion control sets the rate, nobody knows
/// what the media could have had.
fn link(point: &Point, run: &Run) -> Option<Link> {
    if point.tcp > 0 || point.control != Control::None {
        return None;
    }
    let owd = (run.owd_ms * 1e6).round() as u64;
    Some(match point.bottleneck {
        Bottleneck::Sender => Link::of_path(run.rate, owd),
        Bottleneck::Router => Link::of_bucket(run.rate, owd, topology::ROUTER_BURST.into()),
    })
}

/// What a bound depends on: the traffic and the link, not the queue and what it is told.
fn key(point: &Point, run: &Run, way: &Way) -> Result<String> {
    let traffic = serde_json::to_string(&(&point.traffic, &point.lifetime))?;
    let Link { owd, burst, .. } = way.link;
    let mut key = format!("{traffic} {} {} {owd}", run.seed, run.rate);
    if way.link.departure == Departure::Bucket {
        key += &format!(" bucket {burst}");
    }
    if let Some(Stall { at, length }) = way.stall {
        key += &format!(" stall {at} {length}");
    }
    Ok(key)
}

/// The packets of ADUs that begin after the part of a run that is discarded, and their
/// places in `schedule`. What came before only takes from them, so their bound is one;
/// and a few of the first may count as false drops though what came before was in the way.
fn judged(schedule: &Schedule, discard: u64) -> (Schedule, Vec<usize>) {
    let mut begins = BTreeMap::new();
    for packet in &schedule.packets {
        begins.entry(packet.adu).or_insert(packet.at);
    }
    let counts = |adu: u32| begins.get(&adu).is_some_and(|&at| at >= discard);
    let (places, packets) = schedule
        .packets
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, packet)| counts(packet.adu))
        .unzip();
    let duration = schedule.duration;
    (Schedule { packets, duration }, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, Packet};

    #[test]
    fn an_adu_is_judged_as_a_whole_or_not_at_all() {
        let packet = |at, adu| Packet {
            at,
            lifetime: 100,
            class: Class::Video,
            priority: Class::Video.priority(),
            stream: 0,
            adu,
            last: false,
            wire_bytes: 100,
        };
        let schedule = Schedule {
            packets: vec![
                packet(0, 0),
                packet(9, 1),
                packet(10, 2),
                packet(11, 1),
                packet(12, 2),
            ],
            duration: 20,
        };
        let (left, places) = judged(&schedule, 10);
        assert_eq!(
            left.packets.iter().map(|p| p.adu).collect::<Vec<_>>(),
            [2, 2]
        );
        assert_eq!(places, [2, 4]);
        assert_eq!(judged(&schedule, 0), (schedule, vec![0, 1, 2, 3, 4]));
    }
}
