//! `bestby top`: what happens now, once a second.
//!
//! 1. Keys come from a thread of their own, and requests run as a task: an agent that hangs holds up neither.
//! 2. [`view`] holds what was last known and what the person chose; it knows neither terminal nor agent.
//! 3. [`draw`] makes a screen of it, [`plain`] a text for a pipe.

mod detail;
mod draw;
mod plain;
mod slack;
mod view;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bestby_api::{Event, path};
use clap::Args;
use ratatui::crossterm::event;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::events;
use crate::failure::Failure;
use crate::output::Output;
use crate::rank::Sort;
use view::{Picture, View};

/// An answer that takes longer is given up and asked for again; keys work meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// Drop notices that wait to be drawn; what goes beyond is not shown in the histogram.
const NOTICES: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct What {
    /// Seconds between two pictures
    #[arg(long, short, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// What comes first
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Sort::Dropped)]
    sort: Sort,
    /// Only flows and sessions whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// End after so many pictures; without a terminal each is printed as text
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Rows of each table at most, where there is no terminal
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// Refused, and so not in the help: in the place of the option that all other commands share
    #[arg(long, hide = true)]
    json: bool,
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    if what.json || output.is_json() {
        return Err(Failure::Usage(
            "top prints no JSON; for programs there is `bestby --json stats`".into(),
        ));
    }
    // Before the screen is taken: without an agent, the message must stay readable.
    let mut view = View::new(picture(client, false).await?, Instant::now());
    view.sort = what.sort;
    view.filter.clone_from(&what.filter);
    let every = Duration::from_secs(what.interval);
    if !std::io::stdout().is_terminal() {
        return in_pipe(client, view, every, &what, *output).await;
    }
    let mut terminal = ratatui::try_init()
        .map_err(|e| Failure::new(format!("cannot use this terminal: {e}"), "use bestby stats"))?;
    let result = watch(client, &mut terminal, &mut view, every, what.count).await;
    ratatui::restore();
    result.map(|()| ExitCode::SUCCESS)
}

/// What is shown comes from these answers.
async fn picture(client: &Client, sessions: bool) -> Result<Picture, Failure> {
    Ok(Picture {
        stats: client.get(path::STATS).await?,
        interfaces: client.get(path::INTERFACES).await?,
        sessions: match sessions {
            true => Some(client.get(path::SESSIONS).await?),
            false => None,
        },
    })
}

async fn in_pipe(
    client: &Client,
    mut view: View,
    every: Duration,
    what: &What,
    output: Output,
) -> Result<ExitCode, Failure> {
    let mut left = what.count.unwrap_or(u64::MAX);
    while left > 0 {
        tokio::time::sleep_until((view.answered + every).into()).await;
        view.take(picture(client, false).await?, Instant::now());
        output.text(&plain::render(&view, what.top))?;
        left -= 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// The stream of drop notices while a session is looked at.
struct Notices {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Notices {
    fn follow(client: &Client) -> Self {
        let (sender, events) = mpsc::channel(NOTICES);
        let client = client.clone();
        let task = tokio::spawn(async move {
            // When the stream breaks, the histogram grows no more; the counters' answer says what is wrong.
            let _ = events::follow(&client, |event| {
                let _ = sender.try_send(event);
                Ok(())
            })
            .await;
        });
        Self { events, task }
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads keys until nobody wants them; the thread ends with the process.
fn keys() -> mpsc::UnboundedReceiver<std::io::Result<event::Event>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || while sender.send(event::read()).is_ok() {});
    receiver
}

async fn watch(
    client: &Client,
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    every: Duration,
    count: Option<u64>,
) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("the terminal failed: {e}"), "");
    let mut keys = keys();
    let mut clock = tokio::time::interval(every);
    clock.reset();
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut left = count.unwrap_or(u64::MAX);
    let mut asking: Option<JoinHandle<Result<Picture, Failure>>> = None;
    let mut notices: Option<Notices> = None;
    loop {
        let now = Instant::now();
        terminal
            .draw(|frame| draw::screen(view, frame, now))
            .map_err(failed)?;
        if left == 0 {
            return Ok(());
        }
        tokio::select! {
            key = keys.recv() => match key {
                Some(Ok(event::Event::Key(key))) => {
                    if view.key(key) {
                        return Ok(());
                    }
                    match (&view.detail, &notices) {
                        (Some(_), None) => {
                            notices = Some(Notices::follow(client));
                            // What is known of the session is wanted now.
                            clock.reset_immediately();
                        }
                        (None, Some(_)) => notices = None,
                        _ => {}
                    }
                }
                Some(Ok(_)) => {} // a resize: drawn again
                Some(Err(e)) => return Err(failed(e)),
                None => return Ok(()),
            },
            answer = async { asking.as_mut().expect("asked, as the condition says").await }, if asking.is_some() => {
                asking = None;
                match answer {
                    Ok(Ok(picture)) => {
                        left -= 1;
                        view.take(picture, Instant::now());
                    }
                    Ok(Err(failure)) => view.trouble = failure.to_string(),
                    Err(e) => view.trouble = e.to_string(),
                }
            }
            _ = clock.tick() => {
                if let Some(notices) = &mut notices {
                    while let Ok(event) = notices.events.try_recv() {
                        view.notice(&event);
                    }
                }
                if asking.is_none() && !view.paused {
                    let (client, sessions) = (client.clone(), view.detail.is_some());
                    asking = Some(tokio::spawn(async move {
                        tokio::time::timeout(PATIENCE, picture(&client, sessions))
                            .await
                            .unwrap_or_else(|_| Err(Failure::new("it takes too long", "")))
                    }));
                }
            }
        }
    }
}
