//! The queues that are compared, each at one rate on one device, with what the
//! sender must say for each of them to show its best.
//!
//! Shaping: cake and bestby shape by themselves; all other peers hang below a token
//! bucket (tbf) whose bucket holds one full packet, the least that it can work with.
//! (bestby may catch up 1 ms after a late wake-up; a larger bucket below a tiny FIFO
//! would let several packets through at once and flatter it.)

use std::net::Ipv4Addr;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{
    bestby,
    netns::Netns,
    topology::{self, Path},
    traffic::sender::Marking,
};

/// bytes; just above the largest packet of 1026.
const TBF_BURST: u32 = 1100;

/// What is on the sender's device in one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// bestby in mode qdisc with this method.
    Bestby(String),
    /// bestby in mode tc.
    BestbyTc,
}

impl Queue {
    /// All peers in the order of the report.
    pub fn peers() -> Vec<Self> {
        vec![
            Self::Pfifo(5),
            Self::Pfifo(32),
            Self::Pfifo(1000),
            Self::FqCodel,
            Self::Fq,
            Self::CakeBesteffort,
            Self::CakeDiffserv4,
            Self::Prio,
            Self::EtfDeadline,
        ]
    }

    /// bestby in both modes and with every method.
    pub fn bestby() -> Vec<Self> {
        [
            "triage",
            "ring-sfdps2",
            "ring",
            "sfdps2",
            "sfdps1",
            "lazy",
            "fifo",
        ]
        .into_iter()
        .map(|method| Self::Bestby(method.into()))
        .chain([Self::BestbyTc])
        .collect()
    }

    /// Its name in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Pfifo(limit) => format!("pfifo {limit}"),
            Self::FqCodel => "fq_codel".into(),
            Self::Fq => "fq".into(),
            Self::CakeBesteffort => "cake besteffort".into(),
            Self::CakeDiffserv4 => "cake diffserv4".into(),
            Self::Prio => "prio".into(),
            Self::EtfDeadline => "etf deadline".into(),
            Self::Bestby(method) => format!("bestby {method}"),
            Self::BestbyTc => "bestby mode tc".into(),
        }
    }

    /// How the sender marks for this queue on a path of one-way delay `owd` ns.
    pub fn marking(&self, owd: u64) -> Marking {
        match self {
            Self::Bestby(_) | Self::BestbyTc => Marking {
                mark: true,
                ..Marking::default()
            },
            Self::CakeDiffserv4 => Marking {
                dscp: true,
                ..Marking::default()
            },
            Self::Prio => Marking {
                priority: true,
                ..Marking::default()
            },
            Self::EtfDeadline => Marking {
                txtime_owd: Some(owd),
                ..Marking::default()
            },
            _ => Marking::default(),
        }
    }

    /// Puts the queue on the path's device at `rate` bit/s; gone when dropped.
    pub fn install<'a>(&self, path: &'a Path, rate: u64) -> Result<Installed<'a>> {
        let far = (topology::RECEIVER, path.owd);
        Installed::on(self, path.sender(), topology::DEVICE, rate, far)
    }
}

/// A queue in force.
#[derive(Debug)]
pub struct Installed<'a> {
    ns: &'a Netns,
    device: String,
    agent: Option<bestby::Agent>,
}

impl<'a> Installed<'a> {
    /// Puts `queue` on `device` inside `ns` at `rate` bit/s. `far` is the receiver and
    /// its one-way delay in ns: what an RTT feed would tell bestby, as it was measured
    /// on the idle path.
    pub fn on(
        queue: &Queue,
        ns: &'a Netns,
        device: &str,
        rate: u64,
        far: (Ipv4Addr, u64),
    ) -> Result<Self> {
        let (leaf, cake) = match queue {
            Queue::Bestby(method) => {
                return Self::bestby(ns, device, &format!("qdisc --method {method}"), rate, far);
            }
            Queue::BestbyTc => return Self::bestby(ns, device, "tc", rate, far),
            Queue::CakeBesteffort => ("besteffort".into(), true),
            Queue::CakeDiffserv4 => ("diffserv4".into(), true),
            Queue::Pfifo(limit) => (format!("pfifo limit {limit}"), false),
            Queue::FqCodel => ("fq_codel".into(), false),
            Queue::Fq => ("fq".into(), false),
            Queue::Prio => ("prio".into(), false),
            Queue::EtfDeadline => (
                "etf clockid CLOCK_TAI delta 0 deadline_mode".to_owned(),
                false,
            ),
        };
        let installed = Self {
            ns,
            device: device.into(),
            agent: None,
        };
        let root = format!("qdisc replace dev {device} root handle 1:");
        if cake {
            ns.sh("tc", &format!("{root} cake bandwidth {rate}bit {leaf}"))?;
        } else {
            let bucket = format!("tbf rate {rate}bit burst {TBF_BURST} limit 10000000");
            ns.sh("tc", &format!("{root} {bucket}"))?;
            ns.sh(
                "tc",
                &format!("qdisc add dev {device} parent 1:1 handle 10: {leaf}"),
            )?;
        }
        Ok(installed)
    }

    fn bestby(
        ns: &'a Netns,
        device: &str,
        mode: &str,
        rate: u64,
        (addr, owd): (Ipv4Addr, u64),
    ) -> Result<Self> {
        let agent = bestby::Agent::start(ns, "lab")?;
        agent.bestby(&format!(
            "iface attach {device} --mode {mode} --rate {rate}bit"
        ))?;
        let installed = Self {
            ns,
            device: device.into(),
            agent: Some(agent),
        };
        if let Some(agent) = &installed.agent {
            agent.bestby(&format!(
                "session set {addr} --owd {}us",
                owd.div_ceil(1000)
            ))?;
        }
        Ok(installed)
    }

    /// bestby's own agent, when this is a queue of bestby.
    pub fn agent(&self) -> Option<&bestby::Agent> {
        self.agent.as_ref()
    }

    /// What the kernel says of the queue (`tc -s qdisc show`).
    pub fn statistics(&self) -> Result<String> {
        self.ns
            .sh("tc", &format!("-s qdisc show dev {}", self.device))
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        match self.agent.take() {
            Some(agent) => {
                if let Err(error) = agent.bestby(&format!("iface detach {}", self.device)) {
                    eprintln!("detaching bestby: {error:#}");
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
