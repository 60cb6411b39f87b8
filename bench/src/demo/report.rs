//! The demo's result as a table for people and as JSON for programs. Pure.

use serde_json::{Value, json};

use super::{
    Plan, Queue, Run,
    account::{Delay, Packets},
};

/// The table, ready to print.
pub fn table(plan: &Plan, runs: &[Run]) -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    let mut row = |name: &str, cell: &dyn Fn(&Run) -> String| {
        rows.push((name.to_owned(), runs.iter().map(cell).collect()));
    };
    row("", &|r| head(r, plan)[0].clone());
    row("", &|r| head(r, plan)[1].clone());
    row("audio packets on time", &|r| on_time(&r.figures.audio));
    row("video packets on time", &|r| on_time(&r.figures.video));
    row("complete video frames on time", &|r| {
        share(r.figures.frames.on_time, r.figures.frames.offered)
    });
    row("frames ffmpeg decodes of these", &|r| {
        share(r.decoded.frames, r.figures.frames.offered)
    });
    row("  exactly as they were encoded", &|r| {
        share(r.decoded.intact, r.figures.frames.offered)
    });
    row("stale packets sent", &|r| {
        let stale = r.figures.audio.stale + r.figures.video.stale;
        share(stale, r.figures.audio.offered + r.figures.video.offered)
    });
    row("packets never sent", &|r| {
        let dropped = r.figures.audio.dropped + r.figures.video.dropped;
        share(dropped, r.figures.audio.offered + r.figures.video.offered)
    });
    row("audio delay p50 / p99", &|r| {
        delay(r.figures.audio.delay_ms)
    });
    row("video delay p50 / p99", &|r| {
        delay(r.figures.video.delay_ms)
    });
    row("signalling round trip p50 / p99", &|r| {
        delay(r.signalling_ms)
    });

    let first = rows
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let widths: Vec<usize> = (0..runs.len())
        .map(|i| {
            rows.iter()
                .map(|(_, cells)| cells[i].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (index, (name, cells)) in rows.iter().enumerate() {
        text.push_str(&format!("{name:<first$}"));
        for (cell, width) in cells.iter().zip(&widths) {
            text.push_str(&format!("   {cell:>width$}"));
        }
        text.push('\n');
        if index == 1 {
            let width = first + widths.iter().map(|w| w + 3).sum::<usize>();
            text.push_str(&"─".repeat(width));
            text.push('\n');
        }
    }
    text
}

/// What the table's words mean.
pub fn legend(plan: &Plan, runs: &[Run]) -> String {
    let learnt = runs
        .iter()
        .find_map(|r| r.learnt_owd_ms)
        .map_or_else(String::new, |ms| {
            format!("; bestby learnt {ms:.1} ms from the signalling connection (TCP)")
        });
    let media = &plan.media;
    format!(
        "Offered: H.264 {:.2} Mbit/s, {} frames in {} s, and Opus {:.0} kbit/s. The link: {:.1} Mbit/s, {} ms one way{learnt}.\n\
         On time: at the client within {} ms (audio) or {} ms (video frame) of its arrival at the relay.\n\
         Stale packets sent: arrived after that, and took the place of fresh ones. Delay: of packets that arrived.\n\
         Decodes: only frames that were complete and on time went to ffmpeg; exactly: MD5 of the picture as encoded.\n\
         Frames marked: the relay sets DSCP AF43 on frames that no other refers to (nal_ref_idc 0), AF41 on the rest; two rules for video.\n",
        media.video_kbit_s / 1e3,
        media.frames,
        media.seconds,
        media.audio_kbit_s,
        plan.rate_bit as f64 / 1e6,
        plan.delay_ms,
        plan.audio_lifetime_ms,
        plan.video_lifetime_ms,
    )
}

/// Everything measured, with what is needed to measure it again.
pub fn json(plan: &Plan, runs: &[Run], command: &str, commit: Option<&str>) -> Value {
    json!({
        "command": command,
        "commit": commit,
        "kernel": runs.first().map(|r| &r.kernel),
        "link": { "rate_bit_s": plan.rate_bit, "delay_ms": plan.delay_ms },
        "lifetime_ms": { "audio": plan.audio_lifetime_ms, "video": plan.video_lifetime_ms },
        "fifo_packets": plan.fifo_packets,
        "media": {
            "seconds": plan.media.seconds,
            "frames": plan.media.frames,
            "video_kbit_s": plan.media.video_kbit_s,
            "audio_kbit_s": plan.media.audio_kbit_s,
            "encoder": plan.media.encoder,
        },
        "runs": runs,
    })
}

fn head(run: &Run, plan: &Plan) -> [String; 2] {
    match (&run.mode, run.queue) {
        (Some(mode), Queue::BestbyMarkedFrames) => {
            ["bestby".into(), format!("mode {mode}, frames marked")]
        }
        (Some(mode), _) => ["bestby".into(), format!("mode {mode}")],
        (None, _) => [
            "plain FIFO".into(),
            format!("{} packets", plan.fifo_packets),
        ],
    }
}

fn on_time(packets: &Packets) -> String {
    share(packets.on_time, packets.offered)
}

/// "12 of 750   1.6 %", aligned by its right end.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".into();
    }
    format!(
        "{part} of {whole}  {:5.1} %",
        part as f64 * 100.0 / whole as f64
    )
}

fn delay(delay: Option<Delay>) -> String {
    delay.map_or_else(
        || "-".into(),
        |d| format!("{} / {}", milliseconds(d.p50), milliseconds(d.p99)),
    )
}

fn milliseconds(ms: f64) -> String {
    if ms < 10_000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.1} s", ms / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells() {
        assert_eq!(share(1, 4), "1 of 4   25.0 %");
        assert_eq!(share(0, 0), "-");
        assert_eq!(
            delay(Some(Delay {
                p50: 41.4,
                p99: 12_300.0
            })),
            "41 ms / 12.3 s"
        );
        assert_eq!(delay(None), "-");
    }
}
