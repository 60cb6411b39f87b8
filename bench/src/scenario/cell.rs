//! Cells: one combination of a scenario's axes and one queue.

use std::{collections::BTreeMap, fmt};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value::{Error, Lifetime, Load, Millis, Percent, Rate};
use crate::{
    fading::Fading,
    line::{Device, Trace},
    program::Congestion,
    tfrc::Restart,
    topology::RouterQueue,
    traffic::{Model, Schedule},
};

/// Where the path is narrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// At the sender: the queue under test shapes to the link's rate.
    #[default]
    Sender,
    /// Behind the sender: a router with a FIFO of its own shapes, as congestion-controlled
    /// senders find it.
    Router,
    /// At the last hop: a line carries what a trace allows, and the queue under test is the one in
    /// front of it, on a router.
    Line,
}

/// What decides when packets leave the sending application's hands, and how fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// Nothing: the schedule's times, the link's rate.
    #[default]
    None,
    /// TCP-Friendly Rate Control (RFC 5348), see [`tfrc`](crate::tfrc). It sets the rate at
    /// which the queue under test may send.
    Tfrc,
    /// The kernel's own DCCP CCID3, up to Linux 6.15, see [`dccp`](crate::dccp). `pfifo N` is
    /// its queue.
    Dccp,
    /// The kernel's TCP, of a `download`.
    Tcp,
    /// The queue under test is a program with a connection of its own, see [`program`](crate::program).
    Program,
}

/// What a link's rate is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LinkRate {
    /// So many bit/s, on bytes with the MAC header.
    Rate(Rate),
    /// Offered rate / this; each run's own offered rate, so the load is exact.
    Load(Load),
}

/// A link that stands still for a while.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// From this time of the run on, ms.
    pub at: Millis,
    /// For so long, ms.
    pub length: Millis,
}

/// One combination of the axes: everything about a run but the queue and the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Where the path is narrow.
    pub bottleneck: Bottleneck,
    /// How narrow.
    pub link: LinkRate,
    /// One-way delay of the path as asked for, ms (a run says what it measured).
    pub owd_ms: Millis,
    /// Packets lost behind the queue, %.
    pub loss_percent: Percent,
    /// When packets are lost, if that comes and goes.
    pub fading: Option<Fading>,
    /// Bytes that the router's bucket holds.
    pub burst: u32,
    /// The router's; absent where the sender is narrow.
    pub router_queue: Option<RouterQueue>,
    /// What controls the sender's rate.
    pub control: Control,
    /// How `tfrc` comes back after an idle or data-limited time.
    pub restart: Restart,
    /// The congestion control of a program's own connection.
    pub congestion: Congestion,
    /// What the line carries, where it is the bottleneck.
    pub trace: Option<Trace>,
    /// What the line is made of.
    pub device: Device,
    /// Whether the sender tells the last hop the lifetimes in LPD's option, or a rule there.
    pub option: bool,
    /// Whether a download's TCP finds out about, and undoes, timeouts that were none: by F-RTO,
    /// timestamps and D-SACK.
    pub undo: bool,
    /// TCP Reno flows that share the router's FIFO.
    pub tcp: u32,
    /// Lifetimes that replace those of the traffic model.
    pub lifetime: Option<Lifetime>,
    /// The traffic model and the parameters given to it.
    pub traffic: BTreeMap<String, Value>,
    /// How wrong the one-way delay is that the queue is told.
    pub rtt_error: Error,
    /// How wrong the rate is that the queue is told.
    pub rate_error: Error,
    /// When the link stands still.
    pub stall: Option<Stall>,
}

impl Point {
    /// The traffic model with its parameters.
    pub fn model(&self) -> Result<Model> {
        Ok(model(&self.traffic)?)
    }

    /// A run's traffic, with the lifetimes of this point.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        let mut schedule = self.model()?.schedule(seconds, seed)?;
        if let Some(lifetime) = &self.lifetime {
            lifetime.apply(&mut schedule);
        }
        Ok(schedule)
    }
}

/// The traffic model with these parameters.
pub(super) fn model(traffic: &BTreeMap<String, Value>) -> serde_json::Result<Model> {
    Model::deserialize(traffic.clone().into_iter().collect::<Value>())
}

impl LinkRate {
    /// The link's rate for a run that offers `offered` bit/s.
    pub fn of(self, offered: f64) -> Rate {
        match self {
            Self::Rate(rate) => rate,
            Self::Load(load) => Rate((offered / load.0).round() as u64),
        }
    }
}

/// A point and a queue: what is run `repetitions` times.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Stable and readable, also a directory's name: the swept axes, then the queue, e.g.
    /// `owd=40_load=1.5_bestby-qdisc-triage`. It does not change when other values are added to an
    /// axis that sweeps already.
    pub id: String,
    /// The combination of the axes.
    pub point: Point,
    /// For each swept axis its name and this cell's value as text without unit, in the file's order.
    pub axes: Vec<(String, String)>,
    /// The queue.
    pub queue: crate::queue::Queue,
}

/// A swept axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Swept {
    /// As in the scenario file: a field, or a parameter of the traffic model.
    pub axis: String,
    /// bit/s, ms, %; empty for a number without unit.
    pub unit: String,
    /// As text, in the order of the file.
    pub values: Vec<String>,
}

/// Text as a part of a file name: lower case letters, digits, `.`, `+`, `-`.
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-') => slug.push(c),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    // A minus in front is a sign, one at the end is nothing.
    slug.trim_end_matches('-').to_owned()
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => write!(f, "rate {rate}"),
            Self::Load(load) => write!(f, "load {load}"),
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.length, self.at)
    }
}
