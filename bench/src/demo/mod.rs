//! The demo: real media over a link that is too narrow for them, without and
//! with bestby.
//!
//! ffmpeg encodes H.264 video and Opus audio once and plays them, as RTP, to a
//! relay in a namespace. The relay passes them on to a client behind a link of
//! 1 Mbit/s and 40 ms: first through a plain FIFO, then through bestby told by
//! flow rules what audio and video are worth, then the same with the relay
//! marking frames by what other frames lose with them. Both ends log every
//! packet with one clock; [`account::judge`] compares the logs; ffmpeg decodes
//! what came in time.
//!
//! Three steps, because a VM that emulates its processor measures well but
//! encodes slowly: [`prepare`] and [`finish`] on the host, [`measure`] here or there.

pub mod account;
mod agent;
mod delay;
pub mod depay;
#[cfg(test)]
mod marking;
mod media;
mod plot;
mod progress;
mod relay;
pub mod report;
pub mod rtp;
mod signalling;
mod sys;
mod world;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use account::{Delay, Figures, Lifetimes, Received, Sent};
use agent::Operator;
use media::{Decoded, Media, Player};
use progress::Progress;
use relay::Relay;
use signalling::Signalling;
use world::World;

/// Answers on the signalling connection before the media start: by then the
/// kernel, and so bestby, has a steady round trip time.
const WARM_UP_ANSWERS: usize = 5;

/// What is the same in all runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What the server may send, bit/s.
    pub rate_bit: u64,
    /// Of the link, one way, ms.
    pub delay_ms: u64,
    /// An audio packet is of use for so long, ms. A conference's jitter buffer
    /// gives up a little later.
    pub audio_lifetime_ms: u64,
    /// A video frame is of use for so long, ms: later, lips and words part visibly.
    pub video_lifetime_ms: u64,
    /// Of the plain FIFO: the default `txqueuelen` of Linux.
    pub fifo_packets: u32,
    /// What to try, in this order.
    pub queues: Vec<Queue>,
    /// Encoded by [`prepare`].
    pub media: Media,
}

impl Plan {
    fn lifetimes(&self) -> Lifetimes {
        Lifetimes {
            audio_ns: self.audio_lifetime_ms * 1_000_000,
            video_ns: self.video_lifetime_ms * 1_000_000,
        }
    }
}

/// What stands between the relay and the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// A plain FIFO.
    Fifo,
    /// bestby; the relay is a plain forwarder, all is said by flow rules.
    Bestby,
    /// bestby; besides, the relay says by DSCP which frames others refer to.
    BestbyMarkedFrames,
}

impl Queue {
    /// In files and at the head of a column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Bestby => "bestby",
            Self::BestbyMarkedFrames => "bestby-marked-frames",
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub queue: Queue,
    /// bestby's mode, `qdisc` or `tc`; `None` for the FIFO.
    pub mode: Option<String>,
    /// What arrived, and when.
    pub figures: Figures,
    /// What ffmpeg made of it; filled in by [`finish`].
    pub decoded: Decoded,
    /// Round trip of the signalling connection beside the media, ms.
    pub signalling_ms: Option<Delay>,
    /// One-way delay that bestby learnt from that connection before the media began, ms.
    pub learnt_owd_ms: Option<f64>,
    /// Packets that the relay's `send` refused.
    pub refused: u64,
    /// What delays on the link: `netem` or `user space`.
    pub link_by: String,
    /// How much longer than said user space held its frames, ms: the demo's own error.
    pub link_late_ms: Option<Delay>,
    /// What bestby said of itself after the run.
    pub agent: Option<Value>,
    /// Kernel release.
    pub kernel: String,
}

/// From the two logs, as they grow.
enum Event {
    Sent(Sent),
    Received(Received),
}

/// Fails, with what to do, unless [`measure`] can try `queues` on this machine.
pub fn check(queues: &[Queue]) -> Result<()> {
    ensure!(
        sys::is_root(),
        "the demo builds network namespaces and loads BPF programs: run it as root (sudo ./dev demo)"
    );
    for (command, package) in [
        ("ip -V", "iproute2"),
        ("tc -V", "iproute2"),
        ("ffmpeg -version", "ffmpeg"),
    ] {
        crate::run::sh(command)
            .with_context(|| format!("the demo needs {package} (Debian: apt install {package})"))?;
    }
    for program in ["bestbyd", "bestby"] {
        let path = std::env::current_exe()?.with_file_name(program);
        ensure!(
            path.exists() || queues == [Queue::Fifo],
            "{} is missing: build it with `cargo build --release --bins`",
            path.display()
        );
    }
    Ok(())
}

/// Encodes the media into `work`.
pub fn prepare(work: &Path, seconds: u32, fifo_packets: u32, queues: Vec<Queue>) -> Result<Plan> {
    crate::decoder::check()?;
    let progress = Progress::new();
    progress.note(&format!(
        "encoding {seconds} s of H.264 video and Opus audio"
    ));
    let media = media::encode(work, seconds)?;
    Ok(Plan {
        rate_bit: 1_000_000,
        delay_ms: 40,
        audio_lifetime_ms: 200,
        video_lifetime_ms: 400,
        fifo_packets,
        queues,
        media,
    })
}

