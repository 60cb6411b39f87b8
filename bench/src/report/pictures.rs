//! Finds what a decoder makes of the runs of real media. It needs no run, only what a run
//! left behind, so it is done after them: on the host, where it takes no time of a VM's.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::{
    records,
    series::summary::{ScenarioSummary, Summary},
    traffic::{Model, media},
};

/// Gives its pictures to every run of real media that has none; returns whether any was
/// given. Missing records are said on stderr.
pub fn fill(summary: &mut Summary, dir: &Path) -> Result<bool> {
    let mut any = false;
    for scenario in &mut summary.scenarios {
        let name = scenario.name.clone();
        any |= fill_scenario(scenario, dir)
            .with_context(|| format!("decoding the media of the scenario `{name}`"))?;
    }
    Ok(any)
}

fn fill_scenario(scenario: &mut ScenarioSummary, dir: &Path) -> Result<bool> {
    let seconds = scenario.seconds.round() as u64;
    let mut missing = 0;
    let mut any = false;
    for cell in &mut scenario.cells {
        let Model::Media(parameters) = cell.point.model()? else {
            continue;
        };
        for run in &mut cell.runs {
            if run.measures.picture.is_some() {
                continue;
            }
            let file = dir.join(&run.records);
            if !file.is_file() {
                missing += 1;
                continue;
            }
            let (rows, _) = records::read(&file)?;
            let on_time: Vec<bool> = rows.iter().map(records::Row::on_time).collect();
            let from = scenario.discard_first;
            let picture = media::judge(&parameters, seconds, run.seed, &on_time, from)
                .with_context(|| format!("{} run {}", cell.id, run.number))?;
            run.measures.picture = Some(picture);
            any = true;
        }
    }
    if missing > 0 {
        note!(
            "{}: no records are there of {}: the pictures stay unknown",
            scenario.name,
            crate::say::count(missing, "run")
        );
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        records::Row,
        report::html::tests::{cell, scenario},
        series::summary,
        traffic::{Class, media::Parameters},
    };

    #[test]
    fn runs_of_media_are_decoded_and_others_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut media_cell = cell(&[], "bestby qdisc triage", &[90, 80]);
        for (name, value) in [
            ("width", 160),
            ("height", 90),
            ("fps", 10),
            ("video_kbit", 200),
        ] {
            media_cell.point.traffic.insert(name.into(), value.into());
        }
        let directory = dir.path().to_str().expect("UTF-8");
        for (name, value) in [("model", "media"), ("directory", directory)] {
            media_cell.point.traffic.insert(name.into(), value.into());
        }
        let Model::Media(Parameters { width: 160, .. }) =
            media_cell.point.model().expect("a model")
        else {
            panic!("not real media");
        };
        // Of two runs the second left records, in which audio alone arrived.
        let schedule = media_cell.point.schedule(20, 2).expect("media");
        let rows: Vec<Row> = (0..)
            .zip(&schedule.packets)
            .map(|(sequence, p)| Row {
                sequence,
                class: p.class,
                stream: p.stream,
                adu: p.adu,
                last: p.last,
                wire_bytes: p.wire_bytes,
                created: p.at,
                deadline: p.at + p.lifetime,
                arrived: (p.class == Class::Audio).then_some(p.at + 1),
            })
            .collect();
        media_cell.runs[1].records = "1.parquet".into();
        records::write(&dir.path().join("1.parquet"), &rows, &Vec::new()).expect("records");
        let mut summary = Summary {
            format: summary::FORMAT,
            scenarios: vec![scenario(&[], vec![media_cell, cell(&[], "fq", &[50])])],
        };
        assert!(fill(&mut summary, dir.path()).expect("pictures"));
        let cells = &summary.scenarios[0].cells;
        assert_eq!(cells[0].runs[0].measures.picture, None, "no records");
        let picture = cells[0].runs[1].measures.picture.expect("pictures");
        assert_eq!((picture.pictures, picture.decoded), (170, 0));
        assert!(picture.ssim == 0.0 && picture.ssim_undisturbed > 0.5);
        assert_eq!(cells[1].runs[0].measures.picture, None);
        assert!(!fill(&mut summary, dir.path()).expect("nothing to do"));
    }
}
