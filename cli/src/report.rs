//! `bestby report`: one file for a bug report.
//!
//! 1. The moment it is needed is when something is broken: no section waits for another, each is given up after some
//!    seconds, and what went wrong is written where the answer would be.
//! 2. Each section says the command it came from, so that a reader can ask again.
//! 3. Addresses can be hidden: each becomes a name, the same one everywhere, so that what belongs together is seen.

mod hide;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, SystemTime};

use bestby_api::{DEFAULT_CONFIG, path};
use clap::Args;
use humantime::format_rfc3339_seconds;

use crate::client::Client;
use crate::doctor;
use crate::failure::Failure;
use crate::output::Output;

/// A section that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer answers are cut; bytes. 10,000 sessions have 5 MB.
const LONGEST: usize = 16 << 20;

#[derive(Debug, Args)]
pub(crate) struct What {
    /// File to write, which must not exist; `-`: standard output [default: bestby-report-TIME.txt here]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Put names in the place of IP and hardware addresses; names of interfaces, flow rules and cgroups stay
    #[arg(long)]
    hide_addresses: bool,
    /// Configuration file to include
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Directory of bestbyd's pins
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/bestby")]
    bpffs: PathBuf,
}

/// What the agent is asked: the command, and the path of its answer.
const ASKED: &[(&str, &str)] = &[
    ("bestby --json status", path::STATUS),
    ("bestby --json doctor", path::DOCTOR),
    ("bestby --json iface ls", path::INTERFACES),
    ("bestby --json flow ls", path::FLOWS),
    ("bestby --json session ls", path::SESSIONS),
    ("bestby --json media ls", path::MEDIA),
    ("bestby --json tcp-real ls", path::TCP_REAL),
    ("bestby --json stats", path::STATS),
];

/// What other programs are asked; a program that is not there is an answer, too.
const RUN: &[&str] = &[
    "bestbyd --version",
    "uname -srvmo",
    "cat /etc/os-release",
    "ip -s -d link show",
    "tc -s -d qdisc show",
    "bpftool net show",
    "bpftool cgroup tree",
    "systemctl show bestbyd",
    "journalctl -u bestbyd -n 500 --no-pager --no-hostname -o short-iso",
    "cat /proc/self/mounts",
    "cat /proc/self/status",
];

/// One section of the report.
struct Section {
    command: String,
    text: String,
    failed: bool,
}

pub(crate) async fn run(what: What, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    let mut sections = collect(&what, client).await;
    if what.hide_addresses {
        let mut names = hide::Names::default();
        for section in &mut sections {
            section.text = names.hide(&section.text);
        }
    }
    let now = format_rfc3339_seconds(SystemTime::now()).to_string();
    let text = written(&sections, &now, what.hide_addresses);
    let file = match &what.file {
        Some(file) if file.as_os_str() == "-" => {
            output.text(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(file) => file.clone(),
        None => format!("bestby-report-{}.txt", now.replace(['-', ':'], "")).into(),
    };
    write(&file, &text)?;
    let failed = sections.iter().filter(|s| s.failed).count();
    output.text(&format!(
        "{} written: {} sections, {failed} of them say why they are empty; read it before you send it\n",
        file.display(),
        sections.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn collect(what: &What, client: &Client) -> Vec<Section> {
    let mut tasks = Vec::new();
    // All at once: a hanging agent costs one patience, not one for each question.
    for (command, path) in ASKED {
        let (client, path) = (client.clone(), *path);
        let answer = in_time(async move { asked(&client, path).await });
        tasks.push((command.to_string(), tokio::spawn(answer)));
    }
    let here = [
        format!("cat {}", what.config.display()),
        format!("ls -lR {}", what.bpffs.display()),
    ];
    for command in RUN.iter().map(ToString::to_string).chain(here) {
        let words: Vec<String> = command.split(' ').map(Into::into).collect();
        tasks.push((command, tokio::spawn(in_time(ran(words)))));
    }
    let of_kernel = serde_json::to_string_pretty(&doctor::of_kernel(&what.bpffs));
    let mut sections = vec![Section::new(
        "bestby doctor, asking the kernel only".into(),
        of_kernel.map_err(|e| e.to_string()),
    )];
    for (command, task) in tasks {
        let answer = task.await.unwrap_or_else(|e| Err(e.to_string()));
        sections.push(Section::new(command, answer));
    }
    sections
}

impl Section {
    fn new(command: String, answer: Result<String, String>) -> Self {
        let failed = answer.is_err();
        let mut text = answer.unwrap_or_else(|why| format!("FAILED: {why}"));
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push_str("\nCUT: the answer was longer");
        }
        Self {
            command,
            text,
            failed,
        }
    }
}

async fn in_time(answer: impl Future<Output = Result<String, String>>) -> Result<String, String> {
    tokio::time::timeout(PATIENCE, answer)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn asked(client: &Client, path: &str) -> Result<String, String> {
    let answer: serde_json::Value = client.get(path).await.map_err(|e| e.to_string())?;
    serde_json::to_string_pretty(&answer).map_err(|e| e.to_string())
}

async fn ran(words: Vec<String>) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|e| format!("{program}: {e}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        text += &error;
        return Ok(text);
    }
    Err(format!("{}\n{text}{error}", output.status))
}

fn written(sections: &[Section], made: &str, hidden: bool) -> String {
    let mut text = format!(
        "bestby {} report, made {made}, {} sections\n\
         Addresses are {}. It contains names of interfaces, flow rules, cgroups and units of this host.\n",
        env!("CARGO_PKG_VERSION"),
        sections.len(),
        if hidden {
            "hidden"
        } else {
            "NOT hidden (--hide-addresses hides them)"
        },
    );
    for section in sections {
        let _ = write!(
            text,
            "\n=== {}\n{}\n",
            section.command,
            section.text.trim_end()
        );
    }
    text
}

/// Only its owner may read it, and it takes no other file's place.
fn write(file: &Path, text: &str) -> Result<(), Failure> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .map_err(|e| {
            Failure::new(
                format!("cannot write {}: {e}", file.display()),
                "name another file: bestby report FILE",
            )
        })
}