/// Runs the plan's queues, one after the other, on this machine; leaves what a
/// player could use in `work` as `NAME.h264`.
pub fn measure(plan: &Plan, work: &Path) -> Result<Vec<Run>> {
    plan.queues
        .iter()
        .map(|queue| run(*queue, plan, work))
        .collect()
}

/// Decodes what [`measure`] left, and fills it in.
pub fn finish(plan: &Plan, runs: &mut [Run], work: &Path) -> Result<()> {
    Progress::new().note("decoding what came in time");
    let reference = media::reference(&plan.media)?;
    for run in runs {
        run.decoded = media::decode(&stream_file(work, run.queue), &reference)?;
    }
    Ok(())
}

/// Draws delay over time of all runs as SVG.
pub fn draw(plan: &Plan, runs: &[Run], file: &Path) -> Result<()> {
    plot::draw(plan, runs, file)
}

fn stream_file(work: &Path, queue: Queue) -> PathBuf {
    work.join(format!("{}.h264", queue.name()))
}

fn run(queue: Queue, plan: &Plan, work: &Path) -> Result<Run> {
    let world = World::new(Duration::from_millis(plan.delay_ms))?;
    let signalling = Signalling::start(&world)?;
    let agent = match queue {
        Queue::Fifo => {
            world.attach_fifo(plan.rate_bit, plan.fifo_packets)?;
            None
        }
        Queue::Bestby | Queue::BestbyMarkedFrames => {
            let marked = queue == Queue::BestbyMarkedFrames;
            Some(Operator::start(
                &world,
                plan.rate_bit,
                plan.lifetimes(),
                marked,
            )?)
        }
    };
    let before = signalling.round_trips().len();
    signalling.wait_for(before + WARM_UP_ANSWERS)?;
    let learnt_owd_ms = agent
        .as_ref()
        .map(Operator::learnt_owd_ms)
        .transpose()?
        .flatten();
    let mode = agent.as_ref().map(Operator::mode).transpose()?;

    let (sender, events) = mpsc::channel();
    let client = relay::start_client(&world, sender.clone())?;
    let relay = Relay::start(&world, queue == Queue::BestbyMarkedFrames, sender)?;
    let asked = signalling.round_trips().len();
    let player = Player::start(&world.server, &plan.media, work)?;
    let title = mode.as_ref().map_or_else(
        || format!("FIFO of {} packets", plan.fifo_packets),
        |mode| match queue {
            Queue::BestbyMarkedFrames => format!("bestby, mode {mode}, frames marked"),
            _ => format!("bestby, mode {mode}"),
        },
    );
    let (sent, received) = watch(&events, player, plan, &title)?;

    let (figures, usable) = account::judge(&sent, &received, plan.lifetimes());
    write_stream(&stream_file(work, queue), usable)?;
    let signalling_ms = signalling.delay_ms(asked);
    let report = agent.as_ref().map(Operator::report).transpose()?;
    if let Some(agent) = agent {
        agent.finish()?;
    }
    client.finish()?;
    let refused = relay.finish()?;
    drop(signalling);
    Ok(Run {
        queue,
        mode,
        figures,
        decoded: Decoded::default(),
        signalling_ms,
        learnt_owd_ms,
        refused,
        link_by: world.delayed_by().to_owned(),
        link_late_ms: world.finish()?,
        agent: report,
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
            .trim()
            .to_owned(),
    })
}

/// Collects both logs while the media play, and until the queue is empty.
fn watch(
    events: &Receiver<Event>,
    mut player: Player,
    plan: &Plan,
    title: &str,
) -> Result<(Vec<Sent>, Vec<Received>)> {
    let progress = Progress::new();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    let give_up = Duration::from_secs(u64::from(plan.media.seconds) * 3 + 60);
    // A FIFO needs longer to empty; while it does, packets keep coming.
    let quiet = Duration::from_millis(plan.video_lifetime_ms.max(plan.audio_lifetime_ms) + 500);
    let mut quiet_since = None;
    loop {
        thread::sleep(Duration::from_millis(100));
        let mut arrived = false;
        for event in events.try_iter() {
            match event {
                Event::Sent(packet) => sent.push(packet),
                Event::Received(packet) => {
                    received.push(packet);
                    arrived = true;
                }
            }
        }
        progress.update(title, begin.elapsed(), plan, &sent, &received);
        if quiet_since.is_some() || player.finished()? {
            let since = quiet_since.get_or_insert_with(Instant::now);
            if arrived {
                *since = Instant::now();
            }
            if since.elapsed() > quiet {
                break;
            }
        }
        ensure!(
            begin.elapsed() < give_up,
            "ffmpeg plays {} s of media since {give_up:?}",
            plan.media.seconds
        );
    }
    progress.end();
    ensure!(
        !sent.is_empty(),
        "not one RTP packet of ffmpeg reached the relay"
    );
    Ok((sent, received))
}

fn write_stream(file: &Path, frames: Vec<Vec<&[u8]>>) -> Result<()> {
    let mut stream = Vec::new();
    for payloads in frames {
        depay::append_frame(payloads, &mut stream).context("depacketizing a whole frame")?;
    }
    fs::File::create(file)
        .and_then(|mut f| f.write_all(&stream))
        .with_context(|| format!("writing {}", file.display()))
}
