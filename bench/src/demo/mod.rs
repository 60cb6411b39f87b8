//! The demo: real media over a link that is too narrow for them, without and with bestby.
//!
//! All of it is the lab's: [`media`] encodes, [`Path`] carries, [`measure`](crate::measure)
//! counts and a decoder judges. The same packets go
//! 1. through a plain FIFO,
//! 2. through bestby, told by two flow rules what audio and video are worth,
//! 3. through bestby, told so by the application, packet by packet.
//!
//! Two steps, because a VM that emulates its processor measures well but encodes slowly:
//! [`Demo::measure`] here or there, [`Demo::finish`] on the host.

mod film;
mod table;

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::{
    bestby::{Agent, program},
    columns::Columns,
    decoder,
    measure::{Measures, judge},
    provenance::Provenance,
    queue::{self, Installed, Told},
    records, run,
    sys::MILLI,
    topology::{DEVICE, Path, RECEIVER, Shape},
    traffic::{
        Model, Schedule,
        media::{self, Parameters},
        sender::Marking,
    },
};

/// What the server may send, bit/s.
const RATE: u64 = 750_000;
/// Of the link, one way, ns.
const DELAY: u64 = 40 * MILLI;
/// Packets in the plain FIFO: the default `txqueuelen` of Linux.
const FIFO: u32 = 1000;
/// An audio packet is of use for so long, ms. A conference's jitter buffer gives up a
/// little later.
const AUDIO_LIFETIME: u64 = 200;
/// A video frame is of use for so long, ms: later, lips and words part visibly.
const VIDEO_LIFETIME: u64 = 400;

/// Of the media. Its pictures begin nearly where the source does, so that ffmpeg makes few
/// that are thrown away.
const SEED: u64 = 363;

/// Everything measured.
const REPORT: &str = "demo.json";

/// What stands between the application and the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Queue {
    /// A plain FIFO.
    Fifo,
    /// bestby; an operator's rules say what packets are worth.
    Rules,
    /// bestby; the application says so itself.
    Marks,
}

impl Queue {
    const ALL: [Self; 3] = [Self::Fifo, Self::Rules, Self::Marks];

    /// In names of files, and in the table and the film.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Fifo => ["fifo", "plain FIFO"],
            Self::Rules => ["rules", "bestby, rules"],
            Self::Marks => ["marks", "bestby, packets marked"],
        }
    }

    fn name(self) -> &'static str {
        self.names()[1]
    }

    /// What an operator types before the media begin.
    fn commands(self) -> Vec<String> {
        let rule = |class, port, lifetime, priority| {
            format!(
                "flow add {class} --proto udp --dport {port} --lifetime {lifetime}ms \
                 --priority {priority}"
            )
        };
        let rules = [
            rule("audio", 5004, AUDIO_LIFETIME, 0),
            rule("video", 5005, VIDEO_LIFETIME, 4),
        ];
        let interface = [
            format!("iface attach {DEVICE} --enforce --rate {}kbit", RATE / 1000),
            format!("session set {RECEIVER} --owd {}ms", DELAY / MILLI),
        ];
        match self {
            Self::Fifo => Vec::new(),
            Self::Rules => [rules, interface].concat(),
            Self::Marks => interface.into(),
        }
    }
}

/// One run.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    queue: Queue,
    /// bestby's, `qdisc` or `tc`.
    mode: Option<String>,
    /// What was typed, without `bestby` in front.
    commands: Vec<String>,
    measures: Measures,
}

/// `demo.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    provenance: Provenance,
    /// What the media came to, bit/s on the wire.
    offered: f64,
    runs: Vec<Run>,
}

/// Options of `bestby-lab demo`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Measure in a virtual machine with the newest kernel, where bestby runs in mode
    /// qdisc; from the top of the source tree, with DIR in it.
    #[arg(long)]
    vm: bool,
    /// Length of each of the three runs, seconds.
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,
    /// Where the film, the figures and the packets' records go.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    out: PathBuf,
    /// Only measure what is prepared in DIR (how `--vm` works).
    #[arg(long, hide = true)]
    measure: bool,
}

/// Makes the demonstration.
pub fn run(options: &Options) -> Result<()> {
    let out = &options.out;
    if !options.vm {
        check()?;
    }
    fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let demo = Demo {
        directory: fs::canonicalize(out)?,
        seconds: options.seconds,
    };
    if options.measure {
        return demo.measure();
    }
    demo.prepare()?;
    match options.vm {
        true => demo.measure_in_vm()?,
        false => demo.measure()?,
    }
    demo.finish()?;
    for (what, file) in [
        ("What a viewer sees", "demo.mp4"),
        ("One picture of it", "demo.png"),
        ("Everything measured", REPORT),
    ] {
        say!("{what}: {}", out.join(file).display());
    }
    Ok(())
}

/// Fails, with what to do, unless [`Demo::measure`] works on this machine.
fn check() -> Result<()> {
    ensure!(
        fs::metadata("/proc/self")?.uid() == 0,
        "the demo builds network namespaces and loads BPF programs: run it as root (sudo ./dev demo)"
    );
    for command in ["ip -V", "tc -V"] {
        run::sh(command).context("the demo needs iproute2 (Debian: apt install iproute2)")?;
    }
    program("bestbyd").and(program("bestby")).map(drop)
}

