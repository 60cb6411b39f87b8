//! What no single field of a file can know: which of them go together.

use std::ops::Range;

use toml::Spanned;

use super::{
    Fault, File, QueueName,
    cell::{Bottleneck, Control, Stall},
    value::{Axis, Error},
};
use crate::queue::Queue;

impl File {
    /// What no single field can know.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.check_title()?;
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
        if let Some(restart) = &self.restart
            && self.control != Control::Tfrc
        {
            return fault(
                Some(restart.span()),
                "`restart` goes with control = \"tfrc\" only",
            );
        }
        let told = self.told.rtt_error.is_some() || self.told.rate_error.is_some();
        if told && self.control != Control::None {
            return fault(
                at,
                "[told]: a congestion-controlled sender finds out RTT and rate by itself",
            );
        }
        let queues = self.queues.get_ref();
        if queues.is_empty() {
            return fault(Some(self.queues.span()), "`queues`: name at least one");
        }
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
        if let Some(discard) = &self.discard_first {
            let length = self.seconds.0 as f64;
            if discard.get_ref().0 >= length {
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
        self.check_owd()?;
        self.check_heard()
    }

    fn check_title(&self) -> Result<(), Fault> {
        let title = self.title.get_ref();
        if title.trim().is_empty() || title.chars().any(char::is_control) {
            return fault(
                Some(self.title.span()),
                "`title` must be one line, as it is a heading's; `description` may have several",
            );
        }
        Ok(())
    }

    fn check_owd(&self) -> Result<(), Fault> {
        let owd = &self.topology.get_ref().owd;
        let mut owds = owd.get_ref().0.iter();
        let Some(long) = owds.find(|owd| owd.0 > MOST_OWD_OF_TFRC) else {
            return Ok(());
        };
        match self.control {
            Control::Tfrc => fault(
                Some(owd.span()),
                &format!(
                    "[topology] `owd` = {long}: with control = \"tfrc\" at most {MOST_OWD_OF_TFRC} \
                     ms: its first round-trip time is that of a greeting, which goes out again \
                     each second, and the answer to an earlier one would make it too short"
                ),
            ),
            Control::None | Control::Dccp => Ok(()),
        }
    }

    /// What none of the queues is told would be a wrong value without any effect.
    fn check_heard(&self) -> Result<(), Fault> {
        let router = self.topology.get_ref().bottleneck == Bottleneck::Router;
        let unheard = |axis: &str| {
            let mut queues = self.queues.get_ref().iter();
            queues.all(|QueueName(queue)| unheard(queue, router).contains(&axis))
        };
        let wrong = |errors: &Option<Spanned<Axis<Error>>>| {
            let errors = errors.as_ref()?;
            let mut values = errors.get_ref().0.iter();
            values
                .any(|error| *error != Error(0.0))
                .then(|| errors.span())
        };
        for (axis, span, who) in [
            (
                "rtt_error",
                wrong(&self.told.rtt_error),
                "bestby, `etf` and `srt`",
            ),
            (
                "rate_error",
                wrong(&self.told.rate_error),
                "bestby, and behind a router every queue",
            ),
        ] {
            if span.is_some() && unheard(axis) {
                let message = format!(
                    "`{axis}` changes nothing: none of the `queues` is told that, only {who}: \
                     leave it out or add such a queue"
                );
                return fault(span, &message);
            }
        }
        Ok(())
    }
}

/// The axes of which `queue` is told nothing.
pub(super) fn unheard(queue: &Queue, router: bool) -> Vec<&'static str> {
    let mut axes = Vec::new();
    if !queue.knows_owd() {
        axes.push("rtt_error");
    }
    if !queue.is_bestby() && !router {
        axes.push("rate_error");
    }
    axes
}

/// ms: both ways below the second after which a greeting goes out again.
const MOST_OWD_OF_TFRC: f64 = 450.0;

fn fault<T>(span: Option<Range<usize>>, message: &str) -> Result<T, Fault> {
    Err(Fault {
        at: span.map(|span| span.start),
        message: message.to_owned(),
    })
}
