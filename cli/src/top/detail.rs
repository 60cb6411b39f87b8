//! One session in full: what is known of its receiver, why packets were dropped, how much slack they had.

use std::net::IpAddr;

use bestby_api::PeerInfo;
use ratatui::style::Stylize as _;
use ratatui::text::Line;

use super::view::View;
use crate::format::{measured_rate, or_dash, rate, time};

/// The page of the session that is looked at.
pub(crate) fn lines(view: &View, width: u16) -> Vec<Line<'static>> {
    let name = view.detail.clone().unwrap_or_default();
    let Some((row, info)) = view.looked_at() else {
        return vec![Line::from(format!("session {name} is gone")).yellow()];
    };
    let mut lines = vec![Line::from(format!("SESSION {name}")).bold()];
    let mut say = |label: &str, text: String| lines.push(Line::from(format!("{label:<15}{text}")));
    match info {
        None => say("", "asking what is known of it".into()),
        Some(s) => {
            let user = or_dash(s.user.as_ref());
            let media = if s.media { "yes" } else { "no" };
            say("kind", format!("{}, media {media}, user {user}", s.kind));
            say("rate", or_dash(s.rate_bytes_s.map(rate)));
            let owd = match s.owd_ns {
                None => "not known, 0 is assumed".into(),
                Some(ns) => match s.owd_age_ns {
                    Some(age) => format!("{} ({}, {} ago)", time(ns), s.owd_source, time(age)),
                    None => format!("{} ({})", time(ns), s.owd_source),
                },
            };
            say("one-way delay", owd);
            let addr: Option<IpAddr> = s.addr.as_ref().and_then(|a| a.parse().ok());
            let peers = view.now.sessions.as_ref().map(|list| &list.peers[..]);
            say("round trip", round_trip(peers.unwrap_or_default(), addr));
            say("last packet", format!("{} ago", time(s.idle_ns)));
        }
    }
    say(
        "per second",
        format!(
            "{} in, {} sent, {} queued now",
            row.rate.packets_in,
            measured_rate(row.rate.bytes_sent),
            row.rate.queued
        ),
    );
    say("sent stale", row.total.sent_stale.to_string());
    lines.push(Line::default());
    for (heading, now, total) in [
        ("DROPPED", &row.rate.dropped, &row.total.dropped),
        ("WOULD DROP", &row.rate.would_drop, &row.total.would_drop),
    ] {
        if heading == "WOULD DROP" && total.total() == 0 {
            continue;
        }
        lines.push(Line::from(format!("{heading:<15}{:>10}{:>12}", "/S", "ALL")).bold());
        let all = now.by_name().into_iter().zip(total.by_name());
        let mut some = false;
        for ((reason, now), (_, total)) in all.filter(|(_, (_, total))| *total > 0) {
            lines.push(Line::from(format!("{reason:<15}{now:>10}{total:>12}")));
            some = true;
        }
        if !some {
            lines.push(Line::from("nothing"));
        }
    }
    lines.push(Line::default());
    let title = "SLACK of dropped packets, from notices since it is open";
    lines.push(Line::from(title).bold());
    let longest = usize::from(width.saturating_sub(27)).min(60);
    lines.extend(view.slack.lines(longest).into_iter().map(Line::from));
    if view.slack.left_out > 0 {
        let text = format!("({} drops without a notice)", view.slack.left_out);
        lines.push(Line::from(text).dim());
    }
    lines
}

fn round_trip(peers: &[PeerInfo], addr: Option<IpAddr>) -> String {
    let peer = peers.iter().find(|p| Some(p.addr) == addr);
    match peer.and_then(|p| p.rtt.as_ref()) {
        None => "not measured".into(),
        Some(rtt) => format!(
            "least {}, smoothed {}, by {} {} ago",
            time(rtt.min_rtt_ns),
            time(rtt.srtt_ns),
            rtt.source,
            time(rtt.age_ns)
        ),
    }
}