/// A demonstration that is to be made.
struct Demo {
    /// Where all of its files go.
    directory: PathBuf,
    /// Length of each run.
    seconds: u64,
}

impl Demo {
    fn parameters(&self) -> Parameters {
        Parameters {
            audio_lifetime_ms: AUDIO_LIFETIME,
            video_lifetime_ms: VIDEO_LIFETIME,
            directory: self.directory.join("media"),
            ..Parameters::default()
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn of(&self, queue: Queue, ending: &str) -> PathBuf {
        self.file(&format!("{}.{ending}", queue.names()[0]))
    }

    /// Encodes the media.
    fn prepare(&self) -> Result<()> {
        decoder::check()?;
        note!("encoding {} s of video and audio ...", self.seconds);
        Model::Media(self.parameters()).prepare(self.seconds, SEED)
    }

    /// Makes the runs, one after the other, and leaves `demo.json` and each one's records.
    fn measure(&self) -> Result<()> {
        let schedule = Model::Media(self.parameters()).schedule(self.seconds, SEED)?;
        let shape = Shape {
            delay: DELAY,
            ..Shape::default()
        };
        let path = Path::build(&shape).context("building the path")?;
        let runs = Queue::ALL
            .into_iter()
            .map(|queue| self.run(queue, &path, &schedule))
            .collect::<Result<_>>()?;
        self.write(&Report {
            provenance: Provenance::here(),
            offered: schedule.load(),
            runs,
        })
    }

    /// [`measure`](Self::measure) in a VM, which shares nothing but the source tree with this machine.
    fn measure_in_vm(&self) -> Result<()> {
        let vm = std::path::Path::new("tests/vm/run");
        ensure!(
            vm.exists(),
            "--vm needs tests/vm/run: start the demo at the top of the source tree"
        );
        note!("starting a virtual machine ...");
        let mut command = Command::new(vm);
        command
            .args(["--icount", "--timeout", "900", "--"])
            .arg(env::current_exe()?)
            .args([
                "demo",
                "--measure",
                "--seconds",
                &self.seconds.to_string(),
                "--out",
            ])
            .arg(&self.directory)
            .stdin(Stdio::null());
        let status = command.status().context("starting tests/vm/run")?;
        ensure!(
            status.success(),
            "measuring in the VM failed ({status}); its words are above"
        );
        Ok(())
    }

    fn run(&self, queue: Queue, path: &Path, schedule: &Schedule) -> Result<Run> {
        note!("{}: {} s of media ...", queue.name(), self.seconds);
        let commands = queue.commands();
        let (mut mode, mut counters) = (None, None);
        let (sent, arrivals) = if queue == Queue::Fifo {
            let told = Told {
                rate: Some(RATE),
                session_rate: None,
                owd: path.owd,
                receivers: &[RECEIVER],
            };
            let fifo = queue::Queue::Pfifo(FIFO);
            let _installed = Installed::new(&fifo, path.sender(), DEVICE, &told)?;
            path.run(schedule, Marking::default())?
        } else {
            let agent = Agent::start(path.sender(), "demo")?;
            for words in &commands {
                agent.bestby(words)?;
            }
            let marking = Marking {
                mark: queue == Queue::Marks,
                ..Marking::default()
            };
            let passed = path.run(schedule, marking)?;
            mode = agent.json("iface ls")?[0]["mode"]
                .as_str()
                .map(str::to_owned);
            counters = Some(agent.counters(DEVICE)?);
            agent.bestby(&format!("iface detach {DEVICE}"))?;
            passed
        };
        let measures = Measures {
            counters,
            ..judge(schedule, &sent, &arrivals, path.extra_delay, 0)
        };
        records::packets(schedule, &sent, &arrivals, path.extra_delay)
            .write(&self.of(queue, "parquet"))?;
        Ok(Run {
            queue,
            mode,
            commands,
            measures,
        })
    }

    /// Gives what [`measure`](Self::measure) left to a decoder, prints the table, and makes the
    /// film.
    fn finish(&self) -> Result<()> {
        note!("decoding what came in time ...");
        let file = self.file(REPORT);
        let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        let mut report: Report = serde_json::from_slice(&text).context("the runs' figures")?;
        // Not the guest's: what was typed here makes it again.
        report.provenance.commands = Provenance::here().commands;
        let parameters = self.parameters();
        let mut shown = Vec::new();
        for run in &mut report.runs {
            let seen = records::seen(&Columns::read(&self.of(run.queue, "parquet"))?)?;
            let on_time: Vec<bool> = seen.iter().map(|packet| packet.on_time).collect();
            let picture = media::judge(&parameters, self.seconds, SEED, &on_time, 0.0)?;
            run.measures.picture = Some(picture);
            let stream = media::stream(&parameters, self.seconds, SEED, &on_time)?;
            let file = self.of(run.queue, "ivf");
            fs::write(&file, stream).with_context(|| format!("writing {}", file.display()))?;
            if picture.decoded > 0 {
                shown.push((run.queue, file));
            }
        }
        self.write(&report)?;
        say!("\n{}", table::text(&report));
        film::make(&parameters, self.seconds, SEED, &shown, &self.directory)
    }

    fn write(&self, report: &Report) -> Result<()> {
        let file = self.file(REPORT);
        let text = serde_json::to_string_pretty(report)? + "\n";
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    }
}
