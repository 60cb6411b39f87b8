//! The screen of `top`.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row as Entry, Table, TableState};

use super::detail;
use super::view::{Row, View};
use crate::format::measured_rate;

/// Silence of more than two intervals and of this many seconds is told.
const SILENCE: u64 = 2;
/// A name is not cut below this while a number can go instead.
const NARROWEST_NAME: usize = 22;

/// A column of numbers: heading, width, and what it says of a row.
struct Column {
    heading: &'static str,
    width: usize,
    text: fn(&Row) -> String,
}

/// Numbers from left to right; the last of them give way first where the terminal is narrow.
const COLUMNS: &[Column] = &[
    Column {
        heading: "IN",
        width: 7,
        text: |r| r.rate.packets_in.to_string(),
    },
    Column {
        heading: "SENT",
        width: 8,
        text: |r| measured_rate(r.rate.bytes_sent),
    },
    Column {
        heading: "DROPPED",
        width: 7,
        text: |r| r.rate.dropped.total().to_string(),
    },
    Column {
        heading: WOULD_DROP,
        width: 7,
        text: |r| r.rate.would_drop.total().to_string(),
    },
    Column {
        heading: "QUEUED",
        width: 7,
        text: |r| r.rate.queued.to_string(),
    },
    Column {
        heading: "LOSS",
        width: 6,
        text: |r| format!("{:.1}%", r.loss),
    },
    Column {
        heading: "STALE ALL",
        width: 10,
        text: |r| r.total.dropped.stale.to_string(),
    },
    Column {
        heading: "LATE ALL",
        width: 10,
        text: |r| r.total.sent_stale.to_string(),
    },
];

/// Only where something is observed.
const WOULD_DROP: &str = "WOULD";

/// The columns that fit beside the longest name, and the width left for names.
fn fitted(width: usize, longest: usize, observes: bool) -> (Vec<&'static Column>, usize) {
    let mut columns: Vec<&Column> = COLUMNS
        .iter()
        .filter(|c| observes || c.heading != WOULD_DROP)
        .collect();
    let taken = |columns: &[&Column]| columns.iter().map(|c| c.width + 1).sum::<usize>();
    let wanted = longest.clamp(9, NARROWEST_NAME.max(longest.min(40)));
    while columns.len() > 2 && taken(&columns) + wanted > width {
        // A name is cut before a drop is hidden.
        if columns.len() <= 4 && taken(&columns) + NARROWEST_NAME <= width {
            break;
        }
        columns.pop();
    }
    let name = width.saturating_sub(taken(&columns)).min(longest.max(9));
    (columns, name)
}

/// A name in so many characters: its middle goes, because beginning and end tell names apart.
fn cut(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.into();
    }
    let Some(room) = width.checked_sub(1) else {
        return String::new();
    };
    let head: String = name.chars().take(room.div_ceil(2)).collect();
    let tail: String = name.chars().skip(length - room / 2).collect();
    format!("{head}…{tail}")
}

/// Draws everything; `now` tells for how long the agent has been silent.
pub(crate) fn screen(view: &View, frame: &mut Frame<'_>, now: Instant) {
    let [title, body, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(view, now)), title);
    frame.render_widget(footer(view), keys);
    if view.detail.is_some() {
        return frame.render_widget(Paragraph::new(detail::lines(view, body.width)), body);
    }
    let (interfaces, flows, sessions) = (view.interfaces(), view.flows(), view.sessions());
    // Heading, rows, an empty line; many flows leave half of the screen to sessions.
    let height = |rows: &[Row]| u16::try_from(rows.len() + 2).unwrap_or(u16::MAX);
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Max(height(&interfaces).min(body.height / 4 + 2)),
        Constraint::Max(height(&flows).min(body.height / 3 + 2)),
        Constraint::Fill(1),
    ])
    .areas(body);
    let all = interfaces.iter().chain(&flows).chain(&sessions);
    let longest = all.map(|r| r.name.chars().count()).max().unwrap_or(0);
    let (columns, name) = fitted(usize::from(body.width), longest, view.observes());
    let list = |frame: &mut Frame<'_>, area, heading: &str, rows: &[Row], selected| {
        table(frame, area, heading, rows, &columns, name, selected);
    };
    list(frame, top, "INTERFACE", &interfaces, None);
    list(frame, middle, "FLOW", &flows, None);
    let selected = view.selected.min(sessions.len().saturating_sub(1));
    list(frame, bottom, "SESSION", &sessions, Some(selected));
}

fn heading(view: &View, now: Instant) -> Text<'static> {
    let what = if view.seconds == 0.0 {
        "measuring"
    } else {
        "per second"
    };
    let mut text = format!("bestby top  {what}, by {}", view.sort.name());
    if !view.filter.is_empty() || view.typing {
        text += &format!("  /{}{}", view.filter, if view.typing { "_" } else { "" });
    }
    let mut title = Line::from(text).dim();
    if view.paused {
        title.push_span("  paused".yellow());
    }
    let silent = (now - view.answered).as_secs();
    let told = if view.paused || silent <= SILENCE {
        Line::default()
    } else if view.trouble.is_empty() {
        Line::from(format!("no answer for {silent} s")).red()
    } else {
        Line::from(format!("no answer for {silent} s: {}", view.trouble)).red()
    };
    Text::from(vec![title, told])
}

