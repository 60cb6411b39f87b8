//! A scenario file as it stands, and what no single field of it can know: which of them go
//! together.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use toml::Spanned;

use super::{
    cell::{Bottleneck, Control, Stall},
    value::{
        BucketBytes, Discard, Error, Lifetime, Load, Millis, OwdMillis, Percent, Rate, Repetitions,
        Seconds, Seed, Sweep, TcpFlows, distinct,
    },
};
use crate::{
    line::{Device, Trace},
    program::{Congestion, Program},
    queue::Queue,
    tfrc::Restart,
    topology::RouterQueue,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) seed: Option<Seed>,
    pub(super) repetitions: Option<Repetitions>,
    pub(super) seconds: Option<Seconds>,
    pub(super) discard_first: Option<Spanned<Discard>>,
    #[serde(default)]
    pub(super) control: Control,
    pub(super) restart: Option<Sweep<Restart>>,
    pub(super) congestion: Option<Sweep<Congestion>>,
    #[serde(default)]
    pub(super) option: bool,
    pub(super) undo: Option<Sweep<bool>>,
    pub(super) lifetime: Option<Sweep<Lifetime>>,
    pub(super) queues: Spanned<Vec<Queue>>,
    pub(super) topology: Spanned<Topology>,
    pub(super) traffic: Spanned<Traffic>,
    #[serde(default)]
    pub(super) told: Told,
    pub(super) stall: Option<Sweep<Stall>>,
}

/// The model's parameters as they stand.
pub(super) type Traffic = BTreeMap<Spanned<String>, toml::Value>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Topology {
    #[serde(default)]
    pub(super) bottleneck: Bottleneck,
    pub(super) rate: Option<Sweep<Rate>>,
    pub(super) load: Option<Sweep<Load>>,
    pub(super) trace: Option<Sweep<Trace>>,
    pub(super) device: Option<Device>,
    pub(super) owd: Sweep<OwdMillis>,
    pub(super) loss: Option<Sweep<Percent>>,
    pub(super) router_queue: Option<Sweep<RouterQueue>>,
    pub(super) tcp: Option<Sweep<TcpFlows>>,
    pub(super) burst: Option<Sweep<BucketBytes>>,
    pub(super) fading: Option<Spanned<Phases>>,
}

/// Losses that come and go.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Phases {
    pub(super) loss: Sweep<Percent>,
    #[serde(default = "second")]
    pub(super) on: Millis,
    #[serde(default = "second")]
    pub(super) off: Millis,
    pub(super) acks: Option<Sweep<bool>>,
}

/// Both means of the paper.
fn second() -> Millis {
    Millis(1000.0)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Told {
    pub(super) rtt_error: Option<Sweep<Error>>,
    pub(super) rate_error: Option<Sweep<Error>>,
}

/// What is wrong, and at which byte of the text.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Option<usize>,
    pub(super) message: String,
}

/// A fault at this byte.
pub(super) fn fault(at: usize, message: impl fmt::Display) -> Fault {
    Fault {
        at: Some(at),
        message: message.to_string(),
    }
}

/// ms: both ways below the second after which a greeting goes out again.
const MOST_OWD_OF_TFRC: f64 = 450.0;

impl File {
    pub(super) fn seconds(&self) -> u64 {
        self.seconds.map_or(20, |seconds| seconds.0)
    }

    pub(super) fn router(&self) -> bool {
        self.topology.get_ref().bottleneck == Bottleneck::Router
    }

    pub(super) fn line(&self) -> bool {
        self.topology.get_ref().bottleneck == Bottleneck::Line
    }

