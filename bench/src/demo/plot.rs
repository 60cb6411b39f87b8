//! Delay over time, one panel per run, as SVG. The scale is logarithmic: what
//! matters is how often the deadline a delay is.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Plan, Queue, Run};

const SIZE: (u32, u32) = (1500, 560);
const HEAD: u32 = 64;
/// Lowest delay drawn, ms: below the link's own.
const LOWEST_MS: f64 = 30.0;
/// Highest, ms: a full FIFO of 1000 packets is about 10 s.
const HIGHEST_MS: f64 = 20_000.0;

const AUDIO: RGBColor = RGBColor(0xd6, 0x45, 0x00);
const VIDEO: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const FAINT: RGBColor = RGBColor(0x6e, 0x77, 0x81);
const GRID: RGBColor = RGBColor(0xe6, 0xe9, 0xec);
const LATE: RGBColor = RGBColor(0xfb, 0xf1, 0xee);
const FONT: &str = "sans-serif";

pub(super) fn draw(plan: &Plan, runs: &[Run], file: &Path) -> Result<()> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        picture(&root, plan, runs).map_err(|error| anyhow!("drawing the plot: {error}"))?;
    }
    fs::write(file, svg).with_context(|| format!("writing {}", file.display()))
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn text(size: u32, colour: &RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    let mut style = TextStyle::from((FONT, size).into_font());
    style.color = colour.to_backend_color();
    style.pos(Pos::new(h, v))
}

fn picture(root: &Area<'_>, plan: &Plan, runs: &[Run]) -> Drawn {
    root.fill(&WHITE)?;
    let (head, panels) = root.split_vertically(HEAD);
    let title = format!(
        "{:.1} Mbit/s of video and {:.0} kbit/s of audio over a link of {:.1} Mbit/s and {} ms",
        plan.media.video_kbit_s / 1e3,
        plan.media.audio_kbit_s,
        plan.rate_bit as f64 / 1e6,
        plan.delay_ms
    );
    head.draw(&Text::new(
        title,
        (24, 16),
        text(21, &INK, HPos::Left, VPos::Top),
    ))?;
    legend(&head)?;

    // The first panel is wider by the labels of the shared scale.
    let scale = 64;
    let width = (SIZE.0 as i32 - scale - 16) / runs.len().max(1) as i32;
    let mut rest = panels;
    for (index, run) in runs.iter().enumerate() {
        let labelled = index == 0;
        let (panel, others) = rest.split_horizontally(width + if labelled { scale } else { 0 });
        draw_panel(&panel, plan, run, labelled)?;
        rest = others;
    }
    root.present()?;
    Ok(())
}

fn legend(head: &Area<'_>) -> Drawn {
    let style = || text(14, &FAINT, HPos::Left, VPos::Center);
    let right = SIZE.0 as i32;
    let middle = 28;
    for (x, colour, words) in [
        (right - 560, AUDIO, "audio packet"),
        (right - 440, VIDEO, "video frame, complete"),
    ] {
        head.draw(&Circle::new((x, middle), 4, colour.filled()))?;
        head.draw(&Text::new(words, (x + 11, middle), style()))?;
    }
    let x = right - 262;
    for (offset, colour) in [(0, AUDIO), (7, VIDEO)] {
        let tick = [(x + offset, middle - 6), (x + offset, middle + 6)];
        head.draw(&PathElement::new(tick, colour.stroke_width(2)))?;
    }
    head.draw(&Text::new(
        "never sent, or frame incomplete",
        (x + 18, middle),
        style(),
    ))?;
    Ok(())
}

