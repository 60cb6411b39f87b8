//! Plots as SVG for the page. Colours are stand-ins: the page's style sheet replaces each
//! by one that suits a light or a dark page (`style.css`); every series also has a shape,
//! so that colour is never the only difference.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use crate::measure::statistics::Estimate;

pub(super) const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
pub(super) const FAINT: RGBColor = RGBColor(0x5b, 0x63, 0x6b);
pub(super) const GRID: RGBColor = RGBColor(0xdd, 0xe1, 0xe5);
pub(super) const SERIES: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x85, 0x61),
    RGBColor(0xaa, 0x44, 0x99),
    RGBColor(0x8c, 0x6d, 0x00),
    RGBColor(0x33, 0x22, 0x88),
    RGBColor(0x88, 0x22, 0x55),
    RGBColor(0x77, 0x77, 0x77),
];
const SHAPES: usize = 6;

/// Size of a panel in px, also the unit of its coordinates.
const PANEL: (u32, u32) = (380, 270);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// One line of a panel: a queue.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// Number of its colour and shape; 0 is bestby's own and drawn thicker, last, on top.
    pub(super) style: usize,
    /// One for each value of x, absent where there is none.
    pub(super) points: Vec<Option<Estimate>>,
}

/// Lines over the values of an axis.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// Above the plot.
    pub(super) title: String,
    /// Below it.
    pub(super) x_label: String,
    /// Values of the axis, evenly spaced.
    pub(super) x: Vec<String>,
    /// Range of the other axis.
    pub(super) y: Range<f64>,
    /// The queues.
    pub(super) lines: Vec<Line>,
}

/// A share that grows over x, a queue each.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    /// Above the plot.
    pub(super) title: String,
    /// Below it.
    pub(super) x_label: String,
    /// Range of x.
    pub(super) x: Range<f64>,
    /// A vertical line, with its words.
    pub(super) limit: (f64, String),
    /// Style and (x, percent) of each queue, x ascending.
    pub(super) curves: Vec<(usize, Vec<(f64, f64)>)>,
}

/// From data to px.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    x: Range<f64>,
    y: Range<f64>,
}

impl Frame {
    fn new(x: Range<f64>, y: Range<f64>) -> Self {
        Self {
            left: 44,
            right: PANEL.0 as i32 - 12,
            top: 30,
            bottom: PANEL.1 as i32 - 42,
            x,
            y,
        }
    }

    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let part = |value: f64, range: &Range<f64>| {
            ((value - range.start) / (range.end - range.start)).clamp(0.0, 1.0)
        };
        let px = self.left + (part(x, &self.x) * f64::from(self.right - self.left)).round() as i32;
        let py =
            self.bottom - (part(y, &self.y) * f64::from(self.bottom - self.top)).round() as i32;
        (px, py)
    }

    /// Title, grid of y with its labels, label of x.
    fn draw(&self, area: &Area<'_>, title: &str, x_label: &str) -> Drawn {
        area.draw(&Text::new(
            title.to_owned(),
            (self.left, 8),
            text(13, INK, HPos::Left, VPos::Top),
        ))?;
        let step = step(self.y.end - self.y.start);
        let mut level = (self.y.start / step).ceil() * step;
        while level <= self.y.end + step * 1e-9 {
            let (_, y) = self.at(self.x.start, level);
            area.draw(&PathElement::new([(self.left, y), (self.right, y)], GRID))?;
            let label = format!("{level:.*}", if step < 1.0 { 1 } else { 0 });
            let style = text(12, FAINT, HPos::Right, VPos::Center);
            area.draw(&Text::new(label, (self.left - 6, y), style))?;
            level += step;
        }
        let centre = (self.left + self.right) / 2;
        area.draw(&Text::new(
            x_label.to_owned(),
            (centre, PANEL.1 as i32 - 6),
            text(12, FAINT, HPos::Center, VPos::Bottom),
        ))?;
        Ok(())
    }

    fn x_tick(&self, area: &Area<'_>, x: f64, label: String) -> Drawn {
        let (px, _) = self.at(x, self.y.start);
        let tick = [(px, self.bottom), (px, self.bottom + 4)];
        area.draw(&PathElement::new(tick, FAINT))?;
        let style = text(12, FAINT, HPos::Center, VPos::Top);
        area.draw(&Text::new(label, (px, self.bottom + 6), style))?;
        Ok(())
    }
}

