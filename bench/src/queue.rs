//! The queues that are compared, each at one rate on one device, with what the
//! sender must say for each of them to show its best.
//!
//! Shaping: cake and bestby shape by themselves; all other peers hang below one class of
//! HTB with bestby's own credit of 1 ms. (Below TBF they would save up a packet while the
//! link is idle, the least that its bucket can hold: at 253 kbit/s 35 ms of the link.)

use std::{fmt, net::Ipv4Addr, rc::Rc, str::FromStr};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    bestby,
    netns::Netns,
    program::Program,
    simulator,
    sys::{MILLI, SECOND},
    topology,
    traffic::{Class, Schedule, sender::Marking},
};

/// ns of the link that a shaper may make up for after an idle time: BB_PACE_CREDIT_NS.
const CREDIT: u64 = MILLI;

/// Bytes that HTB may save up on a link of `rate` bit/s. (0 would be its own choice.)
fn htb_burst(rate: u64) -> u64 {
    (rate.saturating_mul(CREDIT) / (8 * SECOND)).max(1)
}

/// bestby's methods, ours first.
const METHODS: [&str; 7] = [
    "triage",
    "ring-sfdps2",
    "ring",
    "sfdps2",
    "sfdps1",
    "lazy",
    "fifo",
];

/// What is on the sender's device in one run. In files it is its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Queue {
    /// A FIFO of so many packets.
    Pfifo(u32),
    /// fq_codel with its defaults.
    FqCodel,
    /// fq with its defaults.
    Fq,
    /// cake, one tin.
    CakeBesteffort,
    /// cake, four tins; the sender marks EF and AF41.
    CakeDiffserv4,
    /// Strict priority by SO_PRIORITY, FIFOs of 1000 packets.
    Prio,
    /// ETF in deadline mode; the sender gives the last useful departure.
    EtfDeadline,
    /// The program SRT above a FIFO of 1000 packets, see [`crate::srt`].
    Srt {
        /// Whether it is told the link's rate and paces itself to it.
        paced: bool,
    },
    /// A program with a connection of its own, see [`crate::program`].
    Program(Program),
    /// bestby in mode qdisc.
    Bestby {
        /// Its method.
        method: String,
        /// Packets it may hold; absent = bestby's default.
        limit: Option<u32>,
        /// Whether the headers of what is stale go on, at a last hop.
        truncate: bool,
    },
    /// bestby in mode tc.
    BestbyTc,
    /// bestby as an operator has it, with a rule for each class; the sender marks nothing.
    Rules {
        /// In mode tc; else in mode qdisc.
        tc: bool,
    },
    /// One of [`simulator::RULES`], without a kernel.
    Simulated(String),
}

/// The queues of which the name says all.
const NAMED: [(&str, Queue); 22] = [
    ("fq_codel", Queue::FqCodel),
    ("fq", Queue::Fq),
    ("cake besteffort", Queue::CakeBesteffort),
    ("cake diffserv4", Queue::CakeDiffserv4),
    ("prio", Queue::Prio),
    ("etf", Queue::EtfDeadline),
    ("srt", Queue::Srt { paced: false }),
    ("srt paced", Queue::Srt { paced: true }),
    ("bestby tc", Queue::BestbyTc),
    ("bestby qdisc rules", Queue::Rules { tc: false }),
    ("bestby tc rules", Queue::Rules { tc: true }),
    ("tcp plain", Queue::Program(Program::Plain)),
    ("tcp queue", Queue::Program(Program::Dropping)),
    ("tcp lowat", Queue::Program(Program::Lowat)),
    ("tcp h2o", Queue::Program(Program::H2o)),
    ("tcp ring", Queue::Program(Program::Ring { capped: true })),
    (
        "tcp ring uncapped",
        Queue::Program(Program::Ring { capped: false }),
    ),
    ("tcp transfer", Queue::Program(Program::Transfer)),
    ("quic stream", Queue::Program(Program::Stream)),
    ("quic streams", Queue::Program(Program::Streams)),
    ("quic reset", Queue::Program(Program::Reset)),
    ("quic bestby", Queue::Program(Program::Bestby)),
];

