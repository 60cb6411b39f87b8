//! Finds, for the runs of a summary, what no queue could have beaten, what was given up
//! without need, and what a decoder makes of real media. It needs no run, only what a run left behind, so it is done after
//! them: on the host, where it takes no time of a VM's.

use std::{
    collections::{HashMap, hash_map::Entry},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    bound::Link,
    measure::Limit,
    records,
    scenario::cell::{Bottleneck, Point},
    series::summary::{ScenarioSummary, Summary},
    sys::{MILLI, SECOND},
    traffic::{Model, Schedule, media},
};

/// Gives a [`Limit`] to every run that has none and can have one, and real media their
/// pictures; returns whether any was given. Records that are missing leave false drops
/// and pictures open, which is said on stderr.
pub fn fill(summary: &mut Summary, dir: &Path) -> Result<bool> {
    let mut any = false;
    for scenario in &mut summary.scenarios {
        let name = scenario.name.clone();
        any |= fill_scenario(scenario, dir)
            .with_context(|| format!("finding the bounds of the scenario `{name}`"))?;
    }
    Ok(any)
}

/// Whether the queue under test has the link to itself at a rate that is known.
fn is_bounded(point: &Point) -> bool {
    point.bottleneck == Bottleneck::Sender && point.stall.is_none()
}

struct Known {
    schedule: Schedule,
    link: Link,
    /// Absent where the link is shared or stands still.
    limit: Option<Limit>,
}

fn fill_scenario(scenario: &mut ScenarioSummary, dir: &Path) -> Result<bool> {
    let seconds = scenario.seconds.round() as u64;
    let discard = (scenario.discard_first * SECOND as f64).round() as u64;
    let mut missing = 0;
    let mut any = false;
    // By all that schedule and link depend on: one bound for all queues of a point.
    let mut known: HashMap<(String, bool, u64, u64, u64), Known> = HashMap::new();
    for cell in &mut scenario.cells {
        let point = &cell.point;
        let bounded = is_bounded(point);
        let media = match point.model()? {
            Model::Media(parameters) => Some(parameters),
            _ => None,
        };
        let traffic = serde_json::to_string(&(&point.traffic, &point.lifetime))?;
        for run in &mut cell.runs {
            let measures = &mut run.measures;
            let wants_limit = bounded && measures.limit.is_none();
            let wants_picture = media.is_some() && measures.picture.is_none();
            if !wants_limit && !wants_picture {
                continue;
            }
            let owd = (run.owd_ms * MILLI as f64).round() as u64;
            let known = match known.entry((traffic.clone(), bounded, run.seed, run.rate, owd)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => {
                    let schedule = point.schedule(seconds, run.seed)?;
                    let link = Link::of_path(run.rate, owd);
                    let limit = bounded.then(|| Limit::of(&schedule, &link, discard));
                    place.insert(Known {
                        schedule,
                        link,
                        limit,
                    })
                }
            };
            if wants_limit {
                measures.limit = known.limit;
                any = true;
            }
            let file = dir.join(&run.records);
            if !file.is_file() {
                missing += 1;
                continue;
            }
            let (rows, _) = records::read(&file)?;
            ensure!(
                rows.len() == known.schedule.packets.len(),
                "{} has {} packets, its seed now makes {}: another version of the lab made it",
                file.display(),
                rows.len(),
                known.schedule.packets.len()
            );
            let on_time: Vec<bool> = rows.iter().map(records::Row::on_time).collect();
            if let (true, Some(limit)) = (wants_limit, &mut measures.limit) {
                limit.count_false_drops(&known.schedule, &on_time, &known.link);
            }
            if let (true, Some(parameters)) = (wants_picture, &media) {
                let from = scenario.discard_first;
                let picture = media::judge(parameters, seconds, run.seed, &on_time, from)?;
                measures.picture = Some(picture);
                any = true;
            }
        }
    }
    if missing > 0 {
        eprintln!(
            "{}: the records of {missing} runs are not there: their false drops and pictures \
             stay unknown",
            scenario.name
        );
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::html::tests::{cell, scenario},
        scenario::{cell::Stall, value::Millis},
        series::summary,
    };

    fn conference(stall: bool) -> Summary {
        let mut cell = cell(&[], "bestby qdisc triage", &[90, 80]);
        cell.point.stall = stall.then_some(Stall {
            at: Millis(1.0),
            length: Millis(2.0),
        });
        Summary {
            format: summary::FORMAT,
            scenarios: vec![scenario(&[], vec![cell])],
        }
    }

    #[test]
    fn runs_get_the_bound_of_their_own_traffic() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut summary = conference(false);
        assert!(fill(&mut summary, dir.path()).expect("bounds"));
        let runs = &summary.scenarios[0].cells[0].runs;
        let [first, second] = [&runs[0], &runs[1]].map(|run| run.measures.limit.expect("a bound"));
        // 17 s of 50 audio packets, all of which fit; 170 frames, which do not at 253 kbit/s.
        assert_eq!((first.audio, first.offered), (850, 1200));
        assert!((60..150).contains(&first.frames), "{first:?}");
        assert_ne!(first, second, "their seeds differ");
        assert_eq!(first.false_drops, None, "no records");
        assert!(!fill(&mut summary, dir.path()).expect("nothing to do"));
    }

    #[test]
    fn a_link_that_stands_still_has_no_bound_here() {
        let mut summary = conference(true);
        assert!(!fill(&mut summary, Path::new("/nowhere")).expect("nothing"));
    }
}