/// A round distance that divides `width` into four to ten parts.
fn step(width: f64) -> f64 {
    let power = 10f64.powf((width / 4.0).log10().floor());
    [5.0, 2.0, 1.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| width / step >= 4.0)
        .unwrap_or(power)
}

pub(super) fn text(size: u32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    let mut style = TextStyle::from(("sans-serif", size).into_font());
    style.color = colour.to_backend_color();
    style.pos(Pos::new(h, v))
}

/// Lines with confidence intervals.
pub(super) fn lines(panel: &Panel) -> Result<String> {
    svg(PANEL, &panel.title, |area| {
        let count = panel.x.len();
        let frame = Frame::new(-0.5..count as f64 - 0.5, panel.y.clone());
        frame.draw(area, &panel.title, &panel.x_label)?;
        for (index, label) in panel.x.iter().enumerate() {
            frame.x_tick(area, index as f64, label.clone())?;
        }
        let queues = panel.lines.len();
        // Bestby's own last: on top.
        for (place, line) in panel.lines.iter().enumerate().rev() {
            let colour = SERIES[line.style % SERIES.len()];
            let width = if line.style == 0 { 3 } else { 1 };
            // Side by side, so that no interval hides another.
            let shift = (place as f64 - (queues as f64 - 1.0) / 2.0) * 0.5 / queues.max(1) as f64;
            let points: Vec<(f64, Estimate)> = line
                .points
                .iter()
                .enumerate()
                .filter_map(|(x, estimate)| Some((x as f64 + shift, (*estimate)?)))
                .collect();
            let path: Vec<(i32, i32)> = points.iter().map(|(x, e)| frame.at(*x, e.mean)).collect();
            area.draw(&PathElement::new(path.clone(), colour.stroke_width(width)))?;
            for ((x, estimate), at) in points.iter().zip(path) {
                if let Some(half) = estimate.half_width {
                    let low = frame.at(*x, estimate.mean - half);
                    let high = frame.at(*x, estimate.mean + half);
                    area.draw(&PathElement::new([low, high], colour.stroke_width(1)))?;
                }
                mark(area, at, line.style)?;
            }
        }
        Ok(())
    })
}

/// Cumulative shares.
pub(super) fn curves(panel: &Curves) -> Result<String> {
    svg(PANEL, &panel.title, |area| {
        let frame = Frame::new(panel.x.clone(), 0.0..100.0);
        frame.draw(area, &panel.title, &panel.x_label)?;
        let step = step(panel.x.end - panel.x.start);
        let mut x = panel.x.start;
        while x <= panel.x.end + step * 1e-9 {
            frame.x_tick(area, x, format!("{x:.0}"))?;
            x += step;
        }
        let (limit, words) = &panel.limit;
        let (foot, head) = (frame.at(*limit, 0.0), frame.at(*limit, 100.0));
        area.draw(&PathElement::new([foot, head], FAINT.stroke_width(1)))?;
        area.draw(&Text::new(
            words.clone(),
            (head.0 + 4, foot.1 - 4),
            text(12, FAINT, HPos::Left, VPos::Bottom),
        ))?;
        for (style, points) in panel.curves.iter().rev() {
            let colour = SERIES[style % SERIES.len()];
            let width = if *style == 0 { 3 } else { 1 };
            let path: Vec<(i32, i32)> = points
                .iter()
                .filter(|(x, _)| panel.x.contains(x))
                .map(|&(x, y)| frame.at(x, y))
                .collect();
            let marks: Vec<(i32, i32)> = path
                .iter()
                .skip(path.len() / 8)
                .step_by((path.len() / 4).max(1))
                .copied()
                .collect();
            area.draw(&PathElement::new(path, colour.stroke_width(width)))?;
            for at in marks {
                mark(area, at, *style)?;
            }
        }
        Ok(())
    })
}

