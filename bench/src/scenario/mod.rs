//! Scenarios: TOML files that say what is run, without touching Rust.
//!
//! ```toml
//! title = "Conference over a link that cannot carry it"
//! description = "..."          # optional
//! seed = 1                     # repetition n uses seed + n, the same for every queue
//! repetitions = 3
//! seconds = 20                 # length of a run's traffic
//! discard_first = 3            # s at the start of a run that are not judged
//! lifetime = [200, { audio = 150, video = 1000 }]  # ms; absent: as the model says
//! control = "tfrc"             # a sender under RFC 5348 instead of an open loop, or the
//!                              # kernel's own ("dccp"); router only
//! segment_size = "sent"        # "tfrc" only: its s is the mean of what left, or "offered":
//!                              # of what the application offers
//! owd_told = "half"            # "tfrc" only: what bestby is told of the one-way delay,
//!                              # RTT/2, or "queue-there": RTT - RTTmin/2
//! restart = "rfc5348"          # "tfrc" only: after an idle or data-limited time, or
//!                              # "faster": as the draft of Faster Restart has it
//! loss_events = "round-trip"   # "tfrc" only: losses within a round trip are one event, or
//!                              # "window-counter": as Linux's CCID3 tells them apart
//! send_credit = "none"         # "tfrc" with pfifo only: rate that was not used is lost, or
//!                              # "all": may be used later, as with Linux's CCID3
//! paced_by = "packets"         # "tfrc" with pfifo only: s/X from one packet to the next, or
//!                              # "bytes": its own size/X, as in bestby
//! queues = ["bestby qdisc triage", "bestby tc", "fq_codel", "pfifo 32"]
//!
//! [topology]
//! bottleneck = "sender"        # or "router": shapes behind the sender, with its own FIFO
//! load = [0.5, 1, 2]           # offered rate / link rate; or: rate = "253kbit"
//! owd = 40                     # one way, ms; behind a router also on the way back
//! loss = 0                     # % of packets, behind the queue
//! router_queue = 50            # packets of the router's FIFO, bottleneck "router" only
//! tcp = 2                      # Reno flows through the same FIFO, bottleneck "router" only
//!
//! [traffic]
//! model = "conference"         # and the model's own parameters
//!
//! [told]                       # how wrong the queue's knowledge is, 0 = right
//! rtt_error = [-0.5, 0, 0.5]   # of the one-way delay
//! rate_error = 0               # of the session's rate; behind a router: of the link's
//!
//! [stall]                      # the link stands still, bottleneck "sender" only
//! at = 5000                    # ms
//! length = 5000
//! ```
//!
//! Every field that may be a list sweeps when it is one: `owd`, `loss`, `rate`, `load`,
//! `router_queue`, `tcp`, `segment_size`, `owd_told`, `restart`, `loss_events`,
//! `send_credit`, `paced_by`, `lifetime`, each parameter of the traffic model, `rtt_error`,
//! `rate_error`, `stall`; results name them in this order. A list of tables among the model's
//! parameters is one value, and so is a list that is such a parameter itself (`ports` of
//! `pcap`); lists of it sweep. All combinations are run, each with every queue.
//!
//! What `rate_error` changes. Bottleneck "sender": the link pushes back at its true
//! rate, and bestby's sessions are set to the wrong one (`bestby session set --rate`);
//! the other queues are told no such thing and run once. Bottleneck "router": the link
//! does not push back, and every queue shapes to the wrong rate.

pub mod cell;
mod expand;
mod traffic;
pub mod value;

use std::{collections::BTreeSet, fs, ops::Range, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use self::{
    cell::{Bottleneck, Cell, Control, Stall},
    value::{Axis, Error, Lifetime, Load, Millis, Percent, Rate},
};
use crate::{
    queue::Queue,
    series::summary::Swept,
    tfrc::{LossEvents, OwdTold, PacedBy, Restart, SegmentSize, SendCredit},
};

/// A scenario, read, checked and expanded.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The file's name without `.toml`.
    pub name: String,
    /// The file's text, kept beside its results.
    pub text: String,
    /// One line for a heading.
    pub title: String,
    /// What it shows; may be empty.
    pub description: String,
    /// Of repetition 0.
    pub seed: u64,
    /// Runs of each cell.
    pub repetitions: u32,
    /// Length of a run's traffic, s.
    pub seconds: u64,
    /// s at the start of a run that are not judged.
    pub discard_first: f64,
    /// The axes that sweep.
    pub axes: Vec<Swept>,
    /// The queues in the file's order.
    pub queues: Vec<Queue>,
    /// All combinations of the axes, each with every queue.
    pub cells: Vec<Cell>,
}

