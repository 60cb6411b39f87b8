//! `top` in a pipe: one text per picture.

use super::view::{Row, View};
use crate::format::{clock, measured_rate};
use crate::table::Table;

/// Three tables under the time, at most `most` rows each.
pub(crate) fn render(view: &View, most: usize) -> String {
    let unix = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let now = clock(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX));
    let mut text = format!("{now} per second, sorted by {}\n", view.sort.name());
    let observes = view.observes();
    for (heading, rows) in [
        ("INTERFACE", view.interfaces()),
        ("FLOW", view.flows()),
        ("SESSION", view.sessions()),
    ] {
        text += &table(heading, &rows, most, observes);
    }
    text
}

fn table(heading: &'static str, rows: &[Row], most: usize, observes: bool) -> String {
    let mut table = Table::new(&[
        heading,
        ">IN",
        ">SENT",
        ">QUEUED",
        ">DROPPED",
        ">WOULD DROP",
        ">LOSS",
        ">STALE ALL",
        ">LATE ALL",
    ]);
    for row in rows.iter().take(most) {
        table.row(vec![
            (&row.name).into(),
            row.rate.packets_in.into(),
            measured_rate(row.rate.bytes_sent).into(),
            row.rate.queued.into(),
            row.rate.dropped.total().into(),
            row.rate.would_drop.total().into(),
            format!("{:.1}%", row.loss).into(),
            row.total.dropped.stale.into(),
            row.total.sent_stale.into(),
        ]);
    }
    let table = if observes {
        table
    } else {
        table.without_empty(&["WOULD DROP"])
    };
    let mut text = table.render();
    if rows.len() > most {
        text += &format!("({} more)\n", rows.len() - most);
    }
    text.push('\n');
    text
}
