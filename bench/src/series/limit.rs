//! What the runs of a scenario are held against: the clairvoyant bound of each
//! schedule, worked out once for all queues and kept, and each run's false drops.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result};

use super::{
    store::{self, Store},
    summary::RunSummary,
};
use crate::{
    bound::{
        self, Bound, Departure, FalseDrops, Fate, Link,
        stall::{self, Stall},
    },
    records,
    scenario::{
        Scenario,
        cell::{Bottleneck, Cell, Control, Point},
    },
    slip,
    sys::SECOND,
    topology,
    traffic::Schedule,
};

/// The bounds of one scenario by what they depend on, as they are kept on disk.
pub(super) struct Limits {
    file: PathBuf,
    known: BTreeMap<String, Bound>,
    changed: bool,
}

impl Limits {
    /// Those worked out before.
    pub(super) fn load(store: &Store) -> Result<Self> {
        let file = store.bounds();
        Ok(Self {
            known: store::get(&file)?.unwrap_or_default(),
            file,
            changed: false,
        })
    }

    /// Keeps them.
    pub(super) fn save(self) -> Result<()> {
        if self.changed {
            store::put(&self.file, &self.known)?;
        }
        Ok(())
    }

    /// Adds to `run` its bound and its false drops, where there is such a thing: the
    /// link must have a rate that is known. Of an archived run only the bound, and
    /// only if its packets are known for certain: its records are gone.
    pub(super) fn judge(
        &mut self,
        store: &Store,
        scenario: &Scenario,
        cell: &Cell,
        run: &mut RunSummary,
    ) -> Result<()> {
        let point = &cell.point;
        let Some(way) = Way::of(point, run) else {
            return Ok(());
        };
        let is_current = |bound: Option<&Bound>| bound.is_some_and(Bound::is_current);
        let archived = run.records.is_empty();
        if archived && (is_current(run.bound.as_ref()) || !point.model()?.is_of_seed()) {
            return Ok(());
        }
        let schedule = way.shorter(point.schedule(scenario.seconds, run.seed)?);
        let discard = (scenario.discard_first * SECOND as f64).round() as u64;
        let (judged, places) = judged(&schedule, discard);
        let key = key(point, run, &way)?;
        if !is_current(self.known.get(&key)) {
            self.known.insert(key.clone(), way.bound(&judged));
            self.changed = true;
        }
        run.bound = self.known.get(&key).copied();
        // A packet that the network lost was not given up.
        if point.loss_percent.0 == 0.0 && !archived {
            run.false_drops = Some(false_drops(store, run, &judged, &places, &way)?);
        }
        Ok(())
    }
}

/// What a run's packets had to pass.
struct Way {
    link: Link,
    stall: Option<Stall>,
}

impl Way {
    /// `None` where the rate that the media could have is not known.
    fn of(point: &Point, run: &RunSummary) -> Option<Self> {
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
fn link(point: &Point, run: &RunSummary) -> Option<Link> {
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
fn key(point: &Point, run: &RunSummary, way: &Way) -> Result<String> {
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
pub(super) fn judged(schedule: &Schedule, discard: u64) -> (Schedule, Vec<usize>) {
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

fn false_drops(
    store: &Store,
    run: &RunSummary,
    judged: &Schedule,
    places: &[usize],
    way: &Way,
) -> Result<FalseDrops> {
    let (rows, _) = records::read(&store.path(&run.records))
        .context("its records are gone: remove the run's .json to make it again")?;
    let fate = |&place: &usize| match rows.get(place) {
        Some(row) if row.on_time() => Fate::OnTime,
        Some(row) if row.arrived.is_some() => Fate::Late,
        _ => Fate::Dropped,
    };
    let fates: Vec<Fate> = places.iter().map(fate).collect();
    Ok(way.false_drops(judged, &fates))
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
