//! `bestby iface`: interfaces under control.

use std::process::ExitCode;

use bestby_api::{
    AttachRequest, Decrement, DevName, Done, InterfaceInfo, Limit, LinkRate, Method, Mode,
    Overhead, PathInfo, PathState, Prefix, Prefixes, Probe, PushedBack, SessionKey, path,
};
use clap::{Args, Subcommand};

use crate::client::{Client, part};
use crate::failure::Failure;
use crate::format::{long_time, measured_rate, memory, or_dash, time};
use crate::output::Output;
use crate::setting::{Setting, change, setting, value};
use crate::stats::waited;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Take an interface's egress under control
    Attach(Box<Attach>),
    /// Change what is given of an attached interface; the rest stays
    Set(Box<Said>),
    /// Give an interface back: the qdisc from before is restored
    Detach {
        /// Interface
        #[arg(value_parser = value::<DevName>)]
        dev: DevName,
    },
    /// Replace the programs of an interface by those of the running bestbyd; queued packets stay
    Upgrade {
        /// Interface
        #[arg(value_parser = value::<DevName>)]
        dev: DevName,
    },
    /// List the interfaces under control
    Ls,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    #[command(flatten)]
    said: Said,
    /// Take the place of a root qdisc that somebody configured; detach restores its kind
    #[arg(long)]
    replace: bool,
}

/// What is said of an interface; what is left out stays as it is.
#[derive(Debug, Args)]
pub(crate) struct Said {
    /// Interface
    #[arg(value_parser = value::<DevName>)]
    dev: DevName,
    /// auto: qdisc where the kernel has BPF qdiscs, else tc; tc predicts delay instead of observing it [default: auto]
    #[arg(long, value_name = "auto|qdisc|tc", value_parser = value::<Mode>)]
    mode: Option<Mode>,
    /// What the link behind the interface carries, e.g. 10mbit; the interface is shaped to it. `none` ends that.
    /// `auto` finds it, by echo requests; auto:MIN..MAX bounds it (MIN is 64kbit unless given)
    #[arg(long, value_name = "RATE|auto[:MIN..MAX]|none", allow_hyphen_values = true,
          value_parser = setting::<LinkRate>)]
    rate: Option<Setting<LinkRate>>,
    /// Where the echo requests of `--rate auto` go: the busiest receiver of media that answers, the gateway of the
    /// default route, nowhere, or one host; 1 % of what is sent at most [default: receivers]
    #[arg(long, value_name = "receivers|gateway|none|ADDR", value_parser = value::<Probe>)]
    probe: Option<Probe>,
    /// fifo, sfdps1, sfdps2, ring, ring-sfdps2, lazy or triage [default: triage]
    #[arg(long, value_parser = value::<Method>)]
    method: Option<Method>,
    /// Which packets share one bottleneck: dst, flow, interface or prefix/N [default: dst]
    #[arg(long, value_name = "KEY", value_parser = value::<SessionKey>)]
    session: Option<SessionKey>,
    /// Packets that may be queued (per transmit queue below mq)
    #[arg(long, value_name = "PACKETS", allow_hyphen_values = true, value_parser = value::<Limit>)]
    limit: Option<Limit>,
    /// Bytes the link adds to each packet
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = value::<Overhead>)]
    overhead: Option<Overhead>,
    /// Count what would be dropped by a model of the rate; drop, hold and shape nothing
    /// [default of a new interface]
    #[arg(long, conflicts_with = "enforce")]
    observe: bool,
    /// Drop what is late. Nothing else ends --observe
    #[arg(long)]
    enforce: bool,
    /// Sources whose IP options of LPD count on packets forwarded here, or `none`; may be given more than once
    #[arg(long, value_name = "PREFIX", value_parser = setting::<Prefix>)]
    trust: Vec<Setting<Prefix>>,
    /// Lifetime in such an option: left (the last hop needs no more), made a deadline, or less the expected wait
    /// [default: off]
    #[arg(long, value_name = "off|clock|predict", value_parser = value::<Decrement>)]
    decrement: Option<Decrement>,
    /// Write what commands said of the interface to the configuration file, too
    #[arg(long)]
    save: bool,
}