fn draw_panel(panel: &Area<'_>, plan: &Plan, run: &Run, labelled: bool) -> Drawn {
    let seconds = f64::from(plan.media.seconds);
    // Below the scale, on the same logarithmic axis, two strips for what was lost.
    let floor = LOWEST_MS / 2.1;
    let mut chart = ChartBuilder::on(panel)
        .margin_right(14)
        .margin_left(if labelled { 0 } else { 8 })
        .margin_bottom(6)
        .set_label_area_size(LabelAreaPosition::Left, if labelled { 72 } else { 0 })
        .set_label_area_size(LabelAreaPosition::Bottom, 40)
        .set_label_area_size(LabelAreaPosition::Top, 34)
        .build_cartesian_2d(0.0..seconds, (floor..HIGHEST_MS).log_scale())?;
    let area = chart.plotting_area();

    let late_from = plan.video_lifetime_ms as f64;
    area.draw(&Rectangle::new(
        [(0.0, late_from), (seconds, HIGHEST_MS)],
        LATE.filled(),
    ))?;
    for level in [100.0, 1_000.0, 10_000.0] {
        area.draw(&PathElement::new(
            [(0.0, level), (seconds, level)],
            GRID.stroke_width(1),
        ))?;
    }
    area.draw(&PathElement::new(
        [(0.0, LOWEST_MS), (seconds, LOWEST_MS)],
        GRID.stroke_width(1),
    ))?;

    let trace = &run.figures.trace;
    for (points, colour, radius) in [(&trace.frames, VIDEO, 2), (&trace.audio, AUDIO, 1)] {
        for &(at, delay) in points {
            let y = delay.clamp(LOWEST_MS, HIGHEST_MS);
            area.draw(&Circle::new(
                (at.min(seconds), y),
                radius,
                colour.mix(0.75).filled(),
            ))?;
        }
    }
    let strips = [
        (&trace.audio_lost, AUDIO, 0.80, 0.94),
        (&trace.frames_lost, VIDEO, 0.55, 0.75),
    ];
    for (lost, colour, low, high) in strips {
        for &at in lost {
            let tick = [
                (at.min(seconds), LOWEST_MS * low),
                (at.min(seconds), LOWEST_MS * high),
            ];
            area.draw(&PathElement::new(tick, colour.mix(0.8).stroke_width(1)))?;
        }
    }

    for (lifetime_ms, colour, words) in [
        (plan.audio_lifetime_ms, AUDIO, "audio"),
        (plan.video_lifetime_ms, VIDEO, "video"),
    ] {
        let y = lifetime_ms as f64;
        let dash = seconds / 60.0;
        for index in 0..60 {
            let from = dash * f64::from(index);
            let line = [(from, y), (from + dash * 0.55, y)];
            area.draw(&PathElement::new(line, colour.stroke_width(1)))?;
        }
        if labelled {
            // One above its line, one below: the lines are close.
            let (v, shift) = if words == "video" {
                (VPos::Bottom, 1.04)
            } else {
                (VPos::Top, 0.96)
            };
            let label = format!("{words}: of use for {lifetime_ms} ms");
            let style = text(13, &colour, HPos::Right, v);
            area.draw(&Text::new(label, (seconds * 0.985, y * shift), style))?;
        }
    }
    axes(panel, &mut chart, run, plan, labelled)
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, LogCoord<f64>>,
>;

fn axes(
    panel: &Area<'_>,
    chart: &mut Chart<'_, '_>,
    run: &Run,
    plan: &Plan,
    labelled: bool,
) -> Drawn {
    let (xs, ys) = chart.plotting_area().get_pixel_range();
    let origin = panel.get_base_pixel();
    let (left, right) = (xs.start - origin.0, xs.end - origin.0);
    let bottom = ys.end - origin.1;

    let name = match (&run.mode, run.queue) {
        (None, _) => format!("Plain FIFO of {} packets", plan.fifo_packets),
        (Some(mode), Queue::BestbyMarkedFrames) => format!("bestby ({mode}), frames marked"),
        (Some(mode), _) => format!("bestby ({mode})"),
    };
    panel.draw(&Text::new(
        name,
        (left, 4),
        text(17, &INK, HPos::Left, VPos::Top),
    ))?;
    let figures = &run.figures;
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let result = format!(
        "on time: audio {:.0} %, frames {:.0} %",
        percent(figures.audio.on_time, figures.audio.offered),
        percent(figures.frames.on_time, figures.frames.offered)
    );
    panel.draw(&Text::new(
        result,
        (right, 8),
        text(13, &FAINT, HPos::Right, VPos::Top),
    ))?;

    let seconds = plan.media.seconds;
    let step = (seconds / 4).max(1);
    for at in (0..=seconds).step_by(step as usize) {
        let x = left + ((right - left) as f64 * f64::from(at) / f64::from(seconds)) as i32;
        // The panels are close: no label may reach beyond its own.
        let h = match at {
            0 => HPos::Left,
            at if at == seconds => HPos::Right,
            _ => HPos::Center,
        };
        let style = text(13, &FAINT, h, VPos::Top);
        panel.draw(&Text::new(format!("{at} s"), (x, bottom + 6), style))?;
    }
    if labelled {
        for (level, words) in [
            (40.0, "40 ms"),
            (100.0, "100 ms"),
            (1_000.0, "1 s"),
            (10_000.0, "10 s"),
        ] {
            let y = chart.backend_coord(&(0.0, level)).1 - origin.1;
            let style = text(13, &FAINT, HPos::Right, VPos::Center);
            panel.draw(&Text::new(words, (left - 8, y), style))?;
        }
        let y = chart.backend_coord(&(0.0, LOWEST_MS * 0.72)).1 - origin.1;
        let style = text(13, &FAINT, HPos::Right, VPos::Center);
        panel.draw(&Text::new("lost", (left - 8, y), style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::{
        account::{Figures, Trace},
        media::{Decoded, Media},
    };

    #[test]
    fn every_point_and_every_loss_is_drawn() {
        let media = Media {
            file: "m".into(),
            seconds: 10,
            frames: 250,
            video_kbit_s: 2000.0,
            audio_kbit_s: 96.0,
            encoder: String::new(),
        };
        let plan = Plan {
            rate_bit: 1_000_000,
            delay_ms: 40,
            audio_lifetime_ms: 200,
            video_lifetime_ms: 300,
            fifo_packets: 1000,
            queues: vec![Queue::Fifo, Queue::Bestby],
            media,
        };
        let run = |queue, mode: Option<&str>, trace| Run {
            queue,
            mode: mode.map(str::to_owned),
            figures: Figures {
                trace,
                ..Figures::default()
            },
            decoded: Decoded::default(),
            signalling_ms: None,
            learnt_owd_ms: None,
            refused: 0,
            link_by: String::new(),
            link_late_ms: None,
            agent: None,
            kernel: String::new(),
        };
        // Beyond the scale: drawn at its edge, not left out.
        let fifo = Trace {
            audio: vec![(0.0, 41.0), (9.0, 1e9)],
            ..Trace::default()
        };
        let ours = Trace {
            frames: vec![(1.0, 120.0)],
            frames_lost: vec![2.0, 3.0],
            ..Trace::default()
        };
        let runs = [
            run(Queue::Fifo, None, fifo),
            run(Queue::Bestby, Some("tc"), ours),
        ];
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("plot.svg");
        draw(&plan, &runs, &file).unwrap();
        let svg = fs::read_to_string(&file).unwrap();
        assert_eq!(
            svg.matches("<circle").count(),
            3 + 2,
            "3 points and 2 in the legend"
        );
        assert!(svg.contains("Plain FIFO of 1000 packets") && svg.contains("bestby (tc)"));
        assert!(!svg.contains("NaN"));

        let error = draw(&plan, &runs, Path::new("/no/such/directory/x.svg")).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/directory/x.svg"));
    }
}
