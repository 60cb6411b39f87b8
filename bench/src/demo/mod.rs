//! The demo: real media over a link that is too narrow for them, without and with bestby.
//!
//! All of it is the lab's: [`media`] encodes, [`Path`] carries, [`measure`](crate::measure)
//! counts and a decoder judges. The same packets go
//! 1. through a plain FIFO,
//! 2. through bestby with two flow rules, one for audio and one for video,
//! 3. through bestby, where the application marks each packet,
//!
//! the last two in each mode. A kernel without BPF qdiscs has mode tc only: there a VM with a newer kernel measures mode
//! qdisc, so that the reader sees both.
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
use bestby_api::{CheckStatus, Doctor};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::{
    bestby::{Agent, program},
    bound::{Link, intact},
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
/// What a virtual machine measured, until it is read.
const GUEST: &str = "guest.json";
/// How a virtual machine is started, from the top of the source tree.
const VM: &str = "tests/vm/run";
/// Runs the lab, its first argument, from the guest's memory: virtual time skips what the guest waits for the host's
/// files, and packets would be late by that.
const IN_GUEST: &str = "mkdir /tmp/demo; for p in bestby-lab bestby bestbyd; do cp \"${0%/*}/$p\" /tmp/demo/; done; \
                        exec /tmp/demo/bestby-lab \"$@\"";

/// What stands between the application and the link, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Queue {
    /// A plain FIFO.
    Fifo,
    /// bestby in mode tc, with an operator's rules.
    TcRules,
    /// bestby in mode tc; the application marks its packets.
    TcMarks,
    /// bestby in mode qdisc, with rules.
    QdiscRules,
    /// bestby in mode qdisc, with marks.
    QdiscMarks,
}

impl Queue {
    const ALL: [Self; 5] = [
        Self::Fifo,
        Self::TcRules,
        Self::TcMarks,
        Self::QdiscRules,
        Self::QdiscMarks,
    ];

    /// In names of files, and in the table and the film.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Fifo => ["fifo", "plain FIFO"],
            Self::TcRules => ["tc-rules", "mode tc, rules"],
            Self::TcMarks => ["tc-marks", "mode tc, marked"],
            Self::QdiscRules => ["qdisc-rules", "mode qdisc, rules"],
            Self::QdiscMarks => ["qdisc-marks", "mode qdisc, marked"],
        }
    }

    /// Of bestby; none of a FIFO.
    fn mode(self) -> Option<&'static str> {
        match self {
            Self::Fifo => None,
            Self::TcRules | Self::TcMarks => Some("tc"),
            Self::QdiscRules | Self::QdiscMarks => Some("qdisc"),
        }
    }

    fn marks(self) -> bool {
        matches!(self, Self::TcMarks | Self::QdiscMarks)
    }

    fn name(self) -> &'static str {
        self.names()[1]
    }

    /// What an operator types before the media begin.
    fn commands(self) -> Vec<String> {
        // Of video no priority: bestby reads what each frame is for.
        let rules = [
            format!(
                "flow add audio --proto udp --dport 5004 --lifetime {AUDIO_LIFETIME}ms --priority 0"
            ),
            format!("flow add video --proto udp --dport 5005 --lifetime {VIDEO_LIFETIME}ms"),
        ];
        let Some(mode) = self.mode() else {
            return Vec::new();
        };
        let interface = [
            format!(
                "iface attach {DEVICE} --enforce --mode {mode} --rate {}kbit",
                RATE / 1000
            ),
            format!("session set {RECEIVER} --owd {}ms", DELAY / MILLI),
        ];
        match self.marks() {
            false => [rules, interface].concat(),
            true => interface.into(),
        }
    }
}

/// One run.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    queue: Queue,
    /// bestby's, `qdisc` or `tc`, as it says itself.
    mode: Option<String>,
    /// `uname -r` of where it was measured.
    kernel: String,
    /// Processor, or the VM with its virtual time.
    machine: String,
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
    /// Measure all of it in a virtual machine with the newest kernel, in virtual time; from the top of the source
    /// tree, with DIR in it. Without it a virtual machine measures only what this kernel cannot (mode qdisc).
    #[arg(long)]
    vm: bool,
    /// Length of each run, seconds.
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u64).range(4..=600))]
    seconds: u64,
    /// Where the film, the figures and the packets' records go.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    out: PathBuf,
    /// Only measure these with what is prepared in DIR (how a virtual machine is asked).
    #[arg(long, hide = true, value_enum, value_delimiter = ',')]
    measure: Vec<Queue>,
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
    if !options.measure.is_empty() {
        let report = demo.measure(|_| Ok(options.measure.clone()))?;
        return demo.write(GUEST, &report);
    }
    demo.prepare()?;
    let report = match options.vm {
        true => demo.measure_in_vm(&Queue::ALL)?,
        false => demo.measure_both()?,
    };
    demo.finish(report)?;
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

