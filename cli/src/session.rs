//! `bestby session`: packets that share one bottleneck, and what is known of their receivers.

use std::net::IpAddr;
use std::process::ExitCode;

use bestby_api::{Owd, PeerInfo, Rate, SessionInfo, SessionList, SessionSet, path};
use clap::Subcommand;
use hyper::Method;

use crate::client::{Client, part};
use crate::failure::Failure;
use crate::format::{or_dash, rate, time};
use crate::output::Output;
use crate::setting::{Setting, change, setting};
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List sessions and what is known of receivers
    Ls,
    /// Say what is known of a receiver; `none` forgets it
    Set {
        /// The receiver's address
        addr: IpAddr,
        /// What its link carries, e.g. 2mbit
        #[arg(long, value_name = "R", allow_hyphen_values = true, value_parser = setting::<Rate>)]
        rate: Option<Setting<Rate>>,
        /// One-way delay to it, e.g. 40ms, instead of half the measured round trip
        #[arg(long, value_name = "T", allow_hyphen_values = true, value_parser = setting::<Owd>)]
        owd: Option<Setting<Owd>>,
        /// Write what is set for the receiver to the configuration file, too
        #[arg(long)]
        save: bool,
    },
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Ls => {
            let list: SessionList = client.get(path::SESSIONS).await?;
            output.answer(&list, render)?;
        }
        Verb::Set {
            addr,
            rate,
            owd,
            save,
        } => {
            let change = SessionSet {
                rate: change(rate),
                owd: change(owd),
                save,
            };
            if change == SessionSet::default() {
                return Err(Failure::Usage(format!(
                    "session set {addr}: give --rate, --owd or both"
                )));
            }
            let path = format!(
                "{}/{}",
                path::SESSIONS,
                part(&addr.to_canonical().to_string())
            );
            output.done(&client.send(Method::PUT, &path, &change).await?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sessions, then receivers.
pub(crate) fn render(list: &SessionList) -> String {
    if list.sessions.is_empty() && list.peers.is_empty() {
        return "no session has carried a packet yet, and nothing is known of any receiver\n"
            .into();
    }
    let mut text = String::new();
    if !list.sessions.is_empty() {
        text += &sessions(&list.sessions);
    }
    if !list.peers.is_empty() {
        if !text.is_empty() {
            text.push('\n');
        }
        text += &peers(&list.peers);
    }
    text
}

fn sessions(sessions: &[SessionInfo]) -> String {
    let mut table = Table::new(&[
        "SESSION", "KIND", "MEDIA", "USER", ">RATE", ">OWD", "OWD FROM", ">OWD AGE", ">BEHIND",
        ">IDLE", ">QUEUED", ">IN", ">SENT", ">DROPPED",
    ]);
    for s in sessions {
        table.row(vec![
            (&s.name).into(),
            (&s.kind).into(),
            if s.media { "yes" } else { "no" }.into(),
            or_dash(s.user.as_ref()).into(),
            or_dash(s.rate_bytes_s.map(rate)).into(),
            or_dash(s.owd_ns.map(time)).into(),
            s.owd_source.into(),
            or_dash(s.owd_age_ns.map(time)).into(),
            or_dash(s.queue_behind_ns.map(time)).into(),
            time(s.idle_ns).into(),
            s.counters.queued.into(),
            s.counters.packets_in.into(),
            s.counters.packets_sent.into(),
            s.counters.dropped.total().into(),
        ]);
    }
    table
        .without_empty(&["USER", "OWD FROM", "OWD AGE", "BEHIND"])
        .render()
}

fn peers(peers: &[PeerInfo]) -> String {
    let mut table = Table::new(&[
        "RECEIVER",
        ">RATE",
        ">OWD",
        "SET BY",
        ">SRTT",
        ">MIN RTT",
        ">RTO",
        ">MEASURED",
        "BY",
    ]);
    for p in peers {
        let rtt = |f: fn(&bestby_api::RttInfo) -> u64| or_dash(p.rtt.as_ref().map(|r| time(f(r))));
        table.row(vec![
            p.addr.into(),
            or_dash(p.rate).into(),
            or_dash(p.owd).into(),
            if p.set_by.is_empty() { "-" } else { &p.set_by }.into(),
            rtt(|r| r.srtt_ns).into(),
            rtt(|r| r.min_rtt_ns).into(),
            or_dash(
                p.rtt
                    .as_ref()
                    .map(|r| r.rto_ns)
                    .filter(|ns| *ns > 0)
                    .map(time),
            )
            .into(),
            or_dash(p.rtt.as_ref().map(|r| format!("{} ago", time(r.age_ns)))).into(),
            or_dash(p.rtt.as_ref().map(|r| r.source)).into(),
        ]);
    }
    table.render()
}
