//! `runs.parquet`: all runs of a scenario in one file, which is the result.
//!
//! A row is a run, a column a figure of it: the fields of [`Run`], those of its parts behind a
//! dot (`bound.audio.adus`), a pair as `.offered` and `.on_time`. `cell`, `queue` and `axis.NAME`
//! say where it is. The metadata have below `series`, as JSON, the scenario and who made its runs.
//! `bench/report` makes tables and pages of it.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    run::{Outcome, Run, jobs},
    store::{Series, Store},
};
use crate::{
    columns::{Column, Columns},
    scenario::{Scenario, cell::Cell},
};

/// Writes what is there of a scenario's runs, and says where.
pub(super) fn write(store: &Store<'_>, scenario: &Scenario, series: &Series) -> Result<PathBuf> {
    let mut rows = Vec::new();
    let mut absent = BTreeMap::new();
    let all = jobs(scenario, series.repetitions, &[]);
    for job in &all {
        match store.run(job)? {
            Some(run) => rows.push(row(job.cell, &run)?),
            None => {
                if let Some(Outcome::Absent(why)) = store.outcome(job)? {
                    absent.insert(job.cell.queue.name(), why);
                }
            }
        }
    }
    let absent: Vec<Value> = absent
        .iter()
        .map(|(queue, reason)| json!({"queue": queue, "reason": reason}))
        .collect();
    let queues: Vec<String> = scenario.queues.iter().map(|queue| queue.name()).collect();
    let made = &series.provenance;
    let said = json!({
        "name": scenario.name, "title": scenario.title, "description": scenario.description,
        "scenario": scenario.text, "axes": scenario.axes, "queues": queues, "absent": absent,
        "seconds": scenario.seconds, "discard_first": scenario.discard_first, "seed": scenario.seed,
        "repetitions": series.repetitions, "missing": all.len() - rows.len(), "kernel": made.kernel,
        "commit": made.commit, "machine": made.machine, "commands": made.commands,
    });
    let table = Columns {
        columns: columns(rows),
        said: vec![("series".to_owned(), said.to_string())],
    };
    let file = store.root.join(&scenario.name).join("runs.parquet");
    table.write(&file)?;
    Ok(file)
}

type Row = Vec<(String, Value)>;

fn row(cell: &Cell, run: &Run) -> Result<Row> {
    let mut row = vec![
        ("cell".to_owned(), cell.id.clone().into()),
        ("queue".to_owned(), cell.queue.name().into()),
    ];
    for (axis, value) in &cell.axes {
        row.push((format!("axis.{axis}"), value.clone().into()));
    }
    flatten(String::new(), serde_json::to_value(run)?, &mut row);
    Ok(row)
}

fn flatten(name: String, value: Value, row: &mut Row) {
    let inner = |part: &str| format!("{name}.{part}").trim_start_matches('.').to_owned();
    match value {
        Value::Null => {}
        Value::Object(parts) => {
            for (part, value) in parts {
                flatten(inner(&part), value, row);
            }
        }
        Value::Array(pair) => {
            for (part, value) in ["offered", "on_time"].into_iter().zip(pair) {
                row.push((inner(part), value));
            }
        }
        value => row.push((name, value)),
    }
}

/// The columns of rows that need not have all of them.
fn columns(rows: Vec<Row>) -> Vec<(String, Column)> {
    let mut places = BTreeMap::new();
    let mut columns: Vec<(String, Vec<Option<Value>>)> = Vec::new();
    let count = rows.len();
    for (number, row) in rows.into_iter().enumerate() {
        for (name, value) in row {
            let at = *places.entry(name.clone()).or_insert_with(|| {
                columns.push((name, vec![None; count]));
                columns.len() - 1
            });
            columns[at].1[number] = Some(value);
        }
    }
    let typed = |(name, values): (String, Vec<Option<Value>>)| (name, column(&values));
    columns.into_iter().map(typed).collect()
}

fn column(values: &[Option<Value>]) -> Column {
    fn all<'a, T>(
        values: &'a [Option<Value>],
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Vec<Option<T>> {
        values.iter().map(|value| of(value.as_ref()?)).collect()
    }
    let are = |is: fn(&Value) -> bool| values.iter().flatten().all(is);
    if are(Value::is_boolean) {
        Column::Flag(all(values, Value::as_bool))
    } else if are(Value::is_i64) {
        Column::Int(all(values, Value::as_i64))
    } else if are(Value::is_number) {
        Column::Float(all(values, Value::as_f64))
    } else {
        let text = |value: &Value| Some(value.as_str()?.to_owned());
        Column::Text(all(values, |value| text(value).or(Some(value.to_string()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_runs_are_flat_and_typed() {
        let runs = [
            json!({"run": 0, "audio": [10, 9], "ssim": 1, "bound": {"exact": true}, "none": null}),
            json!({"run": 1, "audio": [10, 8], "ssim": 0.5, "bound": null, "link": "first-bit"}),
        ];
        let rows = runs.map(|run| {
            let mut row = Row::new();
            flatten(String::new(), run, &mut row);
            row
        });
        let mut found = columns(rows.into());
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let wanted = [
            ("audio.offered", Column::Int(vec![Some(10), Some(10)])),
            ("audio.on_time", Column::Int(vec![Some(9), Some(8)])),
            ("bound.exact", Column::Flag(vec![Some(true), None])),
            ("link", Column::Text(vec![None, Some("first-bit".into())])),
            ("run", Column::Int(vec![Some(0), Some(1)])),
            ("ssim", Column::Float(vec![Some(1.0), Some(0.5)])),
        ];
        assert_eq!(
            found,
            wanted.map(|(name, column)| (name.to_owned(), column))
        );
    }
}
