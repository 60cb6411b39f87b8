//! What a decoder makes of the runs of real media. It needs no run, only what a run left
//! behind, so it is done after them: on the host, where it takes no time of a VM's. It is
//! kept in the run's own file, so an interrupted series goes on with the next run.

use anyhow::{Context as _, Result, ensure};

use super::{job::jobs, store::Store, summary::RunSummary};
use crate::{
    decoder,
    records::{self, Row},
    say::count,
    scenario::{Scenario, cell::Cell},
    traffic::{
        Model, Schedule,
        media::{self, Parameters, Picture},
    },
};

/// Gives its pictures to every finished run of real media that has none. Where that cannot
/// be, they stay unknown, and stderr says why.
pub(super) fn fill(store: &Store, scenario: &Scenario, repetitions: u32) -> Result<()> {
    let mut left = Vec::new();
    let mut gone = 0;
    for job in jobs(scenario, repetitions, &[]) {
        let Model::Media(parameters) = job.cell.point.model()? else {
            continue;
        };
        let Some(run) = store.run(&job.cell.id, job.number)? else {
            continue;
        };
        if run.measures.picture.is_some() {
            continue;
        }
        if store.path(&run.records).is_file() {
            left.push((job.cell, parameters, run));
        } else {
            gone += 1;
        }
    }
    let name = &scenario.name;
    if gone > 0 {
        note!(
            "{name}: no records are there of {}: the pictures stay unknown",
            count(gone, "run")
        );
    }
    if left.is_empty() {
        return Ok(());
    }
    if !decoder::is_here() {
        note!(
            "{name}: there is no ffmpeg to decode the media of {}: the pictures stay unknown; \
             install it (Debian: apt install ffmpeg), then `bestby-lab report` decodes them",
            count(left.len(), "run")
        );
        return Ok(());
    }
    note!("{name}: decoding the media of {}", count(left.len(), "run"));
    for (cell, parameters, mut run) in left {
        let picture = picture(store, scenario, cell, &parameters, &run).with_context(|| {
            format!(
                "decoding the media of {name} {} run {}",
                cell.id, run.number
            )
        })?;
        run.measures.picture = Some(picture);
        store.keep(&cell.id, &run)?;
    }
    Ok(())
}

fn picture(
    store: &Store,
    scenario: &Scenario,
    cell: &Cell,
    parameters: &Parameters,
    run: &RunSummary,
) -> Result<Picture> {
    let (rows, _) = records::read(&store.path(&run.records))?;
    let schedule = cell.point.schedule(scenario.seconds, run.seed)?;
    ensure!(
        are_of(&rows, &schedule),
        "its records are not of the media in {}, which were made anew since: remove the run's \
         .json to make it again",
        parameters.directory.display()
    );
    let on_time: Vec<bool> = rows.iter().map(Row::on_time).collect();
    media::judge(
        parameters,
        scenario.seconds,
        run.seed,
        &on_time,
        scenario.discard_first,
    )
}

/// Another ffmpeg encodes the same pictures to other packets.
fn are_of(rows: &[Row], schedule: &Schedule) -> bool {
    let packets = &schedule.packets;
    rows.len() == packets.len()
        && rows
            .iter()
            .zip(packets)
            .all(|(row, packet)| (row.created, row.wire_bytes) == (packet.at, packet.wire_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        series::{
            store::{IfChanged, Series},
            summary,
            tests::{here, made_up, scenario},
        },
        traffic::Class,
    };

    /// Of every packet: whether it arrived.
    fn rows(schedule: &Schedule, arrived: impl Fn(&crate::traffic::Packet) -> bool) -> Vec<Row> {
        (0..)
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
                arrived: arrived(p).then_some(p.at + 1),
            })
            .collect()
    }

    #[test]
    fn each_run_is_decoded_once_and_what_cannot_be_stays_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = format!(
            r#"
title = "t"
seed = 2
repetitions = 4
seconds = 4
discard_first = 1
queues = ["pfifo 5"]
[topology]
rate = "253kbit"
owd = 5
[traffic]
model = "media"
width = 160
height = 90
fps = 10
video_kbit = 200
directory = "{}"
"#,
            directory.path().display()
        );
        let scenario = scenario(directory.path(), &text);
        let root = directory.path().join("out");
        let series = Series::here(here(), 4).expect("a series");
        let store = Store::open(&root, &scenario, &series, IfChanged::Refuse).expect("a store");
        let cell = &scenario.cells[0];
        store.prepare(&cell.id).expect("room");
        let keep = |number: u32, arrived: fn(&crate::traffic::Packet) -> bool| {
            let mut run = made_up(number, 2 + u64::from(number));
            let schedule = cell.point.schedule(4, run.seed).expect("media");
            run.records = store.records(&cell.id, number);
            let rows = rows(&schedule, arrived);
            records::write(&store.path(&run.records), &rows, &Vec::new()).expect("records");
            store.keep(&cell.id, &run).expect("kept");
        };
        keep(0, |_| true);
        keep(1, |p| p.class == Class::Audio);
        keep(2, |p| p.class == Class::Audio || p.priority != 3);
        // The last run left no records.
        store.keep(&cell.id, &made_up(3, 5)).expect("kept");

        let read = |number| store.run(&cell.id, number).expect("a run").expect("there");
        fill(&store, &scenario, 4).expect("decoded");
        let picture = |number| read(number).measures.picture;
        let whole = picture(0).expect("pictures");
        assert_eq!((whole.pictures, whole.decoded, whole.intact), (30, 30, 30));
        assert_eq!(whole.ssim, whole.ssim_undisturbed);
        let none = picture(1).expect("pictures");
        assert_eq!((none.pictures, none.decoded, none.ssim), (30, 0, 0.0));
        assert!(none.ssim_undisturbed > 0.5, "{none:?}");
        let no_key = picture(2).expect("pictures");
        assert_eq!(no_key.intact, 0, "{no_key:?}");
        assert_eq!(picture(3), None, "no records");

        // What is known is not decoded again, and reports have it from the runs' files.
        let mut run = read(1);
        run.measures.picture = Some(Picture { decoded: 7, ..none });
        store.keep(&cell.id, &run).expect("kept");
        fill(&store, &scenario, 4).expect("nothing to do");
        assert_eq!(picture(1).expect("pictures").decoded, 7);

        // Records of other packets than those of the recording are refused.
        run.measures.picture = None;
        store.keep(&cell.id, &run).expect("kept");
        let mut other = rows(&cell.point.schedule(4, run.seed).expect("media"), |_| true);
        other[0].wire_bytes += 1;
        records::write(&store.path(&run.records), &other, &Vec::new()).expect("records");
        let error = summary::gather(&root).expect_err("refused");
        assert!(format!("{error:#}").contains("were made anew"), "{error:#}");
    }
}
