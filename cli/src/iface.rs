//! `bestby iface`: interfaces under control.

use std::process::ExitCode;

use bestby_api::{
    AttachRequest, Decrement, DevName, Done, InterfaceInfo, Limit, Method, Mode, Overhead, Prefix,
    Prefixes, Rate, SessionKey, path,
};
use clap::{Args, Subcommand};

use crate::client::{Client, part};
use crate::failure::Failure;
use crate::format::{memory, or_dash};
use crate::output::Output;
use crate::setting::value;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Take an interface's egress under control
    Attach(Attach),
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
    /// Interface
    #[arg(value_parser = value::<DevName>)]
    dev: DevName,
    /// auto: qdisc where the kernel has BPF qdiscs, else tc; tc predicts delay instead of observing it
    #[arg(long, default_value = "auto", value_name = "auto|qdisc|tc", value_parser = value::<Mode>)]
    mode: Mode,
    /// What the link behind the interface carries, e.g. 10mbit; the interface is shaped to it
    #[arg(long, allow_hyphen_values = true, value_parser = value::<Rate>)]
    rate: Option<Rate>,
    /// fifo, sfdps1, sfdps2, ring, ring-sfdps2, lazy or triage [default: triage]
    #[arg(long, value_parser = value::<Method>)]
    method: Option<Method>,
    /// Which packets share one bottleneck: dst, flow, interface or prefix/N
    #[arg(long, default_value = "dst", value_name = "KEY", value_parser = value::<SessionKey>)]
    session: SessionKey,
    /// Packets that may be queued (per transmit queue below mq)
    #[arg(long, value_name = "PACKETS", allow_hyphen_values = true, value_parser = value::<Limit>)]
    limit: Option<Limit>,
    /// Bytes the link adds to each packet
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = value::<Overhead>)]
    overhead: Option<Overhead>,
    /// Count what would be dropped, drop nothing
    #[arg(long)]
    observe: bool,
    /// Sources whose IP options of LPD count on packets forwarded here; may be given more than once
    #[arg(long, value_name = "PREFIX", value_parser = value::<Prefix>)]
    trust: Vec<Prefix>,
    /// Lifetime in such an option: left (the last hop needs no more), made a deadline, or less the expected wait
    #[arg(long, default_value = "off", value_name = "off|clock|predict", value_parser = value::<Decrement>)]
    decrement: Decrement,
    /// Take the place of a root qdisc that somebody configured; detach restores its kind
    #[arg(long)]
    replace: bool,
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Attach(a) => {
            let request = AttachRequest {
                dev: a.dev,
                mode: a.mode,
                rate: a.rate,
                method: a.method,
                session: a.session,
                limit: a.limit,
                overhead: a.overhead,
                observe: a.observe,
                trust: Prefixes::new(a.trust).ok_or_else(|| {
                    Failure::Usage(format!("--trust: more than {} prefixes", Prefixes::MOST))
                })?,
                decrement: a.decrement,
                replace: a.replace,
            };
            let done: Done = client
                .send(hyper::Method::POST, path::INTERFACES, &request)
                .await?;
            output.done(&done)?;
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
        ">MEMORY",
        "",
    ]);
    let mut notes = String::new();
    for i in list {
        let mut remarks = Vec::new();
        if !i.observes {
            remarks.push("predicts delay, does not observe it");
        }
        if i.observe {
            remarks.push("drops nothing (--observe)");
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
            or_dash(i.rate).into(),
            i.limit.into(),
            i.overhead.into(),
            i.instances.into(),
            i.counters.queued.into(),
            i.counters.packets_sent.into(),
            format!("{}{}", dropped.total(), if i.observe { "?" } else { "" }).into(),
            or_dash(i.memory_bytes.map(memory)).into(),
            remarks.join("; ").into(),
        ]);
        for note in &i.notes {
            notes.push_str(&format!("{}: {note}\n", i.dev));
        }
    }
    table.without_empty(&["OVERHEAD", "MEMORY"]).render() + &notes
}
