//! docs/results.md shows what the commands in it print: each line that begins with
//! `bestby-lab report target/...` is run on the runs that are kept, and the tables that it
//! prints must be those that follow it. With UPDATE_EXPECT=1 they are put there instead.

mod kept;

use std::{fs, ops::Range, path::Path};

use kept::{lab, restore, runs};

/// The words of a command line; double quotes hold words together.
fn words(command: &str) -> Vec<String> {
    command
        .split('"')
        .zip([false, true].into_iter().cycle())
        .flat_map(|(part, quoted)| match quoted {
            true => vec![part.to_owned()],
            false => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

/// Where the tables of a text are: from their first line to behind their last.
fn tables(lines: &[impl AsRef<str>]) -> Vec<Range<usize>> {
    let mut tables: Vec<Range<usize>> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if !line.as_ref().starts_with('|') {
            continue;
        }
        match tables.last_mut() {
            Some(table) if table.end == number => table.end += 1,
            _ => tables.push(number..number + 1),
        }
    }
    tables
}

/// The arguments of the lab in a line of the page that is a command of its own.
fn command(line: &str) -> Option<Vec<String>> {
    let rest = line.strip_prefix("`bestby-lab report target/")?;
    Some(words(&format!("report target/{}", rest.split('`').next()?)))
}

#[test]
fn every_table_behind_a_command_is_what_it_prints() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results.md");
    let page = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let directory = tempfile::tempdir().expect("a directory");
    restore(&runs(), directory.path(), "target/kept");
    restore(&runs().join("triage"), directory.path(), "target/triage");

    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    let (mut shown, mut wrong) = (0, Vec::new());
    let mut number = 0;
    while let Some(line) = lines.get(number) {
        number += 1;
        let Some(arguments) = command(line) else {
            continue;
        };
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let printed = lab(directory.path(), &words);
        let printed: Vec<&str> = printed.lines().collect();
        let tables_printed = tables(&printed);
        assert!(!tables_printed.is_empty(), "line {number}: no table");
        for table in tables_printed {
            let there = tables(&lines[number..]).first().cloned();
            let there = there.unwrap_or_else(|| panic!("line {number}: no table behind it"));
            let there = number + there.start..number + there.end;
            let table = &printed[table];
            if lines[there.clone()] != *table {
                wrong.push(format!(
                    "line {}: `bestby-lab {}` prints\n\n{}\n",
                    there.start + 1,
                    arguments.join(" "),
                    table.join("\n")
                ));
            }
            number = there.start + table.len();
            lines.splice(there, table.iter().map(|&row| row.to_owned()));
            shown += 1;
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&file, lines.join("\n") + "\n").expect("written");
    } else {
        let words =
            "to put them there: UPDATE_EXPECT=1 cargo test -p bestby-lab --test results_page";
        assert!(
            wrong.is_empty(),
            "{}: {words}\n\n{}",
            file.display(),
            wrong.join("\n")
        );
    }
    // A command that does not begin its line any more would go unnoticed.
    assert!(shown >= 22, "{shown} tables");
}

#[test]
fn commands_and_tables_are_found() {
    let line = r#"`bestby-lab report target/kept --table "audio %,stale" --across load`:"#;
    let wanted = [
        "report",
        "target/kept",
        "--table",
        "audio %,stale",
        "--across",
        "load",
    ];
    assert_eq!(
        command(line).as_deref(),
        Some(&wanted.map(str::to_owned)[..])
    );
    assert_eq!(command("then `bestby-lab report target/kept`"), None);
    let page: Vec<&str> = "| a |\n| b |\ntext\n| c |".lines().collect();
    assert_eq!(tables(&page), [0..2, 3..4]);
}