impl Queue {
    /// Its name in tables and scenario files.
    pub fn name(&self) -> String {
        match self {
            Self::Pfifo(limit) => format!("pfifo {limit}"),
            Self::Bestby {
                method,
                limit,
                truncate,
            } => {
                let limit = limit.map_or(String::new(), |packets| format!(" limit {packets}"));
                let truncate = if *truncate { " truncate" } else { "" };
                format!("bestby qdisc {method}{limit}{truncate}")
            }
            Self::Simulated(rule) => format!("simulated {rule}"),
            named => {
                let mut names = NAMED.iter().filter(|(_, queue)| queue == named);
                names.next().map_or("", |(name, _)| name).to_owned()
            }
        }
    }

    /// Whether it is bestby, in either mode.
    fn is_bestby(&self) -> bool {
        matches!(
            self,
            Self::Bestby { .. } | Self::BestbyTc | Self::Rules { .. }
        )
    }

    /// Whether it is told the path's one-way delay, and so can be told a wrong one.
    pub fn knows_owd(&self) -> bool {
        self.knows_rate() || matches!(self, Self::EtfDeadline | Self::Srt { .. })
    }

    /// The same of its session's rate.
    pub fn knows_rate(&self) -> bool {
        self.is_bestby() || matches!(self, Self::Simulated(_))
    }

    /// How the sender marks for this queue on a path of one-way delay `owd` ns.
    pub fn marking(&self, owd: u64) -> Marking {
        Marking {
            mark: self.is_bestby() && !matches!(self, Self::Rules { .. }),
            dscp: *self == Self::CakeDiffserv4,
            priority: *self == Self::Prio,
            txtime_owd: (*self == Self::EtfDeadline).then_some(owd),
            ..Marking::default()
        }
    }
}

impl FromStr for Queue {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let packets = |text: &str| match text.parse::<u32>() {
            Ok(count) if (1..=1_000_000).contains(&count) => Ok(count),
            _ => bail!("a queue's limit is 1 to 1000000 packets, not `{text}`"),
        };
        let bestby = |method: &str, limit, truncate| {
            let known = METHODS.join(", ");
            ensure!(
                METHODS.contains(&method),
                "bestby has no method `{method}`: it has {known}"
            );
            let method = method.to_owned();
            Ok(Self::Bestby {
                method,
                limit,
                truncate,
            })
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = words.join(" ");
        if let Some((_, queue)) = NAMED.iter().find(|(named, _)| *named == name) {
            return Ok(queue.clone());
        }
        match words[..] {
            ["pfifo", limit] => Ok(Self::Pfifo(packets(limit)?)),
            ["bestby", "qdisc", method] => bestby(method, None, false),
            ["bestby", "qdisc", method, "truncate"] => bestby(method, None, true),
            ["bestby", "qdisc", method, "limit", limit] => {
                bestby(method, Some(packets(limit)?), false)
            }
            ["bestby", "qdisc", method, "limit", limit, "truncate"] => {
                bestby(method, Some(packets(limit)?), true)
            }
            ["simulated", rule] if simulator::rule(rule).is_some() => {
                Ok(Self::Simulated(rule.to_owned()))
            }
            ["simulated", ..] => bail!(
                "no rule is simulated as `{text}`: there are {}",
                simulator::RULES.map(|(name, _)| name).join(", ")
            ),
            _ => bail!(
                "no queue `{text}`: there are `bestby qdisc METHOD [limit PACKETS] [truncate]`, \
                 `pfifo PACKETS`, `simulated RULE`, `{}`",
                NAMED.map(|(name, _)| name).join("`, `")
            ),
        }
    }
}