/// The file as it stands.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    seed: Seed,
    #[serde(default)]
    repetitions: Repetitions,
    #[serde(default)]
    seconds: Seconds,
    #[serde(default)]
    discard_first: Option<Spanned<f64>>,
    #[serde(default)]
    control: Control,
    segment_size: Option<Spanned<Axis<SegmentSize>>>,
    owd_told: Option<Spanned<Axis<OwdTold>>>,
    restart: Option<Spanned<Axis<Restart>>>,
    loss_events: Option<Spanned<Axis<LossEvents>>>,
    send_credit: Option<Spanned<Axis<SendCredit>>>,
    paced_by: Option<Spanned<Axis<PacedBy>>>,
    lifetime: Option<Axis<Lifetime>>,
    queues: Spanned<Vec<QueueName>>,
    topology: Spanned<Topology>,
    traffic: Spanned<toml::Table>,
    #[serde(default)]
    told: Told,
    stall: Option<Spanned<Axis<Stall>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Topology {
    #[serde(default)]
    bottleneck: Bottleneck,
    rate: Option<Axis<Rate>>,
    load: Option<Axis<Load>>,
    owd: Axis<Millis>,
    loss: Option<Axis<Percent>>,
    router_queue: Option<Axis<FifoPackets>>,
    tcp: Option<Axis<TcpFlows>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    rtt_error: Option<Axis<Error>>,
    rate_error: Option<Axis<Error>>,
}

/// An integer within a range, named in errors.
macro_rules! integer {
    ($(#[$doc:meta])* $name:ident($kind:ty), $what:literal, $min:literal..=$max:literal, $default:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        struct $name($kind);

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = i64::deserialize(deserializer)?;
                if !($min..=$max).contains(&value) {
                    return Err(de::Error::custom(format!(
                        concat!($what, " must be ", $min, " to ", $max, ", not {}"),
                        value
                    )));
                }
                Ok(Self(value as $kind))
            }
        }
    };
}

integer!(
    /// Runs of each cell.
    Repetitions(u32), "repetitions", 1..=1000, 1
);
integer!(
    /// Length of a run.
    Seconds(u64), "seconds", 1..=3600, 20
);
integer!(
    /// Of the first repetition.
    Seed(u64), "seed", 0..=9007199254740991, 1
);
integer!(
    /// Length of the router's queue.
    FifoPackets(u32), "router_queue (packets)", 1..=100000, 50
);
integer!(
    /// Competing TCP flows.
    TcpFlows(u32), "tcp (flows)", 0..=64, 0
);

/// A queue by its name, so that a wrong one is refused with its line.
#[derive(Debug)]
struct QueueName(Queue);

impl<'de> Deserialize<'de> for QueueName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map(Self).map_err(de::Error::custom)
    }
}

impl Scenario {
    /// Reads, checks and expands the file at `path`. An error begins with `FILE:LINE:`
    /// where it concerns a line.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("reading the scenario {}", path.display()))?;
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .context("a scenario's file needs a name")?;
        Self::parse_file(path, name, &text)
    }

    /// The same of a file whose name is not that of the scenario: the copy beside its
    /// results.
    pub fn load_as(path: &Path, name: &str) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("reading the scenario {}", path.display()))?;
        Self::parse_file(path, name, &text)
    }

    /// The same of a file's text that stands elsewhere.
    pub fn of_text(name: &str, text: &str) -> Result<Self> {
        Self::parse_file(Path::new(&format!("{name}.toml")), name, text)
    }

    fn parse_file(path: &Path, name: &str, text: &str) -> Result<Self> {
        if name != cell::slug(name) {
            bail!(
                "{}: the file's name becomes a directory's: use lower-case letters, digits, \
                 '.', '+' and '-' only, e.g. {}.toml",
                path.display(),
                cell::slug(name)
            );
        }
        Self::parse(name, text)
            .map_err(|Fault { at, message }| match at {
                Some(at) => anyhow!("{}:{}: {message}", path.display(), line(text, at)),
                None => anyhow!("{}: {message}", path.display()),
            })
            .context("this scenario cannot be run")
    }

    /// The same of a text.
    fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        let file: File = toml::from_str(text).map_err(|error| Fault {
            at: error.span().map(|span| span.start),
            message: error.message().to_owned(),
        })?;
        file.check()?;
        let expansion = expand::expand(&file, text)?;
        let mut ids = BTreeSet::new();
        for cell in &expansion.cells {
            if !ids.insert(&cell.id) {
                return Err(Fault {
                    at: None,
                    message: format!(
                        "two combinations have the same id `{}`: name their values so that they differ \
                         in more than signs",
                        cell.id
                    ),
                });
            }
        }
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            seed: file.seed.0,
            repetitions: file.repetitions.0,
            seconds: file.seconds.0,
            discard_first: file.discard_first.as_ref().map_or(0.0, |s| *s.get_ref()),
            axes: expansion.axes,
            queues: file
                .queues
                .get_ref()
                .iter()
                .map(|QueueName(queue)| queue.clone())
                .collect(),
            cells: expansion.cells,
            title: file.title,
            description: file.description,
        })
    }

    /// Runs of all cells.
    pub fn runs(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.repetitions)
    }
}