impl Said {
    fn request(self, replace: bool) -> Result<AttachRequest, Failure> {
        let trust = if self.trust.is_empty() {
            None
        } else {
            let prefixes = Prefixes::new(self.trust.into_iter().filter_map(|t| t.0));
            Some(prefixes.ok_or_else(|| {
                Failure::Usage(format!("--trust: more than {} prefixes", Prefixes::MOST))
            })?)
        };
        Ok(AttachRequest {
            dev: self.dev,
            mode: self.mode,
            rate: change(self.rate),
            probe: self.probe,
            method: self.method,
            session: self.session,
            limit: self.limit,
            overhead: self.overhead,
            observe: match (self.observe, self.enforce) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            trust,
            decrement: self.decrement,
            replace,
            save: self.save,
        })
    }
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Attach(a) => {
            let request = a.said.request(a.replace)?;
            let done: Done = client
                .send(hyper::Method::POST, path::INTERFACES, &request)
                .await?;
            output.done(&done)?;
        }
        Verb::Set(said) => {
            let request = said.request(false)?;
            if request.said().is_empty() && !request.save {
                return Err(Failure::Usage(format!(
                    "iface set {}: say what to change",
                    request.dev
                )));
            }
            let path = format!("{}/{}", path::INTERFACES, part(request.dev.as_str()));
            output.done(&client.send(hyper::Method::PUT, &path, &request).await?)?;
        }
        Verb::Detach { dev } => {
            let path = format!("{}/{}", path::INTERFACES, part(dev.as_str()));
            output.done(&client.delete(&path).await?)?;
        }
        Verb::Upgrade { dev } => {
            let path = format!("{}/{}/upgrade", path::INTERFACES, part(dev.as_str()));
            output.done(&client.send(hyper::Method::POST, &path, &()).await?)?;
        }
        Verb::Ls => {
            let list: Vec<InterfaceInfo> = client.get(path::INTERFACES).await?;
            output.answer(&list, |list| render(list))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How long half of the packets waited at most, and 99 of 100: `2.09ms / 16.7ms`.
fn delay(i: &InterfaceInfo) -> Option<String> {
    let delay = i.times.as_ref()?.sojourn.delay()?;
    Some(format!(
        "{} / {}",
        waited(delay.p50_ns),
        waited(delay.p99_ns)
    ))
}

/// A rate that is found, as the column has it: `auto 248kbit`.
fn rate(i: &InterfaceInfo) -> Option<String> {
    let rate = i.rate?;
    if rate.auto().is_none() {
        return Some(rate.to_string());
    }
    let found = i.path.as_ref().and_then(|path| path.rate_bytes_s);
    Some(found.map_or("auto".into(), |found| {
        format!("auto {}", measured_rate(found))
    }))
}

/// What is known of a path whose rate is found: `queue elsewhere 12ms, 192.0.2.1 asked each 98ms`.
fn found(path: &PathInfo) -> String {
    if let Some(problem) = &path.problem {
        return format!("no rate is found: {problem}");
    }
    let Some(asked) = path.asked_by_name() else {
        return "nobody is asked".into();
    };
    if let Some(ns) = path.silent_ns() {
        return format!(
            "no answer from {asked} for {}",
            long_time(ns / 1_000_000_000)
        );
    }
    let asks = path.interval_ns.map_or_else(
        || "nothing is sent, so nobody is asked".into(),
        |ns| format!("{asked} asked each {}", time(ns)),
    );
    let queue = path.queue_ns.filter(|ns| *ns >= PathInfo::NO_QUEUE_NS);
    let sees = match (path.state, queue) {
        (PathState::Others, queue) => {
            format!("others fill it: {}", time(queue.unwrap_or(0)))
        }
        (_, Some(queue)) => format!("queue elsewhere {}", time(queue)),
        (_, None) if path.answers == 0 => "no answer yet".into(),
        (_, None) => "no queue seen".into(),
    };
    format!("{sees}, {asks}")
}

/// Of an interface without a rate, whose device has not pushed back.
const HOLDS_NO_QUEUE: &str = "holds no queue: no rate is known, and the device has not pushed back";

/// What its device takes: `device pushes back, 248kbit seen`.
fn device(device: PushedBack) -> String {
    let seen = measured_rate(device.rate.bytes_per_s());
    if device.age_ns < PushedBack::LATELY_NS {
        return format!("device pushes back, {seen} seen");
    }
    format!(
        "device pushed back {} ago, {seen} seen",
        time(device.age_ns)
    )
}

/// The interfaces under control, with their notes below.
pub(crate) fn render(list: &[InterfaceInfo]) -> String {
    if list.is_empty() {
        return "no interface is under control; take one with: bestby iface attach DEV --rate RATE\n".into();
    }
    let mut table = Table::new(&[
        "DEV",
        "MODE",
        "METHOD",
        "SESSION",
        ">RATE",
        ">LIMIT",
        ">OVERHEAD",
        ">QUEUES",
        ">QUEUED",
        ">SENT",
        ">DROPPED",
        ">DELAY",
        ">MEMORY",
        "",
    ]);
    let mut notes = String::new();
    for i in list {
        let mut remarks = Vec::new();
        if i.predicts_delay && !i.observe {
            remarks.push("predicts delay, does not observe it");
        }
        if i.observe {
            remarks.push("drops and shapes nothing (--observe)");
        }
        let trusted = format!("trusts options of {}", i.trust);
        if !i.trust.is_empty() {
            remarks.push(trusted.as_str());
        }
        let passed = format!("decrements by {}", i.decrement);
        if i.decrement != Decrement::Off {
            remarks.push(passed.as_str());
        }
        if i.cuts {
            remarks.push("cuts super-packets");
        }
        let device = i.device.map(device);
        match &device {
            Some(device) => remarks.push(device),
            None if i.rate.is_none() && !i.observe => remarks.push(HOLDS_NO_QUEUE),
            None => {}
        }
        let found = i.path.as_ref().map(found);
        remarks.extend(found.as_deref());
        let dropped = if i.observe {
            i.counters.would_drop
        } else {
            i.counters.dropped
        };
        table.row(vec![
            (&i.dev).into(),
            i.mode.into(),
            i.method.into(),
            i.session.into(),
            or_dash(rate(i)).into(),
            i.limit.into(),
            i.overhead.into(),
            i.instances.into(),
            i.counters.queued.into(),
            i.counters.packets_sent.into(),
            format!("{}{}", dropped.total(), if i.observe { "?" } else { "" }).into(),
            or_dash(delay(i)).into(),
            or_dash(i.memory_bytes.map(memory)).into(),
            remarks.join("; ").into(),
        ]);
        for note in &i.notes {
            notes.push_str(&format!("{}: {note}\n", i.dev));
        }
    }
    table
        .without_empty(&["OVERHEAD", "DELAY", "MEMORY"])
        .render()
        + &notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_said_to_push_back_while_it_does_so_of_late() {
        let of = |age_ns| {
            device(PushedBack {
                rate: "252216bit".parse().unwrap(),
                age_ns,
            })
        };
        assert_eq!(of(33_000_000), "device pushes back, 252kbit seen");
        assert_eq!(
            of(240_000_000_000),
            "device pushed back 240s ago, 252kbit seen"
        );
    }

    #[test]
    fn interface_that_holds_no_queue_says_so_and_one_that_may_does_not() {
        let remarks = |more: serde_json::Value| {
            let mut json = serde_json::json!({
                "dev": "eth0", "ifindex": 2, "mode": "qdisc", "predicts_delay": false, "method": "triage",
                "session": "dst", "limit": 1000, "observe": false, "instances": 1,
                "counters": bestby_api::Counters::default(),
            });
            for (key, value) in more.as_object().unwrap() {
                json[key] = value.clone();
            }
            render(&[serde_json::from_value(json).unwrap()])
        };
        assert!(remarks(serde_json::json!({})).contains(HOLDS_NO_QUEUE));
        let seen = serde_json::json!({"device": {"rate": "252216bit", "age_ns": 9}});
        for holds in [
            seen,
            serde_json::json!({"rate": "1mbit"}),
            serde_json::json!({"observe": true}),
        ] {
            assert!(!remarks(holds).contains("holds no queue"));
        }
    }

    #[test]
    fn rate_that_is_found_is_shown_with_the_queue_and_who_is_asked() {
        let shown = |path: serde_json::Value| {
            let mut json = serde_json::json!({
                "dev": "eth0", "ifindex": 2, "mode": "qdisc", "predicts_delay": false, "method": "triage",
                "session": "dst", "limit": 1000, "observe": false, "instances": 1, "rate": "auto:..10mbit",
                "counters": bestby_api::Counters::default(),
                "path": {
                    "state": "follows", "rate_bytes_s": 31_000, "queue_ns": 12_000_000, "answers": 9,
                    "asked": ["192.0.2.1"], "interval_ns": 98_000_000,
                },
            });
            for (key, value) in path.as_object().unwrap() {
                json["path"][key] = value.clone();
            }
            render(&[serde_json::from_value(json).unwrap()])
        };
        let text = shown(serde_json::json!({}));
        assert!(text.contains("auto 248kbit"), "{text}");
        assert!(
            text.contains("queue elsewhere 12ms, 192.0.2.1 asked each 98ms"),
            "{text}"
        );
        let text =
            shown(serde_json::json!({"rate_bytes_s": null, "state": "unseen", "queue_ns": 0}));
        assert!(text.contains(" auto "), "{text}");
        assert!(text.contains("no queue seen, 192.0.2.1 asked"), "{text}");
        assert!(!text.contains("holds no queue"), "{text}");
        for (path, says) in [
            (
                serde_json::json!({"state": "others", "queue_ns": 400_000_000}),
                "others fill it: 400ms",
            ),
            (
                serde_json::json!({"unanswered_ns": 12_300_000_000_u64}),
                "no answer from 192.0.2.1 for 12s",
            ),
            (serde_json::json!({"asked": []}), "nobody is asked"),
            (
                serde_json::json!({"interval_ns": null}),
                "nothing is sent, so nobody is asked",
            ),
            (
                serde_json::json!({"problem": "eth0 is down"}),
                "no rate is found: eth0 is down",
            ),
            (
                serde_json::json!({"answers": 0, "queue_ns": null}),
                "no answer yet, 192.0.2.1 asked",
            ),
        ] {
            let text = shown(path);
            assert!(text.contains(says), "{says}: {text}");
        }
    }
}
