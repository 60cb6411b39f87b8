//! `bestby events`: drop notices as they happen.

use std::process::ExitCode;

use bestby_api::{DevName, Event, FlowInfo, NO_RULE, Reason, path};
use clap::Args;
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Bytes;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{clock, time};
use crate::output::Output;
use crate::rank::nearest;
use crate::setting::value;

/// Longest line that can be an event; more without a line's end is not from bestbyd.
const LONGEST: usize = 1 << 20;

/// Which notices are printed: those that meet all of these.
#[derive(Debug, Default, Args)]
pub(crate) struct What {
    /// Only of this flow rule; `-`: of what no rule matches
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    flow: Option<String>,
    /// Only of this session, as `bestby session ls` names it; of all that begin so, if it ends in *
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only of this interface
    #[arg(long, value_name = "DEV", value_parser = value::<DevName>)]
    dev: Option<DevName>,
    /// Only for this reason
    #[arg(long, value_name = "stale|adu|overflow|evicted|predicted|codel|chain", value_parser = value::<Reason>)]
    reason: Option<Reason>,
    /// Only of this priority or a more important one
    #[arg(long, value_name = "0..7", value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: Option<u8>,
    /// End after so many notices
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

impl What {
    /// Whether a notice is printed.
    fn wants(&self, e: &Event) -> bool {
        let session = |wanted: &String| match wanted.strip_suffix('*') {
            Some(start) => e.session.starts_with(start),
            None => e.session == *wanted,
        };
        self.flow.as_ref().is_none_or(|flow| e.flow == *flow)
            && self.session.as_ref().is_none_or(session)
            && self.dev.as_ref().is_none_or(|dev| e.dev == dev.as_str())
            && self.reason.is_none_or(|reason| e.reason == reason)
            && self.priority.is_none_or(|most| e.priority <= most)
    }
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    if let Some(flow) = &what.flow {
        let rules: Vec<FlowInfo> = client.get(path::FLOWS).await?;
        let names: Vec<String> = rules.iter().map(|r| r.flow.name.to_string()).collect();
        if let Some(warning) = unknown(flow, &names) {
            output.warn(&warning);
        }
    }
    output.note("drop notices follow; end with Ctrl-C");
    let mut left = what.count.unwrap_or(u64::MAX);
    let ended = follow(client, |event| {
        if what.wants(&event) {
            output.line(&event, render)?;
            left -= 1;
        }
        // As if the reader had closed the pipe: it has what it wanted.
        if left == 0 {
            Err(Failure::Closed)
        } else {
            Ok(())
        }
    });
    Err(ended.await)
}

/// What to say of a rule that is not there: it may come later, so that waiting for it is no failure.
fn unknown(flow: &str, rules: &[String]) -> Option<String> {
    if flow == NO_RULE || rules.iter().any(|name| name == flow) {
        return None;
    }
    let hint = match nearest(flow, rules) {
        Some(name) => format!("did you mean {name}?"),
        None => "bestby flow ls shows those that are there".into(),
    };
    Some(format!(
        "there is no flow rule {flow} now: no notice comes until one of this name is added ({hint})"
    ))
}

/// Gives each notice to `each` until it, the stream or the agent fails; says which.
pub(crate) async fn follow(
    client: &Client,
    mut each: impl FnMut(Event) -> Result<(), Failure>,
) -> Failure {
    match read(client, &mut each).await {
        Err(failure) => failure,
        Ok(()) => Failure::new(
            "bestbyd ended the stream of events",
            "it was stopped or restarted: run bestby events again",
        ),
    }
}

async fn read(
    client: &Client,
    each: &mut impl FnMut(Event) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let response = client.open(Method::GET, path::EVENTS, Bytes::new()).await?;
    let mut body = response.into_body();
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| {
            Failure::new(
                format!("the stream of events broke off: {e}"),
                "is bestbyd still running?",
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        for event in complete_lines(&mut pending)? {
            each(event)?;
        }
    }
    Ok(())
}

/// Takes the complete lines out of `pending`; empty ones only say that the agent is still there.
fn complete_lines(pending: &mut Vec<u8>) -> Result<Vec<Event>, Failure> {
    let mut events = Vec::new();
    let mut start = 0;
    while let Some(end) = pending[start..].iter().position(|b| *b == b'\n') {
        let line = &pending[start..start + end];
        start += end + 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        events.push(serde_json::from_slice(line).map_err(|e| {
            Failure::new(
                format!("bestbyd sent an event that this bestby does not understand: {e}"),
                "are both of the same version?",
            )
        })?);
    }
    pending.drain(..start);
    if pending.len() > LONGEST {
        return Err(Failure::new("bestbyd sent an event without an end", ""));
    }
    Ok(events)
}

/// One event on one line.
pub(crate) fn render(e: &Event) -> String {
    let late = match e.late_ns {
        0.. => format!("{} late", time(e.late_ns.unsigned_abs())),
        _ => format!("{} left", time(e.late_ns.unsigned_abs())),
    };
    let mut line = format!(
        "{} {} {} {} priority {} {late}",
        clock(e.unix_ns),
        e.session,
        e.flow,
        match (e.observe, e.truncated) {
            (true, _) => format!("would drop {}", e.reason),
            (_, true) => format!("truncated {}", e.reason),
            _ => e.reason.to_string(),
        },
        e.priority,
    );
    if e.age_ns > 0 {
        line += &format!(" age {}", time(e.age_ns));
    }
    line += &format!(" {} bytes", e.len);
    if e.adu != 0 {
        line += &format!(" adu {:#010x}", e.adu);
    }
    if e.suppressed > 0 {
        line += &format!(" ({} notices before it left out)", e.suppressed);
    }
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn notice_is_printed_if_it_meets_every_filter() {
        let event: Event = serde_json::from_value(serde_json::json!({
            "time_ns": 1, "unix_ns": 2, "dev": "eth0", "flow": "a", "session": "eth0/10.0.0.2", "reason": "stale",
            "priority": 3, "age_ns": 0, "late_ns": 5, "adu": 0, "len": 100, "observe": false, "suppressed": 0
        }))
        .unwrap();
        let wants = |line: &str| {
            let words = format!("bestby events {line}");
            let args = crate::args::Args::try_parse_from(words.split_whitespace()).unwrap();
            let crate::args::Command::Events(what) = args.command else {
                panic!("not events")
            };
            what.wants(&event)
        };
        for line in [
            "",
            "--flow a",
            "--session eth0/10.0.0.2 --dev eth0",
            "--session eth0/*",
            "--reason stale --priority 3",
            "--priority 7",
        ] {
            assert!(wants(line), "{line}");
        }
        for line in [
            "--flow b",
            "--flow -",
            "--session eth0/10.0.0.20",
            "--session eth0/10.0.0",
            "--dev eth1 --flow a",
            "--reason adu",
            "--priority 2",
        ] {
            assert!(!wants(line), "{line}");
        }
    }

    #[test]
    fn rule_that_is_not_there_is_warned_of_and_a_known_one_is_not() {
        let rules = ["audio".to_string(), "video".to_string()];
        for there in ["audio", "video", "-"] {
            assert_eq!(unknown(there, &rules), None);
        }
        assert!(unknown("audoi", &rules).unwrap().contains("mean audio?"));
        assert!(unknown("screen", &[]).unwrap().contains("flow ls"));
    }

    #[test]
    fn event_split_between_reads_is_put_together() {
        let event = serde_json::json!({
            "time_ns": 1, "unix_ns": 2, "dev": "eth0", "flow": "a", "session": "eth0/10.0.0.2", "reason": "stale",
            "priority": 3, "age_ns": 0, "late_ns": 5, "adu": 0, "len": 100, "observe": false, "suppressed": 0
        })
        .to_string();
        let mut pending = Vec::new();
        let stream = format!("\n{event}\n\n{event}\n");
        let mut seen = 0;
        for piece in stream.as_bytes().chunks(7) {
            pending.extend_from_slice(piece);
            seen += complete_lines(&mut pending).unwrap().len();
        }
        assert_eq!((seen, pending.len()), (2, 0));
        assert!(complete_lines(&mut b"{}\n".to_vec()).is_err());
        assert!(complete_lines(&mut vec![b'x'; LONGEST + 1]).is_err());
    }
}