/// The queues with their colours and shapes, in columns.
pub(super) fn legend(names: &[(usize, &str)]) -> Result<String> {
    const COLUMNS: usize = 4;
    const CELL: (i32, i32) = (200, 22);
    let rows = names.len().div_ceil(COLUMNS).max(1);
    let size = (CELL.0 as u32 * COLUMNS as u32, CELL.1 as u32 * rows as u32);
    svg(size, "queues", |area| {
        for (index, (style, name)) in names.iter().enumerate() {
            let x = (index % COLUMNS) as i32 * CELL.0;
            let y = (index / COLUMNS) as i32 * CELL.1 + CELL.1 / 2;
            let width = if *style == 0 { 3 } else { 1 };
            let colour = SERIES[style % SERIES.len()];
            let path = [(x + 2, y), (x + 28, y)];
            area.draw(&PathElement::new(path, colour.stroke_width(width)))?;
            mark(area, (x + 15, y), *style)?;
            let label = text(13, INK, HPos::Left, VPos::Center);
            area.draw(&Text::new((*name).to_owned(), (x + 36, y), label))?;
        }
        Ok(())
    })
}

/// The shape of a style around a point.
fn mark(area: &Area<'_>, (x, y): (i32, i32), style: usize) -> Drawn {
    let colour = SERIES[style % SERIES.len()];
    let polygon = |corners: &[(i32, i32)]| {
        let corners: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        Polygon::new(corners, colour.filled())
    };
    match style % SHAPES {
        0 => area.draw(&Circle::new((x, y), 4, colour.filled()))?,
        1 => area.draw(&Rectangle::new(
            [(x - 3, y - 3), (x + 3, y + 3)],
            colour.filled(),
        ))?,
        2 => area.draw(&polygon(&[(0, -5), (5, 4), (-5, 4)]))?,
        3 => area.draw(&polygon(&[(0, -5), (5, 0), (0, 5), (-5, 0)]))?,
        4 => {
            for (from, to) in [((-4, -4), (4, 4)), ((-4, 4), (4, -4))] {
                let path = [(x + from.0, y + from.1), (x + to.0, y + to.1)];
                area.draw(&PathElement::new(path, colour.stroke_width(2)))?;
            }
        }
        _ => area.draw(&polygon(&[(0, 5), (5, -4), (-5, -4)]))?,
    }
    Ok(())
}

/// The picture as an element that stands in a page.
fn svg(size: (u32, u32), words: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area)
            .and_then(|()| Ok(area.present()?))
            .map_err(|error| anyhow!("drawing `{words}`: {error}"))?;
    }
    // An XML file's name space, which an element of a page does not need.
    let text = text.replace(r#" xmlns="http://www.w3.org/2000/svg""#, "");
    Ok(text.replacen("<svg", r#"<svg role="img""#, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (width, expected) in [
            (100.0, 20.0),
            (110.0, 20.0),
            (1.0, 0.2),
            (500.0, 100.0),
            (40.0, 10.0),
        ] {
            assert!(
                (step(width) - expected).abs() < 1e-12,
                "{width}: {}",
                step(width)
            );
        }
    }

    #[test]
    fn every_point_and_interval_is_drawn() {
        let estimate = |mean, half_width| {
            Some(Estimate {
                runs: 3,
                mean,
                deviation: None,
                half_width,
            })
        };
        let panel = Panel {
            title: "a < b".into(),
            x_label: "load".into(),
            x: vec!["1".into(), "2".into(), "4".into()],
            y: 0.0..100.0,
            lines: vec![
                Line {
                    style: 0,
                    points: vec![estimate(90.0, Some(2.0)), None, estimate(50.0, None)],
                },
                Line {
                    style: 1,
                    points: vec![None, estimate(40.0, Some(1.0)), None],
                },
            ],
        };
        let svg = lines(&panel).expect("a plot");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.contains("a &lt; b"), "{svg}");
        let of = |colour: &str| {
            svg.matches(&format!(
                r#"<polyline fill="none" opacity="1" stroke="{colour}""#
            ))
            .count()
        };
        // A line through its points, and an interval.
        assert_eq!(of("#0072B2"), 1 + 1);
        assert_eq!(of("#D55E00"), 1 + 1);
        assert!(!svg.contains("http") && !svg.contains("NaN"));
    }

    #[test]
    fn curves_end_where_the_plot_ends() {
        let panel = Curves {
            title: "t".into(),
            x_label: "ms".into(),
            x: 0.0..100.0,
            limit: (50.0, "lifetime".into()),
            curves: vec![(0, vec![(0.0, 0.0), (60.0, 80.0), (400.0, 90.0)])],
        };
        let svg = curves(&panel).expect("a plot");
        assert!(svg.contains("lifetime") && svg.contains("#0072B2"));
        assert!(
            legend(&[(0, "bestby"), (9, "x & y")])
                .expect("a legend")
                .contains("x &amp; y")
        );
    }
}
