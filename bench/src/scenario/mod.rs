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
//! restart = "rfc5348"          # "tfrc" only: after an idle or data-limited time, or
//!                              # "faster": as the draft of Faster Restart has it
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
//! `router_queue`, `tcp`, `restart`, `lifetime`, each parameter of the traffic model, `rtt_error`,
//! `rate_error`, `stall`; results name them in this order. A list of tables among the model's
//! parameters is one value, and so is a list that is such a parameter itself (`ports` of
//! `pcap`); lists of it sweep. All combinations are run, each with every queue.
//!
//! What `rate_error` changes. Bottleneck "sender": the link pushes back at its true
//! rate, and bestby's sessions are set to the wrong one (`bestby session set --rate`);
//! the other queues are told no such thing and run once. Bottleneck "router": the link
//! does not push back, and every queue shapes to the wrong rate.

pub mod cell;
mod check;
mod expand;
mod traffic;
pub mod value;

use std::{fmt, fs, path::Path};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::Spanned;

use self::{
    cell::{Bottleneck, Cell, Control, Stall},
    value::{Axis, Discard, Error, Lifetime, Load, Owd, Percent, Rate},
};
use crate::{queue::Queue, tfrc::Restart};

/// A swept axis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// As in the scenario file: `rate`, `load`, `owd`, `loss`, `lifetime`, `rtt_error`,
    /// `rate_error`, `router_queue`, `stall`, or a parameter of the traffic model.
    pub axis: String,
    /// bit/s, ms, %; empty for a number without unit.
    pub unit: String,
    /// As text, in the order of the file.
    pub values: Vec<String>,
}

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
    title: Spanned<String>,
    #[serde(default)]
    description: String,
    #[serde(default)]
    seed: Seed,
    #[serde(default)]
    repetitions: Repetitions,
    #[serde(default)]
    seconds: Seconds,
    #[serde(default)]
    discard_first: Option<Spanned<Discard>>,
    #[serde(default)]
    control: Control,
    restart: Option<Spanned<Axis<Restart>>>,
    lifetime: Option<Spanned<Axis<Lifetime>>>,
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
    owd: Spanned<Axis<Owd>>,
    loss: Option<Axis<Percent>>,
    router_queue: Option<Axis<FifoPackets>>,
    tcp: Option<Axis<TcpFlows>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    rtt_error: Option<Spanned<Axis<Error>>>,
    rate_error: Option<Spanned<Axis<Error>>>,
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
                const ALLOWED: &str =
                    concat!($what, " must be a whole number, ", $min, " to ", $max);
                struct Visit;
                impl de::Visitor<'_> for Visit {
                    type Value = $name;
                    // Said of what is no number at all.
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!($what, ", a whole number, ", $min, " to ", $max))
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$name, E> {
                        if ($min..=$max).contains(&value) {
                            return Ok($name(value as $kind));
                        }
                        Err(E::custom(format!("{ALLOWED}, not {value}")))
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$name, E> {
                        // What is beyond is beyond every maximum here.
                        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
                    }
                    fn visit_f64<E: de::Error>(self, value: f64) -> Result<$name, E> {
                        Err(E::custom(format!(
                            "{ALLOWED}, without point or exponent, not {value:?}"
                        )))
                    }
                }
                deserializer.deserialize_any(Visit)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
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

    /// The same of a file's text that stands elsewhere.
    pub fn of_text(name: &str, text: &str) -> Result<Self> {
        Self::parse_file(Path::new(&format!("{name}.toml")), name, text)
    }

    fn parse_file(path: &Path, name: &str, text: &str) -> Result<Self> {
        // `.` and `..` are directories that are there, and a hidden one is not found again.
        if name != cell::slug(name) || name.starts_with('.') || name.is_empty() {
            let good = cell::slug(name);
            let good = match good.trim_start_matches('.') {
                "" => "scenario",
                good => good,
            };
            bail!(
                "{}: the file's name becomes a directory's: use lower-case letters, digits, \
                 '.', '+' and '-' only, and no '.' in front, e.g. {good}.toml",
                path.display(),
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
        Ok(Self {
            name: name.to_owned(),
            text: text.to_owned(),
            seed: file.seed.0,
            repetitions: file.repetitions.0,
            seconds: file.seconds.0,
            discard_first: file.discard_first.as_ref().map_or(0.0, |s| s.get_ref().0),
            axes: expansion.axes,
            queues: file
                .queues
                .get_ref()
                .iter()
                .map(|QueueName(queue)| queue.clone())
                .collect(),
            cells: expansion.cells,
            title: file.title.into_inner(),
            description: file.description,
        })
    }

    /// Runs of all cells.
    pub fn runs(&self) -> u64 {
        self.cells.len() as u64 * u64::from(self.repetitions)
    }
}

/// What is wrong, and at which byte of the text.
#[derive(Debug)]
struct Fault {
    at: Option<usize>,
    message: String,
}

/// The line, from 1, of this byte.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
