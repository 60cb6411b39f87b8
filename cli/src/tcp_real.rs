//! `bestby tcp-real`: the congestion control in which the receiver measures.

use std::process::ExitCode;

use bestby_api::{
    CgroupPath, RealConnection, RealCounters, RealLevel, RealMode, RealRequest, TcpReal, path,
};
use clap::Subcommand;
use hyper::Method;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{measured_rate, or_dash, time};
use crate::output::Output;
use crate::setting::value;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Offer and answer TCP-Real on new connections, and register the congestion control bestby_real
    On {
        /// Only sockets in this cgroup and below; without it, all below the agent's own
        #[arg(long, value_name = "PATH", value_parser = value::<CgroupPath>)]
        cgroup: Option<CgroupPath>,
        /// guarded: Reno, but for losses without congestion; paper: the window the receiver says
        #[arg(long, value_name = "M", default_value = "guarded", value_parser = value::<RealMode>)]
        mode: RealMode,
        /// Greatest level: twice as many segments are the most that a receiver can hold up
        #[arg(long, value_name = "N", default_value = "24", value_parser = value::<RealLevel>)]
        max_level: RealLevel,
    },
    /// Stop; connections go on as Reno
    Off,
    /// List connections that speak it, or would
    Ls,
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::On {
            cgroup,
            mode,
            max_level,
        } => {
            let request = RealRequest {
                cgroup,
                mode,
                max_level,
            };
            output.done(&client.send(Method::PUT, path::TCP_REAL, &request).await?)?;
        }
        Verb::Off => output.done(&client.delete(path::TCP_REAL).await?)?,
        Verb::Ls => {
            let real: TcpReal = client.get(path::TCP_REAL).await?;
            output.answer(&real, render)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How it is on, its connections, what was counted.
pub(crate) fn render(real: &TcpReal) -> String {
    let Some(on) = &real.on else {
        return "TCP-Real is off\n".into();
    };
    let mut text = format!(
        "TCP-Real is on: mode {}, levels 1 to {}, sockets below {}, measured at {}\n",
        on.mode,
        on.max_level,
        real.cgroup,
        match real.interfaces {
            0 => "the sockets".into(),
            1 => "1 interface".into(),
            n => format!("{n} interfaces"),
        }
    );
    if !real.connections.is_empty() {
        text.push('\n');
        text += &connections(&real.connections);
        if real.more > 0 {
            text += &format!("{} more connections are not listed\n", real.more);
        }
    }
    let counted = counters(&real.counters);
    if !counted.is_empty() {
        text.push('\n');
        text += &counted.render();
    }
    text
}

fn connections(connections: &[RealConnection]) -> String {
    let mut table = Table::new(&[
        "LOCAL",
        "REMOTE",
        "STATE",
        ">LEVEL",
        ">RATE",
        ">RECEIVING",
        ">WINDOW",
        ">SRTT",
        ">MIN RTT",
        ">CANCELLED",
        "WHY PLAIN",
    ]);
    for c in connections {
        table.row(vec![
            c.local.into(),
            c.remote.into(),
            c.state.into(),
            or_dash(c.level).into(),
            or_dash(c.rate_bytes_s.map(measured_rate)).into(),
            or_dash(c.receiving_rate_bytes_s.map(measured_rate)).into(),
            c.cwnd.into(),
            time(c.srtt_ns).into(),
            time(c.min_rtt_ns).into(),
            c.cancelled.into(),
            (&c.why).into(),
        ]);
    }
    table
        .without_empty(&["RECEIVING", "CANCELLED", "WHY PLAIN"])
        .render()
}

fn counters(counters: &RealCounters) -> Table {
    let mut table = Table::new(&["COUNTER", ">COUNT", "MEANING"]);
    for (name, count, meaning) in counters.named() {
        if count > 0 {
            table.row(vec![name.into(), count.into(), meaning.into()]);
        }
    }
    table
}