impl TryFrom<String> for Queue {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Queue> for String {
    fn from(queue: Queue) -> Self {
        queue.name()
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// What a queue is told about the path.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Rate that it shapes the device to, bit/s; `None` where the device pushes back by itself.
    pub rate: Option<u64>,
    /// Estimate of each session's rate, bit/s; bestby alone can be told one.
    pub session_rate: Option<u64>,
    /// One-way delay to the receivers, ns; bestby alone asks for it (ETF's sender uses
    /// it, see [`Queue::marking`]).
    pub owd: u64,
    /// The receivers.
    pub receivers: &'a [Ipv4Addr],
}

/// Why a queue could not be installed, if the reason is that this kernel has no such
/// queue: the words of `tc` or of bestby that say so.
pub fn not_on_this_kernel(error: &anyhow::Error) -> Option<String> {
    let text = format!("{error:#}");
    [
        // tc: neither built in nor a module of that name (by kernel version).
        "Specified qdisc not found",
        "qdisc kind is unknown",
        // bestbyd, mode qdisc.
        "this kernel has no qdiscs in BPF",
        // The lab's line.
        "this kernel has no tun device that pushes back",
    ]
    .into_iter()
    .find(|words| text.contains(words))
    .map(str::to_owned)
}

/// A queue in force.
#[derive(Debug)]
pub struct Installed<'a> {
    ns: &'a Netns,
    device: String,
    agent: Option<Rc<bestby::Agent>>,
    /// Names of the flow rules that go with it.
    rules: Vec<&'static str>,
}

impl<'a> Installed<'a> {
    /// Puts `queue` on `device` inside `ns`; gone when dropped.
    pub fn new(queue: &Queue, ns: &'a Netns, device: &str, told: &Told<'_>) -> Result<Self> {
        Self::sharing(queue, ns, device, told, &mut None)
    }

    /// The same for one run after the other. bestby's agent is taken from `agent`,
    /// or started and left there for the next run: starting costs far more than a run.
    /// It must be of this namespace. Nothing of one run reaches the next: with the
    /// interface its queue, its sessions and their counters go.
    pub fn sharing(
        queue: &Queue,
        ns: &'a Netns,
        device: &str,
        told: &Told<'_>,
        agent: &mut Option<Rc<bestby::Agent>>,
    ) -> Result<Self> {
        let leaf = match queue {
            Queue::Bestby { method, limit, .. } => {
                let limit = limit.map_or(String::new(), |packets| format!(" --limit {packets}"));
                let mode = format!("qdisc --method {method}{limit}");
                return Self::bestby(ns, device, &mode, told, agent);
            }
            Queue::BestbyTc | Queue::Rules { tc: true } => {
                return Self::bestby(ns, device, "tc", told, agent);
            }
            Queue::Rules { tc: false } => return Self::bestby(ns, device, "qdisc", told, agent),
            Queue::CakeBesteffort => "cake besteffort".into(),
            Queue::CakeDiffserv4 => "cake diffserv4".into(),
            Queue::Pfifo(limit) => format!("pfifo limit {limit}"),
            Queue::FqCodel | Queue::Fq | Queue::Prio => queue.name(),
            Queue::EtfDeadline => "etf clockid CLOCK_TAI delta 0 deadline_mode".into(),
            // The host's usual queue: SRT is an application, and has no say in it.
            Queue::Srt { .. } => "pfifo limit 1000".into(),
            Queue::Simulated(_) | Queue::Program(_) => bail!("`{queue}` is on no device"),
        };
        let installed = Self {
            ns,
            device: device.into(),
            agent: None,
            rules: Vec::new(),
        };
        let root = format!("qdisc replace dev {device} root handle 1:");
        let rate = match told.rate {
            None => {
                ns.sh("tc", &format!("{root} {leaf}"))?;
                return Ok(installed);
            }
            Some(rate) if leaf.starts_with("cake") => {
                ns.sh("tc", &format!("{root} {leaf} bandwidth {rate}bit"))?;
                return Ok(installed);
            }
            Some(rate) => rate,
        };
        let burst = htb_burst(rate);
        let (class, below) = ("classid 1:1 htb", format!("dev {device} parent"));
        for words in [
            format!("{root} htb default 1"),
            format!(
                "class add {below} 1: {class} rate {rate}bit ceil {rate}bit burst {burst} \
                 cburst {burst} quantum 1514"
            ),
            format!("qdisc add {below} 1:1 handle 10: {leaf}"),
        ] {
            ns.sh("tc", &words)?;
        }
        Ok(installed)
    }

    fn bestby(
        ns: &'a Netns,
        device: &str,
        mode: &str,
        told: &Told<'_>,
        running: &mut Option<Rc<bestby::Agent>>,
    ) -> Result<Self> {
        // Each agent of one lab has a namespace of its own.
        let label = ns.name().replace('/', "-");
        let agent = match running {
            Some(agent) => agent,
            None => running.insert(Rc::new(bestby::Agent::start(ns, &label)?)),
        };
        // On a line at the last hop, what the sender says in LPD's option counts.
        let rate = match told.rate {
            Some(rate) => format!("--rate {rate}bit"),
            None => "--trust 10.77.0.0/16".into(),
        };
        agent.bestby(&format!(
            "iface attach {device} --enforce --mode {mode} {rate}"
        ))?;
        let installed = Self {
            ns,
            device: device.into(),
            agent: Some(Rc::clone(agent)),
            rules: Vec::new(),
        };
        let owd = told.owd.div_ceil(1000);
        let rate = told
            .session_rate
            .map_or("none".to_owned(), |rate| format!("{rate}bit"));
        for receiver in told.receivers {
            agent.bestby(&format!(
                "session set {receiver} --owd {owd}us --rate {rate}"
            ))?;
        }
        Ok(installed)
    }