    /// What no single field can know.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let (title, at) = (self.title.get_ref(), self.title.span().start);
        let lines = title.trim().is_empty() || title.chars().any(char::is_control);
        let why = "`title` must be one line, as it is a heading's; `description` may have several";
        refuse(lines, at, why)?;
        if let Some(discard) = &self.discard_first {
            let all = discard.get_ref().0 >= self.seconds() as f64;
            let why = "`discard_first` must be below `seconds`";
            refuse(all, discard.span().start, why)?;
        }
        self.check_topology()?;
        self.check_control()?;
        self.check_queues()?;
        self.check_line()?;
        self.check_stall()
    }

    fn check_topology(&self) -> Result<(), Fault> {
        let (topology, at) = (self.topology.get_ref(), self.topology.span().start);
        let (rate, load) = (topology.rate.is_some(), topology.load.is_some());
        let why = "[topology]: give either `rate` (bit/s) or `load` (offered rate / link rate); with \
                   bottleneck = \"line\" neither, but `trace` (a file)";
        let (line, trace) = (self.line(), topology.trace.is_some());
        refuse(
            trace != line || (rate || load) == line || (rate && load),
            at,
            why,
        )?;
        let why = "[topology]: `device` goes with bottleneck = \"line\" only";
        refuse(topology.device.is_some() && !line, at, why)?;
        let queue = topology.router_queue.is_some();
        let why = "[topology]: `router_queue` goes with bottleneck = \"router\" only";
        refuse(queue && !self.router(), at, why)?;
        let why = "[topology]: `tcp` goes with bottleneck = \"router\" or \"line\" only";
        refuse(
            topology.tcp.is_some() && !self.router() && !self.line(),
            at,
            why,
        )?;
        self.check_fading(topology)?;
        let (owds, at) = (topology.owd.values.iter(), topology.owd.at);
        let longest = owds.map(|owd| owd.0).fold(0.0, f64::max);
        let tfrc = self.control == Control::Tfrc;
        let why = format!(
            "`owd` must be at most {MOST_OWD_OF_TFRC} with control = \"tfrc\", not {longest}: its \
             greeting goes out again each second, and the answer to an earlier one would make the \
             first round-trip time too short"
        );
        refuse(tfrc && longest > MOST_OWD_OF_TFRC, at, why)
    }

    fn check_fading(&self, topology: &Topology) -> Result<(), Fault> {
        if let Some(burst) = &topology.burst {
            let why = "[topology]: `burst` goes with bottleneck = \"router\" only";
            refuse(!self.router(), burst.at, why)?;
        }
        let Some(fading) = &topology.fading else {
            return Ok(());
        };
        let (phases, at) = (fading.get_ref(), fading.span().start);
        let why =
            "[topology.fading]: it goes with `queues` = [\"tcp transfer\"] and without `loss`";
        let other = !self.is_transfer() || topology.loss.is_some();
        refuse(other, at, why)?;
        let why =
            "[topology.fading]: `on` and `off` are 1 ms at least, the mean lengths of its phases";
        refuse(phases.on.0 < 1.0 || phases.off.0 < 1.0, at, why)
    }

    /// Whether one of the queues is bulk TCP.
    pub(super) fn is_transfer(&self) -> bool {
        let mut queues = self.queues.get_ref().iter();
        queues.any(|queue| *queue == Queue::Program(Program::Transfer))
    }

    fn check_control(&self) -> Result<(), Fault> {
        let tfrc = self.control == Control::Tfrc;
        if let Some(restart) = &self.restart {
            let why = "`restart` goes with control = \"tfrc\" only";
            refuse(!tfrc, restart.at, why)?;
        }
        let program = self.control == Control::Program;
        if let Some(congestion) = &self.congestion {
            let why = "`congestion` goes with control = \"program\" only";
            refuse(!program, congestion.at, why)?;
            let real = congestion.values.iter().any(|c| c.real_mode().is_some());
            let other = |queue: &Queue| !queue.name().starts_with("tcp ");
            let why =
                "`congestion`: \"real\" and \"real paper\" are TCP's: they go with `tcp ...` only";
            let any = self.queues.get_ref().iter().any(other);
            refuse(real && any, congestion.at, why)?;
        }
        let mut queues = self.queues.get_ref().iter();
        let own = queues.any(|queue| matches!(queue, Queue::Program(_)));
        let why =
            "`queues`: `tcp ...` and `quic ...` are programs: they need control = \"program\"";
        refuse(own && !program, self.queues.span().start, why)?;
        if self.control == Control::None {
            return Ok(());
        }
        let why = "`control` needs [topology] bottleneck = \"router\" (\"tfrc\", \"dccp\", \"program\") or \"line\" \
                   (\"tfrc\", \"tcp\"): at the sender nothing is lost that it could react to";
        let there = match self.control {
            Control::Tcp => self.line(),
            Control::Dccp | Control::Program => self.router(),
            _ => self.router() || self.line(),
        };
        refuse(!there, self.topology.span().start, why)?;
        let told = &self.told;
        if let Some(error) = told.rtt_error.as_ref().or(told.rate_error.as_ref()) {
            let why = "[told]: a congestion-controlled sender finds out RTT and rate by itself";
            return Err(fault(error.at, why));
        }
        if self.line() {
            return Ok(());
        }
        let driven = |queue: &&Queue| match queue {
            Queue::Pfifo(_) => true,
            Queue::Bestby { .. } => tfrc,
            _ => false,
        };
        if program {
            let named = |queue: &Queue| matches!(queue, Queue::Program(_) | Queue::Srt { .. });
            let all = self.queues.get_ref().iter().all(named);
            let why =
                "`queues`: with control = \"program\" they are `tcp ...`, `quic ...` and `srt`";
            return refuse(!all, self.queues.span().start, why);
        }
        let other = self.queues.get_ref().iter().find(|queue| !driven(queue));
        let Some(other) = other else { return Ok(()) };
        let why = format!(
            "`queues`: a congestion-controlled sender has `pfifo N` (a FIFO in front of the socket) \
             or, with \"tfrc\", `bestby qdisc ...`, not `{other}`"
        );
        Err(fault(self.queues.span().start, why))
    }

    fn check_queues(&self) -> Result<(), Fault> {
        let (queues, at) = (self.queues.get_ref(), self.queues.span().start);
        distinct(queues).map_err(|message| fault(at, format!("`queues`: {message}")))?;
        let simulated = |queue: &Queue| matches!(queue, Queue::Simulated(_));
        let lossy = self.topology.get_ref().loss.is_some();
        let other = self.router() || self.line() || lossy || self.stall.is_some();
        let why = "`queues`: what is simulated is a bottleneck at the sender, which loses nothing and \
                   does not stall";
        refuse(other && queues.iter().any(simulated), at, why)?;
        // What none of the queues is told would be a wrong value without any effect.
        let (rtt, rate) = (&self.told.rtt_error, &self.told.rate_error);
        let of_rate = "bestby, and behind a router every queue";
        for (axis, errors, who) in [
            ("rtt_error", rtt, "bestby, `etf` and `srt`"),
            ("rate_error", rate, of_rate),
        ] {
            let Some(errors) = errors else { continue };
            let wrong = errors.values.iter().any(|error| error.0 != 0.0);
            let heard = queues.iter().any(|queue| self.hears(queue, axis));
            let why = format!(
                "`{axis}` changes nothing: none of the `queues` is told that, only {who}: leave it \
                 out or add such a queue"
            );
            refuse(wrong && !heard, errors.at, why)?;
        }
        Ok(())
    }

    /// Whether `queue` is told what the errors of this axis are of.
    pub(super) fn hears(&self, queue: &Queue, axis: &str) -> bool {
        match axis {
            "rtt_error" => queue.knows_owd(),
            "rate_error" => queue.knows_rate() || self.router(),
            _ => true,
        }
    }

    fn check_line(&self) -> Result<(), Fault> {
        let tcp = self.control == Control::Tcp;
        let undo = self.undo.as_ref().map(|undo| undo.at);
        let option = self.option.then_some(self.title.span().start);
        let why = "`undo` and `option` go with control = \"tcp\" only";
        undo.or(option).map_or(Ok(()), |at| refuse(!tcp, at, why))?;
        let truncates = |queue: &Queue| matches!(queue, Queue::Bestby { truncate: true, .. });
        let fits = self.topology.get_ref().device == Some(Device::Tun) && !tcp;
        let why = "`queues`: `truncate` goes with bottleneck = \"line\" and device = \"tun\", and not with \
                   control = \"tcp\": nobody there reads a header alone";
        let any = self.queues.get_ref().iter().any(truncates);
        refuse(any && !fits, self.queues.span().start, why)?;
        if !self.line() {
            return Ok(());
        }
        let (topology, told) = (self.topology.get_ref(), &self.told);
        let told = told.rtt_error.is_some() || told.rate_error.is_some();
        let other = topology.loss.is_some() || told || self.stall.is_some();
        let why = "[topology]: bottleneck = \"line\" has no `loss`, `[told]` and `[stall]`";
        refuse(other, self.topology.span().start, why)?;
        let fits = |queue: &Queue| {
            use Queue::{Bestby, Fq, FqCodel, Pfifo};
            matches!(queue, Pfifo(_) | FqCodel | Fq | Bestby { .. })
        };
        let why =
            "`queues`: in front of a line are `pfifo N`, `fq_codel`, `fq` and `bestby qdisc ...`";
        let all = self.queues.get_ref().iter().all(fits);
        refuse(!all, self.queues.span().start, why)
    }

    fn check_stall(&self) -> Result<(), Fault> {
        let Some(stall) = &self.stall else {
            return Ok(());
        };
        let lossy = self.topology.get_ref().loss.is_some();
        let why = "[stall]: the link that can stall is the sender's (bottleneck = \"sender\") and \
                   loses nothing: leave `loss` out";
        refuse(self.router() || self.line() || lossy, stall.at, why)?;
        let (queues, at) = (self.queues.get_ref(), self.queues.span().start);
        let srt = |queue: &Queue| matches!(queue, Queue::Srt { .. });
        let why = "`queues`: SRT needs the way back, which a link that can stall has not";
        refuse(queues.iter().any(srt), at, why)?;
        let rules = |queue: &Queue| matches!(queue, Queue::Rules { .. });
        let why =
            "`queues`: in front of a link that can stall bestby is told by marks, not by rules";
        refuse(queues.iter().any(rules), at, why)?;
        let ends = stall.values.iter().map(|stall| stall.at.0 + stall.length.0);
        let latest = ends.fold(0.0, f64::max);
        let why = format!("[stall]: it must end (now {latest} ms) before the traffic does");
        refuse(latest >= self.seconds() as f64 * 1000.0, stall.at, why)
    }
}

fn refuse(wrong: bool, at: usize, message: impl fmt::Display) -> Result<(), Fault> {
    match wrong {
        true => Err(fault(at, message)),
        false => Ok(()),
    }
}