/// What this kernel can: mode tc, and mode qdisc where it has BPF qdiscs.
fn queues_of(path: &Path) -> Result<Vec<Queue>> {
    let agent = Agent::start(path.sender(), "demo")?;
    let doctor: Doctor = serde_json::from_value(agent.json("doctor")?)?;
    let qdisc = doctor
        .checks
        .iter()
        .any(|check| check.id == "mode-qdisc" && check.status == CheckStatus::Ok);
    let queues = Queue::ALL.into_iter();
    Ok(queues
        .filter(|queue| qdisc || queue.mode() != Some("qdisc"))
        .collect())
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

    /// Measures what this kernel can, and the rest in a virtual machine where there is one.
    fn measure_both(&self) -> Result<Report> {
        let mut report = self.measure(queues_of)?;
        let missing: Vec<Queue> = Queue::ALL
            .into_iter()
            .filter(|queue| report.runs.iter().all(|run| run.queue != *queue))
            .collect();
        if missing.is_empty() {
            return Ok(report);
        }
        if !std::path::Path::new(VM).exists() {
            note!(
                "this kernel has no mode qdisc, and {VM} is not here to measure it in a virtual machine: start the \
                 demo at the top of the source tree"
            );
            return Ok(report);
        }
        note!("this kernel has no mode qdisc: a virtual machine measures it");
        match self.measure_in_vm(&missing) {
            Ok(guest) => report.runs.extend(guest.runs),
            Err(error) => note!("mode qdisc is left out: {error:#}"),
        }
        Ok(report)
    }

    /// Makes the runs that `queues` chooses, one after the other, and leaves each one's records.
    fn measure(&self, queues: impl FnOnce(&Path) -> Result<Vec<Queue>>) -> Result<Report> {
        let schedule = Model::Media(self.parameters()).schedule(self.seconds, SEED)?;
        let shape = Shape {
            delay: DELAY,
            ..Shape::default()
        };
        let path = Path::build(&shape).context("building the path")?;
        let runs = queues(&path)?
            .into_iter()
            .map(|queue| self.run(queue, &path, &schedule))
            .collect::<Result<_>>()?;
        Ok(Report {
            provenance: Provenance::here(),
            offered: schedule.load(),
            runs,
        })
    }

    /// [`measure`](Self::measure) in a VM, which shares nothing but the source tree with this machine.
    fn measure_in_vm(&self, queues: &[Queue]) -> Result<Report> {
        ensure!(
            std::path::Path::new(VM).exists(),
            "{VM} is not here: start the demo at the top of the source tree"
        );
        note!("starting a virtual machine ...");
        let names: Vec<_> = queues
            .iter()
            .filter_map(|queue| Some(queue.to_possible_value()?.get_name().to_owned()))
            .collect();
        let mut command = Command::new(VM);
        command
            .args(["--icount", "--timeout", "900", "--", "sh", "-euc", IN_GUEST])
            .arg(env::current_exe()?)
            .args(["demo", "--measure", &names.join(",")])
            .args(["--seconds", &self.seconds.to_string(), "--out"])
            .arg(&self.directory)
            .stdin(Stdio::null());
        let status = command.status().with_context(|| format!("starting {VM}"))?;
        ensure!(
            status.success(),
            "measuring in the VM failed ({status}); its words are above"
        );
        let file = self.file(GUEST);
        let text = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        let mut report: Report = serde_json::from_slice(&text).context("the VM's figures")?;
        // Not the guest's: what was typed here makes it again.
        report.provenance.commands = Provenance::here().commands;
        Ok(report)
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
                mark: queue.marks(),
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
        let here = Provenance::here();
        Ok(Run {
            queue,
            mode,
            kernel: here.kernel,
            machine: here.machine,
            commands,
            measures,
        })
    }

    /// Gives what [`measure`](Self::measure) left to a decoder, prints the table, and makes the
    /// film.
    fn finish(&self, mut report: Report) -> Result<()> {
        note!("decoding what came in time ...");
        let parameters = self.parameters();
        let schedule = Model::Media(parameters.clone()).schedule(self.seconds, SEED)?;
        let frames = parameters.references(self.seconds, SEED, 0.0)?;
        let most = intact::on(&schedule, Link::of_path(RATE, DELAY), &frames);
        let mut shown = Vec::new();
        for run in &mut report.runs {
            let seen = records::seen(&Columns::read(&self.of(run.queue, "parquet"))?)?;
            let mut picture = media::judge(&parameters, self.seconds, SEED, &seen, 0.0)?;
            picture.intact_bound = most;
            run.measures.picture = Some(picture);
            let stream = media::stream(&parameters, self.seconds, SEED, &seen)?;
            let file = self.of(run.queue, "ivf");
            fs::write(&file, stream).with_context(|| format!("writing {}", file.display()))?;
            if picture.decoded > 0 {
                shown.push((run.queue, file));
            }
        }
        self.write(REPORT, &report)?;
        say!("\n{}", table::text(&report));
        let measured: Vec<Queue> = report.runs.iter().map(|run| run.queue).collect();
        let (seconds, directory) = (self.seconds, &self.directory);
        film::make(&parameters, seconds, SEED, &measured, &shown, directory)
    }

    fn write(&self, name: &str, report: &Report) -> Result<()> {
        let file = self.file(name);
        let text = serde_json::to_string_pretty(report)? + "\n";
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    }
}
