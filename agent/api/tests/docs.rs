//! The guides in docs/ say what is true: their C compiles, their configuration is accepted, their tables are
//! those of the code. Their Rust is tested as doctests of this crate.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests; clippy allows it in #[test] functions only"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bestby_api::{AgentConfig, Config, DscpTable, FEATURES, metrics};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn doc(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The fenced blocks of one language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    let found: Vec<&str> = text
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!found.is_empty(), "no {language} in it");
    found
}

#[test]
fn c_of_metadata_md_compiles_without_a_warning() {
    for block in blocks(&doc("metadata.md"), "c") {
        for standard in ["gnu99", "gnu17"] {
            let mut cc = Command::new("cc")
                .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c"])
                .arg(format!("-std={standard}"))
                .arg("-I")
                .arg(root().join("client/include"))
                .arg("-")
                .stdin(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("a C compiler named cc");
            cc.stdin
                .take()
                .unwrap()
                .write_all(block.as_bytes())
                .unwrap();
            let output = cc.wait_with_output().unwrap();
            assert!(
                output.status.success(),
                "{block}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn configuration_of_commands_md_is_accepted() {
    for block in blocks(&doc("commands.md"), "toml") {
        let config = Config::parse(block, "commands.md").unwrap();
        assert!(!config.flows.is_empty() && config.warnings().is_empty());
        // What is commented out is valid, too.
        let all = block.replace("\n#", "\n");
        assert!(
            Config::parse(&all, "commands.md")
                .unwrap()
                .agent
                .metrics
                .is_some()
        );
    }
}

#[test]
fn kernel_table_of_commands_md_equals_the_code_s() {
    let mut table = String::new();
    for f in FEATURES {
        let (major, minor) = f.since;
        let config = if f.config.is_empty() {
            "-".to_string()
        } else {
            f.config.join(", ")
        };
        table += &format!(
            "| {} | {major}.{minor} | {config} | {} |\n",
            f.name, f.without
        );
    }
    let text = doc("commands.md");
    let shown = text
        .split("without it |\n|---|---|---|---|\n")
        .nth(1)
        .unwrap();
    let shown = shown
        .split("<!-- end of the kernel table -->")
        .next()
        .unwrap();
    assert_eq!(shown, table, "put this into docs/commands.md:\n{table}");
}

/// What is between a table's head and its end mark.
fn table<'t>(text: &'t str, head: &str, end: &str) -> &'t str {
    let below = text.split_once(head).map(|(_, rest)| rest).unwrap();
    below.split_once(end).map(|(table, _)| table).unwrap()
}

#[test]
fn metric_table_of_metrics_md_equals_the_code_s() {
    // Flows, sessions, interfaces and payload types have the same counters: one line each.
    let mut wanted = String::new();
    for m in metrics() {
        let name = m.full_name();
        let (name, labels) = match m.labels.first() {
            Some(&"flow") => (
                name.replace("bestby_flow_", "bestby_OBJECT_"),
                [&["OBJECT"][..], &m.labels[1..]].concat(),
            ),
            Some(&object)
                if name.starts_with(&format!("bestby_{object}_"))
                    && metrics()
                        .iter()
                        .any(|f| f.full_name() == name.replace(object, "flow")) =>
            {
                continue;
            }
            _ => (name, m.labels.clone()),
        };
        wanted += &format!(
            "| `{name}` | {} | {} | {} |\n",
            m.kind.as_str(),
            if labels.is_empty() {
                "-".into()
            } else {
                labels.join(", ")
            },
            m.help
        );
    }
    let text = doc("metrics.md");
    let shown = table(
        &text,
        "| labels | meaning |\n|---|---|---|---|\n",
        "<!-- end of the metric table -->",
    );
    assert_eq!(shown, wanted, "put this into docs/metrics.md:\n{wanted}");
}

#[test]
fn priority_tables_of_metadata_md_equal_the_defaults() {
    let text = doc("metadata.md");
    let row = |start: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(start)).unwrap();
        line.split('|')
            .map(|cell| cell.trim().to_string())
            .filter(|c| !c.is_empty())
            .skip(1)
            .collect()
    };
    let rows_below = |start: &str| -> Vec<String> {
        let at = text.lines().position(|l| l.starts_with(start)).unwrap();
        let line = text.lines().nth(at + 2).unwrap();
        line.split('|')
            .map(|cell| cell.trim().to_string())
            .filter(|c| !c.is_empty())
            .skip(1)
            .collect()
    };
    let agent = AgentConfig::default();
    let shown =
        |p: Option<bestby_api::Priority>| p.map_or("says nothing".to_string(), |p| p.to_string());
    for (value, priority) in row("| `SO_PRIORITY` |")
        .iter()
        .zip(rows_below("| `SO_PRIORITY` |"))
    {
        assert_eq!(
            shown(agent.so_priority.get(value.parse().unwrap())),
            priority,
            "{value}"
        );
    }
    let mut named = DscpTable::default();
    assert_eq!(named, agent.dscp);
    let mut toml = String::from("[agent.dscp]\n");
    for (names, priority) in row("| DSCP |").iter().zip(rows_below("| DSCP |")) {
        for name in names.split(", ") {
            let value = name.parse::<bestby_api::Dscp>().unwrap().get();
            assert_eq!(shown(named.get(value.into())), priority, "{name}");
            toml += &format!("{name} = \"none\"\n");
        }
    }
    // Nothing is left once the documented entries are taken away.
    named = Config::parse(&toml, "t").unwrap().agent.dscp;
    assert_eq!(named.to_bytes(), [255; 64]);
}

#[test]
fn marks_of_metadata_md_decode_as_described() {
    use bestby::{Expiry, Lifetime, Magic, Mark, Treatment};
    let text = doc("metadata.md");
    for (bits, ms, priority, treatment, adu) in [
        (0xb038_0320, 200, 3, None, None),
        (0xb318_0190, 100, 1, Some(Treatment::Discard), Some(1)),
    ] {
        assert!(text.contains(&format!("`{bits:#x}`")));
        let said = Mark::from_bits(bits).decode(0, Magic::default()).unwrap();
        assert_eq!(
            said.get_expiry(),
            Expiry::After(Lifetime::from_millis(ms).unwrap())
        );
        assert_eq!(said.get_priority().map(|p| p.get()), Some(priority));
        assert_eq!(said.get_treatment(), treatment);
        assert_eq!(said.get_adu().map(|a| a.get()), adu);
    }
}
