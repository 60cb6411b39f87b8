//! `bestby top`: what happens now, once a second.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bestby_api::{Counters, Stats, path};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

use crate::client::Client;
use crate::failure::Failure;
use crate::output::Output;

const EVERY: Duration = Duration::from_secs(1);
/// How long a key may wait for its effect.
const KEYS: Duration = Duration::from_millis(50);

pub(crate) async fn run(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    if output.is_json() || !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "top needs a terminal; for programs there is `bestby --json stats`".into(),
        ));
    }
    // Before the screen is taken: without an agent, the message must stay readable.
    let mut view = View::new(client.get(path::STATS).await?, Instant::now());
    let mut terminal = ratatui::try_init()
        .map_err(|e| Failure::new(format!("cannot use this terminal: {e}"), "use bestby stats"))?;
    let result = watch(client, &mut terminal, &mut view).await;
    ratatui::restore();
    result.map(|()| ExitCode::SUCCESS)
}

async fn watch(
    client: &Client,
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
) -> Result<(), Failure> {
    let terminal_failed = |e: std::io::Error| Failure::new(format!("the terminal failed: {e}"), "");
    loop {
        terminal
            .draw(|frame| view.draw(frame))
            .map_err(terminal_failed)?;
        let next = view.taken + EVERY;
        while Instant::now() < next {
            if event::poll(KEYS).map_err(terminal_failed)? {
                match event::read().map_err(terminal_failed)? {
                    Event::Key(key) if ends(key) => return Ok(()),
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
        if Instant::now() >= next {
            view.update(client.get(path::STATS).await?, Instant::now());
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    let ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press
        && (ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

/// Two pictures of the counters and the time between them.
struct View {
    before: Stats,
    now: Stats,
    taken: Instant,
    seconds: f64,
}

/// What one line shows.
#[derive(Debug, PartialEq)]
struct Flow {
    name: String,
    packets_in: u64,
    bytes_sent: u64,
    queued: u64,
    dropped: u64,
    /// Of what came in during the interval, percent.
    loss: f64,
    total: Counters,
}

impl View {
    fn new(stats: Stats, taken: Instant) -> Self {
        Self {
            before: stats.clone(),
            now: stats,
            taken,
            seconds: 0.0,
        }
    }

    fn update(&mut self, stats: Stats, taken: Instant) {
        self.before = std::mem::replace(&mut self.now, stats);
        self.seconds = (taken - self.taken).as_secs_f64();
        self.taken = taken;
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let interfaces = rates(&self.before.interfaces, &self.now.interfaces, self.seconds);
        let flows = rates(&self.before.flows, &self.now.flows, self.seconds);
        let mut sessions = rates(&self.before.sessions, &self.now.sessions, self.seconds);
        // There may be thousands: those with something to see come first.
        sessions.sort_by_key(|s| std::cmp::Reverse((s.dropped, s.queued, s.bytes_sent)));
        // A heading and an empty line each.
        let height = |rows: &[Flow]| u16::try_from(rows.len() + 2).unwrap_or(u16::MAX);
        let [title, top, middle, bottom] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(height(&interfaces)),
            Constraint::Length(height(&flows)),
            Constraint::Fill(1),
        ])
        .areas(frame.area());
        let text = if self.seconds == 0.0 {
            "measuring"
        } else {
            "per second"
        };
        frame.render_widget(
            Line::from(format!("bestby top, {text}; q ends it")).dim(),
            title,
        );
        draw_table(frame, top, "INTERFACE", &interfaces);
        draw_table(frame, middle, "FLOW", &flows);
        draw_table(frame, bottom, "SESSION", &sessions);
    }
}

/// Per second, from two pictures; a counter that began anew counts as no change.
fn rates(
    before: &BTreeMap<String, Counters>,
    now: &BTreeMap<String, Counters>,
    seconds: f64,
) -> Vec<Flow> {
    let per_second = |n: u64| {
        if seconds <= 0.0 {
            return 0;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let rounded = (n as f64 / seconds).round() as u64;
        rounded
    };
    now.iter()
        .map(|(name, now)| {
            // What is new began at 0.
            let old = before.get(name).copied().unwrap_or_default();
            let arrived = now.packets_in.saturating_sub(old.packets_in);
            let dropped = now.dropped.total().saturating_sub(old.dropped.total());
            #[allow(clippy::cast_precision_loss)]
            let loss = if arrived == 0 {
                0.0
            } else {
                100.0 * dropped as f64 / arrived as f64
            };
            Flow {
                name: name.clone(),
                packets_in: per_second(arrived),
                bytes_sent: per_second(now.bytes_sent.saturating_sub(old.bytes_sent)),
                queued: now.queued,
                dropped: per_second(dropped),
                loss,
                total: *now,
            }
        })
        .collect()
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, heading: &str, rows: &[Flow]) {
    let right = |text: String| Cell::from(Text::from(text).alignment(Alignment::Right));
    let names = rows
        .iter()
        .map(|r| r.name.chars().count())
        .chain([heading.len(), 16])
        .max();
    let widths = [
        Constraint::Length(u16::try_from(names.unwrap_or(16).min(50)).unwrap_or(50)),
        Constraint::Length(9),
        Constraint::Length(13),
        Constraint::Length(8),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    let titles = [
        "IN",
        "SENT",
        "QUEUED",
        "DROPPED",
        "LOSS",
        "STALE ALL",
        "SENT LATE",
    ];
    let header = std::iter::once(Cell::from(heading.to_string()))
        .chain(titles.into_iter().map(|t| right(t.to_string())));
    let shown = rows.iter().map(|r| {
        let style = match r.dropped {
            0 => Style::new(),
            _ => Style::new().fg(Color::Yellow),
        };
        Row::new([
            Cell::from(r.name.clone()),
            right(r.packets_in.to_string()),
            right(if r.bytes_sent == 0 {
                "0".into()
            } else {
                rounded_rate(r.bytes_sent)
            }),
            right(r.queued.to_string()),
            right(r.dropped.to_string()),
            right(format!("{:.1}%", r.loss)),
            right(r.total.dropped.stale.to_string()),
            right(r.total.sent_stale.to_string()),
        ])
        .style(style)
    });
    frame.render_widget(
        Table::new(shown, widths).header(Row::new(header).bold()),
        area,
    );
}

/// Short enough for a column that changes every second.
#[allow(clippy::cast_precision_loss)]
fn rounded_rate(bytes_per_s: u64) -> String {
    let bits = bytes_per_s as f64 * 8.0;
    match bits {
        1e9.. => format!("{:.2}gbit", bits / 1e9),
        1e6.. => format!("{:.2}mbit", bits / 1e6),
        1e3.. => format!("{:.1}kbit", bits / 1e3),
        _ => format!("{bits}bit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bestby_api::Drops;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn stats(n: u64) -> Stats {
        let counters = |scale: u64| Counters {
            packets_in: 100 * n * scale,
            bytes_sent: 126_600 * n * scale,
            packets_sent: 90 * n * scale,
            queued: 5,
            dropped: Drops {
                stale: 10 * n * scale,
                ..Drops::default()
            },
            ..Counters::default()
        };
        let mut stats = Stats::default();
        stats.interfaces.insert("eth0".into(), counters(2));
        stats.flows.insert(
            "audio".into(),
            Counters {
                dropped: Drops::default(),
                ..counters(1)
            },
        );
        stats.flows.insert("video".into(), counters(1));
        stats
            .sessions
            .insert("eth0/10.0.0.1".into(), Counters::default());
        stats.sessions.insert("eth0/10.0.0.2".into(), counters(2));
        stats
    }

    #[test]
    fn top_shows_rates_with_the_largest_drops_first() {
        let start = Instant::now();
        let mut view = View::new(stats(1), start);
        view.update(stats(3), start + Duration::from_secs(2));
        let mut terminal = Terminal::new(TestBackend::new(100, 14)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn rate_over_no_time_or_of_a_new_agent_is_0() {
        // The first picture has nothing to compare with; a new agent begins at 0.
        assert!(
            rates(&stats(1).flows, &stats(1).flows, 0.0)
                .iter()
                .all(|f| f.packets_in == 0)
        );
        assert!(
            rates(&stats(9).flows, &stats(1).flows, 1.0)
                .iter()
                .all(|f| f.packets_in == 0)
        );
        assert_eq!(rates(&BTreeMap::new(), &stats(1).flows, 1.0)[1].dropped, 10);
        assert!(rates(&BTreeMap::new(), &BTreeMap::new(), 1.0).is_empty());
    }

    #[test]
    fn top_draws_on_a_terminal_of_any_size() {
        for (width, height) in [(1, 1), (10, 3), (300, 2)] {
            let view = View::new(stats(1), Instant::now());
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| view.draw(frame)).unwrap();
        }
    }

    #[test]
    fn rate_is_rounded_to_two_decimals_at_most() {
        for (bytes, text) in [
            (1, "8bit"),
            (31_625, "253.0kbit"),
            (1_234_567, "9.88mbit"),
            (12_345_678, "98.77mbit"),
            (1_250_000_000, "10.00gbit"),
        ] {
            assert_eq!(rounded_rate(bytes), text);
        }
    }
}