    /// A rule for each class of `schedule` until this is dropped, as an operator adds it: port and lifetime,
    /// and a priority where bestby cannot read one.
    pub fn add_rules(&mut self, schedule: &Schedule) -> Result<()> {
        for class in Class::ALL {
            let mut packets = schedule.packets.iter().filter(|p| p.class == class);
            let Some(first) = packets.next() else {
                continue;
            };
            let (name, port) = (class.name(), topology::port_of(class));
            let priority = match class {
                Class::Video => String::new(),
                _ => format!(" --priority {}", class.priority()),
            };
            let lifetime = first.lifetime.div_ceil(1000);
            let agent = self.agent().context("rules are bestby's")?;
            agent.bestby(&format!(
                "flow add {name} --proto udp --dport {port} --lifetime {lifetime}us{priority}"
            ))?;
            self.rules.push(name);
        }
        Ok(())
    }

    /// bestby's own agent, when this is a queue of bestby.
    pub fn agent(&self) -> Option<&bestby::Agent> {
        self.agent.as_deref()
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        match self.agent.take() {
            Some(agent) => {
                let rules = self.rules.iter().map(|name| format!("flow rm {name}"));
                for words in rules.chain([format!("iface detach {}", self.device)]) {
                    if let Err(error) = agent.bestby(&words) {
                        note!("detaching bestby: {error:#}");
                    }
                }
            }
            // Fails where installing had failed before the qdisc was there.
            None => {
                let _ = self
                    .ns
                    .sh("tc", &format!("qdisc del dev {} root", self.device));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_of_a_name_has_that_name() {
        let methods = METHODS.map(|method| format!("bestby qdisc {method}"));
        let others = [
            "bestby qdisc sfdps1 limit 5",
            "bestby qdisc ring truncate",
            "bestby qdisc triage limit 5 truncate",
            "pfifo 5",
            "simulated edf",
        ];
        let others = others.into_iter().chain(NAMED.map(|(name, _)| name));
        for name in methods.into_iter().chain(others.map(str::to_owned)) {
            let queue: Queue = name.parse().expect(&name);
            assert_eq!(queue.name(), name);
            let json = serde_json::to_string(&queue).expect("JSON");
            assert_eq!(json, format!("\"{name}\""));
        }
    }

    #[test]
    fn queue_of_a_wrong_name_is_refused_with_what_there_is() {
        for (name, says) in [
            ("red", "fq_codel"),
            ("bestby qdisc best", "ring-sfdps2"),
            ("pfifo 0", "1 to 1000000"),
            ("srt fast", "`srt paced`"),
            ("simulated", "priority"),
            ("bestby qdisc ring limit many", "1 to 1000000"),
            ("bestby qdisc ring truncate limit 5", "[truncate]"),
            ("pfifo 5 truncate", "no queue"),
            ("", "no queue"),
        ] {
            let error = name.parse::<Queue>().expect_err(name).to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
    }

    #[test]
    fn htb_saves_up_a_millisecond_of_its_link() {
        // 253 kbit/s are 31.6 bytes/ms. tc takes 0 for "choose yourself": 1600 and more.
        for (rate, bytes) in [(253_000, 31), (10_000_000_000, 1_250_000), (7_999, 1)] {
            assert_eq!(htb_burst(rate), bytes, "{rate}");
        }
    }

    #[test]
    fn lack_of_a_kernel_is_told_from_other_failures() {
        let lack = anyhow::anyhow!("Error: Specified qdisc kind is unknown.").context("tc");
        assert!(not_on_this_kernel(&lack).is_some());
        let other = anyhow::anyhow!("RTNETLINK answers: Operation not permitted");
        assert!(not_on_this_kernel(&other).is_none());
    }
}
