//! `bestby events`: drop notices as they happen.

use std::process::ExitCode;

use bestby_api::{Event, path};
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Bytes;

use crate::client::Client;
use crate::failure::Failure;
use crate::format::{clock, time};
use crate::output::Output;

/// Longest line that can be an event; more without a line's end is not from bestbyd.
const LONGEST: usize = 1 << 20;

pub(crate) async fn run(client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let response = client.open(Method::GET, path::EVENTS, Bytes::new()).await?;
    output.note("drop notices follow; end with Ctrl-C");
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
            output.line(&event, render)?;
        }
    }
    Err(Failure::new(
        "bestbyd ended the stream of events",
        "it was stopped or restarted: run bestby events again",
    ))
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
    use super::*;

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
