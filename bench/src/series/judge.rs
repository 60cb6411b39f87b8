//! What is worked out of a run's packets when it is over, outside of any guest: the clairvoyant bound
//! of its schedule, its false drops, and what a decoder makes of real media.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::run::{Job, Run};
use crate::{
    bound::{
        self, Bound, Fate, Link, intact,
        stall::{self, Stall},
    },
    columns::Columns,
    records::{self, Seen},
    scenario::cell::{Bottleneck, Control, Point},
    slip, topology,
    traffic::{Model, Schedule, media},
};

/// The bounds that are known by what they depend on: one for all queues.
#[derive(Debug, Default)]
pub(super) struct Judge {
    known: BTreeMap<String, Bound>,
    /// The same of the pictures of real media.
    intact: BTreeMap<String, Option<u64>>,
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
        let mut schedule = point.schedule(scenario.seconds, run.seed)?;
        if let Model::Media(parameters) = point.model()? {
            ensure!(
                are_of(&seen, &schedule),
                "its packets are not of the media in {}, which were made anew since: remove the \
                 run's files to make it again",
                parameters.directory.display()
            );
            let (seconds, discard) = (scenario.seconds, scenario.discard_first);
            let picture = media::judge(&parameters, seconds, run.seed, &seen, discard);
            let mut picture = picture.context("decoding what arrived")?;
            if let Some(link) = link(point, run).filter(|_| point.stall.is_none()) {
                let lifetime = &point.lifetime;
                let key = format!(
                    "{parameters:?} {lifetime:?} {seconds} {discard} {} {link:?}",
                    run.seed
                );
                picture.intact_bound = match self.intact.get(&key) {
                    Some(&known) => known,
                    None => {
                        let frames = parameters.references(seconds, run.seed, discard)?;
                        let most = intact::on(&schedule, link, &frames);
                        *self.intact.entry(key).or_insert(most)
                    }
                };
            }
            run.measures.picture = Some(picture);
        }
        let Some(link) = link(point, run) else {
            return Ok(());
        };
        let stall = point.stall.map(|stall| Stall {
            at: stall.at.ns(),
            length: stall.length.ns(),
        });
        // On the line that can stall packets are shorter.
        for packet in schedule.packets.iter_mut().filter(|_| stall.is_some()) {
            packet.wire_bytes = packet.wire_bytes.saturating_sub(slip::SHORTER);
        }
        let discard = scenario.discard_ns();
        let (mut judged, places) = judged(schedule, discard);
        // What a bound depends on: the traffic and the link, not the queue and what it is told.
        let (traffic, lifetime) = (&point.traffic, &point.lifetime);
        let (seconds, seed) = (scenario.seconds, run.seed);
        let key = format!("{traffic:?} {lifetime:?} {seconds} {discard} {seed} {link:?} {stall:?}");
        let bound = self.known.entry(key).or_insert_with(|| match stall {
            Some(stall) => stall::bound(&judged, link, stall),
            None => bound::on(&judged, link),
        });
        run.bound = Some(*bound);
        // A packet that the network lost was not given up.
        if point.loss_percent.0 == 0.0 {
            let fate = |&place: &usize| match seen.get(place) {
                Some(packet) if packet.on_time => Fate::OnTime,
                Some(packet) if packet.arrived => Fate::Late,
                _ => Fate::Dropped,
            };
            let mut fates: Vec<Fate> = places.iter().map(fate).collect();
            if let Some(stall) = stall {
                let (mapped, places) = stall::mapped(&judged, &link, stall);
                fates = places.iter().map(|&place| fates[place]).collect();
                judged = mapped;
            }
            run.false_drops = Some(bound::false_drops(&judged, &fates, &link));
        }
        Ok(())
    }
}

/// Another ffmpeg encodes the same pictures to other packets.
fn are_of(seen: &[Seen], schedule: &Schedule) -> bool {
    let sent = schedule.packets.iter().map(|p| (p.at, p.wire_bytes));
    sent.eq(seen.iter().map(|p| (p.created, p.wire_bytes)))
}

/// The link of a run while it is up. Beside TCP, where a congestion control sets the rate, and behind a
/// line that a trace opens, nobody knows what the media could have had.
fn link(point: &Point, run: &Run) -> Option<Link> {
    if point.tcp > 0 || point.control != Control::None || point.trace.is_some() {
        return None;
    }
    let owd = (run.owd_ms * 1e6).round() as u64;
    Some(match point.bottleneck {
        Bottleneck::Sender | Bottleneck::Line => Link::of_path(run.rate, owd),
        Bottleneck::Router => Link::of_bucket(run.rate, owd, topology::ROUTER_BURST.into()),
    })
}

/// The packets of ADUs that begin after the part of a run that is discarded, and their
/// places in `schedule`. What came before only takes from them, so their bound is one;
/// and a few of the first may count as false drops though what came before was in the way.
fn judged(schedule: Schedule, discard: u64) -> (Schedule, Vec<usize>) {
    let mut begins = BTreeMap::new();
    for packet in &schedule.packets {
        begins.entry(packet.adu).or_insert(packet.at);
    }
    let counts = |adu: u32| begins.get(&adu).is_some_and(|&at| at >= discard);
    let all = schedule.packets.into_iter().enumerate();
    let (places, packets) = all.filter(|(_, packet)| counts(packet.adu)).unzip();
    let duration = schedule.duration;
    (Schedule { packets, duration }, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, Packet};

    #[test]
    fn judged_adu_is_whole_or_left_out() {
        let packet = |(at, adu)| Packet {
            at,
            lifetime: 100,
            class: Class::Video,
            priority: Class::Video.priority(),
            stream: 0,
            adu,
            last: false,
            wire_bytes: 100,
            recorded: None,
        };
        let schedule = Schedule {
            packets: [(0, 0), (9, 1), (10, 2), (11, 1), (12, 2)]
                .map(packet)
                .into(),
            duration: 20,
        };
        let (left, places) = judged(schedule.clone(), 10);
        assert!(left.packets.iter().all(|packet| packet.adu == 2));
        assert_eq!(places, [2, 4]);
        assert_eq!(judged(schedule.clone(), 0), (schedule, vec![0, 1, 2, 3, 4]));
    }
}