fn footer(view: &View) -> Line<'static> {
    Line::from(if view.typing {
        "Enter keeps the filter, Esc clears it"
    } else if view.detail.is_some() {
        "Esc back  p pause  q quit"
    } else {
        "q quit  s sort  / filter  p pause  up/down  Enter session"
    })
    .dim()
}

fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    heading: &str,
    rows: &[Row],
    columns: &[&Column],
    name: usize,
    selected: Option<usize>,
) {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let length = |n: usize| Constraint::Length(u16::try_from(n).unwrap_or(u16::MAX));
    let widths = std::iter::once(length(name)).chain(columns.iter().map(|c| length(c.width)));
    let header = std::iter::once(Cell::from(heading.to_string()))
        .chain(columns.iter().map(|c| right(c.heading.into())));
    let lines = rows.iter().map(|r| {
        let lost = r.rate.dropped.total() + r.rate.would_drop.total() > 0;
        let style = if lost {
            Style::new().fg(Color::Yellow)
        } else {
            Style::new()
        };
        let cells = std::iter::once(Cell::from(cut(&r.name, name)))
            .chain(columns.iter().map(|c| right((c.text)(r))));
        Entry::new(cells).style(style)
    });
    let table = Table::new(lines, widths)
        .column_spacing(1)
        .header(Entry::new(header).bold())
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(selected);
    frame.render_stateful_widget(table, area, &mut state);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::view::{Picture, View};

    /// Two answers of an agent, one second apart: mode tc, `v0` at 2 Mbit/s, `v2` at 1 Mbit/s observed; audio and
    /// video to two receivers each, one of them with a rate of its own, IPv6, plain traffic.
    const AGENT: &str = include_str!("data/agent.json");

    fn agent() -> View {
        let answers: Vec<serde_json::Value> = serde_json::from_str(AGENT).unwrap();
        let picture = |v: &serde_json::Value| Picture {
            stats: serde_json::from_value(v["stats"].clone()).unwrap(),
            interfaces: serde_json::from_value(v["interfaces"].clone()).unwrap(),
            sessions: Some(serde_json::from_value(v["sessions"].clone()).unwrap()),
        };
        let start = Instant::now();
        let mut view = View::new(picture(&answers[0]), start);
        view.take(picture(&answers[1]), start + Duration::from_secs(1));
        view
    }

    fn drawn(view: &View, width: u16, silent: u64) -> String {
        let now = view.answered + Duration::from_secs(silent);
        let mut terminal = Terminal::new(TestBackend::new(width, 30)).unwrap();
        terminal.draw(|frame| screen(view, frame, now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn top_of_an_agent_fits_60_to_200_columns() {
        for width in [60, 80, 120, 200] {
            insta::assert_snapshot!(format!("top_{width}"), drawn(&agent(), width, 1));
        }
    }

    #[test]
    fn session_of_an_agent_is_drawn_in_detail() {
        let mut view = agent();
        view.detail = Some("v0/10.9.0.3".into());
        for late_ns in [-160_000_000, -120_000_000, -5_000_000, 2_000_000] {
            view.notice(&bestby_api::Event {
                time_ns: 1,
                unix_ns: 2,
                dev: "v0".into(),
                flow: "audio".into(),
                session: "v0/10.9.0.3".into(),
                reason: bestby_api::Reason::Predicted,
                priority: 3,
                age_ns: 0,
                late_ns,
                adu: 0,
                len: 1100,
                observe: false,
                truncated: false,
                suppressed: 0,
            });
        }
        for width in [60, 120] {
            insta::assert_snapshot!(format!("detail_{width}"), drawn(&view, width, 1));
        }
    }

    #[test]
    fn silence_of_the_agent_is_told_unless_paused() {
        let mut view = agent();
        assert!(!drawn(&view, 80, 1).contains("no answer"));
        assert!(drawn(&view, 80, 7).contains("no answer for 7 s"));
        view.trouble = "nobody listens there".into();
        assert!(drawn(&view, 80, 7).contains("for 7 s: nobody listens"));
        view.paused = true;
        let text = drawn(&view, 80, 7);
        assert!(text.contains("paused") && !text.contains("no answer"));
    }

    #[test]
    fn top_draws_on_a_terminal_of_any_size() {
        let mut view = agent();
        for detail in [None, Some("v0/10.9.0.3".to_string()), Some("x".into())] {
            view.detail = detail;
            for (width, height) in [(1, 1), (10, 3), (300, 2), (20, 200)] {
                let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
                let now = view.answered;
                terminal.draw(|frame| screen(&view, frame, now)).unwrap();
            }
        }
    }

    #[test]
    fn long_name_loses_its_middle() {
        assert_eq!(cut("v0/10.0.0.1", 11), "v0/10.0.0.1");
        assert_eq!(cut("v2/2001:db8::1234:def0", 12), "v2/200…:def0");
        assert_eq!(cut("abc", 1), "…");
        assert_eq!(cut("abc", 0), "");
    }

    #[test]
    fn columns_and_name_never_exceed_the_width() {
        for width in 0..250 {
            for longest in [0, 5, 11, 35, 90] {
                for observes in [true, false] {
                    let (columns, name) = fitted(width, longest, observes);
                    let all = columns.iter().map(|c| c.width + 1).sum::<usize>() + name;
                    assert!(all <= width.max(17), "{width} {longest}: {all}");
                    if width >= 60 {
                        assert!(columns.iter().any(|c| c.heading == "DROPPED"));
                        let would = columns.iter().any(|c| c.heading == WOULD_DROP);
                        assert_eq!(would, observes, "{width}");
                    }
                }
            }
        }
    }
}