impl File {
    /// What no single field can know.
    fn check(&self) -> Result<(), Fault> {
        let topology = self.topology.get_ref();
        let at = Some(self.topology.span());
        match (&topology.rate, &topology.load) {
            (Some(_), Some(_)) => {
                return fault(at, "[topology]: give `rate` or `load`, not both");
            }
            (None, None) => {
                return fault(
                    at,
                    "[topology]: `rate` (bit/s) or `load` (offered rate / link rate) is missing",
                );
            }
            _ => {}
        }
        if topology.bottleneck == Bottleneck::Sender && topology.router_queue.is_some() {
            return fault(
                at,
                "[topology]: `router_queue` goes with bottleneck = \"router\" only",
            );
        }
        if topology.bottleneck == Bottleneck::Sender {
            if topology.tcp.is_some() {
                return fault(
                    at,
                    "[topology]: `tcp` goes with bottleneck = \"router\" only",
                );
            }
            if self.control != Control::None {
                return fault(
                    at,
                    "[topology]: `control` needs bottleneck = \"router\": at the sender nothing is \
                     lost that it could react to",
                );
            }
        }
        let of_tfrc = [
            (
                "segment_size",
                self.segment_size.as_ref().map(Spanned::span),
            ),
            ("owd_told", self.owd_told.as_ref().map(Spanned::span)),
            ("restart", self.restart.as_ref().map(Spanned::span)),
            ("loss_events", self.loss_events.as_ref().map(Spanned::span)),
            ("send_credit", self.send_credit.as_ref().map(Spanned::span)),
            ("paced_by", self.paced_by.as_ref().map(Spanned::span)),
        ];
        for (key, span) in of_tfrc {
            if span.is_some() && self.control != Control::Tfrc {
                return fault(span, &format!("`{key}` goes with control = \"tfrc\" only"));
            }
        }
        let told = self.told.rtt_error.is_some() || self.told.rate_error.is_some();
        if told && self.control != Control::None {
            return fault(
                at,
                "[told]: a congestion-controlled sender finds out RTT and rate by itself",
            );
        }
        let queues = self.queues.get_ref();
        let driven = |queue: &Queue| match self.control {
            Control::None => true,
            Control::Tfrc => matches!(queue, Queue::Bestby { .. } | Queue::Pfifo(_)),
            Control::Dccp => matches!(queue, Queue::Pfifo(_)),
        };
        if let Some(QueueName(other)) = queues.iter().find(|name| !driven(&name.0)) {
            return fault(
                Some(self.queues.span()),
                &format!(
                    "`queues`: a congestion-controlled sender has `pfifo N` (a FIFO in front of \
                     the socket) or, with \"tfrc\", `bestby qdisc ...`, not `{other}`"
                ),
            );
        }
        let of_the_fifo = [
            ("send_credit", self.send_credit.as_ref().map(Spanned::span)),
            ("paced_by", self.paced_by.as_ref().map(Spanned::span)),
        ];
        for (key, span) in of_the_fifo {
            if span.is_some()
                && let Some(QueueName(other)) = queues
                    .iter()
                    .find(|name| !matches!(name.0, Queue::Pfifo(_)))
            {
                return fault(
                    span,
                    &format!(
                        "`{key}` is of the FIFO in front of the socket (`pfifo N`); `{other}` \
                         paces by itself"
                    ),
                );
            }
        }
        for (index, QueueName(queue)) in queues.iter().enumerate() {
            if queues[..index]
                .iter()
                .any(|QueueName(other)| other == queue)
            {
                return fault(
                    Some(self.queues.span()),
                    &format!("`queues`: `{queue}` stands there twice"),
                );
            }
        }
        let srt = |QueueName(queue): &QueueName| matches!(queue, Queue::Srt { .. });
        if self.stall.is_some() && queues.iter().any(srt) {
            return fault(
                Some(self.queues.span()),
                "`queues`: SRT needs the way back, which a link that can stall has not",
            );
        }
        if queues.is_empty() {
            return fault(Some(self.queues.span()), "`queues`: name at least one");
        }
        if let Some(discard) = &self.discard_first {
            let length = self.seconds.0 as f64;
            if !(0.0..length).contains(discard.get_ref()) {
                return fault(
                    Some(discard.span()),
                    &format!("discard_first must be at least 0 and below `seconds` ({length})"),
                );
            }
        }
        if let Some(stall) = &self.stall {
            let at = Some(stall.span());
            if topology.bottleneck == Bottleneck::Router {
                return fault(at, "[stall]: only with bottleneck = \"sender\"");
            }
            if topology.loss.is_some() {
                return fault(
                    at,
                    "[stall]: the link that can stall loses nothing: leave `loss` out",
                );
            }
            let end = |s: &Stall| s.at.0 + s.length.0;
            let latest = stall.get_ref().0.iter().map(end).fold(0.0, f64::max);
            if latest >= self.seconds.0 as f64 * 1000.0 {
                return fault(
                    at,
                    &format!("[stall]: it must end (now {latest} ms) before the traffic does"),
                );
            }
        }
        Ok(())
    }
}

/// What is wrong, and at which byte of the text.
#[derive(Debug)]
struct Fault {
    at: Option<usize>,
    message: String,
}

fn fault<T>(span: Option<Range<usize>>, message: &str) -> Result<T, Fault> {
    Err(Fault {
        at: span.map(|span| span.start),
        message: message.to_owned(),
    })
}

/// The line, from 1, of this byte.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod tests;
