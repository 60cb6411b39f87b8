//! The results as tables: one per round trip and condition.

use super::{Cell, Results, Run};
use crate::{measure::statistics::Estimate, report::Table};

/// All cells.
pub fn render(results: &Results) -> String {
    let mut text = String::new();
    let mut rest = &results.cells[..];
    while let Some(first) = rest.first() {
        let same = |cell: &Cell| cell.rtt_ms == first.rtt_ms && cell.condition == first.condition;
        let count = rest.iter().take_while(|cell| same(cell)).count();
        let (group, tail) = rest.split_at(count);
        rest = tail;
        let mut table = Table::new(&[
            "queue",
            "audio %",
            "video %",
            "frames %",
            "audio rcvd %",
            "video rcvd %",
            "kbit/s",
            "TCP kbit/s",
            "lost %",
            "RTT ms",
        ]);
        for cell in group {
            let figure = |of: fn(&Run) -> f64| of_runs(&cell.runs, of);
            table.row(vec![
                cell.how.to_string(),
                figure(|run| run.audio),
                figure(|run| run.video),
                figure(|run| run.frames),
                figure(|run| run.audio_received),
                figure(|run| run.video_received),
                figure(|run| run.kbit),
                figure(|run| run.tcp_kbit),
                figure(|run| run.lost),
                figure(|run| run.rtt_ms),
            ]);
        }
        text.push_str(&format!(
            "\nRTT {} ms, {}; on time within 200 ms; mean of {} runs of {} s ± 95 % interval\n{}",
            first.rtt_ms,
            first.condition,
            first.runs.len(),
            results.seconds,
            table.render()
        ));
    }
    text
}

fn of_runs(runs: &[Run], of: fn(&Run) -> f64) -> String {
    let values: Vec<f64> = runs.iter().map(of).collect();
    match Estimate::of(&values) {
        None => "-".into(),
        Some(Estimate {
            mean, half_width, ..
        }) => match half_width {
            Some(half_width) => format!("{mean:.1} ± {half_width:.1}"),
            None => format!("{mean:.1}"),
        },
    }
}
