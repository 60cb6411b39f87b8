//! The demo's result for people.

use super::{AUDIO_LIFETIME, DELAY, RATE, Report, VIDEO_LIFETIME};
use crate::{
    measure::{Delay, Measures},
    sys::MILLI,
    table::Table,
    traffic::media::Picture,
};

/// A table with a column for each run, and what its words mean.
pub(super) fn text(report: &Report) -> String {
    let names = report.runs.iter().map(|run| run.queue.name());
    let head: Vec<&str> = [""].into_iter().chain(names).collect();
    let mut table = Table::new(&head);
    let mut row = |name: &str, cell: fn(&Measures) -> String| {
        let cells = report.runs.iter().map(|run| cell(&run.measures));
        table.row([name.to_owned()].into_iter().chain(cells).collect());
    };
    row("audio packets on time", |m| share(m.audio));
    row("video packets on time", |m| share(m.video));
    row("complete video frames on time", |m| share(m.frames));
    row("frames ffmpeg decodes of these", |m| {
        share([picture(m).pictures, picture(m).decoded])
    });
    row("  exactly as they were encoded", |m| {
        share([picture(m).pictures, picture(m).intact])
    });
    row("  at most, by who knows the future", |m| {
        let most = picture(m).intact_bound;
        most.map_or_else(String::new, |most| share([picture(m).pictures, most]))
    });
    row("longest freeze", |m| {
        format!("{:.0} ms", picture(m).longest_freeze_ms)
    });
    row("likeness to the source (SSIM)", |m| {
        format!(
            "{:.2} of {:.2}",
            picture(m).ssim,
            picture(m).ssim_undisturbed
        )
    });
    row("wasted kB of video, of what was sent", |m| {
        share([picture(m).sent_bytes, picture(m).wasted_bytes].map(|bytes| bytes / 1000))
    });
    row("stale packets sent", |m| share([m.sent, m.stale_arrivals]));
    row("packets never sent", |m| share([m.sent, m.dropped]));
    row("audio delay p50 / p99", |m| delay(m.audio_delay));
    row("video delay p50 / p99", |m| delay(m.video_delay));

    format!(
        "{}\n\
         Offered: {:.2} Mbit/s of H.264 and Opus. The link: {} kbit/s, {} ms one way. \
         Measured on {}.\n\
         On time: within {AUDIO_LIFETIME} ms (audio) or {VIDEO_LIFETIME} ms (video frame) of \
         sending. Stale packets arrived after that, and took the place of fresh ones.\n\
         Wasted: of frames that nobody can decode, late ones or such as need a frame that is not there.\n\
         Packets marked: the application says what other frames lose with a packet.\n",
        table.render(),
        report.offered / 1e6,
        RATE / 1000,
        DELAY / MILLI,
        places(report),
    )
}

/// "Linux 6.18.44 (AMD EPYC): plain FIFO, mode tc; Linux 7.3.4 (VM in virtual time): mode qdisc".
fn places(report: &Report) -> String {
    let mut places: Vec<(String, Vec<&str>)> = Vec::new();
    for run in &report.runs {
        let place = format!("Linux {} ({})", run.kernel, run.machine);
        let what = run.mode.as_deref().unwrap_or("FIFO");
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, all)) if all.contains(&what) => {}
            Some((_, all)) => all.push(what),
            None => places.push((place, vec![what])),
        }
    }
    let places = places
        .into_iter()
        .map(|(place, what)| format!("{place}: {}", what.join(", ")));
    places.collect::<Vec<_>>().join("; ")
}

fn picture(measures: &Measures) -> Picture {
    measures.picture.unwrap_or_default()
}

/// "12 of 750    1.6 %", aligned by its right end.
fn share([of, part]: [u64; 2]) -> String {
    format!(
        "{part} of {of}  {:5.1} %",
        part as f64 * 100.0 / of.max(1) as f64
    )
}

fn delay(delay: Delay) -> String {
    format!("{:.0} / {:.0} ms", delay.p50, delay.p99)
}
